"""Tensor descriptors: values that say shape, dtype and layout, and views of tensors by them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import ArgumentError, DTypeError, ShapeError


def test_what_a_descriptor_says() -> None:
    images = TensorDesc((32, 3, 5, 7), np.float64, "NCHW")
    assert (images.shape, images.dtype, images.layout) == ((32, 3, 5, 7), np.float64, "NCHW")
    assert (images.ndim, images.size, images.nbytes, images.batch_size) == (4, 3360, 26880, 32)
    assert images.strides == (105, 35, 7, 1)
    assert [images.axis(letter) for letter in "NCHWc"] == [0, 1, 2, 3, 1]


def test_the_batch_is_where_the_layout_says() -> None:
    for layout, axis in {"NCHW": 0, "TNC": 1, "CDHWN": 4, "ntc": 0, "CRSK": None}.items():
        assert TensorDesc(range_of(layout), "f4", layout).batch_axis == axis


def range_of(layout: str) -> tuple[int, ...]:
    return tuple(range(2, 2 + len(layout)))


def test_the_layout_is_neons_unless_it_is_said() -> None:
    assert [TensorDesc(range_of("x" * n)).layout for n in (2, 3, 4, 5)] == ["CN", "CWN", "CHWN", "CDHWN"]
    assert TensorDesc((2, 3)).dtype == np.float32
    assert TensorDesc((2, 3), "f4").batch_axis == 1


def test_descriptors_are_values() -> None:
    one, same = TensorDesc((4, 2), "float32", "nc"), TensorDesc([np.int64(4), 2], np.float32, "NC")
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    assert one != one.with_dtype("f8") and one != one.with_batch(5) and one != TensorDesc((4, 2), "f4", "CN")
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.shape = (2, 2)  # type: ignore[misc]


def test_others_made_from_one() -> None:
    images = TensorDesc((32, 3, 5, 7), "f4", "NCHW")
    assert images.with_layout("CDHWN") == TensorDesc((3, 1, 5, 7, 32), "f4", "CDHWN")
    assert images.with_layout("CDHWN").with_layout("NHWC").shape == (32, 5, 7, 3)
    assert images.with_batch(1).shape == (1, 3, 5, 7)
    assert images.with_dtype("bfloat16").dtype.name == "bfloat16"
    with pytest.raises(ShapeError, match="has no W for its 7 positions"):
        images.with_layout("NCH")


def test_a_record_restores_it() -> None:
    for dtype in ("float16", "bfloat16", "int8", "bool"):
        desc = TensorDesc((4, 2, 3), dtype, "TNC")
        assert TensorDesc.from_info(json.loads(json.dumps(desc.info()))) == desc
    for wrong in ({"shape": [1, 2]}, None, [1, 2]):
        with pytest.raises(ArgumentError, match="needs shape, dtype and layout"):
            TensorDesc.from_info(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (((3,), "f4", "N"), ShapeError, "at least two axes"),
        ((3, "f4"), ShapeError, "at least two axes"),
        (((3, -1),), ShapeError, "must not be negative"),
        (((3, 1.5),), ShapeError, "must be integers"),
        (((3, 1), "complex64"), DTypeError, "cannot hold"),
        (((3, 1), "f4", "NCHW"), ShapeError, "'NCHW' names 4 axes, .* has 2"),
        (((3, 1), "f4", "NN"), ArgumentError, "names an axis twice"),
        (((3, 1), "f4", "N1"), ArgumentError, "two or more letters"),
        (((3, 1), "f4", 7), ArgumentError, "two or more letters"),
        (((2,) * 6,), ShapeError, "2 to 5 axes, not for 6"),
    ],
)
def test_what_makes_no_descriptor(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TensorDesc(*given)


def test_axes_that_are_not_there() -> None:
    weights = TensorDesc((3, 2, 2, 8), "f4", "CRSK")
    for letter in ("N", "CR", ""):
        with pytest.raises(ShapeError, match="has no axis"):
            weights.axis(letter)
    with pytest.raises(ShapeError, match="'CRSK' has no axis 'N'"):
        weights.with_batch(3)
    with pytest.raises(ShapeError, match="has no axis 'N'"):
        _ = weights.batch_size


@pytest.mark.engines("numpy")
def test_tensors_as_descriptors_see_them(be: Any) -> None:
    host = np.arange(24.0).reshape(2, 3, 4)
    desc, t = TensorDesc((2, 3, 4), "f4", "CWN"), be.array(host)
    assert TensorDesc.of(t) == desc and TensorDesc.of(desc) is desc
    assert desc.view(t) is t
    assert desc.view(be.array(host.reshape(6, 4))).get().tolist() == host.tolist()
    assert desc.arranged(t, "NCW").get().tolist() == host.transpose(2, 0, 1).tolist()
    assert desc.arranged(t, "NDCW").shape == (4, 1, 2, 3)
    other = be.zeros((4, 2, 3))
    other.desc = TensorDesc((4, 2, 3), "f4", "NCW")
    assert TensorDesc.of(other).layout == "NCW"
    for wrong, error, words in (
        (other, ArgumentError, "must have the layout 'CWN', got 'NCW'"),
        (be.zeros((4, 3, 2)), ShapeError, r"must have the shape \(2, 3, 4\), got \(4, 3, 2\)"),
        (be.zeros((2, 3, 4), dtype="f8"), DTypeError, "must hold float32, got float64"),
        (host, DTypeError, "must be a tensor, got ndarray"),
    ):
        with pytest.raises(error, match=words):
            desc.view(wrong)
    with pytest.raises(ShapeError, match="has no view of shape"):
        TensorDesc((6, 4)).view(be.zeros((3, 2, 4)).permuted((1, 0, 2)))
    with pytest.raises(DTypeError, match="expected a descriptor or a tensor"):
        TensorDesc.of((2, 3))
