"""Shows the images that feature maps of a convolutional network respond to, by guided backpropagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.families.activation import derivative
from neonlike.callbacks.callback import Callback
from neonlike.errors import ArgumentError
from neonlike.layers.layer import (
    LRN,
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    DataTransform,
    Dropout,
    Pooling,
    SkipNode,
)
from neonlike.logger import logger

__public_module__ = "neonlike.callbacks.callbacks"

PASSED_THROUGH = (Bias, Dropout, DataTransform, LRN, SkipNode)
"""Layers that change responses by a factor or a constant at most, or are taken to."""
KNOWN = (Convolution, Pooling, Activation, BatchNorm, *PASSED_THROUGH)
COLOURS = (1, 3)
"""Channels of an image that can be shown; of others the mean is."""


@dataclass
class Strongest:
    """Where the feature maps of a layer respond most: a minibatch, an image in it and a place, for each map."""

    end: int
    """Index of the last layer of the convolution: its bias, normalization or activation."""
    batch_img: np.ndarray
    fm_loc: np.ndarray
    activation: np.ndarray


class DeconvCallback(Callback):
    """At the end of training, show for feature maps of each convolution the image that it responds to most.

    Beside each image it shows the pixels that the response comes from: the response alone is propagated back, through
    rectifiers only where both it and their output are positive. Into ``deconv/``; the command ``nvis`` shows it.

    Parameters
    ----------
    train_set : iterator
        Accepted for compatibility.
    valid_set : iterator
        Images to look for the strongest responses in.
    max_fm : int
        Feature maps of each layer, the first ones.
    dataset_pct : float
        How much of the data to look at, in percent.

    References
    ----------
    Springenberg et al., "Striving for simplicity: the all convolutional net" (2014), section 4.
    """

    def __init__(self, train_set: Any, valid_set: Any, max_fm: int = 16, dataset_pct: float = 25) -> None:
        super().__init__(epoch_freq=1)
        if max_fm < 1 or not 0 < dataset_pct <= 100:
            raise ArgumentError(
                f"DeconvCallback: max_fm={max_fm}, dataset_pct={dataset_pct}; expected at least one feature map, and a "
                "part of the data above 0, up to 100"
            )
        self.train_set, self.valid_set = train_set, valid_set
        self.max_fm, self.dataset_pct = max_fm, dataset_pct

    def on_train_end(self, callback_data: Any, model: Any) -> None:
        """Look for the images, propagate back and record."""
        chain = _chain(model)
        shape = tuple(model.layers.in_shape) if isinstance(model.layers.in_shape, tuple) else ()
        if len(shape) != 3 or not any(isinstance(layer, Convolution) for layer in chain):
            logger.warning("DeconvCallback: the network has no convolution of images (C, H, W) at its begin")
            return
        if "deconv" in callback_data:
            del callback_data["deconv"]
        found = self._search(model, chain)
        pictures = {number: _stack(len(one.fm_loc), shape) for number, one in found.items()}
        for batch, x in self._batches(model):
            images = sorted({int(n) for one in found.values() for b, n in one.batch_img if b == batch})
            if not images:
                continue
            model.fprop(x, inference=True)
            for number, one in found.items():
                for fm in np.flatnonzero(one.batch_img[:, 0] == batch):
                    pictures[number][fm] = _picture(_response(chain, one, int(fm)), shape)
            columns = x.get()[:, images]
            shown = np.stack([_picture(columns[:, i], shape) for i in range(len(images))], axis=-1)
            stored = callback_data.create_dataset(f"deconv/img/batch_{batch}/HWC_uint8", data=shown)
            stored.attrs["images"] = images
        for number, one in found.items():
            path = f"deconv/max_act/{number:04}"
            for name in ("batch_img", "fm_loc", "activation"):
                callback_data.create_dataset(f"{path}/{name}", data=getattr(one, name))
            callback_data.create_dataset(f"{path}/vis", data=pictures[number])

    def _batches(self, model: Any) -> Any:
        """The part of the data to look at: whole minibatches with their numbers."""
        self.valid_set.reset()
        wanted = max(1, math.ceil(self.valid_set.nbatches * self.dataset_pct / 100))
        for number, (x, _) in zip(range(wanted), self.valid_set):
            if x.shape[1] == model.be.bsz:
                yield number, x

    def _search(self, model: Any, chain: Sequence[Any]) -> dict[int, Strongest]:
        """The strongest responses, by the index of the convolution."""
        found = {}
        for number, end in _convolutions(chain):
            maps = min(self.max_fm, chain[number].out_shape[0])
            found[number] = Strongest(
                end,
                np.zeros((maps, 2), np.int32),
                np.zeros((maps, 1), np.int32),
                np.full((maps, 1), -np.inf, np.float32),
            )
        for batch, x in self._batches(model):
            model.fprop(x, inference=True)
            for one in found.values():
                _update(one, chain[one.end], batch)
        return found


def _update(one: Strongest, layer: Any, batch: int) -> None:
    """Take the responses of a minibatch that are stronger."""
    be, maps = layer.be, len(one.fm_loc)
    responses = layer.outputs.viewed(layer.out_shape[0], -1)[:maps]
    values, places = be.empty((maps, 1)), be.empty((maps, 1), dtype=np.int32)
    values[:] = be.max(responses, axis=1)
    places[:] = be.argmax(responses, axis=1)
    strongest, where = values.get().astype(np.float32), places.get()
    better = strongest[:, 0] > one.activation[:, 0]
    one.activation[better] = strongest[better]
    one.fm_loc[better] = where[better] // be.bsz
    one.batch_img[better, 0] = batch
    one.batch_img[better, 1] = where[better, 0] % be.bsz


def _chain(model: Any) -> list[Any]:
    """The layers from the input on through which responses can be propagated back."""
    found = []
    for layer in getattr(model.layers, "layers", ()):
        if not isinstance(layer, KNOWN):
            break
        found.append(layer)
    return found


def _convolutions(chain: Sequence[Any]) -> list[tuple[int, int]]:
    """Each convolution with the last layer that belongs to it."""
    found = []
    for number, layer in enumerate(chain):
        if isinstance(layer, Convolution):
            end = number
            while end + 1 < len(chain) and isinstance(chain[end + 1], Bias | BatchNorm | Activation):
                end += 1
            found.append((number, end))
    return found


def _response(chain: Sequence[Any], one: Strongest, fm: int) -> np.ndarray:
    """Gradient of the strongest response of a feature map with respect to its image, ``(C*H*W,)``."""
    last = chain[one.end]
    be, image = last.be, int(one.batch_img[fm, 1])
    error = be.zeros(last.outputs.shape)
    row = fm * (last.outputs.shape[0] // last.out_shape[0]) + int(one.fm_loc[fm, 0])
    error[row : row + 1, image : image + 1] = float(one.activation[fm, 0])
    for layer in reversed(chain[: one.end + 1]):
        error = _back(layer, error)
    return np.asarray(error.get()[:, image])


def _back(layer: Any, error: Any) -> Any:
    """``error`` before ``layer``, in a tensor of its own unless the layer passes it through."""
    be = layer.be
    if isinstance(layer, Activation):
        inner = be.empty_like(error)
        kept = layer.inputs if layer.owns_output else None
        inner[:] = derivative(layer.transform, layer.outputs, kept) * be.maximum(error, 0)
        return inner
    if isinstance(layer, BatchNorm):
        inner = be.empty_like(error)
        by_map = inner.viewed(layer.gamma.shape[0], -1)
        by_map[:] = error.reshape(*by_map.shape) * (layer.gamma / be.sqrt(layer.gvar + layer.eps))
        return inner
    if isinstance(layer, PASSED_THROUGH):
        return error
    inner = be.empty((math.prod(layer.in_shape), error.shape[1]))
    if isinstance(layer, Pooling):
        be.bprop_pool(layer.nglayer, error, inner, layer.argmax, inputs=layer.inputs if layer.op == "l2" else None)
    else:
        be.bprop_conv(layer.nglayer, layer.W, error, inner)
    return inner


def _stack(count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Room for pictures of images (C, H, W)."""
    channels, height, width = shape
    return np.zeros((count, height, width, channels if channels in COLOURS else 1), np.uint8)


def _picture(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Values (C*H*W,) from their least to their largest as uint8 ``(H, W, C)``."""
    pixels = values.astype(np.float64).reshape(shape).transpose(1, 2, 0)
    if pixels.shape[2] not in COLOURS:
        pixels = pixels.mean(axis=2, keepdims=True)
    low, high = pixels.min(), pixels.max()
    return np.asarray(255 * (pixels - low) / (high - low if high > low else 1) + 0.5).astype(np.uint8)
