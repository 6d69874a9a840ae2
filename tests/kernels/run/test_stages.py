"""Executable stages: the state that every engine keeps on a plan, and the kernels reported by a stage."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import OutOfMemory
from neonlike.kernels.bench.engine import TimedStage
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda.device import Capabilities
from neonlike.kernels.cuda.engine import CudaEngine
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.numpy_engine.engine import LoopStage, ViewStage
from neonlike.kernels.planning.graph import Graph, linearize
from neonlike.kernels.planning.plan import StageKind
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run import arrays
from neonlike.kernels.run.stage import ExecutableStage
from neonlike.optree import moves
from neonlike.optree.functions import F
from neonlike.optree.show import infix
from tests.support.engines import ON_GPU, backend

pytestmark = pytest.mark.engines("numpy", "c")


def softmax(x: Any) -> Any:
    return F.exp(x - F.max(x, axis=1)) / F.sum(F.exp(x - F.max(x, axis=1)), axis=1)


EXPRESSIONS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "elementwise": lambda be, x, y, i: be.sig(x * y + 1),
    "reduction": lambda be, x, y, i: softmax(x),
    "strided": lambda be, x, y, i: be.tanh(x[:, ::-1]) + x.T[:, :1].T,
    "product and more": lambda be, x, y, i: softmax(be.dot(x * 2, y.T)),
    "product of transposed": lambda be, x, y, i: be.dot(be.dot(y, x.T).T + 1, y),
    "take": lambda be, x, y, i: be.take(x + y, i, 1) * 2,
    "take of a product": lambda be, x, y, i: be.take(be.dot(x, y.T), i, 0) * 2,
    "scatter": lambda be, x, y, i: F.untake(be.take(x, i, 1) * 3, i, (12, 14), 1) + 1,
    "scan from the end": lambda be, x, y, i: F.cumsum(be.exp(x), axis=1, reverse=True) * 2,
    "order": lambda be, x, y, i: F.take_along(x * 2, F.argsort(x * 2, axis=1, descending=True), 1),
    "transposed": lambda be, x, y, i: be.square(x).T + 1,
    "concatenation": lambda be, x, y, i: be.sum(F.concat([x * 2, softmax(y)], axis=1), axis=1),
    "primitive": lambda be, x, y, i: be.tanh(be.batchnorm(x * 2, y[:, :1] + 0, y[:, 1:2] + 0)) + 1,
}


SHAPE = 12, 14


def operands(be: Backend, shape: tuple[int, int] = SHAPE) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    x, y = (be.array(rng.standard_normal(shape)) for _ in range(2))
    return x, y, be.array([[1, 0, 5, 3]], dtype=np.int32)


def planned(be: Any, name: str, shape: tuple[int, int] = SHAPE) -> tuple[Any, Graph]:
    """A plan of one of the expressions, for a new tensor."""
    expression = EXPRESSIONS[name](be, *operands(be, shape))
    graph = linearize(((be.empty(expression.shape, dtype=expression.dtype), expression),))
    return make_plan(graph), graph


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_plan_keeps_stages_of_one_protocol(be: Any, name: str) -> None:
    plan, graph = planned(be, name)
    be.engine.execute(plan, graph)
    stages = plan.executable[be.engine.name]
    assert len(stages) >= len(plan.stages)
    assert all(ExecutableStage in type(stage).__mro__ for stage in stages)


def test_timed_stages_are_stages_too() -> None:
    assert ExecutableStage in TimedStage.__mro__


# Kernels without memory -----------------------------------------------------------------------------------------------


def refuse(*args: Any) -> Any:
    raise AssertionError("memory was asked for")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_asking_for_kernels_allocates_nothing(be: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, graph = planned(be, name)
    monkeypatch.setattr("neonlike.kernels.run.reuse.aligned_empty", refuse)
    monkeypatch.setattr(be, "fresh", refuse)
    if ON_GPU:
        monkeypatch.setattr(be.device, "allocate", refuse)
    sources = be.engine.sources(plan, graph)
    assert all("(" in str(kernel.source) for kernel in sources)
    assert bool(sources) is (be.engine.name != "numpy")
    if any(plan.kept(stage) for stage in plan.stages):
        with pytest.raises(AssertionError, match="memory was asked for"):
            be.engine.execute(plan, graph)


def test_kernels_of_a_plan_that_no_memory_would_hold(be: Any) -> None:
    """Temporaries of 256 TiB; the first run says that there is no memory, and leaves the target alone."""
    n = 1 << 23
    column, row, out = be.ones((n, 1)), be.ones((1, n)), be.zeros((n, 1))
    product = F.cumsum(be.dot(column, row) * 2, axis=1)
    value = be.sum(product, axis=1)
    plan = be.plans.find(graph := linearize(((out, value),)))
    sources = be.engine.sources(plan, graph)
    assert len(sources) >= 2 or be.engine.name == "numpy"
    assert be.explain(value, out=out).count("stage ") == len(plan.stages)
    with pytest.raises(OutOfMemory):
        out[:] = value
    assert not out[:1].get().any()


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_kernels_are_those_that_run(be: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where temporaries would lie is foreseen as it comes about."""
    plan, graph = planned(be, name)
    sources = be.engine.sources(plan, graph)
    foreseen = {kernel.name for kernel in sources if "gemm" not in f"{kernel.name} {kernel.source}"}
    built: set[str] = set()
    module, function = (compile_cuda, "build_cubin") if ON_GPU else (compile_c, "build_kernel")
    build = getattr(module, function)
    monkeypatch.setattr(module, function, lambda kernel, *more: (built.add(kernel.name), build(kernel, *more))[1])
    plan, graph = planned(be, name)
    run = be.engine.new_run(graph)
    for stage in be.engine.stages(plan, graph):
        stage.run(run)
    assert foreseen <= built, "but for products, whose kernels all plans share"


@pytest.mark.engines("c")
@pytest.mark.parametrize("name", [name for name in EXPRESSIONS if name != "scatter"])
def test_kernels_of_the_same_text_are_one_kernel(be: Any, name: str) -> None:
    """Shapes that need no other code are compiled once: a network has one kernel for the activations of its layers."""
    kernels = []
    for shape in ((12, 14), (12, 22), (18, 14), (70, 30)):
        kernels += be.engine.sources(*planned(be, name, shape))
    texts = {str(kernel.source).replace(kernel.name, "") for kernel in kernels}
    assert len({kernel.source.identity for kernel in kernels}) == len(texts)
    assert name != "elementwise" or len(texts) == 1


# One stage at a time --------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("stages of the CPU's engines")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_c_engine_makes_no_numpy_loop_that_it_does_not_run(
    compiled: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopStage, "__init__", refuse)
    plan, graph = planned(compiled, name)
    compiled.engine.execute(plan, graph)
    assert np.isfinite(graph.targets[0].get()).all()


# Without a device -----------------------------------------------------------------------------------------------------


class Nowhere:
    """A tensor that has a layout alone."""

    rounding = 0

    def __init__(self, tensor: Any) -> None:
        self.shape, self.dtype, self.is_contiguous = tensor.shape, tensor.dtype, tensor.is_contiguous
        self.array = ArrayLayout(tensor.shape, tensor.dtype, tensor.array.strides)

    def alias_of(self, other: Any) -> int:
        return int(other is self)


@pytest.mark.cpu_only("what a GPU's engine says where there is none")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_cuda_kernels_are_found_without_a_device(name: str) -> None:
    device = SimpleNamespace(capabilities=Capabilities("sm_90", 132))
    engine = CudaEngine(Queue(device, refuse), refuse)  # type: ignore[arg-type]
    for be in backend("numpy"):
        plan, graph = planned(be, name)
        graph.leaves, graph.targets = ([Nowhere(tensor) for tensor in some] for some in (graph.leaves, graph.targets))
        sources = engine.sources(plan, graph)
        assert sources
        assert all("__global__" in str(kernel.source) for kernel in sources)


# Targets that nobody else has -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results_that_later_stages_read_are_read_in_their_targets(be: Any, dtype: Any) -> None:
    x, y, _ = operands(be)
    hidden = be.tanh(x * 2 + y)
    product = be.dot(hidden, y.T)
    normal = be.batchnorm(product, y[:, :1] + 0, y[:, 1:2] + 0)
    values = [hidden, be.sum(hidden, axis=1), product, normal, be.sum(normal * hidden[:, :12], axis=0)]
    pairs = [(be.empty(value.shape, dtype=dtype), value) for value in values]
    stages = make_plan(linearize(pairs)).stages
    assert any(store.buffered for stage in stages for store in stage.stores), "the primitive may fail"
    stages = make_plan(linearize(pairs, fresh=True)).stages
    stores = [store for stage in stages for store in stage.stores]
    assert not any(store.buffered for store in stores)
    assert any(store.shared for store in stores) is (dtype == np.float32), "what later stages read is not rounded"
    be.assign_fresh(pairs)
    for target, value in pairs:
        other = be.empty(value.shape, dtype=dtype)
        other[:] = value
        np.testing.assert_allclose(target.get(), other.get(), rtol=2e-3 if dtype == np.float16 else 2e-6, atol=1e-6)


def test_a_fresh_target_that_is_read_is_written_last(be: Any) -> None:
    x, y, _ = operands(be)
    before = x.get()
    wanted = before + y.get(), (before + y.get()).sum(axis=1, keepdims=True) + before[:, :1]
    total = x + y
    sums = be.empty((12, 1))
    be.assign_fresh([(x, total), (sums, be.sum(total, axis=1) + x[:, :1])])
    np.testing.assert_allclose(x.get(), wanted[0], rtol=1e-6)
    np.testing.assert_allclose(sums.get(), wanted[1], rtol=1e-5, atol=1e-5)


# Results that reductions read -----------------------------------------------------------------------------------------

STORED_FIRST: dict[str, tuple[Callable[[Any, Any], list[Any]], Callable[..., list[Any]]]] = {
    "columns": (lambda x, y: [x * F.tanh(y)], lambda g: [F.sum(g, axis=0)]),
    "of more than the result": (lambda x, y: [x * F.tanh(y)], lambda g: [F.sum(g * 2 + 1, axis=0)]),
    "of two results": (lambda x, y: [x * F.tanh(y), F.exp(x)], lambda g, h: [F.sum(g * h, axis=0)]),
    "two reductions": (lambda x, y: [x * F.tanh(y)], lambda g: [F.sum(g, axis=0), F.max(g * g, axis=0)]),
}
"""Results that fill a space, and reductions over its columns that read them."""


@pytest.mark.compiles(4)
@pytest.mark.parametrize("sums_first", [False, True])
@pytest.mark.parametrize("name", STORED_FIRST)
def test_results_are_stored_before_their_columns_are_reduced(be: Any, name: str, sums_first: bool) -> None:
    made, reduced = STORED_FIRST[name]
    x, y, _ = operands(be)
    results = made(x, y)
    wanted = []  # each assigned alone
    for value in results:
        wanted.append(be.empty(value.shape))
        wanted[-1][:] = value
    for value in reduced(*wanted):
        wanted.append(be.empty(value.shape))
        wanted[-1][:] = value
    pairs = [(be.empty(value.shape), value) for value in (*results, *reduced(*results))]
    if sums_first:
        pairs, wanted = pairs[::-1], wanted[::-1]
    first, second = make_plan(linearize(pairs, fresh=True)).stages
    assert (first.kind, second.kind) == (StageKind.ELEMENTWISE, StageKind.REDUCE)
    assert len(first.stores) == len(results) and all(store.shared for store in first.stores)
    assert first.reason.startswith("results that ") and not first.saved, "they are read where they are stored"
    assert len(second.stores) == len(pairs) - len(results)
    be.assign_fresh(pairs)
    assert [target.get().tobytes() for target, _ in pairs] == [target.get().tobytes() for target in wanted]


def test_results_are_not_stored_before_other_reductions(be: Any) -> None:
    x, y, _ = operands(be)
    value, row = x * F.tanh(y), F.tanh(y[:1] * 2)
    half = be.array(x.get(), dtype=np.float16) * 2
    cases = {
        "of rows": ([value, F.sum(value, axis=1)], True),
        "of another shape": ([row, F.sum(row * x, axis=0)], True),
        "rounded where they are stored": ([half, F.sum(half, axis=0)], True),
        "that others see": ([value, F.sum(value, axis=0)], False),
        "of what is reduced": ([F.softmax(x, 0), F.sum(F.softmax(x, 0) * y, axis=0)], True),
    }
    for name, (values, fresh) in cases.items():
        pairs = [(be.empty(value.shape, dtype=value.dtype), value) for value in values]
        reasons = [stage.reason for stage in make_plan(linearize(pairs, fresh=fresh)).stages]
        assert not any(reason.startswith("results that ") for reason in reasons), name


# Windows --------------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda h: h[3:7],
    "rows backwards": lambda h: h[::-2],
    "columns": lambda h: h[:, 4:9],
    "every other column": lambda h: h[:, 1::2],
    "columns backwards": lambda h: h[:, ::-1],
    "another shape": lambda h: h.reshape(3, 4, 14),
    "parts of heads": lambda h: h.reshape(4, 3, 2, 7)[:, :, 1],
    "a transposed one": lambda h: h.T.reshape(4, 42),
    "none": lambda h: h[5:5],
}


@pytest.mark.compiles(4)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_values_and_of_tensors(be: Any, name: str) -> None:
    x, y, _ = operands(be)
    window = WINDOWS[name]
    product = be.dot(x, y.T.reshape(-1, 12)[:14])
    value = F.dot(product, y) * 2
    for whole in (value, F.cumsum(x, axis=0)):
        array = be.empty(whole.shape)
        array[:] = whole
        out = be.empty(window(whole).shape)
        out[:] = be.exp(window(whole) * 0.01) + 1
        np.testing.assert_allclose(out.get(), np.exp(window(array.get()) * 0.01) + 1, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32"])
@pytest.mark.parametrize("shown", ["window", "reshape", "reshape back"])
def test_windows_of_tensors_of_other_dtypes(be: Any, dtype: str, shown: str) -> None:
    """Stages read temporaries in the dtype that is computed in, which is not that of narrow tensors."""
    x = be.array(np.arange(-84, 84).reshape(12, 14) / 4, dtype=dtype)
    layout = ((5, 14), (14, 1), 28) if shown == "window" else ((14, 12), (12, 1), 0)
    value = F.unview(x, (14, 12), ((12, 14), (14, 1), 0)) if shown == "reshape back" else F.view(x, layout)
    host = np.asarray(x.get(), np.float64)
    wanted = host[2:7] if shown == "window" else host.reshape(14, 12)
    out, total = be.empty(wanted.shape, dtype="float64"), be.empty((1, 1), dtype="float64")
    for _ in range(3):
        be.assign_many([(out, F.leaky_relu(value, -2)), (total, F.sum(value))])
        np.testing.assert_array_equal(out.get(), np.where(wanted > 0, wanted, -2 * wanted))
        assert total.get()[0, 0] == wanted.sum()


def test_a_window_of_a_target_keeps_its_old_values(be: Any) -> None:
    x, y, _ = operands(be)
    before, factor = x.get().astype(np.float64), y.get().astype(np.float64)
    window = moves.view(x, ((14, 12), (12, 1), 0))
    new = softmax(be.dot(be.dot(y, window) * 0.1, y))
    out = be.empty((12, 12))
    be.assign_many([(x, new), (out, be.dot(new, window))])
    sums = factor @ before.reshape(14, 12) * 0.1 @ factor
    wanted = np.exp(sums - sums.max(axis=1, keepdims=True))
    wanted /= wanted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(x.get(), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.get(), wanted @ before.reshape(14, 12), rtol=1e-4, atol=1e-5)


@pytest.mark.cpu_only("a GPU copies windows")
def test_windows_of_temporaries_are_not_copied(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = operands(be)
    out = be.empty((4, 4))
    copied: list[object] = []
    window = F.cumsum(x + y, axis=0)[4:8].reshape(8, 7)[::2]
    value = be.dot(window, window.T)
    out[:] = value
    first = out.get()
    monkeypatch.setattr(ViewStage, "_compute", lambda self, run: copied.append(self.value))
    out[:] = value
    assert copied == []
    np.testing.assert_array_equal(out.get(), first)


@pytest.mark.engines("c")
def test_an_expression_is_written_down_once_for_all_of_its_stages(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have it as a comment; to write it for each of hundreds took most of the time of planning them."""
    written = []
    monkeypatch.setattr(arrays, "infix", lambda root: written.append(root) or infix(root))
    x, value = be.ones((3, 3)), be.ones((3, 3))
    for _ in range(3):
        value = be.dot(value, x) + be.sum(value, axis=1) / 9
    out = be.empty((3, 3))
    out[:] = value
    assert len(written) == 1
    np.testing.assert_allclose(out.get(), (3 + 1 / 3) ** 3, rtol=1e-6)
