"""Lists of files as aeon 1.0 and later reads them, from those of earlier versions.

python -m neonlike.data.convert_manifest old.csv new.tsv
"""

from __future__ import annotations

import csv
import os
import sys

from neonlike.data.protocol import DamagedData, MissingData
from neonlike.util.atomic import replacing
from neonlike.util.persist import TEXT, expand

__all__ = ["convert_manifest"]


def convert_manifest(source_manifest: str, output_manifest: str) -> None:
    """Write a manifest with tabs and a header from one with commas and none.

    Each column holds names of files, so the header is ``@FILE`` for each.

    Raises
    ------
    MissingData, DamagedData
        If there is no such file, or its lines have different numbers of columns, or none.
    """
    source, target = expand(source_manifest), expand(output_manifest)
    if not os.path.isfile(source):
        raise MissingData(f"convert_manifest: there is no file {source}")
    with open(source, newline="", encoding=TEXT) as file:
        rows = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    if len({len(row) for row in rows}) != 1:
        raise DamagedData(f"convert_manifest: the lines of {source} have no, or different, numbers of columns")
    lines = ["\t".join(row) + "\n" for row in [["@FILE"] * len(rows[0]), *rows]]
    with replacing(target) as file:
        file.write("".join(lines).encode())


if __name__ == "__main__":
    convert_manifest(*sys.argv[1:3])
