"""Moves data set files from the scripts' folders to the folder in ``NEON_DATA_CACHE_DIR``.

python -m neonlike.util.update_dataset_cache ~/nervana/data
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence

from neonlike import console
from neonlike.settings import NEON_DATA_CACHE_DIR
from neonlike.util.persist import expand, get_data_cache_or_nothing

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Move all files of a folder, except those that exist at the target, and return the exit status."""
    about = f"Moves files of data sets to the folder that {NEON_DATA_CACHE_DIR.name} names."
    parser = argparse.ArgumentParser(prog="update_dataset_cache", description=about)
    parser.add_argument("source", nargs="?", default="~/nervana/data", help="the folder they are in")
    source, target = expand(parser.parse_args(argv).source), get_data_cache_or_nothing()
    if not target or not os.path.isdir(source):
        missing = f"{source} is no folder" if target else f"set {NEON_DATA_CACHE_DIR.name} to the folder to move to"
        print(f"update_dataset_cache: {missing}", file=sys.stderr)
        return 1
    if os.path.realpath(source) == os.path.realpath(target):
        return 0
    for name in sorted(os.listdir(source)):
        there = os.path.exists(os.path.join(target, name))
        print(f"{name}: {'is there already' if there else 'moved'}")
        if not there:
            shutil.move(os.path.join(source, name), target)
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main))
