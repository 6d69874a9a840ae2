"""Graphs on the GPU: recorded work runs when the graph is called, in the order of the stream, any number of times."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from neonlike.errors import DeviceError

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


def test_a_graph_runs_what_was_recorded_whenever_it_is_called(be: Any) -> None:
    x, calls, reference = steps(be)
    graph = be.device.record(calls)
    assert np.array_equal(x.get(), reference(0)), "recording runs nothing"
    assert graph.nodes >= len(calls)
    for _ in range(3):
        graph()
    np.testing.assert_allclose(x.get(), reference(3), rtol=1e-5)


def test_a_graph_is_ordered_with_other_work_and_keeps_its_memory(be: Any) -> None:
    x, calls, _ = steps(be)
    graph = be.device.record(calls)
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
    inner = be.device.record(calls)
    be.device.record([inner, inner])()
    np.testing.assert_allclose(x.get(), reference(2), rtol=1e-5)


def test_what_cannot_be_recorded_is_an_error_and_leaves_the_device_as_it_was(be: Any) -> None:
    x, calls, reference = steps(be)
    with pytest.raises(DeviceError, match="recording of a graph"):
        be.device.record([*calls, be.device.recorder.stream.synchronize])
    for waits in (x.get, be.synchronize, lambda: x.set(np.ones((5, 3)))):
        with pytest.raises(DeviceError, match="a graph is being recorded, which holds kernels only"):
            be.device.record([*calls, waits])

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be.device.record([*calls, interrupted])
    assert np.array_equal(x.get(), reference(0))
    for call in calls:  # queued on the device's stream again
        call()
    np.testing.assert_allclose(x.get(), reference(1), rtol=1e-5)


def test_other_threads_go_on_while_one_records(be: Any) -> None:
    x, calls, reference = steps(be)
    other = be.zeros((4, 4))
    add = be.prepare(other, other + 1)

    def meanwhile() -> None:
        thread = threading.Thread(target=add)
        thread.start()
        thread.join()

    graph = be.device.record([*calls, meanwhile])
    assert other.get().sum() == 16, "the other thread's work ran, and is not part of the graph"
    graph()
    assert other.get().sum() == 16
    np.testing.assert_allclose(x.get(), reference(1), rtol=1e-5)
