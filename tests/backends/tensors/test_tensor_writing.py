"""Writing into tensors: values for ``[:]=`` and ``set``, ``t += x``, data of one dimension, foreign byte order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, NervanaCPU
from neonlike.errors import DTypeError, NeonlikeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.node import OpTreeNode
from tests.support.engines import ON_GPU

pytestmark = pytest.mark.optree

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
FLAT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


class ArrayOnly:
    """An object with ``__array__`` and nothing else."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(VALUES, dtype)


class DlpackOnly:
    """An object with DLPack and nothing else."""

    def __init__(self, host: Any = VALUES) -> None:
        self.host = np.array(host, np.float32)

    def __dlpack__(self, **options: Any) -> Any:
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.host.__dlpack_device__()


class Unwilling(DlpackOnly):
    """As PyTorch's tensors that require gradients: neither protocol gives anything."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("can't call numpy() on a tensor that requires grad")

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("can't export")


SOURCES: dict[str, Callable[[Backend], Any]] = {
    "lists": lambda be: VALUES,
    "tuples": lambda be: tuple(map(tuple, VALUES)),
    "lists of NumPy numbers": lambda be: [list(map(np.float16, row)) for row in VALUES],
    "list of arrays": lambda be: [np.array(row) for row in VALUES],
    "array": lambda be: np.array(VALUES),
    "array of Fortran's order": lambda be: np.array(VALUES, order="F"),
    "matrix": lambda be: np.array(VALUES).view(np.matrix),
    "flat list": lambda be: FLAT,
    "flat array": lambda be: np.ravel(VALUES),
    "with __array__": lambda be: ArrayOnly(),
    "with DLPack": lambda be: DlpackOnly(),
    "memoryview": lambda be: memoryview(np.array(VALUES)),
    "big-endian": lambda be: np.array(VALUES, ">f4"),
    "big-endian integers": lambda be: np.array(VALUES, ">i2"),
    "tensor": lambda be: be.array(VALUES, dtype=np.float64),
    "tensor of another backend": lambda be: NervanaCPU().array(VALUES),
    "expression": lambda be: be.array(VALUES) * 1,
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_can_be_written(be: Backend, source: str) -> None:
    value = SOURCES[source](be)
    t = be.zeros((2, 3))
    assert t.set(value) is t
    assert t.tolist() == VALUES
    t.fill(0)
    t[:] = value
    assert t.tolist() == VALUES
    assert be.array(value).get().ravel().tolist() == FLAT
    assert be.zeros((2, 3)).copy_from(value).tolist() == VALUES
    big = be.zeros((4, 6))
    big[1:3, ::2] = value
    assert big.get()[1:3, ::2].tolist() == VALUES
    assert big.get().sum() == np.sum(VALUES)
    big[[3, 0], :3] = value
    assert big.get()[[3, 0], :3].tolist() == VALUES


@pytest.mark.parametrize("number", [2, 2.0, True, np.float32(2), np.int8(2), np.array(2.0), np.array(2, ">i4")])
def test_numbers_fill(be: Backend, number: Any) -> None:
    for index in (np.s_[:], np.s_[1], np.s_[:, ::2], np.s_[[0, 2]]):
        t = be.zeros((3, 4))
        t[index] = number
        wanted = np.zeros((3, 4))
        wanted[index] = number
        assert np.array_equal(t.get(), wanted)


@pytest.mark.parametrize(
    "value",
    [
        [[1.0, 2.0], [3.0]], [["a"] * 3] * 2, [[None] * 3] * 2, {"a": 1}, "text", None, object(), 1j,
        np.ones((2, 3), complex), np.full((2, 3), None), Unwilling(), np.datetime64("2020"),
        np.ma.array(VALUES, mask=np.eye(2, 3)),
    ],
)  # fmt: skip
def test_what_cannot_be_written(be: Backend, value: Any) -> None:
    t = be.ones((2, 3))
    for attempt in (
        lambda: t.set(value), lambda: t.__setitem__(np.s_[:], value), lambda: t.__setitem__(1, value),
        lambda: t.__setitem__([0, 1], value), lambda: be.array(value),
    ):  # fmt: skip
        with pytest.raises(DTypeError):
            attempt()
    assert t.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("value", [[1.0, 2.0], [[1.0, 2.0, 3.0]], np.ones((3, 2)), np.ones(5), [], np.ones((2, 3, 2))])
def test_other_numbers_of_elements_are_refused(be: Backend, value: Any) -> None:
    t = be.ones((2, 3))
    for attempt in (lambda: t.set(value), lambda: t.__setitem__(np.s_[:], value)):
        with pytest.raises(ShapeError, match=r"set: got \d+ elements .* expected 6 of shape \(2, 3\)"):
            attempt()
    assert t.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_unmasked_arrays_are_arrays(be: Backend) -> None:
    assert be.array(np.ma.array(VALUES)).tolist() == VALUES


@pytest.mark.peers("torch")
def test_peers_are_written(be: Backend) -> None:
    import torch

    t = be.zeros((2, 3))
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        t.fill(0)
        t[:] = torch.tensor(VALUES, dtype=kind)
        assert t.tolist() == VALUES
    with pytest.raises(DTypeError, match="grad"):
        t[:] = torch.tensor(VALUES, requires_grad=True)


@pytest.mark.skipif(not ON_GPU, reason="memory of a GPU")
def test_memory_of_the_gpu_is_copied_there(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __array__(self, *args: Any, **options: Any) -> np.ndarray:
            raise TypeError("can't convert cuda device type tensor to numpy")

    class Interface(Cuda):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return self.tensor.__cuda_array_interface__

    class Dlpack(Cuda):
        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.tensor.__dlpack_device__()

    source, strided = be.array(VALUES), be.array(np.transpose(VALUES)).T
    monkeypatch.setattr(type(be.device), "to_host", None)  # nothing comes to the host
    made = []
    for value in (source, strided, Interface(source), Interface(strided), Dlpack(source), Dlpack(strided)):
        made += [be.array(value), be.zeros((2, 3)).set(value), be.zeros((6, 1)).set(value), be.zeros((2, 3))]
        made[-1][:] = value
    with pytest.raises(ShapeError, match="set: got 6 elements"):
        be.zeros((3, 2)).set(Dlpack(source))
    monkeypatch.undo()
    assert [t.get().ravel().tolist() for t in made] == [FLAT] * len(made)


def test_copies_round_nothing_at_random(be: Backend) -> None:
    values = np.full((50, 50), 1.2345678)
    source = be.array(values)
    t = be.zeros((50, 50))
    t.rounding = 3
    for value in (source, values, values.tolist()):
        t.set(value)
        assert np.array_equal(t.get(), source.get())


# One dimension ------------------------------------------------------------------------------------------------------


def test_data_of_one_dimension_make_columns(be: Backend) -> None:
    for value in ([1.0, 2.0, 3.0], np.arange(3), (1, 2, 3)):
        assert be.array(value).shape == (3, 1)
    assert be.zeros(3).shape == be.empty((3,)).shape == be.zeros_like(np.ones(3)).shape == (3, 1)
    assert be.wrap(np.ones(3)).shape == (3, 1)
    assert (be.array(5).shape, be.array([5]).shape, be.array([]).shape) == ((1, 1), (1, 1), (0, 1))


@pytest.mark.parametrize("shape", [(6, 1), (1, 6), (2, 3), (1, 2, 3)])
def test_data_of_one_dimension_fill_targets_in_order(be: Backend, shape: tuple[int, ...]) -> None:
    wanted = np.arange(6.0).reshape(shape)
    for value in (np.arange(6), list(range(6)), np.arange(6.0, dtype=">f8")):
        assert np.array_equal(be.zeros(shape).set(value).get(), wanted)
        t = be.zeros(shape)
        t[:] = value
        assert np.array_equal(t.get(), wanted)
    t = be.zeros((4, 3))
    t[1] = [1, 2, 3]
    t[:, 2] = [9, 8, 7, 6]
    assert t.tolist() == [[0, 0, 9], [1, 2, 8], [0, 0, 7], [0, 0, 6]]


def test_data_of_one_dimension_are_never_stretched(be: Backend) -> None:
    square = be.ones((3, 3))
    for attempt in (
        lambda: square + np.arange(3), lambda: np.arange(3) * square, lambda: be.maximum(square, np.arange(3)),
        lambda: operator.iadd(square, np.arange(3)), lambda: (square + 1) / np.arange(3),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=r"ambiguous.*v\[:, None\] .*v\[None, :\]"):
            attempt()
    with pytest.raises(ShapeError):
        square[:] = np.arange(3)
    assert square.tolist() == [[1] * 3] * 3
    assert (square + np.array([2.0])).asnumpyarray().tolist() == [[3] * 3] * 3


# In place -----------------------------------------------------------------------------------------------------------

IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.ifloordiv, operator.imod,
]  # fmt: skip
ON_INTEGERS = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


@pytest.mark.parametrize("op", [*IN_PLACE, *ON_INTEGERS], ids=lambda op: op.__name__)
def test_in_place_operators_change_the_tensor(be: Backend, rng: np.random.Generator, op: Any) -> None:
    dtype = np.int32 if op in ON_INTEGERS else np.float32
    host, other = rng.integers(1, 9, (4, 3)).astype(dtype), rng.integers(1, 4, (4, 3)).astype(dtype)
    operands: list[tuple[Any, Any]] = [(2, 2), (other, other), (be.array(other, dtype=dtype), other)]
    if op not in ON_INTEGERS:
        operands += [(np.float32(2), 2), (be.array(other) * 0.5, other * 0.5), (be.array(other[:1]), other[:1])]
    for operand, wanted in operands:
        for index in (np.s_[:], np.s_[::2, 1:]):
            t, plain = be.array(host, dtype=dtype), host.copy()
            if not isinstance(wanted, int) and index != np.s_[:]:
                operand, wanted = be.array(wanted[:1, 1:], dtype=dtype), wanted[:1, 1:]
            view = t[index]
            assert op(view, operand) is view
            part = plain[index]
            op(part, wanted)
            np.testing.assert_allclose(t.get(), plain, rtol=1e-5)
            assert t.dtype == dtype


def test_a_step_of_gradient_descent(be: Backend) -> None:
    w, g = be.array([[1.0, 2.0]]), be.array([[10.0, 20.0]])
    kept = w
    for _ in range(3):
        w -= 0.1 * g * w
    assert w is kept
    assert np.allclose(w.get(), [[0, -2]])


def test_in_place_is_one_assignment(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    assign = be.assign

    def note(target: Any, value: Any) -> Any:
        calls.append(value)
        return assign(target, value)

    monkeypatch.setattr(be, "assign", note)
    t, g = be.array([[1.0, 2.0], [3.0, 4.0]]), be.ones((2, 2))
    calls.clear()
    t -= 0.5 * g
    assert [str(value) for value in calls] == [str(t - 0.5 * g)]
    calls.clear()
    t[1:] += 1  # Python stores the result again, which is nothing to do
    t[:] *= 2
    t[0:2] -= 1
    assert len([value for value in calls if value is not t]) == 3
    assert t.tolist() == [[0, 2], [6, 8]]


def test_in_place_on_selected_elements(be: Backend) -> None:
    t = be.array(np.arange(12.0).reshape(3, 4))
    wanted = np.arange(12.0).reshape(3, 4)
    for index in (np.s_[1], np.s_[:, 2], np.s_[1:, ::2], np.s_[[0, 2]], np.s_[...]):
        t[index] += 10
        wanted[index] += 10
        assert np.array_equal(t.get(), wanted)
    t[1:] += t[:-1]
    wanted[1:] += wanted[:-1].copy()
    assert np.array_equal(t.get(), wanted)
    t[::-1] = t  # the same memory, but not the same order
    assert np.array_equal(t.get(), wanted[::-1])


def test_in_place_on_integers_rounds_and_saturates(be: Backend) -> None:
    t = be.array([[1, 2, 250]], dtype=np.uint8)
    t += 0.5
    assert t.tolist() == [[2, 2, 250]]
    t += 100
    assert t.tolist() == [[102, 102, 255]]
    t -= 200
    assert t.tolist() == [[0, 0, 55]]


def test_in_place_that_does_not_fit_changes_nothing(be: Backend) -> None:
    t = be.ones((1, 3))
    for op, other, error in (
        (operator.iadd, be.ones((2, 3)), ShapeError), (operator.imul, be.ones((3, 1)), ShapeError),
        (operator.isub, "text", TypeError), (operator.iadd, NervanaCPU().ones((1, 3)), DTypeError),
        (operator.imatmul, be.ones((3, 2)), ShapeError),
    ):  # fmt: skip
        with pytest.raises(error) as caught:
            op(t, other)
        assert isinstance(caught.value, NeonlikeError)
        assert t.tolist() == [[1, 1, 1]]
    t @= be.ones((3, 3))
    assert t.tolist() == [[3, 3, 3]]


def test_an_expression_is_rebound_as_a_number_is(be: Backend) -> None:
    t = be.ones((1, 2))
    e = first = t + 1
    e += 1
    assert e is not first
    assert (first.asnumpyarray().tolist(), e.asnumpyarray().tolist()) == ([[2, 2]], [[3, 3]])
    assert t.tolist() == [[1, 1]]


def test_neons_dialect_binds_an_expression(be: Backend) -> None:
    t = kept = be.ones((1, 2))
    with neon_dialect():
        t += 1
        assert isinstance(t, OpTreeNode)
        t *= 3
        kept[:] += 5
        kept[:, 1:] *= 2
    assert kept.tolist() == [[6, 12]]
    assert t.asnumpyarray().tolist() == [[21, 39]]


# Byte order and width -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", ">i2", ">u2", ">i4", ">u4", ">i8"])
def test_big_endian_arrays_are_taken_everywhere(be: Backend, dtype: str) -> None:
    host = np.array([[1, 2], [3, 100]], dtype)
    plain = host.astype(host.dtype.newbyteorder("="))
    t = be.array(host, dtype=dtype)
    assert (t.dtype, t.dtype.isnative) == (plain.dtype, True)
    assert np.array_equal(t.get(), plain)
    for made in (be.zeros_like(host), be.empty((2, 2), dtype=dtype).fill(0)):
        assert (made.dtype, made.tolist()) == (plain.dtype, [[0, 0], [0, 0]])
    assert np.array_equal(be.wrap(host).get(), plain)
    one = be.ones((2, 2))
    assert np.array_equal((one + host).asnumpyarray(), plain + 1)
    assert np.array_equal((host * one).asnumpyarray(), plain)
    assert np.array_equal(be.maximum(one, host).asnumpyarray(), plain)
    one[:] = host
    assert np.array_equal(one.get(), plain)
    one[1:, :1] = host[:1, 1:]
    assert one.get()[1, 0] == 2
    devices = [None, None]
    be.consume(0, [host, None], devices)
    assert np.array_equal(devices[0].get(), plain.T)
    if host.dtype.kind in "iu":
        assert np.array_equal(be.array(np.arange(101.0))[host[1]].get().ravel(), [3, 100])
        assert be.onehot(host[0], axis=0, out=be.zeros((3, 2))).tolist() == [[0, 0], [1, 0], [0, 1]]


def test_pythons_integers_may_be_of_any_size(be: Backend) -> None:
    for value in ([[10**30, 1]], 10**30, [[2**64, -(10**30)]]):
        assert np.array_equal(be.array(value).get(), np.array(value, np.float32).reshape(be.array(value).shape))
        t = be.zeros((1, 2))
        t[:] = value
        assert np.array_equal(t.get(), np.broadcast_to(np.array(value, np.float32), (1, 2)))
    assert be.array([[10**30, -(10**30)]], dtype=np.int8).tolist() == [[127, -128]]
    for value in (10**400, [[10**400, 1]]):
        with pytest.raises(DTypeError):
            be.zeros((1, 2)).set(value)


def test_integers_beyond_int64_saturate(be: Backend) -> None:
    host = np.array([[2**64 - 1, 2**63, 5]], np.uint64)
    for dtype, most in ((np.int64, 2**63 - 1), (np.int32, 2**31 - 1), (np.uint8, 255)):
        assert be.array(host, dtype=dtype).tolist() == [[most, most, 5]]
    assert be.array(host, dtype=np.float64).tolist() == [[2.0**64, 2.0**63, 5]]
