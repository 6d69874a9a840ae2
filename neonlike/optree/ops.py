"""The op table: one row per op, and the only place that lists the ops.

Builders on ``Backend``, operators on tensors, planner, engines, autodiff, the docs table and the tests are all derived
from ``OPS``. Adding an op means adding a row.

A gradient rule is called as ``grad(F, d, z, *operands)``: ``F`` offers every builder (``F.sig(x)``), ``d`` is the
gradient arriving at the node, ``z`` the node itself. It returns one expression per operand (None: no gradient flows
there). The caller undoes broadcasting. On ties ``maximum``, ``minimum``, ``max`` and ``min`` give each tied operand an
equal share of the gradient. Where no derivative exists but bounded slopes do, a rule returns one of these; it never
multiplies 0 by infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from neonlike.optree import dialect
from neonlike.optree import npfuncs as f
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.npfuncs import LN2, LN10, SAFELOG_FLOOR

SAME, FLOAT, TRUTH, INDEX, WHOLE_ONLY = (
    DTypeRule.SAME, DTypeRule.FLOAT, DTypeRule.TRUTH, DTypeRule.INDEX, DTypeRule.WHOLE,
)  # fmt: skip


class Kind(Enum):
    """Kind of computation of an op; the planner treats each kind differently.

    Examples
    --------
    >>> from neonlike.optree.ops import OPS
    >>> OPS["sum"].kind is Kind.REDUCTION
    True
    """

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    ZERO = "zero"  # no tensor operand determines its shape: rand, onehot
    CONTRACTION = "contraction"
    MOVE = "move"
    CALL = "call"  # a compound primitive, without a row here: see ``calls``
    SCAN = "scan"  # along one axis, with results that depend on several elements: running sums, sort orders


class _NonDifferentiable:
    def __repr__(self) -> str:
        return "NON_DIFFERENTIABLE"


NON_DIFFERENTIABLE = _NonDifferentiable()
"""The op has no useful derivative (zero almost everywhere): gradients stop there."""

GradRule = Callable[..., tuple[Any, ...]]
MANY = -1
"""``arity`` of an op with any number of operands."""
REAL = (-4.0, 4.0)
POSITIVE = (0.05, 4.0)
UNIT = (-0.95, 0.95)
WHOLE = (-3.0, 3.0)


@dataclass(frozen=True, slots=True, eq=False)
class OpSpec:
    """One op: its computation in each language, its types, its gradient and its test data.

    Attributes
    ----------
    name : str
        neon's name if neon has the op.
    arity : int
        Number of operands; ``MANY``: any.
    kind : Kind
    numpy : callable
        See :mod:`neonlike.optree.npfuncs` for the calling convention.
    c : str
        Expression template of the C and CUDA emitters; math names are mapped by dtype. Empty for kinds with templates
        of their own.
    dtype : DTypeRule
    grad : gradient rule or NON_DIFFERENTIABLE; there is no default
    doc : str
        One line for the builder's docstring and the table in the docs.
    builders : tuple of str
        Builder names on ``Backend``; empty for ops that are built by gradients alone.
    symbol : str
        Infix form for printing.
    cuda : str or None
        CUDA text where it differs from C.
    identity : float or None
        Value of an empty reduction; None if there is none.
    combine : str or None
        Elementwise op that merges two partial results of a reduction; None if partials cannot be merged.
    domain : tuple of (low, high), one an operand
        Sampling ranges of the operands in tests.
    flops : int
        Approximate floating-point operations per element, for recomputation decisions and bench mode.
    keyed : tuple of str
        Attributes that affect the generated code and are part of a plan's key.
    logical : str
        Logical op that replaces this bitwise one if all operands are truth values; empty without one.

    Examples
    --------
    >>> from neonlike.optree.ops import OPS
    >>> OPS["sig"].arity, OPS["sig"].builders
    (1, ('sig', 'sigmoid'))
    """

    name: str
    arity: int
    kind: Kind
    numpy: Callable[..., Any]
    c: str
    dtype: DTypeRule
    grad: GradRule | _NonDifferentiable
    doc: str
    builders: tuple[str, ...] = ()
    symbol: str = ""
    cuda: str | None = None
    identity: float | None = None
    combine: str | None = None
    domain: tuple[tuple[float, float], ...] = (REAL,)
    flops: int = 1
    keyed: tuple[str, ...] = ()
    logical: str = ""


def _unary(name: str, numpy: Any, c: str, grad: Any, doc: str, **more: Any) -> OpSpec:
    more.setdefault("builders", (name,))
    more.setdefault("dtype", FLOAT)
    return OpSpec(name, 1, Kind.ELEMENTWISE, numpy, c, grad=grad, doc=doc, **more)


def _binary(name: str, numpy: Any, c: str, grad: Any, doc: str, **more: Any) -> OpSpec:
    more.setdefault("domain", (REAL, REAL))
    more.setdefault("dtype", SAME)
    return OpSpec(name, 2, Kind.ELEMENTWISE, numpy, c, grad=grad, doc=doc, **more)


def _compare(name: str, numpy: Any, symbol: str, builder: str, doc: str) -> OpSpec:
    c = f"({{0}} {symbol} {{1}})"
    more: dict[str, Any] = dict(builders=(builder,), symbol=symbol, domain=(WHOLE, WHOLE), dtype=TRUTH)
    return _binary(name, numpy, c, NON_DIFFERENTIABLE, doc, **more)


def _bits(name: str, numpy: Any, c: str, symbol: str, doc: str, **more: Any) -> OpSpec:
    """Create an op on the bits of integers."""
    make = _unary if name == "invert" else _binary
    more.setdefault("builders", (name,))
    more.setdefault("domain", (WHOLE,) if name == "invert" else (WHOLE, WHOLE))
    return make(name, numpy, c, NON_DIFFERENTIABLE, doc, symbol=symbol, dtype=WHOLE_ONLY, **more)


def _reduction(name: str, numpy: Any, grad: Any, doc: str, **more: Any) -> OpSpec:
    more.setdefault("builders", (name,))
    more.setdefault("dtype", SAME)
    return OpSpec(name, 1, Kind.REDUCTION, numpy, "", grad=grad, doc=doc, keyed=("axis",), **more)


def _pow_grad(F: Any, d: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Gradients d y x**(y-1), 0 where y is 0, and d z log(x), 0 where x is 0."""
    if _is_number(x):
        return None, (d * z * math.log(x) if x > 0 else None if x == 0 else d * z * math.nan)
    if _is_number(y):
        return _base_grad(F, d, x, y), None
    zero = F.equal(x, 0)
    return _base_grad(F, d, x, y), F.where(zero, 0, d * z) * F.log(F.where(zero, 1, x))


def _base_grad(F: Any, d: Any, x: Any, y: Any) -> Any:
    """d y x**(y-1); for whole y below 4 as products, so that higher derivatives end where those of x**y do."""
    if not _is_number(y):
        return d * (y * F.power(F.where(F.logical_and(F.equal(x, 0), F.equal(y, 0)), 1, x), y - 1))
    if y == 0:
        return None
    if y == 1:
        return d
    if y == 2:
        return 2 * d * x
    return d * y * (F.square(x) if y == 3 else F.power(x, y - 1))


def _is_number(operand: Any) -> bool:
    """Whether an operand is a number, not an expression."""
    return not hasattr(operand, "backend")


def _distance_grad(F: Any, d: Any, x: Any, y: Any, length: Any) -> tuple[Any, ...]:
    """d x / length and d y / length; 0 where the length is 0."""
    length = F.where(F.equal(length, 0), math.inf, length)
    return d * x / length, d * y / length


def _larger_grad(F: Any, d: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """d for the larger operand; half of it for each on a tie, or all of it in neon's dialect."""
    tied = F.where(F.equal(x, y), d if dialect.is_neon() else 0.5 * d, 0)
    return F.where(F.greater(x, y), d, tied), F.where(F.greater(y, x), d, tied)


def _extreme_grad(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    """d, in equal shares, where x equals z; nothing if the result does not depend on z (``constant``).

    In neon's dialect all elements equal to z get the whole of d.
    """
    if "constant" in z.attrs:
        return (None,)
    same = F.equal(x, z)
    share = d if dialect.is_neon() else d / F.maximum(F.sum(same, z.attrs["axis"]), 1)
    return (F.where(same, share, 0),)


def _sum_grad(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    """d; nothing if z does not depend on x (``constant``)."""
    return (None if "constant" in z.attrs else F.broadcast_to(d, x.shape),)


def _prod_grad(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    """d * (product of the other factors); exact with zero factors, as is its own gradient.

    Zero factors are multiplied separately, because their product with and without one of them has a gradient, too.
    """
    axis = z.attrs["axis"]
    zero = F.equal(x, 0)
    factors, none = F.where(zero, 1, x), F.where(zero, x, 0)
    others, zeros = F.prod(factors, axis=axis), F.sum(zero, axis=axis)
    product = F.where(F.equal(zeros, 0), 1, F.where(F.equal(zeros, 1), F.sum(none, axis=axis), 0))
    without = F.where(F.equal(zeros, 1), 1, F.where(F.equal(zeros, 2), F.sum(none, axis=axis) - none, 0))
    return (d * others * F.where(zero, without, product / factors),)


def _spread_grad(F: Any, d: Any, z: Any, a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Gradients of the variance; 0 where it was clipped at 0."""
    d = F.where(F.equal(z, 0), 0, d) / c
    return d, -2 * d * (b / c), d * (F.square(b / c) - z)


def _cumprod_grad(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
    """d times the products of the other factors, summed; exact after the first zero factor, too."""
    axis, reverse = z.attrs["axis"], z.attrs["reverse"]
    zero = F.equal(x, 0)
    met = F.cumsum(zero, axis, reverse)  # zeros up to each element
    first = F.logical_and(zero, F.equal(met, 1))
    others = F.cumprod(F.where(first, 1, x), axis, reverse)
    before = F.cumsum(d * z, axis, not reverse) / F.where(zero, 1, x)
    return (F.where(F.equal(met, 0), before, F.where(first, F.cumsum(d * others, axis, not reverse), 0)),)


_ROWS: tuple[OpSpec, ...] = (
    # Arithmetic
    _binary("add", np.add, "{0} + {1}", lambda F, d, z, x, y: (d, d), "a + b.", builders=("add",), symbol="+"),
    _binary("sub", np.subtract, "{0} - {1}", lambda F, d, z, x, y: (d, -d), "a - b.", builders=("subtract",), symbol="-"),
    _binary("mul", np.multiply, "{0} * {1}", lambda F, d, z, x, y: (d * y, d * x), "a * b.", builders=("multiply",), symbol="*"),
    _binary(
        "div", np.true_divide, "{0} / {1}", lambda F, d, z, x, y: (d / y, -d * x / F.square(y)),
        "a / b, true division also for integers.",
        builders=("divide", "true_divide"), symbol="/", dtype=FLOAT, domain=(REAL, POSITIVE),
    ),
    _binary(
        "pow", f.power, "pow({0}, {1})",
        _pow_grad, "a ** b.", builders=("power", "pow"), symbol="**", dtype=FLOAT, domain=(POSITIVE, REAL), flops=10,
    ),
    _binary(
        "floordiv", np.floor_divide, "floordiv({0}, {1})", NON_DIFFERENTIABLE,
        "Largest whole number not above a / b; of integers by 0, 0.",
        builders=("floor_divide",), symbol="//", domain=(REAL, POSITIVE), flops=40,
    ),
    _binary(
        "mod", np.remainder, "mod({0}, {1})", lambda F, d, z, x, y: (d, -d * F.floordiv(x, y)),
        "a - b * (a // b), with the sign of b; of integers by 0, 0.",
        builders=("remainder", "mod"), symbol="%", domain=(REAL, POSITIVE), flops=40,
    ),
    _binary(
        "fmod", np.fmod, "fmod({0}, {1})", lambda F, d, z, x, y: (d, -d * F.trunc(x / y)),
        "Remainder of a / b with the sign of a, as C has it; of integers by 0, 0.",
        builders=("fmod",), domain=(REAL, POSITIVE), flops=35,
    ),
    _unary("neg", np.negative, "-{0}", lambda F, d, z, x: (-d,), "-a.", builders=("negative",), dtype=SAME),
    _unary("abs", np.absolute, "fabs({0})", lambda F, d, z, x: (d * F.sgn(x),), "|a|.", builders=("absolute", "fabs", "abs"), dtype=SAME),
    _unary("sgn", np.sign, "sign({0})", NON_DIFFERENTIABLE, "Sign: -1, 0 or 1.", builders=("sgn", "sign"), dtype=SAME),
    _unary("sqr", np.square, "{0} * {0}", lambda F, d, z, x: (2 * d * x,), "a * a.", builders=("square",), dtype=SAME),
    _unary("sqrt", np.sqrt, "sqrt({0})", lambda F, d, z, x: (0.5 * d / z,), "Square root.", domain=(POSITIVE,), flops=4),
    _unary("root", np.sqrt, "sqrt({0})", lambda F, d, z, x: (0.5 * d / F.where(F.equal(z, 0), math.inf, z),), "Square root of a sum of squares; gradient 0 at 0.", builders=(), domain=(POSITIVE,), flops=4),
    _unary("cbrt", np.cbrt, "cbrt({0})", lambda F, d, z, x: (d / (3 * F.square(z)),), "Cube root, also of numbers below 0.", domain=(POSITIVE,), flops=15),
    _binary(
        "hypot", np.hypot, "hypot({0}, {1})", lambda F, d, z, x, y: _distance_grad(F, d, x, y, z),
        "sqrt(a**2 + b**2), without overflow.", builders=("hypot",), dtype=FLOAT, domain=(POSITIVE, REAL), flops=8,
    ),
    # Exponentials and logarithms
    _unary("exp", np.exp, "exp({0})", lambda F, d, z, x: (d * z,), "e ** a.", flops=8),
    _unary("exp2", np.exp2, "exp2({0})", lambda F, d, z, x: (d * z * LN2,), "2 ** a.", flops=8),
    _unary("expm1", np.expm1, "expm1({0})", lambda F, d, z, x: (d * (z + 1),), "e ** a - 1, accurate near 0.", flops=10),
    _unary("log", np.log, "log({0})", lambda F, d, z, x: (d / x,), "Natural logarithm.", domain=(POSITIVE,), flops=8),
    _unary("log2", np.log2, "log2({0})", lambda F, d, z, x: (d / (x * LN2),), "Base 2 logarithm.", domain=(POSITIVE,), flops=8),
    _unary("log10", np.log10, "log10({0})", lambda F, d, z, x: (d / (x * LN10),), "Base 10 logarithm.", domain=(POSITIVE,), flops=10),
    _unary("log1p", np.log1p, "log1p({0})", lambda F, d, z, x: (d / (x + 1),), "log(1 + a), accurate near 0.", domain=(UNIT,), flops=10),
    _unary(
        "safelog", f.safelog, "log(max_nan({0}, 1.9287498479639178e-22))",
        lambda F, d, z, x: (F.where(F.greater(z, SAFELOG_FLOOR), d, 0) / F.where(F.greater(z, SAFELOG_FLOOR), x, 1),),
        "log(max(a, e**-50)).", domain=((-1.0, 4.0),), flops=9,
    ),
    # Trigonometry and special functions
    _unary("sin", np.sin, "sin({0})", lambda F, d, z, x: (d * F.cos(x),), "Sine of radians.", flops=10),
    _unary("cos", np.cos, "cos({0})", lambda F, d, z, x: (-d * F.sin(x),), "Cosine of radians.", flops=10),
    _unary("tan", np.tan, "tan({0})", lambda F, d, z, x: (d * (1 + F.square(z)),), "Tangent of radians.", domain=((-1.2, 1.2),), flops=12),
    _unary("arctan", np.arctan, "atan({0})", lambda F, d, z, x: (d / (1 + F.square(x)),), "Inverse tangent in radians.", builders=("arctan", "atan"), flops=12),
    _unary("arcsin", np.arcsin, "asin({0})", lambda F, d, z, x: (d / F.sqrt(1 - F.square(x)),), "Inverse sine in radians, nan beyond 1.", builders=("arcsin", "asin"), domain=(UNIT,), flops=12),
    _unary("arccos", np.arccos, "acos({0})", lambda F, d, z, x: (-d / F.sqrt(1 - F.square(x)),), "Inverse cosine in radians, nan beyond 1.", builders=("arccos", "acos"), domain=(UNIT,), flops=12),
    _binary(
        "arctan2", np.arctan2, "atan2({0}, {1})",
        lambda F, d, z, y, x: _distance_grad(F, d, x, -y, F.square(x) + F.square(y)),
        "Angle in radians of the point with ordinate a and abscissa b.",
        builders=("arctan2", "atan2"), dtype=FLOAT, domain=(REAL, POSITIVE), flops=15,
    ),
    _unary("sinh", np.sinh, "sinh({0})", lambda F, d, z, x: (d * F.cosh(x),), "Hyperbolic sine.", flops=12),
    _unary("cosh", np.cosh, "cosh({0})", lambda F, d, z, x: (d * F.sinh(x),), "Hyperbolic cosine.", flops=10),
    _unary("arcsinh", np.arcsinh, "asinh({0})", lambda F, d, z, x: (d / F.sqrt(F.square(x) + 1),), "Inverse hyperbolic sine.", builders=("arcsinh", "asinh"), flops=15),
    _unary("arccosh", np.arccosh, "acosh({0})", lambda F, d, z, x: (d / F.sqrt(F.square(x) - 1),), "Inverse hyperbolic cosine, nan below 1.", builders=("arccosh", "acosh"), domain=((1.1, 4.0),), flops=15),
    _unary("arctanh", np.arctanh, "atanh({0})", lambda F, d, z, x: (d / (1 - F.square(x)),), "Inverse hyperbolic tangent, nan beyond 1.", builders=("arctanh", "atanh"), domain=(UNIT,), flops=12),
    _unary("erf", f.erf, "erf({0})", lambda F, d, z, x: (d * 1.1283791670955126 * F.exp(-F.square(x)),), "Error function.", flops=15),
    # Activations
    _unary("sig", f.sig, "sigmoid({0})", lambda F, d, z, x: (d * z * (1 - z),), "Logistic sigmoid 1 / (1 + e**-a).", builders=("sig", "sigmoid"), flops=10),
    _unary("sig2", f.sig2, "sigmoid2({0})", lambda F, d, z, x: (d * z * (1 - z) * LN2,), "Base 2 sigmoid 1 / (1 + 2**-a).", flops=10),
    _unary("tanh", np.tanh, "tanh({0})", lambda F, d, z, x: (d * (1 - F.square(z)),), "Hyperbolic tangent.", flops=10),
    _unary("tanh2", f.tanh2, "tanh({0} * 0.6931471805599453)", lambda F, d, z, x: (d * (1 - F.square(z)) * LN2,), "(4**a - 1) / (4**a + 1).", flops=11),
    _unary("relu", f.relu, "({0} <= 0 ? 0 : {0})", lambda F, d, z, x: (F.where(F.greater(z, 0), d, 0),), "max(a, 0); gradient 0 at 0.", dtype=SAME),
    _binary(
        "leaky_relu", f.leaky_relu, "({0} > 0 ? {0} : {0} * {1})",
        lambda F, d, z, x, slope: (F.where(F.greater(x, 0), d, d * slope), d * F.minimum(x, 0)),
        "a where a > 0, else slope * a.", builders=("leaky_relu",), dtype=FLOAT,
    ),
    _unary("softplus", f.softplus, "softplus({0})", lambda F, d, z, x: (d * F.sig(x),), "log(1 + e**a), without overflow.", cuda="(max_nan({0}, 0) + log1p(exp(-fabs({0}))))", flops=20),
    # Built by functions only
    _unary("cast", np.positive, "{0}", lambda F, d, z, x: (F.cast(d, x.dtype),), "a in a dtype of so many bits.", builders=(), dtype=SAME, keyed=("bits",), flops=0),
    _unary("widen", np.positive, "{0}", lambda F, d, z, x: (F.cast(d, x.dtype),), "a in a dtype of so many bits, for its range: sums of squares may have float32's digits.", builders=(), dtype=SAME, keyed=("bits",), flops=0),
    OpSpec(
        "spread", 3, Kind.ELEMENTWISE, f.spread, "({0} - {0} == 0 ? max_nan(({0} - {1} * ({1} / {2})) / {2}, 0) : {0})", FLOAT,
        _spread_grad,
        "Variance of c numbers by the sum a of their squares and the sum b of themselves.",
        domain=((30.0, 40.0), UNIT, POSITIVE), flops=5,
    ),
    # Rounding and tests
    _unary("rint", f.rint, "rint({0})", NON_DIFFERENTIABLE, "Nearest whole number, halves to even.", builders=("rint", "round"), dtype=SAME),
    _unary("floor", f.floor, "floor({0})", NON_DIFFERENTIABLE, "Largest whole number not above a.", dtype=SAME),
    _unary("ceil", f.ceil, "ceil({0})", NON_DIFFERENTIABLE, "Smallest whole number not below a.", dtype=SAME),
    _unary("trunc", f.trunc, "trunc({0})", NON_DIFFERENTIABLE, "a without its fraction.", dtype=SAME),
    _unary("binarize", f.binarize, "({0} >= 0 ? 1 : -1)", NON_DIFFERENTIABLE, "+1 where a >= 0, else -1.", builders=()),
    _unary("finite", np.isfinite, "isfinite({0})", NON_DIFFERENTIABLE, "1 where a is finite, else 0.", builders=("finite", "isfinite"), dtype=TRUTH),
    _unary("isnan", np.isnan, "isnan({0})", NON_DIFFERENTIABLE, "1 where a is nan, else 0.", dtype=TRUTH),
    _unary("isinf", np.isinf, "isinf({0})", NON_DIFFERENTIABLE, "1 where a is infinite, else 0.", dtype=TRUTH),
    _binary("shift", f.shift, "shift_by({0}, {1})", NON_DIFFERENTIABLE, "a * sgn(b) * 2**rint(log2|b|).", dtype=FLOAT),
    _binary("shift_exponent", f.shift_exponent, "{0} * exp2(rint({1}))", NON_DIFFERENTIABLE, "a * 2**rint(b).", dtype=FLOAT),
    # Comparisons and logic: 0 or 1 as floats
    _compare("eq", np.equal, "==", "equal", "1 where a == b, else 0."),
    _compare("ne", np.not_equal, "!=", "not_equal", "1 where a != b, else 0."),
    _compare("lt", np.less, "<", "less", "1 where a < b, else 0."),
    _compare("le", np.less_equal, "<=", "less_equal", "1 where a <= b, else 0."),
    _compare("gt", np.greater, ">", "greater", "1 where a > b, else 0."),
    _compare("ge", np.greater_equal, ">=", "greater_equal", "1 where a >= b, else 0."),
    _binary("and", np.logical_and, "(({0} != 0 ? 1.0 : 0.0) * ({1} != 0 ? 1.0 : 0.0))", NON_DIFFERENTIABLE, "1 where both are not 0.", builders=("logical_and",), dtype=TRUTH, domain=(WHOLE, WHOLE)),
    _binary("or", np.logical_or, "(1.0 - ({0} == 0 ? 1.0 : 0.0) * ({1} == 0 ? 1.0 : 0.0))", NON_DIFFERENTIABLE, "1 where one is not 0.", builders=("logical_or",), dtype=TRUTH, domain=(WHOLE, WHOLE)),
    _unary("not", np.logical_not, "({0} == 0)", NON_DIFFERENTIABLE, "1 where a is 0, else 0.", builders=("logical_not",), dtype=TRUTH, domain=(WHOLE,)),
    _binary("xor", np.logical_xor, "fabs(({0} != 0 ? 1.0 : 0.0) - ({1} != 0 ? 1.0 : 0.0))", NON_DIFFERENTIABLE, "1 where one is not 0 and the other is, else 0.", builders=("logical_xor",), dtype=TRUTH, domain=(WHOLE, WHOLE)),
    # Bits of integers; the ops in `logical` replace them for truth values
    _bits("bitwise_and", np.bitwise_and, "{0} & {1}", "&", "Bits that both have; of truth values logical_and.", logical="and"),
    _bits("bitwise_or", np.bitwise_or, "{0} | {1}", "|", "Bits that one has; of truth values logical_or.", logical="or"),
    _bits("bitwise_xor", np.bitwise_xor, "{0} ^ {1}", "^", "Bits that one has and the other has not; of truth values logical_xor.", logical="xor"),
    _bits("invert", np.invert, "~{0}", "", "The other bits, -a - 1; of truth values logical_not.", builders=("invert", "bitwise_not"), logical="not"),
    _bits("left_shift", np.left_shift, "left_shift({0}, {1})", "<<", "a * 2**b, where 0 <= b < 64; else 0."),
    _bits("right_shift", np.right_shift, "right_shift({0}, {1})", ">>", "a // 2**b, where 0 <= b < 64; else 0, or -1 if a < 0."),
    # Selection
    _binary(
        "maximum", f.maximum, "max_nan({0}, {1})",
        lambda F, d, z, x, y: _larger_grad(F, d, x, y),
        "Larger of a and b; nan wins.", builders=("maximum",),
    ),
    _binary(
        "minimum", f.minimum, "min_nan({0}, {1})",
        lambda F, d, z, x, y: _larger_grad(F, d, y, x),
        "Smaller of a and b; nan wins.", builders=("minimum",),
    ),
    OpSpec(
        "where", 3, Kind.ELEMENTWISE, f.where, "({0} != 0 ? {1} : {2})", SAME,
        lambda F, d, z, c, a, b: (None, F.where(c, d, 0), F.where(c, 0, d)),
        "a where the condition is not 0, else b.", builders=("where",), domain=(WHOLE, REAL, REAL),
    ),
    # Reductions
    _reduction("sum", f.sum_, _sum_grad, "Sum over axis.", identity=0.0, combine="add"),
    _reduction("prod", f.prod, _prod_grad, "Product over axis.", identity=1.0, combine="mul"),
    _reduction("max", f.max_, _extreme_grad, "Maximum over axis; nan wins.", combine="maximum"),
    _reduction("min", f.min_, _extreme_grad, "Minimum over axis; nan wins.", combine="minimum"),
    _reduction("any", f.any_, NON_DIFFERENTIABLE, "1 if any element over axis is not 0.", identity=0.0, combine="or", dtype=TRUTH, domain=(WHOLE,)),
    _reduction("all", f.all_, NON_DIFFERENTIABLE, "1 if all elements over axis are not 0.", identity=1.0, combine="and", dtype=TRUTH, domain=(WHOLE,)),
    _reduction("argmax", f.argmax, NON_DIFFERENTIABLE, "First position of the maximum along axis.", dtype=INDEX),
    _reduction("argmin", f.argmin, NON_DIFFERENTIABLE, "First position of the minimum along axis.", dtype=INDEX),
    # Generators
    OpSpec("rand", 0, Kind.ZERO, f.copy, "rand({2}, {0}, {1})", FLOAT, NON_DIFFERENTIABLE, "U[0, 1) for each element of the target (Philox4x32-10).", domain=(), flops=40),
    OpSpec("onehot", 1, Kind.ZERO, f.copy, "({0} == {1})", FLOAT, NON_DIFFERENTIABLE, "1 where the position along axis equals the index.", domain=(WHOLE,), keyed=("axis",)),
    # Contraction
    OpSpec(
        "dot", 2, Kind.CONTRACTION, f.dot, "", SAME, lambda F, d, z, x, y: (F.dot(d, x_t(y)), F.dot(x_t(x), d)),
        "Matrix product of 2-D operands.", builders=("dot",), domain=(REAL, REAL), flops=2,
    ),
    # Moves
    OpSpec("transpose", 1, Kind.MOVE, f.copy, "", SAME, lambda F, d, z, x: (F.transpose(d, inverse(z.attrs["axes"])),), "Axes permuted.", keyed=("axes",), flops=0),
    OpSpec("broadcast", 1, Kind.MOVE, f.copy, "", SAME, lambda F, d, z, x: (d,), "Broadcast to a shape.", flops=0),
    OpSpec("classes", 1, Kind.MOVE, f.classes, "", SAME, NON_DIFFERENTIABLE, "Indices of onehot, each of which must be a place along its axis.", domain=(WHOLE,), flops=0),
    OpSpec("take", 2, Kind.MOVE, f.take, "", SAME, lambda F, d, z, x, i: (F.untake(d, i, x.shape, z.attrs["axis"]), None), "Slices gathered by index along axis.", domain=(REAL, WHOLE), keyed=("axis",), flops=0),
    OpSpec("untake", 2, Kind.MOVE, f.untake, "", SAME, lambda F, d, z, x, i: (F.take(d, i, z.attrs["axis"]), None), "Slices scatter-added by index along axis (gradient of take).", domain=(REAL, WHOLE), keyed=("axis",)),
    OpSpec("view", 1, Kind.MOVE, f.view, "", SAME, lambda F, d, z, x: (F.unview(d, x.shape, z.attrs["layout"]),), "Strided window of an expression.", flops=0),
    OpSpec("take_along", 2, Kind.MOVE, f.take_along, "", SAME, lambda F, d, z, x, i: (F.untake_along(d, i, x.shape, z.attrs["axis"]), None), "Elements gathered along axis, an index for each.", domain=(REAL, WHOLE), keyed=("axis",), flops=0),
    OpSpec("untake_along", 2, Kind.MOVE, f.untake_along, "", SAME, lambda F, d, z, x, i: (F.take_along(d, i, z.attrs["axis"]), None), "Elements scatter-added along axis, an index for each (gradient of take_along).", domain=(REAL, WHOLE), keyed=("axis",)),
    OpSpec("concat", MANY, Kind.MOVE, f.concat, "", SAME, lambda F, d, z, *parts: F.parts_of(d, z, parts), "Operands concatenated along axis.", domain=(REAL,), keyed=("axis",), flops=0),
    OpSpec("unview", 1, Kind.MOVE, f.unview, "", SAME, lambda F, d, z, x: (F.view(d, z.attrs["layout"]),), "Zeros around a strided window (gradient of view).", flops=0),
    # Along an axis
    OpSpec("cumsum", 1, Kind.SCAN, f.cumsum, "", SAME, lambda F, d, z, x: (F.cumsum(d, z.attrs["axis"], not z.attrs["reverse"]),), "Sums of all elements up to each along axis.", keyed=("axis", "reverse")),
    OpSpec("cumprod", 1, Kind.SCAN, f.cumprod, "", SAME, _cumprod_grad, "Products of all elements up to each along axis.", keyed=("axis", "reverse")),
    OpSpec("argsort", 1, Kind.SCAN, f.argsort, "", INDEX, NON_DIFFERENTIABLE, "Positions along axis in the order of the values; nan last.", keyed=("axis", "descending"), flops=20),
)  # fmt: skip


UNITS = {
    name: _unary(f"unit_{name}", numpy, f"floor({{0}} * {2**bits}) * {2.0**-bits!r}", NON_DIFFERENTIABLE, doc)
    for name, numpy, bits, doc in (
        ("float16", f.unit_float16, 11, "A number of [0, 1) less what goes beyond the 11 bits of float16."),
        ("bfloat16", f.unit_bfloat16, 8, "A number of [0, 1) less what goes beyond the 8 bits of bfloat16."),
    )
}
"""Rows used only by the planner, for storing random numbers in 16 bits, by the name of the dtype."""


def x_t(x: Any) -> Any:
    """Transpose of a 2-D operand in a gradient rule.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x_t(be.array([[1., 2.]])).tolist()
    [[1.0], [2.0]]
    """
    return x.T


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Inverse of the permutation ``axes``.

    Examples
    --------
    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(axes.index(i) for i in range(len(axes)))


ORDERS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
"""Comparison rows, exact also for integers of different signedness."""

OPS: dict[str, OpSpec] = {row.name: row for row in _ROWS}
"""name -> row, in the order of the docs table."""
