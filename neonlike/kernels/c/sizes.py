"""Sizes and strides that a kernel of an op-tree is called with: a struct of 64-bit integers, and what fills it.

``fit`` fills in the numbers, the templates declare the struct and read its members by name, both from the lists here.
After the strides may follow *outer axes*: how many are kept and reduced, then size and stride of each array, axis by
axis, which ``advance`` in the templates goes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neonlike.kernels.codegen.layout import Axis

OuterAxes = tuple[Sequence[Axis], Sequence[Axis]]
"""Kept and reduced ones."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Names of the numbers that a form of kernel is called with.

    Parameters
    ----------
    names : tuple of str
        Of the sizes.
    steps : tuple of str
        Of the strides of each array, in elements.
    meaning : str
        Of both, a comment of the kernel.
    """

    names: tuple[str, ...]
    steps: tuple[str, ...]
    meaning: str

    def fill(
        self, sizes: Sequence[int], steps: Iterable[Sequence[int]], outer: OuterAxes | None = None
    ) -> list[int]:
        """The numbers: ``sizes``, the ``steps`` of each array, and outer axes if the kernel takes them.

        Parameters
        ----------
        sizes : sequence of int
            In the order of ``names``.
        steps : iterable
            Of each array, in the order of ``steps``.
        outer : OuterAxes, optional
        """
        filled = [*sizes]
        assert len(filled) == len(self.names)
        for of_array in steps:
            assert len(of_array) == len(self.steps)
            filled += of_array
        if outer is not None:
            kept, reduced = outer
            filled += [len(kept), len(reduced)]
            for axis in (*kept, *reduced):
                filled += [axis.size, *axis.steps]
        return filled


BY_ROWS = Sizes(("length",), ("row", "along"), "length of a row; strides between rows and within one")
BY_COLUMNS = Sizes(
    ("length", "columns", "blocks", "width", "ahead"),
    ("outer", "down", "right"),
    "rows; columns, in blocks of a width; rows to fetch ahead; strides between such groups of rows, down and right",
)
BY_LANES = Sizes(
    ("length", "lanes", "group", "blocks", "columns", "last", "adjacent"),
    ("down", "right"),
    "rows of lanes; lanes of a row, and its columns; blocks of such rows, and all columns; lanes of the last row; "
    "whether adjacent lanes are adjacent columns; strides between rows of lanes and between columns",
)


def elementwise_sizes(rank: int, blocks: bool = False) -> Sizes:
    """Sizes for a kernel without reductions: of axes, rows of a block if it has blocks, and strides along the axes."""
    axes = range(rank)
    sizes, steps = [f"size_{axis}" for axis in axes], tuple([f"along_{axis}" for axis in axes])
    if blocks:
        return Sizes((*sizes, "each"), steps, "axes, the last innermost; rows of a block; strides along the axes")
    return Sizes(tuple(sizes), steps, "axes, the last innermost, and strides along them")
