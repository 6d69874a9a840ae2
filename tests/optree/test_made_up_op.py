"""Adding an op is adding a row: a made-up one works everywhere at once, and is gone after it is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff, grad_map
from neonlike.errors import ArgumentError
from neonlike.optree import docs
from neonlike.optree.dtypes import FLOATS, DTypeRule
from neonlike.optree.functions import F, register, unregister
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS, Kind, OpSpec
from neonlike.optree.walk import postorder
from tests.optree import test_autodiff, test_fuzz, test_ops, test_reductions
from tests.support.engines import backend, sampled
from tests.support.float64.reference import ELEMENTWISE, REDUCTIONS, assert_close
from tests.support.trees import Grower

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]


def cube(x: Any, out: Any) -> None:
    """Function of the new row, in NumPy."""
    np.multiply(x, np.square(x), out)


def spread(x: Any, axes: tuple[int, ...], out: Any) -> None:
    """The new reduction: the largest absolute value."""
    out[...] = np.abs(x).max(axis=axes, keepdims=True)


CUBE = OpSpec(
    "cube",
    1,
    Kind.ELEMENTWISE,
    cube,
    "{0} * {0} * {0}",
    DTypeRule.SAME,
    lambda F, d, z, x: (3 * d * x * x,),
    "a * a * a.",
    builders=("cube", "third_power"),
    flops=2,
)
TOP = OpSpec(
    "top",
    1,
    Kind.REDUCTION,
    spread,
    "",
    DTypeRule.SAME,
    lambda F, d, z, x: (d * F.equal(F.abs(x), z) * F.sgn(x),),
    "Largest |a| over axis.",
    builders=("top",),
    keyed=("axis",),
)


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpSpec]:
    """The row ``cube``, while a test runs."""
    monkeypatch.setitem(ELEMENTWISE, "cube", lambda x: x**3)
    yield register(CUBE)
    unregister("cube")


@pytest.mark.engines("numpy", "c")
def test_each_engine_runs_it(engine: str, row: OpSpec, rng: Any) -> None:
    host = rng.standard_normal((40, 50)).astype(np.float32)
    for be in backend(engine):
        x = be.array(host)
        assert_close((be.cube(x) + 1).asnumpyarray(), host.astype(np.float64) ** 3 + 1)
        assert_close(be.sum(be.cube(x.T), axis=0).asnumpyarray(), (host.astype(np.float64) ** 3).T.sum(0)[None], 100)


def test_it_has_builders(be: Backend, row: OpSpec) -> None:
    x = be.array([[1.0, -2.0, 3.0]])
    for expression in (be.cube(x), be.third_power(x), F.cube(x), OpTreeNode.build("cube", x, None)):
        assert isinstance(expression, OpTreeNode)
        assert expression.asnumpyarray().tolist() == [[1, -8, 27]]
    out = be.empty((1, 3))
    assert be.cube(x, out=out) is out
    assert out.get().tolist() == [[1, -8, 27]]
    assert "a * a * a" in be.cube.__doc__
    assert str(be.cube(x + 1)) == "cube(add(t0, 1))"


def test_it_is_tested_like_every_row(be: Backend, rng: Any, row: OpSpec) -> None:
    for dtype in FLOATS:
        test_ops.test_each_row_on_each_shape_and_layout(be, rng, row, dtype)
        test_ops.test_each_row_at_nan_inf_and_zero(be, row, dtype)
    test_ops.test_each_row_in_blocks(be, rng, row)
    test_ops.test_each_row_on_integers(be, rng, row, np.dtype(np.int16))


def test_it_has_a_gradient(be64: Backend, rng: Any, row: OpSpec) -> None:
    x = be64.array([[1.0, -2.0, 3.0]])
    made = Autodiff(F.sum(be64.cube(x)), be64)
    assert made.get_grad_asnumpyarray([x])[0].tolist() == [[3, 12, 27]]
    assert grad_map["cube"] is CUBE.grad
    test_autodiff.test_each_elementwise_row(be64, rng, row)
    test_autodiff.test_second_derivatives_of_each_row(be64, rng, row)


def test_it_appears_in_random_graphs(be64: Backend, row: OpSpec) -> None:
    graphs = [Grower(be64, np.random.default_rng(seed)).grow(60) for seed in range(20)]
    found = [root for root in graphs if any(made.spec is row for made in postorder(root.node))]
    assert found
    for root in sampled(be64, found, 2):
        test_fuzz.agree((root.node + 0.0).asnumpyarray(), root)


def test_it_is_fused_and_explained(be: Backend, row: OpSpec) -> None:
    x = be.ones((4, 5))
    text = be.explain(be.sum(be.cube(x) + 1, axis=0))
    assert "cube(" in text
    assert text.count("stage ") == 1


def test_it_is_documented(row: OpSpec) -> None:
    page = docs.page(OPS.values())
    assert docs.row(row) in page
    assert "`be.cube`, `be.third_power`" in docs.row(row)


def test_a_reduction_can_be_added_too(be64: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REDUCTIONS, "top", lambda x, axis: np.abs(x).max(axis=axis, keepdims=True))
    top = register(TOP)
    try:
        x = be64.array(rng.standard_normal((4, 5)))
        assert_close(be64.top(x, axis=0).asnumpyarray(), np.abs(x.get()).max(0, keepdims=True))
        test_reductions.test_each_row_over_every_axis_shape_and_layout(be64, rng, top, np.dtype(np.float32))
        test_reductions.test_each_row_at_sizes_that_need_blocks(be64, rng, top, test_reductions.BIG[0])
        test_autodiff.check(be64, be64.top(x * x, axis=1), [x], rng)
    finally:
        unregister("top")


def test_it_goes_without_a_trace(be: Backend) -> None:
    before = dict(OPS), set(vars(F)), dir(type(be))
    register(CUBE)
    x = be.ones((2, 2))
    kept = be.cube(x) * 2
    unregister("cube")
    assert (dict(OPS), set(vars(F)), dir(type(be))) == before
    assert "cube" not in grad_map
    for name in CUBE.builders:
        with pytest.raises(AttributeError, match=name):
            getattr(be, name)
    with pytest.raises(TypeError, match="cube"):
        OpTreeNode.build("cube", x, None)
    assert kept.asnumpyarray().tolist() == [[2, 2], [2, 2]]  # what was built still works


def test_registering_it_again_with_another_meaning_takes_effect(be: Backend) -> None:
    """Plans are kept by row, not by name."""
    x = be.array([[2.0, 3.0]])
    for factor in (1, 10):
        times = register(
            OpSpec(
                "times",
                1,
                Kind.ELEMENTWISE,
                lambda x, out, factor=factor: np.multiply(x, factor, out),
                f"{{0}} * {factor}",
                DTypeRule.SAME,
                lambda F, d, z, x, factor=factor: (d * factor,),
                "Some multiple of a.",
                builders=("times",),
            )
        )
        assert be.times(x).asnumpyarray().tolist() == [[2 * factor, 3 * factor]]
        unregister(times.name)


@pytest.mark.parametrize("name", ("add", "subtract", "softmax", "cube"))
def test_a_name_that_is_taken_is_refused(row: OpSpec, name: str) -> None:
    spec = OpSpec("new", 1, Kind.ELEMENTWISE, cube, "{0}", DTypeRule.SAME, CUBE.grad, "New.", builders=("fine", name))
    with pytest.raises(ArgumentError, match=name):
        register(spec)
    assert "new" not in OPS
    assert not hasattr(F, "fine")
