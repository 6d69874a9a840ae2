"""Diagnosis ``python -m neonlike doctor``: installed parts, GPUs, and remedies for missing parts.

It requires none of the parts that it checks, and opens no GPU.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neonlike import settings
from neonlike.backends.gpu.device.libraries import cublas_libraries, loads
from neonlike.backends.gpu.ranks import nccl
from neonlike.kernels.c import fastpath
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.cuda.compile import NEEDED, expect_driver, find_cuda_compiler, too_new
from neonlike.version import __version__

BASE = ("numpy", "jinja2", "ConfigArgParse")
EXTRAS = {
    "matplotlib": "viz", "h5py": "data", "PyYAML": "data", "scikit-learn": "demo", "ml_dtypes": "bfloat16",
    "mpi4py": "mpi", "tensorboardX": "tensorboard",
}  # fmt: skip
OLDEST_PYTHON = (3, 10)


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes
    ----------
    part : str
        Part of the library that needs it: "base", "cpu", "gpu" or "extra".
    name : str
    good : bool
    text : str
        Version or path, or the reason why it is unusable.
    fix : str
        The remedy, as a command or instruction; empty if it is good.
    """

    part: str
    name: str
    good: bool
    text: str
    fix: str = ""


def findings() -> Iterator[Finding]:
    """All findings, in the order of the report."""
    yield from _base()
    yield _compiler()
    reason = fastpath.obstacle()
    fix = "install the headers of this Python, python3-dev on Debian: small assignments then start faster"
    yield Finding("extra", "Python.h", not reason, reason or "found", fix if "Python.h" in reason else "")
    for package, extra in EXTRAS.items():
        version = _version(package)
        yield Finding("extra", package, bool(version), version or "not installed", f"pip install neonlike[{extra}]")
    yield from _gpu()


def report(gpu_is_wanted: bool = False) -> tuple[str, int]:
    """Return the text and the exit status.

    0: the CPU backend can run, and so can the GPU backend, unless there is no GPU; 1: the GPU backend cannot run
    although there
    is a GPU, or ``gpu_is_wanted``; 2: the CPU backend cannot run.
    """
    found = list(findings())
    listed = any(finding.good and finding.name.startswith("GPU ") for finding in found)
    gpu_is_wanted = gpu_is_wanted or listed or has_gpu()
    needed = ("base", "gpu") if gpu_is_wanted else ("base",)
    lines = [f"neonlike {__version__}, {platform.system()} {platform.machine()}", ""]
    for finding in found:
        lines.append(f"{_mark(finding, needed)}  {finding.name:<16} {finding.text}")
        if finding.fix and not finding.good:
            lines.append(f"    {'':<16} -> {finding.fix}")
    variables = list(_environment())
    lines += ["", "environment variables, see docs/environment.md"]
    lines += [f"{_mark(finding, needed)}  {finding.name:<26} {finding.text}" for finding in variables]
    broken = {finding.part for finding in (*found, *variables) if not finding.good}
    lines += ["", f"gen_backend('cpu'): {'cannot run' if 'base' in broken else 'can run'}"]
    lines += [f"gen_backend('gpu'): {'cannot run' if broken & {'base', 'gpu'} else 'can run'}"]
    return "\n".join(lines), 2 if "base" in broken else int(gpu_is_wanted and "gpu" in broken)


def _mark(finding: Finding, needed: tuple[str, ...]) -> str:
    return "ok" if finding.good else ("NO" if finding.part in needed else "--")


def has_gpu() -> bool:
    """Whether NVIDIA's driver shows a GPU on this machine, independent of Python packages."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()


def _environment() -> Iterator[Finding]:
    """Every environment variable in use, with value and effect; then misspelt names."""
    for setting in settings.SETTINGS:
        value = setting.text or f"not set: {setting.default}"
        fault = setting.fault()
        part = "base" if setting.ours else "extra"
        yield Finding(part, setting.name, not fault, fault or f"{value} ({setting.effect})")
    for name, suggestion in settings.misspelt().items():
        yield Finding("extra", name, False, f"not known{suggestion}")


def _version(package: str) -> str:
    """Installed version, or an empty text."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _base() -> Iterator[Finding]:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    good = sys.version_info >= OLDEST_PYTHON
    yield Finding("base", "Python", good, platform.python_version(), f"install Python {wanted} or later")
    for package in BASE:
        version = _version(package)
        yield Finding("base", package, bool(version), version or "not installed", f"pip install {package}")


def _compiler() -> Finding:
    compiler = find_compiler()
    if compiler is not None:
        return Finding("cpu", "C compiler", True, " ".join(compiler.command[:1]))
    text = "none that works: the CPU backend runs on NumPy, which takes several times as long"
    return Finding("cpu", "C compiler", False, text, "install one, such as gcc: apt-get install gcc")


# What the GPU backend needs ------------------------------------------------------------------------------------------


def _gpu() -> Iterator[Finding]:
    with contextlib.suppress(Exception):  # no PyCUDA, or no driver: reported below
        expect_driver(importlib.import_module("pycuda.driver").get_driver_version())
    yield _cuda_compiler()
    yield from _products()
    yield _nccl()
    version = _version("pycuda")
    if not version:
        yield Finding("gpu", "PyCUDA", False, "not installed", "pip install neonlike[gpu]")
        yield Finding("gpu", "GPU driver", False, "not looked at without PyCUDA")
        return
    try:
        import pycuda.driver as driver
    except (ImportError, OSError) as error:
        yield Finding("gpu", "PyCUDA", True, version)
        yield Finding(
            "gpu", "GPU driver", False, f"PyCUDA does not load: {error}",
            "install the driver of the GPU (nvidia-smi then works), or build PyCUDA again for this one: "
            "pip install --force-reinstall --no-cache-dir --no-binary pycuda pycuda",
        )  # fmt: skip
        return
    built = ".".join(map(str, driver.get_version()))
    yield Finding("gpu", "PyCUDA", True, f"{version}, built for CUDA {built}")
    yield from _devices(driver)


def _products() -> Iterator[Finding]:
    version, text, fix = _version("scikit-cuda"), "", "pip install neonlike[gpu]"
    if not version:
        text = "not installed"
    elif importlib.util.find_spec("pkg_resources") is None:
        text, fix = f"{version} needs pkg_resources, which setuptools dropped", 'pip install "setuptools<81"'
    elif not loads("libcublas.so"):
        text, fix = f"{version} finds no libcublas.so", "no need to; CUDA toolkits have a file of that name"
    text = f"{text}: cuBLAS is called through a binding of our own" if text else version
    yield Finding("extra", "scikit-cuda", text == version, text, fix)
    found, _ = next(cublas_libraries(), ("", None))
    text = found or "not found: matrix products run on kernels of our own, which are slower"
    yield Finding("extra", "cuBLAS", bool(found), text, "pip install nvidia-cublas, or install the CUDA toolkit")


def _nccl() -> Finding:
    """Look for NCCL, which sums gradients from GPU to GPU; without it they go through the host."""
    library, reason = nccl.find()
    text = reason if library is None else f"{nccl.text_of(library.version)}, {library.name}"
    return Finding("extra", "NCCL", library is not None, text, nccl.ADVICE)


def _devices(driver: Any) -> Iterator[Finding]:
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        fix = "nvidia-smi says more; reboot after an update of the driver; in a container: --gpus all"
        yield Finding("gpu", "GPU driver", False, str(error), fix)
        return
    version = driver.get_driver_version()
    yield Finding("gpu", "GPU driver", True, f"for CUDA up to {version // 1000}.{version % 1000 // 10}")
    visible = settings.CUDA_VISIBLE_DEVICES.text
    if not count:
        why = "no GPU" if not visible else f"no GPU among CUDA_VISIBLE_DEVICES={visible}"
        yield Finding("gpu", "GPU", False, why, "plug one in, or unset CUDA_VISIBLE_DEVICES")
    for number in range(count):
        device = driver.Device(number)
        major, minor = device.compute_capability()
        text = f"{device.name()}, capability {major}.{minor}, {device.total_memory() / 2**30:.1f} GiB"
        yield Finding("gpu", f"GPU {number}", True, text)


def _cuda_compiler() -> Finding:
    found = find_cuda_compiler()
    if found is not None:
        name = " ".join(found.identity.split()[:2]) if found.is_nvrtc else "nvcc"
        return Finding("gpu", "CUDA compiler", True, f"{name}, {found.path}")
    named = settings.NVCC.text
    newer = too_new()
    text = f"NEONLIKE_NVCC={named} does not run" if named else f"none{newer}" if newer else "neither NVRTC nor nvcc"
    return Finding("gpu", "CUDA compiler", False, text, NEEDED)
