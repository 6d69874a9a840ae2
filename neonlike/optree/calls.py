"""Compound primitives as nodes: ``be.conv(x, w)`` can be part of an expression, as ``be.sig(x)`` can.

A node of kind CALL holds a request: an object that describes its results and runs the primitive on tensors. The op
table has no row for it, because it is not an elementwise formula: :func:`call_spec` creates its row, with a gradient
rule like any other. Further results of a primitive (positions of maxima, sums of a normalisation) are nodes, too,
created by :func:`part`.
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
        All tensors written by the primitive; the first is the node's value.
    dtypes : tuple of (dtype or None), one an operand
        Dtypes that operands are converted to; None leaves an operand unchanged.
    direct : bool
        Whether it may write directly into an assignment's target: its primitive raises before writing anything.
    """

    direct: ClassVar[bool] = True
    slopes: ClassVar[Callable[..., tuple[Any, ...]] | None] = None
    """``slopes(self, position, d, *operands)``: gradient increments of the operands (or None) from ``d`` at a result.
    For primitives that are gradients of others: if defined, second derivatives go through it."""

    if TYPE_CHECKING:

        @property
        def results(self) -> tuple[tuple[Shape, DType], ...]: ...

        @property
        def dtypes(self) -> tuple[DType | None, ...]: ...

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute ``results`` from ``operands``, all of them tensors of ``be``; operands are not modified.

        Parameters
        ----------
        be : Backend
        results, operands : sequence of Tensor
        """
        raise NotImplementedError

    @property
    def key(self) -> int | None:
        """Key that is equal for equivalent requests; None if any other request may differ."""
        return None

    def planned(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
        """The kernel that :meth:`run` launches on arrays of this layout without shared memory, if it is a single one.

        Parameters
        ----------
        be : Backend
        results, operands : sequence of arrays

        Returns
        -------
        KernelCall or None
            It is not run; arrays from ``results`` and ``operands`` stand in place of addresses.
        """
        return None

    @property
    def products(self) -> tuple[Any, str]:
        """Sizes of what it multiplies, and the operation, for ``be.factors_of``; None without products."""
        return None, ""

    def describe(self) -> str:
        """Name of the called primitive, for ``be.explain``."""
        return type(self).__name__


def call_spec(name: str, grad: GradRule) -> OpSpec:
    """Create the row of a primitive; its rule is called like the table's, with the request in ``z.attrs``."""
    return OpSpec(name, -1, Kind.CALL, npfuncs.copy, "", DTypeRule.SAME, grad, f"The primitive {name}.", flops=0)


def call(spec: OpSpec, request: Request, operands: Sequence[Any]) -> OpTreeNode:
    """Lazy first result of ``request`` on ``operands``, which are tensors or expressions with a shape.

    Parameters
    ----------
    spec : OpSpec
        From :func:`call_spec`.
    request : Request
    operands : sequence of expressions
    """
    shape, dtype = request.results[0]
    backend = common_backend(spec.name, tuple(operands))
    return OpTreeNode(spec, tuple(operands), {"request": request}, shape, dtype, backend)


def part(node: OpTreeNode, position: int) -> Any:
    """Result number ``position`` of the primitive called by ``node``; 0 is ``node`` itself.

    A substitute for a node with kept results (:mod:`.tape`) has them among its attributes.
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
    """Targets of the gradient at ``node``: its operands.

    For a further result of a primitive with ``slopes``, they are the primitive's operands.
    """
    if node.spec is PART and node.attrs["request"].slopes is not None:  # type: ignore[index]
        operands: tuple[Any, ...] = node.operands[0].operands
        return operands
    return node.operands


def of_result(F: Any, d: Any, z: Any, *operands: Any) -> tuple[Any, ...]:
    """Gradient rule for each result of a primitive with ``slopes``.

    Parameters
    ----------
    F : namespace of builders
    d : expression
        The gradient that arrives at the result.
    z : expression
        The result.
    *operands : expressions
    """
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
"""Row of the results after a primitive's first one."""
