"""The benchmarks of compound primitives: their checks, options and summaries. Nothing here looks at a time."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.backends import gen_backend
from neonlike.backends.nervanacpu import NervanaCPU
from tests.benchmarks.modules import FOLDER, Here
from tests.support.recording import known_rates, shown  # noqa: F401

SUBJECTS = ("conv", "conv_shapes", "pool", "batchnorm", "lrn", "rnn", "gemm", "attention")
SHARED = (
    "_terms", "_machine", "_report", "_cases", "harness", "_apart", "_layers", "_references", "_cell_references",
    "_rows", "_rates", "_ratio_picture", "_primitives", "_cells", "_conv_shapes",
)  # fmt: skip
NEEDS = {
    "conv": "fprop_conv", "conv_shapes": "fprop_conv", "pool": "fprop_pool", "attention": "fprop_attention",
    "batchnorm": "compound_fprop_bn", "lrn": "fprop_lrn", "rnn": "compound_gru_unroll_bprop", "gemm": "compound_dot",
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the benchmarks folder, with the shortest of measurements."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(**{name: importlib.import_module(name) for name in (*SHARED, *SUBJECTS)})
    shortest = found._cases.Effort(sample=0.0, pause=0.0, min_rounds=2, max_rounds=2, budget=0.0)
    monkeypatch.setattr(found._primitives, "QUICK", shortest)
    monkeypatch.setattr(found._primitives, "FULL", shortest)
    monkeypatch.setattr(found._rates, "SGEMM_SIZE", 16)
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    yield found
    for name in (*SHARED, *SUBJECTS):
        sys.modules.pop(name)


# Runs, with a stand-in for PyTorch ------------------------------------------------------------------------------


def tiny(bench: Any, name: str) -> list[Any]:
    """A layer or two of every kind a script meets, of odd sizes."""
    layers = bench._layers
    return {
        "conv": [layers.Conv("net", "a", 2, 3, 7, 6, 5, 3, 3, 2, 1), layers.Conv("net", "b", 1, 4, 5, 5, 2, 1, 1)],
        "conv_shapes": [
            bench._conv_shapes._flat("net", 2, 4, (5, 6), 6, 3, 2, 1, 2, 2),
            bench._conv_shapes._flat("net", 1, 3, 6, 2, 4, 2, 1, transposed=True),
            bench._conv_shapes._line("net", 3, 2, 9, 3, 3),
            bench._conv_shapes._solid("net", 2, 2, (3, 4, 5), 3, 3, 2),
        ],
        "pool": [layers.Pool("net", op, 1, op, 3, 7, 6, 3, 2, 1) for op in ("max", "avg")],
        "batchnorm": [layers.Maps("net", "a", 2, 5, 3, 4)],
        "lrn": [layers.Maps("net", "a", 1, 7, 3, 2, 5)],
        "rnn": [layers.Cell("net", kind, 1, kind, 5, 4, 3) for kind in ("rnn", "lstm", "gru")],
        "gemm": [layers.Product("net", "fc", 1, 5, 7), layers.Product("square", "6", 1, 6, 6, 6)],
        "attention": [bench.attention.Heads("net", f"a{n}", 1, 3, 4, 6, n, n > 6) for n in (5, 7)],
    }[name]


def stand_in(bench: Any, factor: float = 1.0) -> Any:
    """A peer that has the right result, times ``factor``."""

    def maker(problem: Any, name: str) -> Any:
        return bench._cases.Contender(name, lambda: None, lambda: [factor * a for a in problem.reference()])

    return maker


def start_here(bench: Any) -> Any:
    """Contenders in this process, as those that are made up have to be."""

    def start(subject: Any, options: Any, argv: Any, name: str) -> Here:
        return Here(bench._primitives.desk(subject, options, name))

    return start


@pytest.fixture
def run(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a script on tiny layers: (status, session)."""
    monkeypatch.setattr(bench._primitives, "has_torch", lambda: True)
    monkeypatch.setattr(bench._primitives, "set_torch_up", lambda keep_memory: None)
    monkeypatch.setattr(bench._primitives, "start", start_here(bench))
    sessions: list[Any] = []

    class Kept(bench.harness.Session):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            sessions.append(self)

    monkeypatch.setattr(bench._primitives, "Session", Kept)

    def runner(name: str, *argv: str, peers: Any = None) -> tuple[int, Any]:
        script, layers = getattr(bench, name), tiny(bench, name)
        quick = [layer.title for layer in layers]
        found = peers or {"torch NCHW": stand_in(bench), "torch NHWC": stand_in(bench)}
        subject = dataclasses.replace(script.SUBJECT, layers=layers, quick=quick, peers=found)
        monkeypatch.setattr(script, "SUBJECT", subject)
        return script.main([*argv]), sessions[-1]

    return runner


def test_titles_are_unique_and_those_of_quick_runs_are_known(bench: SimpleNamespace) -> None:
    for name in SUBJECTS:
        subject = getattr(bench, name).SUBJECT
        titles = [layer.title for layer in subject.layers]
        assert len(titles) == len(set(titles))
        assert set(subject.quick) <= set(titles)
        assert len(subject.quick) == len(set(subject.quick)) > 0


def test_shapes_cover_what_convolutions_can_be(bench: SimpleNamespace) -> None:
    """In the list that kernels are tuned with, and in the other, which has none of its shapes."""
    lists = bench._conv_shapes
    assert not {shape.text for shape in lists.SHAPES} & {shape.text for shape in lists.HELD_OUT}
    for shapes in (lists.SHAPES, lists.HELD_OUT):
        assert {shape.n for shape in shapes} >= {1, 128}
        assert min(min(shape.C, shape.K) for shape in shapes) == 1
        assert max(max(shape.C, shape.K) for shape in shapes) == 1024
        assert max(max(shape.dilation) for shape in shapes) > 1 < max(max(shape.stride) for shape in shapes)
        assert any(1 < shape.groups < shape.C for shape in shapes)
        assert any(1 < shape.groups == shape.C for shape in shapes)
        assert any(shape.transposed for shape in shapes)
        assert {sum(x > 1 for x in shape.size) for shape in shapes} == {1, 2, 3}
        assert {max(shape.window) for shape in shapes} >= {1, 2 if shapes is lists.HELD_OUT else 11, 3, 5, 7}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_quick_run_checks_and_measures_everyone(
    run: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, session = run(name, "--quick", "--batches", "3", "--json", str(tmp_path / "run.json"))
    assert status == 0
    rows = session.form.rows
    assert {row.direction for row in rows} == set(session.form.targets)
    assert {row.N for row in rows} == {"gemm": {0, 3}, "conv_shapes": {1, 2, 3}}.get(name, {3})
    built = hasattr(NervanaCPU, NEEDS[name])
    for row in rows:
        mine = row.results["neonlike"]
        if built:
            assert mine.median is not None, mine.note
            assert mine.error <= 1e-4
            assert row.ratio is not None
        else:
            assert mine.note.startswith("not built: ")
        assert row.results["torch NCHW"].median is not None
    out = capsys.readouterr().out
    tables = "\n".join(line for N in {r.size for r in session.results} for line in session.form.table(session, N))
    for row in rows:
        assert re.search(rf"^{re.escape(row.layer.title)}, {re.escape(row.direction)} ", out, re.MULTILINE)
        assert f"| {row.layer.title} |" in tables
    written = json.loads((tmp_path / "run.json").read_text())
    assert len(written["results"]) >= 3 * len(rows)
    assert written["machine"]["SGEMM 2048, NumPy"].endswith("GFLOP/s")


def test_a_wrong_result_of_ours_is_not_timed_and_fails(
    run: Any, bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = bench.gemm.Problem.reference
    monkeypatch.setattr(bench.gemm.Problem, "reference", lambda problem: [a + 0.1 for a in right(problem)])
    status, session = run("gemm", "--quick")
    assert status == 1
    assert all(row.ours is None and row.ratio is None for row in session.form.rows)
    said = capsys.readouterr()
    assert "not timed, because it is wrong" in said.err
    assert "fprop: nothing to compare" in said.out


def test_a_wrong_result_of_pytorch_is_told_and_its_other_layout_counts(run: Any, bench: SimpleNamespace) -> None:
    peers = {"torch NCHW": stand_in(bench, 1.1), "torch NHWC": stand_in(bench)}
    status, session = run("gemm", "--quick", peers=peers)
    assert status == 0
    for row in session.form.rows:
        assert row.results["torch NCHW"].median is None
        assert row.best is row.results["torch NHWC"]


def test_what_is_not_built_is_told(
    run: Any, bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(be: Any, problem: Any) -> Any:
        bench._primitives.need(be, "compound_dot", "no_such_primitive")

    def unfinished(be: Any, problem: Any) -> Any:
        def fail() -> None:
            raise NotImplementedError("later")

        return bench._primitives.own(fail, lambda: [])

    for ours, note in ((missing, "not built: no_such_primitive"), (unfinished, "not built: later")):
        monkeypatch.setattr(bench.gemm, "ours", ours)
        status, session = run("gemm", "--quick")
        assert status == 0
        assert {row.results["neonlike"].note for row in session.form.rows} == {note}
        assert f"{note}: neonlike\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", SUBJECTS)
def test_without_pytorch_a_script_says_what_to_install(
    bench: SimpleNamespace, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._primitives, "has_torch", lambda: False)
    assert getattr(bench, name).main(["--quick"]) == 2
    said = capsys.readouterr()
    assert "pip install .[bench-torch]" in said.err
    assert said.out == ""


def test_options_choose_layers_minibatches_and_directions(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, session = run("gemm", "--only", "fc", "--batches", "2,4", "--directions", "update,bprop")
    assert [(row.layer.title, row.N, row.direction) for row in session.form.rows] == [
        ("net fc", N, direction) for N in (2, 4) for direction in ("bprop", "update")
    ]
    _, session = run("gemm")
    squares = [row for row in session.form.rows if row.layer.network == "square"]
    assert [(row.N, row.direction) for row in squares] == [(0, "fprop")], "the minibatch makes no difference to them"
    for wrong in (["--directions", "sideways"], ["--only", "nothing"], ["--batches", "0"]):
        with pytest.raises(SystemExit):
            run("gemm", *wrong)
    assert "sideways" in capsys.readouterr().err


def test_a_case_that_does_not_fit_is_left_out_and_told(
    run: Any, bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._machine, "free_memory", lambda: 100)
    status, session = run("lrn", "--quick")
    assert (status, session.results) == (0, [])
    assert "net a at N = 32: left out" in capsys.readouterr().out


def test_results_and_picture_of_a_run(
    run: Any, bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(bench._report.update_results, "__defaults__", (path,))
    run("gemm", "--batches", "3", "--results", "--picture", str(tmp_path / "run.png"))
    text = path.read_text()
    assert "## gemm" in text
    assert "### N = 3" in text
    assert "| layer | | times | fprop | bprop | update |" in text
    assert re.search(r"^\| net fc \| \(5, 7\) x \(7, N\) \| 1 \| [\d.]+ / [\d.]+; [\d.]+x; \d+% \|", text, re.MULTILINE)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_bench_mode_reports_the_kernels_of_ours(
    run: Any, monkeypatch: pytest.MonkeyPatch, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEONLIKE_BENCH", "0")  # and as it was afterwards
    run("pool", "--batches", "3")
    assert shown == []
    assert run("pool", "--batches", "3", "--bench")[0] == 0
    (table,) = shown
    assert "fprop_pool max" in table and "bprop_pool avg" in table
    with pytest.raises(SystemExit):
        run("pool", "--bench", "--results")
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_process_of_a_contender_reports_its_kernels() -> None:
    command = [sys.executable, str(FOLDER / "optree.py"), "--bench", "--child", "neonlike assign"]
    asked = '["check", "sigmoid", 64, false]\n'
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["answer"]["able"], "answers are not mixed with the report"
    assert "sig(" in ended.stderr and "this machine: memory copy" in ended.stderr


# Ratios and means -----------------------------------------------------------------------------------------------


def rates_of(bench: Any, *rows: tuple[str, int, str, dict[str, float]], compute: bool = True, count: int = 1) -> Any:
    """Rates with rows (layer, N, direction, seconds of each contender); 1e9 operations each."""
    rates = bench._rates.Rates({"fprop": 1.0, "bprop": 2.0}, compute)
    for title, N, direction, seconds in rows:
        network, _, name = title.partition(" ")
        rates.add(bench._layers.Conv(network, name, count, R=3, S=3, C=64, K=64), N, direction)
        rates.rows[-1].results = {
            who: bench._cases.Result(
                title, title, N, who, median=s, samples=[s] * 3, gflop_per_s=1 / s if compute else None, gb_per_s=2 / s,
                of_memory_copy=0.5,
            )
            for who, s in seconds.items()
        }  # fmt: skip
    return rates


def test_pytorchs_faster_layout_counts(bench: SimpleNamespace) -> None:
    seconds = {"neonlike": 0.5, "torch NCHW": 2.0, "torch NHWC": 1.5, "numpy": 0.1}
    rates = rates_of(bench, ("net a", 32, "fprop", seconds))
    (row,) = rates.rows
    assert row.best.contender == "torch NHWC"
    assert row.ratio == pytest.approx(3.0)
    rates.sgemm_samples = [3.0, 4.0, 5.0]
    assert rates.share(row) == pytest.approx(2.0 / 4.0)
    assert bench._rows.rate(row.ours) == pytest.approx(2.0)


def test_bandwidth_where_operations_do_not_count(bench: SimpleNamespace) -> None:
    rates = rates_of(bench, ("net a", 32, "fprop", {"neonlike": 0.5, "torch NCHW": 1.0}), compute=False)
    assert bench._rows.rate(rates.rows[0].ours) == pytest.approx(4.0)
    assert rates.share(rates.rows[0]) == 0.5
    assert "GB/s" in rates.heading(32)


def test_ratios_are_taken_within_a_round(bench: SimpleNamespace) -> None:
    """So that a machine that becomes slower does not count."""
    rates = rates_of(bench, ("net a", 32, "fprop", {"neonlike": 1.0, "torch NCHW": 1.0}))
    results = rates.rows[0].results
    results["neonlike"].samples, results["torch NCHW"].samples = [1.0, 10.0, 4.0], [2.0, 20.0, 8.0]
    assert rates.rows[0].ratio == pytest.approx(2.0)


def test_geometric_means_and_networks(bench: SimpleNamespace) -> None:
    rates = rates_of(
        bench,
        ("net a", 32, "fprop", {"neonlike": 1.0, "torch NCHW": 4.0, "torch NHWC": 8.0}),
        ("net b", 32, "fprop", {"neonlike": 2.0, "torch NCHW": 2.0, "torch NHWC": 2.5}),
        ("net a", 64, "fprop", {"neonlike": 1.0, "torch NCHW": 9.0, "torch NHWC": 2.0}),
        ("net a", 32, "bprop", {"neonlike": 1.0, "torch NCHW": 1.5}),
        ("net b", 32, "bprop", {"torch NCHW": 1.5}),
        count=3,
    )
    assert rates.summary() == [
        "fprop, geometric mean over 3: PyTorch takes 2.00 times as long (2.00 at N = 32, 2.00 at N = 64; lowest 1.00, "
        "net b; target 1): met",
        "bprop, geometric mean over 1: PyTorch takes 1.50 times as long (1.50 at N = 32; lowest 1.50, net a, 1 not "
        "measured; target 2): MISSED",
        "net, N = 32, ours / torch: fprop 9.00 s / 18.0 s, bprop 3.00 s / 4.50 s",
        "net, N = 64, ours / torch: fprop 3.00 s / 6.00 s",
    ]


def test_the_target_against_sgemm(bench: SimpleNamespace) -> None:
    rates = rates_of(
        bench, ("net a", 32, "fprop", {"neonlike": 1.0}), ("net b", 32, "fprop", {"neonlike": 0.5, "torch NCHW": 1.0})
    )
    assert bench.conv.of_sgemm(rates) == [], "SGEMM was not measured"
    rates.sgemm_samples = [2.0]
    assert bench.conv.of_sgemm(rates) == [
        "3x3 on 64 maps and more, share of SGEMM's rate: 1 of 2 reach 70%; net a fprop at 32 50%: MISSED"
    ]
    assert bench.conv.by_window(rates) == ["3x3 filters, PyTorch's time / ours: fprop 2.00"]


# What the harness does for long calls ---------------------------------------------------------------------------


@pytest.mark.parametrize(("long", "calls"), [(0.5, 5), (float("inf"), 9)])
def test_a_long_call_is_not_made_more_often_than_needed(bench: SimpleNamespace, long: float, calls: int) -> None:
    """Once to see how long it takes, once before the first sample, then once a sample; else twice as often."""
    now, made = [0.0], []

    def run() -> None:
        made.append(1)
        now[0] += 1.0

    contender = bench._cases.Contender("slow", run, list)
    effort = bench._cases.Effort(sample=0.1, pause=0.0, min_rounds=3, max_rounds=3, budget=0.0, long=long)
    measured = bench.harness.measure([contender], effort, lambda: now[0])
    assert measured == {"slow": (1, [1.0] * 3)}
    assert len(made) == calls


# With PyTorch itself --------------------------------------------------------------------------------------------


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", SUBJECTS)
def test_pytorchs_contenders_are_right(bench: SimpleNamespace, name: str) -> None:
    import torch

    script, before = getattr(bench, name), torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        with gen_backend("cpu", rng_seed=0) as be:
            for layer in tiny(bench, name):
                for direction in script.DIRECTIONS:
                    case = script.make_case(be, layer, 3, direction)
                    able, results = bench.harness.check(case)
                    notes = {r.contender: r.note for r in results if r.contender != "neonlike"}
                    assert set(notes.values()) == {""}, notes
                    assert len([c for c in able if not c.ours]) == len(script.PEERS)
    finally:
        torch.set_grad_enabled(before)
