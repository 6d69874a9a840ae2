"""Conversion of manifests for aeon: from versions before 1.0 to the current format.

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
    """Convert a comma-separated manifest without header to a tab-separated one with header.

    Each column holds file names, so its header is ``@FILE``.

    Parameters
    ----------
    source_manifest, output_manifest : path
        The file to read, and the file to write.

    Raises
    ------
    MissingData, DamagedData
        If the file does not exist, or its lines have different numbers of columns, or none.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> from neonlike.data.convert_manifest import convert_manifest
    >>> folder = tempfile.TemporaryDirectory()
    >>> old, new = (os.path.join(folder.name, name) for name in ("old.csv", "new.tsv"))
    >>> with open(old, "w") as file:
    ...     length = file.write("image.jpg,label.txt")
    >>> convert_manifest(old, new)
    >>> with open(new) as file:
    ...     print(file.read().split())
    ['@FILE', '@FILE', 'image.jpg', 'label.txt']
    >>> folder.cleanup()
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
