"""The expressions of ``expressions.py``, each written the way every library would have it.

``array`` is the definition: the formula on NumPy-like arrays, from which the float64 reference and JAX are made.
NumPy, numexpr and torch have forms of their own, with the best function each has, that write into an existing array:
allocating a large result anew costs more than computing it. Numba's loops are in ``_numba_loops.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FULL, ROW, COLUMN, ONE = "full", "row", "column", "one"
"""Kinds of operand for a space (m, n): (m, n), (1, n), (m, 1), (1, 1)."""

ALPHA, SLOPE, EPS = 2.5, 0.1, 1e-5
SQRT_HALF, SQRT_2_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)
LR, BETA1, BETA2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8
BOTH = (0, 1)


@dataclass(frozen=True)
class Expression:
    """One expression in every language."""

    name: str
    text: str
    inputs: dict[str, str]
    """Operand -> its kind, in the order the functions take them."""
    neonlike: Callable[[Any], Callable[..., Any]]
    """``neonlike(be)`` gives the function of tensors that builds the expression (or several)."""
    array: Callable[[Any], Callable[..., Any]]
    """``array(xp)`` gives the function of arrays, ``xp`` being NumPy or something like it."""
    numpy: Callable[[Any], Callable[..., Any]]
    torch: Callable[[Any], Callable[..., Any]]
    """``numpy(np)`` gives a function of the target (unless operands are replaced) and the operands; ``torch(t)`` too,
    and what that returns is the result."""
    eager: Callable[[Any], Callable[..., Any]] | None = None
    jax: Callable[[Any], Callable[..., Any]] | None = None
    """Instead of ``torch`` and ``array``, where PyTorch without its compiler and JAX have a better function."""
    numexpr: Callable[..., Any] | None = None
    """``numexpr(evaluate, operands, target)``; None where numexpr cannot say it."""
    out: str = FULL
    targets: tuple[str, ...] = ()
    """Operands that are replaced; empty for a result of its own."""


def _evaluates(text: str, **constants: float) -> Callable[..., Any]:
    """numexpr on one formula; constants are float32, or the formula would be computed in float64."""
    typed = {name: np.float32(value) for name, value in constants.items()}

    def run(evaluate: Any, operands: dict[str, Any], target: Any) -> None:
        evaluate(text, local_dict=operands | typed, out=target)

    return run


def _ten(a: Any, b: Any, c: Any) -> Any:
    return ((((a + b) * c - a) * b + c) * a - b) * c + a * b


def _gelu_tanh(xp: Any) -> Callable[..., Any]:
    return lambda x: 0.5 * x * (1 + xp.tanh(SQRT_2_PI * (x + 0.044715 * x * x * x)))


def _softmax(axis: int) -> Callable[..., Any]:
    def of(xp: Any) -> Callable[..., Any]:
        def softmax(x: Any) -> Any:
            powers = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
            return powers / xp.sum(powers, axis=axis, keepdims=True)

        return softmax

    return of


def _numpy_softmax(axis: int) -> Callable[..., Any]:
    def of(np: Any) -> Callable[..., Any]:
        def softmax(out: Any, x: Any) -> None:
            np.exp(np.subtract(x, np.max(x, axis=axis, keepdims=True), out=out), out=out)
            np.divide(out, np.sum(out, axis=axis, keepdims=True), out=out)

        return softmax

    return of


def _log_softmax(xp: Any) -> Callable[..., Any]:
    def log_softmax(x: Any) -> Any:
        shifted = x - xp.max(x, axis=1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))

    return log_softmax


def _numpy_log_softmax(np: Any) -> Callable[..., Any]:
    def log_softmax(out: Any, x: Any) -> None:
        np.subtract(x, np.max(x, axis=1, keepdims=True), out=out)
        np.subtract(out, np.log(np.sum(np.exp(out), axis=1, keepdims=True)), out=out)

    return log_softmax


def _layer_norm(xp: Any) -> Callable[..., Any]:
    def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
        centered = x - xp.mean(x, axis=1, keepdims=True)
        variance = xp.mean(centered * centered, axis=1, keepdims=True)
        return centered / xp.sqrt(variance + EPS) * gain + bias

    return layer_norm


def _numpy_layer_norm(np: Any) -> Callable[..., Any]:
    def layer_norm(out: Any, x: Any, gain: Any, bias: Any) -> None:
        np.subtract(x, np.mean(x, axis=1, keepdims=True), out=out)
        variance = np.mean(out * out, axis=1, keepdims=True)
        np.divide(out, np.sqrt(variance + EPS), out=out)
        np.multiply(out, gain, out=out)
        np.add(out, bias, out=out)

    return layer_norm


def _torch_layer_norm(t: Any) -> Callable[..., Any]:
    norm = t.nn.functional.layer_norm
    return lambda out, x, gain, bias: out.copy_(norm(x, x.shape[1:], gain[0], bias[0], EPS))


def _eager_layer_norm(t: Any) -> Callable[..., Any]:
    """Its result is new: without the compiler, copying it costs more than allocating it."""
    norm = t.nn.functional.layer_norm
    return lambda out, x, gain, bias: norm(x, x.shape[1:], gain[0], bias[0], EPS)


def _neonlike_layer_norm(be: Any) -> Callable[..., Any]:
    def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
        centered = x - be.mean(x, axis=1)
        variance = be.mean(be.square(centered), axis=1)
        return centered / be.sqrt(variance + EPS) * gain + bias

    return layer_norm


def _numexpr_variance(evaluate: Any, operands: dict[str, Any], target: Any) -> None:
    size = operands["x"].size
    middle = np.float32(evaluate("sum(x)", local_dict=operands) / size)
    total = evaluate("sum((x - middle) * (x - middle))", local_dict=operands | {"middle": middle})
    target[...] = total / size


def _numexpr_sum_squares(evaluate: Any, operands: dict[str, Any], target: Any) -> None:
    target[...] = evaluate("sum(x * x)", local_dict=operands)


def _adam(sqrt: Callable[[Any], Any]) -> Callable[..., Any]:
    """Kingma & Ba 2015, algorithm 1, with the bias corrections left to the learning rate."""

    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m1 = BETA1 * m + (1 - BETA1) * g
        v1 = BETA2 * v + (1 - BETA2) * g * g
        return p - LR * m1 / (sqrt(v1) + ADAM_EPS), m1, v1

    return adam


def _numpy_adam(np: Any) -> Callable[..., Any]:
    def adam(p: Any, m: Any, v: Any, g: Any) -> None:
        np.multiply(m, BETA1, out=m)
        np.add(m, (1 - BETA1) * g, out=m)
        np.multiply(v, BETA2, out=v)
        np.add(v, (1 - BETA2) * g * g, out=v)
        np.subtract(p, LR * m / (np.sqrt(v) + ADAM_EPS), out=p)

    return adam


def _torch_adam(t: Any) -> Callable[..., Any]:
    def adam(p: Any, m: Any, v: Any, g: Any) -> None:
        m.mul_(BETA1).add_(g, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        p.addcdiv_(m, v.sqrt().add_(ADAM_EPS), value=-LR)

    return adam


def _eager_adam(t: Any) -> Callable[..., Any]:
    """The step of ``torch.optim.Adam(fused=True)``, so late in the training that its bias corrections are 1."""
    step = t.tensor(1e9)
    options = dict(lr=LR, beta1=BETA1, beta2=BETA2, eps=ADAM_EPS, weight_decay=0.0, amsgrad=False, maximize=False)
    return lambda p, m, v, g: t._fused_adam_([p], [g], [m], [v], [], [step], **options)


def _numexpr_adam(evaluate: Any, operands: dict[str, Any], target: Any) -> None:
    constants = dict(b1=BETA1, c1=1 - BETA1, b2=BETA2, c2=1 - BETA2, lr=LR, eps=ADAM_EPS)
    names = operands | {name: np.float32(value) for name, value in constants.items()}
    evaluate("b1 * m + c1 * g", local_dict=names, out=operands["m"])
    evaluate("b2 * v + c2 * g * g", local_dict=names, out=operands["v"])
    evaluate("p - lr * m / (sqrt(v) + eps)", local_dict=names, out=operands["p"])


def _numpy_mask(out: Any, a: Any, b: Any) -> None:
    np.multiply(b, SLOPE, out=out)
    np.copyto(out, a, where=a > 0)


ABC = {"a": FULL, "b": FULL, "c": FULL}
X = {"x": FULL}

EXPRESSIONS = (
    Expression(
        "sigmoid", "sig(a*b + c)", ABC,
        neonlike=lambda be: lambda a, b, c: be.sig(a * b + c),
        array=lambda xp: lambda a, b, c: 1 / (1 + xp.exp(-(a * b + c))),
        numpy=lambda np: lambda out, a, b, c: np.divide(1, 1 + np.exp(-(a * b + c)), out=out),
        torch=lambda t: lambda out, a, b, c: t.sigmoid(a * b + c, out=out),
        numexpr=_evaluates("1 / (1 + exp(-(a * b + c)))"),
    ),
    Expression(
        "axpy", "2.5*x + y", {"x": FULL, "y": FULL},
        neonlike=lambda be: lambda x, y: ALPHA * x + y,
        array=lambda xp: lambda x, y: ALPHA * x + y,
        numpy=lambda np: lambda out, x, y: np.add(ALPHA * x, y, out=out),
        torch=lambda t: lambda out, x, y: t.add(y, x, alpha=ALPHA, out=out),
        numexpr=_evaluates("alpha * x + y", alpha=ALPHA),
    ),
    Expression(
        "chain", "((((a+b)*c - a)*b + c)*a - b)*c + a*b", ABC,
        neonlike=lambda be: _ten,
        array=lambda xp: _ten,
        numpy=lambda np: lambda out, a, b, c: np.add(((((a + b) * c - a) * b + c) * a - b) * c, a * b, out=out),
        torch=lambda t: lambda out, a, b, c: t.add(((((a + b) * c - a) * b + c) * a - b) * c, a * b, out=out),
        numexpr=_evaluates("((((a + b) * c - a) * b + c) * a - b) * c + a * b"),
    ),
    Expression(
        "gelu", "gelu(x), by erf", X,
        neonlike=lambda be: be.gelu,
        array=lambda xp: lambda x: 0.5 * x * (1 + xp.erf(x * SQRT_HALF)),
        numpy=lambda np: lambda out, x: np.multiply(0.5 * x, 1 + np.erf(x * SQRT_HALF), out=out),
        torch=lambda t: lambda out, x: t.ops.aten.gelu.out(x, out=out),
        jax=lambda jax: lambda x: jax.nn.gelu(x, approximate=False),
    ),
    Expression(
        "gelu_tanh", "gelu(x), by tanh", X,
        neonlike=_gelu_tanh,
        array=_gelu_tanh,
        numpy=lambda np: lambda out, x: np.multiply(
            0.5 * x, 1 + np.tanh(SQRT_2_PI * (x + 0.044715 * x * x * x)), out=out
        ),
        torch=lambda t: lambda out, x: t.ops.aten.gelu.out(x, approximate="tanh", out=out),
        numexpr=_evaluates(
            "half * x * (1 + tanh(scale * (x + cubic * x * x * x)))", half=0.5, scale=SQRT_2_PI, cubic=0.044715
        ),
    ),
    Expression(
        "softmax0", "softmax(x, axis=0)", X,
        neonlike=lambda be: lambda x: be.fprop_softmax(x, 0),
        array=_softmax(0),
        numpy=_numpy_softmax(0),
        torch=lambda t: lambda out, x: t.softmax(x, 0, out=out),
        jax=lambda jax: lambda x: jax.nn.softmax(x, axis=0),
    ),
    Expression(
        "softmax1", "softmax(x, axis=1)", X,
        neonlike=lambda be: lambda x: be.fprop_softmax(x, 1),
        array=_softmax(1),
        numpy=_numpy_softmax(1),
        torch=lambda t: lambda out, x: t.softmax(x, 1, out=out),
        jax=lambda jax: lambda x: jax.nn.softmax(x, axis=1),
    ),
    Expression(
        "log_softmax", "x - logsumexp(x, axis=1)", X,
        neonlike=lambda be: lambda x: x - be.logsumexp(x, axis=1),
        array=_log_softmax,
        numpy=_numpy_log_softmax,
        torch=lambda t: lambda out, x: t.log_softmax(x, 1, out=out),
        jax=lambda jax: lambda x: jax.nn.log_softmax(x, axis=1),
    ),
    Expression(
        "layer_norm", "(x - mean)/sqrt(var + eps)*gain + bias, axis=1", {"x": FULL, "gain": ROW, "bias": ROW},
        neonlike=_neonlike_layer_norm,
        array=_layer_norm,
        numpy=_numpy_layer_norm,
        torch=_torch_layer_norm,
        eager=_eager_layer_norm,
    ),
    Expression(
        "variance", "var(x) over all", X,
        neonlike=lambda be: be.var,
        array=lambda xp: lambda x: xp.var(x, axis=BOTH, keepdims=True),
        numpy=lambda np: lambda out, x: np.var(x, axis=BOTH, keepdims=True, out=out),
        torch=lambda t: lambda out, x: t.var(x, dim=BOTH, correction=0, keepdim=True, out=out),
        numexpr=_numexpr_variance, out=ONE,
    ),
    Expression(
        "sum_squares", "sum(x*x) over all", X,
        neonlike=lambda be: lambda x: be.sum(x * x),
        array=lambda xp: lambda x: xp.sum(x * x, axis=BOTH, keepdims=True),
        numpy=lambda np: lambda out, x: out.fill(np.vdot(x, x)),
        torch=lambda t: lambda out, x: t.sum(x * x, dim=BOTH, keepdim=True, out=out),
        eager=lambda t: lambda out, x: t.dot(x.view(-1), x.view(-1)),
        jax=lambda jax: lambda x: jax.numpy.vdot(x, x).reshape(1, 1),
        numexpr=_numexpr_sum_squares, out=ONE,
    ),
    Expression(
        "outer", "column*row", {"u": COLUMN, "v": ROW},
        neonlike=lambda be: lambda u, v: u * v,
        array=lambda xp: lambda u, v: u * v,
        numpy=lambda np: lambda out, u, v: np.multiply(u, v, out=out),
        torch=lambda t: lambda out, u, v: t.mul(u, v, out=out),
        numexpr=_evaluates("u * v"),
    ),
    Expression(
        "mask", "where(a > 0, a, 0.1*b)", {"a": FULL, "b": FULL},
        neonlike=lambda be: lambda a, b: be.where(a > 0, a, SLOPE * b),
        array=lambda xp: lambda a, b: xp.where(a > 0, a, SLOPE * b),
        numpy=lambda np: _numpy_mask,
        torch=lambda t: lambda out, a, b: t.where(a > 0, a, SLOPE * b, out=out),
        numexpr=_evaluates("where(a > 0, a, slope * b)", slope=SLOPE),
    ),
    Expression(
        "adam", "Adam step: p, m, v from p, m, v, g", {"p": FULL, "m": FULL, "v": FULL, "g": FULL},
        neonlike=lambda be: _adam(be.sqrt),
        array=lambda xp: _adam(xp.sqrt),
        numpy=_numpy_adam,
        torch=_torch_adam,
        eager=_eager_adam,
        numexpr=_numexpr_adam, targets=("p", "m", "v"),
    ),
)  # fmt: skip


def space(size: int) -> tuple[int, int]:
    """(m, n) with m*n = ``size``, as square as it gets, n >= m."""
    m = math.isqrt(size)
    while size % m:
        m -= 1
    return m, size // m


def shape(kind: str, full: tuple[int, int]) -> tuple[int, int]:
    """Shape of an operand of ``kind`` in the space ``full``."""
    m, n = full
    return {FULL: (m, n), ROW: (1, n), COLUMN: (m, 1), ONE: (1, 1)}[kind]


def operands(expression: Expression, size: int) -> dict[str, Any]:
    """float32 inputs, the same for every call: normal, but with Adam's v not negative, as it always is."""
    rng = np.random.default_rng(size)
    made = {
        name: rng.standard_normal(shape(kind, space(size)), dtype=np.float32)
        for name, kind in expression.inputs.items()
    }
    if expression.name == "adam":
        np.square(made["v"], out=made["v"])
    return made


def nbytes(expression: Expression, size: int) -> int:
    """Bytes that must move: each operand read once, each result written once, in float32."""
    kinds = list(expression.inputs.values())
    kinds += [expression.inputs[name] for name in expression.targets] or [expression.out]
    return 4 * sum(math.prod(shape(kind, space(size))) for kind in kinds)


def footprint(expression: Expression, size: int, contenders: int) -> int:
    """Bytes of memory a case takes, roughly: operands and results of each contender, JAX's once more, the copy of the
    roofline, and what one of them needs to be checked: the operands again and the reference in float64."""
    full, inputs, written = math.prod(space(size)), len(expression.inputs), max(1, len(expression.targets))
    own, jax, copies = inputs + (not expression.targets), written, inputs + written
    return 4 * full * (contenders * own + jax + copies + inputs) + 8 * full * (inputs + 4)
