"""Repeated steps of networks that begin with a lookup table: other words each time, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError
from neonlike.initializers import Uniform
from neonlike.kernels.c import fastpath
from neonlike.layers import LSTM, Embedding, LookupTable, RecurrentSum
from neonlike.transforms import Logistic, Tanh
from tests.backends.replays.replayed_nets import WARM, N, played, steps  # noqa: F401
from tests.backends.replays.test_replays_layers import Kind
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]
WORDS, STEPS = 11, 5

TABLES: dict[str, Callable[[], Any]] = {
    "lookup": lambda: LookupTable(WORDS, 4, Uniform(-0.5, 0.5)),
    "padded": lambda: LookupTable(WORDS, 4, Uniform(-0.5, 0.5), pad_idx=0),
    "kept": lambda: LookupTable(WORDS, 4, Uniform(-0.5, 0.5), update=False),
    "embedding": lambda: Embedding(WORDS, 4, Uniform(-0.5, 0.5), padding_idx=2),
}


class Reading(Kind):
    """A table, a recurrent layer over the vectors of words, and their sum."""

    def __init__(self, be: Backend, table: str = "lookup") -> None:
        be.gen_rng(1)
        layers = [TABLES[table](), LSTM(4, Uniform(-0.5, 0.5), activation=Tanh(), gate_activation=Logistic())]
        super().__init__(be, (STEPS, 1), lambda: [*layers, RecurrentSum()])
        self.rng = np.random.default_rng(2)
        self.x = be.zeros((STEPS, N), dtype=np.int32)

    def step(self) -> list[bytes]:
        """A step on new words."""
        self.x.set(self.rng.integers(0, WORDS, (STEPS, N)))
        return super().step()


@pytest.mark.parametrize("table", TABLES)
def test_each_step_reads_its_own_words(fast: Backend, played: Any, table: str) -> None:
    def run(net: Reading) -> list[Any]:
        return [steps(net, 2 * WARM), net.infer(WARM), steps(net, WARM), net.infer(1)]

    wanted, net = played(lambda: run(Reading(fast, table))), Reading(fast, table)
    assert run(net) == wanted and net.hits() > WARM and net.inferences() >= WARM - 3


@pytest.mark.parametrize("word", [WORDS, -WORDS - 1, -1])
def test_wrong_words_are_told_as_in_the_first_step(fast: Backend, played: Any, word: int) -> None:
    """A word below 0 counts from the end forward; backward there is no such row."""

    class Wrong(Reading):
        wrong = False

        def step(self) -> list[bytes]:
            self.x.set(self.rng.integers(0, WORDS, (STEPS, N)))
            if self.wrong:
                self.x[2, 3] = word
            return super(Reading, self).step()

    def run(net: Wrong) -> list[Any]:
        found: list[Any] = [net.step() for _ in range(2 * WARM)]
        net.wrong = True
        with pytest.raises(IndexRangeError) as raised:
            net.step()
        net.wrong = False
        return [*found, str(raised.value), net.step()]

    wanted, net = played(lambda: run(Wrong(fast))), Wrong(fast)
    found = run(net)
    assert net.hits() > WARM and found == wanted and str(word) in found[-2]
