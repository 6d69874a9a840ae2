"""Tensors on a GPU: differences from host memory, and stages on host copies."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from neonlike.backends import NervanaCPU, cleanup_backend
from neonlike.errors import BackendUnavailable, DTypeError, IndexRangeError, ShapeError
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run.stage import CopyBack, Run
from tests.support.dtype_cases import EVERY

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


# Tensors


@pytest.mark.parametrize("dtype", EVERY)
def test_what_is_set_comes_back(be: Any, dtype: str) -> None:
    host = np.arange(12).reshape(3, 4) % (2 if dtype == "bool" else 100)
    t = be.array(host, dtype=dtype)
    assert (t.dtype, t.get().tolist(), t.T.get().tolist()) == (dtype, host.tolist(), host.T.tolist())
    assert t[1:, ::2].get().tolist() == host[1:, ::2].tolist()
    assert t.gpudata == t.ptr == t.raw() == t.address
    assert t[1:].ptr - t.ptr == 4 * t.dtype.itemsize
    assert (t.strides, t.T.strides, t.is_contiguous, t.T.is_contiguous) == ((4, 1), (1, 4), True, False)


def test_conversions_round_and_saturate_as_on_the_cpu(be: Any) -> None:
    host = np.array([[300.7, -5.5, 2.5, np.nan, 1e30]])
    other = NervanaCPU()
    for dtype in EVERY[:-1]:
        t, wanted = be.empty((1, 5), dtype=dtype), other.empty((1, 5), dtype=dtype)
        t.set(host)
        wanted.set(host)
        np.testing.assert_array_equal(t.get().astype(np.float64), wanted.get().astype(np.float64))


def test_host_arrays_are_copies(be: Any) -> None:
    t = be.ones((2, 2))
    for host in (t.get(), t.asnumpyarray(), np.asarray(t), np.array(t), t.get(stream=be.stream)):
        host[:] = 5
    assert t.get().tolist() == [[1, 1], [1, 1]]
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="must be copied"):
        t.__array__(copy=False)
    assert not t.live_host


def test_a_closed_backend_refuses(be: Any) -> None:
    t = be.ones((2, 2))
    cleanup_backend()
    for call in (
        t.get, lambda: t.set(np.ones((2, 2))), lambda: t[[0]], lambda: t.__dlpack__(), lambda: np.asarray(t),
        lambda: t.__cuda_array_interface__, lambda: be.from_dlpack(t), lambda: be.wrap(np.ones((2, 2))),
    ):  # fmt: skip
        with pytest.raises(BackendUnavailable, match="closed"):
            call()


def test_the_array_interface_has_no_bfloat16(be: Any) -> None:
    t = be.ones((2, 2), dtype="bfloat16")
    for call in (lambda: t.__cuda_array_interface__, lambda: be.wrap(t), lambda: be.wrap(Untyped())):
        with pytest.raises(DTypeError, match=r"bfloat16.*from_dlpack"):
            call()


class Untyped:
    """As bfloat16 would be given out."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {"typestr": "<V2", "shape": (1, 1), "data": (0, False)}


def test_views_share_memory_and_know_it(be: Any) -> None:
    t = be.zeros((4, 6))
    view = t[1:3, ::2]
    view[:] = 1
    t.T[5] = 7
    assert t.get().sum() == 6 + 4 * 7
    assert (view.alias_of(t), t.alias_of(t[:, :]), t.alias_of(be.zeros((4, 6)))) == (2, 1, 0)
    assert (t[:, ::2].alias_of(t[:, 1::2]), t[:2].alias_of(t[2:]), t[:2].alias_of(t[1:])) == (0, 0, 2)
    assert t.alias_of(t.share((4, 6), dtype=np.int32)) == 2
    assert (view.base, t[...].base, view._original_base) == (t, None, t)
    assert t.reshape(6, 4).base is t
    assert t.reshape(4, 6) is t
    with pytest.raises(ShapeError, match="no view"):
        t.T.viewed(24, 1)
    assert np.array_equal(t.T.reshape(24, 1).get(), t.get().T.reshape(24, 1))


def test_share(be: Any) -> None:
    t = be.array(np.arange(12.0).reshape(3, 4))
    view = t.share((2, 3), name="v")
    assert (view.get().tolist(), view.name) == ([[0, 1, 2], [3, 4, 5]], "v")
    assert t.share(5).shape == (5, 1)
    assert t.share((3, 8), np.float16).dtype == np.float16
    for wrong in (lambda: t.share((4, 4)), lambda: t.share((3, 4), np.float64), lambda: t.T.share((2, 2))):
        with pytest.raises(ShapeError, match="share"):
            wrong()


def test_gathering_and_scattering(be: Any) -> None:
    host = np.arange(20.0).reshape(4, 5)
    t = be.array(host)
    assert t[[2, 0, 2]].get().tolist() == host[[2, 0, 2]].tolist()
    assert t[:, be.array([[1, 3]], dtype=np.int32)].get().tolist() == host[:, [1, 3]].tolist()
    t[[3, 1, 3]] = be.array(np.arange(15.0).reshape(3, 5) + 100)
    host[[3, 1, 3]] = np.arange(15.0).reshape(3, 5) + 100
    assert np.array_equal(t.get(), host)
    t[:, [0, 4]] = t[:, [4, 0]]  # all of the right side comes first
    host[:, [0, 4]] = host[:, [4, 0]]
    assert np.array_equal(t.get(), host)
    t[[]] = 5
    assert np.array_equal(t.get(), host)
    with pytest.raises(IndexRangeError):
        t[[4]] = 1
    with pytest.raises(ShapeError):
        t[[0, 1]] = be.ones((3, 5))
    assert np.array_equal(t.get(), host)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 5), (2, 0, 4)])
def test_small_and_empty_tensors(be: Any, shape: tuple[int, ...]) -> None:
    host = np.ones(shape)
    t = be.array(host)
    out = be.empty(shape)
    out[:] = t * 2 + 1
    assert np.array_equal(out.get(), host * 2 + 1)
    assert out.T.get().shape == be.array(host).T.shape
    assert be.from_dlpack(out).shape == shape
    assert be.sum(t).asnumpyarray().sum() == t.size


def test_overlapping_copies(be: Any) -> None:
    host = np.arange(100.0).reshape(10, 10)
    for target, source in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1]), (np.s_[::-1], np.s_[:])):
        t, wanted = be.array(host), host.copy()
        t[target] = t[source]
        wanted[target] = host[source].copy()
        assert np.array_equal(t.get(), wanted)
    t = be.array(host)
    t[:] = t.T
    assert np.array_equal(t.get(), host.T)


def test_random_numbers_are_those_of_the_cpu(be: Any) -> None:
    cpu = NervanaCPU(rng_seed=0)
    for made in (lambda b: b.rand(b.empty((33, 17))), lambda b: b.dropout(0.3, b.empty((5, 7)))):
        assert np.array_equal(made(be).get(), made(cpu).get())
    ours, theirs = be.empty((4, 4)), cpu.empty((4, 4))
    be.make_binary_mask(ours)  # drawn on the device
    cpu.dropout(0.5, theirs)
    assert np.array_equal(ours.get(), theirs.get())


def test_primitives_run_by_their_definitions(be: Any) -> None:
    a, b, c = be.array(np.arange(6.0).reshape(2, 3)), be.array(np.ones((3, 4))), be.ones((2, 4))
    be.compound_dot(a, b, c, alpha=2.0, beta=1.0)
    assert c.get().tolist() == [[7] * 4, [25] * 4]
    layer = be.pool_layer(be.default_dtype, "max", 16, 1, 1, 4, 4, 1, 1, 2, 2, 0, 0, 0, 0, 1, 2, 2)
    x = np.random.default_rng(0).random((16, 16))
    out, argmax = be.empty((4, 16)), be.empty((4, 16), dtype=np.uint8)
    be.fprop_pool(layer, be.array(x), out, argmax)
    corners = x.reshape(2, 2, 2, 2, 16).transpose(0, 2, 1, 3, 4).reshape(4, 4, 16)
    np.testing.assert_allclose(out.get(), corners.max(1), rtol=1e-6)
    assert np.array_equal(argmax.get(), corners.argmax(1))


# Stages on host copies


def test_stages_may_run_on_host_copies_one_by_one(be: Any) -> None:
    from neonlike.backends.gpu.host_stage import HostStage

    x, y, out = be.array(np.arange(12.0).reshape(3, 4)), be.array(np.ones((4, 5))), be.zeros((3, 5))
    small = be.zeros((3, 1))
    product = be.dot(x * 2, y)
    pairs = [(out, be.exp(product - be.max(product, axis=1))), (small, be.sum(product, axis=1))]
    graph = linearize(pairs)
    plan = make_plan(graph)
    assert len(plan.stages) > 2
    run = Run(graph)
    for position in range(len(plan.stages)):
        HostStage(be.device, plan, position, graph).run(run)
    assert all(hasattr(array, "address") for array in run.temps.values())
    wanted = 2 * x.get() @ y.get()
    np.testing.assert_allclose(out.get(), np.exp(wanted - wanted.max(1, keepdims=True)), rtol=1e-6)
    np.testing.assert_allclose(small.get(), wanted.sum(1, keepdims=True), rtol=1e-6)


def test_a_stage_whose_target_is_still_read_leaves_it_for_the_copy_at_the_end(be: Any) -> None:
    from neonlike.backends.gpu.host_stage import HostStage

    t = be.array(np.arange(9.0).reshape(3, 3))
    before = t.get()
    graph = linearize([(t, t.T + 1)])
    plan = make_plan(graph)
    run = Run(graph)
    HostStage(be.device, plan, 0, graph).run(run)
    assert np.array_equal(t.get(), before)
    assert list(run.temps) == [-1]
    assert CopyBack(0)  # which the engine of the device does with its own copies
    assert np.array_equal(be.device.to_host(run.temps[-1]), before.T + 1)
