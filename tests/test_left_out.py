"""Selection of tests: those that ``--backend gpu`` and ``--cases`` leave out, with messages, and those of `make
test`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import pytest

from tests import ROOT
from tests.backends.primitives.conv import test_kernels
from tests.backends.primitives.pooling import test_pool
from tests.support import optimizing
from tests.support.backend_fixtures import engines_of
from tests.support.engines import new_backend

CONVOLUTIONS = "tests/backends/primitives/conv/test_kernels.py"
POOLING, TENSORS = "tests/backends/primitives/pooling/test_pool.py", "tests/backends/tensors"
FILES = (
    "tests/optree/test_overlap.py", "tests/optree/test_eval.py",
    "tests/kernels/cuda/test_moves.py", "tests/kernels/build/test_waiting.py",
)  # fmt: skip
"""Marked optree and checked; optree; checked, of the GPU itself; of the C compiler."""


def collected(*arguments: str) -> tuple[list[str], str]:
    """Names of the tests that pytest would run, and the rest of its output."""
    environment = {name: value for name, value in os.environ.items() if name != "NEONLIKE_TEST_BACKEND"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [line for line in lines if "::" in line], "\n".join(line for line in lines if "::" not in line)


@cache
def all_cases() -> list[str]:
    """Tests that pytest would run from these tests' files, all cases on all engines."""
    return collected(f"{TENSORS}/test_tensor.py", f"{TENSORS}/test_creation.py", POOLING, CONVOLUTIONS, *FILES)[0]


def everything_in(*names: str) -> list[str]:
    """All cases of files, or of a test."""
    return [case for case in all_cases() if case.startswith(names)]


def bare(names: list[str]) -> set[str]:
    """Names of tests without their cases."""
    return {name.partition("[")[0] for name in names}


def test_tests_of_the_cpu_are_left_out_on_the_gpu_and_counted() -> None:
    file = f"{TENSORS}/test_tensor.py"
    everything = everything_in(file)
    found, said = collected("--backend", "gpu", file)
    live = f"{file}::test_get_copies_and_asnumpyarray_is_live"
    assert f"{live}[c]" in everything
    assert bare([*found, live]) == bare(everything)
    assert "1 tests were left out:" in said and re.search(r"^ +1 live host memory$", said, re.MULTILINE)


def test_cases_are_spread_over_all_of_a_test() -> None:
    everything = everything_in(f"{TENSORS}/test_creation.py")
    found, said = collected("--cases", "2", f"{TENSORS}/test_creation.py")
    cases = [name for name in everything if "test_shapes_have_at_least_two_dimensions[" in name]
    first, second = [cases.index(name) for name in found if name in cases]
    assert first < len(cases) // 2 <= second
    assert bare(found) == bare(everything)
    assert f"{len(everything) - len(found)} cases beyond 2 of a test" in said


def test_so_many_cases_of_large_kernels_run_as_their_mark_says() -> None:
    """Those with one of its texts in their names, where it has any."""
    name, other = f"{POOLING}::test_agrees_with_loops", f"{CONVOLUTIONS}::test_small_sizes_in_all_vectors"
    both, said = collected("--c-cases", "2", name, other)
    chosen = {case.removeprefix(f"{other}[").removesuffix("]") for case in both if case.startswith(other)}
    (mark,) = (mark for mark in test_kernels.test_small_sizes_in_all_vectors.pytestmark if mark.name == "compiles")
    assert len(chosen) == mark.args[0] == 2 and chosen < set(mark.args[1:])
    everything, found = everything_in(f"{name}["), [case for case in both if case.startswith(f"{name}[")]
    on_numpy = [case for case in everything if "[numpy-" in case]
    assert len(everything) == 2 * len(on_numpy) and set(on_numpy) < set(found)
    mark = next(mark for mark in test_pool.test_agrees_with_loops.pytestmark if mark.name == "compiles")
    assert len(found) == len(on_numpy) + mark.args[0] < len(everything)
    left_out = len(everything) + len(everything_in(f"{other}[")) - len(both)
    assert f"{left_out} cases of kernels that take long to compile" in said


# The passes of `make test` -------------------------------------------------------------------------------------------

def passes(*arguments: str) -> list[str]:
    """The commands of `make test` that run pytest, in their order."""
    asked = ["make", "--dry-run", "test", f"PY={shlex.quote(sys.executable)}", f"PYTEST_ARGS={shlex.join(arguments)}"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "-m pytest" in line]


def test_the_first_pass_leaves_out_no_test() -> None:
    chosen = shlex.split(passes()[0].partition("pytest")[2])
    assert [word for word in chosen if word.startswith("-")] == ["-n", "--maxprocesses", "--dist", "--c-cases"]
    assert not [word for word in chosen if "test" in word]


def test_marks_choose_what_runs_again() -> None:
    everything = everything_in(*FILES)
    found = []
    for command in passes("--collect-only", "-n", "0", "-p", "no:cacheprovider", "--quiet", *FILES):
        command = command.replace(" -q ", " ")  # twice quiet, it would not name the tests
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
        found.append([line for line in done.stdout.splitlines() if "::" in line])
    plain, on_gpu, checked = found
    on_c = [name for name in everything if "[c-" in name]
    assert bare(plain) == bare(everything) and set(everything) - set(plain) < set(on_c), "all cases run on NumPy"
    assert {name.partition("::")[0] for name in on_gpu} == set(FILES[:2])
    assert {name.partition("::")[0] for name in checked} == {FILES[0], FILES[2]}
    kernels = [name for name in everything if FILES[2] in name]
    assert [name for name in checked if FILES[2] in name] == kernels, "--cases is about tests of a backend"
    assert bare(on_gpu) == {name for name in bare(everything) if name.startswith(FILES[:2])}


def test_what_a_test_asks_for_is_what_it_says() -> None:
    """A test that makes a backend without saying so would be missing on the GPU."""
    with pytest.raises(AssertionError, match="mark this test `backend`"):
        new_backend()


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((), ["any"]),
        ((pytest.mark.optree,), ["numpy", "c"]),
        ((pytest.mark.optree, pytest.mark.engines("numpy")), ["numpy"]),
        ((pytest.mark.engines("c", batch_size=2),), ["c"]),
    ],
)
def test_marks_name_engines(marks: tuple[pytest.MarkDecorator, ...], expected: list[str]) -> None:
    named = {mark.name: mark.mark for mark in marks}
    assert list(engines_of(SimpleNamespace(get_closest_marker=named.get))) == expected


@pytest.mark.parametrize(("sample", "given", "marked", "level"), [
    (True, "", False, "1"), (True, "", True, "3"), (True, "2", False, "unchanged"), (False, "", False, "unchanged"),
])  # fmt: skip
def test_kernels_are_optimized_less_where_cases_are_left_out(
    sample: bool, given: str, marked: bool, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But those of tests marked ``optimized``, and where the environment says how far."""
    monkeypatch.setattr(optimizing.sampling, "on", sample)
    monkeypatch.setattr(optimizing, "_given", given)
    monkeypatch.setenv("NEONLIKE_OPTIMIZE", "unchanged")
    asks = SimpleNamespace(get_closest_marker=lambda name: marked and name == "optimized")
    optimizing.choose_for(asks)  # type: ignore[arg-type]
    assert os.environ["NEONLIKE_OPTIMIZE"] == level
