"""Which compound primitives run on the GPU alone, without copying to the host or waiting for the device.

A primitive that comes to run there leaves the list ``ON_HOST_COPIES``, which ends up empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_only import traffic
from primitive_calls import CALLS

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.backends.families import public_methods

FAMILIES = (
    "activation", "batchnorm", "conv", "linalg", "lookup", "lrn", "merge", "mkl", "pool", "rnn", "rnn_gated", "roi",
    "stats",
)  # fmt: skip
"""Whose methods are compound primitives, but for those of ``NO_KERNELS``."""

NO_KERNELS = frozenset(
    {
        "conv_layer", "deconv_layer", "output_dim", "pool_layer", "lrn_layer",  # sizes
        "dot", "transpose", "product_precision", "cublas_handle", "products",  # expressions and settings
        "convert", "convert_mkl", "get_numpy",
        "fprop_mergesum", "bprop_mergesum", "fprop_mergebroadcast", "bprop_mergebroadcast",  # call layers
        "set_hist_buffers", "dump_hist_data",  # histograms that are there
    }
)  # fmt: skip
"""Public methods of the families that start no kernel of their own."""

ON_HOST_COPIES = frozenset(
    {
        "take",
        "detectionOutput_fprop",
    }
)  # fmt: skip
"""Calls that still copy or wait; each leaves the list when its kernel comes."""

ANSWERS = {
    "roipooling_fprop": 1,  # whether all regions are in an image, before anything is written
    "roipooling_bprop": 1,  # and all positions in the map
    "nms": 1,  # the list that it returns
}
"""Calls that return values to the host, and how many copies that takes."""


@pytest.fixture(scope="module")
def gpu(gpu_driver: object) -> Any:
    """A GPU backend for the whole file."""
    yield gen_backend("gpu", rng_seed=0, batch_size=8)
    cleanup_backend()


def test_every_primitive_is_called() -> None:
    methods = public_methods(Backend)
    primitives = {name for family in FAMILIES for name in methods[family]} - NO_KERNELS
    assert primitives == {name.partition(" ")[0] for name in CALLS}
    assert CALLS.keys() >= ON_HOST_COPIES | ANSWERS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_runs_on_the_device_alone(gpu: Any, name: str) -> None:
    call = CALLS[name](gpu)
    call()  # compiles
    with traffic(gpu) as seen:
        call()
    if name in ON_HOST_COPIES:
        assert len(seen) > ANSWERS.get(name, 0), f"{name} runs on the device now: take it out of ON_HOST_COPIES"
    else:
        assert (len(seen.down), len(seen)) == (ANSWERS.get(name, 0),) * 2, f"{name} crosses:\n{seen}"


def test_what_crosses_is_seen(gpu: Any) -> None:
    tensor = gpu.empty((3, 4))
    with traffic(gpu) as seen:
        tensor[:] = gpu.exp(tensor) + 1
    assert not len(seen) and str(seen) == "nothing"
    with traffic(gpu) as seen:
        tensor.set(np.ones((3, 4)))
        tensor.get()
        gpu.synchronize()
    assert [len(seen.up), len(seen.down), len(seen.waits)] == [1, 1, 1]
    assert "tensor._set_host" in seen.up[0] and "tensor.get" in seen.down[0]
