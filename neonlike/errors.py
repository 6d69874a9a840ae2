"""The exceptions that the library raises.

A message names the failed operation, the received and the expected values, and a remedy. Each class also derives from
the built-in exception that a caller without knowledge of this library would catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """End of a message about an unknown ``name``: ``"; did you mean a or b?"``, or empty without close matches.

    Parameters
    ----------
    name : str
    known : iterable of str
        Names that exist.
    cutoff : float
        Least similarity of a suggestion, from 0 to 1.

    Examples
    --------
    >>> did_you_mean("relo", ["relu", "tanh"])
    '; did you mean relu?'
    """
    import difflib  # for errors alone

    close = difflib.get_close_matches(name, sorted(known), 3, cutoff)
    return f"; did you mean {' or '.join(close)}?" if close else ""


class NeonlikeError(Exception):
    """Base of all errors raised by this library.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import NeonlikeError
    >>> try:
    ...     be.ones((2, 3)) + be.ones((2, 4))
    ... except NeonlikeError:
    ...     print("shapes do not broadcast")
    shapes do not broadcast
    """


class ShapeError(NeonlikeError, ValueError, AssertionError):
    """Shapes, axes or sizes do not fit together.

    This and :class:`DTypeError` are ``AssertionError``, too, because neon checked shapes and types with ``assert``, and
    scripts catch that.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import ShapeError
    >>> try:
    ...     be.dot(be.ones((2, 3)), be.ones((2, 3)))
    ... except ShapeError:
    ...     print("inner sizes differ")
    inner sizes differ
    """


class DTypeError(NeonlikeError, TypeError, AssertionError):
    """An operand has a type or dtype that the operation does not support.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import DTypeError
    >>> try:
    ...     be.array(["text"])
    ... except DTypeError:
    ...     print("no numbers")
    no numbers
    """


class IndexRangeError(NeonlikeError, IndexError):
    """An index lies outside its axis.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import IndexRangeError
    >>> try:
    ...     be.ones((2, 3))[5]
    ... except IndexRangeError:
    ...     print("no such row")
    no such row
    """


class IndexTypeError(DTypeError, IndexRangeError):
    """An index has a type that selects no elements: a float, a mask, a string.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import IndexTypeError
    >>> try:
    ...     be.ones((2, 3))["first"]
    ... except IndexTypeError:
    ...     print("no index")
    no index
    """


class AliasError(NeonlikeError, ValueError, AssertionError):
    """Two tensors share memory in a way that makes the operation ambiguous; neon checked it with ``assert``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import AliasError
    >>> t = be.ones((2, 3))
    >>> try:
    ...     be.assign_many([(t, 1), (t, 2)])
    ... except AliasError:
    ...     print("one target twice")
    one target twice
    """


class ReadOnlyError(NeonlikeError, ValueError):
    """A write to a read-only tensor was attempted; nothing was changed.

    Examples
    --------
    >>> import os, tempfile
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.backends.descriptors import TensorDesc
    >>> be = gen_backend("cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "t")
    ...     be.mapped(path, TensorDesc((1, 2)), "w+").close()
    ...     try:
    ...         be.mapped(path, TensorDesc((1, 2)))[:] = 1
    ...     except ReadOnlyError:
    ...         print("mapped for reading")
    mapped for reading
    """


class TensorClosed(NeonlikeError, ValueError):
    """The file behind a mapped tensor was closed, and the tensor with it.

    Examples
    --------
    >>> import os, tempfile
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.backends.descriptors import TensorDesc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     t = gen_backend("cpu").mapped(os.path.join(folder, "t"), TensorDesc((1, 2)), "w+")
    ...     t.close()
    >>> try:
    ...     t.get()
    ... except TensorClosed:
    ...     print("map it again")
    map it again
    """


class BackendUnavailable(NeonlikeError, RuntimeError):
    """The backend does not exist on this machine, or was closed.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.errors import BackendUnavailable
    >>> try:
    ...     gen_backend("abacus")
    ... except BackendUnavailable:
    ...     print("no such backend")
    no such backend
    """


class OtherBackend(DTypeError, BackendUnavailable):
    """An object belongs to another backend than the operation; the message names it and both backends.

    Examples
    --------
    >>> from neonlike.backends import Backend
    >>> from neonlike.errors import OtherBackend
    >>> one, other = (Backend.allocate_backend("cpu") for _ in range(2))
    >>> try:
    ...     one.sort(other.ones((1, 2)), out=one.empty((1, 2)))
    ... except OtherBackend:
    ...     print("copy it: one.array(t.get())")
    copy it: one.array(t.get())
    """


class DeviceError(NeonlikeError, RuntimeError):
    """A GPU driver refused a request; the GPU can still be used.

    Examples
    --------
    >>> issubclass(DeviceError, NeonlikeError)
    True
    """


class DeviceLost(BackendUnavailable):
    """This process can no longer use the GPU; the message names the first error.

    Examples
    --------
    >>> issubclass(DeviceLost, BackendUnavailable)
    True
    """


class OutOfMemory(NeonlikeError, MemoryError):
    """Not enough memory; nothing was changed, and smaller requests may still succeed.

    Examples
    --------
    >>> issubclass(OutOfMemory, MemoryError)
    True
    """


class DeviceMemoryError(OutOfMemory):
    """Not enough GPU memory; nothing was changed, and smaller requests may still succeed.

    Examples
    --------
    >>> issubclass(DeviceMemoryError, OutOfMemory)
    True
    """


class KernelCompileError(NeonlikeError, RuntimeError):
    """A generated kernel did not compile, or could not be loaded.

    Parameters
    ----------
    message : str
    source_path, compiler_output, expression
        See the attributes.

    Attributes
    ----------
    source_path : str or None
        Path of the kept source; None if there is none or it could not be written.
    compiler_output : str
        Output of the compiler.
    expression : str
        The expression that the kernel computes.

    Examples
    --------
    >>> KernelCompileError("refused", source_path="k.c", compiler_output="k.c:1: error").source_path
    'k.c'
    """

    def __init__(
        self, message: str = "", source_path: str | None = None, compiler_output: str = "", expression: str = ""
    ) -> None:
        super().__init__(message)
        self.source_path = source_path
        self.compiler_output = compiler_output
        self.expression = expression


class GradientError(NeonlikeError, ValueError):
    """The expression has no gradient with respect to the requested tensors.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import GradientError
    >>> try:
    ...     be.grad(lambda x: 1)(be.ones((1, 2)))
    ... except GradientError:
    ...     print("f must return an expression")
    f must return an expression
    """


class ArgumentError(NeonlikeError, ValueError, AssertionError):
    """An argument has the right type but an unusable value.

    Also an ``AssertionError``, because neon checked arguments with ``assert``, and scripts catch that.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import ArgumentError
    >>> try:
    ...     be.dropout(1.5)
    ... except ArgumentError:
    ...     print("a probability is in [0, 1]")
    a probability is in [0, 1]
    """


class ArgumentTypeError(DTypeError, ArgumentError):
    """An argument has an unusable type, such as a string in place of a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import ArgumentTypeError
    >>> try:
    ...     be.mean(be.ones((2, 3, 4)), axis=0, keepdims="no")
    ... except ArgumentTypeError:
    ...     print("True or False")
    True or False
    """


class MissingArgument(ArgumentError, AttributeError):
    """An argument required by another argument is missing, or contradicts it.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import MissingArgument
    >>> try:
    ...     be.zeros_like()
    ... except MissingArgument:
    ...     print("like what?")
    like what?
    """


class UnknownArgument(ArgumentError, TypeError):
    """No argument has this name; the message lists the known ones.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.errors import UnknownArgument
    >>> try:
    ...     gen_backend("cpu", colour="red")
    ... except UnknownArgument:
    ...     print("no such argument")
    no such argument
    """


class MissingAttribute(NeonlikeError, AttributeError):
    """No attribute has this name; the message suggests close names.

    The search runs when the message is read, so ``hasattr`` and ``getattr`` with a default never pay for it.

    Parameters
    ----------
    message : str
    name : str
        The missing name; empty: no suggestions.
    known : callable
        Returns the names to compare with.

    Examples
    --------
    >>> print(MissingAttribute("no attribute 'shpae'", "shpae", lambda: ["shape", "size"]))
    no attribute 'shpae'; did you mean shape?
    """

    def __init__(self, message: str, name: str = "", known: Callable[[], Iterable[str]] = tuple) -> None:
        super().__init__(message)
        self._message, self._wanted, self._known = message, name, known

    def __str__(self) -> str:
        return self._message + did_you_mean(self._wanted, self._known())


class FixedAttribute(NeonlikeError, AttributeError):
    """An attempt was made to set an attribute that is fixed after construction.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.errors import FixedAttribute
    >>> try:
    ...     be.ones((2, 3)).shape = (3, 2)
    ... except FixedAttribute:
    ...     print("reshape it")
    reshape it
    """


class NotDefined(NeonlikeError, NotImplementedError):
    """A subclass does not define a method that its base class requires.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> try:
    ...     autograd.Op()(be.ones((1, 1)))
    ... except NotDefined:
    ...     print("define value() or forward()")
    define value() or forward()
    """


class MissingExtra(NeonlikeError, ImportError):
    """A feature needs an optional package; the message names the extra to install.

    Examples
    --------
    >>> issubclass(MissingExtra, ImportError)
    True
    """


class RankError(NeonlikeError, RuntimeError):
    """The ranks of a program disagree on what they compute together; the message names the ranks.

    Attributes
    ----------
    on_all : bool
        Whether all ranks raise it: then rank 0 alone reports it.

    Examples
    --------
    >>> RankError("rank 1 differs", on_all=True).on_all
    True
    """

    def __init__(self, message: str = "", on_all: bool = False) -> None:
        super().__init__(message)
        self.on_all = on_all
