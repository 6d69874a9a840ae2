"""CUDA kernels for the hooks of ``LookupFamily``: sorted columns, added up in their order.

Nothing waits for the device: a word out of range is reported when the host waits next, and the table left as it was.
"""

from __future__ import annotations

from typing import Any

from neonlike.backends.geometry.counts import power_of_two
from neonlike.backends.gpu.primitives.elements import conversions
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.primitives.lookup import LookupFamily, LookupGradient, out_of_vocabulary
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.lines import I32
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.sorting import LARGEST, NOTHING, ready_sort, room_for
from neonlike.kernels.cuda.step import Call
from neonlike.optree.functions import F as Functions

F: Any = Functions

SUMS = CudaRoutine("cuda/lut_bprop.cu.j2", "6Q3qd", "gradient of a lookup table")
JOIN = CudaRoutine("cuda/lut_bprop.cu.j2", "4Q3qd", "gradient of a lookup table, of frequent words")
CHUNK = 64
"""Sorted columns that a block adds up; the sums of those of a word in several chunks are added in a second launch."""
MOST_THREADS = 128
"""Of a block, which have an element of the table's rows each."""


class LookupCuda(LookupFamily):
    """Overrides of LookupFamily's hooks."""

    device: Device
    queue: Queue

    def _check_words(self, inputs: Any, limit: int, pad_idx: int | None) -> int:
        """Nothing: the kernels do. Counts all words, also those that get no gradient."""
        count: int = inputs.size
        return count

    def _bprop_lut(self, request: LookupGradient, inputs: Any, error: Any, error_t: Any, dW: Any) -> None:
        (embed, n), limit = error.shape, len(dW)
        if max(n, limit) >= LARGEST:
            super()._check_words(inputs, limit, request.pad_idx)
            super()._bprop_lut(request, inputs, error, error_t, dW)
            return
        if n == 0:
            self._scale_table(dW, request.beta)
            return
        words, reusable = plain(inputs), error_t is not None and error_t.is_contiguous and error_t.dtype == error.dtype
        turned = error_t if reusable else self.fresh((n, embed), dtype=error.dtype)
        room = room_for(n, limit)
        memory, parts = self.device.allocate(room.size), self.device.allocate(max(_parts_bytes(n, embed), 1))
        skipped = NOTHING if request.pad_idx is None else request.pad_idx
        at = memory.address
        sorted_at = at + room.keys_at, at + room.numbers_at, at + room.bad
        with stored(dW, keep=True) as rows:
            sums = self._sums((turned, rows), sorted_at, request.alpha, parts) if error.size else []
            fault = self.device.expect(out_of_vocabulary("{}", limit))
            given = words.address, words.dtype, 1
            for call in ready_sort(self.device, given, at, (n, limit), fault, skipped):
                call()
            if not sums:
                return
            if request.beta != 1:
                bad = self._flag(memory, at + room.bad)
                self.assign(rows, rows * F.where(bad, 1.0, request.beta))
            self.queue.copy(error.array.transpose(1, 0), turned.array)()
            for call in sums:
                call()

    def _sums(
        self, tensors: tuple[Any, Any], sorted_at: tuple[int, int, int], alpha: float, parts: Any
    ) -> list[Call]:
        """Launches that add the rows of the first of ``tensors`` to those of the second, by keys and numbers."""
        (turned, rows), (keys, numbers, bad) = tensors, sorted_at
        n, embed = turned.shape
        threads = min(MOST_THREADS, max(32, power_of_two(embed)))
        grid, block = (-(-n // CHUNK), -(-embed // threads), 1), (threads, 1, 1)
        sizes = n, embed, len(rows), alpha
        context: dict[str, Any] = conversions(turned.dtype) | {"threads": MOST_THREADS, "chunk": CHUNK}
        columns = turned.address, keys, numbers, bad, rows.address, parts.address
        calls: list[Call] = [SUMS.bind(self.device, grid, block, (*columns, *sizes), form="sums", **context)]
        if grid[0] > 1:
            found = keys, bad, parts.address, rows.address
            calls.append(JOIN.bind(self.device, grid, block, (*found, *sizes), form="join", **context))
        return calls

    def _flag(self, memory: Any, address: int) -> Any:
        """The int32 at ``address`` as a tensor."""
        array = self.device.view(memory, address, (1, 1), (4, 4), I32)
        return self.tensor_cls(self, array)


def _parts_bytes(n: int, embed: int) -> int:
    """Bytes of the sums of words that several chunks of ``n`` columns have: two of each chunk."""
    return 2 * -(-n // CHUNK) * embed * 8
