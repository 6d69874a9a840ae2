"""Activations by name, and the part of a layer that applies one and takes its derivative."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from neonlike.backends.families.activation import asks_for
from neonlike.checks import brief, number
from neonlike.errors import ArgumentError, did_you_mean
from neonlike.layers.core.base import require_transform
from neonlike.layers.core.bias import EXPRESSIONS
from neonlike.transforms import (
    GELU,
    Explin,
    Identity,
    Logistic,
    Rectlin,
    Rectlinclip,
    Softmax,
    Swish,
    Tanh,
)
from neonlike.transforms.transform import Transform


class Scaled(Transform):
    """alpha · x + beta."""

    def __init__(self, alpha: float = 1.0, beta: float = 0.0, name: str | None = None) -> None:
        super().__init__(name)
        self.alpha, self.beta = alpha, beta

    def __call__(self, x: Any) -> Any:
        """Expression of the scaled ``x``."""
        return self.alpha * x + self.beta

    def bprop(self, x: Any) -> Any:
        """The number alpha."""
        return self.alpha


NAMES: dict[str, tuple[type[Any], tuple[str | None, str | None]]] = {
    "identity": (Identity, (None, None)),
    "linear": (Scaled, ("alpha", "beta")),
    "relu": (Rectlin, ("slope", None)),
    "bounded_relu": (Rectlinclip, ("xcut", None)),
    "elu": (Explin, ("alpha", None)),
    "logistic": (Logistic, (None, None)),
    "sigmoid": (Logistic, (None, None)),
    "tanh": (Tanh, (None, None)),
    "softmax": (Softmax, (None, None)),
    "swish": (Swish, ("beta", None)),
    "gelu": (GELU, (None, None)),
}
"""Name -> transform, and which of its arguments are alpha and beta."""


@dataclass(frozen=True)
class Activation:
    """The activation of a blueprint: a name with alpha and beta, or a transform.

    Attributes
    ----------
    name : str
        One of :data:`NAMES`, or that of the transform's class.
    given : tuple of (str, float)
        The arguments of the transform that were given.
    transform : Transform or None
        What was given in place of a name.
    """

    name: str
    given: tuple[tuple[str, float], ...] = ()
    transform: Any = None

    @staticmethod
    def of(where: str, activation: Any, alpha: Any = None, beta: Any = None) -> Activation:
        """The activation that was asked for; None is the identity.

        Raises
        ------
        ArgumentError
            If there is none of that name, or it has no such parameter.
        """
        if activation is None:
            activation = "identity"
        places: tuple[str | None, str | None] = (None, None)
        if not isinstance(activation, str):
            require_transform(activation, where)
            name = type(activation).__name__
        elif activation not in NAMES:
            hint = did_you_mean(activation, NAMES)
            raise ArgumentError(f"{where}: there is no activation {brief(activation)}, only {', '.join(NAMES)}{hint}")
        else:
            name, places = ("logistic" if activation == "sigmoid" else activation), NAMES[activation][1]
        given: list[tuple[str, float]] = []
        for label, place, value in zip(("alpha", "beta"), places, (alpha, beta)):
            if value is None:
                continue
            if place is None:
                raise ArgumentError(f"{where}: {name} has no parameter {label}, got {brief(value)}; leave it out")
            given.append((place, number(where, label, value)))
        return Activation(name, tuple(given), None if isinstance(activation, str) else activation)

    @property
    def keeps_inputs(self) -> bool:
        """Whether the derivative is a function of what the activation was applied to."""
        return "inputs" in asks_for(self.transform if self.transform is not None else NAMES[self.name][0])

    @property
    def is_identity(self) -> bool:
        """Whether nothing is to be done."""
        return self.name == "identity" or isinstance(self.transform, Identity)

    def make(self) -> Any:
        """A transform of this layer's own."""
        if self.transform is not None:
            return copy.copy(self.transform)
        return NAMES[self.name][0](**dict(self.given))

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.given)])


class ActivationPart:
    """y = f(z) of a layer, and the gradient by z.

    Parameters
    ----------
    activation : Activation
    z, y : Tensor (rows, columns)
        One tensor, unless the derivative needs z.
    diff_y, diff_z : Tensor (rows, columns) or None
        One tensor for the identity; None in inference.
    """

    def __init__(self, be: Any, activation: Activation, z: Any, y: Any, diff_y: Any, diff_z: Any) -> None:
        self.be, self.activation = be, activation
        self.z, self.y, self.diff_y, self.diff_z = z, y, diff_y, diff_z
        self.transform = activation.make()
        self.left_to_cost = False

    def leave_to_cost(self, left: bool) -> None:
        """Let the derivative be 1, as the cost's gradient contains it; or not."""
        self.left_to_cost = left
        if isinstance(self.transform, Logistic):
            self.transform.set_shortcut(left)

    def forward(self, bias: Any = None) -> None:
        """y = f(z + bias); of a bias (rows, 1)."""
        z, y, transform = self.z, self.y, self.transform
        if y is z and type(transform) in EXPRESSIONS:
            if bias is not None or not self.activation.is_identity:
                y[:] = transform(z if bias is None else z + bias)
            return
        if bias is not None:
            z[:] = z + bias
        self.be.fprop_transform(None, transform, z, y)

    def backward(self) -> None:
        """diff_z = f'(z) · diff_y."""
        be, transform = self.be, self.transform
        if self.diff_z is self.diff_y:
            return
        if isinstance(transform, Softmax) and not self.left_to_cost:
            y, g = self.y, self.diff_y
            self.diff_z[:] = y * (g - be.sum(g * y, axis=transform.axis))
            return
        kept = self.z if self.z is not self.y else None
        be.bprop_transform(None, transform, self.y, self.diff_y, self.diff_z, inputs=kept)
