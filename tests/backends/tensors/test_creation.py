"""Making tensors: shapes, dtypes, copies of host data, buffers with the minibatch last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.backends.tensor import Tensor
from neonlike.errors import ArgumentError, DTypeError, MissingArgument, NeonlikeError, ShapeError
from tests.support.dtype_cases import EVERY
from tests.support.engines import ON_GPU, new_backend

pytestmark = pytest.mark.optree



@pytest.mark.parametrize(
    ("given", "shape"),
    [(5, (5, 1)), ((5,), (5, 1)), ([2, 3], (2, 3)), ((2, 3, 4), (2, 3, 4)), (np.int64(4), (4, 1)), ((0, 3), (0, 3))],
)
@pytest.mark.parametrize("make", ["empty", "zeros", "ones"])
def test_shapes_have_at_least_two_dimensions(be: Backend, make: str, given: Any, shape: tuple[int, ...]) -> None:
    made = getattr(be, make)(given, name="n", persist_values=False)
    assert isinstance(made, be.tensor_cls if ON_GPU else CPUTensor)
    assert isinstance(made, Tensor)
    assert made.shape == shape
    assert made.size == np.prod(shape)
    assert made.dtype == np.dtype(np.float32)
    assert isinstance(made.dtype, np.dtype)
    assert (made.name, made.persist_values, made.base, made.backend) == ("n", False, None, be)


@pytest.mark.parametrize("dtype", EVERY)
def test_filled_tensors_hold_their_value(be: Backend, dtype: str) -> None:
    for make, value in (("zeros", 0), ("ones", 1)):
        host = getattr(be, make)((2, 3), dtype=dtype).get()
        assert host.dtype == dtype
        assert np.array_equal(host, np.full((2, 3), value, dtype))


def test_creation_takes_neons_positional_arguments(be: Backend) -> None:
    made = be.zeros((2, 2), np.int32, "weights", False, False, True)
    assert (made.dtype, made.name, made.persist_values) == (np.dtype("int32"), "weights", False)
    assert be.array([[1]], np.float64, "a", False, False, True).name == "a"


def test_array_takes_the_backends_dtype_not_the_datas(be: Backend, be64: Backend) -> None:
    host = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert be64.array(host).dtype == np.float64
    assert new_backend(default_dtype=np.float16).array(host).dtype == np.float16
    assert be64.array(host, dtype=np.int8).dtype == np.int8


@pytest.mark.parametrize(
    ("given", "shape"),
    [(3, (1, 1)), (np.float32(2), (1, 1)), ([1, 2, 3], (3, 1)), ([[1, 2], [3, 4]], (2, 2)), ([], (0, 1))],
)
def test_array_of_numbers_and_lists(be: Backend, given: Any, shape: tuple[int, ...]) -> None:
    made = be.array(given)
    assert made.shape == shape
    assert np.array_equal(made.get().ravel(), np.ravel(given))


def test_array_copies(be: Backend) -> None:
    host = np.ones((2, 2), np.float32)
    made = be.array(host)
    host[:] = 5
    assert np.array_equal(made.get(), np.ones((2, 2)))
    again = be.array(made)
    made[:] = 7
    assert np.array_equal(again.get(), np.ones((2, 2)))
    assert np.array_equal(be.array(made * 2).get(), np.full((2, 2), 14))


@pytest.mark.cpu_only("a GPU's contents are undefined")
@pytest.mark.parametrize("shape", [(3, 5), (64, 64)])
@pytest.mark.parametrize("dtype", EVERY)
def test_empty_is_zero_on_the_cpu_whatever_the_memory_held(be: Backend, shape: tuple[int, int], dtype: Any) -> None:
    used = [be.ones(shape, dtype=dtype) for _ in range(8)]
    del used
    again = [be.empty(shape, dtype=dtype) for _ in range(4)] + [be.empty_like(be.ones(shape, dtype=dtype))]
    assert not any(made.get().any() for made in again)


@pytest.mark.parametrize("make", ["empty_like", "zeros_like", "ones_like"])
def test_like_inherits_the_dtype(be: Backend, make: str) -> None:
    like = getattr(be, make)
    tensor, host = be.zeros((3, 2), dtype=np.int16), np.zeros(4, np.float64)
    assert (like(tensor).shape, like(tensor).dtype) == ((3, 2), np.int16)
    assert (like(host).shape, like(host).dtype) == ((4, 1), np.float64)
    assert like([[1, 2]]).shape == (1, 2)
    assert like(tensor, dtype=np.float16, name="x", persist_values=False).dtype == np.float16
    assert like(ary=tensor, dtype=np.int32).dtype == np.int32  # the CPU's name of it in neon
    assert like(other_ary=host, name="y").name == "y"  # the GPU's
    with pytest.raises(MissingArgument, match=make):
        like()
    with pytest.raises(MissingArgument, match=make):
        like(tensor, ary=tensor)
    expected = {"zeros_like": 0, "ones_like": 1}.get(make)
    if expected is not None:
        assert np.array_equal(like(tensor).get(), np.full((3, 2), expected))


@pytest.mark.parametrize(
    ("dim0", "shape"), [(3, (3, 4)), ((5,), (5, 4)), ((2, 3), (2, 12)), ((2, 3, 5), (30, 4)), ([2, 3], (2, 12))]
)
def test_iobuf_has_the_minibatch_last(be: Backend, dim0: Any, shape: tuple[int, int]) -> None:
    be.bsz = 4
    buffer = be.iobuf(dim0, name="out", dtype=np.float64)
    assert (buffer.shape, buffer.name, buffer.dtype) == (shape, "out", np.float64)
    assert not buffer.get().any()


def test_iobuf_returns_what_it_is_given_or_zeroes_the_shared_memory(be: Backend) -> None:
    be.bsz = 4
    given = be.ones((2, 2))
    assert be.iobuf(7, x=given) is given
    assert be.iobuf(3, shared=(fits := be.ones((3, 4)))) is fits
    assert not fits.get().any()
    pool = be.ones((20, 2))
    part = be.iobuf(3, shared=pool)
    assert (part.shape, part.base, part.ptr) == ((3, 4), pool, pool.ptr)
    assert np.array_equal(pool.get().ravel(), [0] * 12 + [1] * 28)
    assert be.shared_iobuf_size((2, 3), None) == 6
    be.num_dev = 2  # of a script that has several
    assert [be.shared_iobuf_size((2, 3), p) for p in ("Data", "Model", "Disabled", None)] == [6, 6, 12, 12]
    with pytest.raises(ShapeError, match="share"):
        be.iobuf(100, shared=pool)


def test_consume_transposes_a_batch_to_the_device(be: Backend) -> None:
    batches = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)]
    device: list[Any] = [None, None]
    be.consume(0, batches, device)
    assert np.array_equal(device[0].get(), batches[0].T)
    first = device[0]
    batches[0] += 1
    be.consume(0, batches, device)
    assert device[0] is first
    assert np.array_equal(first.get(), batches[0].T)
    assert device[1] is None
    with pytest.raises(AssertionError):
        be.consume(2, batches, device)


# Series ---------------------------------------------------------------------------------------------------------------


RANGES = [
    (5,), (0,), (-3,), (2, 7), (7, 2), (7, 2, -2), (2, 7, 2), (-3, 4, 3), (0, 1, 0.3), (1.5, -2, -0.5), (0.0, 3.0),
    (np.int64(2), np.float32(4.5)), (True, 4),
]  # fmt: skip


@pytest.mark.parametrize("given", RANGES, ids=str)
def test_arange_is_a_column_of_numpys_numbers(be: Backend, given: Any) -> None:
    wanted = np.arange(*given)
    made = be.arange(*given)
    assert (made.shape, made.dtype) == ((wanted.size, 1), be.default_dtype)
    np.testing.assert_allclose(made.get().ravel(), wanted, rtol=1e-6)


def test_arange_of_integers_is_exact_and_takes_names(be: Backend) -> None:
    made = be.arange(2**60, 2**60 + 3, dtype=np.int64, name="positions")
    assert made.get().ravel().tolist() == [2**60, 2**60 + 1, 2**60 + 2]
    assert made.name == "positions"
    assert be.arange(stop=3, start=1).get().tolist() == [[1], [2]]
    assert (be.take(be.eye(4), be.arange(1, 3, dtype=np.int32), 0) * 1).asnumpyarray().argmax(1).tolist() == [1, 2]


@pytest.mark.parametrize("given", [(0, 1, 5), (3, -3, 7), (0, 1, 1), (0, 1, 0), (0, 1), (-1e30, 1e30, 3)], ids=str)
def test_linspace(be: Backend, given: Any) -> None:
    for endpoint in (True, False):
        made, wanted = be.linspace(*given, endpoint=endpoint), np.linspace(*given, endpoint=endpoint)
        assert made.shape == (wanted.size, 1)
        np.testing.assert_allclose(made.get().ravel(), wanted, rtol=1e-6)
    assert be.linspace(0, 1, 3, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize("given", [(3,), (2, 4), (4, 2, 1), (3, 3, -1), (2, 2, 9), (0,), (2, 3, -(10**30))], ids=str)
def test_eye(be: Backend, given: Any) -> None:
    rows, columns, k = given[0], given[1] if len(given) > 1 else given[0], given[2] if len(given) > 2 else 0
    np.testing.assert_array_equal(be.eye(*given).get(), np.eye(rows, columns, max(-10, min(k, 10))))
    assert be.eye(2, dtype=np.int32).dtype == np.int32


def test_full(be: Backend) -> None:
    assert be.full((2, 3), 7.5).get().tolist() == [[7.5] * 3] * 2
    assert be.full(3, -np.inf).get().tolist() == [[-np.inf]] * 3
    assert be.full((1, 2), 2**62 + 1, dtype=np.int64).get().tolist() == [[2**62 + 1] * 2]
    like = be.full_like(be.eye(2, dtype=np.int8), 3)
    assert (like.dtype, like.get().tolist()) == (np.int8, [[3, 3], [3, 3]])
    assert be.full_like(np.zeros((2, 1), np.float64), 0.1, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda be: be.arange(0, 1, 0), ArgumentError, "step other than 0"),
        (lambda be: be.arange(0, np.inf), ArgumentError, "finite"),
        (lambda be: be.arange(np.nan), ArgumentError, "finite"),
        (lambda be: be.arange(0, 1, 1e-300), ArgumentError, "too many"),
        (lambda be: be.arange(1 << 70), ArgumentError, "below 2"),
        (lambda be: be.arange("a"), DTypeError, "arange: stop must be a number"),
        (lambda be: be.arange(3, dtype="complex64"), DTypeError, "complex64"),
        (lambda be: be.linspace(0, 1, -1), ArgumentError, "num must be 0 or more"),
        (lambda be: be.linspace(0, 1, 2.5), DTypeError, "num must be an integer"),
        (lambda be: be.linspace(0, "x"), DTypeError, "stop must be a number"),
        (lambda be: be.eye(2.5), DTypeError, "N must be an integer"),
        (lambda be: be.eye(2, "3"), DTypeError, "M must be an integer"),
        (lambda be: be.eye(-1), ShapeError, "negative"),
        (lambda be: be.full((2, 2), "a"), DTypeError, "fill_value must be a number"),
        (lambda be: be.full((2, 2), [1, 2]), DTypeError, "fill_value must be a number"),
        (lambda be: be.full_like(None, 1), NeonlikeError, "like"),
    ],
)
def test_series_that_cannot_be_made(be: Backend, make: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        make(be)
