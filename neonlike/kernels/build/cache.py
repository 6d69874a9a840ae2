"""Disk cache of compiled kernels: found by key, verified by digest, shared by processes without locks.

An entry is one file, ``<key[:2]>/<key>.<digest><suffix>``. The content's digest is part of the name, so that file and
digest appear in one ``os.replace``: a reader sees a complete entry or none, and two processes that compile the same
kernel only do the work twice. A file that does not match its name is not used.

Nothing is executed from a directory that others can write to. If the directory is untrusted or not writable (read-only,
full), a private temporary directory of the process replaces it, with one log line.

``NEONLIKE_CACHE_DIR`` names the directory, ``NEONLIKE_CACHE_MB`` bounds its size.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neonlike import settings
from neonlike.logger import logger

GRACE_S = 600.0
"""Seconds during which a new or used file is not removed to save space: a process may be about to load it."""

TRIM_INTERVAL_S = 3600.0
"""Approximate interval in seconds between size checks of a directory, by any one of its processes."""

_DIGEST_LENGTH = 32
_SHARD = re.compile(r"[0-9a-f]{2}")
_OURS = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{32}\.\w+|\w+_[0-9a-f]{64}\.\w+|\.tmp-\w+")
"""Pattern of file names written by this cache; other files in the directory are never removed."""


def key_of(*parts: str | bytes) -> str:
    """Key of an entry: SHA-256 of ``parts``, each preceded by its length so that different lists differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def default_directory() -> Path:
    """``NEONLIKE_CACHE_DIR``, else ``neonlike`` in the user's cache directory.

    Raises
    ------
    RuntimeError
        The user has no home directory.
    """
    if named := settings.CACHE_DIR.text:
        return Path(named).expanduser().absolute()
    if sys.platform == "win32":
        return Path(settings.of_the_system("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "neonlike" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "neonlike"
    xdg = settings.XDG_CACHE_HOME.text
    # The XDG specification requires that relative paths are ignored.
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "neonlike"


def distrust(directory: Path) -> str:
    """Reason why nothing in ``directory`` may be executed; empty if it is trusted.

    The owner has to be this user or root, and nobody else may be able to replace a file or directory on its path.
    Systems without user ids keep caches in the user's own profile, which is trusted.
    """
    if not hasattr(os, "geteuid"):
        return ""
    real = Path(os.path.realpath(directory))
    status = real.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"everybody can write to {parent} and so replace it"
    return ""


@dataclass(frozen=True)
class CacheStats:
    """Contents of a cache, and its use by this process."""

    directory: Path
    entries: int
    bytes: int
    hits: int
    misses: int
    corrupt: int


class DiskCache:
    """Files found by key, in one directory.

    Parameters
    ----------
    directory : path, optional
        Created on first use, with access for its owner alone. Default: :func:`default_directory`.
    limit_mb : float, optional
        Approximate upper bound of the size in megabytes (10^6 bytes). Default: ``NEONLIKE_CACHE_MB``.

    Attributes
    ----------
    hits, misses, corrupt : int
        Look-ups by this process; ``corrupt`` counts damaged entries, which were removed.
    """

    def __init__(self, directory: str | Path | None = None, limit_mb: float | None = None) -> None:
        self.wanted = None if directory is None else Path(directory).absolute()
        self.limit = int((settings.CACHE_MB.get() if limit_mb is None else limit_mb) * 1e6)
        self.hits = self.misses = self.corrupt = 0
        self._opened: Path | None = None
        self._refused = False
        self._private: tuple[int, Path] | None = None
        self._told = False
        self._added = 0

    def path(self) -> Path:
        """The directory in use: the requested one, or a private one if that is not trusted."""
        if self._opened is None and not self._refused:
            wanted = self.wanted
            try:
                wanted = wanted or default_directory()
                _make(wanted)
                reason = distrust(wanted)
            except (OSError, RuntimeError) as error:
                reason = f"it cannot be made ({error})"
            if reason:
                self._refused = True
                self.tell(reason, wanted or Path("~/.cache/neonlike"))
            else:
                self._opened = wanted
        return self._opened or self.private()

    def private(self) -> Path:
        """A temporary directory of this process (a forked child creates its own), removed when the process ends."""
        if self._private is None or self._private[0] != os.getpid():
            self._private = os.getpid(), Path(tempfile.mkdtemp(prefix="neonlike-"))
            atexit.register(_remove_tree, *self._private)
        return self._private[1]

    def get(self, key: str, suffix: str) -> Path | None:
        """The file of ``key`` after verification of its content, or None. A damaged file is removed."""
        found = self._find(key, suffix)
        return found[0] if found else None

    def read(self, key: str, suffix: str) -> bytes | None:
        """The content of the file of ``key``, or None. A damaged file is removed."""
        found = self._find(key, suffix)
        return found[1] if found else None

    def put(self, key: str, data: bytes | Path, suffix: str, private: bool = False) -> Path:
        """Store ``data`` (or the content of the file it names) under ``key``.

        Parameters
        ----------
        key : str
        data : bytes or Path
        suffix : str
            Of the file.
        private : bool
            Store in the private directory even if the cache is writable.

        Returns
        -------
        Path
            The file, in the private directory if the cache is not writable.

        Raises
        ------
        OSError
            Neither can be written.
        """
        content = data if isinstance(data, bytes) else data.read_bytes()
        name = f"{key}.{_digest(content)}{suffix}"
        if not private:
            try:
                path = _write(self.path() / key[:2] / name, content)
            except OSError as error:
                # Where open files cannot be replaced, another process's entry may be in the way.
                if other := self.get(key, suffix):
                    return other
                self.tell(f"it cannot be written ({error})")
            else:
                self._trim_sometimes(len(content))
                return path
        return _write(self.private() / key[:2] / name, content)

    def keep(self, key: str, name: str, text: str, suffix: str = ".c") -> Path:
        """Store a text for people beside the entry of ``key``, as ``<name>_<key><suffix>``, and return the file.

        Parameters
        ----------
        key : str
            Key of the entry.
        name : str
            Beginning of the file's name.
        text : str
        suffix : str

        Raises
        ------
        OSError
            Neither the cache nor a temporary directory can be written.
        """
        file = f"{name}_{key}{suffix}"
        directory = self.path()
        if not self._refused:
            try:
                return _write(directory / key[:2] / file, text.encode())
            except OSError as error:
                self.tell(f"it cannot be written ({error})")
        # Not the private directory: the text has to outlive the process.
        folder = Path(tempfile.mkdtemp(prefix="neonlike-source-"))
        try:
            return _write(folder / file, text.encode())
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def discard(self, key: str, suffix: str) -> None:
        """Remove the entry of ``key``, if it exists and can be removed."""
        for path in self._candidates(key, suffix):
            _unlink(path)

    def clear(self) -> int:
        """Remove every entry and kept text and return their number. Other files stay."""
        return sum(_unlink(path) for path, _ in list(self._files()))

    def trim(self) -> int:
        """Remove the least recently used files until the cache is at 80% of its limit, and return their number.

        It does nothing below the limit, and keeps files that are new or were used in the last ten minutes.
        """
        now = time.time()
        files = sorted(self._files(), key=lambda item: item[1].st_mtime)
        size = sum(status.st_size for _, status in files)
        if size <= self.limit:
            return 0
        removed = 0
        for path, status in files:
            if size <= 0.8 * self.limit or now - status.st_mtime < GRACE_S:
                break
            if _unlink(path):
                removed += 1
                size -= status.st_size
        return removed

    def stats(self) -> CacheStats:
        """Number and size of the files, and the look-ups by this process."""
        sizes = [status.st_size for _, status in self._files()]
        return CacheStats(self.path(), len(sizes), sum(sizes), self.hits, self.misses, self.corrupt)

    def _find(self, key: str, suffix: str) -> tuple[Path, bytes] | None:
        for path in self._candidates(key, suffix):
            try:
                content = _checked(path)
            except OSError:
                continue  # for example too many open files: the entry may be good for others
            if content is not None:
                self.hits += 1
                return path, content
            self.corrupt += 1
            _unlink(path)
        self.misses += 1
        return None

    def _candidates(self, key: str, suffix: str) -> Iterator[Path]:
        """The files of ``key``; several if processes compiled the same kernel to different bytes."""
        directories = [self.path()]
        if self._private is not None and self._private[0] == os.getpid():
            directories.append(self._private[1])
        length = len(key) + 1 + _DIGEST_LENGTH + len(suffix)
        for directory in dict.fromkeys(directories):
            shard = directory / key[:2]
            for name in _listed(shard):
                if len(name) == length and name.startswith(key + ".") and name.endswith(suffix):
                    yield shard / name

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Every file of this cache in the directory in use."""
        for shard in filter(_SHARD.fullmatch, _listed(self.path())):
            for name in filter(_OURS.fullmatch, _listed(self.path() / shard)):
                path = self.path() / shard / name
                try:
                    yield path, path.stat()
                except OSError:
                    continue  # another process removed it

    def _trim_sometimes(self, added: int) -> None:
        """Trim after this process added a sixteenth of the limit, or if no process checked for an hour."""
        self._added += added
        marker = self.path() / "last-trim"
        try:
            if self._added < self.limit / 16 and time.time() - marker.stat().st_mtime < TRIM_INTERVAL_S:
                return
        except OSError:
            pass  # no check yet
        self._added = 0
        try:
            marker.touch()
        except OSError:
            return
        self.trim()

    def tell(self, reason: str, directory: Path | None = None) -> None:
        """Warn once that ``directory`` (default: the one in use) is not used, with the reason."""
        if not self._told:
            self._told = True
            logger.warning(
                "kernel cache: %s is not used: %s. Kernels are compiled into a temporary directory and not kept; "
                "name another directory with NEONLIKE_CACHE_DIR",
                directory or self.path(),
                reason,
            )


_caches: dict[tuple[str, ...], DiskCache] = {}


def default_cache() -> DiskCache:
    """The cache named by the environment; one object as long as the environment is unchanged."""
    named = (settings.CACHE_DIR, settings.CACHE_MB, settings.XDG_CACHE_HOME)
    told = (*(setting.text for setting in named), settings.of_the_system("HOME"))
    cache = _caches.get(told)
    if cache is None:
        cache = _caches.setdefault(told, DiskCache())
    return cache


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


def _listed(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _make(directory: Path) -> None:
    """Create a directory and its missing parents for their owner alone, regardless of the umask."""
    for one in (*reversed(directory.parents), directory):
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, content: bytes) -> Path:
    """Write a file, then rename it to ``path``: readers see all or nothing. No flush: a lost file is compiled again."""
    _make(path.parent)
    descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        _unlink(Path(temporary))
        raise
    return path


def _checked(path: Path) -> bytes | None:
    """Content of an entry, or None if it is damaged or of another owner. Marks it as used."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read()
    if hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH):
        return None
    if path.name.split(".")[1] != _digest(content):
        return None
    if time.time() - status.st_mtime > GRACE_S / 2:
        try:
            os.utime(path)
        except OSError:
            pass  # a read-only cache has no order of use
    return content


def _remove_tree(owner: int, directory: Path) -> None:
    if os.getpid() == owner:  # not in a forked child that ends before its parent
        shutil.rmtree(directory, ignore_errors=True)
