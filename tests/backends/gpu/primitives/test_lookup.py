"""The gradient of a lookup table on the GPU: the sort of words by one block and by many, frequent words, bad words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import lookup
from neonlike.errors import IndexRangeError
from neonlike.kernels.cuda import sorting
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]


def sort(be: Any, host: Any, limit: int, skipped: int = sorting.NOTHING, wraps: bool = False) -> tuple[Any, Any]:
    """Keys and numbers of the sorted vector ``host``, which lies in every other element of a tensor."""
    index = be.array(np.repeat(host, 2).reshape(1, -1), dtype=host.dtype)
    room = sorting.room_for(host.size, limit)
    memory = be.device.allocate(room.size)
    given = (index.address, index.dtype, 2), memory.address, (host.size, limit), be.device.expect("index {} of a test")
    for call in sorting.ready_sort(be.device, *given, skipped, wraps):
        call()
    found = []
    for at in (room.keys_at, room.numbers_at):
        array = be.device.view(memory, memory.address + at, (host.size,), (4,), np.dtype(np.int32))
        found.append(be.device.to_host(array))
    return found[0], found[1]


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize(("limit", "dtype"), [(7, np.uint8), (200, np.int64), (70_000, np.int32)])
def test_stable_sort(gpu: Any, monkeypatch: pytest.MonkeyPatch, blocks: str, limit: int, dtype: Any) -> None:
    if blocks == "many":
        monkeypatch.setattr(sorting, "ONE_BLOCK", 0)
    rng = np.random.default_rng(limit)
    for n in (1, 33, 2047, 5000):
        host = (rng.zipf(1.4, n) % limit).astype(dtype)
        keys, numbers = sort(gpu, host, limit)
        wanted = np.argsort(host, kind="stable")
        np.testing.assert_array_equal(numbers, wanted, f"{n}")
        np.testing.assert_array_equal(keys, host[wanted])


@pytest.mark.parametrize("blocks", ["one", "many"])
def test_what_counts_from_the_end_and_what_is_left_out(gpu: Any, monkeypatch: pytest.MonkeyPatch, blocks: str) -> None:
    if blocks == "many":
        monkeypatch.setattr(sorting, "ONE_BLOCK", 0)
    host = np.array([3, -1, 2, -5, 3, 0], np.int32)
    keys, numbers = sort(gpu, host, 5, skipped=3, wraps=True)
    np.testing.assert_array_equal(keys, [0, 0, 2, 4, 5, 5])
    np.testing.assert_array_equal(numbers, [3, 5, 2, 1, 0, 4])


@pytest.mark.parametrize("blocks", ["one", "many"])
def test_sums_of_frequent_words(gpu: Any, monkeypatch: pytest.MonkeyPatch, blocks: str) -> None:
    """Words that begin and end in chunks of columns, at their ends, and go on over several; the same bits each time."""
    if blocks == "many":
        monkeypatch.setattr(sorting, "ONE_BLOCK", 0)
    rng, C = np.random.default_rng(1), lookup.CHUNK
    counts = [C, 1, 3 * C + 5, C - 1, 2, 4 * C, 7, 2 * C]
    words = rng.permutation(np.repeat(np.arange(len(counts)) * 3, counts))
    error = rng.normal(size=(37, words.size)).astype(np.float32)
    for pad in (None, 6, 21):
        results = []
        for _ in range(2):
            rows = gpu.array(np.full((24, 37), 2.0))
            inputs = gpu.array(words.reshape(1, -1), dtype=np.int32)
            gpu.compound_bprop_lut(1, inputs, gpu.array(error), None, rows, pad)
            results.append(rows.get())
        wanted = np.full((24, 37), 2.0)
        np.add.at(wanted, words[words != pad], error.astype(np.float64).T[words != pad])
        np.testing.assert_allclose(results[0], wanted, rtol=2e-7, atol=1e-6)
        np.testing.assert_array_equal(results[0], results[1])


def test_columns_of_no_word_change_nothing(gpu: Any) -> None:
    """Columns that are left out come last in the order; the memory after the table is unchanged."""
    both = gpu.zeros((5, 3))
    words = gpu.array([[2, 0, 2, 1]], dtype=np.int32)
    gpu.compound_bprop_lut(1, words, gpu.ones((3, 4)), None, both[:4], pad_idx=2)
    assert both.get()[:, 0].tolist() == [1, 1, 0, 0, 0]


def test_bad_words_are_told_when_the_host_waits(gpu: Any) -> None:
    """The table is unchanged, not even scaled; calls before and after are right."""
    error, rows, other = gpu.ones((2, 3)), gpu.ones((4, 2)), gpu.zeros((4, 2))
    good, bad = (gpu.array([values], dtype=np.int64) for values in ([0, 1, 1], [0, 2**40, 1]))
    with traffic(gpu) as seen:
        gpu.compound_bprop_lut(1, good, error, None, other)
        gpu.compound_bprop_lut(1, bad, error, None, rows, beta=5)
    assert not len(seen), str(seen)
    with pytest.raises(IndexRangeError, match="word 2147483647 is not in a vocabulary of 4"):
        rows.get()
    assert (rows.get() == 1).all()
    assert other.get().tolist() == [[1, 1], [2, 2], [0, 0], [0, 0]]
    gpu.compound_bprop_lut(1, gpu.array([[-1, 0, 0]], dtype=np.int32), error, None, rows)
    with pytest.raises(IndexRangeError, match="word -1 is"):
        gpu.synchronize()
    gpu.compound_bprop_lut(1, good, error, None, rows, beta=3, alpha=0.5)
    assert rows.get().tolist() == [[3.5, 3.5], [4, 4], [3, 3], [3, 3]]
