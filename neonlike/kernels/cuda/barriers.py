"""The stages of a plan that read whole operands, on a device: products, gathers, scatters, windows, scans, sorts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from neonlike.kernels.cuda.lines import I32, Lines
from neonlike.kernels.cuda.moves import Moves
from neonlike.kernels.cuda.stage import digits_of, in_turn, reserve_store
from neonlike.kernels.numpy_engine.engine import BarrierStage
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, reads_any_index
from neonlike.kernels.run.stage import Run
from neonlike.optree.dtypes import F64, I64, is_float
from neonlike.optree.npfuncs import check_range

if TYPE_CHECKING:
    from neonlike.kernels.cuda.engine import CudaEngine


class DeviceBarrier:
    """One product or move. Its result goes to the target where nothing else reads it, else to a temporary."""

    def __init__(self, engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        self.engine, self.stage, self.comment = engine, stage, comment
        base = BarrierStage(plan, stage, graph)
        self.value, self.sources, self.dtype, self.keys = base.value, base.sources, base.dtype, base.keys
        self.direct = base.direct
        if self.direct is None and len(stage.stores) == 1 and not plan.kept(stage):
            self.direct = stage.stores[0]  # converted by the kernel

    def run(self, run: Run) -> None:
        """Queue the stage.

        Raises
        ------
        IndexRangeError
            If an index is out of range; nothing was written then.
        """
        self.ready(run)()

    def ready(self, run: Run) -> Callable[[], None]:
        """A callable that queues the stage; memory is allocated and kernels are compiled now."""
        if any(source.kind != "leaf" and source.index not in run.temps for source in self.sources):
            return partial(self.run, run)  # a fallback before it makes them
        graph, engine = run.graph, self.engine
        digits = {s.target: digits_of(graph.targets[s.target].rounding, graph.targets[s.target].dtype)
                  for s in self.stage.stores}  # fmt: skip
        direct = None if self.direct is None or digits[self.direct.target] else self.direct
        if direct is None:
            out = engine.empty(self.value.source.of(graph), self.dtype)
        else:
            out = reserve_store(engine, run, direct)
        run.temps[self.value.index] = out
        calls = self._calls(run, [run.array(source, 0) for source in self.sources], out)
        for store in self.stage.stores:
            if store is not direct:
                calls.append(engine.copier.ready(out, reserve_store(engine, run, store), digits[store.target]))
        return calls[0] if len(calls) == 1 else partial(in_turn, calls)

    def bind(self, run: Run) -> Callable[[], None] | None:
        """The stage on the arrays of ``run``; None if it cannot be fixed."""
        if any(run.graph.targets[store.target].rounding for store in self.stage.stores):
            return None
        return self.ready(run)

    def kernel_source(self, run: Run) -> None:
        """There is none of the stage's own; allocates what it writes, for the stages that read it."""
        run.temps[self.value.index] = self.engine.empty(self.value.source.of(run.graph), self.dtype)
        for store in self.stage.stores:
            reserve_store(self.engine, run, store)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        raise NotImplementedError


class DeviceProduct(DeviceBarrier):
    """A matrix product."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        a, b = operands
        return [self.engine.ready_product(a, b, out, self.dtype)]


class DeviceMove(DeviceBarrier):
    """``take`` and ``untake``. The host waits for a kernel that checks the indices: they may be out of range."""

    def __init__(self, engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(engine, plan, stage, graph, comment)
        self.axis: int = graph.nodes[self.value.node].attrs["axis"] % len(self.value.shape)  # type: ignore[index]
        self.scatters = self.value.spec.name == "untake"
        self.moves = Moves(engine.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        source, indices = operands
        limit = (out if self.scatters else source).shape[self.axis]
        index, calls = self._checked(indices, limit)
        if 0 in out.shape:
            return calls
        if not self.scatters:
            return [*calls, self.moves.gather(source, index, out, self.axis)]
        start, slices = self.engine.empty((limit + 2,), I64), self.engine.empty((indices.size,), I64)
        return [
            *calls, self.moves.group(index, start, slices), self.moves.scatter(source, start, slices, out, self.axis)
        ]  # fmt: skip

    def _checked(self, indices: Any, limit: int) -> tuple[Any, list[Callable[[], None]]]:
        """``indices`` as a vector, and the calls that copy and check it."""
        calls: list[Callable[[], None]] = []
        index = _flat(indices)
        if index is None:
            index = self.engine.empty((indices.size,), indices.dtype)
            calls.append(self.engine.copier.ready(indices, index.reshape(*indices.shape)))
        return index, [*calls, partial(self._check, self.moves.check(index, limit), indices, limit)]

    def _check(self, is_outside: Callable[[], bool], indices: Any, limit: int) -> None:
        if is_outside():
            name = "take_along_axis" if self.value.spec.name.endswith("along") else "take"
            check_range(name, self.engine.device.to_host(indices), limit)


def _flat(indices: Any) -> Any | None:
    """``indices`` as a vector, None if that takes a copy."""
    long = [axis for axis, size in enumerate(indices.shape) if size != 1]
    if len(long) > 1:
        return None
    return indices[tuple(slice(None) if axis in long else 0 for axis in range(indices.ndim))] if long else None


class DeviceAlong(DeviceMove):
    """``take_along`` and ``untake_along``. Indices of an argsort along the same axis are in range and distinct."""

    def __init__(self, engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(engine, plan, stage, graph, comment)
        self.scatters = self.value.spec.name == "untake_along"
        self.checks = reads_any_index(graph, plan.values, self.value)
        self.lines = Lines(engine.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        source, indices = operands
        axis, engine = self.axis, self.engine
        calls = self._checked(indices, (out if self.scatters else source).shape[axis])[1] if self.checks else []
        if 0 in out.shape:
            return calls
        if 0 in indices.shape:
            return [*calls, engine.copier.ready_fill(out, 0.0)]
        if not self.scatters:
            return [*calls, self.lines.along(source, indices, out, axis, False)]
        if not self.checks:
            fill = [engine.copier.ready_fill(out, 0.0)] if indices.shape[axis] < out.shape[axis] else []
            return [*calls, *fill, self.lines.along(source, indices, out, axis, True)]
        total = engine.empty(out.shape, F64 if is_float(source.dtype) else I64)
        return [*calls, self.lines.untake(source, indices, total, out, axis)]


class DeviceScan(DeviceBarrier):
    """``cumsum`` and ``cumprod``."""

    def __init__(self, engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(engine, plan, stage, graph, comment)
        self.lines = Lines(engine.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        (source,), attrs = operands, run.attrs(self.value.node)
        if 0 in out.shape:
            return []
        if attrs["reverse"]:
            turn = (*[slice(None)] * attrs["axis"], slice(None, None, -1))
            source, out = source[turn], out[turn]
        return [self.lines.scan(self.value.spec.name, source, out, attrs["axis"])]


class DeviceSort(DeviceBarrier):
    """``argsort``: passes of a merge sort, over a copy whose last axis is the sorted one."""

    def __init__(self, engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(engine, plan, stage, graph, comment)
        self.lines = Lines(engine.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        (source,), attrs, engine = operands, run.attrs(self.value.node), self.engine
        axis, count = attrs["axis"], out.shape[attrs["axis"]]
        if 0 in out.shape:
            return []
        if source.shape[axis] == 1:
            return [engine.copier.ready_fill(out, 0.0)]
        order = (*[k for k in range(source.ndim) if k != axis], axis)
        bits, calls = source.transpose(order), []
        if not _is_contiguous(bits):
            bits = engine.empty(bits.shape, source.dtype)
            calls.append(engine.copier.ready(source.transpose(order), bits))
        buffers = engine.empty(bits.shape, I32), engine.empty(bits.shape, I32)
        merges, found = self.lines.merges(bits, buffers, attrs["descending"])
        first = found[(*[slice(None)] * (found.ndim - 1), slice(count))]
        return [*calls, *merges, engine.copier.ready(first, out.transpose(order))]


class DeviceView(DeviceBarrier):
    """``view`` and ``unview``: copies from and to a strided window of contiguous elements."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        layout = run.attrs(self.value.node)["layout"]
        (source,) = operands
        copier, calls = self.engine.copier, []
        if self.value.spec.name == "view":
            whole = source if _is_contiguous(source) else self.engine.empty(source.shape, source.dtype)
            if whole is not source:
                calls.append(copier.ready(source, whole))
            return [*calls, copier.ready(self._window(whole, layout), out)]
        whole = out if _is_contiguous(out) else self.engine.empty(out.shape, out.dtype)
        calls += [copier.ready_fill(whole, 0.0), copier.ready(source, self._window(whole, layout))]
        return calls if whole is out else [*calls, copier.ready(whole, out)]

    def _window(self, whole: Any, layout: tuple[Any, ...]) -> Any:
        """The elements of contiguous ``whole`` that ``layout`` = (shape, strides, offset, in elements) describes."""
        shape, strides, offset = layout
        size = whole.itemsize
        strides = [step * size for step in strides]
        return self.engine.device.view(whole.memory, whole.address + offset * size, shape, strides, whole.dtype)


class DeviceJoin(DeviceBarrier):
    """``concat``: each operand copied to its part of the result."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Callable[[], None]]:
        axis, start, calls = run.attrs(self.value.node)["axis"], 0, []
        for part in operands:
            end = start + part.shape[axis]
            if part.size:
                calls.append(self.engine.copier.ready(part, out[(*[slice(None)] * axis, slice(start, end))]))
            start = end
        return calls


def _is_contiguous(array: Any) -> bool:
    step = array.itemsize
    for size, stride in zip(reversed(array.shape), reversed(array.strides)):
        if size != 1 and stride != step:
            return 0 in array.shape
        step *= size
    return True


def make_barrier(engine: CudaEngine, plan: Plan, stage: Stage, graph: Graph, comment: str) -> DeviceBarrier:
    """The object that runs a stage of kind CONTRACTION or MOVE."""
    name = plan.values[stage.values[0]].spec.name
    return _BARRIERS[name](engine, plan, stage, graph, comment)


_BARRIERS: dict[str, type[DeviceBarrier]] = {
    "dot": DeviceProduct,
    "take": DeviceMove,
    "untake": DeviceMove,
    "view": DeviceView,
    "unview": DeviceView,
    "concat": DeviceJoin,
    "take_along": DeviceAlong,
    "untake_along": DeviceAlong,
    "cumsum": DeviceScan,
    "cumprod": DeviceScan,
    "argsort": DeviceSort,
}
