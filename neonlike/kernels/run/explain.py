"""``be.explain``: what a plan does, stage by stage, with the reason for each cut, its cost and its source."""

from __future__ import annotations

from neonlike.kernels.build.source import commented
from neonlike.kernels.planning.cost import cost
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import Layouts
from neonlike.optree.ops import Kind
from neonlike.optree.show import infix


def explain(plan: Plan, graph: Graph, engine: Engine) -> str:
    """Readable account of ``plan`` for the assignment in ``graph``.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    engine : Engine
    """
    roots = [graph.nodes[r] for r in graph.roots if 0 <= r < len(graph.nodes)]
    lines = [f"expression  {infix(root)}" for root in roots]
    lines.append(f"engine      {engine.name}, {len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}")
    layouts = Layouts(graph)
    for stage, executable in zip(plan.stages, engine.stages(plan, graph)):
        lines += _stage(plan, graph, stage)
        kernels = executable.sources(layouts)
        if factors := executable.factors(layouts):
            lines.append(f"  factors {factors}")
        for kernel in kernels:
            lines += ["  kernel", *(f"    {line}".rstrip() for line in commented(kernel).splitlines())]
    return "\n".join(lines)


def _stage(plan: Plan, graph: Graph, stage: Stage) -> list[str]:
    shape = stage.space.of(graph)
    axes = f", reduced axes {stage.axes}" if stage.kind is StageKind.REDUCE else ""
    note = " (epilogue of the product before it)" if stage.epilogue else ""
    lines = ["", f"stage {stage.index}: {stage.kind.value} over {shape}{axes}{note}", f"  why     {stage.reason}"]
    for index in stage.values:
        value = plan.values[index]
        operands = ", ".join(_name(arg, graph) for arg in value.args)
        extra = f", axis={value.axes}" if value.spec.kind is Kind.REDUCTION else ""
        kept = "  -> temporary" if index in stage.saved else ""
        lines.append(f"  v{index} = {value.spec.name}({operands}{extra}){kept}")
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
