"""Blueprints of layers that move values: sum, concat, branch, split, the last step of a sequence; and Gaussian noise.

Layers of :mod:`neonlike.layers` have one input and one output, so these are assignments of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any

from neonlike.layers.blueprint.base import Blueprint
from neonlike.layers.blueprint.built import BuiltLayer, Scales

Moves = Callable[[Any, Any, int], Iterable[tuple[Any, Any]]]
"""From what, to what, and along which axis: tensors, and the expressions that are assigned to them."""


def parts(tensor: Any, axis: int, like: Any) -> list[Any]:
    """Views of ``tensor``, which follow each other along an axis, of the sizes of the tensors ``like``.

    Parameters
    ----------
    tensor : Tensor
        The whole.
    axis : int
        The axis that is cut.
    like : list of Tensor
        Tensors of the sizes of the parts.
    """
    sizes = [one.shape[axis] for one in like]
    return [tensor[(slice(None),) * axis + (slice(end - size, end),)] for size, end in zip(sizes, accumulate(sizes))]


MOVES: dict[str, tuple[Moves, Moves]] = {
    "sum": (lambda x, y, _: [(y, reduce(add, x))], lambda dy, dx, _: [(one, dy) for one in dx]),
    "concat": (lambda x, y, axis: zip(parts(y, axis, x), x), lambda dy, dx, axis: zip(dx, parts(dy, axis, dx))),
    "branch": (lambda x, y, axis: zip(y, parts(x, axis, y)), lambda dy, dx, axis: zip(parts(dx, axis, dy), dy)),
    "split": (lambda x, y, _: [], lambda dy, dx, _: [(dx, reduce(add, dy))]),
    "abbreviate": (lambda x, y, _: [(y, x[:, -1])], lambda dy, dx, _: [(dx, 0), (dx[:, -1], dy)]),
}
"""Kind of blueprint -> the assignments of its forward pass, and those of the gradients."""


class StreamLayer(BuiltLayer):
    """A layer whose passes are assignments. The outputs of split are its input: no layer changes its input."""

    def _output(self, given: Any) -> Any:
        bp = self.blueprint
        return (self.input,) * len(bp.dst_desc) if bp.kind == "split" else super()._output(given)

    def _allocate(self) -> None:
        bp = self.blueprint
        forward, backward = MOVES[bp.kind]
        self._moves = list(forward(self.input, self.output, bp.axis))
        has_gradients = self.diff_input is not None
        self._moves_back = list(backward(self.diff_output, self.diff_input, bp.axis)) if has_gradients else []

    def _forward(self, inference: bool) -> None:
        for target, value in self._moves:
            target[:] = value

    def _backward_diff(self, scales: Scales) -> None:
        for target, value in self._moves_back:
            target[:] = value


@dataclass(frozen=True)
class Stream(Blueprint):
    """A blueprint of a layer that moves values.

    Attributes
    ----------
    kind : str
        One of :data:`MOVES`.
    axis : int
        Axis of concat and branch.
    """

    axis: int = 0

    layer_class = StreamLayer


class GaussianDropoutLayer(BuiltLayer):
    """y = m · x; a layer for inference has its input as its output.

    Attributes
    ----------
    mask : Tensor or None
        m of the last training pass.

    References
    ----------
    Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014), section 10.
    """

    mask: Any

    def _output(self, given: Any) -> Any:
        return super()._output(given) if self.train or given is not None else self.input

    def _allocate(self) -> None:
        self.mask = self._new(self.blueprint.src_desc).fill(1) if self.train else None

    def _forward(self, inference: bool) -> None:
        if not inference:
            self.mask[:] = 1 + self.blueprint.sd * self.be.randn()
            self.output[:] = self.input * self.mask
        elif self.output is not self.input:
            self.output[:] = self.input

    def _backward_diff(self, scales: Scales) -> None:
        if self.diff_input is not None:
            self.diff_input[:] = self.diff_output * self.mask


@dataclass(frozen=True)
class GaussianDropout(Blueprint):
    """Each element times a number drawn from N(1, sd²) in training; nothing in inference.

    Parameters
    ----------
    sd : float
        Standard deviation of the numbers.
    """

    sd: float

    hands_input_on = True
    layer_class = GaussianDropoutLayer
