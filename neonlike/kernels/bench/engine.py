"""An engine whose stages are timed: :class:`TimedEngine` around any other.

The engine inside runs everything as it always does, on stage functions that have a clock around them. Without bench
mode none of this exists.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neonlike.errors import KernelCompileError
from neonlike.kernels.bench.recorder import Bench, Span
from neonlike.kernels.bench.row import Row
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.planning.cost import cost
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg, ValueArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.ahead import build_many
from neonlike.kernels.run.stage import CopyBack, Run, StageFunction
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape

_LAYOUTS = "bench"
"""Where a plan keeps the layouts whose kernels are compiled; that it is there says that its stages are timed."""
_LONGEST = 2000
"""Characters of an expression that are kept."""


class TimedEngine:
    """Runs plans with ``engine`` and reports every stage to ``bench``."""

    def __init__(self, engine: Any, bench: Bench) -> None:
        self.engine, self.bench = engine, bench
        self.name: str = engine.name
        bench.engine = engine.name
        self._lock = threading.Lock()

    def compile(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """One timed function a stage, and the copies that end a run; kept on the plan."""
        with self._lock:
            if _LAYOUTS not in plan.engine:  # else another thread did it
                functions: list[StageFunction] = self.engine.compile(plan, graph)
                plan.engine[self.name] = _timed(functions, plan, self.bench)
                plan.engine[_LAYOUTS] = set()
        made: Any = plan.engine[self.name]
        return list(made)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        self._make_ready(plan, graph)
        self.engine.execute(plan, graph)

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again, every run timed."""
        self._make_ready(plan, graph)
        run: Callable[[], None] = self.engine.prepare(plan, graph)
        return run

    def _make_ready(self, plan: Plan, graph: Graph) -> None:
        """Time the stages of ``plan``, and have the kernels for these layouts compiled before the clock starts."""
        if _LAYOUTS not in plan.engine:
            self.compile(plan, graph)
        layouts: Any = plan.engine[_LAYOUTS]
        if (layout := graph.layout()) in layouts:
            return
        if hasattr(self.engine, "sources"):
            self._compile_kernels(self.engine.sources(plan, graph))
        layouts.add(layout)

    def _compile_kernels(self, kernels: list[KernelSource]) -> None:
        missing = any(not self.engine.is_built(kernel) for kernel in kernels)
        with self.bench.compiling() if missing else contextlib.nullcontext():
            with contextlib.suppress(KernelCompileError):  # reported by the run that needs the kernel
                build_many(kernels, self.engine.build)


# Stages -----------------------------------------------------------------------------------------------------------


class TimedStage:
    """One function of a plan with a clock around it."""

    def __init__(self, function: StageFunction, plan: Plan, stage: Stage | None, bench: Bench) -> None:
        self.function, self.plan, self.stage, self.bench = function, plan, stage, bench
        self.owner: Any = getattr(function, "__self__", None)
        self.known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def run(self, run: Run) -> None:
        """Execute the stage."""
        call = partial(self.function, run) if self.bench.meter is None else self._ready(run)
        with self.bench.running() as pauses:
            start = self.bench.mark()
            call()
            end = self.bench.mark()
        self._record(run.graph, start, end, pauses)

    def _ready(self, run: Run) -> Callable[[], object]:
        """The stage with its kernels compiled and its memory allocated: a device would stand idle between its marks."""
        if not hasattr(self.owner, "ready"):
            return partial(self.function, run)
        met = run.graph.layout() in self.known
        with contextlib.nullcontext() if met else self.bench.compiling():
            call: Callable[[], object] = self.owner.ready(run)
        return call

    def bind(self, run: Run) -> Callable[[], None] | None:
        """The stage on the arrays of ``run``; None if it has no such form."""
        if not hasattr(self.owner, "bind"):
            return None
        with contextlib.nullcontext() if self.bench.meter is None else self.bench.compiling():
            call = self.owner.bind(run)
        if call is None:
            return None
        mark, graph = self.bench.mark, run.graph

        def timed() -> None:
            with self.bench.running() as pauses:
                start = mark()
                call()
                end = mark()
            self._record(graph, start, end, pauses)

        return timed

    def kernel_source(self, run: Run) -> Any:
        """As the stage's own."""
        return self.owner.kernel_source(run) if hasattr(self.owner, "kernel_source") else None

    def _record(self, graph: Graph, start: Any, end: Any, pauses: Sequence[Span]) -> None:
        layout = graph.layout()
        facts = self.known.get(layout)
        if facts is None:
            facts = self.known[layout] = self._facts(graph)
        row: Row = self.bench.row(*facts[:4])
        nbytes, flops = facts[4:]
        self.bench.add_span(row, start, end, nbytes, flops, pauses)

    def _facts(self, graph: Graph) -> tuple[str, tuple[Shape, ...], str, str, int, int]:
        """Name, shapes, kind, dtype, bytes and flops on the tensors of ``graph``."""
        if self.stage is None:
            target = graph.targets[self.owner.target]
            return "copy to target", (target.shape,), "loop", target.dtype.name, 2 * _size(target), 0
        shapes, dtype = _operands(self.plan, graph, self.stage)
        kind = "product" if self.stage.kind is StageKind.CONTRACTION else "loop"
        read, written, flops = cost(self.plan, graph, self.stage)
        return stage_text(self.plan, graph, self.stage), shapes, kind, dtype, read + written, flops


def _timed(functions: list[StageFunction], plan: Plan, bench: Bench) -> list[StageFunction]:
    """``functions`` of the stages of ``plan``, and of the copies after them, with clocks.

    Calls of primitives have none here: what they run is timed where it is run.
    """
    stages = [*plan.stages, *[None] * (len(functions) - len(plan.stages))]
    assert all(isinstance(getattr(f, "__self__", None), CopyBack) for f, s in zip(functions, stages) if s is None)
    return [
        function if stage is not None and stage.kind is StageKind.CALL else TimedStage(function, plan, stage, bench).run
        for function, stage in zip(functions, stages)
    ]


def _size(tensor: Any) -> int:
    return int(tensor.size * tensor.dtype.itemsize)


def _operands(plan: Plan, graph: Graph, stage: Stage) -> tuple[tuple[Shape, ...], str]:
    """Shapes of what ``stage`` reads, then of what it writes; dtype of the first result."""
    here = set(stage.values)
    read: dict[tuple[bool, int], Shape] = {}
    for arg in [arg for index in stage.values for arg in plan.values[index].args] + [s.arg for s in stage.stores]:
        if isinstance(arg, LeafArg):
            read[True, arg.slot] = graph.leaves[arg.slot].shape
        elif isinstance(arg, ValueArg) and arg.value not in here:
            read[False, arg.value] = plan.values[arg.value].source.of(graph)
    stored = plan.kept(stage)
    written = [plan.values[index].source.of(graph) for index in stored]
    written += [graph.targets[store.target].shape for store in stage.stores]
    dtypes = [graph.targets[store.target].dtype for store in stage.stores]
    dtypes += [compute_dtype(plan.values[index].dtype) for index in stored]
    return (*read.values(), *written), dtypes[0].name if dtypes else ""


# Names ------------------------------------------------------------------------------------------------------------


def stage_text(plan: Plan, graph: Graph, stage: Stage) -> str:
    """What ``stage`` computes: ``sig(((t0 * t1) + t2))``.

    Tensors are t0, t1, ..., numbers c0, c1, ..., results of other stages v0, v1, ...: a plan runs on any tensors and
    numbers, so their own names and values would be those of one call among many.
    """
    texts: dict[int, str] = {}
    for index in stage.values:
        value = plan.values[index]
        parts = [_arg_text(arg, texts) for arg in value.args]
        if value.spec.symbol and len(parts) == 2:
            texts[index] = _cut(f"({parts[0]} {value.spec.symbol} {parts[1]})")
        else:
            parts += _attributes(plan, graph, index)
            texts[index] = _cut(f"{value.spec.name}({', '.join(parts)})")
    stored = plan.kept(stage)
    results = [f"v{index} = {texts[index]}" for index in stored]
    for store in stage.stores:
        arg = store.arg
        if isinstance(arg, ValueArg) and arg.value in stored:
            continue
        text = _arg_text(arg, texts)
        if not isinstance(arg, ValueArg):
            text = f"copy({text})" if isinstance(arg, LeafArg) else f"fill({text})"
        results.append(text)
    return _cut("; ".join(results))


def _attributes(plan: Plan, graph: Graph, index: int) -> list[str]:
    """Arguments of an op that are no operands."""
    value = plan.values[index]
    if value.spec.kind is Kind.REDUCTION:
        return [f"axis={value.axes[0] if len(value.axes) == 1 else value.axes}"]
    attrs = graph.nodes[value.node].attrs or {}
    return [f"{key}={attrs[key]}" for key in value.spec.keyed if key in attrs]


def _arg_text(arg: Arg, texts: dict[int, str]) -> str:
    if isinstance(arg, NumberArg):
        return f"c{arg.slot}"
    text = f"t{arg.slot}" if isinstance(arg, LeafArg) else texts.get(arg.value, f"v{arg.value}")
    if arg.perm is None:
        return text
    return f"{text}.T" if arg.perm == (1, 0) else f"{text}.transpose{arg.perm}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
