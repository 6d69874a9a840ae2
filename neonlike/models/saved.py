"""A model's methods for its files and dictionaries, which :mod:`neonlike.models.saving` makes and reads."""

from __future__ import annotations

from typing import Any

from neonlike.layers.core.parts import copied
from neonlike.logger import logger
from neonlike.models import saving
from neonlike.nervanaobject import Description, NervanaObject

__all__ = ["Saved"]


class Saved(NervanaObject):
    """A model's methods for files and dictionaries."""

    made_on: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copied(self, memo, self.made_on is not None)

    def get_description(self, get_weights: bool = False, keep_states: bool = False, **_: Any) -> Description:  # type: ignore[override]
        """Dictionary that describes the model, the backend, cost and optimizer; see :mod:`neonlike.models.saving`."""
        return saving.describe(self, get_weights, keep_states)

    def serialize(self, fn: Any = None, keep_states: bool = True) -> Description | None:
        """Dictionary of the model with its weights, or None after saving it to the file ``fn``."""
        described = self.get_description(get_weights=True, keep_states=keep_states)
        if fn is None:
            return described
        saving.save_model(described, fn)
        return None

    def save_params(self, param_path: Any, keep_states: bool = True) -> None:
        """Save the model to a file, in place of one that is there once it is written whole.

        Parameters
        ----------
        param_path : path
            Names that end in ``.p``, ``.pkl``, ``.pickle`` or ``.pck`` are pickles as neon writes them; all others
            arrays and JSON, see docs/model_files.md. Both are loaded without running anything.
        keep_states : bool
            Save what the optimizer keeps for each parameter too, to continue the training later.
        """
        self.serialize(keep_states=keep_states, fn=param_path)

    def load_params(self, param_path: Any, load_states: bool = True) -> None:
        """Load a model saved by ``save_params``, into the present layers if there are any."""
        self.deserialize(saving.load_obj(param_path), load_states=load_states)

    def load_weights(self, weight_path: Any) -> None:
        """Deprecated name of ``load_params``."""
        logger.warning("Model.load_weights is deprecated: use load_params")
        self.load_params(weight_path)

    def deserialize(self, model_dict: dict[str, Any], data: Any = None, load_states: bool = True) -> None:
        """Restore the model from a dictionary, into the present layers (by position) if there are any.

        Also restored are the number of epochs done and the backend's compatibility mode. Position in the data, what
        callbacks remember and random streams are those of a training: they are restored by a ``fit`` that resumes it,
        with the same data. Called by a callback, while a training goes on, weights and states of the optimizer alone
        are restored.
        """
        saving.restore(self, model_dict, load_states)
