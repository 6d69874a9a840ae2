"""Calls of compound primitives that are made again: which methods they are of, and what holds of a call's program.

A primitive checks its arguments, chooses a kernel and cuts the work, which takes many times as long as a small kernel.
All of that depends on the layer, on how the tensors lie in memory, on numbers and flags, and on the number of threads.
So the extension of ``kernels/c/fastpath.py`` stands before the methods that :func:`repeatable` marks, and keeps a call
that ran as one program on the tensors' own memory under these; the next call like it runs on other addresses.
"""

from __future__ import annotations

import inspect
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_double
from typing import Any, NamedTuple, Protocol, TypeVar

from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.program import NO_MEMORY, Made, Program, Source, Step, Word, join, runner, words_of
from neonlike.kernels.run.trace import Called, Operands, Pinned, Trace, current
from neonlike.kernels.run.workspace import held_workspace
from neonlike.optree.forms import mark

ALIGNED_BYTES = 1 << 20
"""Of results, from which on the choice of stores past the caches may depend on where lines begin."""
REPEATABLE, PINNED = "call", "pinned call"
"""The kinds of marks of :func:`repeatable`, see ``optree/forms.py``."""
IDENTIFIED = ("layer", "weights")
"""Parameters that are told by identity, since what they are given never changes: geometries, quantized weights."""
Method = TypeVar("Method", bound=Callable[..., Any])


def repeatable(*attributes: str, pinned: bool = False) -> Callable[[Method], Method]:
    """Mark a method of backends whose calls the extension may repeat.

    It returns None, one of its tensors or constant integers (the GPU's rate (0, 0), which was not measured), and does
    nothing but what its trace has. What it does follows from its tensors' layouts, its numbers and flags, the identity
    of its argument among :data:`IDENTIFIED`, and the backend's ``attributes``.
    ``pinned``: it takes lists of tensors, and is repeated for these very tensors.
    """

    def marked(method: Method) -> Method:
        return mark(method, PINNED if pinned else REPEATABLE, *attributes)

    return marked


def parameters_of(method: Callable[..., Any]) -> tuple[tuple[str, ...], int, int]:
    """The names of a method's parameters after ``self``, how many of them go by position, and which is identified.

    The last is -1 if none is.
    """
    parameters = [*inspect.signature(method).parameters.values()][1:]
    names = tuple(parameter.name for parameter in parameters)
    identified = next((place for place, name in enumerate(names) if name in IDENTIFIED), -1)
    return names, sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters), identified


class Conversion(NamedTuple):
    """An array of 16-bit floats that a kernel reads or writes as float32, in working memory.

    Attributes
    ----------
    operand : int
        Which of the kernel's arrays it is.
    numbers : int
        How many it has.
    threads : int
    widen, narrow : ctypes function or None
        ``function(source, target, numbers, threads)`` converts the array before, and the results behind the kernel;
        None: it is not read, or not written.
    """

    operand: int
    numbers: int
    threads: int
    widen: Any = None
    narrow: Any = None

    @property
    def bytes(self) -> int:
        """Bytes of the numbers in float32, in whole cache lines."""
        return -(-4 * self.numbers // LINE) * LINE

    def step(self, function: Any, source: Word, target: Word) -> Step:
        """The step of a program in which ``function``, ``widen`` or ``narrow``, converts the array."""
        return Step(function.packed, (source, target, (Source.PLAIN, self.numbers), (Source.PLAIN, self.threads)))


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
        Beginning of the error's message: what there was no memory for; empty: the kernel's working memory.
    apart : tuple of (int, int)
        Pairs of arrays that are only read, for which the kernel was chosen since they share no memory.
    converted : tuple of Conversion
        Arrays that the kernel gets in float32; they lie in front of its working memory.
    in_lines : bool
        Whether the kernel takes for granted that what it writes begins at a cache line, however small that is.
    """

    function: Any
    addresses: tuple[int | None, ...]
    tail: tuple[Any, ...]
    work: int = 0
    keep: Any = None
    refused: str = ""
    apart: tuple[tuple[int, int], ...] = ()
    converted: tuple[Conversion, ...] = ()
    in_lines: bool = False

    def start(self, addresses: Sequence[int | None]) -> None:
        """Run the kernel on arrays that lie at ``addresses``.

        Raises
        ------
        MemoryError
        """
        if (trace := current()) is not None:
            trace.kernel(self, addresses)
        if self.converted:
            runner(join([Made(self.program(), tuple(addresses))], self))()
            return
        if self.work:
            held = held_workspace(self.work)  # referenced until the kernel returns
            status = self.function(*addresses, held[1], *self.tail)
        else:
            status = self.function(*addresses, *self.tail)
        if status:
            raise MemoryError(self.no_memory)

    @property
    def no_memory(self) -> str:
        """The message of the error."""
        return f"{self.refused}; free some and call again" if self.refused else NO_MEMORY

    def program(self) -> Program:
        """The program of the kernel: its operands are the arrays; run by Python if it is no kernel of C."""
        function, count = self.function, len(self.addresses)
        if program := getattr(function, "program", None):
            found: Program = program(*self.tail)
            kept = found.keep, self.keep, self.converted
            return with_conversions(found, self.converted)._replace(refused=self.no_memory, keep=kept)
        if getattr(function, "packed", None) is None:
            return Program((), count, 0, refused=self.no_memory, keep=self, python=self._again)
        works = int(self.work > 0)
        kinds = ["d" if kind is c_double else "q" for kind in function.argtypes]
        given = words_of(struct.pack("=" + "".join(kinds), *[0] * (count + works), *self.tail))
        made = program_of(function.packed, given, range(count), count if works else -1, self.work)
        kept = (function, self.keep, self.converted)
        return with_conversions(made, self.converted)._replace(refused=self.no_memory, keep=kept)

    def _again(self, addresses: Sequence[int | None], functions: Sequence[Any]) -> bool:
        self.start(addresses)
        return True

    def run(self) -> KernelCall:
        """Run the kernel on the arrays that it was made for; returns this, so that it may be kept."""
        self.start(self.addresses)
        return self


def program_of(entry: int, given: Sequence[Word], places: Iterable[int], work_at: int = -1, work: int = 0) -> Program:
    """The program of one kernel of C.

    Parameters
    ----------
    entry : int
        Address of the kernel's packed entry, see ``packed.h``.
    given : sequence of Word
        Its arguments, 0 where an address belongs.
    places : iterable of int
        Which of them each operand is.
    work_at, work : int
        Which is the working memory, and bytes of that; -1: none.
    """
    words, operands = list(given), 0
    for operands, place in enumerate(places, 1):
        words[place] = Source.OPERAND, operands - 1
    if work_at >= 0:
        words[work_at] = Source.MEMORY, 0
    return Program((Step(entry, tuple(words)),), operands, 0, work if work_at >= 0 else 0)


def with_conversions(program: Program, converted: Sequence[Conversion]) -> Program:
    """``program`` of a kernel with the conversions of its arrays before and behind it."""
    if not converted:
        return program
    front = sum(one.bytes for one in converted)
    places = {one.operand: sum(other.bytes for other in converted[:which]) for which, one in enumerate(converted)}

    def placed(word: Word) -> Word:
        source, which, *before = word
        if source is Source.OPERAND and which in places:
            return Source.MEMORY, places[which] + sum(before)
        return (Source.MEMORY, which + front) if source is Source.MEMORY else word

    assert program.steps
    steps = [Step(kernel.entry, tuple(map(placed, kernel.words))) for kernel in program.steps]
    for one in converted:
        array, floats = (Source.OPERAND, one.operand), (Source.MEMORY, places[one.operand])
        if one.widen is not None:
            steps.insert(0, one.step(one.widen, array, floats))
        if one.narrow is not None:
            steps.append(one.step(one.narrow, floats, array))
    return program._replace(steps=tuple(steps), memory=front + program.memory)


class Unrolled(Protocol):
    """A call on tensors that were looked at; the functions in it may be others each time.

    Attributes
    ----------
    lasts : bool
        Whether it reads and writes these tensors alone, no copies of what they held.
    """

    @property
    def lasts(self) -> bool:
        """Whether it reads and writes these tensors alone, no copies of what they held."""
        ...

    def again(self, backend: Any, functions: tuple[Any, ...]) -> bool:
        """Make it with these functions; False, and nothing is done, if it cannot."""
        ...


class Lasting:
    """Repeats a call on tensors that were looked at, as long as they all live."""

    def __init__(self, launch: Unrolled, tensors: Iterable[Any]) -> None:
        self._launch: Unrolled | None = launch
        alive = {id(base): base for tensor in tensors if tensor is not None for base in (tensor._original_base,)}
        self._backend = next(iter(alive.values())).backend
        let_go = weakref.WeakMethod(self._let_go)
        self._watched = [weakref.ref(tensor, lambda _: (own := let_go()) and own()) for tensor in alive.values()]

    def _let_go(self) -> None:
        """One of the tensors is gone: so is the memory that the call would work on."""
        self._launch = None

    def __call__(self, addresses: Sequence[int | None], functions: Sequence[Any]) -> bool:
        """Make the call; False, and nothing is done, if it cannot be made again."""
        launch = self._launch
        return launch is not None and launch.again(self._backend, tuple(functions))


Recipe = tuple[Program, tuple[Any, ...], tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""A program, the tensors that are its operands, and the conditions on other operands: ``Apart`` and ``Phase`` of
``templates/c/fastpath/fastpath_table.h``."""


def recipe_of(trace: Trace) -> Recipe | None:
    """How the extension repeats the call that ``trace`` is of; None if that was not one program on its tensors."""
    if not trace.is_whole or len(trace.calls) != 1:
        return None
    called = trace.calls[0]
    if isinstance(called.operands, Pinned):
        return Program((), 0, 0, python=Lasting(called.launch, called.operands.tensors)), (), (), ()
    if len(trace.runs) != 1 or not called.operands.alone:
        return None
    run = trace.runs[0]
    return run.program, called.operands.tensors, *_conditions(called)


def _conditions(called: Called) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Conditions for the program of a call to run on other tensors of the same layouts."""
    assert isinstance(called.operands, Operands)
    tensors, in_place, launch = called.operands.tensors, called.operands.in_place, called.launch
    results = [out for out in called.outputs if out is not None]
    written = [i for i, t in enumerate(tensors) if i != in_place and any(t is out for out in results)]
    apart = [
        (i, j, -other.nbytes, tensors[i].nbytes)
        for i in written
        for j, other in enumerate(tensors)
        if other is not None and i != j and (j != in_place or other is not tensors[i])
    ]
    apart += [(i, j, -tensors[j].nbytes, tensors[i].nbytes) for i, j in launch.apart]
    aligned = [i for i in written if launch.in_lines or tensors[i].nbytes >= ALIGNED_BYTES]
    phases = [(i, LINE, launch.addresses[i] % LINE) for i in aligned]
    return tuple(apart), tuple(phases)
