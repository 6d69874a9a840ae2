"""Install the packages for the GPU tests into this environment: ``python -m tests.cudaemu.install``, run by `make
test`.

PyCUDA comes as source and must be built against a driver library and the CUDA headers. Without a toolkit the headers
come from PyPI, and the library is the emulated one: a wheel linked with it runs on a real driver too. It is built once
for each interpreter and kept in the cache folder. Where that is impossible the reason is kept for the tests, which say
it when they skip; with NEONLIKE_REQUIRE_GPU_TESTS=1 it is an error.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .build import build, locked
from .toolkit import (
    EmulatorBroken,
    EmulatorUnavailable,
    cache_folder,
    cuda_include,
    disassembler,
    find_cuda_include,
    has_nvrtc,
    nvrtc_site,
    real_nvcc,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings on Python 3.10

PROJECT = Path(__file__).resolve().parent.parent.parent / "pyproject.toml"
REQUIRE_VARIABLE = "NEONLIKE_REQUIRE_GPU_TESTS"
REASON = Path(sys.prefix) / "neonlike-gpu-tests.txt"
"""Why the last installation failed."""

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def requirements(extra: str) -> list[str]:
    """Requirements of an extra of the project; the versions stand in pyproject.toml only."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return [str(line) for line in project["optional-dependencies"][extra] if not line.startswith("neonlike[")]


def pinned(package: str) -> str:
    """The version of a package that the GPU tests are made for."""
    name, _, version = next(line for line in requirements("gpu-test") if line.startswith(package)).partition(
        "=="
    )
    assert name == package and version, f"{package} is not pinned in pyproject.toml"
    return version


def installed(package: str) -> str:
    """The version of an installed package, or nothing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def missing() -> str:
    """Sentence about the missing parts of the GPU tests; empty if they can run."""
    for package in ("pycuda", "scikit-cuda"):
        if installed(package) != pinned(package):
            found = installed(package) or "not installed"
            why = (
                f"; the last attempt: {REASON.read_text().strip()}"
                if REASON.exists()
                else "; run `make gpu-setup`"
            )
            return f"{package} {pinned(package)} is needed ({found}){why}"
    if importlib.util.find_spec("pkg_resources") is None:
        return (
            "scikit-cuda needs the package pkg_resources, which setuptools 81 dropped; run `make gpu-setup`"
        )
    return ""


def _run(what: str, command: list[str], **environment: str) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = [line for line in done.stdout.splitlines() if line.strip() and "WARNING" not in line][-3:]
        sys.stderr.write(done.stdout)
        raise EmulatorUnavailable(f"{what} failed: {' / '.join(last)}")


def pycuda_wheel(python: str = sys.executable) -> Path:
    """The wheel of PyCUDA for this interpreter, or another, built if the cache has none (a minute or two)."""
    version, tag = pinned("pycuda"), sys.implementation.cache_tag
    if python != sys.executable:
        ask = [python, "-c", "import sys; print(sys.implementation.cache_tag)"]
        tag = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    cache = cache_folder()
    folder = cache / f"pycuda-{version}-{tag}-{os.uname().machine}"
    with locked(cache / "pycuda.lock"):
        if not (wheels := list(folder.glob("*.whl"))):
            print(
                f"Building PyCUDA {version} (once for each Python, a minute or two; kept in {folder})",
                flush=True,
            )
            _build_wheel(version, folder, python)
            wheels = list(folder.glob("*.whl"))
    return wheels[0]


def _build_wheel(version: str, folder: Path, python: str) -> None:
    include, emulator = cuda_include(), build()
    with tempfile.TemporaryDirectory(prefix="neonlike-pycuda-") as name:
        scratch = Path(name)
        # PyCUDA's setup.py takes its settings from this file in the home directory and from nowhere else.
        (scratch / ".aksetup-defaults.py").write_text(
            f"CUDA_ROOT = {str(include.parent)!r}\nCUDA_INC_DIR = [{str(include)!r}]\n"
            f"CUDADRV_LIB_DIR = [{str(emulator / 'link')!r}]\nCUDA_ENABLE_CURAND = False\n"
        )
        home = Path.home()
        _run(
            f"building PyCUDA {version}",
            [
                python,
                *_PIP[1:],
                "wheel",
                "--no-deps",
                "--no-binary",
                "pycuda",
                "--wheel-dir",
                str(scratch / "wheel"),
                f"pycuda=={version}",
            ],
            HOME=str(scratch),
            # pip's own settings stay those of the user.
            XDG_CONFIG_HOME=os.environ.get("XDG_CONFIG_HOME") or str(home / ".config"),
            XDG_CACHE_HOME=os.environ.get("XDG_CACHE_HOME") or str(home / ".cache"),
        )
        folder.mkdir(mode=0o700, exist_ok=True)
        for wheel in (scratch / "wheel").glob("*.whl"):
            shutil.copy(wheel, folder / f".{wheel.name}")
            os.replace(folder / f".{wheel.name}", folder / wheel.name)


def install() -> None:
    """Install everything; raises EmulatorUnavailable with the reason if that is impossible."""
    if find_cuda_include() is None:
        print("Installing the headers of CUDA (once)", flush=True)
        _run("installing the headers of CUDA", [*_PIP, "install", *requirements("cuda-headers")])
        importlib.invalidate_caches()
        find_cuda_include.cache_clear()
    build()
    if missing():
        wheel = pycuda_wheel()
        others = [line for line in requirements("gpu-test") if not line.startswith("pycuda")]
        _run("installing PyCUDA and scikit-cuda", [*_PIP, "install", str(wheel), *others])
        importlib.invalidate_caches()
        REASON.unlink(missing_ok=True)
    if lacking := missing():
        raise EmulatorUnavailable(lacking)
    install_disassembler()
    install_nvrtc()


def install_nvrtc() -> None:
    """NVRTC in a folder of the cache; without it, the tests that ask it are skipped."""
    if has_nvrtc():
        return
    site = nvrtc_site()
    try:
        with locked(cache_folder() / "nvrtc.lock"), tempfile.TemporaryDirectory(dir=cache_folder()) as name:
            fresh = Path(name, "site")
            into = ["install", "--no-deps", "--no-compile", "--target", str(fresh)]
            _run("fetching NVRTC", [*_PIP, *into, *requirements("cuda-nvrtc")])
            shutil.rmtree(site, ignore_errors=True)
            os.replace(fresh, site)
    except (EmulatorUnavailable, OSError) as error:
        print(f"Tests that compile kernels with NVRTC will be skipped: {error}", file=sys.stderr)


def install_disassembler() -> None:
    """NVIDIA's disassembler, where a toolkit has nvcc without it; without either, tests of instructions are skipped."""
    if disassembler() or not real_nvcc():
        return
    try:
        _run("installing NVIDIA's disassembler", [*_PIP, "install", *requirements("cuda-sass")])
    except EmulatorUnavailable as error:
        print(f"Tests that look at the instructions of kernels will be skipped: {error}", file=sys.stderr)


def main() -> int:
    """Run as a program; the exit status is that of a failure only where GPU tests are required."""
    try:
        install()
    except (EmulatorUnavailable, EmulatorBroken) as error:
        REASON.write_text(f"{error}\n")
        required = os.environ.get(REQUIRE_VARIABLE) == "1"
        print(
            f"{'No' if required else 'The'} GPU tests {'can run' if required else 'will be skipped'}: {error}",
            file=sys.stderr,
        )
        return int(required)
    return 0


if __name__ == "__main__":
    sys.exit(main())
