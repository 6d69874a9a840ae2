"""Documentation page of the op table: ``python -m neonlike.optree.docs > docs/ops.md``.

All content comes from ``OPS`` and from the functions composed of its rows, so a new row is documented by running this
again. A test compares the page with this module's output.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable

from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.functions import COMPOSED
from neonlike.optree.ops import MANY, NON_DIFFERENTIABLE, OPS, Kind, OpSpec

_KINDS: dict[Kind, tuple[str, str]] = {
    Kind.ELEMENTWISE: ("Elementwise", "Operands broadcast. Python and NumPy numbers may stand anywhere."),
    Kind.REDUCTION: (
        "Reductions",
        "Over `axis`: an int, a tuple of ints, or None for all; `argmax` and `argmin` take one, 1 unless given. "
        "Reduced axes keep size 1; `keepdims=False` drops them if two axes remain, and is refused otherwise.",
    ),
    Kind.ZERO: ("Generators", "They take the shape of the surrounding expression."),
    Kind.CONTRACTION: ("Products", "Anywhere in an expression."),
    Kind.MOVE: ("Moves", "No arithmetic: elements are reordered, selected or placed."),
    Kind.SCAN: ("Along an axis", "Over one `axis`, an int; a result depends on several elements along it."),
}

ALSO: dict[str, tuple[str, ...]] = {
    "neg": ("-a",),
    "abs": ("abs(a)",),
    "invert": ("~a",),
    "binarize": ("be.binarize",),
    "shift": ("be.shift",),
    "rand": ("be.rand", "be.dropout"),
    "onehot": ("be.onehot",),
    "dot": ("a @ b",),
    "transpose": ("be.transpose", "a.T"),
    "take_along": ("be.take_along_axis", "be.sort", "be.topk"),
    "cumsum": ("be.cumsum",),
    "cumprod": ("be.cumprod",),
    "argsort": ("be.argsort", "be.topk"),
    "concat": ("be.concatenate", "be.stack"),
    "classes": ("be.onehot",),
    "take": ("be.take",),
}
"""Further ways to build an op besides its row's builders: operators, and methods with other arguments."""

_RULES: dict[DTypeRule, str] = {
    DTypeRule.SAME: "floats and uint64 stay, other integers become int64",
    DTypeRule.FLOAT: "floats stay, integers become float32",
    DTypeRule.TRUTH: "0 or 1 in the operands' float type, float32 for integers",
    DTypeRule.INDEX: "int64 positions",
    DTypeRule.WHOLE: "int64 or uint64, for integers only. If all operands are truth values (results of comparisons and "
    "logic, bool tensors), it is the logical op, so `(a > 0) & (b < 1)` works as expected; other floats "
    "are refused",
}

_HEAD = """# Ops

Generated from the op table, `neonlike/optree/ops.py`; don't edit it by hand:

    python -m neonlike.optree.docs > docs/ops.md

Each builder is a method of the backend, `be.sig(a)`, and returns a lazy expression, or computes at once with `out=`.
`be.eval("sig(a*b + c)", a=x, b=y, c=z)` parses an expression from a string.
[tour.md](tour.md) follows an expression to its kernel, [CONTRIBUTING.md](../CONTRIBUTING.md#adding-an-op) explains how
to add an op.
"""

_ARRANGING = """## Joining, splitting, sorting, selecting

Methods with NumPy's names and arguments, each with its rules in its docstring. They take tensors, expressions and
arrays; all are lazy, and all but `be.argsort` and positions have gradients.

* `be.concatenate`, `be.stack`: an assignment computes each part directly into its place, even if it reads the
  target. `be.tile`, `be.roll` and `be.pad` are built on it, `be.repeat` on `take`.
* `be.split`, `be.flip`, `be.expand_dims`, `be.squeeze`: views of tensors; from expressions, expressions that
  compute only the elements shown.
* `be.cumsum`, `be.cumprod`: accumulated in float64 and rounded once; `reverse=True` starts from the end.
* `be.sort`, `be.argsort`, `be.topk`, `be.take_along_axis`: equal values keep their order; nan comes last, also in
  descending order.
* `be.einsum`: a matrix product if there is no batch axis (one that both operands and the result have); else one kernel
  of products and sums, or, for large products, one matrix product for each batch element. A vector is (n, 1), a number
  (1, 1).
* `t[t > 0]`: a tensor (n, 1) of the elements selected by a mask with the shape of `t`, computed at once because its
  size depends on values. `t[t > 0] = value` is `be.where(mask, value, t)` for a number or a value with the shape of
  `t`; (n, 1) values go to the n elements in C order. A mask is a comparison, logic on comparisons, a bool tensor or a
  bool array; a bool vector on an axis selects slices.
"""


def row(spec: OpSpec) -> str:
    """Format one line of the table."""
    operands = "any" if spec.arity == MANY else str(spec.arity)
    cells = (f"`{spec.name}`", _builders(spec), operands, spec.dtype.value, _gradient(spec), spec.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _builders(spec: OpSpec) -> str:
    """Builder names and the operator, or a note that only gradients and other ops build this one."""
    names = [f"be.{name}" for name in spec.builders]
    if spec.symbol:
        names.append(f"a {spec.symbol} b")
    names += ALSO.get(spec.name, ())
    return ", ".join(f"`{name}`" for name in names) or "(internal)"


def _gradient(spec: OpSpec) -> str:
    return "no" if spec.grad is NON_DIFFERENTIABLE else "yes"


def table(rows: Iterable[OpSpec]) -> str:
    """Format a Markdown table of ``rows``."""
    head = "| op | made by | operands | dtype | gradient | |\n|---|---|---|---|---|---|"
    return "\n".join([head, *map(row, rows)])


def page(rows: Iterable[OpSpec]) -> str:
    """Format the whole page."""
    parts = [_HEAD, "The column *dtype*:\n\n" + "\n".join(f"* {rule.value}: {text}" for rule, text in _RULES.items())]
    given = list(rows)
    for kind, (title, remark) in _KINDS.items():
        of_kind = [spec for spec in given if spec.kind is kind]
        if of_kind:
            parts.append(f"## {title}\n\n{remark}\n\n{table(of_kind)}")
    parts.append(f"## Composed of these\n\n{_composed()}")
    parts.append(_ARRANGING)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _composed() -> str:
    """The functions without a row: expressions of several ops."""
    lines = ["| function | |", "|---|---|"]
    for name, function in COMPOSED.items():
        said = (inspect.getdoc(function) or "").partition("\n")[0].replace("``", "`").replace("|", "\\|")
        (method,) = ALSO.get(name, (f"be.{name}",))
        lines.append(f"| `{method}{_signature(function)}` | {said} |")
    return "\n".join(lines)


def _signature(function: object) -> str:
    assert callable(function)
    parameters = inspect.signature(function).parameters.values()
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    sys.stdout.write(page(OPS.values()))
