"""Saving and loading: pickled dictionaries, class paths, and the folders where caches live."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import secrets
from pathlib import Path
from typing import IO, Any

import numpy as np

from neonlike import settings
from neonlike.checks import checked
from neonlike.nervanaobject import load_class
from neonlike.util.unpickle import LoadError, RefusedContent, UnreadableFile, admit, load

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
    "save_obj",
    "serialize",
]

PICKLE_PROTOCOL = 2
"""Old enough for neon on Python 2 to read the files."""


def expand(path: str | os.PathLike[str]) -> str:
    """``path`` with ``~`` and environment variables replaced."""
    return os.path.expandvars(os.path.expanduser(os.fspath(path)))


def ensure_dirs_exist(path: str) -> str:
    """Create the folder that holds ``path`` (``path`` itself if it ends in a slash); returns ``path``."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    return path


@checked
def save_obj(obj: Any, save_path: str | os.PathLike[str] | None) -> None:
    """Pickle ``obj`` to a file; folders are created, and an existing file is replaced only by a complete one.

    Parameters
    ----------
    save_path : path
        ``~`` and environment variables are replaced; nothing is done for an empty path.
    """
    if not save_path:
        return
    path = ensure_dirs_exist(expand(save_path))
    if os.path.isdir(path):
        raise IsADirectoryError(f"save_obj: {path} is a folder; give the name of a file in it")
    # The name is chosen before the file exists, so that an interrupt at any moment can remove it.
    temporary = os.path.join(os.path.dirname(path), f".save-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            pickle.dump(obj, file, PICKLE_PROTOCOL)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # not made yet, or under its final name already
            os.unlink(temporary)
        raise


def is_plain(value: Any) -> bool:
    """Whether files can hold ``value``: a number, a text, an array, or a container of these."""
    if isinstance(value, list | tuple | set):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(entry) for key, entry in value.items())
    return value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray | np.number)


def load_obj(load_path: str | bytes | os.PathLike[str] | IO[bytes]) -> Any:
    """Read a pickled file given by its path (``.gz`` is uncompressed) or as an open file.

    NumPy arrays, numbers, texts and plain containers are read; a file of unknown origin cannot run anything. Classes of
    your own are admitted by :func:`admit`.

    Raises
    ------
    RefusedContent
        If the file mentions another class or a function.
    UnreadableFile
        If it is not a file of ``save_obj``, or only a part of one.
    """
    if isinstance(load_path, str | bytes | os.PathLike):
        path = expand(os.fsdecode(load_path))
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            return load(file, path)  # type: ignore[arg-type]
    return load(load_path, str(getattr(load_path, "name", "the file")))


def get_cache_dir(subdir: str | list[str] | None = None) -> str:
    """The folder for cached files, created if need be.

    ``NEON_CACHE_DIR`` if it is set, else the user's cache folder.
    """
    base = settings.NEON_CACHE_DIR.text
    if not base:
        base = os.path.join(settings.XDG_CACHE_HOME.text or str(Path.home() / ".cache"), "neonlike")
    return _folder(base, subdir)


def get_data_cache_dir(data_dir: str, subdir: str | list[str] | None = None) -> str:
    """The folder for data sets, created if need be: ``NEON_DATA_CACHE_DIR`` if it is set, else ``data_dir``."""
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


def serialize(
    model: Any,
    callbacks: Any = None,
    datasets: Any = None,
    dump_weights: bool = True,
    keep_states: bool = True,
) -> dict[str, Any]:
    """Describe a whole experiment: the model, and the callbacks and data sets if given.

    Returns
    -------
    dict
        The model's description with the entries ``callbacks`` and ``datasets`` added.
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
