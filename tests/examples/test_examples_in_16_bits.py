"""Examples on tensors of 16 bits: they learn as in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from tests.examples.test_examples import run  # noqa: F401
from tests.support.example_scripts import example_script


@pytest.fixture
def attention() -> Iterator[Any]:
    with contextmanager(example_script)("attention_digits") as module:
        yield module


@pytest.mark.engines("c", batch_size=16)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_optimizer_of_an_example_has_averages_of_float32(be: Backend, attention: Any, dtype: str) -> None:
    """Squares of derivatives of 1e-5 are 0 in float16, and steps were without bounds; 2e-4 is lost beside 1."""
    be.default_dtype = dtype
    p = ag.param(np.ones((2, 3)))
    optimizer = attention.Adam([p], 2e-4)
    for _ in range(50):
        (ag.const(np.full((2, 3), 1e-5)) * p).sum().backprop()
        optimizer.step()
    assert p.value.dtype.name == dtype
    np.testing.assert_allclose(p.get().astype(np.float64), 1 - 50 * 2e-4, atol=2e-3)


@pytest.mark.cpu_only("takes the emulator minutes")
@pytest.mark.parametrize("datatype", ["bf16", "f16"])
@pytest.mark.parametrize("name", ["digits_convnet", "dynamic_graph_mlp"])
def test_networks_of_16_bits_learn(run: Callable[..., float], name: str, datatype: str) -> None:  # noqa: F811
    assert run(name, "--epochs", "4", "--datatype", datatype) >= 0.9


@pytest.mark.cpu_only("takes the emulator minutes")
def test_a_resumed_training_of_bfloat16_ends_with_the_same_weights(run: Callable[..., bool]) -> None:  # noqa: F811
    assert run("resume", "--epochs", "4", "--datatype", "bf16")


@pytest.mark.cpu_only("the example runs on a CPU")
@pytest.mark.parametrize("datatype", ["bfloat16", "float16"])
def test_a_network_of_primitives_of_16_bits_learns(datatype: str) -> None:
    with contextmanager(example_script)("digits_conv") as module:
        assert module.main(["--epochs", "3", "--datatype", datatype]) > 0.96
