"""What ``--backend gpu`` and ``--cases`` leave out, and that the summary says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def collected(*arguments: str) -> tuple[list[str], str]:
    """Names of the tests that pytest would run, and the rest of what it says."""
    environment = {name: value for name, value in os.environ.items() if name != "NEONLIKE_TEST_BACKEND"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return [line for line in lines if "::" in line], "\n".join(line for line in lines if "::" not in line)


def test_tests_of_the_cpu_are_left_out_on_the_gpu_and_counted() -> None:
    everything, _ = collected("tests/test_tensor.py")
    found, said = collected("--backend", "gpu", "tests/test_tensor.py")
    live = "tests/test_tensor.py::test_get_copies_and_asnumpyarray_is_live"
    assert live in everything and sorted([*found, live]) == sorted(everything)
    assert "1 tests were left out:" in said and re.search(r"^ +1 live host memory$", said, re.MULTILINE)


def test_cases_are_spread_over_all_of_a_test() -> None:
    everything, _ = collected("tests/test_creation.py")
    found, said = collected("--cases", "2", "tests/test_creation.py")
    cases = [name for name in everything if "test_shapes_have_at_least_two_dimensions[" in name]
    assert [name for name in found if name in cases] == [cases[0], cases[len(cases) // 2]]
    assert {name.partition("[")[0] for name in found} == {name.partition("[")[0] for name in everything}
    assert f"{len(everything) - len(found)} cases beyond 2 of a test" in said
