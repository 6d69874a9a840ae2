"""Graphs on the GPU: captured work runs when the graph is called, in the order of the stream, any number of times."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from neonlike.errors import DeviceError
from neonlike.kernels.cuda import step
from neonlike.kernels.cuda.step import FixedRunner
from neonlike.kernels.run.program import Program

pytestmark = [
    pytest.mark.engines("gpu", batch_size=16),
    pytest.mark.usefixtures("gpu_driver"),
    pytest.mark.checked,
]


def steps(be: Any) -> tuple[Any, list[Any], Any]:
    """A tensor, calls that each change it, and their results from host values."""
    w, x, y = be.array(np.eye(5) + 0.1), be.array(np.arange(15.0).reshape(5, 3)), be.empty((5, 3))
    calls = [be.prepare(y, be.dot(w, x)), be.prepare(x, y * 0.5 + 1), be.prepare(y, be.tanh(x))]

    def reference(times: int) -> Any:
        host = np.arange(15.0).reshape(5, 3)
        for _ in range(times):
            host = ((np.eye(5) + 0.1) @ host) * 0.5 + 1
        return host

    return x, calls, reference


def test_a_graph_runs_what_was_captured_whenever_it_is_called(be: Any) -> None:
    x, calls, reference = steps(be)
    graph = be.device.capture.graph(calls)
    assert np.array_equal(x.get(), reference(0)), "capturing runs nothing"
    assert graph.nodes >= len(calls)
    for _ in range(3):
        graph()
    np.testing.assert_allclose(x.get(), reference(3), rtol=1e-5)


def test_a_graph_is_ordered_with_other_work_and_keeps_its_memory(be: Any) -> None:
    x, calls, _ = steps(be)
    graph = be.device.capture.graph(calls)
    del calls
    gc.collect()
    held = [be.ones((5, 3)) for _ in range(8)]  # would take the memory of the calls, were it free
    x[:] = np.full((5, 3), 2.0)
    graph()
    x[:] = x + 1
    graph()
    del graph  # while it may still be waiting
    host = np.full((5, 3), 2.0)
    for added in (1, 0):
        host = ((np.eye(5) + 0.1) @ host) * 0.5 + 1 + added
    np.testing.assert_allclose(x.get(), host, rtol=1e-5)
    assert all(t.get().sum() == 15 for t in held)


def test_a_graph_can_hold_another(be: Any) -> None:
    x, calls, reference = steps(be)
    inner = be.device.capture.graph(calls)
    be.device.capture.graph([inner, inner])()
    np.testing.assert_allclose(x.get(), reference(2), rtol=1e-5)


def test_a_program_of_known_arguments_becomes_a_graph(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any program: its second run captures the graph; a graph around it takes in its steps."""
    x, calls, reference = steps(be)
    run = FixedRunner(be.device, Program(tuple(calls), 0, 0, on_device=True))
    captured: list[Any] = []
    graph = be.device.capture.graph
    monkeypatch.setattr(step, "GRAPH_FROM", len(calls))
    monkeypatch.setattr(be.device.capture, "graph", lambda calls: captured.append(graph(calls)) or captured[-1])
    for _ in range(3):
        run()
    np.testing.assert_allclose(x.get(), reference(3), rtol=1e-5)
    outer = graph([run])
    assert [each.nodes for each in captured] == [outer.nodes]
    outer()
    np.testing.assert_allclose(x.get(), reference(4), rtol=1e-5)


def test_what_cannot_be_captured_is_an_error_and_leaves_the_device_as_it_was(be: Any) -> None:
    x, calls, reference = steps(be)
    with pytest.raises(DeviceError, match="capture of a graph"):
        be.device.capture.graph([*calls, be.device.capture.stream.synchronize])
    for waits in (x.get, be.synchronize, lambda: x.set(np.ones((5, 3)))):
        with pytest.raises(DeviceError, match="a graph is being captured, which holds kernels only"):
            be.device.capture.graph([*calls, waits])

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be.device.capture.graph([*calls, interrupted])
    assert np.array_equal(x.get(), reference(0))
    for call in calls:  # queued on the device's stream again
        call()
    np.testing.assert_allclose(x.get(), reference(1), rtol=1e-5)


def test_other_threads_go_on_while_one_captures(be: Any) -> None:
    x, calls, reference = steps(be)
    other = be.zeros((4, 4))
    add = be.prepare(other, other + 1)

    def meanwhile() -> None:
        thread = threading.Thread(target=add)
        thread.start()
        thread.join()

    graph = be.device.capture.graph([*calls, meanwhile])
    assert other.get().sum() == 16, "the other thread's work ran, and is not part of the graph"
    graph()
    assert other.get().sum() == 16
    np.testing.assert_allclose(x.get(), reference(1), rtol=1e-5)
