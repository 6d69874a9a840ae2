"""``int8_weights`` and ``int8_product``: matrices and convolutions of quantized inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.int8.definition import quantized, quantized_rows, step_of
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, forward

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.cpu_only("GPUs do not multiply int8")]

CASES = {
    "pixels": Sizes(64, 17, 26, (1, 5, 7)),
    "odd channels": Sizes(5, 3, 5, (1, 8, 9), (1, 3, 3), (0, 1, 1)),
    "one image, a stride": Sizes(1, 6, 13, (1, 9, 12), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "a stride of rows alone": Sizes(3, 4, 7, (1, 9, 12), (1, 3, 2), (0, 0, 1), (1, 2, 1)),
    "volumes, dilated": Sizes(3, 9, 14, (4, 8, 9), (2, 3, 3), (1, 2, 1), (2, 1, 2), (1, 2, 1)),
    "many images, a stride": Sizes(20, 5, 7, (1, 9, 11), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    "few images, a stride and dilation": Sizes(3, 7, 5, (1, 13, 17), (1, 3, 3), (0, 2, 3), (1, 3, 2), (1, 1, 3)),
    "a long row, a stride": Sizes(1, 4, 5, (1, 3, 531), (1, 1, 2), (0, 0, 1), (1, 1, 3)),
    "long rows of images, a stride": Sizes(7, 2, 3, (1, 2, 90), (1, 2, 4), (0, 0, 0), (1, 1, 2)),
    "planes, strides": Sizes(2, 6, 4, (5, 6, 7), (2, 2, 2), (1, 1, 1), (2, 2, 2), groups=2),
    "a pixel": Sizes(1, 37, 30),
    "a pixel, groups": Sizes(1, 42, 26, groups=2),
    "few pixels": Sizes(1, 18, 15, (1, 2, 3)),
    "groups": Sizes(33, 10, 30, (1, 7, 6), (1, 3, 2), (0, 1, 0), (1, 1, 1), (1, 1, 2), groups=2),
    "a channel for each group": Sizes(4, 6, 6, (1, 6, 6), (1, 3, 3), (0, 1, 1), groups=6),
}


def floats(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def bound(wanted: Any) -> Any:
    """The error of a product by a scale and a sum with a bias in float32, of results of about this size."""
    return 2.0**-21 * (np.abs(wanted) + np.abs(wanted).max())


@pytest.mark.parametrize("size", [(1, 1, 1), (14, 7, 45), (100, 64, 32), (3, 130, 1)])
@pytest.mark.parametrize("relu", [False, True])
def test_matrices(be: Backend, rng: Any, size: tuple[int, int, int], relu: bool) -> None:
    m, k, n = size
    W, x, bias = floats(rng, m, k), floats(rng, k, n), floats(rng, m, 1)
    step = step_of(float(np.abs(x).max()))
    weights = be.int8_weights(be.array(W), step)
    rows, steps = quantized_rows(W)
    wanted = rows.astype(int) @ quantized(x, step).astype(int) * (steps * step) + bias
    wanted = np.where(relu & (wanted < 0), 0.25 * wanted, wanted)
    wide = be.array(np.concatenate([x, x], axis=1))
    for given in (be.array(x), wide[:, n:], be.array(np.ascontiguousarray(x.T)).T):
        for out in (be.empty((m, n)), be.empty((m, n + 3))[:, :n], be.empty((n, m)).T):
            found = be.int8_product(weights, given, out, bias=be.array(bias), relu=relu, slope=0.25)
            assert found is out and (np.abs(out.get() - wanted) <= bound(wanted)).all()


@pytest.mark.parametrize("case", CASES)
def test_convolutions(be: Backend, rng: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = CASES[case]
    layer = s.layer(be, np.float32)
    image, filters, bias = floats(rng, *s.shape_i), floats(rng, *s.shape_f), floats(rng, s.K, 1)
    step = step_of(2.0)  # numbers beyond are clipped
    rows, steps = quantized_rows(filters.reshape(-1, s.K).T)
    sums = forward(s, quantized(image, step), rows.T.reshape(s.shape_f).astype(float))
    wanted = np.maximum(sums.reshape(s.K, -1) * (steps * step) + bias, 0)
    weights = be.int8_weights(be.array(filters.reshape(-1, s.K)), step, layer)
    out = be.empty((s.shape_o[0] * int(np.prod(s.out)), s.N))
    for threads in (1, 3):
        use_threads(monkeypatch, threads)
        be.int8_product(weights, be.array(image.reshape(-1, s.N)), out, bias=be.array(bias), relu=True)
        assert (np.abs(out.get().reshape(s.K, -1) - wanted) <= bound(wanted)).all()


def test_any_number_of_images(be: Backend, rng: Any) -> None:
    s = CASES["odd channels"]
    weights = be.int8_weights(be.array(floats(rng, 27, s.K)), 0.02, s.layer(be, np.float32))
    x = floats(rng, 3 * 8 * 9, 6)
    whole, part = be.empty((5 * 8 * 9, 6)), be.empty((5 * 8 * 9, 2))
    be.int8_product(weights, be.array(x), whole)
    be.int8_product(weights, be.array(x[:, 2:4]), part)
    assert np.array_equal(whole.get()[:, 2:4], part.get())


def test_weights_fill_their_range_row_by_row(be: Backend) -> None:
    W = be.array([[1, -0.5, 0.25], [100, 300, -50], [0, 0, 0]])
    weights = be.int8_weights(W, 0.5)
    assert weights.values.get().tolist() == [[127, -64, 32], [42, 127, -21], [0, 0, 0]]
    assert np.allclose(weights.scales.get(), [[0.5 / 127], [150 / 127], [0.5]])


def test_numbers_are_rounded_to_even_and_clipped(be: Backend) -> None:
    x = [[0.25, 0.75, -0.25, -0.75, 1e9, -np.inf, np.nan, 63.4, 0.2500001]]
    weights, out = be.int8_weights(be.array([[2.0]]), 0.5), be.empty((1, 9))
    be.int8_product(weights, be.array(x), out)
    assert np.allclose(out.get(), [[0, 2, 0, -2, 127, -127, -127, 127, 1]])


def test_what_does_not_fit_is_refused(be: Backend, rng: Any) -> None:
    W, x, out = be.array(floats(rng, 4, 3)), be.array(floats(rng, 3, 2)), be.empty((4, 2))
    with pytest.raises(ArgumentError, match="step must be a positive finite number, got 0"):
        be.int8_weights(W, 0.0)
    with pytest.raises(ArgumentError, match="nan or infinite"):
        be.int8_weights(be.array([[np.nan]]), 1.0)
    with pytest.raises(DTypeError, match="W must be of float32, got float64"):
        be.int8_weights(be.ones((2, 2), dtype=np.float64), 1.0)
    with pytest.raises(ShapeError, match="filters need a layer"):
        be.int8_weights(be.ones((2, 2, 2)), 1.0)
    weights = be.int8_weights(W, 1.0)
    with pytest.raises(DTypeError, match=r"must come from be\.int8_weights"):
        be.int8_product(W, x, out)
    with pytest.raises(ShapeError, match=r"weights \(4, 3\) x \(2, 3\)"):
        be.int8_product(weights, x.T, out)
    with pytest.raises(DTypeError, match="must be of float32"):
        be.int8_product(weights, be.ones((3, 2), dtype=np.float64), out)
    with pytest.raises(ShapeError, match="bias must"):
        be.int8_product(weights, x, out, bias=be.ones((3, 1)))
    both = be.empty((4, 2))
    with pytest.raises(AliasError, match="out shares memory with x"):
        be.int8_product(weights, both[:3], both)

