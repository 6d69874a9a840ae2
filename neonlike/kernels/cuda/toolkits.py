"""Locations of NVIDIA's compilers and libraries on a machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from neonlike import settings

TOOLKIT = "/usr/local/cuda"
HOMES = (settings.CUDA_HOME, settings.CUDA_PATH)
"""Environment variables that name a toolkit."""


def named_toolkits() -> Iterator[Path]:
    """Toolkits named by the environment."""
    for setting in HOMES:
        if home := setting.text:
            yield Path(home)


def library_folders() -> Iterator[Path]:
    """Library folders: of toolkits, then of packages installed by pip."""
    for home in (*named_toolkits(), Path(TOOLKIT)):
        yield from (home / part for part in ("lib64", "lib", "bin"))
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob("nvidia/*/lib"))
        yield from sorted(Path(entry or ".").glob("nvidia/*/bin"))
