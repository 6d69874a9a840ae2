"""Compilation of CUDA source to cubins, from the kernel cache or with NVRTC or nvcc.

It needs no GPU and no driver. A cubin runs on its architecture ("sm_90") and on later ones of the same major version.
For a GPU newer than the compiler the result is PTX of the newest known architecture, which the driver, as new as the
GPU, compiles when loading it. A driver accepts no cubin from a newer major version of CUDA than its own: such compilers
are skipped, and so are those whose modules it has refused.

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
"""Part of the cache's keys; increase it when the calling convention of unchanged source texts changes."""

SUFFIX = ".cubin"
FLAGS = ("-std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Flags accepted by both NVRTC and nvcc."""
NEEDED = "install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or name an nvcc with NEONLIKE_NVCC"


@dataclass(frozen=True)
class CudaCompiler:
    """A CUDA compiler on this machine.

    Attributes
    ----------
    identity : str
        Kind and version.
    path : str
        Path of nvcc, or of NVRTC's library.
    is_nvrtc : bool
    major : int
        Its CUDA major version; 0: unknown.
    """

    identity: str
    path: str
    is_nvrtc: bool
    major: int = 0

    def architectures(self) -> tuple[int, ...]:
        """Supported compute capabilities, times ten; empty if the compiler does not list them."""
        return nvrtc.architectures(self.path) if self.is_nvrtc else _architectures_of_nvcc(self.path, self.identity)

    def target(self, arch: str) -> str:
        """``arch`` ("sm_120") if it is known, else the newest older one as PTX ("compute_90").

        With ``NEONLIKE_GPU_PTX=1`` always PTX, of ``arch`` if it is known.
        """
        known, wanted = self.architectures(), int(re.sub(r"\D", "", arch))
        fitting = [each for each in known if each <= wanted]
        asked = settings.GPU_PTX.get()
        if not fitting:
            return f"compute_{wanted}" if asked and not known else arch
        return arch if wanted in known and not asked else f"compute_{max(fitting)}"


@dataclass(frozen=True)
class CudaTarget:
    """A compiler with its target architecture."""

    compiler: CudaCompiler
    arch: str

    @property
    def identity(self) -> str:
        """Kind and version of the compiler."""
        return self.compiler.identity

    def flags_for(self, contracted: bool = False) -> tuple[str, ...]:
        """Flags for a kernel; ``contracted``: a product and its sum may be rounded together."""
        plain = ("-DNL_PLAIN",) if settings.GPU_PLAIN.get() else ()
        return f"-arch={self.arch}", *FLAGS, f"--fmad={'true' if contracted else 'false'}", *plain

    @property
    def is_ptx(self) -> bool:
        """Whether the module is PTX."""
        return self.arch.startswith("compute_")

    def command_line(self, contracted: bool = False) -> str:
        """The command line for a kernel, for messages and kept sources."""
        return " ".join(("NVRTC" if self.compiler.is_nvrtc else self.compiler.path, *self.flags_for(contracted)))


class CudaDriver(Driver[CudaTarget, bytes]):
    """Driver for CUDA kernels: cubins stay on disk, and whoever loads one into a context keeps it."""

    suffix, source_suffix = SUFFIX, ".cu"

    def key(self, kernel: KernelSource, compiler: CudaTarget) -> str:
        """The cache key of the cubin."""
        source = kernel.source if isinstance(kernel.source, str) else kernel.source.identity
        texts = [part for item in sorted(_texts(kernel).items()) for part in item]
        flags = json.dumps(compiler.flags_for(kernel.contracted))
        return key_of("cuda-kernel", ABI_VERSION, compiler.identity, flags, source, *texts)

    def compile(self, kernel: KernelSource, text: str, compiler: CudaTarget) -> bytes:
        """Compile ``text`` to a cubin with NVRTC or nvcc.

        Parameters
        ----------
        kernel, text, compiler
            As of ``Driver.compile``.
        """
        tool, name, flags = compiler.compiler, f"{kernel.name}.cu", compiler.flags_for(kernel.contracted)
        if tool.is_nvrtc:
            headers = {**_texts(kernel), "stdint.h": template_text("cuda/rtc_stdint.h"), "math.h": ""}
            return nvrtc.compile_module(tool.path, text, name, headers, flags, compiler.is_ptx)
        result = f"{kernel.name}{SUFFIX}"
        command = (tool.path, "-ptx" if compiler.is_ptx else "-cubin", *flags, "-I.", name, "-o", result)
        module = compile_files(command, {**_texts(kernel), name: text}, result)
        return module + b"\0" if compiler.is_ptx else module  # the driver reads PTX up to a zero byte

    def find(self, kernel: KernelSource, key: str) -> bytes | None:
        """Find the cubin in the cache."""
        return default_cache().read(key, SUFFIX)

    def store(self, kernel: KernelSource, key: str, data: bytes) -> bytes:
        """Store the cubin in the cache; it remains usable if that fails.

        Parameters
        ----------
        kernel, key, data
            As of ``Driver.store``.
        """
        try:
            default_cache().put(key, data, SUFFIX)
        except OSError as error:
            logger.info("kernel %s: the compiled module is not kept (%s)", kernel.name, error)
        return data

    def instead(self, compiler: CudaTarget, error: Exception) -> CudaTarget | None:
        """Return an nvcc if NVRTC itself failed: one of its libraries is missing, or the GPU is too new for it."""
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
    """Texts of the available headers, by name; integer arithmetic and random numbers are shared with C."""
    own = {name: template_text(f"cuda/{name}") for name in ("types.h", "functions.h", "conversions.h")}
    return own | {name: template_text(f"c/{name}") for name in ("intmath.h", "division.h", "philox.h")}


def find_cuda_compiler(arch: str = "") -> CudaCompiler | None:
    """Find the CUDA compiler to use, or return None.

    It is ``NEONLIKE_NVCC`` (the path of an nvcc) if set, else NVRTC if its library is found, else nvcc in ``CUDA_HOME``
    or ``CUDA_PATH``, on PATH, or in the toolkit's usual place: the first one that knows ``arch``, else the first.
    Compilers unsuitable for the driver are skipped (:func:`expect_driver`, :func:`give_up`).
    """
    return _search(settings.NVCC.text, frozenset(_unfit), _newest, arch, *_places())


_unfit: set[str] = set()
"""Identities of the compilers whose modules the driver refused."""
_newest = 0
"""CUDA major version of the driver; 0: unknown, until a driver is queried."""


def expect_driver(version: int) -> None:
    """Set the CUDA version of this process's driver, such as 12040 for 12.4."""
    global _newest
    _newest = version // 1000


def give_up(compiler: CudaCompiler, arch: str, why: object) -> bool:
    """Stop using ``compiler``, because the driver refuses its modules; return whether another exists.

    Parameters
    ----------
    compiler : CudaCompiler
    arch : str
        Architecture, such as "sm_90".
    why : object
        The reason, for the log.
    """
    _unfit.add(compiler.identity)
    other = find_cuda_compiler(arch)
    if other is None or other == compiler:
        _unfit.discard(compiler.identity)
        return False
    _say_once(f"the driver does not take what {compiler.path} compiles ({why}); {other.path} compiles instead")
    return True


def load_kernels(device: Device, kernel: KernelSource, names: Sequence[str]) -> list[Any]:
    """Compile and load the kernels of a module; if the driver refuses it, try the next compiler.

    Parameters
    ----------
    device : Device
    kernel : KernelSource
        The module.
    names : sequence of str
        Names of its kernels.

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
    """Return the compiled module of ``kernel`` for ``arch``, compiling it unless it is cached.

    Parameters
    ----------
    kernel : KernelSource
    arch : str
        Architecture, such as "sm_90".
    compiler : CudaCompiler, optional
        None: the first one that works.

    Raises
    ------
    KernelCompileError
        If there is no compiler, or it refused the source.

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
    """Part of a message that names compilers skipped because the driver is older; empty if there are none."""
    passed = [each for each in _compilers(settings.NVCC.text) if _newest and each.major > _newest]
    names = ", ".join(f"{each.path} (CUDA {each.major})" for each in passed)
    return f" that this driver, for CUDA {_newest}, can follow: {names} is newer" if passed else ""


def is_built(kernel: KernelSource, arch: str) -> bool:
    """Whether the module of ``kernel`` is cached, so that :func:`build_cubin` compiles nothing."""
    compiler = find_cuda_compiler(arch)
    return compiler is not None and DRIVER.is_built(kernel, CudaTarget(compiler, compiler.target(arch)))


def cubin_key(kernel: KernelSource, arch: str, compiler: CudaCompiler) -> str:
    """The cache key of the module of ``kernel``.

    Parameters
    ----------
    kernel : KernelSource
    arch : str
        Architecture, such as "sm_90".
    compiler : CudaCompiler
    """
    return DRIVER.key(kernel, CudaTarget(compiler, arch))


def _texts(kernel: KernelSource) -> dict[str, str]:
    assert isinstance(kernel.headers, dict)
    return kernel.headers


@lru_cache(maxsize=8)
def _say_once(text: str) -> None:
    logger.warning("%s", text)


def _places() -> tuple[str, ...]:
    """Values of the environment variables that locate toolkits."""
    return (*(home.text for home in HOMES), settings.of_the_system("PATH"))


@lru_cache(maxsize=8)
def _search(named: str, unfit: frozenset[str], newest: int, arch: str, *places: str) -> CudaCompiler | None:
    """Search of :func:`find_cuda_compiler`; ``places`` are the variables that the result depends on."""
    first = None
    for found in _compilers(named):
        if not named and _is_unfit(found, unfit, newest):
            continue
        if not arch or found.target(arch) == arch:
            return found
        first = first or found
    return first


def _is_unfit(compiler: CudaCompiler, unfit: Collection[str], newest: int) -> bool:
    """Whether the driver cannot use its modules."""
    return compiler.identity in unfit or bool(newest and compiler.major > newest)


def _compilers(named: str) -> Iterator[CudaCompiler]:
    """All available compilers, or the named one."""
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
    """Architectures from ``nvcc --list-gpu-arch``; ``identity`` makes the cached result depend on the version."""
    failed, words = run_command((program, "--list-gpu-arch"))
    return () if failed else tuple(int(each) for each in re.findall(r"compute_(\d+)", words))


def _nvcc(program: str) -> CudaCompiler | None:
    """Wrap ``program`` as a compiler, if it reports a version."""
    failed, words = run_command((program, "--version"))
    lines = words.strip().splitlines()
    if failed or not lines:
        return None
    release = re.search(r"release (\d+)\.", words)
    identity = f"{lines[0]} {key_of(words)[:16]} {_stamp(program)}"
    return CudaCompiler(identity, os.path.abspath(program), False, int(release[1]) if release else 0)


def _stamp(path: str) -> str:
    """Path, size and time of a file as a text that changes with the file."""
    try:
        status = os.stat(path)
    except OSError:  # a library that the loader finds by its name
        return path
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


__all__: list[Any] = ["CudaCompiler", "build_cubin", "cubin_key", "find_cuda_compiler", "headers", "is_built"]
