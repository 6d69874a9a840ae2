"""Packages for the check of a GPU machine besides PyTorch, NumPy and the like: fetched here, installed there.

``python packages.py fetch .gpu-wheels --python 3.12`` needs a registry; ``python packages.py install SITE --wheels
.gpu-wheels`` needs none: it puts what this interpreter lacks into the folder SITE, and builds PyCUDA for the driver
that is there. Without a folder of wheels it asks the registry. The interpreter's own installation is not changed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
NEEDED = (
    "ConfigArgParse", "Jinja2", "MarkupSafe", "Mako", "platformdirs", "pytools", "siphash24", "typing_extensions",
    "pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-xdist", "execnet", "hypothesis",
    "sortedcontainers", "ml_dtypes",
)  # fmt: skip
"""Of the library, its tests, and PyCUDA; NumPy and its like are expected there."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
HEADERS = ("cuda.h", "cudaProfiler.h")
"""What PyCUDA includes of CUDA; of Python it includes Python.h."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def pins() -> dict[str, str]:
    """Requirement by package of the extra ``gpu-test``: versions stand in pyproject.toml only."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^gpu-test = (\[.*\])$", text, re.MULTILINE)
    assert listed, "pyproject.toml has no line gpu-test = [...]"
    found: list[str] = [line for line in json.loads(listed[1]) if not line.startswith("neonlike")]
    return {re.split(r"[<>=]", line)[0]: line for line in found}


def run(*command: str, cwd: Path | None = None, **environment: str) -> None:
    """Run a command, or end with its status."""
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise SystemExit(f"failed with status {done.returncode}: {' '.join(command)}")


def fetch(folder: Path, python: str) -> None:
    """Download everything for Linux on x86-64 and this version of Python: wheels, and PyCUDA as source."""
    wanted = pins()
    source = wanted.pop("pycuda")
    shutil.rmtree(folder, ignore_errors=True)
    binary = [option for name in PLATFORMS for option in ("--platform", name)]
    binary += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    run(*PIP, "download", "--no-deps", "--dest", str(folder), *binary, *NEEDED, *wanted.values())
    run(*PIP, "download", "--no-deps", "--dest", str(folder), "--no-binary", "pycuda", source)
    build_for(folder, python)


def build_for(folder: Path, python: str) -> bool:
    """Put a wheel of PyCUDA for this version of Python into ``folder``, if it can be built on this machine.

    It is linked with the emulated driver, which has the functions of the real one.
    """
    program = next(pythons(python), "")
    code = "import sys; from tests.cudaemu.install import pycuda_wheel; print(pycuda_wheel(sys.argv[1]))"
    done = subprocess.CompletedProcess([], 1, stdout="", stderr="there is no such Python")
    if program and sys.platform == "linux" and os.uname().machine == "x86_64":
        command = [sys.executable, "-c", code, program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        print(f"No wheel of PyCUDA for Python {python} was built here ({why}): the other machine builds it")
        return False
    wheel = Path(done.stdout.split()[-1])
    shutil.copy(wheel, folder)
    print(f"{wheel.name} travels along")
    return True


def pythons(version: str) -> Iterator[str]:
    """Interpreters of this version that run: those on PATH, where a stand-in of pyenv may not, and pyenv's own."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += sorted(root.glob(f"versions/{version}*/bin"), reverse=True)
    for folder in folders:
        program = folder / f"python{version}"
        if os.access(program, os.X_OK):
            done = subprocess.run([str(program), "-c", ""], capture_output=True, check=False)
            if done.returncode == 0:
                yield str(program)


# Installing -----------------------------------------------------------------------------------------------------


def lacking() -> list[str]:
    """Requirements missing from this interpreter; PyCUDA is not among them."""
    found = [name for name in NEEDED if not _version(name)]
    if not _pinned("scikit-cuda"):
        found.append(pins()["scikit-cuda"])
    if importlib.util.find_spec("pkg_resources") is None:  # of setuptools before 81, for scikit-cuda
        found.append(pins()["setuptools"])
    return found


def _pinned(name: str) -> bool:
    """Whether this version is installed that the tests ask for."""
    return f"{name}=={_version(name)}" == pins()[name]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def install(site: Path, wheels: Path, emulated: bool) -> None:
    """Install the missing packages into ``site``."""
    site.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(site))  # of an earlier run
    offline = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []
    into = ["install", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade", "--target", str(site)]
    for name in lacking():  # one by one: what is not to be had may be needed by one step only, which then says so
        print("Installing", name, flush=True)
        with contextlib.suppress(SystemExit):
            run(*PIP, *into, *offline, name)
    here = {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    path = [emulated_library(here)] if emulated else []
    if _pinned("pycuda") and _imports(here, *path):
        print("PyCUDA was there")
        return
    for wheel in sorted(wheels.glob(f"pycuda-*-{_tag()}-*.whl")):
        with contextlib.suppress(SystemExit):
            run(*PIP, *into, *offline, str(wheel))
        if _imports(here, *path):
            print(f"PyCUDA installed from {wheel.name}")
            return
        print(f"{wheel.name} does not load here; building PyCUDA instead", flush=True)
    start = time.monotonic()
    run(*PIP, *into, *offline, str(build_pycuda(site.parent, wheels, path[0] if path else driver_library(), here)))
    if not _imports(here, *path):
        raise SystemExit("PyCUDA was built, but does not load")
    print(f"PyCUDA built in {time.monotonic() - start:.0f} s")


def _tag() -> str:
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def _imports(environment: dict[str, str], *driver: Path) -> bool:
    """Whether ``pycuda.driver`` loads, with the library of this driver if one is named."""
    more = {"LD_LIBRARY_PATH": str(driver[0].parent)} if driver else {}
    done = subprocess.run(
        [sys.executable, "-c", "import pycuda.driver"], env={**os.environ, **environment, **more}, check=False
    )
    return done.returncode == 0


def emulated_library(environment: dict[str, str]) -> Path:
    """libcuda of the emulated driver, built now."""
    command = [sys.executable, "-m", "tests.cudaemu", "build"]
    said = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return Path(said.split()[-1], "lib", "libcuda.so.1")


def driver_library() -> Path:
    """The real driver's, wherever the system finds it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as why:
        raise SystemExit(f"there is no driver of a GPU on this machine: {why}") from None
    maps = Path("/proc/self/maps").read_text()
    return Path(next(line.split(maxsplit=5)[5] for line in maps.splitlines() if "libcuda.so" in line).strip())


def cuda_include() -> Path:
    """The folder of CUDA's headers: a toolkit's, or that of NVIDIA's packages for pip."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    roots = [Path(name) for name in named] + ([Path(os.path.realpath(nvcc)).parent.parent] if nvcc else [])
    folders = [root / "include" for root in [*roots, Path("/usr/local/cuda"), Path("/opt/cuda")]]
    folders += [folder for entry in sys.path if entry for folder in Path(entry).glob("nvidia/*/include")]
    found = next((folder for folder in folders if all((folder / name).is_file() for name in HEADERS)), None)
    if found is None:
        raise SystemExit(
            f"CUDA's headers {' and '.join(HEADERS)} were not found in one folder: install the CUDA toolkit (the "
            "second is in its package cuda-profiler-api), or name its folder by CUDA_HOME"
        )
    return found


def build_pycuda(work: Path, wheels: Path, driver: Path, environment: dict[str, str]) -> Path:
    """The wheel of PyCUDA, built from its sources in ``wheels`` or from the registry's."""
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise SystemExit("Python.h is missing, which PyCUDA is built with: install python3-dev")
    if not wheels.is_dir():
        run(*PIP, "download", "--no-deps", "--dest", str(work), "--no-binary", "pycuda", pins()["pycuda"])
    archive = next(iter(sorted([*wheels.glob("pycuda-*.tar.gz"), *work.glob("pycuda-*.tar.gz")])))
    with tarfile.open(archive) as packed:
        packed.extractall(work)
    source = work / archive.name.removesuffix(".tar.gz")
    libraries, include = work / "driver", cuda_include()
    libraries.mkdir(exist_ok=True)
    for name in ("libcuda.so", "libcuda.so.1"):
        (libraries / name).unlink(missing_ok=True)
        (libraries / name).symlink_to(driver)
    (source / "siteconf.py").write_text(
        f"CUDA_ROOT = {str(include.parent)!r}\nCUDA_INC_DIR = [{str(include)!r}]\nCUDA_ENABLE_CURAND = False\n"
        f"CUDADRV_LIB_DIR = [{str(libraries)!r}]\n"
    )
    run(sys.executable, str(HERE / "build_pycuda.py"), str(work / "wheel"), cwd=source, **environment)
    return next(_newest(work / "wheel"))


def _newest(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("pycuda-*.whl"), key=lambda path: -path.stat().st_mtime)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("fetch", help="download everything")
    one.add_argument("folder", type=Path)
    one.add_argument("--python", default="3.12", help="version of the other machine's Python")
    other = commands.add_parser("install", help="install what is lacking, build PyCUDA")
    other.add_argument("folder", type=Path)
    other.add_argument("--wheels", type=Path, default=ROOT / ".gpu-wheels")
    other.add_argument("--emulated", action="store_true", help="for the emulated driver of tests/cudaemu")
    asked = parser.parse_args()
    if asked.command == "fetch":
        fetch(asked.folder, asked.python)
    else:
        install(asked.folder.absolute(), asked.wheels.absolute(), asked.emulated)


if __name__ == "__main__":
    main()
