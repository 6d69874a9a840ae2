"""Graphs of variables made by chance, as ``fuzz/graphs.py`` grows them, against NumPy in float64."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neonlike import autograd as ag
from neonlike.optree import tape
from tests.fuzz import dynamic_graphs, kinks
from tests.fuzz.graphs import grow
from tests.fuzz.workers import MAIN
from tests.support.engines import sampled

pytestmark = pytest.mark.engines("numpy")


def check(be: Any, kind: str, grow: Callable[[int], None]) -> None:
    """Grow 150 graphs, fewer where each compiles kernels, which leave nothing behind."""
    gc.collect()
    before, kept = ag.memory_report(), dict(tape.kept)
    for seed in sampled(be, range(150), 12):
        try:
            grow(seed)
        except BaseException as error:
            raise AssertionError(f"{kind} {seed}: {error}") from error
    gc.collect()
    assert ag.memory_report() == before
    assert tape.kept == kept == {}


def test_random_graphs(be64: Any) -> None:
    check(be64, "graph", grow)


def test_random_dynamic_graphs(be64: Any) -> None:
    check(be64, "dynamic graph", partial(dynamic_graphs.grow, be64))


def test_random_graphs_of_ties_and_zeros(be64: Any) -> None:
    check(be64, "graph with kinks", partial(kinks.grow, be64))


class Choices:
    """Random choices drawn by hypothesis, which shrinks failing cases."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw

    def integers(self, low: int, high: int | None = None) -> int:
        first, last = (0, low) if high is None else (low, high)
        return self.draw(st.integers(int(first), int(last) - 1))

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng(self.draw(st.integers(0, 99))).standard_normal(shape)

    def permutation(self, count: int) -> list[int]:
        return self.draw(st.permutations(range(count)))


@pytest.mark.cpu_only("the graphs of hypothesis are those of the tests before")
@pytest.mark.parametrize("kind", ["variables", "dynamic"])
def test_graphs_that_hypothesis_builds(be64: Any, kind: str) -> None:
    made = []

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.data())
    def build(data: st.DataObject) -> None:
        gc.collect()
        before = ag.memory_report()
        made.append(1)
        rng = Choices(data)
        grow(0, 0, rng) if kind == "variables" else dynamic_graphs.grow(be64, 0, rng)
        gc.collect()
        assert ag.memory_report() == before and not tape.kept

    build()
    assert len(made) >= 60


@pytest.mark.engines("c")
def test_a_random_graph_on_compiled_kernels(be64: Any) -> None:
    grow(1)
    for seed in (2, 3):
        kinks.grow(be64, seed)
    assert tape.kept == {}


def test_the_command_grows_graphs() -> None:
    command = [sys.executable, str(MAIN), "0", "--graphs", "3", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "graphs of variables: 3, dynamic ones: 3, with kinks: 3; 0 failures"
    found = r"graphs on the C engine: 1, \d+ passes repeated; 0 failures in all|no pass is repeated .*"
    assert re.fullmatch(found, second)
