"""Activations as functions in C or CUDA: a transform is traced with a placeholder tensor, and its expression emitted.

So any elementwise transform or function runs inside the compiled unrolls, whatever its class. Numbers in it (a slope,
a clipping value) are arguments: one kernel serves all values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from neonlike.backends.families.rnn_steps import Unroll
from neonlike.kernels.codegen.emit import Writer, convert_store, make_kernel, unsupported
from neonlike.kernels.planning.graph import Graph, Key, linearize
from neonlike.kernels.planning.plan import StageKind
from neonlike.kernels.planning.planner import make_plan
from neonlike.optree.dtypes import DType, compute_dtype
from neonlike.optree.node import Expression, OpTreeNode

_STAND_IN = 0.25
_tensors: WeakKeyDictionary[Any, dict[DType, tuple[Any, Any]]] = WeakKeyDictionary()
_bodies: dict[tuple[str, DType, Key], str | None] = {}
_readers: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Objects whose calls, or methods of these names, were seen to leave their argument as it was."""


class Formula(NamedTuple):
    """An elementwise function of one argument: the body of a function of ``x0`` and the array ``c``, and ``c``."""

    body: str
    numbers: tuple[float, ...] = ()


Formulas = dict[str, Formula | None]
Trace = Callable[[Any, Unroll, str], Formulas]
"""Formulas of a request's activations on a backend and in a language, by name."""


def trace(backend: Any, function: Callable[[Any], Any], dtype: DType, language: str = "c") -> Formula | None:
    """``function`` as a formula on elements of ``dtype``; None if it is not elementwise, or works in place.

    Whether it does is looked at each time, but on a device, which that would have to wait for, once for each object.
    """
    x, y = _stand_ins(backend, dtype)
    look = x.live_host or not _only_reads(function)
    if look:
        (x.array if x.live_host else x).fill(_STAND_IN)
    try:
        value = function(x)
    except Exception:  # it refuses the placeholder, for any reason: then it is called with the tensors themselves
        return None
    if look:
        if ((x.array if x.live_host else x.get()) != _STAND_IN).any():
            return None
        _remember_reader(function)
    if value is x:
        return Formula("return x0;")
    if isinstance(value, (int, float)) and not isinstance(value, Expression):
        return Formula("return c[0];", (float(value),))
    if value.__class__ is not OpTreeNode or value.shape != x.shape:
        return None
    return _written(value, x, y, language)


def _stand_ins(backend: Any, dtype: DType) -> tuple[Any, Any]:
    """Two tensors that are not used for anything else."""
    held = _tensors.setdefault(backend, {})
    if dtype not in held:
        held[dtype] = backend.empty((2, 2), dtype=dtype), backend.empty((2, 2), dtype=dtype)
    return held[dtype]


def _named(function: Any) -> tuple[Any, str]:
    """The object whose call or method ``function`` is, and the method's name; the object may come anew each time."""
    owner = getattr(function, "__self__", None)
    return (function, "") if owner is None else (owner, function.__name__)


def _only_reads(function: Any) -> bool:
    owner, name = _named(function)
    try:
        return name in _readers.get(owner, ())
    except TypeError:  # it has no hash, or cannot be referred to weakly
        return False


def _remember_reader(function: Any) -> None:
    owner, name = _named(function)
    with contextlib.suppress(TypeError):
        _readers.setdefault(owner, set()).add(name)


def _written(value: OpTreeNode, x: Any, y: Any, language: str) -> Formula | None:
    graph = linearize(((y, value),))
    if any(leaf is not x for leaf in graph.leaves):
        return None
    key = language, y.dtype, graph.key
    if key not in _bodies:
        _bodies[key] = _body(graph, language)
    body = _bodies[key]
    return None if body is None else Formula(body, tuple(map(float, graph.numbers)))


def _body(graph: Graph, language: str) -> str | None:
    """Text of the one stage that computes ``graph``; None if there are more, or it is not elementwise."""
    plan = make_plan(graph)  # not kept: its sizes are those of the stand-ins
    stage = plan.stages[0]
    if len(plan.stages) != 1 or stage.kind is not StageKind.ELEMENTWISE or unsupported(plan.values):
        return None
    kernel = make_kernel(plan, stage, graph)
    if any(array.kind != "leaf" for array in kernel.inputs) or len(kernel.inputs) > 1:
        return None
    writer, target = Writer(kernel, language), kernel.outputs[0]
    lines = [f"const {n.ctype} {n.name} = ({n.ctype})c[{n.slot}];" for n in kernel.numbers]
    written = [writer.line(v) for v in kernel.values]
    lines += [f"const {line.ctype} {line.name} = {line.text};" for line in written]
    return "\n    ".join([*lines, f"return {convert_store(*writer.operand(kernel.sinks[0]), target.dtype)};"])


def joined(formulas: Formulas) -> tuple[str, tuple[float, ...]] | None:
    """Functions of those names, and the numbers that all of them take as one array; None if one is missing."""
    texts, numbers = [], list[float]()
    for name, formula in formulas.items():
        if formula is None:
            return None
        head = f"NL_FN REAL {name}(REAL x0, const double *numbers) {{"
        start = f"    const double *c = numbers + {len(numbers)};\n    (void)c, (void)x0;"
        texts.append(f"{head}\n{start}\n    {formula.body}\n}}")
        numbers += formula.numbers
    return "\n".join(texts), tuple(numbers)


# What the unrolls need, by the names that their templates call


def activation(backend: Any, request: Unroll, language: str) -> Formulas:
    """The formula of a simple layer, forward."""
    return {"act": trace(backend, request.activation, compute_dtype(request.dtype), language)}


def slope(backend: Any, request: Unroll, language: str) -> Formulas:
    """The formula of a simple layer, backward."""
    return {"slope": trace(backend, request.activation.bprop, compute_dtype(request.dtype), language)}


def activations(backend: Any, request: Unroll, language: str) -> Formulas:
    """The formulas of a gated layer, forward."""
    gate = trace(backend, request.gate_activation, compute_dtype(request.dtype), language)
    return activation(backend, request, language) | {"gate_act": gate}


def slopes(backend: Any, request: Unroll, language: str) -> Formulas:
    """The formulas of a gated layer, backward."""
    gate = trace(backend, request.gate_activation.bprop, compute_dtype(request.dtype), language)
    return slope(backend, request, language) | {"gate_slope": gate}
