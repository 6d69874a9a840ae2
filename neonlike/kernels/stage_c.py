"""One loop stage of a plan as compiled C: its variants by layout, how they are launched, what stands in for them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.errors import KernelCompileError
from neonlike.kernels import compile_c, forms
from neonlike.kernels.blocks import Run
from neonlike.kernels.compile_c import KernelSource
from neonlike.kernels.emit import Array, Kernel, make_kernel, unsupported
from neonlike.kernels.fit import MAX_WIDTH, FormKey, fit
from neonlike.kernels.graph import Graph
from neonlike.kernels.interp import LoopStage
from neonlike.kernels.layout import Counter, element_strides
from neonlike.kernels.plan import Plan, Stage, StageKind
from neonlike.kernels.render import Source, template_text
from neonlike.kernels.threads import thread_count
from neonlike.logger import logger
from neonlike.optree.show import infix

HEADERS = ("vecmath.h", "vecmath_f32.h", "vecmath_f64.h", "vecmath_small.h", "intmath.h", "philox.h")
PARALLEL_WORK = 1 << 17
"""Elements times cost below which starting threads costs more than it saves."""
MAX_OPS, MAX_ARGUMENTS = 256, 512
"""Longer stages run on the NumPy engine: compiling them takes minutes, and calls have a limit of arguments."""
_KINDS = {"double": ctypes.c_double, "int64_t": ctypes.c_int64}

Launch = tuple[Any, Any, int, int]
"""Function, meta array, count of rows or elements, threads."""


class CStage:
    """One stage and its compiled variants."""

    def __init__(self, plan: Plan, stage: Stage, graph: Graph, fallback: LoopStage) -> None:
        self.stage, self.fallback = stage, fallback
        small = len(stage.values) <= MAX_OPS and len(graph.leaves) + len(graph.numbers) <= MAX_ARGUMENTS
        self.usable = small and unsupported([plan.values[i] for i in stage.values]) is None
        self.kernel: Kernel = make_kernel(plan, stage, graph) if self.usable else Kernel(plan, stage)
        self.arrays = [*self.kernel.inputs, *self.kernel.outputs]
        roots = [graph.nodes[r] for r in graph.roots if 0 <= r < len(graph.nodes)]
        self.comment = "; ".join(infix(root) for root in roots).replace("*/", "* /")[:400] or "copy"
        self.cost = 1 + sum(plan.values[i].spec.flops for i in stage.values) / 8
        self.variants: dict[FormKey, Any] = {}
        self.launches: dict[Any, Launch | None] = {}
        self.number_slots = [number.slot for number in self.kernel.numbers]
        self.input_slots = self._leaf_slots(graph)

    def _leaf_slots(self, graph: Graph) -> tuple[list[int], list[int]] | None:
        """Leaf and target slots when the kernel is flat and touches only tensors: the hot path."""
        if self.stage.kind is not StageKind.ELEMENTWISE or not self.usable:
            return None
        if self.stage.saved or any(store.buffered for store in self.stage.stores):
            return None
        if not all(self._is_flat(array, graph) for array in self.arrays):
            return None
        return [a.index for a in self.kernel.inputs], [a.index for a in self.kernel.outputs]

    def _is_flat(self, array: Array, graph: Graph) -> bool:
        """True for tensors contiguous over the whole space or a single element; both are part of the plan's key."""
        if array.kind not in ("leaf", "target"):
            return False
        if math.prod(array.shape) == 1 and array.kind == "leaf":
            return True
        tensors = graph.leaves if array.kind == "leaf" else graph.targets
        return array.shape == self.stage.shape and array.perm is None and bool(tensors[array.index].is_contiguous)

    # Running

    def run(self, run: Run) -> None:
        """Execute the stage."""
        slots, graph = self.input_slots, run.graph
        if slots is not None:
            targets = graph.targets
            launch = self._flat_launch(targets[slots[1][0]].shape)
            if launch is not None:
                leaves, numbers = graph.leaves, graph.numbers
                launch[0](
                    *[leaves[i].address for i in slots[0]],
                    *[targets[i].address for i in slots[1]],
                    *[numbers[i] for i in self.number_slots],
                    None,
                    launch[2],
                    1 if compile_c.forked else launch[3],
                )
                return
        if not self.usable or not self._run_general(run):
            self._run_fallback(run)

    def _run_fallback(self, run: Run) -> None:
        with np.errstate(all="ignore"):
            self.fallback.run(run)

    def _run_general(self, run: Run) -> bool:
        """Choose a form for the arrays and launch; False if there is no C form for this layout."""
        arrays = self._arrays(run)
        shape = self.stage.space.of(run.graph)
        key = (shape, tuple([(a.shape, a.strides) for a in arrays]))
        launch = self.launches.get(key, False)
        if launch is False:
            launch = self._plan_launch(shape, arrays)
            self._remember(key, launch)
        if launch is None or launch is True:
            return False
        pointers = [a.__array_interface__["data"][0] for a in arrays]
        numbers = [run.graph.numbers[i] for i in self.number_slots]
        return not launch[0](*pointers, *numbers, launch[1], launch[2], 1 if compile_c.forked else launch[3])

    def bind(self, run: Run) -> Callable[[], None] | None:
        """The launch on the tensors of ``run``, whose temporaries it allocates; None if it is not C."""
        if not self.usable:
            return None
        arrays = self._arrays(run)
        shape = self.stage.space.of(run.graph)
        launch = self._plan_launch(shape, arrays)
        if launch is None:
            return None
        function, meta, count, most = launch
        pointers = [a.__array_interface__["data"][0] for a in arrays]
        given = [*pointers, *[run.graph.numbers[i] for i in self.number_slots]]
        values = [kind(value) for kind, value in zip(function.argtypes, given)]
        threads = ctypes.c_int64(most)
        values += [ctypes.c_void_p(ctypes.addressof(meta)), ctypes.c_int64(count), threads]

        def call() -> None:
            if compile_c.forked:
                threads.value = 1
            if function(*values):
                self._run_fallback(run)

        call.keep = meta, arrays  # type: ignore[attr-defined]  # the kernel has their addresses only
        return call

    # Arrays and layouts

    def _arrays(self, run: Run) -> list[Any]:
        """What the kernel reads and writes in ``run``, temporaries allocated."""
        inputs = [self._input(run, array) for array in self.kernel.inputs]
        return [*inputs, *self.fallback.outputs(run)]

    def _input(self, run: Run, array: Array) -> Any:
        if array.kind == "counter":
            return self._counter(run.graph, array.index)
        found = run.graph.leaves[array.index].array if array.kind == "leaf" else run.temps[array.index]
        return found if array.perm is None else found.transpose(array.perm)

    def _counter(self, graph: Graph, index: int) -> Counter:
        value = self.kernel.plan.values[index]
        shape = value.source.of(graph)
        if value.spec.name == "onehot":
            return Counter(shape, [int(axis in value.axes) for axis in range(len(shape))])
        return Counter(shape, element_strides(shape, value.perm))

    def _flat_launch(self, shape: tuple[int, ...]) -> Launch | None:
        launch = self.launches.get(shape, False)
        if launch is False:
            function = self._variant(("flat", 1, tuple([int(a.shape == self.stage.shape) for a in self.arrays])))
            count = math.prod(shape)
            launch = None if function is None else (function, None, count, self._threads(count))
            self._remember(shape, launch)
        return launch  # type: ignore[return-value]

    def _plan_launch(self, shape: tuple[int, ...], arrays: list[Any]) -> Launch | None:
        """Function and arguments for these arrays; None if there is no C form for their layout."""
        form = fit(self.stage, shape, arrays, len(self.kernel.inputs))
        function = None if form is None else self._variant(form.key)
        if form is None or function is None:
            return None
        return function, _pack(form.meta), form.count, self._threads(math.prod(shape))

    def _remember(self, key: Any, launch: Launch | None) -> None:
        if len(self.launches) >= 256:
            self.launches.clear()
        self.launches[key] = launch

    def _threads(self, count: int) -> int:
        """Threads worth starting; what a fork inherits is not worth it (see ``compile_c.after_fork_serial``)."""
        return 1 if count * self.cost < PARALLEL_WORK else thread_count()

    # Compiling

    def kernel_source(self, run: Run) -> KernelSource | None:
        """The kernel for the tensors of ``run``; None where NumPy runs. Temporaries are allocated for later stages."""
        if not self.usable:
            self.fallback.outputs(run)
            return None
        arrays = self._arrays(run)
        form = fit(self.stage, self.stage.space.of(run.graph), arrays, len(self.kernel.inputs))
        return None if form is None else self._source(form.key)

    def _source(self, key: FormKey) -> KernelSource:
        form, rank, inner = key
        source: Source
        if form in ("flat", "nested"):
            source = forms.elementwise(self.kernel, rank, inner, form == "flat")
        elif form == "rows":
            source = forms.rows(self.kernel, inner)
        else:
            source = forms.columns(self.kernel, inner, MAX_WIDTH)
        return KernelSource(source, source.name, self.comment, {h: template_text(f"c/{h}") for h in HEADERS})

    def _variant(self, key: FormKey) -> Any:
        """The function for a form, compiled when first asked for; None if that fails."""
        if key not in self.variants:
            self.variants[key] = self._compile(key)
        return self.variants[key]

    def _compile(self, key: FormKey) -> Any:
        kernel = self._source(key)
        try:
            library = compile_c.build(kernel.source, kernel.name, kernel.expression, headers=kernel.headers)
        except KernelCompileError as error:
            logger.error("%s\nThis expression runs on the NumPy engine instead.", error)
            return None
        function = getattr(library, kernel.name)
        function.argtypes = (
            [ctypes.c_int64 if array.kind == "counter" else ctypes.c_void_p for array in self.arrays]
            + [_KINDS[number.ctype] for number in self.kernel.numbers]
            + [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        )
        function.restype = None if key[0] in ("flat", "nested") else ctypes.c_int
        return function


def _pack(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
