"""Every row on the C engine: many ops in few kernels, each against NumPy float64, and random graphs on both engines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from engines import ON_GPU, backend, use_threads
from reference import LAYOUTS, assert_close, backwards, domains, formula, plain, reordered, rows, sample, strided
from test_fuzz import agree
from trees import Grower

from neonlike.backends import Backend
from neonlike.kernels.c import fit
from neonlike.kernels.c import stage as stage_c
from neonlike.kernels.c.stage import CStage
from neonlike.optree import builders, node
from neonlike.optree.dtypes import FLOATS, DTypeRule
from neonlike.optree.functions import F
from neonlike.optree.ops import OPS, Kind, OpSpec

pytestmark = pytest.mark.engines("c")

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 0.5, -2.5, 3.0)
BATCH = 20
"""Rows in one kernel."""


@pytest.fixture(autouse=True)
def compiled_or_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C engine must not fall back to NumPy because a kernel does not compile."""
    compile_stage = CStage._compile

    def compile_or_fail(stage: CStage, *form: Any) -> Any:
        function = compile_stage(stage, *form)
        assert function is not None, f"{stage.comment} did not compile as {form}; the log says why"
        return function

    monkeypatch.setattr(CStage, "_compile", compile_or_fail)


def batches(specs: list[OpSpec]) -> list[list[OpSpec]]:
    return [specs[i : i + BATCH] for i in range(0, len(specs), BATCH)]


each_float = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
each_batch = pytest.mark.parametrize(
    "batch", batches(rows(Kind.ELEMENTWISE)), ids=lambda batch: f"{batch[0].name}-{batch[-1].name}"
)


def compute(be: Backend, batch: list[OpSpec], made: list[Any], layout: Any) -> list[Any]:
    """Results of expressions of one shape, as one assignment of many targets."""
    outs = [layout(be, np.zeros(e.shape, e.dtype)) for e in made]
    be.assign_many(list(zip(outs, made)))
    return outs


@pytest.mark.compiles(4)
@pytest.mark.slow
@each_float
@each_batch
def test_elementwise_rows(be: Backend, rng: Any, batch: list[OpSpec], dtype: Any) -> None:
    """On contiguous and strided tensors, stretched operands, and sizes that are no multiple of a vector."""
    cases: list[tuple[tuple[int, ...], Any, bool]] = [
        ((5, 37), plain, False),
        ((3, 4, 5), strided, False),
        ((5, 37), reordered, True),
    ]
    for shape, layout, cut in cases[:1] if dtype == np.float16 else cases:  # which takes long to compile
        made, expected = [], []
        for spec in batch:
            hosts = [sample(domain, shape, dtype, rng) for domain in domains(spec)]
            if cut:
                hosts = [host[..., :1] if i else host for i, host in enumerate(hosts)]
            with np.errstate(all="ignore"):
                expected.append(np.asarray(formula(spec)(*(h.astype(np.float64) for h in hosts)), np.float64))
            made.append(node.apply(spec, tuple(layout(be, host) for host in hosts), be))
        for spec, out, wanted in zip(batch, compute(be, batch, made, layout), expected):
            assert_close(out.get(), wanted, 1, f"{spec.name} {shape} {layout.__name__}")


@each_float
@each_batch
def test_elementwise_rows_at_nan_inf_and_zero(be: Backend, batch: list[OpSpec], dtype: Any) -> None:
    grid = np.array(list(itertools.product(SPECIAL, repeat=3)), dtype).T
    made = [
        node.apply(spec, tuple(be.array(row[None], dtype=dtype) for row in grid[: spec.arity]), be) for spec in batch
    ]
    for spec, out in zip(batch, compute(be, batch, made, plain)):
        with np.errstate(all="ignore"):
            wanted = np.asarray(
                formula(spec)(*(row[None].astype(np.float64) for row in grid[: spec.arity])), np.float64
            )
        assert_close(out.get(), wanted, 1, spec.name)


@pytest.mark.compiles(12)
@pytest.mark.parametrize("dtype", ("i1", "u1", "i2", "i4", "u4", "i8", "b1"))
@pytest.mark.parametrize(
    "batch",
    [*batches(rows(Kind.ELEMENTWISE)), rows(Kind.ELEMENTWISE, whole=True)],
    ids=lambda batch: f"{batch[0].name}-{batch[-1].name}",
)
def test_elementwise_rows_on_integers(be: Backend, rng: Any, batch: list[OpSpec], dtype: str) -> None:
    made, expected = [], []
    if dtype == "b1":
        batch = [OPS[spec.logical] if spec.logical else spec for spec in batch]
    for spec in batch:
        hosts = [sample(domain, (4, 9), np.dtype(dtype), rng) for domain in domains(spec)]
        with np.errstate(all="ignore"):
            expected.append(np.asarray(formula(spec)(*(h.astype(np.int64) for h in hosts))))
        made.append(node.apply(spec, tuple(be.array(h, dtype=dtype) for h in hosts), be))
    for spec, out, wanted in zip(batch, compute(be, batch, made, plain), expected):
        assert_close(out.get(), wanted, 1, spec.name)


@pytest.mark.compiles(6)
@each_float
@pytest.mark.parametrize("shape", ((5, 37), (300, 1001), (3, 4, 50), (2, 70000), (9000, 3), (1, 1)), ids=str)
def test_reductions(be: Backend, rng: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """All rows over one axis in one kernel, by rows and by columns, also backwards."""
    host = rng.uniform(-1.5, 1.5, shape).astype(dtype)
    near = (1 + host * 1e-3).astype(dtype)  # so that products stay in range
    for layout, axis in itertools.product((plain, strided, backwards), (*range(len(shape)), None)):
        specs = [s for s in rows(Kind.REDUCTION) if axis is not None or s.dtype is not DTypeRule.INDEX]
        sources = [near if s.name == "prod" else host for s in specs]
        axes = (axis,) if axis is not None else tuple(range(len(shape)))
        made = [builders.reduce(s, layout(be, source), axis) for s, source in zip(specs, sources)]
        outs = compute(be, specs, made, plain)
        for spec, out, source in zip(specs, outs, sources):
            wanted = formula(spec)(source.astype(np.float64), axis=axes)
            slack = (
                1 + 0.1 * np.abs(source.astype(np.float64)).sum(axis=axes).max() if spec.name in ("sum", "prod") else 1
            )
            assert_close(out.get(), wanted, slack, f"{spec.name} over {axis}, {layout.__name__}")


@each_float
def test_reductions_at_nan_and_inf(be: Backend, dtype: Any) -> None:
    host = np.array(list(itertools.product(SPECIAL, repeat=2)) * 5, dtype).reshape(-1, 9)
    x = be.array(host, dtype=dtype)
    for axis, spec in itertools.product((0, 1), rows(Kind.REDUCTION)):
        with np.errstate(all="ignore"):
            wanted = formula(spec)(host.astype(np.float64), axis=(axis,))
        assert_close(builders.reduce(spec, x, axis).asnumpyarray(), wanted, 1, f"{spec.name} over {axis}")


@pytest.mark.compiles(5)
@pytest.mark.slow
@each_float
@pytest.mark.parametrize("shape", ((5, 37), (301, 1003), (3, 5003), (2, 70001), (9001, 3)), ids=str)
def test_chains_over_one_axis(be: Backend, rng: Any, shape: tuple[int, ...], dtype: Any) -> None:
    host = rng.uniform(-3, 3, shape).astype(dtype)
    wide = host.astype(np.float64)
    for layout, axis in ((plain, 0), (plain, 1), (strided, 1)):
        x = layout(be, host)
        top = wide.max(axis, keepdims=True)
        powers = np.exp(wide - top)
        softmax = powers / powers.sum(axis, keepdims=True)
        mean, var = wide.mean(axis, keepdims=True), wide.var(axis, keepdims=True)
        pairs = {
            "softmax": (F.softmax(x, axis), softmax),
            "logsumexp": (F.logsumexp(x, axis), np.log(powers.sum(axis, keepdims=True)) + top),
            "weighted": (
                F.sum(F.exp(x - F.max(x, axis)) * x, axis) + F.sum(F.exp(-x) + F.exp(x / 2), axis),
                (powers * wide).sum(axis, keepdims=True) + (np.exp(-wide) + np.exp(wide / 2)).sum(axis, keepdims=True),
            ),
            "normalised": (
                (x - F.mean(x, axis)) / F.sqrt(F.var(x, axis) + 0.1) * 2,
                (wide - mean) / np.sqrt(var + 0.1) * 2,
            ),
        }
        for name, (expression, wanted) in pairs.items():
            assert_close(expression.asnumpyarray(), wanted, 20, f"{name} over {axis}, {layout.__name__}")


def test_layouts_meet_each_other(be: Backend, rng: Any) -> None:
    """One expression, every layout for each operand and for the target."""
    hosts = [rng.standard_normal((6, 7)).astype(np.float32) for _ in range(2)]
    expected = hosts[0].astype(np.float64) * 2 + hosts[1]
    for first, second, third in itertools.product(LAYOUTS, repeat=3):
        out = third(be, np.zeros((6, 7), np.float32))
        out[:] = first(be, hosts[0]) * 2 + second(be, hosts[1])
        assert_close(out.get(), expected)


def test_a_chain_of_5000_ops(be: Backend) -> None:
    x = be.array([[0.25, 0.5]], dtype=np.float64)
    tree: Any = x
    for _ in range(2500):
        tree = tree * 0.999 + 0.001
    np.testing.assert_allclose(tree.asnumpyarray(), (x.get() - 1) * 0.999**2500 + 1, 1e-9)


def test_numbers_are_arguments_of_the_kernel(be: Backend) -> None:
    x, out = be.array([[1.0, 2.0]]), be.empty((1, 2))
    for number in (2, 3, -7, 2.5, 0.1, float("inf"), 10**12):
        out[:] = x * number
        assert out.get().tolist() == np.float32([[number, 2 * np.float32(number)]]).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(be: Backend, seed: int) -> None:
    graph = Grower(be, np.random.default_rng(9000 + seed), dtypes=FLOATS, sizes=(5, 17))
    root = graph.grow(int(graph.rng.choice((10, 25, 40))))
    agree((root.node + 0.0).asnumpyarray(), root)


@pytest.mark.compiles(7)
@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "i1"))
@pytest.mark.parametrize("shape", ((8, 8), (33, 65), (64, 9), (3, 40, 70), (2, 3, 32, 31)), ids=str)
def test_operands_that_lie_along_the_rows(be: Backend, rng: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Transposed inputs and targets are turned tile by tile."""
    flipped = (*shape[:-2], shape[-1], shape[-2])
    a, b = (rng.integers(-9, 9, size).astype(dtype) for size in (shape, flipped))
    x, y, row = be.array(a, dtype=dtype), be.array(b, dtype=dtype), be.array(a[..., :1, :], dtype=dtype)
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    wide, turned = a.astype(np.float64), b.transpose(axes).astype(np.float64)
    out, across = be.empty(shape, dtype=dtype), be.empty(flipped, dtype=dtype)
    out[:] = y.permuted(axes)
    np.testing.assert_array_equal(out.get(), turned.astype(dtype))
    out[:] = x + y.permuted(axes) * 2 - row
    np.testing.assert_array_equal(out.get(), (wide + turned * 2 - wide[..., :1, :]).astype(dtype))
    across.permuted(axes)[:] = x - y.permuted(axes)
    np.testing.assert_array_equal(across.get(), (wide - turned).transpose(axes).astype(dtype))
    if shape[-1] == shape[-2]:
        x[:] = x + x.permuted(axes)
        np.testing.assert_array_equal(x.get(), (wide + wide.transpose(axes)).astype(dtype))


@pytest.mark.compiles(6)
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


@pytest.mark.compiles(7)
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
            assert "near_a" in text and "near_v" in text
            for expression in (normal, F.softmax(x, 1)):
                text = be.explain(expression, be.empty(z.shape))
                assert ("nl_stream(o" in text) == (past == 0)
                assert ("#define PASSES" in text) == (past == piped == 0)
            assert "near_" not in be.explain(F.var(z, 1))
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
    """They fit in what the template has room for, cover all columns, and are as many for each thread."""
    use_threads(monkeypatch, threads)
    for outer, columns, far in itertools.product((1, 5), (1, 2, 40, 300, 512, 513, 1000, 4096, 70001), (False, True)):
        width = fit._width(outer, columns, far)
        blocks = -(-columns // width)
        assert width % 32 == 0 and width <= fit.MAX_WIDTH, (outer, columns, far)
        assert columns < 100 * threads or outer > 1 or blocks >= threads, (outer, columns, far)
        assert width <= fit.FAR_WIDTH or not far
        assert outer == 1 or columns > 512 or far or blocks == 1


def test_int64_wraps_where_it_overflows(be: Backend) -> None:
    host = np.array([[2**63 - 1, -(2**63), 3, -5]])
    x, out, total = be.array(host, dtype="i8"), be.empty((1, 4), dtype="i8"), be.empty((1, 1), dtype="i8")
    with np.errstate(all="ignore"):
        cases = {
            "add": (x + x, host + host), "sub": (x - 7, host - 7), "mul": (x * x, host * host), "neg": (-x, -host),
            "abs": (abs(x), np.abs(host)), "sqr": (F.sqr(x), host * host),
        }  # fmt: skip
        for name, (expression, wanted) in cases.items():
            out[:] = expression
            np.testing.assert_array_equal(out.get(), wanted, name)
        for name, expression, wanted in (("sum", F.sum(x + 1), (host + 1).sum()), ("prod", F.prod(x), host.prod())):
            total[:] = expression
            np.testing.assert_array_equal(total.get(), wanted, name)
    source = be.explain(x + x, out)
    assert "nl_wrap_add_i64" in source


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
