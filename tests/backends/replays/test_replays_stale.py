"""Changes that a repeated pass could miss: numbers in arrays, the dialect, costs of users, buffers of a neighbour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.depends import Depends
from neonlike.layers import BatchNorm, GeneralizedCost, Linear, Sequential
from neonlike.optree import dialect
from neonlike.transforms import CrossEntropyMulti, SumSquared
from tests.backends.replays.replayed_nets import WARM, N, Net, Trained, played, steps  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


WRITTEN: dict[str, Callable[[Net], tuple[Any, str]]] = {
    "a layer's": lambda net: (next(x for x in net.layers if type(x).__name__ == "BatchNorm"), "eps"),
    "an activation's": lambda net: (net.layers[-4].transform, "slope"),
    "a cost function's": lambda net: (net.cost.costfunc, "scale"),
}
"""Objects below a network that a number is taken from in each pass, with its attribute."""


@pytest.mark.parametrize("name", WRITTEN)
def test_a_number_in_an_array_may_be_written_in_place(
    fast: Backend, played: Callable[..., Any], name: str
) -> None:
    def run() -> list[list[bytes]]:
        net = Net(fast)
        holder, attribute = WRITTEN[name](net)
        number = np.array(getattr(holder, attribute), np.float32)
        setattr(holder, attribute, number)
        return steps(net, 2 * WARM, lambda net: number.fill(0.5))

    assert run() == played(run)


def test_passes_are_played_anew_in_another_dialect(fast: Backend, played: Callable[..., Any]) -> None:
    def run() -> list[list[bytes]]:
        net = Trained(fast)
        net.cost.costfunc = SumSquared()
        before = steps(net, 2 * WARM)
        with dialect.neon_dialect():
            return before + steps(net, 2 * WARM)

    assert run() == played(run)


def test_the_cost_of_a_users_class_is_what_it_computes(fast: Backend) -> None:
    class Doubled(GeneralizedCost):
        """A cost with a value of its own."""

        def depends_on(self) -> Depends | None:
            return GeneralizedCost.depends_on(self)

        def get_cost(self, inputs: Any, targets: Any) -> np.ndarray:
            return 2 * super().get_cost(inputs, targets)

    net, plain = Trained(fast), Trained(fast)
    net.cost = net.model.cost = Doubled(CrossEntropyMulti())
    net.cost.initialize(net.model.layers)
    for _ in range(3 * WARM):
        value = net.model._train_batch(net.x, net.t, net.model.layers_to_optimize)
        expected = plain.model._train_batch(plain.x, plain.t, plain.model.layers_to_optimize)
        np.testing.assert_array_equal(value, 2 * expected)


def test_a_batch_norm_uses_the_sums_that_its_neighbour_has_now(fast: Backend, played: Callable[..., Any]) -> None:
    def run() -> list[bytes]:
        be = fast
        be.bsz = N
        rng = np.random.default_rng(3)
        first = Linear(5, init=rng.standard_normal((5, 4)).astype(np.float32))
        norm = BatchNorm()
        for layer, given in ((first, 4), (norm, first)):
            layer.configure(given)
        first.batch_sum_shape = (5, 1)
        for layer in (first, norm):
            layer.allocate()
        chain = Sequential([norm])
        x = be.array(rng.standard_normal((5, N)))
        found = []
        for sums in (np.zeros((5, 1)), np.ones((5, 1))):
            first.batch_sum = be.array(sums)
            for _ in range(2 * WARM):
                found.append(chain.fprop(x).get().tobytes())
        return found

    assert run() == played(run)


def test_a_rate_that_changes_with_every_step_costs_no_repetition(fast: Backend, played: Callable[..., Any]) -> None:
    def run() -> tuple[list[list[bytes]], Net]:
        net, found = Trained(fast), []
        for turn in range(3 * WARM):
            net.optimizer.learning_rate = 0.1 / (turn + 1)
            found.append(net.step())
        return found, net

    wanted, _ = played(run)
    found, net = run()
    assert found == wanted and net.optimizer._found.guard.program.hits == 3 * WARM - 3


def test_an_attribute_that_is_free_is_never_looked_into() -> None:
    assert Depends().looks_into("x") and not Depends(closed=frozenset("x")).looks_into("x")
    assert Depends(frozenset("x"), frozenset("x")).looks_into("x") and not Depends(frozenset("x")).looks_into("y")
    for opened in (None, frozenset("x")):
        assert not Depends(opened, free=frozenset("x")).looks_into("x")


def test_the_reason_why_a_pass_is_played_is_logged(fast: Backend, caplog: pytest.LogCaptureFixture) -> None:
    net = Net(fast)
    net.layers[-4].transform.slope = np.array(0.25)
    with caplog.at_level("DEBUG", logger="neon"):
        steps(net, WARM)
    assert "object of numpy.ndarray" in caplog.text
