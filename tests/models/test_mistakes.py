"""Mistakes of first scripts that once gave wrong gradients, or nothing, or an error far from the mistake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback, SaveBestStateCallback, SerializeModelCallback
from neonlike.data import ArrayIterator, Text
from neonlike.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from neonlike.experiments.load_experiment import deserialize
from neonlike.initializers import Constant, Gaussian, GlorotUniform
from neonlike.layers import (
    Activation,
    Affine,
    BatchNorm,
    BranchNode,
    GeneralizedCost,
    Linear,
    MergeSum,
    Multicost,
    Recurrent,
    Seq2Seq,
    Sequential,
    Tree,
)
from neonlike.models import Model
from neonlike.optimizers import Adadelta, Adam, GradientDescentMomentum, MultiOptimizer, RMSProp, ShiftAdaMax
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import Accuracy, CrossEntropyMulti, Misclassification, MultiMetric, Rectlin, Softmax, Tanh
from neonlike.util.persist import UnreadableFile, load_obj, serialize

N, NIN, NCLASS = 8, 4, 3


@pytest.fixture
def data(be: Any) -> ArrayIterator:
    be.bsz = N
    rng = np.random.default_rng(0)
    labels = rng.integers(NCLASS, size=2 * N)
    return ArrayIterator(rng.normal(size=(2 * N, NIN)), labels, nclass=NCLASS)


def linear(nout: int = NIN) -> Linear:
    return Linear(nout, GlorotUniform())


def network() -> list[Any]:
    return [Affine(5, GlorotUniform(), bias=Constant(0), activation=Rectlin()), softmax()]


def softmax() -> Affine:
    return Affine(NCLASS, GlorotUniform(), activation=Softmax())


def cost() -> GeneralizedCost:
    return GeneralizedCost(CrossEntropyMulti())


class TestNetworks:
    """Layers that cannot train where they stand."""

    def repeated(self) -> list[Any]:
        layer, block = linear(), Affine(NIN, GlorotUniform(), activation=Rectlin())
        return [
            [layer, layer], [*block, *block], [MergeSum([[layer], [linear(), layer]])], [layer, Sequential([layer])],
        ]  # fmt: skip

    def test_a_layer_that_stands_twice_is_refused(self, be: Any, data: Any) -> None:
        """Its second call would overwrite values that the gradient of the first needs."""
        for layers in self.repeated():
            with pytest.raises(ArgumentError, match=r"'Linear_\d+' stands twice"):
                Model([*layers, softmax()]).initialize(data)

    def test_in_neons_dialect_it_is_a_warning(self, be: Any, data: Any, caplog: Any) -> None:
        with neon_dialect():
            Model(self.repeated()[0]).initialize(data)
        assert "stands twice" in caplog.text

    def test_branch_nodes_stand_where_their_branches_meet(self, be: Any, data: Any) -> None:
        node = BranchNode("of mistakes")
        Model(Tree([[linear(), node, softmax()], [node, softmax()]])).initialize(data)

    def test_a_layer_in_place_of_the_data(self, be: Any) -> None:
        with pytest.raises(ArgumentError, match=r"layers in a list: Model\(\[first, second\]\)"):
            Model(linear(), softmax())

    def test_an_array_is_no_shape(self, be: Any) -> None:
        """Its own shape has the samples in it."""
        be.bsz = N
        with pytest.raises(DTypeError, match=r"from a ndarray.*a shape"):
            Model([linear()]).initialize(np.zeros((20, NIN)))

    def test_a_backward_pass_before_the_forward_pass(self, be: Any, data: Any) -> None:
        model = Model(network())
        model.initialize(data)
        with pytest.raises(ArgumentError, match=r"Softmax\.bprop: .*call fprop first"):
            model.bprop(be.ones((NCLASS, N)))

    def test_a_metric_of_one_of_several_outputs_takes_the_only_targets(self, be: Any, data: Any) -> None:
        node = BranchNode("of metrics")
        model = Model(Tree([[linear(), node, softmax()], [node, softmax()]]))
        model.initialize(data, Multicost([cost(), cost()]))
        found = [float(model.eval(data, MultiMetric(Accuracy(), i))[0]) for i in range(2)]
        labels = data.ydev.get().ravel()
        outputs = [[], []]
        data.reset()
        for x, _ in data:
            for kept, y in zip(outputs, model.fprop(x, inference=True), strict=True):
                kept.append(y.get().argmax(axis=0))
        assert found == [np.mean(np.concatenate(one) == labels) for one in outputs]


class TestCosts:
    """Costs that do not fit the network, or are none."""

    def test_sequences_for_labels(self, be: Any, data: Any) -> None:
        layers = [Recurrent(5, GlorotUniform(), activation=Tanh()), softmax()]
        steps = ArrayIterator(np.zeros((N, 6)), np.zeros(N, dtype=int), nclass=NCLASS, lshape=(2, 3))
        with pytest.raises(ShapeError, match=r"sequences of 3 steps.*RecurrentLast"):
            Model(layers).fit(steps, cost(), Adam(), 1)

    def test_several_outputs_with_one_cost(self, be: Any, data: Any) -> None:
        node = BranchNode("of costs")
        with pytest.raises(ArgumentError, match=r"2 outputs.*Multicost"):
            Model(Tree([[linear(), node, softmax()], [node, softmax()]])).initialize(data, cost())

    def test_a_metric_is_no_cost(self, be: Any) -> None:
        with pytest.raises(DTypeError, match=r"Accuracy.*is not a cost function"):
            GeneralizedCost(Accuracy())

    def test_text_without_the_words_before(self, be: Any, tmp_path: Any) -> None:
        be.bsz = 2
        (tmp_path / "t.txt").write_text("abcd" * 8)
        layers = Seq2Seq([[Recurrent(5, GlorotUniform(), activation=Tanh())] for _ in range(2)])
        with pytest.raises(DTypeError, match=r"inputs are a pair.*get_prev_target=True"):
            Model(layers).fit(Text(4, str(tmp_path / "t.txt")), cost(), Adam(), 1)


def test_a_spread_below_0() -> None:
    with pytest.raises(ArgumentError, match=r"Gaussian: scale=-1"):
        Gaussian(scale=-1)


def test_sizes_that_are_no_tuple(be: Any) -> None:
    with pytest.raises(DTypeError, match=r"'4' is not a dtype.*several sizes are a tuple"):
        be.zeros(3, 4)


class TestFiles:
    """Files of other networks, and places where none can be written."""

    @pytest.mark.parametrize(
        ("other", "words"),
        [(lambda: [linear(), BatchNorm(), softmax()], r"BatchNorm_\d+: .*a Activation with no parameters"),
         (lambda: [linear(), Activation(Rectlin()), Activation(Rectlin()), Activation(Softmax())],
          r"a Linear with parameters \['W'\]")],
    )  # fmt: skip
    def test_a_file_of_another_network(self, be: Any, data: Any, tmp_path: Any, other: Any, words: str) -> None:
        saved = Model([Affine(NIN, GlorotUniform(), activation=Rectlin()), softmax()])
        saved.initialize(data)
        saved.save_params(tmp_path / "m.prm")
        with pytest.raises(ArgumentError, match=words):
            Model(other()).load_params(tmp_path / "m.prm")

    def test_an_experiment_without_its_arrays(self, be: Any, data: Any) -> None:
        model = Model(network())
        model.initialize(data)
        with pytest.raises(ArgumentError, match=r"missing a required argument: 'X'.*give datasets="):
            deserialize(serialize(model, datasets=data))

    def test_an_empty_file(self, tmp_path: Any) -> None:
        (tmp_path / "m.prm").touch()
        with pytest.raises(UnreadableFile, match="is empty"):
            load_obj(tmp_path / "m.prm")

    @pytest.mark.parametrize("kind", [SerializeModelCallback, SaveBestStateCallback])
    def test_where_nothing_can_be_saved_is_known_before_training(
        self, be: Any, data: Any, tmp_path: Any, kind: type[Callback]
    ) -> None:
        (tmp_path / "file").touch()
        for path in (tmp_path, tmp_path / "file" / "m.prm"):
            model = Model(network())
            callbacks = Callbacks(model, progress_bar=False, eval_set=data, eval_freq=1)
            callbacks.add_callback(kind(str(path)))
            with pytest.raises(OSError, match=f"{kind.__name__}.*cannot be written"):
                model.fit(data, cost(), Adam(), 1, callbacks)
            assert model.epoch_index == 0 and model.progress.minibatches == 0


class TestCallbacks:
    """Wrong settings of callbacks."""

    def test_saving_needs_a_path(self, be: Any, caplog: Any) -> None:
        Callbacks(Model(network()), serialize=2, progress_bar=False)
        assert "serialize=2 saves nothing without save_path" in caplog.text

    @pytest.mark.parametrize("freq", ["1", 1.5])
    def test_a_frequency_is_a_number_or_a_list_of_them(self, freq: Any) -> None:
        for name in ("epoch_freq", "minibatch_freq"):
            with pytest.raises(ArgumentTypeError, match=f"Callback: {name}"):
                Callback(**{name: freq})

    def test_a_callback_of_ones_own_may_forget_the_constructor_of_its_base(self, be: Any, data: Any) -> None:
        class Counts(Callback):
            def __init__(self) -> None:
                self.epochs: list[int] = []

            def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
                self.epochs.append(epoch)

        model, counts = Model(network()), Counts()
        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_callback(counts)
        model.fit(data, cost(), Adam(), 2, callbacks)
        assert counts.epochs == [0, 1]


class TestOptimizers:
    """Keys of a MultiOptimizer that no layer has."""

    @pytest.mark.parametrize(("key", "said"), [("Affine", True), ("Biass", True), ("Bias", False), ("LSTM", False)])
    def test_they_are_said(self, be: Any, data: Any, caplog: Any, key: str, said: bool) -> None:
        optimizer = MultiOptimizer({"default": GradientDescentMomentum(0.1, 0.9), key: Adam()})
        Model(network()).fit(data, cost(), optimizer, 1)
        assert (f"no layer of this network has the name or class {key!r}" in caplog.text) == said
        assert ("did you mean Bias?" in caplog.text) == (key == "Biass")

    def test_a_norm_below_0_would_turn_the_step_round(self, be: Any, data: Any) -> None:
        for optimizer in (GradientDescentMomentum(0.1, 0.0, gradient_clip_norm=-1.0), Adam(gradient_clip_norm=-1.0)):
            with pytest.raises(ArgumentError, match=r"gradient_clip_norm=-1"):
                Model(network()).fit(data, cost(), optimizer, 1)

    @pytest.mark.parametrize(
        ("make", "name"), [(RMSProp, "decay_rate"), (Adadelta, "decay"), (Adam, "beta_1"), (ShiftAdaMax, "beta_2")]
    )
    def test_averages_weigh_less_than_1(self, make: Any, name: str) -> None:
        for value in (1.0, -0.1, 2.0):
            with pytest.raises(ArgumentError, match=f"{name}.*must be in"):
                make(**{name: value})

    def test_layers_are_found_by_name(self, be: Any, data: Any, caplog: Any) -> None:
        optimizer = MultiOptimizer({"default": GradientDescentMomentum(0.1, 0.9), "top": Adam()})
        model = Model([linear(), Affine(NCLASS, GlorotUniform(), activation=Softmax(), name="top")])
        model.fit(data, cost(), optimizer, 1)
        assert "no layer" not in caplog.text and model.eval(data, Misclassification()).shape == (1,)
