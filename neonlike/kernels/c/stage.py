"""One loop stage of a plan as compiled C: its variants by layout, their launches, and the fallback to NumPy."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import forms
from neonlike.kernels.c.elementwise import elementwise
from neonlike.kernels.c.fit import fit, packed
from neonlike.kernels.c.schedule import CSchedule, Fit
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.codegen.emit import Array, Kernel, make_kernel, unsupported
from neonlike.kernels.codegen.layout import Counter
from neonlike.kernels.codegen.render import TemplateSource
from neonlike.kernels.numpy_engine.engine import LoopStage
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, StageKind
from neonlike.kernels.run import forks
from neonlike.kernels.run.arrays import Picker, expression_text, input_array, is_flat, picker, remember
from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.placing import Placing, number_words
from neonlike.kernels.run.program import RELEASE_WORK, Fragment, Source, Step, Word
from neonlike.kernels.run.stage import ExecutableStage, Layouts, Run, loop_outputs
from neonlike.kernels.run.threads import thread_count
from neonlike.logger import logger
from neonlike.optree.shapes import Shape

PARALLEL_WORK = 1 << 17
"""Elements times cost below which more than one thread costs more than it saves."""
MAX_OPS, MAX_ARGUMENTS = 256, 512
"""Larger stages run on the NumPy engine: compiling them takes minutes, and the number of arguments is limited."""
MAX_LANE_VALUES = 64
"""Most values of a stage reduced by lanes: partial results of each column are on a thread's stack."""
STREAMED_BYTES = 64 << 20
"""Bytes read and written together from which results do not stay in any cache.

Then they are written with streaming stores, unless more is written than read: that was slower (``column*row`` by a
quarter).
"""
_CAN_STREAM = platform.machine() in ("x86_64", "AMD64")
_SOURCES: Mapping[str, Callable[[Kernel, CSchedule], TemplateSource]] = {
    **dict.fromkeys(("flat", "nested", "turned", "blocks"), elementwise),
    **dict.fromkeys(("rows", "split", "segments"), forms.rows),
    **dict.fromkeys(("columns", "deep"), forms.columns),
    "lanes": forms.lanes,
}
"""The function that writes a kernel's source, by the form of its schedule."""
_KINDS = {"double": ctypes.c_double, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
_UNKNOWN = object()
_address, _geometry = attrgetter("address"), attrgetter("geometry")


class StageLaunch(NamedTuple):
    """A compiled function and its arguments after pointers and numbers: address of sizes, count, threads."""

    function: Any
    tail: tuple[int, int, int]
    serial: tuple[int, int, int]
    """``tail`` for forked processes, in which no thread may be started."""
    sizes: Any


class CStage(ExecutableStage):
    """One stage and its compiled variants.

    Attributes
    ----------
    fallback : LoopStage or None
        The stage on the NumPy engine, for what has no C form; made when it is first needed.
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        self.plan, self.stage = plan, stage
        self.fallback: LoopStage | None = None
        small = len(stage.values) <= MAX_OPS and len(graph.leaves) + len(graph.numbers) <= MAX_ARGUMENTS
        self.usable = small and unsupported([plan.values[i] for i in stage.values]) is None
        self.kernel: Kernel = make_kernel(plan, stage, graph) if self.usable else Kernel(plan, stage)
        self.arrays = [*self.kernel.inputs, *self.kernel.outputs]
        self.comment = expression_text(graph)
        self.cost = 1 + sum(plan.values[i].spec.flops for i in stage.values) / 8
        self.by_lanes, self.once = forms.knows_no_positions(self.kernel), forms.reads_once(self.kernel)
        reads_few = stage.kind is StageKind.ELEMENTWISE or (self.by_lanes and self.once)
        self.light = reads_few and forms.is_light(self.kernel)
        self.variants: dict[CSchedule, Any] = {}
        self.launches: dict[Any, Any] = {}  # layout -> StageLaunch, None where there is no C form
        self.numbers = picker([number.slot for number in self.kernel.numbers])
        self.number_words = number_words(self.kernel)
        self.slots = self._tensor_slots()
        self.flat = self.slots is not None and is_flat(self.kernel, stage, graph)

    def _tensor_slots(self) -> tuple[Picker, Picker] | None:
        """Functions that pick leaves and targets if all operands are tensors, the hot path; else None."""
        if not self.usable or not self.stage.writes_targets_only:
            return None
        if any(array.kind != "leaf" for array in self.kernel.inputs):
            return None
        return picker([a.index for a in self.kernel.inputs]), picker([a.index for a in self.kernel.outputs])

    # Running

    def run(self, run: Run) -> None:
        """Execute the stage."""
        if self.slots is None:
            if not self.usable or not self._run_arrays(run):
                self._run_fallback(run)
            return
        graph = run.graph
        inputs, outputs = self.slots[0](graph.leaves), self.slots[1](graph.targets)
        key = self._layout(inputs, outputs)
        launch = self.launches.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            launch = self._plan_launch(run, key, self._arrays(run))
        if launch is None or launch[0](
            *map(_address, inputs),
            *map(_address, outputs),
            *self.numbers(graph.numbers),
            *launch[2 if forks.forked else 1],
        ):
            self._run_fallback(run)

    def _layout(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The key of the launch on these tensors."""
        return outputs[0].shape if self.flat else (*map(_geometry, inputs), *map(_geometry, outputs))

    def steps(self, run: Placing) -> Fragment | None:
        """The kernel of the stage on the arrays of ``run``, for the program of its plan; None if NumPy runs it."""
        if not self.usable:
            return None
        arrays = self._arrays(run)
        launch = self._plan_launch(run, None, arrays)
        if launch is None or launch.function.packed is None:
            return None
        words: list[Word] = [_word(run, one) for one in self.kernel.inputs]
        words += [run.written(array) for array in arrays[len(words) :]]
        words += self.number_words
        sizes, extent, threads = launch.tail
        words += [(Source.PLAIN, sizes), (Source.PLAIN, extent), (Source.THREADS, threads)]
        release = math.prod(self.stage.space.of(run.graph)) * self.cost >= RELEASE_WORK
        return Fragment((Step(launch.function.packed, tuple(words)),), release, True, launch)

    def _run_fallback(self, run: Run) -> None:
        if self.fallback is None:
            self.fallback = LoopStage(self.plan, self.stage, run.graph)
        with np.errstate(all="ignore"):
            self.fallback.run(run)

    def _run_arrays(self, run: Run) -> bool:
        """As :meth:`run` with temporaries or positions as operands; False if there is no C form for these arrays."""
        arrays = self._arrays(run)
        key = (self.stage.space.of(run.graph), *[(a.shape, a.strides) for a in arrays])
        launch = self.launches.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            launch = self._plan_launch(run, key, arrays)
        if launch is None:
            return False
        pointers = [a.__array_interface__["data"][0] for a in arrays]
        numbers = self.numbers(run.graph.numbers)
        return not launch.function(*pointers, *numbers, *(launch.serial if forks.forked else launch.tail))

    # Arrays and layouts

    def _arrays(self, run: Run) -> list[Any]:
        """Inputs and outputs of the kernel in ``run``; allocates temporaries."""
        inputs = [input_array(self.kernel, run, array) for array in self.kernel.inputs]
        return [*inputs, *loop_outputs(self.plan, self.stage, run)]

    def _plan_launch(self, run: Run, key: Any, arrays: list[Any]) -> StageLaunch | None:
        """Function and arguments for ``arrays``; None if there is no C form for their layout.

        They are remembered as ``key``, unless that is None.
        """
        shape = self.stage.space.of(run.graph)
        found = self._fit(shape, arrays)
        function = None if found is None else self._variant(found.schedule)
        launch: StageLaunch | None = None
        if found is not None and function is not None:
            sizes = (ctypes.c_int64 * len(found.sizes))(*found.sizes)
            where, threads = ctypes.addressof(sizes), self._threads(math.prod(shape))
            launch = StageLaunch(function, (where, found.count, threads), (where, found.count, 1), sizes)
        if key is not None:
            remember(self.launches, key, launch)
        return launch

    def _fit(self, shape: Shape, arrays: list[Any]) -> Fit | None:
        """The schedule for ``arrays``; None if there is no C form for their layout."""
        lanes = self.by_lanes and len(self.kernel.values) <= MAX_LANE_VALUES
        found = fit(self.stage, shape, arrays, len(self.kernel.inputs), lanes, self.once, self.light)
        if found is None:
            return None
        outputs = arrays[len(self.kernel.inputs) :]
        read = sum(a.nbytes for a in arrays[: len(self.kernel.inputs)] if not isinstance(a, Counter))
        written = sum(a.nbytes for a in outputs)
        large = read + written > STREAMED_BYTES
        aligned = all(a.strides[-2] % LINE == 0 for a in outputs if a.ndim > 1)  # rows start at cache lines
        streams = _CAN_STREAM and large and written <= read and bool(self.kernel.streamable())
        if found.schedule.form == "columns" and not found.schedule.unrolled:
            threads, piped = self._threads(math.prod(shape)), streams and aligned and self.by_lanes
            nbytes = forms.packing(self.kernel, found.schedule.inner, large, threads)
            found = packed(found, nbytes, threads, piped, not large and forms.keeps_halves(self.kernel))
        if streams and found.schedule.may_stream and (aligned or found.schedule.form in ("flat", "blocks")):
            return replace(found, schedule=replace(found.schedule, streamed=True))
        return found

    def _threads(self, count: int) -> int:
        """Threads for ``count`` elements: one if more do not pay."""
        return 1 if count * self.cost < PARALLEL_WORK else thread_count()

    # Compiling

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The kernel for arrays that lie like these; none where NumPy runs."""
        arrays = self._arrays(layouts)
        found = self._fit(self.stage.space.of(layouts.graph), arrays) if self.usable else None
        return [] if found is None else [self._source(found.schedule)]

    def _source(self, schedule: CSchedule) -> KernelSource:
        source = _SOURCES[schedule.form](self.kernel, schedule)
        return KernelSource(source, source.name, self.comment, source.headers)

    def _variant(self, schedule: CSchedule) -> Any:
        """The compiled function for a schedule; None if compiling failed."""
        if schedule not in self.variants:
            self.variants[schedule] = self._compile(schedule)
        return self.variants[schedule]

    def _compile(self, schedule: CSchedule) -> Any:
        arguments: list[Any] = [ctypes.c_int64 if array.kind == "counter" else ctypes.c_void_p for array in self.arrays]
        arguments += [_KINDS[number.ctype] for number in self.kernel.numbers]
        arguments += [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        return load_function(self._source(schedule), arguments, ctypes.c_int)


def _word(run: Placing, array: Array) -> Word:
    """Where an input of a kernel begins; positions are counted from 0."""
    return (Source.PLAIN, 0) if array.kind == "counter" else run.read(array)


def load_function(kernel: KernelSource, arguments: Sequence[Any], result: Any, compiler: Compiler | None = None) -> Any:
    """The compiled function of ``kernel`` with its ctypes types; None if that fails, and the reason is logged.

    Its attribute ``packed`` is the address of the entry that takes all arguments as one array (``packed.h``), if it has
    one, else None.

    Parameters
    ----------
    kernel : KernelSource
    arguments : sequence of ctypes types
    result : ctypes type
    compiler : Compiler, optional
        None: looked up.
    """
    try:
        library = compile_c.build_kernel(kernel, compiler)
    except KernelCompileError as error:
        logger.error("%s\nThis expression runs on the NumPy engine instead.", error)
        return None
    function = getattr(library, kernel.name)
    function.argtypes, function.restype = list(arguments), result
    entry = getattr(library, f"{kernel.name}_packed", None)
    function.packed = None if entry is None else ctypes.cast(entry, ctypes.c_void_p).value
    return function
