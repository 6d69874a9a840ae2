"""``Communicator``: NCCL between the GPUs of all ranks, in the order of the device's stream.

Collectives have a stream of their own. It waits for what was queued before them on the device's stream, and that waits
for them: to the rest of the backend a collective is a kernel like any other, and freed memory is used again as usual.

    device's     ... backward | event                               | wait: behind | update ...
    collectives                 wait: event | sums of all ranks | event
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

import pycuda.driver as driver

from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.memory.transfer import NON_BLOCKING
from neonlike.backends.gpu.ranks import nccl
from neonlike.backends.gpu.ranks.agreement import Offer, machine, obstacle
from neonlike.backends.gpu.ranks.nccl import Library, Refused, UniqueId
from neonlike.distributed.ranks import Ranks
from neonlike.errors import BackendUnavailable, DeviceError
from neonlike.logger import logger


class Communicator:
    """The GPUs of all ranks; see :class:`neonlike.distributed.links.Links`. All ranks make it together.

    Parameters
    ----------
    device : GpuDevice
    ranks : Ranks
    library : Library
    unique_id : bytes
        The result of ``library.new_id()`` on rank 0.

    Raises
    ------
    DeviceError
        If NCCL fails.
    """

    def __init__(self, device: GpuDevice, ranks: Ranks, library: Library, unique_id: bytes) -> None:
        self._device, self._ranks, self._library = device, ranks, library
        self._handle, made = 0, ctypes.c_void_p()
        device.attend()
        try:
            self._stream: Any = driver.Stream(NON_BLOCKING)
            self._before, self._behind = (driver.Event(driver.event_flags.DISABLE_TIMING) for _ in range(2))
            own = UniqueId.from_buffer_copy(unique_id)
            library.call("ncclCommInitRank", ctypes.byref(made), ranks.size, own, ranks.rank)
        except driver.Error as error:
            device.fail("start of NCCL", error)
        except Refused as error:
            self._fail("start of NCCL", error)
        self._handle = made.value or 0

    def reduces(self, dtype: Any) -> bool:
        """Whether tensors of ``dtype`` can be reduced."""
        return dtype.name in nccl.DTYPES

    def reduce(self, tensors: Sequence[Any], op: str = "sum") -> None:
        """Replace each tensor on every rank by its sum, mean, min, max or product over all ranks."""
        code, doing = nccl.OPERATIONS[op], f"{op} of {len(tensors)} tensors by NCCL"
        laid_out = [_contiguous(tensor) for tensor in tensors]
        calls = [
            ("ncclAllReduce", one.address, one.address, one.size, nccl.DTYPES[one.dtype.name], code)
            for one in laid_out
        ]
        self._queue(doing, calls)
        for tensor, one in zip(tensors, laid_out):
            if one is not tensor:
                tensor[...] = one

    def broadcast(self, tensor: Any, root: int = 0) -> None:
        """Replace ``tensor`` on every rank by that of rank ``root``."""
        one = _contiguous(tensor)
        doing = f"broadcast of {tensor.dtype.name} {tensor.shape} from {root} by NCCL"
        self._queue(doing, [("ncclBroadcast", one.address, one.address, one.nbytes, nccl.BYTES, root)])
        if one is not tensor:
            tensor[...] = one

    def close(self) -> None:
        """End it, after waiting for its queued work; later calls are errors."""
        handle, self._handle = self._handle, 0
        if handle and self._device.usable:  # of a lost context nothing is freed
            with contextlib.suppress(Refused, driver.Error, DeviceError, BackendUnavailable):
                self._device.attend()
                self._stream.synchronize()
                self._library.call("ncclCommDestroy", handle)

    def _queue(self, doing: str, calls: Sequence[tuple[Any, ...]]) -> None:
        """Queue collectives as one group, between what is before them and what comes behind."""
        device = self._device
        device.attend_uncaptured(doing)
        if not self._handle:
            raise DeviceError(f"GPU {device.number}, {doing}: NCCL has ended here, after an error or with its backend")
        self._ranks.queueing(doing)
        try:
            self._before.record(device.stream)
            self._stream.wait_for_event(self._before)
            self._call_in_group(calls)
            self._behind.record(self._stream)
            device.stream.wait_for_event(self._behind)
        except driver.Error as error:
            device.fail(doing, error)
        except Refused as error:
            self._fail(doing, error)

    def _call_in_group(self, calls: Sequence[tuple[Any, ...]]) -> None:
        """Call the functions of ``calls`` with their arguments; the library starts them together."""
        call, tail = self._library.call, (self._handle, self._stream.handle)
        call("ncclGroupStart")
        try:
            for function, *arguments in calls:
                call(function, *arguments, *tail)
        except Refused:
            with contextlib.suppress(Refused):
                call("ncclGroupEnd")
            raise
        call("ncclGroupEnd")

    def _fail(self, doing: str, error: Refused) -> NoReturn:
        """Abort it, so that nothing queued waits for this rank, and raise DeviceError."""
        handle, self._handle = self._handle, 0
        if handle:
            with contextlib.suppress(Refused):
                self._library.call("ncclCommAbort", handle)
        raise DeviceError(
            f"GPU {self._device.number}, {doing}: {error}; NCCL_DEBUG=INFO lets NCCL say more, "
            f"{nccl.SETTING}={nccl.NONE} does without it"
        ) from error


def _contiguous(tensor: Any) -> Any:
    """The tensor itself, or a copy of it whose elements lie in order."""
    return tensor if tensor.is_contiguous else tensor.backend.empty_like(tensor).copy(tensor)


def connect(device: GpuDevice, ranks: Ranks) -> Communicator | None:
    """NCCL between the GPUs of all ranks, which call this together; None, with a warning, if they cannot use it.

    Raises
    ------
    DeviceError
        If NCCL fails.
    """
    library, lack = nccl.find()
    version = library.version if library is not None else 0
    why = obstacle([Offer(*told) for told in ranks.tell((lack, version, machine(), device.identity[1]))])
    if why or library is None:
        logger.warning("%s: tensors of GPUs go to other ranks through the host's memory, two copies each", why)
        return None
    try:
        told = ranks.tell(library.new_id() if ranks.rank == 0 else b"")
    except Refused as error:
        raise DeviceError(f"GPU {device.number}, start of NCCL: {error}") from error
    logger.debug("ranks are connected by NCCL %s, %s", nccl.text_of(library.version), library.name)
    return Communicator(device, ranks, library, told[0])
