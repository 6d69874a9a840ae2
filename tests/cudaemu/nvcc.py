"""The stand-in for nvcc: compiles CUDA C++ with g++ into a shared object, which the emulated driver takes for a cubin.

It understands the options that PyCUDA and neonlike pass. It starts several thousand times in a run of the tests, so it
imports little, and g++ reads cuda_on_cpu.h as a precompiled header. README.md lists the variables that it honours.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False  # typing takes milliseconds to import, and so does subprocess, which few compilations need
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

if __package__:
    from .cuda_source import SourceError, needs_preprocessor, rewrite
else:  # the copy in the cache, run as a script
    from cuda_source import SourceError, needs_preprocessor, rewrite  # type: ignore[no-redef]

STANDARD = "-std=c++17"
CODE_FLAGS = [
    "-O1",  # -O2 takes 10% longer to compile and runs the kernels of the tests no faster
    "-march=native",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=fast",  # as nvcc, which fuses a multiplication with an addition unless --fmad=false
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ftls-model=initial-exec",
    "-fno-stack-protector",
    "-fno-gnu-unique",  # what two modules define under one name stays two things, and they can be unloaded
    "-U_FORTIFY_SOURCE",
]
# The hooks of the thread sanitizer are those of checker.cpp; its own library is not linked.
CHECK_FLAGS = [
    "-g1",
    "-gdwarf-4",  # which addr2line reads right for a source from a pipe
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
]
LINK_FLAGS = [
    *("-shared", "-nostdlib", "-Wl,-Bsymbolic", "-Wl,--hash-style=gnu"),
    # Two mappings of memory a module instead of five: a process may have 65530, and a run of all tests loads more than
    # ten thousand modules.
    *("-Wl,-z,noseparate-code", "-Wl,-z,norelro"),
]

_WITH_VALUE = {
    *(
        "-code",
        "--gpu-code",
        "-Xptxas",
        "--ptxas-options",
        "-Xcompiler",
        "--compiler-options",
        "-maxrregcount",
    ),
    *("--maxrregcount", "-gencode", "--generate-code", "-ccbin"),
}
_USAGE = re.compile(
    r"Used (?P<registers>\d+) registers(?:, used \d+ barriers)?(?:, \d+ bytes cumulative stack size)?"
    r"(?:, (?P<shared>\d+) bytes smem)?"
)


def flags(root: str, cuda_include: str, checked: bool, inexact: bool = False) -> list[str]:
    """Flags of g++ for every compilation, including the precompiled headers."""
    return [
        STANDARD,
        *CODE_FLAGS,
        *(CHECK_FLAGS if checked else ()),
        *(["-DCUEMU_INEXACT"] if inexact else ()),
        f"-I{root}/include",
        "-isystem",
        cuda_include,
    ]


def header(root: str, checked: bool, inexact: bool = False) -> str:
    """The header included before every source, precompiled but for the two modes together."""
    if checked and inexact:
        return f"{root}/include/cuda_on_cpu.h"
    return f"{root}/precompiled/{'check' if checked else 'inexact' if inexact else 'fast'}.h"


class Request:
    """The command line, as far as it means anything here."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.mode = self.source = self.output = ""
        self.architecture = "sm_90"
        self.cxx: list[str] = []
        rest = iter(arguments)
        for argument in rest:
            self._take(argument, rest)
        self.version = "--version" in arguments or "-V" in arguments

    def _take(self, argument: str, rest: Iterator[str]) -> None:
        name, _, value = argument.partition("=")
        if argument in ("--cubin", "-cubin", "--ptx", "-ptx"):  # the emulated driver compiles PTX no further
            self.mode = "cubin"
        elif argument in ("--preprocess", "-E"):
            self.mode = "preprocess"
        elif argument in ("--fatbin", "-fatbin"):
            sys.exit(f"the emulator's nvcc makes cubins only; {argument} is not emulated")
        elif name in ("-arch", "--gpu-architecture"):
            self.architecture = value or next(rest)
        elif argument in ("-o", "--output-file"):
            self.output = next(rest)
        elif argument in _WITH_VALUE:
            next(rest)
        elif argument in ("-I", "-D", "-U"):
            self.cxx.append(argument + next(rest))
        elif argument[:2] in ("-I", "-D", "-U") or name in ("-std", "--std"):
            self.cxx.append(argument.replace("--std", "-std"))
        elif name in ("-fmad", "--fmad"):
            self.cxx.append(f"-ffp-contract={'off' if value == 'false' else 'fast'}")
        elif argument in ("-use_fast_math", "--use_fast_math"):
            self.cxx.append("-D__USE_FAST_MATH__")
        elif not argument.startswith("-"):
            self.source = argument


def resource_usage(nvcc: str, request: Request) -> dict[str, tuple[int, int, int]]:
    """Compile with the real nvcc too: its errors end this compilation, its figures go into the module."""
    import subprocess

    passed = [a for a in request.arguments if a not in ("--cubin", "-cubin", "--ptx", "-ptx", "--keep", request.source)]
    command = [nvcc, "--cubin", "--resource-usage", *passed, "-o", os.devnull, request.source]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit("the real nvcc refuses the source:\n" + done.stdout)
    usage: dict[str, tuple[int, int, int]] = {}
    kernel = ""
    local = 0
    for line in done.stdout.splitlines():
        if match := re.search(r"(?:Function properties for|Compiling entry function ')\s*(\w+)", line):
            kernel = match[1]
        elif match := re.search(r"(\d+) bytes stack frame", line):
            local = int(match[1])
        elif (match := _USAGE.search(line)) and kernel:
            usage[kernel] = (int(match["registers"]), int(match["shared"] or 0), local)
    return usage


def kept_file(command: list[str], text: str) -> str:
    """The file in ``CUEMU_KEPT`` for what ``command`` makes of ``text``; empty where nothing is kept."""
    folder = os.environ.get("CUEMU_KEPT", "")
    if not folder:
        return ""
    import hashlib

    key = hashlib.sha256("\0".join([*command, text]).encode()).hexdigest()
    return f"{folder}/{key[:2]}/nvcc_{key}.cubin"


def copied(source: str, target: str) -> bool:
    """Copy a file, which is there as a whole or not at all; whether that was possible."""
    temporary = f"{target}.{os.getpid()}"
    try:
        with open(source, "rb") as file:
            content = file.read()
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, target)
        os.utime(source)  # the cache of kernels removes what was not used for long
    except OSError:
        return False
    return True


def keep_when_done(made: str, kept: str) -> None:
    """Go on in a child process; this one waits for its end and keeps what it made."""
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            copied(made, kept)
        sys.exit(status)


def become(command: list[str], text: str, output: str) -> NoReturn:
    """Go on as ``command``, which makes ``output`` of ``text``, or end at once with what was kept of it."""
    if kept := kept_file(command, text):
        if copied(kept, output):
            sys.exit(0)
        keep_when_done(output, kept)
    source = os.memfd_create("source")
    with open(source, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(source, 0, os.SEEK_SET)
    os.dup2(source, 0)
    os.execvp(command[0], [*command, "-o", output])


def compile_cubin(request: Request, root: str, cuda_include: str) -> int:
    """Compile one source: this process becomes g++, unless its exit status is returned."""
    with open(request.source, encoding="utf-8") as file:
        source = file.read()
    # Code that relies on volatile shared memory needs its lanes kept in step, which the checker's hooks do.
    checked = os.environ.get("CUEMU_CHECK", "0") == "1" or bool(
        re.search(r"volatile\s+[\w:<>]+\s*\*", source)
    )
    real = os.environ.get("CUEMU_REAL_NVCC", "")
    usage = resource_usage(real, request) if real else {}
    cxx = os.environ.get("CUEMU_CXX", "g++")
    extra = os.environ.get("CUEMU_CXXFLAGS", "").split()
    inexact = os.environ.get("CUEMU_INEXACT", "0") == "1"
    # g++ breaks down where extra flags ask for other code than the precompiled header's.
    first = ["-include", f"{root}/include/cuda_on_cpu.h" if extra else header(root, checked, inexact)]
    command = [cxx, *flags(root, cuda_include, checked, inexact), "-iquote", os.path.dirname(request.source) or "."]
    command += [f"-D__CUEMU_ARCH__={re.sub('[^0-9]', '', request.architecture)}0", *request.cxx, *extra]
    included = [argument[2:] for argument in request.cxx if argument.startswith("-I")]
    if needs_preprocessor(source, [os.path.dirname(request.source) or ".", *included]):
        import subprocess

        expand = [*command, *first, "-E", "-x", "c++", request.source]
        done = subprocess.run(expand, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        source, first = done.stdout, ["-include", f"{root}/include/cuda_kernel.h"]
    else:
        source = f'#line 1 "{request.source}"\n{source}'
    output = request.output or os.path.splitext(request.source)[0] + ".cubin"
    become([*command, *first, *LINK_FLAGS, "-x", "c++", "-"], rewrite(source, usage), output)


def main(arguments: list[str], root: str, cuda_include: str) -> int:
    """Run as nvcc.

    Parameters
    ----------
    arguments : list of str
        As nvcc's command line.
    root : str
        The folder that build.py made, with ``include/``.
    cuda_include : str
        The folder of the real CUDA headers.
    """
    request = Request(arguments)
    if request.version:
        # Caches of compiled kernels ask for this: it tells builds and modes of the emulator apart.
        modes = " ".join(
            f"{name}={os.environ.get(name, '')}"
            for name in ("CUEMU_CHECK", "CUEMU_REAL_NVCC", "CUEMU_INEXACT", "CUEMU_CXXFLAGS")
        )
        print(
            f"nvcc: stand-in of the emulated CUDA driver\nCuda compilation tools, release 13.0, V13.0.0\n{root} {modes}"
        )
        return 0
    if not request.source:
        sys.exit("nvcc: name a source file")
    if request.mode == "preprocess":
        cxx = os.environ.get("CUEMU_CXX", "g++")
        command = [cxx, *flags(root, cuda_include, False), *request.cxx, "-include", header(root, False)]
        os.execvp(cxx, [*command, "-E", "-P", "-x", "c++", request.source])
    if request.mode != "cubin":
        sys.exit("nvcc: the emulator's nvcc makes cubins only; pass --cubin")
    try:
        return compile_cubin(request, root, cuda_include)
    except (OSError, SourceError) as error:
        sys.exit(f"nvcc: {request.source}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[3:], sys.argv[1], sys.argv[2]))
