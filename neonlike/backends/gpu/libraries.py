"""Where NVIDIA's libraries lie on this machine, for those that are loaded by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

TOOLKIT = "/usr/local/cuda"


def library_folders() -> Iterator[Path]:
    """Folders with libraries: of the packages that pip installs, then of toolkits."""
    for entry in sys.path:
        yield from Path(entry or ".").glob("nvidia/*/lib")
        yield from Path(entry or ".").glob("nvidia/*/bin")
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), TOOLKIT):
        if home:
            yield from (Path(home, part) for part in ("lib64", "lib", "bin"))
