"""Ops of single elements: arithmetic, functions, activations, selection. All fuse with what is around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neonlike.autograd.ops.common import F, as_numbers, brief, derived, made, plain, variable, with_rule
from neonlike.autograd.variable import Variable
from neonlike.errors import ArgumentError, DTypeError
from neonlike.optree import op_examples
from neonlike.optree.calls import Request, call, call_spec
from neonlike.optree.dtypes import DType, as_dtype, is_float
from neonlike.optree.functions import gelu as _gelu
from neonlike.optree.functions import silu as _silu
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import Shape

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

__all__ = [
    "absolute", "add", "arctan", "capped_shifted_negative_exponential", "cast", "clip", "cos", "debug", "div",
    "dropout", "elementwise_maximum", "elementwise_minimum", "eq_where", "exp", "gelu", "hard_swish", "leaky_relu",
    "log", "log1p", "mask_fill", "mul", "negative", "pow", "relu", "sigmoid", "silu", "sin", "softplus", "sqrt",
    "square", "subtract", "tan", "tanh", "where",
]  # fmt: skip

_PARAMETERS, _OPERAND = "Parameters\n----------", "variable, tensor, array or nested lists"
"""Parts of the docstrings of functions made from rows."""


def _unary(name: str, row: str) -> Callable[[Any], Variable]:
    """The op ``name`` of a row of the op table."""
    build = getattr(F, row)

    def function(a: Any) -> Variable:
        if a.__class__ is not Variable:
            a = variable(name, a)
        return made(name, build(a._expr), (a,))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{OPS[row].doc} Any shape.\n\n{_PARAMETERS}\na : {_OPERAND}"
    return op_examples.added(function, op_examples.of_elements(OPS[row], f"autograd.{name}", op_examples.VARIABLES))


def _binary(name: str, row: str) -> Callable[[Any, Any], Variable]:
    """As :func:`_unary`, of two operands that broadcast."""
    build = getattr(F, row)

    def function(a: Any, b: Any) -> Variable:
        return derived(name, build, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{OPS[row].doc} Shapes broadcast.\n\n{_PARAMETERS}\na, b : {_OPERAND}\n    One may be a number."
    return op_examples.added(function, op_examples.of_elements(OPS[row], f"autograd.{name}", op_examples.VARIABLES))


add, subtract = _binary("add", "add"), _binary("subtract", "sub")
mul, div = _binary("mul", "mul"), _binary("div", "div")
pow = _binary("pow", "pow")
elementwise_maximum = _binary("elementwise_maximum", "maximum")
elementwise_minimum = _binary("elementwise_minimum", "minimum")
exp, log, log1p = _unary("exp", "exp"), _unary("log", "log"), _unary("log1p", "log1p")
sin, cos, tan, arctan = _unary("sin", "sin"), _unary("cos", "cos"), _unary("tan", "tan"), _unary("arctan", "arctan")
tanh, sigmoid, relu = _unary("tanh", "tanh"), _unary("sigmoid", "sig"), _unary("relu", "relu")
square, sqrt, absolute, negative = (
    _unary("square", "sqr"), _unary("sqrt", "sqrt"), _unary("absolute", "abs"), _unary("negative", "neg"),
)  # fmt: skip


def clip(a: Any, low: float, high: float) -> Variable:
    """minimum(maximum(a, low), high); the derivative is 0 outside, and half of it at the bounds.

    Parameters
    ----------
    a : variable
        Any shape.
    low, high : float
        Bounds.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.clip([[-3.0, 0.5, 3.0]], -1, 1).tolist()
    [[-1.0, 0.5, 1.0]]
    """
    return derived("clip", lambda a: F.minimum(F.maximum(a, low), high), a)


def leaky_relu(a: Any, slope: float = 0.01) -> Variable:
    """a where a > 0, else slope * a.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.leaky_relu([[-2.0, 3.0]], 0.5).tolist()
    [[-1.0, 3.0]]
    """
    (slope,) = as_numbers("leaky_relu", slope=slope)
    return derived("leaky_relu", lambda a: F.leaky_relu(a, slope), a)


# Of functions that several ops make, gradients are written out where they read the operand alone: by the ops' own rules
# what is between would be kept too.


def gelu(a: Any) -> Variable:
    """a * Phi(a) with the normal distribution function Phi (exact, by erf); Hendrycks & Gimpel 2016.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.gelu([[0.0, 100.0]]).tolist()
    [[0.0, 100.0]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        density = F.exp(a * a * -0.5) * (2 * math.pi) ** -0.5
        return (d * (0.5 * (1 + F.erf(a * math.sqrt(0.5))) + a * density),)

    return derived("gelu", lambda a: with_rule("gelu", _gelu(a), (a,), grad, dear=False, options=()), a)


def silu(a: Any) -> Variable:
    """a * sigmoid(a), also called swish; Elfwing et al. 2017.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.silu([[0.0, 100.0]]).tolist()
    [[0.0, 100.0]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        gate = F.sig(a)
        return (d * gate * (1 + a * (1 - gate)),)

    return derived("silu", lambda a: with_rule("silu", _silu(a), (a,), grad, dear=False, options=()), a)


def hard_swish(a: Any) -> Variable:
    """a * min(max(a + 3, 0), 6) / 6; Howard et al. 2019.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.hard_swish([[0.0, 6.0]]).tolist()
    [[0.0, 6.0]]
    """

    def grad(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
        between = F.where(F.less_equal(F.absolute(a), 3.0), a * (1 / 3) + 0.5, F.greater(a, 0.0))
        return (d * between,)

    def build(a: Any) -> Any:
        value = a * F.minimum(F.maximum(a + 3.0, 0.0), 6.0) * (1 / 6)
        return with_rule("hard_swish", value, (a,), grad, dear=False, options=())

    return derived("hard_swish", build, a)


def softplus(a: Any, beta: float = 1.0, threshold: float = 20.0) -> Variable:
    """log(1 + exp(beta * a)) / beta, and a itself where beta * a > threshold.

    Parameters
    ----------
    a : variable
        Any shape.
    beta : float
        Steepness, not 0.
    threshold : float
        Bound of ``beta * a``.

    Raises
    ------
    ArgumentError
        If ``beta`` is 0.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.softplus([[0.0, 50.0]]).get().round(4).tolist()[0][1]
    50.0
    """
    beta, threshold = as_numbers("softplus", beta=beta, threshold=threshold)
    if beta == 0:
        raise ArgumentError("softplus: beta must not be 0; it divides")

    def build(a: Any) -> Any:
        scaled = a * beta
        return F.where(F.greater(scaled, threshold), a, F.softplus(scaled) * (1 / beta))

    return derived("softplus", build, a)


def capped_shifted_negative_exponential(a: Any, shift: float) -> Variable:
    """exp(shift - a), and 1 where a <= shift.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.capped_shifted_negative_exponential([[0.0, 1.0]], 1.0).tolist()
    [[1.0, 1.0]]
    """
    (shift,) = as_numbers("capped_shifted_negative_exponential", shift=shift)

    def build(a: Any) -> Any:
        # The selection is inside: the exponential of what is capped would overflow, and its gradient be nan.
        return F.exp(F.where(F.less_equal(a, shift), 0, shift - a))

    return derived("capped_shifted_negative_exponential", build, a)


# Selection ------------------------------------------------------------------------------------------------------------


def where(condition: Any, a: Any, b: Any) -> Variable:
    """a where the condition is not 0, else b; shapes broadcast.

    Parameters
    ----------
    condition : variable, tensor or array
        No derivative flows to it.
    a, b : variables or numbers

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.const([[-1.0, 2.0]])
    >>> autograd.where(x > 0, x, 0).tolist()
    [[0.0, 2.0]]
    """
    like = next((one for one in (a, b) if isinstance(one, Variable)), None)
    mask = plain("where", condition, like)
    return derived("where", lambda a, b: F.where(mask, a, b), a, b)


def eq_where(a: Any, b: Any) -> Variable:
    """1 where a equals b (a number, or values that broadcast), else 0; without derivative.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.eq_where([[1.0, 2.0]], 2).tolist()
    [[0.0, 1.0]]
    """
    return derived("eq_where", F.equal, a, b)


def mask_fill(a: Any, mask: Any, fill: float) -> Variable:
    """``fill`` where ``mask`` is not 0, else a; shapes broadcast.

    Parameters
    ----------
    a : variable
    mask : variable, tensor or array
        No derivative flows to it.
    fill : float
        Value of the masked elements, such as ``-inf`` before a softmax.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.mask_fill([[1.0, 2.0]], [[0, 1]], -5).tolist()
    [[1.0, -5.0]]
    """
    (fill,) = as_numbers("mask_fill", fill=fill)
    a = variable("mask_fill", a)
    mask = plain("mask_fill", mask, a)
    return derived("mask_fill", lambda a: F.where(mask, fill, a), a)


def dropout(a: Any, prob: float, train: bool = True) -> Variable:
    """Zeros with probability ``prob``, else a / (1 - prob); a itself where ``train`` is false.

    The random numbers are computed again in the backward pass, from a seed and a counter, and not kept.

    Parameters
    ----------
    a : variable
        Any shape.
    prob : float
        Probability to drop an element, in [0, 1].
    train : bool
        False: nothing is dropped.

    Raises
    ------
    ArgumentError
        If ``prob`` is not in [0, 1].

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.dropout(autograd.const([[1.0, 2.0]]), 0.5, train=False).tolist()
    [[1.0, 2.0]]
    """
    (prob,) = as_numbers("dropout", prob=prob)
    if not 0 <= prob <= 1:
        raise ArgumentError(f"dropout: the probability to drop must be in [0, 1], got {brief(prob)}")
    a = variable("dropout", a)
    if not train or prob == 0:
        return a
    keep = 1 - prob
    return derived("dropout", lambda a: a * (a.backend.dropout(keep) * (1 / keep if keep else 0.0)), a)


# Other types, and looking on ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cast(Request):
    """Conversion of (a,) to another float dtype."""

    results: tuple[tuple[Shape, DType], ...]
    dtypes: tuple[DType | None, ...] = (None,)

    def run(self, be: Backend, results: Any, operands: Any) -> None:
        """Convert."""
        be.assign(results[0], operands[0])

    def describe(self) -> str:
        """The dtype."""
        return f"as {self.results[0][1].name}"


def _cast(a: Any, dtype: DType) -> Any:
    return call(_CAST, _Cast(((a.shape, dtype),)), (a,))


_CAST = call_spec("cast", lambda F, d, z, a: (_cast(d, a.dtype),))


def cast(a: Any, dtype: Any) -> Variable:
    """a in another float dtype; its derivative comes back in a's own.

    Raises
    ------
    DTypeError
        If ``dtype`` is no float.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.cast([[1.0]], "float64").dtype.name
    'float64'
    """
    wanted = as_dtype(dtype, "cast")
    if not is_float(wanted):
        raise DTypeError(f"cast: needs float16, bfloat16, float32 or float64, got {wanted.name}")
    a = variable("cast", a)
    return a if a.dtype == wanted else derived("cast", lambda a: _cast(a, wanted), a)


def debug(a: Any, callback: Callable[[Any], Any]) -> Variable:
    """a itself; ``callback(tensor)`` is called with the value whenever it is computed.

    Raises
    ------
    DTypeError
        If ``callback`` cannot be called.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.debug([[1.0, 2.0]], lambda tensor: print(tensor.tolist()))
    >>> autograd.sum(x).item()
    [[1.0, 2.0]]
    3.0
    """
    if not callable(callback):
        raise DTypeError(f"debug: callback must be a function of a tensor, got {brief(callback)}")
    a = variable("debug", a)

    def forward(out: Any, value: Any) -> None:
        out[:] = value
        callback(out)

    return derived("debug", a.backend.primitive(forward, lambda d, z, value: d, name="debug"), a)


DOCUMENT_NAMES = {
    "Add": add, "Minus": subtract, "Mult": mul, "Div": div, "ConstAdd": add, "ConstMult": mul, "Pow": pow,
    "PowConst": pow, "Exp": exp, "Log": log, "Log1p": log1p, "Sin": sin, "Cos": cos, "Tan": tan, "ArcTan": arctan,
    "Tanh": tanh, "Sigmoid": sigmoid, "Relu": relu, "LeakyRelu": leaky_relu, "Gelu": gelu, "HardSwish": hard_swish,
    "Softplus": softplus, "CappedShiftedNegativeExponential": capped_shifted_negative_exponential,
    "ElementWiseMaximum": elementwise_maximum, "ElementWiseMinimum": elementwise_minimum, "Where": where,
    "EqWhere": eq_where, "MaskFill": mask_fill, "Dropout": dropout, "CastToPrecision": cast, "Debug": debug,
}  # fmt: skip
"""The source document's names."""
