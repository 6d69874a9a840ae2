"""Whole steps that are repeated: both passes and the cost by one record, and optimizers that find nothing anew."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.initializers import Constant
from neonlike.kernels.c import fastpath
from neonlike.layers import (
    GeneralizedCost,
    GeneralizedCostMask,
    Linear,
    Multicost,
)
from neonlike.models import Model
from neonlike.optimizers import (
    Adam,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
    StepSchedule,
)  # fmt: skip
from neonlike.transforms import CrossEntropyMulti, SumSquared
from tests.backends.replays.replayed_nets import CLASSES, FEATURES, WARM, N, Trained, other_weight, played, steps  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


def test_a_repeated_step_is_three_calls(fast: Backend, played: Any) -> None:
    wanted, net = played(lambda: steps(Trained(fast), 8)), Trained(fast)
    assert steps(net, WARM) == wanted[:WARM]
    calls, assignments, hits = fast.executor.replay.table.calls, fast.executor.replay.table.hits, net.hits()
    found = net.optimizer._found.guard.program.hits
    assert steps(net, 3) == wanted[WARM:]
    assert net.hits() == hits + 3 and net.optimizer._found.guard.program.hits == found + 3
    assert (fast.executor.replay.table.calls, fast.executor.replay.table.hits) == (calls, assignments)
    assert net.model._both_passes.guard.program.kernels == 9 + 13 + 3
    assert net.records == [None, None], "what is in the record of the step has none of its own"


# What a step depends on -------------------------------------------------------------------------------------------


class Halved(CrossEntropyMulti):
    """A cost function of the user's."""

    def bprop(self, y: Any, t: Any) -> Any:
        return 0.5 * super().bprop(y, t)


def _other_cost(net: Trained) -> None:
    net.cost = GeneralizedCost(net.cost.costfunc)
    net.cost.initialize(net.model.layers)
    net.take(net.optimizer)


def _initialize_again(net: Trained) -> None:
    net.cost.initialize(net.model.layers)


def _scaled_gradients(net: Trained) -> None:
    """By another function in the place of the cost's own."""
    original = net.cost.slope
    net.cost.slope = lambda inputs, targets: 2 * original(inputs, targets)


def _other_state(net: Trained) -> None:
    net.layers[0].states[0] = net.be.array(net.layers[0].states[0].get() * 0.5)


def _train_fewer(net: Trained) -> None:
    """In the same list."""
    net.model.layers.layers[0].init = type("Identity", (), {"name": "Identity"})()


CHANGES: dict[str, Callable[[Trained], object]] = {
    "targets": lambda net: setattr(net, "t", net.be.array(np.roll(net.t.get(), 1, axis=0))),
    "targets in place": lambda net: net.t.set(np.roll(net.t.get(), 1, axis=0)),
    "inputs": lambda net: setattr(net, "x", net.be.array(net.x.get() * 1.5)),
    "scale of the cost": lambda net: setattr(net.cost.costfunc, "scale", 0.5),
    "cost function": lambda net: setattr(net.cost, "costfunc", SumSquared()),
    "cost function of the user's": lambda net: setattr(net.cost, "costfunc", Halved()),
    "cost": _other_cost,
    "buffers of the cost": _initialize_again,
    "method of the cost": _scaled_gradients,
    "weight": other_weight,
    "state": _other_state,
    "number of layers": _train_fewer,
    "learning rate": lambda net: setattr(net.optimizer, "learning_rate", 0.5),
    "momentum": lambda net: setattr(net.optimizer, "momentum_coef", 0.5),
    "no momentum": lambda net: setattr(net.optimizer, "momentum_coef", 0.0),
    "Nesterov": lambda net: setattr(net.optimizer, "nesterov", True),
    "weight decay": lambda net: setattr(net.optimizer, "wdecay", 0.25),
    "clipping": lambda net: setattr(net.optimizer, "gradient_clip_norm", 0.01),
    "clipping by value": lambda net: setattr(net.optimizer, "gradient_clip_value", 0.001),
    "batch size": lambda net: setattr(net.be, "bsz", 4 * N),
    "epoch": lambda net: setattr(net.model, "epoch_index", 3),
    "optimizer": lambda net: net.take(RMSProp()),
    "scaled loss": lambda net: net.take(LossScaling(net.optimizer)),
    "several optimizers": lambda net: net.take(MultiOptimizer({"default": net.optimizer, "Bias": Adam()})),
    "plans forgotten": lambda net: net.be.cleanup_backend(),
    "bench mode": lambda net: setattr(net.be, "bench", True),
    "inference": lambda net: net.model.fprop(net.be.array(np.ones((FEATURES, 3))), inference=True),
    "cost of another batch": lambda net: net.cost.get_cost(net.be.ones((CLASSES, 3)), net.be.ones((CLASSES, 3))),
}
SAME = ("buffers of the cost", "cost", "plans forgotten", "bench mode", "inference", "epoch", "cost of another batch")
"""Changes that results do not depend on."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(fast: Backend, played: Any, name: str) -> None:
    try:
        wanted = played(steps, Trained(fast), WARM, CHANGES[name])
        fast.bsz, fast.bench = N, None
        net = Trained(fast)
        found = steps(net, WARM, CHANGES[name])
    finally:
        fast.bsz, fast.bench = N, None
    assert found == wanted
    assert found[-1] != steps(Trained(fast), WARM + WARM)[-1] or name in SAME


def test_a_schedule_is_asked_in_each_step(fast: Backend, played: Any) -> None:
    def run() -> list[list[bytes]]:
        net, found = Trained(fast, GradientDescentMomentum(0.1, 0.9, schedule=StepSchedule([2, 8], [0.05, 0.01]))), []
        for epoch in range(10):
            net.model.epoch_index = epoch
            found.append(net.step())
        return found

    assert run() == played(run)


@pytest.mark.parametrize("optimizer", [Adam, lambda: Adam(gradient_clip_norm=0.1), lambda: LossScaling(Adam())])
def test_steps_are_counted(fast: Backend, played: Any, optimizer: Callable[[], Any]) -> None:
    wanted, net = played(lambda: steps(Trained(fast, optimizer()), 9)), Trained(fast, optimizer())
    assert steps(net, 9) == wanted
    inner = getattr(net.optimizer, "optimizer", net.optimizer)
    assert inner.t == 9 and inner._found.guard.program.hits == 9 - 3
    for other in (copy.copy(inner), copy.deepcopy(inner), pickle.loads(pickle.dumps(inner))):
        assert other.t == 9 and other._found.guard is None
        other.t += 1
    assert inner.t == 9


def test_an_optimizer_without_a_prepared_step(fast: Backend, played: Any) -> None:
    wanted, net = played(lambda: steps(Trained(fast, ShiftAdaMax()), WARM)), Trained(fast, ShiftAdaMax())
    assert steps(net, WARM) == wanted
    assert net.optimizer._found.guard.program.hits == WARM - 3


def test_a_number_in_an_array_may_be_written(fast: Backend, played: Any) -> None:
    def run() -> list[list[bytes]]:
        decay = np.array(0.0)
        net = Trained(fast, GradientDescentMomentum(0.1, 0.9, wdecay=decay))
        return steps(net, WARM, lambda net: decay.fill(0.5))

    assert run() == played(run)


@pytest.mark.parametrize("kind", [Adam, GradientDescentMomentum])
def test_a_users_optimizer_is_asked_each_time(fast: Backend, kind: type) -> None:
    asked: list[int] = []

    class Own(kind):  # type: ignore[misc, valid-type]
        """An optimizer of the user's."""

        def _apply(self, param_list: Any, numbers: Any) -> None:
            asked.append(len(param_list))
            super()._apply(param_list, numbers)

    net = Trained(fast, Own(0.1, 0.9) if kind is GradientDescentMomentum else Own())
    steps(net, 8)
    assert asked == [len(asked) and asked[0]] * 8 and net.optimizer._found.guard is None


def _steeper(original: Callable[..., Any]) -> Callable[..., Any]:
    """Passes twice the error to the network."""

    def bprop(*given: Any) -> Any:
        given[-1][:] = 2 * given[-1]
        return original(*given)

    return bprop


def _counting(original: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def fprop(*given: Any, **options: Any) -> Any:
        calls.append(given)
        return original(*given, **options)

    return fprop


@pytest.mark.parametrize("where", ["class", "object"])
def test_passes_of_the_users_are_called_each_time(fast: Backend, where: str) -> None:
    """A bprop of twice the gradient trains as twice the rate does."""
    wanted = steps(Trained(fast), WARM, lambda net: setattr(net.optimizer, "learning_rate", 0.2))
    calls: list[Any] = []

    def change(net: Trained) -> None:
        model = net.model
        if where == "class":
            own = {"bprop": _steeper(Model.bprop), "fprop": _counting(Model.fprop, calls)}
            model.__class__ = type("Own", (Model,), own)
        else:
            vars(model).update(bprop=_steeper(model.bprop), fprop=_counting(model.fprop, calls))

    found = steps(Trained(fast), WARM, change)
    errors = 3  # the place of the cost's errors, which that bprop doubles
    assert [one[:errors] + one[errors + 1 :] for one in found] == [one[:errors] + one[errors + 1 :] for one in wanted]
    assert len(calls) == WARM


@pytest.mark.parametrize("where", ["class", "instance"])
def test_an_optimize_of_the_users_is_called_each_time(fast: Backend, played: Any, where: str) -> None:
    """Also of a class that says what its steps depend on: these are repeated, and what is around them is called."""
    calls: list[int] = []

    class Counting(GradientDescentMomentum):
        """An optimizer of the user's."""

        def depends_on(self) -> Any:
            return super().depends_on()

        def optimize(self, layer_list: Any, epoch: int) -> None:
            calls.append(epoch)
            super().optimize(layer_list, epoch)

    def made() -> GradientDescentMomentum:
        if where == "class":
            return Counting(0.1, 0.9)
        optimizer = GradientDescentMomentum(0.1, 0.9)
        original = optimizer.optimize
        optimizer.optimize = lambda *given: (calls.append(given[1]), original(*given))[1]  # type: ignore[method-assign]
        return optimizer

    net = Trained(fast, made())
    assert steps(net, 8) == played(lambda: steps(Trained(fast, made()), 8))
    assert len(calls) == 16
    if where == "class":
        assert net.optimizer._found.guard.program.hits > 2


@pytest.mark.parametrize(
    ("owner", "name"),
    [(GeneralizedCost, "get_cost"), (GeneralizedCost, "get_errors"), (CrossEntropyMulti, "__call__"),
     (GradientDescentMomentum, "_numbers"), (Linear, "get_params"), (Linear, "bprop")],
)  # fmt: skip
def test_a_method_that_is_replaced_is_called(
    fast: Backend, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    net, called = Trained(fast), []
    steps(net, WARM)
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **options: (called.append(1), original(*args, **options))[1])
    net.step()
    assert called


def test_parameters_that_a_pass_replaces_are_updated(fast: Backend, played: Any) -> None:
    def run() -> list[list[bytes]]:
        net = Trained(fast)

        class Replacing(CrossEntropyMulti):
            """A cost function of the user's, by which the network gets another weight."""

            turn = 0

            def __call__(self, y: Any, t: Any) -> Any:
                self.turn += 1
                if self.turn == 8:
                    other_weight(net)
                return super().__call__(y, t)

        net.cost.costfunc = Replacing()
        found = steps(net, 10)
        assert net.model._both_passes.guard is None
        return found

    assert run() == played(run)


def test_a_list_of_layers_that_grows_is_another(fast: Backend, played: Any) -> None:
    def run() -> list[bytes]:
        net = Trained(fast)
        layers = net.model.layers_to_optimize[:-1]
        for turn in range(2 * WARM):
            net.model._train_batch(net.x, net.t, layers)
            if turn == WARM:
                layers.append(net.model.layers_to_optimize[-1])
        return [layer.W.get().tobytes() for layer in net.layers if hasattr(layer, "W")]

    assert run() == played(run)


def test_an_error_in_a_step_is_raised_and_the_next_goes_on(fast: Backend, played: Any) -> None:
    def run() -> list[Any]:
        net = Trained(fast)
        found: list[Any] = steps(net, WARM)
        kept, net.t = net.t, fast.ones((CLASSES + 1, N))
        with pytest.raises(ValueError, match="targets"):
            net.step()
        net.t = kept
        return found + steps(net, 4)

    assert run() == played(run)


def test_a_copy_of_a_model_has_no_records(fast: Backend) -> None:
    net = Trained(fast)
    steps(net, WARM)
    other = copy.deepcopy(net.model)
    assert net.model._both_passes.guard is not None and other._both_passes.guard is None
    assert other.cost.cost is not net.cost.cost and other.cost.cost == net.cost.cost
    assert copy.copy(net.cost).cost is net.cost.cost


# Costs alone --------------------------------------------------------------------------------------------------------


def test_costs_are_repeated(fast: Backend, played: Any) -> None:
    rng = np.random.default_rng(4)
    y, t, mask = (fast.array(rng.random((CLASSES, N))) for _ in range(3))

    def run() -> tuple[list[Any], list[Any]]:
        fast.bsz = N
        plain, masked = GeneralizedCost(SumSquared()), GeneralizedCostMask(SumSquared(), weights=0.5)
        several = Multicost([GeneralizedCost(SumSquared()), GeneralizedCost(CrossEntropyMulti())], weights=[1, 0.25])
        last, pair, found = Linear(CLASSES, Constant(0)).configure(5), (t, mask), []
        for cost in (plain, masked, several):
            cost.initialize([last, last] if cost is several else last)
        for turn in range(WARM + 2):
            y.fill(0.25 * turn)
            for cost, outputs, targets in ((plain, y, t), (masked, y, pair), (several, [y, y], t)):
                found.append(np.asarray(cost.get_cost(outputs, targets)).tolist())
                errors = cost.get_errors(outputs, targets)
                found += [error.get().tolist() for error in (errors if isinstance(errors, list) else [errors])]
        costs = [plain, masked, *several.costs]
        return found, [side.guard for cost in costs for side in (cost.replays.forward, cost.replays.backward)]

    found, records = run()
    assert [guard.program.hits for guard in records] == [WARM + 2 - 3] * 8
    assert found == played(run)[0]


def test_a_cost_that_is_kept_stays(fast: Backend) -> None:
    fast.bsz, cost, t = N, GeneralizedCost(SumSquared()), fast.zeros((CLASSES, N))
    cost.initialize(Linear(CLASSES, Constant(0)).configure(5))
    kept = [cost.get_cost(fast.ones((CLASSES, N)) if turn == 9 else t, t) for turn in range(10)]
    assert [one.item() for one in kept] == [0.0] * 9 + [0.5 * CLASSES] and cost.cost is kept[-1]


def test_a_shallow_copy_of_a_cost_computes_its_own(fast: Backend) -> None:
    fast.bsz, cost = N, GeneralizedCost(SumSquared())
    y, t = fast.ones((CLASSES, N)), fast.zeros((CLASSES, N))
    cost.initialize(Linear(CLASSES, Constant(0)).configure(5))
    for _ in range(WARM):
        cost.get_errors(y, t)
    other = copy.copy(cost)
    other.initialize(cost.prev_layer)
    cost.deltas.fill(7)
    assert other.get_errors(y, t) is other.deltas
    assert other.deltas.get().max() == 1 and cost.deltas.get().max() == 7


def test_what_is_no_group_of_parameters_is_refused(fast: Backend) -> None:
    with pytest.raises(DTypeError, match=r"update_group: got list .*; expected what known_group returned"):
        GradientDescentMomentum(0.1, 0.9).update_group([], 0)  # type: ignore[arg-type]
