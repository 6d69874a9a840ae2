"""Programs of compound primitives on a GPU: kernels and products at places of its tensors and of working memory.

A :class:`Program` depends on sizes, dtypes and alignment, not on addresses: it is made once for calls that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.kernels.cuda.device import Size3
from neonlike.kernels.cuda.launch import are_aligned
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

GRANULE = 256
"""Parts of working memory start at multiples of so many bytes."""


class Place(NamedTuple):
    """An address: so many bytes behind where a tensor begins, counted from 0; -1 stands for the working memory."""

    slot: int
    offset: int = 0

    def __add__(self, nbytes: int) -> Place:  # type: ignore[override]
        return Place(self.slot, self.offset + nbytes)


WORK = Place(-1)


class Matrices(NamedTuple):
    """A stack of matrices at a place; strides in bytes."""

    place: Place
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType

    def array(self) -> DeviceArray:
        """The same at address 0."""
        return DeviceArray(None, 0, self.shape, self.strides, self.dtype)


class Launched:
    """A kernel with its grid and all arguments but addresses; None stands for the address 0.

    ``shared`` is what it takes of shared memory besides what it declares, in bytes.
    """

    def __init__(
        self,
        device: Any,
        routine: CudaRoutine,
        sizes: tuple[Size3, Size3],
        places: Sequence[Place | None],
        numbers: Sequence[int | float],
        context: dict[str, Any],
        shared: int = 0,
    ) -> None:
        self.device, self.routine, self.context, self.shared = device, routine, context, shared
        self.grid, self.block = sizes
        self.places, self.numbers = tuple(places), tuple(numbers)
        self.function: Any = None

    def ready(self) -> None:
        """Compile and load the kernel."""
        self.function = self.routine.variant(self.device, **self.context)

    def __call__(self, at: Sequence[Any]) -> None:
        addresses = [0 if place is None else at[place[0]] + place[1] for place in self.places]
        arguments = self.routine.pack(*addresses, *self.numbers)
        self.device.launch(self.function, self.grid, self.block, self.shared, arguments)


class Multiplied:
    """A matrix product ``out = alpha * a.b + beta * out``, summed in ``dtype``."""

    def __init__(
        self, products: Any, factors: Sequence[Matrices], dtype: DType, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        self.products, self.factors, self.dtype = products, tuple(factors), dtype
        self.alpha, self.beta = alpha, beta
        self.places = tuple(matrices.place for matrices in factors)
        self.function: Callable[..., None] | None = None

    def ready(self) -> None:
        """Choose how it is multiplied."""
        arrays = [matrices.array() for matrices in self.factors]
        self.function = self.products.placed(*arrays, self.dtype, self.alpha, self.beta)

    def __call__(self, at: Sequence[Any]) -> None:
        assert self.function is not None
        self.function(*[at[place[0]] + place[1] for place in self.places])


class Program:
    """Steps in their order, and the bytes of working memory that they share."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.steps: list[Launched | Multiplied] = []
        self.work = 0
        self._ready = False

    def room(self, nbytes: int) -> Place:
        """More working memory, aligned for any access."""
        place = WORK + self.work
        self.work += -(-nbytes // GRANULE) * GRANULE
        return place

    def ready(self) -> Program:
        """Compile and choose all that is new, so that nothing fails after the first step has run."""
        if not self._ready:
            for step in self.steps:
                step.ready()
            self._ready = True
        return self

    def run(self, addresses: Sequence[int | None]) -> None:
        """Queue the steps; working memory is lent by the pool until they are."""
        room = self.device.allocate(self.work) if self.work else None
        at = (*addresses, 0 if room is None else room.address)
        for step in self.steps:
            step(at)


def device_call(choose: Callable[[bool], Program], tensors: Sequence[Any]) -> KernelCall:
    """The program that ``choose`` gives, run now on ``tensors``, as what the cache of calls repeats.

    Copies among the tensors are held until the program is queued: its working memory must not take their place.

    Parameters
    ----------
    choose : callable
        Its argument says whether the tensors can be read and written by whole vectors.
    tensors : sequence of Tensor or None
    """
    programs: dict[bool, Program] = {}

    def start(*given: int | None) -> int:
        aligned = are_aligned([address or 0 for address in given])
        if aligned not in programs:
            programs[aligned] = choose(aligned).ready()
        programs[aligned].run(given)
        return 0

    addresses = tuple([None if tensor is None else tensor.address for tensor in tensors])
    return KernelCall(start, addresses, ()).run()
