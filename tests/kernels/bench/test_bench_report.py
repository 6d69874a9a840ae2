"""Bench mode: its reports, ways to turn it on, and output at the end."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neonlike.backends import NervanaCPU, cleanup_backend, gen_backend
from neonlike.errors import ArgumentError
from neonlike.kernels.bench import recorder
from neonlike.kernels.bench import report as bench_report
from neonlike.kernels.bench.machine_rates import MachineRates
from neonlike.kernels.bench.recorder import Bench, make_bench
from tests import ROOT
from tests.support.engines import needs_compiler, new_backend
from tests.support.recording import RATES, bench, known_rates, shown  # noqa: F401

# Reports --------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(bench: Bench) -> Bench:
    """A recorder with a loop, a product, parts and something unknown."""
    bench.record("relu", [(1000, 1000), (1000, 1000)], 0.001, 8_000_000, 1_000_000, "loop", "float32")
    bench.record("dot", [(10, 20), (20, 30), (10, 30)], 0.002, 100, 50_000_000, "product", "float16")
    bench.record("dot64", [(2, 2)], 0.004, 0, 50_000_000, "product", "float64")
    with bench.measure("a, b", [(7,)]):
        bench.record("part", [], 0.0005, kind="product", dtype="int32")
    return bench


def test_json_has_every_figure(filled: Bench) -> None:
    filled.engine = "c"
    facts = json.loads(filled.report("json"))
    assert facts["engine"] == "c"
    assert facts["machine"] == {"device": "", "threads": 2, "copy_gb_per_s": 10.0, "gemm_gflop_per_s": RATES.gemm}
    rows = {row["name"]: row for row in facts["rows"]}
    assert set(rows) == {"dot64", "dot", "a, b", "relu", "part"}
    assert rows["relu"] == {
        "name": "relu", "inside": "", "kind": "loop", "dtype": "float32", "shapes": [[1000, 1000]] * 2, "calls": 1,
        "total_ms": pytest.approx(1), "median_ms": pytest.approx(1), "gb_per_s": pytest.approx(8),
        "gflop_per_s": pytest.approx(1), "percent": pytest.approx(80), "percent_of": "copy",
    }  # fmt: skip
    assert (rows["dot"]["percent"], rows["dot"]["percent_of"]) == (pytest.approx(25), "gemm")
    assert (rows["dot64"]["percent"], rows["dot64"]["gb_per_s"]) == (pytest.approx(25), None)
    assert (rows["part"]["inside"], rows["part"]["percent"]) == ("a, b", None)


def test_rows_come_by_total_time(bench: Bench) -> None:
    for name, seconds in (("short", 0.5), ("long", 3.0), ("middle", 1.0), ("middle", 1.0)):
        bench.record(name, [], seconds)
    assert [row["name"] for row in json.loads(bench.report("json"))["rows"]] == ["long", "middle", "short"]


def test_csv_is_the_same_table(filled: Bench) -> None:
    read = list(csv.DictReader(io.StringIO(filled.report("csv"))))
    rows = json.loads(filled.report("json"))["rows"]
    assert tuple(read[0]) == tuple(rows[0]) == bench_report.COLUMNS
    for line, row in zip(read, rows, strict=True):
        assert (line["name"], line["inside"]) == (row["name"], row["inside"])
        for column in ("calls", "total_ms", "median_ms", "gb_per_s", "gflop_per_s", "percent"):
            assert (float(line[column]) if line[column] else None) == row[column]
    assert {line["name"]: line["shapes"] for line in read}["dot"] == "(10x20) (20x30) (10x30)"
    assert {line["name"]: line["shapes"] for line in read}["relu"] == "2*(1000x1000)"


def test_the_table_says_it_in_words(filled: Bench) -> None:
    filled.engine = "c"
    filled.add_compiling(0.25)
    lines = filled.report().splitlines()
    assert lines[0].split("  ")[0] == "kernel"
    relu = next(line for line in lines if line.startswith("relu")).split()
    assert relu == ["relu", "float32", "2*(1000x1000)", "1", "1.000", "1.0000", "8.00", "1.00", "80%", "of", "copy"]
    assert any(line.startswith("a, b: part") for line in lines)
    assert lines[-2].startswith("4 kernels on the c engine: 4 calls, ")
    assert lines[-2].endswith(", compiling 250 ms")
    assert lines[-1] == (
        "this machine: memory copy 10.0 GB/s on 2 threads, float32 product 100 GFLOP/s, float64 product 50 GFLOP/s"
    )


def test_long_names_are_cut_in_the_table_only(bench: Bench) -> None:
    bench.record("x" * 500, [(1, 1), (2, 2)] * 50, 1.0)
    assert max(map(len, bench.report().splitlines())) < 200
    (row,) = json.loads(bench.report("json"))["rows"]
    assert (len(row["name"]), len(row["shapes"])) == (500, 100)


def test_nothing_recorded_is_a_table_without_lines(bench: Bench) -> None:
    assert "0 kernels" in bench.report()
    assert json.loads(bench.report("json"))["rows"] == []
    assert bench.report("csv") == ",".join(bench_report.COLUMNS)


@pytest.mark.parametrize("suffix", ["txt", "json", "CSV"])
def test_the_suffix_of_a_file_says_the_format(filled: Bench, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report.{suffix}"
    text = filled.report(path=path)
    expected = filled.report({"txt": "text", "json": "json", "CSV": "csv"}[suffix])
    assert path.read_text(encoding="utf-8") == text + "\n" == expected + "\n"


def test_a_format_goes_before_the_suffix(filled: Bench, tmp_path: Path) -> None:
    filled.report("json", tmp_path / "report.log")
    assert json.loads((tmp_path / "report.log").read_text(encoding="utf-8"))["rows"]


def test_unknown_formats_are_refused(filled: Bench, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="xml"):
        filled.report("xml")
    with pytest.raises(ArgumentError, match=r"report\.log"):
        filled.report(path=tmp_path / "report.log")
    assert not list(tmp_path.iterdir())


def test_only_the_products_that_ran_are_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def rates(dtypes: tuple[str, ...]) -> MachineRates:
        asked.append(dtypes)
        return RATES

    monkeypatch.setattr(recorder, "machine_rates", rates)
    bench.record("loop", [], 1.0, dtype="float64")
    assert asked == []  # nothing is measured before a report
    bench.report()
    bench.record("dot", [], 1.0, kind="product", dtype="float16")
    bench.report()
    bench.record("dot", [], 1.0, kind="product", dtype="float64")
    bench.report()
    assert asked == [(), ("float32",), ("float32", "float64")]


@pytest.mark.engines("c")
@pytest.mark.cpu_only("the CPU's products in bfloat16")
def test_rounded_products_are_compared_with_rounded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is measured once factors are rounded, and again not when they are not."""
    needs_compiler()
    monkeypatch.setattr(recorder, "best_square_rate", lambda product, sizes: 400.0 if product(64)() else 0.0)
    be = new_backend(bench=True, product_precision="bfloat16")
    assert be.bench is not None
    be.bench.record("dot", [], 1.0, flops=10**11, kind="product", dtype="float32")
    be.bench.record("dot64", [], 1.0, flops=10**10, kind="product", dtype="float64")
    for precision, percent in (("bfloat16", 25), ("float32", 100), ("bfloat16", 25)):
        be.product_precision = precision
        report = json.loads(be.bench_report("json"))
        found = {row["name"]: row["percent"] for row in report["rows"]}
        assert found == {"dot": pytest.approx(percent), "dot64": pytest.approx(20)}
        assert ("bfloat16" in report["machine"]["gemm_gflop_per_s"]) == (precision == "bfloat16")
    be.bench.clear()


# Turning it on, and the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [True, 1, 2, "1"])
def test_bench_mode_is_turned_on(option: Any) -> None:
    made = make_bench(option)
    assert made is not None
    assert made.path is None
    made.finish()


@pytest.mark.parametrize("option", [False, 0, "0", ""])
def test_bench_mode_is_left_off(option: Any) -> None:
    assert make_bench(option) is None


@pytest.mark.parametrize("option", ["report.xml", "yes", 1.5, []])
def test_other_options_are_refused(option: Any) -> None:
    with pytest.raises(ArgumentError, match=r"bench: expected 0, 1 or a file that ends in \.txt"):
        make_bench(option)


def test_the_environment_decides_where_the_program_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEONLIKE_BENCH", str(tmp_path / "b.json"))
    with NervanaCPU() as first, NervanaCPU(bench=False) as second:
        assert first.bench is not None
        assert first.bench.path == str(tmp_path / "b.json")
        assert second.bench is None
    monkeypatch.setenv("NEONLIKE_BENCH", "yes")
    with pytest.raises(ArgumentError, match="NEONLIKE_BENCH=yes: expected"):
        NervanaCPU()


def test_cleaning_up_shows_the_table_once(shown: list[str]) -> None:
    be = gen_backend("cpu", rng_seed=0, bench=True)
    tensor = be.ones((2, 3))
    tensor[:] = tensor + 1
    cleanup_backend()
    be.cleanup_backend()
    assert len(shown) == 1
    assert "(t0 + c0)" in shown[0]
    assert be.bench_report() == shown[0]


def test_nothing_is_shown_if_nothing_ran(shown: list[str]) -> None:
    made = Bench()
    made.finish()
    assert shown == []


def test_each_backend_writes_a_file_of_its_own(shown: list[str], tmp_path: Path) -> None:
    for factor in (2, 3):
        with NervanaCPU(bench=tmp_path / "report.json") as be:
            tensor = be.ones((factor, 3))
            tensor[:] = tensor + 1
    names = [tmp_path / "report.json", tmp_path / "report-2.json"]
    found = [json.loads(name.read_text(encoding="utf-8"))["rows"] for name in names]
    assert [[row["shapes"] for row in rows if row["name"] == "(t0 + c0)"] for rows in found] == [
        [[[2, 3], [2, 3]]], [[[3, 3], [3, 3]]],
    ]  # fmt: skip
    assert shown == []


def test_a_file_that_cannot_be_written_is_shown_instead(
    shown: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Bench(str(tmp_path / "missing" / "report.csv"))
    made.record("x", [], 1.0)
    made.finish()
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "1 kernel on" in shown[0]


SCRIPT = """
from neonlike.backends import NervanaCPU, gen_backend
be = gen_backend('cpu', rng_seed=0)
tensor = be.ones((20, 30))
tensor[:] = be.sum(be.dot(tensor, tensor.T + 1), axis=1) * tensor
other = NervanaCPU()  # nobody cleans it up
forgotten = other.ones((5, 5))
forgotten[:] = forgotten * 2
"""


def test_a_process_reports_at_its_end(tmp_path: Path) -> None:
    """With rates measured for real, in threads, while the interpreter exits."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"NEONLIKE_BENCH": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout == ""
    assert made.stderr.count("this machine: memory copy") == 2
    assert "= dot(t0, " in made.stderr
    assert "% of gemm" in made.stderr
    assert "(5x5)" in made.stderr
    assert "Traceback" not in made.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_leaves_the_report_to_its_parent(shown: list[str]) -> None:
    made = Bench()
    made.record("x", [], 1.0)
    child = os.fork()
    if child == 0:  # pragma: no cover
        made.finish()
        os._exit(len(shown))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    made.finish()
    assert len(shown) == 1
