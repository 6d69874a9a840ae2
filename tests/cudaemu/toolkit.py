"""Places and tools of the emulator's build: the cache folder, the host's compiler, the CUDA headers, a real driver."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from neonlike.kernels.build.cache import distrust

CACHE_VARIABLE = "NEONLIKE_GPU_TEST_CACHE"
HEADERS = (
    "cuda.h",
    "vector_types.h",
    "vector_functions.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "crt/host_defines.h",
)
CUDA_MAJOR = 13
TOOLKITS = ("/usr/local/cuda/bin", "/usr/local/bin")
"""Where a CUDA toolkit has its programs."""


class EmulatorUnavailable(Exception):
    """GPU tests cannot run here; the text gives the reason and the remedy."""


class EmulatorBroken(Exception):
    """The emulator's own sources do not compile: an error, never a reason to skip."""


def cache_folder() -> Path:
    """The folder for the emulator's libraries and the PyCUDA wheel.

    ``NEONLIKE_GPU_TEST_CACHE``, else ``neonlike-gpu-tests`` in the user's cache directory. Not
    ``NEONLIKE_CACHE_DIR``: tests change that one, and a new folder costs minutes of building.
    """
    if named := os.environ.get(CACHE_VARIABLE):
        folder = Path(named).expanduser().absolute()
    else:
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "neonlike-gpu-tests"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise EmulatorUnavailable(
            f"{folder} cannot be made ({error}); name a folder with {CACHE_VARIABLE}"
        ) from error
    if reason := distrust(folder):
        raise EmulatorUnavailable(f"{folder} is not used: {reason}; name another with {CACHE_VARIABLE}")
    return folder


def host_compiler() -> str:
    """The path of g++ (``CUEMU_CXX``).

    Raises
    ------
    EmulatorUnavailable
        There is none, or the machine is not Linux on x86-64, whose stacks the emulator switches.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise EmulatorUnavailable("the emulated CUDA driver runs on Linux on x86-64 only")
    name = os.environ.get("CUEMU_CXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise EmulatorUnavailable(
            f"there is no {name}, which the emulated CUDA driver is built with; install g++"
        )
    return found


def compiler_identity(compiler: str) -> str:
    """Identity of this compiler on this processor; code is made for the machine it runs on."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    flags = re.search(r"^flags\s*:.*$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{os.path.realpath(compiler)} {version.splitlines()[:1]} {flags[0] if flags else ''}"


def _version_of(include: Path) -> int:
    """The major version of the headers in a folder; 0 if one of them is missing."""
    if not all((include / name).is_file() for name in HEADERS):
        return 0
    text = (include / "cuda.h").read_text(errors="replace")
    match = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", text)
    return int(match[1]) // 1000 if match else 0


@functools.cache
def find_cuda_include() -> Path | None:
    """The folder of the CUDA headers: ``CUEMU_CUDA_INCLUDE``, a toolkit's, or that of the packages on PyPI."""
    roots = [
        Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT") if os.environ.get(name)
    ]
    folders = [Path(os.environ["CUEMU_CUDA_INCLUDE"])] if os.environ.get("CUEMU_CUDA_INCLUDE") else []
    folders += [root / "include" for root in [*roots, Path("/usr/local/cuda"), Path("/opt/cuda")]]
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}
    folders += [
        Path(package) / "nvidia" / f"cu{CUDA_MAJOR}" / "include" for package in sorted(filter(None, packages))
    ]
    return next((folder for folder in folders if _version_of(folder) == CUDA_MAJOR), None)


def cuda_include() -> Path:
    """As `find_cuda_include`.

    Raises
    ------
    EmulatorUnavailable
        The headers are nowhere.
    """
    found = find_cuda_include()
    if found is None:
        raise EmulatorUnavailable(
            f"the headers of CUDA {CUDA_MAJOR} were not found; `make gpu-setup` installs them, or name their "
            "folder with CUEMU_CUDA_INCLUDE"
        )
    return found


_COUNT_DEVICES = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
print("devices", 0 if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) else count.value)
print("emulated", hasattr(driver, "cuemu_launch_count"))
"""


@functools.cache
def real_nvcc() -> str | None:
    """NVIDIA's compiler, not the emulator's, which may stand before it in PATH."""
    return next((path for folder in TOOLKITS if (path := shutil.which("nvcc", path=folder))), None)


def nvrtc_site() -> Path:
    """A folder for ``PYTHONPATH`` with NVRTC's package in it, if ``make gpu-setup`` could fetch that.

    It is no part of the environment: next to the emulated driver NVRTC crashes, and no other test is to find it.
    """
    return cache_folder() / "nvrtc-13.0"


def has_nvrtc() -> bool:
    """Whether NVRTC's library is there."""
    return any(nvrtc_site().glob("nvidia/*/lib/libnvrtc.so*"))


def disassembler() -> str | None:
    """NVIDIA's disassembler, of a toolkit or of its package for pip."""
    packages = [str(found) for path in sys.path for found in Path(path).glob("nvidia/*/bin")]
    places = (None, *TOOLKITS, *packages)
    return next((path for folder in places if (path := shutil.which("nvdisasm", path=folder))), None)


def real_devices() -> int:
    """The number of GPUs that a real driver offers.

    Asked in a process of its own: a driver that was loaded once, even without any GPU, would stay in the way of ours.
    With ``CUEMU_AS_REAL=1`` the emulated driver counts as real where the loader finds it: what a test run does on a
    machine with a GPU can be tried without one.
    """
    command = [sys.executable, "-SE", "-c", _COUNT_DEVICES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return 0
    taken = "(?:True|False)" if os.environ.get("CUEMU_AS_REAL") == "1" else "False"
    match = re.match(rf"devices (\d+)\nemulated {taken}", done.stdout)
    return int(match[1]) if match else 0
