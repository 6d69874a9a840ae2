"""CUDA source text -> cubin bytes, from the cache of compiled kernels or with NVRTC or nvcc.

No GPU and no driver is needed for it. A cubin runs on the architecture it was made for ("sm_90") and on later ones of
the same major version. For a GPU that is newer than the compiler there is PTX of the newest architecture that it knows,
which the driver, being as new as the GPU, compiles as it loads it. A driver takes no cubin of a newer major version of
CUDA than its own: such compilers are passed over, and so are those whose modules it did not take.

Never ``--use_fast_math``: kernels have to be right on nan, infinities and subnormals.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
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
from neonlike.kernels.cuda.device import Device, ModuleRefused
from neonlike.kernels.cuda.toolkits import HOMES, named_toolkits
from neonlike.logger import logger

ABI_VERSION = "1"
"""Part of the cache's keys; raise it when kernels of the same source text are to be called in another way."""

SUFFIX = ".cubin"
FLAGS = ("-std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
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
    major : int
        Version of CUDA that it belongs to; 0: not known.
    """

    identity: str
    path: str
    is_nvrtc: bool
    major: int = 0

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities, times ten, that it compiles for; none if it does not say so."""
        return nvrtc.architectures(self.path) if self.is_nvrtc else _architectures_of_nvcc(self.path, self.identity)

    def target(self, arch: str) -> str:
        """``arch`` ("sm_120") if it is known, else the newest older one as PTX ("compute_90").

        With ``NEONLIKE_GPU_PTX=1`` always PTX, of ``arch`` where it is known.
        """
        known, wanted = self.architectures(), int(re.sub(r"\D", "", arch))
        fitting = [each for each in known if each <= wanted]
        asked = settings.GPU_PTX.get()
        if not fitting:
            return f"compute_{wanted}" if asked and not known else arch
        return arch if wanted in known and not asked else f"compute_{max(fitting)}"


@dataclass(frozen=True)
class CudaTarget:
    """A compiler, and the architecture it compiles for."""

    compiler: CudaCompiler
    arch: str

    @property
    def identity(self) -> str:
        """Kind and version of the compiler."""
        return self.compiler.identity

    def flags_for(self, contracted: bool = False) -> tuple[str, ...]:
        """Flags for a kernel; ``contracted``: which may round a product and its sum together."""
        plain = ("-DNL_PLAIN",) if settings.GPU_PLAIN.get() else ()
        return f"-arch={self.arch}", *FLAGS, f"--fmad={'true' if contracted else 'false'}", *plain

    @property
    def is_ptx(self) -> bool:
        """Whether the module is PTX."""
        return self.arch.startswith("compute_")

    def command_line(self, contracted: bool = False) -> str:
        """The command that compiles a kernel, for messages and kept sources."""
        return " ".join(("NVRTC" if self.compiler.is_nvrtc else self.compiler.path, *self.flags_for(contracted)))


class CudaDriver(Driver[CudaTarget, bytes]):
    """CUDA kernels: cubins, which stay on disk. Who loads one into a context keeps it."""

    suffix, source_suffix = SUFFIX, ".cu"

    def key(self, kernel: KernelSource, compiler: CudaTarget) -> str:
        """The cache key of the cubin."""
        source = kernel.source if isinstance(kernel.source, str) else kernel.source.identity
        texts = [part for item in sorted(_texts(kernel).items()) for part in item]
        flags = json.dumps(compiler.flags_for(kernel.contracted))
        return key_of("cuda-kernel", ABI_VERSION, compiler.identity, flags, source, *texts)

    def compile(self, kernel: KernelSource, text: str, compiler: CudaTarget) -> bytes:
        """The cubin that NVRTC or nvcc makes of ``text``."""
        tool, name, flags = compiler.compiler, f"{kernel.name}.cu", compiler.flags_for(kernel.contracted)
        if tool.is_nvrtc:
            headers = {**_texts(kernel), "stdint.h": template_text("cuda/rtc_stdint.h"), "math.h": ""}
            return nvrtc.compile_module(tool.path, text, name, headers, flags, compiler.is_ptx)
        result = f"{kernel.name}{SUFFIX}"
        command = (tool.path, "-ptx" if compiler.is_ptx else "-cubin", *flags, "-I.", name, "-o", result)
        module = compile_files(command, {**_texts(kernel), name: text}, result)
        return module + b"\0" if compiler.is_ptx else module  # the driver reads PTX up to a zero

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
        fitting = (each for each in _nvccs() if not _is_unfit(each, _unfit, _newest))
        found = next(fitting, None)
        if found is None:
            return None
        _say_once(f"{str(error).splitlines()[0]}; {found.path} compiles instead")
        return CudaTarget(found, found.target(compiler.arch.replace("compute_", "sm_")))


DRIVER = CudaDriver()


def headers() -> dict[str, str]:
    """The texts that kernels may include, by name; integer arithmetic and random numbers are shared with C."""
    own = {name: template_text(f"cuda/{name}") for name in ("types.h", "functions.h", "conversions.h")}
    return own | {name: template_text(f"c/{name}") for name in ("intmath.h", "division.h", "philox.h")}


def find_cuda_compiler(arch: str = "") -> CudaCompiler | None:
    """The CUDA compiler to use, or None.

    ``NEONLIKE_NVCC`` (the path of an nvcc) if it is set, else NVRTC where its library is found, else nvcc in
    ``CUDA_HOME`` or ``CUDA_PATH``, on PATH, or in the toolkit's usual place: the first that knows ``arch``, else the
    first. None is taken that the driver cannot follow (:func:`expect_driver`, :func:`give_up`).
    """
    return _search(settings.NVCC.text, frozenset(_unfit), _newest, arch, *_places())


_unfit: set[str] = set()
"""Identities of the compilers whose modules the driver did not take."""
_newest = 0
"""Major version of CUDA that the driver is for; 0: not known, as long as none was asked."""


def expect_driver(version: int) -> None:
    """Say what CUDA the driver of this process is for, as 12040 for 12.4."""
    global _newest
    _newest = version // 1000


def give_up(compiler: CudaCompiler, arch: str, why: object) -> bool:
    """Use ``compiler`` no more in this process, as the driver does not take its modules; whether there is another."""
    _unfit.add(compiler.identity)
    other = find_cuda_compiler(arch)
    if other is None or other == compiler:
        _unfit.discard(compiler.identity)
        return False
    _say_once(f"the driver does not take what {compiler.path} compiles ({why}); {other.path} compiles instead")
    return True


def load_kernels(device: Device, kernel: KernelSource, names: Sequence[str]) -> list[Any]:
    """Kernels of the module of ``kernel``, compiled and loaded; by the next compiler if the driver refuses the module.

    Raises
    ------
    KernelCompileError
    """
    arch = device.capabilities.arch
    while True:
        compiler = find_cuda_compiler(arch)
        module = build_cubin(kernel, arch, compiler)
        try:
            return [device.load(module, name) for name in names]
        except ModuleRefused as error:
            if compiler is None or not give_up(compiler, arch, error):
                raise


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
    compiler = compiler or find_cuda_compiler(arch)
    if compiler is None:
        raise KernelCompileError(
            f"kernel {kernel.name}: there is no CUDA compiler{too_new()}; {NEEDED}", expression=kernel.expression
        )
    return DRIVER.build(kernel, CudaTarget(compiler, compiler.target(arch)))


def too_new() -> str:
    """Names the compilers that are passed over since the driver is older, for messages; empty if none is."""
    passed = [each for each in _compilers(settings.NVCC.text) if _newest and each.major > _newest]
    names = ", ".join(f"{each.path} (CUDA {each.major})" for each in passed)
    return f" that this driver, for CUDA {_newest}, can follow: {names} is newer" if passed else ""


def is_built(kernel: KernelSource, arch: str) -> bool:
    """Whether the module of ``kernel`` is in the cache, so that :func:`build_cubin` compiles nothing."""
    compiler = find_cuda_compiler(arch)
    return compiler is not None and DRIVER.is_built(kernel, CudaTarget(compiler, compiler.target(arch)))


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
def _search(named: str, unfit: frozenset[str], newest: int, arch: str, *places: str) -> CudaCompiler | None:
    """See :func:`find_cuda_compiler`; ``places`` are the variables that the result depends on."""
    first = None
    for found in _compilers(named):
        if not named and _is_unfit(found, unfit, newest):
            continue
        if not arch or found.target(arch) == arch:
            return found
        first = first or found
    return first


def _is_unfit(compiler: CudaCompiler, unfit: Collection[str], newest: int) -> bool:
    """Whether the driver cannot follow it."""
    return compiler.identity in unfit or bool(newest and compiler.major > newest)


def _compilers(named: str) -> Iterator[CudaCompiler]:
    """All there are, or the one that is named."""
    if named:
        found = _nvcc(named)
        if found is None:
            logger.warning("NEONLIKE_NVCC=%s does not run; correct it or unset it", named)
        else:
            yield found
        return
    for library in nvrtc.find_libraries():
        if version := nvrtc.version(library):
            identity = f"NVRTC {version} {_stamp(library)}"
            yield CudaCompiler(identity, library, True, int(version.partition(".")[0]))
    yield from _nvccs()


def _nvccs() -> Iterator[CudaCompiler]:
    """The nvcc of each toolkit and on PATH."""
    named_homes = (str(home / "bin" / "nvcc") for home in named_toolkits())
    seen: set[str] = set()
    for name in (*named_homes, "nvcc", f"{toolkits.TOOLKIT}/bin/nvcc"):
        program = shutil.which(name)
        if program and program not in seen and (found := _nvcc(program)):
            seen.add(program)
            yield found


@lru_cache(maxsize=8)
def _architectures_of_nvcc(program: str, identity: str) -> tuple[int, ...]:
    """What ``nvcc --list-gpu-arch`` says; ``identity`` has the result depend on the program's version."""
    failed, words = run_command((program, "--list-gpu-arch"))
    return () if failed else tuple(int(each) for each in re.findall(r"compute_(\d+)", words))


def _nvcc(program: str) -> CudaCompiler | None:
    """``program`` as a compiler, if it says what version it is."""
    failed, words = run_command((program, "--version"))
    lines = words.strip().splitlines()
    if failed or not lines:
        return None
    release = re.search(r"release (\d+)\.", words)
    identity = f"{lines[0]} {key_of(words)[:16]} {_stamp(program)}"
    return CudaCompiler(identity, os.path.abspath(program), False, int(release[1]) if release else 0)


def _stamp(path: str) -> str:
    """Path, size and time of a file: a text that changes when the file does."""
    try:
        status = os.stat(path)
    except OSError:  # a library that the loader finds by its name
        return path
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


__all__: list[Any] = ["CudaCompiler", "build_cubin", "cubin_key", "find_cuda_compiler", "headers", "is_built"]
