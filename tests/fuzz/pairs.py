"""Random pairs of a last activation and a cost: the cost and the gradient of the input are those of plain formulas.

The activation is the last layer's own or a layer behind it; targets are one-hot, soft, weighted, masked or of zeros and
ones. The formulas are NumPy's in float64, with central differences for the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from neonlike.initializers import Constant
from neonlike.layers import Activation, Affine, GeneralizedCost, Linear
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.transforms import (
    GELU,
    CrossEntropyBinary,
    CrossEntropyMulti,
    Explin,
    Identity,
    Logistic,
    MeanAbsolute,
    MeanSquared,
    Normalizer,
    PixelwiseSoftmax,
    Rectlin,
    Rectlinclip,
    SiLU,
    SmoothL1Loss,
    Softmax,
    SquareHingeLoss,
    SumSquared,
    Swish,
    Tanh,
)  # fmt: skip

Array = np.ndarray[Any, Any]
ROWS = 6


def sig(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array, axis: int = 0) -> Array:
    """Along ``axis``."""
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def pixelwise(x: Array) -> Array:
    """Over three maps."""
    return softmax(x.reshape(3, -1)).reshape(x.shape)


ACTIVATIONS: dict[str, tuple[Callable[[], Any], Callable[[Array], Array]]] = {
    "Identity": (Identity, lambda x: x),
    "Rectlin": (Rectlin, lambda x: np.maximum(x, 0)),
    "leaky": (lambda: Rectlin(slope=0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "Rectlinclip": (lambda: Rectlinclip(xcut=0.9), lambda x: np.clip(x, 0, 0.9)),
    "Explin": (Explin, lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    "Normalizer": (lambda: Normalizer(divisor=2.0), lambda x: x / 2),
    "Softmax": (Softmax, softmax),
    "Softmax(axis=1)": (lambda: Softmax(axis=1), lambda x: softmax(x, 1)),
    "PixelwiseSoftmax": (lambda: PixelwiseSoftmax(3), pixelwise),
    "Tanh": (Tanh, np.tanh),
    "Logistic": (Logistic, sig),
    "Logistic(shortcut)": (lambda: Logistic(shortcut=True), sig),
    "Swish": (lambda: Swish(beta=1.5), lambda x: x * sig(1.5 * x)),
    "SiLU": (SiLU, lambda x: x * sig(x)),
    "GELU": (GELU, lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2),
}
"""A layer's activation and its formula."""


def safelog(y: Array) -> Array:
    """Logarithms with a floor, 0 and below included."""
    return np.maximum(np.log(np.maximum(y, np.exp(-50.0))), -50.0)


def smooth_l1(d: Array) -> Array:
    """With sigma 2."""
    return np.where(np.abs(d) < 0.25, 2 * d * d, np.abs(d) - 0.125)


COSTS: dict[str, tuple[Callable[[], Any], Callable[[Array, Array], Array]]] = {
    "CrossEntropyBinary": (CrossEntropyBinary, lambda y, t: -(t * safelog(y) + (1 - t) * safelog(1 - y))),
    "CrossEntropyMulti": (CrossEntropyMulti, lambda y, t: -t * safelog(y)),
    "in bits": (lambda: CrossEntropyMulti(usebits=True), lambda y, t: -t * safelog(y) / np.log(2)),
    "smoothed": (
        lambda: CrossEntropyMulti(label_smoothing=0.1), lambda y, t: -(0.9 * t + 0.1 / ROWS) * safelog(y),
    ),
    "SumSquared": (SumSquared, lambda y, t: (y - t) ** 2 / 2),
    "MeanSquared": (MeanSquared, lambda y, t: (y - t) ** 2 / 2 / ROWS),
    "MeanAbsolute": (MeanAbsolute, lambda y, t: np.abs(y - t) / ROWS),
    "SmoothL1Loss": (lambda: SmoothL1Loss(sigma=2.0), lambda y, t: smooth_l1(y - t)),
    "SquareHingeLoss": (SquareHingeLoss, lambda y, t: np.maximum(1 - (2 * t - 1) * y, 0) ** 2 / ROWS),
}  # fmt: skip
"""A cost function and the formula of its terms, of outputs and targets, which are added up."""


def one_hot(rng: np.random.Generator, n: int) -> Array:
    """A random class a column."""
    return np.eye(ROWS)[:, rng.integers(0, ROWS, n)]


TARGETS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "one-hot": one_hot,
    "soft": lambda rng, n: rng.dirichlet(np.ones(ROWS), n).T,
    "weighted": lambda rng, n: one_hot(rng, n) * rng.uniform(0.1, 3, n),
    "masked": lambda rng, n: one_hot(rng, n) * rng.integers(0, 2, n),
    "binary": lambda rng, n: rng.integers(0, 2, (ROWS, n)).astype(np.float64),
    "any": lambda rng, n: rng.uniform(0, 1, (ROWS, n)),
}


def differences(value: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """Central differences of ``value`` at ``x``."""
    found = np.empty_like(x)
    for place in np.ndindex(x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        found[place] = (value(moved[0]) - value(moved[1])) / (2 * step)
    return found


def away_from_kinks(value: Callable[[Array], float], x: Array) -> bool:
    """Whether differences by other steps are the same: there is no kink nearby."""
    near, far = (differences(value, x, step) for step in (1e-5, 3e-5))
    return bool(np.allclose(near, far, rtol=1e-5, atol=1e-6))


def network(activation: Any, behind: bool) -> Model:
    """Two products with weights, the second one with its own activation or a layer ``behind`` it."""
    first = Linear(ROWS, init=Constant(0))
    if behind:
        return Model([first, Linear(ROWS, init=Constant(0)), Activation(activation)])
    return Model([first, *Affine(ROWS, init=Constant(0), activation=activation)])


def check(be: Any, seed: int) -> int:
    """Compare the cost and the gradient of the pair of a seed; the number of values compared."""
    rng = np.random.default_rng(seed)
    names = [str(rng.choice(list(table))) for table in (ACTIVATIONS, COSTS, TARGETS)]
    n, behind = int(rng.choice((1, 2, 3, 5, 8, 17))), bool(rng.integers(2))
    (activation, f), (cost, g) = ACTIVATIONS[names[0]], COSTS[names[1]]
    t, weights = TARGETS[names[2]](rng, n), np.eye(ROWS) + rng.uniform(-0.1, 0.1, (ROWS, ROWS))

    def value(z: Array) -> float:
        return float(g(f(weights @ z), t).sum())

    x = rng.uniform(0.15, 0.8, (ROWS, n))
    if names[0] not in ("Identity", "Normalizer") and rng.random() < 0.5:
        x *= rng.choice([-1, 1], x.shape)
    if not away_from_kinks(value, x):
        return 0
    with patch.object(NervanaObject, "be", be):
        be.bsz = n
        model, made = network(activation(), behind), GeneralizedCost(cost())
        model.initialize(ROWS, made)
        model.layers.layers[0].W[:] = np.eye(ROWS)
        model.layers.layers[1].W[:] = weights
        y, targets = model.fprop(be.array(x)), be.array(t)
        found = float(made.get_cost(y, targets).item()) * n
        model.bprop(made.get_errors(y, targets))
        got = model.layers.layers[0].dW.get()
    said = f"{names[0]}, {names[1]}, targets {names[2]}, batch of {n}, {'behind' if behind else 'its own'}"
    np.testing.assert_allclose(found, value(x), rtol=1e-9, atol=1e-9, err_msg=said)
    np.testing.assert_allclose(got, differences(value, x) @ x.T, rtol=1e-5, atol=1e-5, err_msg=said)
    return got.size + 1
