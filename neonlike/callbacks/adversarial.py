"""Callbacks that record the costs of generative adversarial networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.callbacks.callback import Callback
from neonlike.callbacks.store import Steps, first_minibatch, new_dataset
from neonlike.errors import DTypeError
from neonlike.models.gan import GAN

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"


def require_gan(callback: Callback, model: Model) -> None:
    """Raise unless ``model`` is a GAN."""
    if not isinstance(model, GAN):
        raise DTypeError(f"{callback.classnm}: the model is a {type(model).__name__}; this callback is for a GAN")


class GANCostCallback(Callback):
    """Record the discriminator's cost in ``gan/cost_dis``, and the generator's updates in ``gan/gen_iter``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import GANCostCallback
    >>> be = gen_backend("cpu", batch_size=2)
    >>> GANCostCallback().epoch_freq
    1
    """

    def __init__(self) -> None:
        super().__init__(epoch_freq=1)

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the datasets.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        require_gan(self, model)
        points = int(callback_data["config"].attrs["total_minibatches"])
        self._datasets = [
            (Steps(new_dataset(callback_data, f"gan/{name}", (points,), dtype, time_markers="minibatch")), name)
            for name, dtype in (("gen_iter", "int64"), ("cost_dis", "float32"))
        ]

    def on_minibatch_end(self, callback_data: Records, model: Any, epoch: int, minibatch: int) -> None:
        """Record the minibatch.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        at = first_minibatch(callback_data, epoch) + minibatch
        (iterations, _), (costs, _) = self._datasets
        iterations[at] = model.gen_iter
        costs[at] = model.cost_dis.item()
