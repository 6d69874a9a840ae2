"""Calls of compound primitives that were made before: what was checked and chosen holds for tensors laid out alike.

A primitive checks its arguments, chooses a kernel and cuts the work, which takes many times as long as a small kernel.
All of that depends on the layer, on how the tensors lie in memory, on numbers and flags, and on the number of threads.
So a call that ran as one kernel on the tensors' own memory is kept under these, and the next one fills in addresses.

Python does this where the extension of ``kernels/c/fastpath.py`` is not compiled. Where it is, it stands before the
methods that :func:`repeatable` marks: it tells by their arguments that a call was made before, and starts the kernel.
"""

from __future__ import annotations

import inspect
import math
import struct
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_double
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

from neonlike.kernels.run import forks
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.recorded import recorder
from neonlike.kernels.run.threads import thread_count, when_changed
from neonlike.kernels.run.workspace import held_workspace
from neonlike.optree.forms import mark

MOST_LAYOUTS = 4096
ALIGNED_BYTES = 1 << 20
"""Of results, from which on the choice of stores past the caches may depend on where lines begin."""
REPEATABLE = "call"
"""The kind of mark of :func:`repeatable`, see ``optree/forms.py``."""
Method = TypeVar("Method", bound=Callable[..., Any])


def repeatable(*attributes: str) -> Callable[[Method], Method]:
    """Mark a method of backends whose calls the extension may repeat where the method has them kept.

    It returns None or one of its tensors, and does nothing but what :meth:`CallCache.keep` is told of. What it does
    follows from its tensors' layouts, its numbers and flags, the identity of the argument ``layer``, and the backend's
    ``attributes``.
    """

    def marked(method: Method) -> Method:
        return mark(method, REPEATABLE, *attributes)

    return marked


def parameters_of(method: Callable[..., Any]) -> tuple[tuple[str, ...], int]:
    """The names of a method's parameters after ``self``, and how many of them may be given by position."""
    parameters = [*inspect.signature(method).parameters.values()][1:]
    names = tuple(parameter.name for parameter in parameters)
    return names, sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)


class Call(NamedTuple):
    """The request that a primitive was called with.

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


class Placed(NamedTuple):
    """A launch as data, for the extension.

    Attributes
    ----------
    entry : int
        Address of the kernel's packed entry, see ``packed.h``.
    given : bytes
        Its arguments, 0 where an address or the working memory belongs.
    places : tuple of int
        Which of them each address is.
    work_at : int
        Which is the working memory; -1: none.
    work : int
        Bytes of that.
    """

    entry: int
    given: bytes
    places: tuple[int, ...]
    work_at: int = -1
    work: int = 0


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
    apart : tuple of (int, int)
        Pairs of arrays that are only read, for which the kernel was chosen since they share no memory.
    """

    function: Any
    addresses: tuple[int | None, ...]
    tail: tuple[Any, ...]
    work: int = 0
    keep: Any = None
    refused: str = ""
    apart: tuple[tuple[int, int], ...] = ()

    def start(self, addresses: Sequence[int | None]) -> None:
        """Run the kernel on arrays that lie at ``addresses``.

        Raises
        ------
        MemoryError
        """
        if (writes := recorder()) is not None:
            writes.kernel(self, addresses)
        if self.work:
            held = held_workspace(self.work)  # referenced until the kernel returns
            refused = self.function(*addresses, held[1], *self.tail)
        else:
            refused = self.function(*addresses, *self.tail)
        if refused:
            raise MemoryError(self.no_memory)

    @property
    def no_memory(self) -> str:
        """The message of the error."""
        return f"{self.refused}; free some and call again"

    def placed(self) -> Placed | None:
        """The launch as data; None for what is no kernel of C."""
        function, count, works = self.function, len(self.addresses), int(self.work > 0)
        if placed := getattr(function, "placed", None):
            found: Placed = placed(*self.tail)
            return found
        if getattr(function, "packed", None) is None:
            return None
        kinds = ["d" if kind is c_double else "q" for kind in function.argtypes]
        given = struct.pack("=" + "".join(kinds), *[0] * (count + works), *self.tail)
        return Placed(function.packed, given, tuple(range(count)), count if works else -1, self.work)

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
    """The calls that a backend made.

    Attributes
    ----------
    fast : object or None
        The extension's table of them (``nlfast.Calls``), once there is one; None in bench mode.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Known] = {}
        self._layouts: dict[Any, object] = {}
        self.fast: Any = None
        self._learner = 0
        self._last: tuple[Call, Known] | None = None
        _caches.add(self)

    def clear(self) -> None:
        """Forget all calls."""
        self._known.clear()
        if self.fast is not None:
            self.fast.clear()

    def expect(self) -> None:
        """Remember the call that this thread makes next, for :meth:`recipe`, which has to follow."""
        self._learner, self._last = get_ident(), None

    def _was_made(self, call: Call, known: Known) -> None:
        if self._learner == get_ident():  # else the extension does not ask for it, and its tensors need not be held
            self._last = call, known

    def recipe(self) -> tuple[Any, ...] | None:
        """How the extension repeats the call made since :meth:`expect`; None if it cannot, or no call was kept.

        Returns
        -------
        (entry, arguments, given, work_at, work, apart, phases, no_memory, keep)
            As :class:`Placed` has them; ``arguments`` are the tensors whose addresses the arguments are, None for
            others. ``apart`` and ``phases`` as in :class:`Known`, but they name arguments, and a phase has the bytes of
            a line in it. Then what an error says, and what must live meanwhile.
        """
        if self._learner != get_ident():
            return None
        made, self._last, self._learner = self._last, None, 0
        placed = None if made is None else made[1].launch.placed()
        if made is None or placed is None:
            return None
        call, known = made
        entry, given, places, work_at, work = placed
        arguments: list[Any] = [None] * (len(given) // 8)
        for tensor, place in zip(call.tensors, places):
            arguments[place] = tensor
        apart = tuple((places[i], places[j], low, high) for i, j, low, high in known.apart)
        phases = tuple((places[i], LINE, start) for i, start in known.phases)
        return entry, tuple(arguments), given, work_at, work, apart, phases, known.launch.no_memory, known

    def layout(self, tensor: Any) -> object:
        """A key for the layout of ``tensor`` in memory: the same object for another that lies alike."""
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
        numbers, tensors = call.numbers, call.tensors
        at = [None if t is None else t.address for t in tensors]
        for written, other, low, high in apart:
            if low < at[other] - at[written] < high:  # type: ignore[operator]
                return False
        for written, place in phases:
            if at[written] % LINE != place:  # type: ignore[operator]
                return False
        if 0 in numbers and _negative_zero(numbers):
            return False
        launch.start(at)
        self._was_made(call, known)
        if (writes := recorder()) is not None:
            writes.primitive(tensors, at)
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
        apart += [(i, j, -tensors[j].nbytes, tensors[i].nbytes) for i, j in launch.apart]
        phases = [(i, launch.addresses[i] % LINE) for i in written if tensors[i].nbytes >= ALIGNED_BYTES]  # type: ignore[operator]
        known = Known(launch, tuple(apart), tuple(phases), call.layer)
        self._was_made(call, remember(self._known, _key(call), known))


_caches: weakref.WeakSet[CallCache] = weakref.WeakSet()


def _forget_all() -> None:
    """Forget the calls of every backend: those that the extension repeats have the number of threads in them."""
    for cache in list(_caches):
        cache.clear()


when_changed.append(_forget_all)


def _key(call: Call) -> tuple[Any, ...]:
    """Equal for calls that one launch makes, if what :class:`Known` says holds."""
    name, layer, tensors, numbers, options, in_place = call
    layouts = [None if t is None else t.call_layout for t in tensors]
    return (name, id(layer), *layouts, numbers, options, in_place, thread_count(), forks.forked)


def _negative_zero(numbers: Sequence[float]) -> bool:
    """Whether one is -0.0, which is equal to 0 and is not the same."""
    return any(number == 0 and math.copysign(1, number) < 0 for number in numbers)
