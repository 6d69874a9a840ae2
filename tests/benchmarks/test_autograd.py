"""Training steps of variables beside PyTorch's and JAX's: that all compute the same, how they are measured and judged.

Nothing here looks at a time but at made-up ones.
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from tests.benchmarks.modules import (
    Here,
    run,  # noqa: F401
)
from tests.benchmarks.modules import bench as modules  # noqa: F401

pytestmark = pytest.mark.engines("numpy")  # that each engine computes ops right is tested with the ops


@pytest.fixture
def bench(modules: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules, with small networks."""
    t = modules._trained
    small = {
        "mlp": (t.Mlp((7, 6, 5, 3)), (1, 64)),
        "dropout": (t.Mlp((7, 6, 5, 3), keep=0.5), (1, 64)),
        "encoder": (t.Encoder(8, heads=2, length=3, blocks=1, features=5, classes=3), (2,)),
        "chain": (t.Chain(6), (1,)),
        "chain of products": (t.Chain(6, products=True), (1,)),
    }
    for module in (t, modules.autograd):
        monkeypatch.setattr(module, "TRAINED", small)
    monkeypatch.setattr(modules.autograd, "QUICK_BATCHES", {"mlp": 64, "chain": 1})
    return modules


# What is computed -------------------------------------------------------------------------------------------------


def test_networks_of_a_quick_run_are_known(modules: Any) -> None:
    known = modules.autograd.TRAINED
    assert all(N in known[name][1] for name, N in modules.autograd.QUICK_BATCHES.items())
    assert {name for name, (net, _) in known.items() if not net.learns} == {"chain", "chain of products"}


@pytest.mark.parametrize("name", ["mlp", "dropout", "encoder"])
def test_ours_learns_its_minibatch(bench: Any, be: Backend, name: str) -> None:
    made = bench._trainers.Ours(bench._trained.TRAINED[name][0], 2, be)
    losses, *changes = made.result(6)
    assert losses[-1] < losses[0] and len(changes) == len(made.first)
    assert all(np.any(change) for change in changes)


def test_steps_drop_values_once_results_were_compared(bench: Any, be: Backend) -> None:
    plain, dropping = (bench._trainers.Ours(bench._trained.TRAINED[name][0], 4, be) for name in ("mlp", "dropout"))
    for wanted, found in zip(plain.result(3), dropping.result(3), strict=True):
        assert np.array_equal(wanted, found)
    dropped = []
    for made in (plain, dropping):
        made.net = SimpleNamespace(loss=made.net.loss, learns=False)
        dropped.append({made.step() for _ in range(6)})
    assert len(dropped[0]) == 1 < len(dropped[1])


def test_derivatives_of_chains_are_those_of_the_formula(bench: Any, be: Backend) -> None:
    """With tangents, and with products, of a few operations: by differences in float64."""
    for name in ("chain", "chain of products"):
        net = bench._trained.TRAINED[name][0]
        made = bench._trainers.Ours(net, 1, be)
        loss = made.step()
        plain = SimpleNamespace(tanh=np.tanh, sum=np.sum)
        first = {key: array.astype(np.float64) for key, array in made.first.items()}
        value = partial(net.loss, plain, x={key: array.astype(np.float64) for key, array in made.x.items()})
        assert loss == pytest.approx(value(first), rel=1e-5)
        for key, derivative in made.changed().items():
            step = np.zeros((4, 4))
            step[1, 2] = 1e-5
            slope = (value(first | {key: first[key] + step}) - value(first | {key: first[key] - step})) / 2e-5
            assert derivative[1, 2] == pytest.approx(slope, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("library", [pytest.param(name, marks=pytest.mark.peers(name)) for name in ("torch", "jax")])
@pytest.mark.parametrize("name", ["mlp", "dropout", "encoder", "chain", "chain of products"])
def test_all_train_the_same_network(bench: Any, be: Backend, name: str, library: str) -> None:
    net, steps = bench._trained.TRAINED[name][0], bench.autograd.STEPS
    ours, theirs = bench._trainers.Ours(net, 2, be), bench.autograd.PEERS[library](net, 2)
    error = bench.harness.error(ours.result(steps), theirs.result(steps))
    assert error < bench.autograd.TOLERANCE


# How it is measured -----------------------------------------------------------------------------------------------


class Fake:
    """A trainer with made-up results."""

    def __init__(self, net: Any, N: int, off: float = 0.0) -> None:
        self.off = off

    def step(self) -> float:
        """A loss."""
        return 1.0

    def result(self, steps: int) -> list[Any]:
        """Losses."""
        return [np.full(steps, 1.0 + self.off)]


@pytest.fixture
def fake(bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs with trainers that are made up: ``off`` has the errors of their results, ``seconds`` what a step takes."""
    suite = bench.autograd.SUITE
    made = SimpleNamespace(off={}, seconds={}, absent=[], run=partial(run, suite))

    class Timed(bench._apart.Desk):  # type: ignore[name-defined,misc]
        def __init__(self, who: str) -> None:
            super().__init__(partial(suite.make, None, who))
            self.who = who

        def elapsed(self, loops: int) -> float:
            """As told."""
            return float(made.seconds.get(self.who, 1.0)) * loops

    def start(argv: Any, who: str) -> Here:
        truth = lambda name, N: [array.tolist() for array in Fake(None, N).result(4)]  # noqa: E731
        return Here(nullcontext(bench._steps.Reference(truth) if who == "reference" else Timed(who)))

    monkeypatch.setattr(suite, "start", start, raising=False)
    monkeypatch.setattr(suite, "trainer", lambda be, who: partial(Fake, off=made.off.get(who, 0.0)), raising=False)
    monkeypatch.setattr(bench._suite, "installed", lambda name: name not in made.absent)
    return made


def test_everybody_is_measured_and_judged(
    fake: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.seconds = {"neonlike": 0.5e-4, "torch": 0.65e-4, "jax": 0.4e-4}
    path = tmp_path / "run.json"
    status, session = fake.run("--quick", "--only", "mlp,encoder,chain", "--json", str(path))
    assert status == 0
    written = json.loads(path.read_text())["beside"]
    assert [(r["case"], r["size"], r["contender"]) for r in written] == [
        (name, N, who)
        for name, N in (("mlp", 64), ("encoder", 2), ("chain", 1))
        for who in ("neonlike", "torch", "jax")
    ]
    out = capsys.readouterr().out
    assert "mlp, N = 64: torch takes 1.30 times as long (target >= 1.2): met" in out
    assert "encoder, N = 2: torch takes 1.30 times as long (target >= 1): met" in out
    assert "training steps, N >= 64, geometric mean over 1: jax takes 0.80 times as long" in out
    assert "chain: 8.33 us an operation, forward and backward, torch 10.8 us, jax 6.67 us (target < 10.0 us)" in out
    steps, bare = session.tables.values()
    assert steps[0] == "|  | N | neonlike | torch | jax |" and (len(steps), len(bare)) == (4, 3)
    assert steps[2].startswith("| mlp: 7-6-5-3 | 64 | 50.0 us ") and steps[2].endswith("; 0.80x |")


def test_a_library_that_is_not_there_is_named(fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    fake.absent = ["torch", "jax"]
    status, session = fake.run("--quick")
    out = capsys.readouterr().out
    assert status == 0 and "not installed: torch, jax" in out and "variables in float64" in out
    assert next(iter(session.tables.values()))[2].endswith(" | - | - |")


def test_a_wrong_result_is_not_timed_and_ours_fails_the_run(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.off = {"jax": 1.0}
    assert fake.run("--quick", "--only", "mlp")[0] == 0
    assert re.search("jax +not timed, because it is wrong", capsys.readouterr().out)
    fake.off = {"neonlike": 0.01}
    assert fake.run("--quick", "--only", "mlp")[0] == 1


@pytest.mark.cpu_only("the reference is on the CPU, and its process has one backend")
def test_without_peers_ours_is_compared_with_itself_in_float64(
    bench: Any, be: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench._suite, "installed", lambda name: False)
    suite = bench.autograd.SUITE
    with suite.desk(suite.parse(["--quick"]), "reference") as reference:
        expected = reference.result("encoder", 2)
    able, (result,) = bench.harness.check(suite.make(be, "neonlike", "encoder", 2, expected))
    assert len(able) == 1 and 0 < result.error < 1e-4


@pytest.mark.parametrize(
    ("argv", "planned"),
    [
        (["--quick"], [("mlp", 64), ("chain", 1)]),
        (["--only", "mlp,chain", "--batches", "3,4"], [("mlp", 3), ("mlp", 4), ("chain", 1)]),
        (["--only", "encoder"], [("encoder", 2)]),
    ],
)
def test_options_choose_cases(bench: Any, argv: list[str], planned: list[tuple[str, int]]) -> None:
    suite = bench.autograd.SUITE
    assert suite.plan(suite.parse(argv)) == planned
    for wrong in (["--only", "nonsense"], ["--batches", "0"]):
        with pytest.raises(SystemExit):
            suite.parse(wrong)
