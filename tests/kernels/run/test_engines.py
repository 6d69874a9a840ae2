"""Every row on the C engine: many ops in few kernels, each against NumPy float64, and random graphs on both engines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.planning.graph import linearize
from neonlike.optree import builders, node
from neonlike.optree.dtypes import FLOATS, DTypeRule
from neonlike.optree.functions import F
from neonlike.optree.ops import OPS, Kind, OpSpec
from tests.optree.test_fuzz import agree
from tests.support.dtype_cases import each_float
from tests.support.engines import sampled
from tests.support.float64.reference import (
    LAYOUTS,
    assert_close,
    backwards,
    domains,
    formula,
    plain,
    reordered,
    rows,
    sample,
    strided,
)
from tests.support.trees import Grower

pytestmark = [pytest.mark.engines("c"), pytest.mark.usefixtures("compiled_or_failed")]

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 0.5, -2.5, 3.0)
BATCH = 20
"""Rows in one kernel."""


def batches(specs: list[OpSpec]) -> list[list[OpSpec]]:
    return [specs[i : i + BATCH] for i in range(0, len(specs), BATCH)]


each_batch = pytest.mark.parametrize(
    "batch", batches(rows(Kind.ELEMENTWISE)), ids=lambda batch: f"{batch[0].name}-{batch[-1].name}"
)


def compute(be: Backend, batch: list[OpSpec], made: list[Any], layout: Any) -> list[Any]:
    """Results of expressions of one shape, as one assignment of many targets."""
    outs = [layout(be, np.zeros(e.shape, e.dtype)) for e in made]
    be.assign_many(list(zip(outs, made)))
    return outs


@pytest.mark.compiles(2)
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


@pytest.mark.optimized
@pytest.mark.compiles(8)
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


@pytest.mark.compiles(6)
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


@pytest.mark.compiles(3)
@each_float
@pytest.mark.parametrize("shape", ((5, 37), (300, 1001), (3, 4, 50), (2, 70000), (9000, 3), (1, 1)), ids=str)
def test_reductions(be: Backend, rng: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """All rows over one axis in one kernel, by rows and by columns, also backwards."""
    host = rng.uniform(-1.5, 1.5, shape).astype(dtype)
    near = (1 + host * 1e-3).astype(dtype)  # so that products stay in range
    forms = itertools.product((plain, strided, backwards), (*range(len(shape)), None))
    for layout, axis in sampled(be, forms, 5, len(shape)):
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


@pytest.mark.optimized
@each_float
def test_reductions_at_nan_and_inf(be: Backend, dtype: Any) -> None:
    host = np.array(list(itertools.product(SPECIAL, repeat=2)) * 5, dtype).reshape(-1, 9)
    x, specs = be.array(host, dtype=dtype), rows(Kind.REDUCTION)
    for axis in (0, 1):
        outs = compute(be, specs, [builders.reduce(spec, x, axis) for spec in specs], plain)
        for spec, out in zip(specs, outs):
            with np.errstate(all="ignore"):
                wanted = formula(spec)(host.astype(np.float64), axis=(axis,))
            assert_close(out.get(), wanted, 1, f"{spec.name} over {axis}")


@pytest.mark.compiles(2)
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
    for first, second, third in sampled(be, itertools.product(LAYOUTS, repeat=3), 24):
        out = third(be, np.zeros((6, 7), np.float32))
        out[:] = first(be, hosts[0]) * 2 + second(be, hosts[1])
        assert_close(out.get(), expected)


def test_a_chain_of_5000_ops(be: Backend) -> None:
    x = be.array([[0.25, 0.5]], dtype=np.float64)
    tree: Any = x
    for _ in range(2500):
        tree = tree * 0.999 + 0.001
    np.testing.assert_allclose(tree.asnumpyarray(), (x.get() - 1) * 0.999**2500 + 1, 1e-9)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_stages_are_made_for_other_sizes_than_the_plan(be: Backend, rng: Any, axis: int | None) -> None:
    """As if the run that planned was stopped by Ctrl-C before it had stages, or another thread made them."""

    def expression(shape: tuple[int, int]) -> tuple[Any, Any]:
        x = be.array(rng.integers(-9, 9, shape) * 1.0)
        return x, F.sum(x, axis) + x * 3.0

    be.executor.plan(linearize([(be.empty((12, 5)), expression((12, 5))[1])]))
    for shape in ((22, 7), (300, 400), (12, 5)):
        x, source = expression(shape)
        out = be.empty(shape)
        out[:] = source
        assert_close(out.get(), x.get().sum(axis, keepdims=True, dtype=np.float64) + 3.0 * x.get())


def test_numbers_are_arguments_of_the_kernel(be: Backend) -> None:
    x, out = be.array([[1.0, 2.0]]), be.empty((1, 2))
    for number in (2, 3, -7, 2.5, 0.1, float("inf"), 10**12):
        out[:] = x * number
        assert out.get().tolist() == np.float32([[number, 2 * np.float32(number)]]).tolist()


@pytest.mark.optimized
@pytest.mark.compiles(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(be: Backend, seed: int) -> None:
    graph = Grower(be, np.random.default_rng(9000 + seed), dtypes=FLOATS, sizes=(5, 17))
    root = graph.grow(int(graph.rng.choice((10, 25, 40))))
    agree((root.node + 0.0).asnumpyarray(), root)


@pytest.mark.compiles(4)
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
