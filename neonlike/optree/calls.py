"""Compound primitives as nodes: ``be.conv(x, w)`` stands in an expression as ``be.sig(x)`` does.

A node of kind CALL holds a request: an object that knows its results and runs the primitive on tensors. The op table
has no row for it, since it is no formula of elements: its row is made by :func:`call_spec`, with a gradient rule like
any other. What a primitive gives besides its first result (the positions of maxima, the sums of a normalisation) are
nodes too, made by :func:`part`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.errors import GradientError
from neonlike.optree import npfuncs
from neonlike.optree.dtypes import DType, DTypeRule
from neonlike.optree.node import OpTreeNode, common_backend
from neonlike.optree.ops import GradRule, Kind, OpSpec
from neonlike.optree.shapes import Shape


class Request:
    """The request of a node of kind CALL to its backend.

    Attributes
    ----------
    results : tuple of (shape, dtype)
        Of all tensors that the primitive writes; the first is the node's value.
    dtypes : tuple of (dtype or None), one an operand
        What an operand is converted to; None leaves it as it is.
    direct : bool
        Whether it may write into an assignment's target itself: its primitive raises before it writes anything.
    """

    direct: ClassVar[bool] = True
    slopes: ClassVar[Callable[..., tuple[Any, ...]] | None] = None
    """``slopes(self, position, d, *operands)``: an increment for each operand, or None, of the gradient ``d`` at result
    ``position``. Of primitives that are gradients of others: where they have one, second derivatives go through it."""

    if TYPE_CHECKING:

        @property
        def results(self) -> tuple[tuple[Shape, DType], ...]: ...

        @property
        def dtypes(self) -> tuple[DType | None, ...]: ...

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute ``results`` from ``operands``, all of them tensors of ``be``; no operand is written."""
        raise NotImplementedError

    @property
    def key(self) -> int | None:
        """Equal for requests that ask for the same; None: any other may differ."""
        return None

    def planned(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
        """The kernel that :meth:`run` starts on arrays that lie like these and share no memory, if it is one.

        Returns
        -------
        KernelCall or None
            It is not run; in the place of each address it has the array, of ``results`` and ``operands``.
        """
        return None

    def describe(self) -> str:
        """The name of the called primitive, in words, for ``be.explain``."""
        return type(self).__name__


def call_spec(name: str, grad: GradRule) -> OpSpec:
    """The row of a primitive; its rule is called as those of the table, and finds the request in ``z.attrs``."""
    return OpSpec(name, -1, Kind.CALL, npfuncs.copy, "", DTypeRule.SAME, grad, f"The primitive {name}.", flops=0)


def call(spec: OpSpec, request: Request, operands: Sequence[Any]) -> OpTreeNode:
    """The lazy first result of ``request`` on ``operands``, which are tensors or expressions with a shape."""
    shape, dtype = request.results[0]
    backend = common_backend(spec.name, tuple(operands))
    return OpTreeNode(spec, tuple(operands), {"request": request}, shape, dtype, backend)


def part(node: OpTreeNode, position: int) -> Any:
    """Result number ``position`` of the primitive that ``node`` calls; 0 is ``node`` itself.

    What stands in for a node whose results were kept (:mod:`.tape`) has them among its attributes.
    """
    if position == 0:
        return node
    if "parts" in node.attrs:  # type: ignore[operator]
        return node.attrs["parts"][position]  # type: ignore[index]
    request = node.attrs["request"]  # type: ignore[index]
    shape, dtype = request.results[position]
    attrs = {"part": position, "dtype": dtype, "request": request}
    return OpTreeNode(PART, (node,), attrs, shape, dtype, node.backend)


def sources(node: OpTreeNode) -> tuple[Any, ...]:
    """The targets of the gradient at ``node``: its operands; from a further result of a primitive with ``slopes`` those
    of the primitive."""
    if node.spec is PART and node.attrs["request"].slopes is not None:  # type: ignore[index]
        operands: tuple[Any, ...] = node.operands[0].operands
        return operands
    return node.operands


def of_result(F: Any, d: Any, z: Any, *operands: Any) -> tuple[Any, ...]:
    """The gradient rule of each result of a primitive that has ``slopes``."""
    request = z.attrs["request"]
    if request.slopes is None:
        raise GradientError(
            f"Autodiff: result {z.attrs['part']} of {request.describe()} has no gradient: the primitive has no second "
            "derivative; write it in ops of docs/ops.md where you need one"
        )
    return tuple(request.slopes(z.attrs.get("part", 0), d, *operands))


PART = OpSpec(
    "part", 1, Kind.CALL, npfuncs.copy, "", DTypeRule.SAME, of_result, "A further result of a primitive.",
    keyed=("part", "dtype"), flops=0,
)  # fmt: skip
"""The row of a result that is not a primitive's first."""
