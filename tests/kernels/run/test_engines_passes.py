"""Passes of the C engine: memory kept between them, threads, streamed results, packed blocks of columns."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import fit
from neonlike.kernels.c import stage as stage_c
from neonlike.optree.functions import F
from tests.support.dtype_cases import each_float
from tests.support.engines import ON_GPU, backend, use_threads
from tests.support.float64.reference import assert_close

pytestmark = [pytest.mark.engines("c"), pytest.mark.usefixtures("compiled_or_failed")]


@pytest.mark.compiles(3)
@each_float
@pytest.mark.parametrize("shape", ((37, 50), (300, 700), (3, 5003)), ids=str)
@pytest.mark.parametrize("axis", (0, 1))
def test_what_is_kept_between_passes_survives_targets_that_are_read(
    be: Backend, rng: Any, shape: tuple[int, int], axis: int, dtype: Any
) -> None:
    """Exponentials are kept in the target where nothing reads it any more, else in a buffer or not at all."""
    host = rng.uniform(-3, 3, shape).astype(dtype)
    wide = host.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    softmax = powers / powers.sum(axis, keepdims=True)

    def fresh() -> Any:
        return be.array(host, dtype=dtype)

    x, out, total = fresh(), be.empty(shape, dtype=dtype), be.empty(softmax.max(axis, keepdims=True).shape)
    x[:] = F.softmax(x, axis)
    assert_close(x.get(), softmax, 20, "in place")
    x = fresh()
    x[:] = F.softmax(x, axis) + x
    assert_close(x.get(), softmax + wide, 20, "in place, read at the end")
    x = fresh()
    x[:, ::-1][:] = F.softmax(x, axis)
    assert_close(x.get(), softmax[:, ::-1], 20, "over itself, backwards")
    x = fresh()
    e = F.exp(x - F.max(x, axis))
    be.assign_many([(out, e / F.sum(e, axis)), (x, e), (total, F.sum(e, axis))])
    assert_close(out.get(), softmax, 20, "three targets")
    assert_close(x.get(), powers, 20)
    assert_close(total.get(), powers.sum(axis, keepdims=True), 20)


@pytest.mark.parametrize("shape", ((2, 70001), (9, 66000)), ids=str)
def test_long_rows_do_not_depend_on_threads(
    be: Backend, rng: Any, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few long rows are cut among the threads, many are dealt out; the parts that are summed are the same."""
    host = rng.standard_normal(shape).astype(np.float32)
    found = []
    for threads in ("1", "2", "3"):
        use_threads(monkeypatch, threads)
        for fresh in backend("c"):
            x = fresh.array(host)
            found.append([F.softmax(x, 1).asnumpyarray(), F.sum(x, 1).asnumpyarray(), F.argmax(x, 1).asnumpyarray()])
    wide = host.astype(np.float64)
    np.testing.assert_allclose(found[0][1], wide.sum(1, keepdims=True), 1e-5, 1e-3)
    np.testing.assert_array_equal(found[0][2], wide.argmax(1)[:, None])
    for other in found[1:]:
        for first, second in zip(found[0], other):
            np.testing.assert_array_equal(first, second)


@pytest.mark.compiles(4)
@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "u1", "i4"))
@pytest.mark.parametrize("size", (1, 63, 1024, 5000))
def test_results_that_go_past_the_caches(
    be: Backend, rng: Any, size: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large results are streamed; here all are, at any alignment, beside targets that are read and random numbers."""
    monkeypatch.setattr(stage_c, "STREAMED_BYTES", 0)
    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 2000)
    hosts = [rng.integers(0, 9, (4, size)).astype(dtype) for _ in range(3)]
    a, b, c = (be.array(host, dtype=dtype) for host in hosts)
    wide = [host.astype(np.float64) for host in hosts]
    out, other = be.zeros((4, size), dtype=dtype), be.zeros((4, size), dtype=dtype)
    be.assign_many([(out, a * 2 + b), (a, a + 1), (other, a * b + c)])
    np.testing.assert_array_equal(out.get(), (wide[0] * 2 + wide[1]).astype(dtype))
    np.testing.assert_array_equal(a.get(), (wide[0] + 1).astype(dtype))
    np.testing.assert_array_equal(other.get(), (wide[0] * wide[1] + wide[2]).astype(dtype))
    assert ON_GPU or size < 63 or "nl_stream(o0" in be.explain(a * 2 + b, out)
    out[:] = 0
    out[1:3] = b[1:3] + 1
    np.testing.assert_array_equal(out.get()[1:3], (wide[1][1:3] + 1).astype(dtype))
    assert not out.get()[[0, 3]].any()
    other[:] = be.dropout(0.5) * 3 + 0 * a
    assert set(np.unique(other.get())) <= {0, 3}


@pytest.mark.compiles(6)
@each_float
@pytest.mark.parametrize("columns", (1, 31, 257, 513, 1100))
def test_blocks_of_columns(
    be: Backend, rng: Any, columns: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are narrower where rows are fetched ahead, and where threads share them; no bit depends on it."""
    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 1000)
    host = rng.uniform(-3, 3, (2, 70, columns)).astype(dtype)
    wide = host.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    found = []
    for far, threads in itertools.product((0, 1 << 40), ("1", "2", "3")):
        monkeypatch.setattr(fit, "FAR_BYTES", far)
        use_threads(monkeypatch, threads)
        be.executor.clear()
        x, out = be.array(host, dtype=dtype), be.empty(host.shape, dtype=dtype)
        out[:] = F.softmax(x, 1)
        x[:] = x - F.mean(x, 1)
        found.append((out.get().tobytes(), x.get().tobytes()))
        assert_close(out.get(), powers / powers.sum(1, keepdims=True), 20)
        assert_close(x.get(), wide - wide.mean(1, keepdims=True), 20)
    assert len(set(found)) == 1


@pytest.mark.compiles(4)
@pytest.mark.parametrize("columns", (64, 129, 1104))
@pytest.mark.parametrize(("past", "piped"), ((0, 0), (0, 1 << 30), (1 << 40, 0)))
def test_packed_blocks_of_columns(
    be: Backend, rng: Any, columns: int, past: int, piped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and values of several types that several passes need, a target under an input; streamed, piped or not."""
    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 1000)
    monkeypatch.setattr(stage_c, "STREAMED_BYTES", past)
    monkeypatch.setattr(fit, "FAR_BYTES", past)
    monkeypatch.setattr(fit, "MAX_WIDTH", 128)
    monkeypatch.setattr(fit, "PACKED_WIDTH", 96 if past == piped else 32)  # piped: lanes and a rest of them
    monkeypatch.setattr(fit, "PIPED_BYTES", piped)
    monkeypatch.setattr(fit, "PACKED_BYTES", 50 * 96 * 16)  # 96 columns where an element takes 16 bytes
    hosts = [rng.uniform(-3, 3, (2, 50, columns)).astype(t) for t in ("f4", "f2")] + [
        rng.integers(-9, 9, (2, 50, columns)).astype("i4")
    ]
    wide = [host.astype(np.float64) for host in hosts]
    powers = np.exp(wide[0] - wide[0].max(1, keepdims=True))
    curved = np.tanh(wide[1])
    expected = powers / powers.sum(1, keepdims=True) + curved * curved.mean(1, keepdims=True) * wide[0]
    centered = wide[2] - wide[2].mean(1, keepdims=True)
    found = []
    for threads in ("1", "2", "3"):
        use_threads(monkeypatch, threads)
        be.executor.clear()
        x, y, z = (be.array(host, dtype=host.dtype) for host in hosts)
        e, q = F.exp(x - F.max(x, 1)), F.tanh(y)
        both = e / F.sum(e, 1) + q * F.mean(q, 1) * x
        normal = (z - F.mean(z, 1)) / F.sqrt(F.mean(F.square(z - F.mean(z, 1)), 1))
        if columns == 1104 and threads != "1" and not ON_GPU:
            text = be.explain(both, x)
            assert "packed_a" in text and "packed_v" in text
            for expression in (normal, F.softmax(x, 1)):
                text = be.explain(expression, be.empty(z.shape))
                assert ("nl_stream(o" in text) == (past == 0)
                assert ("#define PASSES" in text) == (past == piped == 0)
            assert "packed_" not in be.explain(F.var(z, 1))
        out, soft = be.empty(z.shape), be.empty(z.shape)
        out[:], soft[:] = normal, F.softmax(x, 1)
        x[:] = both
        variance = F.var(z, 1).asnumpyarray()
        found.append((out.get().tobytes(), soft.get().tobytes(), x.get().tobytes(), variance.tobytes()))
        assert_close(soft.get(), powers / powers.sum(1, keepdims=True), 20)
        assert_close(variance, wide[2].var(1, keepdims=True), 20)
        assert_close(x.get(), expected, 20)
        assert_close(out.get(), centered / np.sqrt((centered**2).mean(1, keepdims=True)), 20)
    assert len(set(found)) == 1


@pytest.mark.parametrize("threads", (1, 2, 3))
def test_widths_of_blocks(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks fit the template's memory, cover all columns, and are as many for each thread."""
    use_threads(monkeypatch, threads)
    for outer, columns, far in itertools.product((1, 5), (1, 2, 40, 300, 512, 513, 1000, 4096, 70001), (False, True)):
        width = fit._width(outer, columns, far)
        blocks = -(-columns // width)
        assert width % 32 == 0 and width <= fit.MAX_WIDTH, (outer, columns, far)
        assert columns < 100 * threads or outer > 1 or blocks >= threads, (outer, columns, far)
        assert width <= fit.FAR_WIDTH or not far
        assert outer == 1 or columns > 512 or far or blocks == 1


@pytest.mark.compiles(6)
@each_float
@pytest.mark.parametrize("shape", ((5, 64), (40, 640), (3, 5008), (2, 70016), (7, 33)), ids=str)
def test_results_of_passes_that_go_past_the_caches(
    be: Backend, rng: Any, shape: tuple[int, int], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above after a reduction over rows, and beside operands that are stretched; in place nothing is streamed."""
    monkeypatch.setattr(stage_c, "STREAMED_BYTES", 0)
    host = rng.uniform(-2, 2, shape).astype(dtype)
    wide = host.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    x, row, out = be.array(host, dtype=dtype), be.array(host[:1], dtype=dtype), be.empty(shape, dtype=dtype)
    out[:] = x + row
    assert_close(out.get(), wide + wide[:1], 2)
    be.assign_many([(out, x - F.mean(x, 1)), (x, F.softmax(x, 1) + x)])
    assert_close(out.get(), centered, 4)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    assert_close(x.get(), wide + powers / powers.sum(1, keepdims=True), 20)
