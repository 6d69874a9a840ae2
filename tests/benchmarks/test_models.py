"""Whole networks against PyTorch: how they are built, measured and judged. Nothing here looks at a time."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import BackendUnavailable
from tests.benchmarks.modules import FOLDER, Here
from tests.support.replaying import extension, fast  # noqa: F401

MODULES = (
    "_terms", "_machine", "_report", "_cases", "harness", "_apart", "_layers", "_references", "_rows", "_rates",
    "_expressions", "_contenders", "_primitives", "_sequences", "_sequences_torch", "_nets", "_nets_ours",
    "_nets_torch", "_models_report", "_models_gpu", "_models_outside", "models",
)  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the benchmarks folder, with small networks and the shortest of measurements."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    n = found._nets
    side = ((n.Conv(3, 1),), (n.Conv(2, 1), n.Conv(4, 3)), (n.Pool("max", 3, 1, 1), n.Conv(1, 1)))
    layers = (
        n.Conv(4, norm=True), n._basic(4), n._basic(6, 2), n.Pool("max", 2, 2), n.Inception(side), n.Dense(5),
    )  # fmt: skip
    small = {
        "mlp": n.Net("small", (7,), 4, (n.Dense(6, relu=True), n.Dense(3)), 0.05),
        "images": n.Net("small", (2, 8, 8), 3, layers, 0.05),
        "letters": n.Net("small", (5, 4), 3, (n.Lstm(6), n.Dense(5)), 0.05),
    }
    for module in (n, found._nets_ours, found._nets_torch, found._models_report, found._models_gpu, found.models):
        monkeypatch.setattr(module, "NETS", small)
    monkeypatch.setattr(found.models, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(found.models, "QUICK", ("mlp", "images"))
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    yield found
    for name in MODULES:
        sys.modules.pop(name)


# The networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
def test_ours_learns_its_minibatch(bench: SimpleNamespace, be: Backend, name: str) -> None:
    made = bench._nets_ours.Training(be, name)
    step = made.step
    for _ in range(5):
        step()
    costs, *changes = made.result()
    assert len(costs) == 5 and costs[-1] < costs[0]
    nodes = bench._nets.walk(bench._nets.NETS[name].layers)
    weighted = [node for node in nodes if hasattr(node, "maps") or hasattr(node, "outputs")]
    assert len(changes) == len(weighted) + 2 * (name == "letters")
    assert all(np.any(change) for change in changes)
    made.inference()()
    assert np.isfinite(made.model.layers.outputs.get()).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
@pytest.mark.parametrize("way", ["torch", "torch NHWC", "reference"])
def test_both_train_the_same_network(bench: SimpleNamespace, be: Backend, name: str, way: str) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    if way == "torch NHWC" and name != "images":
        pytest.skip("channels last is a layout of images")
    ours = bench._nets_ours.Training(be, name)
    theirs = bench._nets_torch.Training(bench._sequences_torch.Way(way, double=way == "reference"), name)
    for _ in range(2):
        ours.step()
        theirs.step()
    results = list(zip(ours.result(), theirs.result(), strict=True))
    assert max(bench.harness.error([a], [b]) for a, b in results) < bench.models.TOLERANCE


# How they are measured ----------------------------------------------------------------------------------------------


class FakeDesk:
    """Has the right result, or one that is off, and takes whatever time and memory it is told to."""

    def __init__(self, name: str, made: SimpleNamespace) -> None:
        self.name, self.told = name, made

    def make(self, *given: Any) -> list[list[float]]:
        """Contents of the tensors that steps change."""
        self.told.log.append((self.name, *given))
        return [[1.0, 2.0 + self.told.off.get(self.name, 0.0)]]

    def memory(self) -> int:
        """Bytes."""
        return (1 << 20) * (2 if self.name == "neonlike" else 4)

    def outside(self, seconds: float) -> list[float] | None:
        """The part of a step that is outside of kernels."""
        self.told.log.append((self.name, "outside"))
        return self.told.outside

    def sample(self, seconds: float) -> float:
        """Seconds of a step."""
        self.told.log.append((self.name, "sample"))
        return float(self.told.seconds.get(self.name, 1.0))


@pytest.fixture
def fake(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs with contenders that are made up: ``off`` has the errors of their results, ``seconds`` their times."""
    made = SimpleNamespace(off={}, seconds={}, log=[], outside=[0.04, 0.035], models=bench.models)
    monkeypatch.setattr(bench._primitives, "has_torch", lambda: True)
    monkeypatch.setattr(bench.models, "start", lambda argv, name: Here(nullcontext(FakeDesk(name, made))))
    return made


def test_everybody_is_measured_and_judged(
    fake: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.seconds = {"neonlike": 0.5, "torch NHWC": 0.75}
    path = tmp_path / "run.json"
    assert fake.models.main(["--only", "images,mlp", "--rounds", "2", "--json", str(path)]) == 0
    written = json.loads(path.read_text())["beside"]
    peers = ["neonlike", "torch", "torch NHWC", "torch.compile"]
    assert [(r["case"], r["text"], r["contender"]) for r in written] == [
        (case, mode, who)
        for case in ("images", "mlp")
        for mode in ("training", "inference")
        for who in peers
        if who != "torch NHWC" or case == "images"
    ]
    assert all(len(r["samples"]) == 2 for r in written)
    out = capsys.readouterr().out
    assert "images, training: torch NHWC takes 1.50 times as long (target >= 1.05): met" in out
    assert "images, memory: 0.50 of PyTorch's (target <= 1): met" in out
    assert "images, outside kernels: 4.0 % of a step, 3.5 % of its thread's time (target < 5 %): met" in out
    assert [entry for entry in fake.log if entry[1] == "outside"] == [("neonlike", "outside")] * 2
    assert "2 networks, training: 1.73 on the geometric mean (target >= 1.25): met" in out
    assert "mlp, inference: torch takes 2.00 times as long (target >= 1): met" in out


def test_what_is_outside_of_kernels_is_measured_without_pytorch(
    fake: SimpleNamespace, bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._primitives, "has_torch", lambda: False)
    fake.outside = [0.06, 0.02]
    assert fake.models.main(["--outside", "--only", "mlp", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert "mlp, outside kernels: 6.0 % of a step, 2.0 % of its thread's time (target < 5 %): MISSED" in said
    assert {name for name, *_ in fake.log} == {"neonlike"}
    fake.outside = None
    assert fake.models.main(["--outside", "--only", "mlp", "--rounds", "1"]) == 0
    assert "mlp: not all that a step does can be started apart" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
def test_the_kernels_of_a_step_alone_do_what_the_step_does(bench: SimpleNamespace, fast: Backend, name: str) -> None:
    fast.rng_reset()
    made, alone = (bench._nets_ours.Training(fast, name) for _ in range(2))
    run = bench._models_outside.kernels_of(alone)
    taken = 5  # to learn and to record them
    for _ in range(taken):
        made.step()
    for _ in range(2):
        made.step()
        run()
        for one, other in zip(made.result()[1:], alone.result()[1:], strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(bench._models_outside.shares(made.step, run, 0.0)) == 2


def test_shares_are_of_the_steps_time(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: 2 * now[0])
    monkeypatch.setattr(bench._models_outside, "time", clock)
    step, alone = (lambda seconds=seconds: now.__setitem__(0, now[0] + seconds) for seconds in (4.0, 3.0))
    assert bench._models_outside.shares(step, alone, 20.0) == [0.25, 0.25]


def test_a_step_and_its_kernels_are_timed_in_pairs(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [0.0], []
    clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: now[0])
    monkeypatch.setattr(bench._models_outside, "time", clock)

    def call(name: str, seconds: float) -> None:
        made.append(name)
        now[0] += seconds * (1 + 0.1 * len(made))  # on a machine that other programs slow down more and more

    found = bench._models_outside.shares(lambda: call("step", 4.0), lambda: call("kernels", 3.0), 0.0)
    assert made == ["step", "kernels", "kernels", "step"] * (bench._models_outside.LEAST // 2) + ["step", "kernels"]
    assert 0.2 < found[0] < 0.3


def test_quick_compiles_nothing_of_pytorch(fake: SimpleNamespace) -> None:
    fake.seconds = {"torch": 0.5}
    assert fake.models.main(["--quick", "--modes", "training"]) == 0
    made = [entry for entry in fake.log if entry[1] not in ("sample", "outside")]
    assert made == [
        ("reference", "mlp", "training", fake.models.report.cores()),
        *((who, "mlp", "training", fake.models.report.cores()) for who in ("neonlike", "torch")),
        ("reference", "images", "training", fake.models.report.cores()),
        *((who, "images", "training", fake.models.report.cores()) for who in ("neonlike", "torch", "torch NHWC")),
    ]


def test_a_wrong_result_is_not_timed_and_ours_fails_the_run(fake: SimpleNamespace) -> None:
    argv = ["--quick", "--only", "mlp", "--modes", "training"]
    fake.off["torch"] = 1.0
    assert fake.models.main(argv) == 0
    assert ("torch", "sample") not in fake.log and ("neonlike", "sample") in fake.log
    fake.off["neonlike"] = float("nan")
    fake.log.clear()
    assert fake.models.main(argv) == 1
    assert ("neonlike", "sample") not in fake.log


def test_rounding_that_pytorch_shows_too_is_no_mistake(fake: SimpleNamespace) -> None:
    argv = ["--quick", "--only", "mlp", "--modes", "training"]
    fake.off |= {"torch": 0.04, "neonlike": 0.05}  # 2 and 2.5 percent
    assert fake.models.main(argv) == 0
    assert ("neonlike", "sample") in fake.log
    fake.off["torch"] = 0.01
    fake.log.clear()
    assert fake.models.main(argv) == 1
    assert ("neonlike", "sample") not in fake.log


@pytest.mark.parametrize("argv", [["--only", "nonsense"], ["--modes", "dreaming"], ["--threads", "0"]])
def test_bad_options_are_refused(bench: SimpleNamespace, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        bench.models.parse(argv)
    assert exit_info.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_without_pytorch_the_status_says_so(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench._primitives, "has_torch", lambda: False)
    assert bench.models.main(["--quick"]) == bench._primitives.NO_TORCH


# On a GPU -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpu_driver")
@pytest.mark.parametrize("name", ["images", "letters"])
def test_a_gpu_trains_the_network_that_the_cpu_does(bench: SimpleNamespace, name: str) -> None:
    models = bench.models
    made = models.gpu.make_host(name)
    for _ in range(models.STEPS):
        made.step()
    expected = [np.asarray(models.some(array)) for array in made.result()]
    desk = models.Desk("neonlike", "gpu")
    assert models.worst(desk.make(name, "training", 1), expected) < models.TOLERANCE
    assert desk.sample(0.0) > 0 and desk.memory() > 0
    rounded = models.worst(desk.make(name, "training, TF32", 1), expected)
    assert models.TOLERANCE / 100 < rounded < models.ROUNDED_MOST, "three images a batch: rounding moves rectifiers"
    assert desk.make(name, "inference", 1) == [] and desk.sample(0.0) > 0


@pytest.fixture
def fake_gpu(fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU, and a PyTorch that sees it, as far as the run looks."""
    monkeypatch.setattr(fake.models.gpu, "facts", lambda: {"GPU": "made up"})
    monkeypatch.setattr(fake.models.gpu, "why_absent", lambda: "")
    return fake


def test_a_gpu_is_measured_in_both_precisions(
    fake_gpu: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_gpu.seconds, path = {"neonlike": 0.5}, tmp_path / "run.json"
    fake_gpu.off = {"torch.compile": 0.01}  # TF32 explains that, float32 does not
    assert fake_gpu.models.main(["-b", "gpu", "--only", "mlp,letters", "--rounds", "1", "--json", str(path)]) == 0
    written = json.loads(path.read_text())["beside"]
    modes = ("training", "inference", "training, TF32", "inference, TF32")
    assert [(r["case"], r["text"]) for r in written if r["contender"] == "neonlike"] == [
        (case, mode) for case in ("mlp", "letters") for mode in modes
    ]
    wrong = {r["text"] for r in written if "wrong" in (r["note"] or "")}
    assert wrong == {"training"}
    out = capsys.readouterr().out
    assert "mlp, training, TF32: torch takes 2.00 times as long (target >= 1.05): met" in out
    assert "2 networks, training, TF32: 2.00 on the geometric mean" in out


def test_no_network_is_begun_when_the_time_is_up(
    fake_gpu: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["-b", "gpu", "--quick", "--modes", "inference", "--limit", "0", "--results"]
    fake_gpu.models.gpu.facts = lambda: {"GPU": "cuemu"}  # of which no results are kept
    assert fake_gpu.models.main(argv) == 0 and fake_gpu.log == []
    assert "mlp, inference, TF32: left out, 0 seconds are over" in capsys.readouterr().out
    assert fake_gpu.models.parse(["-b", "gpu"]).limit == fake_gpu.models.gpu.LIMIT


def test_without_a_gpu_the_status_says_so(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise BackendUnavailable("no GPU here")

    monkeypatch.setattr("neonlike.backends.gen_backend", refuse)
    assert bench.models.main(["-b", "gpu"]) == 2
    assert "no GPU here" in capsys.readouterr().out


def test_resnet50_is_of_the_published_size(bench: SimpleNamespace) -> None:
    """25.6 million parameters, of K. He et al. (2015): weights of filters, two of each map, and the last layer."""
    n = bench._nets

    def weights(layers: Any, channels: int) -> tuple[int, int]:
        count = 0
        for node in layers:
            if isinstance(node, n.Residual):
                beside, _ = weights(node.shortcut, channels)
                inside, channels = weights(node.body, channels)
                count += inside + beside
            elif isinstance(node, n.Conv):
                count += channels * node.window**2 * node.maps + 2 * node.maps
                channels = node.maps
            elif isinstance(node, n.Dense):
                count += (channels + 1) * node.outputs
        return count, channels

    assert weights(n._resnet50(), 3) == (25_557_032, 2048)


def test_a_cpu_measures_large_networks_only_where_they_are_named(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.models, "ON_GPU_ALONE", ("images",))
    assert bench.models.parse([]).only == ["mlp", "letters"]
    assert bench.models.parse(["--only", "images"]).only == ["images"]
    assert bench.models.parse(["-b", "gpu"]).only == ["images", "mlp", "letters"], "before the time is up"


def test_resnet50_has_a_target_beside_eager_pytorch(bench: SimpleNamespace) -> None:
    make, report = bench._cases.Result, bench._models_report
    times = {"neonlike": 1.0, "torch": 0.81, "torch.compile": 0.5}
    for mode, least in (("training", ["met"]), ("training, TF32", [])):
        cells = [make("resnet50", mode, 1, who, s, samples=[s]) for who, s in times.items()]
        lines = [line for line in report.verdicts(cells) if f"resnet50, {mode}: torch takes 0.81 times" in line]
        assert [line.rpartition(" ")[2] for line in lines] == least
        assert all("(target >= 0.8)" in line for line in lines)


def test_small_networks_are_those_that_a_run_chooses_from(bench: SimpleNamespace) -> None:
    assert bench.models.parse(["--tiny", "-b", "gpu"]).only == ["mlp", "digits", "char-lstm 256"]
