"""Tensors beside NumPy and other array libraries: shared memory, operators in either order, no element-wise loops."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import DTypeError, ReadOnlyError, ShapeError
from neonlike.optree.node import NoTensorError, OpTreeNode
from tests.support.engines import ON_GPU

pytestmark = pytest.mark.optree

NUMPY_2 = int(np.__version__.split(".")[0]) >= 2
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool"]

# Host arrays of tensors ---------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("live host memory")
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_asarray_shares_memory(be: Backend, dtype: str) -> None:
    t = be.ones((3, 4), dtype=dtype)
    for view in (t, t.T, t[1:, ::2]):
        host = np.asarray(view)
        assert (host.shape, host.dtype) == (view.shape, dtype)
        assert np.shares_memory(host, t.asnumpyarray())
    np.asarray(t)[0, 0] = 0
    assert t.get()[0, 0] == 0
    t[2, 3] = 0
    assert np.asarray(t)[2, 3] == 0


def test_np_array_copies(be: Backend) -> None:
    t = be.ones((2, 2))
    host = np.array(t)
    host[:] = 5
    assert t.get().tolist() == [[1, 1], [1, 1]]
    assert not np.shares_memory(np.array(t), t.asnumpyarray())


@pytest.mark.cpu_only("live host memory")
def test_asarray_with_a_dtype_copies_only_when_it_must(be: Backend) -> None:
    t = be.array([[1.5, 2.5]])
    assert np.shares_memory(np.asarray(t, dtype=np.float32), t.asnumpyarray())
    wide = np.asarray(t, dtype=np.float64)
    assert (wide.dtype, wide.tolist()) == (np.float64, [[1.5, 2.5]])
    assert not np.shares_memory(wide, t.asnumpyarray())


@pytest.mark.cpu_only("live host memory")
def test_the_array_protocol_knows_copy(be: Backend) -> None:
    t = be.ones((2, 2))
    live = t.asnumpyarray()
    assert np.shares_memory(t.__array__(), live)
    assert np.shares_memory(t.__array__(copy=None), live)
    assert np.shares_memory(t.__array__(copy=False), live)
    assert np.shares_memory(t.__array__(np.float32, copy=False), live)
    assert not np.shares_memory(t.__array__(copy=True), live)
    with pytest.raises(ValueError, match="copy"):
        t.__array__(np.float64, copy=False)
    if NUMPY_2:
        assert np.shares_memory(np.asarray(t, copy=False), live)
        assert not np.shares_memory(np.asarray(t, copy=True), live)
        with pytest.raises(ValueError, match="copy"):
            np.asarray(t, dtype=np.float64, copy=False)


def test_expressions_convert_by_computing(be: Backend) -> None:
    t = be.array([[1.0, 2.0]])
    assert np.asarray(t * 2).tolist() == [[2, 4]]
    assert np.asarray(t * 2, dtype=np.float64).dtype == np.float64
    assert np.allclose(np.array(be.exp(t)), np.exp([[1, 2]]))


def test_host_functions_of_numpy_work_on_the_shared_memory(be: Backend) -> None:
    t = be.array([[1.0, 2.0], [3.0, 4.0]])
    assert np.array_equal(t, [[1, 2], [3, 4]])
    assert np.allclose(t, t.get())
    assert np.mean(np.asarray(t)) == 2.5
    np.testing.assert_array_equal(np.asarray(t), t.get())


# Operators ----------------------------------------------------------------------------------------------------------

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq, operator.ne, operator.lt,
    operator.le, operator.gt, operator.ge,
]  # fmt: skip
SCALARS = [
    2, 2.5, True, np.float16(2.5), np.float32(2.5), np.float64(2.5), np.int8(3), np.int64(3), np.uint32(3),
    np.bool_(True), np.array(2.5), np.array(3),
]  # fmt: skip


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}({s})")
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("expression", [False, True])
def test_scalars_act_as_numbers_on_either_side(
    be: Backend, op: Callable[..., Any], scalar: Any, expression: bool
) -> None:
    host = np.array([[1.0, 2.5, 3.0]], np.float32)
    t = be.array(host) * 1 if expression else be.array(host)
    for node, wanted in ((op(t, scalar), op(host, float(scalar))), (op(scalar, t), op(float(scalar), host))):
        assert isinstance(node, OpTreeNode)
        assert (node.shape, node.dtype) == ((1, 3), np.float32)  # scalars never widen
        assert np.allclose(node.asnumpyarray(), wanted, rtol=1e-6)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (2, 1), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_arrays_are_operands_on_either_side(
    be: Backend, rng: np.random.Generator, op: Callable[..., Any], shape: tuple[int, int], dtype: str
) -> None:
    host = rng.uniform(0.5, 3, (2, 3)).astype(np.float32)
    other = np.ones(shape, dtype) if dtype == "bool" else rng.uniform(1, 4, shape).astype(dtype)
    t = be.array(host)
    exact, wide = host.astype(np.float64), other.astype(np.float64)
    for node, wanted in ((op(t, other), op(exact, wide)), (op(other, t), op(wide, exact))):
        assert isinstance(node, OpTreeNode)
        assert np.allclose(node.asnumpyarray(), wanted, rtol=1e-5)


@pytest.mark.cpu_only("live host memory")
def test_array_operands_are_read_when_the_expression_runs(be: Backend) -> None:
    t, host = be.ones((2, 2)), np.ones((2, 2), np.float32)
    node = t + host
    host[:] = 5
    assert node.asnumpyarray().tolist() == [[6, 6], [6, 6]]


def test_array_operands_of_any_layout(be: Backend) -> None:
    t = be.zeros((3, 4))
    big = np.arange(48.0).reshape(6, 8)
    for host in (big[::2, ::2], big[:4, :3].T, big[2::-1, 7:3:-1], np.broadcast_to(np.arange(4.0), (3, 4))):
        assert np.array_equal((host + t).asnumpyarray(), host)
        assert np.array_equal((t + host * 1).asnumpyarray(), host)
    packed = np.zeros((3, 4), dtype=[("tag", "i1"), ("value", "<f4")])
    packed["value"] = 3
    assert np.array_equal((t + packed["value"]).asnumpyarray(), np.full((3, 4), 3))


def test_writing_through_an_operand_sees_the_overlap(be: Backend) -> None:
    t = be.array(np.arange(16.0).reshape(4, 4))
    live = t.asnumpyarray()
    wanted = live + live.T
    t[:] = t + live.T
    assert np.array_equal(t.get(), wanted)


def test_matrix_product_operator_with_arrays(be: Backend) -> None:
    host, t = np.arange(6.0).reshape(2, 3), be.array(np.arange(12.0).reshape(3, 4))
    assert np.allclose((host @ t).asnumpyarray(), host @ t.get())
    assert np.allclose((t @ np.ones((4, 2))).asnumpyarray(), t.get() @ np.ones((4, 2)))


@pytest.mark.parametrize("op", OPERATORS[:5])
def test_ambiguous_and_foreign_operands_are_refused(be: Backend, op: Callable[..., Any]) -> None:
    t = be.ones((3, 3))
    for operand in (t, t * 2):
        with pytest.raises(ShapeError, match="ambiguous"):
            op(operand, np.ones(3))
        with pytest.raises(ShapeError, match="ambiguous"):
            op(np.ones(3), operand)
        assert op(operand, np.ones(1)).shape == op(np.ones(1), operand).shape == (3, 3)
        with pytest.raises(ShapeError, match="broadcast"):
            op(operand, np.ones((2, 3)))
        for foreign in (np.ones((3, 3), complex), np.array([["a"]]), np.array(None), np.complex64(1), np.str_("a")):
            with pytest.raises(DTypeError):
                op(operand, foreign)


def test_numpys_functions_get_values_and_give_numpys_results(be: Backend) -> None:
    host = np.array([[1.0, 4.0], [2.0, 7.0]], np.float32)
    t = be.array(host)
    calls: list[Callable[..., Any]] = [
        np.sum, np.mean, np.max, np.std, np.argmax, np.median, np.sort, np.exp, np.sqrt, np.isnan, np.transpose,
        np.ravel, np.shape, np.ndim, np.size, np.linalg.norm, np.linalg.inv, np.add.reduce, np.multiply.accumulate,
        lambda x: np.sum(x, axis=0), lambda x: np.max(x, axis=1, keepdims=True), lambda x: np.maximum(x, 3),
        lambda x: np.concatenate([x, x], axis=1), lambda x: np.where(x > 2, x, 0), lambda x: np.einsum("ij,jk", x, x),
        lambda x: np.take(x, [1, 0], axis=1), lambda x: np.reshape(x, (4, 1)), lambda x: np.clip(x, a_min=2, a_max=3),
        lambda x: np.add(x, 1, dtype=np.float64), lambda x: np.subtract.outer(x, [1.0]), lambda x: np.stack((x, x)),
        lambda x: np.modf(x), lambda x: np.add(x, x, out=np.empty((2, 2), np.float32)), lambda x: np.array([x, x]),
    ]  # fmt: skip
    for call in calls:
        wanted = call(host)
        for operand in (t, t * 1):
            found = call(operand)
            assert type(found) is type(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.array_equal(t, host)
    assert np.allclose(host, t * 1)


@pytest.mark.parametrize(
    ("ufunc", "op"),
    [
        (np.add, operator.add), (np.subtract, operator.sub), (np.multiply, operator.mul),
        (np.divide, operator.truediv), (np.power, operator.pow), (np.matmul, operator.matmul),
        (np.less, operator.lt), (np.less_equal, operator.le), (np.greater, operator.gt),
        (np.greater_equal, operator.ge), (np.equal, operator.eq), (np.not_equal, operator.ne),
    ],
)  # fmt: skip
def test_numpys_name_of_an_operator_builds_the_same_expression(be: Backend, ufunc: np.ufunc, op: Any) -> None:
    """NumPy calls the one for the other, without saying which it was."""
    host, other = np.array([[1.0, 2], [3, 4]], np.float32), np.array([[2.0, 2], [1, 5]], np.float32)
    t = be.array(host)
    for operand in (t, t * 1):
        for first, second in ((operand, other), (other, operand), (operand, other.tolist()), (other.tolist(), operand)):
            node = ufunc(first, second)
            assert isinstance(node, OpTreeNode)
            wanted = op(host if first is operand else other, host if second is operand else other)
            assert np.allclose(node.asnumpyarray(), wanted)


def test_numpy_stores_in_arrays_only(be: Backend) -> None:
    t, host = be.ones((2, 2)), np.ones((2, 2))
    for call in (
        lambda: np.add(host, 1, out=t), lambda: np.exp(t, out=t), lambda: np.sum(t, axis=0, out=t),
        lambda: np.copyto(t, host), lambda: np.fill_diagonal(t, 5), lambda: np.put(t, [0], [5]),
        lambda: np.place(t, host > 0, [5]), lambda: np.putmask(t, host > 0, 5), lambda: np.add.at(t, [0], 1),
        lambda: np.put_along_axis(t, np.array([[0]]), 5, 1),
    ):  # fmt: skip
        with pytest.raises(DTypeError, match=r"t\["):
            call()
    np.copyto(host, t * 0 + 1)
    np.add.at(host, [0], t[0] * 0)
    with pytest.raises(DTypeError, match=r"np\.sum: out .*t\[:\] = np\.sum"):
        np.sum(host, axis=0, out=t)
    assert t.get().tolist() == [[1, 1], [1, 1]]
    host += t  # in place, as every array's
    host *= t + 1
    assert isinstance(host, np.ndarray)
    assert host.tolist() == [[4, 4], [4, 4]]


@pytest.mark.parametrize("op", [operator.floordiv, operator.mod, divmod])
def test_whole_division_with_arrays_on_either_side(be: Backend, op: Callable[..., Any]) -> None:
    host, other = np.array([[5.0, -7.0]], np.float32), np.array([[2.0, 3.0]], np.float32)
    t = be.array(host)
    for made, wanted in ((op(t, other), op(host, other)), (op(other, t), op(other, host))):
        assert np.allclose([np.asarray(part) for part in made], wanted)
        assert isinstance(made[0] if op is divmod else made, OpTreeNode)
    assert isinstance(op(np.float32(2), t)[0] if op is divmod else op(np.float32(2), t), OpTreeNode)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_bits_with_arrays_on_either_side(be: Backend, op: Callable[..., Any]) -> None:
    host, other = np.array([[5, 6]], np.int32), np.array([[3, 2]], np.int32)
    t = be.array(host, dtype=np.int32)
    for made, wanted in ((op(t, other), op(host, other)), (op(other, t), op(other, host))):
        assert isinstance(made, OpTreeNode)
        assert np.array_equal(made.asnumpyarray(), wanted)


# Memory of others ---------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("live host memory")
def test_wrap_shares_memory(be: Backend) -> None:
    host = np.arange(12, dtype=np.float64).reshape(3, 4)
    t = be.wrap(host)
    t[0] = -1
    host[1] = 9
    assert host[0].tolist() == [-1] * 4
    assert t.get()[1].tolist() == [9] * 4
    assert be.wrap(host.T).strides == (1, 4)
    a, b = be.wrap(host[1:]), be.wrap(host[:-1])
    wanted = host[:-1] * 2
    a[:] = b * 2  # separate tensors, overlapping memory
    assert np.array_equal(a.get(), wanted)


def test_wrap_makes_columns(be: Backend) -> None:
    host = np.arange(6.0)
    assert be.wrap(host).get().tolist() == host[:, None].tolist()
    assert be.wrap(host[::2]).shape == (3, 1)
    assert be.wrap(np.array(5.0)).get().tolist() == [[5.0]]
    if not ON_GPU:
        be.wrap(host)[0] = -1
        assert host[0] == -1


def test_wrap_refuses_what_is_no_array_of_such_numbers(be: Backend) -> None:
    for wrong in ([1, 2], 3, None, "a", np.float32(1)):
        with pytest.raises(DTypeError, match=r"wrap: .*be\.array"):
            be.wrap(wrong)
    with pytest.raises(DTypeError, match="complex"):
        be.wrap(np.ones((2, 2), complex))


def test_masked_elements_are_no_values(be: Backend) -> None:
    t, whole = be.ones((2, 2)), np.ma.array(np.ones((2, 2), np.float32))
    masked = np.ma.array(whole, mask=np.eye(2))
    for use in (be.wrap, be.array, t.set, lambda values: t + values):
        use(whole)
        with pytest.raises(DTypeError, match=r"masked.*filled"):
            use(masked)


def test_wrap_copies_what_must_not_be_written(be: Backend) -> None:
    host = np.ones((2, 3), np.float32)
    host.flags.writeable = False
    t = be.wrap(host)
    t[:] = 5
    t[:] = t + 1
    assert host.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert t.get().tolist() == [[6, 6, 6], [6, 6, 6]]


@pytest.mark.cpu_only("live host memory")
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_goes_out_without_a_copy(be: Backend, dtype: str) -> None:
    t = be.ones((3, 4), dtype=dtype)
    for view in (t, t.T, t[1:, ::2]):
        assert view.__dlpack_device__() == (1, 0)
        peer = np.from_dlpack(view)
        assert (peer.shape, peer.dtype) == (view.shape, dtype)
        assert np.shares_memory(peer, t.asnumpyarray())


@pytest.mark.cpu_only("live host memory")
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_comes_in_without_a_copy(be: Backend, dtype: str) -> None:
    host = np.ones((3, 4), dtype)
    t = be.from_dlpack(host)
    assert (t.shape, t.dtype) == ((3, 4), dtype)
    assert np.shares_memory(t.asnumpyarray(), host)
    t[0, 0] = 0
    assert host[0, 0] == 0
    host[1, 1] = 0
    assert t.get()[1, 1] == 0
    assert be.from_dlpack(np.ones(5, dtype)).shape == (5, 1)
    assert be.from_dlpack(np.ones((2, 3, 4), dtype)).shape == (2, 3, 4)
    assert be.from_dlpack(np.ones((4, 6), dtype)[::2, ::3]).strides == (12, 3)


@pytest.mark.cpu_only("live host memory")
def test_dlpack_of_bfloat16_which_numpy_does_not_take(be: Backend) -> None:
    t = be.array(np.arange(12).reshape(3, 4), dtype="bfloat16")
    for view in (t, t.T, t[1:, ::2], t[:0]):
        back = be.from_dlpack(view)
        assert (back.shape, back.dtype, back.strides) == (view.shape, t.dtype, view.strides)
        assert np.array_equal(back.get(), view.get())
        back[:] = back + 1
        assert np.array_equal(back.get(), view.get())
    kept = be.from_dlpack(be.array([[3.0]], dtype="bfloat16"))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(t)
    with pytest.raises(DTypeError, match=r"ndarray: .*be\.array"):
        be.from_dlpack(t.get())
    assert kept.get() == 3


def test_dlpack_between_tensors(be: Backend) -> None:
    t = be.ones((2, 2))
    again = be.from_dlpack(t)
    again[:] = again + 1
    assert t.get().tolist() == [[2, 2], [2, 2]]
    t[:] = t + again.T  # one memory, two tensors
    assert t.get().tolist() == [[4, 4], [4, 4]]


def test_dlpack_of_an_expression_is_of_a_new_tensor(be: Backend) -> None:
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = be.array(host)
    expression = t.T * 2
    assert expression.__dlpack_device__() == t.__dlpack_device__()
    shared = be.from_dlpack(expression)
    t[:] = 0
    assert np.array_equal(shared.get(), host.T * 2)
    if not ON_GPU:
        assert np.array_equal(np.from_dlpack(be.array(host) + 1), host + 1)
    with pytest.raises(NoTensorError):
        np.from_dlpack(be.add(1, 2))
    with pytest.raises(ShapeError):
        np.from_dlpack(be.rand())


class WithoutAxes:
    """An array of one element and no axes, as PyTorch's and JAX's, which is no number of Python's or NumPy's."""

    shape = ()

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.value, dtype)


@pytest.mark.parametrize("op", OPERATORS[:5])
@pytest.mark.parametrize("value", [2.5, 3, True])
def test_an_array_without_axes_is_a_number(be: Backend, op: Callable[..., Any], value: Any) -> None:
    t = be.array([[1.0, 4.0]], dtype=np.float16)
    for operand in (t, t * 1):
        for ours, theirs in (
            (op(operand, WithoutAxes(value)), op(operand, value)),
            (op(WithoutAxes(value), operand), op(value, operand)),
        ):
            assert ours.dtype == theirs.dtype == np.float16
            assert np.array_equal(ours.asnumpyarray(), theirs.asnumpyarray())
    with pytest.raises(DTypeError):
        op(t, WithoutAxes(1j))


def test_an_array_without_axes_in_other_places(be: Backend) -> None:
    t = be.array([[1.0, 4.0]])
    assert (t == WithoutAxes(4)).tolist() == [[0, 1]] and WithoutAxes(4.0) in t
    assert be.maximum(t, WithoutAxes(2)).tolist() == [[2, 4]]
    assert be.where(t > 2, t, WithoutAxes(0)).tolist() == [[0, 4]]
    t[:] = WithoutAxes(7)
    t[0, :1] = WithoutAxes(8)
    assert t.tolist() == [[8, 7]]
    t += WithoutAxes(1)
    assert t.tolist() == [[9, 8]]


def repeating(host: Any, shape: Any, strides: Any) -> Any:
    """``host`` seen with steps of so many elements: as another library's expanded tensor, or its windows."""
    steps = tuple(step * host.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(host, shape, steps, writeable=True)


@pytest.mark.cpu_only("memory on the host")
@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 4), (0, 1)), ((4, 3), (1, 0)), ((3, 3), (1, 1)), ((2, 3, 2), (2, 2, 1))]
)
def test_memory_whose_elements_overlap_is_read_but_not_written(be: Backend, shape: Any, strides: Any) -> None:
    memory = np.arange(12, dtype=np.float32)
    seen = repeating(memory, shape, strides)
    t = be.from_dlpack(seen)
    assert np.shares_memory(t.asnumpyarray(), memory) and not t.writeable
    assert np.array_equal(t.get(), seen) and np.array_equal((t + 1).get(), seen + 1)
    ones = be.ones(shape)
    for write in (
        lambda: t.fill(1), lambda: t.set(np.zeros(shape)), lambda: be.add(t, 1, out=t), lambda: be.prepare(t, t + 1),
        lambda: operator.setitem(t, slice(None), ones), lambda: operator.setitem(t, slice(None), ones * 2),
        lambda: operator.setitem(t, [0, 1], 5), lambda: operator.setitem(t.T, ..., 5), lambda: operator.iadd(t, 1),
        lambda: operator.setitem(t, t > 2, 0), lambda: be.assign_many([(t, ones * 3)]), lambda: t.copy_from(ones),
    ):  # fmt: skip
        with pytest.raises(ReadOnlyError, match=r"share memory.*t\.copy\(\)"):
            write()
    assert np.array_equal(memory, np.arange(12))
    copied = t.copy()
    copied[:] = 0
    assert not copied.get().any()


@pytest.mark.cpu_only("memory on the host")
def test_parts_of_it_that_do_not_overlap_may_be_written(be: Backend) -> None:
    memory = np.zeros(12, np.float32)
    t = be.wrap(repeating(memory, (3, 4), (0, 1)))
    t[1:2, 2:] = 5
    assert memory[:4].tolist() == [0, 0, 5, 5] and t.get()[2].tolist() == [0, 0, 5, 5]
    with pytest.raises(ReadOnlyError):
        t[1:, 2:] = 6
    interlocked = be.wrap(repeating(memory, (2, 3), (3, 2)))  # elements 0, 2, 4, and 3, 5, 7
    interlocked[:] = 7
    assert memory[:8].tolist() == [7, 0, 7, 7, 7, 7, 0, 7]


@pytest.mark.cpu_only("live host memory")
def test_dlpack_keeps_the_memory_alive(be: Backend) -> None:
    t = be.from_dlpack(np.full((100, 100), 7, np.float32))
    peer = np.from_dlpack(be.array(np.full((100, 100), 3)))
    be.zeros((100, 100))
    assert (t.get() == 7).all()
    assert (peer == 3).all()


def test_dlpack_refuses_what_has_no_such_memory(be: Backend) -> None:
    for wrong in ([1, 2], 3, None):
        with pytest.raises(DTypeError, match="dlpack"):
            be.from_dlpack(wrong)
    with pytest.raises(DTypeError):
        be.from_dlpack(np.ones((2, 2), complex))


@pytest.mark.peers("torch")
def test_torch_shares_memory_both_ways(be: Backend) -> None:
    import torch

    if ON_GPU and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    for dtype in ("float32", "bfloat16"):
        t = be.ones((2, 3), dtype=dtype)
        peer = torch.from_dlpack(t)
        peer[0, 0] = 5
        assert t.get()[0, 0] == 5
        back = be.from_dlpack(peer)
        back[1, 1] = 7
        assert (peer[1, 1].item(), str(peer.dtype)) == (7, f"torch.{dtype}")
    assert be.array(torch.arange(3.0)).get().ravel().tolist() == [0, 1, 2]
