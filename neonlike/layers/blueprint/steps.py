"""The update of a layer's parameters by an optimizer."""

from __future__ import annotations

from typing import Any

from neonlike.checks import shown
from neonlike.errors import DTypeError
from neonlike.optimizers import Optimizer


def require_optimizer(layer: Any, operation: str, hyper: Any) -> None:
    """Raise DTypeError unless ``hyper`` is an optimizer, or None."""
    if hyper is not None and not isinstance(hyper, Optimizer):
        raise DTypeError(
            f"{layer.blueprint}: {operation} takes an optimizer, such as GradientDescentMomentum(0.1, 0.9) or Adam(); "
            f"got {shown(hyper)}"
        )


def update(layer: Any, hyper: Optimizer, epoch: int) -> None:
    """Update the parameters of ``layer``, or of all layers of a network, in place.

    Layers may be updated one by one by the same optimizer: those that count steps (Adam) count them for each.
    """
    hyper.optimize(layer.trainable, epoch)
