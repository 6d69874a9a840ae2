"""Bench mode on a device: events on the stream, read later, and the rates of the GPU; first with a made-up device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.errors import DeviceLost
from neonlike.kernels.bench import recorder
from neonlike.kernels.bench.machine_rates import MachineRates
from neonlike.kernels.bench.recorder import Bench
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.logger import logger
from tests.support.gpu.gpu_env import run_on_gpu
from tests.support.recording import Clock


class FakeMeter:
    """Device with marks that are numbers, one apart, and with a count of its requests."""

    def __init__(self) -> None:
        self.made = self.read = 0
        self.occupied: list[int] = []
        self.lost = False

    def occupy(self) -> None:
        self.occupied.append(self.made)

    def mark(self) -> int:
        self.made += 1
        return self.made

    def seconds(self, start: int, end: int) -> float:
        if self.lost:
            raise DeviceLost("GPU 0 was lost: made up")
        self.read += 1
        return float(end - start)

    def rates(self, dtypes: tuple[str, ...]) -> MachineRates:
        return MachineRates(0, 10.0, dict.fromkeys(dtypes, 100.0), "a GPU")


@pytest.fixture
def recording() -> Iterator[tuple[Bench, FakeMeter]]:
    """A recorder with a made-up device."""
    bench, meter = Bench(clock=Clock()), FakeMeter()
    bench.meter = meter
    yield bench, meter
    meter.lost = False
    bench.clear()
    bench.finish()


def measure(bench: Bench, times: int, **options: Any) -> None:
    for _ in range(times):
        with bench.measure("block", [(2, 2)], **options):
            pass


def test_times_are_read_when_somebody_asks(recording: tuple[Bench, FakeMeter]) -> None:
    bench, meter = recording
    measure(bench, 5)
    assert (meter.made, meter.read) == (10, 0)
    (row,) = bench.rows()
    assert (row.calls, row.seconds, meter.read) == (5, 5.0, 5)


def test_the_oldest_times_are_read_before_there_are_too_many(recording: tuple[Bench, FakeMeter]) -> None:
    bench, meter = recording
    measure(bench, 3 * recorder.PENDING)
    assert 0 < meter.made // 2 - meter.read <= recorder.PENDING
    assert bench.rows()[0].calls == 3 * recorder.PENDING


def test_clearing_forgets_what_is_not_read_yet(recording: tuple[Bench, FakeMeter]) -> None:
    bench, _ = recording
    measure(bench, 3)
    bench.clear()
    assert bench.rows() == []


def test_the_device_is_kept_busy_until_a_measured_call_is_queued(recording: tuple[Bench, FakeMeter]) -> None:
    """The device waits before the first mark of a call, not within the call, where its time would count."""
    bench, meter = recording
    with bench.measure("outer"), bench.measure("inner"):
        pass
    measure(bench, 1)
    assert meter.occupied == [0, 4]


def test_a_primitive_takes_no_longer_for_what_was_compiled_in_it(recording: tuple[Bench, FakeMeter]) -> None:
    """Marks are a second apart: outer has two pauses of one each, and inner one of them."""
    bench, meter = recording
    with bench.measure("outer"):
        with bench.compiling():
            pass
        with bench.measure("inner"), bench.compiling():
            pass
    with bench.compiling():  # in no primitive: no mark is needed
        pass
    assert {row.name: row.seconds for row in bench.rows()} == {"outer": 5.0, "inner": 2.0}
    assert (meter.made, meter.read) == (8, 4)
    assert "compiling" in bench.report()


def test_a_lost_device_costs_times_and_no_report(
    recording: tuple[Bench, FakeMeter], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, meter = recording
    said: list[str] = []
    monkeypatch.setattr(logger, "error", lambda message, *args: said.append(message % args))
    measure(bench, 3)
    bench.rows()
    measure(bench, 4)
    meter.lost = True
    assert bench.rows()[0].calls == 3
    assert said == ["bench mode: the times of the last 4 calls are lost: GPU 0 was lost: made up"]


def test_the_report_is_set_against_the_device(recording: tuple[Bench, FakeMeter]) -> None:
    bench, _ = recording
    measure(bench, 1, kind="product", dtype="float16", flops=25 * 10**9)
    measure(bench, 1, kind="product", dtype="int32", flops=10**10)
    text = bench.report()
    assert "25% of gemm" in text
    assert text.endswith("a GPU: memory copy 10.0 GB/s, float16 product 100 GFLOP/s, float32 product 100 GFLOP/s")
    machine = json.loads(bench.report("json"))["machine"]
    assert (machine["device"], machine["gemm_gflop_per_s"]) == ("a GPU", {"float16": 100.0, "float32": 100.0})


# On a GPU -------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(gpu_driver: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A GPU backend in bench mode; its rates are measured on little data."""
    from neonlike.backends.gpu.device import meter

    monkeypatch.setattr(meter, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(meter, "GEMM_SIZES", {64: 1.0})
    monkeypatch.setattr(meter, "_rates", {})
    be = gen_backend("gpu", rng_seed=0, batch_size=16, bench=True)
    yield be
    assert be.bench is not None
    be.bench.clear()
    cleanup_backend()


def results(be: Backend) -> list[bytes]:
    rng = np.random.default_rng(3)
    a, b = (be.array(rng.standard_normal((16, 24))) for _ in range(2))
    square, out = be.array(rng.standard_normal((24, 24))), be.zeros((16, 24))
    step = be.prepare([(a, a * 0.9 + b), (b, b - a)])
    random = be.prepare(out, be.tanh(be.dot(a, square)) + be.rand())
    found = []
    for _ in range(3):
        step()
        random()
        found.append(out.get().tobytes())
        out[:] = be.exp(a - be.max(a, axis=1)) / be.sum(be.exp(a - be.max(a, axis=1)), axis=1)
        square[:] = square.T + 1
        be.compound_dot(a, square, out)
        found += [tensor.get().tobytes() for tensor in (a, b, square, out)]
    return found


@pytest.mark.usefixtures("gpu_driver")
def test_results_are_the_same_bit_for_bit() -> None:
    found = []
    for option in (False, True):
        with gen_backend("gpu", rng_seed=0, batch_size=16, bench=option) as be:
            found.append(results(be))
            if be.bench is not None:
                assert sum(row.calls for row in be.bench.rows()) >= 15
                be.bench.clear()
    assert found[0] == found[1]


def test_every_kernel_and_primitive_has_its_row(timed: Backend) -> None:
    assert timed.bench is not None
    timed.bench.clear()
    results(timed)
    rows = {row.name: row for row in timed.bench.rows()}
    assert rows["compound_dot"].calls == 3
    assert rows["copy to target"].calls == 3
    assert {row.kind for row in rows.values()} == {"loop", "product"}
    assert all(0 < row.median <= row.seconds for row in rows.values())
    text = timed.bench_report()
    assert timed.device.name in text.splitlines()[-1]
    assert "float32 product" in text.splitlines()[-1]


def test_first_calls_take_no_longer_than_later_ones(
    timed: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The device's time moves a million seconds where a kernel is compiled or loaded; none of it is in a row."""
    bench: Any = timed.bench
    clock = Clock()
    meter = FakeMeter()
    meter.mark, bench.clock = clock, clock  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(bench, "meter", meter)
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path))
    for where, name in ((compile_cuda, "build_cubin"), (timed.device, "load")):
        real = getattr(where, name)

        def slow(*arguments: Any, real: Any = real) -> Any:
            clock.now += 1e6
            return real(*arguments)

        monkeypatch.setattr(where, name, slow)
    timed.executor.clear()
    bench.clear()
    a, out = timed.array(np.eye(4) * 0.25), timed.zeros((4, 4))
    out[:] = timed.exp(a * 0.375) - timed.sum(a + 0.625, axis=1)
    with timed.bench_measure("own"):
        timed.prepare(out, timed.dot(a, a) * timed.sum(out * 3.5, axis=0))()
    timed.compound_dot(a, a, out, relu=True)
    rows = bench.rows()
    assert {"compound_dot", "own"} < {row.name for row in rows}
    assert all(row.seconds < 1 for row in rows), [(row.name, row.seconds) for row in rows]
    assert json.loads(timed.bench_report("json"))["compiling_ms"] > 1e9


def test_marks_are_used_again(timed: Backend) -> None:
    assert timed.bench is not None
    meter: Any = timed.bench.meter
    a = timed.ones((4, 4))
    timed.bench.clear()
    for _ in range(3):
        for _ in range(5):
            a[:] = a * 2
        timed.bench.rows()
        kept = len(meter._free)
    assert kept == len(set(map(id, meter._free))) == 10


def test_a_primitive_tells_its_time_without_waiting_for_it(timed: Backend) -> None:
    a, out = timed.ones((8, 8)), timed.zeros((8, 8))
    rate: Any = timed._run_primitive("outer", lambda: timed.assign(out, a * 2), [out], flops=64)
    milliseconds, gflops = rate
    assert milliseconds > 0
    assert gflops == pytest.approx(64 / milliseconds / 1e6)
    repeated: Any = timed._run_primitive("outer", lambda: timed.assign(out, out * 2), [out], flops=64, repeat=3)
    assert repeated[0] > 0
    assert out.get().max() == 4, "each run starts from the values there were"


@pytest.mark.usefixtures("gpu_driver")
def test_the_report_comes_when_the_process_ends() -> None:
    code = """
from neonlike.backends import gen_backend
from neonlike.backends.gpu.device import meter
meter.COPY_BYTES = 1 << 20
be = gen_backend("gpu")
a = be.ones((8, 8))
a[:] = a * 2
"""
    done = run_on_gpu(code, NEONLIKE_BENCH="1")
    assert done.returncode == 0, done.stderr
    assert "(t0 * c0)" in done.stdout + done.stderr
    assert "memory copy" in done.stdout + done.stderr
