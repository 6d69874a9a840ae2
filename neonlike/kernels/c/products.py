"""Matrix products in plans of the C engine: our kernel where it pays, looked up once for each layout, else NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import gemm
from neonlike.kernels.c.convert import as_floats, conversions
from neonlike.kernels.c.copies import Lying, as_wanted, joined_steps, stored_steps
from neonlike.kernels.c.gemm import Array
from neonlike.kernels.c.gemm_blas import BlasLaunch, blas_source, find_small_launch
from neonlike.kernels.c.pairs import spoken
from neonlike.kernels.c.routine import REAL_TYPES, address
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.numpy_engine.engine import NumpyCallStage
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage, Store
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.calls import with_conversions
from neonlike.kernels.run.placing import Placing, fragment_of
from neonlike.kernels.run.program import Fragment
from neonlike.kernels.run.stage import Input, Layouts, Run, destination, store_result
from neonlike.optree.dtypes import F32, compute_dtype
from neonlike.optree.shapes import is_gapless

_UNKNOWN: Any = object()


def pairs_of_operands(a: Any, b: Any, out: Any, pairs: int, compiler: Compiler | None) -> int:
    """The form of pairs that :func:`gemm.dot` multiplies, see ``pairs.h``; 0: none.

    ``a``, ``b`` and ``out``: arrays or layouts. A result of 16 bits is converted behind the product.

    Parameters
    ----------
    a, b, out : arrays or layouts
    pairs : int
        The form for float32.
    compiler : Compiler or None
    """
    result: Any = out if out.dtype == F32 else ArrayLayout(out.shape, compute_dtype(out.dtype))
    return gemm.pairs_of(a, b, result, pairs, compiler)


class DotStage(NumpyCallStage):
    """One matrix product; without a kernel for its layouts it runs as :class:`NumpyCallStage` does.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    pairs : int
        The form of pairs for float32; 0: none.
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph, pairs: int = 0) -> None:
        super().__init__(plan, stage, graph)
        self.pairs = pairs
        self.compiler = find_compiler()
        self.launches: dict[Any, gemm.GemmLaunch | BlasLaunch | None] = {}

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Our kernel where it pays, or what calls NumPy's library, block by block; none where only NumPy has one."""
        self._allocate(layouts)
        a, b, out = self._operands(layouts)
        if pairs := pairs_of_operands(a, b, out, self.pairs, self.compiler):
            return [gemm.GEMM.source(**gemm.context(a, b, out, pairs))]
        if gemm.pays(a.shape[0], a.shape[1], b.shape[1], self.compiler):
            real = REAL_TYPES.get(out.dtype)
            return [] if real is None else [gemm.GEMM.source(real=real)]
        blocks = blas_source(a, b, out)
        return [] if blocks is None else [blocks]

    def factors(self, layouts: Layouts) -> str:
        """Precision of the product, see :meth:`ExecutableStage.factors`."""
        a, b, out = self._operands(layouts)
        return spoken(pairs_of_operands(a, b, out, self.pairs, self.compiler), out.dtype, self.compiler)

    def steps(self, run: Placing) -> Fragment | None:
        """The product on the arrays of ``run``, for the program of its plan; None if NumPy computes it."""
        self._allocate(run)
        a, b, out = self._operands(run)
        pairs = pairs_of_operands(a, b, out, self.pairs, self.compiler)
        paired = pairs and gemm.are_stored(a, b)
        arrays = [(array, run.read(one)) for array, one in zip((a, b), self.inputs)]
        read = [lying for one in arrays if (lying := Lying(*one) if paired else as_wanted(run, *one)) is not None]
        if len(read) < 2:
            return None
        a, b = (lying.array if paired else as_floats(lying.array) for lying in read)
        launch = self._launch(a, b, out, pairs)
        if launch is None:
            return None
        converted = () if paired else conversions([lying.array for lying in read], self.compiler, {})
        place = run.written(out)
        program = with_conversions(launch.program(1.0, 0.0), converted)
        product = fragment_of(program, [*(lying.place for lying in read), place], run, launch)
        others = [destination(run, store) for store in self._to_convert(out)]
        stored = [stored_steps(run, to, run.written(to), out, place) for to in others]
        return joined_steps([*(lying.steps for lying in read), product, *stored])

    def _allocate(self, run: Run) -> Any:
        """As of the base class; the only target, if the kernel rounds results to its bfloat16 as it stores them."""
        out = self._only_target(run)
        if out is None or not self._is_stored(run, out):
            return super()._allocate(run)
        run.temps[self.value.index] = out
        return out

    def _is_stored(self, run: Run, to: Array) -> bool:
        a, b = (run.array(one, 0) for one in self.inputs)
        dense = is_gapless(to.shape, to.strides, to.itemsize)
        return dense and gemm.stores(a, b, to) and gemm.pairs_of(a, b, to, self.pairs, self.compiler) != 0

    def _to_convert(self, out: Array) -> list[Store]:
        """Where the result has to be converted to behind the product, which wrote ``out``."""
        return self.others if out.dtype == self.dtype else []

    def _compute(self, run: Run) -> None:
        a, b, out = self._operands(run)
        launch = self._launch(a, b, out, self.pairs)
        if launch is not None:
            launch(*self._addresses(run))
        else:
            with np.errstate(all="ignore"):
                gemm.dot(a, b, out, self.compiler, self.pairs)
        if others := self._to_convert(out):
            with np.errstate(all="ignore"):
                store_result(run, out, others)

    def _operands(self, run: Run) -> tuple[Array, Array, Array]:
        a, b = self.inputs
        return run.array(a, 0), run.array(b, 0), run.temps[self.value.index]

    def _launch(self, a: Array, b: Array, out: Array, pairs: int) -> gemm.GemmLaunch | BlasLaunch | None:
        """The kernel for these arrays; None where only NumPy has one."""
        key: Any = a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, out.dtype, out.strides, pairs
        launch = self.launches.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            launch = remember(self.launches, key, self._find_launch(a, b, out, pairs))
        found: gemm.GemmLaunch | BlasLaunch | None = launch
        return found

    def _find_launch(self, a: Array, b: Array, out: Array, pairs: int) -> gemm.GemmLaunch | BlasLaunch | None:
        large = out.size * a.shape[1] >= gemm.FEWEST_OF_ALL
        found = gemm.best_launch(a, b, out, self.compiler, pairs) if large else None
        return found or find_small_launch(a, b, out, self.compiler, vectors=True)

    def _addresses(self, run: Run) -> tuple[Any, Any, Any]:
        a, b = (_address(run, one) for one in self.inputs)
        if self.direct is not None:
            return a, b, run.graph.targets[self.direct.target].address
        return a, b, address(run.temps[self.value.index])


def _address(run: Run, read: Input) -> int | None:
    """Where the array behind ``read`` begins; tensors know."""
    if read.kind == "leaf":
        found: int = run.graph.leaves[read.index].address
        return found
    return address(run.temps[read.index])
