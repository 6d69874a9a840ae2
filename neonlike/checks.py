"""Argument checks based on the annotations of functions, run before the function body.

:func:`checked` reads a function's annotations: ``rate: float``, ``name: str | None``, ``reverse: bool``,
``pairs: Sequence[...]``, and classes registered by :func:`admit`, such as ``Tensor``. Parameters with other
annotations, above all ``Any``, are not checked.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from neonlike.errors import ArgumentError, ArgumentTypeError
from neonlike.logger import logger

Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(NamedTuple):
    """The set of values that an annotation admits.

    Attributes
    ----------
    words : str
        Description for messages.
    quick : tuple or set of types
        Types of objects that are admitted without a closer look. For a kind that is a class, a set that grows by each
        subclass encountered.
    admits : callable
        Whether a value of another type is admitted.
    """

    words: str
    quick: tuple[type, ...] | set[type]
    admits: Callable[[Any], bool]


def shown(value: Any) -> str:
    """Format a value for a message on one line: numbers and strings as literals, others with their type; truncated."""
    text = brief(value)
    plain = value is None or isinstance(value, (str, bytes, bool, numbers.Number)) or _has_values(value)
    return text if plain else f"{type(value).__name__} {text}"


def brief(value: Any, most: int = 60) -> str:
    """Format ``repr(value)`` for a message: one line, truncated, with shapes instead of arrays."""
    if _has_values(value):  # values would have to be computed or fetched
        name = getattr(value, "name", None)
        called = f" {name!r:.40}" if isinstance(name, str) else ""
        return f"{type(value).__name__}{called} of shape {str(value.shape)[:40]}"
    if type(value) in (list, tuple):
        inside = ", ".join(brief(one, most) for one in value[:most])
        left, right = "[]" if type(value) is list else ("(", ",)" if len(value) == 1 else ")")
        text = f"{left}{inside}{right}"
    elif type(value) is dict:
        text = "{" + ", ".join(f"{key!r:.40}: {brief(one, most)}" for key, one in list(value.items())[:most]) + "}"
    else:
        text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 10]}..."


def _has_values(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, (type, np.generic))


def is_real(value: Any) -> bool:
    """Whether ``value`` is a real number of Python or NumPy, or a 0-d array of one.

    That includes bfloat16, which is not among NumPy's numbers.
    """
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and (value.dtype.kind in "biuf" or value.dtype.name == "bfloat16")
    if isinstance(value, numbers.Real):
        return not isinstance(value, np.timedelta64)
    return _is_bfloat16(value)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, np.generic) and value.dtype.name == "bfloat16"


def number(operation: str, name: str, value: Any) -> float:
    """Convert ``value``, a number or 0-d array, to a float.

    Parameters
    ----------
    operation, name : str
        Method and argument, for messages.
    value : number or array of one

    Raises
    ------
    ArgumentTypeError
        If it is not a number, such as a tensor.
    ArgumentError
        If it is an integer larger than any float.
    """
    if value.__class__ is float:
        return value  # the common case: isinstance of an abstract class takes as long as a small kernel
    if not is_real(value):
        raise ArgumentTypeError(f"{operation}: {name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{operation}: {name} is larger than any float, got {str(value)[:40]}...") from None


def is_iterable(value: Any) -> bool:
    """Whether ``value`` is a list of things: no text, mapping or array without axes."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


_KINDS = {
    "int": Kind("an integer", (int, bool), lambda value: isinstance(value, (numbers.Integral, np.bool_))),
    "float": Kind("a number", (float,), is_real),
    "bool": Kind("True or False", (bool, type(None)), lambda value: isinstance(value, np.bool_) or is_real(value)),
    "str": Kind("a string", (str,), lambda value: isinstance(value, str)),
    "bytes": Kind("bytes", (bytes,), lambda value: isinstance(value, bytes)),
    "None": Kind("None", (type(None),), lambda value: False),
    "dict": Kind("a dictionary", (dict,), lambda value: isinstance(value, Mapping)),
    "list": Kind("a list", (list,), lambda value: isinstance(value, list)),
    "tuple": Kind("a tuple", (tuple,), lambda value: isinstance(value, tuple)),
    "Sequence": Kind("a sequence", (list, tuple), lambda value: _is_sequence(value)),
    "Collection": Kind("a collection", (list, tuple, set), lambda value: _is_collection(value)),
    "Iterable": Kind("a sequence", (list, tuple), is_iterable),
    "os.PathLike": Kind("a path", (), lambda value: isinstance(value, os.PathLike)),
    "np.ndarray": Kind("an array", (np.ndarray,), lambda value: isinstance(value, np.ndarray)),
    "Callable": Kind("a function", (), callable),
}
_KINDS["Description"] = _KINDS["dict"]


def admit(cls: type, words: str) -> None:
    """Check annotations that name ``cls``, too; ``words`` describe its objects in messages."""
    _KINDS[cls.__name__] = Kind(words, {cls}, lambda value: isinstance(value, cls))


def _is_collection(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (bytes, np.ndarray))


def _is_sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def kind_of(annotation: Any) -> Kind | None:
    """Parse the text of an annotation into a kind; None if it is not checked."""
    if not isinstance(annotation, str):
        return None
    found: list[Kind] = []
    for part in _alternatives(annotation):
        kind = _KINDS.get(part.partition("[")[0])
        if kind is None:
            return None
        found.append(kind)
    if len(found) == 1:
        return found[0]
    quick = tuple(dict.fromkeys(accepted for kind in found for accepted in kind.quick))
    return Kind(" or ".join(kind.words for kind in found), quick, lambda v: any(kind.admits(v) for kind in found))


def _alternatives(annotation: str) -> list[str]:
    """Split ``a | b[c | d]`` at the bars outside of brackets."""
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def require(operation: str, name: str, value: Any, kind: Kind) -> Any:
    """Return ``value``, or its integer or float value, if ``kind`` admits it.

    Parameters
    ----------
    operation, name : str
        Method and argument, for messages.
    value : object
    kind : Kind
        The admitted values.

    Raises
    ------
    ArgumentTypeError
        If ``kind`` does not admit it.
    ArgumentError
        For an integer outside the range of floats.
    """
    if not kind.admits(value):
        if int in kind.quick and (whole := _whole(value)) is not None:
            return whole
        if name in _lenient:
            _warn_once(operation, name, shown(value))
            return value
        raise ArgumentTypeError(f"{operation}: {name} must be {kind.words}, got {shown(value)}")
    if _is_bfloat16(value):
        return float(value)  # arithmetic and files know Python's numbers and NumPy's
    if isinstance(kind.quick, set):
        kind.quick.add(type(value))
    if is_real(value) and kind.words.startswith("a number"):
        number(operation, name, value)
    return value


def _whole(value: Any) -> int | None:
    """Convert a 0-d integer array, or a whole float in neon's dialect, to an integer; else None."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value)
    if _lenient and isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    return None


_lenient: dict[str, str] = {}
_warned: set[tuple[str, str]] = set()


def _warn_once(operation: str, name: str, value: str) -> None:
    """Warn once about an argument that probably belongs to another parameter, since base classes receive it again."""
    if (name, value) not in _warned:
        _warned.add((name, value))
        logger.warning("%s: %s is %s; was %s meant?", operation, name, value, _lenient[name])


def admit_anything(meant: Mapping[str, str]) -> None:
    """Let only parameters of these names accept any object, with a warning that suggests an alternative."""
    _lenient.clear()
    _warned.clear()
    _lenient.update(meant)


def require_method(operation: str, name: str, value: Any, method: str, example: str) -> None:
    """Raise ArgumentTypeError unless ``value`` is an object, not a class, with a ``method``.

    Parameters
    ----------
    operation, name : str
        Method and argument, for the message.
    value : object
    method : str
        Name of what it must have.
    example : str
        Something that has it, as it is written in a program.
    """
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise ArgumentTypeError(f"{operation}: {name} must have {method}(), as {example} has; got {shown(value)}")


def checked(function: Function) -> Function:
    """Return ``function`` with argument checks by its annotations; the function itself if nothing is checked.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        Raised by the wrapped function for an argument of another kind.
    """
    looked_at: list[tuple[int, str, Collection[type], Kind, Any]] = []
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name == "axis":
            continue  # axes are checked together with a shape
        place = index if parameter.kind is not parameter.KEYWORD_ONLY else 10**6
        if kind := kind_of(parameter.annotation):
            looked_at.append((place, parameter.name, kind.quick, kind, parameter.default))
    if not looked_at:
        return function
    operation = _operation(function)

    @functools.wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        for place, name, quick, kind, default in looked_at:
            if place < count:
                value = args[place]
            elif name in kwargs:
                value = kwargs[name]
            else:
                continue
            if value.__class__ not in quick and value is not default:
                taken = require(operation, name, value, kind)
                if taken is not value and place < count:
                    args = (*args[:place], taken, *args[place + 1 :])
                elif taken is not value:
                    kwargs[name] = taken
        return function(*args, **kwargs)

    checking.looked_at = tuple((place, name, quick, default) for place, name, quick, _, default in looked_at)  # type: ignore[attr-defined]
    return checking  # type: ignore[return-value]


def _operation(function: Callable[..., Any]) -> str:
    """Name of ``function`` in messages: a backend's method by its name, others with their class."""
    owner, _, name = function.__qualname__.rpartition(".")
    if name in ("__init__", "__call__"):
        return owner or name
    return name if owner.endswith("Family") or not owner else f"{owner}.{name}"


def check_methods(cls: type, names: Iterable[str] = ()) -> None:
    """Add checks to each public method defined by ``cls`` itself, and to those in ``names``."""
    for name, thing in list(vars(cls).items()):
        if inspect.isfunction(thing) and (not name.startswith("_") or name in names):
            found = checked(thing)
            if found is not thing:
                setattr(cls, name, found)
                _methods.append((cls, name, found))
                if _faster is not None:
                    _replace(cls, name, found, _faster)


_methods: list[tuple[type, str, Any]] = []
"""The checked methods: class, name, and checking function."""
_faster: Callable[[Any], Any] | None = None
_replaced: dict[tuple[type, str], Any] = {}


def check_by(faster: Callable[[Any], Any] | None) -> None:
    """Replace the checking methods by ``faster(method)``; None restores the Python functions.

    ``faster`` receives a function with the attributes ``__wrapped__``, called after the check, and ``looked_at``, a
    list of the checked parameters: (position, name, types admitted at once, default). Special methods are left alone,
    and so are methods that were replaced elsewhere.
    """
    global _faster
    _faster = faster
    for cls, name, checking in list(_methods):
        if faster is not None:
            _replace(cls, name, checking, faster)
        elif vars(cls).get(name) is (made := _replaced.pop((cls, name), None)) and made is not None:
            setattr(cls, name, checking)


def _replace(cls: type, name: str, checking: Any, faster: Callable[[Any], Any]) -> None:
    if vars(cls).get(name) is checking and not name.startswith("__"):
        _replaced[cls, name] = made = faster(checking)
        setattr(cls, name, made)
