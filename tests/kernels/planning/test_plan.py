"""Plans: the contents of their keys, and their division into stages with reasons."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends import tensor as tensor_module
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.planning.plan import Plan, StageKind
from neonlike.kernels.planning.plan_cache import MAX_PLANS, PlanCache
from neonlike.kernels.planning.planner import make_plan
from neonlike.optree.functions import F
from tests.support.engines import backend
from tests.support.float64.reference import evaluate

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]

SIZES = ((4, 7), (9, 3), (41, 1999), (11, 4), (700, 300), (8, 13))
"""From small to large and back, so that a plan made for one is used for the others."""


class Tensors:
    """Tensors by name, for expressions over an (m, n) matrix."""

    def __init__(self, be: Backend, m: int, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        make = lambda *shape: be.array(rng.uniform(0.5, 2, shape))  # noqa: E731
        self.be, self.m, self.n = be, m, n
        self.x, self.y, self.z = make(m, n), make(m, n), make(n, m)
        self.row, self.column, self.one = make(1, n), make(m, 1), make(1, 1)
        self.weights, self.deep = make(n, 6), make(2, m, n)
        self.strided = make(2 * m, 2 * n)[::2, ::2]
        self.index = be.array(rng.integers(0, n, (1, 5)), dtype=np.int32)


EXPRESSIONS: dict[str, Callable[[Tensors], Any]] = {
    "elementwise": lambda t: t.x * 2 + t.y / 3,
    "a tensor": lambda t: t.x,
    "a transposed view": lambda t: t.z.T,
    "transposed nodes": lambda t: (t.z * 2).T + t.x,
    "stretched": lambda t: t.x * t.row - t.column / t.one,
    "strided": lambda t: t.strided + t.x,
    "more axes": lambda t: t.deep * t.x + t.row,
    "rank changes under a transpose": lambda t: F.transpose(t.deep * t.row, (1, 0, 2)),
    "sum 0": lambda t: F.sum(t.x, 0),
    "sum 1": lambda t: F.sum(t.x * t.y, 1),
    "sum all": lambda t: F.sum(t.x - t.row),
    "of many axes": lambda t: F.max(t.deep, (0, 2)) + F.min(t.deep, 1),
    "softmax 0": lambda t: F.softmax(t.x, 0),
    "softmax 1": lambda t: F.softmax(t.x, 1),
    "log softmax": lambda t: t.x - F.logsumexp(t.x, 0),
    "var": lambda t: F.var(t.x, 1),
    "argmax": lambda t: F.argmax(t.x, 0),
    "two axes": lambda t: F.sum(t.x * F.max(t.x, 1), 0) - F.mean(t.x),
    "product": lambda t: F.tanh(F.dot(t.x, t.weights) + t.column),
    "transposed product": lambda t: F.dot(t.x, t.weights).T * 2,
    "product of sums": lambda t: F.dot(F.sum(t.x, 1).T, t.x),
    "gather": lambda t: F.take(t.x, t.index, 1) * t.column,
    "scatter": lambda t: F.untake(F.take(t.x, t.index, 1), t.index, t.x.shape, 1) + t.x,
    "window": lambda t: F.view(t.x * 2, ((t.m - 1, t.n), (t.n, 1), t.n)),
    "window back": lambda t: F.unview(t.x[1:] * 2, t.x.shape, ((t.m - 1, t.n), (t.n, 1), t.n)),
    "broadcast": lambda t: F.broadcast_to(t.row * 2, t.x.shape) * t.x,
    "a window inside a sum": lambda t: t.x * F.sum(F.view(t.x * 2, ((1, t.n), (t.n, 1), t.n))),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_one_plan_serves_all_sizes(be64: Backend, name: str) -> None:
    for made, (m, n) in enumerate(SIZES):
        expression = EXPRESSIONS[name](Tensors(be64, m, n, made))
        out = be64.empty(expression.shape)
        out[:] = expression
        np.testing.assert_allclose(out.get(), evaluate(expression), 1e-10, 1e-10)
    before = be64.plans.misses
    for m, n in SIZES:
        expression = EXPRESSIONS[name](Tensors(be64, m, n))
        be64.empty(expression.shape)[:] = expression
    assert be64.plans.misses == before
    keys = {key_of(be64, EXPRESSIONS[name](Tensors(be64, m, n))) for m, n in SIZES}
    assert len(keys) == 1


def test_windows_of_one_row_and_of_several_are_planned_apart(be64: Backend) -> None:
    """All tensors here have one shape; only the sizes of 1 inside the expression differ."""
    t = Tensors(be64, 6, 6)
    for shape in ((1, 3), (3, 3), (3, 1), (1, 1), (2, 3)):
        expression = t.x + F.sum(F.sqr(F.view(t.x * 2, (shape, (6, 1), 7))) + 1)
        np.testing.assert_allclose(expression.asnumpyarray(), evaluate(expression), 1e-12)
        expression = t.x + F.sum(F.broadcast_to(F.sum(t.x), shape) + 1)
        np.testing.assert_allclose(expression.asnumpyarray(), evaluate(expression), 1e-12)
        onto = be64.array(np.zeros((1, 6)), dtype=np.int32)
        expression = t.x + F.max(F.exp(F.untake(t.x, onto, (6, shape[1]), 1) * 0.01), 1)
        np.testing.assert_allclose(expression.asnumpyarray(), evaluate(expression), 1e-12)


# Keys ------------------------------------------------------------------------------------------------------------


def key_of(be: Backend, expression: Any, out: Any = None) -> Any:
    target = be.empty(expression.shape, dtype=expression.dtype) if out is None else out
    return linearize(((target, expression),)).key


def test_kinds_of_tensors_that_threads_first_meet_at_once_are_told_apart(
    be: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, row = be.ones((4, 3))[:, :1], be.ones((4, 3))[:1]

    class Interrupted(dict[Any, int]):
        """Between the look for a free number and its use another thread does the same."""

        times = 0

        def setdefault(self, what: Any, number: int) -> int:  # type: ignore[override]
            self.times += 1
            if self.times == 1:
                row.plan_key  # noqa: B018
            return super().setdefault(what, number)

    monkeypatch.setattr(tensor_module, "_PLAN_KEYS", Interrupted())
    assert column.plan_key != row.plan_key


def test_different_structures_have_different_keys(be: Backend) -> None:
    t = Tensors(be, 4, 6)
    square, half, whole = Tensors(be, 5, 5), be.ones((4, 6), dtype=np.float16), be.ones((4, 6), dtype=np.int32)
    different = [
        t.x + t.y,
        t.x - t.y,
        t.x + t.x,
        t.x + 2,
        t.x + 2.0,
        2.0 + t.x,
        t.x + t.row,
        t.x + t.column,
        t.x + t.one,
        t.row + t.column,
        t.x + t.strided,
        t.x + half,
        t.x + whole,
        t.deep + t.x,
        (t.x + t.y) * t.x,
        (t.x + t.y) * t.y,
        F.sum(t.x, 0),
        F.sum(t.x, 1),
        F.sum(t.x),
        F.max(t.x, 0),
        F.dot(t.x, t.weights),
        F.dot(t.x, t.z),
        F.dot(square.x, square.y),
        F.transpose(t.deep * 1, (2, 0, 1)),
        F.transpose(t.deep * 1, (1, 0, 2)),
        F.take(t.x, t.index, 0),
        F.take(t.x, t.index, 1),
    ]
    keys = [key_of(be, expression) for expression in different]
    pairs = itertools.combinations(range(len(keys)), 2)
    clashes = [(str(different[i]), str(different[j])) for i, j in pairs if keys[i] == keys[j]]
    assert not clashes


def test_the_alias_pattern_is_part_of_the_key(be: Backend) -> None:
    base = be.ones((6, 6))
    x, other = base[1:5, 1:5], be.ones((6, 6))[1:5, 1:5]
    targets = [x, other, base[0:4, 0:4]]
    keys = [key_of(be, x + 1, target) for target in targets]
    assert len(set(keys)) == len(targets)
    assert key_of(be, x + 1, x.T) == keys[2]  # both overlap, both are strided
    assert key_of(be, x + 1, base[1:5, 1:5]) == key_of(be, other + 1, other)  # another view of the same elements


def test_keys_hold_no_sizes_addresses_or_values(be: Backend) -> None:
    def flat(key: Any) -> Iterator[Any]:
        for item in key:
            if isinstance(item, tuple):
                yield from flat(item)
            else:
                yield item

    def build(t: Tensors, number: float) -> Any:
        return F.sum(F.dot(t.x * number, t.weights), 1) / t.column + F.take(t.x, t.index, 1) * number

    t, other = Tensors(be, 1237, 119), Tensors(be, 1237, 119, 1)
    key = key_of(be, build(t, 0.125))
    assert key == key_of(be, build(other, 4.5))
    tensors = (t.x, t.column, t.weights, t.index)
    forbidden = {0.125, 1237, 119, *(tensor.ptr for tensor in tensors), *map(id, tensors)}
    assert not [item for item in flat(key) if isinstance(item, (int, float)) and item in forbidden]


def test_random_numbers_do_not_make_new_plans(be: Backend) -> None:
    x, out = be.ones((3, 4)), be.empty((3, 4))
    before = be.plans.misses
    for _ in range(5):
        out[:] = x * be.dropout(0.5)
    assert be.plans.misses == before + 1


def test_the_plan_cache_is_bounded(be: Backend) -> None:
    be.executor.plans = PlanCache(limit=8)
    x, out = be.array([[1.0, 2.0]]), be.empty((1, 2))
    for repeat in range(2):
        expression = x * 1
        for length in range(20):
            expression = expression + 1
            out[:] = expression
            assert out.get().tolist() == [[2 + length, 3 + length]], repeat
            assert len(be.plans) <= 8
    assert MAX_PLANS < 1 << 16


# Stages ----------------------------------------------------------------------------------------------------------


def plan_of(be: Backend, *pairs: tuple[Any, Any]) -> Plan:
    return make_plan(linearize(pairs))


def plan_for(be: Backend, expression: Any) -> Plan:
    return plan_of(be, (be.empty(expression.shape), expression))


def kinds(plan: Plan) -> list[str]:
    return [stage.kind.value for stage in plan.stages]


@pytest.mark.parametrize("axis", (0, 1))
def test_chains_over_one_axis_are_one_stage(be: Backend, axis: int) -> None:
    t = Tensors(be, 5, 8)
    x, gamma = t.x, t.row if axis == 0 else t.column
    mean, var = F.mean(x, axis), F.var(x, axis)
    for name, expression in {
        "softmax": F.softmax(x, axis),
        "log softmax": x - F.logsumexp(x, axis),
        "logsumexp": F.logsumexp(x, axis),
        "var": var,
        "std": F.std(x, axis),
        "normalised": (x - mean) / F.sqrt(var + 1e-5) * gamma + t.one,
        "norm": x / F.norm2(x, axis),
        "max of softmax": F.max(F.softmax(x, axis), axis),
        "cross entropy": F.sum(F.log(F.softmax(x, axis)) * t.y, axis),
    }.items():
        plan = plan_for(be, expression)
        assert kinds(plan) == ["reduce"], name
        assert plan.stages[0].axes == (axis,)


def test_what_cannot_share_a_pass_is_cut_and_says_why(be: Backend) -> None:
    t = Tensors(be, 5, 8)
    plan = plan_for(be, F.sum(t.x * F.max(t.x, 1), 0))
    assert kinds(plan) == ["reduce", "reduce"]
    assert "max over axis 1" in plan.stages[0].reason
    assert "sum over axis 0" in plan.stages[1].reason
    assert "axis 1 of stage 0" in plan.stages[1].reason
    plan = plan_for(be, F.sum(F.sum(t.deep, 0) * 2, 1))
    assert kinds(plan) == ["reduce", "reduce"]
    assert "its space differs from that of stage 0" in plan.stages[1].reason


def test_a_product_takes_what_follows_as_its_epilogue(be: Backend) -> None:
    t = Tensors(be, 5, 8)
    plan = plan_for(be, F.tanh(F.dot(t.x, t.weights) + t.column))
    assert kinds(plan) == ["contraction", "elementwise"]
    assert plan.stages[1].epilogue
    plan = plan_for(be, F.dot(t.x + 1, t.weights) * 2)
    assert kinds(plan) == ["elementwise", "contraction", "elementwise"]
    assert "dot reads it from memory" in plan.stages[0].reason


def test_optimizer_steps_are_one_stage(be: Backend) -> None:
    w, g, v, m = (be.ones((4, 5)) for _ in range(4))
    velocity = v * 0.9 - g * 0.1
    assert kinds(plan_of(be, (v, velocity), (w, w + velocity))) == ["elementwise"]
    first, second = m * 0.9 + g * 0.1, v * 0.99 + F.sqr(g) * 0.01
    step = w - 0.001 * first / (F.sqrt(second) + 1e-8)
    assert kinds(plan_of(be, (m, first), (v, second), (w, step))) == ["elementwise"]


def test_statistics_and_result_are_one_stage(be: Backend) -> None:
    """Mean, variance and the normalised matrix: three targets of two shapes."""
    x, y, mean, var = be.ones((4, 9)), be.empty((4, 9)), be.empty((4, 1)), be.empty((4, 1))
    pairs = [(mean, F.mean(x, 1)), (var, F.var(x, 1)), (y, (x - F.mean(x, 1)) / F.sqrt(F.var(x, 1) + 0.1))]
    assert kinds(plan_of(be, *pairs)) == ["reduce"]


def test_every_stage_has_a_reason_that_explain_prints(be: Backend) -> None:
    t = Tensors(be, 5, 8)
    for name, build in EXPRESSIONS.items():
        expression = build(t)
        plan, text = plan_for(be, expression), be.explain(expression)
        for stage in plan.stages:
            assert stage.reason, name
            assert stage.reason in text, name
        assert text.count("why") == len(plan.stages)


def test_plans_hold_nothing_of_the_run_that_made_them(be: Backend) -> None:
    """A plan outlives its tensors; the kinds of stages do not depend on sizes."""
    for name, build in EXPRESSIONS.items():
        small, large = (plan_for(be, build(Tensors(be, *size))) for size in ((3, 4), (300, 500)))
        assert kinds(small) == kinds(large), name
        assert [s.values for s in small.stages] == [s.values for s in large.stages], name


def test_long_shared_parts_are_kept_rather_than_computed_again(be: Backend) -> None:
    """A short one is computed in both stages that need it; a long one is stored by the first."""
    x = be.ones((4, 5))
    for length, kept in ((2, False), (40, True)):
        shared: Any = x
        for _ in range(length):
            shared = F.sin(shared)
        plan = plan_for(be, shared * F.sum(F.sum(shared, 1), 0))
        chain = {v.index for v in plan.values if v.spec.name == "sin"}
        assert any(set(stage.saved) & chain for stage in plan.stages) is kept


def test_kinds_are_what_the_docs_call_them() -> None:
    assert {kind.value for kind in StageKind} == {"elementwise", "reduce", "contraction", "move", "call"}


SIZE_DEPENDENT: dict[str, Any] = {
    "sums of a transpose": lambda be, x, y: x * 0 + be.sum(be.sum((x * 2).T, axis=0)) + be.sum(be.sum(x, axis=0) * 3),
    "a transpose beside": lambda be, x, y: x + be.sum(x) * be.sum((y * x).T * 1.0),
    "a product beside": lambda be, x, y: x + be.sum(x * x) + be.sum(be.dot(x + 1, (y * 2).T) * 1.0),
    "products and sums": lambda be, x, y: be.dot(be.dot(x, (y * 2).T) * 3, x) + be.sum(be.dot((x + 1).T, y)),
    "two sums": lambda be, x, y: x * be.sum(be.sum((x * y).T, axis=0) * 2) + be.sum(be.sum(y, axis=0) * 2),
}


@pytest.mark.engines("numpy", "c")
@pytest.mark.parametrize("name", SIZE_DEPENDENT)
def test_a_plan_of_square_operands_is_not_used_for_others(engine: str, name: str, rng: Any) -> None:
    """Equal sizes make spaces equal that otherwise are not: the key must tell them apart."""
    for be in backend(engine, datatype=np.float64):
        for shape in [(6, 6), (6, 5), (5, 6), (300, 2), (2, 300)]:
            hosts = [rng.integers(-3, 4, shape).astype(np.float64) for _ in range(2)]
            out = be.empty(shape)
            out[:] = SIZE_DEPENDENT[name](be, *map(be.array, hosts))
            wanted = SIZE_DEPENDENT[name](Wide, *[host.view(Wide) for host in hosts])
            np.testing.assert_allclose(out.get(), wanted, rtol=1e-12, err_msg=f"{shape}")


class Wide(np.ndarray):
    """NumPy under the names of a backend."""

    @staticmethod
    def sum(x: Any, axis: Any = None) -> Any:  # type: ignore[override]
        return np.sum(np.asarray(x), axis=axis, keepdims=True)

    @staticmethod
    def dot(x: Any, y: Any) -> Any:  # type: ignore[override]
        return np.asarray(x) @ np.asarray(y)


def test_costs_count_what_moves_once(be: Backend) -> None:
    """A product stored in its target is not a temporary as well; of a table, the rows that are taken count."""
    x, y, out = be.ones((8, 16)), be.ones((16, 4)), be.empty((8, 4))
    assert "cost    768 bytes read, 128 written, 1024 flops" in be.explain(be.dot(x, y), out)
    table, picked = be.ones((1000, 16)), be.empty((3, 16))
    indices = be.array([[5, 7, 5]], dtype=np.int32)
    assert "cost    204 bytes read, 192 written, 0 flops" in be.explain(be.take(table, indices, axis=0), picked)


def test_equal_parts_are_computed_once(be: Backend) -> None:
    """Two nodes that compute the same of the same operands, here the sum in both means, are one value."""
    x, out = be.ones((6, 8)), be.empty((6, 8))
    text = be.explain((x - be.mean(x, axis=1)) / be.sqrt(be.var(x, axis=1) + 1e-5), out)
    assert text.count("= sum(t0, axis=(1,))") == 1
    drawn = be.explain(be.rand() + be.rand(), out)
    assert drawn.count("= rand(") == 2
