"""``be.grad``, ``be.value_and_grad`` and ``be.check_grad``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from neonlike.transforms import GELU, Explin, Logistic, Rectlin, SiLU, Softmax, SumSquared, Swish, Tanh
from neonlike.transforms.transform import Transform
from tests.support.engines import new_backend
from tests.support.numbers import numbers

pytestmark = pytest.mark.optree


# Gradients of functions ---------------------------------------------------------------------------------------------


def test_gradients_of_all_arguments(be: Any) -> None:
    a, b = numbers(3, 4), numbers(4, 2, seed=1)
    ta, tb = be.array(a), be.array(b)
    da, db = be.grad(lambda a, b: be.sum(be.square(be.dot(a, b))))(ta, tb)
    np.testing.assert_allclose(da.get(), 2 * (a @ b) @ b.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(db.get(), 2 * a.T @ (a @ b), rtol=1e-4, atol=1e-5)
    assert (da.shape, da.dtype, da.backend) == (ta.shape, ta.dtype, be)
    assert not da.alias_of(ta)


def test_one_argument_gives_its_gradient_and_argnums_choose(be: Any) -> None:
    a, b = be.array(numbers(2, 3)), be.array(numbers(2, 3, seed=1))
    alone = be.grad(lambda x: be.sum(x * b))(a)
    np.testing.assert_array_equal(alone.get(), b.get())
    product = be.grad(lambda a, b: be.sum(a * b), argnums=1)(a, b)
    np.testing.assert_array_equal(product.get(), a.get())
    last = be.grad(lambda a, b: be.sum(a * b), argnums=-1)(a, b)
    np.testing.assert_array_equal(last.get(), a.get())
    swapped = be.grad(lambda a, b: be.sum(a * b), argnums=(1, 0))(a, b)
    assert isinstance(swapped, tuple)
    np.testing.assert_array_equal(swapped[0].get(), a.get())
    (only,) = be.grad(lambda a, b: be.sum(a * b), argnums=[0])(a, b)
    np.testing.assert_array_equal(only.get(), b.get())


def test_other_arguments_are_passed_on(be: Any) -> None:
    w, labels = be.array(numbers(4, 2)), be.array([[1, 3]], dtype=np.int32)

    def f(w: Any, labels: Any, scale: float, power: int = 1) -> Any:
        assert labels.dtype == np.int32
        return be.sum(be.take(w, labels, 0)) * scale**power

    expected = np.zeros((4, 2))
    expected[[1, 3]] = 9
    np.testing.assert_array_equal(be.grad(f)(w, labels, 3.0, power=2).get(), expected)


def test_value_and_gradient_in_one_go(be: Any) -> None:
    x, runs = be.array(numbers(3, 3)), []

    def forward(out: Any, x: Any) -> None:
        runs.append(1)
        out[:] = be.exp(x)

    exp = be.primitive(forward, lambda error, out, x: error * out)
    value, gradient = be.value_and_grad(lambda x: be.sum(exp(x)))(x)
    assert len(runs) == 1, "what the two share is computed once"
    np.testing.assert_allclose(value.get(), [[np.exp(x.get()).sum()]], rtol=1e-5)
    np.testing.assert_allclose(gradient.get(), np.exp(x.get()), rtol=1e-5)
    misses = be.plans.misses
    be.value_and_grad(lambda x: be.sum(exp(x)))(x)
    assert be.plans.misses == misses, "the second time finds the plan"


def test_more_elements_count_as_their_sum(be: Any) -> None:
    x = be.array(numbers(3, 2))
    np.testing.assert_allclose(be.grad(be.tanh)(x).get(), 1 - np.tanh(x.get()) ** 2, rtol=1e-4, atol=1e-6)


def test_second_and_third_derivatives(be: Any) -> None:
    x = be.array(numbers(2, 3))

    def cube(x: Any) -> Any:
        return x * x * x

    np.testing.assert_allclose(be.grad(be.grad(cube))(x).get(), 6 * x.get(), rtol=1e-5)
    np.testing.assert_allclose(be.grad(be.grad(be.grad(cube)))(x).get(), np.full((2, 3), 6.0), rtol=1e-5)


def test_second_derivatives_of_a_function_that_takes_its_argument_apart(be: Any) -> None:
    x = be.array(numbers(3, 2))

    def f(x: Any) -> Any:
        return be.sum(x[1:] * x[1:] * x[:2]) + be.sum(x.reshape(2, 3).T)

    found = be.grad(lambda x: be.sum(be.grad(f)(x)))(x).get()
    h, wanted = x.get(), np.zeros((3, 2))
    wanted[1:] += 2 * h[:2] + 2 * h[1:]
    wanted[:2] += 2 * h[1:]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_product_of_the_hessian_and_a_vector(be: Any) -> None:
    x, v = be.array(numbers(4, 1)), be.array(numbers(4, 1, seed=1))

    def f(x: Any) -> Any:
        return be.sum(x * x * x) * be.sum(x)

    product = be.grad(lambda x: be.sum(be.grad(f)(x) * v))(x).get()
    h, s, d = x.get(), x.get().sum(), v.get()
    expected = 6 * h * s * d + 3 * h**2 * d.sum() + (3 * h**2 * d).sum()
    np.testing.assert_allclose(product, expected, rtol=1e-4)


def test_what_does_not_depend_on_an_argument_has_the_gradient_0(be: Any) -> None:
    x, y = be.array(numbers(2, 2)), be.ones((3, 1))
    assert [g.tolist() for g in be.grad(lambda a, b: be.sum(a), argnums=(0, 1))(x, y)] == [[[1, 1]] * 2, [[0]] * 3]
    assert be.grad(lambda a, b: be.sum(a * a), argnums=1)(x, x).tolist() == [[0, 0]] * 2
    assert be.grad(lambda a, b: be.sum(be.grad(lambda c: be.sum(c * c))(a)), argnums=1)(x, y).tolist() == [[0]] * 3
    inner = be.grad(lambda c, d: be.sum(c * c), argnums=1)
    assert be.grad(lambda a: be.sum(inner(a, a * 2) * a))(x).tolist() == [[0, 0]] * 2
    assert be.grad(be.grad(lambda x: be.sum(3 * x)))(x).tolist() == [[0, 0]] * 2
    assert be.grad(lambda x: be.sum(be.array(x.get()) * 2))(x).tolist() == [[0, 0]] * 2, "the host's are constants"
    copied = x[[0]]
    copied[:] = 3
    with pytest.raises(GradientError, match="written to since"):
        Autodiff(be.sum(copied * copied), be).get_grad_tensor([x])


def test_a_gradient_at_an_expression_inside_another(be: Any) -> None:
    x = be.array(numbers(2, 2))
    inner = be.grad(lambda x: be.sum(be.grad(lambda y: be.sum(y * y * y))(be.sin(x))))(x)
    np.testing.assert_allclose(inner.get(), 6 * np.sin(x.get()) * np.cos(x.get()), rtol=1e-4)
    value, gradient = be.value_and_grad(lambda x: be.sum(be.value_and_grad(lambda y: be.exp(y))(x)[1]))(x)
    np.testing.assert_allclose(gradient.get(), np.exp(x.get()), rtol=1e-5)
    assert value.shape == (1, 1)


def test_partial_derivatives_where_arguments_are_one_tensor(be: Any) -> None:
    """Each argument counts for itself, and other tensors are constants: also views and the tensor itself."""
    x = be.array(numbers(3, 3))
    first, second = be.grad(lambda a, b: be.sum(a * a * b))(x, x)
    np.testing.assert_allclose(first.get(), 2 * x.get() ** 2, rtol=1e-5)
    np.testing.assert_allclose(second.get(), x.get() ** 2, rtol=1e-5)
    alone = be.grad(lambda a: be.sum(a * x))(x)
    np.testing.assert_array_equal(alone.get(), x.get())
    nested = be.grad(lambda x: be.grad(lambda y: be.sum(y * y * x))(x))(x)  # d/dx of 2 x x
    np.testing.assert_allclose(nested.get(), 4 * x.get(), rtol=1e-5)
    upper, lower = be.grad(lambda a, b: be.sum(a * b))(x[:2], x[1:])
    np.testing.assert_array_equal(upper.get(), x.get()[1:])
    np.testing.assert_array_equal(lower.get(), x.get()[:2])


def test_what_is_computed_on_the_way_counts(be: Any) -> None:
    """As Autodiff goes on through tensors that were computed from others; nested, too."""
    x = be.array(numbers(3, 2))

    def f(x: Any) -> Any:
        squares = (x * x).astensor()
        return be.sum(squares * x) + be.sum(x[[0, 2]])

    wanted = 3 * x.get() ** 2
    wanted[[0, 2]] += 1
    np.testing.assert_allclose(be.grad(f)(x).get(), wanted, rtol=1e-5)
    np.testing.assert_allclose(be.grad(be.grad(f))(x).get(), 6 * x.get(), rtol=1e-5)


def test_slices_of_an_argument_and_strided_ones(be: Any) -> None:
    x = be.array(numbers(4, 6))
    gradient = be.grad(lambda x: be.sum(x[1:3] * x[1:3]))(x).get()
    np.testing.assert_allclose(gradient[1:3], 2 * x.get()[1:3], rtol=1e-6)
    assert not gradient[[0, 3]].any()
    strided = be.grad(lambda y: be.sum(y[:1] * 3) + be.sum(be.exp(y)))(x[:, ::2]).get()
    expected = np.exp(x.get()[:, ::2])
    expected[:1] += 3
    np.testing.assert_allclose(strided, expected, rtol=1e-5)


def test_an_argument_is_not_changed_by_the_gradient(be: Any) -> None:
    x = be.array(numbers(2, 2))
    before = x.get()
    be.grad(lambda x: be.sum(x * x))(x)
    np.testing.assert_array_equal(x.get(), before)


def test_narrow_floats_keep_their_dtype(be: Any) -> None:
    x = be.array(numbers(2, 2), dtype=np.float16)
    gradient = be.grad(lambda x: be.sum(x * x))(x)
    assert gradient.dtype == np.float16
    np.testing.assert_allclose(gradient.get(), 2 * x.get(), rtol=1e-3)


def test_errors_name_what_is_wrong(be: Any) -> None:
    x, n = be.ones((2, 2)), be.ones((2, 2), dtype=np.int32)
    with pytest.raises(DTypeError, match="must be a function"):
        be.grad(be.sum(x))
    with pytest.raises(DTypeError, match="must be a function"):
        be.value_and_grad(3)
    with pytest.raises(DTypeError, match="argnums must be an integer"):
        be.grad(be.tanh, argnums="x")
    with pytest.raises(ArgumentError, match="got 1"):
        be.grad(be.tanh, argnums=1)(x)
    with pytest.raises(ArgumentError, match="do not name arguments"):
        be.grad(be.tanh, argnums=(0, 0))(x)
    with pytest.raises(GradientError, match="no argument is a tensor of floats"):
        be.grad(lambda n: n)(n)
    with pytest.raises(GradientError, match="argument 0 must be a tensor of floats to differentiate by, got int32"):
        be.grad(lambda n: n, argnums=0)(n)
    with pytest.raises(GradientError, match="got ndarray"):
        be.grad(lambda x: x, argnums=0)(np.ones((2, 2)))
    with pytest.raises(GradientError, match="must return an expression of tensors, got float"):
        be.grad(lambda x: 1.0)(x)
    other = new_backend()
    with pytest.raises(DTypeError, match="another backend"):
        be.grad(be.tanh)(other.ones((2, 2)))
    other.cleanup_backend()


def test_after_an_error_in_f_gradients_are_tensors_again(be: Any) -> None:
    def fails(x: Any) -> Any:
        raise KeyError("f")

    with pytest.raises(KeyError):
        be.grad(fails)(be.ones((1, 1)))
    assert be.grad(be.tanh)(be.zeros((1, 1))).get().item() == 1


# Checking a gradient ------------------------------------------------------------------------------------------------


class Cubed(Transform):
    """x ** 3 with a factor to get wrong, by the input."""

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * x * x

    def bprop(self, inputs: Any) -> Any:
        return self.factor * inputs * inputs


def test_right_gradients_pass(be: Any) -> None:
    a, b = be.array(numbers(3, 4)), be.array(numbers(4, 2))
    before = a.get()
    assert be.check_grad(lambda a, b: be.tanh(be.dot(a, b)), [a, b]) < 1e-6
    assert be.check_grad(be.exp, a) < 1e-6
    np.testing.assert_array_equal(a.get(), before)
    index = be.array([[2, 0]], dtype=np.int32)
    assert be.check_grad(lambda a, i: be.take(be.sin(a), i, 0), [a, index]) < 1e-6
    assert be.check_grad(lambda a: be.square(a) * be.rand(), a) < 1e-6


@pytest.mark.parametrize(
    "f",
    [lambda a: a[[1, 0, 1]] * a, lambda a: a.astype("float64") * a, lambda a: a[a > 0], lambda a: (a * 2).astensor()],
    ids=["list", "astype", "mask", "astensor"],
)
def test_tensors_that_the_function_computes_follow_the_point(be: Any, f: Any) -> None:
    a, before = be.array(numbers(3, 4)), be.rng_get_state()
    assert be.check_grad(f, a) < 1e-6
    assert be.rng_get_state().stream == before.stream


@pytest.mark.parametrize(
    "f",
    [Tanh(), Logistic(), Rectlin(0.1), Explin(), Swish(), Swish(1.7), SiLU(), GELU(), Cubed()],
    ids=lambda f: f.classnm,
)
def test_activations_pass(be: Any, f: Transform) -> None:
    assert be.check_grad(f, be.array(numbers(3, 5))) < 1e-6


def test_costs_pass_and_one_that_is_wrong_does_not(be: Any) -> None:
    y, t = be.array(numbers(3, 4)), be.array(numbers(3, 4, seed=1))
    assert be.check_grad(SumSquared(), [y, t]) < 1e-6

    class Doubled(SumSquared):
        def bprop(self, y: Any, t: Any) -> Any:
            return 2 * super().bprop(y, t)

    with pytest.raises(GradientError, match=r"Doubled\.bprop by tensor 0"):
        be.check_grad(Doubled(), [y, t])


def test_a_wrong_activation_is_found_with_its_element(be: Any) -> None:
    x = np.full((3, 4), 0.5)
    x[1, 2] = 2.0
    with pytest.raises(GradientError, match=r"worst at element \(1, 2\): 8 by the gradient, 12 by central differences"):
        be.check_grad(Cubed(2.0), be.array(x))
    with pytest.raises(GradientError, match=r"Softmax.bprop"):  # left to the cost, as in neon
        be.check_grad(Softmax(), be.array(x))


@pytest.mark.parametrize("shape", [(4, 5), (40, 50)], ids=str)
def test_one_wrong_element_is_found(be: Any, shape: tuple[int, int]) -> None:
    at = (shape[0] - 2, 3)

    def backward(error: Any, out: Any, x: Any) -> Any:
        wrong = np.zeros(shape)
        wrong[at] = 0.25
        return error * (2 * x + be.array(wrong, dtype=np.float64))

    def forward(out: Any, x: Any) -> None:
        out[:] = be.square(x)

    squared = be.primitive(forward, backward)
    with pytest.raises(GradientError, match=rf"worst at element \({at[0]}, {at[1]}\)"):
        be.check_grad(squared, be.array(numbers(*shape)))


def test_the_check_at_ties_and_zeros(be: Any) -> None:
    """Central differences give halves; a gradient of thirds is reported to be at a kink."""
    tied, zeros = be.array([[2.0, 2.0, 2.0]]), be.zeros((1, 3))
    for f in (lambda x: be.maximum(x, x), lambda x: be.clip(x, x, x), lambda x: be.max(be.stack([x, x]), 0)):
        assert be.check_grad(f, tied) < 1e-6
    for f in (be.norm2, be.std, be.prod, lambda x: be.hypot(x, x), lambda x: x**0, lambda x: x**1):
        assert be.check_grad(f, zeros) < 1e-6
    for f, x in ((be.max, tied), (be.relu, zeros)):
        with pytest.raises(GradientError, match="kink"):
            be.check_grad(f, x)
    assert be.check_grad(lambda x: be.grad(be.grad(lambda x: x**2 + x))(x), tied) == 0


def test_kinks_and_infinities_are_told_apart_from_errors(be: Any) -> None:
    with pytest.raises(GradientError, match="do not settle"):
        be.check_grad(be.relu, be.zeros((1, 1)))
    with pytest.raises(GradientError, match="do not settle"):
        be.check_grad(be.log, be.zeros((1, 1)))


def test_wrong_arguments_of_the_check(be: Any) -> None:
    x = be.ones((2, 2))
    constant = be.ones((2, 2))
    with pytest.raises(DTypeError, match="needs tensors"):
        be.check_grad(be.tanh, [])
    with pytest.raises(DTypeError, match="needs tensors"):
        be.check_grad(be.tanh, [np.ones((2, 2))])
    with pytest.raises(DTypeError, match="needs tensors"):
        be.check_grad(be.tanh, 3)
    with pytest.raises(ArgumentError, match="seed"):
        be.check_grad(be.tanh, x, seed="x")
    with pytest.raises(DTypeError, match="rtol must be a number"):
        be.check_grad(be.tanh, x, rtol="x")
    with pytest.raises(ArgumentError, match="rtol=0"):
        be.check_grad(be.tanh, x, rtol=0)
    with pytest.raises(ShapeError, match="without elements"):
        be.check_grad(be.tanh, x[:0])
    with pytest.raises(DTypeError, match="f must be a function"):
        be.check_grad(Tanh, x)
    with pytest.raises(DTypeError, match="hold integers"):
        be.check_grad(be.tanh, be.ones((2, 2), dtype=np.int32))
    with pytest.raises(GradientError, match="must return an expression"):
        be.check_grad(lambda x: None, x)
    with pytest.raises(DTypeError, match="computes in float32"):
        be.check_grad(lambda x: constant * 2, x)
    with pytest.raises(ArgumentError, match="neither an activation"):
        be.check_grad(Tanh(), [x, x, x])
