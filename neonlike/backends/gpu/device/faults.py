"""Errors that only kernels can see, such as an index out of range on the device: reported without waiting for them.

A kernel that meets one writes a number into pinned memory of the host and does no harm. The host looks there when it
has waited for the device for another reason, and before it queues the next kernel that may report, and raises then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pycuda.driver as driver

from neonlike.errors import IndexRangeError

FATAL = (
    "illegal memory access", "illegal address", "launch failure", "launch timed out", "misaligned address",
    "illegal instruction", "invalid program counter", "invalid address space", "device-side assert",
    "hardware stack error", "uncorrectable", "nvlink", "context is destroyed", "driver shutting down", "unknown error",
    "tensor memory", "contained",
)  # fmt: skip
"""Phrases of the driver's messages about errors after which a context returns nothing but that error."""


class Faults:
    """The reports of one device's kernels; ``attend`` makes its context current."""

    def __init__(self, attend: Callable[[], None]) -> None:
        self._attend = attend
        self._word: Any = None
        self._address = 0
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def expect(self, text: str) -> tuple[int, int]:
        """Where a kernel reports an index, and the number it puts into the upper half of the word.

        Parameters
        ----------
        text : str
            The message, with ``{}`` for the index.

        Raises
        ------
        IndexRangeError
            If a kernel before has reported one.
        """
        self.check()
        with self._lock:
            if self._word is None:
                self._attend()
                word = driver.pagelocked_zeros(1, np.uint64, mem_flags=driver.host_alloc_flags.DEVICEMAP)
                self._address = int(word.base.get_device_pointer())
                self._word = word
            if text not in self._numbers:
                self._texts.append(text)
                self._numbers[text] = len(self._texts)
            return self._address, self._numbers[text]

    def check(self) -> None:
        """Raise what was reported since the last call, if that is known by now.

        Raises
        ------
        IndexRangeError
        """
        word = self._word
        if word is None or not word[0]:
            return
        found = int(word[0])
        word[0] = 0
        index = int(np.uint32(found & 0xFFFFFFFF).astype(np.int32))
        raise IndexRangeError(self._texts[(found >> 32) - 1].format(index))


def is_fatal(message: str) -> bool:
    """Whether a context is unusable after the driver's error with this message."""
    lower = message.lower()
    return any(phrase in lower for phrase in FATAL)
