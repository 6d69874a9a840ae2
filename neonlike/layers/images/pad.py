"""Padding of images as a layer of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.core.base import Layer
from neonlike.layers.core.parts import apart
from neonlike.layers.images.windows import image_sizes, require_images

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"


class Pad(Layer):
    """Surround each map with rows and columns of a number, as many at each end as asked for.

    Convolution and Pooling pad both ends alike; this layer before them pads one end more.

    Parameters
    ----------
    before, after : tuple of int
        Elements at the beginning and at the end of the height and width (H, W), or of depth, height and width. Below 0:
        that many are cut off.
    value : float
        The number. Behind an activation that is never negative, 0 serves max pooling; elsewhere the lowest number does.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If ``before`` and ``after`` are not tuples of two or three integers.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Pad
    >>> be = gen_backend("cpu", batch_size=1)
    >>> Pad((0, 1), (1, 0))(be.ones((1, 1, 2, 1))).get()[0, :, :, 0].tolist()
    [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """

    repeatable = True

    def __init__(
        self, before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.before, self.after = (_sizes(which, given) for which, given in (("before", before), ("after", after)))
        if len(self.before) != len(self.after):
            raise ArgumentError(
                f"Pad: before={self.before} and after={self.after} have different lengths; give a size for each axis"
            )
        self.value = float(value)
        self.owns_delta = True
        self._rows = 0

    def __str__(self) -> str:
        return f"Pad Layer '{self.name}': {self.in_shape} -> {self.out_shape}, filled with {self.value:g}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape of an input (C, H, W) or (C, D, H, W).

        Raises
        ------
        ShapeError
            If the input has other axes, or nothing of it is left.
        """
        super().configure(in_obj)
        image_sizes(self)
        maps, *sizes = self.in_shape
        found = [size + b + a for size, b, a in zip(sizes, self.before, self.after)]
        if len(sizes) != len(self.before) or min(found) < 1:
            raise ShapeError(
                f"{self.name}: cannot pad maps of {sizes} by {self.before} and {self.after}; expected one number for "
                "each of their axes, and at least one element left"
            )
        self.out_shape = (maps, *found)
        self._rows = math.prod(self.in_shape)
        return self

    def _inside(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where the input lies in the output, and the part of the input that does."""
        there, kept = [slice(None)], [slice(None)]
        for size, b, a in zip(self.in_shape[1:], self.before, self.after):
            there.append(slice(max(b, 0), max(b, 0) + size + min(b, 0) + min(a, 0)))
            kept.append(slice(max(-b, 0), size + min(a, 0)))
        return tuple(there), tuple(kept)

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """outputs = padded inputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(C*H*W, N)``, or with all axes, ``(C, H, W, N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        inputs, outputs = require_images(self, inputs, inference)
        self.inputs = inputs
        there, kept = self._inside()
        outputs[:] = self.value
        outputs.reshape(*self.out_shape, -1)[there] = inputs.reshape(*self.in_shape, -1)[kept]
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · the part of the error that belongs to inputs + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.
        """
        if self.deltas is None:
            return None
        there, kept = self._inside()
        deltas = self.deltas
        error = apart(self, error, deltas)
        if min(*self.before, *self.after) < 0 or beta:
            deltas[:] = beta * deltas if beta else 0.0
        part = error.reshape(*self.out_shape, -1)[there]
        whole = deltas.reshape(*self.in_shape, -1)
        whole[kept] = alpha * part + whole[kept] if beta else alpha * part
        return deltas


def _sizes(which: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, tuple | list) or len(given) not in (2, 3) or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) for size in given
    ):  # fmt: skip
        raise ArgumentError(
            f"Pad: {which} must be integers for (height, width) or (depth, height, width), got {brief(given)}"
        )
    return tuple(map(int, given))
