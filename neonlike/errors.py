"""Every exception the library raises on purpose.

A message says which operation failed, what came, what was expected and what to do about it. The classes
also derive from the built-in exception a caller would catch without knowing this library.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message about an unknown ``name``: ``"; did you mean a or b?"``, or nothing if none is close."""
    close = difflib.get_close_matches(name, sorted(known), 3, cutoff)
    return f"; did you mean {' or '.join(close)}?" if close else ""


class NeonlikeError(Exception):
    """Base of all errors raised by this library."""


class ShapeError(NeonlikeError, ValueError, AssertionError):
    """Shapes, axes or sizes do not fit together.

    This and :class:`DTypeError` are ``AssertionError`` too, because neon checked shapes and types with ``assert``
    and scripts catch that.
    """


class DTypeError(NeonlikeError, TypeError, AssertionError):
    """An operand has a type or dtype that the operation cannot take."""


class IndexRangeError(NeonlikeError, IndexError):
    """An index lies outside its axis."""


class IndexTypeError(DTypeError, IndexRangeError):
    """An index is of a kind that picks no elements: a float, a mask, a string."""


class AliasError(NeonlikeError, ValueError, AssertionError):
    """Two tensors share memory in a way that makes the operation ambiguous; neon checked it with ``assert``."""


class ReadOnlyError(NeonlikeError, ValueError):
    """A tensor that must not be written was to be written; nothing was changed."""


class TensorClosed(NeonlikeError, ValueError):
    """The file that a tensor was mapped from was closed, and the tensor with it."""


class BackendUnavailable(NeonlikeError, RuntimeError):
    """The backend does not exist on this machine, or was closed."""


class OtherBackend(DTypeError, BackendUnavailable):
    """Something was made on another backend than the one it is used with; the message names it and both."""


class DeviceError(NeonlikeError, RuntimeError):
    """A GPU's driver refused what it was asked for; the GPU can still be used."""


class DeviceLost(BackendUnavailable):
    """A GPU cannot be used by this process any more; the message names the first error."""


class OutOfMemory(NeonlikeError, MemoryError):
    """There is not enough memory; nothing was changed, and smaller requests may still succeed."""


class DeviceMemoryError(OutOfMemory):
    """A GPU has not enough memory; nothing was changed, and smaller requests may still succeed."""


class KernelCompileError(NeonlikeError, RuntimeError):
    """A generated kernel did not compile, or could not be loaded.

    Attributes
    ----------
    source_path : str or None
        Where the source is kept; None if there is none or it could not be written.
    compiler_output : str
        What the compiler printed.
    expression : str
        What the kernel computes.
    """

    def __init__(
        self, message: str = "", source_path: str | None = None, compiler_output: str = "", expression: str = ""
    ) -> None:
        super().__init__(message)
        self.source_path = source_path
        self.compiler_output = compiler_output
        self.expression = expression


class GradientError(NeonlikeError, ValueError):
    """The expression has no gradient with respect to what was asked for."""


class ArgumentError(NeonlikeError, ValueError, AssertionError):
    """An argument has the right type but a value that the operation cannot use.

    Also an ``AssertionError``, because neon checked its arguments with ``assert`` and scripts catch that.
    """


class ArgumentTypeError(DTypeError, ArgumentError):
    """An argument is of a type that the operation cannot use: a text where it takes a number."""


class MissingArgument(ArgumentError, AttributeError):
    """An argument that another argument makes necessary was not given, or contradicts it."""


class UnknownArgument(ArgumentError, TypeError):
    """There is no argument of this name; the message lists those that there are."""


class MissingAttribute(NeonlikeError, AttributeError):
    """There is no attribute of this name; the message names those that are close.

    They are looked for when the message is read: ``hasattr`` and ``getattr`` with a default never do.
    """

    def __init__(self, message: str, name: str = "", known: Callable[[], Iterable[str]] = tuple) -> None:
        super().__init__(message)
        self._message, self._wanted, self._known = message, name, known

    def __str__(self) -> str:
        return self._message + did_you_mean(self._wanted, self._known())


class FixedAttribute(NeonlikeError, AttributeError):
    """An attribute was set that cannot change after an object was made."""


class NotDefined(NeonlikeError, NotImplementedError):
    """A method that a class leaves to its subclasses was called on one that does not define it."""


class MissingExtra(NeonlikeError, ImportError):
    """A feature needs an optional package; the message names the extra to install."""
