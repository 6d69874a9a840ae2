"""Random networks with repeated passes, and the detection of a repeated pass that should be played."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from neonlike.autograd import passes
from neonlike.backends import Backend, gen_backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.depends import Depends
from tests.fuzz import networks
from tests.fuzz.graphs import ROUNDS, grow
from tests.fuzz.workers import MAIN
from tests.support.engines import needs_compiler
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


@pytest.mark.parametrize("seed", [2, 3, 5])  # `make fuzz` has more
def test_random_networks(fast: Backend, seed: int) -> None:
    assert networks.check(fast, seed) > 0, "passes are repeated"


def test_a_pass_that_should_have_been_played_is_seen(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Depends, "looks_into", lambda self, name: False)
    with pytest.raises(AssertionError, match=r"step \d+ differs"):
        networks.check(fast, 5)


def test_a_random_graph_whose_passes_are_repeated(extension: Any) -> None:
    replay = gen_backend("cpu", datatype=np.float64).executor.replay
    replay.adopt(extension)
    for values in range(ROUNDS):
        grow(1, values)
    assert any(isinstance(one, passes.Pass) for one in replay.passes.values())


def test_the_command_grows_networks() -> None:
    needs_compiler()
    command = [sys.executable, str(MAIN), "0", "--networks", "1", "--first", "3", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("networks: 1, at least ") and done.stdout.endswith(" passes repeated; 0 failures\n")
