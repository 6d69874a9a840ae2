"""Safe constructors for objects in pickles, with checked arguments: containers, numbers, bytes, arrays, dtypes.

Even harmless classes can be abused: ``bytearray(10**12)`` takes all memory, and an array whose dtype is changed later
reads arbitrary addresses. So arrays and dtypes are assembled here, not by NumPy's methods.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_KEY_DEPTH = 50
"""Maximum nesting of tuples in keys and sets: hashing deeper ones may overflow the C stack."""

MAX_KEY_PARTS = 10_000
"""Maximum number of tuples per level: tuples that contain the next one twice take exponential time to hash."""

BUILTINS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, range, object,
    )
}  # fmt: skip
COLLECTIONS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (collections.OrderedDict, collections.deque, collections.Counter, collections.defaultdict)
}


class Damaged(Exception):
    """A pickle requests an invalid object; the text states the reason."""


def shallow(key: Any) -> Any:
    """Return ``key``, unless hashing it could overflow the stack."""
    level, depth = [key], 0
    while level := [item for item in level if type(item) in (tuple, frozenset)]:
        depth += 1
        if depth > MAX_KEY_DEPTH or len(level) > MAX_KEY_PARTS:
            raise Damaged("keys are nested too deeply")
        level = [item for one in level for item in one]
    return key


def _container(cls: Callable[..., Any]) -> Callable[..., Any]:
    """Safe constructor of a container from a container."""

    def make(items: Any = (), *maxlen: Any) -> Any:
        if not isinstance(items, list | tuple | dict | set | frozenset):
            raise Damaged(f"{cls} of a {type(items).__name__}")
        if cls in (set, frozenset):
            items = [shallow(item) for item in items]
        if cls is collections.OrderedDict and not isinstance(items, dict):
            items = [(shallow(key), value) for key, value in items]
        return cls(items, *maxlen)

    return make


def _default_dict(factory: Any = None, *items: Any) -> Any:
    if factory is not None and factory not in BUILTINS.values():
        raise Damaged("defaultdict of something that is no built-in type")
    return collections.defaultdict(factory, *items)


def _numbers(cls: Any) -> Callable[..., Any]:
    """Safe constructor of an object described by a few numbers."""

    def make(*args: Any) -> Any:
        if not all(arg is None or isinstance(arg, int | float) for arg in args):
            raise Damaged(f"{cls.__name__} of something that is no number")
        return cls(*args)

    return make


def _bytes(cls: Any) -> Callable[..., Any]:
    def make(content: Any = b"", encoding: str = "latin-1") -> Any:
        return cls(encode(content, encoding) if isinstance(content, str) else memoryview(content))

    return make


def encode(text: str, encoding: str = "latin-1") -> bytes:
    """Bytes from a string, as stored in pickles for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise Damaged("bytes in an unknown encoding")
    return text.encode("latin-1")


def reconstruct(cls: Any, *_: Any) -> Any:
    """An empty array, to be filled by its state."""
    if not (isinstance(cls, type) and issubclass(cls, np.ndarray)):
        raise Damaged("an array that is none")
    return np.ndarray.__new__(cls, (0,), np.int8)


def scalar(dtype: Any, content: Any = b"") -> Any:
    """A NumPy scalar."""
    return filled(dtype, (), content)[()]


def from_buffer(content: Any, dtype: Any, shape: Any, order: str = "C") -> Any:
    """An array from bytes.

    Parameters
    ----------
    content : bytes or str
    dtype : dtype
    shape : int or tuple of int
    order : "C" or "F"
        In which order the elements are.
    """
    if isinstance(shape, int):
        shape = (shape,)
    return filled(dtype, shape, content, order == "F")


def filled(dtype: Any, shape: Any, content: Any, fortran: Any = False) -> Any:
    """A new array of a shape, filled from bytes or, for object arrays, from a list.

    Parameters
    ----------
    dtype : dtype
    shape : tuple of int
    content : bytes, str or list
        A list for object arrays.
    fortran : bool
        Whether the first axis changes fastest.

    Raises
    ------
    Damaged
        If these do not fit together.
    """
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
        raise Damaged("an array without dtype or shape")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise Damaged("an array of negative size")
    size, order = math.prod(shape), "F" if fortran else "C"
    if dtype.kind == "O":
        if not isinstance(content, list) or len(content) != size:
            raise Damaged("an array of objects that does not have them all")
        flat = np.empty(size, object)
        flat[:] = np.fromiter(content, object, size)
        return flat.reshape(shape, order=order)  # type: ignore[call-overload]
    if dtype.hasobject:
        raise Damaged("objects inside a structured array")
    data = encode(content) if isinstance(content, str) else memoryview(content)
    if memoryview(data).nbytes != size * dtype.itemsize or not dtype.itemsize:
        raise Damaged(f"an array of shape {shape} does not have all its bytes, or too many")
    # Into a separate array, which is writable and aligned.
    made = np.empty(shape, dtype, order=order)  # type: ignore[call-overload]
    made.reshape(-1, order="A").view(np.uint8)[...] = np.frombuffer(data, np.uint8)
    return made


SIMPLE_DTYPE = re.compile(r"[<>|=]?([?bBhHiIlLqQpPefdgFDGcO]|[biufcSUVOaMm][0-9]+)")
DATE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")


def _dtype(spec: Any, *_: Any) -> Any:
    known = SIMPLE_DTYPE.fullmatch(spec) if isinstance(spec, str) else isinstance(spec, type)
    if not known:
        raise Damaged(f"the dtype {str(spec)[:40]!r}")
    return np.dtype(spec)


def dtype_with_state(dtype: Any, state: Any) -> Any:
    """A dtype with byte order, fields and similar; the argument ``dtype``, possibly shared, is not modified."""
    version, endian, base, names, fields, size, _, flags, *more = state
    if version not in (3, 4) or endian not in ("<", ">", "=", "|"):
        raise Damaged("a dtype of an unknown form")
    if base is not None:
        made = np.dtype((base[0], base[1]))
    elif names:
        formats, offsets = zip(*(fields[name] for name in names), strict=True)
        described: Any = {"names": list(names), "formats": formats, "offsets": offsets, "itemsize": size}
        made = np.dtype(described, align=bool(flags & 0x80))
    elif dtype.kind in "mM" and more:
        unit, count = more[0][1][:2]
        unit = unit if isinstance(unit, str) else unit.decode("ascii")
        if unit not in DATE_UNITS or type(count) is not int:
            raise Damaged("dates in an unknown unit")
        made = np.dtype(f"{dtype.char}8[{count}{unit}]").newbyteorder(endian)
    else:
        made = dtype if endian == "|" else dtype.newbyteorder(endian)
    if size not in (-1, made.itemsize):
        raise Damaged("a dtype of another size")
    return made


MAKERS: dict[Any, Callable[..., Any]] = {
    **{cls: _container(cls) for cls in (set, frozenset, *COLLECTIONS.values())},
    **{cls: _numbers(cls) for cls in (complex, slice, range)},
    **{cls: _bytes(cls) for cls in (bytes, bytearray)},
    **{function: function for function in (encode, reconstruct, scalar, from_buffer)},
    collections.defaultdict: _default_dict,
    np.dtype: _dtype,
}
"""Function named by a file -> its safe replacement."""
