"""A GPU for tests: a real one where there is a driver, else the emulated driver in the folder ``NEONLIKE_EMU_DIR``."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

FOLDER = "NEONLIKE_EMU_DIR"

needs_pool = pytest.mark.skipif(
    os.environ.get("NEONLIKE_GPU_POOL") == "0", reason="about the memory pool, which NEONLIKE_GPU_POOL=0 goes without"
)


@lru_cache(maxsize=1)
def activate() -> str:
    """Have ``pycuda.driver`` find a driver in this process; why it cannot, else an empty text."""
    if importlib.util.find_spec("pycuda") is None:
        return "PyCUDA is not installed"
    folder = os.environ.get(FOLDER)
    if not folder:
        return f"no emulated driver: {FOLDER} is not set"
    library = Path(folder, "lib", "libcuda.so.1")
    if not library.exists():
        return f"no emulated driver: there is no {library}"
    # PyCUDA's extension asks for this name, which the dynamic linker then has already.
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    os.environ.setdefault("NEONLIKE_NVCC", str(Path(folder, "bin", "nvcc")))
    return ""


def run_on_gpu(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, with the GPU of the tests."""
    here = str(Path(__file__).resolve().parent)
    start = f"import sys; sys.path.insert(0, {here!r})\nimport gpu_env; assert gpu_env.activate() == ''\n"
    return subprocess.run(
        [sys.executable, "-c", start + code],
        env={**os.environ, "CUEMU_VERBOSE": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="session")
def gpu_driver() -> None:
    """Skips the test, with the reason, where there is no GPU to run it on."""
    if reason := activate():
        pytest.skip(reason)
