"""Inference with fewer samples than a batch: right results for those given, and a full batch afterwards as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import LossCallback
from neonlike.data import ArrayIterator, NervanaDataIterator
from neonlike.errors import ArgumentError, ShapeError
from neonlike.initializers import Gaussian, Uniform
from neonlike.layers import (
    Activation,
    Affine,
    BatchNorm,
    Bias,
    Dropout,
    GeneralizedCost,
    LayerNorm,
    Linear,
    MergeSum,
    MultiHeadAttention,
    Recurrent,
    RecurrentLast,
    ResetAfterGRU,
    Reshape,
    Sequential,
    SkipNode,
)
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, get_param_list
from neonlike.transforms import (
    Accuracy,
    CrossEntropyMulti,
    LogLoss,
    Misclassification,
    PrecisionRecall,
    Rectlin,
    Softmax,
    SumSquared,
    Swish,
    Tanh,
    TopKMisclassification,
)

N, NIN, NCLASS = 8, 5, 3


class Plain(NervanaDataIterator):
    """Batches of samples in order; the last has the remaining ones."""

    def __init__(self, be: Any, x: Any, t: Any, batch: int = N) -> None:
        super().__init__()
        self.x, self.t, self.batch, self.device = x, t, batch, be
        self.shape, self.ndata = x.shape[1], len(x)

    @property
    def nbatches(self) -> int:
        return -(-self.ndata // self.batch)

    def reset(self) -> None:
        """Nothing is kept from one pass to the next."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for first in range(0, self.ndata, self.batch):
            rows = slice(first, first + self.batch)
            yield self.device.array(self.x[rows].T), self.device.array(self.t[rows].T)


def samples(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    return rng.normal(size=(count, NIN)), np.eye(NCLASS)[rng.integers(NCLASS, size=count)]


@pytest.fixture
def model(be: Any) -> Model:
    be.bsz = N
    return Model([
        Affine(7, Gaussian(), bias=Uniform(-1, 1), activation=Rectlin()),
        Dropout(0.5),
        SkipNode(),
        Affine(6, Gaussian(), bias=Uniform(-1, 1), activation=Swish()),
        Reshape((3, 2, 1)),
        Bias(Uniform(-1, 1)),
        Reshape((6,)),
        Affine(NCLASS, Gaussian(), activation=Softmax()),
    ])  # fmt: skip


def one_by_one(model: Model, x: Any) -> Any:
    """Results of full batches with copies of each sample."""
    be = model.be
    return np.stack([model.fprop(be.array(np.repeat(row[:, None], N, 1)), inference=True).get()[:, 0] for row in x])


@pytest.mark.parametrize("count", [1, 3, N - 1, N, N + 1, 3 * N - 2])
def test_outputs_of_any_number_of_samples(be: Any, model: Model, count: int) -> None:
    x, t = samples(count)
    data = Plain(be, x, t)
    found = model.get_outputs(data)
    assert found.shape == (count, NCLASS)
    np.testing.assert_allclose(found, one_by_one(model, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.get_outputs(data), found)


def test_a_part_of_a_batch_leaves_nothing_behind(be: Any, model: Model) -> None:
    x, _ = samples(N)
    model.initialize(NIN)
    whole = be.array(x.T)
    before = model.fprop(whole, inference=True).get()
    for count in (3, 1):
        part = model.fprop(be.array(x[:count].T), inference=True)
        assert part.shape == (NCLASS, count)
        np.testing.assert_allclose(part.get(), before[:, :count], rtol=1e-5, atol=1e-6)
        after = model.fprop(be.array(x.T), inference=True)
        assert after.shape == (NCLASS, N)
        np.testing.assert_array_equal(after.get(), before)


METRICS = [
    Misclassification,
    Accuracy,
    LogLoss,
    lambda: TopKMisclassification(2),
    lambda: PrecisionRecall(NCLASS, binarize=True),
]


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_of_any_number_of_samples(be: Any, model: Model, metric: Any) -> None:
    """Those of a batch as large as the data: weighted by samples; precision and recall of all counts."""
    x, t = samples(2 * N + 3)
    model.initialize(NIN)
    y = one_by_one(model, x)
    found = model.eval(Plain(be, x, t), metric())
    parts, weights = [], []
    for first in range(0, len(x), N):
        rows = slice(first, first + N)
        outputs, targets = be.array(y[rows].T), be.array(t[rows].T)
        parts.append(np.atleast_1d(metric()(outputs, targets)))
        weights.append(outputs.shape[1])
    if metric().accumulates:
        parts, weights = [metric()(be.array(y.T), be.array(t.T))], [1]
    np.testing.assert_allclose(found, np.average(parts, axis=0, weights=weights), rtol=1e-5)


def test_the_loss_on_an_evaluation_set(be: Any, model: Model) -> None:
    x, t = samples(2 * N)
    held_out = Plain(be, *samples(N + 3))
    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_callback(LossCallback(held_out))
    cost = GeneralizedCost(CrossEntropyMulti())
    model.fit(Plain(be, x, t), cost, GradientDescentMomentum(0.01, 0.9), 1, callbacks)
    outputs = model.get_outputs(held_out)
    wanted = -np.log((outputs * held_out.t).sum(axis=1)).mean()
    assert callbacks.callback_data["cost/loss"][0] == pytest.approx(wanted, rel=1e-5)
    model.fit(Plain(be, x, t), cost, GradientDescentMomentum(0.01, 0.9), 2)
    assert cost.outputs.shape == (1, N)


def test_sequences(be: Any) -> None:
    """Columns are step by step, each with all samples of the batch: fewer samples are fewer in each step."""
    be.bsz, steps = N, 3
    model = Model([Affine(4, Gaussian(), activation=Tanh()), Affine(2, Gaussian(), activation=Swish())])
    model.initialize((NIN, steps))
    x = np.random.default_rng(0).normal(size=(NIN, steps, N))
    whole = model.fprop(be.array(x.reshape(NIN, -1)), inference=True).get().reshape(2, steps, N)
    part = model.fprop(be.array(x[:, :, :3].reshape(NIN, -1)), inference=True)
    np.testing.assert_allclose(part.get().reshape(2, steps, 3), whole[:, :, :3], rtol=1e-5, atol=1e-6)

    class Steps(Plain):
        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            for first in range(0, self.ndata, N):
                part = x[:, :, first : first + N][:, :, : self.ndata - first]
                yield be.array(part.reshape(NIN, -1)), None

    data = Steps(be, np.zeros((5, NIN)), None)
    data.shape = (NIN, steps)
    found = model.get_outputs(data)
    assert found.shape == (5, steps, 2)
    np.testing.assert_allclose(found, whole[:, :, :5].transpose(2, 1, 0), rtol=1e-5, atol=1e-6)


FIRST = {
    "Affine": lambda: [Affine(4, Gaussian(), activation=Tanh())],
    "BatchNorm": lambda: [BatchNorm()],
    "LayerNorm": lambda: [LayerNorm()],
    "Dropout": lambda: [Dropout(0.5)],
    "branches": lambda: [MergeSum([[Linear(NIN, Gaussian())], SkipNode()])],
    "ResetAfterGRU": lambda: [ResetAfterGRU(4, Gaussian())],
    "attention": lambda: [MultiHeadAttention(1, Gaussian())],
    "Recurrent": list,
}


@pytest.mark.parametrize("name", FIRST)
def test_any_layer_trains_on_sequences_in_columns(be: Any, name: str) -> None:
    """It finds what it finds with the same numbers step by step."""
    be.bsz, steps = N, 4
    rng = np.random.default_rng(5)
    x = rng.normal(size=(NIN * steps, N))
    layers = [*FIRST[name](), Recurrent(6, Gaussian(), activation=Tanh(), reset_cells=True), RecurrentLast()]
    model, cost = Model([*layers, Affine(2, Gaussian())]), GeneralizedCost(SumSquared())
    model.initialize((NIN, steps), cost)

    def trained(inputs: Any) -> list[Any]:
        be.rng_reset()
        y = model.fprop(inputs)
        model.bprop(cost.get_errors(y, be.zeros((2, N))))
        return [y.get(), *[grad.get() for (_, grad), _ in get_param_list(model.layers_to_optimize)]]

    def inferred(inputs: Any) -> list[Any]:
        return [model.fprop(inputs, inference=True).get()]

    for run in (trained, inferred):
        for ours, its in zip(run(be.array(x)), run(be.array(x.reshape(NIN, -1))), strict=True):
            np.testing.assert_array_equal(ours, its)


def test_other_rows_are_no_sequences(be: Any) -> None:
    be.bsz = N
    model = Model([Linear(3, Gaussian())])
    model.initialize((NIN, 4))
    with pytest.raises(ShapeError, match="configured for 5 features"):
        model.fprop(be.zeros((2 * NIN, 2 * N)))


@pytest.mark.parametrize("count", [1, N, N + 3])
@pytest.mark.parametrize("name", ["Recurrent", "Affine"])
def test_sequences_in_columns(be: Any, count: int, name: str) -> None:
    """The first layer reads a column of an ArrayIterator as the steps of a sample; each column is one sample."""
    be.bsz, steps = N, 4
    rng = np.random.default_rng(count)
    x, labels = rng.normal(size=(count, NIN, steps)), rng.integers(NCLASS, size=count)
    data = ArrayIterator(x.reshape(count, -1), labels, nclass=NCLASS, lshape=(NIN, steps))
    recurrent = Recurrent(6, Gaussian(), activation=Tanh(), reset_cells=True)
    model = Model([*FIRST[name](), recurrent, RecurrentLast(), Affine(NCLASS, Gaussian(), activation=Softmax())])
    model.initialize(data, GeneralizedCost(CrossEntropyMulti()))
    by_step = np.zeros((NIN, steps, N))
    found = model.get_outputs(data)
    assert found.shape == (count, NCLASS)
    for sample in range(count):
        by_step[:, :, 0] = x[sample]
        wanted = model.fprop(be.array(by_step.reshape(NIN, -1)), inference=True).get()[:, 0]
        np.testing.assert_allclose(found[sample], wanted, rtol=1e-5, atol=1e-6)
    assert model.eval(data, Accuracy()) == pytest.approx((found.argmax(axis=1) == labels).mean())
    cost = -np.log(found[np.arange(count), labels]).mean()
    assert LossCallback(data)._evaluate(model) == pytest.approx(cost, rel=1e-5)


def test_training_needs_full_batches(be: Any, model: Model) -> None:
    x, t = samples(N - 1)
    with pytest.raises(ShapeError, match=r"allocated for 8 columns.*fewer columns are for fprop\(x, inference=True\)"):
        model.fit(Plain(be, x, t), GeneralizedCost(SumSquared()), GradientDescentMomentum(0.1, 0.9), 1)
    with pytest.raises(ShapeError, match="allocated for 8 columns"):
        model.fprop(be.zeros((NIN, N + 1)), inference=True)


def test_an_output_that_is_part_of_another_buffer(be: Any) -> None:
    """Strided memory, as branches of a network share it, has no first part that is contiguous."""
    be.bsz = N
    linear = Linear(3, Gaussian())
    chain = Sequential([linear, Activation(Swish())])
    chain.configure(NIN)
    chain.allocate()
    shared = be.zeros((6, 2 * N))
    linear.outputs = shared[:3, :N]
    x = be.array(samples(N)[0].T)
    before = chain.fprop(x, inference=True).get()
    np.testing.assert_allclose(chain.fprop(x[:, :2], inference=True).get(), before[:, :2], rtol=1e-5, atol=1e-6)


class Padded(Plain):
    """Sequences, columns step by step; the last batch is completed with samples of the start, as iterators here do."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for first in range(0, self.ndata, N):
            chosen = np.arange(first, first + N) % self.ndata
            x, t = (part[chosen].transpose(2, 1, 0).reshape(part.shape[2], -1) for part in (self.x, self.t))
            yield self.device.array(x), self.device.array(t)


def test_padding_of_sequences_does_not_count(be: Any) -> None:
    """Columns of the samples that are left are in each step, not the first ones of a batch."""
    be.bsz, steps, count = N, 4, N + 3
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count, steps, NIN))
    labels = rng.integers(NCLASS, size=(count, steps))
    data = Padded(be, x, np.eye(NCLASS)[labels])
    data.shape = (NIN, steps)
    model = Model([Affine(NCLASS, Gaussian(scale=2), activation=Softmax())])
    model.initialize(data, GeneralizedCost(CrossEntropyMulti()))
    y = model.get_outputs(data)
    wanted = -np.log(np.take_along_axis(y, labels[:, :, None], axis=2)).mean()
    assert model.eval(data, LogLoss()) == pytest.approx(wanted, rel=1e-5)
    assert model.eval(data, Accuracy()) == pytest.approx((y.argmax(axis=2) == labels).mean(), rel=1e-5)
    assert LossCallback(data)._evaluate(model) == pytest.approx(wanted, rel=1e-5)

    class Twice(Padded):
        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            for inputs, targets in super().__iter__():
                yield inputs, (targets, [targets, None])

    class Second(LogLoss):
        def __call__(self, y: Any, t: Any, calcrange: slice = slice(0, None)) -> float:
            assert t[0].shape == t[1][0].shape == y.shape and t[1][1] is None
            return super().__call__(y, t[1][0], calcrange)

    nested = Twice(be, x, data.t)
    nested.shape = data.shape
    assert model.eval(nested, Second()) == pytest.approx(wanted, rel=1e-5)


class Repeating(Plain):
    """Goes through its samples several times an epoch; ``ndata`` counts them once, ``nbatches`` is an argument."""

    times, announced = 3, 3

    @property
    def nbatches(self) -> int:
        return self.announced * super().nbatches

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for _ in range(self.times):
            yield from super().__iter__()


def test_more_batches_than_samples_fill(be: Any, model: Model) -> None:
    """All are recorded; in evaluation those after the last sample do not count."""
    x, t = samples(2 * N)
    data, cost = Repeating(be, x, t), GeneralizedCost(CrossEntropyMulti())
    callbacks = Callbacks(model, eval_set=data, eval_freq=1, progress_bar=False)
    model.fit(data, cost, GradientDescentMomentum(0.1, 0.9), 2, callbacks)
    recorded = callbacks.callback_data
    assert recorded["cost/train"].shape == (12,) and (recorded["cost/train"][:] > 0).all()
    y = model.get_outputs(data)
    assert y.shape == (2 * N, NCLASS)
    assert recorded["cost/loss"][1] == pytest.approx(-np.log((y * t).sum(axis=1)).mean(), rel=1e-5)
    assert model.eval(data, Accuracy()) == pytest.approx((y.argmax(axis=1) == t.argmax(axis=1)).mean())


def test_an_evaluation_ends_with_the_samples(be: Any, model: Model) -> None:
    """An iterator may go on for ever."""

    class Endless(Repeating):
        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            yield from super().__iter__()
            raise AssertionError("asked for more than the samples")

    data = Endless(be, *samples(2 * N))
    model.initialize(data)
    assert model.get_outputs(data).shape == (2 * N, NCLASS)


def test_more_batches_than_the_iterator_says(be: Any, model: Model) -> None:
    data = Repeating(be, *samples(2 * N))
    data.announced = 1
    callbacks = Callbacks(model, progress_bar=False)
    with pytest.raises(ArgumentError, match=r"minibatch 3 of a training of 2: .*nbatches"):
        model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 1, callbacks)


def test_an_evaluation_set_without_a_batch(be: Any, model: Model) -> None:
    empty = Repeating(be, *samples(N))
    empty.times = 0
    callbacks = Callbacks(model, eval_set=empty, eval_freq=1, progress_bar=False)
    data, cost = Plain(be, *samples(N)), GeneralizedCost(CrossEntropyMulti())
    with pytest.raises(ArgumentError, match="yielded no batch"):
        model.fit(data, cost, GradientDescentMomentum(0.1, 0.9), 1, callbacks)
