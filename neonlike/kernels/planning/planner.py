"""Step 5 of an assignment (docs/tour.md): division into stages, see ``plan``.

Elementwise values belong to no stage: every stage that needs one recomputes it, because memory access costs more than
arithmetic, unless it takes more than ``RECOMPUTE_LIMIT`` ops. Reductions, products, moves and results do belong to one;
:class:`Planner` places them in sequence and records the reason for each new stage.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, Lowered, ShapeSource, Value, ValueArg, lower
from neonlike.kernels.planning.plan import (
    UNFUSED,
    Plan,
    Stage,
    StageKind,
    Store,
    is_unfused,
    reads_any_index,
)
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape

RECOMPUTE_LIMIT = 12
"""Number of ops above which an elementwise value is stored, not recomputed in a later stage."""


def make_plan(graph: Graph) -> Plan:
    """Plan the assignments of ``graph``."""
    lowered = lower(graph)
    planner = Planner(graph, lowered)
    for value in lowered.values:
        planner.place(value)
    for target, root in enumerate(lowered.roots):
        planner.place_store(target, root)
    for stage in planner.stages:
        planner.fill(stage)
    for stage in planner.stages:
        for store in stage.stores:
            store.buffered = planner.hazard(store, stage)
        if graph.fresh:
            planner.share(stage)
    mark_epilogues(planner.stages, lowered.values)
    return Plan(lowered.values, planner.stages, sizes=graph.sizes())


@dataclass(slots=True)
class Region:
    """The values between ``args`` and memory, to be computed by a stage for ``args``."""

    args: tuple[Arg, ...]
    elementwise: list[int]
    live: list[int]  # reductions not in memory
    floor: int  # the last stage that writes a temporary read here, -1 for none


class Planner:
    """Places values one at a time; see :func:`make_plan`."""

    def __init__(self, graph: Graph, lowered: Lowered) -> None:
        self.graph = graph
        self.values = lowered.values
        self.stages: list[Stage] = []
        self.home: dict[int, int] = {}  # reduction, product or move -> its stage
        self.saved: dict[int, int] = {}  # value in memory -> the stage that stores it
        self.first: dict[int, int] = {}  # elementwise value -> first stage that computes it
        self.weight = _weights(lowered.values)
        args = [*lowered.roots, *(arg for value in self.values for arg in value.args)]
        self.in_memory = {arg.value for arg in args if isinstance(arg, ValueArg) and arg.perm is not None}
        roots = lowered.roots if graph.fresh else []
        self.results = {arg.value for arg in roots if isinstance(arg, ValueArg) and arg.perm is None}

    # Regions

    def region(self, args: tuple[Arg, ...]) -> Region:
        """Walk from ``args`` down to memory and reductions."""
        seen: set[int] = set()
        found = Region(args, [], [], -1)
        stack = [arg.value for arg in args if isinstance(arg, ValueArg)]
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            if index in self.saved:
                found.floor = max(found.floor, self.saved[index])
            elif index in self.home:
                found.live.append(index)
            else:
                found.elementwise.append(index)
                stack.extend(arg.value for arg in self.values[index].args if isinstance(arg, ValueArg))
        return found

    # Placing

    def place(self, value: Value) -> None:
        """Assign ``value`` to a stage if its kind needs one."""
        if value.spec.kind is Kind.REDUCTION:
            self._place_reduction(value)
        elif is_unfused(value):
            self._place_unfused(value)
        if value.index in self.in_memory and value.index not in self.saved:
            self.materialize(ValueArg(value.index), "it is read transposed")

    def _place_reduction(self, value: Value) -> None:
        source = ShapeSource("operand", value.node, value.perm)
        shape = source.of(self.graph)
        region = self._stored_first(value, shape)
        reason = f"{value.spec.name} over axis {_axes_text(value.axes)}"
        stage = self._joinable(region, shape, value.axes)
        if stage is None:
            reason += self._why_not(region, shape, value.axes)
            self._save_all(region.live)
            stage = self._new(StageKind.REDUCE, source, shape, reason, value.axes)
        self.home[value.index] = stage.index
        self._claim(region, stage)

    def _stored_first(self, value: Value, shape: Shape) -> Region:
        """Region of the reduction ``value`` over ``shape``, after storing results in it that fill the shape.

        A reduction along an axis other than the last meets the elements of a row far apart in time. If its kernel also
        stored a result of full shape, in a loop after the reduction, it would read the result's operands twice.
        """
        region = self.region(value.args)
        results = [i for i in sorted(region.elementwise) if i in self.results and self._fills(i, shape)]
        if not results or region.live or len(shape) - 1 in value.axes:
            return region
        made = self.values[results[0]]
        args = tuple(map(ValueArg, results))
        stage = self._output_stage(args, shape, made.source, f"results that {value.spec.name} reads")
        for index in results:
            self.save(index, stage.index)
        return self.region(value.args)

    def _fills(self, index: int, shape: Shape) -> bool:
        """True for a value of this shape that memory holds in its compute dtype."""
        value = self.values[index]
        return value.shape == shape and value.dtype == compute_dtype(value.dtype)

    def _joinable(self, region: Region, shape: Shape, axes: tuple[int, ...]) -> Stage | None:
        """The stage that can run a reduction as another pass over its space; None if there is none."""
        if region.live:
            candidates = [self.stages[max(self.home[r] for r in region.live)]]
        else:
            candidates = self.stages[:-3:-1]
        for stage in candidates:
            if (
                stage.kind is StageKind.REDUCE
                and stage.shape == shape
                and stage.axes == axes
                and region.floor < stage.index
                and all(self.home[r] == stage.index for r in region.live)
            ):
                return stage
        return None

    def _why_not(self, region: Region, shape: Shape, axes: tuple[int, ...]) -> str:
        """Reason for a separate stage of a reduction, appended to the stage's reason."""
        if not region.live:
            return "" if not self.stages else "; starts from memory"
        stage = self.stages[max(self.home[r] for r in region.live)]
        if stage.shape != shape:
            return f"; its space differs from that of stage {stage.index}"
        if stage.axes != axes:
            return f"; cannot share passes with axis {_axes_text(stage.axes)} of stage {stage.index}"
        return f"; needs results of stages after {stage.index}"

    def _place_unfused(self, value: Value) -> None:
        for arg in value.args:
            self.materialize(arg, f"{value.spec.name} reads it from memory")
        kind = UNFUSED[value.spec.kind]
        what = "a compound primitive" if kind is StageKind.CALL else "a kernel of its own"
        stage = self._new(kind, value.source, value.shape, f"{value.spec.name} is {what}")
        self.home[value.index] = stage.index
        self.save(value.index, stage.index)

    def materialize(self, arg: Arg, reason: str) -> None:
        """Ensure that ``arg`` is in memory."""
        if not isinstance(arg, ValueArg) or arg.value in self.saved:
            return
        if arg.value in self.home:
            self.save(arg.value, self.home[arg.value])
            return
        value = self.values[arg.value]
        stage = self._output_stage((ValueArg(arg.value),), value.shape, value.source, reason)
        self.save(arg.value, stage.index)

    def _output_stage(self, args: tuple[Arg, ...], shape: Shape, source: ShapeSource, reason: str) -> Stage:
        """A stage that can compute ``args`` at ``shape``: the reductions', an open elementwise one, or a new one."""
        region = self.region(args)
        if region.live:
            last = max(self.home[r] for r in region.live)
            earlier = [r for r in region.live if self.home[r] != last]
            stage = self.stages[last]
            floor = max([region.floor, *(self.home[r] for r in earlier)])
            if shape in (stage.shape, stage.reduced_shape) and floor < last:
                self._save_all(earlier)
                self._claim(region, stage)
                return stage
        self._save_all(region.live)
        floor = max([region.floor, *(self.saved[r] for r in region.live)])
        stage_or_none = self.stages[-1] if self.stages else None
        if (
            stage_or_none is not None
            and stage_or_none.kind is StageKind.ELEMENTWISE
            and stage_or_none.shape == shape
            and floor < stage_or_none.index
        ):
            stage = stage_or_none
        else:
            stage = self._new(StageKind.ELEMENTWISE, source, shape, reason)
        self._claim(region, stage)
        return stage

    def place_store(self, target: int, root: Arg) -> None:
        """Assign ``root`` to a target."""
        shape = self.graph.targets[target].shape
        source = ShapeSource("target", target)
        stage: Stage | None = None
        if isinstance(root, ValueArg) and root.perm is None and self.values[root.value].shape == shape:
            made = self.home.get(root.value, self.saved.get(root.value))
            if made is None and root.value in self.results:
                first = self.first.get(root.value)
                made = first if first is not None and self._is_output_shape(root.value, first) else None
            stage = None if made is None else self.stages[made]
        if stage is None:
            stage = self._output_stage((root,), shape, source, f"result {target}")
        stage.stores.append(Store(target, root))

    # Bookkeeping

    def _new(self, kind: StageKind, space: ShapeSource, shape: Shape, reason: str, axes: tuple[int, ...] = ()) -> Stage:
        stage = Stage(len(self.stages), kind, space, shape, reason, axes)
        self.stages.append(stage)
        return stage

    def _claim(self, region: Region, stage: Stage) -> None:
        """Assign ``region`` to ``stage``; long parts that an earlier stage computes, too, are saved there."""
        stack = [arg.value for arg in region.args if isinstance(arg, ValueArg)]
        mine = set(region.elementwise)
        while stack:
            index = stack.pop()
            if index not in mine or index in self.saved:
                continue
            mine.discard(index)
            first = self.first.setdefault(index, stage.index)
            dear = index in self.results or self.weight[index] > RECOMPUTE_LIMIT
            if first < stage.index and dear and self._is_output_shape(index, first):
                self.save(index, first)
                continue
            stack.extend(arg.value for arg in self.values[index].args if isinstance(arg, ValueArg))

    def _is_output_shape(self, index: int, stage: int) -> bool:
        return self.values[index].shape in (self.stages[stage].shape, self.stages[stage].reduced_shape)

    def save(self, index: int, stage: int) -> None:
        """Keep value ``index``, computed in ``stage``, in a temporary."""
        self.saved[index] = stage
        self.stages[stage].saved.append(index)

    def _save_all(self, reductions: list[int]) -> None:
        for index in reductions:
            if index not in self.saved:
                self.save(index, self.home[index])

    def fill(self, stage: Stage) -> None:
        """List the values that ``stage`` computes."""
        wanted: list[Arg] = [ValueArg(index) for index in stage.saved]
        wanted += [store.arg for store in stage.stores]
        wanted += [ValueArg(index) for index, home in self.home.items() if home == stage.index]
        seen: set[int] = set()
        stack = [arg.value for arg in wanted if isinstance(arg, ValueArg)]
        while stack:
            index = stack.pop()
            if index in seen or self.saved.get(index, stage.index) < stage.index:
                continue
            seen.add(index)
            stack.extend(arg.value for arg in self.values[index].args if isinstance(arg, ValueArg) and arg.perm is None)
        stage.values = sorted(seen)

    def share(self, stage: Stage) -> None:
        """Let later stages read results of ``stage`` from its targets instead of temporaries.

        Products, moves and calls do so anyway, because their single result has one place.
        """
        for store in stage.stores if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE) else ():
            arg, target = store.arg, self.graph.targets[store.target]
            if store.buffered or not isinstance(arg, ValueArg) or arg.perm is not None or arg.value not in stage.saved:
                continue
            value = self.values[arg.value]
            if target.dtype == compute_dtype(value.dtype) and target.shape == value.shape:
                store.shared = True
                stage.saved.remove(arg.value)

    def hazard(self, store: Store, stage: Stage) -> bool:
        """True if writing the target in ``stage`` would overwrite data that this or a later stage still reads."""
        if not self.graph.fresh and any(self._may_fail(later) for later in self.stages[stage.index + 1 :]):
            return True  # a failing run, for example with an index out of range, must leave all targets unchanged
        target = self.graph.targets[store.target]
        for slot, leaf in enumerate(self.graph.leaves):
            relation = 1 if leaf is target else leaf.alias_of(target)
            if not relation:
                continue
            for perm, reader in self._readers(slot):
                unfused = reader.kind in UNFUSED.values()
                if reader.index > stage.index:
                    return True
                if reader.index == stage.index and (relation == 2 or perm is not None or unfused):
                    return True
            if any(s is not store and isinstance(s.arg, LeafArg) and s.arg.slot == slot for s in stage.stores):
                return True  # copied by another store of this stage, which may come later
        return False

    def _may_fail(self, stage: Stage) -> bool:
        if stage.kind is not StageKind.MOVE:
            return stage.kind is StageKind.CALL
        return reads_any_index(self.graph, self.values, self.values[stage.values[0]])

    def _readers(self, slot: int) -> list[tuple[object, Stage]]:
        """Stages that read leaf ``slot``, and the axis order of each read."""
        found: list[tuple[object, Stage]] = []
        for stage in self.stages:
            args = [arg for index in stage.values for arg in self.values[index].args]
            args += [store.arg for store in stage.stores]
            found += [(arg.perm, stage) for arg in args if isinstance(arg, LeafArg) and arg.slot == slot]
        return found


def _axes_text(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else str(axes)


def _weights(values: list[Value]) -> list[int]:
    """Number of elementwise ops to compute each value from memory; reductions, products and moves count as memory."""
    weights: list[int] = []
    for value in values:
        if value.spec.kind is Kind.REDUCTION or is_unfused(value):
            weights.append(0)
        else:
            below = sum(weights[arg.value] for arg in value.args if isinstance(arg, ValueArg))
            weights.append(min(below + 1, 1 << 20))
    return weights


def mark_epilogues(stages: list[Stage], values: list[Value]) -> None:
    """Mark the elementwise stages that continue the preceding product."""
    for before, stage in itertools.pairwise(stages):
        if before.kind is StageKind.CONTRACTION and stage.kind is StageKind.ELEMENTWISE and stage.shape == before.shape:
            reads = {arg.value for index in stage.values for arg in values[index].args if isinstance(arg, ValueArg)}
            stage.epilogue = not before.stores and reads.issuperset(before.saved)
