"""The NCCL library: its location, its binding, and its errors. Neither PyCUDA nor a GPU is needed to find it."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from neonlike import settings
from neonlike.backends.gpu.device.libraries import nccl_libraries

SETTING: Final = settings.NCCL.name
OLDEST: Final = 21000
"""Version 2.10, the first with bfloat16 and means."""
NONE: Final = "none"
ADVICE: Final = "pip install nvidia-nccl-cu13, or nvidia-nccl-cu12 for a driver of CUDA 12"

DTYPES: Final = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
"""Dtypes that are reduced here -> ``ncclDataType_t``."""
BYTES: Final = 0
"""``ncclInt8``: elements that are only copied."""
OPERATIONS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "mean": 4}
"""Operations of :mod:`neonlike.distributed.ranks` -> ``ncclRedOp_t``."""

POINTER, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class UniqueId(ctypes.Structure):
    """Address at which the ranks of a communicator meet; functions take it by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


_TYPES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (POINTER,),
    "ncclGetUniqueId": (POINTER,),
    "ncclCommInitRank": (POINTER, INT, UniqueId, INT),
    "ncclCommDestroy": (POINTER,),
    "ncclCommAbort": (POINTER,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER),
    "ncclBroadcast": (POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER),
}
"""Arguments of the functions; all return a status."""


class Refused(Exception):
    """A function of the library returned the error ``status``.

    Parameters
    ----------
    function : str
        Name of the function.
    status : int
    words : str
        The library's text for the status.
    """

    def __init__(self, function: str, status: int, words: str) -> None:
        super().__init__(f"{function}: {words} (ncclResult_t {status})")
        self.function, self.status = function, status


class Library:
    """NCCL.

    Parameters
    ----------
    library : ctypes.CDLL
    name : str
        Name or path for messages.

    Attributes
    ----------
    version : int
        Such as 22703 for 2.27.3.

    Raises
    ------
    AttributeError
        If it lacks a function.
    """

    def __init__(self, library: Any, name: str) -> None:
        self.name = name
        self._functions = {
            function: ctypes.CFUNCTYPE(INT, *types)((function, library)) for function, types in _TYPES.items()
        }
        self._words = ctypes.CFUNCTYPE(ctypes.c_char_p, INT)(("ncclGetErrorString", library))
        self._last = _last_error(library)
        version = INT()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Raises
        ------
        Refused
            If it returns an error.
        """
        status: int = self._functions[function](*arguments)
        if status:
            raise Refused(function, status, self._said(status))

    def new_id(self) -> bytes:
        """A unique id, for another process."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)

    def _said(self, status: int) -> str:
        """The words for a status, with those about the last error."""
        texts = [self._words(status), self._last(None) if self._last is not None else None]
        return ": ".join(text.decode(errors="replace").strip() for text in texts if text)


def _last_error(library: Any) -> Any:
    """``ncclGetLastError``, which version 2.13 brought; else None."""
    try:
        return ctypes.CFUNCTYPE(ctypes.c_char_p, POINTER)(("ncclGetLastError", library))
    except AttributeError:
        return None


def find() -> tuple[Library | None, str]:
    """The library that ``NEONLIKE_NCCL`` allows, or None and the reason why there is none."""
    setting = settings.NCCL.text
    if setting == NONE:
        return None, f"{SETTING}={NONE}"
    if setting:
        try:
            return _usable(ctypes.CDLL(setting), setting)
        except OSError as error:
            return None, f"{SETTING}: cannot load it: {error}"
    reasons = []
    for name, library in nccl_libraries():
        found, reason = _usable(library, name)
        if found is not None:
            return found, ""
        reasons.append(reason)
    return None, "; ".join(reasons) or f"it is not installed: {ADVICE}"


def _usable(library: Any, name: str) -> tuple[Library | None, str]:
    """The bound library, or None and the reason."""
    try:
        found = Library(library, name)
    except (AttributeError, Refused) as error:
        return None, f"{name}: {error}"
    if found.version < OLDEST:
        return None, f"{name} is too old: version {text_of(found.version)}, 2.10 is needed"
    return found, ""


def text_of(version: int) -> str:
    """A version in words, such as 2.27.3 for 22703; before 2.9, 2708 was 2.7.8."""
    major, rest = divmod(version, 10000 if version >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
