"""Programs of compound primitives on a GPU: kernels and products at places of its tensors and of working memory.

A :class:`Draft` depends on sizes, dtypes and alignment, not on addresses: it is made once for calls that are alike. Its
program has the same steps, their kernels compiled and loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.kernels.cuda.device import Size3
from neonlike.kernels.cuda.launch import are_aligned
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import NOWHERE, WORK, KernelLaunch, Place, Runner
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.program import Program
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

GRANULE = 256
"""Parts of working memory start at multiples of so many bytes."""


@cache
def _addresses(count: int) -> struct.Struct:
    """The packing of so many addresses."""
    return struct.Struct(f"={count}Q")


class Matrices(NamedTuple):
    """A stack of matrices at a place; strides in bytes."""

    place: Place
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType

    def array(self) -> DeviceArray:
        """The same at address 0."""
        return DeviceArray(None, 0, self.shape, self.strides, self.dtype)


@dataclass(slots=True)
class Launched:
    """A kernel of a draft with its grid and all arguments but addresses; None stands for the address 0.

    ``shared`` is what it takes of shared memory besides what it declares, in bytes.
    """

    device: Any
    routine: CudaRoutine
    sizes: tuple[Size3, Size3]
    places: Sequence[Place | None]
    numbers: Sequence[int | float]
    context: dict[str, Any]
    shared: int = 0

    def step(self) -> KernelLaunch:
        """The launch of the kernel, which is compiled and loaded now."""
        function = self.routine.variant(self.device, **self.context)
        places = [NOWHERE if place is None else place for place in self.places]
        addresses = _addresses(len(places))
        arguments = self.routine.pack(*[0] * len(places), *self.numbers)[addresses.size :]
        return KernelLaunch(self.device, function, *self.sizes, self.shared, arguments, None, places, addresses.pack)


@dataclass(slots=True)
class Multiplied:
    """A matrix product of a draft, ``out = alpha * a.b + beta * out``, summed in ``dtype``."""

    products: Any
    factors: Sequence[Matrices]
    dtype: DType
    alpha: float = 1.0
    beta: float = 0.0

    def step(self) -> ProductStep:
        """The product; how it is multiplied is chosen now."""
        arrays = [matrices.array() for matrices in self.factors]
        multiply = self.products.placed(*arrays, self.dtype, self.alpha, self.beta)
        return ProductStep([matrices.place for matrices in self.factors], multiply)


class ProductStep(NamedTuple):
    """A matrix product as a step of a program; ``multiply`` takes the addresses of its three matrices."""

    places: Sequence[Place]
    multiply: Callable[..., None]

    def start(self, values: Sequence[Any]) -> None:
        """Queue it on matrices at these addresses."""
        self.multiply(*values)


class Draft:
    """Steps in their order, and the bytes of working memory that they share."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.steps: list[Launched | Multiplied] = []
        self.work = 0
        self._runner: Runner | None = None

    def room(self, nbytes: int) -> Place:
        """More working memory, aligned for any access; nowhere if it has no bytes."""
        place = WORK + self.work if nbytes else NOWHERE
        self.work += -(-nbytes // GRANULE) * GRANULE
        return place

    def ready(self, operands: int) -> Runner:
        """The runner of the program on so many tensors; kernels are compiled now, so that none fails after a step."""
        if self._runner is None:
            steps = tuple([step.step() for step in self.steps])
            self._runner = Runner(self.device, Program(steps, operands, 0, self.work, on_device=True))
        return self._runner


def device_call(choose: Callable[[bool], Draft], tensors: Sequence[Any]) -> KernelCall:
    """The program of the draft that ``choose`` gives, run now on ``tensors``, as what the cache of calls repeats.

    Copies among the tensors are held until the program is queued: its working memory must not take their place.

    Parameters
    ----------
    choose : callable
        Its argument says whether the tensors can be read and written by whole vectors.
    tensors : sequence of Tensor or None
    """
    runners: dict[bool, Runner] = {}

    def start(*given: int | None) -> int:
        aligned = are_aligned([address or 0 for address in given])
        if aligned not in runners:
            runners[aligned] = choose(aligned).ready(len(given))
        runners[aligned](given)
        return 0

    addresses = tuple([None if tensor is None else tensor.address for tensor in tensors])
    return KernelCall(start, addresses, ()).run()
