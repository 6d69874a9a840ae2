"""Pooling against loops in float64, and compiled kernels against the definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import sampled, use_threads
from pool_loops import Sizes, backward, close, forward, layer_of, steps

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import pool as kernels
from neonlike.backends.cpu.primitives import pool_few as few
from neonlike.backends.families.pool import PoolFamily, PoolPass

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

Array = np.ndarray[Any, Any]

GRIDS: list[dict[str, Any]] = [
    {"C": 3, "H": 5, "W": 6, "R": 2, "S": 2},
    {"C": 2, "H": 7, "W": 9, "R": 3, "S": 3, "str_h": 2, "str_w": 2},
    {"C": 1, "H": 6, "W": 5, "R": 3, "S": 2, "pad_h": 2, "pad_w": 1, "str_h": 1, "str_w": 1},
    {"C": 2, "H": 7, "W": 7, "R": 7, "S": 7},
    {"C": 1, "W": 11, "S": 4, "pad_w": 3, "str_w": 3},
    {"C": 2, "D": 4, "H": 5, "W": 3, "T": 2, "R": 3, "S": 2, "pad_d": 1, "pad_h": 2, "str_d": 1, "str_h": 3},
    {"C": 7, "H": 2, "W": 3, "J": 3, "R": 1, "S": 2, "pad_c": 1, "str_c": 2, "str_w": 1},
    {"C": 5, "D": 2, "H": 3, "W": 4, "J": 5, "T": 2, "R": 2, "S": 3, "pad_c": 2, "pad_w": 2, "str_c": 1, "str_h": 1},
    {"C": 2, "H": 6, "W": 9, "R": 1, "S": 2, "str_h": 2, "str_w": 4},
    {"C": 1, "H": 3, "W": 2, "R": 4, "S": 4, "pad_h": 3, "pad_w": 3, "str_h": 1, "str_w": 1},
    {"C": 2, "H": 3, "W": 39, "R": 2, "S": 3, "pad_w": 1, "str_h": 1, "str_w": 2},
    {"C": 1, "H": 3, "W": 35, "R": 3, "S": 4, "pad_h": 1, "pad_w": 3, "str_h": 2, "str_w": 1},
    {"C": 1, "W": 70, "S": 3, "pad_w": 2, "str_w": 4},
]
"""Sizes, windows, padding and strides; what is left out is 1, 0 and the window."""

IMAGES = (1, 2, 3, 5, 16, 33, 64)


BLENDS = (("max", (1.0, 0.0)), ("max", (0.5, 2.0)), ("avg", (-2.0, 0.0)), ("avg", (1.0, 1.0)))
"""Operations with alpha and beta, plain and with old values."""


def check(be: Any, op: str, given: dict[str, int], N: int, dtype: Any, alpha: float, beta: float, seed: int) -> None:
    """Forward and backward of one case against the loops."""
    rng = np.random.default_rng(seed)
    sizes, layer = Sizes(N, **given), layer_of(be, op, N, dtype, **given)
    assert layer.dimO == sizes.dimO
    x, error = steps(rng, sizes.dimI, dtype), steps(rng, sizes.dimO, dtype)
    old_out, old_delta = steps(rng, sizes.dimO, dtype), steps(rng, sizes.dimI, dtype)
    image, E = be.array(x.reshape(layer.dimI2), dtype=dtype), be.array(error, dtype=dtype)
    pooled, delta = be.array(old_out.reshape(layer.dimO2), dtype=dtype), be.array(old_delta, dtype=dtype)
    if beta == 0:
        pooled.fill(np.nan)
        delta.fill(np.nan)
    argmax = be.empty(layer.dimO2, dtype=np.uint8) if op == "max" else None
    assert be.fprop_pool(layer, image, pooled, argmax, alpha=alpha, beta=beta) is None
    close(pooled, alpha * forward(op, sizes, x) + beta * old_out.astype(np.float64), dtype)
    assert be.bprop_pool(layer, E, delta, argmax, alpha=alpha, beta=beta) is None
    close(delta, alpha * backward(op, sizes, x, error) + beta * old_delta.astype(np.float64), dtype)
    assert np.array_equal(E.get(), error)  # neon scaled the caller's error by alpha
    assert np.array_equal(image.get().reshape(x.shape), x)


@pytest.mark.compiles(6)
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("case", range(len(GRIDS)))
def test_agrees_with_loops(be: Backend, op: str, case: int) -> None:
    for turn, N in sampled(be, enumerate(IMAGES), 3, case):
        alpha, beta = ((1.0, 0.0), (0.5, 2.0), (-2.0, 0.0), (1.0, 1.0))[(turn + case) % 4]
        check(be, op, GRIDS[case], N, np.float32, alpha, beta, seed=case)


SHARED = [
    {"C": 3, "H": 7, "W": 7, "R": 7, "S": 7},
    {"C": 2, "H": 9, "W": 8, "R": 2, "S": 3, "pad_w": 1},
    {"C": 4, "D": 4, "H": 5, "W": 6, "J": 2, "T": 2, "R": 3, "S": 2, "str_h": 2, "pad_h": 1},
]
"""Windows that most rows and columns share with their neighbours, whose gradients are copied then."""


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("case", range(len(SHARED)))
def test_gradients_of_elements_in_the_same_windows(
    be: Backend, case: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, threads)
    for N, (alpha, beta) in ((16, (1.0, 0.0)), (33, (0.5, 0.0)), (8, (1.0, 2.0))):
        check(be, "avg", SHARED[case], N, np.float32, alpha, beta, seed=case)


FEW = [
    {"C": 19, "H": 9, "W": 8, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "str_h": 2, "str_w": 2},
    {"C": 33, "H": 7, "W": 7, "R": 7, "S": 7},
    {"C": 17, "D": 3, "H": 4, "W": 5, "T": 2, "R": 2, "S": 3, "pad_d": 1, "pad_w": 2, "str_d": 1, "str_h": 1},
    {"C": 16, "H": 6, "W": 9, "R": 1, "S": 2, "str_h": 3, "str_w": 4},
]
"""Channels enough to fill vectors of few images, in blocks that they do not fill."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize("band", [1, 1 << 18], ids=["rows", "blocks"])
@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 9, 15])
def test_channels_of_few_images_are_packed(be: Backend, N: int, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    monkeypatch.setattr(kernels, "PACKED_BYTES", band)
    use_threads(monkeypatch, "2")
    for case, given in sampled(be, enumerate(FEW), 2, N + band % 2):
        kinds = (("max", np.float32), ("avg", np.float32), ("max", np.float64))
        for op, dtype in sampled(be, kinds, 1, N + case):
            assert kernels._packs(layer_of(be, op, N, dtype, **given), beta=0.0)
            check(be, op, given, N, dtype, 0.5, 0.0, seed=case)


SCATTERED = [
    {"C": 9, "H": 9, "W": 11, "R": 2, "S": 2},
    {"C": 11, "H": 9, "W": 11, "R": 3, "S": 3, "str_h": 2, "str_w": 2, "pad_h": 1, "pad_w": 1},
    {"C": 8, "D": 4, "H": 6, "W": 7, "T": 2, "R": 3, "S": 3, "pad_d": 1, "pad_h": 1, "pad_w": 2, "str_d": 1},
    {"C": 8, "D": 5, "H": 4, "W": 3, "T": 2, "R": 3, "S": 3, "str_d": 2, "str_h": 4},
    {"C": 8, "H": 7, "W": 23, "R": 2, "S": 3, "str_h": 1, "str_w": 5},
    {"C": 9, "H": 8, "W": 9, "R": 5, "S": 4, "pad_h": 3, "pad_w": 3, "str_h": 1, "str_w": 1},
    {"C": 8, "H": 5, "W": 6, "R": 5, "S": 6},
]
"""Max pooling whose errors are sent to their maxima: windows apart and overlapping, 3-D, padded, with gaps between."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("N", [1, 2, 5, 16, 31])
def test_errors_of_few_images_are_sent_to_their_maxima(
    be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, "2")
    for case, given in sampled(be, enumerate(SCATTERED), 4, N):
        assert few._scatters(layer_of(be, "max", N, dtype, **given))
        check(be, "max", given, N, dtype, 1.0, 0.0, seed=case)
    if be.engine.name == "c":
        assert None not in few.SCATTER.variants.values()
        assert {dict(key)["apart"] for key in few.SCATTER.variants} == {True, False}


GATHERED = [
    {"C": 9, "H": 14, "W": 15, "R": 5, "S": 5, "str_h": 2, "str_w": 2, "pad_h": 2, "pad_w": 2},
    {"C": 3, "H": 11, "W": 9, "R": 3, "S": 3, "str_h": 2, "str_w": 2, "pad_h": 1, "pad_w": 1},
    {"C": 2, "H": 9, "W": 40, "R": 4, "S": 6, "str_h": 1, "str_w": 2, "pad_h": 3, "pad_w": 1},
    {"C": 1, "H": 17, "W": 8, "R": 7, "S": 7, "str_h": 3, "str_w": 3, "pad_h": 1, "pad_w": 5},
    {"C": 4, "H": 10, "W": 7, "R": 5, "S": 4, "str_h": 4, "str_w": 1},
    {"C": 2, "H": 8, "W": 33, "R": 5, "S": 4, "str_h": 1, "str_w": 5, "pad_w": 3},
    {"C": 1, "H": 3, "W": 3, "R": 5, "S": 5, "str_h": 2, "str_w": 2, "pad_h": 4, "pad_w": 4},
]
"""Max pooling whose elements ask the windows beside them: odd sizes, wide padding, rows and columns in no window."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize(
    ("N", "dtype"), [(1, np.float32), (2, np.float64), (7, np.float32), (16, np.float32), (31, np.float64)]
)
def test_elements_of_few_images_ask_the_windows_beside_them(
    be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of one row and of all, on one thread and on two."""
    monkeypatch.setattr(kernels, "SERIAL", 1)
    assert not few._gathers(layer_of(be, "max", N, dtype, **GATHERED[-1]), np.dtype(dtype)), "too few rows to share"
    monkeypatch.setattr(few, "GATHERED_ROWS", 1)
    for case, given in sampled(be, enumerate(GATHERED), 4, N):
        layer = layer_of(be, "max", N, dtype, **given)
        assert few._gathers(layer, np.dtype(dtype)) == (N in (1, 2, 16) or layer.window >= 16 or case == 4)
        monkeypatch.setattr(few, "GATHERED_BYTES", (1, 1 << 15)[(case + N) % 2])
        for threads in "12":
            use_threads(monkeypatch, threads)
            check(be, "max", given, N, dtype, 1.0, 0.0, seed=case)
    if be.engine.name == "c":
        assert None not in few.GATHER.variants.values()


@pytest.mark.compiles(5)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("case", range(len(SCATTERED) + len(GATHERED)))
def test_numbers_of_no_position_in_the_input_are_passed_over(
    compiled: Backend, case: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written elsewhere, whatever a tensor of positions holds."""
    monkeypatch.setattr(few, "GATHERED_ROWS", 1)
    be, N, rng = compiled, 3 if case < len(SCATTERED) else 2, np.random.default_rng(case)
    layer = layer_of(be, "max", N, **[*SCATTERED, *GATHERED][case])
    numbers = be.array(rng.integers(0, 256, layer.dimO) - (128 if dtype == np.int32 else 0), dtype=dtype)
    numbers[::2] = be.array(rng.integers(0, layer.window, layer.dimO)[::2], dtype=dtype)
    error, room = be.array(steps(rng, layer.dimO)), be.zeros((layer.sizeI + 2000, 1))
    room.fill(7.0)
    delta, expected = room[1000 : 1000 + layer.sizeI].reshape(layer.dimI), be.empty(layer.dimI)
    be.bprop_pool(layer, error, delta, numbers)
    PoolFamily._bprop_pool(be, PoolPass(layer, True), error, expected, numbers, None)
    assert np.allclose(delta.get(), expected.get(), atol=1e-5)
    assert (room.get()[:1000] == 7).all() and (room.get()[-1000:] == 7).all()


ROWED = [
    {"C": 3, "H": 6, "W": 13, "R": 2, "S": 2},
    {"C": 5, "H": 9, "W": 40, "R": 3, "S": 3, "str_h": 2, "str_w": 2, "pad_h": 1, "pad_w": 1},
    {"C": 4, "H": 7, "W": 37, "R": 3, "S": 3, "str_h": 1, "str_w": 1, "pad_h": 1, "pad_w": 2},
    {"C": 2, "D": 4, "H": 5, "W": 20, "T": 2, "R": 2, "S": 4, "pad_d": 1, "pad_w": 3, "str_d": 1, "str_w": 3},
    {"C": 3, "H": 6, "W": 61, "R": 2, "S": 5, "str_h": 1, "str_w": 5, "pad_w": 4},
    {"C": 2, "H": 8, "W": 64, "R": 8, "S": 8, "str_h": 1, "str_w": 8, "pad_h": 7, "pad_w": 7},
    {"C": 2, "H": 3, "W": 70, "R": 1, "S": 1, "str_h": 2, "str_w": 7},
    {"C": 1, "H": 1, "W": 6, "R": 1, "S": 2, "str_w": 1, "pad_w": 1},
]
"""One image, whose windows fill vectors along a row: every stride, wide padding, ends of the input."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", range(len(ROWED)))
def test_windows_of_one_image_fill_vectors(
    be: Backend, case: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, "2")
    assert few._in_rows(layer_of(be, "max", 1, dtype, **ROWED[case]))
    for op, (alpha, beta) in BLENDS:
        check(be, op, ROWED[case], 1, dtype, alpha, beta, seed=case)


@pytest.mark.parametrize("case", range(len(ROWED)))
def test_infinite_values_and_nan_of_one_image(compiled: Backend, case: int) -> None:
    """The padding is no value, not even where all values are -inf; nothing outside of the results is written."""
    agrees_on_special_values(compiled, layer_of(compiled, "max", 1, **ROWED[case]), case)


def agrees_on_special_values(be: Any, layer: Any, seed: int) -> None:
    """Max pooling of infinite values and nan against the definition, with memory around the results that stays."""
    rng = np.random.default_rng(seed)
    for values in ([-np.inf], [-np.inf, 1.0], [-np.inf, np.inf, 0.0], [1, 2, np.nan], [*range(300), np.nan], [np.nan]):
        x = be.array(rng.choice(values, layer.dimI))
        room, places = be.zeros((layer.sizeO + 128, 1)), be.zeros((layer.sizeO + 128, 1), dtype=np.uint8)
        room.fill(7.0)
        places.fill(77)
        out, at = (t[64 : 64 + layer.sizeO].reshape(layer.dimO) for t in (room, places))
        wanted, wanted_at = be.empty(layer.dimO), be.empty(layer.dimO, dtype=np.uint8)
        be.fprop_pool(layer, x, out, at)
        PoolFamily._fprop_pool(be, PoolPass(layer, False), x, wanted, wanted_at)
        assert np.array_equal(out.get(), wanted.get(), equal_nan=True)
        assert np.array_equal(at.get(), wanted_at.get())
        for tensor, kept in ((room, 7), (places, 77)):
            assert (tensor.get()[:64] == kept).all() and (tensor.get()[-64:] == kept).all()


APART = [
    {"C": 5, "H": 9, "W": 35, "R": 2, "S": 2},
    {"C": 3, "H": 31, "W": 31, "R": 3, "S": 3},
    {"C": 3, "H": 17, "W": 23, "R": 5, "S": 5},
    {"C": 2, "H": 20, "W": 40, "R": 3, "S": 2, "str_h": 1, "str_w": 4},
    {"C": 2, "H": 9, "W": 33, "R": 1, "S": 1, "str_h": 3, "str_w": 2},
    {"C": 1, "H": 8, "W": 64, "R": 7, "S": 8},
]
"""Windows that share no columns, some with columns and rows between them that lie in none."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize(
    ("N", "dtype"), [(1, np.float32), (2, np.float32), (3, np.float64), (7, np.float32), (12, np.float32)]
)
def test_windows_apart_of_few_images(be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bands of one row and of many, on one thread and on two."""
    monkeypatch.setattr(kernels, "SERIAL", 1)
    for case, given in sampled(be, enumerate(APART), 3, N):
        monkeypatch.setattr(few, "APART_BYTES", (1, 1 << 14)[(case + N) % 2])
        for op, (alpha, beta) in sampled(be, BLENDS, 2, N + case):
            assert few._apart(layer_of(be, op, N, dtype, **given), np.dtype(dtype))
            for threads in "12":
                use_threads(monkeypatch, threads)
                check(be, op, given, N, dtype, alpha, beta, seed=case)
    if be.engine.name == "c":
        assert None not in few.APART.variants.values()


@pytest.mark.compiles(3)
@pytest.mark.parametrize("N", [1, 2, 7])
@pytest.mark.parametrize("case", range(len(APART)))
def test_infinite_values_and_nan_in_windows_apart(compiled: Backend, case: int, N: int) -> None:
    """As the definition has them; nothing outside of the results is written."""
    agrees_on_special_values(compiled, layer_of(compiled, "max", N, **APART[case]), case)


WHOLE = [
    {"C": 9, "H": 7, "W": 7},
    {"C": 5, "H": 13, "W": 13},
    {"C": 3, "D": 2, "H": 3, "W": 5},
    {"C": 2, "H": 1, "W": 1},
    {"C": 2, "D": 3, "H": 31, "W": 23},
    {"C": 1, "H": 1, "W": 16},
    {"C": 293, "H": 1, "W": 5},
]
"""Channels that are one window each, below and above a block of values; the last ones fill vectors of channels."""


@pytest.mark.compiles(2)
@pytest.mark.parametrize(
    ("N", "dtype"),
    [*((N, np.float32) for N in (1, 2, 3, 7, 12, 16, 17)), *((N, np.float64) for N in (1, 3, 8, 9))],
)
def test_whole_channels(be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, "2")
    for case, sizes in enumerate(WHOLE):
        given = {**sizes, "T": sizes.get("D", 1), "R": sizes["H"], "S": sizes["W"]}
        assert layer_of(be, "max", N, dtype, **given).whole
        for op, (alpha, beta) in sampled(be, BLENDS, 2, case):
            check(be, op, given, N, dtype, alpha, beta, seed=case)


@pytest.mark.parametrize("N", [1, 3, 7, 16])
def test_nan_and_equal_values_in_whole_channels(be: Backend, N: int) -> None:
    """Of values in other lanes and other blocks; a nan does nothing to other images and channels."""
    layer = layer_of(be, "max", N, C=2, H=9, W=11, R=9, S=11)
    pooled, argmax = be.empty((2, N)), be.empty((2, N), dtype=np.uint8)
    for places in ((98,), (0, 98), (17, 33), (40, 3), (95, 96), (16, 32, 48)):
        for greatest in (np.nan, np.inf, 3.0, -np.inf):
            x = np.full((2, 99, N), -np.inf if greatest == -np.inf else -1.0, np.float32)
            x[0, list(places), N - 1] = greatest
            be.fprop_pool(layer, be.array(x.reshape(-1, N)), pooled, argmax)
            found, at = pooled.get(), argmax.get()
            first = 0 if greatest == -np.inf else min(places)
            assert np.array_equal(found[0, N - 1], np.float32(greatest), equal_nan=True)
            assert at[0, N - 1] == first, (places, greatest)
            assert (found[1] == x[1, 0]).all() and (at[1] == 0).all() and (at[0, : N - 1] == 0).all()


@pytest.mark.compiles(3)
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_agree_with_loops(be: Backend, op: str, dtype: Any) -> None:
    cases = ((1, 16, (1.0, 0.0)), (5, 3, (0.5, 2.0)), (7, 9, (1.0, 1.0)), (3, 33, (1.0, 0.0)))
    for case, N, (alpha, beta) in sampled(be, cases, 3, len(op)):
        check(be, op, GRIDS[case], N, dtype, alpha, beta, seed=case)


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_kernels_agree_with_the_definition(compiled: Backend, op: str) -> None:
    """On larger arrays than loops can do, where threads share the work and gradients are stored past the caches."""
    rng = np.random.default_rng(1)
    given = {"C": 40, "H": 31, "W": 30, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "str_h": 2, "str_w": 2}
    for N, extra in ((64, {}), (48, {}), (17, {}), (64, {"str_h": 1, "str_w": 1})):
        layer = layer_of(compiled, op, N, **{**given, **extra})
        x, error = steps(rng, layer.dimI), steps(rng, layer.dimO)
        image, E, results = compiled.array(x), compiled.array(error), []
        for hooks in (type(compiled), PoolFamily):
            pooled, delta = compiled.empty(layer.dimO), compiled.empty(layer.dimI)
            argmax = compiled.empty(layer.dimO, dtype=np.uint8) if op == "max" else None
            hooks._fprop_pool(compiled, PoolPass(layer, False), image, pooled, argmax)
            inputs = image if op == "l2" else None
            hooks._bprop_pool(compiled, PoolPass(layer, True), E, delta, argmax, inputs)
            results.append((pooled, delta, argmax))
        for mine, its in zip(results[0], results[1]):
            if mine is not None:
                np.testing.assert_allclose(mine.get(), its.get(), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_gradients_are_those_of_the_forward_pass(be: Backend, op: str) -> None:
    rng = np.random.default_rng(2)
    given = {"C": 3, "H": 5, "W": 4, "J": 2, "R": 3, "S": 2, "pad_h": 1, "str_c": 1, "str_h": 2, "str_w": 1}
    layer = layer_of(be, op, 3, np.float64, **given)
    x = rng.permutation(layer.sizeI).reshape(layer.dimI) / 7.0 + 0.1  # no two equal
    error, direction = rng.normal(size=layer.dimO), rng.normal(size=layer.dimI)
    argmax = be.empty(layer.dimO, dtype=np.uint8)

    def run(values: Array) -> Array:
        pooled = be.empty(layer.dimO, dtype=np.float64)
        be.fprop_pool(layer, be.array(values, dtype=np.float64), pooled, argmax)
        return np.asarray(pooled.get())

    h = 1e-6
    slope = ((run(x + h * direction) - run(x - h * direction)) / (2 * h) * error).sum()
    inputs, delta = be.array(x, dtype=np.float64), be.empty(layer.dimI, dtype=np.float64)
    run(x)
    be.bprop_pool(layer, be.array(error, dtype=np.float64), delta, argmax, inputs=inputs)
    assert np.isclose((delta.get() * direction).sum(), slope, rtol=1e-6)


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_results_do_not_depend_on_the_number_of_threads(
    compiled: Backend, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    rng = np.random.default_rng(6)
    for given in (
        {"C": 5, "H": 13, "W": 9, "R": 3, "S": 3, "pad_h": 1, "str_h": 2, "str_w": 1},
        {"C": 7, "H": 3, "W": 5, "J": 3, "pad_c": 1, "str_c": 1, "R": 2, "S": 2},
        {"C": 37, "W": 2, "S": 2},
    ):
        for N in (1, 18):
            layer = layer_of(compiled, op, N, **given)
            image, E = (compiled.array(rng.normal(size=shape)) for shape in (layer.dimI, layer.dimO))
            results = []
            for threads in ("1", "2", "5"):
                use_threads(monkeypatch, threads)
                pooled, delta = compiled.empty(layer.dimO), compiled.empty(layer.dimI)
                argmax = compiled.empty(layer.dimO, dtype=np.int32)
                compiled.fprop_pool(layer, image, pooled, argmax)
                compiled.bprop_pool(layer, E, delta, argmax)
                results.append((pooled.get(), delta.get()))
            for other in results[1:]:
                assert all(np.array_equal(mine, its) for mine, its in zip(results[0], other))
