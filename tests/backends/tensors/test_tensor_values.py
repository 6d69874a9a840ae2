"""Reading results: text with values, Python numbers, lists, conversions; and read-only attributes of a tensor."""

from __future__ import annotations

import cmath
import math
import operator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend
from neonlike.errors import ArgumentError, DTypeError, FixedAttribute, NeonlikeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.dtypes import bfloat16
from neonlike.optree.node import OpTreeNode
from tests.support.engines import ON_GPU, refused_after_cleanup

pytestmark = pytest.mark.optree

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]

# Text ---------------------------------------------------------------------------------------------------------------


def shown(tensor: Any, host: np.ndarray) -> str:
    """Expected ``repr(tensor)``, built from NumPy's output."""
    head = f"{type(tensor).__name__}("
    name = "" if tensor.name is None else f"name={tensor.name!r}, "
    values = np.array2string(host, separator=", ", prefix=head)
    return f"{head}{values}, {name}shape={host.shape}, dtype={host.dtype})"


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_repr_shows_values_shape_and_dtype(be: Backend, dtype: str) -> None:
    host = np.array([[0, 1, 2], [3, 4, 100]]).astype(dtype)
    t = be.array(host, dtype=dtype)
    for view in (t, t.T, t[:, ::2], t[:0]):
        assert repr(view) == shown(view, view.get())
    kind = "GPUTensor" if ON_GPU else "CPUTensor"
    assert repr(be.array([[1, 2.5]], name="w")) == f"{kind}([[1. , 2.5]], name='w', shape=(1, 2), dtype=float32)"
    assert repr(be.zeros((2, 2, 2), dtype="int32")).count("\n") == 4


@pytest.mark.parametrize("shape", [(2000, 3), (3, 2000), (40, 50), (7, 8, 30), (7, 7, 40), (2, 3, 4, 100), (1001, 1)])
def test_repr_of_a_large_tensor_is_summarised_as_numpy_does(be: Backend, shape: tuple[int, ...]) -> None:
    host = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) * 0.37
    host[(0,) * host.ndim] = 1e-5
    t = be.array(host)
    assert "..." in repr(t)
    assert repr(t) == shown(t, host)
    assert repr(t.T) == shown(t.T, host.swapaxes(-1, -2))
    with np.printoptions(threshold=5, edgeitems=1, precision=2):
        assert repr(t) == shown(t, host)
    with np.printoptions(threshold=10**6):
        assert repr(t) == shown(t, host)


def test_repr_of_a_large_tensor_copies_its_ends_only(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    t = be.zeros((300, 400))
    fetched = []
    get = type(t).get
    monkeypatch.setattr(type(t), "get", lambda self: fetched.append(self.size) or get(self))
    assert "..." in repr(t)
    assert sum(fetched) == 7 * 7


def test_print_shows_values_except_in_neons_dialect(be: Backend) -> None:
    t = be.array(np.full((2, 3), 123.0), name="weights")
    assert str(t) == f"{t}" == "%s" % t == repr(t)  # noqa: UP031 (the form is what is tested)
    assert "[[123., 123., 123.],\n" in str(t)
    with neon_dialect():
        for text in (str(t), f"{t}", repr(t)):
            assert "weights" in text
            assert "(2, 3)" in text
            assert "123" not in text
            assert "\n" not in text


def test_repr_never_fails(be: Backend) -> None:
    t = be.ones((2, 2))
    be.cleanup_backend()
    assert "(2, 2)" in repr(t)
    assert "strides" in str(t) if ON_GPU else "1." in str(t)  # neon's line where values cannot be had


# Numbers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_one_element_is_a_number(be: Backend, dtype: str) -> None:
    t = be.array([[1]], dtype=dtype)
    for holder in (t, t[0], be.array([[0, 1]], dtype=dtype)[:, 1], be.array([[[1]]], dtype=dtype)):
        kind = bool if dtype == "bool" else int if "int" in dtype else float
        assert (type(holder.item()), holder.item()) == (kind, 1)
        assert (type(float(holder)), float(holder)) == (float, 1)
        assert (type(int(holder)), int(holder)) == (int, 1)
        assert complex(holder) == 1
        assert f"{holder:.2f}" == "1.00"
        assert f"{holder:5}" == format(kind(1), "5")
        with pytest.raises(ArgumentError, match=f"no {kind.__name__}"):
            f"{holder:s}"


def test_numbers_of_expressions(be: Backend) -> None:
    t = be.array([[1.0, 2.5]])
    total = be.sum(t) * 2
    assert (total.item(), float(total), int(total), f"{total:.1f}") == (7.0, 7.0, 7, "7.0")
    assert math.sqrt(be.sum(t) + 0.5) == 2
    assert cmath.sqrt(be.sum(t) + 0.5) == 2
    assert operator.mod("%.3f", be.sum(t)) == "3.500"
    assert (t * 2).tolist() == [[2.0, 5.0]]
    with pytest.raises(NeonlikeError):
        be.rand().item()


def test_special_values_and_truncation(be: Backend) -> None:
    assert math.isnan(be.array([[np.nan]]).item())
    assert be.array([[-np.inf]]).item() == -math.inf
    assert int(be.array([[-2.9]])) == -2
    assert be.array([[2**53 + 1]], dtype=np.int64).item() == 2**53 + 1


def test_several_elements_are_no_number(be: Backend) -> None:
    for t in (be.ones((1, 2)), be.ones((0, 1)), be.ones((2, 2)) + 1):
        for ask in (lambda t: t.item(), float, int, lambda t: f"{t:.2f}", complex):
            with pytest.raises(ShapeError, match=r"one element, got shape \(.*tolist"):
                ask(t)
        with pytest.raises(TypeError):
            float(t)


def test_one_integer_is_a_position_and_a_size(be: Backend) -> None:
    two = be.array([[2]], dtype=np.int32)
    assert operator.index(two) == 2
    assert [10, 11, 12][two] == 12
    assert list(range(two)) == [0, 1]
    assert np.arange(5)[operator.index(two)] == 2
    assert be.zeros((two, 3)).shape == (2, 3)
    assert operator.index(two * 2) == 4
    for wrong in (be.ones((1, 1)), be.array([[True]], dtype=bool), be.array([[1, 2]], dtype=np.int32)):
        with pytest.raises(TypeError):
            operator.index(wrong)


def test_an_index_tensor_of_one_element_still_gathers(be: Backend) -> None:
    host = np.arange(24).reshape(2, 3, 4)
    t, one = be.array(host), be.array([[1]], dtype=np.int32)
    assert np.array_equal(t[one].get(), host[[1]])
    assert np.array_equal(t[0][one].get(), host[0][[1]])


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_tolist(be: Backend, dtype: str) -> None:
    host = np.array([[0, 1], [1, 0]]).astype(dtype)
    t = be.array(host, dtype=dtype)
    assert t.tolist() == [[0, 1], [1, 0]]
    assert type(t.tolist()[0][0]) is (bool if dtype == "bool" else int if "int" in dtype else float)
    assert t.T[1:].tolist() == [[1, 0]]
    assert be.zeros((0, 2)).tolist() == []


def test_iteration_and_length(be: Backend) -> None:
    host = np.arange(6.0).reshape(3, 2)
    t = be.array(host)
    assert len(t) == 3
    rows = list(t)
    assert [row.tolist() for row in rows] == host[:, None].tolist()
    rows[1][:] = 9
    assert t.get()[1].tolist() == [9, 9]  # rows are views
    first, *_, last = t
    assert (first.shape, last.tolist()) == ((1, 2), [[4, 5]])
    assert [row.shape for row in be.zeros((2, 3, 4))] == [(3, 4), (3, 4)]


# Conversions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_astype_stores_as_an_assignment_does(be: Backend, dtype: str) -> None:
    values = np.array([[0.5, 1.5, 2.5, -1.5, 300, -300, 1e12, np.nan, np.inf, -0.25]])
    t = be.array(values, dtype=np.float64)
    assigned = be.empty(values.shape, dtype=dtype)
    assigned[:] = t
    for source in (t, t * 1, t.T.T):
        made = source.astype(dtype)
        assert (made.dtype, made.shape, made.base) == (assigned.dtype, values.shape, None)
        assert made.get().tobytes() == assigned.get().tobytes()


def test_astype_rounds_to_even_and_saturates(be: Backend) -> None:
    t = be.array([[0.5, 1.5, 2.5, -1.5, 300, -300, np.nan, np.inf]])
    assert t.astype(np.int8).tolist() == [[0, 2, 2, -2, 127, -128, 0, 127]]
    assert t.astype("uint8").tolist() == [[0, 2, 2, 0, 255, 0, 0, 255]]
    assert t.astype(bool).tolist() == [[True] * 8]


def test_astype_is_always_a_tensor_of_its_own(be: Backend) -> None:
    t = be.array([[1.0, 2.0]])
    same = t.astype(np.float32)
    same[:] = 0
    assert t.tolist() == [[1, 2]]
    assert t.astype(">f8").dtype == np.float64
    for wrong in ("complex64", "nonsense", None):
        with pytest.raises(DTypeError, match="astype"):
            t.astype(wrong)
    with pytest.raises(NeonlikeError):
        be.rand().astype(np.float32)


def test_gradients_flow_through_astype(be: Backend) -> None:
    t = be.array([[1.0, 2.0]])
    for source, wanted in ((t, [[2, 4]]), (t * 3, [[18, 36]])):
        wide = source.astype(np.float64)
        (gradient,) = Autodiff(be.sum(wide * wide), be).get_grad_tensor([t])
        assert gradient.tolist() == wanted


def test_round_is_an_expression(be: Backend) -> None:
    host = np.array([[0.5, 1.5, -2.567, 1234.5678]])
    t = be.array(host, dtype=np.float64)
    for operand in (t, t * 1):
        for digits in (None, 0, 2, -2, np.int64(1)):
            made = round(operand, digits)
            assert isinstance(made, OpTreeNode)
            assert np.allclose(made.asnumpyarray(), np.round(host, int(digits or 0)))
    whole = be.array([[125, 250]], dtype=np.int32)
    assert round(whole, 1).asnumpyarray().tolist() == [[125, 250]]
    assert round(whole, 1).dtype.kind == "i"
    assert round(whole, -2).asnumpyarray().tolist() == [[100, 200]]
    for wrong in (1.5, "2", True):
        with pytest.raises(DTypeError, match="round"):
            round(t, wrong)


# The array protocol -------------------------------------------------------------------------------------------------


def test_asarray_of_tensors_and_expressions(be: Backend) -> None:
    t = be.array([[1.5, 2.5]])
    for operand in (t, t * 1):
        assert np.asarray(operand).tolist() == [[1.5, 2.5]]
        for dtype in (np.float64, np.int32, ">f4"):
            host = np.asarray(operand, dtype=dtype)
            assert (host.dtype, host.tolist()) == (dtype, np.array([[1.5, 2.5]]).astype(dtype).tolist())
        assert not np.shares_memory(np.array(operand), np.asarray(t))
        assert not np.shares_memory(operand.__array__(copy=True), np.asarray(t))


def test_values_that_must_be_copied_refuse_not_to_be(be: Backend) -> None:
    t = be.ones((2, 2))
    for operand in (t, t * 1) if ON_GPU else (t * 1, t + t):
        with pytest.raises(ArgumentError, match="copied"):
            operand.__array__(copy=False)


# Attributes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("shape", (4, 1), "reshape"), ("dtype", "f8", "astype"), ("backend", None, "array"), ("size", 3, "memory"),
        ("ndim", 3, "memory"), ("nbytes", 3, "memory"), ("strides", (1, 1), "memory"), ("T", None, "memory"),
        ("array", np.zeros((2, 2)), "wrap"), ("root", None, "wrap"), ("address", 0, "wrap"), ("plan_key", 0, "wrap"),
    ],
)  # fmt: skip
def test_what_a_tensor_is_cannot_be_set(be: Backend, name: str, value: Any, instead: str) -> None:
    t = be.ones((2, 2))
    for tensor in (t, t[1:], t.T):
        before = getattr(tensor, name)
        with pytest.raises(FixedAttribute, match=f"^{name} .*{instead}"):
            setattr(tensor, name, value)
        with pytest.raises(AttributeError):
            setattr(tensor, name, value)
        assert str(getattr(tensor, name)) == str(before)
    assert (t + 1).asnumpyarray().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16(), np.int8, np.bool_], ids=str)
def test_values_of_the_same_memory_are_set_as_they_were(be: Backend, dtype: Any) -> None:
    t = be.array(np.arange(12).reshape(3, 4), dtype=dtype)
    before = t.get()
    t.set(t.asnumpyarray()[::-1])  # on the CPU the memory itself
    assert np.array_equal(t.get(), before[::-1])


def test_anything_else_may_be_set(be: Backend) -> None:
    t = be.ones((2, 2), name="first")
    t.name, t.persist_values, t.rounding, t.auto_reduce = "second", False, True, {1}
    assert (t.name, t.persist_values, t.rounding, t.auto_reduce) == ("second", False, True, {1})
    del t.auto_reduce
    assert not hasattr(t, "auto_reduce")
    assert (t[1:].name, be.ones((2, 2)).name) == ("second", None)


def test_closed_backends_give_no_values(be: Backend) -> None:
    t = be.ones((1, 1))
    be.cleanup_backend()
    for ask in (lambda: t.item(), lambda: float(t), lambda: t.tolist(), lambda: np.sum(t), lambda: t.astype("f8")):
        with refused_after_cleanup():
            ask()
