"""Views of device arrays against NumPy's: the same elements in the same order. No GPU is needed, nothing is read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neonlike.backends.gpu.memory.array import (
    DeviceArray,
    ascending,
    collapsed,
    contiguous_array,
    pieces,
    share_elements,
    view_strides,
)
from neonlike.errors import IndexRangeError, ShapeError

BASE = 4096
F32 = np.dtype(np.float32)


def addresses(array: DeviceArray) -> list[int]:
    """Where the elements lie, in C order."""
    return [
        array.address + sum(place * stride for place, stride in zip(index, array.strides))
        for index in itertools.product(*(range(size) for size in array.shape))
    ]


def wanted(host: npt.NDArray[Any]) -> list[int]:
    """The same of a view of ``positions``."""
    return [BASE + 4 * int(position) for position in host.reshape(-1)]


def pair(shape: tuple[int, ...]) -> tuple[DeviceArray, npt.NDArray[Any]]:
    """A device array, and a NumPy array of its elements' positions."""
    size = int(np.prod(shape, dtype=int))
    return contiguous_array(None, BASE, shape, F32), np.arange(size).reshape(shape)


SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


def items(size: int) -> st.SearchStrategy[Any]:
    ends = st.one_of(st.none(), st.integers(-size - 2, size + 2))
    steps = st.one_of(st.none(), st.sampled_from([-3, -2, -1, 1, 2, 3]))
    parts = st.builds(slice, ends, ends, steps)
    return st.one_of(parts, st.integers(-size, size - 1)) if size else parts


@st.composite
def views(draw: st.DrawFn) -> tuple[DeviceArray, npt.NDArray[Any]]:
    """The same random view of both."""
    ours, theirs = pair(draw(SHAPES))
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["index", "transpose", "none"]))
        if kind == "transpose":
            axes = draw(st.permutations(range(theirs.ndim)))
            ours, theirs = ours.transpose(axes), theirs.transpose(axes)
        elif kind == "none":
            place = draw(st.integers(0, theirs.ndim))
            key: tuple[Any, ...] = (*[slice(None)] * place, None, ...)
            ours, theirs = ours[key], theirs[key]
        elif theirs.ndim:
            count = draw(st.integers(1, theirs.ndim))
            key = tuple(draw(items(size)) for size in theirs.shape[:count])
            if draw(st.booleans()):
                key = (..., *(draw(items(size)) for size in theirs.shape[theirs.ndim - count :]))
            ours, theirs = ours[key], np.asarray(theirs[key])
    return ours, theirs


@given(views())
def test_views_reach_the_elements_numpys_do(view: tuple[DeviceArray, npt.NDArray[Any]]) -> None:
    ours, theirs = view
    assert (ours.shape, ours.ndim, ours.size) == (theirs.shape, theirs.ndim, theirs.size)
    assert addresses(ours) == wanted(theirs)
    assert ours.nbytes == 4 * ours.size
    assert ours.c_contiguous == theirs.flags.c_contiguous
    places = addresses(ours)
    assert ours.bounds == ((min(places), max(places) + 4) if places else (ours.address, ours.address))


@given(views(), st.data())
def test_reshape_gives_a_view_exactly_where_numpy_does(
    view: tuple[DeviceArray, npt.NDArray[Any]], data: st.DataObject
) -> None:
    ours, theirs = view
    factors = data.draw(st.permutations([2, 2, 2, 3, 3, 1]))
    rest, shape = theirs.size, []
    for factor in factors:
        if rest % factor == 0 and rest:
            shape.append(factor)
            rest //= factor
    shape = [*shape, rest] if data.draw(st.booleans()) else [rest, *shape]
    reshaped = theirs.reshape(shape)
    if not theirs.size or np.shares_memory(reshaped, theirs):
        assert addresses(ours.reshape(*shape)) == wanted(reshaped)
        assert ours.reshape(tuple(shape)).shape == tuple(shape)
    else:
        with pytest.raises(ShapeError, match="no view"):
            ours.reshape(*shape)


def test_reshape_infers_one_size_and_refuses_others() -> None:
    ours, _ = pair((3, 4))
    assert ours.reshape(-1, 2).shape == (6, 2)
    assert ours.reshape(2, -1, 3).shape == (2, 2, 3)
    for wrong in ((5, -1), (13,), (-1, -1), (0, -1), (-3, -4)):
        with pytest.raises(ShapeError, match="reshape"):
            ours.reshape(*wrong)


def test_indices_are_checked() -> None:
    ours, _ = pair((3, 4))
    for wrong in (3, -4, (0, 4), (0, 0, 0), (..., 0, ...)):
        with pytest.raises(IndexRangeError):
            ours[wrong]
    with pytest.raises(TypeError):
        ours[1.5]
    assert len(ours) == 3
    assert "0x1000" in repr(ours)


def test_elements_of_another_size() -> None:
    ours, _ = pair((3, 4))
    half = ours.view(np.dtype(np.float16))
    assert (half.shape, half.strides) == ((3, 8), (16, 2))
    assert ours.view(np.dtype(np.int32)).strides == ours.strides
    assert half.view(np.dtype(np.float64)).shape == (3, 2)
    for strided, dtype in ((ours.transpose(), np.float16), (ours[:, :3], np.float64), (ours[:, ::2], np.float64)):
        with pytest.raises(ShapeError, match="view"):
            strided.view(np.dtype(dtype))


def test_strides_of_a_view_may_be_anything_where_the_size_is_one() -> None:
    assert view_strides((1, 6), (999, 4), (2, 3), 4) == (12, 4)
    assert view_strides((6, 1), (8, 999), (2, 1, 3), 4) == (24, 24, 8)
    assert view_strides((2, 3), (4, 8), (6,), 4) is None
    assert view_strides((0, 3), (4, 4), (3, 0), 4) == (4, 4)
    assert collapsed((2, 1, 3, 4), (48, 5, 16, 4)) == ((24,), (4,))


@given(views(), views())
def test_overlap_is_found_exactly(
    first: tuple[DeviceArray, npt.NDArray[Any]], second: tuple[DeviceArray, npt.NDArray[Any]]
) -> None:
    ours = set(addresses(first[0])) & set(addresses(second[0]))
    assert share_elements(first[0], second[0]) == bool(ours)


def test_overlap_of_different_sizes_of_elements() -> None:
    bytes_, _ = contiguous_array(None, BASE + 2, (1,), np.dtype(np.uint8)), None
    odd = DeviceArray(None, BASE, (8,), (8,), F32)
    assert share_elements(odd, bytes_)
    assert not share_elements(odd, contiguous_array(None, BASE + 4, (4,), np.dtype(np.uint8)))


@given(views())
def test_pieces_cover_the_elements_in_order(view: tuple[DeviceArray, npt.NDArray[Any]]) -> None:
    ours, theirs = view
    if not theirs.size:
        return
    turned, axes = ascending(ours)
    assert all(stride >= 0 for stride in turned.strides)
    assert addresses(turned) == wanted(np.flip(theirs, axes))
    found: list[int] = []
    for piece in pieces(turned):
        assert piece.offset == 4 * len(found)
        assert piece.pitch >= piece.width
        found += [
            piece.address + row * piece.pitch + byte for row in range(piece.height) for byte in range(0, piece.width, 4)
        ]
    assert found == addresses(turned)


def test_a_matrix_is_one_rectangle() -> None:
    ours, _ = pair((8, 16))
    assert len(list(pieces(ours[:, 4:8]))) == 1
    assert len(list(pieces(ours[::2, ::3]))) == 4  # a rectangle a row
    assert len(list(pieces(ours.transpose()))) == 16
    far = DeviceArray(None, BASE, (2, 2), (2**31, 4), F32)
    assert [piece.height for piece in pieces(far)] == [1, 1]
