"""Device stages that read whole operands: products, gathers, scatters, windows, scans, sorts."""

from __future__ import annotations

from functools import partial
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda.lines import I32, Lines
from neonlike.kernels.cuda.moves import Moves
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.cuda.stage import digits_of
from neonlike.kernels.cuda.step import Call, in_turn
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, Store, reads_any_index
from neonlike.kernels.run.stage import Layouts, Run, WholeOperandStage, destination
from neonlike.optree.dtypes import F64, I64, is_float
from neonlike.optree.npfuncs import no_class, out_of_range


class DeviceStage(WholeOperandStage):
    """One product or move. Its result goes to the target if nothing else reads it, else to a temporary.

    Parameters
    ----------
    queue : Queue
    plan : Plan
    stage : Stage
    graph : Graph
    comment : str
        The expression, for messages and kept sources.
    """

    def __init__(self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(plan, stage, graph)
        self.queue, self.comment = queue, comment
        if self.direct is None and len(stage.stores) == 1 and not plan.kept(stage):
            self.direct = stage.stores[0]  # converted by the kernel

    def run(self, run: Run) -> None:
        """Queue the stage.

        Raises
        ------
        IndexRangeError
            If an index is out of range; then nothing was written.
        """
        self.ready(run)()

    def ready(self, run: Run) -> Call:
        """Return a callable that queues the stage; memory allocation and compilation happen now."""
        if any(one.kind != "leaf" and one.index not in run.temps for one in self.inputs):
            return partial(self.run, run)  # an earlier stage creates them at run time
        digits = self._digits(run)
        out, direct = self._result(run, digits)
        calls = self._calls(run, [run.array(one, 0) for one in self.inputs], out)
        for store in self.stage.stores:
            if store is not direct:
                calls.append(self.queue.copy(out, destination(run, store), digits[store.target]))
        return calls[0] if len(calls) == 1 else partial(in_turn, calls)

    def bind(self, run: Run) -> Call | None:
        """Bind the stage to the arrays of ``run``; None if it cannot be fixed."""
        if any(run.graph.targets[store.target].rounding for store in self.stage.stores):
            return None
        return self.ready(run)

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Empty: the first run finds its few kernels, which depend on dtypes and ranks only."""
        self._result(layouts, self._digits(layouts))
        return []

    def _digits(self, run: Run) -> dict[int, int]:
        """Binary digits of stochastic rounding for each target; 0: round to nearest."""
        targets = {store.target: run.graph.targets[store.target] for store in self.stage.stores}
        return {place: digits_of(target.rounding, target.dtype) for place, target in targets.items()}

    def _result(self, run: Run, digits: dict[int, int]) -> tuple[Any, Store | None]:
        """The array for the result, and its store; a result with stochastic rounding is computed in between."""
        direct = None if self.direct is None or digits[self.direct.target] else self.direct
        out = run.empty(self.value.source.of(run.graph), self.dtype) if direct is None else destination(run, direct)
        run.temps[self.value.index] = out
        return out, direct

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        raise NotImplementedError


class DeviceProduct(DeviceStage):
    """A matrix product."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        a, b = operands
        return [self.queue.product(a, b, out, self.dtype)]


class DeviceMove(DeviceStage):
    """``take`` and ``untake``. A kernel checks the indices; the host learns of an index out of range when it waits.

    Parameters
    ----------
    queue, plan, stage, graph, comment
        As of :class:`DeviceStage`.
    """

    def __init__(self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(queue, plan, stage, graph, comment)
        self.axis: int = graph.nodes[self.value.node].attrs["axis"] % len(self.value.shape)  # type: ignore[index]
        self.scatters = self.value.spec.name == "untake"
        self.moves = Moves(queue.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        source, indices = operands
        limit = (out if self.scatters else source).shape[self.axis]
        index, calls = self._vector(indices)
        if not self.scatters or 0 in (*out.shape, indices.size):
            calls.append(self.moves.check(index, limit, partial(out_of_range, "take")))
        if 0 in out.shape:
            return calls
        if not self.scatters:
            return [*calls, self.moves.gather(source, index, out, self.axis)]
        if not indices.size:
            return [*calls, self.queue.fill(out, 0.0)]
        sorts, start, slices = self.moves.group(index, limit, "take")
        return [*calls, *sorts, self.moves.scatter(source, start, slices, out, self.axis)]

    def _vector(self, indices: Any) -> tuple[Any, list[Call]]:
        """``indices`` as a vector, with the calls that copy it, if any."""
        calls: list[Call] = []
        index = _flat(indices)
        if index is None:
            index = self.queue.empty((indices.size,), indices.dtype)
            calls.append(self.queue.copy(indices, index.reshape(*indices.shape)))
        return index, calls


class DeviceClasses(DeviceMove):
    """``classes``: a kernel checks the indices, which are then copied."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        (indices,) = operands
        index, calls = self._vector(indices)
        check = self.moves.check(index, self.value.limit(run.graph), no_class, wraps=False)
        return [*calls, check, self.queue.copy(indices, out)]


def _flat(indices: Any) -> Any | None:
    """``indices`` as a vector; None if that requires a copy."""
    long = [axis for axis, size in enumerate(indices.shape) if size != 1]
    if len(long) > 1:
        return None
    return indices[tuple(slice(None) if axis in long else 0 for axis in range(indices.ndim))] if long else None


class DeviceAlong(DeviceMove):
    """``take_along`` and ``untake_along``. Indices from an argsort along the same axis are in range and distinct.

    Parameters
    ----------
    queue, plan, stage, graph, comment
        As of :class:`DeviceStage`.
    """

    def __init__(self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(queue, plan, stage, graph, comment)
        self.scatters = self.value.spec.name == "untake_along"
        self.checks = reads_any_index(graph, plan.values, self.value)
        self.lines = Lines(queue.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        source, indices = operands
        axis, queue = self.axis, self.queue
        calls: list[Call] = []
        if self.checks:
            index, calls = self._vector(indices)
            limit = (out if self.scatters else source).shape[axis]
            calls.append(self.moves.check(index, limit, partial(out_of_range, "take_along_axis")))
        if 0 in out.shape:
            return calls
        if 0 in indices.shape:
            return [*calls, queue.fill(out, 0.0)]
        if not self.scatters:
            return [*calls, self.lines.along(source, indices, out, axis, False)]
        if not self.checks:
            fill = [queue.fill(out, 0.0)] if indices.shape[axis] < out.shape[axis] else []
            return [*calls, *fill, self.lines.along(source, indices, out, axis, True)]
        total = queue.empty(out.shape, F64 if is_float(source.dtype) else I64)
        return [*calls, self.lines.untake(source, indices, total, out, axis)]


class DeviceScan(DeviceStage):
    """``cumsum`` and ``cumprod``.

    Parameters
    ----------
    queue, plan, stage, graph, comment
        As of :class:`DeviceStage`.
    """

    def __init__(self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(queue, plan, stage, graph, comment)
        self.lines = Lines(queue.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        (source,), attrs = operands, run.attrs(self.value.node)
        if 0 in out.shape:
            return []
        if attrs["reverse"]:
            turn = (*[slice(None)] * attrs["axis"], slice(None, None, -1))
            source, out = source[turn], out[turn]
        return [self.lines.scan(self.value.spec.name, source, out, attrs["axis"])]


class DeviceSort(DeviceStage):
    """``argsort``: passes of a merge sort, on a copy with the sorted axis last.

    Parameters
    ----------
    queue, plan, stage, graph, comment
        As of :class:`DeviceStage`.
    """

    def __init__(self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> None:
        super().__init__(queue, plan, stage, graph, comment)
        self.lines = Lines(queue.device, comment)

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        (source,), attrs, queue = operands, run.attrs(self.value.node), self.queue
        axis, count = attrs["axis"], out.shape[attrs["axis"]]
        if 0 in out.shape:
            return []
        if source.shape[axis] == 1:
            return [queue.fill(out, 0.0)]
        order = (*[k for k in range(source.ndim) if k != axis], axis)
        bits, calls = source.transpose(order), []
        if not _is_contiguous(bits):
            bits = queue.empty(bits.shape, source.dtype)
            calls.append(queue.copy(source.transpose(order), bits))
        buffers = queue.empty(bits.shape, I32), queue.empty(bits.shape, I32)
        merges, found = self.lines.merges(bits, buffers, attrs["descending"])
        first = found[(*[slice(None)] * (found.ndim - 1), slice(count))]
        return [*calls, *merges, queue.copy(first, out.transpose(order))]


class DeviceView(DeviceStage):
    """``view`` and ``unview``: copies from and to a strided window of contiguous elements."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        layout = run.attrs(self.value.node)["layout"]
        (source,) = operands
        calls: list[Call] = []
        if self.value.spec.name == "view":
            whole = source if _is_contiguous(source) else self.queue.empty(source.shape, source.dtype)
            if whole is not source:
                calls.append(self.queue.copy(source, whole))
            return [*calls, self.queue.copy(self._window(whole, layout), out)]
        whole = out if _is_contiguous(out) else self.queue.empty(out.shape, out.dtype)
        calls += [self.queue.fill(whole, 0.0), self.queue.copy(source, self._window(whole, layout))]
        return calls if whole is out else [*calls, self.queue.copy(whole, out)]

    def _window(self, whole: Any, layout: tuple[Any, ...]) -> Any:
        """The elements of contiguous ``whole`` in the window ``layout`` = (shape, strides, offset, in elements)."""
        shape, strides, offset = layout
        size = whole.itemsize
        strides = [step * size for step in strides]
        return self.queue.device.view(whole.memory, whole.address + offset * size, shape, strides, whole.dtype)


class DeviceJoin(DeviceStage):
    """``concat``: a copy of each operand to its part of the result."""

    def _calls(self, run: Run, operands: list[Any], out: Any) -> list[Call]:
        axis, start, calls = run.attrs(self.value.node)["axis"], 0, []
        for part in operands:
            end = start + part.shape[axis]
            if part.size:
                calls.append(self.queue.copy(part, out[(*[slice(None)] * axis, slice(start, end))]))
            start = end
        return calls


def _is_contiguous(array: Any) -> bool:
    step = array.itemsize
    for size, stride in zip(reversed(array.shape), reversed(array.strides)):
        if size != 1 and stride != step:
            return 0 in array.shape
        step *= size
    return True


def make_device_stage(queue: Queue, plan: Plan, stage: Stage, graph: Graph, comment: str) -> DeviceStage:
    """Create the executable stage for kind CONTRACTION or MOVE.

    Parameters
    ----------
    queue, plan, stage, graph, comment
        As of :class:`DeviceStage`.
    """
    name = plan.values[stage.values[0]].spec.name
    return _DEVICE_STAGES[name](queue, plan, stage, graph, comment)


_DEVICE_STAGES: dict[str, type[DeviceStage]] = {
    "dot": DeviceProduct,
    "classes": DeviceClasses,
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
