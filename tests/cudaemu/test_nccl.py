"""The emulated NCCL between processes: what a real one answers by a hang or wrong numbers is an error here."""

from __future__ import annotations

import time

import pytest

from tests.support.ranks import run_ranks

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("emulator")]

PROGRAM = """
import ctypes, sys
import numpy as np
import pycuda.driver as cuda
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
cuda.init()
context = cuda.Device(rank % cuda.Device.count()).make_context()
nccl = ctypes.CDLL("libnccl.so.2")
nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def said(status):
    return f"{nccl.ncclGetErrorString(status).decode()}: {nccl.ncclGetLastError(None).decode()}" if status else "fine"


def start(count=size, number=rank):
    own, made = Id(), ctypes.c_void_p()
    if rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(own)) == 0
    own = Id.from_buffer_copy(world.bcast(bytes(own)))
    return said(nccl.ncclCommInitRank(ctypes.byref(made), count, own, number)), made


def total(comm, count=3, kind=7, operation=0, stream=None, memory=None):
    memory = cuda.to_device(np.arange(count, dtype="f4") + rank) if memory is None else memory
    place = ctypes.c_void_p(int(memory))
    status = nccl.ncclAllReduce(place, place, ctypes.c_size_t(count), kind, operation, comm, stream)
    return said(status), memory


def values(memory, count=3):
    return cuda.from_device(memory, (count,), np.float32).tolist()


"""
END = "\nsys.stdout.write(f'{rank} {result}\\n')\nsys.stdout.flush()\nworld.Barrier()\nimport os\nos._exit(0)\n"


def results(program: str, ranks: int = 2, **variables: str) -> list[str]:
    """Run the program on ranks; what each has as ``result`` in the end, by rank."""
    variables = {"CUEMU_DEVICES": "2", "CUEMU_NCCL_TIMEOUT": "2", **variables}
    done = run_ranks(ranks, PROGRAM + program + END, timeout=60, **variables)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split(" ", 1) for line in done.stdout.splitlines())
    assert [int(rank) for rank, _ in lines] == list(range(ranks)), done
    return [result for _, result in lines]


def test_sums_and_groups() -> None:
    program = """
_, comm = start()
memory = cuda.to_device(np.arange(3, dtype="f4") + rank)
assert nccl.ncclGroupStart() == 0
for _ in range(2):
    assert total(comm, memory=memory)[0] == "fine"
assert values(memory) == [rank, rank + 1, rank + 2], "nothing runs before the group ends"
assert nccl.ncclGroupEnd() == 0
result = values(memory), nccl.cuemu_nccl_count(), nccl.ncclCommDestroy(comm), said(nccl.ncclCommDestroy(comm))
"""
    first, second = results(program)
    assert first == second == (
        "([2.0, 6.0, 10.0], 2, 0, 'invalid argument: no communicator, or one that was destroyed')"
    )


@pytest.mark.parametrize("change", ["count=3 + rank", "kind=7 - rank", "operation=rank"])
def test_calls_that_differ(change: str) -> None:
    program = f"_, comm = start()\nresult, _ = total(comm, **dict({change}), memory=cuda.mem_alloc(64))"
    assert results(program) == ["unhandled cuda error: a stream did not take the work"] * 2


@pytest.mark.parametrize(
    ("arguments", "ranks", "expected"),
    [
        ("count=2 + rank", 2, ("a rank failed, or did not come", "ranks disagree about their number")),
        ("number=0", 2, ("this rank was there already", "a rank failed, or did not come")),
        ("number=2", 2, ("no such rank",) * 2),
        ("count=3", 2, ("a rank failed, or did not come",) * 2),
        ("", 3, ("two ranks have the device 0000:00:00.0",)),
    ],
)
def test_starts_that_fail(arguments: str, ranks: int, expected: tuple[str, ...]) -> None:
    started = time.monotonic()
    found = results(f"result, _ = start({arguments})", ranks)
    assert time.monotonic() - started < 20
    for text in expected:
        assert any(text in one for one in found), found


def test_a_rank_that_does_not_come() -> None:
    program = "_, comm = start()\nresult = total(comm)[0] if rank else 'gone'"
    assert results(program) == ["gone", "unhandled cuda error: a stream did not take the work"]


def test_late_streams_run_when_another_rank_waits() -> None:
    """A rank that waits for nothing of its own must not keep the others waiting."""
    program = """
_, comm = start()
stream = cuda.Stream(1)
text, memory = total(comm, stream=ctypes.c_void_p(stream.handle))
late = nccl.cuemu_nccl_count()
if rank:
    stream.synchronize()
world.Barrier()
stream.synchronize()
result = text, late, values(memory)
"""
    first, second = results(program, CUEMU_ASYNC="1", CUEMU_NCCL_TIMEOUT="20")
    assert first == second == "('fine', 0, [1.0, 3.0, 5.0])"


def test_calls_that_cannot_be() -> None:
    program = """
_, comm = start()
memory = cuda.mem_alloc(16)
result = [
    total(comm, kind=12, memory=memory)[0], total(comm, operation=5, memory=memory)[0], total(None, memory=memory)[0],
    total(comm, count=400, memory=memory)[0], said(nccl.ncclGroupEnd()),
]
"""
    found = results(program)[0]
    assert found.count("no such type, operation or root") == 2
    for text in ("no communicator", "not memory of the device", "no group was started"):
        assert text in found
