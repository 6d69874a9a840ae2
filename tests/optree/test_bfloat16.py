"""bfloat16 on every engine: rounding of all values, promotion, float32 in between, products, primitives, and without
the package that has the dtype. The rows of other tests that take dtypes have it too."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from neonlike.backends import Backend
from neonlike.errors import DTypeError
from neonlike.optree import dtypes
from neonlike.optree.autodiff import Autodiff
from neonlike.optree.dtypes import F16, F32, F64, I64, SUPPORTED, as_dtype, compute_dtype, promote
from neonlike.optree.functions import F
from tests.support.engines import new_backend

pytestmark = pytest.mark.engines("numpy", "c")

BF16 = np.dtype(bfloat16)
EVERY = np.arange(2**16, dtype=np.uint16)
"""All there are, as bits."""


@np.errstate(invalid="ignore")
def nearest(wide: Any) -> Any:
    """Bits of the bfloat16 nearest to float32 ``wide``, halves to even, by comparing both neighbours; none for nan."""
    bits = wide.view(np.uint32)
    down = (bits >> 16).astype(np.uint16)
    ends = [((down.astype(np.uint32) + step) << 16).view(np.float32).astype(np.float64) for step in (0, 1)]
    ends[1] = np.where(np.isinf(ends[1]), np.copysign(2.0**128, ends[1]), ends[1])  # which infinity stands for
    below, above = (np.abs(wide.astype(np.float64) - end) for end in ends)
    return down + ((above < below) | ((above == below) & (down % 2 == 1))).astype(np.uint16)


def bits_of(tensor: Any) -> Any:
    return tensor.get().view(np.uint16)


def small(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Values that bfloat16 holds exactly."""
    return np.random.default_rng(seed).normal(size=shape).astype(BF16).astype(np.float32)


# Values -------------------------------------------------------------------------------------------------------------


def test_every_value_is_read_and_kept(be: Backend) -> None:
    host = EVERY.reshape(256, 256).view(BF16)
    t, wide, same = be.array(host, dtype=BF16), be.empty(host.shape), be.empty(host.shape, dtype=BF16)
    be.assign_many([(wide, t), (same, t)])
    numbers = ~np.isnan(wide.get())
    assert np.count_nonzero(~numbers) == 2 * 127
    assert np.array_equal(wide.get().view(np.uint32)[numbers], EVERY.reshape(256, 256)[numbers].astype(np.uint32) << 16)
    assert np.array_equal(bits_of(same)[numbers], EVERY.reshape(256, 256)[numbers])
    assert np.isnan(same.get()[~numbers].astype(np.float32)).all()
    assert np.array_equal(bits_of(t), EVERY.reshape(256, 256))


def test_float32_is_rounded_to_nearest_even(be: Backend) -> None:
    """Every value, every tie between two and both neighbours of each, infinities and nan among them."""
    wide = (EVERY.astype(np.uint32) << 16)[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001], np.uint32)
    host = wide.view(np.float32)
    out = be.empty(host.shape, dtype=BF16)
    out[:] = be.array(host) * 1  # computed
    numbers = ~np.isnan(host)
    assert np.array_equal(bits_of(out)[numbers], nearest(host)[numbers])
    assert np.isnan(out.get()[~numbers].astype(np.float32)).all()
    again = be.array(host, dtype=BF16)  # stored by the host
    assert np.array_equal(bits_of(again)[numbers], bits_of(out)[numbers])
    largest = be.array([[3.3895313892515355e38, 3.39e38, 3.4e38, -3.4e38]], dtype=BF16).get().astype(float).tolist()
    assert largest == [[3.3895313892515355e38, 3.3895313892515355e38, np.inf, -np.inf]]


def test_to_and_from_every_dtype(be: Backend) -> None:
    values = np.array([[0, 1, 3, -2.5, 0.5, 100, 257, 300, 1e10, -70000, np.nan, np.inf, -np.inf]], np.float32)
    narrow = values.astype(BF16)
    t = be.array(values, dtype=BF16)
    outs = [be.empty(values.shape, dtype=dtype) for dtype in SUPPORTED]
    be.assign_many([(out, t) for out in outs])
    backs = [be.empty(values.shape, dtype=BF16) for _ in SUPPORTED]
    be.assign_many(list(zip(backs, outs)))
    exact = be.array(narrow.astype(np.float32))
    for dtype, out, back in zip(SUPPORTED, outs, backs):
        wanted = be.empty(values.shape, dtype=dtype)
        wanted[:] = exact
        assert np.array_equal(out.get(), wanted.get(), equal_nan=dtype.kind == "f"), dtype
        with np.errstate(over="ignore"):
            rounded = out.get().astype(np.float32).astype(BF16).astype(np.float32)
        assert np.array_equal(back.get().astype(np.float32), rounded, equal_nan=True), dtype


def test_promotion() -> None:
    assert as_dtype("bfloat16") == as_dtype(bfloat16) == BF16
    for others, result in (
        ((), BF16), ((BF16,), BF16), ((F16,), F32), ((F16, F16), F32), ((F32,), F32), ((F64, F16), F64),
        ((I64, np.dtype("u1"), np.dtype("?")), BF16),
    ):  # fmt: skip
        assert promote((BF16, *others)) == promote((*others, BF16)) == result
    assert compute_dtype(BF16) == F32
    for name in ("float8_e4m3fn", "V2", "c8"):
        with pytest.raises(DTypeError, match=r"supported are float16.*, bfloat16$"):
            as_dtype(name)


def test_expressions_are_computed_in_float32(be: Backend) -> None:
    x, one = be.array([[256.0]], dtype=BF16), be.array([[1]], dtype=np.int32)
    for value, dtype, wanted in (
        (x + 1 - 256, BF16, 1), (x + one - x, BF16, 1), ((x * 3 + 1) - x * 3, BF16, 1),  # 257 and 769 are between two
        (x + be.array([[1.0]], dtype=F16), F32, 257), (x + be.array([[2.0**-40]], dtype=F64), F64, 256 + 2**-40),
        (x > 255.9999, BF16, 1), (x < 256.0001, BF16, 1), (be.minimum(x, 255.9) - 255.9, BF16, 0),
        (x + np.full((1, 1), bfloat16(2)) + bfloat16(1), BF16, 259), (x * np.float32(2.5), BF16, 640),
    ):  # fmt: skip
        out = be.empty((1, 1), dtype=F64)
        out[:] = value
        assert (value.dtype, out.get()[0, 0]) == (dtype, wanted), str(value)
    rounded = be.empty((1, 2), dtype=BF16)
    rounded[:] = x + be.array([[1.0, 3.0]])  # once: halves to even
    assert rounded.get().astype(float).tolist() == [[256, 260]]


# Operations ---------------------------------------------------------------------------------------------------------


def test_reductions_and_moves(be: Backend) -> None:
    host = small((7, 300))
    x, wide = be.array(host, dtype=BF16), host.astype(np.float64)
    for axis in (0, 1):
        sums, softmax = be.empty(wide.sum(axis, keepdims=True).shape, dtype=BF16), be.empty(host.shape, dtype=BF16)
        be.assign_many([(sums, F.sum(x, axis)), (softmax, F.softmax(x, axis))])
        powers = np.exp(wide - wide.max(axis, keepdims=True))
        for found, wanted in ((sums, wide.sum(axis)), (softmax, powers / powers.sum(axis, keepdims=True))):
            np.testing.assert_allclose(found.get().astype(float).reshape(wanted.shape), wanted, 4e-3, 1e-5)
        for name in ("max", "min", "argmax", "argmin"):
            found = getattr(be, name)(x, axis=axis).asnumpyarray().astype(float)
            assert np.array_equal(found, getattr(np, name)(wide, axis=axis, keepdims=True)), name
    many = be.ones((1, 4096), dtype=BF16)
    sums = be.empty((1, 1), dtype=BF16)
    sums[:] = F.sum(many, 1)
    assert sums.get() == 4096  # added up in bfloat16 they end at 256
    index = be.array([[3, 0, -1, 3]], dtype=np.int32)
    picked, scattered = be.empty((4, 300), dtype=BF16), be.zeros((7, 300), dtype=BF16)
    picked[:] = be.take(x, index, axis=0)
    assert np.array_equal(picked.get().astype(np.float32), host[[3, 0, 6, 3]])
    scattered[:] = Autodiff(F.sum(be.take(x, index, axis=0)), be).get_grad_op_tree([x])[0]
    assert scattered.get()[:, 0].astype(float).tolist() == [1, 0, 0, 2, 0, 0, 1]
    assert np.array_equal(x.T[::-2, 1:].get().astype(np.float32), host.T[::-2, 1:])
    x[:, [0, 5]] = x[:, 2:4]
    assert np.array_equal(x.get()[:, [0, 5]], host[:, 2:4].astype(BF16))


def test_random_numbers_and_onehot(be: Backend) -> None:
    stream = be._rand_stream
    drawn, rounded = be.empty((30, 41)), be.empty((30, 41), dtype=BF16)
    drawn[:] = be.rand()
    be._rand_stream = stream
    rounded[:] = be.rand()
    assert np.array_equal(rounded.get().astype(np.float32), np.floor(drawn.get() * 256) / 256)
    hot = be.empty((4, 3), dtype=BF16)
    hot[:] = be.onehot(be.array([[2, 0, 3]], dtype=np.int32), 0) * 0.5
    assert np.array_equal(hot.get().astype(float), np.eye(4)[[2, 0, 3]].T * 0.5)


def test_products(be: Backend) -> None:
    a, b = small((37, 50)), small((50, 21), 1)
    A, B = be.array(a, dtype=BF16), be.array(b, dtype=BF16)
    exact = a.astype(np.float64) @ b
    for layout in (lambda t: t, lambda t: t.T):
        out = layout(be.ones(exact.shape if layout(A) is A else exact.T.shape, dtype=BF16))
        out[:] = be.dot(A, B)
        np.testing.assert_allclose(out.get().astype(float), exact, 4e-3, 1e-4)
        be.compound_dot(A, B, out, alpha=0.5, beta=0.0, relu=True)
        np.testing.assert_allclose(out.get().astype(float), np.maximum(0.5 * exact, 0), 4e-3, 1e-4)
    many, total = be.ones((1, 4096), dtype=BF16), be.empty((1, 1), dtype=BF16)
    assert be.compound_dot(many, many.T, total).get() == 4096
    stack = be.empty((2, 37, 21), dtype=BF16)
    be.batched_dot(be.array(np.stack([a, -a]), dtype=BF16), B, stack)
    np.testing.assert_allclose(stack.get().astype(float), np.stack([exact, -exact]), 4e-3, 1e-4)
    wide = be.empty(exact.shape)
    wide[:] = be.dot(A, be.array(b, dtype=np.float16))
    np.testing.assert_allclose(wide.get(), a.astype(np.float64) @ b.astype(np.float16), 1e-5, 1e-5)


def primitives(be: Any, dtype: Any) -> list[Any]:
    """Tensors of ``dtype`` that compound primitives wrote."""
    seeds = iter(range(100))

    def data(*shape: int) -> Any:
        return be.array(small(shape, next(seeds)), dtype=dtype)

    def room(*shape: int) -> Any:
        return be.zeros(shape, dtype=dtype)

    conv = be.conv_layer(dtype, 4, 2, 3, H=6, W=5, R=3, S=3, pad_h=1)
    size_in, size_out = 2 * 6 * 5, 3 * 6 * 3
    x, f, y, dx, df = data(size_in, 4), data(2 * 9, 3), room(size_out, 4), room(size_in, 4), room(2 * 9, 3)
    error = data(size_out, 4)
    be.fprop_conv(conv, x, f, y, relu=True)
    be.bprop_conv(conv, f, error, dx)
    be.update_conv(conv, x, error, df)
    pool = be.pool_layer(dtype, "max", 4, 2, H=6, W=5, R=2, S=2)
    top, where, back = room(2 * 3 * 2, 4), be.empty((2 * 3 * 2, 4), dtype=np.uint8), room(size_in, 4)
    be.fprop_pool(pool, x, top, where)
    be.bprop_pool(pool, data(2 * 3 * 2, 4), back, where)
    lrn = be.lrn_layer(dtype, 4, 6, H=2, W=5, J=3)
    normal, denom = room(size_in, 4), room(size_in, 4)
    be.fprop_lrn(lrn, x, normal, denom, ascale=0.5, bpower=0.75)
    rows = [be.zeros((size_in, 1), dtype=np.float32) for _ in range(6)]
    rows[4].fill(1)
    batch = room(size_in, 4)
    be.compound_fprop_bn(x, *rows, batch, 1e-3, 0.9, True)
    table = room(5, 3)
    words = be.array([[1, 0, 4, 1]], dtype=np.int32)
    be.compound_bprop_lut(4, words, data(3, 4), room(4, 3), table)
    return [y, dx, df, top, back, normal, batch, table]


def test_primitives_compute_in_float32_and_round_once(be: Backend) -> None:
    for narrow, wide in zip(primitives(be, BF16), primitives(be, np.float32)):
        assert narrow.dtype == BF16
        assert np.array_equal(bits_of(narrow), nearest(wide.get()))


def test_recurrent_steps(be: Backend) -> None:
    w, first = small((5, 5)) / 4, small((5, 3), 1)
    states = [be.array(first, dtype=BF16), *(be.zeros((5, 3), dtype=BF16) for _ in range(2))]
    inputs = [be.zeros((5, 3), dtype=BF16) for _ in range(2)]
    W = be.array(w, dtype=BF16)
    be.compound_rnn_unroll_fprop(W, states[:2], inputs, states[1:], None, 5, 2, None, F.tanh)
    for before, after in pairwise(states):
        wanted = np.tanh(W.get().astype(float) @ before.get().astype(float))
        np.testing.assert_allclose(after.get().astype(float), wanted, 4e-3, 1e-3)


def test_gradients_and_prepared_steps(be: Backend) -> None:
    x = be.array([[1.0, -2, 3]], dtype=BF16)
    (gradient,) = Autodiff(F.sum(x * x * 0.5), be).get_grad_tensor([x])
    assert (gradient.dtype, gradient.get().astype(float).tolist()) == (BF16, [[1, -2, 3]])
    step = be.prepare(x, x * 1.5)
    for _ in range(2):
        step()
    assert x.get().astype(float).tolist() == [[2.25, -4.5, 6.75]]


# Outside ------------------------------------------------------------------------------------------------------------


def test_host_arrays(be: Backend) -> None:
    host = small((3, 4)).astype(BF16)
    assert be.array(host).dtype == np.float32
    assert be.empty_like(host).dtype == be.wrap(host).dtype == BF16
    t = be.array(host, dtype="bfloat16")
    assert np.array_equal(pickle.loads(pickle.dumps(t.get())), host)
    t.set(host[::-1])
    assert np.array_equal(np.asarray(t), host[::-1])
    t.set(np.array(2.5, BF16))
    t[:, 0] = bfloat16(1.5)
    assert t.get().astype(float).tolist() == [[1.5, 2.5, 2.5, 2.5]] * 3
    with pytest.raises(DTypeError, match="cannot store"):
        t.set(np.zeros((3, 4), "V2"))


@pytest.mark.backend
def test_as_default_dtype() -> None:
    be = new_backend(default_dtype="bfloat16")
    be.bsz = 4
    assert be.zeros((2, 2)).dtype == be.iobuf(3).dtype == np.dtype(be.default_dtype) == BF16
    assert "bfloat16" in repr(be) and "bfloat16" in str(be.ones((1, 1)))


WITHOUT: dict[str, Callable[[], Any]] = {
    "a name": lambda: as_dtype("bfloat16"),
    "the function": dtypes.bfloat16,
}


@pytest.mark.parametrize("way", WITHOUT)
def test_without_the_package_the_message_says_what_to_install(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtypes.bfloat16.cache_clear()
    try:
        with pytest.raises(DTypeError, match=r"pip install 'neonlike\[bfloat16\]'"):
            WITHOUT[way]()
    finally:
        dtypes.bfloat16.cache_clear()


@pytest.mark.cpu_only("a process of its own")
def test_nothing_else_needs_the_package() -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
import neonlike.models, neonlike.layers
from neonlike.backends import gen_backend
from neonlike.errors import DTypeError
be = gen_backend("cpu")
half = be.array([[1.0, 2.0]], dtype="float16")
print((half * 2 + be.ones((1, 2))).asnumpyarray().tolist())
try:
    be.zeros((2, 2), dtype="bfloat16")
except DTypeError as error:
    print("neonlike[bfloat16]" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n")[:2] == ["[[3.0, 5.0]]", "True"], done.stderr
