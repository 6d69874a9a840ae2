"""Variables: the time of their computation, and the values kept for the backward pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.errors import DTypeError
from neonlike.kernels.planning.graph import linearize
from neonlike.optree import tape
from tests.support.numbers import numbers

pytestmark = pytest.mark.engines("numpy")


@contextmanager
def stages_of(be: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The kinds of stages of each plan that is run meanwhile."""
    plans: list[list[str]] = []
    assign_fresh = type(be).assign_fresh

    def noted(self: Any, pairs: Any) -> Any:
        plans.append([stage.kind.value for stage in self.executor.plan(linearize(pairs, True)).stages])
        return assign_fresh(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(type(be), "assign_fresh", noted)
        yield plans


# Laziness -------------------------------------------------------------------------------------------------------------


def test_a_chain_is_one_kernel_forward_and_one_backward(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = ag.param(numbers(16, 8)), ag.param(numbers(1, 8, seed=1))
    with stages_of(be, monkeypatch) as plans:
        v = x
        for _ in range(5):
            v = v * 1.5 + y
        root = ag.tanh(v).sum()
        assert plans == []
        root.backprop()
    assert [len(plan) for plan in plans[:1]] == [1]
    assert len(plans) == 2
    assert plans[1].count("elementwise") <= 1 and "contraction" not in plans[1]
    double = ag.op(lambda a: a * 2, lambda d, z, a: d * 2)
    with stages_of(be, monkeypatch) as plans:
        ag.tanh(double(x + 1) * y).get()
    assert plans == [["elementwise"]]  # ops of one's own fuse
    assert tape.kept == {}
    wanted = np.tanh(7.59375 * x.get() + 13.1875 * y.get()).sum()
    assert root.item() == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_of_primitives_only_what_their_gradients_read_is_kept(be: Any) -> None:
    """Max pooling keeps positions and batch normalisation statistics, but not their values if nothing reads them."""
    images, factor = ag.param(numbers(2, 4, 4, 3)), ag.const(numbers(2, 2, 2, 3, seed=1))
    pooled = ag.max_pool2d(images, 2)
    loss = (pooled * factor).sum()
    value, positions = loss.item(), pooled.size  # a byte each
    assert loss.memory_report().intermediate_bytes == positions + 4
    again = pooled.get()  # computed once more, though its value was not kept
    np.testing.assert_allclose((again * factor.get()).sum(), value, rtol=1e-5)
    loss.backprop()
    wanted = np.where(again.repeat(2, 1).repeat(2, 2) == images.get(), factor.get().repeat(2, 1).repeat(2, 2), 0)
    np.testing.assert_allclose(images.partial_derivative.get(), wanted, rtol=1e-6)

    x, ones, zeros = ag.param(numbers(3, 8)), ag.param(np.ones((3, 1))), ag.param(np.zeros((3, 1)))
    normal = ag.batch_norm(x, ones, zeros)
    loss = (normal * ag.const(numbers(3, 8, seed=2))).sum()
    loss.get()
    assert loss.memory_report().intermediate_bytes == 2 * 3 * 4 + 4
    loss.backprop()
    assert np.abs(x.partial_derivative.get()).max() > 0.1
    loss = (ag.batch_norm(x, ones, zeros) ** 2).sum()  # here the value is read
    loss.get()
    assert loss.memory_report().intermediate_bytes == (3 * 8 + 2 * 3) * 4 + 4


def test_products_are_computed_once_and_cheap_values_not_kept(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w, b, x = ag.param(numbers(5, 6)), ag.param(numbers(1, 6)), ag.const(numbers(4, 5))
    v = ag.param(numbers(6, 2))
    hidden = ag.relu(x @ w + b)
    root = ((hidden @ v) * 2 + 1).sum()
    text = root.explain()
    assert "relu" in text and "will be kept, 96 bytes" in text
    assert text.count("will be kept") == 1  # neither the product, nor the sum, nor what is linear behind it
    with stages_of(be, monkeypatch) as plans:
        root.get()
        assert "kept, 96 bytes" in root.explain()
        assert root.memory_report().intermediate_bytes == 96 + 4
        root.backprop()
    assert sum(plan.count("contraction") for plan in plans[:1]) == 2
    assert sum(plan.count("contraction") for plan in plans[1:]) == 3  # of two products: by w, v, and hidden
    assert "no derivative" in ag.const(1.0).explain()
    lines = ((hidden @ v).reshape(2, 4).T @ w[:2]).explain().splitlines()
    assert [line.split()[0] for line in lines if "will be kept" in line] == ["relu", "dot"]  # and no view of it
    cheap = ((w + 1) * (w - 2) * w).sum()  # whose factors are read, and computed again
    cheap.get()
    assert cheap.memory_report().intermediate_bytes == 4


def test_ops_without_a_gradient_cost_what_is_below_them(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask of a product is kept: to compute it again would take the product."""
    w, y, x = ag.param(numbers(5, 6)), ag.param(numbers(4, 6, seed=1)), ag.const(numbers(4, 5))
    root = ag.op(lambda a, h: be.sum(a * (h > 0)))(y, x @ w)
    assert [line.split()[0] for line in root.explain().splitlines() if "will be kept" in line] == ["gt"]
    with stages_of(be, monkeypatch) as plans:
        root.backprop()
    assert [plan.count("contraction") for plan in plans] == [1, 0]
    assert (y.partial_derivative.get() == (x.get() @ w.get() > 0)).all()


@pytest.mark.parametrize("function", [ag.gelu, ag.silu, ag.hard_swish])
def test_of_activations_of_several_ops_the_operand_is_kept(be: Any, function: Any) -> None:
    w, b, v, x = ag.param(numbers(5, 6)), ag.param(numbers(1, 6)), ag.param(numbers(6, 2)), ag.const(numbers(4, 5))
    root = (function(x @ w + b) @ v).sum()
    root.get()
    assert root.memory_report().intermediate_bytes == 2 * 96 + 4  # and the result, by which v is differentiated


def test_primitives_keep_all_their_results(be64: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of maxima, statistics and denominators are not computed again; gradients are those of ``be.grad``."""
    hosts = [numbers(3, 6, 6, 2), numbers(3, 3, 3, 4) / 3, np.ones((4, 1)), numbers(4, 1)]

    def network(x: Any, w: Any, gamma: Any, beta: Any) -> Any:
        maps = be64.batchnorm(be64.conv(x, w, padding=1), gamma, beta)
        return be64.pool(be64.lrn(be64.relu(maps), 3), 2)

    tensors = [be64.array(host) for host in hosts]
    wanted = be64.grad(lambda *given: be64.sum(be64.square(network(*given))), argnums=(0, 1, 2, 3))(*tensors)
    parameters = [ag.param(host) for host in hosts]
    root = ag.square(ag.op(network)(*parameters).reshape(-1, 2)).sum()
    root.get()
    with stages_of(be64, monkeypatch) as plans:
        root.backprop()
    assert sum(plan.count("call") for plan in plans) == 7  # five gradients, and two further results of one of them
    for parameter, gradient in zip(parameters, wanted):
        np.testing.assert_allclose(parameter.partial_derivative.get(), gradient.get(), rtol=1e-12, atol=1e-12)


def test_only_wanted_derivatives_are_computed(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w, v, x = ag.param(numbers(5, 6)), ag.param(numbers(6, 2)), ag.const(numbers(4, 5))
    root = (ag.tanh(x @ w) @ v).sum()
    root.get()
    for inputs, products in (([w], 2), ([v], 1), ([w, v], 3)):
        with stages_of(be, monkeypatch) as plans:
            ag.grad(root, inputs)
        assert sum(plan.count("contraction") for plan in plans) == products


def test_memory_falls_while_the_pass_goes_on(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [ag.param(numbers(8, 8, seed=n) / 3) for n in range(6)]
    h = ag.const(numbers(4, 8))
    for w in weights:
        h = ag.tanh(h @ w)
    root = h.sum()
    root.get()
    held = []
    assign_fresh = type(be).assign_fresh

    def noted(self: Any, pairs: Any) -> Any:
        held.append(len(tape.kept))
        return assign_fresh(self, pairs)

    monkeypatch.setattr(type(be), "assign_fresh", noted)
    root.backprop()
    assert held[0] == 5 and held[-1] == 0
    assert held == sorted(held, reverse=True)
    assert tape.kept == {}


def test_what_was_kept_is_gone_once_it_is_read(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only from the table of kept values: nothing else holds on to the tensors, nor to gradients on the way."""
    weights = [ag.param(numbers(8, 8, seed=n) / 3) for n in range(6)]
    h = ag.const(numbers(4, 8))
    for w in weights:
        h = ag.tanh(h @ w)
    root = h.sum()
    root.get()
    del h
    tensors = [weakref.ref(tensor) for entry in tape.kept.values() for tensor in entry.tensors]
    alive = []
    assign_fresh = type(be).assign_fresh

    def noted(self: Any, pairs: Any) -> Any:
        alive.append(sum(one() is not None for one in tensors))
        tensors.extend(weakref.ref(target) for target, _ in pairs if target.shape == (4, 8))
        return assign_fresh(self, pairs)

    monkeypatch.setattr(type(be), "assign_fresh", noted)
    root.backprop()
    assert alive[0] == len(weights) + 1 and alive[-1] <= 4, alive
    assert alive[1:] == sorted(alive[1:], reverse=True), alive


def test_values_asked_for_on_the_way_are_not_computed_again(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = ag.param(numbers(5, 5)), ag.const(numbers(4, 5))
    h = x @ w
    first = h.get()
    with stages_of(be, monkeypatch) as plans:
        root = (ag.exp(h) * h).sum()
        root.backprop()
    assert [plan.count("contraction") for plan in plans] == [0, 1]
    assert h.get() is not first and (h.get() == first).all()


# Lifetimes ------------------------------------------------------------------------------------------------------------


def test_scopes_free_what_is_not_kept(be: Any) -> None:
    w = ag.param(numbers(4, 4))
    gc.collect()
    before = ag.memory_report()
    with ag.scope() as outer:
        with ag.scope() as inner:
            hidden = w @ w
            dropped = hidden * 2
            total = inner.keep((hidden * hidden).sum())
            dropped.get()
        with pytest.raises(ag.FreedError, match="freed"):
            dropped.get()
        assert hidden.value is not None  # what is kept depends on it
        total.backprop()
        kept = outer.keep(total)
    assert kept is total and total.item() == pytest.approx(float((hidden_values(w) ** 2).sum()), rel=1e-5)
    for gone in (hidden, dropped):
        with pytest.raises(ag.FreedError):
            _ = gone.shape
    w.zero_grad()
    del hidden, dropped, kept, total
    assert ag.memory_report() == before


def hidden_values(w: Any) -> Any:
    return w.get() @ w.get()


def test_a_scope_as_decorator_keeps_what_is_returned(be: Any) -> None:
    made: list[Any] = []

    @ag.scope()
    def step(x: Any) -> Any:
        made.extend([x * 2, x * 3])
        return {"loss": made[0] * 2, "more": [made[0], 5]}

    x = ag.param([[1.0]])
    out = step(x)
    assert (out["loss"].item(), made[0].item()) == (4.0, 2.0)
    with pytest.raises(ag.FreedError):
        made[1].item()


def test_reports_count_tensors_and_bytes(be: Any) -> None:
    a, b, c = ag.param(numbers(4, 5)), ag.param(numbers(5, 3)), ag.const(numbers(1, 3))
    root = (ag.tanh(a @ b) * c).sum()
    report = root.memory_report()
    assert (report.parameters, report.parameter_bytes, report.constants, report.constant_bytes) == (2, 140, 1, 12)
    assert (report.intermediates, report.derivatives) == (0, 0)
    root.get()
    report = root.memory_report()
    assert (report.intermediates, report.intermediate_bytes) == (2, 4 * 3 * 4 + 4)
    root.backprop()
    assert a.memory_report().derivative_bytes == 80
    assert root.memory_report().parameters == 0  # its graph is gone
    assert "parameters         2            140 bytes" in str(report)


def test_a_checkpoint_keeps_only_its_ends(be: Any) -> None:
    w, v = ag.param(numbers(6, 6) / 3), ag.param(numbers(6, 6, seed=1) / 3)
    x = ag.param(numbers(4, 6, seed=2))

    def block(h: Any) -> Any:
        for _ in range(3):
            h = ag.dropout(ag.tanh(h @ w), 0.1) @ v
        return h

    found = []
    for function in (block, ag.checkpoint(block)):
        be.rng_reset()
        root = (function(x @ w) * function(x)).sum()  # w is inside the block, and before it
        root.get()
        kept = root.memory_report().intermediates
        root.backprop()
        found.append((kept, root.item(), [p.partial_derivative.get() for p in (w, v, x)]))
        ag.zero_grad([w, v, x])
    assert found[1][0] <= 4 < found[0][0]
    assert found[1][1] == found[0][1]
    for mine, other in zip(found[1][2], found[0][2]):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert ag.checkpoint(block)(ag.const(numbers(4, 6))).needs_grad
    with pytest.raises(DTypeError, match="one variable"):
        ag.checkpoint(lambda x: 3)(x)
    with pytest.raises(DTypeError, match="needs a function of variables, got 3"):
        ag.checkpoint(3)  # type: ignore[arg-type]


def test_a_checkpoint_can_be_differentiated_twice(be64: Any) -> None:
    @ag.checkpoint
    def block(x: Any) -> Any:
        return ag.tanh(x @ x.T) * ag.exp(x @ x.T * 0.1)

    def penalty(x: Any) -> Any:
        (slope,) = ag.grad(block(x * 2).sum(), [x], create_graph=True)
        return (slope * slope).sum()

    assert ag.check_gradient(penalty, numbers(3, 4)) < 1e-5
