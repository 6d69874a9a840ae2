"""Passes of networks that must be played each time, because only Python knows their effects."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.replays import Repeated
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.depends import Depends
from neonlike.layers import Activation
from neonlike.transforms import Rectlin, Tanh
from tests.backends.replays.replayed_nets import Net, played, steps  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


class Louder(Activation):
    """A class of the user's, which does more than its base."""

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        outputs = super().fprop(inputs, inference)
        outputs[:] = outputs * 2
        return outputs


class Own(Rectlin):
    """An activation of the user's."""


@pytest.mark.parametrize(
    "more",
    [lambda: Louder(Tanh()), lambda: Activation(Own())],
    ids=["layer", "transform"],
)
def test_what_may_do_anything_is_played(fast: Backend, more: Callable[[], Any]) -> None:
    net = Net(fast, more())
    steps(net, 12)
    assert net.records == [None, None]


def test_a_function_kept_as_an_attribute_may_do_anything(fast: Backend) -> None:
    net = Net(fast)
    net.layers[0].hook = lambda: None
    steps(net, 12)
    assert net.records == [None, None]


def _patched(monkeypatch: pytest.MonkeyPatch, more: Callable[[Any, Any], object], ours: bool = True) -> None:
    """Have activations do ``more`` too; ``ours``: by a method that passes for the library's."""
    original = Activation.fprop

    def fprop(self: Any, inputs: Any, inference: bool = False) -> Any:
        outputs = original(self, inputs, inference)
        more(self, outputs)
        return outputs

    pretended = {**globals(), "__name__": "neonlike.pretended"} if ours else fprop.__globals__
    made = FunctionType(fprop.__code__, pretended, "fprop", fprop.__defaults__, fprop.__closure__)
    monkeypatch.setattr(Activation, "fprop", made)


def test_a_users_function_in_the_place_of_a_method_is_always_called(
    fast: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    _patched(monkeypatch, lambda layer, outputs: called.append(1), ours=False)
    net = Net(fast)
    steps(net, 12)
    assert len(called) == 12 * sum(isinstance(layer, Activation) for layer in net.layers)
    assert net.records == [None, None]


def test_a_users_function_in_the_place_of_the_backends_is_always_called(
    fast: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    original = fast.fprop_pool
    monkeypatch.setattr(fast, "fprop_pool", lambda *args, **options: (called.append(1), original(*args, **options))[1])
    steps(Net(fast), 12)
    assert len(called) == 12


def test_a_pass_that_draws_is_played(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    _patched(monkeypatch, lambda layer, outputs: outputs.__setitem__(slice(None), outputs * (fast.rand() > 0.5)))
    net = Net(fast)
    results = steps(net, 12)
    assert net.records[0] is None
    assert results[-1][0] != results[-2][0]


def test_a_pass_with_work_of_numpy_is_played(fast: Backend, played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fast.ones((1, 1), dtype=np.int32)  # whose product no kernel computes
    _patched(monkeypatch, lambda layer, outputs: outputs.__setitem__(slice(None), outputs * fast.dot(whole, whole)))
    wanted, net = played(lambda: steps(Net(fast), 12)), Net(fast)
    assert steps(net, 12) == wanted
    assert net.records[0] is None and net.records[1] is not None


def test_a_pass_that_counts_is_played(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    _patched(monkeypatch, lambda layer, outputs: setattr(layer, "count", getattr(layer, "count", 0.5) + 1))
    net, recorded = Net(fast), set()
    original = Repeated._keep
    monkeypatch.setattr(Repeated, "_keep", lambda self, record: (recorded.add(self), original(self, record)))
    steps(net, 12)
    assert net.layers[2].count == 12.5 and net.hits() == 0
    assert recorded == {net.model.layers.replays.backward, net.cost.replays.backward, net.optimizer._found}


def test_on_a_device_nothing_is_recorded(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast.tensor_cls, "live_host", False)
    net = Net(fast)
    steps(net, 12)
    assert net.records == [None, None]


class Speaking(Louder):
    """A class of the user's that says on which attributes its passes depend."""

    def __init__(self) -> None:
        super().__init__(Tanh())
        self.factor = 1.0

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        outputs = super().fprop(inputs, inference)
        outputs[:] = outputs * self.factor
        return outputs

    def depends_on(self) -> Depends:
        return Depends()


def test_a_layer_of_the_users_that_says_what_it_depends_on_is_repeated(fast: Backend) -> None:
    layer = Speaking()
    net = Net(fast, layer)
    steps(net, 12)
    hits = net.hits()
    assert hits > 0
    layer.factor = 0.0  # later layers have their biases alone
    outputs = net.model.layers.fprop(net.x).get()
    assert net.hits() == hits
    np.testing.assert_array_equal(outputs, np.repeat(outputs[:, :1], outputs.shape[1], axis=1))
