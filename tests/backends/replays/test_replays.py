"""Repeated passes of networks without Python give the results of played ones, also after any change."""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, gen_backend, replays
from neonlike.backends.executor import forget_all
from neonlike.errors import OtherBackend
from neonlike.initializers import Constant
from neonlike.kernels.c import fastpath
from neonlike.kernels.run import trace
from neonlike.kernels.run.program import join
from neonlike.layers import Activation, Affine, Linear, Sequential
from neonlike.layers.core.epilogue import EpilogueLayer
from neonlike.transforms import Rectlin, Tanh
from tests.backends.replays.replayed_nets import FEATURES, WARM, N, Net, played, steps, warm  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


def test_a_repeated_step_gives_the_same(fast: Backend, played: Any) -> None:
    wanted, net = played(lambda: steps(Net(fast), 8)), Net(fast)
    launches = fast.executor.replay.table
    assert steps(net, WARM) == wanted[:WARM]
    calls, assignments, hits = fast.executor.replay.table.calls, launches.hits, net.hits()
    assert steps(net, 3) == wanted[WARM:]
    assert net.hits() == hits + 6, "both passes of each step are repeated"
    assert fast.executor.replay.table.calls == calls, "no primitive was called"
    assert launches.hits == assignments, "nothing was assigned"
    assert [guard.program.kernels for guard in net.records] == [9, 13]


# What a pass depends on -------------------------------------------------------------------------------------------


def _replace_weight(net: Net) -> None:
    layer = net.layers[0]
    layer.W = net.be.array(layer.W.get() * 2)


def _other_layer(net: Net) -> None:
    """In the very lists that the chain has."""
    chain = net.model.layers
    at = next(k for k, layer in enumerate(chain.layers) if isinstance(layer, Activation) and k > 3)
    made = Activation(Tanh())
    made.configure(chain.layers[at - 1])
    made.set_next(chain.layers[at + 1])
    made.deltas = chain.layers[at].deltas
    chain.layers[at].folded_into.folded = ()
    chain.layers[at] = chain._layers[at] = made


def _override_on_object(net: Net) -> None:
    layer = net.layers[-2]
    original = layer.bprop

    def bprop(error: Any) -> Any:
        error[:] = error * 2
        return original(error)

    layer.bprop = bprop


def _bigger_input(net: Net) -> None:
    net.x = net.be.array(net.x.get() * 1.5)


def _other_backend_setting(net: Net) -> None:
    net.be.fprop_pool = lambda *args, **options: _no_pooling(net, args[2])


def _no_pooling(net: Net, outputs: Any) -> None:
    outputs[:] = 0.25


CHANGES: dict[str, Callable[[Net], object]] = {
    "weight": _replace_weight,
    "weight in place": lambda net: net.layers[0].W.fill(0.125),
    "number": lambda net: setattr(net.layers[1], "eps", 0.5),
    "object below a layer": lambda net: setattr(net.layers[7].transform, "slope", 0.75),
    "list": _other_layer,
    "method of an object": _override_on_object,
    "method of the backend": _other_backend_setting,
    "input": _bigger_input,
    "input in place": lambda net: net.x.fill(0.5),
    "fewer threads": lambda net: setattr(net.be, "num_threads", 1),
    "bench mode": lambda net: setattr(net.be, "bench", True),
    "plans forgotten": lambda net: forget_all(),
    "cleaned up": lambda net: net.be.cleanup_backend(),
    "learning rate": lambda net: setattr(net.optimizer, "learning_rate", 0.5),
    "inference": lambda net: net.model.fprop(net.be.array(np.ones((FEATURES, 3))), inference=True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(fast: Backend, played: Any, name: str) -> None:
    threads = fast.num_threads
    try:
        wanted = played(steps, Net(fast), WARM, CHANGES[name])
        fast.num_threads, fast.bench = threads, None
        vars(fast).pop("fprop_pool", None)
        net = Net(fast)
        found = steps(net, WARM, CHANGES[name])
    finally:
        fast.num_threads, fast.bench = None, None
    assert found == wanted
    assert found[-1] != steps(Net(fast), WARM + WARM)[-1] or name in SAME


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("learning rate", "inference")])
def test_a_change_is_seen_in_inference(fast: Backend, played: Any, name: str) -> None:
    threads = fast.num_threads

    def outputs(net: Net) -> list[bytes]:
        return [net.model.fprop(net.x, inference=True).get().tobytes() for _ in range(WARM)]

    def run() -> list[list[bytes]]:
        fast.num_threads, fast.bench = threads, None
        vars(fast).pop("fprop_pool", None)
        net = Net(fast)
        found = [outputs(net)]
        CHANGES[name](net)
        found.append(outputs(net))
        net.step()
        return [*found, outputs(net)]

    try:
        wanted, found = played(run), run()
    finally:
        fast.num_threads, fast.bench = None, None
    assert found == wanted
    assert (found[1] != found[0]) == (name not in (*SAME, "method of an object"))


def test_inference_is_repeated_whatever_the_number_of_samples(fast: Backend, played: Any) -> None:
    net = Net(fast)
    few = net.be.array(net.x.get()[:, :3])
    played(net.model.fprop, net.x, True)
    wanted = [net.model.fprop(x, inference=True).get() for x in (net.x, few)]
    for x, outputs in zip((net.x, few), wanted):
        for _ in range(3 * WARM):
            np.testing.assert_array_equal(net.model.fprop(x, inference=True).get(), outputs)
        assert net.model.layers.replays.inference.guard.program.hits >= 2
    assert [guard.program.hits for guard in net.records if guard is not None] == [], "training is another pass"


SAME = ("fewer threads", "bench mode", "plans forgotten", "cleaned up", "inference")
"""Changes that results do not depend on."""


@pytest.mark.parametrize(("owner", "name"), [(Linear, "fprop"), (EpilogueLayer, "epilogue"), (Rectlin, "__call__")])
def test_a_method_that_is_replaced_is_called(
    fast: Backend, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    net, called = warm(fast), []
    original = getattr(owner, name)

    def method(self: Any, *args: Any, **options: Any) -> Any:
        called.append(name)
        return original(self, *args, **options)

    monkeypatch.setattr(owner, name, method)
    net.step()
    assert called


def test_the_methods_of_the_backends_class_are_called(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    net, called = warm(fast), []
    monkeypatch.setattr(type(fast), "fprop_pool", lambda *args, **options: called.append(args))
    net.step()
    assert len(called) == 1


@pytest.mark.parametrize("name", ["fewer threads", "bench mode", "plans forgotten", "cleaned up"])
def test_what_was_forgotten_is_not_run(fast: Backend, name: str) -> None:
    net = warm(fast)
    records = net.records
    assert all(record.run() for record in records)
    try:
        CHANGES[name](net)
        assert not any(record.run() for record in records)
    finally:
        fast.num_threads, fast.bench = None, None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_starts_no_threads(fast: Backend) -> None:
    record = warm(fast).records[0]
    assert record.run()
    child = os.fork()
    if child == 0:
        os._exit(1 if record.run() else 0)
    assert os.waitpid(child, 0)[1] == 0


def test_another_backend_is_current(fast: Backend) -> None:
    net = warm(fast)
    hits = net.hits()
    gen_backend("cpu", batch_size=N)
    with pytest.raises(OtherBackend):
        net.model.layers.fprop(net.x)
    assert net.hits() == hits


def test_fewer_samples_than_a_batch(fast: Backend, played: Any) -> None:
    def run() -> list[bytes]:
        chain = Sequential(Affine(12, init=Constant(0.5), bias=Constant(0.25)))
        chain.configure(15)
        chain.allocate()
        x = fast.array(np.ones((15, fast.bsz)))
        results = [chain.fprop(x).get().tobytes() for _ in range(WARM)]
        chain.set_batch_size(2)
        x.fill(3)
        return [*results, chain.fprop(x).get().tobytes(), chain.replays.forward.guard]

    *found, record = run()
    assert record.program.hits == WARM - 3
    assert found == played(run)[:-1]


def test_gradients_add_up(fast: Backend, played: Any) -> None:
    def run() -> list[bytes]:
        net = Net(fast, accumulate=True)
        steps(net, WARM)
        net.model.layers.set_acc_on(True)
        return steps(net, 3)[-1]

    assert run() == played(run)


def test_a_clock_around_each_layer(fast: Backend) -> None:
    net, seen = warm(fast), []
    for layer in net.layers:
        original = layer.fprop
        layer.fprop = lambda *args, original=original: (seen.append(1), original(*args))[1]
    net.step()
    assert len(seen) == len(net.layers)


# When a record is made and given up -------------------------------------------------------------------------------


def test_a_record_is_given_up_and_made_again(fast: Backend) -> None:
    net = warm(fast)
    first = net.records[0]
    repeated = net.model.layers.replays.forward
    repeated._wait = 8
    net.layers[0].W = fast.array(net.layers[0].W.get())
    steps(net, replays.STALE - 1)
    assert net.records[0] is first
    steps(net, 1)
    assert net.records[0] is None and repeated.result is None
    steps(net, 8)
    assert net.records[0] is not None and net.records[0].program.hits > 0


def test_a_record_that_is_of_no_use_any_more_makes_room_for_the_next(fast: Backend) -> None:
    net = warm(fast)
    repeated = net.model.layers.replays.forward
    net.layers[0].W = fast.array(net.layers[0].W.get())
    repeated._wait = replays.STALE - 1
    steps(net, replays.STALE + 1)
    assert len(repeated._records) == 1 and net.records[0].program.hits == 1
    steps(net, WARM)
    sides = repeated, net.model.layers.replays.backward, net.cost.replays.backward, net.optimizer._found
    assert all(record.guard.holds() for side in sides for record in side._records)


def test_batches_that_are_new_tensors_are_recorded_less_and_less_often(fast: Backend) -> None:
    net, made = warm(fast), []
    repeated = net.model.layers.replays.forward
    original = type(repeated)._make
    net.x = fast.array(net.x.get())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replays.Repeated, "_make", lambda *args: (made.append(1), original(*args))[1])
        for _ in range(60):
            net.x = fast.array(np.ones((FEATURES, N)))
            net.model.layers.fprop(net.x)
    assert 1 <= len(made) <= 4


def test_a_copy_has_no_records(fast: Backend) -> None:
    net = warm(fast)
    other = copy.deepcopy(net.model.layers)
    assert other.replays.forward.guard is None
    before = net.layers[0].outputs.get()
    other.fprop(fast.array(np.zeros((FEATURES, N))))
    np.testing.assert_array_equal(net.layers[0].outputs.get(), before)


def test_a_shallow_copy_runs_its_own_layers(fast: Backend) -> None:
    net, other = warm(fast), Net(fast)
    copy.copy(net.model.layers)  # which changes the class, the first time
    steps(net, WARM)
    shallow = copy.copy(net.model.layers)
    shallow.layers, shallow._layers = other.model.layers.layers, other.model.layers._layers
    hits = net.hits()
    assert shallow.fprop(net.x) is other.layers[-1].outputs
    assert net.hits() == hits
    net.step()
    assert net.hits() == hits + 2


def test_a_network_that_nobody_has_is_let_go(fast: Backend) -> None:
    net = warm(fast)
    weight, guard = weakref.ref(net.layers[0].W), net.records[0]
    assert guard.program.kernels
    del net, guard
    gc.collect()
    assert weight() is None


def test_ctrl_c_ends_a_long_pass(fast: Backend) -> None:
    a, b = fast.array(np.ones((512, 512))), fast.array(np.ones((512, 512)))
    out = fast.empty((512, 512))
    for _ in range(3):
        fast.compound_dot(a, b, out)
    with trace.tracing(fast) as made:
        fast.compound_dot(a, b, out)
    many = fast.executor.replay.guard(join(made.runs * 4000, made.held), ())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            many.run()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert many.program.hits == 0
