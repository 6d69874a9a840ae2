"""Other systems, as far as one system can stand in for them: what they lack is taken away before the import."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.packages.scripts import USE, run_script
from tests.support.engines import needs_compiler

pytestmark = pytest.mark.cpu_only("starts processes on the CPU")

LACKS = """
import asyncio, ctypes, importlib.metadata, mmap, multiprocessing, os, pathlib, platform, select, shutil, signal
import socket, subprocess, sys, sysconfig, tempfile, urllib.request, builtins
import concurrent.futures.thread, logging.handlers, xml.dom.minidom
import numpy, jinja2, configargparse  # with the standard library, made for the real system
import ctypes.util
sysconfig.get_config_vars()
ctypes.util.find_library = lambda name: None

real_open = builtins.open
def without_proc(file, *args, **kwargs):
    if isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(file))
    return real_open(file, *args, **kwargs)
builtins.open = without_proc

def lose(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
lose(os, "sched_getaffinity", "sched_setaffinity", "sched_getcpu", "memfd_create", "posix_fadvise", "process_cpu_count")
"""

MACOS = f"""{LACKS}
sys.platform = "darwin"
platform.system = lambda: "Darwin"
platform.machine = lambda: "arm64"
os.uname = lambda: os.uname_result(("Darwin", "mac", "23", "Darwin Kernel", "arm64"))
"""

WINDOWS = f"""{LACKS}
sys.platform = "win32"
platform.system = lambda: "Windows"
platform.machine = lambda: "AMD64"
lose(os, "fork", "register_at_fork", "killpg", "getpgid", "setsid", "getuid", "geteuid", "getgid", "getegid", "uname",
     "fchown", "chown", "sysconf", "getloadavg", "nice", "mkfifo")
lose(signal, "pthread_kill", "pthread_sigmask", "SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "setitimer")
lose(select, "poll", "epoll")
for name in ("fcntl", "resource", "pwd", "grp", "termios", "_posixshmem"):
    sys.modules[name] = None  # import fails
shutil.which = lambda *args, **kwargs: None
def no_links(*args, **kwargs):
    raise OSError(1314, "A required privilege is not held by the client")
os.symlink = no_links
"""

EVERYTHING = """
import importlib, pkgutil
import neonlike
for module in pkgutil.walk_packages(neonlike.__path__, "neonlike."):
    if not module.name.startswith("neonlike.backends.gpu.") and not module.name.endswith("__main__"):
        if module.name != "neonlike.compat.neon":
            importlib.import_module(module.name)
import neonlike.backends.gpu.doctor
from neonlike.util.display_information import display_cpu_information, display_platform_information
from neonlike.util.shelver import atomic_shelve
from neonlike.data import fetch
display_cpu_information(), display_platform_information()
for value in (1, 2):
    with atomic_shelve(sys.argv[1] + ".counts") as counts:
        counts["runs"] = value
with fetch._locked(sys.argv[1] + ".part"):
    pass
from neonlike.__main__ import main
assert main(["doctor"]) != 2 and main(["cache"]) == 0
"""

SYSTEMS = {"macOS": MACOS, "Windows": WINDOWS}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_numpy_engine_needs_nothing_that_a_system_lacks(system: str, tmp_path: Path) -> None:
    done = run_script(
        SYSTEMS[system] + EVERYTHING + USE, tmp_path / "model.prm", HOME=str(tmp_path), LOCALAPPDATA=str(tmp_path),
        NEONLIKE_CPU_JIT="0", NEONLIKE_CACHE_DIR=None, XDG_CACHE_HOME=None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("engine numpy files model.prm model_")


# Compilers for other systems -----------------------------------------------------------------------------------------

TEMPLATES = ROOT / "neonlike" / "kernels" / "templates" / "c"
COMPILERS = {
    "musl": "musl-gcc", "arm64": "aarch64-linux-gnu-gcc", "Windows": "x86_64-w64-mingw32-gcc",
}  # fmt: skip
"""Compilers of Debian's packages musl-tools, gcc-aarch64-linux-gnu and gcc-mingw-w64-x86-64."""


@pytest.fixture(params=COMPILERS)
def foreign(request: pytest.FixtureRequest) -> str:
    """A compiler for another system."""
    name = COMPILERS[request.param]
    if not shutil.which(name):
        pytest.skip(f"there is no {name} here")
    return name


def compiled_by(compiler: str, source: Path, made: Path) -> str:
    """Words of a compiler that makes a library of a source; empty if there is nothing wrong with it."""
    flags = ("-std=gnu11", "-O1", "-fPIC", "-fopenmp-simd", "-shared", "-pthread")
    headers = (f"-I{folder}" for folder in (TEMPLATES, *TEMPLATES.iterdir()) if folder.is_dir())
    command = [compiler, *flags, *headers, str(source), "-o", str(made), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr or "x" * done.returncode


def test_worker_threads_compile_for_other_systems(foreign: str, tmp_path: Path) -> None:
    assert compiled_by(foreign, TEMPLATES / "workers.c", tmp_path / "workers.so") == ""


def test_kernels_compile_for_other_systems(foreign: str, tmp_path: Path) -> None:
    needs_compiler()
    done = run_script(
        USE, tmp_path / "model.prm", NEONLIKE_CACHE_DIR=str(tmp_path / "kernels"), NEONLIKE_KEEP_SOURCE="1",
        NEONLIKE_OPTIMIZE="1", NEONLIKE_FASTPATH="0", NEONLIKE_CPU_JIT="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sources = list((tmp_path / "kernels").rglob("*.c"))
    assert len(sources) > 5
    words = {source.name: compiled_by(foreign, source, tmp_path / "kernel.so") for source in sources}
    assert {name: text for name, text in words.items() if text} == {}
