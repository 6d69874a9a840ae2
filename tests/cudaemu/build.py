"""Builds the emulator's libraries and precompiled headers, once for each version of the sources and the compiler.

lib/                the emulated driver, cuBLAS and NCCL, under the names that programs load
link/               the driver, for linkers
precompiled/*.h     the CUDA language for the host, with and without the checker's hooks
bin/nvcc            the stand-in for the compiler
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import nvcc
from .toolkit import EmulatorBroken, cache_folder, compiler_identity, cuda_include, host_compiler

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
LIBRARIES = ("libcuda.so.1", "libcuda.so", "libcublas.so.13", "libcublas.so", "libcudart.so", "libnccl.so.2")
STAND_IN = ("nvcc.py", "cuda_source.py")
DRIVER_FLAGS = ["-O2", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
CUBLAS_FLAGS = ["-O3", "-march=native", "-std=c++17", "-fPIC", "-Wall", "-Wextra"]
KEEP_DAYS = 14
"""How long a build that nobody uses any more stays in the cache."""


def symbols(library: str) -> list[str]:
    """The functions that a library must have, from the list beside the sources."""
    lines = (SOURCES / f"{library}_symbols.txt").read_text().splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def unsupported_source(library: str) -> str:
    """C++ that defines those functions, for the linker to take where no real definition exists."""
    answer = "cuemu_unsupported" if library == "cuda" else f"cuemu_{library}_unsupported"
    weak = 'extern "C" __attribute__((weak, visibility("default")))'
    lines = [f'{weak} int {name}() {{ return {answer}("{name}"); }}' for name in symbols(library)]
    return f'extern "C" int {answer}(const char *);\n' + "\n".join(lines) + "\n"


def build_key(compiler: str, include: Path) -> str:
    """Hash of all inputs of a build."""
    digest = hashlib.sha256(f"{compiler_identity(compiler)}\0{include}\0{interpreter()}\0".encode())
    digest.update((include / "cuda.h").read_bytes())
    for path in sorted([*HERE.glob("*.py"), *SOURCES.iterdir(), *(HERE / "include").iterdir()]):
        if path.name != "install.py" and not path.name.startswith("test_"):
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def build() -> Path:
    """The folder with the built emulator; it is built if need be, by one process where several ask.

    Raises
    ------
    EmulatorUnavailable
        No g++, no CUDA headers, or no folder to build in.
    EmulatorBroken
        The sources do not compile.
    """
    compiler, include = host_compiler(), cuda_include()
    cache = cache_folder()
    folder = cache / f"cudaemu-{build_key(compiler, include)}"
    ready = folder / "ready"
    if not ready.exists():
        with locked(cache / "cudaemu.lock"):
            if not ready.exists():
                _build_into(folder, compiler, include)
                ready.touch()
                _remove_old(cache)
    else:
        os.utime(ready)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes; the system gives it back when a process dies."""
    import fcntl  # which Windows does not have; nothing is built there

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_old(cache: Path) -> None:
    oldest = time.time() - KEEP_DAYS * 86400
    for ready in cache.glob("cudaemu-*/ready"):
        if ready.stat().st_mtime < oldest:
            shutil.rmtree(ready.parent, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulatorBroken(
            f"the emulated CUDA driver cannot be built: {shlex.join(command)}\n{done.stderr}"
        )


def _build_into(folder: Path, compiler: str, include: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("bin", "lib", "link", "objects", "precompiled", "pycuda-cache", "python"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(HERE / "include", folder / "include")
    shutil.copytree(SOURCES, folder / "src")  # beside include/, as the sources expect
    for library in ("cuda", "cublas", "cudart"):
        (folder / "src" / f"unsupported_{library}.cpp").write_text(unsupported_source(library))
    _write_stand_in(folder, include)

    def compile_one(source: Path) -> None:
        flags = CUBLAS_FLAGS if "cublas" in source.name else DRIVER_FLAGS
        target = folder / "objects" / f"{source.stem}.o"
        _run([compiler, *flags, "-isystem", str(include), "-c", str(source), "-o", str(target)])

    def precompile(checked: bool, inexact: bool = False) -> None:
        header = nvcc.header(str(folder), checked, inexact)
        Path(header).write_text('#include "cuda_on_cpu.h"\n')
        flags = nvcc.flags(str(folder), str(include), checked, inexact)
        _run([compiler, *flags, "-x", "c++-header", header, "-o", f"{header}.gch"])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(compile_one, source) for source in sorted((folder / "src").glob("*.cpp"))]
        work += [pool.submit(precompile, *modes) for modes in ((False,), (True,), (False, True))]
        for done in work:
            done.result()
    _link(folder, compiler)
    shutil.rmtree(folder / "objects")


def _link(folder: Path, compiler: str) -> None:
    lib = folder / "lib"
    objects = sorted((folder / "objects").glob("*.o"))
    cublas, cudart, nccl = (
        [str(path) for path in objects if name in path.name] for name in ("cublas", "cudart", "nccl")
    )
    driver = [str(path) for path in objects if str(path) not in (*cublas, *cudart, *nccl)]

    def link(name: str, *inputs: str) -> None:
        # -lm: kernels find the functions of the C library through the driver.
        flags = ["-shared", f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", f"-L{lib}"]
        _run([compiler, *flags, *inputs, "-lm", "-ldl", "-lpthread", "-o", str(lib / name)])

    link("libcuda.so.1", *driver)
    (folder / "link" / "libcuda.so").symlink_to("../lib/libcuda.so.1")
    link("libcublas.so.13", *cublas, "-l:libcuda.so.1")
    link("libnccl.so.2", *nccl, "-l:libcuda.so.1", "-lrt")
    # Bindings ask for either name, and the loader knows a library by one: the other is a library that needs it.
    link("libcuda.so", "-l:libcuda.so.1")
    link("libcublas.so", "-l:libcublas.so.13")
    link("libcudart.so", *cudart)


def interpreter() -> str:
    """This Python itself, not the link to it in an environment: builds are shared, and outlive environments."""
    return os.path.realpath(sys.executable)


def _write_stand_in(folder: Path, include: Path) -> None:
    for name in STAND_IN:
        shutil.copy(HERE / name, folder / "python" / name)
        py_compile.compile(str(folder / "python" / name))
    # A main program is compiled at each start, a module is not.
    main = folder / "python" / "main.py"
    main.write_text(
        f"import sys\nimport nvcc\nsys.exit(nvcc.main(sys.argv[1:], {str(folder)!r}, {str(include)!r}))\n"
    )
    script = folder / "bin" / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(interpreter())} -SE {shlex.quote(str(main))} "$@"\n')
    script.chmod(0o755)
