"""All steps of a recurrent layer in one launch on the GPU: beside float64 and steps one by one; when it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DeviceError
from neonlike.kernels.cuda import tickets
from tests.backends.gpu.primitives.test_rnn import counted, kept_cut
from tests.support.engines import have_programs
from tests.support.float64.rnn_formulas import sigmoid
from tests.support.float64.rnn_unrolled import GATES, LOGISTIC, TANH, Layer, made_layer, results
from tests.support.gpu.cuda_backends import gpu

__all__ = ["gpu"]
SHAPES = {
    "odd": (37, 5, 3), "one sample": (19, 1, 4), "groups": (9, 35, 2), "one step": (11, 6, 1), "one unit": (1, 3, 2),
}  # fmt: skip
"""Units, samples, steps."""
MULTIPROCESSORS = 6
"""So few that each block has several units, a group of samples few blocks."""


@pytest.fixture
def module(gpu: Any) -> Any:
    """The module under test, which imports PyCUDA."""
    from neonlike.backends.gpu.primitives import rnn_persistent

    return rnn_persistent


@pytest.fixture
def whole(gpu: Any) -> Iterator[Any]:
    """The backend, which takes the kernel wherever it fits."""
    have_programs(gpu)
    gpu.recurrent_method = "persistent"
    yield gpu
    gpu.recurrent_method = "steps"
    gpu.executor.replay.clear()


@pytest.fixture
def few(whole: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same on a GPU with few multiprocessors."""
    limit(whole, MULTIPROCESSORS, monkeypatch)
    return whole


def limit(be: Any, multiprocessors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the GPU had so few."""
    capabilities = replace(be.device.capabilities, multiprocessors=multiprocessors)
    monkeypatch.setattr(be.device, "capabilities", capabilities)


@pytest.fixture
def bound(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each unroll forward that might be one launch, whether it became one."""
    seen: list[bool] = []
    program = module.program

    def noted(*arguments: Any) -> Any:
        made = program(*arguments)
        seen.append(made is not None)
        return made

    monkeypatch.setattr(module, "program", noted)
    return seen


def reference(layer: Layer) -> dict[str, Any]:
    """Results of a forward pass in float64, from the contents of the layer before it."""
    w, b, ff, h, c = (t.get().astype(np.float64) for t in (layer.w, layer.b, layer.ff, layer.h0, layer.c0))
    n, found = layer.n, dict[str, list[Any]](h=[], c=[], a=[], ff=[], reset=[])
    for step in np.split(ff, layer.steps, axis=1):
        sums = w @ h + step + b
        if layer.kind == "simple":
            h = np.tanh(sums)
            made: dict[str, Any] = {"h": h}
        elif layer.kind == "lstm":
            i, f, o = (sigmoid(sums[k * n : (k + 1) * n]) for k in range(3))
            g = np.tanh(sums[3 * n :])
            c = f * c + i * g
            h = o * np.tanh(c)
            made = {"h": h, "c": c, "a": np.tanh(c), "ff": np.concatenate((i, f, o, g))}
        else:
            r, z = sigmoid(sums[:n]), sigmoid(sums[n : 2 * n])
            candidate = np.tanh(w[2 * n :] @ (r * h) + step[2 * n :] + b[2 * n :])
            made = {"reset": r * h, "ff": np.concatenate((r, z, candidate))}
            h = (1 - z) * h + z * candidate
            made["h"] = h
        for name, value in made.items():
            found[name].append(value)
    return {name: np.concatenate(values, axis=1) for name, values in found.items() if values}


def check(layer: Layer, wanted: dict[str, Any], relative: float = 1e-5, absolute: float = 2e-6) -> None:
    """Compare the contents of the layer after a forward pass."""
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(layer, name).get(), value, relative, absolute, err_msg=name)


@pytest.mark.checked
@pytest.mark.compiles(5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", GATES)
def test_it_computes_what_steps_one_by_one_do(few: Any, bound: list[bool], kind: str, shape: str) -> None:
    """Forward, all that it keeps for the backward pass, and that pass."""
    units, samples, steps = SHAPES[shape]
    error = np.random.default_rng(5).standard_normal((units, samples * steps))
    layer = made_layer(few, kind, units, samples, steps)
    wanted = reference(layer)
    found = results(layer, error)
    assert bound == [True]
    check(layer, wanted)
    few.recurrent_method = "steps"
    for got, other in zip(found, results(made_layer(few, kind, units, samples, steps), error)):
        np.testing.assert_allclose(got, other, 1e-5, 3e-6)
    assert bound == [True]


@pytest.mark.checked
@pytest.mark.compiles(3)
@pytest.mark.parametrize("order", ["reverse", "random"])
@pytest.mark.parametrize("kind", GATES)
def test_float64_many_steps_and_blocks_in_any_order(
    few: Any, module: Any, bound: list[bool], kind: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all that a thread may have on its way at once."""
    monkeypatch.setenv("CUEMU_ORDER", order)
    monkeypatch.setattr(module, "AHEAD", 2)
    monkeypatch.setattr(few, "default_dtype", np.dtype(np.float64))
    layer = made_layer(few, kind, 70, 3, 12)
    wanted = reference(layer)
    layer.forward()
    assert bound == [True] and layer.h.dtype == np.float64
    check(layer, wanted, 1e-12, 1e-12)


@pytest.mark.checked
@pytest.mark.compiles(2)
@pytest.mark.parametrize("kind", GATES)
def test_blocks_of_several_tiles(
    whole: Any, module: Any, bound: list[bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows in a block than its threads multiply at a time, the last tile not full; two groups of samples."""
    limit(whole, 2, monkeypatch)
    monkeypatch.setattr(module, "MOST_SAMPLES", 8)
    monkeypatch.setattr(module, "LANE_ROWS", 2)
    monkeypatch.setattr(module, "WARPS", 2)
    cut = module.form(getattr(module, kind.upper()).gates, 37, 11, 4, whole.device.capabilities)
    assert cut.blocks == 1 and cut.groups == 2
    assert [phase.tiles for phase in cut.phases] == {"simple": [2], "lstm": [5], "gru": [3, 2]}[kind]
    layer = made_layer(whole, kind, 37, 11, 3)
    wanted = reference(layer)
    layer.forward()
    assert bound == [True]
    check(layer, wanted)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("kind", GATES)
def test_the_method_may_change_between_passes(
    few: Any, bound: list[bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept unroll runs step by step, as one launch twice, and step by step again."""
    few.recurrent_method, seen = "steps", list[str]()
    made_layer(few, kind, 13, 35, 4).forward()  # which looks at what the activations do
    tickets.tickets_of(few.device)
    layer, views = made_layer(few, kind, 13, 35, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    start, wanted = layer.ff.get(), reference(layer)
    monkeypatch.setattr(few.device, "launch", counted(seen, "kernel", few.device.launch))
    kernels, found = [], []
    for method in ("steps", "persistent", "persistent", "steps"):
        few.recurrent_method = method
        layer.ff[:], layer.h[:] = start, 0
        seen.clear()
        found.append(layer.forward())
        kernels.append(len(seen))
        check(layer, wanted)
    each = layer.steps * (1 + (kind == "gru"))
    assert bound == [True] and kernels == [each, 0, 0, each]
    np.testing.assert_array_equal(found[0], found[3])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.compiles(1)
@pytest.mark.parametrize("kind", GATES)
def test_it_is_one_launch_again_and_again(
    few: Any, bound: list[bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No product, no memory taken; also as a part of a graph; counters of blocks begin at 0 each time."""
    seen: list[str] = []
    monkeypatch.setattr(few.device, "launch", counted(seen, "kernel", few.device.launch))
    monkeypatch.setattr(few.products.blas.handle, "call", counted(seen, "product", few.products.blas.handle.call))
    layer, views = made_layer(few, kind, 13, 35, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    get, start = layer.h.get, layer.ff.get()
    wanted = layer.forward()
    monkeypatch.setattr(layer.h, "get", lambda: None)
    for turn in range(3):
        layer.ff[:], layer.h[:] = start, 0
        graph = few.device.capture.graph([layer.forward]) if turn == 2 else None
        seen.clear()
        requests = few.memory_stats().requests
        if graph is not None:
            assert graph.nodes == 1
            graph()
        else:
            layer.forward()
        assert not seen and few.memory_stats().requests == requests
        np.testing.assert_array_equal(get(), wanted)
    assert bound == [True]


def test_a_graph_takes_it_in_at_first(few: Any, bound: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound within a capture, with the counters that blocks wait at not there yet."""
    unroll(few, "steps")  # which looks at what the activation does, and waits for that
    few.recurrent_method = "persistent"
    tickets._held.pop(few.device, None)
    layer = made_layer(few, "simple", 13, 5, 4)
    start, get, wanted = layer.ff.get(), layer.h.get, reference(layer)["h"]
    monkeypatch.setattr(layer.h, "get", lambda: None)
    graph = few.device.capture.graph([layer.forward])
    assert bound == [True] and graph.nodes == 1 and not get().any()
    for _ in range(2):
        layer.ff[:], layer.h[:] = start, 0
        graph()
        np.testing.assert_allclose(get(), wanted, 1e-5, 2e-6)


def test_states_in_place_reversed_and_from_the_last_pass(few: Any, bound: list[bool]) -> None:
    """One tensor for all states; the last step first; a pass that begins where the last one ended."""
    rng, n = np.random.default_rng(6), 10
    w, ff = rng.standard_normal((n, n)) / 3, [rng.standard_normal((n, 4)) for _ in range(5)]
    weight, whole = few.array(w), few.array(np.concatenate(ff, axis=1))
    given = [whole[:, 4 * t : 4 * t + 4] for t in range(5)]
    state, wanted = few.zeros((n, 4)), np.zeros((n, 4))
    for back in (False, True):
        few.compound_rnn_unroll_fprop(weight, [state] * 5, given, [state] * 5, None, n, 5, None, TANH, back)
        for each in ff[::-1] if back else ff:
            wanted = np.tanh(w @ wanted + each)
        np.testing.assert_allclose(state.get(), wanted, 1e-5, 2e-6)
    assert bound == [True, True]


def test_views_of_weights_partial_steps_and_numbers(few: Any, bound: list[bool]) -> None:
    """A transposed weight, a weight that is every other row; steps left out; no kept reset states."""
    rng, n = np.random.default_rng(7), 6
    layer = made_layer(few, "gru", n, 5, 6)
    both = few.array(rng.standard_normal((n, 6 * n)))
    layer.w = both[:, ::2].T
    wanted = reference(layer)
    h, ff = layer.cut(layer.h), layer.cut(layer.ff)
    few.compound_gru_unroll_fprop(
        layer.w, layer.cut(layer.h, layer.h0), ff, ff, [None] * 6, h, layer.b, n, 6, 4, TANH, LOGISTIC
    )
    assert bound == [True]
    np.testing.assert_allclose(layer.h.get()[:, :20], wanted["h"][:, :20], 1e-5, 2e-6)
    assert not layer.h.get()[:, 20:].any()


def unroll(
    be: Any, method: str = "persistent", steps: int = 5, samples: int = 4, dtype: Any = np.float32, **lists: Any
) -> None:
    """A simple unroll of 6 units; ``lists`` make those of its tensors that are others than usual."""
    be.recurrent_method = method
    be.executor.replay.clear()
    whole = be.zeros((6, samples * (steps + 1)), dtype=dtype)
    h = [whole[:, t * samples : (t + 1) * samples] for t in range(steps + 1)]
    whole = be.zeros((6, samples * steps), dtype=dtype)
    given = {"ff": [whole[:, t * samples : (t + 1) * samples] for t in range(steps)], "before": h[:-1], "h": h[1:]}
    given |= {name: make(given) for name, make in lists.items()}
    w = be.zeros((6, 6), dtype=dtype)
    be.compound_rnn_unroll_fprop(w, given["before"], given["ff"], given["h"], None, 6, steps, None, TANH)


def test_what_does_not_fit_is_computed_step_by_step(
    few: Any, bound: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting, dtypes of tensor cores, many samples, lists that are not an unroll's, the GPU."""
    unroll(few)
    unroll(few, steps=1, samples=5 * 32)
    assert bound == [True, True]
    bound.clear()
    unroll(few, "steps")
    unroll(few, dtype=np.float16)
    with monkeypatch.context() as coarse:
        coarse.setattr(few, "product_precision", "tf32")
        unroll(few)
        assert not bound
        unroll(few, dtype=np.float64)
        assert bound == [True]
    bound.clear()
    unroll(few, samples=7 * 32)
    unroll(few, before=lambda given: [given["before"][0]] * 5)
    unroll(few, ff=lambda given: [given["ff"][t] for t in (0, 2, 1, 3, 4)])
    with monkeypatch.context() as without:
        without.setattr(few.device.starts, "can_meet", False)
        unroll(few)
    assert bound == [False] * 4


def test_overlapping_tensors_are_computed_in_the_order_of_steps(few: Any, bound: list[bool]) -> None:
    """A projection that an earlier step's state is written to, one row further: another thread would need it."""
    n, size = 6, 4
    start = np.random.default_rng(8).standard_normal((n + 1, size * 5))
    found = []
    for method in ("steps", "persistent"):
        few.recurrent_method = method
        few.executor.replay.clear()
        both, whole = few.array(start), few.zeros((n, size * 6))
        h = [both[1:, size * t : size * (t + 1)] for t in range(5)]
        ff = [both[:-1, size * t : size * (t + 1)] for t in (1, 2, 3, 4, 0)]
        weight = few.array(np.eye(n) / 2)
        few.compound_rnn_unroll_fprop(weight, [whole[:, :size], *h[:-1]], ff, h, None, n, 5, None, TANH)
        found.append(both.get())
    np.testing.assert_array_equal(*found)
    assert not bound


@pytest.mark.emulator
def test_a_launch_that_the_driver_refuses_becomes_steps(
    few: Any, bound: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stays so; nothing was computed twice."""
    monkeypatch.setenv("CUEMU_SMS", "0")
    layer, views = made_layer(few, "lstm", 37, 5, 4), dict[Any, Any]()
    monkeypatch.setattr(layer, "cut", lambda t, first=None: kept_cut(views, layer, t, first))
    start, wanted = layer.ff.get(), reference(layer)
    for _ in range(2):
        layer.ff[:], layer.h[:] = start, 0
        layer.forward()
        check(layer, wanted)
    assert bound == [True]


@pytest.mark.emulator
def test_the_driver_refuses_blocks_that_do_not_fit_at_once(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neonlike.kernels.cuda.routine import CudaRoutine

    text = 'extern "C" __global__ void {{ name }}(const unsigned long long a) { (void)a; }\n'
    call = CudaRoutine(text, "Q", "nothing").bind_together(gpu.device, (33, 1, 1), (32, 1, 1), (0,), 0)
    call()
    monkeypatch.setenv("CUEMU_SMS", "1")
    with pytest.raises(DeviceError, match=r"cooperative kernel nl_\w+ \(grid \(33, 1, 1\), .*too many blocks"):
        call()
    gpu.synchronize()


def test_the_setting(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="recurrent_method: got 'whole'; one of steps, persistent"):
        gpu.recurrent_method = "whole"
    monkeypatch.delenv("NEONLIKE_GPU_RECURRENT", raising=False)
    for value in (None, "steps", "persistent"):
        if value:
            monkeypatch.setenv("NEONLIKE_GPU_RECURRENT", value)
        with type(gpu)(rng_seed=0) as be:
            assert be.recurrent_method == (value or "steps")


def test_the_form_of_the_gpu_there_is(whole: Any, bound: list[bool]) -> None:
    """With as many blocks as it has multiprocessors."""
    layer = made_layer(whole, "lstm", 60, 3, 4)
    wanted = reference(layer)
    np.testing.assert_allclose(layer.forward(), wanted["h"], 1e-5, 5e-6)
    assert bound == [True]
