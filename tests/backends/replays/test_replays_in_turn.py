"""Passes of a network that take turns, on several inputs and in inference between steps, are repeated all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, replays, watched
from neonlike.backends.executor import forget_all
from neonlike.initializers import Constant
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.depends import ANY_VALUE, Dependent, Depends
from neonlike.kernels.run.program import Program
from neonlike.layers import (
    GRU,
    LSTM,
    Affine,
    GeneralizedCost,
    Linear,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
    Reshape,
)
from neonlike.models import Model
from neonlike.transforms import Identity, Logistic, SumSquared, Tanh
from tests.backends.replays.replayed_nets import FEATURES, N, Net, Trained, hits, played, steps  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]

TURNS = 24
"""Steps after which all that takes turns is repeated."""


def inputs(net: Net, count: int, samples: int = N) -> list[Any]:
    """Inputs in tensors of their own."""
    rng = np.random.default_rng(7)
    return [net.be.array(rng.standard_normal((FEATURES, samples))) for _ in range(count)]


def in_turn(net: Net, count: int) -> list[Any]:
    """Steps on several inputs in turn: what they leave."""
    found = []
    for turn in range(TURNS * count):
        net.x = net.batches[turn % count]
        found += [net.step(), net.layers[0].inputs is net.x, [layer.outputs.get().tobytes() for layer in net.layers]]
    return found


@pytest.mark.parametrize("kind", [Net, Trained])
@pytest.mark.parametrize("count", [2, 3, replays.MOST_RECORDS])
def test_steps_on_several_inputs_are_repeated(fast: Backend, played: Any, kind: Any, count: int) -> None:
    def run() -> tuple[list[Any], Net]:
        net = kind(fast)
        net.batches = inputs(net, count)
        return in_turn(net, count), net

    (wanted, _), (found, net) = played(run), run()
    assert found == wanted and all(found[1::3])
    sides = [net.model._both_passes] if kind is Trained else vars(net.model.layers.replays).values()
    sides = [side for side in sides if side is not net.model.layers.replays.inference]
    before = [hits(side) for side in sides]
    again = in_turn(net, count)
    assert [hits(side) - one for side, one in zip(sides, before)] == [TURNS * count] * len(sides)
    assert len(again) == len(found) and again[-3] != found[-3]


def test_steps_with_inference_between_are_repeated(fast: Backend, played: Any) -> None:
    def run() -> tuple[list[Any], Net]:
        net, found = Trained(fast), []
        whole, few = *inputs(net, 1), *inputs(net, 1, 3)
        for turn in range(2 * TURNS):
            x = (whole, few)[turn % 2]
            found += [net.step(), net.model.fprop(x, inference=True).get().tobytes(), net.layers[0].inputs is x]
        return found, net

    (wanted, _), (found, net) = played(run), run()
    assert found == wanted and all(found[2::3])
    assert hits(net.model._both_passes) > TURNS and hits(net.model.layers.replays.inference) > TURNS


def _gradients(net: Any) -> list[bytes]:
    return [layer.dW.get().tobytes() for layer in net.layers if hasattr(layer, "dW")]


def test_a_played_pass_finds_what_a_repeated_one_has_set(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Net(fast), Net(fast)
    for net in (one, other):
        net.batches = inputs(net, 2)
        in_turn(net, 2)
    before = hits(one.model.layers.replays.forward)
    outputs = one.model.layers.fprop(one.batches[0])
    assert hits(one.model.layers.replays.forward) == before + 1 and one.layers[0].inputs is one.batches[0]
    monkeypatch.setattr(replays.Repeated, "again", lambda self, roots: False)
    one.model.layers.bprop(one.cost.get_errors(outputs, one.t))
    wanted = other.model.layers.fprop(other.batches[0])
    other.model.layers.bprop(other.cost.get_errors(wanted, other.t))
    assert outputs.get().tobytes() == wanted.get().tobytes() and _gradients(one) == _gradients(other)


def test_a_backward_pass_of_other_inputs_is_not_repeated(fast: Backend, played: Any) -> None:
    def run() -> list[bytes]:
        net = Net(fast)
        net.batches = inputs(net, 2)
        in_turn(net, 2)
        found = []
        for x in (*net.batches, *inputs(net, 1)):  # errors of the last outputs, gradients by these inputs
            net.layers[0].inputs = x
            net.model.layers.bprop(net.cost.get_errors(net.model.layers.outputs, net.t))
            found += _gradients(net)
        return found

    assert run() == played(run)


def _recurrent(kind: Callable[..., Any], reset: bool) -> list[Any]:
    gates = {} if kind is Recurrent else {"gate_activation": Logistic()}
    return [kind(5, Constant(0.3), activation=Tanh(), reset_cells=reset, **gates)]


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "carried"])
@pytest.mark.parametrize("kind", [Recurrent, LSTM, GRU])
def test_sequences_start_from_the_states_that_they_continue(
    fast: Backend, played: Any, kind: Callable[..., Any], reset: bool
) -> None:
    """States continue while the inputs stay, and start from 0 with others."""

    def run() -> tuple[list[bytes], Model]:
        fast.bsz = N
        layers = [*_recurrent(kind, reset), RecurrentMean(), *Affine(2, Constant(0.25), activation=Identity())]
        model, cost, rng = Model(layers), GeneralizedCost(SumSquared()), np.random.default_rng(5)
        model.initialize((3, 4), cost)
        batches = [fast.array(rng.standard_normal((3, 4 * N))) for _ in range(2)]
        target, found = fast.array(rng.standard_normal((2, N))), []
        for turn in [0, 1] * TURNS + [0, 0, 1, 1] * TURNS:
            y = model.fprop(batches[turn])
            found.append(y.get().tobytes())
            model.bprop(cost.get_errors(y, target))
            found += [layer.dW.get().tobytes() for layer in model.layers_to_optimize]
        return found, model

    (wanted, _), (found, model) = played(run), run()
    assert found == wanted
    assert (hits(model.layers.replays.forward) > TURNS) == reset


@pytest.mark.parametrize("output", [RecurrentLast, RecurrentMean, RecurrentSum])
def test_sequences_of_fewer_samples_come_between(fast: Backend, played: Any, output: Callable[..., Any]) -> None:
    def run() -> tuple[list[Any], Model]:
        fast.bsz, rng = N, np.random.default_rng(5)
        model, cost = Model([*_recurrent(LSTM, reset=True), output()]), GeneralizedCost(SumSquared())
        model.initialize((3, 4), cost)
        x, few = (fast.array(rng.standard_normal((3, 4 * samples))) for samples in (N, 3))
        target, found = fast.array(rng.standard_normal((5, N))), []
        for turn in range(2 * TURNS):
            if turn == TURNS:
                model.set_lengths([1, 2, 3, 4] * (N // 4))
            y = model.fprop(x)
            found.append(y.get().tobytes())
            model.bprop(cost.get_errors(y, target))
            found.append(model.layers.layers[0].dW.get().tobytes())
            if turn < TURNS:
                found.append(model.fprop(few, inference=True).get().tobytes())
        return found, model

    (wanted, _), (found, model) = played(run), run()
    assert found == wanted
    assert all(hits(side) > TURNS / 2 for side in vars(model.layers.replays).values())


def test_reshaped_images_are_repeated(fast: Backend, played: Any) -> None:
    def run() -> tuple[list[list[bytes]], Net]:
        net = Net(fast, Reshape((3, 3)), *Affine(3, Constant(0.2)), Reshape((-1, 1, 1)))
        return steps(net, TURNS), net

    (wanted, _), (found, net) = played(run), run()
    assert found == wanted and net.hits() == 2 * (TURNS - 3)


def test_gradients_that_add_up_take_turns_with_those_that_do_not(fast: Backend, played: Any) -> None:
    """As a discriminator's by generated samples and by data."""

    def run() -> tuple[list[Any], Net]:
        net, found = Net(fast, accumulate=True), []
        made, data = inputs(net, 2)
        for _ in range(2 * TURNS):
            for x, adds in ((made, False), (data, True)):
                net.model.layers.set_acc_on(adds)
                net.model.layers.bprop(net.cost.get_errors(net.model.layers.fprop(x), net.t))
            found.append(_gradients(net))
            net.optimizer.optimize(net.model.layers_to_optimize, 0)
        return found, net

    (wanted, _), (found, net) = played(run), run()
    assert found == wanted
    sides = net.model.layers.replays.forward, net.model.layers.replays.backward
    assert all(hits(side) > 3 * TURNS for side in sides)


def test_the_first_layers_inputs_take_turns(fast: Backend, played: Any) -> None:
    """Views that a layer keeps of its inputs, such as their transpose, need not be the recorded ones."""

    def run() -> tuple[list[Any], Model]:
        fast.bsz, rng = N, np.random.default_rng(2)
        values = rng.standard_normal((5, 6)).astype(np.float32)
        model, cost = Model([*Affine(5, init=values, activation=Tanh())]), GeneralizedCost(SumSquared())
        model.initialize((6,), cost)
        batches, t, found = [fast.array(rng.standard_normal((6, N))) for _ in range(2)], fast.ones((5, N)), []
        for turn in range(2 * TURNS):
            model.bprop(cost.get_errors(model.fprop(batches[turn % 2]), t))
            found.append(model.layers.layers[0].dW.get().tobytes())
        return found, model

    (wanted, _), (found, model) = played(run), run()
    assert found == wanted
    assert all(hits(side) > TURNS for side in (model.layers.replays.forward, model.layers.replays.backward))


# Records ----------------------------------------------------------------------------------------------------------


def test_there_are_no_more_records_than_may_be(fast: Backend) -> None:
    net = Net(fast)
    count = replays.MOST_RECORDS + 1
    net.batches = inputs(net, count)
    in_turn(net, count)
    sides = net.model.layers.replays.forward, net.model.layers.replays.backward
    assert all(len(side._records) <= replays.MOST_RECORDS for side in sides)
    net.batches = net.batches[:1]
    in_turn(net, 1)
    assert all(hits(side) > 0 for side in sides)


def test_a_steady_input_is_repeated_among_new_ones(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    net, made = Net(fast), []
    repeated = net.model.layers.replays.forward
    original = replays.Repeated._make
    monkeypatch.setattr(replays.Repeated, "_make", lambda *args: (made.append(1), original(*args))[1])
    for _ in range(200):
        net.model.layers.fprop(net.x)
        net.model.layers.fprop(*inputs(net, 1))
    assert max(record.guard.program.hits for record in repeated._records) > 180
    assert len(made) <= 9, "ever less often for inputs that are seen once"


def test_a_record_that_is_long_unused_is_given_up_beside_one_that_is_run(fast: Backend) -> None:
    net = Net(fast)
    net.batches = inputs(net, 2)
    in_turn(net, 2)
    repeated, (steady, gone) = net.model.layers.replays.forward, net.batches
    repeated._wait = 1 << 20  # no more are made
    for _ in range(replays.LONG_STALE):
        assert any(record.roots[1] is gone for record in repeated._records)
        net.model.layers.fprop(steady)
        net.model.layers.fprop(*inputs(net, 1))
    assert [record.roots[1] is steady for record in repeated._records] == [True]


def test_a_list_of_roots_may_grow_afterwards(fast: Backend) -> None:
    """A record is of what the list had."""
    repeated, roots, calls = replays.Repeated(), [fast.ones((2, 2))], []
    for _ in range(replays.FIRST_WAIT + 1):
        repeated.run(fast, roots, lambda: calls.append(1))
    assert repeated.again(roots) and repeated.guard is not None
    roots.append(fast.ones((2, 2)))
    assert not repeated.again(roots) and len(calls) == replays.FIRST_WAIT + 1


def test_inputs_that_are_no_longer_used_are_released(fast: Backend) -> None:
    net = Net(fast)
    net.batches = inputs(net, 2)
    in_turn(net, 2)
    gone = weakref.ref(net.batches[1])
    del net.batches[1]
    for _ in range(2 * replays.MOST_RECORDS):
        net.batches = inputs(net, 3)
        in_turn(net, 3)
    forget_all()
    gc.collect()
    assert gone() is None


# Guards -----------------------------------------------------------------------------------------------------------


class Holder(Dependent):
    """An object with an attribute that forward passes set."""

    def __init__(self) -> None:
        self.given: Any = "first"
        self.kept = "kept"

    def depends_on(self) -> Depends:
        return Depends(sets=frozenset(("given", "absent")))


def _guard(extension: Any, before: Any, after: Any, forward: bool) -> Any:
    left = watched.as_left(before, after, (), forward)
    assert left is not None
    return extension.Guard(extension.Program(*Program((), 0, 0)), tuple(left), ANY_VALUE, forward)


def test_a_repeated_pass_sets_what_the_recorded_one_did(extension: Any) -> None:
    holder = Holder()
    before = watched.watches([holder])
    holder.given = value = "recorded"
    guard = _guard(extension, before, watched.watches([holder]), forward=True)
    for other in ("other", value, None, value):
        holder.given = other
        assert guard.holds() and guard.run() and holder.given is value
    holder.given, holder.kept = "other", "changed"
    assert not guard.holds() and not guard.run() and holder.given == "other"
    holder.kept = "kept"
    assert guard.run() and holder.given is value
    del holder.given
    assert not guard.holds() and not guard.run() and not hasattr(holder, "given")


def test_what_a_pass_was_not_seen_to_set_has_to_stay(extension: Any) -> None:
    holder = Holder()
    found = watched.watches([holder])
    guard = _guard(extension, found, found, forward=True)
    assert guard.run()
    holder.given = "other"
    assert not guard.run() and not guard.holds() and holder.given == "other"


def test_a_backward_pass_needs_what_forward_passes_set(extension: Any) -> None:
    holder = Holder()
    found = watched.watches([holder])
    guard = _guard(extension, found, found, forward=False)
    assert guard.run()
    holder.given = "other"
    assert guard.holds() and not guard.run() and holder.given == "other"
    holder.given = "first"
    assert guard.run()
    holder.kept = "changed"
    assert not guard.run() and not guard.holds()


def test_a_pass_that_changes_anything_else_leaves_no_watches() -> None:
    holder = Holder()
    before = watched.watches([holder])
    assert before is not None
    for name, value in (("kept", "changed"), ("more", 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(holder, name, value, raising=False)
            after = watched.watches([holder])
            assert after is not None and watched.as_left(before, after, (), True) is None
    holder.given = "other"
    after = watched.watches([holder])
    assert after is not None
    assert watched.as_left(before, after, (), False) is None and watched.as_left(before, after, (), True) is not None
    assert watched.as_left(before, [], (), True) is None and watched.as_left([], after, (), True) is None


def test_what_an_attribute_had_lasts_until_the_pass_is_over(extension: Any) -> None:
    class Ends:
        """Says when it ends."""

        def __del__(self) -> None:
            ended.append((holder.given, guard.program.hits))

    holder, ended = Holder(), []
    before = watched.watches([holder])
    holder.given = value = "recorded"
    guard = _guard(extension, before, watched.watches([holder]), forward=True)
    holder.given = Ends()
    assert guard.run() and ended == [(value, 1)]


def test_users_layers_say_what_their_passes_set() -> None:
    assert Linear(1, Constant(0)).depends_on().sets == {"inputs"}  # type: ignore[union-attr]
    assert Depends().sets == frozenset() and Recurrent(1, Constant(0), activation=Tanh()).set_forward == frozenset()
