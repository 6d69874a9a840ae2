"""CUDA source text -> cubin bytes, from the cache of compiled kernels or with NVRTC or nvcc.

No GPU and no driver is needed for it. A cubin runs on the architecture it was made for ("sm_90") and on later ones of
the same major version.

Never ``--use_fast_math``: kernels have to be right on nan, infinities and subnormals.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neonlike import settings
from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.driver import Driver
from neonlike.kernels.build.process import compile_files, run_command
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.render import template_text
from neonlike.kernels.cuda import nvrtc, toolkits
from neonlike.kernels.cuda.toolkits import HOMES, named_toolkits
from neonlike.logger import logger

ABI_VERSION = "1"
"""Part of the cache's keys; raise it when kernels of the same source text are to be called in another way."""

SUFFIX = ".cubin"
FLAGS = ("-std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Flags that NVRTC and nvcc both take."""
NEEDED = "install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or name an nvcc with NEONLIKE_NVCC"


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


@dataclass(frozen=True)
class CudaTarget:
    """A compiler, and the architecture it compiles for."""

    compiler: CudaCompiler
    arch: str

    @property
    def identity(self) -> str:
        """Kind and version of the compiler."""
        return self.compiler.identity

    @property
    def flags(self) -> tuple[str, ...]:
        """What the compiler is called with."""
        return f"-arch={self.arch}", *FLAGS

    def command_line(self) -> str:
        """The command that compiles a kernel, for messages and kept sources."""
        return " ".join(("NVRTC" if self.compiler.is_nvrtc else self.compiler.path, *self.flags))


class CudaDriver(Driver[CudaTarget, bytes]):
    """CUDA kernels: cubins, which stay on disk. Who loads one into a context keeps it."""

    suffix, source_suffix = SUFFIX, ".cu"

    def key(self, kernel: KernelSource, compiler: CudaTarget) -> str:
        """The cache key of the cubin."""
        source = kernel.source if isinstance(kernel.source, str) else kernel.source.identity
        texts = [part for item in sorted(_texts(kernel).items()) for part in item]
        return key_of("cuda-kernel", ABI_VERSION, compiler.identity, json.dumps(compiler.flags), source, *texts)

    def compile(self, kernel: KernelSource, text: str, compiler: CudaTarget) -> bytes:
        """The cubin that NVRTC or nvcc makes of ``text``."""
        tool, name = compiler.compiler, f"{kernel.name}.cu"
        if tool.is_nvrtc:
            headers = {**_texts(kernel), "stdint.h": template_text("cuda/rtc_stdint.h"), "math.h": ""}
            return nvrtc.compile_cubin(tool.path, text, name, headers, compiler.flags)
        result = f"{kernel.name}{SUFFIX}"
        command = (tool.path, "-cubin", *compiler.flags, "-I.", name, "-o", result)
        return compile_files(command, {**_texts(kernel), name: text}, result)

    def find(self, kernel: KernelSource, key: str) -> bytes | None:
        """The cubin from the cache."""
        return default_cache().read(key, SUFFIX)

    def store(self, kernel: KernelSource, key: str, data: bytes) -> bytes:
        """Put the cubin into the cache; one that cannot be kept works all the same."""
        try:
            default_cache().put(key, data, SUFFIX)
        except OSError as error:
            logger.info("kernel %s: the compiled module is not kept (%s)", kernel.name, error)
        return data

    def instead(self, compiler: CudaTarget, error: Exception) -> CudaTarget | None:
        """An nvcc, if NVRTC failed, not the source: a library of NVRTC's is missing, or the GPU is too new for it."""
        if not isinstance(error, nvrtc.NvrtcRefused) or not str(error).startswith("nvrtc: error"):
            return None
        found = _search_nvcc(*_places())
        if found is None:
            return None
        _say_once(f"{str(error).splitlines()[0]}; {found.path} compiles instead")
        return CudaTarget(found, compiler.arch)


DRIVER = CudaDriver()


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
    return DRIVER.build(kernel, CudaTarget(compiler, arch))


def is_built(kernel: KernelSource, arch: str) -> bool:
    """Whether the module of ``kernel`` is in the cache, so that :func:`build_cubin` compiles nothing."""
    compiler = find_cuda_compiler()
    return compiler is not None and DRIVER.is_built(kernel, CudaTarget(compiler, arch))


def cubin_key(kernel: KernelSource, arch: str, compiler: CudaCompiler) -> str:
    """The cache key of the module of ``kernel``."""
    return DRIVER.key(kernel, CudaTarget(compiler, arch))


def _texts(kernel: KernelSource) -> dict[str, str]:
    assert isinstance(kernel.headers, dict)
    return kernel.headers


@lru_cache(maxsize=8)
def _say_once(text: str) -> None:
    logger.warning("%s", text)


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
    for name in (*named_homes, "nvcc", f"{toolkits.TOOLKIT}/bin/nvcc"):
        program = shutil.which(name)
        if program and (found := _nvcc(program)):
            return found
    return None


def _nvcc(program: str) -> CudaCompiler | None:
    """``program`` as a compiler, if it says what version it is."""
    failed, words = run_command((program, "--version"))
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


__all__: list[Any] = ["CudaCompiler", "build_cubin", "cubin_key", "find_cuda_compiler", "headers", "is_built"]
