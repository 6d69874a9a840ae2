"""Calls of compound primitives that were made before: what was checked and chosen holds for tensors laid out alike.

A primitive checks its arguments, chooses a kernel and cuts the work, which takes many times as long as a small kernel.
All of that depends on the layer, on how the tensors lie in memory, on numbers and flags, and on the number of threads.
So a call that ran as one kernel on the tensors' own memory is kept under these, and the next one fills in addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from neonlike.kernels.run import forks
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.threads import thread_count
from neonlike.kernels.run.workspace import held_workspace

MOST_LAYOUTS = 4096
ALIGNED_BYTES = 1 << 20
"""Of results, from which on the choice of stores past the caches may depend on where lines begin."""


class Call(NamedTuple):
    """What a primitive was asked for.

    Attributes
    ----------
    name : str
    layer : object
        Its sizes, by identity; None where there is none.
    tensors : tuple of Tensor or None
        In the order in which the kernel takes them.
    numbers : tuple of float
    options : tuple
        Whatever else the choice of a kernel depends on.
    in_place : int
        Index of the tensor that is read and is the one written; -1: none.
    """

    name: str
    layer: Any
    tensors: tuple[Any, ...]
    numbers: tuple[float, ...] = ()
    options: tuple[Any, ...] = ()
    in_place: int = -1


class KernelCall(NamedTuple):
    """A kernel and all that it is called with.

    Attributes
    ----------
    function : ctypes function
        Takes addresses of arrays, that of working memory if ``work``, and ``tail``; a result other than 0 means that
        there was no memory.
    addresses : tuple of int or None
    tail : tuple
    work : int
        Bytes of working memory.
    keep : object
        What ``tail`` has the addresses of.
    refused : str
        What there was no memory for.
    """

    function: Any
    addresses: tuple[int | None, ...]
    tail: tuple[Any, ...]
    work: int = 0
    keep: Any = None
    refused: str = ""

    def start(self, addresses: Sequence[int | None]) -> None:
        """Run the kernel on arrays that lie at ``addresses``.

        Raises
        ------
        MemoryError
        """
        if self.work:
            memory, place = held_workspace(self.work)
            refused = self.function(*addresses, place, *self.tail)
            del memory
        else:
            refused = self.function(*addresses, *self.tail)
        if refused:
            raise MemoryError(f"{self.refused}; free some and call again")

    def run(self) -> KernelCall:
        """Run the kernel on the arrays that it was made for; returns this, so that it may be kept."""
        self.start(self.addresses)
        return self


class Known(NamedTuple):
    """A launch that was made, and what has to hold for it to be made on other tensors.

    Attributes
    ----------
    launch : KernelCall
    apart : tuple of (written, other, low, high)
        Indices of tensors that share no memory: the second must not start more than low and less than high bytes after
        the first.
    phases : tuple of (index, place)
        Where large results start in a line of the cache.
    layer : object
        Held, so that no other comes to have its identity.
    """

    launch: KernelCall
    apart: tuple[tuple[int, int, int, int], ...]
    phases: tuple[tuple[int, int], ...]
    layer: Any


class CallCache:
    """The calls that a backend made."""

    def __init__(self) -> None:
        self._known: dict[Any, Known] = {}
        self._layouts: dict[Any, object] = {}

    def clear(self) -> None:
        """Forget all calls."""
        self._known.clear()

    def layout(self, tensor: Any) -> object:
        """What stands for how ``tensor`` lies in memory: the same object for another that lies alike."""
        if len(self._layouts) >= MOST_LAYOUTS:
            self._layouts.clear()
        return self._layouts.setdefault((*tensor.geometry, tensor.dtype), object())

    def repeat(self, call: Call) -> bool:
        """Make ``call`` as one before was made; False, and nothing is done, if there was none or that may be wrong."""
        try:
            known = self._known.get(_key(call))
        except (AttributeError, TypeError):  # no tensors, or no numbers
            return False
        if known is None:
            return False
        launch, apart, phases, _ = known
        numbers = call.numbers
        at = [None if t is None else t.address for t in call.tensors]
        for written, other, low, high in apart:
            if low < at[other] - at[written] < high:  # type: ignore[operator]
                return False
        for written, place in phases:
            if at[written] % LINE != place:  # type: ignore[operator]
                return False
        if 0 in numbers and _negative_zero(numbers):
            return False
        launch.start(at)
        return True

    def keep(self, call: Call, outputs: Sequence[Any], launch: KernelCall | None) -> None:
        """Have ``call`` repeated by ``launch`` from now on, if that ran on the tensors' own memory."""
        tensors = call.tensors
        if launch is None or launch.addresses != tuple(None if t is None else t.address for t in tensors):
            return
        if _negative_zero(call.numbers):
            return
        results = [out for out in outputs if out is not None]
        written = [i for i, t in enumerate(tensors) if i != call.in_place and any(t is out for out in results)]
        apart = [
            (i, j, -other.nbytes, tensors[i].nbytes)
            for i in written
            for j, other in enumerate(tensors)
            if other is not None and i != j and (j != call.in_place or other is not tensors[i])
        ]
        phases = [(i, launch.addresses[i] % LINE) for i in written if tensors[i].nbytes >= ALIGNED_BYTES]  # type: ignore[operator]
        remember(self._known, _key(call), Known(launch, tuple(apart), tuple(phases), call.layer))


def _key(call: Call) -> tuple[Any, ...]:
    """Equal for calls that one launch makes, if what :class:`Known` says holds."""
    name, layer, tensors, numbers, options, in_place = call
    layouts = [None if t is None else t.call_layout for t in tensors]
    return (name, id(layer), *layouts, numbers, options, in_place, thread_count(), forks.forked)


def _negative_zero(numbers: Sequence[float]) -> bool:
    """Whether one is -0.0, which is equal to 0 and is not the same."""
    return any(number == 0 and math.copysign(1, number) < 0 for number in numbers)
