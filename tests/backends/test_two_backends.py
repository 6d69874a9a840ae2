"""Objects made on one backend and used with another: those that move to it, and errors of the others."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import cleanup_backend, gen_backend
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, BackendUnavailable, DTypeError, OtherBackend
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from tests.support.engines import ON_GPU

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 2


def make_model():
    init = GlorotUniform()
    return Model(
        [
            Affine(4, init, bias=Constant(0), activation=Rectlin()),
            Affine(2, init, bias=Constant(0), activation=Softmax()),
        ]
    )


def fit(model, data, epochs=1, cost=None):
    model.fit(
        data, cost or GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, momentum_coef=0.9), epochs
    )


@pytest.fixture
def again(be):
    """Makes another backend of the same kind, and installs it."""
    be.bsz = 5
    return lambda batch_size=5, **options: gen_backend(be.backend_name, rng_seed=0, batch_size=batch_size, **options)


@pytest.mark.parametrize("y", [Y, None, X])
@pytest.mark.parametrize("bsz", [5, 4])
def test_an_iterator_follows_to_another_backend(be, again, bsz, y):
    made = {"nclass": 2} if y is Y else {"make_onehot": False}
    data = ArrayIterator(X, y, **made)
    host = [(x.get(), t.get()) for x, t in ArrayIterator(X, y, **made)]
    new = again(bsz)
    if ON_GPU:
        with pytest.raises(OtherBackend, match=r"ArrayIterator_\d+: its data are on .*closed.*after gen_backend"):
            list(data)
        return
    batches = [(x.get(), t.get()) for x, t in data]
    assert data.Xbuf[0].backend is new and data.nbatches == 20 // bsz
    for part in (0, 1):
        joined = [np.concatenate([batch[part] for batch in some], axis=1) for some in (host, batches)]
        np.testing.assert_array_equal(joined[0], joined[1])


@pytest.mark.cpu_only("a GPU's tensors end with their backend")
def test_a_training_with_an_iterator_and_a_cost_of_before(be, again):
    data, cost = ArrayIterator(X, Y, nclass=2), GeneralizedCost(CrossEntropyMulti())
    again()
    fit(expected := make_model(), ArrayIterator(X, Y, nclass=2))
    again()
    fit(model := make_model(), data, cost=cost)
    for a, b in zip(expected.layers_to_optimize, model.layers_to_optimize, strict=True):
        np.testing.assert_array_equal(a.W.get(), b.W.get())


def test_a_backend_without_a_batch_size_is_named(be, again):
    data = ArrayIterator(X, Y, nclass=2)
    again(batch_size=0)
    for use in (lambda: data.nbatches, lambda: next(iter(data)), lambda: fit(make_model(), data)):
        with pytest.raises(ArgumentError, match=r"ArrayIterator: the backend's batch size is 0; give gen_backend"):
            use()


@pytest.mark.parametrize("how", ["trained", "loaded"])
def test_a_model_says_where_it_belongs(be, again, how, tmp_path):
    data = ArrayIterator(X, Y, nclass=2)
    model = make_model()
    fit(model, data)
    path = tmp_path / "m.p"
    model.save_params(path)
    if how == "loaded":
        model = Model(path)
    new = again()
    data = ArrayIterator(X, Y, nclass=2)
    uses = [
        lambda: fit(model, data, 2),
        lambda: model.eval(data, Misclassification()),
        lambda: model.get_outputs(data),
        lambda: model.fprop(new.zeros((3, 5))),
        lambda: model.bprop(new.zeros((2, 5))),
        lambda: model.load_params(path),
    ]
    for use in uses:
        with pytest.raises(
            OtherBackend, match=r"model\.\w+: the model was made on <.*closed>.*current backend is <.*Model\(path\)"
        ):
            use()
    assert model.epoch_index == 1
    fit(Model(path), data, 2)
    cleanup_backend()
    with pytest.raises(BackendUnavailable, match="there is no backend"):
        model.eval(data, Misclassification())


def test_a_model_that_has_no_tensors_yet_follows(be, again):
    model = make_model()
    new = again()
    fit(model, ArrayIterator(X, Y, nclass=2))
    assert model.made_on is new


def test_tensors_say_where_they_belong(be, again):
    mine = be.ones((2, 2))
    new = again(4)
    other = new.ones((2, 2))
    for use in (
        lambda: new.compound_dot(mine, other, new.empty((2, 2))),
        lambda: new.assign(other, mine + 1),
        lambda: new.assign(mine, other + 1),
    ):
        with pytest.raises(DTypeError, match=r"belongs to another backend, <.*bsz=5, closed>, and not to .*<.*bsz=4>"):
            use()
