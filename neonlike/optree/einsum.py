"""Sums of products by subscripts, ``einsum("ij,jk->ik", a, b)``, built from transposes, reshapes, products and sums.

Operands are contracted from left to right, two at a time. Labels that both have and neither the result nor a later
operand needs are summed over; the other shared labels are batch axes. Without a batch axis the contraction is one
matrix product. With one it is a single kernel of products and sums, which stores no product in memory, or, for large
products, one matrix product per batch element.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree import arrange, shapes
from neonlike.optree.functions import F
from neonlike.optree.node import Expression, expression
from neonlike.optree.shapes import Shape

MOST_PRODUCTS, LARGE = 64, 1 << 15
"""Limits for batched contractions by matrix products: number of products, and multiplications in each."""
_ELLIPSIS = "αβγδεζηθ"
"""Internal labels for the axes of ``...``."""


@dataclass(frozen=True, slots=True)
class Term:
    """An expression with a label per axis; unlabelled axes of size 1 may pad it to 2-D."""

    value: Any
    labels: str

    def sizes(self) -> dict[str, int]:
        """Size of each label."""
        return dict(zip(self.labels, self.value.shape))

    def as_labels(self, labels: str) -> Any:
        """The value with the axes of ``labels``, in that order; missing labels have size 1."""
        own = [label for label in labels if label in self.labels]
        value = self.value
        if len(own) == len(value.shape):
            order = tuple(self.labels.index(label) for label in own)
            value = F.transpose(value, order) if order != tuple(range(len(order))) else value
        sizes = self.sizes()
        return arrange.reshape(value, _padded([sizes.get(label, 1) for label in labels]))

    def summed(self, kept: str) -> Term:
        """Sum over all labels not in ``kept``."""
        gone = tuple(axis for axis, label in enumerate(self.labels) if label not in kept)
        if not gone:
            return self
        left = "".join(label for label in self.labels if label in kept)
        sizes = self.sizes()
        total = F.sum(self.value, gone)
        return Term(arrange.reshape(total, _padded([sizes[label] for label in left])), left)


def _padded(sizes: Sequence[int]) -> Shape:
    return (*sizes, *[1] * (2 - len(sizes)))


def einsum(subscripts: Any, operands: Sequence[Any], backend: Any = None) -> Expression:
    """The sum of products described by ``subscripts``; see ``Backend.einsum``.

    Parameters
    ----------
    subscripts : str
    operands : sequence of expressions or arrays
    backend : Backend, optional
        For arrays.
    """
    backend = backend or next((b for o in operands if (b := getattr(o, "backend", None)) is not None), None)
    values = [expression("einsum", operand, backend) for operand in operands]
    inputs, output = _parsed(subscripts, [value.shape for value in values])
    terms = [_labelled(value, labels) for value, labels in zip(values, inputs)]
    sizes: dict[str, int] = {}
    for term in terms:
        for label, size in term.sizes().items():
            if sizes.setdefault(label, size) != size:
                raise ShapeError(
                    f"einsum: {_shown(subscripts)}: {_named(label)} has size {sizes[label]} in one operand and {size} "
                    f"in another; shapes are {', '.join(str(value.shape) for value in values)}"
                )
    done, *rest = [
        term.summed(output + "".join(other.labels for other in terms if other is not term)) for term in terms
    ]
    while rest:
        nearest, *rest = rest
        done = _contracted(done, nearest, output + "".join(term.labels for term in rest))
    result: Expression = done.summed(output).as_labels(output)
    return result


# Reading subscripts -------------------------------------------------------------------------------------------------


def _shown(subscripts: Any) -> str:
    return repr(subscripts)[:60]


def _named(label: str) -> str:
    return "an axis of ..." if label in _ELLIPSIS else f"{label!r}"


def _parsed(subscripts: Any, found: list[Shape]) -> tuple[list[str], str]:
    """Parse the labels of each operand, one per axis, and of the result.

    Raises
    ------
    DTypeError
        If ``subscripts`` is not a string.
    ArgumentError
        If it is malformed, or names another number of operands.
    """
    if not isinstance(subscripts, str):
        raise DTypeError(f"einsum: subscripts must be a text such as 'ij,jk->ik', got {_shown(subscripts)}")
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    parts = left.split(",")
    for part in (*parts, right):
        letters = part.replace("...", "", 1)
        if not all(letter in string.ascii_letters for letter in letters):
            raise ArgumentError(
                f"einsum: {_shown(subscripts)}: subscripts are letters, one '...', commas and one '->', got {part!r}"
            )
    if len(parts) != len(found):
        raise ArgumentError(f"einsum: {_shown(subscripts)} is for {len(parts)} operands, got {len(found)}")
    inputs = [_expanded(subscripts, part, shape) for part, shape in zip(parts, found)]
    ellipsis = max((labels[0] for labels in inputs), key=len)
    used = [labels[1] for labels in inputs]
    everything = "".join(used)
    if arrow:
        output = right.replace("...", ellipsis, 1)
    else:
        output = ellipsis + "".join(sorted(n for n in {*everything} if everything.count(n) == 1 and n not in ellipsis))
    for label in output:
        if output.count(label) > 1 or label not in everything:
            raise ArgumentError(
                f"einsum: {_shown(subscripts)}: {_named(label)} of the result must be in an operand, and once in the "
                "result"
            )
    if ellipsis and "..." not in right and arrow:
        raise ArgumentError(f"einsum: {_shown(subscripts)}: the result needs '...', too; sum over named axes")
    return used, output


def _expanded(subscripts: str, part: str, shape: Shape) -> tuple[str, str]:
    """Labels of ``...`` in ``part``, and all labels; an operand (n, 1) or (1, n) may have one label, (1, 1) none."""
    count = len(part.replace("...", ""))
    rank = len(shape)
    if "..." in part:
        if 0 <= rank - count <= len(_ELLIPSIS):
            axes = _ELLIPSIS[len(_ELLIPSIS) - (rank - count) :]
            return axes, part.replace("...", axes)
    elif count == rank or (rank == 2 and count == 1 and 1 in shape) or (shape == (1, 1) and count == 0):
        return "", part
    raise ShapeError(
        f"einsum: {_shown(subscripts)}: {part!r} names {count} axes, the operand of shape {shape} has {rank}; "
        "one letter fits a vector (n, 1) or (1, n)"
    )


def _labelled(value: Any, labels: str) -> Term:
    """Attach labels to ``value``, taking the diagonal for a repeated label."""
    if len(labels) < len(value.shape):
        value = arrange.reshape(value, _padded([math.prod(value.shape)] if labels else []))
    once = "".join(dict.fromkeys(labels))
    if len(once) == len(labels):
        return Term(value, labels)
    sizes: dict[str, int] = {}
    steps = dict.fromkeys(once, 0)
    for label, size, step in zip(labels, value.shape, shapes.contiguous_strides(value.shape)):
        if sizes.setdefault(label, size) != size:
            raise ShapeError(f"einsum: {label!r} is repeated for axes of {value.shape} that have different sizes")
        steps[label] += step
    strides = [steps[label] for label in once]
    layout = (_padded([sizes[label] for label in once]), (*strides, *[0] * (2 - len(once))), 0)
    return Term(F.view(value, layout), once)


# Contracting --------------------------------------------------------------------------------------------------------


def _in(labels: str, others: Iterable[str]) -> str:
    return "".join(label for label in labels if label in others)


def _contracted(a: Term, b: Term, needed: str) -> Term:
    """Product of two terms, summed over shared labels that are not ``needed``."""
    shared = _in(a.labels, b.labels)
    batch = _in(shared, needed)
    inner = "".join(label for label in shared if label not in batch)
    rows = "".join(label for label in a.labels if label not in shared)
    columns = "".join(label for label in b.labels if label not in shared)
    sizes = {**a.sizes(), **b.sizes()}
    made = batch + rows + columns
    if not inner:
        return Term(F.mul(a.as_labels(made), b.as_labels(made)), made)

    def size(labels: str) -> int:
        return math.prod(sizes[label] for label in labels)

    shape = _padded([sizes[label] for label in made])
    left = arrange.reshape(a.as_labels(batch + rows + inner), (size(batch), size(rows), size(inner)))
    right = arrange.reshape(b.as_labels(batch + inner + columns), (size(batch), size(inner), size(columns)))
    count, work = size(batch), size(rows) * size(inner) * size(columns)
    if not batch or (count <= MOST_PRODUCTS and work >= LARGE):
        products = [F.dot(_matrix(left, i), _matrix(right, i)) for i in range(count)]
        whole: Any = products[0] if len(products) == 1 else arrange.concat(products, 0)
        return Term(arrange.reshape(whole, shape), made)
    everything = made + inner
    total = F.sum(F.mul(a.as_labels(everything), b.as_labels(everything)), _last(everything, inner))
    return Term(arrange.reshape(total, shape), made)


def _last(labels: str, inner: str) -> tuple[int, ...]:
    """Positions of the trailing axes for the ``inner`` labels."""
    return tuple(range(len(labels) - len(inner), len(labels)))


def _matrix(stack: Any, position: int) -> Any:
    """Select one matrix of a stack."""
    one = arrange.sliced(stack, 0, position, position + 1)
    return arrange.reshape(one, one.shape[1:])
