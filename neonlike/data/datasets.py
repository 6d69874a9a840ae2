"""Base of data sets: files in a local folder, downloaded if missing, with iterators over them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar

from neonlike.checks import brief
from neonlike.data.protocol import DamagedData
from neonlike.errors import ArgumentError, NotDefined
from neonlike.nervanaobject import Description, NervanaObject
from neonlike.util.atomic import replacing
from neonlike.util.persist import expand

__all__ = ["Dataset"]

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2")


class Dataset(NervanaObject):
    """Base of data sets; files are read when data are first requested.

    A subclass defines :meth:`load_data` and :meth:`gen_iterators`.

    Parameters
    ----------
    filename : str
        Name of the file to download.
    url : str
        Folder of the file on the network.
    size : int
        Size of the file in bytes; 0 if unknown.
    path : folder
        Folder for the files, created if missing. ``~`` and environment variables are expanded.
    subset_pct : float
        Percentage of the training data to use; most data sets accept only 100.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ArrayIterator, Dataset
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Squares(Dataset):
    ...     def load_data(self):
    ...         x = np.arange(4.0).reshape(4, 1)
    ...         return x, x**2
    ...     def gen_iterators(self):
    ...         return {"train": ArrayIterator(*self.load_data(), make_onehot=False)}
    >>> squares = Squares("", "", 0)
    >>> [t.tolist() for x, t in squares.train_iter]
    [[[0.0, 1.0]], [[4.0, 9.0]]]
    """

    DIGESTS: ClassVar[dict[str, str]] = {}
    """Name of a file -> its "md5:..." or "sha256:..." checksum, where published."""
    TAKES_SUBSETS: ClassVar[bool] = False

    def __init__(
        self, filename: str, url: str, size: int, path: str | os.PathLike[str] = ".", subset_pct: float = 100
    ) -> None:
        super().__init__()
        if not 0 < subset_pct <= 100 or (subset_pct != 100 and not self.TAKES_SUBSETS):
            expected = "a percentage, above 0 up to 100" if self.TAKES_SUBSETS else "100: it is used as a whole"
            raise ArgumentError(f"{self.classnm}: subset_pct={subset_pct}; expected {expected}")
        self.filename = filename
        self.url = url
        self.size = size
        self.path = os.fspath(path)
        self.subset_pct = subset_pct
        self._data_dict: dict[str, Any] | None = None

    # -- data ----------------------------------------------------------------------------------------------

    def load_data(self) -> Any:
        """Read the data."""
        raise NotDefined(f"{self.classnm} does not define load_data")

    def gen_iterators(self) -> dict[str, Any]:
        """Create the iterators, by the names of their parts."""
        raise NotDefined(f"{self.classnm} does not define gen_iterators")

    @property
    def data_dict(self) -> dict[str, Any]:
        """The iterators of :meth:`gen_iterators`, created once."""
        if self._data_dict is None:
            self._data_dict = self.gen_iterators()
        return self._data_dict

    def get_iterator(self, setname: str) -> Any:
        """The iterator over a part: "train", "valid", "test".

        Parameters
        ----------
        setname : str
            Name of the part, a key of ``data_dict``.

        Raises
        ------
        ArgumentError
            If the data set has no such part.
        """
        if setname not in self.data_dict:
            raise ArgumentError(
                f"{self.classnm}: there is no part {brief(setname)}; expected {' or '.join(map(repr, self.data_dict))}"
            )
        return self.data_dict[setname]

    @property
    def train_iter(self) -> Any:
        """Iterator over the training data."""
        return self.get_iterator("train")

    @property
    def valid_iter(self) -> Any:
        """Iterator over the validation data."""
        return self.get_iterator("valid")

    @property
    def test_iter(self) -> Any:
        """Iterator over the test data."""
        return self.get_iterator("test")

    def serialize(self) -> Description:
        """Describe the data set by its arguments."""
        return self.get_description()

    # -- files ---------------------------------------------------------------------------------------------

    def load_zip(self, filename: str, size: int) -> str:
        """Return the path of one of the data set's files, after downloading it if missing.

        A downloaded archive (zip or tar) is unpacked beside it.

        Parameters
        ----------
        filename : str
            Name of the file, in the folder of the data set and on the network.
        size : int
            Size in bytes, for the progress display; 0 if unknown.
        """
        path = self._valid_path_append(self.path, filename)
        if not os.path.exists(path):
            self.fetch_dataset(self.url, filename, path, size)
            unpack(path)
        return path

    def find(self, name: str, archive: str, size: int = 0) -> str:
        """Return the path of the file ``name``, after unpacking ``archive`` from its folder or downloading it.

        Parameters
        ----------
        name : str
            Path of the file, relative to the folder of the data set.
        archive : str
            File name of the zip or tar archive that has it.
        size : int
            Size of the archive in bytes, for the progress display; 0 if unknown.

        Raises
        ------
        DamagedData
            If the archive has no such file.
        """
        path = self._valid_path_append(self.path, name)
        if not os.path.exists(path):
            unpack(self.load_zip(archive, size))
        if not os.path.exists(path):
            raise DamagedData(f"{self.classnm}: {os.path.join(self.path, archive)} has no file {name}")
        return path

    @classmethod
    def fetch_dataset(cls, url: str, sourcefile: str, destfile: str, totalsz: int) -> str:
        """Download ``url/sourcefile`` to ``destfile`` (:func:`neonlike.data.fetch.fetch`); returns ``destfile``.

        Parameters
        ----------
        url : str
            Folder of the file on the network.
        sourcefile : str
            Name of the file there; its checksum in ``DIGESTS``, if any, is compared.
        destfile : path
            Path of the local file.
        totalsz : int
            Size in bytes, for the progress display; 0 if unknown.
        """
        from neonlike.data.fetch import fetch  # with all of Python's network

        return fetch(f"{url.rstrip('/')}/{sourcefile}", destfile, totalsz, cls.DIGESTS.get(sourcefile, ""))

    @staticmethod
    def _valid_path_append(path: str | os.PathLike[str], *args: str) -> Any:
        """Create the folder ``path``, and return it or the path in it of each of ``args``: one, or a list.

        Raises
        ------
        ArgumentError
            If ``path`` is a file.
        """
        folder = expand(path)
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise ArgumentError(f"{folder} is a file; expected the folder of a data set")
        os.makedirs(folder, exist_ok=True)
        paths = [os.path.join(folder, name) for name in args]
        return folder if not paths else paths[0] if len(paths) == 1 else paths


def unpack(path: str) -> None:
    """Unpack a zip or tar archive into its folder, atomically per file; existing files are kept.

    Other files are ignored.

    Parameters
    ----------
    path : path
        The archive.

    Raises
    ------
    DamagedData
        If the archive is damaged, or would write outside of the folder.
    """
    import tarfile
    import zipfile

    try:
        for name, opener in _members(path):
            _extract(path, name, opener)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, DamagedData) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise DamagedData(f"{path} is a damaged archive, or not a whole one ({error})") from error


def _members(path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of the files in an archive, with functions that open them."""
    import tarfile
    import zipfile

    lower = path.lower()
    if lower.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    yield info.filename, lambda info=info: archive.open(info)  # type: ignore[misc]
    elif lower.endswith(TAR):
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile():
                    yield member.name, lambda member=member: packed.extractfile(member)  # type: ignore[misc]


def _extract(archive: str, name: str, opener: Callable[[], IO[bytes]]) -> None:
    folder = os.path.realpath(os.path.dirname(os.path.abspath(archive)))
    target = os.path.realpath(os.path.join(folder, name))
    if os.path.commonpath([folder, target]) != folder:
        raise DamagedData(f"{archive} would write {name}, outside of its folder; nothing of it is used")
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with opener() as source, replacing(target) as file:
        shutil.copyfileobj(source, file)
