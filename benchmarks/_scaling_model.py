"""A model of data-parallel training: time of an allreduce over p ranks, and of a step that sums gradients by it.

A message of n bytes takes alpha + n beta seconds, and to add n received bytes takes n gamma. The formulas of allreduce
are those of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005); the
ring is Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). Ranks send
and receive at the same time, and no two messages share a connection. A step with overlap is that of Li et al., "PyTorch
Distributed: experiences on accelerating data parallel training" (2020): buckets are summed one after the other, each as
soon as backward has filled it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

FLOAT = 4
"""Bytes of an element."""
BUCKET = 25 << 20
"""Bytes of gradients that are summed together, PyTorch's default."""


@dataclass(frozen=True)
class Interconnect:
    """Connections between ranks.

    Attributes
    ----------
    alpha : float
        Seconds of a message without content, from program to program.
    beta : float
        Seconds a byte.
    gamma : float
        Seconds in which a rank adds a received byte.
    """

    alpha: float
    beta: float
    gamma: float = 0.0


def gigabits(rate: float) -> float:
    """Seconds a byte at a line rate in Gbit/s."""
    return 8 / (rate * 1e9)


TCP, RDMA = 10e-6, 1e-6
"""Seconds of a message: by TCP on Linux, "as low as 10 us" (Larsen et al., "Architectural breakdown of end-to-end
latency in a TCP/IP network", 2009); by InfiniBand EDR about 1 us (Panda, "The MVAPICH2 project", 2018)."""

INTERCONNECTS = {
    "10 GbE": Interconnect(TCP, gigabits(10)),
    "25 GbE": Interconnect(TCP, gigabits(25)),
    "100 GbE": Interconnect(TCP, gigabits(100)),
    "InfiniBand": Interconnect(RDMA, gigabits(100)),
}
"""Line rates of IEEE 802.3ae, 802.3by and 802.3ba, and of EDR with four lanes (InfiniBand Trade Association); nothing
is taken off for headers."""


# Allreduce --------------------------------------------------------------------------------------------------------


def ring(nbytes: int, ranks: int, by: Interconnect) -> float:
    """Seconds of a reduce-scatter and an allgather around a ring, in 2 (p - 1) messages of n / p."""
    share = nbytes * (ranks - 1) / ranks
    return 2 * (ranks - 1) * by.alpha + share * (2 * by.beta + by.gamma)


def tree(nbytes: int, ranks: int, by: Interconnect) -> float:
    """Seconds of a reduction up a binomial tree and a broadcast down, of whole messages."""
    return _levels(ranks) * (2 * (by.alpha + nbytes * by.beta) + nbytes * by.gamma)


def halving(nbytes: int, ranks: int, by: Interconnect) -> float:
    """Seconds of Rabenseifner's algorithm: recursive halving, then doubling; p is a power of two."""
    share = nbytes * (ranks - 1) / ranks
    return 2 * _levels(ranks) * by.alpha + share * (2 * by.beta + by.gamma)


def _levels(ranks: int) -> int:
    """Levels of a binomial tree: log2 p, rounded up."""
    return math.ceil(math.log2(ranks))


Allreduce: TypeAlias = Callable[[int, int, Interconnect], float]
ALGORITHMS: dict[str, Allreduce] = {"ring": ring, "tree": tree, "halving": halving}


def fastest(nbytes: int, ranks: int, by: Interconnect) -> float:
    """Seconds of the faster of ring and tree for a message of this size."""
    return min(ring(nbytes, ranks, by), tree(nbytes, ranks, by))


# A step -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradient:
    """The gradient of a parameter; ``ready`` is the share of the step's time after which it is there."""

    nbytes: int
    ready: float


@dataclass(frozen=True)
class Step:
    """A training step of a rank alone: its seconds, and its gradients in the order in which backward makes them."""

    seconds: float
    gradients: tuple[Gradient, ...]

    def buckets(self, limit: int = BUCKET) -> list[Gradient]:
        """Gradients summed together: a bucket is full with the first that brings it to ``limit`` bytes."""
        found, nbytes = list[Gradient](), 0
        for gradient in self.gradients:
            nbytes += gradient.nbytes
            if nbytes >= limit:
                found.append(Gradient(nbytes, gradient.ready))
                nbytes = 0
        return [*found, Gradient(nbytes, self.gradients[-1].ready)] if nbytes else found


def step_time(
    step: Step, ranks: int, by: Interconnect, overlap: bool, allreduce: Allreduce = fastest, limit: int = BUCKET
) -> float:
    """Seconds of a step on each of ``ranks``, whose gradients are summed during backward (``overlap``) or after it."""
    end = 0.0 if overlap else step.seconds
    for bucket in step.buckets(limit):
        start = bucket.ready * step.seconds if overlap else end
        end = max(end, start) + allreduce(bucket.nbytes, ranks, by)
    return max(step.seconds, end)


def efficiency(step: Step, ranks: int, by: Interconnect, overlap: bool, allreduce: Allreduce = fastest) -> float:
    """Speed of a rank among ``ranks`` as a share of that of one alone, each with a minibatch as large: weak scaling."""
    return step.seconds / step_time(step, ranks, by, overlap, allreduce)


def messages(sizes: Iterable[int], large: int) -> list[int]:
    """Bytes of the messages of gradients: each from ``large`` bytes on is one, the smaller ones together another."""
    found = sorted(sizes)
    small = sum(nbytes for nbytes in found if nbytes < large)
    return [*[small] * bool(small), *[nbytes for nbytes in found if nbytes >= large]]


def fitted(seconds: Mapping[int, float], gamma: float) -> Interconnect:
    """The interconnect whose alpha + n beta is closest to times of messages by bytes, in relative error."""
    bytes_of: Sequence[int] = list(seconds)
    times = np.array([seconds[nbytes] for nbytes in bytes_of])
    rows = np.stack([1 / times, np.array(bytes_of) / times], axis=1)
    scale = rows.max(axis=0)
    (alpha, beta), *_ = np.linalg.lstsq(rows / scale, np.ones(len(times)), rcond=None)
    return Interconnect(max(0.0, float(alpha / scale[0])), max(0.0, float(beta / scale[1])), gamma)
