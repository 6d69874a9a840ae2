"""Callbacks: order, frequency, records and their places; the progress bar."""

from __future__ import annotations

import re
import sys

import h5py
import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callback, Callbacks, LossCallback, MetricCallback, TrainCostCallback
from neonlike.callbacks.store import new_dataset, open_store
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError, MissingExtra
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost, Linear, Multicost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import CrossEntropyMulti, Misclassification, SumSquared, TopKMisclassification
from tests.callbacks.training import fit


def names(callbacks):
    return [callback.classnm.removesuffix("Callback") for callback in callbacks.callbacks]


class Recorder(Callback):
    """Writes down when it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = []

    def on_train_begin(self, callback_data, model, epochs):
        self.calls.append(("train begin", epochs))

    def on_train_end(self, callback_data, model):
        self.calls.append(("train end",))

    def on_epoch_begin(self, callback_data, model, epoch):
        self.calls.append(("epoch begin", epoch))

    def on_epoch_end(self, callback_data, model, epoch):
        self.calls.append(("epoch end", epoch))

    def on_minibatch_begin(self, callback_data, model, epoch, minibatch):
        self.calls.append(("batch begin", epoch, minibatch))

    def on_minibatch_end(self, callback_data, model, epoch, minibatch):
        self.calls.append(("batch end", epoch, minibatch))

    def of(self, kind):
        return [call[1:] for call in self.calls if call[0] == kind]


class TestOrder:
    """Order and number of the callbacks' calls."""

    def test_the_built_in_ones(self, model, valid, tmp_path):
        assert names(Callbacks(model)) == ["TrainCost", "ProgressBar", "TrainLogger", "RunTimer"]
        full = Callbacks(model, eval_set=valid, eval_freq=2, metric=Misclassification(),
                         save_path=str(tmp_path / "m.p"))  # fmt: skip
        assert names(full) == ["Loss", "TrainCost", "ProgressBar", "Metric", "SerializeModel", "TrainLogger",
                               "RunTimer"]  # fmt: skip
        assert names(Callbacks(model, multicost=True, progress_bar=False))[0] == "TrainMulticost"

    def test_hooks_in_order(self, model, data):
        callbacks, recorder = Callbacks(model, progress_bar=False), Recorder()
        callbacks.add_callback(recorder, insert_pos=0)
        assert callbacks.callbacks[0] is recorder
        fit(model, data, callbacks, 1)
        batches = [(kind, 0, i) for i in range(6) for kind in ("batch begin", "batch end")]
        assert recorder.calls == [("train begin", 1), ("epoch begin", 0), *batches, ("epoch end", 0), ("train end",)]

    def test_frequencies(self, model, data):
        callbacks = Callbacks(model, progress_bar=False)
        every_third, listed = Recorder(epoch_freq=3, minibatch_freq=2), Recorder(epoch_freq=[0, 2], minibatch_freq=None)
        for recorder in (every_third, listed):
            callbacks.add_callback(recorder)
        fit(model, data, callbacks, 4)
        assert every_third.of("epoch end") == [(2,)] == every_third.of("epoch begin")
        assert [b for e, b in every_third.of("batch end") if e == 0] == [1, 3, 5]
        assert listed.of("epoch end") == [(0,), (2,)] and listed.of("batch end") == []

    @pytest.mark.parametrize("freq", [np.int64(2), (1, 3), range(1, 4, 2), np.array([1, 3])])
    def test_frequencies_of_other_types(self, freq):
        fires = [Callback().should_fire(None, None, time, freq) for time in range(5)]
        assert fires == [False, True, False, True, False]
        assert not Callback().should_fire(None, None, 1, 0), "every 0 epochs is never"

    def test_the_model_is_held_weakly(self, be, model):
        callbacks = Callbacks(model)
        assert callbacks.model is model
        other = Model([Affine(2, GlorotUniform())])
        callbacks = Callbacks(other)
        del other
        assert callbacks.model is None
        with pytest.raises(ArgumentError, match="model"):
            callbacks.on_train_begin(1)

    def test_callbacks_of_another_model(self, be, model, data):
        other = Model([Affine(2, GlorotUniform())])
        with pytest.raises(ArgumentError, match="another model"):
            fit(model, data, Callbacks(other, progress_bar=False))

    def test_unusable_arguments(self, model, valid):
        with pytest.raises(ValueError, match="eval_set"):
            Callbacks(model, eval_freq=1)
        with pytest.raises(ValueError, match="Misclassification"):
            Callbacks(model, eval_set=valid, eval_freq=1, metric=Misclassification)
        with pytest.raises(DTypeError, match=r"ndarray.*ArrayIterator"):
            Callbacks(model, eval_set=np.zeros((8, 4)), eval_freq=1)
        with pytest.raises(DTypeError, match="Model"):
            Callbacks("model")
        assert Callbacks(valid).model is valid, "whatever has a model's methods is one"
        with pytest.raises(DTypeError, match="Callback"):
            Callbacks(model).add_callback(lambda: None)

    @pytest.mark.parametrize("output_file", [None, "run.h5"])
    def test_a_truth_value_as_a_frequency_is_one_in_neons_dialect(
        self, model, data, valid, output_file, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        for wrong in (True, False, np.True_):
            with pytest.raises(ArgumentError, match=rf"Callbacks: eval_freq must be an integer.*got {wrong!s}"):
                Callbacks(model, eval_set=valid, eval_freq=wrong)
            for name in ("epoch_freq", "minibatch_freq"):
                with pytest.raises(ArgumentError, match=rf"Callback: {name} must be an integer.*got {wrong!s}"):
                    Callback(**{name: wrong})
        seen = []
        with neon_dialect():
            assert Callback(epoch_freq=False).epoch_freq == 0, "never"
            assert all(not isinstance(c, LossCallback) for c in Callbacks(model, eval_freq=False).callbacks)
            callbacks = Callbacks(
                model, eval_set=valid, eval_freq=True, progress_bar=False, output_file=output_file
            )  # fmt: skip
            callbacks.add_early_stop_callback(lambda state, loss: (seen.append(loss), False))
            fit(model, data, callbacks, epochs=3)
        assert len(seen) == 3

    def test_a_callback_added_while_training_takes_part_from_the_next_epoch(self, model, data):
        callbacks, late = Callbacks(model, progress_bar=False), Recorder()

        class Adder(Callback):
            def on_epoch_end(self, callback_data, model, epoch):
                if epoch == 0:
                    callbacks.add_callback(late)

        callbacks.add_callback(Adder())
        fit(model, data, callbacks, 2)
        assert late.of("batch end")[0] == (1, 0)


@pytest.fixture(params=["memory", "hdf5"])
def output_file(request, tmp_path):
    return None if request.param == "memory" else str(tmp_path / "metrics.h5")


def recorded(callbacks, output_file):
    if output_file is None:
        return callbacks.callback_data
    assert not callbacks.callback_data, "the file is closed"
    return h5py.File(output_file, "r")


class TestRecords:
    """Layout of the records, in memory and in a file."""

    def test_the_layout(self, model, data, valid, output_file):
        callbacks = Callbacks(model, output_file=output_file, progress_bar=False, eval_set=valid, eval_freq=2,
                              metric=TopKMisclassification(1))  # fmt: skip
        fit(model, data, callbacks)
        store = recorded(callbacks, output_file)
        # Epochs have ceil((43 - start) / 8) batches, starting at samples 0, 5, 2, 7.
        ends = [6, 11, 17, 22]
        assert store["config"].attrs["total_minibatches"] == 24 and store["config"].attrs["total_epochs"] == 4
        np.testing.assert_array_equal(store["time_markers/minibatch"][...], ends)
        assert store["time_markers/minibatch"].attrs["epochs_complete"] == 4
        assert store["time_markers/minibatch"].attrs["minibatches_complete"] == 22
        cost = store["cost/train"]
        assert cost.shape == (24,) and cost.attrs["time_markers"] == "minibatch"
        assert (cost[:22] > 0).all() and np.isnan(cost[22:]).all()
        for path in ("cost/loss", "time/loss", "metrics/LogLoss", "metrics/Top1Misclass"):
            assert store[path].shape == (2,)
            assert (store[path].attrs["time_markers"], store[path].attrs["epoch_freq"]) == ("epoch_freq", 2)
            assert store[f"epochs/{path}"][...].tolist() == [1, 3]
        # Log loss and cost are the same quantity, computed in two ways.
        np.testing.assert_allclose(store["cost/loss"][...], store["metrics/LogLoss"][...], rtol=1e-5)
        start, end = (store[f"time/train/{name}"] for name in ("start_time", "end_time"))
        assert start.dtype == np.float64 and start.shape == (1,) and 0 < start[0] <= end[0]

    def test_the_training_cost_is_a_running_mean(self, model, data, output_file):
        callbacks, costs = Callbacks(model, output_file=output_file, progress_bar=False), []

        class Costs(Callback):
            def on_minibatch_end(self, callback_data, model, epoch, minibatch):
                costs.append(model.cost.cost.item())

        callbacks.add_callback(Costs())
        fit(model, data, callbacks)
        means = [np.mean(costs[max(0, i - 9) : i + 1]) for i in range(len(costs))]
        np.testing.assert_allclose(recorded(callbacks, output_file)["cost/train"][: len(costs)], means, rtol=1e-5)

    def test_the_training_cost_of_a_callback_driven_by_hand(self, model, output_file):
        store, callback = open_store(output_file), TrainCostCallback(wsz=1)
        store.require_group("config").attrs["total_minibatches"] = 4
        new_dataset(store, "time_markers/minibatch", (2,))[...] = [2, 4]
        model.cost = GeneralizedCost(CrossEntropyMulti())
        for start in (1.0, 5.0):
            callback.on_train_begin(store, model, 2)
            for i in range(4):
                model.cost.cost = np.array([[start + i]])
                callback.on_minibatch_end(store, model, i // 2, i % 2)
            np.testing.assert_array_equal(store["cost/train"][...], start + np.arange(4))

    def test_a_second_fit_goes_on_in_the_same_place(self, model, data, valid, output_file):
        callbacks = Callbacks(model, output_file=output_file, progress_bar=False, eval_set=valid, eval_freq=1)
        fit(model, data, callbacks, 2)
        first = np.array(recorded(callbacks, output_file)["cost/train"][:11])
        fit(model, data, callbacks, 4)
        store = recorded(callbacks, output_file)
        np.testing.assert_array_equal(store["time_markers/minibatch"][...], [6, 11, 17, 22])
        np.testing.assert_array_equal(store["cost/train"][:11], first)
        assert (store["cost/train"][:22] > 0).all() and (store["cost/loss"][...] > 0).all()

    def test_loss_is_the_mean_over_samples(self, model, data, valid):
        callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=1)
        fit(model, data, callbacks, 1)
        outputs = model.get_outputs(valid)
        valid.reset()
        labels = np.concatenate([t.get().argmax(axis=0) for _, t in valid])[: valid.ndata]
        expected = -np.log(outputs[np.arange(valid.ndata), labels]).mean()
        assert callbacks.callback_data["cost/loss"][0] == pytest.approx(expected, rel=1e-5)

    def test_a_loss_in_half_precision_does_not_overflow(self, be):
        be = gen_backend(be.backend_name, batch_size=512, datatype=np.float16)
        ones = ArrayIterator(np.ones((512, 4)))
        model = Model([Linear(4, Constant(4.0))])  # every output is 16: a column costs 450, a batch 230400
        model.initialize(ones, GeneralizedCost(SumSquared()))
        store, callback = open_store(None), LossCallback(ones)
        callback.on_train_begin(store, model, 1)
        callback.on_epoch_end(store, model, 0)
        assert store["cost/loss"][0] == 450.0

    def test_several_costs(self, be, model, data, output_file):
        callbacks = Callbacks(model, output_file=output_file, progress_bar=False, multicost=True)
        cost = Multicost([GeneralizedCost(CrossEntropyMulti())], weights=[0.5])

        class Lists:
            """The same data, for a network with a list of outputs."""

            shape, nbatches, ndata = data.shape, data.nbatches, data.ndata
            __iter__ = staticmethod(lambda: iter(data))

        plain, plain_bprop = model.layers.fprop, model.layers.bprop
        model.layers.fprop = lambda x, inference=False: [plain(x, inference)]
        model.layers.bprop = lambda errors: plain_bprop(errors[0])
        model.fit(Lists(), cost, GradientDescentMomentum(0.1, 0.9), 1, callbacks)
        store = recorded(callbacks, output_file)
        assert store["multicost/train_allbranches"].shape == (6, 1)
        np.testing.assert_allclose(store["multicost/train"][...], 0.5 * store["multicost/train_allbranches"][:, 0])
        with pytest.raises(AssertionError, match="Multicost"):
            fit(model, data, Callbacks(model, progress_bar=False, multicost=True), 2)

    @pytest.mark.parametrize("per_batch", [False, True])
    def test_histograms(self, be, model, data, output_file, per_batch):
        callbacks = Callbacks(model, output_file=output_file, progress_bar=False)
        callbacks.add_hist_callback(plot_per_mini=per_batch, filter_key=["W", "dW"])
        fit(model, data, callbacks, 2)
        group = recorded(callbacks, output_file)["hist"]
        steps = 12 if per_batch else 2
        assert (group.attrs["bins"], group.attrs["offset"], group.attrs["time_steps"]) == (64, -48, steps)
        assert group.attrs["time_markers"] == ("minibatch" if per_batch else "epoch")
        linear = model.layers.layers[0]
        histogram = group[f"{linear.name}_0_W"]
        assert histogram.shape == (64, steps)
        np.testing.assert_array_equal(histogram[:, : 11 if per_batch else 2].sum(axis=0), linear.W.size)
        assert len(list(group)) == 6  # weight and gradient of two Linears and a Bias

    @pytest.mark.parametrize("per_batch", [False, True])
    def test_histograms_of_a_training_that_goes_on(self, model, data, output_file, per_batch):
        callbacks = Callbacks(model, output_file=output_file, progress_bar=False)
        callbacks.add_hist_callback(plot_per_mini=per_batch)
        linear = model.layers.layers[0]
        linear.name = "block/first"
        fit(model, data, callbacks, 2)
        first = recorded(callbacks, output_file)[f"hist/{linear.name}_0_W"][...]
        fit(model, data, callbacks, 4)
        store = recorded(callbacks, output_file)
        both, steps = store[f"hist/{linear.name}_0_W"][...], int(store["hist"].attrs["time_steps"])
        done = [int(store["time_markers/minibatch"][epoch]) if per_batch else epoch + 1 for epoch in (1, 3)]
        assert both.shape == (64, steps)
        np.testing.assert_array_equal(both[:, : done[0]], first[:, : done[0]])
        np.testing.assert_array_equal(both[:, : done[1]].sum(axis=0), linear.W.size)
        assert not both[:, done[1] :].any()

    def test_defect_38_an_existing_file_is_overwritten(self, model, data, tmp_path):
        path = tmp_path / "metrics.h5"
        path.write_bytes(b"not HDF5")
        callbacks = Callbacks(model, output_file=str(path), progress_bar=False)
        fit(model, data, callbacks, 1)
        with h5py.File(path) as store:
            assert "cost/train" in store

    def test_a_file_that_an_earlier_training_left_open_is_overwritten(self, model, data, tmp_path):
        left_open = Callbacks(model, output_file=str(tmp_path / "metrics.h5"))
        fit(model, data, Callbacks(model, output_file=str(tmp_path / "metrics.h5"), progress_bar=False), 1)
        assert left_open.callback_data, "still there for the one who has it"
        with h5py.File(tmp_path / "metrics.h5") as store:
            assert "cost/train" in store

    def test_the_folder_of_a_file_is_made_and_its_name_expanded(self, model, data, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        callbacks = Callbacks(model, output_file="~/new/metrics.h5", progress_bar=False)
        fit(model, data, callbacks, 1)
        fit(model, data, callbacks, 2)
        assert (tmp_path / "new" / "metrics.h5").is_file()

    def test_a_file_without_h5py(self, model, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "h5py", None)
        with pytest.raises(MissingExtra, match=r"neonlike\[data\]"):
            Callbacks(model, output_file=str(tmp_path / "metrics.h5"))
        assert Callbacks(model).callback_data is not None


def test_costs_and_metrics_are_logged(be, model, data, valid, caplog):
    callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=2, metric=Misclassification())
    with caplog.at_level("INFO", logger="neon"):
        fit(model, data, callbacks, 2)
    assert "Network Layers" in caplog.text
    lines = [record.getMessage() for record in caplog.records if "complete" in record.getMessage()]
    assert re.fullmatch(r"Epoch 0 complete. Train Cost \d\.\d{6}\.", lines[0])
    assert re.search(r"Train Cost \S+\. Eval Cost \d\.\d{6}\. Top1Misclass \d\.\d{6}\.$", lines[1])


def test_callbacks_come_back_from_their_description(be, model, data, valid, tmp_path):
    callbacks = Callbacks(model, eval_set=valid, eval_freq=2, metric=Misclassification(),
                          save_path=str(tmp_path / "m.p"))  # fmt: skip
    described = callbacks.serialize()
    again = Callbacks.load_callbacks(described, model, data=[data, valid])
    assert names(again) == names(callbacks)
    assert isinstance(again.callbacks[0], LossCallback) and again.callbacks[0].eval_set is valid
    assert again.callbacks[0].epoch_freq == 2
    metric = next(c for c in again.callbacks if isinstance(c, MetricCallback))
    assert isinstance(metric.metric, Misclassification)
    fit(model, data, again, 2)
    with pytest.raises(ArgumentError, match="valid"):
        Callbacks.load_callbacks(callbacks.serialize(), model, data=[data])


def test_training_goes_on_in_another_dialect(model, data):
    with neon_dialect():
        callbacks = Callbacks(model, progress_bar=False)
        fit(model, data, callbacks, epochs=1)
        saved = callbacks.progress()
        costs = list(callbacks.callbacks[0].cost_history)
    assert saved["callbacks"][0][0] == "neon.callbacks.callbacks.TrainCostCallback" and len(costs) == 6
    later = Callbacks(model, progress_bar=False)
    later.on_train_begin(2)
    later.set_progress(saved)
    assert list(later.callbacks[0].cost_history) == costs
