"""Activations against float64 formulas; derivatives as functions of the output against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import DTypeError
from neonlike.transforms import (
    Explin,
    Identity,
    Logistic,
    Normalizer,
    PixelwiseSoftmax,
    Rectlin,
    Rectlinclip,
    Sign,
    Softmax,
    Tanh,
)
from neonlike.transforms.transform import Transform

pytestmark = pytest.mark.optree

SMOOTH = [Identity(), Rectlin(), Rectlin(0.1), Rectlinclip(), Rectlinclip(0.2, xcut=1.5), Explin(), Explin(0.5),
          Normalizer(), Normalizer(divisor=2.0), Tanh(), Logistic()]  # fmt: skip

REFERENCE = {
    "Identity": lambda f, x: x,
    "Rectlin": lambda f, x: np.maximum(x, 0) + f.slope * np.minimum(x, 0),
    "Rectlinclip": lambda f, x: np.minimum(np.maximum(x, 0) + f.slope * np.minimum(x, 0), f.xcut),
    "Explin": lambda f, x: np.where(x > 0, x, f.alpha * np.expm1(x)),
    "Normalizer": lambda f, x: x / f.divisor,
    "Tanh": lambda f, x: np.tanh(x),
    "Logistic": lambda f, x: 1 / (1 + np.exp(-x)),
}


def column(be, values):
    return be.array(np.array(values, dtype=np.float64).reshape(-1, 1))


def evaluated(be, expression, like):
    out = be.empty(like.shape)
    out[:] = expression
    return out.get()


@pytest.mark.parametrize("f", SMOOTH, ids=lambda f: f.classnm)
def test_values_and_derivatives(be64, f):
    x = np.array([[-3.0, -0.7, -0.2, 0.3, 0.8, 1.2, 2.5, 30.0]])
    x = x[:, :-1] if f.classnm in ("Tanh", "Logistic") else x  # flat there: no digits left in a difference
    reference = REFERENCE[f.classnm]
    tensor = be64.array(x)
    y = be64.empty(x.shape)
    y[:] = f(tensor)
    np.testing.assert_allclose(y.get(), reference(f, x), rtol=1e-12)
    h = 1e-6
    numeric = (reference(f, x + h) - reference(f, x - h)) / (2 * h)
    np.testing.assert_allclose(evaluated(be64, f.bprop(y) * be64.ones(x.shape), y), numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("f", "values", "slopes"),
    [
        (Explin(), [-0.864665, -0.393469, 0, 1, 30], [0.135335, 0.606531, 0, 1, 1]),
        (Rectlinclip(), [0, 0, 0, 1, 20], [0, 0, 0, 1, 0]),
        (Rectlin(0.1), [-0.2, -0.05, 0, 1, 30], [0.1, 0.1, 0, 1, 1]),
    ],
    ids=lambda f: getattr(f, "classnm", ""),
)
def test_worked_numbers(be, f, values, slopes):
    x = column(be, [-2, -0.5, 0, 1, 30])
    y = column(be, values)
    np.testing.assert_allclose(evaluated(be, f(x), x).ravel(), values, atol=1e-6)
    np.testing.assert_allclose(evaluated(be, f.bprop(y), x).ravel(), slopes, atol=1e-6)


def test_a_plain_rectifier_makes_zero_of_minus_infinity(be):
    x = column(be, [-np.inf, np.inf, -1])
    np.testing.assert_array_equal(evaluated(be, Rectlin()(x), x).ravel(), [0, np.inf, 0])
    np.testing.assert_array_equal(evaluated(be, Rectlin().bprop(x), x).ravel(), [0, 1, 0])


def test_rectlin_takes_the_arguments_of_layers(be):
    x = column(be, [-1, 2])
    np.testing.assert_array_equal(evaluated(be, Rectlin()(x, nglayer=None), x).ravel(), [0, 2])
    slopes = Rectlin().bprop(x, nglayer=None, error=x, deltas=x)
    np.testing.assert_array_equal(evaluated(be, slopes, x).ravel(), [0, 1])


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_sums_to_one_and_survives_large_inputs(be64, axis):
    x = np.array([[1000.0, 1.0, -5.0], [999.0, 2.0, -1000.0]])
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    got = evaluated(be64, Softmax(axis=axis)(be64.array(x)), be64.array(x))
    np.testing.assert_allclose(got, shifted / shifted.sum(axis=axis, keepdims=True), rtol=1e-12)
    assert Softmax().bprop(None) == 1


def test_pixelwise_softmax_works_per_pixel_in_place(be64, rng):
    maps, pixels, N = 3, 4, 5
    x = rng.normal(size=(maps * pixels, N))
    tensor = be64.array(x)
    f = PixelwiseSoftmax(maps)
    assert f(tensor) is tensor
    e = np.exp(x.reshape(maps, pixels, N))
    np.testing.assert_allclose(tensor.get(), (e / e.sum(axis=0)).reshape(x.shape), rtol=1e-12)
    assert f.bprop(tensor) == 1


@pytest.mark.parametrize("f", [Softmax(), PixelwiseSoftmax(2)])
def test_gradients_through_a_softmax_of_what_is_no_tensor(be, f):
    with pytest.raises(DTypeError, match="cannot use b'x' as an operand"):
        f.through(1e39, b"x")


def test_logistic_shortcut(be):
    f = Logistic(shortcut=True)
    assert f.bprop(column(be, [0.3])) == 1
    f.set_shortcut(False)
    x = column(be, [0.25])
    np.testing.assert_allclose(evaluated(be, f.bprop(x), x), [[0.1875]])


def test_sign_is_in_place_and_passes_gradients_of_small_inputs(be):
    f = Sign()
    x = column(be, [-2, -0.5, 0, 0.5, 2])
    assert f(x) is x
    np.testing.assert_array_equal(x.get().ravel(), [-1, -1, 1, 1, 1])
    np.testing.assert_array_equal(evaluated(be, f.bprop(x), x).ravel(), [0, 1, 1, 1, 0])


def test_a_transform_may_be_made_of_two_functions(be):
    f = Transform()
    with pytest.raises(NotImplementedError, match="Transform"):
        f(column(be, [1]))
    f.func, f.funcgrad = (lambda x: x * 3), (lambda y: 3)
    x = column(be, [2])
    assert evaluated(be, f(x), x) == 6 and f.bprop(x) == 3
