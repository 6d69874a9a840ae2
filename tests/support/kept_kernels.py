"""The folder where runs of the tests keep compiled kernels: a later run compiles only what is new.

It is a cache like a program's, beside the user's own, with the same keys and checks (neonlike/kernels/build/cache.py).
A key has the source text, the headers, the flags, the compiler's version and the processor in it, so a kernel of other
sources is never found; and checkouts that compile in another way have folders apart. Any number of runs, workers and
checkouts may use a folder at once.

Tests of caches have an empty one of their own. What their compilers make of a source is kept in the folder too, by the
compilers: they start, and find it there.

``NEONLIKE_TEST_CACHE`` names another folder; ``NEONLIKE_TEST_CACHE=0`` makes a new one for this run alone, as on a
machine that never ran the tests. ``NEONLIKE_CACHE_DIR``, if it is set, goes before both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import neonlike
from neonlike import settings
from neonlike.kernels.build.cache import default_directory, distrust

VARIABLE = "NEONLIKE_TEST_CACHE"
OF_COMPILERS = "CUEMU_KEPT"
"""Names the same folder to the emulated nvcc, for tests whose own cache of kernels is empty."""
LIMIT_MB = 2048
"""Several times what a run of `make test` writes."""
KEEP_DAYS = 14
"""How long the folder of code that nobody runs any more stays."""
COMPILES = ("build/*.py", "c/compile.py", "c/toolchain.py", "cuda/compile.py", "cuda/nvrtc.py")
"""Code below ``neonlike/kernels`` that makes an entry of a source: a fault in it must not reach other checkouts."""

_of_this_run: list[Path] = []
"""Folders that end with this process."""


def keep_kernels() -> str:
    """Have this process and all that it starts keep kernels in the folder; returns a line that says where they are."""
    where = _choose_folder()
    os.environ[OF_COMPILERS] = settings.CACHE_DIR.text
    return where


def _choose_folder() -> str:
    if named := settings.CACHE_DIR.text:
        return f"kernels: in {named} (NEONLIKE_CACHE_DIR)"
    wanted = os.environ.get(VARIABLE, "").strip()
    reason = f"{VARIABLE}=0"
    if wanted != "0":
        folder, reason = usable_folder(wanted)
        if not reason:
            settings.CACHE_DIR.put(str(folder))
            if not settings.CACHE_MB.text:
                settings.CACHE_MB.put(str(LIMIT_MB))
            return f"kernels: kept in {folder}"
    _of_this_run.append(Path(tempfile.mkdtemp(prefix="neonlike-tests-")))
    settings.CACHE_DIR.put(str(_of_this_run[-1]))
    return f"kernels: not kept ({reason})"


def usable_folder(named: str) -> tuple[Path, str]:
    """The folder to keep kernels in, made if it is missing, and why it cannot be used (empty: it can)."""
    folder = Path(named)
    try:
        parent = folder.expanduser().absolute() if named else default_directory().with_name("neonlike-tests")
        folder = parent / f"by-{digest_of_compiling()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            os.utime(folder)
        if not (reason := distrust(folder)):
            remove_old(parent)
        return folder, reason
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        return folder, str(error)


def digest_of_compiling() -> str:
    """Names the code that compiles: the kernels of other code lie in other folders."""
    kernels = Path(neonlike.__file__).parent / "kernels"
    paths = sorted(path for pattern in COMPILES for path in kernels.glob(pattern))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def remove_old(parent: Path) -> None:
    """Remove the folders of code that nobody ran for long."""
    for folder in parent.glob("by-*"):
        with contextlib.suppress(FileNotFoundError):  # another run removes it
            if time.time() - folder.stat().st_mtime > KEEP_DAYS * 86_400:
                shutil.rmtree(folder, ignore_errors=True)


def remove_folder_of_this_run() -> None:
    """Remove what was not to be kept."""
    while _of_this_run:
        shutil.rmtree(_of_this_run.pop(), ignore_errors=True)
