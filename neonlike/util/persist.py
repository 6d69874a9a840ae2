"""Saving and loading of objects and models, class paths, and cache folders."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from neonlike import settings
from neonlike.checks import brief, checked, is_real, require_method
from neonlike.errors import ArgumentError, ArgumentTypeError
from neonlike.nervanaobject import load_class
from neonlike.util import archive
from neonlike.util.atomic import replacing
from neonlike.util.unpickle import LoadError, RefusedContent, UnreadableFile, admit, load, unreadable

__all__ = [
    "LoadError",
    "RefusedContent",
    "UnreadableFile",
    "admit",
    "ensure_dirs_exist",
    "get_cache_dir",
    "get_data_cache_dir",
    "get_data_cache_or_nothing",
    "is_plain",
    "load_class",
    "load_obj",
    "read_bytes",
    "save_model",
    "save_obj",
    "serialize",
    "write_file",
]

TEXT = "utf-8-sig"
"""Encoding for reading text files, with or without a byte order mark."""

PICKLE_PROTOCOL = 2
"""Pickle protocol that neon on Python 2 can read."""

PICKLED = (".p", ".pkl", ".pickle", ".pck")
"""File suffixes that denote a pickle: other programs read such files as one."""

PACKED, GZIP = ".gz", b"\x1f\x8b"
"""Suffix and magic number of gzip files."""

SUM = b"\nneonlike sha256:"
"""Marker after a pickle, followed by its SHA-256; pickle readers stop before it."""


def expand(path: str | os.PathLike[str]) -> str:
    """Expand ``~`` and environment variables in ``path``.

    Raises
    ------
    ArgumentTypeError
        If it is no path.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise ArgumentTypeError(f"the path of a file must be a str or an os.PathLike, got {brief(path)}")
    return os.path.expandvars(os.path.expanduser(os.fspath(path)))


def ensure_dirs_exist(path: str) -> str:
    """Create the parent folder of ``path`` (``path`` itself if it ends in a slash) and return ``path``.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = ensure_dirs_exist(os.path.join(folder, "runs", "first.p"))
    ...     os.path.isdir(os.path.join(folder, "runs"))
    True
    """
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    return path


def require_writable(operation: str, path: str | os.PathLike[str]) -> None:
    """Raise OSError unless a file can be saved at ``path``; its folder is created if missing."""
    path = expand(path)
    path = os.path.realpath(path) if path else path
    folder = os.path.dirname(path) or "."
    with contextlib.suppress(OSError):  # the next lines report it
        ensure_dirs_exist(path)
    written_to = folder if os.path.isfile(path) or not os.path.exists(path) else path
    if os.path.isdir(path) or not (os.path.isdir(folder) and os.access(written_to, os.W_OK)):
        raise OSError(f"{operation} {path}: cannot be written; give a file in a folder that is writable")


@checked
def save_obj(obj: Any, save_path: str | os.PathLike[str] | None) -> None:
    """Pickle ``obj`` to a file; folders are created, and an existing file is replaced only by a complete one.

    Parameters
    ----------
    save_path : path
        ``~`` and environment variables are expanded; a suffix ``.gz`` selects compression; an empty path saves nothing.

    Examples
    --------
    >>> import os, tempfile
    >>> from neonlike.util.persist import load_obj, save_obj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numbers.p")
    ...     save_obj({"epochs": 3}, path)
    ...     load_obj(path)
    {'epochs': 3}
    """
    if save_path:
        write_file(obj, save_path, "save_obj", _pickle)


@checked
def save_model(described: Any, save_path: str | os.PathLike[str] | None) -> None:
    """Save a model's dictionary in the format of the file's suffix.

    The suffixes ``.p``, ``.pkl``, ``.pickle`` and ``.pck`` select a pickle, and all others arrays and JSON
    (:mod:`neonlike.util.archive`). :func:`load_obj` reads both, regardless of the name.

    Raises
    ------
    DTypeError
        If it holds anything but numbers, strings, arrays and containers of these, and the format is not a pickle.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.npz")
    ...     save_model({"W": np.ones((1, 2))}, path)
    ...     load_obj(path)["W"].tolist()
    [[1.0, 1.0]]
    """
    if save_path:
        pickled = os.fspath(save_path).removesuffix(PACKED).endswith(PICKLED)
        write_file(described, save_path, "save_params", _pickle if pickled else archive.write)


def write_file(
    obj: Any, save_path: str | os.PathLike[str], operation: str, write: Callable[[Any, IO[bytes]], Any]
) -> None:
    """Write a file atomically by ``write(obj, file)``; its folder is created, a suffix ``.gz`` selects compression.

    Parameters
    ----------
    obj : object
        Passed to ``write``.
    save_path : path
        ``~`` and environment variables are expanded.
    operation : str
        Name of the caller, for messages.
    write : callable
        Called with ``obj`` and an open binary file.

    Raises
    ------
    IsADirectoryError
        If the path is that of a folder.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "text.gz")
    ...     write_file(b"words", path, "example", lambda text, file: file.write(text))
    ...     with gzip.open(path) as file:
    ...         file.read()
    b'words'
    """
    path = ensure_dirs_exist(expand(save_path))
    if os.path.isdir(path):
        raise IsADirectoryError(f"{operation}: {path} is a folder; give the name of a file in it")
    with replacing(path) as file:
        if not path.endswith(PACKED):
            write(obj, file)
            return
        content = io.BytesIO()
        write(obj, content)
        file.write(gzip.compress(content.getbuffer(), mtime=0))


def _pickle(obj: Any, file: IO[bytes]) -> None:
    """Write a pickle, followed by its checksum."""
    summed = _Summed(file)
    pickle.dump(obj, summed, PICKLE_PROTOCOL)
    file.write(SUM + summed.digest.hexdigest().encode())


class _Summed:
    """A file wrapper that computes the SHA-256 of the written content."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        """Write ``content``."""
        self.digest.update(content)
        return self.file.write(content)


def is_plain(value: Any) -> bool:
    """Whether files can store ``value``: a number, a string, an array, or a container of these.

    Examples
    --------
    >>> is_plain({"a": [1, "two"]}), is_plain(object())
    (True, False)
    """
    if isinstance(value, list | tuple | set):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(entry) for key, entry in value.items())
    return value is None or isinstance(value, bool | str | bytes | np.ndarray | np.number) or is_real(value)


def load_obj(load_path: str | bytes | os.PathLike[str] | IO[bytes]) -> Any:
    """Read a file of :func:`save_obj` or ``save_params``, by its path (gzip is decompressed) or open.

    NumPy arrays, numbers, strings and plain containers are read, and no code is executed, even for untrusted files.
    Classes of your own are allowed by :func:`admit`. Checksums are verified if the file has them.

    Raises
    ------
    RefusedContent
        If the file refers to another class or function.
    UnreadableFile
        If it is from another program, modified, damaged or truncated.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numbers.p.gz")
    ...     save_obj([1, 2], path)
    ...     load_obj(path)
    [1, 2]
    """
    if isinstance(load_path, str | bytes | os.PathLike):
        path = expand(os.fsdecode(load_path))
        with open(path, "rb") as file:
            packed = path.endswith(PACKED) or file.peek(len(GZIP))[: len(GZIP)] == GZIP
            if packed:
                with gzip.open(file) as unpacked:
                    return _read(unpacked, path)  # type: ignore[arg-type]
            _compare_sum(file, path)
            return _read(file, path)
    require_method("load_obj", "load_path", load_path, "read", "an open file (and a path needs none)")
    return _read(load_path, str(getattr(load_path, "name", "the file")))


def read_bytes(load_path: str | os.PathLike[str]) -> bytes:
    """Read a whole file of any format; gzip is decompressed.

    Raises
    ------
    UnreadableFile
        If the compressed content is damaged.
    """
    path = expand(load_path)
    with open(path, "rb") as file:
        content = file.read()
    if not content.startswith(GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


def _read(file: IO[bytes], where: str) -> Any:
    """Read the content of an open file, a pickle or an archive."""
    if not (hasattr(file, "seekable") and file.seekable()):
        file = io.BytesIO(file.read())
    try:
        start = file.read(len(archive.MAGIC))
        if not start:
            raise archive.Unreadable("it is empty")
        if start == archive.MAGIC:
            content = file if isinstance(file, io.BufferedReader) else io.BytesIO(start + file.read())
            return archive.read(content)
        file.seek(-len(start), io.SEEK_CUR)
    except OSError as error:
        if error.errno is not None:  # a disk error, not a content error
            raise
        raise unreadable(where, error) from error
    except Exception as error:  # a damaged file can raise any exception
        raise unreadable(where, error) from error
    return load(file, where)


def _compare_sum(file: IO[bytes], where: str) -> None:
    """Verify the SHA-256 after the pickle in ``file``, if there is one; the file is at its start."""
    size, length = file.seek(0, io.SEEK_END), len(SUM) + 64
    file.seek(max(0, size - length))
    end = file.read()
    file.seek(0)
    if len(end) < length or not end.startswith(SUM):
        return
    digest, left = hashlib.sha256(), size - length
    while left and (part := file.read(min(left, 1 << 20))):
        digest.update(part)
        left -= len(part)
    file.seek(0)
    if digest.hexdigest().encode() != end[len(SUM) :]:
        raise unreadable(where, archive.Unreadable("it was changed: its checksum is wrong"))


def get_cache_dir(subdir: str | list[str] | None = None) -> str:
    """The folder for cached files, created if need be.

    ``NEON_CACHE_DIR`` if set, else the user's cache folder.

    Raises
    ------
    ArgumentError
        If the user has no home directory, and neither ``NEON_CACHE_DIR`` nor ``XDG_CACHE_HOME`` is set.
    """
    base = settings.NEON_CACHE_DIR.text
    if not base:
        try:
            base = os.path.join(settings.XDG_CACHE_HOME.text or str(Path.home() / ".cache"), "neonlike")
        except RuntimeError as error:
            raise ArgumentError(
                f"get_cache_dir: there is no place for it ({error}); name a folder with NEON_CACHE_DIR"
            ) from error
    return _folder(base, subdir)


def get_data_cache_dir(data_dir: str, subdir: str | list[str] | None = None) -> str:
    """The folder for data sets, created if need be: ``NEON_DATA_CACHE_DIR`` if it is set, else ``data_dir``.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.path.basename(get_data_cache_dir(folder, subdir="digits"))
    'digits'
    """
    return _folder(settings.NEON_DATA_CACHE_DIR.text or data_dir, subdir)


def get_data_cache_or_nothing(subdir: str | list[str] | None = None) -> str:
    """The folder of ``NEON_DATA_CACHE_DIR``, created if need be; an empty string if that is not set."""
    base = settings.NEON_DATA_CACHE_DIR.text
    return _folder(base, subdir) if base else ""


def _folder(base: str, subdir: str | list[str] | None) -> str:
    parts = [subdir] if isinstance(subdir, str) else (subdir or [])
    folder = os.path.join(expand(base), *parts)
    os.makedirs(folder, exist_ok=True)
    return folder


class DescribedModel(Protocol):
    """A model that can be described. :class:`~neonlike.models.Model` implements it."""

    def get_description(self, get_weights: bool = False, keep_states: bool = False) -> dict[str, Any]:
        """Describe the model as a dictionary.

        Parameters
        ----------
        get_weights, keep_states : bool
            Whether values of parameters and states of optimizers are included.
        """
        ...


def serialize(
    model: DescribedModel,
    callbacks: Any = None,
    datasets: Any = None,
    dump_weights: bool = True,
    keep_states: bool = True,
) -> dict[str, Any]:
    """Describe a whole experiment: the model, and the callbacks and data sets if given.

    Parameters
    ----------
    model : Model
    callbacks : Callbacks, optional
    datasets : data set, or list or dict of data sets, optional
    dump_weights : bool
        Whether the values of parameters are included.
    keep_states : bool
        Whether the optimizers' states are included.

    Returns
    -------
    dict
        The model's description with the entries ``callbacks`` and ``datasets`` added.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine
    >>> from neonlike.models import Model
    >>> be = gen_backend("cpu", batch_size=4)
    >>> model = Model([Affine(nout=2, init=Constant(0.5))])
    >>> model.initialize((3, 4))
    >>> sorted(serialize(model))[:2]
    ['backend', 'epoch_index']
    """
    described: dict[str, Any] = model.get_description(get_weights=dump_weights, keep_states=keep_states)
    if callbacks is not None:
        described["callbacks"] = callbacks.serialize()
    if datasets is not None:
        described["datasets"] = _describe(datasets)
    return described


def _describe(datasets: Any) -> Any:
    if isinstance(datasets, dict):
        return {key: _describe(value) for key, value in datasets.items()}
    if isinstance(datasets, list | tuple):
        return [_describe(value) for value in datasets]
    describe = getattr(datasets, "get_description", None) or datasets.serialize
    return describe()
