"""``be.explain``: what a plan does, stage by stage, with the reason for each cut, its cost and its source."""

from __future__ import annotations

from collections.abc import Callable

from neonlike.kernels.build.source import commented
from neonlike.kernels.planning.cost import cost
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import Layouts
from neonlike.markup import Block, Explanation, Heading, Source, Table
from neonlike.optree.ops import Kind
from neonlike.optree.show import infix

COLUMNS = ("stage", "over", "why", "computes", "bytes read", "bytes written", "flops", "reached")


def explain(plan: Plan, graph: Graph, engine: Engine, reached: Callable[[Stage], str]) -> Explanation:
    """Readable account of ``plan`` for the assignment in ``graph``.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    engine : Engine
    reached : callable
        Share of the machine's rates that a stage has reached where it was timed, as text; empty if it was not.
    """
    roots = [infix(graph.nodes[r]) for r in graph.roots if 0 <= r < len(graph.nodes)]
    where = f"{engine.name}, {len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}"
    lines = [*(f"expression  {root}" for root in roots), f"engine      {where}"]
    rows: list[tuple[str, ...]] = []
    sources: list[Block] = []
    layouts = Layouts(graph)
    for stage, executable in zip(plan.stages, engine.stages(plan, graph)):
        lines += _stage(plan, graph, stage)
        kernels = executable.sources(layouts)
        if factors := executable.factors(layouts):
            lines.append(f"  factors {factors}")
        if share := reached(stage):
            lines.append(f"  reached {share}")
        rows.append(_row(plan, graph, stage, factors, share))
        for kernel in kernels:
            text = commented(kernel)
            sources.append(Source(f"kernel of stage {stage.index}", text, "c"))
            lines += ["  kernel", *(f"    {line}".rstrip() for line in text.splitlines())]
    stages = Table(f"Stages on the engine {where}", COLUMNS, tuple(rows))
    return Explanation("\n".join(lines), (*map(Heading, roots), stages, *sources))


def _row(plan: Plan, graph: Graph, stage: Stage, factors: str, share: str) -> tuple[str, ...]:
    """The cells of a stage under ``COLUMNS``."""
    computed = [_value(plan, graph, index) for index in stage.values]
    computed += [f"store {_name(store.arg, graph)} in target {store.target}" for store in stage.stores]
    computed += [f"factors {factors}"] * bool(factors)
    numbers = map("{:,}".format, cost(plan, graph, stage))
    over = "x".join(map(str, stage.space.of(graph)))
    return f"{stage.index}: {stage.kind.value}", over, stage.reason, "; ".join(computed), *numbers, share or "not timed"


def _value(plan: Plan, graph: Graph, index: int) -> str:
    """Text of the computation of a value: ``v1 = sum(v0, axis=(1,))``."""
    value = plan.values[index]
    operands = ", ".join(_name(arg, graph) for arg in value.args)
    extra = f", axis={value.axes}" if value.spec.kind is Kind.REDUCTION else ""
    return f"v{index} = {value.spec.name}({operands}{extra})"


def _stage(plan: Plan, graph: Graph, stage: Stage) -> list[str]:
    shape = stage.space.of(graph)
    axes = f", reduced axes {stage.axes}" if stage.kind is StageKind.REDUCE else ""
    note = " (epilogue of the product before it)" if stage.epilogue else ""
    lines = ["", f"stage {stage.index}: {stage.kind.value} over {shape}{axes}{note}", f"  why     {stage.reason}"]
    for index in stage.values:
        value = plan.values[index]
        kept = "  -> temporary" if index in stage.saved else ""
        lines.append(f"  {_value(plan, graph, index)}{kept}")
        if stage.kind is StageKind.CALL and (request := (graph.nodes[value.node].attrs or {}).get("request")):
            lines.append(f"  calls   {request.describe()}")
    for store in stage.stores:
        through = " through a temporary, since the target is still read" if store.buffered else ""
        target = graph.targets[store.target]
        where = f"target {store.target} {target.shape} {target.dtype.name}"
        shared = ", where later stages read it" if store.shared else ""
        lines.append(f"  store {_name(store.arg, graph)} in {where}{through}{shared}")
    read, written, flops = cost(plan, graph, stage)
    lines.append(f"  cost    {read} bytes read, {written} written, {flops} flops")
    return lines


def _name(arg: Arg, graph: Graph) -> str:
    if isinstance(arg, NumberArg):
        return repr(graph.numbers[arg.slot])
    if isinstance(arg, LeafArg):
        text = getattr(graph.leaves[arg.slot], "name", None) or f"t{arg.slot}"
    else:
        text = f"v{arg.value}"
    return text if arg.perm is None else f"{text}.transpose{arg.perm}"
