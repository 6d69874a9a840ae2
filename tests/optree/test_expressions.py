"""Expressions as values: their truth, numbers, rows, windows and shapes, lazily and like a tensor's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend
from neonlike.errors import DTypeError, IndexRangeError, IndexTypeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.functions import F
from neonlike.optree.node import NoTensorError, OpTreeNode
from neonlike.optree.walk import postorder
from tests.support.engines import backend, new_backend

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]

A = np.arange(12.0).reshape(3, 4) - 5
B = np.arange(24.0).reshape(2, 3, 4) - 11
INDICES_2D = (
    0, -1, (slice(None), 1), (1, 2), np.s_[0:2], np.s_[:, ::2], np.s_[..., 1:], np.s_[..., 1], np.s_[::-1],
    np.s_[::-2, 1:3], np.s_[5:], np.s_[2:1, 1:], (), np.s_[2::-1, -1], [2, 0], np.s_[:, [3, 3, -1]], np.s_[1:, [0, 2]],
    np.array([0, 0, 1]), np.int8(1), np.s_[1, [0]], [],
)  # fmt: skip
INDICES_3D = (
    0, np.s_[:, 1], np.s_[0, 1], (0, 0, 0), np.s_[..., 0], np.s_[0, :, 1], np.s_[0:1], np.s_[-1, ..., -1],
    np.s_[:, ::-1, 1:], np.s_[1, [2, 0]], np.s_[:, [1, 1], ::2], np.s_[..., [0]],
)  # fmt: skip


@pytest.fixture
def a(be: Backend) -> Any:
    return be.array(A)


def kinds(expression: Any) -> list[str]:
    """Names of the ops of an expression."""
    return [node.spec.name for node in postorder(expression)]


# Truth ------------------------------------------------------------------------------------------------------------


def test_the_truth_of_one_element_is_its_value(be: Backend, a: Any) -> None:
    assert be.sum(a) * 0 == 0
    assert not be.sum(a) > 1e6
    assert bool(a[0, 0] < 0)
    assert not a[0, 0] * 0
    assert bool(a[0, 0] * np.nan)
    assert bool(be.sqrt(0.5))
    assert not be.sqrt(0)
    steps = 0
    total = be.sum(a * a)
    while total > 1:
        total, steps = total * 0.5, steps + 1
    assert steps == 8


@pytest.mark.parametrize("shape", [(3, 4), (2, 1), (0, 3)], ids=str)
def test_the_truth_of_more_or_fewer_is_an_error(be: Backend, shape: Any) -> None:
    t = be.zeros(shape)
    with pytest.raises(ShapeError, match=r"be\.any.*be\.all") as found:
        bool(t > 1)
    assert str(shape) in str(found.value)
    with pytest.raises(ValueError):
        assert not (t == t)
    with pytest.raises(ShapeError, match="no shape of its own"):
        bool(be.rand())


def test_python_does_not_lie_about_order_and_membership(be: Backend) -> None:
    low, high, same = be.array([[1.0]]), be.array([[2.0]]), be.array([[1.0]])
    wide, other = be.ones((2, 2)), be.ones((2, 2))
    assert max(low, high) is high is max(high, low)
    assert min(low, high) is low
    assert sorted([high, low, same]) == [low, same, high]
    assert [low, high].index(same) == 0
    assert same in [high, low]
    assert low not in [high]
    assert wide in [wide]
    for lie in (lambda: max(wide, other), lambda: sorted([wide, other]), lambda: wide in [other]):
        with pytest.raises(ShapeError, match="truth"):
            lie()


def test_membership_in_values(be: Backend, a: Any) -> None:
    assert 3 in a
    assert 3.5 not in a
    assert 4 in a + 1
    assert 8 not in a + 1
    assert be.array([[6.0]]) in a
    assert 0 not in be.zeros((0, 3))
    for thing in (None, "x", {}):
        assert thing not in a
        assert thing not in a + 1


def test_take(be: Backend, a: Any) -> None:
    out = be.empty((3, 2))
    assert np.array_equal((a + 1).take([3, 0], 1).get(), A[:, [3, 0]] + 1)
    assert (a + 1).take([3, 0], axis=1, out=out) is out
    assert np.array_equal(out.get(), A[:, [3, 0]] + 1)


def test_a_tensor_is_there(be: Backend) -> None:
    assert be.zeros((1, 1))
    assert be.zeros((2, 3))


# Values -----------------------------------------------------------------------------------------------------------


def test_values_are_computed(be: Backend, a: Any) -> None:
    node = a * 2 + 1
    for found in (node.get(), np.asarray(node), node.copy().get()):
        assert found.dtype == a.dtype
        assert np.array_equal(found, A * 2 + 1)
    assert node.tolist() == (A * 2 + 1).tolist()
    assert (len(node), node.size, node.ndim) == (3, 12, 2)
    assert (be.sum(a).item(), float(be.sum(a)), int(be.sum(a))) == (6, 6.0, 6)
    assert isinstance(be.argmax(a[:1], axis=1).item(), int)
    assert (be.square(3.0).item(), float(be.square(3))) == (9, 9)
    with pytest.raises(ShapeError, match=r"float.*\(3, 4\)"):
        float(node)
    with pytest.raises(NoTensorError):
        be.sqrt(2).get()


def test_expressions_cannot_be_written(be: Backend, a: Any) -> None:
    node = a + 1
    for write in (lambda: node.set(A), lambda: node.fill(0), lambda: node.copy(a), lambda: node.copy_from(A)):
        with pytest.raises(DTypeError, match="cannot be written"):
            write()
    with pytest.raises(TypeError):
        node[0] = 1


# Windows ----------------------------------------------------------------------------------------------------------


NAMES = (
    "one op", "stretched operands", "fewer axes", "one element", "shared", "softmax", "softmax of columns", "deep",
    "transposed", "gathered", "strided tensor", "reshaped", "reshaped with a row", "whole", "product",
    "product and more",
)  # fmt: skip


def trees(be: Backend, host: np.ndarray) -> dict[str, Any]:
    """Expressions of the shape of ``host``, of every kind that windows are moved through, or stop at."""
    t = be.array(host)
    row, column = be.array(host[..., :1, :]), be.array(host[..., :1])
    found = {
        "one op": t + 1,
        "stretched operands": t * row - column,
        "fewer axes": t + be.array(host.reshape(-1, host.shape[-1])[:1]),
        "one element": t * be.sum(t) + 0.5,
        "shared": (lambda s: s * s + s)(be.sig(t)),
        "softmax": F.softmax(t, -1),
        "softmax of columns": F.softmax(t, -2),
        "deep": be.exp(be.tanh(t * 0.5) - be.mean(t, axis=-1)) / (be.sum(t * t, axis=-2) + 1),
        "transposed": F.transpose(F.transpose(t) * 2),
        "gathered": be.take(t * 2, list(range(host.shape[-1])), axis=len(host.shape) - 1),
        "strided tensor": t[..., ::-1] * 2,
        "reshaped": (t * 2).reshape(-1, 2).reshape(*host.shape),
        "reshaped with a row": (be.array(host.reshape(-1, 2)) + be.array(host.ravel()[:2].reshape(1, 2))).reshape(
            *host.shape
        ),
        "whole": be.array(host.astype(np.int32), dtype=np.int32) * 2,
    }
    if host.ndim == 2:
        found |= {
            "product": be.dot(t, be.array(host.T @ host)),
            "product and more": be.dot(be.tanh(t), be.array(host.T @ host) * 0.1) + row,
        }
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_index_shows_what_it_shows_of_a_tensor(be: Backend, name: str) -> None:
    assert tuple(trees(be, A)) == NAMES
    for host, indices in ((A, INDICES_2D), (B, INDICES_3D)):
        node = trees(be, host).get(name)
        if node is None:
            continue
        whole = node.astensor()
        for index in indices:
            part, wanted = node[index], whole[index]
            assert (part.shape, part.dtype) == (wanted.shape, node.dtype), index
            np.testing.assert_allclose(part.get(), wanted.get(), 2e-6, 1e-6, err_msg=f"{name} {index}")


@pytest.mark.parametrize("name", NAMES)
def test_windows_of_windows(be: Backend, rng: Any, name: str) -> None:
    for host in (A, B):
        node = trees(be, host).get(name)
        for _ in range(12 if node is not None else 0):
            part, wanted = node, node.astensor()
            for _ in range(3):
                index = tuple(
                    slice(*sorted(rng.integers(0, n + 1, 2)), rng.choice((1, 2))) if rng.random() < 0.7 else
                    int(rng.integers(n)) if n else slice(None) for n in wanted.shape
                )  # fmt: skip
                turned = (slice(None, None, -1),) * int(rng.integers(2))
                part, wanted = part[index][turned], wanted[index][turned]
            np.testing.assert_allclose(part.get(), wanted.get(), 2e-6, 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_reshape_and_transpose(be: Backend, name: str) -> None:
    for host in (A, B):
        node = trees(be, host).get(name)
        if node is None:
            continue
        values = node.get()
        for shape in ((2, -1), (-1,), (4, host.size // 4), (2, 2, -1), host.shape, (1, host.size)):
            wanted = values.reshape(shape if len(shape) > 1 else (host.size, 1))
            for made in (node.reshape(*shape), node.reshape(shape), node.reshape(list(shape)).reshape(*wanted.shape)):
                assert made.shape == wanted.shape
                np.testing.assert_allclose(made.get(), wanted, 2e-6, 1e-6)
            np.testing.assert_allclose(node.reshape(*shape).T[0].get(), np.swapaxes(wanted, -1, -2)[0].reshape(
                node.reshape(*shape).T[0].shape), 2e-6, 1e-6)  # fmt: skip
        np.testing.assert_allclose(node.T.reshape(-1).get().ravel(), np.swapaxes(values, -1, -2).ravel(), 2e-6, 1e-6)


def test_rows_come_one_after_the_other(be: Backend, a: Any) -> None:
    rows = list(a + 1)
    assert [row.shape for row in rows] == [(1, 4)] * 3
    assert np.array_equal(np.concatenate([row.get() for row in rows]), A + 1)
    first, second, third = a * 2
    assert isinstance(first, OpTreeNode)
    assert np.array_equal((first + second - third).get(), [2 * (A[0] + A[1] - A[2])])


def test_windows_are_moved_to_the_tensors(be: Backend, a: Any) -> None:
    row = be.ones((1, 4))
    assert kinds((a * 2 + row)[1:, 2]) == ["mul", "add"]
    assert kinds((a * 2).reshape(4, 3)) == ["mul"]
    assert kinds(be.sum(be.exp(a), axis=1)[0]) == ["exp", "sum"]
    assert kinds(be.sum(be.exp(a), axis=1)[:2]) == ["exp", "sum", "view"]
    assert kinds(be.dot(a, a.T)[0]) == ["dot"]
    assert kinds(be.dot(a, a.T)[::-1]) == ["dot", "view"]
    assert kinds((a.T * 2).T[1:]) == ["mul", "transpose"]
    assert (a + 1)[:] is not None
    node = a + 1
    assert node[...] is node[:] is node.reshape(3, 4) is node


def test_random_numbers_are_those_of_the_whole(be: Backend, a: Any) -> None:
    node = a * 0 + be.rand()
    whole = node.get()
    assert np.array_equal(node[1:, ::2].get(), whole[1:, ::2])
    assert np.array_equal(node.reshape(4, 3).get(), whole.reshape(4, 3))


def test_sharing_does_not_explode(be: Backend) -> None:
    node: Any = be.ones((64, 2))
    for _ in range(40):
        node = (node[1:] + node[:-1]) * 0.5
    assert len(postorder(node)) < 40 * 30
    assert node.get().tolist() == [[1, 1]] * 24
    node = be.ones((4, 4)) + 0
    for _ in range(40):
        node = (node + node) * 0.5
    assert len(postorder(node[0])) <= 81


def test_what_is_read_later_is_seen(be: Backend, a: Any) -> None:
    part = (a + 1)[0]
    a[:] = 7
    assert part.get().tolist() == [[8, 8, 8, 8]]
    a[:] = (a + be.array(A))[::-1]
    assert np.array_equal(a.get(), (A + 7)[::-1])


def test_wrong_indices_and_shapes(be: Backend, a: Any) -> None:
    node = a + 1
    for index, error in ((3, IndexRangeError), ((0, 0, 0), IndexRangeError), (1.5, IndexTypeError), ([7], IndexError)):
        with pytest.raises(error):
            node[index]
    for shape in ((5, 2), (-1, -1), (0, -1)):
        with pytest.raises(ShapeError, match="reshape"):
            node.reshape(*shape)
    with pytest.raises(TypeError, match="reshape"):
        node.reshape("a")
    for use in (lambda e: e[0], lambda e: e.reshape(1, 1), len, list, float):
        with pytest.raises(ShapeError, match="no shape of its own"):
            use(be.rand())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("whole", "reshaped with a row")])
def test_gradients_flow_through_windows(be: Backend, rng: Any, name: str) -> None:
    """Those of ``sum(node[index] * error)`` are those of ``sum(node * placed)``, with the error put in its place."""
    wide = new_backend(default_dtype=np.float64)
    for host in (A, B):
        t = wide.array(host)
        node = _on(wide, t, name)
        if node is None:
            continue
        for index in (0, np.s_[1:, ::-1], np.s_[..., 1:], [1, 1, 0]):
            part = node[index]
            error = rng.standard_normal(part.shape)
            placed = np.zeros(host.shape)
            np.add.at(placed, index, error.reshape(host[index].shape))
            found = Autodiff(part, wide, wide.array(error)).get_grad_tensor([t])[0]
            wanted = Autodiff(node, wide, wide.array(placed)).get_grad_tensor([t])[0]
            np.testing.assert_allclose(found.get(), wanted.get(), 1e-9, 1e-12)
        turned = rng.standard_normal((4, host.size // 4))
        found = Autodiff(node.reshape(4, -1), wide, wide.array(turned)).get_grad_tensor([t])[0]
        wanted = Autodiff(node, wide, wide.array(turned.reshape(host.shape))).get_grad_tensor([t])[0]
        np.testing.assert_allclose(found.get(), wanted.get(), 1e-9, 1e-12)
    wide.cleanup_backend()


def _on(be: Backend, t: Any, name: str) -> Any:
    """The tree ``name`` with ``t`` as the tensor that it is a function of."""
    original, be_array = t.get(), be.array
    try:
        be.array = lambda host, **more: t if np.shape(host) == t.shape and not more else be_array(host, **more)  # type: ignore[method-assign]
        return trees(be, original).get(name)
    finally:
        del be.array


@pytest.mark.engines("numpy", "c")
def test_every_engine(engine: str) -> None:
    for be in backend(engine):
        t = be.array(A)
        node = be.exp(t * 0.1) - be.mean(t, axis=1)
        whole = node.get()
        assert np.array_equal(node[1:, ::-2].get(), whole[1:, ::-2])
        assert np.array_equal(node[[2, 0, 2], 1:].get(), whole[[2, 0, 2], 1:])
        assert np.array_equal(F.softmax(t, 1).reshape(4, 3)[2].get(), F.softmax(t, 1).get().reshape(4, 3)[2:3])
        assert np.array_equal(be.dot(t, t.T)[::-1, 1:].get(), (A @ A.T)[::-1, 1:])
        assert np.array_equal((t * 2).reshape(2, 3, 2)[1, :, ::-1].T.get(), (A * 2).reshape(2, 3, 2)[1, :, ::-1].T)
        (gradient,) = Autodiff(be.sum(be.dot(t, t.T)[1:, [0, 0]]), be).get_grad_tensor([t])
        error = np.array([[0.0, 0, 0], [2, 0, 0], [2, 0, 0]])
        assert np.array_equal(gradient.get(), (error + error.T) @ A)
        assert be.sum(t) > 5
        assert [float(row) for row in be.sum(t, axis=1) * 2] == (A.sum(1) * 2).tolist()


# neon's dialect ---------------------------------------------------------------------------------------------------


def test_in_neons_dialect_a_node_is_a_tuple(be: Backend, a: Any) -> None:
    node = a + 2
    assert node.as_tuple() == ({"op": "add", "shape": (3, 4)}, a, 2)
    with neon_dialect():
        assert bool(node)
        assert bool(a > 100)
        assert len(node) == 3
        assert node[0]["op"] == "add"
        assert node[1] is a
        op, left, right = node
        assert (op["op"], right) == ("add", 2)
        assert left is a
        assert a in node
        assert node.get().tolist() == (A + 2).tolist()
    assert len(node) == 3
    assert node[1].get().tolist() == [(A[1] + 2).tolist()]
