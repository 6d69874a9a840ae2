"""``NervanaGPU``: the backend in a GPU's memory."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pycuda.driver as driver

from neonlike.backends.arguments import check_names, check_values
from neonlike.backends.backend import Backend
from neonlike.backends.expressions.random import RngState, make_state, pool_of
from neonlike.backends.gpu import selftest
from neonlike.backends.gpu.device.contexts import leave
from neonlike.backends.gpu.device.device import GpuDevice, device_count, open_device
from neonlike.backends.gpu.device.meter import EventMeter
from neonlike.backends.gpu.host_stage import HostStage
from neonlike.backends.gpu.memory.ahead import UploadAhead
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.memory.pool import MemoryBlock
from neonlike.backends.gpu.primitives.attention import AttentionCuda
from neonlike.backends.gpu.primitives.batchnorm import BatchNormCuda
from neonlike.backends.gpu.primitives.conv.hooks import ConvCuda
from neonlike.backends.gpu.primitives.detection import DetectionCuda
from neonlike.backends.gpu.primitives.lookup import LookupCuda
from neonlike.backends.gpu.primitives.lrn import LrnCuda
from neonlike.backends.gpu.primitives.nms import NmsCuda
from neonlike.backends.gpu.primitives.pool import PoolCuda
from neonlike.backends.gpu.primitives.rnn import RecurrentKernels
from neonlike.backends.gpu.primitives.roi import RoiCuda
from neonlike.backends.gpu.primitives.stats import StatsCuda
from neonlike.backends.gpu.products.blas import Kernels, Products
from neonlike.backends.gpu.products.linalg import ProductKernels
from neonlike.backends.gpu.ranks.communicator import Communicator, connect
from neonlike.backends.gpu.tensors import interop
from neonlike.backends.gpu.tensors.tensor import GPUTensor
from neonlike.backends.hostdata import array_to_wrap
from neonlike.backends.memory import MemoryStats
from neonlike.backends.objects.protected import class_for
from neonlike.backends.tensor import Tensor
from neonlike.checks import brief
from neonlike.distributed.ranks import Ranks
from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.kernels.cuda.compile import NEEDED, find_cuda_compiler, too_new
from neonlike.kernels.cuda.engine import CudaEngine
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.run.engine import Engine
from neonlike.optree.dtypes import DType
from neonlike.optree.node import Expression
from neonlike.optree.shapes import Shape, as_shape


class NervanaGPU(
    ConvCuda,
    PoolCuda,
    LrnCuda,
    RoiCuda,
    NmsCuda,
    DetectionCuda,
    AttentionCuda,
    BatchNormCuda,
    LookupCuda,
    RecurrentKernels,
    StatsCuda,
    ProductKernels,
    Backend,
):
    """GPU backend. Assignments are queued and return at once; ``get()`` waits for its data.

    Backends on one GPU share its context, stream and memory pool; tensors may outlive the backend, but only the backend
    can use them. Additional parameters to those of :class:`~neonlike.backends.backend.Backend`:

    Parameters
    ----------
    stochastic_round : bool or int
        Mantissa bits kept by stochastic rounding in tensors without their own ``rounding``; True: 10.
    device_id : int
        Number of the GPU, counted from 0.
    num_devices : int, optional
        Number of GPUs to use, counted from the first.
    scratch_size : int
        Initial bytes of ``set_scratch_size``.
    enable_winograd : bool or int

    Attributes
    ----------
    device : GpuDevice
    ctx, stream : pycuda.driver.Context, pycuda.driver.Stream
    compute_capability : (int, int)
    gpu_memory_size : int
        Bytes of device memory.

    Raises
    ------
    BackendUnavailable
        If there is no usable GPU, or it computes wrong results (see :mod:`~neonlike.backends.gpu.selftest`).
    ArgumentError
        If ``device_id`` is not the number of a GPU.
    """

    backend_name: ClassVar[str] = "gpu"
    tensor_cls: ClassVar[type[Tensor]] = GPUTensor
    device_type = 1
    use_pinned_mem = True
    fixed = Backend.fixed - {"round_mode"}
    _hist_limit = 16384
    _untimed_rate = (0, 0)

    def __init__(
        self,
        rng_seed: int | None = None,
        default_dtype: npt.DTypeLike = np.float32,
        stochastic_round: bool | int | None = False,
        deterministic: bool | None = None,
        device_id: int | None = 0,
        bench: bool | int | str | os.PathLike[str] | None = None,
        scratch_size: int = 0,
        hist_bins: int = 64,
        hist_offset: int = -48,
        compat_mode: str | None = None,
        enable_winograd: bool | int = True,
        num_devices: int | None = None,
        product_precision: str | None = None,
        **unknown: Any,
    ) -> None:
        self.closed = True  # until the device is open
        check_names(type(self).__name__, unknown, type(self).__init__)
        check_values(type(self).__name__, rng_seed, stochastic_round, device_id, num_devices, compat_mode)
        self.device: GpuDevice = open_device(0 if device_id is None else device_id, num_devices)
        self.device_id = self.device.number
        self.ctx, self.stream = self.device.context, self.device.stream
        self.compute_capability = self.device.compute_capability
        self.gpu_memory_size = self.device.memory_size
        self.products = Products(self.device)
        self._links: dict[Ranks, Communicator | None] = {}
        self.enable_winograd = enable_winograd
        self.round_mode = 10 if stochastic_round is True else int(stochastic_round or 0)
        super().__init__(
            rng_seed, default_dtype, hist_bins, hist_offset, compat_mode, num_devices, stochastic_round, device_id,
            deterministic, bench=bench, product_precision=product_precision,
        )  # fmt: skip
        self.set_scratch_size(scratch_size)
        self.context_rand_state_map[self.ctx] = self.init_rng_state.stream
        self.context_rand_state_alive[self.ctx] = True
        if not self.device.tested:
            self._test_device()

    @classmethod
    def device_of(cls, local_rank: int) -> int:
        """Number of the GPU for a rank of this machine: each its own, while there are as many."""
        return local_rank % max(1, device_count())

    def links(self) -> Communicator | None:
        """NCCL between the GPUs of all ranks, started by the first call; see :meth:`RanksFamily.links`."""
        ranks = self.ranks
        if ranks.size == 1:
            return None
        if ranks not in self._links:
            self._links[ranks] = connect(self.device, ranks)
        return self._links[ranks]

    def _test_device(self) -> None:
        """Compare the GPU with NumPy, on a private backend."""
        try:
            selftest.ensure(self.device, self._untimed)
        except BaseException:
            self.closed = True
            raise

    def _untimed(self) -> NervanaGPU:
        """Create another backend on this GPU, without bench mode."""
        return type(self)(rng_seed=0, device_id=self.device_id, bench=False)

    def _make_meter(self) -> EventMeter:
        return EventMeter(self.device, self._untimed)

    def _make_engine(self) -> Engine:
        if find_cuda_compiler() is None:
            raise BackendUnavailable(
                f"the backend 'gpu' needs a CUDA compiler{too_new()}: {NEEDED}; python -m neonlike doctor"
            )
        self.queue = queue = Queue(self.device, self._draws, self.products)
        self.products.kernels = Kernels(queue.copy, queue.gemm.ready)
        return CudaEngine(queue, partial(HostStage, self.device))

    def _draws(self, count: int) -> list[int]:
        """Key of the ``rand`` stream, and ``count`` unused call numbers."""
        key, call = self._rand_stream
        self._rand_stream = (key, call + count)
        return [key, *range(call, call + count)]

    # Random state

    def rng_get_state(self) -> RngState:
        """State of both generators: the host's 5-tuple, and uint32 (196608, 1) for the device's."""
        host = self._host_state()
        return make_state((tuple(host), pool_of(host.stream)), host.stream)

    @property
    def init_rng_state_dev(self) -> Any:
        """The second part of ``rng_get_state()`` right after seeding."""
        return pool_of(self.init_rng_state.stream)

    # Tensors

    def _allocate(self, shape: Shape, dtype: DType, name: str | None, persist_values: bool) -> GPUTensor:
        return GPUTensor(self, self.device.empty(shape, dtype), name, persist_values)

    def _allocate_for_users(
        self, shape: Shape, dtype: DType, name: str | None, persist_values: bool, cleared: bool
    ) -> GPUTensor:
        made = self._allocate(shape, dtype, name, persist_values)
        made.rounding = self.round_mode
        return made

    def wrap(self, host: Any) -> GPUTensor:
        """Create a tensor over memory with ``__cuda_array_interface__``; a NumPy array is copied to the GPU.

        Memory wrapped without a copy is shared: changes are visible in both. A 1-D array becomes a column (n, 1);
        read-only memory is copied.

        Raises
        ------
        DTypeError
            If it is neither, or tensors cannot hold its elements.
        """
        self.check_open("wrap")
        if hasattr(host, "__cuda_array_interface__"):
            return self._over(*interop.from_cuda_array(self.device, host))
        array = array_to_wrap(host)
        made: GPUTensor = self.fresh(array.shape, array.dtype)
        made.set(array)
        return made

    def on_device(self, value: Any) -> GPUTensor | None:
        """Create a tensor over ``value`` if its elements are on this GPU: our tensor, or another library's array."""
        if isinstance(value, Tensor):
            return value if value.backend is self else None  # type: ignore[return-value]
        if isinstance(value, (Expression, np.ndarray, np.generic, list, tuple, int, float)):
            return None
        where = getattr(value, "__dlpack_device__", None)
        if where is not None:
            return self.from_dlpack(value) if where()[0] == interop.CUDA else None
        return self.wrap(value) if hasattr(value, "__cuda_array_interface__") else None

    def from_dlpack(self, other: Any) -> GPUTensor:
        """Create a tensor over another library's array on this GPU (``__dlpack__``), without a copy.

        A 1-D array becomes a column (n, 1). Changes are visible in both. Read-only memory is copied.

        Raises
        ------
        DTypeError
            If ``other`` has no such memory, or is on another device, or of an unsupported dtype.
        """
        self.check_open("from_dlpack")
        try:
            return self._over(*interop.from_dlpack(self.device, other))
        except (AttributeError, TypeError, RuntimeError, BufferError) as error:
            if isinstance(error, DTypeError):
                raise
            raise DTypeError(
                f"from_dlpack: cannot share the memory of {type(other).__name__}: {error}; copy with be.array"
            ) from None

    def _over(self, array: DeviceArray, read_only: bool) -> GPUTensor:
        """Create a tensor over ``array``, or a copy of it."""
        array = array.reshape(as_shape(array.shape or (1, 1))) if array.ndim < 2 else array
        shared: GPUTensor = class_for(array, GPUTensor)(self, array)
        return self.empty_like(shared).copy(shared) if read_only else shared

    # Memory

    def upload_ahead(self, batches: int) -> UploadAhead:
        """See :meth:`MemoryFamily.upload_ahead`."""
        self.check_open("upload_ahead")
        return UploadAhead(self.device, batches, leave)

    def memory_stats(self) -> MemoryStats:
        """Bytes of GPU memory used and reserved by all its backends, now and at peak."""
        return self.device.pool.stats()

    def reset_memory_peaks(self) -> None:
        """Restart the peaks of :meth:`memory_stats`."""
        self.device.pool.reset_peaks()

    def release_memory(self) -> int:
        """Return unused memory to the driver and return its number of bytes."""
        return self.device.release()

    _scratch: MemoryBlock | None = None

    def _scratch_base(self) -> int:
        """Device address of the scratch memory, allocated now if missing or too small."""
        if self._scratch is None or self._scratch.nbytes < self.scratch_size:
            if self._scratch is not None and self.scratch_offset:  # addresses remain valid until the next init
                self._scratch_outgrown = (*self._scratch_outgrown, self._scratch)
            self._scratch = self.device.allocate(max(self.scratch_size, 1))
        return self._scratch.address

    # Time

    @property
    def sm_count(self) -> int:
        """Number of multiprocessors of the GPU."""
        return self.device.capabilities.multiprocessors

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self.check_open("synchronize")
        self.device.synchronize()

    def wait_for(self, stream: Any) -> None:
        """Order this backend and a stream of another library, both ways: each continues after the other's queued work.

        The host does not wait. The driver's default stream and streams synchronized with it need no such call.

        Parameters
        ----------
        stream : object or int
            A stream of PyTorch, CuPy, Numba or PyCUDA on this GPU, one with ``__cuda_stream__``, or the driver's
            handle.

        Raises
        ------
        DTypeError
            If it is not a stream.
        DeviceError
            If it belongs to another GPU, or was destroyed.
        """
        self.check_open("wait_for")
        theirs, ours = interop.stream_of(stream), self.stream.handle
        interop.follow(self.device, theirs, ours)
        interop.follow(self.device, ours, theirs)

    def init_mark(self) -> Any:
        """Create a mark: a driver event."""
        self.device.attend()
        return driver.Event()

    def record_mark(self, marker: Any) -> None:
        """Record ``marker`` after all queued work."""
        self._attend_mark("record_mark", marker)
        marker.record(self.stream)

    def synchronize_mark(self, marker: Any) -> None:
        """Wait until ``marker`` is reached."""
        self._attend_mark("synchronize_mark", marker)
        marker.synchronize()

    def _attend_mark(self, operation: str, *markers: Any) -> None:
        for marker in markers:
            if not isinstance(marker, driver.Event):
                raise DTypeError(f"{operation}: a mark is what be.init_mark() returns, got {brief(marker)}")
        self.device.attend()

    def get_time(self, start: Any, end: Any) -> float:
        """Milliseconds from ``start`` to ``end``, after waiting for it."""
        self._attend_mark("get_time", start, end)
        end.synchronize()
        return float(end.time_since(start))

    # Life

    def _draw_mask(self, out: Any, keep: float) -> None:
        self.dropout(keep, out=out)

    def cleanup_backend(self) -> None:
        """See ``Backend.cleanup_backend``; unused memory is returned to the driver."""
        already = self.closed
        super().cleanup_backend()
        if already:
            return
        self._scratch, self._scratch_outgrown = None, ()
        for links in filter(None, self._links.values()):
            links.close()
        self.device.relax()
