"""Wheel and sdist of the working tree, built once for all tests that look at them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from neonlike import system
from tests import ROOT

BUILD = "import sys\nfrom setuptools import build_meta\nbuild_meta.build_{}(sys.argv[1])\n"
STRAYS = (
    "neonlike/__pycache__/version.cpython-312.pyc", "neonlike/optree/notes.txt", "neonlike/kernels/c/kernel.so",
    "neonlike/layers/layer.py.orig", "tests/support/__pycache__/trees.cpython-312.pyc", "tests/cudaemu/libcuda.so",
    "benchmarks/results/optree.csv", "examples/digits_mlp.png", "examples/metrics.h5", "plot.png", "docs/.DS_Store",
)  # fmt: skip
"""Files that lie about in working trees and belong in no package."""


@dataclass(frozen=True)
class Built:
    """Packages that were built.

    Attributes
    ----------
    sdist, wheel : Path
    source : Path
        The copy of the working tree, with strays, that both were built from.
    """

    sdist: Path
    wheel: Path
    source: Path


def kept_files() -> list[str]:
    """Files of the working tree that git keeps, or would if they were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"only git knows which files belong to the repository: {error}")
    return sorted(name for name in set(done.stdout.split("\0")) if name and (ROOT / name).is_file())


def build(source: Path, kind: str, out: Path) -> Path:
    """Build a package of ``kind``, "wheel" or "sdist", from a folder of sources, without the network."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", BUILD.format(kind), str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first of pytest's processes to ask for it has made, and the others wait for."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with open(root / f"{name}.lock", "ab") as guard:
        system.lock(guard)
        folder, done = root / name, root / f"{name}.done"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def make_packages(folder: Path) -> None:
    """Copy the working tree, lay strays into it, and build both packages from that."""
    source = folder / "source"
    for name in kept_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    for name in STRAYS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"stray")
    build(source, "sdist", folder)
    build(source, "wheel", folder)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel and the sdist."""
    folder = shared(tmp_path_factory, "packages", make_packages)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel, folder / "source")
