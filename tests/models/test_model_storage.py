"""Saving and loading models: the contents of the file, and that training continues as if it had not stopped."""

from __future__ import annotations

import copy
import gzip
import pickle
import pickletools

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, NotDefined
from neonlike.initializers import Constant
from neonlike.layers import LSTM, Affine, MergeBroadcast, Sequential
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum, MultiOptimizer, RMSProp, ShiftAdaMax, StepSchedule
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import Logistic, Tanh
from tests.models.perceptron import cost, layers, weights
from tests.support.clusters import NIN
from tests.support.engines import ON_GPU


class TestStorage:
    """Saving, loading, describing."""

    def test_the_saved_dictionary(self, be, data, trained):
        saved = trained.serialize()
        assert set(saved) == {"neon_version", "backend", "cost", "optimizer", "model", "epoch_index",
                              "train_input_shape", "progress"}  # fmt: skip
        assert saved["backend"]["type"] == ("NervanaGPU" if ON_GPU else "NervanaCPU")
        assert saved["backend"]["compat_mode"] == "neon"
        assert saved["backend"]["rng_seed"] == 0
        assert saved["cost"]["config"]["costfunc"]["type"] == "neonlike.transforms.cost.CrossEntropyMulti"
        assert saved["optimizer"]["config"]["momentum_coef"] == 0.9
        assert saved["train_input_shape"] == NIN
        entries = saved["model"]["config"]["layers"]
        assert [e["type"].split(".")[-1] for e in entries] == ["Linear", "Bias", "Activation"] * 2
        assert entries[0]["params"]["W"].shape == (8, NIN) and len(entries[0]["states"]) == 1
        assert "params" not in trained.get_description()["model"]["config"]["layers"][0]
        assert "states" not in trained.serialize(keep_states=False)["model"]["config"]["layers"][0]
        assert "progress" not in trained.serialize(keep_states=False)

    @pytest.mark.parametrize("form", ["dict", "path", "bytes", "gz", "pathlib"])
    def test_a_model_is_rebuilt(self, be, data, trained, tmp_path, form):
        path = tmp_path / "model.p"
        trained.save_params(path)
        if form == "gz":
            (tmp_path / "model.p.gz").write_bytes(gzip.compress(path.read_bytes()))
        source = {"dict": trained.serialize(), "path": str(path), "bytes": str(path).encode(), "pathlib": path,
                  "gz": str(path) + ".gz"}[form]  # fmt: skip
        again = Model(source)
        assert again.epoch_index == 2
        np.testing.assert_array_equal(again.get_outputs(data), trained.get_outputs(data))
        assert len(again.layers_to_optimize[0].states) == 1
        assert len(Model(source, weights_only=True).layers_to_optimize[0].states) == 0

    def test_types_written_by_the_reference_are_understood(self, be, data, trained):
        saved = _with_reference_types(trained.serialize())
        assert saved["model"]["config"]["layers"][0]["type"] == "neon.layers.layer.Linear"
        np.testing.assert_array_equal(Model(saved).get_outputs(data), trained.get_outputs(data))

    def test_loading_into_existing_layers(self, be, data, trained, tmp_path):
        path = str(tmp_path / "model.p")
        trained.save_params(path)
        model = Model(layers())
        model.initialize(data)
        tensors = [layer.W for layer in model.layers_to_optimize]
        model.load_params(path)
        assert all(layer.W is tensor for layer, tensor in zip(model.layers_to_optimize, tensors, strict=True))
        np.testing.assert_array_equal(model.get_outputs(data), trained.get_outputs(data))
        for layer in model.layers_to_optimize:
            assert len(layer.states) == 1

    @pytest.mark.parametrize("how", ["path", "load_params", "callbacks"])
    @pytest.mark.parametrize(
        "make",
        [lambda: GradientDescentMomentum(0.1, 0.9), lambda: Adam(learning_rate=0.01), ShiftAdaMax,
         lambda: MultiOptimizer({"default": Adam(), "Bias": RMSProp(schedule=StepSchedule([1, 3], [0.1, 0.01]))})],
    )  # fmt: skip
    def test_training_continues_as_if_it_had_not_stopped(self, be, data, tmp_path, make, how):
        def train(epochs, model, **kwargs):
            model.fit(data, cost(), make(), epochs, Callbacks(model, progress_bar=False, **kwargs))
            return model

        be.rng_reset()
        whole = weights(train(4, Model(layers(dropout=0.8))))
        be.rng_reset()
        data.reset()
        half = train(2, Model(layers(dropout=0.8)))
        path = str(tmp_path / "half.p")
        half.save_params(path)
        be.rng.uniform(size=1000)  # whatever happened in between
        model = Model(path if how == "path" else layers(dropout=0.8))
        if how == "load_params":
            model.load_params(path)
        resumed = weights(train(4, model, model_file=path if how == "callbacks" else None))
        for a, b in zip(whole, resumed, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_steps_are_counted_anew_without_the_states(self, be, data, tmp_path):
        model = Model(layers())
        model.fit(data, cost(), Adam(), 2)
        assert model.serialize()["optimizer"]["progress"] == {"t": 2 * 6}
        assert "progress" not in model.serialize(keep_states=False)["optimizer"]
        for weights_only, expected in ((False, 3 * 6), (True, 6)):
            again, optimizer = Model(model.serialize(), weights_only=weights_only), Adam()
            again.fit(data, cost(), optimizer, 3)
            assert optimizer.t == expected
            again.fit(data, cost(), optimizer, 4)
            assert optimizer.t == expected + 6

    def test_defect_37_the_number_of_completed_epochs_is_saved(self, be, data, tmp_path):
        seen = []
        model = Model(layers())

        class Save:
            def __getattr__(self, hook):
                def call(*args):
                    if hook in ("on_epoch_begin", "on_epoch_end"):
                        seen.append((hook, model.serialize()["epoch_index"]))

                return call

        model.fit(data, cost(), Adam(), 2, Save())
        assert seen == [("on_epoch_begin", 0), ("on_epoch_end", 1), ("on_epoch_begin", 1), ("on_epoch_end", 2)]
        assert model.serialize()["epoch_index"] == 2

    def test_an_error_in_a_callback_does_not_lose_the_epoch(self, be, data):
        model = Model(layers())

        class Fail:
            def __getattr__(self, hook):
                def call(*args):
                    if hook == "on_epoch_end":
                        raise OSError("disk full")

                return call

        with pytest.raises(OSError, match="disk full"):
            model.fit(data, cost(), Adam(), 2, Fail())
        assert model.epoch_index == 1 and model.serialize()["epoch_index"] == 1

    def test_the_random_state_is_restored_in_neons_dialect_and_the_mode_everywhere(self, be, trained):
        saved = trained.serialize()
        expected = be.rng.uniform(size=3)
        with neon_dialect():
            Model(saved)
        np.testing.assert_array_equal(be.rng.uniform(size=3), expected)
        assert be.compat_mode == "neon" and not be.check_caffe_compat()
        saved["backend"]["compat_mode"] = "caffe"
        saved["backend"]["rng_state"] = ("from", "elsewhere")
        Model(saved)
        assert be.check_caffe_compat()

    def test_a_file_holds_nothing_but_plain_values_and_arrays(self, be, trained, tmp_path):
        trained.save_params(tmp_path / "m.p")
        names = {value for op, value, _ in pickletools.genops((tmp_path / "m.p").read_bytes()) if op.name == "GLOBAL"}
        assert names and all(name.split()[0].split(".")[0] in ("numpy", "_codecs") for name in names), names

    def test_the_stream_of_rand_is_restored(self, be, trained, tmp_path):
        trained.save_params(tmp_path / "m.p")
        out = be.empty((3, 4))
        out[:] = be.rand()
        expected = out.get().copy()
        be.gen_rng(77)
        with neon_dialect():
            Model(tmp_path / "m.p")
        out[:] = be.rand()
        np.testing.assert_array_equal(out.get(), expected)

    def test_the_old_list_of_parameters(self, be, data, trained):
        old = {
            "layer_params_states": [{"params": layer.W.get(), "states": []} for layer in trained.layers_to_optimize],
            "epoch_index": 7,
        }
        model = Model(layers())
        model.initialize(data)
        model.deserialize(old)
        assert model.epoch_index == 7
        np.testing.assert_array_equal(model.get_outputs(data), trained.get_outputs(data))
        with pytest.raises(ArgumentError, match="1 layers"):
            model.deserialize({"layer_params_states": old["layer_params_states"][:1]})

    def test_what_is_no_saved_model(self, be, tmp_path):
        with pytest.raises(ArgumentError, match="'model'"):
            Model({"weights": 1})
        with open(tmp_path / "list.p", "wb") as file:
            pickle.dump([1], file)
        with pytest.raises(DTypeError, match="list"):
            Model(str(tmp_path / "list.p"))
        with pytest.raises(FileNotFoundError):
            Model(str(tmp_path / "nothing.p"))

    @pytest.mark.parametrize("damage", range(8))
    def test_a_damaged_description_changes_nothing(self, be, data, trained, damage):
        saved = trained.serialize()
        entry = saved["model"]["config"]["layers"][0]
        model = Model(layers())
        model.initialize(data)
        before, state = weights(model), be.rng_get_state()
        if damage == 0:
            saved["epoch_index"] = "two"
        elif damage == 1:
            saved["model"] = ["evil"]
        elif damage == 2:
            del saved["model"]["config"]
        elif damage == 3:
            entry["params"] = 7
        elif damage == 4:
            saved["model"]["config"]["layers"][2] = None
        elif damage == 5:
            entry["params"]["W"] = np.array(["a"] * 8 * NIN).reshape(8, NIN)
        elif damage == 6:
            entry["states"] = 3
        else:
            saved["epoch_index"] = -1
        with pytest.raises(NeonlikeError):
            model.deserialize(saved)
        for a, b in zip(before, weights(model), strict=True):
            np.testing.assert_array_equal(a, b)
        assert model.epoch_index == 0 and str(be.rng_get_state()) == str(state)
        if damage not in (5, 6):
            with pytest.raises(NeonlikeError):
                Model(saved)

    @pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", "neonlike.callbacks.callbacks.Callbacks"])
    def test_a_description_runs_nothing(self, be, trained, name):
        saved = trained.serialize()
        saved["model"]["config"]["layers"][0]["type"] = name
        with pytest.raises(ArgumentError, match="load_class"):
            Model(saved)

    def test_copies_are_made_by_serialize(self, be, data, trained):
        with pytest.raises(NotDefined, match=r"Model\(model.serialize\(\)\)"):
            copy.deepcopy(trained)
        made = Model(trained.serialize())
        np.testing.assert_array_equal(made.get_outputs(data), trained.get_outputs(data))
        assert copy.deepcopy(Model(layers())).epoch_index == 0

    @pytest.mark.parametrize("make", [
        lambda: MergeBroadcast([Affine(2, Constant(0.5)), Affine(3, Constant(0.1))], "stack"),
        lambda: LSTM(2, Constant(0.1), activation=Tanh(), gate_activation=Logistic()),
    ])  # fmt: skip
    def test_layers_that_share_memory_are_copied_before(self, be, make):
        """With copies, the parts would lose each other's writes."""
        layer = make()
        before = copy.deepcopy(layer)
        chain = Sequential([layer])
        chain.configure((4, 3) if isinstance(layer, LSTM) else 4)
        chain.allocate()
        with pytest.raises(NotDefined, match=f"{layer.name}: copy.deepcopy .*copy it before"):
            copy.deepcopy(chain)
        assert type(before) is type(layer) and before is not layer

    def test_load_weights_is_the_old_name(self, be, trained, tmp_path):
        trained.save_params(tmp_path / "m.p")
        model = Model(layers())
        model.load_weights(str(tmp_path / "m.p"))
        np.testing.assert_array_equal(weights(model)[0], weights(trained)[0])

    def test_the_text_lists_the_layers(self, be, trained):
        text = str(trained)
        assert text.startswith("Network Layers:\n") and "6 inputs, 8 outputs" in text and "Softmax" in text


def _with_reference_types(value):
    """A description with the type paths that the reference writes."""
    if isinstance(value, dict):
        return {key: _with_reference_types(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_reference_types(entry) for entry in value]
    if isinstance(value, str) and value.startswith("neonlike."):
        return "neon." + value[len("neonlike.") :]
    return value
