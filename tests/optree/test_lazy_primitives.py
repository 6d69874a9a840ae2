"""Compound primitives in expressions: ``be.conv`` and the like, and ``be.primitive``, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.support.engines import new_backend
from tests.support.numbers import numbers

pytestmark = pytest.mark.optree

X, W, BIAS = (3, 6, 7, 4), (3, 3, 2, 5), (5, 1)


def flat(be: Any, tensor: Any) -> Any:
    return be.array(tensor.get())


# What they compute: what the primitives do --------------------------------------------------------------------------


def test_convolution_is_the_primitive(be: Any) -> None:
    x, w, b = be.array(numbers(*X)), be.array(numbers(*W)), be.array(numbers(*BIAS))
    for options in ({}, {"strides": (2, 1), "padding": 1}, {"padding": (2, 0), "dilation": 2}):
        names = {"strides": "str", "padding": "pad", "dilation": "dil"}
        sizes = {}
        for key, value in options.items():
            h, v = value if isinstance(value, tuple) else (value, value)
            sizes |= {f"{names[key]}_h": h, f"{names[key]}_w": v}
        layer = be.conv_layer(np.float32, 4, 3, 5, H=6, W=7, R=3, S=2, **sizes)
        out = be.empty(layer.dimO)
        be.fprop_conv(layer, x, w, out, bias=b)
        node = be.conv(x, w, b, **options)
        assert node.shape == (5, layer.P, layer.Q, 4)
        np.testing.assert_array_equal(node.astensor().get(), out.get()[:, 0])
    groups = be.conv(x, be.array(numbers(1, 2, 2, 6)), groups=3)
    layer = be.conv_layer(np.float32, 4, 3, 6, H=6, W=7, R=2, S=2, groups=3)
    out = be.empty(layer.dimO)
    be.fprop_conv(layer, x, be.array(numbers(1, 2, 2, 6)), out)
    np.testing.assert_array_equal(groups.astensor().get(), out.get()[:, 0])


def test_three_axes_and_transposed_convolution(be: Any) -> None:
    x, w = be.array(numbers(2, 4, 5, 6, 3)), be.array(numbers(2, 2, 3, 2, 4))
    maps = be.conv(x, w, strides=(1, 2, 1))
    layer = be.conv_layer(np.float32, 3, 2, 4, D=4, H=5, W=6, T=2, R=3, S=2, str_h=2)
    out, back = be.empty(layer.dimO), be.empty(layer.dimI)
    be.fprop_conv(layer, x, w, out)
    np.testing.assert_array_equal(maps.astensor().get(), out.get())
    b = be.array(numbers(2, 1))
    be.bprop_conv(layer, w, out, back, bias=b)
    node = be.deconv(out, w, b, strides=(1, 2, 1))
    assert node.shape == (2, 4, 5, 6, 3)
    np.testing.assert_array_equal(node.astensor().get(), back.get())


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_pooling_is_the_primitive(be: Any, op: str) -> None:
    x = be.array(numbers(*X))
    layer = be.pool_layer(np.float32, op, 4, 3, H=6, W=7, R=3, S=2, pad_h=1, str_h=2, str_w=1)
    out, argmax = be.empty(layer.dimO), be.empty(layer.dimO, dtype=np.uint8)
    be.fprop_pool(layer, x, out, argmax)
    node = be.pool(x, (3, 2), op, strides=(2, 1), padding=(1, 0))
    np.testing.assert_array_equal(node.astensor().get(), out.get().reshape(node.shape))
    assert be.pool(x, 2).shape == (3, 3, 3, 4)


def test_normalisations_and_products(be: Any) -> None:
    x, gamma, beta = be.array(numbers(*X)), be.array(numbers(3, 1)), be.array(numbers(3, 1, seed=1))
    host = x.get().astype(np.float64)
    mean, var = (f(host, axis=(1, 2, 3), keepdims=True) for f in (np.mean, np.var))
    factors = gamma.get().reshape(3, 1, 1, 1), beta.get().reshape(3, 1, 1, 1)
    wanted = factors[0] * (host - mean) / np.sqrt(var + 0.1) + factors[1]
    np.testing.assert_allclose(be.batchnorm(x, gamma, beta, eps=0.1).astensor().get(), wanted, rtol=1e-4, atol=1e-5)
    squares = np.pad(host**2, ((1, 1), (0, 0), (0, 0), (0, 0)))
    denom = 1 + 0.5 / 3 * (squares[:-2] + squares[1:-1] + squares[2:])
    np.testing.assert_allclose(be.lrn(x, 3, 0.5, 0.75).astensor().get(), host * denom**-0.75, rtol=1e-4)
    a, b, c = be.array(numbers(2, 3, 4)), be.array(numbers(2, 4, 5)), be.array(numbers(4, 5, seed=2))
    np.testing.assert_allclose(be.matmul(a, b).astensor().get(), a.get() @ b.get(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(be.matmul(a, c).astensor().get(), a.get() @ c.get(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(be.matmul(a[0], b[1]).astensor().get(), a.get()[0] @ b.get()[1], rtol=1e-4, atol=1e-5)


# Gradients ----------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "conv": (lambda be, x, w, b: be.conv(x, w, b, strides=(2, 1), padding=1), (X, W, BIAS)),
    "conv of expressions": (lambda be, x, w: be.sig(be.conv(be.tanh(x), w * w, dilation=2)), (X, W)),
    "conv in groups": (lambda be, x, w: be.conv(x, w, groups=3), (X, (1, 2, 2, 6))),
    "conv of three axes": (lambda be, x, w: be.conv(x, w), ((2, 3, 4, 3, 2), (2, 2, 2, 2, 3))),
    "deconv": (lambda be, x, w, b: be.deconv(x, w, b, strides=2, padding=1), ((5, 3, 4, 2), W, (3, 1))),
    "max": (lambda be, x: be.pool(x, 3, strides=2, padding=1), (X,)),
    "max of an expression": (lambda be, x: be.sum(be.square(be.pool(x * 2 - 1, 2))), (X,)),
    "avg": (lambda be, x: be.pool(x, (2, 3), "avg", padding=(1, 0)), (X,)),
    "l2": (lambda be, x: be.pool(x, 2, "l2"), (X,)),
    "batchnorm": (lambda be, x, g, b: be.batchnorm(x, g, b), (X, (3, 1), (3, 1))),
    "batchnorm by activation": (lambda be, x, g, b: be.tanh(be.batchnorm(x, g, b, eps=0.5)), ((6, 5), (6, 1), (6, 1))),
    "lrn": (lambda be, x: be.lrn(x, 3, 0.5, 0.75), (X,)),
    "attention": (lambda be, q, k, v: be.attention(q, k, v), ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3))),
    "causal attention": (lambda be, q, k, v: be.attention(q, k, v, True, 0.7), ((4, 3), (5, 3), (5, 2))),
    "matmul": (lambda be, a, b: be.matmul(a, b), ((2, 3, 4), (2, 4, 5))),
    "matmul shared": (lambda be, a, b: be.matmul(be.sin(a), b), ((4, 3), (2, 3, 5))),
    "network": (
        lambda be, x, w, g, b, v: be.sum(
            be.square(be.conv(be.pool(be.relu(be.batchnorm(be.conv(x, w, padding=1), g, b)), 2), v))
        ),
        (X, W, BIAS, BIAS, (5, 2, 2, 3)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_against_differences(be: Any, name: str) -> None:
    function, shapes = FUNCTIONS[name]
    tensors = [be.array(numbers(*shape, seed=n)) for n, shape in enumerate(shapes)]
    assert be.check_grad(lambda *operands: function(be, *operands), tensors) < 1e-6


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("conv of three axes", "network")])
def test_second_derivatives_against_differences(be: Any, name: str) -> None:
    function, shapes = FUNCTIONS[name]
    tensors = [be.array(apart(*shape, seed=n)) for n, shape in enumerate(shapes)]
    for position in range(len(shapes)):
        gradient = be.grad(lambda *operands: be.sum(be.tanh(function(be, *operands))), argnums=position)
        assert be.check_grad(gradient, tensors) < 1e-6


def apart(*shape: int, seed: int) -> Any:
    """Random numbers no two of which are close: where another is the largest, gradients of maxima jump."""
    order = np.argsort(numbers(*shape, seed=seed), axis=None)
    found = np.empty(order.size)
    found[order] = np.linspace(-2, 2, order.size)
    return found.reshape(shape)


# In plans -----------------------------------------------------------------------------------------------------------


def test_views_and_transposes_as_operands(be: Any) -> None:
    host, w = numbers(4, 7, 6, 6), be.array(numbers(*W))
    x = be.array(host)
    plain = be.array(np.ascontiguousarray(host.transpose(3, 2, 1, 0)[:3]))
    wanted = be.conv(plain, w).astensor().get()
    view = be.transpose(x, (3, 2, 1, 0))[:3]
    np.testing.assert_array_equal(be.conv(view, w).astensor().get(), wanted)
    lazy = be.conv(be.transpose(x[:, :, :, :3] * 1, (3, 2, 1, 0)), w)
    np.testing.assert_array_equal(lazy.astensor().get(), wanted)
    turned = be.transpose(be.conv(plain, w), (3, 0, 1, 2)) + 1
    np.testing.assert_array_equal(turned.astensor().get(), wanted.transpose(3, 0, 1, 2) + np.float32(1))


def test_a_target_that_is_read_too(be: Any) -> None:
    x, w = be.array(numbers(2, 5, 5, 3)), be.array(numbers(2, 3, 3, 2))
    wanted = be.conv(x, w, padding=1).astensor().get()
    x[:] = be.conv(x, w, padding=1)
    np.testing.assert_array_equal(x.get(), wanted)
    y = be.array(numbers(2, 5, 5, 3))
    wanted = (be.conv(y, w, padding=1) + be.conv(y * 2, w, padding=1)).astensor().get()
    y[:] = be.conv(y, w, padding=1) + be.conv(y * 2, w, padding=1)
    np.testing.assert_array_equal(y.get(), wanted)


def test_targets_of_other_shapes_strides_and_dtypes(be: Any) -> None:
    x, w = be.array(numbers(2, 4, 4, 1)), be.array(numbers(2, 3, 3, 3))
    wanted = be.conv(x, w).astensor().get()
    wide = be.zeros((3, 2, 2, 5))
    wide[:] = be.conv(x, w)
    np.testing.assert_array_equal(wide.get(), np.repeat(wanted, 5, axis=3))
    target = be.zeros((3, 2, 4, 1))
    target[:, :, ::2] = be.conv(x, w)
    np.testing.assert_array_equal(target.get()[:, :, ::2], wanted)
    double = be.empty((3, 2, 2, 1), dtype=np.float64)
    double[:] = be.conv(x, w)
    np.testing.assert_array_equal(double.get(), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(be: Any, dtype: str) -> None:
    x, w = be.array(numbers(2, 5, 5, 3), dtype=dtype), be.array(numbers(2, 2, 2, 4), dtype=dtype)
    g, b = be.array(numbers(4, 1)), be.array(numbers(4, 1))

    def f(x: Any, w: Any, g: Any) -> Any:
        return be.sum(be.square(be.pool(be.batchnorm(be.conv(x * 0.5, w), g, b), 2)))

    gradients = be.grad(f)(x, w, g)
    assert [gradient.dtype.name for gradient in gradients] == [dtype, dtype, "float32"]
    wide = [be.array(t.get(), dtype=np.float64) for t in (x, w, g)]
    b = be.array(b.get(), dtype=np.float64)
    for found, wanted in zip(gradients, be.grad(f)(*wide)):
        scale = np.abs(wanted.get()).max()
        np.testing.assert_allclose(found.get(), wanted.get(), atol=(2e-2 if dtype == "float16" else 1e-5) * scale)


def test_prepared_and_repeated_with_new_values(be: Any) -> None:
    x, w = be.array(numbers(2, 5, 5, 3)), be.array(numbers(2, 2, 2, 4))
    (dw,) = Autodiff(be.sum(be.sig(be.pool(be.conv(x, w), 2))), be).get_grad_op_tree([w])
    out = be.empty(w.shape)
    step = be.prepare(out, dw)
    for seed in (1, 2, 3):
        x[:] = numbers(2, 5, 5, 3, seed=seed)
        step()
        np.testing.assert_array_equal(out.get(), dw.astensor().get())
    assert np.abs(out.get()).max() > 0


def test_another_size_runs_the_same_plan(be: Any) -> None:
    w = be.array(numbers(2, 2, 2, 4))
    for n, size in ((3, 7), (5, 9)):
        x = be.array(numbers(2, size, size, n))
        out = be.empty((4, size - 1, size - 1, n))
        misses = be.plans.misses
        out[:] = be.conv(x, w) + 1
        wanted = be.conv(x, w).astensor().get() + np.float32(1)
        np.testing.assert_array_equal(out.get(), wanted)
    assert be.plans.misses == misses


def test_explain_shows_the_call(be: Any) -> None:
    x, w = be.ones((2, 5, 5, 3)), be.ones((2, 2, 2, 4))
    text = be.explain(be.sig(be.conv(be.tanh(x), w)))
    assert "call over (4, 4, 4, 3)" in text
    assert "why     conv is a compound primitive" in text
    assert "calls   be.fprop_conv, input 2x1x5x5, filter 1x2x2, 4 maps of 1x4x4" in text
    assert text.count("\nstage") == 3
    assert "conv(tanh(t0), t1)" in str(be.explain(be.sig(be.conv(be.tanh(x), w))))


@pytest.mark.backend
def test_bench_mode_times_the_primitive_once() -> None:
    be = new_backend(bench=True)
    x, w = be.ones((2, 5, 5, 3)), be.ones((2, 2, 2, 4))
    be.conv(x, w).astensor()
    names = [row.name for row in be.executor.recorder.rows()]
    assert [name for name in names if "conv" in name] == ["fprop_conv"]
    be.cleanup_backend()


# A user's own -------------------------------------------------------------------------------------------------------


def test_a_primitive_with_other_arguments_and_shape(be: Any) -> None:

    def forward(out: Any, x: Any, times: int, y: Any) -> None:
        """Columns of x, and those of y, next to each other."""
        assert times == 2
        out[:, : x.shape[1]] = x * times
        out[:, x.shape[1] :] = y

    def backward(error: Any, out: Any, x: Any, times: int, y: Any) -> Any:
        part = be.array(np.eye(5)[:, :2], dtype=error.dtype), be.array(np.eye(5)[:, 2:], dtype=error.dtype)
        return be.dot(error, part[0]) * times, None, be.dot(error, part[1])

    beside = be.primitive(forward, backward, shape=lambda a, b: (a[0], a[1] + b[1]), name="beside")
    x, y = be.array(numbers(3, 2)), be.array(numbers(3, 3, seed=1))
    node = beside(x * 1, 2, y)
    assert (node.shape, beside.__name__, beside.__doc__) == ((3, 5), "beside", forward.__doc__)
    np.testing.assert_array_equal(node.astensor().get(), np.hstack([2 * x.get(), y.get()]))
    assert be.check_grad(lambda x, y: be.exp(beside(be.sin(x), 2, y)), [x, y]) < 1e-6
    assert "beside is a compound primitive" in be.explain(beside(x, 2, y) + 1)
    assert f"calls   {__name__}.test_a_primitive" in be.explain(beside(x, 2, y) + 1)


def test_explain_says_what_each_stage_of_a_gradient_calls(be: Any) -> None:
    x, w, v = be.ones((4, 6, 6, 2)), be.ones((4, 3, 3, 4)), be.ones((4, 1))

    def f(x: Any) -> Any:
        normal = be.lrn(be.batchnorm(be.pool(be.conv(x, w, padding=1), 2), v, v), 3)
        return be.sum(be.square(be.matmul(normal.reshape(4, 9, 2), be.ones((4, 2, 5)))))

    (gradient,) = Autodiff(f(x), be).get_grad_op_tree([x])
    text = be.explain(gradient)
    calls = [line.split()[1].rstrip(",") for line in text.splitlines() if line.startswith("  calls")]
    assert {f"be.{way}_{name}" for way in ("fprop", "bprop") for name in ("conv", "pool", "lrn")} <= set(calls)
    assert {"be.compound_fprop_bn", "be.compound_bprop_bn", "be.batched_dot"} <= set(calls)


def test_primitives_whose_gradient_is_one_too(be: Any) -> None:
    """The gradient of a gradient, all three computed by functions of the user."""
    slope = be.primitive(lambda out, x: be.assign(out, be.cos(x)), lambda error, out, x: -error * be.sin(x))
    sine = be.primitive(lambda out, x: be.assign(out, be.sin(x)), lambda error, out, x: error * slope(x))
    x = be.array(numbers(2, 3))
    assert be.check_grad(sine, x) < 1e-6
    np.testing.assert_allclose(be.grad(be.grad(sine))(x).get(), -np.sin(x.get()), rtol=1e-5)


def test_a_failing_primitive_changes_no_target(be: Any) -> None:

    def forward(out: Any, x: Any) -> None:
        out[:] = x
        raise RuntimeError("half way")

    fails = be.primitive(forward)
    x, first, second = be.ones((2, 2)), be.zeros((2, 2)), be.zeros((2, 2))
    with pytest.raises(RuntimeError, match="half way"):
        first[:] = fails(x)
    shared = x * 3  # in memory before the call, as its operand
    with pytest.raises(RuntimeError, match="half way"):
        be.assign_many([(first, shared), (second, fails(shared))])
    assert not first.get().any()
    assert not second.get().any()


def test_a_primitive_named_as_an_op_is_another_thing(be: Any) -> None:
    take = be.primitive(lambda out, x: be.assign(out, x + 1), lambda error, out, x: error, name="take")
    x = be.ones((2, 2))
    np.testing.assert_array_equal((take(x) * 2).astensor().get(), np.full((2, 2), 4.0))
    np.testing.assert_array_equal(be.grad(take)(x).get(), np.ones((2, 2)))


def test_errors_of_primitives(be: Any) -> None:
    x = be.ones((2, 3))
    with pytest.raises(DTypeError, match="forward must be a function"):
        be.primitive(None)
    with pytest.raises(DTypeError, match="backward must be a function"):
        be.primitive(lambda out, x: None, 3)
    with pytest.raises(DTypeError, match="name must be a string"):
        be.primitive(lambda out, x: None, name=3)
    copy = be.primitive(lambda out, x, y=None: be.assign(out, x), name="copy")
    with pytest.raises(DTypeError, match="copy: needs a tensor"):
        copy(3)
    with pytest.raises(GradientError, match="copy was made without backward"):
        be.grad(copy)(x)
    for wrong, message in (
        (lambda error, out, x: (error, error), "returned 2 gradients; expected 1"),
        (lambda error, out, x: 3, "returned int"),
        (lambda error, out, x: be.ones((3, 2)), r"of shape \(3, 2\) for an operand of shape \(2, 3\)"),
    ):
        with pytest.raises(GradientError, match=message):
            be.grad(be.primitive(lambda out, x: be.assign(out, x), wrong))(x)


# Errors are raised where an expression is built ---------------------------------------------------------------------


def test_errors_of_the_lazy_forms(be: Any) -> None:
    x, w = be.ones(X), be.ones(W)
    flat, halves = be.ones((126, 4)), be.ones(W, dtype=np.float16)
    with pytest.raises(ShapeError, match=r"conv: got images of shape \(126, 4\).*expected \(C, H, W, N\)"):
        be.conv(flat, w)
    with pytest.raises(ShapeError, match="conv: w has shape"):
        be.conv(x, be.ones((2, 3, 3, 5)))
    with pytest.raises(ShapeError, match="filter is larger"):
        be.conv(x, be.ones((3, 9, 9, 5)))
    with pytest.raises(DTypeError, match=r"one float dtype, got x float32, w float16; convert with x\.astype"):
        be.conv(x, halves)
    with pytest.raises(ShapeError, match="bias has shape"):
        be.conv(x, w, be.ones((3, 1)))
    with pytest.raises(ArgumentError, match="strides must be a number or 2 of them"):
        be.conv(x, w, strides=(1, 1, 1))
    with pytest.raises(ArgumentError, match="groups must divide"):
        be.conv(x, w, groups=2)
    with pytest.raises(ShapeError, match="deconv: x has shape"):
        be.deconv(x, w)
    for op in ("median", None, np.ones((2, 2))):
        with pytest.raises(ArgumentError):
            be.pool(x, 2, op)
    with pytest.raises(ArgumentError, match="strides must be a number"):
        be.pool(x, 2, strides=10**30)
    with pytest.raises(DTypeError, match="deconv: groups"):
        be.deconv(be.ones((5, 2, 2, 1)), w, groups="x")
    with pytest.raises((DTypeError, ShapeError), match="conv: "):
        be.conv(None, w)
    with pytest.raises(DTypeError, match="one float dtype"):
        be.pool(be.ones(X, dtype=np.int32), 2)
    with pytest.raises(ShapeError, match="has no 4 rows"):
        be.batchnorm(x, be.ones((4, 1)), be.ones((4, 1)))
    with pytest.raises(ShapeError, match="beta has shape"):
        be.batchnorm(x, be.ones((3, 1)), be.ones((1, 3)))
    with pytest.raises(DTypeError, match="x must hold floats"):
        be.batchnorm(be.ones(X, dtype=np.int32), be.ones((3, 1)), be.ones((3, 1)))
    with pytest.raises(ArgumentError):
        be.lrn(x, 2)
    with pytest.raises(DTypeError):
        be.lrn(x, 3, ascale="x")
    with pytest.raises(ShapeError, match="matmul: cannot multiply"):
        be.matmul(be.ones((2, 3, 4)), be.ones((3, 4, 5)))
    with pytest.raises(ShapeError, match="conv: needs a tensor"):
        be.conv(3, w)


def test_tensors_of_another_backend_are_refused(be: Any) -> None:
    other = new_backend()
    with pytest.raises(DTypeError, match="backend"):
        be.conv(be.ones(X), other.ones(W))
    with pytest.raises(DTypeError, match="another backend"):
        be.pool(other.ones(X), 2)
    other.cleanup_backend()
