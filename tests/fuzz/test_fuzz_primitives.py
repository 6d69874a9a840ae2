"""Random calls of compound primitives: a short run, that differences are seen, and that a seed is always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.cpu.primitives.conv import hooks as conv
from neonlike.kernels.run import workspace
from neonlike.logger import logger
from tests.fuzz.primitives import CASES, LINE, NAMES, Calls, exact_memory, seeds, strict
from tests.fuzz.sanitize import MAIN
from tests.support.engines import needs_compiler, ready

pytestmark = [pytest.mark.backend, pytest.mark.optimized]


@pytest.fixture(scope="module")
def calls() -> Iterator[Calls]:
    needs_compiler()
    ready()
    made = Calls()
    yield made
    logger.removeHandler(made.complaints)


@pytest.mark.compiles(10)
@pytest.mark.parametrize("seed", range(2 * len(NAMES)))
def test_random_calls(calls: Calls, seed: int) -> None:
    assert calls.check(seed) == NAMES[seed % len(NAMES)]


def test_every_case_has_its_turn() -> None:
    assert set(NAMES) == set(CASES)
    assert list(seeds(3, 7)) == [7, 8, 9]
    for name in CASES:
        chosen = seeds(5, 100, name)
        assert len(chosen) == 5 and chosen[0] >= 100 and {NAMES[seed % len(NAMES)] for seed in chosen} == {name}


def test_a_seed_gives_the_same_values_on_every_engine(calls: Calls) -> None:
    written: list[Any] = []

    def case(data: Any) -> list[Any]:
        written.append([data(3, 2).get(), data.pick(*range(1000))])
        return []

    CASES["conv"], kept = case, CASES["conv"]
    try:
        calls.check(0)
        calls.check(0)
    finally:
        CASES["conv"] = kept
    assert len(written) == 4
    for values, number in written:
        assert (values == written[0][0]).all() and number == written[0][1]


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_a_wrong_result_is_seen(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that doubles its input is seen; the definition on the other engine does not double it."""
    right = conv.ConvKernels._update_conv

    def wrong(be: Any, request: Any, *tensors: Any) -> None:
        doubled = replace(request, alpha=2 * request.alpha)
        right(be, doubled if os.environ["NEONLIKE_CPU_JIT"] == "1" else request, *tensors)

    monkeypatch.setattr(conv.ConvKernels, "_update_conv", wrong)
    with pytest.raises(AssertionError, match="conv, result 4"):
        calls.check(0)


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_memory_of_exact_size() -> None:
    for count in (1, 16, 100, 5000):
        with strict(3):
            found = workspace.workspace(count, np.dtype(np.float32))
            again = workspace.workspace(count, np.dtype(np.float32))
        assert found.ctypes.data % LINE == 0
        assert np.isnan(found).all() and len(found) == count
        again[:] = 1  # of its own
        assert np.isnan(found).all()
    made = exact_memory((2, 3), np.float64)
    assert made.shape == (2, 3) and made.flags.writeable


@pytest.mark.cpu_only("a command on the CPU")
def test_the_command_names_what_fails() -> None:
    needs_compiler()
    done = subprocess.run([sys.executable, str(MAIN), "--call", "6"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pool 1" in done.stdout and "; 0 failures" in done.stdout
