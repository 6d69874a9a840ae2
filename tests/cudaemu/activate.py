"""Switches the emulated GPU on in this process, and for the processes it starts."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .build import LIBRARIES, build
from .toolkit import EmulatorUnavailable, real_devices


def environment(folder: Path) -> dict[str, str]:
    """The variables under which programs find the emulator as others find CUDA."""

    def before(name: str, first: Path) -> str:
        rest = os.environ.get(name, "")
        return (
            str(first)
            if not rest
            else rest
            if str(first) in rest.split(os.pathsep)
            else f"{first}{os.pathsep}{rest}"
        )

    return {
        "NEONLIKE_NVCC": str(folder / "bin" / "nvcc"),
        "PATH": before("PATH", folder / "bin"),
        "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", folder / "lib"),
        "PYCUDA_CACHE_DIR": str(folder / "pycuda-cache"),
    }


def options(
    *,
    check: bool | None = None,
    asynchronous: bool | None = None,
    order: str | None = None,
    seed: int | None = None,
    capability: int | None = None,
    memory_mb: int | None = None,
    sticky: bool | None = None,
    real_nvcc: str | None = None,
) -> dict[str, str]:
    """Environment variables CUEMU_* for the given modes; None leaves one unchanged.

    Parameters
    ----------
    check : bool, optional
        Kernels are compiled with the memory and race checker, and run on one thread.
    asynchronous : bool, optional
        Work on streams happens as late as the driver API allows.
    order : {"forward", "reverse", "random"}, optional
        Of threads and blocks; ``seed`` is that of the random one.
    capability : {80, 90}, optional
        The compute capability times ten, and the limits that come with it.
    memory_mb : int, optional
        Megabytes of device memory.
    sticky : bool, optional
        A kernel that fails takes its context with it, as on a GPU.
    real_nvcc : str, optional
        The path of a real nvcc that compiles every kernel too.
    """
    flags = {"CUEMU_CHECK": check, "CUEMU_ASYNC": asynchronous, "CUEMU_STICKY": sticky}
    values = {"CUEMU_SEED": seed, "CUEMU_CC": capability, "CUEMU_MEM_MB": memory_mb}
    texts = {"CUEMU_ORDER": order, "CUEMU_REAL_NVCC": real_nvcc}
    if order not in (None, "forward", "reverse", "random"):
        raise ValueError(f"order is forward, reverse or random, not {order!r}")
    chosen = {
        **{name: None if flag is None else int(flag) for name, flag in flags.items()},
        **values,
        **texts,
    }
    return {name: str(value) for name, value in chosen.items() if value is not None}


@dataclass
class Emulator:
    """The emulated driver, loaded into this process."""

    folder: Path
    """The build: ``lib/``, ``bin/nvcc``."""

    library: ctypes.CDLL = field(repr=False)

    @property
    def launches(self) -> int:
        """Kernels launched so far."""
        return int(self.library.cuemu_launch_count())

    @property
    def graph_launches(self) -> int:
        """Graphs launched so far; their kernels are not among ``launches``."""
        return int(self.library.cuemu_graph_launch_count())

    @property
    def synchronisations(self) -> int:
        """Calls so far by which the host waited for a stream, an event or the device, copies that do so included."""
        return int(self.library.cuemu_synchronisation_count())

    @contextmanager
    def failing_allocations(self, after: int = 0) -> Iterator[None]:
        """Inside this context device memory runs out after so many allocations; every later one fails too.

        (Not one alone: PyCUDA collects garbage and tries again.)
        """
        self.library.cuemu_plan_allocation_failures(after)
        try:
            yield
        finally:
            self.library.cuemu_plan_allocation_failures(-1)

    def lose_context(self, error: int = 700) -> None:
        """Break the current context: every later call in it answers ``error`` (700: an illegal address)."""
        self._expect_success(self.library.cuemu_lose_context(error))

    def mark_uninitialised(self, address: int, nbytes: int) -> None:
        """Tell the checker that device memory holds nothing: for memory pools that hand it out again."""
        self._expect_success(
            self.library.cuemu_mark_uninitialised(ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        )

    def _expect_success(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError((text.value or b"unknown error").decode())


def activate(**modes: object) -> Emulator:
    """Load the emulated driver into this process, before anything imports ``pycuda.driver``.

    A library that is loaded is found under its name by whatever asks for that name later: PyCUDA for libcuda.so.1,
    scikit-cuda for libcublas.so and libcudart.so. Programs started from here find them, and the stand-in for nvcc,
    through variables.

    Parameters
    ----------
    modes
        As for `options`.

    Raises
    ------
    EmulatorUnavailable
        It cannot be built, or another libcuda is loaded already.
    """
    folder = build()
    os.environ.update({**environment(folder), **options(**modes)})  # type: ignore[arg-type]
    # The runtime is found under its name only: other libraries shall not take its functions for their own runtime's.
    modes_of = {name: ctypes.RTLD_LOCAL if "cudart" in name else ctypes.RTLD_GLOBAL for name in LIBRARIES}
    driver, *_ = [ctypes.CDLL(str(folder / "lib" / name), mode=mode) for name, mode in modes_of.items()]
    if ctypes.CDLL("libcuda.so.1")._handle != driver._handle:
        raise EmulatorUnavailable(
            "another libcuda.so.1 is loaded in this process: activate the emulator first"
        )
    for count in ("launch", "graph_launch", "synchronisation"):
        getattr(driver, f"cuemu_{count}_count").restype = ctypes.c_uint64
    return Emulator(folder, driver)


def activate_unless_real(**modes: object) -> Emulator | None:
    """As `activate`, or None where a real GPU can be used instead."""
    return None if real_devices() else activate(**modes)
