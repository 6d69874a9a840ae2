"""Reading pickles without running what they say: arrays, numbers, texts and containers, and nothing else.

A pickle is a small program, and Python's own reader runs it: it imports any module and calls any function that the file
names. Here a file may name what the tables below list. Calls go through makers of our own, which check their arguments,
because even harmless classes can be abused: ``bytearray(10**12)`` takes all memory, and an array whose dtype is changed
after the fact reads arbitrary addresses. Arrays and dtypes are therefore put together here, not by NumPy's methods.
"""

from __future__ import annotations

import collections
import importlib
import math
import pickle
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar

import numpy as np

from neonlike.checks import brief
from neonlike.errors import DTypeError, NeonlikeError
from neonlike.optree.dtypes import BFLOAT16, as_dtype

LIBRARY = (
    "neonlike.backends.families.random.make_state",
    "neonlike.backends.pickling.restore_tensor",
    "neonlike.util.values.Values",
)
"""Functions and classes of this library that files may name. A function must be harmless whatever it is called with."""

MAX_KEY_DEPTH = 50
"""Of tuples inside tuples in keys and sets: Python takes the hash of deeper ones without guarding its stack."""

MAX_KEY_PARTS = 10_000
"""Of tuples at one depth: a tuple that holds another twice, and so on, takes for ever to hash."""


class LoadError(NeonlikeError, AttributeError):
    """A saved file mentions something that does not exist here."""


class RefusedContent(LoadError, pickle.UnpicklingError):
    """A file mentions a class or function that is not read from files, because calling it could run anything."""


class UnreadableFile(NeonlikeError, pickle.UnpicklingError, EOFError):
    """A file is not what ``save_obj`` writes, or only a part of it."""


class _Damaged(Exception):
    """What a pickle asks for makes no sense; the text says why."""


def load(file: IO[bytes], where: str) -> Any:
    """The object pickled in an open file; strings that Python 2 wrote are read as Latin-1.

    Parameters
    ----------
    where : str
        Name of the file, for messages.

    Raises
    ------
    RefusedContent
        If it names a class or function that is not admitted.
    UnreadableFile
        If it is no pickle, or a damaged one.
    """
    try:
        return _Unpickler(file, encoding="latin1").load()
    except RefusedContent as error:
        raise RefusedContent(f"load_obj: {where} {error}") from None
    except NeonlikeError:
        raise
    except OSError as error:
        if error.errno is not None:  # of the disk, not of the content
            raise
        raise _unreadable(where, error) from error
    except Exception as error:  # a damaged pickle can end in any exception
        raise _unreadable(where, error) from error


def _unreadable(where: str, error: Exception) -> UnreadableFile:
    reason = str(error) if isinstance(error, _Damaged | pickle.UnpicklingError | EOFError | OSError) else repr(error)
    return UnreadableFile(
        f"load_obj: {where} is not a file written by save_obj or save_params, or not a whole one ({reason[:200]})"
    )


def admit(*classes: Any) -> None:
    """Let files hold objects of your own classes, or calls of your own functions.

    Whoever writes a file chooses the arguments and attributes: admit what is harmless with any of them.

    Raises
    ------
    DTypeError
        For what is neither a class nor a function.

    Examples
    --------
    >>> class Settings:
    ...     pass
    >>> admit(Settings)
    """
    for one in classes:
        if not isinstance(one, type) and not hasattr(one, "__qualname__"):
            raise DTypeError(f"admit: got {brief(one)}; expected classes and functions of your program")
    for one in classes:
        _admitted[one.__module__, one.__qualname__] = one


_admitted: dict[tuple[str, str], Any] = {}


# -- calls, with their arguments checked -------------------------------------------------------------------------------


def _shallow(key: Any) -> Any:
    """``key`` itself, unless taking its hash could overflow the stack."""
    level, depth = [key], 0
    while level := [item for item in level if type(item) in (tuple, frozenset)]:
        depth += 1
        if depth > MAX_KEY_DEPTH or len(level) > MAX_KEY_PARTS:
            raise _Damaged("keys are nested too deeply")
        level = [item for one in level for item in one]
    return key


def _container(cls: Callable[..., Any]) -> Callable[..., Any]:
    """Maker of a container from a container."""

    def make(items: Any = (), *maxlen: Any) -> Any:
        if not isinstance(items, list | tuple | dict | set | frozenset):
            raise _Damaged(f"{cls} of a {type(items).__name__}")
        if cls in (set, frozenset):
            items = [_shallow(item) for item in items]
        if cls is collections.OrderedDict and not isinstance(items, dict):
            items = [(_shallow(key), value) for key, value in items]
        return cls(items, *maxlen)

    return make


def _default_dict(factory: Any = None, *items: Any) -> Any:
    if factory is not None and factory not in BUILTINS.values():
        raise _Damaged("defaultdict of something that is no built-in type")
    return collections.defaultdict(factory, *items)


def _numbers(cls: Any) -> Callable[..., Any]:
    """Maker of something that a few numbers describe."""

    def make(*args: Any) -> Any:
        if not all(arg is None or isinstance(arg, int | float) for arg in args):
            raise _Damaged(f"{cls.__name__} of something that is no number")
        return cls(*args)

    return make


def _bytes(cls: Any) -> Callable[..., Any]:
    def make(content: Any = b"", encoding: str = "latin-1") -> Any:
        return cls(_encode(content, encoding) if isinstance(content, str) else memoryview(content))

    return make


def _encode(text: str, encoding: str = "latin-1") -> bytes:
    """How bytes are written for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _Damaged("bytes in an unknown encoding")
    return text.encode("latin-1")


def _reconstruct(cls: Any, *_: Any) -> Any:
    """An empty array, which gets shape, dtype and content from its state."""
    if not (isinstance(cls, type) and issubclass(cls, np.ndarray)):
        raise _Damaged("an array that is none")
    return np.ndarray.__new__(cls, (0,), np.int8)


def _scalar(dtype: Any, content: Any = b"") -> Any:
    return _filled(dtype, (), content)[()]


def _from_buffer(content: Any, dtype: Any, shape: Any, order: str = "C") -> Any:
    if isinstance(shape, int):
        shape = (shape,)
    return _filled(dtype, shape, content, order == "F")


def _filled(dtype: Any, shape: Any, content: Any, fortran: Any = False) -> Any:
    """A new array of that shape with these bytes, or for objects with this list of them."""
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
        raise _Damaged("an array without dtype or shape")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise _Damaged("an array of negative size")
    size, order = math.prod(shape), "F" if fortran else "C"
    if dtype.kind == "O":
        if not isinstance(content, list) or len(content) != size:
            raise _Damaged("an array of objects that does not have them all")
        flat = np.empty(size, object)
        flat[:] = np.fromiter(content, object, size)
        return flat.reshape(shape, order=order)  # type: ignore[call-overload]
    if dtype.hasobject:
        raise _Damaged("objects inside a structured array")
    data = _encode(content) if isinstance(content, str) else memoryview(content)
    if memoryview(data).nbytes != size * dtype.itemsize or not dtype.itemsize:
        raise _Damaged(f"an array of shape {shape} does not have all its bytes, or too many")
    # Into an array of its own, which may be written and is aligned.
    made = np.empty(shape, dtype, order=order)  # type: ignore[call-overload]
    made.reshape(-1, order="A").view(np.uint8)[...] = np.frombuffer(data, np.uint8)
    return made


SIMPLE_DTYPE = re.compile(r"[<>|=]?([?bBhHiIlLqQpPefdgFDGcO]|[biufcSUVOaMm][0-9]+)")
DATE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")


def _dtype(spec: Any, *_: Any) -> Any:
    known = SIMPLE_DTYPE.fullmatch(spec) if isinstance(spec, str) else isinstance(spec, type)
    if not known:
        raise _Damaged(f"the dtype {str(spec)[:40]!r}")
    return np.dtype(spec)


def _dtype_with_state(dtype: Any, state: Any) -> Any:
    """A dtype with byte order, fields and the like; never ``dtype`` changed, which others may use."""
    version, endian, base, names, fields, size, _, flags, *more = state
    if version not in (3, 4) or endian not in ("<", ">", "=", "|"):
        raise _Damaged("a dtype of an unknown form")
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
            raise _Damaged("dates in an unknown unit")
        made = np.dtype(f"{dtype.char}8[{count}{unit}]").newbyteorder(endian)
    else:
        made = dtype if endian == "|" else dtype.newbyteorder(endian)
    if size not in (-1, made.itemsize):
        raise _Damaged("a dtype of another size")
    return made


# -- what may be named -------------------------------------------------------------------------------------------------

BUILTINS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, range, object,
    )
}  # fmt: skip
PYTHON_2: dict[str, Any] = {"xrange": range, "unicode": str, "long": int}
SCALARS: dict[str, Any] = {
    name: getattr(np, name)
    for name in (
        "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intc", "intp", "uintc",
        "uintp", "longlong", "ulonglong", "float16", "float32", "float64", "longdouble", "complex64", "complex128",
        "clongdouble",
    )
} | {"bool": np.bool_}  # fmt: skip
COLLECTIONS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (collections.OrderedDict, collections.deque, collections.Counter, collections.defaultdict)
}


def _names() -> Iterator[tuple[tuple[str, str], Any]]:
    """``(module, name)`` and the object, of all that any file may name."""
    for name, value in BUILTINS.items():
        yield from (((module, name), value) for module in ("builtins", "__builtin__"))
    for name, value in PYTHON_2.items():
        yield ("__builtin__", name), value
    for name, value in COLLECTIONS.items():
        yield ("collections", name), value
    for name, value in SCALARS.items():
        yield ("numpy", name), value
    for numpy in ("numpy.core", "numpy._core"):
        yield (f"{numpy}.multiarray", "_reconstruct"), _reconstruct
        yield (f"{numpy}.multiarray", "scalar"), _scalar
        yield (f"{numpy}.numeric", "_frombuffer"), _from_buffer
    yield ("numpy", "ndarray"), np.ndarray
    yield ("numpy", "dtype"), np.dtype
    yield ("_codecs", "encode"), _encode


NAMES = dict(_names())

MAKERS: dict[Any, Callable[..., Any]] = {
    **{cls: _container(cls) for cls in (set, frozenset, *COLLECTIONS.values())},
    **{cls: _numbers(cls) for cls in (complex, slice, range)},
    **{cls: _bytes(cls) for cls in (bytes, bytearray)},
    **{function: function for function in (_encode, _reconstruct, _scalar, _from_buffer)},
    collections.defaultdict: _default_dict,
    np.dtype: _dtype,
}
"""What a file may call -> what is called in its place."""


_Reader: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Unpickler(_Reader):  # type: ignore[misc]
    """Python's own reader, with the steps that make and change objects replaced.

    It is the one written in Python: that in C cannot be told how to set the state of an array.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Reader.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """The object of that name, if files may name it."""
        if (module, name) in NAMES:
            return NAMES[module, name]
        if (module, name) == ("ml_dtypes", BFLOAT16):
            return as_dtype(BFLOAT16).type
        if (module, name) in _admitted:
            return _admitted[module, name]
        if f"{module}.{name}" in LIBRARY:
            admit(found := getattr(importlib.import_module(module), name))
            return found
        raise _refusal(f"{module}.{name}")

    def get_extension(self, code: int) -> None:
        raise _Damaged("it uses the extension registry")

    def _call(self, function: Any, args: Any) -> Any:
        maker = MAKERS.get(function)
        if maker is None and _is_ours(function):
            maker = function
        if maker is None:
            raise _refusal(f"a call of {getattr(function, '__qualname__', type(function).__qualname__)}")
        return maker(*args)

    def _instantiate(self, cls: Any, args: Any) -> None:
        self.append(self._call(cls, args))

    def load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args)

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = _new(self.stack[-1], args, {})

    def load_newobj_ex(self) -> None:
        kwargs, args = self.stack.pop(), self.stack.pop()
        self.stack[-1] = _new(self.stack[-1], args, kwargs)

    def load_build(self) -> None:
        """Give the object on the stack its state: an array or dtype is replaced, also where it is remembered."""
        made, state = self.stack[-2], self.stack[-1]
        if isinstance(made, np.dtype):
            self._replace(made, _dtype_with_state(made, state))
        elif isinstance(made, np.ndarray):
            shape, dtype, fortran, content = state[-4:]
            self._replace(made, _filled(dtype, shape, content, fortran).view(type(made)))
        elif _is_ours(type(made)):
            super().load_build()
            return
        else:
            raise _refusal(f"attributes of a {type(made).__qualname__}")
        self.stack.pop()

    def _replace(self, old: Any, new: Any) -> None:
        self.stack[-2] = new
        # It was put into the memo when it was made, which is not long ago.
        key = next((key for key in reversed(self.memo) if self.memo[key] is old), None)
        if key is not None:
            self.memo[key] = new

    def load_setitem(self) -> None:
        _shallow(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:
            _shallow(key)
        super().load_setitems()

    def load_additems(self) -> None:
        for key in self.stack:
            _shallow(key)
        super().load_additems()

    def load_dict(self) -> None:
        for key in self.stack[::2]:
            _shallow(key)
        super().load_dict()

    def load_frozenset(self) -> None:
        made = MAKERS[frozenset](self.pop_mark())
        self.append(made)

    for _step in ("reduce", "newobj", "newobj_ex", "build", "setitem", "setitems", "additems", "dict", "frozenset"):
        dispatch[getattr(pickle, _step.upper())[0]] = locals()[f"load_{_step}"]


def _is_ours(value: Any) -> bool:
    """Whether ``value`` is a function or class that was admitted."""
    return any(value is one for one in _admitted.values())


def _new(cls: Any, args: Any, kwargs: Any) -> Any:
    if cls in MAKERS:
        return MAKERS[cls](*args, **kwargs)
    if not (isinstance(cls, type) and _is_ours(cls)):
        raise _refusal(f"an object of {getattr(cls, '__qualname__', type(cls).__qualname__)}")
    return cls.__new__(cls, *args, **kwargs)


def _refusal(what: str) -> RefusedContent:
    return RefusedContent(
        f"holds {what}, which is not loaded: only NumPy arrays, numbers, texts and plain containers are, since "
        "anything else could run commands on this computer. It was not written by save_params, or by another version "
        "of the program. If you trust the file and that is a harmless class of your own, call "
        "neonlike.util.persist.admit(...) with the class before"
    )
