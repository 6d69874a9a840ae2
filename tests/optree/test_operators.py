"""``// % & | ^ ~ << >>`` and ``divmod``: Python's signs, integers at the ends of their range, truth values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.optree.ops import OPS

pytestmark = pytest.mark.optree

BITS = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "left": operator.lshift, "right": operator.rshift,
}  # fmt: skip
LEAST, MOST = -(2**63), 2**63 - 1


def values(expression: Any) -> Any:
    return expression.asnumpyarray()


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_division_of_floats_is_numpys(be: Backend, dtype: Any) -> None:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e30, 3e-40, 7.0]
    x, y = (grid.astype(dtype) for grid in np.meshgrid(special, special))
    a, b = be.array(x, dtype=dtype), be.array(y, dtype=dtype)
    with np.errstate(all="ignore"):
        for found, wanted in ((a // b, x // y), (a % b, x % y), (be.fmod(a, b), np.fmod(x, y))):
            assert found.dtype == dtype
            np.testing.assert_array_equal(values(found), wanted)
            zero = wanted == 0
            np.testing.assert_array_equal(np.signbit(values(found))[zero], np.signbit(wanted)[zero])


def test_remainders_of_huge_quotients_are_exact(be: Backend) -> None:
    x = np.array([[1e300, -1e300, 2.0**1023, 5e-324, 1e17]])
    y = np.array([[3.0, 7e-300, 5e-324 * 3, 1e300, 0.1]])
    a, b = be.array(x, dtype=np.float64), be.array(y, dtype=np.float64)
    np.testing.assert_array_equal(values(a % b), x % y)
    np.testing.assert_array_equal(values(be.fmod(a, b)), np.fmod(x, y))


def test_division_of_integers_is_pythons(be: Backend) -> None:
    x, y = np.meshgrid(np.arange(-8, 9), [-3, -1, 1, 2, 7])
    a, b = be.array(x, dtype=np.int32), be.array(y, dtype=np.int8)
    assert (a // b).dtype == (a % b).dtype == np.int64
    np.testing.assert_array_equal(values(a // b), x // y)
    np.testing.assert_array_equal(values(a % b), x % y)
    np.testing.assert_array_equal(values(be.fmod(a, b)), np.fmod(x, y))
    np.testing.assert_array_equal(values(a // 2 * 2 + a % 2), x)
    np.testing.assert_array_equal(values(7 // b + 7 % b), 7 // y + 7 % y)
    assert (a // 2.0).dtype == np.float32
    quotient, rest = divmod(a, b)
    np.testing.assert_array_equal(values(quotient * b + rest), x)


def test_integers_divided_by_zero_or_out_of_range_give_what_numpy_gives(be: Backend) -> None:
    x = be.array([[5, -5, 0, LEAST, MOST]], dtype=np.int64)
    zero, minus = be.array([[0]], dtype=np.int64), be.array([[-1]], dtype=np.int64)
    for divisor in (zero, 0):
        for result in (x // divisor, x % divisor, be.fmod(x, divisor)):
            assert values(result).tolist() == [[0] * 5]
    for divisor in (minus, -1):
        assert values(x // divisor).tolist() == [[-5, 5, 0, LEAST, -MOST]]
        assert values(x % divisor).tolist() == [[0] * 5]
        assert values(be.fmod(x, divisor)).tolist() == [[0] * 5]


def test_large_integers_are_compared_exactly_with_numbers(be: Backend) -> None:
    """2**53 + 1 is no float64."""
    x = np.array([[LEAST, LEAST + 1, 2**53, 2**53 + 1, MOST]])
    a, found = be.array(x, dtype=np.int64), be.empty(x.shape)
    for number in (2**53, 2**53 + 1, LEAST, MOST, 3):
        found[:] = (a == number) + 2 * (a < number) + 4 * (number > a) + 8 * (be.where(a >= number, 7, 5) == 7)
        wanted = [[(v == number) + 6 * (v < number) + 8 * (v >= number) for v in x[0].tolist()]]
        assert found.get().tolist() == wanted


@pytest.mark.parametrize("name", BITS)
def test_bits_of_integers(be: Backend, name: str) -> None:
    x, y = np.meshgrid(np.array([0, 1, -1, 6, -7, 100]), np.array([0, 1, 3, 6]))
    a, b = be.array(x, dtype=np.int16), be.array(y, dtype=np.uint8)
    for expression, wanted in (
        (BITS[name](a, b), BITS[name](x, y)),
        (BITS[name](a, 2), BITS[name](x, 2)),
        (BITS[name](5, b), BITS[name](5, y)),
    ):
        assert expression.dtype == np.int64
        np.testing.assert_array_equal(values(expression), wanted)


def test_the_other_bits(be: Backend) -> None:
    x = be.array([[0, 1, -1, 200]], dtype=np.int32)
    assert values(~x).tolist() == values(be.bitwise_not(x)).tolist() == [[-1, -2, 0, -201]]
    narrow = be.zeros((1, 4), dtype=np.uint8)
    narrow[:] = ~x  # an int64 that is stored saturates, as all integers do
    assert narrow.get().tolist() == [[0, 0, 0, 0]]


def test_shifts_beyond_the_type_leave_the_sign(be: Backend) -> None:
    x = be.array([[1, -1, MOST, LEAST]], dtype=np.int64)
    for places in (64, 1000, -1, be.array([[64]], dtype=np.int64)):
        assert values(x << places).tolist() == [[0, 0, 0, 0]]
        assert values(x >> places).tolist() == [[0, -1, 0, -1]]
    assert values(x << 63).tolist() == [[LEAST, LEAST, LEAST, 0]]
    assert values(x >> 63).tolist() == [[0, -1, 0, -1]]


def test_truth_values_are_combined_by_logic(be: Backend) -> None:
    host = np.array([[-2.0, -0.5, 0.0, 0.5, 2.0, np.nan]])
    x, mask = be.array(host), be.array([[1, 0, 1, 0, 1, 1]], dtype=bool)
    low, high, held = host > -1, host < 1, mask.get()
    for expression, wanted in (
        ((x > -1) & (x < 1), low & high), ((x > -1) | (x > 1), low | (host > 1)), ((x > -1) ^ (x < 1), low ^ high),
        (~(x > -1), ~low), ((x > -1) & mask, low & held), (mask | mask, held), (~mask, ~held),
        (True & (x > -1), low), ((x > -1) ^ True, ~low), ((x > -1) & ~be.isnan(x) & (x != 0), low & (host != 0)),
        (be.bitwise_and(x > -1, x < 1), low & high), (be.logical_xor(x, x - 0.5), (host != 0) ^ (host != 0.5)),
    ):  # fmt: skip
        assert expression.dtype == np.float32  # 0 or 1, so that it can be multiplied
        np.testing.assert_array_equal(values(expression), wanted)
    np.testing.assert_array_equal(values((x > -1).T & (x < 1).T), (low & high).T)
    np.testing.assert_array_equal(values(((x > -1) & (x < 1)) * x)[0, 1:4], host[0, 1:4])
    np.testing.assert_array_equal(values(be.concatenate([x > -1, mask], axis=0)[:1] & (x < 1)), low & high)
    assert values(be.sum((x > -1) & (x < 1))).item() == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda x, i: x & x,
        lambda x, i: x & i,
        lambda x, i: (x > 0) & i,
        lambda x, i: (x > 0) & x,
        lambda x, i: (x > 0) & 2,
        lambda x, i: i & 1.0,
        lambda x, i: i | (1 << 64),
        lambda x, i: 0.5 ^ i,
        lambda x, i: ~x,
        lambda x, i: ~((x > 0) * (x < 1)),
        lambda x, i: x << 1,
        lambda x, i: (x > 0) >> 1,
        lambda x, i: (x > 0) & x.backend.concatenate([x > 0, x]),
        lambda x, i: i << i.backend.array([[1.0]]),
    ],
)
def test_other_floats_are_refused(be: Backend, make: Any) -> None:
    x, i = be.array([[0.5, 1.0]]), be.array([[1, 2]], dtype=np.int32)
    with pytest.raises(DTypeError, match=r"(bitwise_\w+|invert|left_shift|right_shift): takes integers"):
        make(x, i)


def test_bits_of_numbers_only(be: Backend) -> None:
    t = be.array([[1, 2]], dtype=np.int32)
    assert (t + be.bitwise_or(4, 3)).dtype == np.int64
    assert values(t + be.bitwise_or(4, 3)).tolist() == [[8, 9]]
    with pytest.raises(DTypeError, match=r"bitwise_or.*0\.5"):
        be.bitwise_or(4, 0.5)


def test_on_either_side_of_an_array_and_in_place(be: Backend) -> None:
    host = np.array([[1, 2, 5]])
    t = be.array(host, dtype=np.int32)
    for op in (operator.floordiv, operator.mod, *BITS.values()):
        assert values(op(host, t)).tolist() == values(op(t, host)).tolist() == op(host, host).tolist()
    same, start = t, t.get()
    for op in (operator.ilshift, operator.irshift, operator.ixor, operator.ior, operator.iand, operator.ifloordiv):
        t = op(t, 3)
        start = op(start, 3)
        assert t is same
        assert t.get().tolist() == start.tolist()


def test_gradients_stop_at_bits_and_pass_remainders(be: Backend) -> None:
    from neonlike.backends.autodiff import Autodiff

    x, y = be.array([[5.5, -5.5]]), be.array([[2.0, 2.0]])
    found = Autodiff(be.sum(((x > 0) & (x < 9)) * x + x % y), be).get_grad_asnumpyarray([x, y])
    assert [g.tolist() for g in found] == [[[2, 1]], [[-2, 3]]]


@pytest.mark.parametrize(
    "alias, name",
    [
        ("abs", "abs"), ("pow", "pow"), ("sign", "sgn"), ("round", "rint"), ("sigmoid", "sig"), ("isfinite", "finite"),
        ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"), ("atan2", "arctan2"), ("asinh", "arcsinh"),
        ("acosh", "arccosh"), ("atanh", "arctanh"), ("remainder", "mod"), ("floor_divide", "floordiv"),
        ("bitwise_not", "invert"),
    ],
)  # fmt: skip
def test_names_of_other_libraries(be: Backend, alias: str, name: str) -> None:
    x = be.ones((2, 2), dtype=np.int32)
    assert getattr(be, alias)(*(x,) * OPS[name].arity).spec is OPS[name]


def test_angles_keep_their_quadrant(be: Backend) -> None:
    host = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5])
    y, x = np.meshgrid(host, host)
    found = values(be.arctan2(be.array(y), be.array(x)))
    np.testing.assert_allclose(found, np.arctan2(y, x), rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found)[found == 0], np.signbit(np.arctan2(y, x))[found == 0])


def test_softmax_by_its_name(be: Backend) -> None:
    host = np.array([[1.0, 1000.0], [3.0, -1000.0]])
    x, out = be.array(host), be.empty((2, 2))
    wanted = np.exp(host - host.max(0)) / np.exp(host - host.max(0)).sum(0)
    assert be.softmax(x, out=out) is out
    np.testing.assert_allclose(out.get(), wanted, rtol=1e-6)
    np.testing.assert_allclose(values(be.log_softmax(x)), [[-2.126928, 0], [-0.126928, -2000]], rtol=1e-6)
    np.testing.assert_allclose(values(be.softmax(x, axis=1)).sum(1), 1, rtol=1e-6)
