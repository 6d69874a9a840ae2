"""Models in YAML, and the command that trains them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from neonlike import __main__, data, script
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, MissingExtra
from neonlike.experiments.yaml_parse import create_objects, format_yaml_dict, load_yaml
from neonlike.layers import Multicost
from neonlike.logger import logger
from neonlike.models import timing
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum, MultiOptimizer
from neonlike.transforms import CrossEntropyMulti
from neonlike.util.persist import load_obj

MODEL = """
epochs: 2
batchsize: 16
dataset: {name: tiny}
layers:
- type: Linear
  config: {nout: 6, init: &init {type: neon.initializers.initializer.Gaussian, config: {scale: 0.1}}}
- {type: Bias, config: {init: {type: Constant}}}
- {type: Activation, config: {transform: {type: Rectlin}}}
- {type: Dropout}
- type: Linear
  config: {nout: 3, init: *init}
- {type: Activation, config: {transform: {type: Softmax}}}
cost: CrossEntropyMulti
optimizer:
  type: GradientDescentMomentum
  config: {learning_rate: 0.1, momentum_coef: 0.9, schedule: {type: Schedule}}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "model.yaml").write_text(MODEL)
    return tmp_path / "model.yaml"


class TestCreateObjects:
    """Objects from YAML."""

    def test_a_model(self, be, file):
        model, cost, optimizer = create_objects(str(file))
        names = [layer.classnm for layer in model.layers.layers]
        assert names == ["Linear", "Bias", "Activation", "Dropout", "Linear", "Activation"]
        first, second = (layer.init for layer in model.layers.layers if layer.classnm == "Linear")
        assert first.scale == second.scale == 0.1 and first is not second
        assert isinstance(cost.costfunc, CrossEntropyMulti)
        assert isinstance(optimizer, GradientDescentMomentum) and optimizer.momentum_coef == 0.9

    def test_a_dictionary_stays_as_it_is(self, be, file):
        root = load_yaml(file)
        before = load_yaml(file)
        create_objects(root)
        create_objects(root)
        assert root == before

    def test_several_optimizers_and_costs(self, be):
        root = load_yaml({
            "layers": [{"type": "Affine", "config": {"nout": 3, "init": {"type": "GlorotUniform"},
                                                     "activation": {"type": "Tanh"}}}],
            "cost": {"type": "Multicost", "config": {"costs": [{"type": "GeneralizedCost", "config": {
                "costfunc": {"type": "SumSquared"}}}]}},
            "optimizer": {"type": "MultiOptimizer", "config": {"optimizer_mapping": {
                "default": {"type": "Adam"}, "Bias": {"type": "RMSProp", "config": {"learning_rate": 0.5}}}}},
        })  # fmt: skip
        model, cost, optimizer = create_objects(root)
        assert [layer.classnm for layer in model.layers.layers] == ["Linear", "Activation"]
        assert isinstance(cost, Multicost)
        assert isinstance(optimizer, MultiOptimizer) and optimizer.optimizer_mapping["Bias"].learning_rate == 0.5

    def test_a_container(self, be):
        linear = {"type": "Linear", "config": {"nout": 2, "init": None}}
        for layers in ({"type": "Sequential", "config": {"layers": [linear, linear]}}, linear):
            model, _, _ = create_objects({"layers": layers})
            assert {layer.classnm for layer in model.layers.layers} == {"Linear"}

    def test_what_stands_beside_the_config_is_not_used(self, be, caplog):
        layer = {"type": "Dropout", "name": "d", "config": {"keep": 0.3}}
        model, _, _ = create_objects({"layers": [layer]})
        assert model.layers.layers[0].keep == 0.3 and "Dropout: not used" in caplog.text

    def test_without_cost_and_optimizer(self, be):
        assert create_objects({"layers": [{"type": "Linear", "config": {"nout": 1, "init": None}}]})[1:] == (None, None)

    def test_a_backend_is_made_where_there_is_none(self, be, file, monkeypatch):
        create_objects(file, batch_size=64)
        assert NervanaObject.be is be, "the current one stays"
        monkeypatch.setattr(NervanaObject, "be", None)
        create_objects(file, be_type=be.backend_name, batch_size=64)
        assert NervanaObject.be is not be and NervanaObject.be.bsz == 64

    @pytest.mark.parametrize(
        ("root", "words"),
        [
            ({}, "list of layers"),
            ({"layers": []}, "list of layers"),
            ({"layers": [{"type": "Linear", "config": {"nout": 1, "init": None}}, 3]}, "layer 1: expected a mapping"),
            ({"layers": [{"type": "NoSuch"}]}, "layer 0:.*NoSuch"),
            ({"layers": [{"type": "Poling", "config": {"fshape": 2}}]}, "layer 0:.*did you mean Pooling"),
            ({"layers": [{"type": "Pooling", "config": {"fshap": 2}}]}, r"no 'fshap'; did you mean fshape\?"),
            ({"layers": [{"type": "os.system", "config": {"command": "true"}}]}, "layer 0"),
            (
                {"layers": [{"type": "Linear", "nout": 3}]},
                "missing a required argument: 'nout'",
            ),
            ({"layers": [{"type": "Linear", "config": {"outputs": 3}}]}, "layer 0: Linear: its description has other"),
            ({"layers": [{"type": "Affine", "config": {"outputs": 3}}]}, "layer 0: Affine has no arguments"),
            ({"layers": [{"type": "Linear", "config": [1]}]}, "layer 0: Linear: config must be a mapping"),
            ({"layers": [{"type": "Dropout"}], "cost": "Dropout"}, "cost: Dropout is no cost"),
            ({"layers": [{"type": "Dropout"}], "optimizer": {"type": "Dropout"}}, "optimizer: Dropout is no optimizer"),
        ],
    )
    def test_what_makes_no_sense_is_named(self, be, root, words):
        with pytest.raises(ArgumentError, match=words):
            create_objects(root)

    @pytest.mark.parametrize("text", ["a: [", "- 1", "a: !!python/object/apply:os.system ['true']", ""])
    def test_what_is_no_yaml_mapping(self, tmp_path, text):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ArgumentError, match=r"x\.yaml"):
            load_yaml(tmp_path / "x.yaml")

    def test_without_pyyaml(self, file, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "yaml", None)
        with pytest.raises(MissingExtra, match=r"neonlike\[data\]"):
            load_yaml(file)

    def test_numbers_with_exponents_are_numbers(self, tmp_path):
        (tmp_path / "x.yaml").write_text("{a: [1e-3, 2E4, -1.5e+3, 1.0e2], b: ['1e-3', e1, 1e, v1e3]}")
        assert load_yaml(tmp_path / "x.yaml") == {
            "a": [1e-3, 2e4, -1.5e3, 100.0], "b": ["1e-3", "e1", "1e", "v1e3"],
        }  # fmt: skip

    def test_keys_that_are_not_used_are_named(self, be, caplog):
        layers = [{"type": "Linear", "config": {"nout": 1, "init": None}}]
        create_objects({"layers": layers, "batchsize": 4, "batch_size": 8})
        assert caplog.text.count("not used") == 1
        assert "key 'batch_size' is not used; did you mean batchsize?" in caplog.text

    def test_format_yaml_dict(self):
        given = {"type": "Linear", "config": {"init": {"type": "Gaussian"}}}
        assert format_yaml_dict(given, "neon.layers.") == {
            "type": "neon.layers.Linear", "config": {"init": {"type": "Gaussian", "config": {}}},
        }  # fmt: skip
        assert format_yaml_dict({"type": "Dropout", "config": None})["config"] == {}


class Tiny:
    """A data set as ``neonlike.data`` has them."""

    made: ClassVar[list[str]] = []

    def __init__(self, path="."):
        self.made.append(path)
        rng = np.random.default_rng(0)
        labels = rng.integers(3, size=40)
        x = np.eye(3, 5)[labels] + 0.1 * rng.normal(size=(40, 5))
        self.train_iter = ArrayIterator(x, labels, nclass=3)
        self.valid_iter = ArrayIterator(x[:20], labels[:20], nclass=3)

    def gen_iterators(self):
        raise AssertionError("not needed")


@pytest.fixture
def command(be, file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(data, "TINY", Tiny, raising=False)
    monkeypatch.setattr(data, "tiny", data, raising=False)  # a module of that name is no data set
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Tiny, "made", [])
    level, handlers = logger.level, list(logger.handlers)

    def run(*options, main=script.main):
        status = main([str(file), *options])
        return status, capsys.readouterr()

    yield run
    timing.instead_of_training(None)
    logger.setLevel(level)
    logger.handlers[:] = handlers


class TestCommand:
    """``neon model.yaml``."""

    def test_it_trains_as_the_file_says(self, command, tmp_path):
        path = tmp_path / "m.prm"
        status, said = command("-s", str(path), "-eval", "1", "-r", "1")
        assert status == 0, said.err
        saved = load_obj(path)
        assert saved["epoch_index"] == 2 and saved["progress"]["batch_size"] == 16
        assert said.out.count("CrossEntropyMulti Loss") == 2 and Tiny.made == ["."]

    def test_the_command_line_goes_before_the_file(self, command, tmp_path):
        path = tmp_path / "m.prm"
        assert command("-s", str(path), "-e", "1", "--batch_size", "8", "-w", str(tmp_path))[0] == 0
        saved = load_obj(path)
        assert saved["epoch_index"] == 1 and saved["progress"]["batch_size"] == 8
        assert Tiny.made == [str(tmp_path)]

    def test_defect_36_other_options_are_no_epochs(self, command, tmp_path):
        path = tmp_path / "m.prm"
        assert command("-s", str(path), "--eval_freq", "2", "--serialize", "1")[0] == 0
        assert load_obj(path)["epoch_index"] == 2

    @pytest.mark.parametrize(("options", "expected"), [((), "mkl"), (("-b", "cpu"), "cpu")])
    def test_the_backend_is_the_files_unless_the_command_line_names_one(self, command, file, options, expected):
        file.write_text("backend: mkl\n" + MODEL)
        assert command(*options)[0] == 0
        assert NervanaObject.be.backend_name == expected

    def test_a_saved_model_goes_on(self, command, tmp_path):
        path = tmp_path / "m.prm"
        command("-s", str(path), "-e", "1")
        assert command("--model_file", str(path), "-s", str(tmp_path / "n.prm"), "-e", "3")[0] == 0
        assert load_obj(tmp_path / "n.prm")["epoch_index"] == 3

    def test_profile_times_instead(self, command, caplog):
        command("--profile", "--profile_iterations", "2", "--profile_iter_skip", "0")
        assert "timed instead of trained" in caplog.text and "fprop Linear" in caplog.text

    def test_a_talkative_run_shows_the_machine(self, command, caplog):
        command("-v", "-v", "--no_progress_bar")
        assert all(word in caplog.text for word in ("Platform", "Processor", "Hyperparameters", "CrossEntropyMulti"))

    def test_neonlike_takes_a_yaml_file_too(self, command):
        assert command("-e", "1", main=__main__.main)[0] == 0

    @pytest.mark.parametrize(
        ("change", "words"),
        [(("name: tiny", "name: nothing"), "no data set 'nothing'"), (("{name: tiny}", "3"), "dataset: expected"),
         (("cost: Cross", "cost: Wrong"), "WrongEntropyMulti"), (("optimizer:", "other:"), "needs a cost and an opt"),
         (("epochs: 2", "backend: cuda"), "'cuda' does not exist")],
    )  # fmt: skip
    def test_faults_end_with_their_reason(self, command, file, change, words):
        file.write_text(MODEL.replace(*change))
        status, said = command()
        assert status == 1 and said.err.startswith("neon: ") and words in said.err

    def test_rounding_needs_a_gpu(self, command):
        status, said = command("-b", "cpu", "-u", "4")
        assert status == 1 and "stochastic rounding" in said.err
