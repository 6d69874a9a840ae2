"""The ranks of a program on MPI, by mpi4py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike import system
from neonlike.distributed.ranks import Ranks, check_operation
from neonlike.distributed.waiting import Call
from neonlike.errors import RankError

NATIVE = frozenset("float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Dtypes that MPI computes with; others are converted."""
KINDS = ("reduce", "broadcast", "gather", "exchange_rows", "gather_rows", "tell", "barrier", "compare")
"""Kinds of calls, each with a communicator: calls that differ wait for each other, and do not mix their messages."""


class MpiRanks(Ranks):
    """Ranks that talk by MPI.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.

    Attributes
    ----------
    checked : bool
        Compare each call with the other ranks' before it is made, which names a difference in place of a deadlock.
    calls : int
        Calls that were begun.
    current : Call or None
        The call that is being made, or that a device was given last.
    """

    def __init__(self, mpi: Any) -> None:
        everyone = mpi.COMM_WORLD
        self._mpi, self._process = mpi, os.getpid()
        self._comms = {kind: everyone.Dup() for kind in KINDS}
        self.rank, self.size = everyone.rank, everyone.size
        machine = everyone.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_rank = machine.rank
        cores = system.own_processors()
        self.cores = _share_of_cores(cores, machine.allgather(cores))
        machine.Free()
        self._operations = {"sum": mpi.SUM, "mean": mpi.SUM, "min": mpi.MIN, "max": mpi.MAX, "prod": mpi.PROD}
        self.checked = False
        self.calls = 0
        self.current: Call | None = None

    def reduce(self, array: npt.NDArray[Any], op: str = "sum") -> None:
        """Replace ``array`` on every rank by the sum, mean, min, max or product over all ranks."""
        check_operation("reduce", op)
        native = array if array.dtype.name in NATIVE else array.astype(_wide(array.dtype))
        with self._call("reduce", array, op) as comm:
            comm.Allreduce(self._mpi.IN_PLACE, native, self._operations[op])
        with np.errstate(over="ignore"):  # infinite in 16 bits, as loss scaling expects
            if op == "mean":
                np.divide(native, self.size, out=array, casting="unsafe")
            elif native is not array:
                array[...] = native

    def broadcast(self, array: npt.NDArray[Any], root: int = 0) -> None:
        """Replace ``array`` on every rank by that of rank ``root``."""
        with self._call("broadcast", array, f"from {root}") as comm:
            comm.Bcast(_bytes(array), root)

    def gather(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The arrays of all ranks, which have one shape: ``(size, *shape)``."""
        found = np.empty((self.size, *array.shape), array.dtype)
        with self._call("gather", array) as comm:
            comm.Allgather(_bytes(array), _bytes(found))
        return found

    def exchange_rows(self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]) -> None:
        """Send each other rank its rows of ``array``; write this rank's rows of the others to ``received``, by rank.

        Parameters
        ----------
        array, received, bounds
            As of ``Ranks.exchange_rows``.
        """
        messages = self._rows_of_ranks(array, received, bounds)
        with self._call("exchange_rows", array) as comm:
            comm.Alltoallv(*messages)

    def begin_exchange_rows(
        self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]
    ) -> Callable[[], None]:
        """Begin :meth:`exchange_rows`, and return a function that waits for its end; both arrays are in use until then.

        All ranks begin these in the same order; other calls may be made before one is waited for.

        Parameters
        ----------
        array, received, bounds
            As of ``Ranks.exchange_rows``.
        """
        messages = self._rows_of_ranks(array, received, bounds)
        with self._call("exchange_rows", array) as comm:
            begun, request = self.current, comm.Ialltoallv(*messages)

        def wait() -> None:
            self.current = begun and replace(begun, began=time.monotonic())
            try:
                request.Wait()
            finally:
                self.current = None

        return wait

    def _rows_of_ranks(self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]) -> list[Any]:
        """The rows of ``array`` that go to each rank, and the places of those that come, as MPI describes them."""
        starts, counts = _elements(array, bounds)
        own = counts[self.rank]
        places = [own * (rank - (rank > self.rank)) for rank in range(self.size)]
        sent, parts = _movable(array), _movable(received)
        return [[sent, (self._but_own(counts), starts)], [parts, (self._but_own([own] * self.size), places)]]

    def gather_rows(self, array: npt.NDArray[Any], bounds: list[int]) -> None:
        """Replace the rows of each rank in ``array`` by what that rank has there."""
        starts, counts = _elements(array, bounds)  # MPICH's Allgatherv takes twice as long
        sent = self._but_own([counts[self.rank]] * self.size), [starts[self.rank]] * self.size
        with self._call("gather_rows", array) as comm:
            comm.Alltoallv([array, sent], [array, (self._but_own(counts), starts)])

    def _but_own(self, counts: list[int]) -> list[int]:
        """The counts, with 0 for this rank."""
        return [count if rank != self.rank else 0 for rank, count in enumerate(counts)]

    def tell(self, thing: Any, what: str = "") -> list[Any]:
        """Exchange objects that can be pickled; returns those of all ranks, by rank."""
        with self._call("tell", detail=what) as comm:
            call = self.calls, f"tell {what}".rstrip()
            told = comm.allgather((call, thing))
        _require_equal([call for call, _ in told])
        return [thing for _, thing in told]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        with self._call("barrier") as comm:
            comm.Barrier()

    @contextmanager
    def _call(self, kind: str, array: Any = None, detail: str = "") -> Iterator[Any]:
        """Count a call, so that one that cannot end is named (``faults.py``), and yield its communicator."""
        what = f"{kind} {detail}" if array is None else f"{kind} of {array.dtype.name} {array.shape} {detail}"
        try:
            self._begin(kind, what.rstrip())
            yield self._comms[kind]
        finally:
            self.current = None

    def queueing(self, what: str) -> None:
        """Count ``what``, a call of all ranks that their devices are about to carry out (``links.py``).

        It is current until the next call: when a device has done it is seen elsewhere.
        """
        self._begin("device", what, on_device=True)

    def _begin(self, kind: str, what: str, on_device: bool = False) -> None:
        if os.getpid() != self._process:
            raise RankError(f"{kind}: this process is a copy of rank {self.rank}, not a rank; call gen_backend in it")
        self.calls += 1
        self.current = call = Call(self.calls, what, on_device)
        if self.checked:
            _require_equal(self._comms["compare"].allgather((call.number, call.what)))

    def abort(self, status: int) -> None:
        """End all ranks at once."""
        self._mpi.COMM_WORLD.Abort(status)


def _require_equal(calls: list[tuple[int, str]]) -> None:
    """Raise RankError unless all ranks make the same call."""
    if any(one != calls[0] for one in calls):
        said = "; ".join(f"rank {rank}: number {number}, {what}" for rank, (number, what) in enumerate(calls))
        raise RankError(f"the ranks make different calls, but all have to make the same in one order. {said}", True)


def _share_of_cores(own: set[int], everyone: list[set[int]]) -> int:
    """Cores for this process, if each of its machine has such ``own``: a launcher may have given each its own."""
    return max(1, min(len(own), len(set().union(*everyone)) // len(everyone)))


def _elements(array: npt.NDArray[Any], bounds: list[int]) -> tuple[list[int], list[int]]:
    """Places of the first element of each rank's rows, and their numbers."""
    row = array.size // max(1, len(array))
    return [start * row for start in bounds[:-1]], [(end - start) * row for start, end in pairwise(bounds)]


def _wide(dtype: np.dtype[Any]) -> type:
    """The dtype that MPI computes in for another one."""
    return np.uint8 if dtype.kind == "b" else np.float32


def _movable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The memory of an array of 16-bit floats as integers, which MPI has; another array as it is."""
    return array.view(np.uint16) if array.dtype.itemsize == 2 else array


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)
