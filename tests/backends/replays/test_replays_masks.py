"""Masks of dropout are drawn in repeated steps as in played ones, whatever befalls the generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.initializers import Uniform
from neonlike.kernels.c import fastpath
from neonlike.layers import Affine, Dropout
from neonlike.transforms import Tanh
from tests.backends.replays.replayed_nets import WARM, played, steps  # noqa: F401
from tests.backends.replays.test_replays_layers import Kind
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


class Dropping(Kind):
    """Two masks of different shapes; ``begins``: the first is that of the network's inputs."""

    def __init__(self, be: Backend, begins: bool = False) -> None:
        be.gen_rng(1)
        self.first, self.second = Dropout(0.5), Dropout(0.9)
        init = Uniform(-0.5, 0.5)
        layers = [*Affine(7, init, activation=Tanh()), self.first, *Affine(5, init, activation=Tanh()), self.second]
        if begins:
            layers.insert(0, layers.pop(2))
        super().__init__(be, 9, lambda: layers)


def _seeded(net: Dropping) -> None:
    net.be.gen_rng(5)


def _drawn_from(net: Dropping) -> None:
    net.be.rng.randint(7, size=3)


def _keeps_more(net: Dropping) -> None:
    net.first.keep = 0.75


def _evaluated(net: Dropping) -> None:
    net.infer(2)


@pytest.mark.parametrize("change", [_seeded, _drawn_from, _keeps_more, _evaluated])
def test_changes_count_at_once(fast: Backend, played: Any, change: Callable[[Any], None]) -> None:
    def run(net: Dropping) -> list[Any]:
        found = [steps(net, 2 * WARM, change), net.first.keep_mask.get().tobytes()]
        return [*found, net.be.rng.randint(1 << 30)]

    wanted, net = played(lambda: run(Dropping(fast))), Dropping(fast)
    assert run(net) == wanted and net.hits() > 1


def test_each_step_draws_other_masks(fast: Backend) -> None:
    net, masks = Dropping(fast), []
    for _ in range(2 * WARM):
        net.step()
        masks.append(net.first.keep_mask.get().tobytes() + net.second.keep_mask.get().tobytes())
    assert net.hits() > WARM - 3 and len(set(masks)) == len(masks)


class Failing(np.random.RandomState):
    """Raises an error in one of its draws."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        super().__init__(1)
        self.left, self.error = at, error

    def random_sample(self, size: Any = None) -> Any:
        """Count the draw."""
        self.left -= 1
        if not self.left:
            raise self.error
        return super().random_sample(size)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
@pytest.mark.parametrize(("draw", "begins"), [(0, False), (1, False), (0, True)])
def test_errors_while_masks_are_drawn_are_raised(
    fast: Backend, error: type[BaseException], draw: int, begins: bool
) -> None:
    """From the fourth step on they come from a function that compiled code calls."""
    net = Dropping(fast, begins)
    fast.rng = Failing(2 * 2 * WARM - 1 + draw, error)
    steps(net, 2 * WARM - 1)
    before, hits = [layer.W.get().tobytes() for layer in net.layers if hasattr(layer, "W")], net.hits()
    assert hits > WARM - 3
    with pytest.raises(error):
        net.step()
    assert [layer.W.get().tobytes() for layer in net.layers if hasattr(layer, "W")] == before
    steps(net, 2)
    assert net.hits() > hits
