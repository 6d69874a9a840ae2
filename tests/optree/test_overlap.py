"""Targets that share memory with operands, and several targets at once: right-hand sides see the old values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, IndexRangeError
from neonlike.optree.functions import F
from tests.support.engines import ON_GPU, backend

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy"), pytest.mark.checked]


OVERLAPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "transposed": (lambda a: a, lambda a, total: a.T + a),
    "transposed node": (lambda a: a, lambda a, total: (a * 2).T + a),
    "shifted down": (lambda a: a[1:], lambda a, total: a[:-1] * 2 + a[1:]),
    "shifted up": (lambda a: a[:-1], lambda a, total: a[1:] * 2 + a[:-1]),
    "shifted right": (lambda a: a[:, 1:], lambda a, total: a[:, :-1] * 2),
    "reversed": (lambda a: a, lambda a, total: a[::-1, ::-1] + 1),
    "a row of it everywhere": (lambda a: a, lambda a, total: a * a[1:2]),
    "a column of it everywhere": (lambda a: a, lambda a, total: a + a[:, 2:3]),
    "one element of it everywhere": (lambda a: a, lambda a, total: a / a[2:3, 2:3]),
    "its sums": (lambda a: a, lambda a, total: a - total(a, 0)),
    "its sums into a row": (lambda a: a[:1], lambda a, total: total(a, 0)),
    "its product": (lambda a: a, lambda a, total: a @ a),
    "its product and more": (lambda a: a, lambda a, total: (a @ a.T) + a),
    "itself in place": (lambda a: a, lambda a, total: a * 2 + 1),
}
"""What is written, and what it becomes; both work on tensors and on arrays."""


@pytest.mark.parametrize("size", (4, 300))
@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.engines("numpy", "c")
def test_the_right_side_is_complete_before_the_target_changes(engine: str, name: str, size: int, rng: Any) -> None:
    where, what = OVERLAPS[name]
    host = rng.standard_normal((size, size))
    expected = host.copy()
    where(expected)[...] = what(host, lambda a, axis: a.sum(axis, keepdims=True))
    for be in backend(engine, datatype=np.float64):
        for prepared in (False, True):
            a = be.array(host)
            if prepared:
                be.prepare(where(a), what(a, F.sum))()
            else:
                where(a)[:] = what(a, F.sum)
            np.testing.assert_allclose(a.get(), expected, 1e-9, 1e-9, err_msg=f"{name}, prepared: {prepared}")


@pytest.mark.parametrize("size", (4, 300))
@pytest.mark.engines("numpy", "c")
def test_several_targets_read_the_old_values(engine: str, size: int, rng: Any) -> None:
    hosts = [rng.standard_normal((size, size)) for _ in range(3)]
    x, y, z = hosts
    cases: dict[str, tuple[Callable[..., list[Any]], list[Any]]] = {
        "swap": (lambda a, b, c: [(a, b), (b, a)], [y, x, z]),
        "swap transposed": (lambda a, b, c: [(a, b.T), (b, a.T)], [y.T, x.T, z]),
        "rotate": (lambda a, b, c: [(a, b), (b, c), (c, a)], [y, z, x]),
        "a row of the other": (lambda a, b, c: [(a, b * a[0]), (b, a + b[1])], [y * x[:1], x + y[1:2], z]),
        "sums of each other": (
            lambda a, b, c: [(a, a - F.sum(b, 0)), (b, b - F.sum(a, 1)), (c, a + b)],
            [x - y.sum(0, keepdims=True), y - x.sum(1, keepdims=True), x + y],
        ),
        "halves of one": (
            lambda a, b, c: [(a[:2], a[2:4] * 2), (a[2:4], a[:2] * 3)],
            [np.vstack([x[2:4] * 2, x[:2] * 3, x[4:]]), y, z],
        ),
        "products": (lambda a, b, c: [(a, a @ b), (b, b @ a), (c, c + a)], [x @ y, y @ x, z + x]),
    }
    for be in backend(engine, datatype=np.float64):
        for name, (pairs, expected) in cases.items():
            for prepared in (False, True):
                tensors = [be.array(host) for host in hosts]
                if prepared:
                    be.prepare(pairs(*tensors))()
                else:
                    be.assign_many(pairs(*tensors))
                for tensor, wanted in zip(tensors, expected):
                    np.testing.assert_allclose(tensor.get(), wanted, 1e-9, 1e-9, err_msg=f"{name}, {prepared}")


def test_targets_that_overlap_each_other_are_refused(be: Backend) -> None:
    a = be.zeros((4, 4))
    for pair in ((a, a), (a, a.T), (a[:3], a[1:]), (a, a[2])):
        with pytest.raises(AliasError, match="share memory"):
            be.assign_many([(pair[0], 1.0), (pair[1], 2.0)])
    assert not a.get().any()


@pytest.mark.engines("numpy", "c")
def test_a_bad_index_in_a_later_stage_leaves_every_target_alone(engine: str) -> None:
    for be in backend(engine):
        source = be.array([[1.0, 2.0, 3.0]])
        first, second = be.zeros((1, 2)), be.zeros((1, 2))
        good, bad = (be.array([index], dtype=np.int64) for index in ([0, 1], [0, 7]))
        with pytest.raises(IndexRangeError):
            be.assign_many([(first, be.take(source, good, 1)), (second, be.take(source, bad, 1))])
            be.synchronize()  # a GPU tells it then
        assert ON_GPU or (not first.get().any() and not second.get().any())
