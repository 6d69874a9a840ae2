"""The model of scaling at cases computed by hand, its networks, and what a run of the benchmark shows."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optimizers.base import get_param_list
from tests.benchmarks.modules import bench  # noqa: F401

RANKS = [1 << power for power in range(11)]


@pytest.fixture
def model(bench: Any) -> Any:
    """The module of the model."""
    return bench._scaling_model


# Allreduce --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 8, 1 << 30])
def test_one_rank_sends_nothing(model: Any, nbytes: int) -> None:
    slow = model.Interconnect(alpha=1.0, beta=2.0, gamma=3.0)
    assert [algorithm(nbytes, 1, slow) for algorithm in (*model.ALGORITHMS.values(), model.fastest)] == [0.0] * 4


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        ("ring", 2, 2 * 1 + 8 * 2 + 4 * 0.5),  # two messages of 4 bytes, 4 bytes added
        ("ring", 4, 6 * (1 + 2 * 2) + 3 * 2 * 0.5),  # six messages of 2 bytes, 2 bytes added thrice
        ("tree", 2, 2 * (1 + 8 * 2) + 8 * 0.5),  # up and down, 8 bytes added
        ("tree", 4, 4 * (1 + 8 * 2) + 2 * 8 * 0.5),
        ("tree", 5, 6 * (1 + 8 * 2) + 3 * 8 * 0.5),  # a third level for the fifth
        ("halving", 4, 2 * (1 + 4 * 2) + 2 * (1 + 2 * 2) + (4 + 2) * 0.5),  # halves, then quarters, and back
    ],
)
def test_by_hand(model: Any, name: str, ranks: int, expected: float) -> None:
    by = model.Interconnect(alpha=1.0, beta=2.0, gamma=0.5)
    assert model.ALGORITHMS[name](8, ranks, by) == pytest.approx(expected)


def test_limits_of_a_ring(model: Any) -> None:
    """Bytes cost at most twice a message's, however many ranks; messages cost more with each rank."""
    bytes_alone = model.Interconnect(0.0, 1.0)
    times = [model.ring(1000, ranks, bytes_alone) for ranks in RANKS]
    assert times == sorted(times) and times[1] == 1000
    assert times[-1] == pytest.approx(2 * 1000, rel=1e-3) and times[-1] < 2000
    assert model.ring(1000, 1024, model.Interconnect(1.0, 0.0)) == 2 * 1023


def test_a_tree_grows_by_levels(model: Any) -> None:
    by = model.Interconnect(3e-6, 1e-9, 1e-10)
    for ranks in RANKS:
        assert model.tree(5000, ranks, by) == pytest.approx(math.log2(ranks) * model.tree(5000, 2, by))


def test_small_messages_go_by_a_tree_and_large_ones_around_a_ring(model: Any) -> None:
    by = model.INTERCONNECTS["10 GbE"]
    assert model.fastest(100, 64, by) == model.tree(100, 64, by) < model.ring(100, 64, by)
    assert model.fastest(1 << 24, 64, by) == model.ring(1 << 24, 64, by) < model.tree(1 << 24, 64, by)


def test_interconnects(model: Any) -> None:
    seconds = {name: 1.25e9 * by.beta for name, by in model.INTERCONNECTS.items()}
    assert seconds == pytest.approx({"10 GbE": 1.0, "25 GbE": 0.4, "100 GbE": 0.1, "InfiniBand": 0.1})
    assert all(1e-7 < by.alpha < 1e-4 for by in model.INTERCONNECTS.values())


def test_an_interconnect_is_found_by_its_messages(model: Any) -> None:
    sizes = (64, 1 << 12, 1 << 20, 1 << 24)
    found = model.fitted({nbytes: 5e-6 + nbytes * 2e-10 for nbytes in sizes}, 1e-11)
    assert (found.alpha, found.beta, found.gamma) == pytest.approx((5e-6, 2e-10, 1e-11))
    assert model.fitted({64: 1e-5, 128: 1e-6}, 0.0).beta == 0.0, "time does not run backwards"


# A step -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def step(model: Any) -> Any:
    """Ten seconds, 8 bytes of gradients in the middle, 8 at the end."""
    return model.Step(10.0, (model.Gradient(8, 0.5), model.Gradient(8, 1.0)))


@pytest.mark.parametrize(
    ("beta", "limit", "after", "during"),
    [
        (0.25, 8, 14.0, 12.0),  # two seconds each: 5 to 7, 10 to 12
        (1.0, 8, 26.0, 21.0),  # eight seconds each: 5 to 13, 13 to 21
        (0.25, 16, 14.0, 14.0),  # one bucket is full at the end only
        (0.25, 100, 14.0, 14.0),
        (0.0, 8, 10.0, 10.0),
    ],
)
def test_a_step_by_hand(model: Any, step: Any, beta: float, limit: int, after: float, during: float) -> None:
    by = model.Interconnect(0.0, beta)
    assert model.step_time(step, 2, by, False, model.ring, limit) == pytest.approx(after)
    assert model.step_time(step, 2, by, True, model.ring, limit) == pytest.approx(during)


def test_buckets_hold_all_gradients_in_order(model: Any) -> None:
    sizes = ((3, 0.1), (4, 0.2), (9, 0.3), (1, 0.4), (2, 0.5))
    made = model.Step(1.0, tuple(model.Gradient(*one) for one in sizes))
    assert [(one.nbytes, one.ready) for one in made.buckets(7)] == [(7, 0.2), (9, 0.3), (3, 0.5)]
    assert [(one.nbytes, one.ready) for one in made.buckets(19)] == [(19, 0.5)]


def test_small_gradients_are_one_message(model: Any) -> None:
    assert model.messages([100, 3, 200, 4], 100) == [7, 100, 200]
    assert model.messages([100], 100) == [100] and model.messages([], 100) == []


@pytest.mark.parametrize("name", ["alexnet", "vgg_a", "resnet50", "lstm"])
def test_efficiency_of_networks(bench: Any, model: Any, name: str) -> None:
    nets = bench._scaling_nets
    made = nets.step_of(nets.LARGE[name], 0.1)
    for by in model.INTERCONNECTS.values():
        without, overlapped = ([model.efficiency(made, p, by, overlap) for p in RANKS] for overlap in (False, True))
        assert without[0] == overlapped[0] == 1.0
        for shares in (without, overlapped):
            assert shares == sorted(shares, reverse=True) and shares[-1] > 0
        assert all(a <= b for a, b in zip(without, overlapped))
    at_last = [model.efficiency(made, 1024, by, False) for by in model.INTERCONNECTS.values()]
    assert at_last == sorted(at_last), "a faster interconnect is better"


# Networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "multiplications"),
    [("alexnet", 61_100_840, 0.714e9), ("vgg_a", 132_863_336, 7.609e9), ("resnet50", 25_557_032, 4.089e9)],
)
def test_parameters_and_operations_are_the_published(bench: Any, name: str, count: int, multiplications: float) -> None:
    nets = bench._scaling_nets
    assert nets.parameters(nets.LARGE[name]) == count
    forward = sum(part.forward for part in nets.Counter(nets.LARGE[name]).parts)
    assert forward / 2 == pytest.approx(multiplications, rel=1e-3)


@pytest.mark.parametrize("name", ["mlp", "digits", "char-lstm 256"])
def test_counted_are_the_parameters_that_the_library_makes(bench: Any, be: Backend, name: str) -> None:
    net = bench._nets.TINY[name]
    made = bench._nets_ours.Training(be, net)
    pairs = [pair for pair, _ in get_param_list(made.layers)]
    sizes = [size for part in bench._scaling_nets.Counter(net).parts for size in part.sizes]
    assert sorted(sizes) == sorted(parameter.size for parameter, _ in pairs)


def test_gradients_are_there_in_the_order_of_backward(bench: Any) -> None:
    n = bench._nets
    net = n.Net("2-3-1", (2,), 1, (n.Dense(3), n.Dense(1)))
    made = bench._scaling_nets.step_of(net, 1.0)
    # Operations forward 12 and 6, backward 12 of the second layer, and 12 of the first, which has no error to pass on.
    assert [one.nbytes for one in made.gradients] == [4 * 3, 4 * 1, 4 * 6, 4 * 3]
    assert [one.ready for one in made.gradients] == pytest.approx([30 / 42, 30 / 42, 1.0, 1.0])


# A run ------------------------------------------------------------------------------------------------------------


PACES = {
    "1 rank": 10e-3, "mpiexec -n 1": 10.1e-3, "1 rank, 2 threads": 6e-3, "2 ranks": 6.25e-3,
    "1 rank, half the batch": 5e-3, "the same, twice at once": 5.5e-3, "torch, 1 thread": 12e-3,
    "torch DDP, 2 ranks": 10e-3, "torch, half the batch": 6e-3, "": 2.0,
}  # fmt: skip
"""Seconds of a step of each contender; of a large network on the whole machine."""


@pytest.fixture
def scaling(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script, with times that are made up and PyTorch as if it were installed."""
    script, sizes = bench.scaling, (1 << 10, 1 << 24)
    monkeypatch.setattr(script, "lacking", lambda: "")
    monkeypatch.setattr(bench._machine, "peer_versions", lambda: {"torch": "9.9"})
    monkeypatch.setattr(bench._report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(bench._rank_runs, "step_seconds", lambda who, *_: PACES[who.name])
    seconds = {nbytes: 1e-6 + nbytes * 1e-10 for nbytes in sizes}
    alike = {kind: seconds for kind in ("exchange", "allreduce", "rows")}
    monkeypatch.setattr(bench._rank_runs, "message_seconds", lambda repeats: {**alike, "add": 1e-11})
    return script


def test_a_run_shows_and_writes_what_it_found(scaling: Any, bench: Any, tmp_path: Path, capsys: Any) -> None:
    files = ["--json", str(tmp_path / "run.json"), "--picture", str(tmp_path / "run.png"), "--results"]
    assert scaling.main(["--quick", "--predict", "alexnet,lstm", *files]) == 0
    out = capsys.readouterr().out
    for line in (
        "mlp: one rank under mpiexec takes 1.010 times as long (target 1.02)",
        "mlp: 2 ranks are 1.60 times as fast as one (target 1.5)",
        "mlp: 2 ranks are 1.60 times as fast as PyTorch's (target 1)",
    ):
        assert f"{line}\n" in out
    sent = 4 * bench._scaling_nets.parameters(bench._nets.NETS["mlp"])
    predicted = 5.5e-3 + sent * (1e-10 + 1e-11 / 2)  # and some messages
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["ranks"][0]["predicted"] == pytest.approx(predicted, rel=2e-3)
    assert found["interconnect"] == pytest.approx({"alpha": 1e-6, "beta": 1e-10, "gamma": 1e-11})
    assert found["steps"] == {"alexnet": 2.0, "lstm": 2.0} and len(found["efficiency"]) == 2 * 2 * 4
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "## scaling\n" in text and text.count("\n### ") == 7
    assert "| mlp | 1.60; 1.20 | 80%; 60% | 6.29 ms | 6.25 ms |" in text
    assert " on 224 x 224 pixels | 61,100,840 | 244 MB | 3 | 36% of the step | 4 | 2.00 s |" in text


def test_without_matplotlib_the_results_are_written_first(
    scaling: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        scaling.main(["--quick", "--predict", "lstm", "--results", "--picture", str(tmp_path / "run.png")])
    assert "## scaling\n" in (tmp_path / "RESULTS.md").read_text()


def test_without_pytorch_and_without_mpi(scaling: Any, bench: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(bench._machine, "peer_versions", lambda: {"torch": bench._cases.NOT_INSTALLED})
    assert scaling.main(["--quick", "--predict", "lstm"]) == 0
    out = capsys.readouterr().out
    assert "not installed: torch\n" in out and "PyTorch's" not in out
    monkeypatch.setattr(scaling, "lacking", lambda: "no MPI here")
    assert scaling.main(["--quick"]) == 2
    assert "no MPI here" in capsys.readouterr().err


def test_what_is_lacking(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert bench.scaling.lacking() == ""
    monkeypatch.setattr(bench._rank_runs, "MPIEXEC", tmp_path / "mpiexec")
    assert "pip install 'neonlike[mpi]'" in bench.scaling.lacking()


@pytest.mark.parametrize("contender", ["ONE", "SEVERAL", "APART"])
def test_steps_are_measured_in_new_processes(bench: Any, contender: str) -> None:
    runs = bench._rank_runs
    assert 0 < runs.step_seconds(getattr(bench.scaling, contender), "digits", 4, runs.Effort(2, 1)) < 60


@pytest.mark.peers("torch")
def test_steps_of_pytorch_are_measured(bench: Any) -> None:
    runs = bench._rank_runs
    assert 0 < runs.step_seconds(bench.scaling.DDP, "digits", 4, runs.Effort(2, 1)) < 60


@pytest.mark.parametrize(
    "output", ['{"median": 1}\n{"median": 2}\n', '{"median": 1}{"median": 2}\n\n', 'a\n{"median": 1}']
)
def test_what_several_ranks_print_at_once_is_read(bench: Any, output: str) -> None:
    assert bench._rank_runs.first_object(output) == {"median": 1}


def test_a_process_that_prints_nothing_is_named(bench: Any) -> None:
    with pytest.raises(RuntimeError, match=r"printed no object of JSON, but 'nothing\\n'"):
        bench._rank_runs.first_object("nothing\n")


def test_a_process_that_fails_says_why(bench: Any) -> None:
    runs = bench._rank_runs
    with pytest.raises(RuntimeError, match="KeyError: 'nonsense'"):
        runs.step_seconds(bench.scaling.ONE, "nonsense", 4, runs.Effort(1, 1))


def test_messages_are_measured(bench: Any) -> None:
    found = bench._rank_runs.message_seconds(1)
    kinds = {"exchange", "allreduce", "rows"}
    assert set(found) == {*kinds, "add"} and found["add"] > 0
    for kind in kinds:
        assert min(found[kind]) == 64 and all(seconds > 0 for seconds in found[kind].values())
    by = bench._scaling_model.fitted(found["exchange"], found["add"])
    assert np.isfinite([by.alpha, by.beta]).all()
