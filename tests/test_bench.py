"""Bench mode: what is recorded and reported, and that results and the way without it do not change."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import ENGINES, backend

from neonlike.backends import Backend, NervanaCPU, cleanup_backend, gen_backend
from neonlike.errors import ArgumentError, IndexRangeError
from neonlike.kernels import bench as recorder
from neonlike.kernels import bench_report, machine_rates
from neonlike.kernels.bench import SAMPLES, Bench, Row, make_bench
from neonlike.kernels.bench_engine import TimedEngine
from neonlike.kernels.machine_rates import MachineRates
from neonlike.logger import logger

RATES = MachineRates(threads=2, copy=10.0, gemm={"float32": 100.0, "float64": 50.0})


@pytest.fixture(autouse=True)
def known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of a machine that is not measured; nothing from the caller's environment."""
    monkeypatch.setattr(recorder, "machine_rates", lambda dtypes: RATES)
    monkeypatch.delenv("NEONLIKE_BENCH", raising=False)


@pytest.fixture(params=ENGINES)
def timed(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend in bench mode, on each engine."""
    for be in backend(request.param, bench=True):
        yield be
        assert be.bench is not None
        be.bench.clear()  # no table at the end


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is displayed."""
    found: list[str] = []
    monkeypatch.setattr(logger, "display", lambda message, *args: found.append(message % args))
    return found


class Clock:
    """A clock that moves by one millisecond whenever it is read, and by what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A recorder that shows nothing at exit."""
    made = Bench(clock=Clock())
    yield made
    made.clear()
    made.finish()


def the_row(be: Backend) -> Row:
    """The only row."""
    assert be.bench is not None
    (row,) = be.bench.rows()
    return row


# Results are unchanged ------------------------------------------------------------------------------------------


def results(be: Backend) -> list[bytes]:
    """Everything that a program with all kinds of stages computes, run in both ways."""
    rng = np.random.default_rng(3)
    a, b = (be.array(rng.standard_normal((48, 64))) for _ in range(2))
    square, small = be.array(rng.standard_normal((64, 64))), be.array(rng.standard_normal((64, 1)))
    index = be.array(rng.integers(0, 48, (5, 1)), dtype=np.int32)
    out, picked, mean = be.zeros((48, 64)), be.zeros((5, 64)), be.zeros((48, 1))
    runs: list[Callable[[], Any]] = [
        lambda: be.assign(out, be.sig(a * b + 0.5)),
        lambda: be.assign(out, be.exp(a - be.max(a, axis=1)) / be.sum(be.exp(a - be.max(a, axis=1)), axis=1)),
        lambda: be.assign(out, be.maximum(be.dot(a, square) + be.transpose(small), 0)),
        lambda: be.assign(out, be.rand() + b),
        lambda: be.assign(square, square.T + square),
        lambda: be.assign(picked, be.take(a, index, axis=0)),
        lambda: be.assign_many([(a, a + b), (b, a - b), (mean, be.mean(a, axis=1))]),
        lambda: be.assign(out[3:7, ::2], a[3:7, ::2] * 2),
        lambda: be.assign(out, 2),
        be.prepare(out, be.tanh(a) + be.rand()),
        be.prepare(out, be.dot(a, square) * small.T),
        be.prepare([(a, a * 0.9 + b), (b, b - a)]),
    ]
    found = []
    for run in runs:
        for _ in range(3):
            run()
            found += [t.get().tobytes() for t in (a, b, square, out, picked, mean)]
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_the_same_bit_for_bit(engine: str) -> None:
    found = []
    for option in (False, True):
        for be in backend(engine, bench=option):
            found.append(results(be))
            if be.bench is not None:
                assert sum(row.calls for row in be.bench.rows()) > 36
                be.bench.clear()  # no table at the end
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_without_bench_mode_nothing_is_wrapped(engine: str) -> None:
    for be in backend(engine):
        assert be.bench is None
        assert not isinstance(be.engine, TimedEngine)
        with be.bench_measure("primitive", [(2, 2)]):
            pass
        with pytest.raises(ArgumentError, match="bench=True"):
            be.bench_report()


def test_a_failed_call_is_not_recorded(timed: Backend) -> None:
    out, index = timed.zeros((1, 4)), timed.array([[9]], dtype=np.int32)
    with pytest.raises(IndexRangeError):
        out[:] = timed.take(timed.ones((3, 4)), index, axis=0)
    assert timed.bench is not None
    assert [row for row in timed.bench.rows() if "take" in row.name] == []
    assert out.get().sum() == 0


# What is recorded -----------------------------------------------------------------------------------------------


def test_an_assignment_is_one_row_with_its_bytes_and_flops(timed: Backend) -> None:
    a, b, out = (timed.ones((4, 6)) for _ in range(3))
    assert timed.bench is not None
    timed.bench.clear()
    for factor in (2, 3, 4):
        out[:] = timed.tanh(a * b) + factor
    row = the_row(timed)
    assert row.name == "(tanh((t0 * t1)) + c0)"
    assert (row.kind, row.dtype, row.inside) == ("loop", "float32", "")
    assert row.shapes == ((4, 6), (4, 6), (4, 6))
    assert (row.calls, row.nbytes) == (3, 3 * 3 * 24 * 4)
    assert row.flops >= 3 * 24 * 3
    assert row.seconds >= row.median > 0


def test_other_shapes_of_one_plan_are_other_rows(timed: Backend) -> None:
    tensors = [timed.ones((n, 8)) for n in (2, 3, 3)]
    assert timed.bench is not None
    timed.bench.clear()
    plans = len(timed.plans)
    for tensor in tensors:
        tensor[:] = tensor * 5
    assert len(timed.plans) == plans + 1
    assert {row.shapes[0]: row.calls for row in timed.bench.rows()} == {(2, 8): 1, (3, 8): 2}


def test_every_stage_has_its_row(timed: Backend) -> None:
    a, b, out = timed.ones((4, 6)), timed.ones((6, 5)), timed.ones((4, 5))
    assert timed.bench is not None
    timed.bench.clear()
    out[:] = timed.dot(a, b) - timed.max(out, axis=1)
    rows = {row.kind + row.name.split("(")[0]: row for row in timed.bench.rows()}
    product = next(row for row in timed.bench.rows() if row.kind == "product")
    assert product.name.endswith("= dot(t0, t1)")
    assert product.shapes == ((4, 6), (6, 5), (4, 5))
    assert product.flops == 2 * 4 * 6 * 5
    assert len(rows) == len(timed.bench.rows()) >= 2
    assert any("max(t2, axis=1)" in row.name for row in timed.bench.rows())


def test_a_product_that_is_only_stored_has_no_other_result(timed: Backend) -> None:
    a, b, out = timed.ones((4, 6)), timed.ones((6, 5)), timed.ones((4, 5))
    assert timed.bench is not None
    timed.bench.clear()
    out[:] = timed.dot(a, b)
    row = the_row(timed)
    assert (row.name, row.shapes) == ("dot(t0, t1)", ((4, 6), (6, 5), (4, 5)))


def test_a_target_that_is_still_read_costs_a_copy(timed: Backend) -> None:
    square = timed.ones((6, 6))
    assert timed.bench is not None
    timed.bench.clear()
    square[:] = square.T
    assert {row.name: row.nbytes for row in timed.bench.rows()}["copy to target"] == 2 * 36 * 4


def test_copies_and_fills_are_named(timed: Backend) -> None:
    a, out = timed.ones((3, 3)), timed.empty((3, 3))
    assert timed.bench is not None
    timed.bench.clear()
    out[:] = a
    out[:] = 7
    assert {row.name for row in timed.bench.rows()} == {"copy(t0)", "fill(c0)"}


@pytest.mark.parametrize("random", [False, True])
def test_prepared_assignments_are_recorded(timed: Backend, random: bool) -> None:
    a, out = timed.ones((3, 5)), timed.ones((3, 5))
    step = timed.prepare(out, timed.sum(timed.dot(a, a.T + 1), axis=1) * out + (timed.rand() if random else 0))
    assert timed.bench is not None
    timed.bench.clear()
    for _ in range(4):
        step()
    assert {row.calls for row in timed.bench.rows()} == {4}
    assert {row.kind for row in timed.bench.rows()} == {"loop", "product"}


def test_explain_works_as_ever(timed: Backend) -> None:
    a = timed.ones((3, 3))
    text = timed.explain(a * 2 + a)
    assert f"engine      {timed.engine.name}, 1 stage" in text
    assert ("#include" in text) == (timed.engine.name == "c")


def test_compiling_is_not_in_the_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The clock moves a million seconds where kernels are compiled; none of it is in a row."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path))
    for be in backend("c", bench=True):
        assert be.bench is not None
        be.bench.clock = clock = Clock()
        build_many = recorder_compile(be).build_many

        def slow(*arguments: Any) -> Any:
            clock.now += 1e6  # noqa: B023
            return build_many(*arguments)  # noqa: B023

        monkeypatch.setattr(recorder_compile(be), "build_many", slow)
        a = be.ones((3, 3))
        be.bench.clear()
        a[:] = be.tanh(a * 0.123) - 4.5 * a
        a[:] = be.tanh(a * 0.123) - 4.5 * a
        assert the_row(be).seconds < 1
        assert json.loads(be.bench_report("json"))["compiling_ms"] > 1e9
        be.bench.clear()


def recorder_compile(be: Backend) -> Any:
    """The module that bench mode compiles with."""
    return sys.modules[type(be.engine).__module__].compile_c


def test_threads_lose_no_call(timed: Backend) -> None:
    tensors = [timed.ones((4, 4)) for _ in range(8)]
    assert timed.bench is not None
    timed.bench.clear()
    ready = threading.Barrier(len(tensors))

    def work(tensor: Any) -> None:
        ready.wait()
        for _ in range(50):
            tensor[:] = tensor * 0.5 + 1

    threads = [threading.Thread(target=work, args=(tensor,)) for tensor in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert the_row(timed).calls == 8 * 50


# Compound primitives --------------------------------------------------------------------------------------------


def test_a_primitive_reports_itself(bench: Bench) -> None:
    for seconds in (1.0, 5.0, 2.0):
        bench.record("fprop_conv", [[3, 8], (5, 3)], seconds, 10, 40, "product", np.dtype("float32"))
    (row,) = bench.rows()
    assert (row.name, row.shapes, row.kind, row.dtype) == ("fprop_conv", ((3, 8), (5, 3)), "product", "float32")
    assert (row.calls, row.seconds, row.median, row.nbytes, row.flops) == (3, 8.0, 2.0, 30, 120)
    assert row.rate(row.flops) == pytest.approx(20e-9)
    assert row.rate(0) is None


def test_a_primitive_can_be_measured_with_its_kernels_as_parts(timed: Backend) -> None:
    a = timed.ones((4, 4))
    assert timed.bench is not None
    timed.bench.clear()
    with timed.bench_measure("outer", [(4, 4)], nbytes=64):
        a[:] = a * 2
        with timed.bench_measure("inner"):
            a[:] = a * 2
    a[:] = a * 2
    found = {(row.name, row.inside) for row in timed.bench.rows()}
    assert found == {
        ("outer", ""), ("inner", "outer"), ("(t0 * c0)", "outer"), ("(t0 * c0)", "inner"), ("(t0 * c0)", ""),
    }  # fmt: skip
    assert "2 kernels" in timed.bench_report()  # the parts are in the primitive's time already


def test_measuring_takes_the_time_of_the_block(bench: Bench) -> None:
    with bench.measure("block"):
        bench.clock()
    (row,) = bench.rows()
    assert row.seconds == pytest.approx(2e-3)


def test_a_block_that_raises_is_not_recorded_and_closed(bench: Bench) -> None:
    with pytest.raises(KeyError), bench.measure("broken"):
        raise KeyError
    bench.record("after", [], 1.0)
    (row,) = bench.rows()
    assert (row.name, row.inside) == ("after", "")


def test_blocks_of_threads_are_their_own(bench: Bench) -> None:
    with bench.measure("block"):
        thread = threading.Thread(target=bench.record, args=("elsewhere", [], 1.0))
        thread.start()
        thread.join()
    assert {row.name: row.inside for row in bench.rows()} == {"block": "", "elsewhere": ""}


def test_another_kind_is_refused(bench: Bench) -> None:
    with pytest.raises(ArgumentError, match="'loop' or 'product'"):
        bench.record("x", [], 1.0, kind="gemm")


def test_medians_are_over_the_latest_calls(bench: Bench) -> None:
    for seconds in [9.0] * SAMPLES + [1.0] * SAMPLES:
        bench.record("x", [], seconds)
    (row,) = bench.rows()
    assert (row.calls, row.median, row.seconds) == (2 * SAMPLES, 1.0, 10.0 * SAMPLES)


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
    assert facts["machine"] == {"threads": 2, "copy_gb_per_s": 10.0, "gemm_gflop_per_s": RATES.gemm}
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
    with pytest.raises(ArgumentError, match="NEONLIKE_BENCH: expected"):
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
    logger.addHandler(caplog.handler)
    try:
        made.finish()
    finally:
        logger.removeHandler(caplog.handler)
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
        cwd=Path(__file__).resolve().parent.parent,
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


# The machine ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_copy_copies_everything(threads: int) -> None:
    source, target = np.arange(1000.0), np.zeros(1000)
    run = machine_rates.copier(source, target, threads)
    for _ in range(2):
        target[:] = 0
        run()
        assert np.array_equal(source, target)


def test_the_threads_of_a_copy_end_with_it() -> None:
    before = set(threading.enumerate())
    run = machine_rates.copier(np.ones(10), np.zeros(10), 3)
    mine = [thread for thread in threading.enumerate() if thread not in before]
    assert len(mine) == 2
    run()
    del run
    for thread in mine:
        thread.join(10)
    assert [thread for thread in mine if thread.is_alive()] == []


def test_the_copy_is_measured_on_one_thread_where_no_other_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert machine_rates.machine_rates().threads == 1


def test_an_error_of_a_copy_is_raised() -> None:
    target = np.zeros(10)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        machine_rates.copier(np.ones(10), target, 2)()


def test_rates_are_measured_once() -> None:
    machine_rates.copy_rate.cache_clear()
    first = machine_rates.machine_rates(("float32",))
    assert machine_rates.machine_rates(("float32",)) == first
    assert first.copy > 0
    assert first.gemm["float32"] > 0
    assert machine_rates.copy_rate.cache_info().misses == 1
