"""Whole experiments from files, dictionaries in files, and a run's report on the machine."""

from __future__ import annotations

import multiprocessing
from argparse import Namespace
from importlib import import_module
from inspect import unwrap

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import LossCallback
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.experiments.load_experiment import deserialize
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax
from neonlike.util import display_information, update_dataset_cache
from neonlike.util.persist import save_model, save_obj, serialize
from neonlike.util.shelver import atomic_shelve

N = 8
PATHS = {
    "argparser": ("neonlike.experiments.argparser", "NeonArgparser extract_valid_args"),
    "yaml_parse": ("neonlike.experiments.yaml_parse", "create_objects format_yaml_dict"),
    "load_experiment": ("neonlike.experiments.load_experiment", "deserialize"),
    "beamsearch": ("neonlike.models.beam", "BeamSearch"),
}


@pytest.mark.parametrize("path", PATHS)
def test_neons_paths_among_the_utilities_have_these_names(path: str) -> None:
    home, names = PATHS[path]
    for name in names.split():  # unwrapped: in neon's dialect they may take neon's arguments there
        assert unwrap(getattr(import_module(f"neonlike.util.{path}"), name)) is getattr(import_module(home), name)


@pytest.fixture
def parts(be, rng):
    be.bsz = N
    x, labels = rng.normal(size=(3 * N, 4)), rng.integers(2, size=3 * N)
    return {name: ArrayIterator(x, labels, nclass=2, name=name) for name in ("train", "valid")}


@pytest.fixture
def experiment(be, parts):
    model = Model([Affine(2, GlorotUniform(), activation=Softmax())])
    callbacks = Callbacks(model, eval_set=parts["valid"], eval_freq=1, progress_bar=False)
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9)
    model.fit(parts["train"], cost, optimizer, 1, callbacks)
    return model, serialize(model, callbacks, parts)


class TestLoadExperiment:
    """The model, its data and its callbacks."""

    @pytest.mark.parametrize("name", ["", "e.p", "e.prm"])
    def test_everything_comes_back(self, experiment, parts, tmp_path, name):
        model, described = experiment
        if name:
            save_model(described, tmp_path / name)
        again, datasets, callbacks = deserialize(tmp_path / name if name else described, parts)
        np.testing.assert_array_equal(again.get_outputs(parts["valid"]), model.get_outputs(parts["valid"]))
        assert datasets is parts and again.epoch_index == 1
        assert isinstance(callbacks.callbacks[0], LossCallback) and callbacks.callbacks[0].eval_set is parts["valid"]
        again.fit(parts["train"], GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 2, callbacks)
        assert len(again.layers_to_optimize[0].states) == 1

    def test_for_inference(self, experiment, parts):
        model, _, callbacks = deserialize(experiment[1], parts, inference=True)
        assert callbacks is None and not model.layers_to_optimize[0].states

    def test_data_are_found_by_their_part_too(self, experiment, parts):
        parts["valid"].name = "renamed"
        assert deserialize(experiment[1], parts)[2].callbacks[0].eval_set is parts["valid"]

    def test_data_that_are_missing_are_named(self, experiment):
        described = {key: value for key, value in experiment[1].items() if key != "datasets"}
        with pytest.raises(ArgumentError, match="'valid'"):
            deserialize(described)
        with pytest.raises(ArgumentError, match=r"persist\.serialize"):
            deserialize({"weights": 1})

    def test_a_model_alone(self, experiment):
        model, datasets, callbacks = deserialize(experiment[0].serialize())
        assert model.epoch_index == 1 and datasets is callbacks is None


def count(path, times):
    for _ in range(times):
        with atomic_shelve(path) as counts:
            counts["runs"] = counts.get("runs", 0) + 1


class TestShelve:
    """A dictionary in a file."""

    def test_it_is_kept(self, tmp_path):
        with atomic_shelve(tmp_path / "new" / "x") as kept:
            kept["a"] = np.arange(3)
        with atomic_shelve(tmp_path / "new" / "x") as kept:
            np.testing.assert_array_equal(kept["a"], [0, 1, 2])

    def test_an_error_changes_nothing(self, tmp_path):
        count(tmp_path / "x", 1)
        with pytest.raises(ZeroDivisionError), atomic_shelve(tmp_path / "x") as kept:
            kept["runs"] = 1 / (kept["runs"] - 1)
        with atomic_shelve(tmp_path / "x") as kept:
            assert kept == {"runs": 1}

    def test_one_process_at_a_time(self, tmp_path):
        fork = multiprocessing.get_context("fork")
        others = [fork.Process(target=count, args=(tmp_path / "x", 20)) for _ in range(3)]
        for other in others:
            other.start()
        for other in others:
            other.join(60)
        with atomic_shelve(tmp_path / "x") as kept:
            assert kept == {"runs": 60}

    def test_another_file(self, tmp_path):
        save_obj([1], tmp_path / "x")
        with pytest.raises(DTypeError, match="no dictionary"), atomic_shelve(tmp_path / "x"):
            pass


def test_what_a_run_shows(caplog):
    display_information.display_platform_information()
    display_information.display_cpu_information()
    display_information.display_model_params(Namespace(epochs=7, other=1), {"cost": "SumSquared", "layers": [1, 2]})
    assert "Python" in caplog.text and "threads of kernels" in caplog.text and "other" not in caplog.text
    lines = [record.getMessage().split() for record in caplog.records]
    assert ["epochs", "7"] in lines and ["cost", "SumSquared"] in lines and ["layers", "2"] in lines


def test_files_of_data_sets_are_moved(tmp_path, monkeypatch, capsys):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for name in ("a.gz", "b.gz"):
        (tmp_path / "old" / name).write_text(name)
    (tmp_path / "new" / "b.gz").write_text("kept")
    monkeypatch.delenv("NEON_DATA_CACHE_DIR", raising=False)
    assert update_dataset_cache.main([str(tmp_path / "old")]) == 1
    assert "NEON_DATA_CACHE_DIR" in capsys.readouterr().err
    monkeypatch.setenv("NEON_DATA_CACHE_DIR", str(tmp_path / "new"))
    assert update_dataset_cache.main([str(tmp_path / "nothing")]) == 1
    assert update_dataset_cache.main([str(tmp_path / "old")]) == 0
    assert (tmp_path / "new" / "a.gz").read_text() == "a.gz" and (tmp_path / "new" / "b.gz").read_text() == "kept"
    assert not (tmp_path / "old" / "a.gz").exists()
