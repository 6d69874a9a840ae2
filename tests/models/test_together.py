"""Training by several ranks, seen from one of them, whose messages go nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.initializers import Constant
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum, LossScaling, MultiOptimizer, Optimizer
from neonlike.transforms import SumSquared
from tests.support.ranks import OneOf

pytestmark = [
    pytest.mark.engines("numpy", "c", batch_size=4),
    pytest.mark.cpu_only("no other rank is there for NCCL"),
]


class Counted(OneOf):
    """Notes what is reduced."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.reduced: list[tuple[Any, str]] = []

    def reduce(self, array: Any, op: str = "sum") -> None:
        self.reduced.append((array.dtype, op))


class Own(Optimizer):
    """A user's own, which knows nothing of ranks."""

    def optimize(self, layer_list: Any, epoch: int) -> None:
        """Does nothing."""


class Derived(Adam):
    """A user's own settings of the library's."""


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (lambda: GradientDescentMomentum(0.1, 0.9), "sum"),
        (lambda: Adam(learning_rate=0.1), "sum"),
        (lambda: Derived(learning_rate=0.1), "sum"),
        (lambda: MultiOptimizer({"default": Adam(learning_rate=0.1)}), "sum"),
        (lambda: LossScaling(Adam(learning_rate=0.1)), "sum"),
        (Own, "mean"),
        (lambda: MultiOptimizer({"default": Own()}), "mean"),
    ],
)
def test_gradients_are_sent_once_a_step(be: Any, optimizer: Any, wanted: str) -> None:
    be.ranks = ranks = Counted()
    data = ArrayIterator(np.ones((16, 3), np.float32), np.ones((16, 2), np.float32), make_onehot=False)
    Model([Affine(2, Constant(0.1))]).fit(data, GeneralizedCost(SumSquared()), optimizer(), 3)
    gradients = [op for dtype, op in ranks.reduced if dtype == np.float32]
    assert gradients == [wanted] * 6, "two batches of 8 an epoch"
