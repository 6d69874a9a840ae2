"""Visualization of a convolutional network's feature maps by guided backpropagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.expressions.activation import derivative
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

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.data.protocol import DataIterator
    from neonlike.layers.core.base import Layer
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"

PASSED_THROUGH = (Bias, Dropout, DataTransform, LRN, SkipNode)
"""Layers that change responses at most by a factor or a constant, or are treated so."""
KNOWN = (Convolution, Pooling, Activation, BatchNorm, *PASSED_THROUGH)
COLOURS = (1, 3)
"""Channel counts of displayable images; other images are averaged over channels."""


@dataclass
class Strongest:
    """Position of the strongest response of each feature map: minibatch, image and location.

    Parameters
    ----------
    end : int
        Number of minibatches that are searched.
    batch_img, fm_loc : ndarray
        For each feature map, the minibatch and image, and the pixel.
    activation : ndarray
        For each feature map, the response.
    """

    end: int
    """Index of the convolution's last layer: its bias, normalization or activation."""
    batch_img: np.ndarray
    fm_loc: np.ndarray
    activation: np.ndarray


class DeconvCallback(Callback):
    """After training, find for feature maps of each convolution the image with the strongest response.

    Beside each image, the pixels behind the response are shown: only the response is propagated back, through
    rectifiers only where both it and their output are positive. Records go to ``deconv/``; the command ``nvis`` shows
    them.

    Parameters
    ----------
    train_set : iterator
        Accepted for compatibility.
    valid_set : iterator
        Images to search for the strongest responses.
    max_fm : int
        Number of feature maps per layer, counted from the first.
    dataset_pct : float
        Percentage of the data to search.

    Raises
    ------
    ArgumentError
        If ``max_fm`` is below 1, or ``dataset_pct`` is no percentage.

    References
    ----------
    Springenberg et al., "Striving for simplicity: the all convolutional net" (2014), section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import DeconvCallback
    >>> from neonlike.data import ArrayIterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> images = ArrayIterator(np.zeros((4, 48)), np.zeros(4, dtype=int), nclass=2, lshape=(3, 4, 4))
    >>> callback = DeconvCallback(images, images, max_fm=8)
    >>> callback.max_fm, callback.dataset_pct
    (8, 25)
    """

    def __init__(self, train_set: Any, valid_set: DataIterator, max_fm: int = 16, dataset_pct: float = 25) -> None:
        super().__init__(epoch_freq=1)
        if max_fm < 1 or not 0 < dataset_pct <= 100:
            raise ArgumentError(
                f"DeconvCallback: max_fm={max_fm}, dataset_pct={dataset_pct}; expected at least one feature map, and a "
                "part of the data above 0, up to 100"
            )
        self.train_set, self.valid_set = train_set, valid_set
        self.max_fm, self.dataset_pct = max_fm, dataset_pct

    def on_train_end(self, callback_data: Records, model: Model) -> None:
        """Search the images, propagate the responses back and record the pictures."""
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

    def _batches(self, model: Model) -> Any:
        """The searched part of the data: whole minibatches with their numbers."""
        self.valid_set.reset()
        wanted = max(1, math.ceil(self.valid_set.nbatches * self.dataset_pct / 100))
        for number, (x, _) in zip(range(wanted), self.valid_set):
            if x.shape[1] == model.be.bsz:
                yield number, x

    def _search(self, model: Model, chain: Sequence[Any]) -> dict[int, Strongest]:
        """The strongest responses, by index of the convolution."""
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


def _update(one: Strongest, layer: Layer, batch: int) -> None:
    """Record stronger responses of a minibatch."""
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


def _chain(model: Model) -> list[Any]:
    """The leading layers that support back-propagation of responses."""
    found = []
    for layer in getattr(model.layers, "layers", ()):
        if not isinstance(layer, KNOWN):
            break
        found.append(layer)
    return found


def _convolutions(chain: Sequence[Any]) -> list[tuple[int, int]]:
    """Each convolution with its last layer."""
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
    """Propagate ``error`` back through ``layer``, in a separate tensor unless the layer passes it through."""
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
    """Allocate an array for pictures of images (C, H, W)."""
    channels, height, width = shape
    return np.zeros((count, height, width, channels if channels in COLOURS else 1), np.uint8)


def _picture(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scale values (C*H*W,) from their minimum to their maximum to uint8 ``(H, W, C)``."""
    pixels = values.astype(np.float64).reshape(shape).transpose(1, 2, 0)
    if pixels.shape[2] not in COLOURS:
        pixels = pixels.mean(axis=2, keepdims=True)
    low, high = pixels.min(), pixels.max()
    return np.asarray(255 * (pixels - low) / (high - low if high > low else 1) + 0.5).astype(np.uint8)
