"""Values of a reduce stage from the view of its passes: variation along the reduced axes, and required passes.

A *pass* goes once over the reduced axes. A *row value* is a reduction, or is computed from reductions and from arrays
that do not vary along these axes: it is known between two passes, once per row. A *shifted* sum is a reduction without
a
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
    """Values of a stage by index, with the number of passes before each is known.

    Attributes
    ----------
    by_index : mapping of int to Value
    depth : mapping of int to int
        Number of passes before a value is known.
    passes : int
        Total number of passes.
    shifted : mapping of int to Shifted
        Sums that follow from the results of a maximum's pass.
    """

    kernel: Kernel
    by_index: Mapping[int, Value]
    depth: Mapping[int, int]
    passes: int
    shifted: Mapping[int, Shifted] = field(default_factory=dict)

    def varies(self, shape: tuple[int, ...]) -> bool:
        """True if an array of ``shape`` varies along a reduced axis."""
        stage = self.kernel.stage
        missing = len(stage.shape) - len(shape)
        return any(axis >= missing and shape[axis - missing] != 1 for axis in stage.axes)

    def covers(self, array: Array) -> bool:
        """True for an output of the full space."""
        return array.shape == self.kernel.stage.shape

    def is_row_value(self, index: int) -> bool:
        """True for reductions and values computed from them and from row-level inputs."""
        value = self.by_index[index]
        return value.spec.kind is Kind.REDUCTION or not self.varies(value.shape)

    def reductions(self, depth: int) -> list[Value]:
        """Reductions computed in pass ``depth`` (from 1)."""
        return [v for v in self.kernel.values if self.is_made(v) and self.depth[v.index] == depth]

    def is_made(self, value: Value) -> bool:
        """True for a reduction computed in a pass."""
        return value.spec.kind is Kind.REDUCTION and value.index not in self.shifted

    def args(self, value: Value) -> tuple[Arg, ...]:
        """Operands of ``value`` that must be available after the required passes."""
        shifted = self.shifted.get(value.index)
        return tuple(value.args) if shifted is None else (ValueArg(shifted.most), shifted.difference.args[1])

    def settled(self, depth: int) -> list[Value]:
        """Row values that become computable after exactly ``depth`` passes."""
        known = [v for v in self.kernel.values if self.depth[v.index] == depth and self.is_row_value(v.index)]
        return [v for v in known if not self.is_made(v)]

    def wanted(self) -> list[list[Arg]]:
        """Values computed by each pass, and last the values stored by the final loop."""
        outputs = zip(self.kernel.outputs, self.kernel.sinks)
        reduced = [[v.args[0] for v in self.reductions(depth)] for depth in range(1, self.passes + 1)]
        return [*reduced, [arg for array, arg in outputs if self.covers(array)]]

    def computed(self, args: Iterable[Arg]) -> list[int]:
        """The entries of ``args`` that are values of this stage, not arrays or numbers."""
        return [arg.value for arg in args if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]

    def selects(self) -> bool:
        """True if a reduction is of truth values, of relu or of exp2, which select constants."""
        reduced = [value.args[0] for value in self.kernel.values if value.spec.kind is Kind.REDUCTION]
        made = [self.by_index[index].spec for index in self.computed(reduced)]
        return any(spec.dtype is DTypeRule.TRUTH or spec.name in ("relu", "exp2") for spec in made)


def reduce_values(kernel: Kernel) -> ReduceValues:
    """Sort the values of ``kernel`` by pass."""
    depth = pass_depths(kernel.values)
    passes = max(depth.values(), default=0)
    return ReduceValues(kernel, {value.index: value for value in kernel.values}, depth, passes)
