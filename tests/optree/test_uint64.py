"""Tensors of uint64 on every engine, against Python's whole numbers: none of the 64 bits is lost on any way."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.util.persist import load_obj, save_obj

pytestmark = pytest.mark.optree

TOP, MOST = 2**63, 2**64 - 1
VALUES = [
    0, 1, 2, 255, 2**31, 2**32 + 1, 2**53 + 1, TOP - 1, TOP, TOP + 1, TOP + 1025, MOST - 1, MOST, 77, 2**62 + 3, 6,
]  # fmt: skip
OTHERS = [0, 2, 1, MOST, 2**31, 2**32, 2**53, TOP, TOP - 1, TOP + 1, TOP + 1024, MOST, MOST - 1, 3, 2**62 + 2, 4]
SIGNED = [-1, 0, 2, -(2**63), 2**31, 2**32, 2**53 + 1, TOP - 1, -1, 1, -(2**53) - 1, 5, -2, 77, 2**62 + 3, -6]
SHAPE = (4, 4)
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
NUMBERS = [0, 77, -1, -(2**63), -(10**30), TOP - 1, TOP, TOP + 1, MOST, 2**64, 10**30]


def made(be: Backend, values: list[int], dtype: str = "uint64") -> Any:
    return be.array(np.array(values, dtype).reshape(SHAPE), dtype=dtype)


def listed(result: Any) -> list[Any]:
    """Elements in C order as Python's numbers."""
    host = result.get()
    return host.ravel().tolist() if host.dtype.kind != "V" else host.astype(np.float64).ravel().tolist()


def whole(result: Any) -> list[int]:
    assert result.dtype == np.uint64
    return listed(result)


def each(function: Callable[..., Any], *operands: list[int]) -> list[Any]:
    return [function(*given) for given in zip(*operands, strict=True)]


# Storage --------------------------------------------------------------------------------------------------------------


def test_values_go_round(be: Backend) -> None:
    host = np.array(VALUES, np.uint64).reshape(SHAPE)
    for t in (be.array(host, dtype=np.uint64), be.array(host.tolist(), dtype="uint64"), be.wrap(host.copy())):
        assert (t.dtype, t.nbytes, whole(t)) == (np.uint64, 128, VALUES)
        assert t.tolist() == host.tolist()
        assert [int(t[3, 0]), t[3, 0].item(), operator.index(t[2, 3])] == [VALUES[12], VALUES[12], VALUES[11]]
        assert np.asarray(t).tolist() == host.tolist()
    assert whole(be.zeros((2, 2), dtype="uint64")) == [0] * 4
    assert whole(be.ones((2, 2), dtype="uint64")) == [1] * 4
    assert whole(be.full((1, 3), MOST, dtype="uint64")) == [MOST] * 3
    assert str(MOST) in repr(be.array([[MOST]], dtype=np.uint64))


def test_numbers_fill_exactly(be: Backend) -> None:
    t = be.zeros((2, 3), dtype="uint64")
    stored = {-1: 0, -(10**30): 0, 2**64: MOST, 10**30: MOST, 0.5: 0, 1.5: 2, 1e30: MOST, -1e30: 0, 2.0**63: TOP}
    for number, wanted in ({n: n for n in VALUES} | stored | {float("nan"): 0, float("inf"): MOST}).items():
        assert whole(t.fill(number)) == [wanted] * 6
        t[:, :2] = number
        t[:, 2:] = np.float64(number) if isinstance(number, float) else number
        assert whole(t) == [wanted] * 6
    t[1, 2] = MOST - 1
    assert t[1, 2].item() == MOST - 1


def test_views_indices_and_masks(be: Backend) -> None:
    host = np.array(VALUES, np.uint64).reshape(SHAPE)
    t = be.array(host, dtype=np.uint64)
    for index in ((slice(1, 3),), (slice(None), slice(None, None, -2)), (2, slice(None)), ([3, 0, 3],)):
        assert t[index].get().ravel().tolist() == host[index].ravel().tolist()
    assert whole(t.T + 0) == host.T.ravel().tolist()
    assert whole(t.reshape(2, 8)) == VALUES
    assert whole(t[t > TOP]) == [v for v in VALUES if v > TOP]
    assert whole(be.take(t, [2, 1], 1)) == host[:, [2, 1]].ravel().tolist()
    assert whole(t.take([2, 1], 1)) == host[:, [2, 1]].ravel().tolist()
    assert whole(be.concatenate([t, t[:1]], 0).astensor()) == [*VALUES, *VALUES[:4]]
    assert whole(be.stack([t, t], 0).astensor()) == VALUES * 2
    assert whole(be.flip(t, 1).astensor()) == host[:, ::-1].ravel().tolist()
    t[t >= TOP] = MOST
    assert whole(t) == [MOST if v >= TOP else v for v in VALUES]
    t[:] = t[:, :1]
    assert whole(t) == np.repeat(np.where(host[:, :1] >= TOP, np.uint64(MOST), host[:, :1]), 4, 1).ravel().tolist()


def test_copies_files_and_other_libraries(be: Backend, tmp_path: Path) -> None:
    t = made(be, VALUES)
    save_obj({"t": t}, tmp_path / "t.pkl")
    loaded = load_obj(tmp_path / "t.pkl")["t"]
    for again in (pickle.loads(pickle.dumps(t)), t.copy(), loaded, be.array(t, dtype="uint64")):
        assert whole(again) == VALUES
    assert whole(t.share((2, 8), dtype="uint64")) == VALUES


@pytest.mark.cpu_only("NumPy reads no memory of a GPU")
def test_dlpack(be: Backend) -> None:
    t = made(be, VALUES)
    host = np.from_dlpack(t)
    assert (host.dtype, host.ravel().tolist()) == (np.uint64, VALUES)
    assert whole(be.from_dlpack(host)) == VALUES


# Stores ---------------------------------------------------------------------------------------------------------------

TARGETS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def test_stores_in_integers_saturate(be: Backend) -> None:
    t = made(be, VALUES)
    for dtype in TARGETS:
        info = np.iinfo(dtype)
        wanted = [min(v, int(info.max)) for v in VALUES]
        out = be.empty(SHAPE, dtype=dtype)
        for value in (t, t.get(), be.maximum(t, 0), t.T.T):
            out[:] = value
            assert listed(out) == wanted
        assert listed(t.astype(dtype)) == wanted
        out[:] = be.where(t == 77, 5, t)
        assert listed(out) == [5 if v == 77 else w for v, w in zip(VALUES, wanted)]
    assert listed(t.astype("bool")) == [bool(v) for v in VALUES]


def test_integers_saturate_in_uint64(be: Backend) -> None:
    out = be.empty(SHAPE, dtype="uint64")
    for dtype in TARGETS[:-1]:
        info = np.iinfo(dtype)
        values = [min(max(v, int(info.min)), int(info.max)) for v in SIGNED]
        t = made(be, values, dtype)
        for value in (t, t.get(), be.maximum(t, t), t + 0, t * 1):
            out[:] = value
            assert whole(out) == [max(v, 0) for v in values]
        out[:] = t - 1
        assert whole(out) == [max(v - 1, 0) if v > -TOP else TOP - 1 for v in values]


def test_floats_round_and_saturate_in_uint64(be: Backend) -> None:
    values = [
        0.5, 1.5, 2.5, -0.5, -7, 2.0**63, 2.0**63 + 2048, 2.0**64 - 2048, 2.0**64, 1e30, -1e30, np.nan, np.inf, -np.inf,
        2.0**53 - 1, 4503599627370495.5,
    ]  # fmt: skip
    out = be.empty(SHAPE, dtype="uint64")
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        t = be.array(np.array(values).reshape(SHAPE), dtype=dtype)
        exact = listed(t.astype("float64"))
        wanted = [0 if not v > 0 else MOST if v >= 2.0**64 else round(v) for v in exact]
        for value in (t, t * 1.0, be.abs(t) * be.sgn(t), t.get()):
            out[:] = value
            assert whole(out) == wanted, dtype
        assert whole(t.astype("uint64")) == wanted


def nearest(value: int, digits: int, largest: float) -> float:
    """The float of ``digits`` bits next to ``value``, by whole numbers alone."""
    down = max(value.bit_length() - digits, 0)
    kept, rest, half = value >> down, value & ((1 << down) - 1), (1 << down) // 2
    kept += bool(down) and (rest > half or (rest == half and kept % 2 == 1))
    found = float(kept << down)
    return found if found <= largest else float("inf")


ROUNDED = [
    TOP, TOP + 2**55, TOP + 2**55 + 1, TOP + 2**55 - 1, TOP + 2**39, TOP + 2**39 + 1, TOP + 2**39 - 1, TOP + 1024,
    TOP + 1025, TOP + 1023, MOST, MOST - 2**39, 2**62 + 2**54 + 1, 2049, 65519, 65520,
]  # fmt: skip


def test_stores_in_floats_round_once(be: Backend) -> None:
    t = made(be, ROUNDED)
    limits = {"float16": (11, 65504.0), "bfloat16": (8, 2e40), "float32": (24, 2e40), "float64": (53, 2e40)}
    for dtype, limit in limits.items():
        wanted = [nearest(v, *limit) for v in ROUNDED]
        out = be.empty(SHAPE, dtype=dtype)
        for value in (t, t + 0, t.get(), t.T.T):
            out[:] = value
            assert listed(out) == wanted, dtype
        assert listed(t.astype(dtype)) == wanted


# Comparisons and choice -----------------------------------------------------------------------------------------------


def test_comparisons_are_exact(be: Backend) -> None:
    t, u = made(be, VALUES), made(be, OTHERS)
    for compare in COMPARISONS:
        assert listed(compare(t, u)) == each(compare, VALUES, OTHERS)
        assert listed(compare(t, be.maximum(u, u))) == each(compare, VALUES, OTHERS)
        out = be.empty(SHAPE, dtype=bool)
        out[:] = compare(u, t)
        assert listed(out) == each(compare, OTHERS, VALUES)


def test_comparisons_with_other_integers_are_exact(be: Backend) -> None:
    t = made(be, VALUES)
    for dtype in TARGETS[:-1]:
        info = np.iinfo(dtype)
        values = [min(max(v, int(info.min)), int(info.max)) for v in SIGNED]
        s = made(be, values, dtype)
        for compare in COMPARISONS:
            assert listed(compare(t, s)) == each(compare, VALUES, values), dtype
            assert listed(compare(s, t)) == each(compare, values, VALUES), dtype
            if dtype == "int64":
                assert listed(compare(s + 0, t + 0)) == each(compare, values, VALUES)
    assert listed(t == (t > 1).astype("bool")) == [float(v == (v > 1)) for v in VALUES]


def test_comparisons_with_numbers_are_exact(be: Backend) -> None:
    t, s = made(be, VALUES), made(be, SIGNED, "int64")
    for number in NUMBERS:
        for compare in COMPARISONS:
            assert listed(compare(t, number)) == [compare(v, number) for v in VALUES], number
            assert listed(compare(number, t)) == [compare(number, v) for v in VALUES], number
            assert listed(compare(s, number)) == [compare(v, number) for v in SIGNED], number
    for number in (1.5, float(TOP), float("nan"), -0.5, float("inf")):
        for compare in COMPARISONS:
            assert listed(compare(t, number)) == compare(np.array(VALUES, np.uint64), number).tolist()


def test_comparisons_with_floats_are_of_float64(be: Backend) -> None:
    t = made(be, VALUES)
    floats = np.array([float(v) for v in OTHERS]).reshape(SHAPE)
    for dtype in ("float32", "float64", "float16"):
        with np.errstate(over="ignore"):
            host = floats.astype(dtype)
        f = be.array(host, dtype=dtype)
        for compare in COMPARISONS:
            wanted = compare(np.array(VALUES, np.uint64).reshape(SHAPE).astype(np.float64), host.astype(np.float64))
            assert listed(compare(t, f)) == wanted.ravel().tolist()


def test_logic(be: Backend) -> None:
    t, u = made(be, VALUES), made(be, OTHERS)
    for name, truth in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        wanted = [truth(bool(a), bool(b)) for a, b in zip(VALUES, OTHERS)]
        assert listed(getattr(be, f"logical_{name}")(t, u)) == wanted
        assert listed(getattr(be, f"logical_{name}")(t, u > 0)) == wanted
    assert listed(be.logical_not(t)) == [not v for v in VALUES]
    assert listed(be.isfinite(t)) == [1] * 16
    assert listed(be.isnan(t)) == [0] * 16
    assert be.any(t).item() == 1
    assert be.all(t).item() == 0


def test_choices_are_exact(be: Backend) -> None:
    t, u = made(be, VALUES), made(be, OTHERS)
    assert whole(be.maximum(t, u).astensor()) == each(max, VALUES, OTHERS)
    assert whole(be.minimum(t, u).astensor()) == each(min, VALUES, OTHERS)
    assert whole(be.maximum(t, TOP).astensor()) == [max(v, TOP) for v in VALUES]
    assert whole(be.clip(t, 2, MOST - 1).astensor()) == [min(max(v, 2), MOST - 1) for v in VALUES]
    assert whole(be.where(t > u, t, u).astensor()) == each(max, VALUES, OTHERS)
    assert whole(be.where(t, t, MOST).astensor()) == [v or MOST for v in VALUES]
    mask = made(be, [v % 2 for v in range(16)], "int32")
    assert whole(be.where(mask, t, u).astensor()) == [v if k % 2 else o for k, (v, o) in enumerate(zip(VALUES, OTHERS))]


def test_extremes_and_orders_are_exact(be: Backend) -> None:
    for host in (np.array(VALUES, np.uint64).reshape(SHAPE), np.tile(np.array(VALUES[::-1], np.uint64), (40, 1)).T):
        host = np.ascontiguousarray(host)
        t = be.array(host, dtype=np.uint64)
        for axis in (0, 1):
            for name in ("max", "min", "argmax", "argmin"):
                found = getattr(be, name)(t, axis=axis).astensor()
                assert found.get().ravel().tolist() == getattr(host, name)(axis).tolist(), name
            assert whole(be.sort(t, axis).astensor()) == np.sort(host, axis).ravel().tolist()
            assert listed(be.argsort(t, axis).astensor()) == np.argsort(host, axis, kind="stable").ravel().tolist()
            values, places = be.topk(t, 3, axis)
            wanted = np.flip(np.sort(host, axis), axis).take([0, 1, 2], axis)
            assert whole(values.astensor()) == wanted.ravel().tolist()
            assert whole(be.take_along_axis(t, places, axis).astensor()) == wanted.ravel().tolist()
        assert be.max(t).item() == MOST
        assert be.min(be.maximum(t, 1)).item() == 1


# Arithmetic -----------------------------------------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "floor_divide": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "fmod": lambda a, b: a % b if b else 0, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "left_shift": lambda a, b: a << b if b < 64 else 0,
    "right_shift": lambda a, b: a >> b if b < 64 else 0,
}  # fmt: skip


def test_arithmetic_is_modulo_two_to_the_64(be: Backend) -> None:
    t, u = made(be, VALUES), made(be, OTHERS)
    for name, function in ARITHMETIC.items():
        build = getattr(be, name)
        assert whole(build(t, u).astensor()) == [v % 2**64 for v in each(function, VALUES, OTHERS)], name
        for number in (0, 1, 3, 63, TOP, MOST):
            assert whole(build(t, number).astensor()) == [function(v, number) % 2**64 for v in VALUES], (name, number)
            assert whole(build(number, t).astensor()) == [function(number, v) % 2**64 for v in VALUES], (name, number)
    for name, of_one in {
        "negative": operator.neg, "abs": abs, "sgn": bool, "square": lambda v: v * v, "invert": operator.invert,
        "rint": int, "floor": int, "ceil": int, "trunc": int, "relu": int,
    }.items():  # fmt: skip
        assert whole(getattr(be, name)(t).astensor()) == [of_one(v) % 2**64 for v in VALUES], name
    t += u
    t *= 3
    assert whole(t) == [(a + b) * 3 % 2**64 for a, b in zip(VALUES, OTHERS)]


def test_sums_and_products_are_modulo_two_to_the_64(be: Backend) -> None:
    odd = [v | 1 for v in VALUES]
    host = np.array(odd, np.uint64).reshape(SHAPE)
    t = be.array(host, dtype=np.uint64)
    for axis in (0, 1):
        assert whole(be.sum(t, axis=axis).astensor()) == host.sum(axis).tolist()
        assert whole(be.prod(t, axis=axis).astensor()) == host.prod(axis).tolist()
        assert whole(be.cumsum(t, axis).astensor()) == host.cumsum(axis).ravel().tolist()
        assert whole(be.cumprod(t, axis).astensor()) == host.cumprod(axis).ravel().tolist()
        back = np.flip(np.flip(host, axis).cumsum(axis), axis)
        assert whole(be.cumsum(t, axis, reverse=True).astensor()) == back.ravel().tolist()
    assert be.sum(t).item() == sum(odd) % 2**64
    assert whole(be.dot(t, t.T).astensor()) == (host @ host.T).ravel().tolist()


def test_floats_of_uint64_are_rounded_once(be: Backend) -> None:
    t = made(be, ROUNDED)
    singles = np.array([nearest(v, 24, 2e40) for v in ROUNDED], np.float32)
    assert (be.sqrt(t).dtype, be.divide(t, t).dtype, (t + 1.5).dtype) == (np.float32,) * 3
    assert listed(t / 1) == singles.tolist()
    assert listed(t * 1.0) == singles.tolist()
    assert listed(t / TOP) == (singles / np.float32(2.0**63)).tolist()
    assert be.mean(t).item() == np.float32(np.mean([float(v) for v in ROUNDED]))
    wide = be.zeros(SHAPE, dtype="float64")
    assert listed(t + wide) == [float(v) for v in ROUNDED]
    assert listed(t + wide + 2**64) == [float(v) + 2.0**64 for v in ROUNDED]


def test_integers_without_a_common_dtype_are_refused(be: Backend) -> None:
    t, s = made(be, VALUES), made(be, SIGNED, "int64")
    for build in (
        lambda: t + s, lambda: s - t, lambda: be.maximum(t, s + 1), lambda: be.where(t, t, s), lambda: t // s,
        lambda: be.concatenate([t, s]), lambda: t & s, lambda: be.dot(t, s), lambda: t + t.astype("bool"),
        lambda: t << s.astype("uint8"),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=r"uint64 and (int64|bool|uint8) have no common .*astype"):
            build()
    for build, name in (
        (lambda: t + -1, "uint64"), (lambda: -1 - t, "uint64"), (lambda: t * 2**64, "uint64"),
        (lambda: s * 2**63, "int64"), (lambda: be.minimum(t, -5), "uint64"), (lambda: s & 2**63, "int64"),
        (lambda: t ^ -1, "uint64"),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=rf"does not fit in {name}.*float|takes integers"):
            build()
    for build in (lambda: be.take(s, t, 0), lambda: be.take_along_axis(s, t, 0), lambda: be.onehot(t[:1], 0)):
        with pytest.raises(DTypeError, match=r"indices must be integers.* uint64"):
            build()
    assert whole(t) == VALUES


def test_large_whole_numbers_are_floats_beside_floats(be: Backend) -> None:
    x = be.array([[1.0, 0.5]], dtype="float64")
    for number in (2**63, 2**64 - 1, 2**64, -(10**30), 10**30):
        assert listed(x * number) == [float(number), 0.5 * number]
        assert listed(number + x) == [1.0 + number, 0.5 + number]
        assert listed(be.where(x > 0.7, x, number)) == [1.0, float(number)]
    with pytest.raises(DTypeError, match="larger than any float"):
        (x * 10**400).get()


def test_composed_functions_take_uint64(be: Backend) -> None:
    near = [TOP + 2048 * k for k in (0, 1, 3, 7)] * 4
    t, x = made(be, near), np.array([(v - TOP) / 2048 for v in near]).reshape(SHAPE)
    few = made(be, [v % 5 for v in VALUES])
    powers = np.exp(few.get().astype(np.float64) - few.get().max(0))
    np.testing.assert_allclose(be.softmax(few).get(), powers / powers.sum(0), rtol=1e-6)
    np.testing.assert_allclose(be.log_softmax(few).get(), np.log(powers / powers.sum(0)), rtol=1e-5, atol=1e-6)
    sums = np.exp(few.get().astype(np.float64)).sum(0)
    np.testing.assert_allclose(be.logsumexp(few, 0).get(), np.log(sums)[None], rtol=1e-6)
    assert be.softmax(t, 1).get().tolist() == [[0, 0, 0, 1]] * 4
    np.testing.assert_allclose(be.std(few).item(), few.get().astype(np.float64).std(), rtol=1e-6)
    assert be.var(t.astype("float64") - float(TOP)).item() == pytest.approx(x.var() * 2048**2)
    out = be.empty(SHAPE, dtype="uint64")
    assert whole(be.compound_dot(t, t, out)) == (t.get() @ t.get()).ravel().tolist()
    stack = be.array(np.stack([t.get()] * 3), dtype="uint64")
    assert whole(be.batched_dot(t, stack, out)) == (t.get() @ (3 * t.get())).ravel().tolist()
