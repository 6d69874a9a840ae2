"""The update of a layer's parameters by an optimizer, which counts the steps of each layer apart."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from neonlike.checks import shown
from neonlike.errors import DTypeError
from neonlike.optimizers import Optimizer

_START: WeakKeyDictionary[Optimizer, dict[str, Any]] = WeakKeyDictionary()
"""The progress of an optimizer when it was first called for a layer that a blueprint built."""


def require_optimizer(layer: Any, operation: str, hyper: Any) -> None:
    """Raise DTypeError unless ``hyper`` is an optimizer, or None."""
    if hyper is not None and not isinstance(hyper, Optimizer):
        raise DTypeError(
            f"{layer.blueprint}: {operation} takes an optimizer, such as GradientDescentMomentum(0.1, 0.9) or Adam(); "
            f"got {shown(hyper)}"
        )


def update(layer: Any, hyper: Optimizer, epoch: int) -> None:
    """Update the parameters of ``layer``, or of all layers of a network, in place.

    Some optimizers count their calls (Adam). Layers may be updated one by one by the same optimizer: each goes on from
    its own number of calls.
    """
    start = _START.setdefault(hyper, hyper.progress())
    hyper.set_progress(layer.progress.get(hyper, start))
    hyper.optimize(layer.trainable, epoch)
    layer.progress[hyper] = hyper.progress()
