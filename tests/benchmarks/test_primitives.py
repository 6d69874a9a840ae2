"""The benchmarks of compound primitives: their checks, options and summaries. Nothing here looks at a time."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neonlike.backends import gen_backend
from neonlike.backends.nervanacpu import NervanaCPU
from tests.benchmarks.modules import FOLDER, bench, run  # noqa: F401
from tests.benchmarks.primitives import SUBJECTS, script, tiny  # noqa: F401
from tests.support.recording import known_rates, shown  # noqa: F401

# Runs, with a stand-in for PyTorch ------------------------------------------------------------------------------


def test_titles_are_unique_and_those_of_quick_runs_are_known(bench: Any) -> None:
    for name in (*SUBJECTS, "pool_shapes"):
        suite = getattr(bench, name).SUITE
        titles = [layer.title for layer in suite.layers]
        assert len(titles) == len(set(titles))
        assert set(suite.quick) <= set(titles)
        assert len(suite.quick) == len(set(suite.quick)) > 0


def test_shapes_cover_what_convolutions_can_be(bench: Any) -> None:
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


def test_products_are_of_twenty_shapes_some_held_out(bench: Any) -> None:
    lists = bench._product_shapes
    texts = [shape.text for shape in (*lists.SHAPES, *lists.HELD_OUT)]
    assert len(texts) == len(set(texts)) == 20
    for shapes in (lists.SHAPES, lists.HELD_OUT):
        assert {shape.network for shape in shapes} == {"square", "layer", "wide", "deep", "shallow", "odd"}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_quick_run_checks_and_measures_everyone(
    script: Any, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, session = script(name, "--quick", "--batches", "3", "--json", str(tmp_path / "run.json"))
    assert status == 0
    rows = session.form.rows
    assert {row.direction for row in rows} == set(session.form.targets)
    batches = {"gemm": {0, 3}, "gemm_shapes": {0}, "conv_shapes": {1, 2, 3}, "int8": {0, 2}}
    assert {row.N for row in rows} == batches.get(name, {3})
    for row in rows:
        mine = row.results["neonlike"]
        assert mine.median is not None, mine.note
        assert mine.error <= 1e-4
        assert row.ratio is not None
        assert row.results["torch NCHW"].median is not None
    out = capsys.readouterr().out
    tables = "\n".join(line for N in {r.size for r in session.results} for line in session.form.table(session, N))
    for row in rows:
        assert re.search(rf"^{re.escape(row.layer.title)}, {re.escape(row.direction)} ", out, re.MULTILINE)
        assert f"| {row.layer.title} |" in tables
    written = json.loads((tmp_path / "run.json").read_text())
    assert len(written["results"]) >= 3 * len(rows)
    assert written["machine"]["SGEMM 2048, NumPy"].endswith("GFLOP/s")


def test_the_second_list_of_shapes_is_measured_if_asked_for(bench: Any) -> None:
    for suite, lists in (
        (bench.conv_shapes.SUITE, bench._conv_shapes), (bench.gemm_shapes.SUITE, bench._product_shapes),
    ):  # fmt: skip
        both = [*lists.SHAPES, *lists.HELD_OUT]
        for argv, shapes in (([], lists.SHAPES), (["--list", "held-out"], lists.HELD_OUT), (["--list", "all"], both)):
            planned = suite.plan(suite.parse([*argv, "--directions", "fprop"]))
            assert {title for title, _, _ in planned} == {shape.title for shape in shapes}


def test_a_wrong_result_of_ours_is_not_timed_and_fails(
    script: Any, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = bench.gemm.Multiplication.reference
    monkeypatch.setattr(bench.gemm.Multiplication, "reference", lambda problem: [a + 0.1 for a in right(problem)])
    status, session = script("gemm", "--quick")
    assert status == 1
    assert all(row.ours is None and row.ratio is None for row in session.form.rows)
    said = capsys.readouterr()
    assert "not timed, because it is wrong" in said.err
    assert "fprop: nothing to compare" in said.out


def test_a_call_that_computes_nothing_is_wrong(
    script: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are nan before the check, so that what an earlier call left there does not pass for it."""
    real = bench.lrn.Lrn.ours

    def ours(problem: Any, library: Any) -> Any:
        made = real(problem, library)
        made.run()
        return dataclasses.replace(made, run=list)

    monkeypatch.setattr(bench.lrn.Lrn, "ours", ours)
    assert script("lrn", "--quick", "--batches", "2")[0] == 1


def test_a_wrong_result_of_pytorch_is_told_and_its_other_layout_counts(script: Any) -> None:
    status, session = script("gemm", "--quick", factors={"torch NCHW": 1.1})
    assert status == 0
    for row in session.form.rows:
        assert row.results["torch NCHW"].median is None
        assert row.best is row.results["torch NHWC"]


def test_what_is_not_built_is_told(
    script: Any, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unfinished(problem: Any, library: Any) -> Any:
        raise NotImplementedError("later")

    for name, value, note in (
        ("needs", ("compound_dot", "no_such_primitive"), "not built: no_such_primitive"),
        ("needs", (), "not built: later"),
    ):
        monkeypatch.setattr(bench.gemm.Multiplication, name, value)
        monkeypatch.setattr(bench.gemm.Multiplication, "ours", unfinished)
        status, session = script("gemm", "--quick")
        assert status == 0
        assert {row.results["neonlike"].note for row in session.form.rows} == {note}
        assert f"{note}: neonlike\n" in capsys.readouterr().out


def test_all_that_is_needed_is_built(bench: Any) -> None:
    for name in SUBJECTS:
        for layer in tiny(bench, name):
            for direction in getattr(bench, name).SUITE.directions_of(layer):
                problem = getattr(bench, name).SUITE.problem(layer, layer.minibatch(2), direction)
                assert problem.needs and all(hasattr(NervanaCPU, method) for method in problem.needs)


def test_without_pytorch_a_script_says_what_to_install(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._suite, "installed", lambda name: False)
    for name in (*SUBJECTS, "company", "models"):
        assert getattr(bench, name).SUITE.main(["--quick"]) == 2
        said = capsys.readouterr()
        assert f"benchmarks/{name}.py compares with PyTorch, which is not installed" in said.err
        assert said.out == ""


def test_options_choose_layers_minibatches_and_directions(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, session = script("gemm", "--only", "fc", "--batches", "2,4", "--directions", "update,bprop")
    assert [(row.layer.title, row.N, row.direction) for row in session.form.rows] == [
        ("net fc", N, direction) for N in (2, 4) for direction in ("bprop", "update")
    ]
    _, session = script("gemm")
    squares = [row for row in session.form.rows if row.layer.network == "square"]
    assert [(row.N, row.direction) for row in squares] == [(0, "fprop")], "the minibatch makes no difference to them"
    for wrong in (["--directions", "sideways"], ["--only", "nothing"], ["--batches", "0"]):
        with pytest.raises(SystemExit):
            script("gemm", *wrong)
    assert "sideways" in capsys.readouterr().err


def test_results_and_picture_of_a_run(
    script: Any, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench._report, "RESULTS", tmp_path / "RESULTS.md")
    script("gemm", "--batches", "3", "--results", "--picture", str(tmp_path / "run.png"))
    text = (tmp_path / "RESULTS.md").read_text()
    assert "## gemm" in text
    assert "### N = 3" in text
    assert "| layer |  | times | fprop | bprop | update |" in text
    assert re.search(r"^\| net fc \| \(5, 7\) x \(7, N\) \| 1 \| [\d.]+ / [\d.]+; [\d.]+x; \d+% \|", text, re.MULTILINE)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_bench_mode_reports_the_kernels_of_ours(
    script: Any, monkeypatch: pytest.MonkeyPatch, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEONLIKE_BENCH", "0")  # and as it was afterwards
    script("pool", "--batches", "3")
    assert shown == []
    assert script("pool", "--batches", "3", "--bench")[0] == 0
    (table,) = shown
    assert "fprop_pool max" in table and "bprop_pool avg" in table
    with pytest.raises(SystemExit):
        script("pool", "--bench", "--results")
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_process_of_a_contender_reports_its_kernels() -> None:
    command = [sys.executable, str(FOLDER / "expressions.py"), "--bench", "--child", "neonlike assign"]
    asked = '["check", "sigmoid", 64, false]\n'
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["answer"]["verb"] == "elapsed", "answers are not mixed with the report"
    assert "sig(" in ended.stderr and "this machine: memory copy" in ended.stderr


# Ratios and means -----------------------------------------------------------------------------------------------


def rates_of(bench: Any, *rows: tuple[str, int, str, dict[str, float]], compute: bool = True, count: int = 1) -> Any:
    """Rates with rows (layer, N, direction, seconds of each contender); 1e9 operations each."""
    titles = dict.fromkeys(title for title, *_ in rows)
    layers = [bench._layers.conv2d(*title.split(), 64, 5, 64, 3, count=count) for title in titles]
    rates = bench._primitives.Rates(layers, {"fprop": 1.0, "bprop": 2.0}, compute)
    for title, N, direction, seconds in rows:
        rates.case([
            bench._cases.Result(
                f"{title}: {direction}", title, N, who, median=s, samples=[s] * 3, gb_per_s=2 / s, of_memory_copy=0.5,
                gflop_per_s=1 / s if compute else None,
            )
            for who, s in seconds.items()
        ])  # fmt: skip
    return rates


def test_pytorchs_faster_layout_counts(bench: Any) -> None:
    seconds = {"neonlike": 0.5, "torch NCHW": 2.0, "torch NHWC": 1.5, "numpy": 0.1}
    rates = rates_of(bench, ("net a", 32, "fprop", seconds))
    (row,) = rates.rows
    assert row.best.contender == "torch NHWC"
    assert row.ratio == pytest.approx(3.0)
    rates.sgemm_samples = [3.0, 4.0, 5.0]
    assert rates.share(row) == pytest.approx(2.0 / 4.0)
    assert row.ours.rate == pytest.approx(2.0)


def test_bandwidth_where_operations_do_not_count(bench: Any) -> None:
    rates = rates_of(bench, ("net a", 32, "fprop", {"neonlike": 0.5, "torch NCHW": 1.0}), compute=False)
    assert rates.rows[0].ours.rate == pytest.approx(4.0)
    assert rates.share(rates.rows[0]) == 0.5
    assert "GB/s" in rates.heading(32)


def test_ratios_are_taken_within_a_round(bench: Any) -> None:
    """So that a machine that becomes slower does not count."""
    rates = rates_of(bench, ("net a", 32, "fprop", {"neonlike": 1.0, "torch NCHW": 1.0}))
    results = rates.rows[0].results
    results["neonlike"].samples, results["torch NCHW"].samples = [1.0, 10.0, 4.0], [2.0, 20.0, 8.0]
    assert rates.rows[0].ratio == pytest.approx(2.0)


def test_geometric_means_and_networks(bench: Any) -> None:
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


def test_the_target_against_sgemm(bench: Any) -> None:
    rates = rates_of(
        bench, ("net a", 32, "fprop", {"neonlike": 1.0}), ("net b", 32, "fprop", {"neonlike": 0.5, "torch NCHW": 1.0})
    )
    assert bench.conv.of_sgemm(rates) == [], "SGEMM was not measured"
    rates.sgemm_samples = [2.0]
    assert bench.conv.of_sgemm(rates) == [
        "3x3 on 64 maps and more, share of SGEMM's rate: 1 of 2 reach 70%; net a fprop at 32 50%: MISSED"
    ]
    assert bench.conv.remarks(rates)[:1] == ["3x3 filters, PyTorch's time / ours: fprop 2.00"]


# With PyTorch itself --------------------------------------------------------------------------------------------


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", SUBJECTS)
def test_pytorchs_contenders_are_right(bench: Any, name: str) -> None:
    import torch

    suite, before = getattr(bench, name).SUITE, torch.is_grad_enabled()
    suite.layers = tiny(bench, name)
    torch.set_grad_enabled(False)
    try:
        with gen_backend("cpu", rng_seed=0) as be:
            for layer in suite.layers:
                for direction in suite.directions_of(layer):
                    for who in suite.contenders:
                        case = suite.make(be, who, layer.title, layer.minibatch(3), direction)
                        able, results = bench.harness.check(case)
                        assert len(able) == 1, results
    finally:
        torch.set_grad_enabled(before)
