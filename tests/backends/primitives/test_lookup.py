"""``compound_bprop_lut`` against a loop over columns in float64, on both engines: words, padding, scales, checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.lookup import LookupFamily, LookupGradient
from neonlike.errors import AliasError, DTypeError, IndexRangeError, ShapeError
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import backend, use_threads

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


def by_loop(words: np.ndarray, error: np.ndarray, rows: np.ndarray, pad: int | None = None) -> np.ndarray:
    """rows[w] += error[:, j] for each column j of word w."""
    total = rows.astype(np.float64)
    for j, word in enumerate(words.reshape(-1)):
        if word != pad:
            total[word] += error[:, j].astype(np.float64)
    return total


def close(got: np.ndarray, wanted: np.ndarray, dtype: str) -> bool:
    return bool(np.abs(got - wanted).max(initial=0) <= TOLERANCE[dtype] * np.abs(wanted).max(initial=1))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("vocabulary", "embed", "count"),
    [(1, 1, 1), (5, 3, 1), (3, 5, 40), (33, 16, 17), (7, 65, 130), (4000, 17, 50), (70000, 2, 9), (3, 64, 3000)],
)
def test_gradient_of_a_table(
    be: Backend, rng: np.random.Generator, vocabulary: int, embed: int, count: int, dtype: str
) -> None:
    words = rng.integers(0, vocabulary, (1, count))
    error = be.array(rng.normal(size=(embed, count)), dtype=dtype)
    inputs = be.array(words, dtype=np.int32)
    turned = be.zeros((count, embed), dtype=dtype)
    for pad in (None, int(words[0, 0]), vocabulary + 3):
        rows = be.zeros((vocabulary, embed), dtype=dtype)
        assert be.compound_bprop_lut(1, inputs, error, turned, rows, pad) is None
        wanted = by_loop(words, error.get(), np.zeros((vocabulary, embed)), pad)
        assert close(rows.get(), wanted, dtype)
        if pad == words[0, 0]:
            assert not rows.get()[pad].any()


def test_worked_numbers(be: Backend) -> None:
    rows = be.zeros((4, 2))
    inputs, error = be.array([[1, 3, 2, 0]], dtype=np.int32), be.array(np.arange(8.0).reshape(2, 4))
    be.compound_bprop_lut(2, inputs, error, be.zeros((4, 2)), rows, 0)
    assert rows.get().tolist() == [[0, 0], [0, 4], [2, 6], [1, 5]]
    be.compound_bprop_lut(2, inputs, error, None, rows, pad_idx=None)  # adds to what is there
    assert rows.get().tolist() == [[3, 7], [0, 8], [4, 12], [2, 10]]


def test_scales_and_views(be: Backend, rng: np.random.Generator) -> None:
    words = rng.integers(0, 6, (9, 1))
    whole, table = be.array(rng.normal(size=(8, 18))), be.array(rng.normal(size=(12, 4)))
    error, rows = whole[::2, ::2], table[::2]
    before, others = rows.get(), table.get()[1::2]
    inputs = be.array(np.repeat(words, 2, axis=1), dtype=np.int8)[:, 1]
    scratch = be.ones((18, 4))
    be.compound_bprop_lut(3, inputs, error, scratch[::2], rows, 2, alpha=-0.5, beta=3)
    assert (scratch.get()[1::2] == 1).all()
    assert close(rows.get(), by_loop(words, -0.5 * error.get(), 3 * before, 2), "float32")
    assert np.array_equal(table.get()[1::2], others)
    be.compound_bprop_lut(3, inputs, error, None, rows.fill(1), 2, alpha=2, beta=1)
    assert close(rows.get(), by_loop(words, 2 * error.get(), np.ones((6, 4)), 2), "float32")


def test_only_rows_of_words_that_occur_change(be: Backend) -> None:
    rows = be.empty((4, 2)).fill(np.nan)
    rows[1] = 1.0
    be.compound_bprop_lut(1, be.array([[1, 1, 3]], dtype=np.int32), be.ones((2, 3)), None, rows, 3)
    assert rows.get()[1].tolist() == [3, 3]
    assert np.isnan(rows.get()[[0, 2, 3]]).all()


def test_nan_and_inf_stay_in_their_row(be: Backend) -> None:
    error = be.array([[np.nan, 1, 2, np.inf], [1, 1, 1, -np.inf]])
    rows = be.zeros((3, 2))
    be.compound_bprop_lut(1, be.array([[0, 1, 1, 2]], dtype=np.int32), error, None, rows, None)
    assert np.isnan(rows.get()[0, 0])
    assert rows.get()[0, 1] == 1
    assert rows.get()[1].tolist() == [3, 2]
    assert rows.get()[2].tolist() == [np.inf, -np.inf]


def test_long_sums_do_not_lose_digits(be: Backend) -> None:
    count = 1 << 16
    error = be.empty((1, count)).fill(0.1)
    rows = be.zeros((2, 1))
    be.compound_bprop_lut(1, be.zeros((1, count), dtype=np.int32), error, None, rows, None)
    assert rows.get()[0, 0] == np.float32(count * float(np.float32(0.1)))


def test_rows_of_long_tables_are_added_up_whole(be: Backend) -> None:
    """The words in turn differ in their higher bits only; float32 would lose each single number beside 1."""
    words, rows = np.arange(1 << 11) % 2 << 11, be.ones((1 << 12, 1))
    error = be.empty((1, words.size)).fill(2**-26)
    be.compound_bprop_lut(1, be.array(words.reshape(1, -1), dtype=np.int32), error, None, rows, None)
    assert rows.get()[[0, 1, 1 << 11], 0].tolist() == [1 + 2**-16, 1, 1 + 2**-16]


@pytest.mark.cpu_only("a GPU rounds once, from double")
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
def test_rows_of_16_bits_are_those_of_float32_rounded(be: Backend, rng: np.random.Generator, dtype: Any) -> None:
    """Rows without words, and what lies between the rows of a view, stay as they are; a row's end is not overrun."""
    for embed in (1, 5, 64, 70, 200):
        inputs = be.array(rng.integers(0, 6, (1, 90)), dtype=np.int32)
        error, table = rng.normal(size=(embed, 180)).astype(dtype), (rng.normal(size=(18, embed + 3))).astype(dtype)
        table[14:16] = np.nan
        single = be.array(np.ascontiguousarray(table[::2, :embed]), dtype=np.float32)
        be.compound_bprop_lut(1, inputs, be.array(error, dtype=np.float32)[:, ::2], None, single, 2, 0.75)
        wanted = table.copy()
        wanted[::2, :embed] = single.get().astype(dtype)
        for scratch in (None, be.zeros((90, embed), dtype=dtype)):
            whole = be.array(table, dtype=dtype)
            dense = be.array(np.ascontiguousarray(table[::2, :embed]), dtype=dtype)
            for rows in (whole[::2, :embed], dense):
                be.compound_bprop_lut(1, inputs, be.array(error, dtype=dtype)[:, ::2], scratch, rows, 2, 0.75)
            assert whole.get().tobytes() == wanted.tobytes()
            assert dense.get().tobytes() == np.ascontiguousarray(wanted[::2, :embed]).tobytes()


def test_nothing_to_add(be: Backend) -> None:
    rows = be.ones((3, 2))
    be.compound_bprop_lut(1, be.zeros((1, 0), dtype=np.int32), be.zeros((2, 0)), None, rows, None)
    be.compound_bprop_lut(1, be.ones((1, 4), dtype=np.int32), be.ones((2, 4)), None, rows, 1)
    be.compound_bprop_lut(1, be.ones((1, 4), dtype=np.int32), be.ones((0, 4)), None, be.ones((3, 0)), None)
    be.compound_bprop_lut(1, be.ones((1, 4), dtype=np.int32), be.ones((2, 4)), None, be.ones((0, 2)), 1)
    assert (rows.get() == 1).all()


@pytest.mark.backend
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernel_definition_and_threads_agree(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    for be in backend("c"):
        words = (rng.zipf(1.3, 4000) % 300).astype(np.int64)
        inputs = be.array(words.reshape(1, -1), dtype=np.int32)
        error = be.array(rng.normal(size=(70, 4000)), dtype=dtype)
        results = []
        for threads in ("1", "2", "3"):
            use_threads(monkeypatch, threads)
            rows = be.ones((300, 70), dtype=dtype)
            be.compound_bprop_lut(1, inputs, error, None, rows, None)
            results.append(rows.get())
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])
        rows = be.ones((300, 70), dtype=dtype)
        LookupFamily._bprop_lut(be, LookupGradient(None, 1.0), inputs, error, None, rows)
        assert np.allclose(rows.get(), results[0], rtol=1e-6 if dtype == "float32" else 1e-14)


BAD: dict[str, tuple[type[Exception], str, Callable[..., Any]]] = {
    "word": (IndexRangeError, "word 4", lambda be, w, e, t, d: (be.array([[0, 4, 1]], dtype=np.int32), e, t, d, 0)),
    "below": (IndexRangeError, "word -1", lambda be, w, e, t, d: (be.array([[-1, 0, 1]], dtype=np.int8), e, t, d, 0)),
    "floats": (DTypeError, "integers", lambda be, w, e, t, d: (be.zeros((1, 3)), e, t, d, 0)),
    "dtypes": (DTypeError, "float64", lambda be, w, e, t, d: (w, be.zeros((2, 3), dtype=np.float64), t, d, 0)),
    "integers": (DTypeError, "int32", lambda be, w, e, t, d: (w, be.zeros((2, 3), dtype=np.int32), None, d, 0)),
    "columns": (ShapeError, r"\(2, 3\)", lambda be, w, e, t, d: (w, be.zeros((2, 4)), t, d, 0)),
    "rows": (ShapeError, r"\(2, 3\)", lambda be, w, e, t, d: (w, be.zeros((3, 3)), t, d, 0)),
    "scratch": (ShapeError, "error_t", lambda be, w, e, t, d: (w, e, be.zeros((2, 2)), d, 0)),
    "3-D": (ShapeError, "vocabulary", lambda be, w, e, t, d: (w, e, t, d.reshape(4, 2, 1), 0)),
    "overlap": (AliasError, "dW", lambda be, w, e, t, d: (w, d.reshape(2, 4)[:, :3], t, d, 0)),
    "scratch is dW": (AliasError, "error_t", lambda be, w, e, t, d: (w, e, d[:3], d, 0)),
    "pad": (DTypeError, "pad_idx", lambda be, w, e, t, d: (w, e, t, d, 0.5)),
    "None": (DTypeError, "error", lambda be, w, e, t, d: (w, None, t, d, 0)),
    "array": (DTypeError, "inputs", lambda be, w, e, t, d: (w.get(), e, t, d, 0)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_operands_leave_the_gradient(be: Backend, case: str) -> None:
    error, words, call = BAD[case]
    rows = be.ones((4, 2))
    given = call(be, be.zeros((1, 3), dtype=np.int32), be.ones((2, 3)), be.zeros((3, 2)), rows)
    with pytest.raises(error, match=words):
        be.compound_bprop_lut(1, *given, alpha=2, beta=5)
        be.synchronize()  # a GPU says then which word was wrong
    assert (rows.get() == 1).all()
