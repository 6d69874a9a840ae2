"""Sums over the ranks, seen from one of two that have the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.distributed.gradients import LARGE_BYTES, RankSum
from neonlike.optimizers import GradientDescentMomentum, LossScaling
from tests.support.ranks import OneOf


class Alike(OneOf):
    """A rank of two whose other has the same arrays."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.reduced: list[int] = []

    def reduce(self, array: npt.NDArray[Any], op: str = "sum") -> None:
        """Double ``array``, or keep its mean."""
        self.reduced.append(array.size)
        array *= 2 if op == "sum" else 1


class Linked:
    """Links that reduce floats alone, and note them."""

    def __init__(self) -> None:
        self.reduced: list[int] = []

    def reduces(self, dtype: Any) -> bool:
        """Floats are."""
        return bool(dtype.kind == "f")

    def reduce(self, tensors: list[Any], op: str = "sum") -> None:
        """Make all -1."""
        self.reduced += [tensor.size for tensor in tensors]
        for tensor in tensors:
            tensor[:] = -1


@pytest.mark.cpu_only("links are those of the test")
def test_a_tensor_that_is_there_twice_is_summed_once(be: Backend) -> None:
    ranks, large, small = Alike(), be.ones((LARGE_BYTES // 4, 1)), be.ones((3, 1))
    RankSum(ranks, [large, small, large, small])()
    assert (large.get() == 2).all() and (small.get() == 2).all()
    assert ranks.reduced == [large.size, 3]


@pytest.mark.cpu_only("links are those of the test")
def test_a_scaled_loss_of_variables(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer is given a copy of a variable's derivative each time that it asks."""
    be.bsz = 4
    monkeypatch.setattr(be, "ranks", Alike())
    weight, optimizer = ag.param(np.zeros((2, 1))), LossScaling(GradientDescentMomentum(1.0, 0), scale=2.0)
    (weight * 3).sum().backprop()
    weight.partial_derivative[:] *= optimizer.scale_errors(be.ones((1, 1)))
    optimizer.optimize([weight], 0)
    assert weight.get().tolist() == [[-2 * 3 / 8]] * 2


@pytest.mark.cpu_only("links are those of the test")
def test_linked_devices_take_what_they_can(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, links = Alike(), Linked()
    monkeypatch.setattr(type(be), "links", lambda backend: links)
    floats, whole = be.ones((3, 1)), be.array(np.ones((5, 1), "i4"), dtype="i4")
    RankSum(ranks, [floats, whole])()
    assert links.reduced == [3] and ranks.reduced == [5]
    assert (floats.get() == -1).all() and (whole.get() == 2).all()
    RankSum(ranks, [])()
