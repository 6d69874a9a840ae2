"""Files that are there whole or not at all: written under another name, flushed to the disk, and then renamed."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from typing import IO

PREFIX = ".save-"
"""Of the names of files that are being written."""


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` once the block ends without an error.

    Whatever happens, a power failure included, ``path`` is the file of before or the new one. An interrupt or error
    removes what was begun; what a killed process began is removed by the next one that writes to the folder. A symbolic
    link stays, and the file that it names is replaced; permissions are those of the file before. Devices and pipes are
    written to, once the content is whole.
    """
    path = os.path.realpath(path)
    before = _status(path)
    if before is not None and not stat.S_ISREG(before.st_mode) and not stat.S_ISDIR(before.st_mode):
        content = io.BytesIO()
        yield content
        with open(path, "wb", buffering=0) as special:
            special.write(content.getbuffer())
        return
    folder = os.path.dirname(path) or "."
    _tidy(folder)
    # The name is chosen before the file exists, so that an interrupt at any moment can remove it.
    temporary = os.path.join(folder, f"{_mine()}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            if before is not None:
                _keep_permissions(file, before)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # not made yet, or under its final name already
            os.unlink(temporary)
        raise
    _flush_folder(folder)


def _status(path: str) -> os.stat_result | None:
    """Kind and permissions of what has the name, if anything has."""
    try:
        return os.stat(path)
    except OSError:
        return None


def _keep_permissions(file: IO[bytes], before: os.stat_result) -> None:
    """Give a new file the permissions of the one that it replaces, and its owner where that is allowed."""
    with contextlib.suppress(OSError, AttributeError):
        os.fchown(file.fileno(), before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):
        os.chmod(file.name, stat.S_IMODE(before.st_mode))


def _mine() -> str:
    """How names of files that this machine writes begin: others may write to the same folder over a network."""
    return f"{PREFIX}{''.join(c if c.isalnum() else '_' for c in socket.gethostname())}-"


def _tidy(folder: str) -> None:
    """Remove what processes of this machine that are gone were writing."""
    try:
        left = [name for name in os.listdir(folder) if name.startswith(_mine())]
    except OSError:  # opening the file says what is wrong
        return
    for name in left:
        process = name.removeprefix(_mine()).partition("-")[0]
        if process.isdigit() and not _is_running(int(process)):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 ends the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _flush_folder(folder: str) -> None:
    """Have the new name on the disk too, where folders can be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
