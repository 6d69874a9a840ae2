"""Downloads of data sets: resumable, checked, and renamed to their final name only when complete."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

from neonlike import system
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.logger import logger

CHUNK = 1 << 16
TIMEOUT_S = 30.0
RETRIES = 3
"""Number of resumptions of a broken connection without any new byte."""
REDRAW_S = 0.5


class DownloadFailed(NeonlikeError, OSError):
    """A download failed; the message names the path for a manual copy."""


class WrongChecksum(DownloadFailed):
    """A complete download does not match its published checksum."""


class _Restart(Exception):
    """The partial download cannot be continued."""


def fetch(url: str, path: str, size: int = 0, digest: str = "", timeout: float = TIMEOUT_S) -> str:
    """Download a file, unless it exists.

    An incomplete file is named ``path + ".part"``; a later call continues it if the server's file is unchanged.

    Parameters
    ----------
    url : str
        An http or https address.
    path : str
        Path of the local file; its folder must exist.
    size : int
        Size in bytes, if known; for the progress display.
    digest : str
        Checksum ``"md5:..."`` or ``"sha256:..."``, verified if given.
    timeout : float
        Seconds without an answer before the connection is given up.

    Returns
    -------
    str
        ``path``.

    Raises
    ------
    DownloadFailed
        Without a connection, or if the server lacks the file.
    WrongChecksum
        If the checksum differs; the download is removed.
    """
    if os.path.exists(path):
        return path
    if not url.lower().startswith(("http://", "https://")):
        raise ArgumentError(f"fetch: {url!r} is no address of http or https; put the file at {path} by hand")
    part = path + ".part"
    logger.display("Downloading %s to %s", url, path)
    with _locked(part):
        if not os.path.exists(path):  # another process may have been faster
            _fetch_part(url, part, path, size, timeout)
            _check(part, url, path, size, digest)
            os.replace(part, path)
            _forget(_marker(part))
    return path


def _fetch_part(url: str, part: str, path: str, size: int, timeout: float) -> None:
    """Download until the file is complete, resuming broken connections."""
    attempts = 0
    while True:
        before = _length(part)
        try:
            _receive(url, part, size, timeout)
            return
        except _Restart:
            _forget(part, _marker(part))
        except urllib.error.HTTPError as error:
            raise DownloadFailed(_failure(url, path, f"the server answered {error.code} {error.reason}")) from error
        except (OSError, http.client.HTTPException) as error:
            attempts = 0 if _length(part) > before else attempts + 1
            if attempts >= RETRIES or isinstance(error, urllib.error.URLError):
                raise DownloadFailed(_failure(url, path, str(getattr(error, "reason", error)))) from error
            continue
        attempts += 1
        if attempts >= RETRIES:
            raise DownloadFailed(_failure(url, path, "the server's file changes again and again"))


def _failure(url: str, path: str, reason: str) -> str:
    return (
        f"fetch: could not download {url} ({reason}). Without a network, put the file at {path} by hand; what was "
        "downloaded is kept, and the next call goes on from there"
    )


def _receive(url: str, part: str, size: int, timeout: float) -> None:
    """Append the server's data from the end of ``part`` on."""
    have, known = _length(part), _read(_marker(part))
    request = urllib.request.Request(url, headers={"User-Agent": "neonlike", "Accept-Encoding": "identity"})
    if have and known:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", known)
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            raise _Restart from error
        raise
    with answer, open(part, "ab") as file:
        if have and (answer.status != 206 or _first_byte(answer) != have):
            if answer.status == 206:
                raise _Restart
            file.truncate(0)
            have = 0
        _write(_marker(part), _version(answer))
        rest = answer.headers.get("Content-Length")
        total = have + int(rest) if rest is not None else 0
        _copy(answer, file, have, total or size)
    if total and _length(part) < total:
        raise http.client.IncompleteRead(b"", total - _length(part))


def _copy(answer: Any, file: IO[bytes], have: int, total: int) -> None:
    progress = _Progress(total)
    try:
        while chunk := answer.read(CHUNK):
            file.write(chunk)
            have += len(chunk)
            progress.show(have)
    finally:
        progress.end()


def _first_byte(answer: Any) -> int:
    """Offset of the first byte in the server's answer."""
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _version(answer: Any) -> str:
    """Version of the server's file: its strong ETag or else its date; empty without either."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def _check(part: str, url: str, path: str, size: int, digest: str) -> None:
    if digest:
        method, _, expected = digest.partition(":")
        with open(part, "rb") as file:
            summer = hashlib.new(method)
            while chunk := file.read(CHUNK):
                summer.update(chunk)
        if summer.hexdigest() != expected.lower():
            _forget(part, _marker(part))
            raise WrongChecksum(
                f"fetch: {url} has the {method} {summer.hexdigest()}, but {os.path.basename(path)} was published with "
                f"{expected}; it was removed. Try again, or put the right file at {path} by hand"
            )
    elif size and _length(part) != size:
        logger.warning("fetch: %s has %d bytes, where %d were expected", url, _length(part), size)


# -- files -------------------------------------------------------------------------------------------------------------


def _marker(part: str) -> str:
    """Path of the file with the server's version of a partial download."""
    return part + ".version"


def _length(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _read(path: str) -> str:
    with contextlib.suppress(FileNotFoundError), open(path, encoding="latin-1") as file:
        return file.read()
    return ""


def _write(path: str, content: str) -> None:
    with open(path, "w", encoding="latin-1") as file:
        file.write(content)


def _forget(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


@contextlib.contextmanager
def _locked(part: str) -> Iterator[None]:
    """Lock a download against other processes, if the file system supports locks."""
    if not system.has_locks():
        yield
        return
    with open(part + ".lock", "a") as lock:
        try:
            system.lock(lock, wait=False)
        except BlockingIOError as error:
            raise DownloadFailed(f"fetch: another process is downloading {part}; wait for it to end") from error
        except OSError as error:
            logger.debug("fetch: the folder of %s has no locks: %s", part, error)
        try:
            yield
        finally:
            _forget(part + ".lock")


class _Progress:
    """A progress line on a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.live = sys.stderr is not None and sys.stderr.isatty()
        self._drawn = 0.0

    def show(self, have: int) -> None:
        """Show the number of bytes received."""
        now = time.monotonic()
        if self.live and (now - self._drawn > REDRAW_S or have == self.total):
            self._drawn = now
            of = f" of {self.total / 1e6:.1f}" if self.total else ""
            sys.stderr.write(f"\r{have / 1e6:.1f}{of} MB ")
            sys.stderr.flush()

    def end(self) -> None:
        """End the progress line."""
        if self.live and self._drawn:
            sys.stderr.write("\n")
