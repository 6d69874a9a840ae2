"""``NervanaCPU``: the backend in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from neonlike.backends.backend import Backend
from neonlike.backends.cpu.memory import HostMemory
from neonlike.backends.cpu.primitives.batchnorm import BatchNormKernels
from neonlike.backends.cpu.primitives.conv.hooks import ConvKernels
from neonlike.backends.cpu.primitives.factors import Factors
from neonlike.backends.cpu.primitives.linalg import BinaryKernels
from neonlike.backends.cpu.primitives.lookup import LookupKernels
from neonlike.backends.cpu.primitives.lrn import LrnKernels
from neonlike.backends.cpu.primitives.pool import PoolKernels
from neonlike.backends.cpu.primitives.rnn import RecurrentKernels
from neonlike.backends.cpu.primitives.roi import RoiKernels
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.backends.hostdata import array_to_wrap
from neonlike.backends.objects.protected import class_for
from neonlike.backends.tensor import Tensor
from neonlike.kernels.bench.recorder import Bench
from neonlike.kernels.c import gemm
from neonlike.kernels.c.compile import find_compiler
from neonlike.kernels.c.engine import CEngine
from neonlike.kernels.c.pairs import form_of
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.run import reuse
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.memory import aligned_empty, aligned_zeros
from neonlike.kernels.run.trace import lose
from neonlike.kernels.run.workspace import release_workspace
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

_compiled_engine: list[Callable[[], Engine]] = [CEngine]
"""Factories of the engine of backends that have a compiler; the last one is used."""


@contextmanager
def compiled_engine(make: Callable[[], Engine]) -> Iterator[None]:
    """Backends made inside run on the engine that ``make`` returns wherever they would run compiled C."""
    _compiled_engine.append(make)
    try:
        yield
    finally:
        _compiled_engine.remove(make)


class NervanaCPU(
    ConvKernels,
    PoolKernels,
    LrnKernels,
    BatchNormKernels,
    Factors,
    RecurrentKernels,
    LookupKernels,
    RoiKernels,
    BinaryKernels,
    HostMemory,
    Backend,
):
    """Backend in host memory: its tensors are NumPy arrays, computed by compiled C or by NumPy.

    Parameters
    ----------
    rng_seed, default_dtype, hist_bins, hist_offset, compat_mode, num_devices, stochastic_round, device_id
    deterministic, bench, product_precision
        As of :class:`~neonlike.backends.backend.Backend`.

    Examples
    --------
    >>> from neonlike.backends import NervanaCPU, gen_backend
    >>> isinstance(gen_backend("cpu"), NervanaCPU)
    True
    """

    backend_name: ClassVar[str] = "cpu"
    tensor_cls: ClassVar[type[Tensor]] = CPUTensor
    precisions = ("float32", "bfloat16")

    def _make_engine(self) -> Engine:
        """Compiled C where there is a compiler and ``NEONLIKE_CPU_JIT`` is not 0, else NumPy in blocks."""
        self.compiler = find_compiler()
        return NumpyEngine() if self.compiler is None else _compiled_engine[-1]()

    @property
    def product_precision(self) -> str:
        """Precision of factors in float32 products: "float32", the default, or "bfloat16".

        Sums are always float32. Settable; backends start from the variable ``NEONLIKE_PRODUCT_PRECISION``. A prepared
        assignment keeps the setting of its preparation.
        """
        return self._product_precision

    @product_precision.setter
    def product_precision(self, precision: str) -> None:
        self._product_precision = self.precision_of(precision)
        self.executor.own_engine.pairs = int(precision == "bfloat16")
        self.executor.clear()  # plans and calls multiply as was set when they were made
        self._tell_rounding(self.executor.bench)

    def _switch_bench(self, recorder: Bench | None) -> None:
        self._tell_rounding(recorder)
        super()._switch_bench(recorder)

    def _tell_rounding(self, recorder: Bench | None) -> None:
        """Have reports compare products in bfloat16 with products of such factors."""
        pairs = self.executor.own_engine.pairs
        if recorder is not None and self.compiler is not None:
            recorder.in_bfloat16, recorder.rounds = partial(gemm.square_of_pairs, pairs or 1), pairs > 0

    def _pairs_of(self, dtype: DType) -> int:
        """The form of pairs for factors of ``dtype``, see ``kernels/templates/c/pairs.h``; 0: none."""
        return form_of({dtype.name}, self.executor.own_engine.pairs, self.compiler)

    def cleanup_backend(self) -> None:
        """Drop plans and the memory that is kept to be used again; tensors and the backend can still be used.

        As in neon, where scripts call ``gen_backend`` again and go on with what they made before.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> be.cleanup_backend()
        >>> (t + 1).tolist()
        [[2.0, 2.0]]
        """
        super().cleanup_backend()
        release_workspace()
        reuse.pieces.release()

    def check_open(self, operation: str) -> None:
        """Nothing is refused after ``cleanup_backend``: what it dropped is made anew.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.cleanup_backend()
        >>> be.check_open("my function")
        """

    def _allocate(self, shape: Shape, dtype: DType, name: str | None, persist_values: bool) -> CPUTensor:
        return CPUTensor(self, reuse.pieces.empty(shape, dtype), name, persist_values)

    def _allocate_for_users(
        self, shape: Shape, dtype: DType, name: str | None, persist_values: bool, cleared: bool
    ) -> CPUTensor:
        """``cleared``: zeros, as in neon's CPU backend, since scripts may add to elements that they never wrote."""
        if cleared:
            lose()
        make = aligned_zeros if cleared else aligned_empty
        return CPUTensor(self, make(shape, dtype), name, persist_values)

    def wrap(self, host: npt.NDArray[Any]) -> CPUTensor:
        """Tensor over the memory of ``host``: both see each other's changes. A 1-D array becomes a column (n, 1).

        An array that must not be written, whose elements do not lie at multiples of their size, or whose byte order is
        another machine's, is copied.

        Raises
        ------
        DTypeError
            If it is no NumPy array, or tensors cannot hold its dtype.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> import numpy as np
        >>> host = np.zeros((1, 2), np.float32)
        >>> be.wrap(host)[:] = 1
        >>> host.tolist()
        [[1.0, 1.0]]
        """
        self.check_open("wrap")
        array = array_to_wrap(host)
        flags, size = array.flags, array.dtype.itemsize
        if flags.writeable and flags.aligned and not any(step % size for step in array.strides):
            kind = CPUTensor if flags.forc else class_for(array, CPUTensor)
            return kind(self, array, owned=False)  # type: ignore[no-any-return]
        return CPUTensor(self, np.array(array))


class NervanaMKL(NervanaCPU):
    """neon's MKL backend by name; the CPU backend in everything else.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> gen_backend("mkl").is_mkl()
    True
    """

    backend_name: ClassVar[str] = "mkl"

    def is_mkl(self) -> bool:
        """True, as in neon; its further methods are on every backend."""
        return True


MKLTensor = CPUTensor
