"""A training that was saved and goes on, in another process too, equals one that was never stopped, bit for bit."""

from __future__ import annotations

import signal
from functools import lru_cache

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.callbacks.store import records
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import (
    Affine,
    BranchNode,
    GeneralizedCost,
    MergeBroadcast,
    MergeSum,
    Multicost,
    Sequential,
    SingleOutputTree,
)
from neonlike.models import Model
from neonlike.models.progress import Progress
from neonlike.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    ExpSchedule,
    GradientDescentMomentum,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
)
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neonlike.util import interrupts
from tests.models.perceptron import layers
from tests.support.clusters import NCLASS, NIN, samples

N, NDATA = 8, 45
PER_EPOCH = [6, 6, 5, 6]  # minibatches: an epoch begins where the last one ended, at samples 0, 3, 6, 1

OPTIMIZERS = {
    "momentum": lambda: GradientDescentMomentum(0.1, 0.9, schedule=ExpSchedule(0.1), nesterov=True),
    "rmsprop": RMSProp,
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "adam": lambda: Adam(learning_rate=0.01),
    "shift": ShiftAdaMax,
    "multi": lambda: MultiOptimizer({"default": Adam(), "Bias": GradientDescentMomentum(0.1, 0.5)}),
}


class Experiment:
    """As a script in a process of its own sets it up."""

    def __init__(self, be, optimizer="momentum", model=None, clip=False, **callbacks):
        self.be = gen_backend(be.backend_name, rng_seed=0, batch_size=N)
        x, labels = samples(NDATA, 1)
        self.data = ArrayIterator(x, labels, nclass=NCLASS)
        self.valid = ArrayIterator(x[:20], labels[:20], nclass=NCLASS)
        self.model = Model(layers(dropout=0.7) if model is None else model)
        self.optimizer = OPTIMIZERS[optimizer]()
        self.callbacks = Callbacks(
            self.model, eval_set=self.valid, eval_freq=1, metric=Misclassification(), progress_bar=False, **callbacks
        )

    def train(self, epochs):
        self.model.fit(self.data, GeneralizedCost(CrossEntropyMulti()), self.optimizer, epochs, self.callbacks)
        return self


def same(a, b, where="model"):
    """Fail unless two saved models are equal in every bit; names of objects and times may differ."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a.keys() - {"name"}:
            same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, err_msg=where)
    else:
        assert a == b, where


@lru_cache
def straight(backend, optimizer, epochs):
    """Final state and records of a training without a stop; computed once."""

    class Named:
        backend_name = backend

    experiment = Experiment(Named, optimizer).train(epochs)
    return experiment.model.serialize(), records(experiment.callbacks.callback_data)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("how", ["path", "load_params", "model_file"])
def test_a_resumed_training_equals_a_straight_one(be, tmp_path, optimizer, how):
    whole, _ = straight(be.backend_name, optimizer, 4)
    path = str(tmp_path / "half.p")
    Experiment(be, optimizer, save_path=path).train(2)
    again = Experiment(be, optimizer, path if how == "path" else None, model_file=path if how == "model_file" else None)
    if how != "path":
        again.be.rng.uniform(size=1000)  # whatever happened before it was loaded
    if how == "load_params":
        again.model.load_params(path)
    again.data.start = 5
    same(again.train(4).model.serialize(), whole)


def hidden():
    return Affine(8, GlorotUniform(), bias=Constant(0), activation=Rectlin())


CONTAINERS = {
    "chain": lambda: Sequential([hidden(), hidden()]),
    "sum": lambda: MergeSum([hidden(), [hidden(), hidden()]]),
    "broadcast": lambda: MergeBroadcast([hidden(), hidden()], merge="stack"),
    "nested": lambda: MergeSum([[MergeBroadcast([hidden(), CONTAINERS["sum"]()], "depth"), hidden()], hidden()]),
}


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "multi"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_states_of_layers_in_containers_are_loaded(be, tmp_path, container, optimizer):
    def layers():
        return [CONTAINERS[container](), Affine(NCLASS, GlorotUniform(), activation=Softmax())]

    whole = Experiment(be, optimizer, layers()).train(4).model.serialize()
    path = str(tmp_path / "half.p")
    Experiment(be, optimizer, layers(), save_path=path).train(2)
    same(Experiment(be, optimizer, path).train(4).model.serialize(), whole)
    again = Experiment(be, optimizer, layers())
    again.model.load_params(path)
    same(again.train(4).model.serialize(), whole)
    anew = Experiment(be, optimizer, layers())
    anew.model.load_params(path, load_states=False)
    assert not any(layer.states for layer in anew.model.layers_to_optimize)


def test_states_of_layers_in_trees_are_loaded(be, tmp_path):
    def experiment(path=None):
        node = BranchNode("resumed")
        trunk, side = [hidden(), node, Affine(NCLASS, GlorotUniform(), activation=Softmax())], [node, hidden()]
        tree = SingleOutputTree([trunk, [*side, Affine(NCLASS, GlorotUniform(), activation=Softmax())]])
        made = Experiment(be, model=path or tree)
        made.costs = Multicost([GeneralizedCost(CrossEntropyMulti()) for _ in range(2)], weights=[1, 0.5])
        return made

    def trained(made, epochs):
        made.model.fit(made.data, made.costs, made.optimizer, epochs, Callbacks(made.model, progress_bar=False))
        return made.model

    whole = trained(experiment(), 4).serialize()
    trained(experiment(), 2).save_params(tmp_path / "half.p")
    same(trained(experiment(tmp_path / "half.p"), 4).serialize(), whole)


def test_what_was_saved_after_the_training_goes_on_as_well(be, tmp_path):
    whole, _ = straight(be.backend_name, "momentum", 4)
    half = Experiment(be).train(2)
    half.model.eval(half.valid, metric=Misclassification())
    half.model.save_params(tmp_path / "half.p")
    same(Experiment(be, model=tmp_path / "half.p").train(4).model.serialize(), whole)


def test_records_go_on(be, tmp_path):
    _, whole = straight(be.backend_name, "momentum", 4)
    Experiment(be, save_path=str(tmp_path / "m.p"), output_file=str(tmp_path / "first.h5")).train(2)
    again = Experiment(be, model_file=str(tmp_path / "m.p")).train(4).callbacks.callback_data
    for path in ("cost/train", "cost/loss", "metrics/Top1Misclass", "time_markers/minibatch"):
        np.testing.assert_array_equal(again[path][...], whole[path][...], err_msg=path)
    assert again["time_markers/minibatch"].attrs["minibatches_complete"] == sum(PER_EPOCH)
    assert (whole["cost/train"][: sum(PER_EPOCH)] > 0).all()


class OwnRecords(Callback):
    """Records of a program's own: weights as they are, and a text."""

    def on_train_begin(self, callback_data, model, epochs):
        if "own/weights" not in callback_data:
            callback_data["own/weights"] = model.layers.layers[0].W.get()
            callback_data.create_dataset("own/text", data="learning rate 0.1")

    def on_epoch_end(self, callback_data, model, epoch):
        callback_data["own/weights"][...] = model.layers.layers[0].W.get()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [None, "records.h5"])
def test_records_of_any_kind_do_not_keep_a_model_from_being_loaded(be, tmp_path, dtype, name):
    gen_backend(be.backend_name, rng_seed=0, batch_size=N, datatype=dtype)
    x, labels = samples(NDATA, 1)
    data, path = ArrayIterator(x, labels, nclass=NCLASS), str(tmp_path / "m.prm")
    model = Model(layers())
    callbacks = Callbacks(model, output_file=name and str(tmp_path / name), progress_bar=False)
    callbacks.add_callback(OwnRecords())
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 2, callbacks)
    model.save_params(path)
    again = Model(path)
    callbacks = Callbacks(again, progress_bar=False, model_file=path)
    callbacks.add_callback(OwnRecords())
    again.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 3, callbacks)
    assert again.epoch_index == 3
    np.testing.assert_array_equal(callbacks.callback_data["own/weights"][...], again.layers.layers[0].W.get())


class Signal(Callback):
    """Ctrl-C at one moment of the training."""

    def __init__(self, moment, epoch, minibatch, experiment):
        super().__init__()
        self.moment, self.at = moment, (epoch, minibatch)
        self.experiment = experiment
        model = experiment.model
        for owner, name in ((model.layers, "fprop"), (model.layers, "bprop"), (experiment.optimizer, "optimize")):
            setattr(owner, name, self.around(name, getattr(owner, name)))

    def around(self, name, original):
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if name != "fprop" or not (kwargs.get("inference") or args[1:] == (True,)):
                self.fire(name)
            return result

        return call

    def fire(self, moment, *at):
        model = self.experiment.model
        if moment == self.moment and (at or (model.epoch_index, model.progress.minibatches)) == self.at:
            self.at = None
            signal.raise_signal(signal.SIGINT)

    def on_epoch_begin(self, callback_data, model, epoch):
        self.fire("epoch begin", epoch, 0)

    def on_minibatch_begin(self, callback_data, model, epoch, minibatch):
        self.fire("begin", epoch, minibatch)

    def on_minibatch_end(self, callback_data, model, epoch, minibatch):
        self.fire("end", epoch, minibatch)

    def on_epoch_end(self, callback_data, model, epoch):
        self.fire("epoch end", epoch, PER_EPOCH[epoch] - 1)


def without_records(saved):
    return {**saved, "progress": {key: value for key, value in saved["progress"].items() if key != "callbacks"}}


MOMENTS = [
    (moment, epoch, minibatch)
    for moment in ("begin", "fprop", "bprop", "optimize", "end")
    for epoch, minibatch in ((0, 0), (1, 3), (1, 5), (2, 4))
] + [("epoch begin", 1, 0), ("epoch end", 1, 5)]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: "-".join(map(str, moment)))
def test_a_training_goes_on_after_ctrl_c_as_if_it_had_not_stopped(be, tmp_path, moment, monkeypatch):
    monkeypatch.setattr(interrupts, "GRACE_S", 60.0)  # else a minibatch that waits for a compiler is not finished
    whole, _ = straight(be.backend_name, "adam", 4)
    path = str(tmp_path / "m.p")
    stopped = Experiment(be, "adam", save_path=path)
    stopped.callbacks.add_callback(Signal(*moment, stopped), insert_pos=0)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(4)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The callbacks of a minibatch after the one that was interrupted are not called again: a cost may be missing.
    resumed = Experiment(be, "adam", model_file=path).train(4).model.serialize()
    recorded = resumed["progress"]["callbacks"]["records"]
    assert (recorded["cost/loss"] > 0).all()
    np.testing.assert_array_equal(recorded["time_markers/minibatch"], np.cumsum(PER_EPOCH))
    same(without_records(resumed), without_records(whole))


def test_the_same_model_goes_on_after_ctrl_c(be, tmp_path):
    whole, _ = straight(be.backend_name, "adam", 4)
    stopped = Experiment(be, "adam")
    for moment in (("fprop", 0, 2), ("end", 2, 1), ("optimize", 3, 5)):
        stopped.callbacks.callbacks.insert(0, signalling := Signal(*moment, stopped))
        with pytest.raises(KeyboardInterrupt):
            stopped.train(4)
        stopped.callbacks.callbacks.remove(signalling)
        assert stopped.model.progress.minibatches > 0
    resumed = stopped.train(4).model.serialize()
    same(without_records(resumed), without_records(whole))


class TestNumberOfEpochs:
    """Use of the number of epochs by fit."""

    @pytest.mark.parametrize("how", ["path", "model_file"])
    def test_fewer_than_are_done(self, be, tmp_path, how):
        path = str(tmp_path / "m.p")
        Experiment(be, save_path=path).train(3)
        again = Experiment(be, model=path) if how == "path" else Experiment(be, model_file=path)
        with pytest.raises(ArgumentError, match=r"num_epochs=2, but 3 epochs are done.*3 plus the number"):
            again.train(2)
        before = again.model.serialize()
        again.train(3)
        same(again.model.serialize()["model"], before["model"])

    @pytest.mark.parametrize(
        ("epochs", "error"),
        [(-3, ArgumentError), ("x", DTypeError), (1.5, DTypeError), (True, DTypeError), (None, DTypeError)],
    )
    def test_what_is_no_number_of_epochs(self, be, epochs, error):
        experiment = Experiment(be)
        with pytest.raises(error, match="num_epochs"):
            experiment.train(epochs)
        assert not experiment.model.initialized
        experiment.train(np.int64(1))
        assert experiment.model.epoch_index == 1


class TestOtherData:
    """A saved training that goes on with something else."""

    def test_other_data_start_where_they_are(self, be, tmp_path):
        Experiment(be, save_path=str(tmp_path / "m.p")).train(1)
        again = Experiment(be, model=tmp_path / "m.p")
        other = ArrayIterator(np.ones((16, NIN)), np.zeros(16, int), nclass=NCLASS)
        again.model.fit(other, GeneralizedCost(CrossEntropyMulti()), again.optimizer, 2)
        assert other.start == 0 and again.model.epoch_index == 2

    def test_a_reset_between_two_trainings_counts(self, be):
        experiment = Experiment(be).train(1)
        assert experiment.data.start == 3
        experiment.data.reset()
        experiment.train(2)
        assert experiment.data.start == 3

    def test_an_iterator_of_any_kind(self, be, tmp_path):
        class Plain:
            shape, ndata, nbatches = NIN, NDATA, 6

            def __init__(self, inner):
                self.inner = inner

            def __iter__(self):
                self.inner.start = 0
                return iter(self.inner)

        def train(epochs, **callbacks):
            experiment = Experiment(be, **callbacks)
            experiment.data = Plain(experiment.data)
            return experiment

        whole = train(3).train(3).model.serialize()
        path = str(tmp_path / "m.p")
        stopped = train(3, save_path=path)
        stopped.callbacks.add_callback(Signal("bprop", 1, 2, stopped))
        with pytest.raises(KeyboardInterrupt):
            stopped.train(3)
        same(train(3, model_file=path).train(3).model.serialize()["model"], whole["model"])

    def test_without_the_states_everything_begins_anew(self, be, tmp_path):
        Experiment(be, save_path=str(tmp_path / "m.p")).train(1)
        model = Model(tmp_path / "m.p", weights_only=True)
        assert model.progress.describe(model) == Progress().describe(model) == {}


@pytest.mark.parametrize(
    "damage",
    [{"minibatches": -1}, {"minibatches": "x"}, {"data": 3}, {"total_cost": None}, {"callbacks": {"records": 1}},
     {"callbacks": {"callbacks": [1], "records": {}}}],
)  # fmt: skip
def test_a_damaged_entry_is_refused(be, damage):
    saved = Experiment(be).train(1).model.serialize()
    saved["progress"].update(damage)
    with pytest.raises(ArgumentError, match="progress"):
        Model(saved)


def test_what_callbacks_saved_and_what_does_not_fit_them(be, caplog):
    experiment = Experiment(be)
    experiment.callbacks.add_save_best_state_callback("")
    experiment.callbacks.add_early_stop_callback(lambda state, loss: ((state or 0) + 1, False))
    saved = experiment.train(2).model.serialize()
    kept = dict(saved["progress"]["callbacks"]["callbacks"])
    assert kept["neonlike.callbacks.callbacks.EarlyStopCallback"] == {"state": 2}
    best = kept["neonlike.callbacks.callbacks.SaveBestStateCallback"]["best_cost"]
    assert best == min(saved["progress"]["callbacks"]["records"]["cost/loss"])
    again = Experiment(be, model=saved)
    again.callbacks.add_save_best_state_callback("")
    states = []
    again.callbacks.add_early_stop_callback(lambda state, loss: (states.append(state) or state, False))
    again.train(3)
    assert states == [2] and again.callbacks.callbacks[-2].best_cost <= best
    entries = saved["progress"]["callbacks"]["callbacks"]
    saved["progress"]["callbacks"]["callbacks"] = [(name, {"nonsense": 1}) for name, _ in entries]
    Experiment(be, model=saved).train(3)
