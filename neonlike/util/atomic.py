"""Atomic file writes: under a temporary name, flushed to the disk, then renamed."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import IO

PREFIX = ".save-"
"""Prefix of temporary file names."""


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``path`` after the block ends without an error.

    Whatever happens, including a power failure, ``path`` is either the old file or the new one. An interrupt or error
    removes the temporary file; after a killed process, the next writer in the folder removes it. A symbolic link is
    kept, and its target replaced; permissions are preserved. Devices and pipes are written directly, once the content
    is complete.
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
    # The name is chosen before the file exists, so that an interrupt at any time can remove it.
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
        with contextlib.suppress(FileNotFoundError):  # not created yet, or already renamed
            os.unlink(temporary)
        raise
    _flush_folder(folder)


def refer(path: str, file: str) -> None:
    """Let ``path`` refer to ``file`` of the same folder; at all times it refers to a whole file.

    It becomes a symbolic link, or a copy where the file system or the user may have no links, as on Windows.
    """
    new = f"{path}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.remove(new)
        try:
            os.symlink(os.path.basename(file), new)
        except OSError:
            shutil.copyfile(file, new)
        os.replace(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):  # renamed
            os.remove(new)


def _status(path: str) -> os.stat_result | None:
    """Kind and permissions of an existing file, if there is one."""
    try:
        return os.stat(path)
    except OSError:
        return None


def _keep_permissions(file: IO[bytes], before: os.stat_result) -> None:
    """Copy the permissions of the replaced file, and its owner where allowed, to a new file."""
    with contextlib.suppress(OSError, AttributeError):
        os.fchown(file.fileno(), before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):
        os.chmod(file.name, stat.S_IMODE(before.st_mode))


def _mine() -> str:
    """Prefix of this machine's temporary names: others may write to the same folder over a network."""
    return f"{PREFIX}{''.join(c if c.isalnum() else '_' for c in platform.node())}-"


def _tidy(folder: str) -> None:
    """Remove temporary files of ended processes of this machine."""
    try:
        left = [name for name in os.listdir(folder) if name.startswith(_mine())]
    except OSError:  # opening the file reports the problem
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
    """Flush the new name to the disk, where folders can be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
