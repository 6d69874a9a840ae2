"""Programs: their arguments, programs of programs, and that Python and the extension run them alike."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.arena import Arena
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.program import NO_MEMORY, Made, Program, Source, Step, join, runner
from neonlike.kernels.run.workspace import held_workspace
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("programs of the CPU"),
]

SEEN: list[tuple[int, ...]] = []
ANSWER = [0]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
def three_words(words: Any) -> int:
    """A kernel of three arguments, which notes them."""
    SEEN.append(tuple(words[:3]))
    return ANSWER[0]


ENTRY = ctypes.cast(three_words, ctypes.c_void_p).value or 0


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()
    ANSWER[0] = 0


def of(*steps: tuple[tuple[int, ...], ...], **more: Any) -> Program:
    """A program of such kernels."""
    found = tuple(Step(ENTRY, tuple((Source(word[0]), *word[1:]) for word in words)) for words in steps)
    return Program(found, **({"operands": 0, "numbers": 0} | more))


def bits(number: float) -> int:
    return int(struct.unpack("=q", struct.pack("=d", number))[0])


def ways(extension: Any) -> list[Callable[[Program], Callable[[], None]]]:
    """Python's way to run a program without operands, and the extension's."""
    return [runner, lambda program: extension.Program(*program)]


def test_constants_threads_and_working_memory(extension: Any) -> None:
    program = of(((0, 7), (5, 3), (4, 16)), memory=64)
    for way in ways(extension):
        way(program)()
    begin = held_workspace(64)[1]
    assert SEEN == [(7, 3, begin + 16)] * 2


def test_joined_programs_have_all_arguments_and_their_own_memory(extension: Any) -> None:
    first = Made(of(((1, 0, 8), (2, 0), (3, 1)), operands=1, numbers=2), (1000,), ((1 << 64) - 2, 0.5))
    second = Made(of(((1, 1), (4, 32), (0, 5)), operands=2, numbers=0, memory=128), (2000, None))
    joined = join([first, second], None, memory=4096)
    assert joined.memory == 4096 + 128 and joined.operands == 0
    for way in ways(extension):
        way(joined)()
    begin = held_workspace(4096)[1]
    assert SEEN == [(1008, -2, bits(0.5)), (0, begin + 4096 + 32, 5)] * 2
    SEEN.clear()
    own = join([second], None, working=1 << 20)
    assert own.memory == 0
    for way in ways(extension):
        way(own)()
    assert SEEN == [(0, (1 << 20) + 32, 5)] * 2


def test_operands_may_be_found_elsewhere(extension: Any) -> None:
    run = Made(of(((1, 0, 8), (1, 1), (0, 1)), operands=2), (1000, 2000))
    joined = join([run], None, lambda run, which, distance: (Source.OPERAND, 1 - which, distance), operands=2)
    extension.Program(*joined)(30, None)
    assert SEEN == [(8, 30, 1)]


def test_a_kernel_that_finds_no_memory_ends_the_program(extension: Any) -> None:
    program = of(((0, 1), (0, 1), (0, 1)), ((0, 2), (0, 2), (0, 2)), refused="a made-up kernel: no memory")
    ANSWER[0] = 1
    for way in ways(extension):
        with pytest.raises(MemoryError, match="a made-up kernel: no memory"):
            way(program)()
    assert SEEN == [(1, 1, 1)] * 2


def test_the_error_of_a_call_says_what_there_was_no_memory_for() -> None:
    for refused, message in (("a made-up kernel: no memory", "a made-up kernel: no memory; free"), ("", NO_MEMORY)):
        call = KernelCall(lambda *arguments: 1, (1000,), (), refused=refused)
        with pytest.raises(MemoryError, match=f"^{message}"):
            call.run()


def test_long_programs_have_room_for_all_arguments(extension: Any) -> None:
    count = 400
    program = of(*(((0, k), (1, 0, k), (0, -k)) for k in range(count)), operands=1)
    extension.Program(*program)(100)
    assert SEEN == [(k, 100 + k, -k) for k in range(count)]


@pytest.mark.parametrize(
    "wrong",
    [
        of(((1, 0), (0, 0), (0, 0))), of(((1, -1), (0, 0), (0, 0)), operands=1), of(memory=0, on_device=True),
        of(((2, 1), (0, 0), (0, 0)), numbers=1), of(((4, 65), (0, 0), (0, 0)), memory=64),
        *(Program(steps, 0, 0) for steps in (((0, ()),), (7,), ((ENTRY, (7,)),), ((ENTRY, ((9, 0),)),))),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_is_no_program_is_refused(extension: Any, wrong: Program) -> None:
    with pytest.raises((ValueError, TypeError)):
        extension.Program(*wrong)


def test_it_takes_as_many_operands_as_it_has(fast: Backend, extension: Any) -> None:
    program = extension.Program(*of(((1, 0), (1, 1), (0, 0)), operands=2))
    a, b = fast.ones((2, 3)), fast.ones((3, 2))
    for wrong in ((), (1,), (1, 2, 3), ("a", 1)):
        with pytest.raises(TypeError):
            program(*wrong)
    for wrong in (((a,), ()), ([a, b], ()), (None, ()), ((a, b), (1,)), ((a, b), None), ((a, b),)):
        with pytest.raises(TypeError):
            program.run_on(*wrong)
    assert not program.run_on((a, None), ()) and SEEN == []
    assert program.run_on((a, b), ()) and SEEN == [(a.ptr, b.ptr, 0)] and program.hits == 1 and program.kernels == 1


def test_it_takes_as_many_integers_as_it_has(fast: Backend, extension: Any) -> None:
    program = extension.Program(*of(((2, 1), (1, 0), (2, 0)), operands=1, numbers=2))
    a = fast.ones((2, 3))
    for wrong, error in (((), TypeError), ((1,), TypeError), ((1, "2"), TypeError), ((1, 1 << 70), OverflowError)):
        with pytest.raises(error):
            program.run_on((a,), wrong)
    assert SEEN == [] and program.run_on((a,), (7, -9)) and SEEN == [(-9, a.ptr, 7)]


def test_rooms_are_used_again_once_they_are_given_back() -> None:
    arena = Arena()
    first, second = arena.take(100), arena.take(100)
    assert first[0] % 64 == second[0] % 64 == 0 and second[0] >= first[0] + 100
    arena.give_back([first])
    assert arena.take(90) == first and arena.take(100)[0] >= second[0] + 100
    assert arena.take(1 << 16)[0] % 4096 == 0
    arena.give_back([second])
    assert arena.take(20)[0] >= second[0] + 100, "a room of more than twice the size stays"


def test_the_extension_and_python_make_the_same_assignments(fast: Backend, extension: Any) -> None:
    rng = np.random.default_rng(5)
    a, b, out = (fast.array(rng.standard_normal((40, 30))) for _ in range(3))
    step = fast.prepare(out, fast.exp(a - fast.max(b, axis=1)) / fast.sum(fast.exp(b), axis=0))
    step()
    wanted = out.get()
    bound: Any = step.bound
    for way in ways(extension):
        out.fill(0)
        way(bound.program)()
        np.testing.assert_array_equal(out.get(), wanted)
