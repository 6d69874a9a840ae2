"""Whole networks against PyTorch: how they are built, measured and judged. Nothing here looks at a time."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import BackendUnavailable
from tests.benchmarks.modules import bench as modules  # noqa: F401
from tests.benchmarks.modules import run  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401


@pytest.fixture
def bench(modules: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules, with small networks."""
    n = modules._nets
    side = ((n.Conv(3, 1),), (n.Conv(2, 1), n.Conv(4, 3)), (n.Pool("max", 3, 1, 1), n.Conv(1, 1)))
    layers = (
        n.Conv(4, norm=True), n._basic(4), n._basic(6, 2), n.Pool("max", 2, 2), n.Inception(side), n.Dense(5),
    )  # fmt: skip
    small = {
        "mlp": n.Net("small", (7,), 4, (n.Dense(6, relu=True), n.Dense(3)), 0.05),
        "images": n.Net("small", (2, 8, 8), 3, layers, 0.05),
        "letters": n.Net("small", (5, 4), 3, (n.Lstm(6), n.Dense(5)), 0.05),
    }
    for module in (n, modules.models):
        monkeypatch.setattr(module, "NETS", small)
    monkeypatch.setattr(modules.models, "QUICK", ("mlp", "images"))
    modules.models.SUITE.seconds = (0.0, 1.0)
    return modules


# The networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
def test_ours_learns_its_minibatch(bench: Any, be: Backend, name: str) -> None:
    made = bench._nets_ours.Training(be, bench._nets.NETS[name])
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
    made.in_turn()()
    assert len(made.costs) == 6 and made.model.layers.outputs.shape[1] == bench._nets.NETS[name].N * made.net.steps


@pytest.mark.slow
@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
@pytest.mark.parametrize("way", ["torch", "torch NHWC", "reference"])
def test_both_train_the_same_network(bench: Any, be: Backend, name: str, way: str) -> None:
    import torch

    if way == "torch NHWC" and name != "images":
        pytest.skip("channels last is a layout of images")
    ours = bench._nets_ours.Training(be, bench._nets.NETS[name])
    theirs = bench._nets_torch.Training(
        bench._nets_torch.Way(way, double=way == "reference"), bench._nets.NETS[name]
    )
    # In this layout oneDNN (PyTorch 2.13 and 2.14, AVX2) has a wrong gradient of 1 x 1 filters with strides.
    with torch.backends.mkldnn.flags(enabled=way != "torch NHWC"):
        for _ in range(2):
            ours.step()
            theirs.step()
    results = list(zip(ours.result(), theirs.result(), strict=True))
    assert max(bench.harness.error([a], [b]) for a, b in results) < bench.models.ALLOWED["float32"][0]


# How they are measured ----------------------------------------------------------------------------------------------


class FakeTraining:
    """Has the right result, or one that is off."""

    def __init__(self, off: float) -> None:
        self.off = off

    def step(self) -> None:
        """Nothing."""

    def result(self) -> list[Any]:
        """Contents of the tensors that steps change."""
        return [np.array([1.0, 2.0 + self.off])]

    def inference(self) -> Any:
        """Nothing."""
        return list

    in_turn = inference


@pytest.fixture
def fake(bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs with contenders that are made up: ``off`` has the errors of their results, ``seconds`` their times."""
    models, suite = bench.models, bench.models.SUITE
    made = SimpleNamespace(off={}, seconds={}, log=[], outside=[0.04, 0.035], models=models, suite=suite)
    made.run = partial(run, suite)

    class Desk(models.ModelDesk):  # type: ignore[name-defined,misc]
        def network(self, net: str, mode: str, *more: Any) -> Any:
            """As it is, but for times."""
            made.log.append((self.who, net, mode))
            return super().network(net, mode, *more)

        def sample(self) -> float:
            """Seconds of a step."""
            made.log.append((self.who, "sample"))
            return float(made.seconds.get(self.who, 1.0))

        def memory(self) -> int:
            """Bytes."""
            return (1 << 20) * (2 if self.who == "neonlike" else 4)

        def outside(self, seconds: float) -> list[float] | None:
            """The part of a step that is outside of kernels."""
            made.log.append((self.who, "outside"))
            return made.outside

    monkeypatch.setattr(models, "ModelDesk", Desk)
    monkeypatch.setattr(models, "load", lambda who, threads: None)
    monkeypatch.setattr(models, "make_ours", lambda *given: FakeTraining(made.off.get("neonlike", 0.0)))
    monkeypatch.setattr(models, "make_torch", lambda who, *given: FakeTraining(made.off.get(who, 0.0)))
    monkeypatch.setattr(models, "waiting", lambda training, step: step)
    monkeypatch.setattr(models, "device_memory", lambda training: 1)
    for module in (bench._suite, models):
        monkeypatch.setattr(module, "installed", lambda name: True)
    return made


def test_everybody_is_measured_and_judged(
    fake: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.seconds = {"neonlike": 0.5, "torch NHWC": 0.75}
    path = tmp_path / "run.json"
    assert fake.run("--only", "images,mlp", "--rounds", "2", "--json", str(path))[0] == 0
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
    fake: SimpleNamespace, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._suite, "installed", lambda name: False)
    fake.outside = [0.06, 0.02]
    assert fake.run("--outside", "--only", "mlp", "--rounds", "1")[0] == 0
    said = capsys.readouterr().out
    assert "mlp, outside kernels: 6.0 % of a step, 2.0 % of its thread's time (target < 5 %): MISSED" in said
    assert {name for name, *_ in fake.log} == {"neonlike"}
    fake.outside = None
    assert fake.run("--outside", "--only", "mlp", "--rounds", "1")[0] == 0
    assert "mlp: not all that a step does can be started apart" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mlp", "images", "letters"])
def test_the_kernels_of_a_step_alone_do_what_the_step_does(bench: Any, fast: Backend, name: str) -> None:
    fast.rng_reset()
    made, alone = (bench._nets_ours.Training(fast, bench._nets.NETS[name]) for _ in range(2))
    run = bench._outside.kernels_of(alone)
    taken = 5  # to learn and to record them
    for _ in range(taken):
        made.step()
    for _ in range(2):
        made.step()
        run()
        for one, other in zip(made.result()[1:], alone.result()[1:], strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(bench._outside.shares(made.step, run, 0.0)) == 2


def test_shares_are_of_the_steps_time(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: 2 * now[0])
    monkeypatch.setattr(bench._outside, "time", clock)
    step, alone = (lambda seconds=seconds: now.__setitem__(0, now[0] + seconds) for seconds in (4.0, 3.0))
    assert bench._outside.shares(step, alone, 20.0) == [0.25, 0.25]


def test_a_step_and_its_kernels_are_timed_in_pairs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [0.0], []
    clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: now[0])
    monkeypatch.setattr(bench._outside, "time", clock)

    def call(name: str, seconds: float) -> None:
        made.append(name)
        now[0] += seconds * (1 + 0.1 * len(made))  # on a machine that other programs slow down more and more

    found = bench._outside.shares(lambda: call("step", 4.0), lambda: call("kernels", 3.0), 0.0)
    assert made == ["step", "kernels", "kernels", "step"] * (bench._outside.LEAST // 2) + ["step", "kernels"]
    assert 0.2 < found[0] < 0.3


def test_quick_compiles_nothing_of_pytorch(fake: SimpleNamespace) -> None:
    _, session = fake.run("--quick", "--modes", "training")
    assert [entry for entry in fake.log if entry[1] not in ("sample", "outside")] == [
        *((who, "mlp", "training") for who in ("neonlike", "torch")),
        *((who, "images", "training") for who in ("neonlike", "torch", "torch NHWC")),
    ]
    notes = {r.note for r in session.beside if r.contender == "torch.compile"}
    assert notes == {"left out by --quick, compiling takes seconds"}


@pytest.mark.parametrize(
    ("off", "status", "timed"),
    [
        ({"torch": 1.0}, 0, ["neonlike"]),
        ({"torch": 1.0, "neonlike": float("nan")}, 1, []),
        ({"torch": 0.04, "neonlike": 0.05}, 0, ["neonlike", "torch"]),  # 2 and 2.5 percent: PyTorch rounds so too
        ({"torch": 0.01, "neonlike": 0.05}, 1, ["torch"]),
    ],
)
def test_who_is_wrong_is_not_timed_unless_rounding_explains_it(
    fake: SimpleNamespace, off: dict[str, float], status: int, timed: list[str]
) -> None:
    fake.off |= off
    found, session = fake.run("--quick", "--only", "mlp", "--modes", "training")
    assert (found, [r.contender for r in session.beside if r.samples]) == (status, timed)


def test_steps_in_turn_are_a_subject_of_their_own(fake: SimpleNamespace) -> None:
    found, session = fake.run("--quick", "--only", "mlp", "--modes", "training in turn")
    assert (found, session.subject) == (0, "models in turn")
    assert ("neonlike", "mlp", "training in turn") in fake.log and ("neonlike", "outside") not in fake.log


# On a GPU -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpu_driver")
@pytest.mark.parametrize("name", ["images", "letters"])
def test_a_gpu_trains_the_network_that_the_cpu_does(bench: Any, name: str) -> None:
    models = bench.models
    options = models.SUITE.parse(["-b", "gpu"])
    expected = models.SUITE.truth(options, name, "training", 1)
    desk = models.ModelDesk("neonlike", "gpu", 0.0)

    def error(mode: str) -> float:
        return desk.check(name, mode, 1, expected)["results"][0]["error"]

    least, most = models.ALLOWED["float32"][0], models.ALLOWED["tf32"][1]
    assert error("training") < least
    assert desk.sample() > 0 and desk.memory() > 0
    assert least / 100 < error("training, TF32") < most, "it moves relus"
    assert desk.check(name, "inference", 1, None)["verb"] == "sample" and desk.sample() > 0


@pytest.fixture
def fake_gpu(fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU, and a PyTorch that sees it, as far as the run looks."""
    monkeypatch.setattr(fake.models, "gpu_facts", lambda: {"GPU": "made up"})
    monkeypatch.setattr(fake.models, "why_absent", lambda: "")
    return fake


def test_a_gpu_is_measured_in_both_precisions(
    fake_gpu: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_gpu.seconds, path = {"neonlike": 0.5}, tmp_path / "run.json"
    fake_gpu.off = {"torch.compile": 0.01}  # TF32 explains that, float32 does not
    status, session = fake_gpu.run("-b", "gpu", "--only", "mlp,letters", "--rounds", "1", "--json", str(path))
    assert (status, session.subject) == (0, "models gpu")
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
    fake_gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["-b", "gpu", "--quick", "--modes", "inference", "--limit", "0", "--results"]
    monkeypatch.setattr(fake_gpu.models, "gpu_facts", lambda: {"GPU": "cuemu"})  # of which no results are kept
    assert fake_gpu.run(*argv)[0] == 0 and fake_gpu.log == []
    assert "mlp, inference, TF32: left out, 0 seconds are over" in capsys.readouterr().out
    assert fake_gpu.suite.parse(["-b", "gpu"]).limit == fake_gpu.models.LIMIT


def test_without_a_gpu_the_status_says_so(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise BackendUnavailable("no GPU here")

    monkeypatch.setattr("neonlike.backends.gen_backend", refuse)
    assert bench.models.SUITE.main(["-b", "gpu"]) == 2
    assert "no GPU here" in capsys.readouterr().out


def test_resnet50_is_of_the_published_size(bench: Any) -> None:
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


def test_options_choose_networks(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU measures large ones only where they are named."""
    suite = bench.models.SUITE
    monkeypatch.setattr(bench.models, "ON_GPU_ALONE", ("images",))
    assert suite.parse([]).only == ["mlp", "letters"]
    assert suite.parse(["--only", "images"]).only == ["images"]
    assert suite.parse(["-b", "gpu"]).only == ["images", "mlp", "letters"], "before the time is up"
    assert suite.parse(["--tiny", "-b", "gpu"]).only == ["mlp", "digits", "char-lstm 256"]
    for wrong in (["--modes", "dreaming"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            suite.parse(wrong)


def test_resnet50_has_a_target_beside_eager_pytorch(bench: Any) -> None:
    make, times = bench._cases.Result, {"neonlike": 1.0, "torch": 0.81, "torch.compile": 0.5}
    for mode, least in (("training", ["met"]), ("training, TF32", [])):
        cells = [make("resnet50", mode, 1, who, s, samples=[s]) for who, s in times.items()]
        lines = [line for line in bench.models.verdicts(cells) if f"resnet50, {mode}: torch takes 0.81 times" in line]
        assert [line.rpartition(" ")[2] for line in lines] == least
        assert all("(target >= 0.8)" in line for line in lines)
