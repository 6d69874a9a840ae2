"""A network of two layers for small data, for tests of models; conftest.py has it trained, as fixtures."""

from __future__ import annotations

from typing import Any

from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.support.clusters import NCLASS

N = 16


def layers(dropout: float | None = None) -> list[Any]:
    """The layers, where ``dropout`` keeps that part of the hidden values."""
    init = GlorotUniform()
    return [
        Affine(8, init, bias=Constant(0), activation=Rectlin()),
        *([Dropout(dropout)] if dropout else []),
        Affine(NCLASS, init, bias=Constant(0), activation=Softmax()),
    ]


def cost() -> GeneralizedCost:
    """The cost of a class."""
    return GeneralizedCost(CrossEntropyMulti())


def weights(model: Any) -> list[Any]:
    """Copies of all weights."""
    return [layer.W.get().copy() for layer in model.layers_to_optimize]
