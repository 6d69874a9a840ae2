"""Safe unpickling: only arrays, numbers, strings and containers, without executing code.

A pickle is a small program, and Python's own reader executes it: it imports any module and calls any function that the
file names. Here a file may only name entries of the tables below, and ``pickle_makers`` constructs the objects.
"""

from __future__ import annotations

import importlib
import pickle
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar

import numpy as np

from neonlike.checks import brief
from neonlike.errors import DTypeError, NeonlikeError
from neonlike.optree.dtypes import BFLOAT16, as_dtype
from neonlike.util.archive import Unreadable
from neonlike.util.pickle_makers import (
    BUILTINS,
    COLLECTIONS,
    MAKERS,
    Damaged,
    dtype_with_state,
    encode,
    filled,
    from_buffer,
    reconstruct,
    scalar,
    shallow,
)

LIBRARY = (
    "neonlike.backends.expressions.random.make_state",
    "neonlike.backends.pickling.restore_tensor",
)
"""Functions and classes of this library that files may name. A function must be harmless for any arguments."""

MOVED = {"neonlike.backends.families.random": "neonlike.backends.expressions.random"}
"""Modules that files of earlier versions name -> the modules that replaced them."""


class LoadError(NeonlikeError, AttributeError):
    """A saved file refers to something that does not exist here.

    Examples
    --------
    >>> issubclass(RefusedContent, LoadError)
    True
    """


class RefusedContent(LoadError, pickle.UnpicklingError):
    """A file refers to a class or function that is refused, because calling it could execute anything.

    Examples
    --------
    >>> import io, os, pickle
    >>> try:
    ...     load(io.BytesIO(pickle.dumps(os.system)), "it")
    ... except RefusedContent:
    ...     print("refused")
    refused
    """


class UnreadableFile(NeonlikeError, pickle.UnpicklingError, EOFError):
    """A file was not written by ``save_obj``, or is incomplete.

    Examples
    --------
    >>> import io
    >>> try:
    ...     load(io.BytesIO(b"text"), "it")
    ... except UnreadableFile:
    ...     print("unreadable")
    unreadable
    """


def load(file: IO[bytes], where: str) -> Any:
    """Read the object pickled in an open file; strings written by Python 2 are decoded as Latin-1.

    Parameters
    ----------
    where : str
        Name of the file, for messages.

    Raises
    ------
    RefusedContent
        If it names a class or function that is not allowed.
    UnreadableFile
        If it is not a pickle, or damaged.
    """
    try:
        return _Unpickler(file, encoding="latin1").load()
    except RefusedContent as error:
        raise RefusedContent(f"load_obj: {where} {error}") from None
    except NeonlikeError:
        raise
    except OSError as error:
        if error.errno is not None:  # a disk error, not a content error
            raise
        raise unreadable(where, error) from error
    except Exception as error:  # a damaged pickle can raise any exception
        raise unreadable(where, error) from error


def unreadable(where: str, error: Exception) -> UnreadableFile:
    """Build the exception for a file whose reading failed with ``error``."""
    clear = Damaged | Unreadable | pickle.UnpicklingError | zipfile.BadZipFile | EOFError | OSError
    reason = str(error) if isinstance(error, clear) else repr(error)
    return UnreadableFile(
        f"load_obj: {where} is not a file written by save_obj or save_params, or not a whole one ({reason[:200]})"
    )


def admit(*classes: Any) -> None:
    """Allow files to contain objects of your classes, or calls of your functions.

    The author of a file controls arguments and attributes: allow only what is harmless with any of them.

    Raises
    ------
    DTypeError
        For anything but a class or function.

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


# -- what may be named -------------------------------------------------------------------------------------------------

PYTHON_2: dict[str, Any] = {"xrange": range, "unicode": str, "long": int}
SCALARS: dict[str, Any] = {
    name: getattr(np, name)
    for name in (
        "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intc", "intp", "uintc",
        "uintp", "longlong", "ulonglong", "float16", "float32", "float64", "longdouble", "complex64", "complex128",
        "clongdouble",
    )
} | {"bool": np.bool_}  # fmt: skip


def _names() -> Iterator[tuple[tuple[str, str], Any]]:
    """``(module, name)`` and object of everything that any file may name."""
    for name, value in BUILTINS.items():
        yield from (((module, name), value) for module in ("builtins", "__builtin__"))
    for name, value in PYTHON_2.items():
        yield ("__builtin__", name), value
    for name, value in COLLECTIONS.items():
        yield ("collections", name), value
    for name, value in SCALARS.items():
        yield ("numpy", name), value
    for numpy in ("numpy.core", "numpy._core"):
        yield (f"{numpy}.multiarray", "_reconstruct"), reconstruct
        yield (f"{numpy}.multiarray", "scalar"), scalar
        yield (f"{numpy}.numeric", "_frombuffer"), from_buffer
    yield ("numpy", "ndarray"), np.ndarray
    yield ("numpy", "dtype"), np.dtype
    yield ("_codecs", "encode"), encode


NAMES = dict(_names())


_Reader: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Unpickler(_Reader):  # type: ignore[misc]
    """Python's own reader, with the steps that create and modify objects replaced.

    It is the reader written in Python: the one in C does not allow control over setting an array's state.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Reader.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """Return the named object, if files may name it."""
        if (module, name) in NAMES:
            return NAMES[module, name]
        if (module, name) == ("ml_dtypes", BFLOAT16):
            return as_dtype(BFLOAT16).type
        if (module, name) in _admitted:
            return _admitted[module, name]
        module = MOVED.get(module, module)
        if f"{module}.{name}" in LIBRARY:
            admit(found := getattr(importlib.import_module(module), name))
            return found
        raise _refusal(f"{module}.{name}")

    def get_extension(self, code: int) -> None:
        raise Damaged("it uses the extension registry")

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
        """Set the state of the object on the stack: an array or dtype is replaced, also in the memo."""
        made, state = self.stack[-2], self.stack[-1]
        if isinstance(made, np.dtype):
            self._replace(made, dtype_with_state(made, state))
        elif isinstance(made, np.ndarray):
            shape, dtype, fortran, content = state[-4:]
            self._replace(made, filled(dtype, shape, content, fortran).view(type(made)))
        elif _is_ours(type(made)):
            super().load_build()
            return
        else:
            raise _refusal(f"attributes of a {type(made).__qualname__}")
        self.stack.pop()

    def _replace(self, old: Any, new: Any) -> None:
        self.stack[-2] = new
        # It entered the memo when it was created, so it is among the latest entries.
        key = next((key for key in reversed(self.memo) if self.memo[key] is old), None)
        if key is not None:
            self.memo[key] = new

    def load_setitem(self) -> None:
        shallow(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:
            shallow(key)
        super().load_setitems()

    def load_additems(self) -> None:
        for key in self.stack:
            shallow(key)
        super().load_additems()

    def load_dict(self) -> None:
        for key in self.stack[::2]:
            shallow(key)
        super().load_dict()

    def load_frozenset(self) -> None:
        made = MAKERS[frozenset](self.pop_mark())
        self.append(made)

    for _step in ("reduce", "newobj", "newobj_ex", "build", "setitem", "setitems", "additems", "dict", "frozenset"):
        dispatch[getattr(pickle, _step.upper())[0]] = locals()[f"load_{_step}"]


def _is_ours(value: Any) -> bool:
    """Whether ``value`` is a function or class allowed by :func:`admit`."""
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
