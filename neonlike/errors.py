"""Every exception the library raises on purpose.

A message says which operation failed, what came, what was expected and what to do about it. The classes
also derive from the built-in exception a caller would catch without knowing this library.
"""

from __future__ import annotations


class NeonlikeError(Exception):
    """Base of all errors raised by this library."""


class ShapeError(NeonlikeError, ValueError):
    """Shapes, axes or sizes do not fit together."""


class DTypeError(NeonlikeError, TypeError):
    """An operand has a type or dtype that the operation cannot take."""


class IndexRangeError(NeonlikeError, IndexError):
    """An index lies outside its axis."""


class AliasError(NeonlikeError, ValueError):
    """Two tensors share memory in a way that makes the operation ambiguous."""


class BackendUnavailable(NeonlikeError, RuntimeError):
    """The backend does not exist on this machine, or was closed."""


class KernelCompileError(NeonlikeError, RuntimeError):
    """A generated kernel did not compile; holds the source path and the compiler's words."""


class GradientError(NeonlikeError, ValueError):
    """The expression has no gradient with respect to what was asked for."""


class ArgumentError(NeonlikeError, ValueError, AssertionError):
    """An argument has the right type but a value that the operation cannot use.

    Also an ``AssertionError``, because neon checked its arguments with ``assert`` and scripts catch that.
    """


class MissingArgument(ArgumentError, AttributeError):
    """An argument that another argument makes necessary was not given, or contradicts it."""


class MissingExtra(NeonlikeError, ImportError):
    """A feature needs an optional package; the message names the extra to install."""
