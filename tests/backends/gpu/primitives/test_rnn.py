"""Recurrent unrolls on the GPU: kernels beside their definitions, vectors, launches, and the code of real nvcc.

What unrolls compute is tested for all backends in tests/backends/primitives/rnn/; the kernels of all steps in
test_rnn_persistent.py.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends.primitives.rnn import formula as rnn_formula
from neonlike.backends.primitives.rnn.formula import trace
from neonlike.errors import DeviceError
from neonlike.kernels.cuda import step
from tests.backends.primitives.rnn.test_kernels import (
    test_a_single_step_that_passes_its_error_to_itself,
    test_inputs_that_partly_overlap_the_state,
)
from tests.backends.primitives.rnn.test_rnn import (
    test_an_activation_that_works_in_place_or_keeps_state as test_in_place,
)
from tests.backends.primitives.rnn.test_unroll import test_worked_numbers
from tests.kernels.cuda.test_compile import needs_nvcc
from tests.kernels.cuda.test_compile_primitives import compiled, joined
from tests.support.engines import have_programs
from tests.support.float64.rnn_unrolled import GATES, TANH, made_layer, results
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.device_only import traffic
from tests.support.gpu.sass import ARCHITECTURES

__all__ = [
    "gpu", "test_a_single_step_that_passes_its_error_to_itself", "test_in_place",
    "test_inputs_that_partly_overlap_the_state", "test_worked_numbers",
]  # fmt: skip
TOLERANCE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 1e-1}


@pytest.fixture
def be(gpu: Any) -> Any:
    """For tests of all backends that a fault in the kernels must not pass."""
    return gpu


@pytest.fixture
def kernels(gpu: Any) -> Any:
    """The module under test, which imports PyCUDA."""
    from neonlike.backends.gpu.primitives import rnn

    have_programs(gpu)
    gpu.executor.replay.clear()
    return rnn


def definition(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the definitions run instead of the kernels."""
    monkeypatch.setattr(kernels.Unrolled, "run", lambda *_: None)


@pytest.mark.compiles(5)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", GATES)
def test_vectors_compute_what_the_definitions_do(
    gpu: Any, kernels: Any, kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four samples a thread, as for large states; some rows begin a thread's block, others do not."""
    monkeypatch.setattr(kernels, "VECTORS_FROM", 0)
    monkeypatch.setattr(gpu, "default_dtype", gpu.empty((1, 1), dtype=dtype).dtype)
    error = np.random.default_rng(2).standard_normal((37, 72))

    def found() -> list[Any]:
        return results(made_layer(gpu, kind, 37, 24, 3), error)

    vectors = found()
    assert vectors[0].dtype.name == dtype
    monkeypatch.setattr(kernels, "VECTORS_FROM", 1 << 30)
    for got, wanted in zip(vectors, found()):
        np.testing.assert_array_equal(got, wanted)
    definition(kernels, monkeypatch)
    for got, wanted in zip(vectors, found()):
        np.testing.assert_allclose(got.astype(float), wanted.astype(float), *[TOLERANCE[dtype]] * 2)


def test_vectors_are_for_aligned_rows_only(gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and rows that begin anywhere, and samples that are not a whole number of vectors, use no vectors."""
    monkeypatch.setattr(kernels, "VECTORS_FROM", 0)
    whole = gpu.empty((8, 28))
    request = made_request(kernels, 8, 4)
    for columns, vector in ((slice(0, 4), 4), (slice(4, 8), 4), (slice(1, 5), 1)):
        assert kernels._vector(request, whole.dtype, [whole[:, columns].array]) == vector
    uneven = gpu.empty((8, 30))[:, :4]
    assert kernels._vector(request, whole.dtype, [uneven.array]) == 1
    assert kernels._vector(made_request(kernels, 8, 6), whole.dtype, [whole.array]) == 1
    monkeypatch.undo()
    assert kernels._vector(request, whole.dtype, [whole.array]) == 1


def made_request(kernels: Any, units: int, samples: int) -> Any:
    return kernels.Unroll(1, units, samples, np.dtype(np.float32), TANH)


PER_STEP = {"simple": (1, 1), "lstm": (1, 1), "gru": (2, 2)}
"""Products and kernels of a step, forward and backward alike."""


@pytest.mark.parametrize("kind", GATES)
def test_a_step_is_a_product_and_a_kernel(gpu: Any, kernels: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is queued, nothing is allocated, nothing crosses to the host; of calls that are kept and of new ones."""
    seen: list[str] = []
    monkeypatch.setenv("NEONLIKE_GPU_GRAPHS", "0")
    monkeypatch.setattr(gpu.device, "launch", counted(seen, "kernel", gpu.device.launch))
    monkeypatch.setattr(gpu.products.blas.handle, "call", counted(seen, "product", gpu.products.blas.handle.call))
    layer, views = made_layer(gpu, kind, 6, 3, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    monkeypatch.setattr(layer.h, "get", lambda: None)
    for _ in range(2):  # the first looks at what the activations do
        layer.forward()
    products, cells = PER_STEP[kind]
    for kept in (True, False):
        if not kept:
            gpu.executor.replay.clear()
        seen.clear()
        before = gpu.memory_stats().requests
        with traffic(gpu) as crossing:
            layer.forward()
        assert (seen.count("product"), seen.count("kernel")) == (4 * products, 4 * cells)
        assert len(crossing) == 0 and (gpu.memory_stats().requests == before) == kept


@pytest.mark.parametrize("kind", GATES)
def test_a_repeated_unroll_is_one_graph(gpu: Any, kernels: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured at the second pass, queued by one call from then on, on whatever the tensors hold then."""
    captured: list[Any] = []
    graph = gpu.device.capture.graph
    monkeypatch.setattr(step, "GRAPH_FROM", 8)
    monkeypatch.setattr(gpu.device.capture, "graph", lambda calls: captured.append(graph(calls)) or captured[-1])
    layer, views = made_layer(gpu, kind, 6, 3, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    start, found, counts = layer.ff.get(), [], []
    for turn in range(4):
        layer.ff[:], layer.w[:] = start * (1 + turn % 2), -layer.w
        found.append(layer.forward())
        counts.append(len(captured))
    assert counts == [0, 1, 1, 1]
    assert captured[0].nodes >= 4 * sum(PER_STEP[kind])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])
    monkeypatch.setattr(step, "GRAPH_FROM", 1000)
    gpu.executor.replay.clear()
    layer.ff[:], layer.w[:] = start, -layer.w
    np.testing.assert_array_equal(layer.forward(), found[0])
    assert not np.allclose(found[0], found[1])


def test_a_driver_without_graphs_and_unrolls_within_graphs(
    gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "GRAPH_FROM", 2)
    layer, views = made_layer(gpu, "simple", 6, 3, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    start, get = layer.ff.get(), layer.h.get
    wanted = layer.forward()
    with monkeypatch.context() as broken:
        broken.setattr(gpu.device.capture, "graph", refuse)
        for _ in range(2):
            layer.ff[:], layer.h[:] = start, 0
            np.testing.assert_array_equal(layer.forward(), wanted)
    layer.h[:] = 0
    monkeypatch.setattr(layer.h, "get", lambda: None)
    graph = gpu.device.capture.graph([layer.forward])
    assert not get().any()
    graph()
    np.testing.assert_array_equal(get(), wanted)


def test_what_another_graph_took_in_gets_a_graph_of_its_own_later(
    gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "GRAPH_FROM", 2)
    layer, views = made_layer(gpu, "simple", 6, 3, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    layer.forward()
    with monkeypatch.context() as unread:
        unread.setattr(layer.h, "get", lambda: None)
        outer = gpu.device.capture.graph([layer.forward])
    captured: list[Any] = []
    graph = gpu.device.capture.graph
    monkeypatch.setattr(gpu.device.capture, "graph", lambda calls: captured.append(graph(calls)) or captured[-1])
    layer.forward()
    assert [graph.nodes for graph in captured] == [outer.nodes]


def test_no_product_is_added_to_its_own_factor(gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS does not define a product into its own factor, as when a step passes its error to itself."""
    factors: list[bool] = []
    ready = gpu.products.ready

    def watched(a: Any, b: Any, out: Any, *rest: Any) -> Any:
        factors.append(b.address == out.address)
        return ready(a, b, out, *rest)

    monkeypatch.setattr(gpu.products, "ready", watched)
    w, h, e = gpu.ones((3, 3)), [gpu.ones((3, 4))], [gpu.ones((3, 4))]
    gpu.compound_rnn_unroll_bprop(w, e, e, h, 3, 1, 1, TANH)
    assert factors and not any(factors)


def test_another_activation_is_not_the_last_ones_graph(
    gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "GRAPH_FROM", 2)
    w, h, ff = gpu.zeros((3, 3)), [gpu.zeros((3, 4)), gpu.empty((3, 4))], [gpu.ones((3, 4))]
    found = []
    for function in (TANH, TANH, TANH, transforms.Logistic(), TANH):
        gpu.compound_rnn_unroll_fprop(w, h[:1], ff, h[1:], None, 3, 1, 1, function)
        found.append(float(h[1].get()[0, 0]))
    tanh, logistic = np.tanh(1), 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(found, [tanh, tanh, tanh, logistic, tanh], 1e-6)


def test_what_is_not_there_before_the_first_step_counts_as_0(gpu: Any, kernels: Any) -> None:
    """The cell of an LSTM and the state of a GRU, backward."""
    rng, n = np.random.default_rng(3), 5
    gates, error = gpu.array(rng.uniform(size=(4 * n, 3))), gpu.array(rng.uniform(size=(n, 3)))
    found = []
    for before in (None, gpu.zeros((n, 3))):
        d, rest = gpu.zeros((4 * n, 3)), [gpu.zeros((n, 3)) for _ in range(3)]
        w, end = gpu.ones((n, 4 * n)), (n, 1, 1, TANH, transforms.Logistic())
        gpu.compound_lstm_unroll_bprop(
            w, [rest[0]], [error], [None], [rest[1]], [d], [gates], [before], [gates[:n]], *end
        )  # fmt: skip
        found.append([d.get(), rest[0].get()])
        gpu.compound_gru_unroll_bprop(
            w[:, : 3 * n], [rest[2]], [error], [d[: 3 * n]], [gates[: 3 * n]], [before], *end
        )  # fmt: skip
        found[-1] += [d.get(), rest[2].get()]
    for missing, zero in zip(*found):
        np.testing.assert_array_equal(missing, zero)
        assert np.abs(zero).max() > 0.1


def refuse(calls: Any) -> Any:
    raise DeviceError("there are no graphs")


def kept_cut(views: dict[Any, Any], layer: Any, tensor: Any, first: Any) -> list[Any]:
    """The views of each step, the same at each call, as layers have them."""
    steps = views.setdefault(id(tensor), [tensor[:, t * layer.batch : (t + 1) * layer.batch] for t in range(4)])
    return steps if first is None else [first, *steps[:-1]]


def counted(seen: list[str], name: str, function: Any) -> Any:
    def call(*arguments: Any) -> Any:
        seen.append(name)
        return function(*arguments)

    return call


def test_precision_and_numbers_change_what_is_kept(
    gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept calls hold numbers of the activation and the products' type of sums; the next run follows both."""
    sums: list[int] = []
    call = gpu.products.blas.handle.call
    monkeypatch.setattr(gpu.products.blas.handle, "call", lambda f, given: [sums.append(given[-2]), call(f, given)])
    leaky = transforms.Rectlin(slope=0.5)
    w, h = gpu.array(np.full((3, 3), 1.5)), [gpu.ones((3, 4)), gpu.empty((3, 4))]
    ff = [gpu.array(np.full((3, 4), -6.0))]

    def run() -> float:
        gpu.compound_rnn_unroll_fprop(w, h[:1], ff, h[1:], None, 3, 1, 1, leaky)
        return float(h[1].get()[0, 0])

    for _ in range(2):  # the first looks at what the activation does
        assert run() == pytest.approx(0.5 * (3 * 1.5 - 6), rel=1e-5)
    leaky.slope = 0.25
    assert run() == pytest.approx(0.25 * (3 * 1.5 - 6), rel=1e-5)
    assert gpu.executor.replay.table.calls >= 1
    gpu.product_precision = "bfloat16"
    try:
        run()
    finally:
        gpu.product_precision = "float32"
    run()
    assert sums == [68, 68, 68, 75, 68]


CELLS = "SIMPLE SIMPLE_BACK LSTM LSTM_BACK GRU_GATES GRU_CANDIDATE GRU_CANDIDATE_BACK GRU_GATES_BACK".split()


@needs_nvcc
@pytest.mark.slow
@pytest.mark.compiles(3, "float16-sm_80", "float32-sm_90a", "float64-sm_100")
@pytest.mark.parametrize(("dtype", "arch"), [*itertools.product(["float16", "float32", "float64"], ARCHITECTURES)])
def test_cells_spill_nothing_and_access_vectors(
    gpu: Any, kernels: Any, tmp_path: Path, dtype: str, arch: str
) -> None:
    kind, forms = np.dtype(dtype), {}
    computed = np.promote_types(kind, np.float32)
    for name in CELLS:
        backward, functions = "BACK" in name, (TANH, transforms.Logistic())
        names = ("slope", "gate_slope") if backward else ("act", "gate_act")
        traced = {n: trace(gpu, f.bprop if backward else f, computed, "cuda") for n, f in zip(names, functions)}
        formulas, cell = rnn_formula.joined(traced), getattr(kernels, name)
        assert formulas is not None
        vector = kernels.VECTOR_BYTES // computed.itemsize
        context = {"part": cell.part, "activation": formulas[0], "vector": vector, **kernels.variant(kind)}
        forms[name] = cell.routine, context
    text, names_of = joined(forms)
    ptx, said = compiled(tmp_path, text, arch)
    for name, kernel in names_of.items():
        assert "0 bytes spill stores, 0 bytes spill loads" in said[kernel], f"{name}: {said[kernel]}"
        assert "0 bytes stack frame" in said[kernel], f"{name}: {said[kernel]}"
        for access in ("ld", "st"):
            assert re.search(rf"{access}\.global\S*\.v[24]\.", ptx[kernel]), f"{name}: no wide {access}"
    assert len(names_of) == len(CELLS)
