"""Training steps of variables beside PyTorch's and JAX's: that all compute the same, how they are measured and judged.

Nothing here looks at a time but at made-up ones.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from tests.benchmarks.modules import FOLDER, Here

MODULES = (
    "_terms", "_machine", "_report", "_cases", "harness", "_apart", "_layers", "_references", "_rows", "_rates",
    "_primitives", "_sequences", "_nets", "_models_report", "_trained", "_trainers", "_trained_report", "autograd",
)  # fmt: skip


pytestmark = pytest.mark.engines("numpy")  # that each engine computes ops right is tested with the ops


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the benchmarks folder, with small networks and the shortest of measurements."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    t = found._trained
    small = {
        "mlp": (t.Mlp((7, 6, 5, 3)), (1, 64)),
        "encoder": (t.Encoder(8, heads=2, length=3, blocks=1, features=5, classes=3), (2,)),
        "chain": (t.Chain(6), (1,)),
        "chain of products": (t.Chain(6, products=True), (1,)),
    }
    for module in (t, found._trained_report, found.autograd):
        monkeypatch.setattr(module, "TRAINED", small)
    shortest = found._cases.Effort(sample=0.0, pause=0.0, min_rounds=2, max_rounds=2, budget=0.0)
    monkeypatch.setattr(found.autograd, "QUICK", shortest)
    monkeypatch.setattr(found.autograd, "QUICK_BATCHES", {"mlp": 64, "chain": 1})
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    yield found
    for name in MODULES:
        sys.modules.pop(name)


# What is computed -------------------------------------------------------------------------------------------------


def test_networks_of_a_quick_run_are_known(bench: SimpleNamespace) -> None:
    sys.modules.pop("_trained"), sys.modules.pop("autograd")
    script, known = importlib.import_module("autograd"), importlib.import_module("_trained").TRAINED
    assert all(N in known[name][1] for name, N in script.QUICK_BATCHES.items())
    assert {name for name, (net, _) in known.items() if not net.learns} == {"chain", "chain of products"}


@pytest.mark.parametrize("name", ["mlp", "encoder"])
def test_ours_learns_its_minibatch(bench: SimpleNamespace, be: Backend, name: str) -> None:
    made = bench._trainers.Ours(bench._trained.TRAINED[name][0], 2, be)
    losses, *changes = made.result(6)
    assert losses[-1] < losses[0] and len(changes) == len(made.first)
    assert all(np.any(change) for change in changes)


def test_derivatives_of_chains_are_those_of_the_formula(bench: SimpleNamespace, be: Backend) -> None:
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
@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("name", ["mlp", "encoder", "chain", "chain of products"])
def test_all_train_the_same_network(bench: SimpleNamespace, be: Backend, name: str, library: str) -> None:
    pytest.importorskip(library, exc_type=ImportError)
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
def fake(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs with made-up trainers: ``off`` has the errors of their results, ``seconds`` the time of a step."""
    made = SimpleNamespace(off={}, seconds={}, script=bench.autograd, absent=[])

    class Timed(bench._apart.Desk):  # type: ignore[name-defined,misc]
        def __init__(self, who: str) -> None:
            maker = partial(Fake, off=made.off.get(who, 0.0))
            super().__init__(partial(bench.autograd.make_case, who, maker))
            self.who = who

        def elapsed(self, loops: int) -> float:
            """As told."""
            return float(made.seconds.get(self.who, 1.0)) * loops

    def start(argv: Any, name: str) -> Here:
        return Here(nullcontext(bench.autograd.Reference(Fake) if name == "reference" else Timed(name)))

    monkeypatch.setattr(bench.autograd, "start", start)
    monkeypatch.setattr(bench.autograd, "installed", lambda name: name not in made.absent)
    return made


def test_everybody_is_measured_and_judged(
    fake: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.seconds = {"neonlike": 0.5e-4, "torch": 0.65e-4, "jax": 0.4e-4}
    path = tmp_path / "run.json"
    assert fake.script.main(["--quick", "--only", "mlp,encoder,chain", "--json", str(path)]) == 0
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


def test_its_section_has_a_line_a_case(fake: SimpleNamespace, bench: SimpleNamespace) -> None:
    session = SimpleNamespace(beside=[], effort=bench.autograd.QUICK, say=lambda text: None)
    with bench._apart.Apart(["neonlike", "torch"], partial(fake.script.start, [])) as apart:
        for name, N in (("mlp", 1), ("chain", 1)):
            bench.autograd.measure(session, apart, fake.script.start([], "reference"), name, N, ["jax"])
    steps, bare = bench._trained_report.tables(session.beside).values()
    assert steps[0] == "| | N | neonlike | torch | jax |" and len(steps) == len(bare) == 3
    assert steps[2].startswith("| mlp: 7-6-5-3 | 1 | 1.00 s ") and steps[2].endswith(" | - |")


def test_a_library_that_is_not_there_is_named(fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    fake.absent = ["torch", "jax"]
    assert fake.script.main(["--quick"]) == 0
    out = capsys.readouterr().out
    assert "not installed: torch, jax" in out and "variables in float64" in out


def test_a_wrong_result_is_not_timed_and_ours_fails_the_run(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.off = {"jax": 1.0}
    assert fake.script.main(["--quick", "--only", "mlp"]) == 0
    assert "jax             not timed, because it is wrong" in capsys.readouterr().out
    fake.off = {"neonlike": 0.01}
    assert fake.script.main(["--quick", "--only", "mlp"]) == 1


@pytest.mark.cpu_only("the reference is on the CPU, and its process has one backend")
def test_without_peers_ours_is_compared_with_itself_in_float64(
    bench: SimpleNamespace, be: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.autograd, "installed", lambda name: False)
    with bench.autograd.desk("reference") as reference:
        expected = reference.result("encoder", 2)
    case = bench.autograd.make_case("neonlike", partial(bench._trainers.Ours, be=be), "encoder", 2, expected)
    able, (result,) = bench.harness.check(case)
    assert len(able) == 1 and 0 < result.error < 1e-4


@pytest.mark.parametrize(
    ("argv", "planned"),
    [
        (["--quick"], [("mlp", 64), ("chain", 1)]),
        (["--only", "mlp,chain", "--batches", "3,4"], [("mlp", 3), ("mlp", 4), ("chain", 1)]),
        (["--only", "encoder"], [("encoder", 2)]),
    ],
)
def test_options_choose_cases(bench: SimpleNamespace, argv: list[str], planned: list[tuple[str, int]]) -> None:
    assert bench.autograd.schedule(bench.autograd.parse(argv)) == planned


@pytest.mark.parametrize("argv", [["--only", "nonsense"], ["--batches", "0"]])
def test_bad_options_are_refused(bench: SimpleNamespace, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        bench.autograd.parse(argv)
    assert exit_info.value.code == 2
    assert argv[0] in capsys.readouterr().err
