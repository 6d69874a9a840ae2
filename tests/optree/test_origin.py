"""Gradients through tensors that were computed from others: gathered copies, computed expressions, conversions."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend
from neonlike.errors import GradientError
from neonlike.optree import origin
from neonlike.optree.functions import F
from tests.support.engines import backend

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy", datatype=np.float64)]


E = np.arange(12.0).reshape(4, 3) / 4 - 1
POSITIONS = [1, 1, 3]

COPIES: dict[str, tuple[Callable[[Backend, Any], Any], Callable[[Backend, Any], Any]]] = {
    "list of rows": (lambda be, t: t[POSITIONS], lambda be, t: be.take(t, POSITIONS, 0)),
    "list of columns": (lambda be, t: t[:, [2, 0, 0]], lambda be, t: be.take(t, [2, 0, 0], 1)),
    "rows of a part": (lambda be, t: t[1:, ::-1][[0, 2, 2]], lambda be, t: be.take(t, [1, 3, 3], 0)[:, ::-1]),
    "part and rows": (lambda be, t: t[::2, [0, 0]], lambda be, t: be.take(t, [0, 0], 1)[::2]),
    "rows of the transpose": (lambda be, t: t.T[[0, 2]], lambda be, t: be.take(t.T * 1, [0, 2], 0)),
    "tensor of positions": (
        lambda be, t: t[be.array([[3, 0, 3]], dtype=np.int32)], lambda be, t: be.take(t, [3, 0, 3], 0)
    ),
    "take": (lambda be, t: t.take([2, 2], 1), lambda be, t: be.take(t, [2, 2], 1)),
    "astensor": (lambda be, t: (be.exp(t) * t).astensor(), lambda be, t: be.exp(t) * t),
    "astensor of a part": (lambda be, t: (t[1:] * 2).astensor(), lambda be, t: t[1:] * 2),
    "astensor with an array": (lambda be, t: (t * E).astensor(), lambda be, t: t * be.array(E)),
    "a lazy gather": (lambda be, t: be.take(t, POSITIONS, 0).astensor(), lambda be, t: be.take(t, POSITIONS, 0)),
    "copy of an expression": (lambda be, t: be.square(t).copy(), lambda be, t: t * t),
    "array of a tensor": (lambda be, t: be.array(t), lambda be, t: t * 1),
    "array of an expression": (lambda be, t: be.array(t * t), lambda be, t: t * t),
    "astype": (lambda be, t: t.astype(np.float64), lambda be, t: t * 1),
    "astype of an expression": (lambda be, t: (t * t).astype("f8"), lambda be, t: t * t),
    "copy.copy": (lambda be, t: copy.copy(t), lambda be, t: t * 1),
    "copy.deepcopy": (lambda be, t: copy.deepcopy({"t": t[1:]})["t"], lambda be, t: t[1:] * 1),
    "view of a copy": (lambda be, t: t[POSITIONS][1:].T, lambda be, t: be.take(t, POSITIONS[1:], 0).T),
    "copy of a copy": (lambda be, t: t[POSITIONS][[0, 0, 2]], lambda be, t: be.take(t, [1, 1, 3], 0)),
    "copy of a computed part": (
        lambda be, t: (t[1:] * 3).astensor()[1:][[0, 0]], lambda be, t: be.take(t, [2, 2], 0) * 3
    ),
    "a gradient": (
        lambda be, t: Autodiff(be.sum(t * t * t), be).get_grad_tensor([t])[0], lambda be, t: 3 * be.square(t)
    ),
}  # fmt: skip
"""A tensor with values of ``t``, and the expression of the same values."""


def gradients(be: Backend, made: Any, t: Any) -> list[Any]:
    """Gradients of sums of ``made``, alone and used with ``t`` itself."""
    trees = [be.sum(made * 2), be.sum(be.square(made)), be.sum(made * made) + be.sum(t * 3), be.sum(be.exp(t[:1]))]
    trees[3] = trees[3] * be.sum(made)
    return [Autodiff(tree, be).get_grad_tensor([t])[0].get() for tree in trees]


@pytest.mark.parametrize("name", COPIES)
def test_gradients_flow_through_copies(be: Backend, name: str) -> None:
    copied, lazy = COPIES[name]
    t = be.array(E)
    made = copied(be, t)
    assert not hasattr(made, "operands"), "it is a tensor"
    for found, wanted in zip(gradients(be, made, t), gradients(be, lazy(be, t), t)):
        np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)
        assert found.any()
    through_view = Autodiff(be.sum(made * made), be).get_grad_tensor([t.T])[0]
    np.testing.assert_allclose(through_view.get(), Autodiff(be.sum(made * made), be).get_grad_tensor([t])[0].get().T)


@pytest.mark.engines("numpy", "c")
def test_every_engine(engine: str) -> None:
    for be in backend(engine):
        table = be.array([[1.0, 2], [3, 4]])
        assert Autodiff(be.sum(table[[1, 1]]), be).get_grad_asnumpyarray([table])[0].tolist() == [[0, 0], [2, 2]]
        made = (table * table).astensor()[[0]]
        assert Autodiff(be.sum(made), be).get_grad_asnumpyarray([table])[0].tolist() == [[2, 4], [0, 0]]
        table[:] = 0
        with pytest.raises(GradientError, match="written to since"):
            Autodiff(be.sum(made), be).get_grad_tensor([table])


def test_second_derivatives_through_copies(be: Backend) -> None:
    t = be.array(E)
    made = (t * t * t).astensor()[[0, 2]]
    (first,) = Autodiff(be.sum(made), be).get_grad_op_tree([t])
    (second,) = Autodiff(be.sum(first), be).get_grad_tensor([t])
    np.testing.assert_allclose(second.get(), 6 * E * [[1], [0], [1], [0]], 1e-12)


def test_the_gradient_at_the_copy_itself(be: Backend) -> None:
    t = be.array(E)
    rows = t[POSITIONS]
    of_rows, of_t = Autodiff(be.sum(rows * rows), be).get_grad_tensor([rows, t])
    np.testing.assert_allclose(of_rows.get(), 2 * E[POSITIONS])
    np.testing.assert_allclose(of_t.get(), 2 * E * [[0], [2], [0], [1]])


def test_narrower_copies(be: Backend) -> None:
    t = be.array(E)
    small = be.array(t, dtype=np.float16)
    np.testing.assert_allclose(Autodiff(be.sum(small * 3), be).get_grad_tensor([t])[0].get(), np.full(E.shape, 3.0))
    whole = be.array(t, dtype=np.int32)
    with pytest.raises(GradientError, match="does not contain"):
        Autodiff(be.sum(whole * 1.5), be).get_grad_tensor([t], absent="error")
    assert not Autodiff(be.sum(whole * 1.5), be).get_grad_tensor([t])[0].get().any()


WRITES: dict[str, Callable[[Backend, Any], Any]] = {
    "assigned": lambda be, t: t.__setitem__(slice(None), t * 2 + 1),
    "a part": lambda be, t: t.__setitem__((1, 1), 7),
    "through a view": lambda be, t: t.T[1:].fill(3),
    "set": lambda be, t: t.set(np.ones(t.shape)),
    "several": lambda be, t: be.assign_many([(t, t + 1)]),
    "prepared": lambda be, t: be.prepare(t, t + 1)(),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_was_written_to_since_is_an_error(be: Backend, name: str) -> None:
    for which in range(2):
        t = be.array(E)
        rows, computed = t[POSITIONS], (t * t).astensor()
        for made in (rows, computed):
            tree = Autodiff(be.sum(made * made), be)
            tree.get_grad_tensor([t])
            WRITES[name](be, (t, made)[which])
            with pytest.raises(GradientError, match=r"written to since.*be\.take"):
                tree.get_grad_tensor([t])
            with pytest.raises(GradientError, match="written to since"):
                Autodiff(be.sum(made * made * be.sum(t)), be).get_grad_tensor([t])
            tree.get_grad_tensor([made])  # with respect to the copy itself nothing is in doubt
            t[:] = E
            rows[:], computed[:] = E[POSITIONS], t * t
            assert tree.get_grad_tensor([t])[0].get().any()  # all as before: it flows again


@pytest.mark.cpu_only("live host memory")
def test_live_memory_that_was_written_to(be: Backend) -> None:
    t = be.array(E)
    rows = t[POSITIONS]
    t.asnumpyarray()[1] += 1
    with pytest.raises(GradientError, match="written to since"):
        Autodiff(be.sum(rows), be).get_grad_tensor([t])


def test_what_comes_from_the_host_or_was_assigned_is_constant(be: Backend) -> None:
    t, out = be.array(E), be.empty(E.shape)
    out[:] = t
    for constant in (be.array(t.get()), out, be.zeros_like(t).copy(t)):
        found = Autodiff(be.sum(constant * t), be).get_grad_tensor([t])[0]
        np.testing.assert_allclose(found.get(), E)


def test_copies_that_are_not_asked_about_cost_no_check(be: Backend) -> None:
    t, w = be.array(E), be.ones(E.shape)
    made = (t * 2).astensor()
    t[:] = 0
    np.testing.assert_allclose(Autodiff(be.sum(made * w), be).get_grad_tensor([w])[0].get(), 2 * E)


def test_nan_and_infinity_are_equal_to_themselves(be: Backend) -> None:
    t = be.array([[np.nan, np.inf, 1.0]])
    assert Autodiff(be.sum(t[[0, 0]]), be).get_grad_asnumpyarray([t])[0].tolist() == [[2, 2, 2]]


# Memory -----------------------------------------------------------------------------------------------------------


def test_copies_keep_no_large_memory(be: Backend) -> None:
    large = be.ones((300, 100))
    w = be.ones((1, 100))
    small = be.sum(large * w, axis=1).astensor()
    row = large[[0]]
    watched = weakref.ref(large)
    del large
    gc.collect()
    assert watched() is None
    with pytest.raises(GradientError, match=r"one is gone.*keep them"):
        Autodiff(be.sum(small), be).get_grad_tensor([w])
    assert Autodiff(be.sum(row * w), be).get_grad_tensor([w])[0].get().tolist() == [[1] * 100]


def test_small_constants_that_only_the_expression_had_are_kept(be: Backend) -> None:
    w = be.array(E)
    made = (w * be.array(E) * E).astensor()
    gc.collect()
    np.testing.assert_allclose(Autodiff(be.sum(made), be).get_grad_tensor([w])[0].get(), E * E)


def test_what_is_gone_is_computed_again(be: Backend) -> None:
    t = be.array(np.full((400, 100), 0.5))  # larger than what is kept
    made = be.sum((be.exp(t) * 2).astensor()[1:].T[[0, 1, 1]]).astensor()
    gc.collect()
    (found,) = Autodiff(made, be).get_grad_tensor([t])
    wanted = np.zeros(t.shape)
    wanted[1:, 0], wanted[1:, 1] = 2 * np.exp(0.5), 4 * np.exp(0.5)
    np.testing.assert_allclose(found.get(), wanted, 1e-12)


def test_loops_that_compute_from_what_they_computed_stay_small(be: Backend) -> None:
    w = be.array([[0.5, 0.25]])
    x: Any = be.ones((3, 2))
    for _ in range(origin.GENERATIONS - 2):
        x = (x + x * w * 0).astensor()
    assert Autodiff(be.sum(x), be).get_grad_tensor([w])[0].get().shape == (1, 2)
    for _ in range(3000):
        x = (x * 1.0).astensor()
    depth, found = 0, x.origin
    while found is not None:
        depth, found = depth + 1, next((s.origin for s in found.sources if s.origin is not None), None)
    assert depth <= origin.GENERATIONS
    assert x.get().tolist() == [[1, 1]] * 3


def test_tensors_that_are_kept_carry_gradients_through_any_number(be: Backend) -> None:
    w = be.array([[1.5]])
    steps: list[Any] = [be.ones((1, 1)) * w]
    for _ in range(1200):
        steps.append((steps[-1] * 1.0 + w * 0.001).astensor())
    assert Autodiff(steps[-1], be).get_grad_asnumpyarray([w])[0].item() == pytest.approx(1 + 1.2)


def test_sharing_does_not_explode(be: Backend) -> None:
    t = be.array(np.ones((40, 2)))
    x: Any = t
    for _ in range(20):
        x = (0.5 * (x[1:] + x[:-1])).astensor()
    gc.collect()
    found = Autodiff(F.sum(x), be).get_grad_tensor([t])[0].get()
    assert found.sum() == pytest.approx(x.size)
