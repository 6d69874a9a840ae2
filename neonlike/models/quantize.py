"""Quantization of a model for inference in int8: which layers, and the range of their inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.data.dataiterator import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.layers.core.int8 import Int8Layer
from neonlike.models.arguments import DATASET_EXAMPLE, require
from neonlike.models.evaluation import shares

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.models.protocol import TrainedModel

__all__ = ["check_trains", "dequantize", "quantize"]


def quantize(model: TrainedModel, calibration: DataIterator | np.ndarray) -> None:
    """See :meth:`Model.quantize`."""
    be = model.require_backend("quantize")
    if not be.multiplies_int8 or be.default_np_dtype != np.float32:
        raise ArgumentError(
            f"{model.name}.quantize: int8 is for float32 models on the CPU, the backend is {be!r} of "
            f"{be.default_np_dtype.name}; save the model, and load it after gen_backend('cpu')"
        )
    if isinstance(calibration, np.ndarray):
        shape = model.layers.in_shape
        calibration = ArrayIterator(calibration, lshape=shape if isinstance(shape, tuple) else None)
    require(calibration, ("reset", "ndata", "__iter__"), "calibration", DATASET_EXAMPLE)
    model.initialize(calibration)
    layers = _layers_of(model)
    if not layers:
        raise ArgumentError(
            f"{model.name}.quantize: no layer of the network is an Affine (Linear), Convolution, Recurrent, LSTM or GRU"
        )
    dequantize(model)
    for layer, largest in zip(layers, _largest_inputs(model, layers, calibration)):
        if largest[0] >= 0:  # others had no part in the passes
            layer.quantize(*largest)


def _layers_of(model: TrainedModel) -> list[Int8Layer]:
    """Layers that can multiply in int8; subclasses of users have passes of their own."""
    return [layer for layer in model.layers.layers_fprop() if vars(type(layer)).get("takes_int8", False)]


def _largest_inputs(model: TrainedModel, layers: list[Int8Layer], calibration: DataIterator) -> list[list[float]]:
    """The largest magnitudes of what each layer multiplies, its inputs first, over all batches and ranks."""
    found = [[-1.0] * len(layer.int8_steps) for layer in layers]
    for x, _, _, _ in shares(model, calibration):
        model.fprop(x, inference=True)
        found = [[*map(max, known, _largest(layer))] for known, layer in zip(found, layers)]
    everyone = model.be.ranks.tell(found, "quantize")
    largest = [[max(sizes) for sizes in zip(*of_ranks)] for of_ranks in zip(*everyone, strict=True)]
    if max(sizes[0] for sizes in largest) < 0:
        raise ArgumentError(f"{model.name}.quantize: the data iterator {calibration!r} yielded no batch")
    return largest


def _largest(layer: Int8Layer) -> list[float]:
    """The largest magnitudes of what the layer multiplied last, which layers behind have not changed; -1: nothing."""
    return [max((_size(layer, tensor) for tensor in tensors), default=-1.0) for tensors in layer.measured()]


def _size(layer: Int8Layer, tensor: Any) -> float:
    """The largest magnitude of a tensor."""
    size = float(np.abs(tensor.get()).max(initial=0))
    if not math.isfinite(size):
        raise ArgumentError(
            f"{layer.name}: its inputs have nan or infinite elements, and so no range for int8; calibrate with data "
            "for which the network is finite"
        )
    return size


def dequantize(model: TrainedModel) -> None:
    """See :meth:`Model.dequantize`."""
    for layer in _layers_of(model):
        layer.dequantize()


def check_trains(model: TrainedModel) -> None:
    """Raise if a layer of ``model`` is quantized."""
    for layer in _layers_of(model):
        if layer.int8_step is not None:
            raise ArgumentError(
                f"{model.name}.fit: {layer.name} is quantized for inference, and has no gradients; call "
                "model.dequantize() before, and model.quantize(data) after the training"
            )
