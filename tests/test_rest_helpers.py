"""What layers and scripts call beside the large primitives: signs, sums, merges, biases, scratch memory, histograms."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engines import COMPARED, ENGINES, backend, new_backend, refused_after_cleanup

from neonlike.backends import Backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, NeonlikeError, ShapeError


@pytest.fixture(params=ENGINES)
def be(request: pytest.FixtureRequest) -> Iterator[Backend]:
    yield from backend(request.param)


# binarize, shift, compensated_sum -------------------------------------------------------------------------------------


def test_stochastic_signs_have_the_right_probability(be: Backend) -> None:
    for value, probability in ((-1.5, 0), (-1, 0), (-0.5, 0.25), (0, 0.5), (0.8, 0.9), (1, 1), (7, 1)):
        out = be.zeros((100, 200))
        be.binarize(be.empty((100, 200)).fill(value), out)
        assert set(np.unique(out.get())) <= {-1, 1}
        spread = 5 * (probability * (1 - probability) / 20000) ** 0.5
        assert abs((out.get() == 1).mean() - probability) <= spread


def test_stochastic_signs_are_drawn_for_each_element(be: Backend) -> None:
    out = be.zeros((50, 60))
    be.binarize(be.zeros((50, 1)), out)  # a column: still one number an element
    assert 0.3 < (out.get() == 1).mean(axis=1).min() < (out.get() == 1).mean(axis=1).max() < 0.7
    again = be.zeros((50, 60), dtype=np.int8)
    be.rng_reset()
    be.binarize(be.zeros((50, 1)), again)
    assert np.array_equal(again.get(), out.get())
    x = be.array([[np.nan, -np.inf, np.inf]])
    assert be.binarize(x, x).get().tolist() == [[-1, -1, 1]]


def test_certain_signs(be: Backend) -> None:
    x, out = be.array([[-2, -0.0, 0, 0.5, np.nan, -np.inf]]), be.zeros((1, 6))
    assert be.binarize(x, out, stochastic=False) is out
    assert out.get().tolist() == [[-1, 1, 1, 1, -1, -1]]


def test_equal_seeds_give_equal_signs_on_both_engines() -> None:
    drawn = []
    for engine in COMPARED:
        for be in backend(engine):
            for threads in ("1", "3"):
                be.rng_reset()
                drawn.append((threads, be.binarize(be.zeros((300, 70)), be.zeros((300, 70))).get()))
    assert all(np.array_equal(drawn[0][1], values) for _, values in drawn)


def test_shifts(be: Backend) -> None:
    assert be.shift(3, be.array([[5, 6, -0.3, 0]])).get().tolist() == [[12, 24, -0.75, 0]]
    assert be.shift(3, -2, value=False).get().tolist() == [[0.75]]
    t, out = be.array([[1.0, -2.0], [3.0, 4.0]]), be.zeros((2, 2))
    assert be.shift(t, be.array([[2.0], [-1.0]]), out=out) is out
    assert out.get().tolist() == [[2, -4], [-3, -4]]
    with pytest.raises(ShapeError):
        be.shift(t, be.ones((3, 1)), out=out)
    assert out.get().tolist() == [[2, -4], [-3, -4]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_compensated_sums_step_by_step(be: Backend, rng: np.random.Generator, dtype: str) -> None:
    kind = np.dtype(dtype).type
    total, lost = rng.normal(size=(7, 5)).astype(kind), np.zeros((7, 5), kind)
    sums, compensation = be.array(total, dtype=dtype), be.zeros((7, 5), dtype=dtype)
    wide = np.float32 if dtype == "float16" else kind
    for _ in range(20):
        step = (rng.normal(size=(7, 5)) * 1e-3).astype(kind)
        be.compensated_sum(sums, compensation, be.array(step, dtype=dtype))
        y = step.astype(wide) - lost.astype(wide)
        new = (total.astype(wide) + y).astype(kind)
        lost = ((new.astype(wide) - total.astype(wide)) - y).astype(kind)
        total = new
        assert np.array_equal(sums.get(), total)
        assert np.array_equal(compensation.get(), lost)
    assert compensation.kahan_count == 20


def test_compensation_starts_anew_after_the_count_that_was_set(be: Backend) -> None:
    sums, compensation, step = be.zeros((1, 1)), be.zeros((1, 1)), be.ones((1, 1))
    compensation.kahan_reset = 2
    counts, values = [], []
    for _ in range(7):
        compensation.fill(0.25)
        be.compensated_sum(sums, compensation, step)
        counts.append(compensation.kahan_count)
        values.append(float(sums.get()[0, 0]))
    assert counts == [1, 2, 3, 1, 2, 3, 1]
    assert np.diff([0, *values]).tolist() == [0.75, 0.75, 0.75, 1, 0.75, 0.75, 1]
    compensation.fill(np.nan)
    compensation.kahan_count = 3
    be.compensated_sum(sums, compensation, step, add_scale=-2.0)  # what is left out is not read
    assert sums.get()[0, 0] == values[-1] - 2


def test_bad_compensated_sums_change_nothing(be: Backend) -> None:
    sums, compensation = be.ones((2, 3)), be.ones((2, 3))
    for error, arguments in (
        (ShapeError, (sums, be.ones((3, 2)), sums)),
        (ShapeError, (sums, compensation, be.ones((2, 4)))),
        (ShapeError, (be.ones((1, 3)), be.ones((1, 3)), sums)),
        (DTypeError, (sums, be.ones((2, 3), dtype=np.float64), sums)),
        (DTypeError, (sums, None, sums)),
        (DTypeError, (sums.get(), compensation, sums)),
        (AliasError, (sums, sums, compensation)),
    ):
        with pytest.raises(error, match="compensated_sum"):
            be.compensated_sum(*arguments)
    assert (sums.get() == 1).all()
    assert (compensation.get() == 1).all()
    assert compensation.kahan_count == compensation.kahan_reset == 0


# Activations, skips, biases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0, 0.25])
def test_relu_and_its_derivative_are_lazy(be: Backend, slope: float) -> None:
    x = be.array([[-2.0, -0.0, 0.0, 3.0, np.inf]])
    for given in (x, x + 0):
        forward, backward = be.fprop_relu(None, given, slope), be.bprop_relu(None, given, None, None, slope)
        assert forward.asnumpyarray().tolist() == [[-2 * slope, 0, 0, 3, np.inf]]
        assert backward.asnumpyarray().tolist() == [[slope, 0, 0, 1, 1]]


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(be: Backend, rng: np.random.Generator, axis: int) -> None:
    x = be.array(rng.normal(size=(9, 5)) * 100)
    powers = np.exp(x.get().astype(np.float64) - x.get().max(axis, keepdims=True))
    x[:] = be.fprop_softmax(x, axis)
    assert np.allclose(x.get(), powers / powers.sum(axis, keepdims=True), rtol=1e-4, atol=1e-7)


class Cube:
    """An activation whose derivative is told by its output alone."""

    def __call__(self, x: Any) -> Any:
        return x * x * x

    def bprop(self, y: Any) -> Any:
        return y + 1


def test_transforms(be: Backend) -> None:
    x, error, out = be.array([[1.0, 2.0]]), be.array([[10.0, -1.0]]), be.zeros((1, 2))
    assert be.fprop_transform(None, Cube(), x, x, True) is None
    assert x.get().tolist() == [[1, 8]]
    assert be.bprop_transform(None, Cube(), x, error, out, relu=False) is None
    assert out.get().tolist() == [[20, -9]]
    be.bprop_transform(None, Cube(), x, error, error)
    assert error.get().tolist() == [[20, -9]]


def test_skips_scale_and_accumulate(be: Backend) -> None:
    x = be.array([[1.0, 2.0]])
    for beta, wanted in ((0, [1, 2]), (1, [11, 22]), (0.5, [6, 12])):
        y, deltas = be.array([[10.0, 20.0]]), be.array([[10.0, 20.0]])
        be.fprop_skipnode(x, y, beta)
        assert y.get().tolist() == [wanted]
        be.bprop_skipnode(x, deltas, -1.0, beta)
        assert deltas.get().tolist() == [[10 * beta - 1, 20 * beta - 2]]
    old = be.empty((1, 2)).fill(np.nan)
    be.fprop_skipnode(x, old, 0)
    assert old.get().tolist() == [[1, 2]]
    be.bprop_skipnode(x, old.fill(np.nan), 2.0, 0)
    assert old.get().tolist() == [[2, 4]]


def test_biases_of_fully_connected_layers(be: Backend, rng: np.random.Generator) -> None:
    x, bias = be.array(rng.normal(size=(4, 7))), be.array(rng.normal(size=(4, 1)))
    before = x.get()
    assert be.add_fc_bias(x, bias) is None
    assert np.array_equal(x.get(), before + bias.get())
    assert be.update_fc_bias(x, bias) is None
    assert np.allclose(bias.get(), x.get().sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    held = x.get()
    for call in (
        lambda: be.add_fc_bias(x, be.ones((1, 7))), lambda: be.add_fc_bias(x, 3.0),
        lambda: be.update_fc_bias(x, be.ones((1, 7))), lambda: be.update_fc_bias(x, be.ones((4, 7))),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match="fc_bias"):
            call()
    assert np.array_equal(x.get(), held)


# Merges ---------------------------------------------------------------------------------------------------------------


class Branch:
    """outputs = beta * outputs + scale * inputs, and deltas likewise; keeps a record of what it was called with."""

    def __init__(self, scale: float, outputs: Any, deltas: Any, record: list[Any]) -> None:
        self.scale, self.outputs, self.deltas, self.record = scale, outputs, deltas, record

    def fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
        self.record.append((self.scale, inference, beta))
        self.outputs[:] = self.scale * inputs + (beta * self.outputs if beta else 0)
        return self.outputs

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        self.record.append((self.scale, alpha, beta))
        self.deltas[:] = alpha * self.scale * error + (beta * self.deltas if beta else 0)
        return self.deltas


def test_merged_sums(be: Backend) -> None:
    record: list[Any] = []
    x, y, deltas = be.array([[1.0, 2.0]]), be.empty((1, 2)).fill(np.nan), be.ones((1, 2))
    layers = [Branch(scale, y, deltas, record) for scale in (1, 10, 100)]
    assert be.fprop_mergesum(None, x, True, layers, y, (1,)) is None
    assert record == [(1, True, 0), (10, True, 1), (100, True, 1)]
    assert y.get().tolist() == [[111, 222]]
    record.clear()
    assert be.bprop_mergesum(None, 0.5, 3.0, layers, x, deltas) is None
    assert record == [(100, 0.5, 3), (10, 0.5, 1), (1, 0.5, 1)]
    assert deltas.get().tolist() == [[3 + 55.5, 3 + 111]]


def test_merged_broadcasts(be: Backend) -> None:
    record: list[Any] = []
    x, y, deltas = be.array([[1.0, 2.0]]), be.zeros((3, 2)), be.ones((1, 2))
    layers = [Branch(scale, y[row], deltas, record) for row, scale in enumerate((1, 10, 100))]
    assert be.fprop_mergebroadcast(None, x, False, y, layers, (3,)) is None
    assert record == [(1, False, 0), (10, False, 0), (100, False, 0)]
    assert y.get().tolist() == [[1, 2], [10, 20], [100, 200]]
    record.clear()
    error = be.array([[1.0, 1.0], [2.0, 2.0], [3.0, 4.0]])
    views, alphas, betas = [error[row] for row in range(3)], [1.0, 2.0, 0.5], [1.0, 1.0, 0.0]
    be.bprop_mergebroadcast(None, layers, views, error, deltas, (1,), 2.0, 3.0, alphas, betas)
    assert betas == [1, 1, 3]
    assert record == [(100, 1, 3), (10, 4, 1), (1, 2, 1)]
    assert deltas.get().tolist() == [[3 + 300 + 80 + 2, 3 + 400 + 80 + 2]]
    record.clear()
    with pytest.raises(ArgumentError, match="3 layers"):
        be.bprop_mergebroadcast(None, layers, views[:2], error, deltas, (1,), 1.0, 5.0, alphas, betas)
    assert (record, betas) == ([], [1, 1, 3])


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
