"""Graphs of variables made by chance, as ``fuzz/graphs.py`` grows them, against NumPy in float64."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest
from fuzz.graphs import grow
from fuzz.workers import MAIN

from neonlike import autograd as ag
from neonlike.optree import tape

pytestmark = pytest.mark.engines("numpy")


def test_random_graphs(be64: Any) -> None:
    gc.collect()
    before, kept = ag.memory_report(), dict(tape.kept)
    for seed in range(150):
        try:
            grow(seed)
        except BaseException as error:
            raise AssertionError(f"graph {seed}: {error}") from error
    gc.collect()
    assert ag.memory_report() == before
    assert tape.kept == kept == {}


@pytest.mark.engines("c")
def test_a_random_graph_on_compiled_kernels(be64: Any) -> None:
    grow(1)
    assert tape.kept == {}


def test_the_command_grows_graphs() -> None:
    done = subprocess.run([sys.executable, str(MAIN), "0", "--graphs", "3"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["graphs of variables: 3; 0 failures"]), done.stderr
