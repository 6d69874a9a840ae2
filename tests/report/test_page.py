"""The page about runs: what is in it, and what it says of what is missing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from neonlike.__main__ import main
from neonlike.errors import ArgumentError, MissingExtra
from neonlike.kernels.bench.recorder import collected
from neonlike.optimizers.base import get_param_list
from neonlike.report.run import Run, RunCurve, RunHistogram, read_file, read_store
from neonlike.report.write import report_text, write_report
from tests.report.conftest import CLASSES, EPOCHS, N
from tests.report.reader import Page

pytestmark = pytest.mark.cpu_only("a page is the same for any backend")


class Whole(NamedTuple):
    """A report with every section, the run that it is about, and the network's answers to the evaluation data."""

    page: Page
    text: str
    run: Run
    costs: dict[str, np.ndarray]
    parameters: int
    seed: str
    outputs: np.ndarray
    labels: np.ndarray
    pixels: np.ndarray
    measured: list[str]


kept: dict[str, Whole] = {}
"""The report by the name of its engine: all tests look at one."""


@pytest.fixture
def whole(be: Any, training: Any, tmp_path: Path) -> Whole:
    """A report that a training in bench mode wrote."""
    name = be.executor.own_engine.name
    if name not in kept:
        with collected():  # whose table is not shown at the end
            be.bench = True
        path = tmp_path / "made" / "run.html"
        callbacks = training.callbacks(report=path)
        training.fit(callbacks)
        be.bench = False
        text, store, valid = path.read_text(encoding="utf-8"), callbacks.callback_data, training.valid
        ends = store["time_markers/minibatch"][...].astype(int)
        costs = {"loss": store["cost/loss"][...], "train": store["cost/train"][...][ends - 1]}
        measured = [layer.name for layer in training.model.layers.layers_fprop() if "fprop" in vars(layer)]
        kept[name] = Whole(
            Page(text), text, read_store(store, "run"), costs, sum(p.value.size for p in training.model.parameters()),
            str(be.rng_seed), training.model.get_outputs(valid), valid.ydev.get()[:, 0].astype(int),
            valid.Xdev[0].get(), measured,
        )  # fmt: skip
    return kept[name]


class TestWhole:
    """A report that the training itself writes."""

    def test_it_is_whole_and_readable_without_eyes(self, whole: Whole) -> None:
        assert whole.page.faults == []
        assert whole.page.headings[0] == "Report of run" and len(whole.page.headings) >= 12
        charts = whole.page.charts
        assert len(charts) >= 8 and all(len(alt) > 20 for alt in charts) and len(set(charts)) == len(charts)
        assert len(re.findall("<figcaption>(?!.*<br>)", whole.text)) == whole.text.count("Numbers of this chart") >= 8

    def test_it_needs_no_other_file(self, whole: Whole) -> None:
        assert len(whole.text) < 2_000_000
        found = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^">)\s]+)', whole.text)
        assert found and [link for link in found if not link.startswith(("#", "data:"))] == []
        assert "<script" not in whole.text and "@import" not in whole.text

    def test_the_curves_are_those_of_the_record(self, whole: Whole) -> None:
        (costs,) = [table for table in whole.page.tables if table[0] == ["epoch", "loss", "train"]]
        assert [row[0] for row in costs[1:]] == [str(epoch) for epoch in range(1, EPOCHS + 1)]
        assert [float(row[1]) for row in costs[1:]] == pytest.approx(whole.costs["loss"], rel=1e-5)
        assert [float(row[2]) for row in costs[1:]] == pytest.approx(whole.costs["train"], rel=1e-5)
        (rates,) = [table for table in whole.page.tables if table[0] == ["epoch", "rate"]]
        assert [float(row[1]) for row in rates[1:]] == pytest.approx([0.1, 0.1, 0.05, 0.05])

    def test_the_confusion_matrix_counts_each_sample(self, whole: Whole) -> None:
        expected = np.zeros((CLASSES, CLASSES), int)
        np.add.at(expected, (whole.labels[: 3 * N - 1], whole.outputs.argmax(axis=1)), 1)
        np.testing.assert_array_equal(whole.run.confusion, expected)
        assert expected.sum() == 3 * N - 1
        (table,) = [table for table in whole.page.tables if table[0][:2] == ["class", "answer 0"]]
        assert [[int(cell) for cell in row[1:]] for row in table[1:]] == expected.tolist()

    def test_wrong_samples_are_shown_with_their_classes(self, whole: Whole) -> None:
        counts = whole.run.confusion
        assert counts is not None and len(whole.page.images) == counts.sum() - np.trace(counts) > 0
        for alt in whole.page.images:
            match = re.fullmatch(r"sample (\d+), (\d), answered (\d)", alt)
            assert match is not None
            sample, truth, answer = map(int, match.groups())
            assert whole.labels[sample] == truth and whole.outputs[sample].argmax() == answer != truth

    def test_a_wrong_sample_has_its_own_pixels(self, whole: Whole) -> None:
        samples = whole.run.wrong["samples"]
        pixels = whole.pixels[samples[0]["index"]].reshape(8, 8)
        scaled = np.rint(255 * (pixels - pixels.min()) / np.ptp(pixels))
        np.testing.assert_allclose(whole.run.images[0], scaled, atol=1)
        sure = [one["output"] for one in samples]
        assert sure == sorted(sure, reverse=True)

    def test_times_memory_and_kernels(self, whole: Whole) -> None:
        step = whole.run.step
        assert {entry["pass"] for entry in step["times"]} == {"fprop", "bprop"}
        assert whole.measured == [], "the layers are as they were before"
        assert all(entry["ms"] > 0 for entry in step["times"]) and any(entry["share"] for entry in step["times"])
        assert all(used > 0 for _, _, used, _ in step["memory"])
        assert whole.page.has("memory copy") and any(table[0][0] == "kernel" for table in whole.page.tables)

    def test_the_network_and_the_facts(self, whole: Whole) -> None:
        (network,) = [table for table in whole.page.tables if table[0][:2] == ["layer", "kind"]]
        assert [row[1] for row in network[1:]].count("Linear") == 2
        assert sum(int(row[4].replace(",", "")) for row in network[1:]) == whole.parameters
        facts = {row[0]: row[1] for table in whole.page.tables for row in table if len(row) == 2}
        assert facts["rng_seed of the backend"] == whole.seed
        assert facts["batch size"] == str(N) and facts["NumPy"] == np.__version__
        assert os.path.basename(sys.executable) in facts["command"]
        assert "StepSchedule" in facts["optimizer"] and "learning_rate=0.1" in facts["optimizer"]


def test_a_report_leaves_the_training_as_it_is(be: Any, training: Any, tmp_path: Path) -> None:
    def weights(**options: Any) -> list[np.ndarray]:
        be.gen_rng(7)
        one = type(training)(np.random.default_rng(0))
        one.fit(one.callbacks(**options))
        return [parameter.get() for (parameter, _), _ in get_param_list(one.model.layers_to_optimize)]

    plain, reported = weights(), weights(report=tmp_path / "run.html", output_file=str(tmp_path / "run.h5"))
    for one, other in zip(plain, reported, strict=True):
        np.testing.assert_array_equal(one, other)


class TestCommand:
    """The command `neonlike report`."""

    def test_a_page_of_one_file(self, run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", str(run_file)]) == 0
        path = run_file.with_suffix(".html")
        assert capsys.readouterr().out.strip() == str(path)
        page = Page(path.read_text(encoding="utf-8"))
        assert page.faults == [] and page.headings[0] == "Report of run"
        assert page.has("add_hist_callback") and page.has("NEONLIKE_BENCH=1"), "how to get what is missing"

    def test_several_runs_are_drawn_over_one_another(self, run_file: Path, training: Any, tmp_path: Path) -> None:
        other = tmp_path / "other.h5"
        training.model.epoch_index = 0
        training.fit(training.callbacks(output_file=str(other), metric=None), 2)
        assert main(["report", str(run_file), str(other), "-o", str(tmp_path / "both.html")]) == 0
        page = Page((tmp_path / "both.html").read_text(encoding="utf-8"))
        assert page.faults == []
        head = ["epoch", "run loss", "run train", "other loss", "other train"]
        (costs,) = [table for table in page.tables if table[0] == head]
        assert len(costs) == 1 + EPOCHS and costs[-1][3:] == ["", ""]
        assert page.headings.count("other") >= 4

    @pytest.mark.usefixtures("undrawn")
    def test_runs_of_one_name_are_numbered(self, run_file: Path, tmp_path: Path) -> None:
        runs = [read_file(run_file), read_file(run_file)]
        assert "Report of run (1), run (2)" in report_text(runs)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, r"there is no file .*run\.h5; give one"),
            (b"", "no HDF5 file, or damaged"),
            (b"no HDF5 at all", "no HDF5 file, or damaged"),
            ("cut", "no HDF5 file, or damaged"),
            ("other", "no record of a run"),
        ],
    )
    def test_what_is_no_run(
        self, content: Any, message: str, run_file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if content is None:
            run_file.unlink()
        elif content == "cut":
            run_file.write_bytes(run_file.read_bytes()[:3000])
        elif content == "other":
            with h5py.File(run_file, "w") as file:
                file["x"] = 1
        else:
            run_file.write_bytes(content)
        assert main(["report", str(run_file)]) == 1
        assert re.match("neonlike report: .*" + message, capsys.readouterr().err)
        assert not run_file.with_suffix(".html").exists()

    def test_the_page_does_not_replace_the_run(self, run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = run_file.read_bytes()
        assert main(["report", str(run_file), "-o", str(run_file)]) == 1
        assert "is one of the runs" in capsys.readouterr().err and run_file.read_bytes() == before

    def test_an_empty_run(self, training: Any, tmp_path: Path) -> None:
        callbacks = training.callbacks(output_file=str(tmp_path / "run.h5"))
        training.model.nbatches, training.model.ndata = training.train.nbatches, training.train.ndata
        training.fit(None, 0)
        callbacks.on_train_begin(3)
        callbacks.on_train_end()
        page = Page(report_text([read_file(tmp_path / "run.h5")]))
        assert page.faults == [] and page.has("No epoch is complete") and page.has("0 of 3")

    def test_a_file_without_what_this_version_records(self, run_file: Path) -> None:
        with h5py.File(run_file, "r+") as file:
            del file["run"], file["rate"]
        page = Page(report_text([read_file(run_file)]))
        assert page.faults == [] and page.has("older version")

    def test_names_are_escaped(self, run_file: Path) -> None:
        script = "<script>alert(1)</script>"
        run = read_file(run_file)
        run.name = "<b>&"
        run.facts["training"]["command"] = script
        run.facts[script] = {script: script}
        run.histograms = [RunHistogram(script, np.full((64, 2), count), -48, False) for count in (0, 1)]
        run.wrong["names"] = {str(number): script for number in range(CLASSES)}
        for entry in (*run.network["rows"], *run.step["times"]):
            entry["name" if "name" in entry else "layer"] = script
        row = dict.fromkeys(("name", "dtype", "inside", "percent_of"), script) | {"shapes": [[1]], "calls": 1}
        row |= {"total_ms": 1.0, "median_ms": 1.0, "gb_per_s": None, "gflop_per_s": None, "percent": 1.0}
        machine = {"gemm_gflop_per_s": {script: 1.0}, "device": script, "threads": 1, "copy_gb_per_s": 1.0}
        run.bench = {"rows": [row], "machine": machine, "engine": script}
        text = report_text([run])
        assert "<b>&" not in text and "<script" not in text.lower() and Page(text).faults == []

    @pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz draws the graph")
    def test_links_of_a_graph_are_left_out(self, run_file: Path) -> None:
        run = read_file(run_file)
        run.network["dot"] = """digraph { a [label="<b> a > b", URL="javascript:alert(1)", tooltip="t> onload=1"]
            b [label=<<TABLE><TR><TD HREF="https://example.org">inner</TD></TR></TABLE>>, target="_blank"]
            a -> b [href="data:text/html,x", label=" onclick=1 ", image="x.png"]
            c [fontname="f\\" onload=\\"alert(2)"] d [fontname="f\\"><script>alert(3)</script></text><text y=\\""] }"""
        text = report_text([run])
        page = Page(text)
        assert page.faults == [] and all(link.startswith("#") for link in page.links)
        assert not re.findall("javascript|alert|text/html|x[.]png|example.org|<a xlink", text)
        assert page.has("<b> a > b") and page.has("inner") and page.has("onclick=1"), "texts of the graph stay"


def test_a_long_run_is_a_small_page() -> None:
    """A browser shows a page of this size at once: 100 epochs of 20 metrics, and 100 000 minibatches."""
    epochs, batches = np.arange(100) + 0.99, np.arange(100_000) / 1000
    run = Run("long", 100, 100, 100_000)
    run.curves = [RunCurve("metrics", f"metric {i}", epochs, np.sin(epochs + i), False) for i in range(20)]
    run.curves.append(RunCurve("cost", "train", batches, np.sin(batches * 100), True))
    run.histograms = [RunHistogram("layer_0_W", np.ones((64, 5000)), -48, True)]
    text = report_text([run])
    assert len(text) < 600_000
    page = Page(text)
    assert page.faults == [] and [len(table) for table in page.tables].count(101) == 21


def test_without_matplotlib(training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"neonlike\[viz\]"):
        training.callbacks(report=tmp_path / "run.html")


def test_a_folder_that_cannot_be_written(training: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot be written"):
        training.callbacks(report=tmp_path / "file" / "run.html")


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no runs"):
        write_report(tmp_path / "x.html", [])


@pytest.mark.usefixtures("undrawn")
def test_a_report_that_cannot_be_written_at_the_end_is_an_error_in_the_log(
    training: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = training.callbacks(report=tmp_path / "gone" / "run.html")
    (tmp_path / "gone").rmdir()
    (tmp_path / "gone").touch()
    training.fit(callbacks, 1)
    assert training.model.epoch_index == 1 and "the report cannot be written" in caplog.text


def test_an_unforeseen_fault_of_a_report_leaves_the_training_and_its_record_whole(
    training: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a chart failed")

    monkeypatch.setattr("neonlike.report.write.report_text", fail)
    callbacks = training.callbacks(report=tmp_path / "run.html", output_file=str(tmp_path / "run.h5"))
    training.fit(callbacks, 1)
    assert "a chart failed" in caplog.text and not callbacks.callback_data, "the file is closed"


@pytest.mark.parametrize("ends", ["on_train_end", "on_interrupt"])
@pytest.mark.usefixtures("undrawn")
def test_the_record_is_closed_whatever_a_report_raises(
    ends: str, training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    callbacks = training.callbacks(report=tmp_path / "run.html", output_file=str(tmp_path / "run.h5"))
    training.fit(callbacks, 1)
    monkeypatch.setattr("neonlike.report.write.report_text", fail)
    callbacks.on_train_begin(2)
    with pytest.raises(KeyboardInterrupt):
        getattr(callbacks, ends)()
    assert not callbacks.callback_data


@pytest.mark.usefixtures("undrawn")
def test_names_outside_of_unicode(training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train-\udcff.py"])  # as Python decodes a name of the byte 255
    training.fit(training.callbacks(report=tmp_path / "run.html"), 1)
    assert Page((tmp_path / "run.html").read_text(encoding="utf-8")).has("train-?.py")


@pytest.mark.usefixtures("undrawn")
def test_facts_of_a_process_in_a_deleted_folder_with_another_generator(
    training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    other = np.random.RandomState(np.random.PCG64(3))
    monkeypatch.setattr(np.random, "get_state", other.get_state)
    callbacks = training.callbacks(report=tmp_path / "run.html")
    training.fit(callbacks, 1)
    facts = read_store(callbacks.callback_data, "run").facts
    assert "folder" in facts["training"]
    assert facts["seeds"]["NumPy's global state"].startswith("PCG64")
