"""An engine with timed stages: :class:`TimedEngine` wraps any other engine.

The wrapped engine runs unchanged, on stages with a clock around them. Without bench mode none of this exists.
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
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import CopyBack, ExecutableStage, Layouts, Run
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape

_LAYOUTS = "bench"
"""Key of a plan's layouts with compiled kernels; its presence also marks the plan's stages as timed."""
_LONGEST = 2000
"""Maximum number of characters of an expression."""


class TimedEngine(Engine):
    """Runs plans with ``engine`` and reports every stage to ``bench``."""

    def __init__(self, engine: Engine, bench: Bench) -> None:
        self.engine, self.bench = engine, bench
        self.name = bench.engine = engine.name
        self._lock = threading.Lock()

    def make_stages(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """The stages of ``engine`` with clocks, and the final copies of a run."""
        return _timed(self.engine.make_stages(plan, graph), plan, self.bench)

    def compile(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """Make the stages and keep them on the plan."""
        with self._lock:
            if _LAYOUTS not in plan.executable:  # else another thread did it
                super().compile(plan, graph)
                plan.executable[_LAYOUTS] = set()
        return list(plan.executable[self.name])

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        self._make_ready(plan, graph)
        self.engine.execute(plan, graph)

    def ready(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """Return a callable that runs ``plan`` once; see ``Engine.ready``."""
        self._make_ready(plan, graph)
        return self.engine.ready(plan, graph)

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """Return a function that runs ``plan`` repeatedly on these tensors, timing every run."""
        self._make_ready(plan, graph)
        return self.engine.prepare(plan, graph)

    def is_built(self, kernel: KernelSource) -> bool:
        """Delegate to ``engine``."""
        return self.engine.is_built(kernel)

    def build(self, kernel: KernelSource) -> object:
        """Delegate to ``engine``."""
        return self.engine.build(kernel)

    def _make_ready(self, plan: Plan, graph: Graph) -> None:
        """Time the stages of ``plan``, after compiling the kernels for these layouts."""
        if _LAYOUTS not in plan.executable:
            self.compile(plan, graph)
        layouts: set[Any] = plan.executable[_LAYOUTS]
        if (layout := graph.layout()) in layouts:
            return
        if kernels := self.engine.sources(plan, graph):
            self._compile_kernels(kernels)
        layouts.add(layout)

    def _compile_kernels(self, kernels: list[KernelSource]) -> None:
        missing = any(not self.is_built(kernel) for kernel in kernels)
        with self.bench.compiling() if missing else contextlib.nullcontext():
            with contextlib.suppress(KernelCompileError):  # reported by the run that needs the kernel
                build_many(kernels, self.build)


# Stages -----------------------------------------------------------------------------------------------------------


class TimedStage(ExecutableStage):
    """A stage with a clock around it; ``stage`` is None for a final copy of a run.

    Parameters
    ----------
    inner : ExecutableStage
    plan : Plan
    stage : Stage or None
    bench : Bench
    """

    def __init__(self, inner: ExecutableStage, plan: Plan, stage: Stage | None, bench: Bench) -> None:
        self.inner, self.plan, self.stage, self.bench = inner, plan, stage, bench
        self.known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def run(self, run: Run) -> None:
        """Execute the stage."""
        call = partial(self.inner.run, run) if self.bench.meter is None else self._compiled(run)
        with self.bench.running() as pauses:
            start = self.bench.mark()
            call()
            end = self.bench.mark()
        self._record(run.graph, start, end, pauses)

    def _compiled(self, run: Run) -> Callable[[], object]:
        """The stage with compiled kernels and allocated memory; otherwise a device would idle between its marks."""
        met = run.graph.layout() in self.known
        with contextlib.nullcontext() if met else self.bench.compiling():
            return self.inner.ready(run)

    def bind(self, run: Run) -> Callable[[], None] | None:
        """Bind the stage to the arrays of ``run``; None if it has no such form."""
        with contextlib.nullcontext() if self.bench.meter is None else self.bench.compiling():
            call = self.inner.bind(run)
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

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The sources of the wrapped stage."""
        return self.inner.sources(layouts)

    def _record(self, graph: Graph, start: Any, end: Any, pauses: Sequence[Span]) -> None:
        layout = graph.layout()
        facts = self.known.get(layout)
        if facts is None:
            facts = self.known[layout] = self._facts(graph)
        row: Row = self.bench.row(*facts[:4])
        nbytes, flops = facts[4:]
        self.bench.add_span(row, start, end, nbytes, flops, pauses)

    def _facts(self, graph: Graph) -> tuple[str, tuple[Shape, ...], str, str, int, int]:
        """Name, shapes, kind, dtype, bytes and flops for the tensors of ``graph``."""
        if self.stage is None:
            assert isinstance(self.inner, CopyBack)
            target = graph.targets[self.inner.target]
            return "copy to target", (target.shape,), "loop", target.dtype.name, 2 * _size(target), 0
        read, written, flops = cost(self.plan, graph, self.stage)
        return *key_of(self.plan, graph, self.stage), read + written, flops


def key_of(plan: Plan, graph: Graph, stage: Stage) -> tuple[str, tuple[Shape, ...], str, str]:
    """Name, shapes, kind and dtype of ``stage``, by which its times are recorded.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    stage : Stage
    """
    shapes, dtype = _operands(plan, graph, stage)
    kind = "product" if stage.kind is StageKind.CONTRACTION else "loop"
    return stage_text(plan, graph, stage), shapes, kind, dtype


def _timed(stages: list[ExecutableStage], plan: Plan, bench: Bench) -> list[ExecutableStage]:
    """Add clocks to the ``stages`` of ``plan`` and to the copies after them.

    Calls of primitives get none here: they are timed where they run.
    """
    planned = [*plan.stages, *[None] * (len(stages) - len(plan.stages))]
    return [
        made if stage is not None and stage.kind is StageKind.CALL else TimedStage(made, plan, stage, bench)
        for made, stage in zip(stages, planned)
    ]


def _size(tensor: Any) -> int:
    return int(tensor.size * tensor.dtype.itemsize)


def _operands(plan: Plan, graph: Graph, stage: Stage) -> tuple[tuple[Shape, ...], str]:
    """Shapes of the inputs and outputs of ``stage``, and dtype of the first result."""
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
    """Text of the values that ``stage`` computes: ``sig(((t0 * t1) + t2))``.

    Tensors are t0, t1, ..., numbers c0, c1, ..., results of other stages v0, v1, ...: a plan runs on any tensors and
    numbers, so actual names and values would describe only one of many calls.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    stage : Stage
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
    """Arguments of an op that are not operands."""
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
