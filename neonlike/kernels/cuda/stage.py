"""Step 7 of an assignment (docs/tour.md) on a GPU: an elementwise or reduce stage, its launches cached by layout."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from neonlike.errors import OutOfMemory
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import make_kernel, unsupported
from neonlike.kernels.codegen.layout import Counter
from neonlike.kernels.cuda.launch import CudaKernel, TooManyArguments, are_aligned, widened
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.cuda.step import Call, in_turn
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import NumberArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run.arrays import Picker, expression_text, input_array, is_flat, picker
from neonlike.kernels.run.placing import number_words
from neonlike.kernels.run.program import Program, Source, Step
from neonlike.kernels.run.stage import ExecutableStage, Layouts, Run, buffer_key, loop_outputs
from neonlike.logger import logger
from neonlike.optree.dtypes import DType

MOST_ROOM = 1 << 20
"""Maximum bytes of working memory kept for an assignment started by the extension."""
MAX_OPS, MAX_ARGUMENTS = 512, 256
"""Maximum number of values; larger stages run on host copies, because compiling takes minutes and arguments are
limited."""
DIGITS = {"float16": 10, "bfloat16": 7, "float32": 15, "float64": 15}
"""Maximum binary digits of stochastic rounding, by dtype name; ``True`` stands for 10."""

_address, _geometry, _rounding = attrgetter("address"), attrgetter("geometry"), attrgetter("rounding")


def digits_of(rounding: int | bool, dtype: DType) -> int:
    """Binary digits that a tensor of ``dtype`` with this ``rounding`` keeps after the first; 0: round to nearest."""
    if not rounding or dtype.kind == "b":
        return 0
    return max(1, min(10 if rounding is True else int(rounding), DIGITS.get(dtype.name, 10)))


class CudaStage(ExecutableStage):
    """An elementwise or reduce stage with its compiled variants.

    Parameters
    ----------
    queue : Queue
    fallback : callable
        Creates the executable of the stage if it has no kernel, on first use.
    """

    def __init__(
        self, queue: Queue, plan: Plan, stage: Stage, graph: Graph, fallback: Callable[[Graph], ExecutableStage]
    ) -> None:
        self.queue, self.plan, self.stage, self.fallback = queue, plan, stage, fallback
        self._on_host: ExecutableStage | None = None
        small = len(stage.values) <= MAX_OPS and len(graph.leaves) + len(graph.numbers) <= MAX_ARGUMENTS
        self.usable = small and unsupported([plan.values[i] for i in stage.values]) is None
        if not self.usable:
            return
        kernel = make_kernel(plan, stage, graph)
        self.kernel = kernel
        axes = stage.axes if stage.kind is StageKind.REDUCE else None
        self.compiled = CudaKernel(queue.device, kernel, axes, expression_text(graph))
        self._widened: dict[tuple[int, ...], CudaKernel] = {}
        self.numbers = picker([number.slot for number in kernel.numbers])
        self.counters = [array for array in kernel.inputs if array.kind == "counter"]
        self.slots = self._tensor_slots()
        self.flat = self.slots is not None and not self.counters and is_flat(kernel, stage, graph)

    def _tensor_slots(self) -> tuple[Picker, Picker] | None:
        """Pickers of leaves and targets if the kernel accesses only tensors (the hot path), else None."""
        if not self.stage.writes_targets_only:
            return None
        memory = [array for array in self.kernel.inputs if array.kind != "counter"]
        if any(array.kind != "leaf" for array in memory):
            return None
        return picker([a.index for a in memory]), picker([a.index for a in self.kernel.outputs])

    # Running

    def run(self, run: Run) -> None:
        """Queue the stage."""
        graph = run.graph
        if not self.usable or self.slots is None:
            self.ready(run)()
            return
        inputs, outputs = self.slots[0](graph.leaves), self.slots[1](graph.targets)
        if any(map(_rounding, outputs)):
            self.ready(run)()
            return
        addresses = [*map(_address, inputs), *map(_address, outputs)]
        key = are_aligned(addresses), self._layout(graph, inputs, outputs)
        runner = self.compiled.runners.get(key)
        if runner is None:
            if self._is_empty_reduction(graph):
                self.ready(run)()
                return
            try:
                runner = self.compiled.learn(key, self.stage.space.of(graph), self._arrays(run), key[0])
            except TooManyArguments:
                self._give_up(run)()
                return
        runner(addresses, self.numbers(graph.numbers))

    def program(self, graph: Graph) -> Program | None:
        """The program of what :meth:`run` queued for ``graph``; None if that takes more than tensors.

        Its working memory is kept: two threads may not queue it at once, so it holds the interpreter's lock.
        """
        if not self.usable or self.slots is None or self.counters:
            return None
        inputs, outputs = self.slots[0](graph.leaves), self.slots[1](graph.targets)
        aligned = are_aligned([*map(_address, inputs), *map(_address, outputs)])
        runner = self.compiled.runners.get((aligned, self._layout(graph, inputs, outputs)))
        if runner is None or not runner.program.steps or runner.program.memory > MOST_ROOM:
            return None
        steps, memory = runner.program.steps, runner.program.memory
        try:
            room = self.queue.device.allocate(memory) if memory else None
        except OutOfMemory:  # the assignment itself is complete
            return None
        tail = steps[0].arguments if room is None else struct.pack("=Q", room.address) + steps[0].arguments
        block = self.queue.device.starts.block(steps, tail)
        if block is None:
            return None
        count = len(graph.leaves)
        leaves = [(Source.OPERAND, array.index) for array in self.kernel.inputs]
        targets = [(Source.OPERAND, count + array.index) for array in self.kernel.outputs]
        step = Step(ctypes.addressof(block), (*leaves, *targets, *number_words(self.kernel)))
        operands = count + len(graph.targets)
        return Program(
            (step,), operands, len(graph.numbers), 0, True, room is None, False, keep=(block, room, steps)
        )

    def _layout(self, graph: Graph, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Geometry that a launch on these tensors depends on; the caller adds alignment."""
        if self.flat:
            return outputs[0].shape
        counted = [self.kernel.plan.values[array.index].source.of(graph) for array in self.counters]
        return (*map(_geometry, inputs), *map(_geometry, outputs), *counted)

    def _is_empty_reduction(self, graph: Graph) -> bool:
        """Whether the space is empty; the fallback, NumPy, then decides between a value and an error."""
        return self.stage.kind is StageKind.REDUCE and not math.prod(self.stage.space.of(graph))

    def ready(self, run: Run) -> Call:
        """Return a callable that queues the stage; allocation and compilation, which may fail, happen now."""
        if not self.usable or self._is_empty_reduction(run.graph):
            return self._ready_on_host(run)
        if any(a.kind == "temp" and a.index not in run.temps for a in self.kernel.inputs):
            return partial(self.run, run)  # an earlier stage creates them at run time
        try:
            return self._ready(run)
        except TooManyArguments:
            return self._give_up(run)

    def _ready_on_host(self, run: Run) -> Call:
        """Return a callable that runs the stage without a kernel."""
        logger.debug("cuda engine: stage %d (%s) runs on host copies", self.stage.index, self.stage.reason)
        if self._on_host is None:
            self._on_host = self.fallback(run.graph)
        return partial(self._on_host.run, run)

    def _give_up(self, run: Run) -> Call:
        """Switch to the fallback for the stage, including its temporaries."""
        self.usable = False
        for index in [*self.stage.saved, *(buffer_key(store.target) for store in self.stage.stores)]:
            run.temps.pop(index, None)
        return self.ready(run)

    def _ready(self, run: Run) -> Call:
        """Implement :meth:`ready` for a stage with a kernel."""
        arrays, shape = self._arrays(run), self.stage.space.of(run.graph)
        numbers, digits = self.numbers(run.graph.numbers), self._digits(run.graph)
        if not digits:
            return self.compiled.bind(shape, arrays, numbers)
        if self.stage.kind is StageKind.ELEMENTWISE:
            drawn = (*numbers, *self.queue.draws(sum(map(bool, digits))))
            return self.compiled.bind(shape, arrays, drawn, digits)
        return self._ready_rounded(run, arrays, numbers, digits)

    def _ready_rounded(
        self, run: Run, arrays: list[Any], numbers: tuple[Any, ...], digits: tuple[int, ...]
    ) -> Call:
        """A reduction with stochastically rounded results, by copies after the kernel."""
        compiled, wide = self._rounded_later(run, arrays, digits)
        calls = [compiled.bind(self.stage.space.of(run.graph), wide, numbers)]
        results = zip(wide[-len(digits) :], arrays[-len(digits) :], digits)
        calls += [self.queue.copy(exact, out, n) for exact, out, n in results if n]
        return partial(in_turn, calls)

    def _rounded_later(
        self, run: Run, arrays: list[Any], digits: tuple[int, ...]
    ) -> tuple[CudaKernel, list[Any]]:
        """The kernel that stores outputs with ``digits`` in their compute dtype, and its arrays."""
        where = tuple(position for position, n in enumerate(digits) if n)
        if where not in self._widened:
            kernel = widened(self.kernel, where)
            self._widened[where] = CudaKernel(self.queue.device, kernel, self.stage.axes, self.compiled.comment)
        compiled = self._widened[where]
        first = len(self.kernel.inputs)
        wide = list(arrays)
        for position in where:
            dtype = compiled.kernel.outputs[position].dtype
            wide[first + position] = run.empty(arrays[first + position].shape, dtype)
        return compiled, wide

    def _digits(self, graph: Graph) -> tuple[int, ...]:
        """Mantissa bits of each output's stochastic rounding; () if there is none. A fill with a number has none."""
        found = [0] * len(self.stage.saved)
        for store in self.stage.stores:
            target = graph.targets[store.target]
            filled = isinstance(store.arg, NumberArg) and target.is_contiguous
            found.append(0 if filled else digits_of(target.rounding, target.dtype))
        return tuple(found) if any(found) else ()

    def bind(self, run: Run) -> Call | None:
        """Bind the launch to the tensors of ``run``, allocating temporaries; None if it cannot be fixed."""
        if not self.usable or self._is_empty_reduction(run.graph) or self._digits(run.graph):
            return None
        return self.ready(run)

    # Arrays

    def _arrays(self, run: Run) -> list[Any]:
        """Input and output arrays of the kernel in ``run``, with temporaries allocated."""
        inputs = [input_array(self.kernel, run, array) for array in self.kernel.inputs]
        return [*inputs, *loop_outputs(self.plan, self.stage, run)]

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The kernel for arrays of these layouts; empty if the stage runs on host copies."""
        shape = self.stage.space.of(layouts.graph)
        if not self.usable or 0 in shape:
            loop_outputs(self.plan, self.stage, layouts)
            return []
        arrays, digits = self._arrays(layouts), self._digits(layouts.graph)
        compiled = self.compiled
        if digits and self.stage.kind is StageKind.REDUCE:
            compiled, arrays = self._rounded_later(layouts, arrays, digits)
            digits = ()
        aligned = are_aligned([array.address for array in arrays if not isinstance(array, Counter)])
        return [compiled.source(compiled.fit(shape, arrays, aligned, digits), digits)]
