"""The benchmark of the GPU backend: it runs, checks before it measures, and records nothing of an emulated GPU."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.errors import BackendUnavailable
from tests.benchmarks.modules import bench  # noqa: F401


@pytest.fixture
def gpu(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The modules, with the shortest of measurements, small copies and no peers."""
    for name in ("QUICK", "FULL"):
        monkeypatch.setattr(bench._gpu_session, name, bench.shortest)
    monkeypatch.setattr(bench._gpu_session, "MEMORY_BYTES", 1 << 16)
    monkeypatch.setattr(bench._gpu_session, "RESULTS", tmp_path / "RESULTS-gpu.md")
    monkeypatch.setattr(bench.harness, "ROOFLINE_BYTES", 1 << 14)
    monkeypatch.setattr(bench._gpu_cases, "ROTATE_FROM", 1 << 14)
    monkeypatch.setattr(bench._gpu_cases, "MOST_SETS", 3)
    monkeypatch.setattr(bench.gpu, "find_peers", lambda: ({}, dict.fromkeys(("torch", "cupy", "jax"), "not installed")))
    return bench


TINY = ["--quick", "--sizes", "64,4k", "--edges", "16", "--copied", "64", "--only", "sigmoid,softmax0,variance,adam"]


@pytest.mark.usefixtures("gpu_driver")
def test_a_run_with_every_section(gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    assert gpu.gpu.main([*TINY, "--json", str(path)]) == 0
    said, written = capsys.readouterr().out, json.loads(path.read_text())
    for expected in ("GPU ", "pycuda", "copy of", "4k float32 elements", "vs torch", "Matrix products", "to the host"):
        assert expected in said
    timed = {(r["case"], r["size"], r["contender"]) for r in written["results"] if r["median"]}
    assert {(case, size) for case, size, who in timed if who == "neonlike assign"} == {
        (case, size) for case in ("sigmoid", "softmax0", "variance", "adam") for size in (64, 4096)
    }
    assert ("sigmoid", 4096, "memory copy") in timed, "a copy runs beside cases that move much"
    cases, passes = gpu._gpu_cases, gpu._gpu_targets.PASSES
    primitives = {
        f"{cases.label(layer, N)} {which}"
        for section in cases.SECTIONS.values()
        for layer, N in section.emulated
        for which in section.passes(layer)
    }
    ways = [r for r in written["beside"] if r["case"] == "small 3x3/2 fprop" and r["text"].startswith("convolution")]
    assert [r["contender"] for r in ways] == ["neonlike", "neonlike columns", "neonlike implicit", "torch"] * 3
    assert all(r["median"] for r in ways if r["contender"] != "torch")
    tiled = [r["contender"] for r in written["beside"] if r["case"] == "small 3x3 update"]
    both = ["neonlike winograd 2x2", "neonlike winograd 4x4"]
    assert [name for name in tiled if "winograd" in name] == both, "in float32 alone"
    products = [r["case"] for r in written["beside"] if r["contender"] == "cublas" and r["median"]]
    assert products == [f"small 1x1 {which}" for which in passes] * 3
    unrolled = [r for r in written["beside"] if r["case"].startswith("lstm") and r["median"]]
    assert [r["contender"] for r in unrolled] == ["neonlike", "neonlike persistent"] * 2
    shown = [line for line in said.splitlines() if "of a copy's" in line and "neonlike" in line]
    assert len(shown) == 6, "what batch normalization and pooling move, beside copies"
    others = {"float32", "tf32", "float16", "bfloat16", "to the GPU", "to the host"}
    assert {r["case"] for r in written["beside"]} == primitives | others
    of_each = [r["text"].split()[:3] for r in written["beside"] if r["text"].startswith("attention") and r["median"]]
    assert of_each == [["attention", which, f"{kind},"] for kind in gpu.gpu.PRECISIONS for which in cases.BOTH]
    assert not [line for line in written["verdicts"] if "convolution" in line], "targets of products are of products"
    assert set(written["dispatch_seconds"]["adam"]) == {"neonlike assign", "neonlike prepared"}
    assert any(line.startswith("Python for one call, prepared: at most") for line in written["verdicts"])


@pytest.mark.usefixtures("gpu_driver")
@pytest.mark.parametrize("emulated", [True, False])
def test_results_are_recorded_of_real_gpus_only(
    gpu: Any, emulated: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu._gpu_session, "is_emulated", lambda be: emulated)
    sizes = ["--sizes", "64", "--edges", "16", "--copied", "64", "--only", "sigmoid"]
    sections = ["--sections", "copies"] if emulated else []  # of which nothing is written
    assert gpu.gpu.main(["--quick", *sizes, *sections, "--results"]) == 0
    path: Path = gpu._gpu_session.RESULTS
    assert path.exists() is not emulated
    assert ("This GPU is emulated" in capsys.readouterr().out) is emulated
    if not emulated:
        text = path.read_text()
        tables = "### Matrix products", "### Convolutions", "### Pooling", "### Attention", "### Copies"
        for heading in ("# Results on a GPU", "## gpu", "### 64 elements", *tables):
            assert f"{heading}" in text
        assert "| float32 product, 16 x 16 x 16, 16 |" in text
        assert "* not installed: torch" in text


@pytest.mark.usefixtures("gpu_driver")
def test_the_emulated_gpu_is_known_as_such(gpu: Any) -> None:
    from neonlike.backends import gen_backend

    with gen_backend("gpu") as be:
        assert gpu._gpu_session.is_emulated(be) == ("CPU device" in be.device.name)


def test_without_a_gpu_it_says_so(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise BackendUnavailable("no GPU here")

    monkeypatch.setattr("neonlike.backends.gen_backend", refuse)
    assert gpu.gpu.main(["--quick"]) == 2
    assert "no GPU here" in capsys.readouterr().err


@pytest.mark.usefixtures("gpu_driver")
def test_cases_are_left_out_when_the_time_is_up(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.gpu.main([*TINY, "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    for case in ("softmax0 at 4k", "tf32 product at 16", "copies of 64"):
        assert f"{case}: left out, 0 seconds are over" in said


@pytest.mark.usefixtures("gpu_driver")
@pytest.mark.parametrize(
    ("failure", "said", "runs"),
    [(RuntimeError, "RuntimeError: no more", 2), (KeyboardInterrupt, "interrupted", 1)],
)
def test_what_was_measured_is_written_when_a_section_breaks_off(
    gpu: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failure: type[BaseException],
    said: str,
    runs: int,
) -> None:
    path, begun = tmp_path / "run.json", []

    def copies(self: Any) -> None:
        begun.append("copies")
        raise failure("no more\nof it")

    monkeypatch.setattr(gpu.gpu.Run, "copies", copies)
    monkeypatch.setattr(gpu.gpu.Run, "optree", lambda self: begun.append("optree"))
    assert gpu.gpu.main([*TINY, "--sections", "products,copies,optree", "--json", str(path)]) == 1
    written = json.loads(path.read_text())
    assert {r["case"] for r in written["beside"]} == {"float32", "tf32", "float16", "bfloat16"}
    assert begun == ["copies", "optree"][:runs]
    assert [line for line in written["skipped"] if said in line]


def test_a_library_that_does_not_load_is_left_out(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise ImportError("libfoo.so.3: cannot open shared object file")

    monkeypatch.setattr(gpu._libraries, "GPU_PEERS", {"torch": refuse})
    found, absent = gpu._libraries.find_peers()
    assert (found, absent) == ({}, {"torch": "does not load: ImportError: libfoo.so.3: cannot open shared object file"})


def test_unknown_sections_are_refused(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.gpu.parse(["--sections", "optree,nonsense"])
    assert "no nonsense; there are dispatch" in capsys.readouterr().err


# Sets of operands -----------------------------------------------------------------------------------------------


def test_large_cases_take_turns_so_that_the_cache_does_not_hold_them(gpu: Any) -> None:
    sets_for = gpu._gpu_cases.sets_for
    gpu._gpu_cases.ROTATE_FROM, gpu._gpu_cases.MOST_SETS = 1 << 20, 16
    cache = 50 << 20
    assert sets_for(1024, cache) == 1, "what calling costs does not depend on where the data is"
    assert sets_for(16 << 20, cache) == 13
    assert sets_for(2 << 20, cache) == 16
    assert sets_for(1 << 30, cache) == 1


class FakeLibrary:
    """Arrays of NumPy, on a device whose clock moves by a second a call."""

    device = "made up"

    def get(self, array: Any) -> Any:
        return array.copy()

    def synchronize(self) -> None:
        pass

    def elapsed(self, run: Any, loops: int) -> float:
        for _ in range(loops):
            run()
        return 1.0 * loops


def made_of(gpu: Any, *values: float) -> tuple[Any, list[int]]:
    """A contender of ours with a set for each value that it computes, and the order in which they ran."""
    order: list[int] = []
    sets = []
    for number, value in enumerate(values):
        out = np.full(2, np.nan)

        def run(out: Any = out, value: float = value, number: int = number) -> None:
            out[:] = value
            order.append(number)

        sets.append(gpu._libraries.Made(run, lambda out=out: [out], reset=lambda out=out: out.fill(np.nan)))
    return gpu._libraries.contender(FakeLibrary(), "we", *sets, ours=True), order


def test_sets_are_run_in_turns_and_timed_by_the_device(gpu: Any) -> None:
    made, order = made_of(gpu, 1.0, 1.0, 1.0)
    made.reset()
    made.run()
    assert made.result()[0].tolist() == [1.0, 1.0]
    assert made.elapsed(4) == 4.0
    assert order == [0, 1, 2, 0, 1, 2, 0]
    effort = gpu._cases.Effort(sample=3.0, pause=0.0, min_rounds=2, max_rounds=2)
    ((loops, samples),) = gpu.harness.measure([made], effort).values()
    assert loops >= 3 and samples == [1.0, 1.0]


def test_sets_of_ours_that_differ_are_a_failure(gpu: Any) -> None:
    made, _ = made_of(gpu, 1.0, 1.0, 1.5)
    able, (result,) = gpu.harness.check(gpu._cases.Case("ones", "1", 2, [made], lambda: [np.ones(2)], 8))
    assert able == [] and result.wrong and "another result" in result.note


# Targets --------------------------------------------------------------------------------------------------------


def fake_session(gpu: Any, shares: dict[str, float], compiled: dict[str, float]) -> Any:
    """Results at 16M: ours takes 1 s, torch.compile what ``compiled`` says."""
    make, size = gpu._cases.Result, 1 << 24
    results = [
        make(case, case, size, "neonlike assign", 1.0, samples=[1.0], of_memory_copy=share)
        for case, share in shares.items()
    ]
    results += [make(case, case, size, "torch.compile", s, samples=[s]) for case, s in compiled.items()]
    beside = [
        make("float32", "float32 product, 8 x 8 x 8", 8, who, 1.0, gflop_per_s=rate)
        for who, rate in (("neonlike prepared", 95.0), ("torch", 100.0), ("cupy", 90.0))
    ]
    return argparse.Namespace(results=results, beside=beside, be=argparse.Namespace(compute_capability=(9, 0)))


def test_the_targets(gpu: Any) -> None:
    session = fake_session(gpu, {"axpy": 0.95, "adam": 0.85}, {"axpy": 2.0, "adam": 0.8})
    dispatch = {
        "adam": {"neonlike assign": 16e-6, "neonlike prepared": 1.5e-6, "torch": 9e-6},
        "axpy": {"neonlike assign": 5e-6, "neonlike prepared": 1e-6},
    }
    assert gpu._gpu_targets.verdicts(session, dispatch) == [
        "16M, share of the bandwidth of a copy within the GPU: adam 85% (target >= 90%): MISSED",
        "16M, geometric mean over 2: torch.compile takes 1.26 times as long; slower than it: adam 1.25 "
        "(target: mean >= 1): met",
        "Python for one call, assign: at most 16.00 us (adam; target < 6): MISSED",
        "Python for one call, prepared: at most 1.50 us (adam; target < 2): met",
        "float32 product, 8 x 8 x 8: 95% of the library's best rate (target >= 97%): MISSED",
    ]


MEASURED = {
    "convolution fprop float32, ResNet 1x1": {"neonlike": 2.0, "torch": 9.0, "cublas": 1.8},
    "convolution update tf32, ResNet 1x1": {"neonlike": 1.0, "torch": 0.6, "cublas": 1.2},
    "convolution fprop float32, VGG 3x3": {"neonlike": 1.0, "torch": 0.9},
    "convolution bprop float32, ResNet 3x3": {"neonlike": 1.0, "torch": 1.6, "neonlike columns": 5.0},
    "convolution update float32, ResNet 3x3": {"neonlike": 1.0, "torch": 0.89},
    "convolution update float32, ResNet 3x3/2": {"neonlike": 1.0, "torch": 0.72},
    "convolution fprop float16, depthwise": {"neonlike": 1.0, "torch": 0.6},
    "layer fprop float32, batch norm 64x112x112": {"neonlike": 1.0, "torch": 1.3},
    "images bprop float16, max 3x3/2": {"neonlike": 1.0, "torch": 1.1},
    "images fprop float32, LRN over 5": {"neonlike": 1.0, "torch": 4.0},
    "layer fprop float32, lstm 1024, N = 32": {"neonlike": 1.0, "torch": 0.8, "neonlike persistent": 0.5},
    "layer fprop float32, 50k words of 512": {"neonlike": 1.0, "torch": 0.1},
}
"""Seconds of the contenders of a case."""


@pytest.mark.parametrize(("major", "missed"), [(9, {2, 8, 9}), (8, {2, 4, 5, 8, 9})])
def test_the_targets_of_primitives(gpu: Any, major: int, missed: set[int]) -> None:
    make, results = gpu._cases.Result, []
    for text, seconds in MEASURED.items():
        kind, _, name = text.partition(", ")
        share = None if kind.startswith("convolution") else 0.82
        case = f"{name} {kind.split()[1]}"
        results += [make(case, text, 64, who, s, samples=[s], of_memory_copy=share) for who, s in seconds.items()]
    lines = gpu._gpu_targets.primitive_verdicts(results, major)
    assert [line.partition(" (")[0] for line in lines] == [
        "1x1, all precisions, geometric mean over 2: cublas takes 1.04 times as long",
        "float32, 3x3 without stride, fprop and bprop, geometric mean over 2: torch takes 1.20 times as long",
        "float32, 3x3 without stride, update, geometric mean over 1: torch takes 0.89 times as long",
        "float32, other windows, geometric mean over 1: torch takes 0.72 times as long",
        "TF32, all windows, geometric mean over 1: torch takes 0.60 times as long",
        "float16, all windows, geometric mean over 1: torch takes 0.60 times as long",
        "batch normalization, geometric mean over 1: 82% of a copy's bandwidth",
        "batch normalization, geometric mean over 1: torch takes 1.30 times as long",
        "pooling, geometric mean over 1: 82% of a copy's bandwidth",
        "pooling, geometric mean over 1: torch takes 1.10 times as long",
        "LRN, geometric mean over 1: torch takes 4.00 times as long",
        "recurrent layers of 1024 units, N = 32, geometric mean over 1: torch takes 0.80 times as long",
        "recurrent layers of 1024 units, N = 32, geometric mean over 1: torch takes 1.60 times as long as "
        "neonlike persistent",
    ]
    assert {place for place, line in enumerate(lines) if line.endswith("): MISSED")} == missed
    assert all(line.endswith(("): met", "): MISSED")) for line in lines)
    assert gpu._gpu_targets.primitive_verdicts([], major) == []


def test_every_target_is_of_cases_that_are_measured(gpu: Any) -> None:
    """Each has a layer in a full run."""
    make, label = gpu._cases.Result, gpu._gpu_cases.label
    results = [
        make(f"{label(layer, N)} {which}", f"{section.word} {which} {precision}, {label(layer, N)}", N, "neonlike", 1.0)
        for section in gpu._gpu_cases.SECTIONS.values()
        for precision in section.precisions
        for layer, N in section.layers
        for which in section.passes(layer)
    ]
    assert all(any(map(target.chosen, results)) for target in gpu._gpu_targets.TARGETS)


def test_problems_are_as_right_in_other_precisions(gpu: Any) -> None:
    """Operands are rounded before the reference is computed of them."""
    layer = gpu._layers.conv2d("gpu", "small", 3, 5, 4, 3, 1, 1)
    problem = gpu.conv.Convolution(layer, 2, "fprop")
    (before,) = problem.reference()
    problem.cast(np.float16)
    assert {problem.I.dtype, problem.F.dtype, problem.E.dtype} == {np.dtype("float16")}
    (after,) = problem.reference()
    assert 1e-6 < np.abs(after - before).max() < 1e-2 and after.dtype == np.float64


def test_peers_are_imported_before_the_backend_loads_its_libraries(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def find_peers() -> Any:
        order.append("peers")
        return {}, {}

    def gen_backend(*arguments: Any, **options: Any) -> Any:
        order.append("backend")
        raise BackendUnavailable("made up")

    monkeypatch.setattr(gpu.gpu, "find_peers", find_peers)
    monkeypatch.setattr("neonlike.backends.gen_backend", gen_backend)
    assert gpu.gpu.main([]) == 2
    assert order == ["peers", "backend"]
