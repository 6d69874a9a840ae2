"""The machine's C compiler: which one, the flags it takes, and a shared library made with it.

What was found is kept in the cache of compiled kernels under the compiler's files and the processor, so that a process
that finds all of its kernels compiled starts no other process.

Never ``-ffast-math``: it re-associates sums, is wrong on nan and inf, and changes how the whole process rounds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from neonlike import settings
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.process import CompilerRefused, compile_files, run_command
from neonlike.kernels.c.pages import load_library
from neonlike.logger import logger

CHOICES = (
    ("-fPIC",),
    ("-march=native", "-mcpu=native"),
    ("-fno-math-errno",),
    ("-fno-trapping-math",),
    ("-ffp-contract=off",),
    ("-fno-thread-jumps",),
    ("-fopenmp-simd",),
    *([("-mprefer-vector-width=512",)] if platform.machine().lower() in ("x86_64", "amd64") else []),
)
"""Of each group, the first flag that works is used.

Compilers use 256 bits of AVX-512 on Intel's processors unless told. With twice the vectors for the same elements, half
as many elements are on their way from memory while a processor computes, and the two take turns.

Compilers for arm64 take both flags of processors, but gcc 12 leaves loops scalar that are costly on the processor named
by -mcpu (tan on a Cortex-A72), and none by -march.

gcc threads jumps before it makes selections of them: where two selections have one condition, as in atan's, it computes
what lies between them twice.
"""

CONTRACTED = {"-ffp-contract=off": "-ffp-contract=fast", "-fno-thread-jumps": "-fthread-jumps"}
"""Flags of kernels whose products and sums may be rounded together, in place of those above."""

LIBRARIES = ("-lm",)
UNSAFE_FLAGS = frozenset({"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only"})
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")

PROBE = """\
#include <math.h>
#include <stdint.h>
int neonlike_probe(void) { return 1; }
void neonlike_probe_loop(float *x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = sqrtf(x[i]);
}
"""
"""Uses what kernels use; only the first function is called, which runs on any processor."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler that works here.

    Attributes
    ----------
    identity : str
        Its version, and the processor that it compiles for: kernels of one identity run wherever that is the same.
    command, flags : tuple of str
        A kernel is compiled by ``command + flags + (source, "-o", library, "-lm")``.
    """

    identity: str
    command: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def native(self) -> bool:
        """Whether it uses all that this processor can do."""
        return any(flag.endswith("=native") for flag in self.flags)

    def command_for(self, contracted: bool = False) -> tuple[str, ...]:
        """Command and flags for a kernel; ``contracted``: which may round a product and its sum together."""
        flags = (CONTRACTED.get(flag, flag) for flag in self.flags) if contracted else self.flags
        return (*self.command, *flags)

    def command_line(self, contracted: bool = False) -> str:
        """The same, as one would type it."""
        return shlex.join(self.command_for(contracted))


_lock = threading.RLock()
_found: dict[tuple[str, ...], Compiler | None] = {}
_unconfirmed: dict[tuple[str, ...], str] = {}
"""Command -> version text, of the compilers that this process knows from the cache only."""


def find_compiler() -> Compiler | None:
    """The C compiler to use, or None: then the NumPy engine runs everything.

    ``CC`` (which may hold arguments) if it is set, else the first of cc, gcc, clang and ``python -m ziglang cc``
    that compiles a test file into a library that loads. ``NEONLIKE_CPU_JIT=0`` forbids all of them. What was found
    holds for the process until one of these variables, ``NEONLIKE_OPTIMIZE`` or PATH changes; a failure is logged
    once.
    """
    told = (*(each.text for each in (settings.CPU_JIT, settings.CC, settings.OPTIMIZE)), settings.of_the_system("PATH"))
    try:
        return _found[told]
    except KeyError:
        with _lock:
            if told not in _found:
                _found[told] = _search()
            return _found[told]


def required_flags() -> tuple[str, ...]:
    """The flags without which a compiler is of no use."""
    return (f"-O{settings.OPTIMIZE.get()}", "-std=gnu11", "-shared")


def confirm(compiler: Compiler) -> Compiler:
    """``compiler``, or what became of it since an earlier process probed it. To be called before it compiles."""
    with _lock:
        version = _unconfirmed.pop(compiler.command, None)
        if version is None or version == _version(compiler.command):
            return compiler
        try:
            found = _probe(compiler.command)
        except (CompilerRefused, OSError):
            return compiler  # which shows its words when it fails to compile the kernel
        _found.update({told: found for told, old in _found.items() if old == compiler})
        return found


def compile_object(command: tuple[str, ...], name: str, text: str, headers: Mapping[str, str]) -> bytes:
    """The shared library that ``command`` makes of ``text``, made in a directory of its own.

    Parameters
    ----------
    command : tuple of str
        The compiler with its flags.
    name : str
        Name of the file, without suffix.
    text : str
    headers : mapping
        Texts by names.

    Raises
    ------
    CompilerRefused
    OSError
        The temporary directory cannot be written.
    """
    result = f"{name}{SUFFIX}"
    command = (*command, "-I.", f"{name}.c", "-o", result, *LIBRARIES)
    return compile_files(command, {**headers, f"{name}.c": text}, result, _run)


def load_cached(key: str, what: str, suffix: str = SUFFIX) -> ctypes.CDLL | None:
    """The library of ``key`` if it is in the cache and loads; one that does not is discarded and made anew.

    Parameters
    ----------
    key : str
        Key of the cache.
    what : str
        What it is, for the log.
    suffix : str
        Of the file.
    """
    path = default_cache().get(key, suffix)
    if path is None:
        return None
    try:
        return load_library(path)
    except OSError as error:
        logger.info("%s: the cached %s does not load (%s) and is compiled again", what, path, error)
        default_cache().discard(key, suffix)
        return None


def store_and_load(key: str, data: bytes, suffix: str = SUFFIX) -> ctypes.CDLL:
    """Load a library from the cache, or from the private directory if the cache's file system forbids that.

    Parameters
    ----------
    key : str
        Key of the cache.
    data : bytes
        The library.
    suffix : str

    Raises
    ------
    CompilerRefused
        It does not load.
    OSError
        It cannot be written anywhere.
    """
    cache = default_cache()
    for _ in range(2):
        path = cache.put(key, data, suffix)
        try:
            return load_library(path)
        except OSError as error:
            reason = str(error)
        if path.exists():
            break  # else another process cleared the cache in between
    path = cache.put(key, data, suffix, private=True)
    try:
        library = load_library(path)
    except OSError:
        cache.discard(key, suffix)
        raise CompilerRefused(f"the compiled library does not load: {reason}") from None
    cache.tell(f"nothing can be loaded from it ({reason})")
    return library


def architecture() -> str:
    """System, machine and pointer size of this process."""
    machine = os.uname().machine if hasattr(os, "uname") else settings.of_the_system("PROCESSOR_ARCHITECTURE")
    return f"{sys.platform} {machine} {8 * ctypes.sizeof(ctypes.c_void_p)}"


def _search() -> Compiler | None:
    if not settings.CPU_JIT.get():
        logger.info("NEONLIKE_CPU_JIT=0: kernels run on the NumPy engine")
        return None
    named = settings.CC.text
    failures: list[str] = []
    try:
        for command in _named_command(named) if named else _commands():
            try:
                return _known(command) or _probe(command)
            except (CompilerRefused, OSError) as error:
                failures.append(f"{' '.join(command)}: {' '.join(str(error).split())[-300:]}")
    except ValueError as error:  # CC has a quotation mark too many
        failures.append(str(error))
    if named:
        logger.warning(
            "CC=%s does not work as a C compiler (%s). Correct CC, or unset it to use cc, gcc or clang; until then "
            "kernels run on the NumPy engine",
            named,
            "; ".join(failures) or "there is no such command",
        )
    else:
        logger.warning(
            "No C compiler works here (%s). Install gcc or clang, or `pip install ziglang`, or name one with CC; until "
            "then kernels run on the NumPy engine",
            "; ".join(failures) or "there is no cc, gcc or clang on PATH",
        )
    return None


def _named_command(named: str) -> Iterator[tuple[str, ...]]:
    """CC as a command; absolute, because compilers run in a directory of their own."""
    words = [named] if shutil.which(named) else shlex.split(named, posix=os.name == "posix")  # a path may have spaces
    if refused := [word for word in words if word in UNSAFE_FLAGS]:
        logger.warning("CC: %s is left out, as kernels would be wrong on nan and inf", " ".join(refused))
    if program := shutil.which(words[0]):
        yield (os.path.abspath(program), *(word for word in words[1:] if word not in UNSAFE_FLAGS))


def _commands() -> Iterator[tuple[str, ...]]:
    """Compilers found without CC; several names of one file count once."""
    programs: dict[str, str] = {}
    for name in ("cc", "gcc", "clang"):
        if program := shutil.which(name):
            programs.setdefault(os.path.realpath(program), os.path.abspath(program))
    yield from ((program,) for program in programs.values())
    if sys.executable and importlib.util.find_spec("ziglang"):
        yield (sys.executable, "-m", "ziglang", "cc")


def _probe_key(command: tuple[str, ...]) -> str:
    """Names what is known about a compiler without starting it: its files (also those behind ccache), the processor."""
    files = [path for word in command if (path := shutil.which(word))]
    if "ziglang" in command and (spec := importlib.util.find_spec("ziglang")) and spec.origin:
        files.append(spec.origin)
    stats = [(os.path.realpath(path), os.stat(path).st_mtime_ns, os.stat(path).st_size) for path in files]
    return key_of(
        "c-compiler", json.dumps([command, stats, required_flags(), CHOICES]), PROBE, architecture(), _processor()
    )


def _known(command: tuple[str, ...]) -> Compiler | None:
    """The compiler as an earlier process found it. Its version is asked for when it first compiles."""
    try:
        found = json.loads(default_cache().read(_probe_key(command), ".json") or b"{}")
        compiler = Compiler(found["identity"], command, tuple(found["flags"]))
        _unconfirmed[command] = found["version"]
    except (KeyError, TypeError, ValueError):
        return None
    return compiler


def _probe(command: tuple[str, ...]) -> Compiler:
    """Try the flags, all of them first and one after the other if that fails; remember the result on disk."""
    flags = (*required_flags(), *(group[0] for group in CHOICES))
    try:
        _try_flags(command, flags)
    except CompilerRefused:
        flags = required_flags()
        _try_flags(command, flags)
        for group in CHOICES:
            flags += _first_that_works(command, flags, group)
    version = _version(command)
    compiler = Compiler(_identity(command, flags, version), command, flags)
    try:
        text = json.dumps({**asdict(compiler), "version": version})
        default_cache().put(_probe_key(command), text.encode(), ".json")
    except OSError as error:
        logger.info("C compiler: what it can do is not remembered (%s)", error)
    logger.info("C compiler: %s (%s)", compiler.command_line(), compiler.identity)
    return compiler


def _first_that_works(command: tuple[str, ...], flags: tuple[str, ...], group: tuple[str, ...]) -> tuple[str, ...]:
    for flag in group:
        try:
            _try_flags(command, (*flags, flag))
            return (flag,)
        except CompilerRefused:
            continue
    return ()


def _try_flags(command: tuple[str, ...], flags: tuple[str, ...]) -> None:
    """Raise CompilerRefused unless the flags give a library that loads."""
    data = compile_object((*command, *flags), "probe", PROBE, {})
    key = key_of("c-probe", uuid.uuid4().hex)  # of its own: it is removed again, while other processes may probe
    library = store_and_load(key, data)
    default_cache().discard(key, SUFFIX)
    try:
        library.neonlike_probe()
    except AttributeError:
        raise CompilerRefused("its library does not have the function of the source; is it a C++ compiler?") from None


def _version(command: tuple[str, ...]) -> str:
    return _run((*command, "--version"))[1].strip()


def _identity(command: tuple[str, ...], flags: tuple[str, ...], version: str) -> str:
    """Version and target. The predefined macros name every instruction set that the flags allow."""
    usable = [flag for flag in flags if flag not in ("-shared", "-fopenmp-simd")]
    failed, macros = _run((*command, *usable, "-dM", "-E", "-x", "c", os.devnull))
    target = _processor() if failed else "\n".join(sorted(macros.splitlines()))
    first_line = version.splitlines()[0] if version else Path(command[0]).name
    return f"{first_line} [{architecture()} {key_of(version, target)[:16]}]"


def _processor() -> str:
    """Identity of this processor without a compiler: machines with different ones may share a cache."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(8192).split("\n\n")[0]
    except OSError:
        if sys.platform == "darwin":
            return _run(("sysctl", "-n", "machdep.cpu.brand_string"))[1]
        return settings.of_the_system("PROCESSOR_IDENTIFIER")
    # Not the clock frequency, nor anything else that changes from one look to the next.
    stable = "vendor_id|model|stepping|flags|features|cpu|isa|uarch|cpu (?:family|implementer|variant|part|revision)"
    return "\n".join(re.findall(rf"^(?i:{stable})\s*:.*", first, re.MULTILINE))


def _run(command: tuple[str, ...], directory: Path | None = None) -> tuple[int, str]:
    """Exit status and words (in English) of a command; 127 if it cannot be started or does not end."""
    # Without CC: `zig cc` would call the compiler that it names, which may be itself. With PATH, where it is not set as
    # Python has it then: compilers look for their parts there.
    path = settings.of_the_system("PATH") or os.defpath
    return run_command(command, directory, settings.for_a_child(settings.CC, LC_ALL="C", PATH=path))


def _after_fork() -> None:
    """In the child no thread is left that would release the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
