"""CUDA source text -> cubin bytes, from the cache of compiled kernels or with NVRTC or nvcc.

No GPU and no driver is needed for it. A cubin runs on the architecture it was made for ("sm_90") and on later ones of
the same major version.

Never ``--use_fast_math``: kernels have to be right on nan, infinities and subnormals.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from neonlike import settings
from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.source import KernelSource, commented, compile_error, keep, keeps_sources
from neonlike.kernels.build.waiting import compiling, waiting
from neonlike.kernels.codegen.render import template_text
from neonlike.kernels.cuda import nvrtc
from neonlike.kernels.cuda import toolkits as cuda_places
from neonlike.kernels.cuda.toolkits import HOMES, named_toolkits
from neonlike.logger import logger

ABI_VERSION = "1"
"""Part of the cache's keys; raise it when kernels of the same source text are to be called in another way."""

SUFFIX = ".cubin"
FLAGS = ("-std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Flags that NVRTC and nvcc both take."""
TIMEOUT_S = 300.0
NEEDED = "install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or name an nvcc with NEONLIKE_NVCC"

_lock = threading.Lock()
_building: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class CudaRefused(Exception):
    """The compiler failed; the text is its output. Users see a KernelCompileError instead."""


@dataclass(frozen=True)
class CudaCompiler:
    """A CUDA compiler that works here.

    Attributes
    ----------
    identity : str
        Its kind and version.
    path : str
        Of nvcc, or of NVRTC's library.
    is_nvrtc : bool
    """

    identity: str
    path: str
    is_nvrtc: bool

    def command_line(self, arch: str) -> str:
        """The command that compiles a kernel, for messages and kept sources."""
        name = "NVRTC" if self.is_nvrtc else self.path
        return " ".join((name, *_flags(arch)))


def headers() -> dict[str, str]:
    """The texts that kernels may include, by name; integer arithmetic and random numbers are shared with C."""
    own = {name: template_text(f"cuda/{name}") for name in ("types.h", "functions.h", "conversions.h")}
    return own | {name: template_text(f"c/{name}") for name in ("intmath.h", "division.h", "philox.h")}


def find_cuda_compiler() -> CudaCompiler | None:
    """The CUDA compiler to use, or None.

    ``NEONLIKE_NVCC`` (the path of an nvcc) if it is set, else NVRTC where its library is found, else nvcc in
    ``CUDA_HOME`` or ``CUDA_PATH``, on PATH, or in the toolkit's usual place.
    """
    return _search(settings.NVCC.text, *_places())


def build_cubin(kernel: KernelSource, arch: str, compiler: CudaCompiler | None = None) -> bytes:
    """The compiled module of ``kernel`` for ``arch``, compiled unless a process did so before.

    Raises
    ------
    KernelCompileError
        There is no compiler, or it refused the source.

    Notes
    -----
    With ``NEONLIKE_KEEP_SOURCE=1`` the source is kept beside the cached module as ``<name>_<key>.cu``.
    """
    compiler = compiler or find_cuda_compiler()
    if compiler is None:
        raise KernelCompileError(
            f"kernel {kernel.name}: there is no CUDA compiler; {NEEDED}", expression=kernel.expression
        )
    key = cubin_key(kernel, arch, compiler)
    cache = default_cache()
    cubin = cache.read(key, SUFFIX)
    if cubin is None:
        with _lock:
            mine = _building[key]
        with waiting(kernel), mine:  # a second thread waits for the first instead of compiling the same
            cubin = cache.read(key, SUFFIX) or _compile(kernel, key, arch, compiler)
    elif keeps_sources():
        _keep(kernel, key, arch, compiler)
    return cubin


def is_built(kernel: KernelSource, arch: str) -> bool:
    """Whether the module of ``kernel`` is in the cache, so that :func:`build_cubin` compiles nothing."""
    compiler = find_cuda_compiler()
    return compiler is not None and default_cache().get(cubin_key(kernel, arch, compiler), SUFFIX) is not None


def cubin_key(kernel: KernelSource, arch: str, compiler: CudaCompiler) -> str:
    """The cache key of the module of ``kernel``."""
    source = kernel.source if isinstance(kernel.source, str) else kernel.source.identity
    texts = [part for item in sorted(_texts(kernel).items()) for part in item]
    return key_of("cuda-kernel", ABI_VERSION, compiler.identity, json.dumps(_flags(arch)), source, *texts)


def _texts(kernel: KernelSource) -> dict[str, str]:
    assert isinstance(kernel.headers, dict)
    return kernel.headers


def _flags(arch: str) -> tuple[str, ...]:
    return f"-arch={arch}", *FLAGS


def _compile(kernel: KernelSource, key: str, arch: str, compiler: CudaCompiler) -> bytes:
    began = time.perf_counter()
    text = commented(kernel, compiler.command_line(arch))
    try:
        with compiling(kernel):
            if compiler.is_nvrtc:
                stand_in = template_text("cuda/rtc_stdint.h")
                texts = {**_texts(kernel), "stdint.h": stand_in, "math.h": ""}
                cubin = nvrtc.compile_cubin(compiler.path, text, f"{kernel.name}.cu", texts, _flags(arch))
            else:
                cubin = _run_nvcc(compiler.path, text, kernel, _flags(arch))
        default_cache().put(key, cubin, SUFFIX)
    except (CudaRefused, nvrtc.NvrtcRefused) as error:
        instead = _nvcc_instead(error)
        if instead is not None:
            return build_cubin(kernel, arch, instead)
        described = f"{compiler.command_line(arch)} ({compiler.identity})"
        raise compile_error(kernel, _keep(kernel, key, arch, compiler), str(error), described) from None
    except OSError as error:
        logger.info("kernel %s: the compiled module is not kept (%s)", kernel.name, error)
    logger.info("kernel %s: compiled in %.0f ms", kernel.name, 1e3 * (time.perf_counter() - began))
    if keeps_sources():
        _keep(kernel, key, arch, compiler)
    return cubin


def _nvcc_instead(error: Exception) -> CudaCompiler | None:
    """An nvcc, if NVRTC failed and not the source: a library of NVRTC's is missing, or the GPU is too new for it."""
    if not isinstance(error, nvrtc.NvrtcRefused) or not str(error).startswith("nvrtc: error"):
        return None
    found = _search_nvcc(*_places())
    if found is not None:
        _say_once(f"{str(error).splitlines()[0]}; {found.path} compiles instead")
    return found


@lru_cache(maxsize=8)
def _say_once(text: str) -> None:
    logger.warning("%s", text)


def _run_nvcc(nvcc: str, text: str, kernel: KernelSource, flags: tuple[str, ...]) -> bytes:
    """The cubin that nvcc makes of ``text``, in a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="neonlike-nvcc-"))
    try:
        for name, content in {**_texts(kernel), f"{kernel.name}.cu": text}.items():
            (directory / name).write_text(content, encoding="utf-8")
        result = directory / f"{kernel.name}.cubin"
        failed, words = _run((nvcc, "-cubin", *flags, "-I.", f"{kernel.name}.cu", "-o", result.name), directory)
        if failed or not result.is_file():
            raise CudaRefused(words.strip() or f"exit status {failed} without a word")
        return result.read_bytes()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: tuple[str, ...], directory: Path | None = None) -> tuple[int, str]:
    """Exit status and output of a command; 127 if it cannot be started or does not end in ``TIMEOUT_S``."""
    try:
        done = subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", timeout=TIMEOUT_S, check=False, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout


def _places() -> tuple[str, ...]:
    """The variables that say where toolkits are."""
    return (*(home.text for home in HOMES), settings.of_the_system("PATH"))


@lru_cache(maxsize=8)
def _search(named: str, *places: str) -> CudaCompiler | None:
    """See :func:`find_cuda_compiler`; ``places`` are the variables that the result depends on."""
    if named:
        found = _nvcc(named)
        if found is None:
            logger.warning("NEONLIKE_NVCC=%s does not run; correct it or unset it", named)
        return found
    if library := nvrtc.find_library():
        if version := nvrtc.version(library):
            return CudaCompiler(f"NVRTC {version} {_stamp(library)}", library, True)
    return _search_nvcc(*places)


def _search_nvcc(*places: str) -> CudaCompiler | None:
    """The nvcc of a toolkit or on PATH."""
    named_homes = (str(home / "bin" / "nvcc") for home in named_toolkits())
    for name in (*named_homes, "nvcc", f"{cuda_places.TOOLKIT}/bin/nvcc"):
        program = shutil.which(name)
        if program and (found := _nvcc(program)):
            return found
    return None


def _nvcc(program: str) -> CudaCompiler | None:
    """``program`` as a compiler, if it says what version it is."""
    failed, words = _run((program, "--version"))
    lines = words.strip().splitlines()
    if failed or not lines:
        return None
    return CudaCompiler(f"{lines[0]} {key_of(words)[:16]} {_stamp(program)}", os.path.abspath(program), False)


def _stamp(path: str) -> str:
    """Path, size and time of a file: a text that changes when the file does."""
    try:
        status = os.stat(path)
    except OSError:  # a library that the loader finds by its name
        return path
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


def _keep(kernel: KernelSource, key: str, arch: str, compiler: CudaCompiler) -> str | None:
    return keep(kernel, key, commented(kernel, compiler.command_line(arch)), ".cu")


def _after_fork() -> None:
    """In the child no thread is left that would release the locks."""
    global _lock
    _lock = threading.Lock()
    _building.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__: list[Any] = ["CudaCompiler", "build_cubin", "cubin_key", "find_cuda_compiler", "headers", "is_built"]
