"""Layers that bring outputs together or take them apart: sum, concat, branch, split, the last step of a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.layers.blueprint.base import Blueprint
from neonlike.layers.blueprint.built import BuiltLayer


@dataclass(frozen=True)
class Sum(Blueprint):
    """The sum of inputs of one shape."""

    kind = "sum"

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output, as each of the inputs."""
        first: TensorDesc = self.src_desc[0]
        return first

    def layer_class(self) -> Any:
        """The class of the layers."""
        return SumLayer


class SumLayer(BuiltLayer):
    """y = the sum of all x."""

    def _forward(self, inference: bool) -> None:
        self.output[:] = reduce(add, self.input)

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        for gradient in self.diff_input or ():
            gradient[:] = self.diff_output


@dataclass(frozen=True)
class Concat(Blueprint):
    """Inputs side by side along an axis.

    Attributes
    ----------
    axis : int
    """

    dst: TensorDesc
    axis: int

    kind = "concat"

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output."""
        return self.dst

    def layer_class(self) -> Any:
        """The class of the layers."""
        return ConcatLayer


class ConcatLayer(BuiltLayer):
    """y = all x, one after the other."""

    def _allocate(self) -> None:
        sizes = [desc.shape[self.blueprint.axis] for desc in self.blueprint.src_desc]
        self._parts = parts(self.output, self.blueprint.axis, sizes)
        self._diff_parts = parts(self.diff_output, self.blueprint.axis, sizes) if self.train else []

    def _forward(self, inference: bool) -> None:
        for part, x in zip(self._parts, self.input):
            part[:] = x

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        for gradient, part in zip(self.diff_input or (), self._diff_parts):
            gradient[:] = part


@dataclass(frozen=True)
class Branch(Blueprint):
    """The input cut into parts along an axis; several outputs.

    Attributes
    ----------
    axis : int
    """

    dst: tuple[TensorDesc, ...]
    axis: int

    kind = "branch"

    @property
    def dst_desc(self) -> tuple[TensorDesc, ...]:  # type: ignore[override]
        """The outputs."""
        return self.dst

    def layer_class(self) -> Any:
        """The class of the layers."""
        return BranchLayer


class BranchLayer(BuiltLayer):
    """Each y = its part of x."""

    def _allocate(self) -> None:
        sizes = [desc.shape[self.blueprint.axis] for desc in self.blueprint.dst]
        self._parts = parts(self.input, self.blueprint.axis, sizes)
        self._diff_parts = [] if self.diff_input is None else parts(self.diff_input, self.blueprint.axis, sizes)

    def _forward(self, inference: bool) -> None:
        for y, part in zip(self.output, self._parts):
            y[:] = part

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        for part, gradient in zip(self._diff_parts, self.diff_output):
            part[:] = gradient


@dataclass(frozen=True)
class Split(Blueprint):
    """The input as each of several outputs.

    Attributes
    ----------
    copies : int
    """

    copies: int

    kind = "split"

    @property
    def dst_desc(self) -> tuple[TensorDesc, ...]:  # type: ignore[override]
        """The outputs."""
        return (self.src_desc,) * self.copies

    def layer_class(self) -> Any:
        """The class of the layers."""
        return SplitLayer


class SplitLayer(BuiltLayer):
    """Each output is the input itself: layers leave their inputs as they are. Gradients add up."""

    def _output(self, given: Any) -> Any:
        return (self.input,) * self.blueprint.copies

    def _forward(self, inference: bool) -> None:
        """The outputs are there."""

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        if self.diff_input is not None:
            self.diff_input[:] = reduce(add, self.diff_output)


@dataclass(frozen=True)
class Abbreviate(Blueprint):
    """The last step of a sequence (features, steps, N)."""

    dst: TensorDesc

    kind = "abbreviate"

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output."""
        return self.dst

    def layer_class(self) -> Any:
        """The class of the layers."""
        return AbbreviateLayer


class AbbreviateLayer(BuiltLayer):
    """y = the last step of x."""

    def _forward(self, inference: bool) -> None:
        self.output[:] = self.input[:, -1, :]

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        if self.diff_input is not None:
            self.diff_input.fill(0)
            self.diff_input[:, -1, :] = self.diff_output


def parts(tensor: Any, axis: int, sizes: list[int]) -> list[Any]:
    """Views of ``tensor``, of these sizes along an axis."""
    ends = list(accumulate(sizes))
    return [tensor[(slice(None),) * axis + (slice(end - size, end),)] for size, end in zip(sizes, ends)]
