"""Sequences in company: their results, how they are measured, and their targets. Nothing here looks at a time."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.backends.current import release
from neonlike.nervanaobject import NervanaObject
from tests.benchmarks.modules import bench as modules  # noqa: F401
from tests.benchmarks.modules import (
    run,  # noqa: F401
)


@pytest.fixture
def bench(modules: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules, with small sequences."""
    sequences = modules._sequences
    dense = [modules._nets.Dense(outputs, relu=outputs > 4, bias=False) for outputs in (5, 6, 4)]
    monkeypatch.setattr(sequences, "MLP", modules._nets.Net("small", (7,), 3, tuple(dense), 0.05))
    conv = SimpleNamespace(N=2, C=3, K=4, size=6, window=3, pooled=3, out=5)
    monkeypatch.setattr(sequences, "CONV", conv)
    cell = modules._layers.Cell("net", "rnn", 1, "rnn", 5, 4, 3)
    monkeypatch.setattr(sequences, "RNN", SimpleNamespace(N=2, out=3, cell=cell))
    for name in ("MLP", "CONV", "RNN"):
        monkeypatch.setattr(modules._sequences_torch, name, getattr(sequences, name))
    modules.company.SUITE.seconds = (0.0, 0.0)
    return modules


class FakeMade:
    """A sequence that has the right result, or one that is off."""

    def __init__(self, off: float) -> None:
        self.parts, self.off = {"one": list, "two": list}, off

    def call(self, part: str | None = None) -> Any:
        """A part, or all."""
        return partial(str, part or "")

    def result(self) -> list[Any]:
        """An array."""
        return [np.array([1.0, 2.0 + self.off])]


class FakeBusy:
    """Counts how often it was let go on."""

    def __init__(self) -> None:
        self.log: list[str] = []
        FakeBusy.last = self

    last: FakeBusy

    def go_on(self) -> None:
        """Let go on."""
        self.log.append("on")

    def rest(self) -> None:
        """Stopped."""
        self.log.append("off")

    def close(self) -> None:
        """Ended."""
        self.log.append("end")


@pytest.fixture
def fake(bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs with contenders that are made up: ``off`` has the errors of their results, a part takes a quarter second."""
    company, suite = bench.company, bench.company.SUITE
    made = SimpleNamespace(off={}, log=[], bench=bench, run=partial(run, suite))

    def ours(sequence: str, threads: int) -> FakeMade:
        return FakeMade(made.off.get("neonlike", 0.0))

    def torch(name: str, sequence: str, threads: int) -> FakeMade:
        if name == "reference":
            made.log.append((name, sequence, threads))
        return FakeMade(made.off.get(name, 0.0))

    def make(seconds: float, who: str, name: str, scenario: str, threads: int, expected: Any) -> Any:
        made.log.append((who, name, threads))
        return company.Company.make(suite, seconds, who, name, scenario, threads, expected)

    def sample(step: Any, seconds: float, least: int, before: Any, warm: int) -> float:
        made.log.append("sampled after something" if before else "sampled")
        return 0.25 if step() else 1.0

    for name, value in (("make_ours", ours), ("make_torch", torch), ("sample", sample), ("Busy", FakeBusy)):
        monkeypatch.setattr(company, name, value)
    monkeypatch.setattr(company, "FOREIGNERS", {"after NumPy": lambda: list})
    monkeypatch.setattr(bench._suite, "installed", lambda name: True)
    monkeypatch.setattr(suite, "make", make, raising=False)
    return made


def test_everybody_is_measured_in_turns_and_written(
    fake: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert fake.run("--quick", "--only", "mlp", "--threads", "2", "--json", str(path))[0] == 0
    written = json.loads(path.read_text())["beside"]
    cells = {(r["text"], r["size"], r["contender"]): r["median"] for r in written}
    cores, alone = fake.bench._machine.cores(), fake.bench.company.PARTS
    assert cells == {
        **{(how, 2, who): 1.0 for how in ("alone", "busy") for who in ("neonlike", "torch", "torch.compile")},
        (alone, cores, "neonlike: whole"): 1.0,
        **{(alone, cores, f"neonlike: {part}"): 0.25 for part in ("one", "two")},
    }
    rounds = fake.bench.company.SUITE.rounds[0]
    assert all(len(r["samples"]) == rounds for r in written)
    # Before the busy scenario nobody is let go on; there, once a sample; in the end all is over.
    assert FakeBusy.last.log.count("on") == 3 * rounds
    assert FakeBusy.last.log[-2:] == ["off", "end"]
    out = capsys.readouterr().out
    assert "mlp, alone, 2 threads: torch takes 1.00 times as long (target >= 1.15): MISSED" in out
    assert "its 2 parts alone together 500 ms: 2.00 times as long (target <= 1.1): MISSED" in out


def test_processes_are_asked_for_what_they_are_to_do(fake: SimpleNamespace) -> None:
    fake.run("--only", "rnn", "--threads", "1,4", "--scenarios", "after NumPy", "--rounds", "1")
    cores = fake.bench._machine.cores()
    made = [entry for entry in fake.log if not isinstance(entry, str)]
    assert made == [
        ("reference", "rnn", cores),
        *((who, "rnn", threads) for threads in (1, 4) for who in ("neonlike", "torch", "torch.compile")),
        *((f"neonlike: {part}", "rnn", cores) for part in ("whole", "one", "two")),
    ]
    assert fake.log.count("sampled after something") == 6 and fake.log.count("sampled") == 3


def test_a_wrong_result_is_not_timed_and_ours_fails_the_run(
    fake: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--quick", "--only", "calls", "--no-parts", "--scenarios", "alone", "--threads", "2"]
    fake.off["torch"] = 0.1
    status, session = fake.run(*argv)
    assert (status, [r.contender for r in session.beside if r.samples]) == (0, ["neonlike"])
    fake.off["neonlike"] = float("nan")
    status, session = fake.run(*argv)
    assert (status, [r.contender for r in session.beside if r.samples]) == (1, [])
    assert "calls at 2, neonlike: not timed, because it is wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["--only", "nonsense"], ["--scenarios", "nowhere"], ["--threads", "0"], ["--rounds", "0"]]
)
def test_bad_options_are_refused(bench: Any, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for suite in (bench.company.SUITE, *([bench.models.SUITE] if argv[0] in ("--only", "--rounds") else [])):
        with pytest.raises(SystemExit) as exit_info:
            suite.parse(argv)
        assert exit_info.value.code == 2
        assert argv[0] in capsys.readouterr().err


def test_a_sample_counts_the_steps_and_not_what_is_before_them(bench: Any) -> None:
    now, log = [0.0], []

    def step() -> None:
        log.append("step")
        now[0] += 1.0

    def before() -> None:
        log.append("before")
        now[0] += 10.0

    assert bench._steps.sample(step, 40.0, 3, before, 3, lambda: now[0]) == 1.0
    assert log == ["step"] * 3 + ["before", "step"] * 4
    log.clear()
    assert bench._steps.sample(step, 0.0, 3, before, 3, lambda: now[0]) == 1.0
    assert log == ["step"] * 3 + ["before", "step"] * 3, "a long step has a median too"


@pytest.mark.parametrize(
    ("threads", "cores", "expected"), [(1, 2, 1.0), (2, 2, 1.5), (4, 2, 1.25), (1, 1, 2.0), (4, 8, 1.0), (8, 8, 9 / 8)]
)
def test_the_fair_share_beside_one_more_thread(
    bench: Any, threads: int, cores: int, expected: float
) -> None:
    assert bench.company.fair(threads, cores) == pytest.approx(expected)


def result(bench: Any, case: str, scenario: str, who: str, *samples: float) -> Any:
    """A result on two threads with these medians of its rounds."""
    median = sorted(samples)[len(samples) // 2]
    return bench._cases.Result(
        case, scenario, 2, who, median=median, low=min(samples), high=max(samples), samples=list(samples)
    )


def test_verdicts(bench: Any) -> None:
    results = [
        result(bench, "mlp", "alone", "neonlike", 1.0, 10.0, 2.0),
        result(bench, "mlp", "alone", "torch", 2.0, 30.0, 4.0),
        result(bench, "mlp", "alone", "torch.compile", 1.2, 12.0, 2.4),
        result(bench, "mlp", "busy", "neonlike", 6.0, 6.0, 6.0),
        result(bench, "mlp", "busy", "torch", 3.0, 3.0, 3.0),
        result(bench, "mlp", bench.company.PARTS, "neonlike: whole", 1.05),
        result(bench, "mlp", bench.company.PARTS, "neonlike: fprop", 0.4),
        result(bench, "mlp", bench.company.PARTS, "neonlike: bprop", 0.6),
        result(bench, "rnn", "after NumPy", "neonlike", 1.0),
        result(bench, "rnn", "after NumPy", "torch", 1.5),
        result(bench, "rnn", "alone", "neonlike", 0.8),
    ]
    assert bench.company.verdicts(results, 2) == [
        "mlp, alone, 2 threads: torch.compile takes 1.20 times as long (target >= 1.15): met",
        "mlp, busy, 2 threads: torch takes 0.50 times as long (target >= 1): MISSED",
        "rnn, after NumPy, 2 threads: torch takes 1.50 times as long",
        "mlp, 2 threads: the whole takes 1.05 s, its 2 parts alone together 1.00 s: 1.05 times as long "
        "(target <= 1.1): met",
        "mlp, busy, 2 threads: ours takes 3.00 times as long as alone, 2.00 of a fair share's 1.50 (target <= 1.5): "
        "MISSED",
        "rnn, after NumPy, 2 threads: ours takes 1.25 times as long as alone",
    ]
    ours = {(r.case, r.text): r for r in results if r.contender == "neonlike"}
    for r in results:
        r.ratio = bench._cases.times(ours.get((r.case, r.text)), r)
    tables = bench.company.SUITE.form(None).tables(results)
    assert tables["Alone"][2] == (
        "| mlp | 2 | 2.00 s (1.00 s to 10.0 s) | 4.00 s (2.00 s to 30.0 s); 2.00x | 2.40 s (1.20 s to 12.0 s); 1.20x |"
    )
    assert tables["Each part of ours alone in a process"][-1] == "| mlp | bprop | 2 | 600 ms | 600 ms | 600 ms |"


# What is measured -----------------------------------------------------------------------------------------------


def two_steps(made: Any) -> list[Any]:
    """Tensors changed by two steps, as a process reports them."""
    step = made.call()
    step()
    step()
    return [np.asarray(array, np.float64) for array in made.result()]


def plain_mlp(bench: Any) -> list[Any]:
    """The training step's formulas, twice, in float64."""
    net, drawn, sizes = bench._sequences.MLP, bench._nets.Drawn(), (7, 5, 6, 4)
    first = [drawn.matrix(m, n, n).astype(np.float64) for n, m in pairwise(sizes)]
    weights, speeds = list(first), [np.zeros_like(W) for W in first]
    x, labels = bench._nets.data(net)
    for _ in range(2):
        h = [x.astype(np.float64)]
        for W in weights[:2]:
            h.append(np.maximum(W @ h[-1], 0))
        scores = weights[2] @ h[2]
        e = np.exp(scores - scores.max(axis=0))
        error = (e / e.sum(axis=0) - np.eye(4)[labels].T) / net.N
        for i in (2, 1, 0):
            gradient = error @ h[i].T
            error = (weights[i].T @ error) * (h[i] > 0)
            speeds[i] = bench._nets.MOMENTUM * speeds[i] - net.rate * gradient
            weights[i] = weights[i] + speeds[i]
    return [W - before for W, before in zip(weights, first)]


def test_the_training_step_is_one_of_gradient_descent(bench: Any) -> None:
    with gen_backend("cpu", rng_seed=0) as be:
        made = two_steps(bench._sequences.mlp(be, {}))
    assert bench.harness.error(made, plain_mlp(bench)) < bench.company.TOLERANCE


@pytest.mark.parametrize("name", ["mlp", "calls", "conv", "rnn"])
def test_parts_alone_are_those_of_the_whole(bench: Any, name: str) -> None:
    """They can be called again and again after a step, and give finite values."""
    sequence = bench._sequences.SEQUENCES[name]
    with gen_backend("cpu", rng_seed=0) as be:
        made = sequence.ours(be, sequence.operands())
        made.call()()
        for part in made.parts:
            for _ in range(50):
                made.call(part)()
        assert all(np.isfinite(array).all() for array in made.result())


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", ["mlp", "calls", "conv", "rnn"])
def test_pytorch_computes_the_same(bench: Any, name: str) -> None:
    sequence, steps = bench._sequences.SEQUENCES[name], bench._sequences_torch
    expected = two_steps(steps.STEPS[name](bench._nets_torch.Way("torch", double=True), sequence.operands()))
    with gen_backend("cpu", rng_seed=0) as be:
        made = {"neonlike": two_steps(sequence.ours(be, sequence.operands()))}
    for peer in sequence.peers:
        if peer != bench._nets_torch.COMPILED:  # compiling takes seconds
            made[peer] = two_steps(steps.STEPS[name](bench._nets_torch.Way(peer), sequence.operands()))
    for who, arrays in made.items():
        assert bench.harness.error(arrays, expected) < bench.company.TOLERANCE, who


def test_two_steps_are_compared_before_a_part_is_sampled(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    parts = {name: lambda name=name: log.append(name) for name in ("one", "two")}
    made = bench._sequences.Made(parts, lambda: [np.arange(6.0).reshape(2, 3) * (log == ["one", "two"] * 2)])
    monkeypatch.setattr(bench.company, "make_ours", lambda sequence, threads: made)
    case = bench.company.SUITE.make(0.0, "neonlike: two", "mlp", "alone", 3, [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])
    (able,), (result,) = bench.harness.check(case)
    assert result.error == 0
    log.clear()
    assert able.sample() >= 0
    assert log == ["two"] * 6
    assert len(bench._steps.some(np.zeros((100, 100)), most=7)) <= 7


def test_ours_has_as_many_threads_as_it_is_told(bench: Any) -> None:
    bench.company.make_ours("calls", 3)
    be = NervanaObject.be
    try:
        assert be.num_threads == 3
    finally:
        be.num_threads = None
        release(be)
