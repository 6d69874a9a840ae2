"""The GPU that tests run on: a real one where there is a driver, else the emulated one of tests/cudaemu."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass

from tests.cudaemu import Emulator, EmulatorUnavailable, activate_unless_real
from tests.cudaemu.install import REQUIRE_VARIABLE, missing
from tests.cudaemu.toolkit import real_devices
from tests.support.gpu.stand_in import use_here


@dataclass(frozen=True)
class Driver:
    """A CUDA driver that PyCUDA can use in this process."""

    emulator: Emulator | None
    """The emulated driver; None where the driver is real."""


@functools.cache
def find_driver() -> Driver:
    """The driver, made ready before anything imports ``pycuda.driver``.

    Raises
    ------
    EmulatorUnavailable
        There is no GPU, and none can be emulated; the text says why.
    """
    if lacking := missing():
        raise EmulatorUnavailable(lacking)
    emulator = activate_unless_real()
    if emulator is not None:
        use_here(emulator)
    return Driver(emulator)


def require_real() -> None:
    """Require a GPU with a real driver, and PyCUDA, as ``--require-gpu`` asks.

    Raises
    ------
    EmulatorUnavailable
        No real driver offers a GPU, or PyCUDA is missing.
    """
    if not real_devices():
        raise EmulatorUnavailable("no CUDA driver offers a GPU on this machine")
    find_driver()


def is_lost() -> bool:
    """Whether a GPU that this process uses answers nothing any more, after a kernel that failed."""
    module = sys.modules.get("neonlike.backends.gpu.device.device")
    return module is not None and not all(device.usable for device in module._opened.values())


def may_skip() -> bool:
    """Whether tests may be skipped for want of a GPU."""
    return os.environ.get(REQUIRE_VARIABLE) != "1"
