"""Graphs: launches that the driver captured once and queues again by one call.

While a graph is captured, what this thread queues goes to a stream of its own, which runs nothing; other threads go on
queueing on the device's stream. The captured work has fixed arguments: the graph keeps the calls that it was made of,
and with them their memory. A launch of the graph is ordered with other work as a kernel is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pycuda.driver as driver

from neonlike.backends.gpu.device import driver_calls
from neonlike.backends.gpu.device.contexts import here
from neonlike.backends.gpu.device.driver_calls import HANDLE
from neonlike.backends.gpu.memory.transfer import NON_BLOCKING
from neonlike.kernels.cuda.step import in_turn
from neonlike.kernels.cuda.tickets import tickets_of

RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: other calls of the driver, such as loading a module, do not spoil the capture."""


class Capture:
    """Captures graphs on ``device``, one at a time; see :class:`neonlike.kernels.cuda.device.Capture`.

    Attributes
    ----------
    prepares : list of callable
        Called before each capture: libraries make there what they may not make meanwhile.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.stream: Any = driver.Stream(NON_BLOCKING)
        self.prepares: list[Callable[[Any], None]] = []

    @property
    def is_active(self) -> bool:
        """Whether what this thread queues becomes part of a graph."""
        return here.device is self.device and here.stream is self.stream

    def graph(self, calls: Sequence[Callable[[], object]]) -> Graph:
        """The graph of what ``calls`` queue; they are called once, and what they queue runs with the graph only.

        Raises
        ------
        DeviceError
            If the driver has no graphs, or one of the calls does what a graph cannot hold. Nothing was run then.
        """
        try:
            return self._instance(calls)
        except driver.Error as error:
            self.device.fail("capture of a graph", error)
            raise  # not reached: the line before raises

    def _instance(self, calls: Sequence[Callable[[], object]]) -> Graph:
        """The graph, made ready to be launched."""
        with self.device.pool.held():  # which may have to wait for the whole GPU: the driver refuses that meanwhile
            self.device.attend()
            tickets_of(self.device)  # which are cleared once, by a kernel that is to run now
            for prepare in self.prepares:
                prepare(self.stream)
            graph = self._captured(calls)
            executable = HANDLE()
            nodes = ctypes.c_size_t()
            try:
                driver_calls.call("cuGraphGetNodes", graph, None, ctypes.addressof(nodes))
                driver_calls.call("cuGraphInstantiateWithFlags", ctypes.addressof(executable), graph, 0)
            finally:
                driver_calls.call("cuGraphDestroy", graph)
        self.device.parting.collect()  # what went meanwhile
        return Graph(self.device, executable, nodes.value, calls)

    def _captured(self, calls: Sequence[Callable[[], object]]) -> HANDLE:
        before, graph = here.stream, HANDLE()
        driver_calls.call("cuStreamBeginCapture_v2", self.stream.handle, RELAXED)
        here.stream = self.stream
        self.device.starts.paused.value = 1
        try:
            in_turn(calls)
        except BaseException:
            driver_calls.function("cuStreamEndCapture")(self.stream.handle, ctypes.addressof(graph))
            if graph:
                driver_calls.function("cuGraphDestroy")(graph)
            raise
        finally:
            self.device.starts.paused.value = 0
            here.stream = before
        driver_calls.call("cuStreamEndCapture", self.stream.handle, ctypes.addressof(graph))
        return graph


class Graph:
    """Queues captured work when it is called.

    Attributes
    ----------
    nodes : int
        Kernels, copies and fills in it.
    """

    def __init__(self, device: Any, executable: HANDLE, nodes: int, calls: Sequence[Callable[[], object]]) -> None:
        self.device, self.nodes, self._calls = device, nodes, calls
        self._executable, self._launch = executable, driver_calls.function("cuGraphLaunch")

    def __call__(self) -> None:
        """Queue it.

        Raises
        ------
        DeviceError, DeviceLost
        """
        device = self.device
        if here.device is not device:
            device.attend()
        if status := self._launch(self._executable, here.stream.handle):
            device.fail("launch of a graph", driver_calls.error_of("cuGraphLaunch", status))

    def __del__(self) -> None:
        executable = getattr(self, "_executable", None)
        if executable and self.device.usable:  # one that still runs is freed when it has ended, the driver promises
            driver_calls.function("cuGraphExecDestroy")(executable)
