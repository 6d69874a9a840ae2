"""A program: kernels that run one after the other, on operands whose addresses are given when they run.

Everything that runs a second time is a program: an assignment, a call of a primitive, a prepared assignment, a pass of
a network or of variables. A table in docs/tour.md, "The second time", tells when each is learned, under which key, and
when it is forgotten.

Its steps are kernels of compiled C, each with all its arguments as words of 8 bytes. A word is a constant, or says
where the argument is found: the address of an operand, a number, or a place in working memory. A step may also call a
function of Python (:func:`calling`): to send gradients to other ranks, to draw masks, to add up gradients of words. On
a GPU steps are launches of kernels and products (``kernels/cuda/step.py``).

A program is data. The extension (``kernels/c/fastpath.py``) keeps programs by the key of what they do and runs them.
Without it nothing is searched by key: :func:`runner` runs in Python a program whose arguments are all known, such as a
prepared assignment. On a GPU ``Runner`` and ``FixedRunner`` run programs. :func:`join` makes one program of several.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from neonlike.errors import IndexRangeError
from neonlike.kernels.run import forks
from neonlike.kernels.run.workspace import held_workspace

OUT_OF_RANGE = 2
"""Result of a kernel that met an index out of range; any other but 0 means that there was no memory."""
RELEASE_WORK = 1 << 14
"""Elements times cost from which a kernel lets other Python threads run: that takes about a twentieth of a
microsecond, and a kernel of less work a few."""
NO_MEMORY = "no memory for the kernel's working space; free some and call again"


class Replayed(Enum):
    """The answers of the extension when it is asked to make an assignment."""

    DONE = "done"
    """It was made."""
    NEW = "new"
    """It was not met before: Python makes it, and may then have it learned."""
    LEFT = "left"
    """It is left to Python."""


class Source(IntEnum):
    """Sources of a kernel's argument; ``c/layout.py`` writes them down for the extension."""

    PLAIN = 0
    """The word is the argument itself, 8 bytes as they are."""
    OPERAND = 1
    """The address of an operand, and bytes from there."""
    WHOLE = 2
    """A number, as an integer."""
    REAL = 3
    """A number, as a real."""
    MEMORY = 4
    """An address in working memory: bytes from where that begins."""
    THREADS = 5
    """The number of threads to run on; 1 in a forked process."""


Word = tuple[Source, int] | tuple[Source, int, int]
"""An argument of a kernel: its source, then the value, or which operand or number; then bytes from its start."""


class Step(NamedTuple):
    """One kernel: the address of its packed entry (``packed.h``), or of a ``struct nl_device``, and its arguments."""

    entry: int
    words: tuple[Word, ...]


class Program(NamedTuple):
    """Kernels one after the other.

    Attributes
    ----------
    steps : tuple of Step
        On a GPU: of launches and products, or of callables where all arguments are known.
    operands, numbers : int
        How many addresses and numbers a run takes.
    memory : int
        Bytes of working memory: for temporaries, and for what kernels work in.
    on_device : bool
        Whether its steps are queued on a GPU. For the extension that is one step.
    release : bool
        Whether other Python threads may run meanwhile.
    forks : bool
        Whether it may run in a forked process, where no thread may be started.
    refused : str
        The message of the error if there is no memory.
    keep : object
        What must live as long as the program.
    python : callable or None
        ``python(addresses, functions)`` runs it and says whether it did, where there are no steps, or in a forked
        process where these may not run.
    """

    steps: tuple[Any, ...]
    operands: int
    numbers: int
    memory: int = 0
    on_device: bool = False
    release: bool = True
    forks: bool = False
    refused: str = NO_MEMORY
    keep: Any = None
    python: Callable[[Sequence[int | None], Sequence[Any]], bool] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its steps are all that it does, on the host, so that it may be a part of another program."""
        return (self.python is None or bool(self.steps)) and not self.on_device


class Fragment(NamedTuple):
    """The kernels of one stage of a plan, for the program of the plan; see :class:`Program`."""

    steps: tuple[Step, ...]
    release: bool
    forks: bool
    keep: Any


# Programs of programs ---------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """A run that was made.

    Attributes
    ----------
    addresses : tuple of int or None
        Of the operands.
    numbers : tuple
    read, written : tuple of Tensor
        The operands of an assignment; of other programs they are not known.
    draws : tuple of int
        Which of the numbers are calls of ``rand``, and so others each time.
    """

    program: Program
    addresses: tuple[int | None, ...]
    numbers: tuple[Any, ...] = ()
    read: tuple[Any, ...] = ()
    written: tuple[Any, ...] = ()
    draws: tuple[int, ...] = ()


Place = Callable[[Made, int, int], Word]
"""``place(run, which, distance)`` is the word of so many bytes after where this operand of the run is found."""


def stays(run: Made, which: int, distance: int) -> Word:
    """The word of an operand that stays where it is.

    Parameters
    ----------
    run : Made
    which : int
        Number of the operand.
    distance : int
        In bytes.
    """
    address = run.addresses[which]
    return Source.PLAIN, 0 if address is None else address + distance


def join(
    runs: Sequence[Made],
    keep: Any,
    place: Place = stays,
    operands: int = 0,
    memory: int = 0,
    working: int | None = None,
    refused: str = "",
    calls: Sequence[int] = (),
) -> Program:
    """One program that does what ``runs`` did in their order.

    Parameters
    ----------
    runs : sequence of Made
        Of programs that are whole.
    keep : object
        What must live beside what the programs keep: the owners of operands that stay.
    place : callable, optional
        Where each operand is found; by default all stay where they were.
    operands : int
        How many operands the joined program takes, of those that ``place`` names.
    memory : int
        Bytes of working memory that ``place`` uses, before that of the programs.
    working : int, optional
        The address of working memory of the joined program's own, of which ``keep`` has the owner.
    refused : str
        Message for a run without memory; empty: the usual one.
    calls : sequence of int, optional
        Calls of ``rand`` that the runs make, in the order in which the joined program takes the numbers of others. All
        other numbers stay as they were.
    """
    steps = tuple(
        Step(step.entry, tuple(_placed(word, run, place, memory, working, calls) for word in step.words))
        for run in runs
        for step in run.program.steps
    )
    programs = [run.program for run in runs]
    needed = 0 if working is not None else memory + max((program.memory for program in programs), default=0)
    return Program(
        steps, operands, len(calls), needed, False,
        any(program.release for program in programs), all(program.forks for program in programs),
        refused or NO_MEMORY, (keep, [program.keep for program in programs]),
    )  # fmt: skip


def _placed(word: Word, run: Made, place: Place, memory: int, working: int | None, calls: Sequence[int]) -> Word:
    """An argument of a joined program."""
    source, which, *before = word
    if source is Source.WHOLE and which in run.draws:
        return source, calls.index(run.numbers[which])
    if source is Source.OPERAND:
        return place(run, which, sum(before))
    if source is Source.WHOLE or source is Source.REAL:
        return Source.PLAIN, _bits(source, run.numbers[which])
    if source is Source.MEMORY:
        return (source, which + memory) if working is None else (Source.PLAIN, which + working)
    return word


def _bits(source: Source, number: Any) -> int:
    """The 8 bytes of a number as an integer."""
    if source is Source.REAL:
        (found,) = struct.unpack("=q", struct.pack("=d", number))
        return int(found)
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)


caller: list[int] = []
"""The address of the extension's kernel that calls a function of Python, once the extension is there."""


def calling(function: Callable[[], None]) -> Program:
    """A program whose one step calls a function of Python, by the extension; its exceptions end the run.

    Not by a callback of ctypes: no exception passes through one, and Ctrl-C may be raised where it begins.
    """
    return Program((Step(caller[0], ((Source.PLAIN, id(function)),)),), 0, 0, release=False, keep=function)


def words_of(given: bytes) -> list[Word]:
    """Arguments that are packed as 8 bytes each, as constants."""
    return [(Source.PLAIN, word) for (word,) in struct.iter_unpack("=q", given)]


def is_repeatable(runs: Iterable[Made], calls: Sequence[int] = ()) -> bool:
    """Whether ``runs`` can be joined: all that they draw are these calls of ``rand``, each of which was made once."""
    drawn = {run.numbers[which] for run in runs for which in run.draws}
    return all(run.program.is_whole for run in runs) and drawn <= set(calls) and len(set(calls)) == len(calls)


def refuse(refused: str, status: int) -> NoReturn:
    """Raise the error of a kernel that returned ``status``; the extension calls this, too.

    Parameters
    ----------
    refused : str
        The message if there was no memory.
    status : int

    Raises
    ------
    IndexRangeError
        If an index is out of range.
    MemoryError
        If there was no memory.
    """
    if status == OUT_OF_RANGE:
        raise IndexRangeError(
            "take or onehot: an index is out of range for its axis; onehot takes 0 to size - 1, take -size to size - 1"
        )
    raise MemoryError(refused)


# In Python --------------------------------------------------------------------------------------------------------

_PACKED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
"""A kernel's entry that takes its arguments as an array of words of 8 bytes, see ``packed.h``."""

_kernel = lru_cache(maxsize=1024)(_PACKED)


def runner(program: Program) -> Callable[[], None]:
    """A function that runs, in Python, a program that takes no operands and no numbers.

    Raises
    ------
    IndexRangeError, MemoryError
        By the function, see :func:`refuse`.
    """
    calls, threads, inside = [], [], []
    for step in program.steps:
        words = (ctypes.c_int64 * max(1, len(step.words)))()
        for at, (source, value, *_) in enumerate(step.words):
            words[at] = value
            if source is Source.THREADS:
                threads.append((words, at))
            elif source is Source.MEMORY:
                inside.append((words, at, value))
        calls.append((_kernel(step.entry), ctypes.c_void_p(ctypes.addressof(words)), words))

    def run() -> None:
        if forks.forked:
            for words, at in threads:
                words[at] = 1
        if inside:
            held = held_workspace(program.memory)  # referenced until the last kernel returns
            for words, at, distance in inside:
                words[at] = held[1] + distance
        for kernel, where, _ in calls:
            if status := kernel(where):  # later kernels need the results of earlier ones: a fallback has none
                refuse(program.refused, status)

    run.keep = program  # type: ignore[attr-defined]
    return run
