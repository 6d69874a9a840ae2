"""Services of the backend itself: scratch memory, staging, histograms, marks, conversions."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, ShapeError
from tests.support.engines import new_backend, refused_after_cleanup

pytestmark = pytest.mark.engines("numpy", "c")


# Scratch memory, staging ----------------------------------------------------------------------------------------------


def test_scratch_memory_is_handed_out_in_multiples_of_128(be: Backend) -> None:
    assert (be.scratch_size, be.scratch_offset) == (0, 0)
    be.set_scratch_size(1, 128, 129)
    assert be.scratch_size == 128 + 128 + 256
    be.set_scratch_size(10)  # never smaller
    assert be.scratch_size == 512
    base = be.scratch_buffer(100)
    assert isinstance(base, int)
    assert base % 128 == 0
    assert be.scratch_offset == 128
    assert be.scratch_buffer_offset(129) == base + 128
    assert be.scratch_offset == 384
    assert be.scratch_buffer_offset(0) == base + 384
    with pytest.raises(RuntimeError, match="scratch_buffer_offset: 256 bytes asked for, 128 of 512"):
        be.scratch_buffer_offset(129)
    assert be.scratch_offset == 384
    assert be.scratch_buffer_offset(128) == base + 384
    assert be.scratch_buffer(512) == base
    with pytest.raises(RuntimeError, match="scratch_buffer: 640"):
        be.scratch_buffer(513)
    be.scratch_buffer_init()
    assert be.scratch_buffer_offset(256) == base
    be.scratch_buffer_reset()
    assert (be.scratch_size, be.scratch_offset) == (0, 0)
    with pytest.raises(RuntimeError):
        be.scratch_buffer(1)


def test_scratch_memory_can_be_written_and_grows(be: Backend) -> None:
    be.set_scratch_size(256)
    first = be.scratch_buffer(256)
    ctypes.memset(first, 7, 256)
    be.set_scratch_size(256, 4096)
    second = be.scratch_buffer_offset(4096)
    ctypes.memset(second, 9, 4096)
    others = [np.ones(256 + 128 * k, np.uint8) for k in range(3) for _ in range(20)]  # would take what was freed
    assert set(ctypes.string_at(first, 256)) == {7}  # still good, though the memory was outgrown
    del others
    assert set(ctypes.string_at(second, 4096)) == {9}


def test_scratch_sizes_are_checked(be: Backend) -> None:
    be.set_scratch_size(1000)
    for size, error in ((-1, ArgumentError), (1.5, DTypeError), ("1", DTypeError), (None, DTypeError)):
        for call in (be.set_scratch_size, be.scratch_buffer, be.scratch_buffer_offset):
            with pytest.raises(error, match="scratch"):
                call(size)
    assert (be.scratch_size, be.scratch_offset) == (1024, 0)
    with pytest.raises(NeonlikeError):
        be.scratch_buffer(5000)
    be.cleanup_backend()
    with refused_after_cleanup():
        be.scratch_buffer(1)


def test_batches_are_staged_transposed(be: Backend) -> None:
    host, device = [np.arange(6.0).reshape(2, 3), np.ones((2, 3))], [None, None]
    be.consume(0, host, device)
    assert device[0].get().tolist() == host[0].T.tolist()
    assert device[1] is None
    kept = device[0]
    host[0] = host[0] * 2
    be.consume(0, host, device)
    assert device[0] is kept
    assert kept.get().tolist() == host[0].T.tolist()
    with pytest.raises(AssertionError, match="buf_index"):
        be.consume(2, host, device)


# Histograms -----------------------------------------------------------------------------------------------------------


@pytest.mark.backend
def test_histograms_clamp_into_the_end_bins() -> None:
    be = new_backend(hist_bins=4, hist_offset=-1)  # exponents -1, 0, 1, 2
    t = be.array([[0.0, 1e-9, -0.5, 1.0, -1.3, 1.5, 2.0, 4.0, -8.0, 1e30, np.inf, -np.inf]])
    # round(log2|x|): -inf -30 -1 0 0 1 1 2 3 100 inf inf
    assert t.hist("first").get().tolist() == [[3, 2, 2, 5]]
    be.zeros((2, 2)).hist("second")
    assert (be.hist_idx, be.hist_map) == (2, {"first": 0, "second": 1})
    data, tags = be.dump_hist_data()
    assert data.get().tolist() == [[3, 2, 2, 5], [4, 0, 0, 0]]
    assert data.dtype == np.int32
    assert tags == {"first": 0, "second": 1}
    assert (be.hist_idx, be.hist_map) == (0, {})
    be.set_hist_buffers(3, -1)
    assert be.ones((1, 2)).hist("third").get().tolist() == [[0, 2, 0]]


# What scripts ask about a device --------------------------------------------------------------------------------------


@pytest.mark.cpu_only("what only one of CPU and GPU has")
def test_a_cpu_has_nothing_of_a_device(be: Backend) -> None:
    nothing = ("stream", "ctx", "cublas_handle", "init_rng_state_dev", "pcg")
    assert [getattr(be, name) for name in nothing] == [None] * 5
    assert (be.round_mode, be.warmup, be.use_cudac_kernels, be.gpu_memory_size) == (0, False, False, 0)
    assert be.compute_capability < (5, 0)
    for name in ("buf", "buf_active", "context_rand_state_map", "context_rand_state_alive"):
        assert getattr(be, name) == getattr(new_backend(), name) == {}


def test_attributes_of_devices_can_be_read(be: Backend) -> None:
    assert be.bench is None
    assert be.sm_count >= 1
    assert isinstance(be.cache_dir, str)
    other = new_backend()
    for name in ("buf", "buf_active", "context_rand_state_map", "context_rand_state_alive"):
        before, others = dict(getattr(be, name)), dict(getattr(other, name))
        getattr(be, name)["key"] = 1
        assert getattr(be, name) == {**before, "key": 1}
        assert getattr(other, name) == others
    for value in (False, True, 2, 4):
        be.enable_winograd = value
        assert be.enable_winograd == value


def test_events_are_a_pair_of_marks(be: Backend) -> None:
    start, end = be.get_events()
    be.record_mark(start)
    be.record_mark(end)
    be.synchronize_mark(end)
    assert be.get_time(start, end) >= 0
    assert be.get_events()[0] is start
    assert be.get_events()[1] is end
    assert start is not end


# Extras of neon's MKL backend -----------------------------------------------------------------------------------------


def test_conversions_have_nothing_to_convert(be: Backend) -> None:
    t = be.array([[-1.0, 2.0]])
    assert be.convert(t) is t
    assert be.convert_mkl(t) is t
    copied = be.get_numpy(t)
    copied[:] = 5
    assert t.get().tolist() == [[-1, 2]]
    assert be.get_numpy(t + 1).tolist() == [[0, 3]]
    assert be.Relu(t, t) is t
    assert t.get().tolist() == [[0, 2]]
    array = np.array([-1.0, 2])
    found = be.Relu(array)
    assert type(found) is np.ndarray and found.tolist() == [0, 2]
    assert be.Relu(array, array) is array and array.tolist() == [0, 2]
    for out, error, words in [
        (np.zeros(2, np.int64), DTypeError, "is float64, which out of int64 cannot hold"),
        (np.zeros((2, 2)), ShapeError, r"out has shape \(2, 2\) and ary \(2,\)"),
        (np.broadcast_to(np.zeros(()), 2), ArgumentError, "read-only"),
    ]:
        with pytest.raises(error, match=words):
            be.Relu(np.array([-1.0, 2.0]), out)
        assert not np.any(out)


def test_sums_and_transposes(be: Backend) -> None:
    a, b, out = be.array([[1.0, 2.0]]), be.array([[10.0, 20.0]]), be.zeros((1, 2))
    assert be.sum_tensor([a, b, a], out) is out
    assert out.get().tolist() == [[12, 24]]
    assert be.sum_tensor((a, b)).asnumpyarray().tolist() == [[11, 22]]
    with pytest.raises(ArgumentError, match="at least one"):
        be.sum_tensor([])
    turned = be.zeros((2, 1))
    assert be.trans2d(a, turned) is turned
    assert turned.get().tolist() == [[1], [2]]
    square = be.array([[1.0, 2.0], [3.0, 4.0]])
    be.trans2d(square, square)
    assert square.get().tolist() == [[1, 3], [2, 4]]


def test_runs_are_stored_by_columns_and_back(be: Backend) -> None:
    host = np.arange(24.0)
    a, b = be.array(host.reshape(2, 12)), be.zeros((4, 6))
    assert be.change_data_store_order(a, 2, 3, 4, b=b) is b
    assert b.get().ravel().tolist() == host.reshape(2, 3, 4).transpose(1, 0, 2).ravel().tolist()
    assert be.change_data_store_order(b, 2, 3, 4, axis=0) is b
    assert b.get().ravel().tolist() == host.tolist()
    strided = be.array(np.repeat(host.reshape(6, 4), 2, axis=1))[:, ::2]
    assert be.change_data_store_order(strided, 2, 3, 4) is strided
    assert strided.get().ravel().tolist() == host.reshape(2, 3, 4).transpose(1, 0, 2).ravel().tolist()
    for arguments in ((2, 3, 5), (2, 3, 4, 2), (2, 3, 4, 1, be.zeros((5, 5)))):
        with pytest.raises(ArgumentError if len(arguments) == 4 else ShapeError, match="change_data_store_order"):
            be.change_data_store_order(a, *arguments)
    assert a.get().ravel().tolist() == host.tolist()


def test_detections_of_an_ssd_network(be: Backend) -> None:
    priors = np.array([[0, 0, 0.4, 0.4], [0.01, 0, 0.41, 0.4], [0.5, 0.5, 0.9, 0.9], [0, 0.5, 0.2, 0.9]])
    scores = np.zeros((4, 3, 2))
    scores[:, 0] = 0.9  # the background
    scores[:, 1, 0] = 0.8, 0.9, 0.7, 0.05
    scores[:, 2, 1] = 0.02, 0.1, 0.3, 0.6
    offsets = np.zeros((4, 4, 2))
    offsets[3, :, 1] = 1, -1, 5 * np.log(2), 0  # centre by a tenth of the size, twice as wide
    first, second = be.detectionOutput_fprop(
        be.array(scores), be.array(offsets), be.zeros((4, 5)), be.array(priors), be.zeros((4, 4)), 3, 2, 0.09, 0.5
    )
    assert np.allclose(first, [[0.01, 0, 0.41, 0.4, 0.9, 1], [0.5, 0.5, 0.9, 0.9, 0.7, 1]], atol=1e-6)
    assert np.allclose(second, [[-0.08, 0.46, 0.32, 0.86, 0.6, 2], [0.5, 0.5, 0.9, 0.9, 0.3, 2]], atol=1e-6)
    none = be.detectionOutput_fprop(be.array(scores), be.array(offsets), None, priors, None, 3, 2, 0.95, 0.5)
    assert [found.shape for found in none] == [(0, 6), (0, 6)]
    with pytest.raises(ShapeError, match="detectionOutput_fprop"):
        be.detectionOutput_fprop(be.array(scores), be.zeros((4, 4, 3)), None, priors, None, 3, 2, 0.1, 0.5)
    for dtype, numbers, error in (
        (np.int32, (3, 2, 0.1, 0.5), DTypeError), (np.float32, (-1, 2, 0.1, 0.5), ArgumentError),
        (np.float32, (3, 2.5, 0.1, 0.5), DTypeError), (np.float32, (3, 2, 0.1, np.nan), ArgumentError),
    ):  # fmt: skip
        with pytest.raises(error, match="detectionOutput_fprop"):
            be.detectionOutput_fprop(be.array(scores), be.array(offsets, dtype=dtype), None, priors, None, *numbers)
