"""Reports of trainings that are resumed, interrupted, or run by several ranks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback, HistCallback, LossCallback
from neonlike.callbacks.facts import rates_of
from neonlike.callbacks.results import MOST_SAMPLES, NO_CLASSES, Results
from neonlike.callbacks.sampling import StepSampler
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import (
    Adam,
    ExpSchedule,
    GradientAccumulation,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
)
from neonlike.report.measured import times
from neonlike.report.run import Run, read_file, read_store
from neonlike.report.training import RunReport
from neonlike.transforms import SumSquared
from tests.report.reader import Page
from tests.support.ranks import OneOf, run_ranks

PAGE = pytest.mark.cpu_only("a page is the same for any backend")


def curve(run: Any, name: str) -> np.ndarray:
    (found,) = [one.y for one in run.curves if one.name == name]
    return np.asarray(found)


class Interrupt(Callback):
    """Presses Ctrl-C after an epoch."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
        if epoch == self.after:
            raise KeyboardInterrupt


def test_a_report_is_written_on_an_interrupt(training: Any, tmp_path: Path) -> None:
    callbacks = training.callbacks(report=tmp_path / "run.html", output_file=str(tmp_path / "run.h5"))
    callbacks.add_callback(Interrupt(1))
    with pytest.raises(KeyboardInterrupt):
        training.fit(callbacks)
    page = Page((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert page.faults == [] and page.has("2 of 4") and page.has("not ended")
    assert read_file(tmp_path / "run.h5").epochs == 2, "the record is closed too"


@PAGE
def test_a_resumed_training_has_the_curves_of_both_parts(training: Any, tmp_path: Path) -> None:
    saved = str(tmp_path / "model.prm")
    first = training.callbacks(report=tmp_path / "a.html", save_path=saved)
    training.fit(first, 2)
    before = read_store(first.callback_data, "a")
    second = training.callbacks(report=tmp_path / "b.html", model_file=saved, output_file=str(tmp_path / "b.h5"))
    training.fit(second, 4)
    after = read_file(tmp_path / "b.h5")
    assert (before.epochs, after.epochs) == (2, 4)
    for name in ("train", "loss", "rate"):
        np.testing.assert_array_equal(curve(after, name)[: len(curve(before, name))], curve(before, name))
        assert np.isfinite(curve(after, name)).all()
    assert Page((tmp_path / "b.html").read_text(encoding="utf-8")).faults == []


@PAGE
def test_a_record_that_begins_in_a_later_epoch_has_its_curves(training: Any, tmp_path: Path) -> None:
    training.fit(None, 2)
    path = tmp_path / "run.h5"
    training.fit(training.callbacks(output_file=str(path), report=tmp_path / "run.html"), 4)
    run = read_file(path)
    assert (run.epochs, run.of_epochs, run.minibatches) == (4, 4, 14)
    for name, x in (("train", np.arange(14) / 7 + 2), ("loss", [0, 1, 3 - 1 / 7, 4 - 1 / 7])):
        (found,) = [one for one in run.curves if one.name == name]
        np.testing.assert_allclose(found.x, x)
        assert np.isfinite(found.y[-2:]).all()
    assert all(one.counts.shape[1] == 4 and one.counts[:, 3].sum() for one in run.histograms) and run.histograms
    page = Page((tmp_path / "run.html").read_text(encoding="utf-8"))
    (costs,) = [table for table in page.tables if table[0] == ["epoch", "loss", "train"]]
    assert page.faults == [] and [row[0] for row in costs[1:]] == ["3", "4"]


@PAGE
@pytest.mark.usefixtures("undrawn")
def test_a_long_training_writes_its_report_now_and_then(
    training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Look(Callback):
        def on_epoch_begin(self, callback_data: Any, model: Any, epoch: int) -> None:
            seen.append((tmp_path / "run.html").exists())

    monkeypatch.setattr(RunReport, "is_due", lambda self: True)
    callbacks = training.callbacks(report=tmp_path / "run.html")
    callbacks.add_callback(Look())
    training.fit(callbacks, 2)
    assert seen == [False, True]


@PAGE
@pytest.mark.parametrize("name", ["run", "run.1.html", ".run"])
@pytest.mark.usefixtures("undrawn")
def test_a_run_has_the_name_of_its_page(training: Any, tmp_path: Path, name: str) -> None:
    training.fit(training.callbacks(report=tmp_path / name, eval_set=None, eval_freq=None, metric=None), 1)
    page = Page((tmp_path / name).read_text(encoding="utf-8"))
    assert page.headings[0] == f"Report of {name.removesuffix('.html')}"


class Failing(Callback):
    """Fails in the second minibatch, which is sampled."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def on_minibatch_begin(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        if minibatch == 1:
            raise self.error


@PAGE
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failed_training_leaves_the_layers_as_they_were(training: Any, tmp_path: Path, error: Any) -> None:
    callbacks = training.callbacks(report=tmp_path / "run.html")
    callbacks.add_callback(Failing(error))
    with pytest.raises(error):
        training.fit(callbacks)
    assert [layer.name for layer in training.model.layers.layers_fprop() if "fprop" in vars(layer)] == []


@PAGE
@pytest.mark.parametrize("trained", [0, 1])
@pytest.mark.usefixtures("undrawn")
def test_histograms_of_the_user_take_the_place_of_the_reports(training: Any, tmp_path: Path, trained: int) -> None:
    callbacks = training.callbacks(report=tmp_path / "run.html", output_file=str(tmp_path / "run.h5"))
    training.fit(callbacks, trained)  # with the report's histograms, per epoch
    callbacks.add_hist_callback(plot_per_mini=True)
    training.fit(callbacks, 2)
    assert [callback.plot_per_mini for callback in callbacks.callbacks if isinstance(callback, HistCallback)] == [True]
    linear, steps = training.model.layers.layers[0], training.train.nbatches
    with h5py.File(tmp_path / "run.h5") as store:
        group, name = store["hist"], f"{linear.name}_0_W"
        assert group.attrs["time_markers"] == "minibatch" and group[name].shape[1] == 2 * steps
        filled = [0] * trained * steps + [linear.W.size] * (2 - trained) * steps
        assert group[name][...].sum(axis=0).tolist() == filled


@PAGE
@pytest.mark.usefixtures("undrawn")
def test_results_of_an_evaluation_that_is_added_later(training: Any, tmp_path: Path) -> None:
    callbacks = training.callbacks(report=tmp_path / "run.html", eval_freq=None, metric=None)
    callbacks.add_callback(LossCallback(training.valid))
    training.fit(callbacks, 2)
    assert read_store(callbacks.callback_data, "run").confusion.sum() == training.valid.ndata


def test_without_report_and_file_nothing_is_recorded_in_addition(training: Any) -> None:
    callbacks = training.callbacks()
    training.fit(callbacks, 1)
    assert "run" not in callbacks.callback_data and "rate" not in callbacks.callback_data


@pytest.mark.usefixtures("undrawn")
def test_targets_that_are_no_classes(be: Any, rng: Any, tmp_path: Path) -> None:
    be.bsz = 8
    data = ArrayIterator(rng.normal(size=(24, 5)), rng.normal(size=(24, 2)), make_onehot=False)
    model = Model([Affine(2, GlorotUniform())])
    callbacks = Callbacks(model, eval_set=data, eval_freq=1, report=tmp_path / "run.html", progress_bar=False)
    model.fit(data, GeneralizedCost(SumSquared()), GradientDescentMomentum(0.1, 0.9), 1, callbacks)
    page = Page((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert page.faults == [] and page.has(NO_CLASSES)


class Words:
    """A data set of texts."""

    shape = (4, 1)

    def __init__(self) -> None:
        self.index_to_token = dict(enumerate("abcdef"))


class TestResults:
    """Counts and samples of batches."""

    def test_the_surest_are_kept(self, be: Any) -> None:
        be.bsz = 40
        results = Results(Words())
        outputs = np.zeros((3, 40), np.float32)
        outputs[1] = np.linspace(0.4, 0.9, 40)
        targets = np.zeros((3, 40), np.float32)
        targets[0, :35], targets[1, 35:38] = 1, 1  # the last two have no class
        x = np.tile(np.array([[0], [1], [2], [5]]), (1, 40))
        results.see(be.array(x, dtype=np.int32), be.array(outputs), be.array(targets), 39, 1)
        counts, samples, why = results.told(be.ranks)
        assert why == "" and counts.tolist() == [[0, 35, 0], [0, 3, 0], [0, 0, 0]]
        assert len(samples) == MOST_SAMPLES and [one["index"] for one in samples[:2]] == [34, 33]
        assert samples[0]["text"] == "abcf" and samples[0]["truth"] == 0 and samples[0]["guess"] == 1

    def test_a_word_of_a_sequence_is_shown_with_those_before_it(self, be: Any) -> None:
        be.bsz, steps = 2, 3
        results = Results(Words())
        words = np.array([[0, 1, 2], [3, 4, 5]])  # of two samples
        x = np.eye(6, dtype=np.float32)[words.T.reshape(-1)].T  # column t * N + n
        right = np.roll(words, -1, axis=1).T.reshape(-1)
        targets = np.eye(6, dtype=np.float32)[right].T
        outputs = targets.copy()
        outputs[:, 3], outputs[0, 3] = 0, 1  # step 1 of sample 1
        results.see(be.array(x), be.array(outputs), be.array(targets), 2, steps)
        counts, (sample,), _ = results.told(be.ranks)
        assert sample["text"] == "de" and (sample["truth"], sample["guess"]) == (5, 0) and counts.sum() == 6

    @pytest.mark.parametrize("form", ["row", "binary"])
    def test_labels_in_a_row(self, be: Any, form: str) -> None:
        be.bsz = 4
        results = Results(Words())
        outputs = np.array([[0.9, 0.2, 0.6, 0.1]], np.float32)
        if form == "row":
            outputs = np.concatenate([1 - outputs, outputs])
        results.see(be.array(np.zeros((4, 4))), be.array(outputs), be.array([[1, 1, 0, 0]]), 4, 1)
        counts, samples, _ = results.told(be.ranks)
        assert counts.tolist() == [[1, 1], [1, 1]] and len(samples) == 2

    def test_too_many_outputs(self, be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("neonlike.callbacks.results.MOST_OUTPUTS", 5)
        results = Results(Words())
        results.see(be.zeros((4, 2)), be.zeros((3, 2)), be.zeros((3, 2)), 2, 1)
        assert results.told(be.ranks) == (None, [], "A batch has 6 outputs; at most 5 are looked at.")

    @pytest.mark.usefixtures("undrawn")
    def test_too_many_classes_for_a_matrix(
        self, training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("neonlike.callbacks.results.MOST_CLASSES", 2)
        training.fit(training.callbacks(report=tmp_path / "run.html"), 1)
        page = Page((tmp_path / "run.html").read_text(encoding="utf-8"))
        assert page.faults == [] and page.has("The network has 3 classes; a confusion matrix has 2 at most.")
        assert not page.has("eval_set=data, eval_freq=1"), "both are given"
        assert page.images, "wrong samples are shown"

    def test_few_samples_of_a_batch_are_copied(self, be: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        shown, copied = Results._shown, []
        monkeypatch.setattr(Results, "_shown", lambda self, x, *at: copied.append(at) or shown(self, x, *at))
        be.bsz, surest = 100, []
        results = Results(Words())
        for batch in range(3):
            outputs = np.sort(rng.random((2, 100), np.float32), axis=1)
            outputs[:, 7] = np.nan
            targets = np.eye(2, dtype=np.float32)[1 - outputs.argmax(axis=0)].T
            results.see(be.zeros((4, 100)), be.array(outputs), be.array(targets), 100, 1)
            surest += [(float(sure), 100 * batch + i) for i, sure in enumerate(outputs.max(axis=0)) if i != 7]
        _, samples, _ = results.told(be.ranks)
        assert [(one["output"], one["index"]) for one in samples] == sorted(surest)[: -MOST_SAMPLES - 1 : -1]
        assert len(copied) <= 3 * MOST_SAMPLES

    def test_inputs_of_a_translation_are_of_the_source_language(self, be: Any) -> None:
        be.bsz = 1
        words = Words()
        words.s_index_to_token = dict(enumerate("uvwxyz"))
        results = Results(words)
        results.see(be.array([[0], [1], [2], [5]]), be.array([[0.0], [1.0]]), be.array([[1.0], [0.0]]), 1, 1)
        _, (sample,), _ = results.told(be.ranks)
        assert sample["text"] == "uvwz" and results.name(sample["guess"]) == "b"

    def test_of_several_ranks(self, be: Any) -> None:
        class Two(OneOf):
            def tell(self, thing: Any, what: str = "") -> list[Any]:
                return [thing, thing]

        be.bsz = 2
        results = Results(Words())
        results.see(be.zeros((4, 2)), be.array([[0.9, 0.8], [0.1, 0.2]]), be.array([[1, 0], [0, 1]]), 2, 1)
        counts, samples, _ = results.told(Two(0, 2))
        assert counts.tolist() == [[2, 0], [2, 0]] and len(samples) == 2 and "index" not in samples[0]


def test_calls_in_a_minibatch_count_together(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GAN calls its discriminator several times in a minibatch; layers of one name are told apart."""

    class Twice:
        name = "twice"

        def fprop(self, x: int) -> int:
            return x + 1

        bprop = fprop

    monkeypatch.setattr(be, "get_time", lambda start, end: 2.0)
    layers = [Twice(), Twice()]
    model = SimpleNamespace(be=be, layers=SimpleNamespace(layers_fprop=lambda: iter(layers)))
    sampler = StepSampler()
    for calls in range(1, 7):
        sampler.begin(model)
        assert [layers[0].fprop(i) for i in range(calls)] == [*range(1, calls + 1)] and layers[1].bprop(0) == 1
        sampler.stop()
    found = sampler.found()
    assert found["times"] == [
        {"layer": "twice (1)", "pass": "fprop", "ms": 6.0, "share": None},
        {"layer": "twice (2)", "pass": "bprop", "ms": 2.0, "share": None},
    ]
    assert [entry[:2] for entry in found["memory"]] == 2 * [["twice (1)", "fprop"]] + [["twice (2)", "bprop"]]
    run = Run("run", step=found)
    assert "Layers: 8 ms in a minibatch" in times([run])


def test_rates_of_optimizers() -> None:
    plain = GradientDescentMomentum(0.5, 0.9, schedule=ExpSchedule(1.0))
    assert rates_of(plain, 0) == {"rate": 0.5} and rates_of(plain, 1) == {"rate": 0.25}
    assert rates_of(GradientAccumulation(LossScaling(plain), 2), 1) == {"rate": 0.25}
    several = MultiOptimizer({"default": plain, "Bias": Adam(learning_rate=0.125)})
    assert rates_of(several, 1) == {"default": 0.25, "Bias": 0.125}

    class Own:
        learning_rate = "fast"

    assert rates_of(Own(), 0) == rates_of(object(), 0) == {}


RANKS = """
import json, sys
from pathlib import Path
import numpy as np
from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax

folder = Path(sys.argv[1])
be = gen_backend("cpu", rng_seed=1, batch_size=8, distributed="mpi")
x = np.random.default_rng(0).normal(size=(24, 64))
data = ArrayIterator(x, (x[:, 0] > 0).astype(int), nclass=2)
few = ArrayIterator(x[:10], (x[:10, 0] > 0).astype(int), nclass=2)
model = Model([Affine(2, GlorotUniform(), activation=Softmax())])
callbacks = Callbacks(model, eval_set=few, eval_freq=1, report=folder / "run.html", progress_bar=False)
model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 2, callbacks)
if be.ranks.rank == 0:
    (folder / "counts.json").write_text(json.dumps(callbacks.callback_data["run/confusion"][...].tolist()))
"""


@pytest.mark.cpu_only("starts ranks of its own, on the CPU")
def test_the_first_of_several_ranks_writes(tmp_path: Path) -> None:
    done = run_ranks(2, RANKS, tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert np.sum(json.loads((tmp_path / "counts.json").read_text())) == 10, "samples of both ranks"
    page = Page((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert page.faults == [] and page.has("2 of 2")
