"""The CPU and the GPU given the same seed: the same random numbers, masks and weights bit for bit, and networks that
learn alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import initializers as inits
from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.support.engines import draw_masks_alike
from tests.support.example_scripts import example_script

pytestmark = pytest.mark.usefixtures("gpu_driver")

FLOATS = (np.float32, np.float64, np.float16)
RANDOM = (
    inits.Uniform(-1, 2), inits.Gaussian(1, 0.5), inits.GlorotUniform(), inits.Xavier(), inits.Xavier(False),
    inits.Kaiming(), inits.Kaiming(False), inits.Orthonormal(),
)  # fmt: skip


def on_both(compute: Callable[[Backend], list[Any]], **options: Any) -> tuple[list[Any], list[Any]]:
    """Results of ``compute`` on the CPU and on the GPU, in this order."""
    found = []
    for name in ("cpu", "gpu"):
        be = gen_backend(name, rng_seed=42, batch_size=16, **options)
        found.append([made.get() if hasattr(made, "get") else made for made in compute(be)])
        cleanup_backend()
    return found[0], found[1]


def same(compute: Callable[[Backend], list[Any]], **options: Any) -> list[Any]:
    """Result of ``compute``, asserted to be bit-identical on the CPU and the GPU."""
    ours, theirs = on_both(compute, **options)
    assert len(ours) == len(theirs) > 0
    for number, (first, second) in enumerate(zip(ours, theirs)):
        np.testing.assert_array_equal(first, second, err_msg=f"result {number}")
        assert first.dtype == second.dtype
    return ours


@pytest.mark.parametrize("datatype", FLOATS)
def test_rand_and_dropout(datatype: Any) -> None:
    """In every place of an expression, on tensors of any shape and layout, call after call."""

    def compute(be: Backend) -> list[Any]:
        made = []
        for shape in ((1, 1), (5, 7), (300, 301), (2, 3, 5)):
            t, wide = be.empty(shape), be.zeros((*shape[:-1], 2 * shape[-1]))
            t[:] = be.rand()
            wide[..., ::2] = be.rand()
            made += [t, wide, be.rand(out=be.empty(shape)), be.dropout(0.7, out=be.empty(shape))]
            made.append((t.T * be.dropout(0.3)).astensor())
        return made

    drawn = same(compute, datatype=datatype)
    assert len({values.tobytes() for values in drawn}) > len(drawn) / 2, "calls draw numbers of their own"


@pytest.mark.parametrize("options", [{}, {"stochastic_round": 10}])
def test_keys_of_all_64_bits(options: dict[str, Any]) -> None:
    """As without a seed, where the key is drawn by the system."""

    def compute(be: Backend) -> list[Any]:
        be._rand_stream = (2**64 - 5, 3)
        out, total = be.empty((9, 20)), be.empty((9, 1))
        first, second = be.rand(), be.rand()  # before rounding draws numbers
        out[:] = first
        total[:] = be.sum(out * second, axis=1) if options else second
        copy = be.empty((20, 9)).copy(out.T)
        return [out, total, copy]

    ours, theirs = on_both(compute, **options)
    for first, second in zip(ours, theirs):
        np.testing.assert_allclose(second, first, rtol=2e-3 if options else 0)


def test_masks_normals_and_signs() -> None:
    def compute(be: Backend) -> list[Any]:
        mask, normal, signs = (be.zeros((40, 30)) for _ in range(3))
        be.dropout(0.3, mask)
        be.fill_normal(normal, 1, 2)
        be.binarize(be.zeros((40, 30)), signs)
        return [mask, normal, signs, be.array(be.rng.uniform(size=(2, 3)))]

    mask, normal, signs, _ = same(compute)
    assert 0.2 < mask.mean() < 0.4 and 0.8 < normal.mean() < 1.2 and set(np.unique(signs)) == {-1, 1}


def test_a_state_goes_from_one_to_the_other() -> None:
    state: list[Any] = []

    def compute(be: Backend) -> list[Any]:
        be.dropout(0.5, out=be.empty((3, 3)))
        if state:
            be.rng_set_state(state[0])
        else:
            state.append(be.rng_get_state())
        out = be.empty((9, 9))
        be.fill_normal(out)
        return [be.rand(out=be.empty((9, 9))), out]

    same(compute)


@pytest.mark.parametrize("init", RANDOM, ids=lambda init: type(init).__name__)
def test_initial_weights(init: Any) -> None:
    def compute(be: Backend) -> list[Any]:
        weights = [be.empty((12, 20)), be.empty((20, 12))]
        for tensor in weights:
            init.fill(tensor)
        return weights

    first, second = same(compute)
    assert first.std() > 0 and not np.array_equal(first, second.T)


@pytest.fixture
def equal_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_masks_alike(monkeypatch)


def network() -> tuple[Model, ArrayIterator, Dropout]:
    """A network of two layers with dropout between them, and data of three classes."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 10))
    dropout = Dropout(keep=0.6)
    hidden = Affine(nout=20, init=inits.GlorotUniform(), bias=inits.Constant(0), activation=Rectlin())
    model = Model([hidden, dropout, Affine(nout=3, init=inits.GlorotUniform(), activation=Softmax())])
    return model, ArrayIterator(x, x[:, :3].argmax(axis=1), nclass=3), dropout


def test_a_network_starts_from_equal_weights_and_drops_equal_units(equal_masks: None) -> None:
    def compute(be: Backend) -> list[Any]:
        model, train, dropout = network()
        model.initialize(train, GeneralizedCost(CrossEntropyMulti()))
        made = [layer.W.get() for layer in model.layers.layers if hasattr(layer, "W")]
        for x, _ in train:
            model.fprop(x)
            made.append(dropout.keep_mask.get())
        return made

    *weights, first, second, _, _ = same(compute)
    assert len(weights) == 3 and not np.array_equal(first, second)
    assert set(np.unique(first)) <= {0, 1} and 0.4 < first.mean() < 0.8


def test_a_network_learns_alike(equal_masks: None) -> None:
    """Costs of twenty updates, which sum in other orders, agree to 1e-4, and so do the weights after them."""

    def compute(be: Backend) -> list[Any]:
        model, train, _ = network()
        cost = GeneralizedCost(CrossEntropyMulti())
        callbacks = Callbacks(model, progress_bar=False)
        model.fit(train, cost=cost, optimizer=Adam(learning_rate=0.01), num_epochs=5, callbacks=callbacks)
        costs = np.asarray(callbacks.callback_data["cost/train"][...])
        return [costs, *(layer.W.get() for layer in model.layers.layers if hasattr(layer, "W"))]

    ours, theirs = on_both(compute)
    assert len(ours[0]) == 20 and ours[0][-1] < ours[0][0]
    for first, second in zip(ours, theirs):
        np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-5)


@pytest.fixture
def digits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    yield from example_script("digits_mlp")


def test_digits_are_read_as_well(digits: Any, equal_masks: None) -> None:
    """Ten epochs; at most one of the 359 images is read by one and not by the other."""
    cpu, gpu = (digits.main(["-b", name, "--epochs", "10", "--no_progress_bar"]) for name in ("cpu", "gpu"))
    assert cpu > 0.93
    assert gpu == pytest.approx(cpu, abs=1.01 / 359)
