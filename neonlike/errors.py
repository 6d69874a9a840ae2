"""The exceptions that the library raises.

A message names the failed operation, the received and the expected values, and a remedy. Each class also derives from
the built-in exception that a caller without knowledge of this library would catch.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """End of a message about an unknown ``name``: ``"; did you mean a or b?"``, or empty without close matches."""
    close = difflib.get_close_matches(name, sorted(known), 3, cutoff)
    return f"; did you mean {' or '.join(close)}?" if close else ""


class NeonlikeError(Exception):
    """Base of all errors raised by this library."""


class ShapeError(NeonlikeError, ValueError, AssertionError):
    """Shapes, axes or sizes do not fit together.

    This and :class:`DTypeError` are ``AssertionError``, too, because neon checked shapes and types with ``assert``, and
    scripts catch that.
    """


class DTypeError(NeonlikeError, TypeError, AssertionError):
    """An operand has a type or dtype that the operation does not support."""


class IndexRangeError(NeonlikeError, IndexError):
    """An index lies outside its axis."""


class IndexTypeError(DTypeError, IndexRangeError):
    """An index has a type that selects no elements: a float, a mask, a string."""


class AliasError(NeonlikeError, ValueError, AssertionError):
    """Two tensors share memory in a way that makes the operation ambiguous; neon checked it with ``assert``."""


class ReadOnlyError(NeonlikeError, ValueError):
    """A write to a read-only tensor was attempted; nothing was changed."""


class TensorClosed(NeonlikeError, ValueError):
    """The file behind a mapped tensor was closed, and the tensor with it."""


class BackendUnavailable(NeonlikeError, RuntimeError):
    """The backend does not exist on this machine, or was closed."""


class OtherBackend(DTypeError, BackendUnavailable):
    """An object belongs to another backend than the operation; the message names it and both backends."""


class DeviceError(NeonlikeError, RuntimeError):
    """A GPU driver refused a request; the GPU can still be used."""


class DeviceLost(BackendUnavailable):
    """This process can no longer use the GPU; the message names the first error."""


class OutOfMemory(NeonlikeError, MemoryError):
    """Not enough memory; nothing was changed, and smaller requests may still succeed."""


class DeviceMemoryError(OutOfMemory):
    """Not enough GPU memory; nothing was changed, and smaller requests may still succeed."""


class KernelCompileError(NeonlikeError, RuntimeError):
    """A generated kernel did not compile, or could not be loaded.

    Attributes
    ----------
    source_path : str or None
        Path of the kept source; None if there is none or it could not be written.
    compiler_output : str
        Output of the compiler.
    expression : str
        The expression that the kernel computes.
    """

    def __init__(
        self, message: str = "", source_path: str | None = None, compiler_output: str = "", expression: str = ""
    ) -> None:
        super().__init__(message)
        self.source_path = source_path
        self.compiler_output = compiler_output
        self.expression = expression


class GradientError(NeonlikeError, ValueError):
    """The expression has no gradient with respect to the requested tensors."""


class ArgumentError(NeonlikeError, ValueError, AssertionError):
    """An argument has the right type but an unusable value.

    Also an ``AssertionError``, because neon checked arguments with ``assert``, and scripts catch that.
    """


class ArgumentTypeError(DTypeError, ArgumentError):
    """An argument has an unusable type, such as a string in place of a number."""


class MissingArgument(ArgumentError, AttributeError):
    """An argument required by another argument is missing, or contradicts it."""


class UnknownArgument(ArgumentError, TypeError):
    """No argument has this name; the message lists the known ones."""


class MissingAttribute(NeonlikeError, AttributeError):
    """No attribute has this name; the message suggests close names.

    The search runs when the message is read, so ``hasattr`` and ``getattr`` with a default never pay for it.
    """

    def __init__(self, message: str, name: str = "", known: Callable[[], Iterable[str]] = tuple) -> None:
        super().__init__(message)
        self._message, self._wanted, self._known = message, name, known

    def __str__(self) -> str:
        return self._message + did_you_mean(self._wanted, self._known())


class FixedAttribute(NeonlikeError, AttributeError):
    """An attempt was made to set an attribute that is fixed after construction."""


class NotDefined(NeonlikeError, NotImplementedError):
    """A subclass does not define a method that its base class requires."""


class MissingExtra(NeonlikeError, ImportError):
    """A feature needs an optional package; the message names the extra to install."""


class RankError(NeonlikeError, RuntimeError):
    """The ranks of a program disagree on what they compute together; the message names the ranks.

    Attributes
    ----------
    on_all : bool
        Whether all ranks raise it: then rank 0 alone reports it.
    """

    def __init__(self, message: str = "", on_all: bool = False) -> None:
        super().__init__(message)
        self.on_all = on_all
