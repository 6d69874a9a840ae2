#!/usr/bin/env python
"""Fit a ridge regression on real data by gradient descent on variables, and compare it with the closed form.

The data are 442 diabetes patients with ten measurements each (age, sex, body mass index, blood pressure, six of the
serum) and the progression of the disease after a year; they come with scikit-learn. Gradient descent with momentum
finds the weights of the normal equations; then the same descent minimizes a loss without a closed form. Usage:

    python examples/autograd_regression.py [--epochs 300]

All options of a neon script work too: see --help.

Source of the data: Efron, Hastie, Johnstone and Tibshirani, "Least angle regression" (2004).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike import autograd as ag
from neonlike import console
from neonlike.errors import MissingExtra
from neonlike.experiments.argparser import NeonArgparser

PENALTY = 0.01


def load() -> tuple[Any, Any, list[str]]:
    """Standardized measurements (442, 10) and progressions (442, 1), and the names of the measurements."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtra("The data are scikit-learn's; install it with: pip install 'neonlike[demo]'") from error
    data = datasets.load_diabetes(scaled=False)
    x, y = data.data, data.target[:, None]
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std(), data.feature_names


def closed_form(x: Any, y: Any) -> Any:
    """The weights that minimize mean((x w - y)**2) + PENALTY sum(w**2), by the normal equations."""
    n, features = x.shape
    return np.linalg.solve(x.T @ x / n + PENALTY * np.eye(features), x.T @ y / n)


def descend(loss: Callable[[Any], Any], features: int, steps: int, rate: float = 0.2, momentum: float = 0.9) -> Any:
    """Weights (features, 1) that minimize ``loss``, a function of a variable."""
    w = ag.param(np.zeros((features, 1)))
    velocity = w.backend.zeros(w.shape)
    for _ in range(steps):
        w.zero_grad()
        loss(w).backprop()
        velocity[:] = momentum * velocity - rate * w.partial_derivative
        w.value[:] += velocity
    return w


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Fit both losses; returns the largest difference to the closed form, and the share of variance explained."""
    steps = NeonArgparser(__doc__, default_overrides={"epochs": 300, "rng_seed": 0}).parse_args(arguments).epochs
    x_host, y_host, names = load()
    x, y = ag.const(x_host), ag.const(y_host)

    def ridge(w: Any) -> Any:
        return ag.mse_loss(x @ w, y) + PENALTY * (w * w).sum()

    def robust(w: Any) -> Any:
        return ag.smooth_l1_loss(x @ w, y, beta=0.5) + PENALTY * (w * w).sum()

    print(ridge(ag.param(np.zeros((x.shape[1], 1)))).explain(), end="\n\n")
    w, wanted = descend(ridge, x.shape[1], steps).get(), closed_form(x_host, y_host)
    v = descend(robust, x.shape[1], steps).get()
    print(f"{'':6}{'descent':>10}{'closed form':>14}{'robust loss':>14}")
    for row in zip(names, w[:, 0], wanted[:, 0], v[:, 0]):
        print("{:6}{:10.5f}{:14.5f}{:14.5f}".format(*row))
    difference, explained = float(np.abs(w - wanted).max()), float(1 - np.square(x_host @ w - y_host).mean())
    print(f"largest difference {difference:.1e}; {100 * explained:.1f}% of the variance explained")
    return difference, explained


if __name__ == "__main__":
    sys.exit(console.run(main))
