"""Index files of a folder with one subfolder per class, for external loaders."""

from __future__ import annotations

import csv
import io
import os
from fnmatch import fnmatch

from neonlike.data.protocol import MissingData
from neonlike.util.atomic import replacing
from neonlike.util.persist import expand

__all__ = ["Indexer"]


class Indexer:
    """Writes an index of the files in a folder: CSV with the columns ``filename`` and ``label``.

    Labels number the subfolders in alphabetical order; file names are relative to the folder.

    Parameters
    ----------
    repo_dir : folder
        Folder with a subfolder for each class.
    index_file : str
        Name of the index, relative to the folder unless it is absolute.
    pattern : str
        Shell pattern of the listed file names.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> from neonlike.data.indexer import Indexer
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("cats", "dogs"):
    ...     os.makedirs(os.path.join(folder.name, name))
    ...     open(os.path.join(folder.name, name, "one.jpg"), "w").close()
    >>> [label for file, label in Indexer(folder.name).files()]
    [0, 1]
    >>> folder.cleanup()
    """

    def __init__(self, repo_dir: str, index_file: str = "index.csv", pattern: str = "*.jpg") -> None:
        self.repo_dir = expand(repo_dir)
        self.index_file = os.path.join(self.repo_dir, index_file)
        self.pattern = pattern

    def files(self) -> list[tuple[str, int]]:
        """Names and labels."""
        if not os.path.isdir(self.repo_dir):
            raise MissingData(f"Indexer: there is no folder {self.repo_dir}")
        with os.scandir(self.repo_dir) as entries:
            classes = sorted(entry.name for entry in entries if entry.is_dir())
        return [
            (os.path.join(name, file), label)
            for label, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(self.repo_dir, name)))
            if fnmatch(file, self.pattern)
        ]

    def run(self) -> str:
        """Write the index, replacing an earlier one, and return its path.

        Raises
        ------
        MissingData
            If the folder does not exist, or has no matching file.
        """
        if not (found := self.files()):
            raise MissingData(f"Indexer: {self.repo_dir} has no file {os.path.join('<class>', self.pattern)}")
        table = io.StringIO(newline="")
        csv.writer(table).writerows([("filename", "label"), *found])
        with replacing(self.index_file) as file:
            file.write(table.getvalue().encode())
        return self.index_file
