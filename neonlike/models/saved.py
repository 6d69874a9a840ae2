"""Methods of a model for files and dictionaries; :mod:`neonlike.models.saving` implements them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from neonlike.distributed.first import by_first
from neonlike.layers.core.parts import copied
from neonlike.logger import logger
from neonlike.models import saving
from neonlike.models.exchanged import Exchanged
from neonlike.models.statistics import complete
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    import os

    from neonlike.models.protocol import SavedModel

__all__ = ["Saved"]


class Saved(Exchanged):
    """A mixin with a model's methods for files and dictionaries."""

    made_on: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copied(self, memo, self.made_on is not None)

    def get_description(  # type: ignore[override]
        self: SavedModel, get_weights: bool = False, keep_states: bool = False, **_: Any
    ) -> Description:
        """Describe model, backend, cost and optimizer as a dictionary; see :mod:`neonlike.models.saving`.

        Parameters
        ----------
        get_weights : bool
            Whether the weights are part of it.
        keep_states : bool
            Whether the optimizer states are part of it.
        """
        return saving.describe(self, get_weights, keep_states)

    @overload
    def serialize(self: SavedModel, fn: None = None, keep_states: bool = True) -> Description: ...

    @overload
    def serialize(self: SavedModel, fn: str | os.PathLike[str], keep_states: bool = True) -> None: ...

    def serialize(self: SavedModel, fn: Any = None, keep_states: bool = True) -> Description | None:
        """Return a dictionary of the model with its weights, or save it to the file ``fn`` and return None.

        All ranks have to call this; rank 0 writes the file.

        Parameters
        ----------
        fn : path, optional
            File to write.
        keep_states : bool
            Whether the optimizer states are part of it.
        """
        complete(self)

        def described() -> Description:
            return self.get_description(get_weights=True, keep_states=keep_states)

        if fn is None:
            return described()
        by_first(lambda: saving.save_model(described(), fn))
        return None

    def save_params(self: SavedModel, param_path: Any, keep_states: bool = True) -> None:
        """Save the model to a file; an existing file is replaced only after the new one is complete.

        All ranks have to call this. Rank 0 writes, and the others return when the file is there; if it cannot be
        written, all raise the error.

        Parameters
        ----------
        param_path : path
            Names ending in ``.p``, ``.pkl``, ``.pickle`` or ``.pck`` select neon's pickle format; all others select
            arrays and JSON, see docs/model_files.md. Loading either format executes no code.
        keep_states : bool
            Also save the optimizer states, to resume the training later.
        """
        self.serialize(keep_states=keep_states, fn=param_path)

    def load_params(self: SavedModel, param_path: Any, load_states: bool = True) -> None:
        """Load a model saved by ``save_params``, into the existing layers if there are any.

        Parameters
        ----------
        param_path : path
            The file.
        load_states : bool
            Whether optimizer states are loaded, to resume the training.

        Raises
        ------
        ArgumentError, DTypeError
            If the file is no saved model, or does not fit the layers.
        """
        self.deserialize(saving.load_obj(param_path), load_states=load_states)

    def load_weights(self: SavedModel, weight_path: Any) -> None:
        """Deprecated name of ``load_params``.

        Parameters
        ----------
        weight_path : path
            The file.
        """
        logger.warning("Model.load_weights is deprecated: use load_params")
        self.load_params(weight_path)

    def deserialize(self: SavedModel, model_dict: dict[str, Any], data: Any = None, load_states: bool = True) -> None:
        """Restore the model from a dictionary, into the existing layers (by position) if there are any.

        The number of completed epochs and the backend's compatibility mode are restored, too. Data position, callback
        state and random streams belong to a training: a ``fit`` that resumes it with the same data restores them. When
        a callback calls this during a training, only weights and optimizer states are restored.

        Parameters
        ----------
        model_dict : dict
            Result of :meth:`serialize`, or the contents of a file.
        data : object
            Not used; kept for compatibility.
        load_states : bool
            Whether optimizer states are restored, too.

        Raises
        ------
        DTypeError, ArgumentError
            If it is no saved model, or does not fit the layers.
        """
        saving.restore(self, model_dict, load_states)
