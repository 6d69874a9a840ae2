"""The commands that a dynamic graph runs: commands are values, made by the functions here and run by ``graph.exec``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from neonlike.autograd.leaves import const, derived
from neonlike.autograd.variable import Variable
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError
from neonlike.optree.functions import F as Functions
from neonlike.optree.ops import OPS, Kind
from neonlike.optree.shapes import Shape

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

F: Any = Functions

__all__ = [
    "Command", "Hint", "batchnorm", "conv", "deconv", "ewise", "function", "gemm", "lrn", "mean", "pool",
    "random_normal", "random_uniform", "set_to", "softmax", "sum_of",
]  # fmt: skip


class Hint(NamedTuple):
    """Where the windows of a convolution or pooling lie: one number for all spatial axes, or one each.

    Examples
    --------
    >>> from neonlike.autograd.dynamic import Hint
    >>> Hint(strides=2, padding=(1, 0))
    Hint(strides=2, padding=(1, 0))
    """

    strides: Any = None
    padding: Any = 0


class Outcome(NamedTuple):
    """The shape and dtype that an output has already; None: it takes those of the result."""

    shape: Shape | None
    dtype: Any


@dataclass(frozen=True)
class Command:
    """An operation with its options, without operands.

    Attributes
    ----------
    name : str
    build : callable
        ``build(be, hint, outcome, *variables)`` gives the result, or a tuple of ``outputs`` results: variables of
        ``neonlike.autograd``.
    least, most : int
        How many inputs it takes; ``most`` None: any number.
    outputs : int
    options : dict
        For messages and pictures.
    windows : bool
        Whether a :class:`Hint` means something to it.

    Examples
    --------
    >>> from neonlike.autograd.dynamic import commands
    >>> print(commands.softmax(axis=1))
    softmax(axis=1)
    """

    name: str
    build: Callable[..., Any] = field(repr=False, compare=False)
    least: int
    most: int | None
    outputs: int = 1
    options: tuple[tuple[str, Any], ...] = ()
    windows: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.options)})"

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise ArgumentError(f"Command {self.name!r}: needs one output at least, got {self.outputs}")


def _named(**options: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


_ELEMENTWISE = {
    name: spec
    for spec in OPS.values()
    if spec.kind is Kind.ELEMENTWISE and spec.builders
    for name in (spec.name, *spec.builders)
}
"""Ops by all their names."""


# Elements and products ------------------------------------------------------------------------------------------------


def ewise(op: Any) -> Command:
    """An elementwise op of the table (``docs/ops.md``) by its name or its builder's, such as "add", "mul", "multiply".

    Raises
    ------
    ArgumentError
        If there is none of this name.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x = graph.variable(value=[[1.0, 2.0]])
    >>> graph.exec(commands.ewise("add"), [x, x]).get().tolist()
    [[2.0, 4.0]]
    """
    if not isinstance(op, str) or op not in _ELEMENTWISE:
        raise ArgumentError(
            f"commands.ewise: op must name an elementwise op (docs/ops.md), such as 'add', got {brief(op)}; wrap "
            "others: commands.function(lambda x: ...)"
        )
    spec = _ELEMENTWISE[op]
    return Command(op, _of_expressions(op, getattr(F, spec.builders[0])), spec.arity, spec.arity)


def function(build: Callable[..., Any], name: str | None = None, inputs: int | None = None) -> Command:
    """Any function of expressions, ``be``'s operations and ``neonlike.optree``'s, that returns one expression.

    Parameters
    ----------
    build : callable
    name : str, optional
        For messages and pictures.
    inputs : int, optional
        How many it takes; not checked if not given.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x = graph.variable(value=[[1.0, 2.0]])
    >>> graph.exec(commands.function(lambda x: x * 3 + 1), [x]).get().tolist()
    [[4.0, 7.0]]
    """
    if not callable(build):
        raise DTypeError(f"commands.function: needs a function of expressions, got {brief(build)}")
    named = name or str(getattr(build, "__name__", type(build).__name__))
    return Command(named, _of_expressions(named, build), 1 if inputs is None else inputs, inputs)


def gemm(transpose_a: bool = False, transpose_b: bool = False) -> Command:
    """Matrix product of inputs a (m, k) and b (k, n), each transposed first if asked; a third one, a bias, is added.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x = graph.variable(value=[[1.0, 2.0]])
    >>> graph.exec(commands.gemm(transpose_b=True), [x, x]).get().tolist()
    [[5.0]]
    """

    def build(a: Any, b: Any, bias: Any = None) -> Any:
        product = F.dot(a.T if transpose_a else a, b.T if transpose_b else b)
        return product if bias is None else product + bias

    options = _named(transpose_a=transpose_a, transpose_b=transpose_b)
    return Command("gemm", _of_expressions("gemm", build), 2, 3, options=options)


def softmax(axis: int = 0) -> Command:
    """exp(x) over its sum along ``axis``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.softmax(1), [graph.variable((1, 2))]).get().tolist()
    [[0.5, 0.5]]
    """

    def build(x: Any) -> Any:
        powers = F.exp(x - F.max(x, axis=axis))
        return powers / F.sum(powers, axis=axis)

    return Command("softmax", _of_expressions("softmax", build), 1, 1, options=_named(axis=axis))


def sum_of(axis: int | None = None) -> Command:
    """The sum along ``axis``, whose size becomes 1; of all elements, (1, 1), if None.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.sum_of(1), [graph.variable(value=[[1.0, 2.0]])]).get().tolist()
    [[3.0]]
    """
    return _reduction("sum", axis)


def mean(axis: int | None = None) -> Command:
    """The mean along ``axis``, whose size becomes 1; of all elements, (1, 1), if None.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.mean(), [graph.variable(value=[[1.0, 2.0]])]).get().tolist()
    [[1.5]]
    """
    return _reduction("mean", axis)


def _reduction(name: str, axis: int | None) -> Command:
    build = getattr(F, name)
    return Command(name, _of_expressions(name, lambda x: build(x, axis=axis)), 1, 1, options=_named(axis=axis))


# Networks -------------------------------------------------------------------------------------------------------------


def conv(dilation: Any = 1, groups: int = 1) -> Command:
    """Convolution of inputs x (C, H, W, N), filters (C / groups, R, S, K) and, if there is a third, bias (K, 1).

    The hint gives strides (default 1) and padding. As ``be.conv``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import Hint, commands
    >>> graph = be.dynamic_graph()
    >>> x, w = graph.variable((1, 4, 4, 2)), graph.variable((1, 3, 3, 5))
    >>> graph.exec(commands.conv(), [x, w], hint=Hint(padding=1)).shape
    (5, 4, 4, 2)
    """

    def build(be: Backend, hint: Hint, outcome: Outcome, *inputs: Variable) -> Variable:
        options = {"strides": hint.strides or 1, "padding": hint.padding, "dilation": dilation, "groups": groups}
        return derived("conv", lambda *given: be.conv(*given, **options), *inputs)

    return Command("conv", build, 2, 3, options=_named(dilation=dilation, groups=groups), windows=True)


def deconv(groups: int = 1) -> Command:
    """Transposed convolution of inputs x and filters, as ``be.deconv``; the hint gives strides and padding.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x, w = graph.variable((5, 2, 2, 2)), graph.variable((1, 3, 3, 5))
    >>> graph.exec(commands.deconv(), [x, w]).shape
    (1, 4, 4, 2)
    """

    def build(be: Backend, hint: Hint, outcome: Outcome, *inputs: Variable) -> Variable:
        options = {"strides": hint.strides or 1, "padding": hint.padding, "groups": groups}
        return derived("deconv", lambda *given: be.deconv(*given, **options), *inputs)

    return Command("deconv", build, 2, 2, options=_named(groups=groups), windows=True)


def pool(window: Any, op: str = "max") -> Command:
    """Pooling of an input (C, H, W, N) by "max", "avg" or "l2", as ``be.pool``; the hint gives strides and padding.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.pool(2, "avg"), [graph.variable((3, 4, 4, 2))]).shape
    (3, 2, 2, 2)
    """

    def build(be: Backend, hint: Hint, outcome: Outcome, x: Variable) -> Variable:
        return derived("pool", lambda x: be.pool(x, window, op, strides=hint.strides, padding=hint.padding), x)

    return Command("pool", build, 1, 1, options=_named(window=window, op=op), windows=True)


def batchnorm(eps: float = 1e-3) -> Command:
    """Batch normalisation of inputs x, gamma and beta by the statistics of the batch, as ``be.batchnorm``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x, gamma, beta = graph.variable((3, 8)), graph.variable((3, 1)), graph.variable((3, 1))
    >>> graph.exec(commands.batchnorm(), [x, gamma, beta]).shape
    (3, 8)
    """

    def build(be: Backend, hint: Hint, outcome: Outcome, *inputs: Variable) -> Variable:
        return derived("batchnorm", lambda x, gamma, beta: be.batchnorm(x, gamma, beta, eps=eps), *inputs)

    return Command("batchnorm", build, 3, 3, options=_named(eps=eps))


def lrn(depth: int, ascale: float = 1.0, bpower: float = 1.0) -> Command:
    """Local response normalisation of an input (C, H, W, N), as ``be.lrn``.

    Parameters
    ----------
    depth : int
        Channels in a window; odd.
    ascale, bpower : float
        Factor of the mean square, and exponent of the divisor.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.lrn(3), [graph.variable((4, 2, 2, 1))]).shape
    (4, 2, 2, 1)
    """

    def build(be: Backend, hint: Hint, outcome: Outcome, x: Variable) -> Variable:
        return derived("lrn", lambda x: be.lrn(x, depth, ascale, bpower), x)

    return Command("lrn", build, 1, 1, options=_named(depth=depth, ascale=ascale, bpower=bpower))


# Without inputs -------------------------------------------------------------------------------------------------------


def set_to(value: float) -> Command:
    """Every element of the output, which has a shape, becomes ``value``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.set_to(3), (), [graph.variable((1, 2))]).get().tolist()
    [[3.0, 3.0]]
    """
    return _source("set_to", lambda be, tensor: tensor.fill(value), value=value)


def random_uniform(low: float = 0.0, high: float = 1.0) -> Command:
    """The output's elements are drawn from [low, high) by the backend's generator.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> x = graph.exec(commands.random_uniform(2, 3), (), [graph.variable((4, 4))]).get()
    >>> bool(2 <= x.min() and x.max() < 3)
    True
    """
    return _source("random_uniform", lambda be, tensor: be.uniform(low, high, out=tensor), low=low, high=high)


def random_normal(mean: float = 0.0, sd: float = 1.0) -> Command:
    """The output's elements are drawn from the normal distribution by the backend's generator.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.autograd.dynamic import commands
    >>> graph = be.dynamic_graph()
    >>> graph.exec(commands.random_normal(5, 0), (), [graph.variable((1, 2))]).get().tolist()
    [[5.0, 5.0]]
    """
    return _source("random_normal", lambda be, tensor: be.assign(tensor, be.randn() * sd + mean), mean=mean, sd=sd)


def _source(name: str, fill: Callable[[Any, Any], Any], **options: Any) -> Command:
    def build(be: Backend, hint: Hint, outcome: Outcome) -> Variable:
        if outcome.shape is None:
            raise ArgumentError(f"{name}: its output needs a shape; give the variable one: graph.variable((2, 3))")
        tensor = be.empty(outcome.shape, dtype=outcome.dtype or be.default_np_dtype)
        fill(be, tensor)
        return const(tensor)

    return Command(name, build, 0, 0, options=_named(**options))


def _of_expressions(name: str, build: Callable[..., Any]) -> Callable[..., Variable]:
    """``build`` of a command that is a function of expressions."""

    def on_variables(be: Backend, hint: Hint, outcome: Outcome, *inputs: Variable) -> Variable:
        return derived(name, build, *inputs)

    return on_variables


def as_command(given: Any) -> Command:
    """``given``, or the command that :func:`function` makes of it."""
    if isinstance(given, Command):
        return given
    if not callable(given) or isinstance(given, type):
        raise DTypeError(
            f"exec: needs a command, such as commands.ewise('add'), or a function of expressions, got {brief(given)}"
        )
    return function(given)


def as_hint(command: Command, hint: Any) -> Hint:
    """``hint`` as a :class:`Hint`: None, one, or a dictionary of its fields."""
    if hint is None:
        return Hint()
    if not command.windows:
        raise ArgumentError(f"{command.name}: takes no hint, got {brief(hint)}; strides and padding are for windows")
    if isinstance(hint, Hint):
        return hint
    if isinstance(hint, dict) and hint.keys() <= set(Hint._fields):
        return Hint(**hint)
    raise ArgumentError(f"{command.name}: the hint must be commands.Hint(strides, padding), got {brief(hint)}")


@contextmanager
def naming(variables: Sequence[Any]) -> Iterator[None]:
    """Add the variables that a command was given, and their shapes, to what it raises."""
    try:
        yield
    except NeonlikeError as error:
        listed = ", ".join(f"{one} {one.shape}" for one in variables)
        raise type(error)(f"{error}; of {listed}") from error


def check_count(command: Command, inputs: Sequence[Any]) -> None:
    """Raise ArgumentError unless ``command`` takes as many inputs."""
    least, most = command.least, command.most
    if len(inputs) < least or (most is not None and len(inputs) > most):
        expected = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ArgumentError(f"{command.name}: takes {expected} inputs, got {len(inputs)}")
