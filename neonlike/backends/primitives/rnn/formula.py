"""Translation of activations to C or CUDA functions: a transform is traced with a placeholder tensor.

So any elementwise transform or function runs inside the compiled unrolls, regardless of its class. Its numbers (a
slope, a clipping value) are arguments: one kernel serves all values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from neonlike.backends.primitives.rnn.steps import Unroll
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
"""Objects whose calls, or methods of these names, were observed to leave their argument unchanged."""


class Formula(NamedTuple):
    """Elementwise function of one argument: the body of a C function of ``x0`` and the array ``c``, and the array."""

    body: str
    numbers: tuple[float, ...] = ()


Formulas = dict[str, Formula | None]
Trace = Callable[[Any, Unroll, str], Formulas]
"""Returns the formulas of a request's activations for a backend and a language, by name."""


def trace(backend: Any, function: Callable[[Any], Any], dtype: DType, language: str = "c") -> Formula | None:
    """Translate ``function`` to a formula on ``dtype``; None if it is not elementwise, or works in place.

    In-place work is checked each time; on a device, where the check would wait for the device, once per object.

    Parameters
    ----------
    backend : Backend
    function : callable
        A transform, or its ``bprop``.
    dtype : dtype
        Dtype of computation.
    language : "c" or "cuda"
    """
    x, y = _stand_ins(backend, dtype)
    look = x.live_host or not _only_reads(function)
    if look:
        (x.array if x.live_host else x).fill(_STAND_IN)
    try:
        value = function(x)
    except Exception:  # it rejects the placeholder, for any reason: then it is called with the tensors themselves
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
    """Object and method name of ``function``, a call or method; the object may be a new one each time."""
    owner = getattr(function, "__self__", None)
    return (function, "") if owner is None else (owner, function.__name__)


def _only_reads(function: Any) -> bool:
    owner, name = _named(function)
    try:
        return name in _readers.get(owner, ())
    except TypeError:  # not hashable or not weakly referenceable
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
    """Text of the single stage that computes ``graph``; None if there are more, or it is not elementwise."""
    plan = make_plan(graph)  # not cached: its sizes are those of the placeholders
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
    """C functions with those names, and their numbers in one array; None if a formula is missing."""
    texts, numbers = [], list[float]()
    for name, formula in formulas.items():
        if formula is None:
            return None
        head = f"NL_FN REAL {name}(REAL x0, const double *numbers) {{"
        start = f"    const double *c = numbers + {len(numbers)};\n    (void)c, (void)x0;"
        texts.append(f"{head}\n{start}\n    {formula.body}\n}}")
        numbers += formula.numbers
    return "\n".join(texts), tuple(numbers)


# Formulas of the unrolls, by the names in their templates


def activation(backend: Any, request: Unroll, language: str) -> Formulas:
    """Formula of a simple layer, forward.

    Parameters
    ----------
    backend : Backend
    request : Unroll
    language : "c" or "cuda"
    """
    return {"act": trace(backend, request.activation, compute_dtype(request.dtype), language)}


def slope(backend: Any, request: Unroll, language: str) -> Formulas:
    """Formula of a simple layer, backward.

    Parameters
    ----------
    backend, request, language
        As of :func:`activation`.
    """
    return {"slope": trace(backend, request.activation.bprop, compute_dtype(request.dtype), language)}


def activations(backend: Any, request: Unroll, language: str) -> Formulas:
    """Formulas of a gated layer, forward.

    Parameters
    ----------
    backend, request, language
        As of :func:`activation`.
    """
    gate = trace(backend, request.gate_activation, compute_dtype(request.dtype), language)
    return activation(backend, request, language) | {"gate_act": gate}


def slopes(backend: Any, request: Unroll, language: str) -> Formulas:
    """Formulas of a gated layer, backward.

    Parameters
    ----------
    backend, request, language
        As of :func:`activation`.
    """
    gate = trace(backend, request.gate_activation.bprop, compute_dtype(request.dtype), language)
    return slope(backend, request, language) | {"gate_slope": gate}
