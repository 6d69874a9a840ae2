"""Choice of a CUDA kernel's form for given arrays. Planning needs no GPU: NumPy has shapes and steps as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.kernels.cuda.device import Capabilities
from neonlike.kernels.cuda.fit import (
    LONGEST_COLUMN,
    LONGEST_ROW,
    NARROW,
    TURNED,
    MapKey,
    ReduceKey,
    divisors,
    fit_map,
    fit_reduce,
    strips,
)

GPU = Capabilities("sm_90", 132)


def empty(*shape: int, dtype: Any = np.float32) -> Any:
    """An array that takes no memory."""
    base = np.lib.stride_tricks.as_strided(np.empty(1, dtype), (1,), (0,))
    size = np.dtype(dtype).itemsize
    strides, step = [], size
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return np.lib.stride_tricks.as_strided(base, shape, tuple(reversed(strides)))


@pytest.mark.parametrize("size", (1, 2, 3, 5, 7, 32, 33, 100, 641, 65537, 2**20 + 1, 2**30 - 1))
def test_quotients_by_multiplication(size: int) -> None:
    _, multiplier, shift = divisors([size], wide=False)
    assert -(2**31) <= multiplier < 2**31
    for n in {0, 1, size - 1, size, size + 1, 3 * size - 1, 12345, 2**31 - 2, 2**31 - 1}:
        if n < 2**31:
            high = n * (multiplier % 2**32) >> 32  # __umulhi
            assert (high + n) % 2**32 >> shift == n // size, n


def test_contiguous_arrays_are_one_axis_of_vectors() -> None:
    fit = fit_map((64, 100), [empty(64, 100), empty(64, 100)], 1, True, GPU)
    assert fit.key == MapKey(1, (1, 1), 4, False)
    assert fit.meta[:2] == [1600, 6400]
    assert fit_map((64, 100), [empty(64, 100), empty(64, 100)], 1, False, GPU).key.vector == 1
    half = [empty(64, 100, dtype=np.float16), empty(64, 100)]
    assert fit_map((64, 100), half, 1, True, GPU).key.vector == 8
    assert fit_map((5, 7), [empty(5, 7, dtype=np.float64)] * 2, 1, True, GPU).key.vector == 2


def test_rows_that_start_anywhere_are_no_vectors() -> None:
    wide = empty(64, 104)
    assert fit_map((64, 100), [wide[:, 4:], empty(64, 100)], 1, True, GPU).key == MapKey(2, (1, 1), 4, False)
    assert fit_map((64, 100), [empty(64, 103)[:, 3:], empty(64, 100)], 1, True, GPU).key.vector == 1
    assert fit_map((64, 99), [wide[:, :99], empty(64, 99)], 1, True, GPU).key.vector == 1


def test_broadcasts_are_read_once_a_vector() -> None:
    fit = fit_map((64, 100), [empty(64, 1), empty(1, 100), empty(64, 100)], 2, True, GPU)
    assert fit.key == MapKey(2, (0, 1, 1), 4, False)


def test_inputs_that_run_across_are_turned() -> None:
    fit = fit_map((64, 100), [empty(100, 64).T, empty(64, 100)], 1, True, GPU)
    assert isinstance(fit.key, MapKey)
    assert fit.key.turned
    assert fit.grid == (2 * 4, 1, 1)
    both = fit_map((64, 100), [empty(100, 64).T, empty(100, 64).T], 1, True, GPU)
    assert both.key == MapKey(1, (1, 1), 4, False)  # along the memory of the output


@pytest.mark.parametrize(("dtype", "vector", "tile"), (("f2", 8, (32, 64)), ("f4", 4, (32, 32)), ("f8", 2, (16, 32))))
def test_tiles_of_whole_vectors_are_turned_by_vectors(dtype: str, vector: int, tile: tuple[int, int]) -> None:
    out = empty(96, 128, dtype=dtype)

    def turned(array: Any, *others: Any, aligned: bool = True, into: Any = out) -> Any:
        fit = fit_map(into.shape, [array, *others, into], 1 + len(others), aligned, GPU)
        assert isinstance(fit.key, MapKey)
        assert fit.key.turned
        return fit

    across = empty(128, 96, dtype=dtype).T
    fit = turned(across)
    assert fit.key == MapKey(2, (TURNED, 1), vector, False)
    assert (fit.grid, fit.block) == ((96 // tile[0] * 128 // tile[1], 1, 1), (8, 32, 1))
    assert turned(across, empty(96, 1, dtype=dtype), empty(1, 128)).key == MapKey(2, (TURNED, 0, 1, 1), vector, False)
    assert turned(empty(128, 112, dtype=dtype)[:, 16:].T).key.vector == vector
    whole = strips(np.dtype(dtype).itemsize).rows
    for array, others in (
        (empty(128, 96 + whole // 2, dtype=dtype)[:, :96].T, ()),  # columns that start anywhere
        (across, (empty(96, 129, dtype=dtype)[:, :128],)),  # rows that do
        (across, (empty(96, 256, dtype=dtype)[:, ::2],)),
        (across, (empty(128, 96, dtype="i1").T,)),  # two sizes of elements
    ):
        assert turned(array, *others).key.vector == 1
    assert turned(across, aligned=False).key.vector == 1
    for rows, columns in ((96, 127), (95, 128)):
        assert turned(empty(columns, 96, dtype=dtype)[:, :rows].T, into=out[:rows, :columns]).key.vector == 1


@pytest.mark.parametrize("size", (2, 4, 8))
def test_a_tile_is_written_and_read_without_conflicts_of_banks(size: int) -> None:
    """Threads that access shared memory at once: a warp of 4-byte cells, half of it of 8-byte ones."""
    tile, cell = strips(size), max(size, 4)
    pitch, lanes = tile.down + 1, 128 // cell
    for first in range(0, 256, lanes):
        threads = [(t % 8, t // 8) for t in range(first, first + lanes)]
        for k in range(tile.rows):
            written = {(y * pitch + x * tile.rows + k) % lanes for x, y in threads}
            assert len(written) == lanes
        for l in range(0, tile.vector, tile.columns):  # noqa: E741
            places = [((x + y // tile.down * 8) * tile.vector + l, y % tile.down) for x, y in threads]
            read = {(place // tile.columns * pitch + mine) % lanes for place, mine in places}
            assert len(read) == lanes


def test_large_arrays_take_64_bits() -> None:
    for size, wide in ((NARROW // 4, False), (NARROW + 4, True)):
        fit = fit_map((size, 1), [empty(size, 1), empty(size, 1)], 1, True, GPU)
        assert fit.key.wide is wide
        assert fit_reduce((size, 4), (1,), [empty(size, 4), empty(size, 1)], 1, True).key.wide
        assert 0 < fit.grid[0] < 2**31


def key_of(shape: tuple[int, ...], axis: int, **options: Any) -> ReduceKey:
    result = tuple(1 if k == axis else n for k, n in enumerate(shape))
    key = fit_reduce(shape, (axis,), [empty(*shape), empty(*result)], 1, options.get("aligned", True)).key
    assert isinstance(key, ReduceKey)
    return key


def test_rows_fit_in_registers_up_to_thousands_of_elements() -> None:
    for length in (4, 64, 1000, 4096, 16384):
        key = key_of((300, length), 1)
        assert not key.columns
        assert key.held > 0
        assert key.held * key.vector <= 16
        assert not key.split
    assert key_of((300, 20000), 1).held == 0
    assert not key_of((300, 20000), 1).split
    assert key_of((3, LONGEST_ROW + 1), 1).split
    assert key_of((3000, LONGEST_ROW + 1), 1).split


def test_columns_are_reduced_side_by_side() -> None:
    for length in (2, 100, 256):
        key = key_of((length, 300), 0)
        assert key.columns
        assert key.held > 0
    assert key_of((300, 3), 0).columns is False  # too few
    assert key_of((LONGEST_COLUMN + 1, 300), 0).split
    assert not key_of((4000, 100_000), 0).split  # enough of them


@pytest.mark.parametrize("shape", ((5, 33), (1, 1), (1, 10**7), (10**6, 40), (3000, 3000), (2, 70_000), (7, 4, 9)))
def test_blocks_cover_every_row_and_part(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        result = tuple(1 if k == axis else n for k, n in enumerate(shape))
        fit = fit_reduce(shape, (axis,), [empty(*shape), empty(*result)], 1, True)
        assert isinstance(fit.key, ReduceKey)
        length, count, parts, part = fit.meta[:4]
        assert (length, count) == (shape[axis], np.prod(result))
        threads, rows = (fit.block[1], fit.block[0]) if fit.key.columns else fit.block[:2]
        assert threads & (threads - 1) == 0
        assert threads * rows <= fit.key.most <= 1024
        assert threads * rows % 32 == 0
        assert fit.grid[0] * rows >= count
        assert fit.grid[1] == parts < 65536
        assert parts * part >= length > (parts - 1) * part
        assert part % fit.key.vector == 0 or parts == 1
        if fit.key.held:
            assert threads * fit.key.held * fit.key.vector >= length
