"""Data with fewer samples than a batch, and metrics of whole data sets that are no means over samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import LSTM, Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import (
    CrossEntropyMulti,
    Logistic,
    Misclassification,
    PrecisionRecall,
    Rectlin,
    Softmax,
    SumSquared,
    Tanh,
)  # fmt: skip
from tests.support.clusters import NCLASS, NIN, samples
from tests.support.ranks import OneOf

pytestmark = pytest.mark.backend


def network(kind: str) -> Model:
    init = GlorotUniform()
    if kind == "mlp":
        last = Affine(NCLASS, init, bias=Constant(0), activation=Softmax())
        return Model([Affine(7, init, activation=Rectlin()), last])
    return Model([Affine(4, init, activation=Logistic()), Affine(NCLASS, init, activation=Logistic())])


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize(("kind", "function"), [("mlp", CrossEntropyMulti), ("logistic", SumSquared)])
def test_one_batch_trains_as_a_batch_of_that_size(be: Any, count: int, kind: str, function: Any) -> None:
    """The columns behind the samples are no part of costs, gradients and metrics."""
    x, labels = samples(count)
    found = []
    for batch in (count, 16):
        gen_backend(be.backend_name, rng_seed=0, batch_size=batch)
        model = network(kind)
        data = ArrayIterator(x, labels, nclass=NCLASS)
        callbacks = Callbacks(model, progress_bar=False, eval_set=data, eval_freq=1, metric=Misclassification())
        optimizer = GradientDescentMomentum(0.1, 0.9, wdecay=0.01)
        model.fit(data, GeneralizedCost(function()), optimizer, 5, callbacks)
        weights = [p.get() for layer in model.layers_to_optimize for p in [layer.W]]
        store = callbacks.callback_data
        found.append((weights, store["cost/loss"][...], store["metrics/Top1Misclass"][...], store["cost/train"][...]))
        assert model.get_outputs(data).shape == (count, NCLASS)
    for one, other in zip(*found):
        for a, b in zip(one, other):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


def test_columns_of_sequences(be: Any) -> None:
    """Step after step, each with the columns of all samples."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=4)
    init, steps, count = GlorotUniform(), 3, 3
    layer = LSTM(2, init, init, activation=Tanh(), gate_activation=Logistic()).configure((NIN, steps))
    cost = GeneralizedCost(SumSquared())
    cost.initialize(layer)
    cost.count_samples(count)
    here = layer.be
    y, t = (np.random.default_rng(seed).normal(size=(2, steps, 4)) for seed in (1, 2))
    flat = [here.array(x.reshape(2, -1)) for x in (y, t)]
    value = 0.5 * ((y - t)[:, :, :count] ** 2).sum() / (steps * count)
    np.testing.assert_allclose(cost.get_cost(*flat).item(), value, rtol=1e-5)
    expected = (y - t) * 4 / count
    expected[:, :, count:] = 0
    np.testing.assert_allclose(cost.get_errors(*flat).get().reshape(2, steps, 4), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_columns_of_ranks(be: Any, size: int) -> None:
    """Columns count by their place in the batch of all ranks; the last rank has none that count."""
    steps, count = 3, 4
    y, t = (np.random.default_rng(seed).normal(size=(2, steps, 6)) for seed in (1, 2))

    def passed(columns: slice) -> tuple[float, np.ndarray]:
        cost, here = GeneralizedCost(SumSquared()), NervanaObject.be
        init = GlorotUniform()
        cost.initialize(LSTM(2, init, init, activation=Tanh(), gate_activation=Logistic()).configure((2, steps)))
        cost.count_samples(count)
        flat = [here.array(x[:, :, columns].reshape(2, -1)) for x in (y, t)]
        return cost.get_cost(*flat).item(), cost.get_errors(*flat).get().reshape(2, steps, -1)

    gen_backend(be.backend_name, rng_seed=0, batch_size=6)
    value, expected = passed(slice(0, 6))
    values, errors = [], []
    for rank in range(size):
        here = gen_backend(be.backend_name, rng_seed=0, batch_size=6 // size)
        here.ranks = OneOf(rank, size)
        for results, result in zip((values, errors), passed(here.own_columns)):
            results.append(result)
    np.testing.assert_allclose(np.mean(values), value, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate(errors, axis=2), expected, rtol=1e-5, atol=1e-6)
    assert not expected[:, :, count:].any() and (size == 2 or values[-1] == 0)


def test_the_next_training_counts_all_columns_again(be: Any) -> None:
    gen_backend(be.backend_name, rng_seed=0, batch_size=8)
    model, cost = network("mlp"), GeneralizedCost(CrossEntropyMulti())
    optimizer = GradientDescentMomentum(0.1, 0.9)
    model.fit(ArrayIterator(*samples(3), nclass=NCLASS), cost, optimizer, 1)
    assert cost.column_weights is not None
    model.fit(ArrayIterator(*samples(32), nclass=NCLASS), cost, optimizer, 2)
    assert cost.column_weights is None


@pytest.mark.parametrize("count", [5, 8, 21, 40])
@pytest.mark.parametrize("batch", [4, 8, 64])
def test_precision_and_recall_of_a_data_set(be: Any, count: int, batch: int) -> None:
    """Precision and recall come from the total counts, whatever the batches are."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=batch)
    x, labels = samples(count)
    model, metric = network("mlp"), PrecisionRecall(NCLASS, binarize=True)
    data = ArrayIterator(x, labels, nclass=NCLASS)
    found = model.eval(data, metric)
    said = model.get_outputs(data).argmax(1)
    right = [np.sum((said == k) & (labels == k)) for k in range(NCLASS)]
    precision = np.mean([r / (np.sum(said == k) + 1e-6) for k, r in enumerate(right)])
    recall = np.mean([r / (np.sum(labels == k) + 1e-6) for k, r in enumerate(right)])
    np.testing.assert_allclose(found, [precision, recall], rtol=1e-5)
    callbacks = Callbacks(model, progress_bar=False, eval_set=data, eval_freq=1, metric=metric)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.0, 0.9), 1, callbacks)
    recorded = [callbacks.callback_data[f"metrics/{name}"][0] for name in metric.metric_names]
    np.testing.assert_allclose(recorded, [precision, recall], rtol=1e-5)
