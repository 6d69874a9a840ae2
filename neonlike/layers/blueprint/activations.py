"""Activations by name."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neonlike.backends.expressions.activation import asks_for
from neonlike.checks import brief, number
from neonlike.errors import ArgumentError, did_you_mean
from neonlike.layers.core.base import require_transform
from neonlike.layers.core.elementwise import Activation as ActivationLayer
from neonlike.transforms import GELU, Explin, Identity, Logistic, Rectlin, Rectlinclip, Softmax, Swish, Tanh
from neonlike.transforms.transform import Transform

if TYPE_CHECKING:
    from neonlike.layers.blueprint.description import Function


class Scaled(Transform):
    """alpha · x + beta.

    Parameters
    ----------
    alpha, beta : float
        Factor and summand.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.blueprint.activations import Scaled
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Scaled(2.0, 1.0)(be.array([[3.0]])).tolist()
    [[7.0]]
    """

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
"""Name -> transform, and the arguments of it that alpha and beta are."""


@dataclass(frozen=True)
class Activation:
    """The activation of a blueprint: a name with alpha and beta, or a transform.

    Attributes
    ----------
    name : str
        One of :data:`NAMES`, or the name of the transform's class.
    given : tuple of (str, float)
        Arguments of the transform.
    transform : Transform or None
        A transform given in place of a name.
    """

    name: str = "identity"
    given: tuple[tuple[str, float], ...] = ()
    transform: Any = None

    @staticmethod
    def of(where: str, activation: Function, alpha: Any = None, beta: Any = None) -> Activation:
        """The activation of a name, with its parameters, or of a transform; None is the identity.

        Parameters
        ----------
        where : str
            Subject of the messages.
        activation : str, Transform or None
            Name of an activation, or a transform.
        alpha, beta : float, optional
            Parameters of a named activation, see :class:`~neonlike.layers.blueprint.Blueprints`.

        Raises
        ------
        ArgumentError
            If the name is unknown, or the activation has no such parameter.
        """
        activation = "identity" if activation is None else activation
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
        """Whether the derivative is a function of the activation's input."""
        return "inputs" in asks_for(self.transform if self.transform is not None else NAMES[self.name][0])

    @property
    def is_identity(self) -> bool:
        """Whether the outputs are the inputs."""
        return self.name == "identity" or isinstance(self.transform, Identity)

    def make(self) -> Any:
        """A transform of a layer's own."""
        return NAMES[self.name][0](**dict(self.given)) if self.transform is None else copy.copy(self.transform)

    def layers(self) -> list[Any]:
        """The layer that computes it, in a list; an empty list for the identity."""
        return [] if self.is_identity else [ActivationLayer(self.make())]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.given)])


IDENTITY = Activation()
