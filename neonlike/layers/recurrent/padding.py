"""Sequences of different lengths in one batch: columns after a sample's last step are padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import DTypeError, ShapeError
from neonlike.kernels.run.depends import Dependent
from neonlike.layers.recurrent.steps import Extent

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

__public_module__ = "neonlike.layers.recurrent"


class Masks(Dependent):
    """Masks on the backend, for multiplication and for selecting steps.

    Parameters
    ----------
    like : Tensor
        Tensor whose backend and dtype the masks have.
    extent : Extent
        Steps and samples in use.
    lengths : ndarray
        Steps of each sample, ``(N,)``.

    Attributes
    ----------
    valid, last : Tensor ``(1, steps * N)``
        1 at each step of a sample; 1 at its last step.
    empty : Tensor ``(1, N)``
        1 for a sample without steps.
    mean : Tensor ``(1, steps * N)``
        1 / length at a sample's steps.
    """

    def __init__(self, like: Tensor, extent: Extent, lengths: np.ndarray) -> None:
        be, dtype = like.backend, like.dtype
        step = np.arange(extent.steps)[:, None]
        used = step < lengths
        self.valid = be.array(_row(used), dtype=dtype)
        self.last = be.array(_row(step == lengths - 1), dtype=dtype)
        self.empty = be.array(_row(lengths == 0), dtype=dtype)
        self.mean = be.array(_row(used / np.maximum(lengths, 1)), dtype=dtype)


def _row(values: np.ndarray) -> np.ndarray:
    return values.reshape(1, -1).astype(np.float64)


def padding_of(lengths: Any, layer: Layer) -> Padding | None:
    """Check the lengths passed to a layer's ``set_lengths`` and return their padding; None for None."""
    found = lengths if isinstance(lengths, Padding | None) else Padding(lengths)
    if found is not None:
        found.check(layer)
    return found


def _steps_of(layer: Layer) -> int | None:
    """Time steps that a layer was configured for; None if unconfigured, or if inputs are not sequences."""
    shape = getattr(layer, "in_shape", None)
    return int(shape[1]) if isinstance(shape, tuple) and len(shape) == 2 else None


class Padding(Dependent):
    """Lengths of the samples of a batch, and their masks, shared by the layers of a network.

    Parameters
    ----------
    lengths : sequence of int
        Steps of each sample.

    Raises
    ------
    DTypeError, ShapeError
        If it is not a vector of non-negative integers.
    """

    def __init__(self, lengths: Any) -> None:
        try:
            values = np.asarray(lengths.get() if isinstance(lengths, Tensor) else lengths)
        except ValueError:  # rows of different lengths, or objects with shapes
            values = np.asarray(None)
        if values.dtype.kind not in "iuf" or values.size == 0 or (values != values.astype(np.int64)).any():
            raise DTypeError(
                f"set_lengths: expected a length for each sample, as integers, got {shown(lengths)} of {values.dtype}"
            )
        self.lengths = values.astype(np.int64).reshape(-1)
        if self.lengths.size != max(values.shape, default=0) or (self.lengths < 0).any():
            raise ShapeError(
                f"set_lengths: expected a vector of lengths from 0, got shape {values.shape} from {values.min()}"
            )
        self._made: dict[Any, Masks] = {}

    def check(self, layer: Layer) -> None:
        """Raise ShapeError if a length exceeds the steps that ``layer`` is configured for."""
        steps = _steps_of(layer)
        if steps is not None and int(self.lengths.max()) > steps:
            raise ShapeError(
                f"{layer.name}.set_lengths: a sample has {int(self.lengths.max())} steps, but sequences have {steps}; "
                f"give lengths from 0 to {steps}"
            )

    def masks(self, layer: str, like: Tensor, extent: Extent) -> Masks:
        """The masks for ``extent``, on the backend and in the dtype of ``like``.

        Parameters
        ----------
        layer : str
            Name of the layer, for the message.
        like : Tensor
            Tensor whose backend and dtype the masks have.
        extent : Extent
            Steps and samples in use.

        Raises
        ------
        ShapeError
            If the number of samples differs from the number of lengths, or a length exceeds the steps.
        """
        key = extent, like.dtype.name, id(like.backend)
        if key not in self._made:
            longest = int(self.lengths.max())
            if self.lengths.size != extent.samples or longest > extent.steps:
                raise ShapeError(
                    f"{layer}: {self.lengths.size} lengths up to {longest} are set, but there are {extent.samples} "
                    f"samples of {extent.steps} steps; call set_lengths for this batch, or set_lengths(None)"
                )
            self._made[key] = Masks(like, extent, self.lengths)
        return self._made[key]
