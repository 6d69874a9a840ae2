"""The ranks of a program on MPI, by mpi4py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.distributed.ranks import Ranks, check_operation
from neonlike.errors import RankError

NATIVE = frozenset("float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Dtypes that MPI computes with; others are converted."""


class MpiRanks(Ranks):
    """Ranks that talk by MPI.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    checked : bool
        Compare each call with the other ranks' before it is made, which names a difference in place of a deadlock.

    Attributes
    ----------
    calls : int
        Calls that were begun.
    pending : str
        The call that is being made, or that a device was given last; else empty.
    """

    def __init__(self, mpi: Any, checked: bool = False) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        machine = self._comm.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_rank = machine.rank
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        self.cores = _share_of_cores(cores, machine.allgather(cores))
        machine.Free()
        self._operations = {"sum": mpi.SUM, "mean": mpi.SUM, "min": mpi.MIN, "max": mpi.MAX, "prod": mpi.PROD}
        self._checked = checked
        self.calls, self.pending = 0, ""

    def reduce(self, array: npt.NDArray[Any], op: str = "sum") -> None:
        """Replace ``array`` on every rank by the sum, mean, min, max or product over all ranks."""
        check_operation("reduce", op)
        native = array if array.dtype.name in NATIVE else array.astype(_wide(array.dtype))
        with self._call("reduce", array, op):
            self._comm.Allreduce(self._mpi.IN_PLACE, native, self._operations[op])
        if op == "mean":
            np.divide(native, self.size, out=array, casting="unsafe")
        elif native is not array:
            array[...] = native

    def broadcast(self, array: npt.NDArray[Any], root: int = 0) -> None:
        """Replace ``array`` on every rank by that of rank ``root``."""
        with self._call("broadcast", array, f"from {root}"):
            self._comm.Bcast(_bytes(array), root)

    def gather(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The arrays of all ranks, which have one shape: ``(size, *shape)``."""
        found = np.empty((self.size, *array.shape), array.dtype)
        with self._call("gather", array):
            self._comm.Allgather(_bytes(array), _bytes(found))
        return found

    def exchange_rows(self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]) -> None:
        """Send each other rank its rows of ``array``; write this rank's rows of the others to ``received``, by rank."""
        starts, counts = _elements(array, bounds)
        own = counts[self.rank]
        places = [own * (rank - (rank > self.rank)) for rank in range(self.size)]
        with self._call("exchange_rows", array):
            self._comm.Alltoallv(
                [array, (self._but_own(counts), starts)], [received, (self._but_own([own] * self.size), places)]
            )

    def gather_rows(self, array: npt.NDArray[Any], bounds: list[int]) -> None:
        """Replace the rows of each rank in ``array`` by what that rank has there."""
        starts, counts = _elements(array, bounds)  # MPICH's Allgatherv takes twice as long
        sent = self._but_own([counts[self.rank]] * self.size), [starts[self.rank]] * self.size
        with self._call("gather_rows", array):
            self._comm.Alltoallv([array, sent], [array, (self._but_own(counts), starts)])

    def _but_own(self, counts: list[int]) -> list[int]:
        """The counts, with 0 for this rank."""
        return [count if rank != self.rank else 0 for rank, count in enumerate(counts)]

    def tell(self, thing: Any) -> list[Any]:
        """Exchange objects that can be pickled; returns those of all ranks, by rank."""
        with self._call("tell"):
            found: list[Any] = self._comm.allgather(thing)
        return found

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        with self._call("barrier"):
            self._comm.Barrier()

    @contextmanager
    def _call(self, name: str, array: Any = None, detail: str = "") -> Iterator[None]:
        """Count a call, so that one that cannot end is named (``faults.py``)."""
        what = name if array is None else f"{name} of {array.dtype.name} {array.shape} {detail}".rstrip()
        self._begin(what)
        yield
        self.pending = ""

    def queueing(self, what: str) -> None:
        """Count ``what``, a call of all ranks that their devices are about to carry out (``links.py``).

        It is pending until the next call: when a device has done it is seen elsewhere.
        """
        self._begin(what)

    def _begin(self, what: str) -> None:
        self.calls += 1
        self.pending = what
        if self._checked:
            self._compare(what)

    def _compare(self, what: str) -> None:
        """Raise RankError unless all ranks make the same call."""
        everyone = self._comm.allgather((self.calls, what))
        if any(one != everyone[0] for one in everyone):
            said = "; ".join(f"rank {rank}: number {count}, {call}" for rank, (count, call) in enumerate(everyone))
            raise RankError(f"the ranks make different calls, but all have to make the same in one order. {said}", True)

    def abort(self, status: int) -> None:
        """End all ranks at once."""
        self._mpi.COMM_WORLD.Abort(status)


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


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)
