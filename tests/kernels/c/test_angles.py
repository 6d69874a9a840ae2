"""Functions that are fast for most numbers, of these and others side by side: results do not depend on neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend

pytestmark = pytest.mark.optree

OPS = ("sin", "cos", "tan")
COUNT = 1003
PLACES = [0, 255, 256, 700, COUNT - 1]
each_dtype = pytest.mark.parametrize("dtype", (np.float32, np.float64))


def angles(dtype: Any, far: bool) -> np.ndarray[Any, Any]:
    """Numbers up to 9 in a row, with a few huge ones, an infinity and a nan among them if ``far``."""
    x = np.random.default_rng(0).uniform(-9, 9, (1, COUNT)).astype(dtype)
    if far:
        x[0, PLACES] = [2.0**20, -1e8, 3e30, np.inf, np.nan]
    return x


@each_dtype
@pytest.mark.parametrize("op", OPS)
def test_angles_do_not_depend_on_their_neighbours(be: Backend, op: str, dtype: Any) -> None:
    alone, mixed = (be.array(angles(dtype, far), dtype=dtype) for far in (False, True))
    expected = getattr(be, op)(alone).asnumpyarray()
    found = getattr(be, op)(mixed).asnumpyarray()
    others = np.delete(np.arange(COUNT), PLACES)
    np.testing.assert_array_equal(found[0, others], expected[0, others])
    with np.errstate(invalid="ignore"):
        wide = getattr(np, op)(mixed.asnumpyarray().astype(np.float64))
    np.testing.assert_allclose(found[0, PLACES], wide[0, PLACES], rtol=8 * np.finfo(dtype).eps)


@each_dtype
def test_angles_in_larger_expressions(be: Backend, dtype: Any) -> None:
    """Computed operands, several, nested ones, a transposed one, a sum, and a result in its operand's place."""
    host = angles(dtype, True)
    host[~np.isfinite(host)] = 5e7
    x, wide = be.array(host, dtype=dtype), host.astype(np.float64)
    tolerance = {"rtol": 0, "atol": 64 * np.finfo(dtype).eps}

    def close(expression: Any, expected: Any, **more: Any) -> None:
        np.testing.assert_allclose(expression.asnumpyarray(), expected, **(tolerance | more))

    close(be.sin(2 * x) * be.cos(-x) + be.sin(x), np.sin(2 * wide) * np.cos(-wide) + np.sin(wide))
    close(be.sin(be.cos(x) * 3), np.sin(np.cos(wide) * 3))
    square = be.array(host[:, :961].reshape(31, 31), dtype=dtype)
    turned = host[:, :961].reshape(31, 31).astype(np.float64)
    close(be.cos(square.T) + square * 0, np.cos(turned.T))
    close(be.sum(be.sin(x)), np.sum(np.sin(wide)).reshape(1, 1), rtol=1e-4)
    x[:] = be.sin(x)
    close(x, np.sin(wide))


@each_dtype
def test_powers_do_not_depend_on_their_neighbours(be: Backend, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0.1, 4, (1, COUNT)).astype(dtype), rng.uniform(-3, 3, (1, COUNT)).astype(dtype)
    mixed, by = x.copy(), y.copy()
    mixed[0, PLACES], by[0, PLACES] = [-2, 0, np.inf, np.nan, 2], [3, -1, 0.5, 0, np.inf]
    found = (be.array(mixed, dtype=dtype) ** be.array(by, dtype=dtype)).asnumpyarray()
    expected = (be.array(x, dtype=dtype) ** be.array(y, dtype=dtype)).asnumpyarray()
    expected[0, PLACES] = [-8, np.inf, np.inf, 1, np.inf]
    np.testing.assert_array_equal(found, expected)
    wide = x.astype(np.float64) ** y
    np.testing.assert_allclose(expected[0, 1:9], wide[0, 1:9], rtol=8 * np.finfo(dtype).eps)


@pytest.mark.cpu_only("the text of C kernels")
def test_kernels_check_the_range_before_they_take_the_fast_form(be: Backend) -> None:
    x = be.array(angles(np.float32, False))
    if "c, 1 stage" not in str(be.explain(be.sin(x))):
        pytest.skip("no kernel is compiled here")
    text = str(be.explain(be.sin(x * 2) + be.cos(x)))
    assert text.count("|= nl_angle_in_range_f32(") == 2 and "nl_sin_bounded_f32(" in text and "nl_sin_f32(" in text
    nested = str(be.explain(be.sin(be.cos(x))))
    assert "nl_cos_bounded_f32(" in nested and "nl_sin_bounded_f32(" not in nested
    costly = str(be.explain(be.sin(be.exp(be.tanh(x)))))
    assert "in_range_f32(" not in costly
    assert "|= nl_pow_in_range_f32(x0, (float)c" in str(be.explain(x**2.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_power_of_a_half_is_no_root_at_the_ends(be: Backend, dtype: Any) -> None:
    """IEEE 754: of -infinity infinity, of -0 0, whether the exponent is one number, in a tensor, or one an element."""
    host = np.array([[-np.inf, -0.0, 0.0, 4.0, np.inf, np.nan, -4.0]], dtype)
    x, wanted = be.array(host, dtype=dtype), [np.inf, 0.0, 0.0, 2.0, np.inf, np.nan, np.nan]
    for exponent in (0.5, be.array([[0.5]], dtype=dtype), be.array(np.full(host.shape, 0.5), dtype=dtype)):
        found = be.power(x, exponent).asnumpyarray()[0]
        np.testing.assert_array_equal(found, wanted)
        assert not np.signbit(found[:5]).any()
    x[:] = x**0.5
    np.testing.assert_array_equal(x.get()[0], wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_check_of_a_range_may_depend_on_positions(be: Backend, axis: int, caplog: pytest.LogCaptureFixture) -> None:
    """The exponent of each element says where it lies: the check needs the element's number."""
    host = np.random.default_rng(3).uniform(0.25, 4, (7, 40)).astype(np.float32)
    chosen, places = np.arange(47 - host.shape[axis]) % 7, np.arange(host.shape[axis])
    x, out = be.array(host), be.empty(host.shape)
    indices = be.array(np.expand_dims(chosen, axis), dtype=np.int32)
    out[:] = be.power(x, be.onehot(indices, axis=axis))
    hot = np.expand_dims(places, 1 - axis) == np.expand_dims(chosen, axis)
    np.testing.assert_allclose(out.get(), np.where(hot, host, 1), rtol=1e-6)
    assert "could not be compiled" not in caplog.text
