"""Selection by ``tensor[index]``: neon's table, and random indices against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError, IndexTypeError, ShapeError
from tests.support.engines import new_backend

pytestmark = pytest.mark.optree

A, B = np.arange(12.0).reshape(3, 4), np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("host", "index", "shape"),
    [
        (A, 1, (1, 4)), (A, -1, (1, 4)), (A, np.s_[1, :], (1, 4)), (A, np.s_[:, 1], (3, 1)), (A, (1, 2), (1, 1)),
        (A, np.s_[0:2], (2, 4)), (A, np.s_[:, ::2], (3, 2)), (A, np.s_[...], (3, 4)), (A, np.s_[..., 1], (3, 1)),
        (A, np.s_[1, ...], (1, 4)), (A, np.s_[::-1], (3, 4)), (A, np.s_[5:], (0, 4)), (A, np.s_[2:1, 1:], (0, 3)),
        (A, (), (3, 4)),
        (B, 0, (3, 4)), (B, np.s_[:, 1], (2, 4)), (B, np.s_[:, 1, :], (2, 4)), (B, (0, 1), (1, 4)),
        (B, (0, 0, 0), (1, 1)), (B, np.s_[:, :, 0], (2, 3)), (B, np.s_[..., 0], (2, 3)), (B, np.s_[0, :, 1], (3, 1)),
        (B, np.s_[0:1], (1, 3, 4)), (B, np.s_[:, :, 0:1], (2, 3, 1)), (B, np.s_[-1, ..., -1], (3, 1)),
    ],
)  # fmt: skip
def test_basic_indices_are_views_of_at_least_two_dimensions(
    be: Backend, host: np.ndarray, index: Any, shape: tuple[int, ...]
) -> None:
    t = be.array(host)
    view = t[index]
    assert view.shape == shape
    assert np.array_equal(view.get().ravel(), np.atleast_1d(host[index]).ravel())
    view[:] = -1
    expected = host.copy()
    expected[index] = -1
    assert np.array_equal(t.get(), expected)
    t[index] = 5
    expected[index] = 5
    assert np.array_equal(t.get(), expected)


def test_a_full_slice_is_the_tensor_itself(be: Backend) -> None:
    t = be.array(A)
    assert t[:] is t


@pytest.mark.parametrize("integer", [np.int32(1), np.uint8(1), np.array(1), True.__int__()])
def test_integers_of_any_type_index_alike(be: Backend, integer: Any) -> None:
    assert np.array_equal(be.array(A)[integer].get(), A[1:2])
    assert np.array_equal(be.array(A)[:, integer].get(), A[:, 1:2])
    assert be.array(B)[integer].shape == (3, 4)


POSITIONS = {
    "list": lambda be, p: p,
    "array": lambda be, p: np.array(p, dtype=np.int64),
    "int32 array": lambda be, p: np.array(p, dtype=np.int32),
    "row array": lambda be, p: np.array([p]),
    "int32 tensor": lambda be, p: be.array(p, dtype=np.int32),
    "row tensor": lambda be, p: be.array([p], dtype=np.int32),
    "int8 tensor": lambda be, p: be.array(p, dtype=np.int8),
}


@pytest.mark.parametrize("form", POSITIONS)
@pytest.mark.parametrize("positions", [[0, 2], [2, 2, 0, 1], [-1, 0], [1]])
def test_gather_and_scatter_along_one_axis(be: Backend, form: str, positions: list[int]) -> None:
    index = POSITIONS[form](be, positions)
    t, b = be.array(A), be.array(B)
    assert np.array_equal(t[index].get(), A[positions])
    assert np.array_equal(t[:, index].get(), A[:, positions])
    assert np.array_equal(t[1:, index].get(), A[1:, positions])
    assert np.array_equal(t[1, index].get(), A[1:2, positions])
    assert np.array_equal(b[0, index].get(), B[0, positions])
    assert np.array_equal(b[:, index, 1:].get(), B[:, positions, 1:])
    expected = A.copy()
    for column, values in ((False, A[: len(positions)] + 50), (True, -A[:, : len(positions)])):
        key = (slice(None), index) if column else index
        if values.shape[int(column)] != len(positions):
            continue
        t[key] = be.array(values)
        expected[(slice(None), positions) if column else positions] = values
        assert np.array_equal(t.get(), expected)
    t[index] = t[index] * 2 + 1  # expression
    expected[positions] = expected[positions] * 2 + 1
    assert np.array_equal(t.get(), expected)
    t[index] = 7
    expected[positions] = 7
    t[:, index] = np.full((3, len(positions)), 8)
    expected[:, positions] = 8
    t[index] = be.array([[1, 2, 3, 4]])  # broadcast
    expected[positions] = [1, 2, 3, 4]
    assert np.array_equal(t.get(), expected)


def test_empty_gather(be: Backend) -> None:
    t = be.array(A)
    assert t[[]].shape == (0, 4)
    t[[]] = 5
    assert np.array_equal(t.get(), A)


def test_gathered_values_are_a_copy(be: Backend) -> None:
    t = be.array(A)
    picked = t[[0, 2]]
    t[0] = 100
    assert np.array_equal(picked.get(), A[[0, 2]])
    assert picked.base is None


def test_scatter_casts_as_assignment_does(be: Backend) -> None:
    t = be.zeros((3, 2), dtype=np.uint8)
    t[[0, 2]] = np.array([[300.0, 2.5], [-4.0, 3.5]])
    assert t.get().tolist() == [[255, 2], [0, 0], [0, 4]]


def test_iteration_goes_over_rows_and_ends(be: Backend) -> None:
    rows = list(be.array(A))
    assert [row.shape for row in rows] == [(1, 4)] * 3
    assert [row.shape for row in be.array(B)] == [(3, 4)] * 2
    rows[1][:] = 0
    _, second, _ = be.array(A)
    assert np.array_equal(second.get(), A[1:2])


RANGE: list[Any] = [
    3, -4, (0, 4), (0, -5), (0, 0, 0), np.int32(7), [0, 3], [-4], np.array([9]), (slice(None), [4]), (..., ...),
    ([0], [1]), np.array([[0, 1], [1, 2]]), (0, ..., 0, 0), slice(0, 2, 0),
    [True, False], np.ones(4, bool), (slice(None), [True] * 3), (0, np.ones((2, 2), bool)),
]  # fmt: skip
KIND: list[Any] = [
    None, True, np.bool_(True), 1.0, "a", 1j, {}, [0.0, 1.0],
    np.array([1.5]), ["a"], slice(0.0, 1), slice(None, "x"), (0, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "error"), [(i, IndexRangeError) for i in RANGE] + [(i, IndexTypeError) for i in KIND]
)
def test_wrong_indices_raise_and_change_nothing(be: Backend, index: Any, error: type[Exception]) -> None:
    t = be.array(A)
    for attempt in (lambda: t[index], lambda: t.__setitem__(index, 5), lambda: t.__setitem__(index, t * 2)):
        with pytest.raises(error) as caught:
            attempt()
        assert isinstance(caught.value, IndexError)
        assert "index" in str(caught.value)
    assert np.array_equal(t.get(), A)


def test_an_index_that_would_add_an_axis_is_told_what_does(be: Backend) -> None:
    for indexed in (be.array(A), be.array(A) + 1):
        with pytest.raises(IndexTypeError, match=r"be\.expand_dims"):
            indexed[None]
        with pytest.raises(IndexTypeError, match="a mask has an element for each"):
            indexed[True]


def test_wrong_index_tensors_raise(be: Backend) -> None:
    t = be.array(A)
    with pytest.raises(IndexTypeError, match="float32"):
        t[be.array([0, 1])]
    with pytest.raises(IndexRangeError, match="vector"):
        t[be.array([[0, 1], [1, 2]], dtype=np.int32)]
    with pytest.raises(IndexRangeError, match="index 3 is out of range for an axis of size 3"):
        t[be.array([0, 3], dtype=np.int32)]
    with pytest.raises(IndexRangeError):
        be.zeros((0, 3))[[0]]
    with pytest.raises(IndexRangeError):
        be.zeros((0, 3))[0]


def test_a_value_that_does_not_fit_leaves_the_target(be: Backend) -> None:
    t = be.array(A)
    for index, value in (
        (0, be.ones((1, 3))), ([0, 1], be.ones((3, 4))), (np.s_[:, 0], be.ones((1, 4)) * 2),
        ([0, 1], np.ones((1, 4))), (np.s_[0:2], np.ones((4, 2))), (0, be.ones((2, 4))),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            t[index] = value
    assert np.array_equal(t.get(), A)


# Random indices -------------------------------------------------------------------------------------------------------


def select(host: np.ndarray, items: tuple[Any, ...]) -> np.ndarray:
    """neon's rule in NumPy: integers keep their axis, then those beyond two dimensions go, from the left."""
    kept = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in items)
    view = host[kept]
    removed = [axis for axis, item in enumerate(items) if isinstance(item, int)][: host.ndim - 2]
    return view.reshape([n for axis, n in enumerate(view.shape) if axis not in removed])


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    items: list[Any] = []
    gathered = False
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["integer", "slice", "list"]))
        if kind == "integer":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "list" and not gathered:
            gathered = True
            items.append(draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4)))
        else:
            items.append(draw(st.slices(size)))
    return shape, tuple(items)


@pytest.mark.backend
@settings(max_examples=300, deadline=None)
@given(indexed())
def test_random_indices_select_what_numpy_selects(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, items = case
    be = new_backend()
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    t = be.array(host)
    expected = select(host, items)
    assert t[items].shape == expected.shape
    assert np.array_equal(t[items].get(), expected)
    written = host.copy()
    written[items] = -3
    t[items] = -3
    assert np.array_equal(t.get(), written)


def test_parts_of_an_expression_of_thousands_of_ops(be: Backend) -> None:
    t = be.ones((3, 4))
    deep = t
    for _ in range(3000):
        deep = deep * 0.5 + 0.5
    for part in (deep[1:, 2], deep.reshape(4, 3), deep.T[0]):
        assert (part.asnumpyarray() == 1).all()
