"""Activations as C functions: a transform is traced with a placeholder tensor, and its expression emitted as C.

So any elementwise transform or function runs inside the compiled unrolls, whatever its class. Numbers in it (a slope,
a clipping value) are arguments: one kernel serves all values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from neonlike.kernels.codegen.emit import Writer, convert_store, make_kernel, unsupported
from neonlike.kernels.planning.graph import Graph, Key, linearize
from neonlike.kernels.planning.plan import StageKind
from neonlike.optree.dtypes import DType
from neonlike.optree.node import Expression, OpTreeNode

_STAND_IN = 0.25
_tensors: WeakKeyDictionary[Any, dict[DType, tuple[Any, Any]]] = WeakKeyDictionary()
_bodies: dict[tuple[DType, Key], str | None] = {}


class Formula(NamedTuple):
    """An elementwise function of one argument: the body of a C function of ``x0`` and the array ``c``, and ``c``."""

    body: str
    numbers: tuple[float, ...] = ()


def trace(backend: Any, function: Callable[[Any], Any], dtype: DType) -> Formula | None:
    """``function`` as a formula on elements of ``dtype``; None if it is not elementwise, or works in place."""
    x, y = _stand_ins(backend, dtype)
    try:
        value = function(x)
    except Exception:  # it refuses the placeholder, for any reason: then it is called with the tensors themselves
        return None
    if (x.array != _STAND_IN).any():
        return None
    if value is x:
        return Formula("return x0;")
    if isinstance(value, (int, float)) and not isinstance(value, Expression):
        return Formula("return c[0];", (float(value),))
    return _written(backend, value, x, y) if value.__class__ is OpTreeNode and value.shape == x.shape else None


def _stand_ins(backend: Any, dtype: DType) -> tuple[Any, Any]:
    """Two tensors that are not used for anything else, the first full of ``_STAND_IN``."""
    held = _tensors.setdefault(backend, {})
    if dtype not in held:
        held[dtype] = backend.empty((2, 2), dtype=dtype), backend.empty((2, 2), dtype=dtype)
    held[dtype][0].array.fill(_STAND_IN)
    return held[dtype]


def _written(backend: Any, value: OpTreeNode, x: Any, y: Any) -> Formula | None:
    graph = linearize(((y, value),))
    if any(leaf is not x for leaf in graph.leaves):
        return None
    key = y.dtype, graph.key
    if key not in _bodies:
        _bodies[key] = _body(backend, graph)
    body = _bodies[key]
    return None if body is None else Formula(body, tuple(map(float, graph.numbers)))


def _body(backend: Any, graph: Graph) -> str | None:
    """C of the one stage that computes ``graph``; None if there are more, or it is not elementwise."""
    plan = backend.executor.plan(graph)
    stage = plan.stages[0]
    if len(plan.stages) != 1 or stage.kind is not StageKind.ELEMENTWISE or unsupported(plan.values):
        return None
    kernel = make_kernel(plan, stage, graph)
    if any(array.kind != "leaf" for array in kernel.inputs) or len(kernel.inputs) > 1:
        return None
    writer, target = Writer(kernel), kernel.outputs[0]
    lines = [f"const {n.ctype} {n.name} = ({n.ctype})c[{n.slot}];" for n in kernel.numbers]
    written = [writer.line(v) for v in kernel.values]
    lines += [f"const {line.ctype} {line.name} = {line.text};" for line in written]
    return "\n    ".join([*lines, f"return {convert_store(*writer.operand(kernel.sinks[0]), target.dtype)};"])


def functions(formulas: Mapping[str, Formula]) -> tuple[str, tuple[float, ...]]:
    """C functions of those names, and the numbers that all of them take as one array."""
    texts, numbers = [], list[float]()
    for name, formula in formulas.items():
        head = f"NL_FN REAL {name}(REAL x0, const double *numbers) {{"
        start = f"    const double *c = numbers + {len(numbers)};\n    (void)c, (void)x0;"
        texts.append(f"{head}\n{start}\n    {formula.body}\n}}")
        numbers += formula.numbers
    return "\n".join(texts), tuple(numbers)
