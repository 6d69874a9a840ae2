"""Several ranks, each with an emulated GPU of its own, through the emulated NCCL."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.support.ranks import run_ranks

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("emulator")]

BEGIN = """
import ctypes, os, sys, time
import numpy as np
from neonlike.backends import gen_backend
rank = int(os.environ["PMI_RANK"])
{before}
be = gen_backend("gpu", batch_size=12, rng_seed=0)
count = lambda: ctypes.CDLL("libnccl.so.2").cuemu_nccl_count()
"""


def on_gpus(
    ranks: int, program: str, before: str = "", gpus: int = 4, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program on ranks with streams as late as the driver may run them."""
    settings = {"CUEMU_DEVICES": str(gpus), "CUEMU_ASYNC": "1", "CUEMU_THREADS": "1", "NEONLIKE_NCCL": "", **variables}
    return run_ranks(ranks, BEGIN.format(before=before) + program, timeout=100, **settings)


COLLECTIVES = """
import ml_dtypes
size, ranks = be.num_ranks, range(be.num_ranks)
of = lambda rank: np.random.default_rng(rank).uniform(0.5, 2, (50, 70))
fold = {"sum": sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": lambda all: sum(all) / len(all)}
for dtype, tolerance in ("float32", 1e-6), ("float64", 1e-15), ("float16", 2e-3), ("bfloat16", 2e-2):
    everyone = [of(r).astype(dtype).astype("f8") for r in ranks]
    for op in fold:
        expected = fold[op](everyone) if op in ("sum", "mean") else fold[op](everyone, axis=0)
        t = be.empty((50, 70), dtype=dtype)
        t[:] = be.array(of(be.rank).astype(dtype), dtype=dtype)
        be.allreduce(t, op)
        later = be.empty_like(t)
        later[:] = t * 2
        found = later.get().astype("f8") / 2
        assert np.abs(found / expected - 1).max() < tolerance * size, (dtype, op)
        assert len(set(be.ranks.tell(t.get().tobytes()))) == 1, "the same bits on all ranks"
before = count()

for view in (lambda t: t.T), (lambda t: t[10:40:3, ::2]):  # elements that do not lie in order
    t = be.array(of(be.rank).astype("f4"))
    be.allreduce(view(t))
    expected = of(be.rank).astype("f4")
    view(expected)[...] = view(sum(of(r) for r in ranks))
    assert np.allclose(t.get(), expected)
for dtype in "f4", "f2", "i4", "u1", "?":
    t = be.array((10 * of(be.rank) > 10).astype(dtype), dtype=dtype)
    be.broadcast(t, size - 1)
    assert np.array_equal(t.get(), (10 * of(size - 1) > 10).astype(dtype)), dtype
assert count() - before == 7
t = be.array(np.full((3, 2), be.rank, "i4"), dtype="i4")  # integers go through the host
assert (be.allreduce(t).get() == sum(ranks)).all() and count() - before == 7

for step in range(20):  # memory that is freed behind a sum, and used again
    many = [be.empty((30, n + 1)) for n in range(20)]
    for n, one in enumerate(many):
        one[:] = n + be.rank + step
    be.links().reduce(many)
    total = be.zeros((1, 1))
    for one in many:
        total[:] = total + be.sum(one[:, :1]) / 30
    del many, one
    for n in range(20):
        be.empty((30, n + 1))[:] = -1e9
    assert np.isclose(total.item(), sum(n + r + step for n in range(20) for r in ranks)), step

for early in ranks:  # the others want this sum before that rank waits for what it has queued
    t = be.empty((40, 40))
    t[:] = be.rank + 1
    be.allreduce(t)
    time.sleep(0 if be.rank == early else 0.3)
    assert (t.get() == sum(r + 1 for r in ranks)).all(), early

be.allreduce(be.ones((4, 1)))  # queued, and never waited for here before the others must have it
first = be.ranks.tell(be.rank)
if be.rank:
    be.synchronize()
print("done", first)
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives(ranks: int) -> None:
    done = on_gpus(ranks, COLLECTIVES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"done {list(range(ranks))}\n"
    assert not done.stderr


SUM = """
t = be.array(np.full((3, 2), be.rank + 1.0))
for _ in range(3):
    assert (be.allreduce(t, "mean").get() == 1.5).all()
"""


@pytest.mark.parametrize(
    ("before", "gpus", "said"),
    [
        ("if rank == 1: os.environ['NEONLIKE_NCCL'] = 'none'", 2, "rank 1 has no NCCL (NEONLIKE_NCCL=none)"),
        ("", 1, "ranks 0 and 1 share the GPU 0000:00:00.0, which NCCL does not allow"),
    ],
)
def test_all_go_through_the_host_and_say_why_once(before: str, gpus: int, said: str) -> None:
    program = f"{SUM}be.broadcast(t)\nassert be.links() is None and not count()\nprint('done')"
    done = on_gpus(2, program, before, gpus)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    assert done.stderr.count(said) == 1 == done.stderr.count("through the host's memory")


def errors_of(program: str, **variables: str) -> str:
    """The errors of two ranks, which end soon, before any is done."""
    started = time.monotonic()
    done = on_gpus(2, f"{program}\nprint('done')", **variables)
    assert done.returncode != 0 and "done" not in done.stdout
    assert time.monotonic() - started < 20
    return done.stderr


def test_an_error_of_one_ends_all() -> None:
    errors = errors_of(f"{SUM}if rank == 1: os.environ['CUEMU_NCCL_FAIL'] = '2'\nbe.allreduce(t).get()")
    assert "rank 1 of 2 failed, and all ranks end" in errors
    assert "DeviceError: GPU 1, sum of 1 tensors by NCCL: ncclGroupEnd: unhandled system error" in errors


def test_a_rank_that_leaves_is_named() -> None:
    errors = errors_of(f"{SUM}if rank == 1: sys.exit()\nbe.allreduce(t).get()")
    assert "rank 0 of 2 waits in call " in errors
    assert "sum of 1 tensors by NCCL, in <string>:" in errors
    assert ", but rank 1 ended its program after call " in errors


def test_calls_that_differ_are_named() -> None:
    errors = errors_of("be.allreduce(be.ones((3, 2)), 'sum' if rank else 'mean')", NEONLIKE_MPI_CHECK="1")
    assert "the ranks make different calls" in errors
    assert "mean of 1 tensors by NCCL" in errors and "sum of 1 tensors by NCCL" in errors


def test_backends_one_after_another() -> None:
    another = """
alive = ctypes.CDLL("libnccl.so.2").cuemu_nccl_communicators
be = gen_backend("gpu", batch_size=12, rng_seed=0)
assert count() == 3 and alive() == 0
"""
    done = on_gpus(2, f"{SUM}{another}{SUM}assert count() == 6 and alive() == 1\nprint('done')")
    assert done.returncode == 0 and done.stdout == "done\n" and not done.stderr, done.stderr
