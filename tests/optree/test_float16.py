"""float16 in every form of a kernel: stretches are converted at once, with the results of single conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend

pytestmark = pytest.mark.optree

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def same(found: Any, expected: Any) -> None:
    """Equal bit by bit, but for which nan it is."""
    found, expected = np.asarray(found.get()), np.asarray(expected, np.float16)
    both = np.isnan(found) & np.isnan(expected)
    np.testing.assert_array_equal(np.where(both, 0, found.view(np.uint16)), np.where(both, 0, expected.view(np.uint16)))


@pytest.mark.parametrize("width", [1, 7, 16, 255, 256, 300])
def test_every_number_is_read_and_written(be: Backend, width: int) -> None:
    host = np.resize(EVERY, (len(EVERY) // width + 1, width))
    x, out = be.array(host, dtype="float16"), be.empty(host.shape, dtype="float16")
    out[:] = -x
    same(out, -host)
    wide = be.empty(host.shape)
    wide[:] = x + 0.0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(wide.get(), host.astype(np.float32) + 0)


def test_results_are_rounded_to_nearest_and_halves_to_even(be: Backend, rng: np.random.Generator) -> None:
    between = EVERY.astype(np.float32)
    with np.errstate(all="ignore"):
        host = np.concatenate([
            (between[:-1] + between[1:]) / 2,
            between * (1 + 2.0**-12),
            rng.standard_normal(1000, dtype=np.float32) * np.float32(1e-6),
            np.float32([65519, 65520, -65520, 1e30, np.inf, np.nan, 2.0**-25, 2.0**-25 * 1.01, -(2.0**-26)]),
        ]).reshape(1, -1)  # fmt: skip
        out = be.empty(host.shape, dtype="float16")
        out[:] = be.array(host) * 1
        same(out, host.astype(np.float16))


@pytest.mark.parametrize("name", ["equal", "not_equal", "greater", "less_equal", "logical_and"])
def test_comparisons_with_numbers_are_those_of_float32(be: Backend, name: str) -> None:
    """0.1 is no float16: NumPy, which rounds the number to the array's type, finds it in an array of them."""
    host = np.float16([[0.1, 0.3, 1.0, 0.25, -0.1, np.nan]])
    x, out = be.array(host, dtype="float16"), be.empty(host.shape)
    for number in (0.1, 0.3, 0.25, 1e-9):
        out[:] = getattr(be, name)(x, number)
        expected = getattr(np, name)(host.astype(np.float32), np.float32(number))
        np.testing.assert_array_equal(out.get(), expected.astype(np.float32), f"{number}")


@pytest.mark.parametrize("shape", [(3, 5), (40, 300), (300, 40), (70, 1025), (2, 70000), (500, 7)], ids=str)
def test_forms_of_kernels(be: Backend, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    host, other = (rng.standard_normal(shape).astype(np.float16) for _ in range(2))
    a, b = be.array(host, dtype="float16"), be.array(other, dtype="float16")
    turned = be.array(np.ascontiguousarray(other.T), dtype="float16")
    out = be.empty(shape, dtype="float16")
    x, y = host.astype(np.float32), other.astype(np.float32)
    for expression, expected in (
        (a * b + a, x * y + x),
        (a - turned.T, x - y),
        (a[:, ::-1] * 2, x[:, ::-1] * 2),
        (a * b[:1], x * y[:1]),
        (a * b[:, :1], x * y[:, :1]),
        (a - be.max(a, axis=0), x - x.max(0)),
        (a - be.max(a, axis=1), x - x.max(1, keepdims=True)),
    ):
        out[:] = expression
        found = out.get().astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    out[:, 1:] = a[:, :-1] * 2  # rows that begin anywhere
    same(out[:, 1:], x[:, :-1] * 2)


@pytest.mark.parametrize("shape", [(3, 5), (40, 300), (300, 40), (70, 1025), (2, 70000), (500, 7)], ids=str)
def test_reductions(be: Backend, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    host = rng.standard_normal(shape).astype(np.float16)
    x, wide = be.array(host, dtype="float16"), host.astype(np.float64)
    for axis in (0, 1):
        same(be.max(x, axis=axis), host.max(axis, keepdims=True))
        np.testing.assert_array_equal(be.argmin(x, axis=axis).get(), host.argmin(axis, keepdims=True))
        mean = be.mean(x, axis=axis).get().astype(np.float64)
        np.testing.assert_allclose(mean, wide.mean(axis, keepdims=True), atol=1e-3)
        powers = np.exp(wide - wide.max(axis, keepdims=True))
        softmax = be.fprop_softmax(x, axis).get().astype(np.float64)
        np.testing.assert_allclose(softmax, powers / powers.sum(axis, keepdims=True), rtol=2e-3, atol=1e-7)
    total = be.empty((1, 1))
    total[:] = be.sum(be.square(x * 1.0))
    np.testing.assert_allclose(total.get()[0, 0], (wide**2).sum(), rtol=1e-2)
