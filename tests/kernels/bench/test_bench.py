"""Bench mode: its records, and unchanged results and paths without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import pool
from neonlike.backends.cpu.primitives.conv import hooks as conv
from neonlike.errors import ArgumentError, IndexRangeError
from neonlike.kernels.bench.engine import TimedEngine
from neonlike.kernels.bench.recorder import Bench
from neonlike.kernels.bench.row import SAMPLES, Row
from neonlike.kernels.c import gemm, gemm_blas, routine
from tests.support.engines import ON_GPU, backend
from tests.support.recording import Clock, bench, known_rates, shown, timed  # noqa: F401

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.backend]


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


def test_results_are_the_same_bit_for_bit(engine: str) -> None:
    found = []
    for option in (False, True):
        for be in backend(engine, bench=option):
            found.append(results(be))
            if be.bench is not None:
                assert sum(row.calls for row in be.bench.rows()) > 36
                be.bench.clear()  # no table at the end
    assert found[0] == found[1]


def test_without_bench_mode_nothing_is_wrapped(engine: str) -> None:
    for be in backend(engine):
        assert be.bench is None
        assert not isinstance(be.engine, TimedEngine)
        with be.bench_measure("primitive", [(2, 2)]):
            pass
        with pytest.raises(ArgumentError, match="bench=True"):
            be.bench_report()


def test_the_mode_may_be_switched_as_neons_scripts_do(engine: str, shown: list[str]) -> None:
    for be in backend(engine):
        a, out = be.ones((4, 4)), be.empty((4, 4))

        def step() -> Any:
            out[:] = be.compound_dot(a, a, out, repeat=1) * 2  # noqa: B023
            return be.fprop_lrn(be.lrn_layer(np.float32, 4, 4), a, out, be.empty((4, 4)))  # noqa: B023

        for off in (False, 0, None):
            for _ in range(5):
                assert step() is None and be.bench is None
            be.bench = True
            recorder = be.bench
            assert isinstance(be.engine, TimedEngine)
            for on in (1, 2, recorder):
                be.bench = on
                assert len(step()) == 2 and be.bench is recorder
            with pytest.raises(ArgumentError, match="bench: expected"):
                be.bench = "yes"
            assert be.bench is recorder
            be.bench = off
        lrn = [row for row in recorder.rows() if row.name == "fprop_lrn"]
        assert [row.calls for row in lrn] == [9]
        assert "compound_dot" in be.bench_report()
        assert shown == []
    assert len(shown) == 1 and "fprop_lrn" in shown[0]


def test_a_failed_call_is_not_recorded(timed: Backend) -> None:
    out, index = timed.zeros((1, 4)), timed.array([[9]], dtype=np.int32)
    with pytest.raises(IndexRangeError):
        out[:] = timed.take(timed.ones((3, 4)), index, axis=0)
        timed.synchronize()
    if ON_GPU:  # where it failed when it had been recorded
        return
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
    assert ("#include" in text) == (timed.engine.name in ("c", "cuda"))


@pytest.mark.cpu_only("the C compiler and its cache")
def test_compiling_is_not_in_the_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The clock moves a million seconds where kernels are compiled; none of it is in a row."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path))
    for be in backend("c", bench=True):
        assert be.bench is not None
        be.bench.clock = clock = Clock()
        engine: Any = be.engine.engine
        build = engine.build

        def slow(kernel: Any) -> Any:
            clock.now += 1e6  # noqa: B023
            return build(kernel)  # noqa: B023

        monkeypatch.setattr(engine, "build", slow)
        a = be.ones((3, 3))
        be.bench.clear()
        a[:] = be.tanh(a * 0.123) - 4.5 * a
        a[:] = be.tanh(a * 0.123) - 4.5 * a
        assert the_row(be).seconds < 1
        assert json.loads(be.bench_report("json"))["compiling_ms"] > 1e9
        be.bench.clear()


@pytest.mark.cpu_only("the C compiler and its cache")
@pytest.mark.parametrize("what", ["convolution", "pooling", "product", "product in a block"])
def test_compiling_routines_is_not_in_the_rows(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows exclude the compilation of routines for compound primitives and products, known only while they run."""
    for be in backend("c", bench=True):
        assert be.bench is not None
        be.bench.clock = clock = Clock()
        load = routine.load_function

        def slow(*given: Any) -> Any:
            clock.now += 1e6  # noqa: B023
            return load(*given)  # noqa: B023

        monkeypatch.setattr(routine, "load_function", slow)
        tables = [kernels.routine for table in (conv.DATA, conv.UPDATE) for kernels in table.values()]
        for made in (*tables, *vars(pool).values(), *vars(gemm).values(), *vars(gemm_blas).values()):
            if isinstance(made, routine.Routine):
                monkeypatch.setattr(made, "variants", {})
        run = compiled_while_they_run(be, what)
        be.bench.clear()
        run()
        run()
        assert clock.now > 1e6
        rows = be.bench.rows()
        assert {row.calls for row in rows} == {2} and max(row.seconds for row in rows) < 1
        assert json.loads(be.bench_report("json"))["compiling_ms"] > 1e9
        be.bench.clear()


def compiled_while_they_run(be: Backend, what: str) -> Callable[[], Any]:
    """A call whose first one compiles a routine."""
    if what == "convolution":
        layer: Any = be.conv_layer(None, 8, 3, 5, H=6, W=6, R=3, S=3)
        I, F, O = be.ones(layer.dimI2), be.ones(layer.dimF2), be.empty(layer.dimO2)  # noqa: E741
        return lambda: be.fprop_conv(layer, I, F, O)
    if what == "pooling":
        layer = be.pool_layer(None, "avg", 8, 3, H=6, W=6, R=3, S=3)
        I, O = be.ones(layer.dimI2), be.empty(layer.dimO2)  # noqa: E741
        return lambda: be.fprop_pool(layer, I, O)
    a, b, c = be.ones((256, 256)), be.ones((256, 256)), be.empty((256, 256))
    if what == "product":
        return lambda: be.assign(c, be.dot(a, b))

    def block() -> None:
        with be.bench_measure("block"):
            c[:] = be.dot(a, b)

    return block


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
