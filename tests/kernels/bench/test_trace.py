"""The trace of kernels by thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from neonlike.backends import Backend
from neonlike.kernels.bench.recorder import Bench, collected, make_bench
from neonlike.kernels.bench.row import Row
from neonlike.kernels.bench.trace import DEVICE, Trace
from tests.support.recording import Clock, timed  # noqa: F401

pytestmark = [pytest.mark.engines("numpy", "c")]


@pytest.mark.cpu_only("a device's calls are on a line of its own, see below")
def test_calls_are_events_of_their_threads(timed: Backend, tmp_path: Path) -> None:
    assert timed.bench is not None
    timed.bench.trace = trace = Trace()
    a, b, out = timed.ones((8, 8)), timed.ones((8, 8)), timed.empty((8, 8))

    def work() -> None:
        with timed.bench_measure("whole", [(8, 8)]):
            out[:] = timed.dot(a, b) + 1

    work()
    other = threading.Thread(target=work, name="other")
    other.start()
    other.join()
    assert trace.write(tmp_path / "step.json") > 4
    written = json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))
    events = written["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    calls = [event for event in events if event["ph"] == "X"]
    assert written["displayTimeUnit"] == "ms" and len(calls) + len(names) + 1 == len(events)
    assert set(names.values()) == {"MainThread", "other"}
    assert {event["tid"] for event in calls} == set(names)
    assert all(event["dur"] > 0 and event["ts"] >= 0 and isinstance(event["pid"], int) for event in calls)
    assert [event["ts"] for event in calls] == sorted(event["ts"] for event in calls)
    for thread in names:
        mine = [event for event in calls if event["tid"] == thread]
        (whole,) = [event for event in mine if event["name"] == "whole"]
        inside = [event for event in mine if event["args"]["inside"] == "whole"]
        assert inside and {event["cat"] for event in mine} == {"loop", "product"}
        for event in inside:  # Perfetto draws a call below the one whose time contains it
            assert whole["ts"] <= event["ts"] and event["ts"] + event["dur"] <= whole["ts"] + whole["dur"]


class Later:
    """A time that a device tells when it is asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def test_calls_of_a_device_run_one_after_the_other() -> None:
    trace = Trace()
    trace.began = 0.0
    row = Row("kernel", "", "loop", "float32", ((4,),))
    for queued, seconds in ((1.0, 3.0), (2.0, 1.0), (9.0, 1.0)):
        trace.queued(row, queued, Later(seconds))
    calls = [event for event in trace.events() if event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in calls] == [(1e6, 3e6), (4e6, 1e6), (9e6, 1e6)]
    assert {event["tid"] for event in calls} == {DEVICE}


def test_without_a_trace_nothing_is_kept(timed: Backend) -> None:
    assert timed.bench is not None and timed.bench.trace is None


def test_a_collection_gets_the_recorders_that_are_made_in_it(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    trace = Trace()
    with collected(trace) as found:
        made, off, explicit = make_bench(), make_bench(False), make_bench(True)
    after = make_bench()
    assert found.recorders == [made, explicit] and off is None and after is None
    assert made is not None and made.trace is trace
    made.clock = Clock()
    made.record("mine", [(1,)], 1.0)
    made.finish()
    assert caplog.text == "", "who collects reports"


def test_reached(timed: Backend) -> None:
    """``explain`` tells what a stage has reached, once it ran."""
    a, out = timed.ones((16, 16)), timed.empty((16, 16))
    expression = timed.sig(a * 2 + 1)
    assert "reached" not in timed.explain(expression, out)
    out[:] = expression
    text = timed.explain(expression, out)
    assert "% of copy, " in text.split("reached ")[1] and "median of 1 calls" in text
    assert "% of copy" in text._repr_html_() and "<caption>" in text._repr_html_()


def test_seconds_at_the_rates_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with collected():
        bench = Bench()  # which then shows nothing at the end
    rates = bench._rates([])
    monkeypatch.setattr(bench, "_rates", lambda rows: rates)
    assert bench.seconds_and_best() == (0.0, 0.0)
    bench.record("copied", [(1,)], 2.0, nbytes=int(rates.copy * 1e9))
    bench.record("unknown", [(1,)], 5.0)
    assert bench.seconds_and_best() == (2.0, pytest.approx(1.0, rel=1e-3))
