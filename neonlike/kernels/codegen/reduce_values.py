"""The values of a reduce stage as its passes see them: which vary along the reduced axes, which pass needs which.

A *pass* goes once over the reduced axes. A *row value* is a reduction, or is computed of reductions and of arrays that
do not vary along these axes: it is known between two passes, once a row. A *shifted* sum is a reduction that takes no
pass of its own (``shifted.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from neonlike.kernels.codegen.emit import Array, Kernel
from neonlike.kernels.planning.lower import Arg, Value, ValueArg
from neonlike.kernels.planning.plan import pass_depths
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.ops import Kind


class Shifted(NamedTuple):
    """A sum of exp(x - c): the maximum of x, and the difference x - c."""

    most: int
    difference: Value


@dataclass(frozen=True, slots=True)
class ReduceValues:
    """The values of a stage by index, and the passes that end before each is known.

    Attributes
    ----------
    by_index : mapping of int to Value
    depth : mapping of int to int
        Passes that end before a value is known.
    passes : int
        How many there are.
    shifted : mapping of int to Shifted
        Sums that follow from what the pass of a maximum finds.
    """

    kernel: Kernel
    by_index: Mapping[int, Value]
    depth: Mapping[int, int]
    passes: int
    shifted: Mapping[int, Shifted] = field(default_factory=dict)

    def varies(self, shape: tuple[int, ...]) -> bool:
        """True if something of ``shape`` varies along a reduced axis."""
        stage = self.kernel.stage
        missing = len(stage.shape) - len(shape)
        return any(axis >= missing and shape[axis - missing] != 1 for axis in stage.axes)

    def covers(self, array: Array) -> bool:
        """True for an output of the whole space."""
        return array.shape == self.kernel.stage.shape

    def is_row_value(self, index: int) -> bool:
        """True for reductions and what is computed of them and of row-level inputs."""
        value = self.by_index[index]
        return value.spec.kind is Kind.REDUCTION or not self.varies(value.shape)

    def reductions(self, depth: int) -> list[Value]:
        """The reductions that pass ``depth`` (from 1) makes."""
        return [v for v in self.kernel.values if self.is_made(v) and self.depth[v.index] == depth]

    def is_made(self, value: Value) -> bool:
        """True for a reduction that a pass makes."""
        return value.spec.kind is Kind.REDUCTION and value.index not in self.shifted

    def args(self, value: Value) -> tuple[Arg, ...]:
        """The operands of ``value``, once the passes that it needs are done."""
        shifted = self.shifted.get(value.index)
        return tuple(value.args) if shifted is None else (ValueArg(shifted.most), shifted.difference.args[1])

    def settled(self, depth: int) -> list[Value]:
        """Row values that can be computed after ``depth`` passes, and not before."""
        known = [v for v in self.kernel.values if self.depth[v.index] == depth and self.is_row_value(v.index)]
        return [v for v in known if not self.is_made(v)]

    def wanted(self) -> list[list[Arg]]:
        """The values that each pass computes, and last those that the final loop stores."""
        outputs = zip(self.kernel.outputs, self.kernel.sinks)
        reduced = [[v.args[0] for v in self.reductions(depth)] for depth in range(1, self.passes + 1)]
        return [*reduced, [arg for array, arg in outputs if self.covers(array)]]

    def computed(self, args: Iterable[Arg]) -> list[int]:
        """Those of ``args`` that are values of this stage, not arrays or numbers."""
        return [arg.value for arg in args if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]

    def selects(self) -> bool:
        """True if a reduction is of truth values, of relu or of exp2, which are a constant in one case or in both."""
        reduced = [value.args[0] for value in self.kernel.values if value.spec.kind is Kind.REDUCTION]
        made = [self.by_index[index].spec for index in self.computed(reduced)]
        return any(spec.dtype is DTypeRule.TRUTH or spec.name in ("relu", "exp2") for spec in made)


def reduce_values(kernel: Kernel) -> ReduceValues:
    """The values of ``kernel``, sorted by pass."""
    depth = pass_depths(kernel.values)
    passes = max(depth.values(), default=0)
    return ReduceValues(kernel, {value.index: value for value in kernel.values}, depth, passes)
