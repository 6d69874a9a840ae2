"""Networks of the digits examples, quantized: as accurate as in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.data import Digits
from neonlike.layers import GeneralizedCost
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification
from tests.support.example_scripts import example_script


@pytest.fixture(params=["digits_mlp", "digits_convnet"])
def example(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The script as a module."""
    yield from example_script(request.param)


@pytest.mark.engines("numpy", "c")
@pytest.mark.cpu_only("GPUs do not multiply int8")
def test_accuracy_is_that_of_float32(engine: str, example: Any) -> None:
    """Within 0.5% on all images that the network was not trained with."""
    gen_backend("cpu", batch_size=64, rng_seed=0)
    digits = Digits(seed=0)
    model = example.build_model()
    optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9, wdecay=1e-4)
    model.fit(digits.train_iter, GeneralizedCost(CrossEntropyMulti()), optimizer, num_epochs=6)
    sets = digits.valid_iter, digits.test_iter
    before = [float(model.eval(one, Misclassification())[0]) for one in sets]
    model.quantize(digits.train_iter)
    after = [float(model.eval(one, Misclassification())[0]) for one in sets]
    assert max(before) < 0.1 and abs(np.mean(after) - np.mean(before)) <= 0.005, (before, after)
