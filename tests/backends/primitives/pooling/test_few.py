"""Compiled pooling of few images, whose vectors are filled by channels, rows or windows, against loops in float64."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import pool as kernels
from neonlike.backends.cpu.primitives import pool_few as few
from neonlike.backends.primitives.pooling.family import PoolFamily, PoolPass
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import routine
from tests.backends.primitives.pooling.test_pool import check
from tests.support.engines import sampled, use_threads
from tests.support.float64.pool_loops import layer_of, steps

pytestmark = [pytest.mark.engines("c"), pytest.mark.checked]

WIDTHS = (16, 32, 64)
"""Bytes of registers: kernels for others than the machine's are slower, and as right."""


def use_registers(monkeypatch: pytest.MonkeyPatch, width: int, dtype: Any = np.float32) -> int:
    """Have kernels made for registers of so many bytes; returns how many values of ``dtype`` these hold."""
    monkeypatch.setattr(few, "vector_bytes", lambda compiler: width)
    return width // np.dtype(dtype).itemsize


@pytest.mark.parametrize("N", [1, 3, 16, 40])
def test_kernels_for_wider_registers_are_valid(compiled: Backend, N: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compiler for a processor with AVX-512 reads them."""
    command = (*compiled.compiler.command, "-march=x86-64-v4", "-std=gnu11", "-fsyntax-only", "-Werror", "-x", "c", "-")
    if subprocess.run(command, input="", text=True, capture_output=True).returncode:
        pytest.skip("the compiler knows no processor with AVX-512")
    use_registers(monkeypatch, 64)
    sources: list[KernelSource] = []
    monkeypatch.setattr(routine, "load_function", lambda source, *rest: sources.append(source))
    for kind in (kernels.FORWARD, kernels.BACKWARD, few.ROWS, few.WHOLE_FORWARD, few.WHOLE_BACKWARD, few.GATHER):
        monkeypatch.setattr(kind, "variants", {})
    monkeypatch.setattr(few.SCATTER, "variants", {})
    for dtype, op, given in itertools.product((np.float32, np.float64), ("max", "avg", "l2"), [*FEW[:2], *APART[:1]]):
        layer = layer_of(compiled, op, N, dtype, **given)
        argmax = np.empty(0, np.uint8) if op == "max" else None
        for backward in (False, True):
            kernels._kernel(compiled.compiler, PoolPass(layer, backward), np.dtype(dtype), argmax)
    for source in sources:
        assert isinstance(source.headers, Mapping)
        text = str(source.source)
        for name, header in source.headers.items():
            text = text.replace(f'#include "{name}"', header)
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


BLENDS = (("max", (1.0, 0.0)), ("max", (0.5, 2.0)), ("avg", (-2.0, 0.0)), ("avg", (1.0, 1.0)), ("l2", (1.0, 0.0)))
"""Operations with alpha and beta, plain and with old values."""
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


@pytest.mark.compiles(2, "[5-float32", "[16-float64")
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
"""Pooling whose elements ask the windows beside them: odd sizes, wide padding, rows and columns in no window."""


@pytest.mark.compiles(3, "[1-float32", "[2-float64", "[7-float32")
@pytest.mark.parametrize(
    ("N", "dtype"), [(1, np.float32), (2, np.float64), (7, np.float32), (16, np.float32), (31, np.float64)]
)
def test_elements_of_few_images_ask_the_windows_beside_them(
    be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of one row and of all, on one thread and on two."""
    monkeypatch.setattr(kernels, "SERIAL", 1)
    lanes = use_registers(monkeypatch, WIDTHS[N % 3], dtype)
    assert not few._gathers(layer_of(be, "max", N, dtype, **GATHERED[-1]), lanes), "too few rows to share"
    monkeypatch.setattr(few, "SHARED_ROWS", 1)
    for case, given in sampled(be, enumerate(GATHERED), 4, N):
        layer = layer_of(be, "max", N, dtype, **given)
        assert few._gathers(layer, lanes) == (lanes % N == 0 or layer.window >= 16 or case == 4)
        monkeypatch.setattr(few, "GATHERED_BYTES", (1, 1 << 15)[(case + N) % 2])
        for threads in "12":
            use_threads(monkeypatch, threads)
            check(be, "max", given, N, dtype, 1.0, 0.0, seed=case)
            check(be, "avg", given, N, dtype, -2.0, 0.0, seed=case)
    if be.engine.name == "c":
        assert None not in few.GATHER.variants.values()
        assert {dict(key)["op"] for key in few.GATHER.variants} == {"max", "avg"}


@pytest.mark.compiles(5)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("case", range(len(SCATTERED) + len(GATHERED)))
def test_numbers_of_no_position_in_the_input_are_passed_over(
    compiled: Backend, case: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written elsewhere, whatever a tensor of positions holds."""
    monkeypatch.setattr(few, "SHARED_ROWS", 1)
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
    {"C": 5, "D": 3, "H": 4, "W": 9, "J": 3, "T": 2, "R": 2, "S": 2, "pad_c": 1, "str_c": 2, "str_d": 1, "str_w": 1},
    {"C": 4, "H": 5, "W": 41, "J": 2, "R": 2, "S": 12, "str_w": 13},
    {"C": 2, "H": 14, "W": 31, "R": 12, "S": 11, "str_h": 1, "str_w": 1},
]
"""Windows that fill vectors along a row: every stride, wide padding, ends of the input, several channels."""


@pytest.mark.compiles(3, "[1-float32", "[4-float32", "[2-float64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", range(len(ROWED)))
def test_windows_of_one_image_fill_vectors(
    be: Backend, case: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SERIAL", 1)
    use_threads(monkeypatch, "2")
    lanes = use_registers(monkeypatch, WIDTHS[case % 3], dtype)
    assert few._in_rows(layer_of(be, "max", 1, dtype, **ROWED[case]), lanes)
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
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("N", "dtype"), [(1, np.float32), (2, np.float32), (3, np.float64), (7, np.float32), (12, np.float32)]
)
def test_windows_apart_of_few_images(
    be: Backend, N: int, dtype: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of one row and of many, on one thread and on two."""
    monkeypatch.setattr(kernels, "SERIAL", 1)
    lanes = use_registers(monkeypatch, width, dtype)
    for case, given in sampled(be, enumerate(APART), 3, N):
        monkeypatch.setattr(few, "ROW_BYTES", (1, 1 << 14)[(case + N) % 2])
        for op, (alpha, beta) in BLENDS:
            assert few._in_rows(layer_of(be, op, N, dtype, **given), lanes) == (N <= lanes)
            for threads in "12":
                use_threads(monkeypatch, threads)
                check(be, op, given, N, dtype, alpha, beta, seed=case)
    if be.engine.name == "c":
        assert None not in few.ROWS.variants.values()


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
"""Channels that are one window each, of fewer and of more values than a block of vectors; and so many of them that the
units of two threads hold a vector of channels."""


@pytest.mark.compiles(3, "[1-float32", "[16-float32", "[9-float64")
@pytest.mark.parametrize(
    ("N", "dtype"),
    [*((N, np.float32) for N in (1, 2, 3, 7, 12, 16, 17)), *((N, np.float64) for N in (1, 3, 8, 9))],
)
def test_whole_channels(be: Backend, N: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one thread, whose part has channels enough to fill a vector, and on two."""
    monkeypatch.setattr(kernels, "SERIAL", 1)
    for case, sizes in enumerate(WHOLE):
        use_threads(monkeypatch, 1 + case % 2)
        use_registers(monkeypatch, WIDTHS[(case + N) % 3])
        given = {**sizes, "T": sizes.get("D", 1), "R": sizes["H"], "S": sizes["W"]}
        assert layer_of(be, "max", N, dtype, **given).whole
        for op, (alpha, beta) in BLENDS:
            check(be, op, given, N, dtype, alpha, beta, seed=case)


@pytest.mark.parametrize("N", [1, 3, 7, 16])
def test_nan_and_equal_values_in_whole_channels(be: Backend, N: int) -> None:
    """Equal values lie in other lanes and blocks; a nan does not affect other images and channels."""
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
