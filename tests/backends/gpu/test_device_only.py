"""Compound primitives run on the GPU alone, without copying to the host or waiting for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.family import public_methods
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, Kaiming
from neonlike.layers import Affine, Conv, Dropout, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.support.gpu.device_only import traffic
from tests.support.primitive_calls import CALLS

FAMILIES = (
    "expressions.activation", "machine.merge", "machine.mkl", "primitives.attention.family",
    "primitives.batchnorm.family", "primitives.conv.family", "primitives.linalg", "primitives.lookup", "primitives.lrn",
    "primitives.pooling.family", "primitives.rnn.family", "primitives.rnn.gated", "primitives.roi.detection",
    "primitives.roi.family", "tensors.stats",
)  # fmt: skip
"""Whose methods are compound primitives, but for those of ``NO_KERNELS``."""

NO_KERNELS = frozenset(
    {
        "conv_layer", "deconv_layer", "output_dim", "pool_layer", "lrn_layer", "attention_layer",  # sizes
        "dot", "transpose", "product_precision", "cublas_handle", "products",  # expressions and settings
        "sync_batchnorm", "multiplies_int8",
        "convert", "convert_mkl", "get_numpy",
        "fprop_mergesum", "bprop_mergesum", "fprop_mergebroadcast", "bprop_mergebroadcast",  # call layers
        "set_hist_buffers", "dump_hist_data",  # histograms that are there
    }
)  # fmt: skip
"""Public methods of the families that start no kernel of their own."""

ANSWERS = {
    "roipooling_fprop": 1,  # whether all regions are in an image, before anything is written
    "roipooling_bprop": 1,  # and all positions in the map
    "nms": 1,  # the list that it returns
    "detectionOutput_fprop": 1,  # the rows of all images
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
    assert CALLS.keys() >= ANSWERS.keys()


@pytest.mark.checked
@pytest.mark.parametrize("name", CALLS)
def test_runs_on_the_device_alone(gpu: Any, name: str) -> None:
    call = CALLS[name](gpu)
    call()  # compiles
    with traffic(gpu) as seen:
        call()
    assert (len(seen.down), len(seen)) == (ANSWERS.get(name, 0),) * 2, f"{name} crosses:\n{seen}"


def test_a_training_step_of_a_convnet_reads_its_cost_alone(gpu: Any) -> None:
    """Once kernels and calls are known: strides, a bias, batch normalization, groups and dropout are all in it."""
    ways: dict[str, Any] = {"init": Kaiming(), "activation": Rectlin()}
    layers = [
        Conv((3, 3, 6), padding=1, batch_norm=True, **ways),
        Pooling(2),
        Conv((3, 3, 12), padding=1, strides=2, bias=Constant(0.1), groups=2, **ways),
        Dropout(),
        Affine(nout=10, init=Kaiming(), activation=Softmax()),
    ]
    model, cost = Model(layers), GeneralizedCost(CrossEntropyMulti())
    images = np.random.default_rng(0).normal(size=(32, 64))
    data = ArrayIterator(images, np.arange(32) % 10, nclass=10, lshape=(1, 8, 8))
    model.initialize(data, cost)
    optimizer = GradientDescentMomentum(0.1, 0.9)
    counts = []
    for x, t in data:
        with traffic(gpu) as seen:
            y = model.fprop(x)
            cost.get_cost(y, t)
            model.bprop(cost.get_errors(y, t))
            optimizer.optimize(model.layers_to_optimize, epoch=0)
        counts.append((len(seen.down), len(seen)))
    assert counts[1:] == [(1, 1)] * 3, str(seen)


@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_objects_run_on_the_device_alone(gpu: Any, layout: str) -> None:
    """Batch normalisation that keeps its statistics, and minibatches in another layout."""
    desc = TensorDesc((3, 4, 4, 8), "float32", "CHWN").with_layout(layout)
    op = gpu.batchnorm_op("spatial").stage(desc)
    x, y, dx, dy = (gpu.tensor(desc) for _ in range(4))
    scale, bias, dscale, dbias = (gpu.tensor(op.scale_bias_desc()) for _ in range(4))
    batches = gpu.batcher(x, TensorDesc((5, 3, 4, 4), "float16", "NCHW"))

    def step() -> None:
        op.forward_training(1, 0, 0.5, 1e-3, x, scale, bias, y)
        op.backward(1, 0, 1, 0, 1e-3, x, scale, dscale, dbias, dx, dy)
        op.forward_inference(1, 0, 1e-3, x, scale, bias, y)
        list(batches)

    step()  # compiles
    with traffic(gpu) as seen:
        step()
    assert not len(seen), str(seen)


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
