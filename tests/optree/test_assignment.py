"""``t[:] = value``: every dtype, every form of value, overlapping memory; refused values leave the target alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, NervanaCPU
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree.dialect import neon_dialect

pytestmark = pytest.mark.optree

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["float16", "bfloat16", "float32", "float64", *INTEGERS, "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_round(be: Backend, dtype: str) -> None:
    host = (np.arange(12).reshape(3, 4) % 3).astype(dtype)
    tensor = be.array(host, dtype=dtype)
    assert tensor.dtype == dtype
    assert tensor.nbytes == host.nbytes
    assert np.array_equal(tensor.get(), host)
    assert np.array_equal(tensor[1:, ::2].get(), host[1:, ::2])
    other = be.zeros((3, 4), dtype=dtype)
    other[:] = tensor
    assert np.array_equal(other.get(), host)
    assert np.array_equal(np.asarray(tensor), host)
    assert np.array_equal(be.array(tensor + tensor, dtype=np.float64).get(), host.astype(float) * 2)


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Expected contents of an integer tensor: nearest integer, halves to even, saturated; nan is 0."""
    info = np.iinfo(dtype)
    exact = [float(v) for v in values]
    whole = [0 if v != v else info.max if v > info.max else info.min if v < info.min else round(v) for v in exact]
    return np.array(whole, dtype=dtype)


SOURCES: dict[str, Callable[[Backend, np.ndarray], Any]] = {
    "ndarray": lambda be, values: values,
    "tensor": lambda be, values: be.array(values, dtype=np.float64),
    "expression": lambda be, values: be.array(values, dtype=np.float64) * 1.0,
    "other backend": lambda be, values: NervanaCPU(default_dtype=np.float64).array(values),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_casting_to_integers_rounds_and_saturates(be: Backend, dtype: str, source: str) -> None:
    info = np.iinfo(dtype)
    edge = [300.7, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 99.4, np.nan, np.inf, -np.inf, 1e30, -1e30]
    values = np.array([*edge, float(info.min), float(info.max), info.min - 1e4, info.max + 1e4])
    target = be.zeros((1, len(values)), dtype=dtype)
    target[:] = SOURCES[source](be, values.reshape(1, -1))
    assert target.get().ravel().tolist() == stored(values, dtype).tolist()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("value", [2.5, -7, 1e12, float("nan"), float("-inf"), True, 10**30])
def test_filling_integers_rounds_and_saturates(be: Backend, dtype: str, value: float) -> None:
    expected = stored(np.array([float(value)]), dtype)[0]
    assert np.array_equal(be.zeros((2, 2), dtype=dtype).fill(value).get(), np.full((2, 2), expected))


def test_integer_arithmetic_is_exact_and_saturates_once_when_stored(be: Backend) -> None:
    a = be.array([[2**31 - 1, -(2**31)]], dtype=np.int32)
    wide = be.zeros((1, 2), dtype=np.int64)
    wide[:] = a + a
    assert wide.get().tolist() == [[2**32 - 2, -(2**32)]]
    b = be.array([[200, 100]], dtype=np.uint8)
    b[:] = b + b - 150
    assert b.get().tolist() == [[250, 50]]


def test_bool_tensors_hold_truth(be: Backend) -> None:
    mask = be.zeros((1, 4), dtype=bool)
    mask[:] = np.array([[0.0, 0.2, -3.0, np.nan]])
    assert mask.get().tolist() == [[False, True, True, True]]
    x = be.array([[1.0, 2.0, 3.0, 4.0]])
    mask[:] = x > 2
    assert mask.get().tolist() == [[False, False, True, True]]
    assert (x * mask).asnumpyarray().tolist() == [[0, 0, 3, 4]]


def test_half_precision_is_rounded_once(be: Backend) -> None:
    x = be.array([[2048.0]], dtype=np.float16)
    x[:] = x + 1 + 1  # each step on its own would round back to 2048
    assert x.get()[0, 0] == 2050


# Assignment -------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[Callable[[Backend], Any], Any]] = {
    "int": (lambda be: 7, 7),
    "float": (lambda be: 1.5, 1.5),
    "bool": (lambda be: True, 1),
    "float32 scalar": (lambda be: np.float32(1.5), 1.5),
    "int64 scalar": (lambda be: np.int64(3), 3),
    "bool scalar": (lambda be: np.bool_(True), 1),
    "0-d array": (lambda be: np.array(2.5), 2.5),
    "row": (lambda be: be.array([[1, 2, 3, 4]]), [[1, 2, 3, 4]]),
    "column": (lambda be: be.array([1, 2, 3]), [[1], [2], [3]]),
    "single": (lambda be: be.array(5), 5),
    "tensor": (lambda be: be.array(np.arange(12).reshape(3, 4)), np.arange(12).reshape(3, 4)),
    "expression": (lambda be: be.array([[1, 2, 3, 4]]) * 2 + 1, [[3, 5, 7, 9]]),
    "number expression": (lambda be: be.sqrt(0.25), 0.5),
    "array": (lambda be: np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4)),
    "strided array": (lambda be: np.arange(12).reshape(4, 3).T, np.arange(12).reshape(4, 3).T),
}


@pytest.mark.parametrize("form", VALUES)
@pytest.mark.parametrize("layout", ["whole", "transposed", "strided", "reversed"])
def test_assignment_forms(be: Backend, form: str, layout: str) -> None:
    make, expected = VALUES[form]
    memory = be.zeros((8, 8))
    target = {
        "whole": lambda: be.zeros((3, 4)),
        "transposed": lambda: memory[:4, :3].T,
        "strided": lambda: memory[1:7:2, ::2],
        "reversed": lambda: memory[2::-1, 3::-1],
    }[layout]()
    target[:] = make(be)
    assert np.array_equal(target.get(), np.broadcast_to(expected, (3, 4)))
    if layout != "whole":
        assert memory.get().sum() == target.get().sum()


@pytest.mark.parametrize(
    "value", [["a"], "x", b"x", None, {}, {1, 2}, object(), 1j, np.complex64(1), np.array(["a"])]
)
@pytest.mark.parametrize("index", [np.s_[:], 0, np.s_[1:, ::2], [0, 2]])
def test_other_values_are_refused(be: Backend, index: Any, value: Any) -> None:
    target = be.array(np.arange(12).reshape(3, 4))
    before = target.get()
    with pytest.raises(DTypeError):
        target[index] = value
    assert target.get().tobytes() == before.tobytes()


def test_host_arrays_need_the_exact_size(be: Backend) -> None:
    target = be.array(np.arange(12).reshape(3, 4))
    before = target.get()
    for wrong in (np.ones((1, 4)), np.ones((3, 1)), np.ones(4), np.ones((4, 3)), np.ones((2, 6)), np.ones((3, 5))):
        for store in (target.set, lambda a: target.__setitem__(np.s_[:], a), target.copy_from):
            with pytest.raises(ShapeError):
                store(wrong)
    with pytest.raises(AssertionError):
        target.set(np.ones(5))
    assert np.array_equal(target.get(), before)


def test_host_arrays_may_split_or_merge_axes(be: Backend) -> None:
    images = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(be.zeros((6, 4)).set(images).get(), images.reshape(6, 4))
    assert np.array_equal(be.zeros((2, 3, 4)).set(images.reshape(6, 4)).get(), images)
    assert np.array_equal(be.zeros((2, 12)).set(images).get(), images.reshape(2, 12))
    assert np.array_equal(be.zeros((1, 24)).set(images.ravel()).get().ravel(), images.ravel())
    assert np.array_equal(be.zeros((24, 1)).set(images.ravel()).get().ravel(), images.ravel())


def test_set_fill_copy_and_copy_from_return_self(be: Backend) -> None:
    t = be.zeros((2, 3))
    host = np.arange(6).reshape(2, 3)
    assert t.set(host) is t
    assert np.array_equal(t.get(), host)
    assert t.set([[1, 2, 3], [4, 5, 6]]).get().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert t.set(4) is t
    assert t.fill(2.5) is t
    assert t.get().tolist() == [[2.5] * 3] * 2
    assert t.copy(be.array([[1, 2, 3]])) is t  # despite its name, into self
    assert t.get().tolist() == [[1, 2, 3]] * 2
    assert t.copy_from(host) is t
    assert t.copy_from(be.array([[1], [2]]) * 2).get().tolist() == [[2] * 3, [4] * 3]


OVERLAPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "transposed": (lambda a: a, lambda a: a.T + a),
    "down": (lambda a: a[1:], lambda a: a[:-1] * 1),
    "up": (lambda a: a[:-1], lambda a: a[1:] * 1),
    "right": (lambda a: a[:, 1:], lambda a: a[:, :-1] + a[:, 1:]),
    "reversed": (lambda a: a, lambda a: a[::-1] * 2),
    "both reversed": (lambda a: a, lambda a: a[::-1, ::-1] - a),
    "part of itself": (lambda a: a[0:2, 0:2], lambda a: a[0:2, 0:2] + a[1:3, 1:3].T),
    "strided": (lambda a: a[:, ::2], lambda a: a[:, 1::2] + 1),
}


@pytest.mark.parametrize("case", OVERLAPS)
@pytest.mark.parametrize("size", [4, 130, 400])
def test_the_right_side_is_evaluated_before_the_target_is_written(be: Backend, case: str, size: int) -> None:
    target_of, value_of = OVERLAPS[case]
    host = np.arange(size * size, dtype=np.float64).reshape(size, size) % 1013
    a = be.array(host, dtype=np.float64)
    target_of(a)[:] = value_of(a)
    expected = value_of(host.copy())
    target_of(host)[:] = expected
    assert np.array_equal(a.get(), host)


@pytest.mark.parametrize("index", [np.s_[1:], np.s_[:, ::-1], np.s_[::-1]])
def test_plain_overlapping_copies(be: Backend, index: Any) -> None:
    host = np.arange(40000, dtype=np.float32).reshape(200, 200)
    a = be.array(host)
    rows = a[index].shape[0]
    a[:rows] = a[index]
    host[:rows] = host[index].copy()
    assert np.array_equal(a.get(), host)
    a[:] = np.asarray(a)[::-1]  # the host array is the tensor's own memory
    assert np.array_equal(a.get(), host[::-1])


def test_in_place_forms(be: Backend) -> None:
    t = be.array([[1.0, 2.0]])
    kept = t
    t[:] += 1
    t[:] = t * t - t
    assert t is kept
    assert kept.get().tolist() == [[2, 6]]
    with neon_dialect():
        t += 1  # rebinds the name to an expression
    assert t is not kept
    assert kept.get().tolist() == [[2, 6]]
    assert t.asnumpyarray().tolist() == [[3, 7]]
