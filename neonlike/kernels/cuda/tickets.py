"""Counters that let the last block of a group detect its role: device memory, all 0 between kernels.

A kernel resets each counter to 0 (``atomicInc`` wraps around), and kernels of a device run in order on one stream, so
all share the same counters.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from neonlike.kernels.cuda.device import Device, Memory
from neonlike.kernels.cuda.fit import TICKETS
from neonlike.kernels.cuda.routine import CudaRoutine

THREADS = 256
"""Threads of a block that clears counters, of 4 bytes each."""
CLEAR = CudaRoutine(
    """#include "types.h"
extern "C" __global__ void {{ name }}(uint32_t *tickets) { tickets[blockIdx.x * blockDim.x + threadIdx.x] = 0; }
""",
    "Q",
    "counters of blocks",
)
_held: WeakKeyDictionary[Device, Memory] = WeakKeyDictionary()
_lock = threading.Lock()


def tickets_of(device: Device) -> int:
    """Address of the counters of ``device``, created on first use."""
    with _lock:
        if device not in _held:
            memory = device.allocate(4 * TICKETS)
            CLEAR.bind(device, (TICKETS // THREADS, 1, 1), (THREADS, 1, 1), (memory.address,))()
            _held[device] = memory
        return _held[device].address
