"""Sequences in columns: column ``t * N + n`` of a buffer is step t of sample n.

A layer is configured for a number of steps and samples. A call may use fewer of both, according to
:func:`extent_of`: the columns in use are then the first ``steps * samples`` ones, with steps of that many samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import Layer, require_tensor
from neonlike.optree import dialect

__public_module__ = "neonlike.layers.recurrent"

MOST_VIEWS = 8
"""Number of extents for which a layer keeps views and weights."""


def interpret_in_shape(shape: Any) -> tuple[int, int]:
    """Read an input shape as (features, steps).

    An int n is ``(n, 1)``, a pair is used as it is; the last entry of any other tuple is the steps: an image
    ``(C, H, W)`` is W steps of C·H features.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of a sample.

    Returns
    -------
    tuple of int
        (features, steps).

    Raises
    ------
    ShapeError
        If it is neither an int nor a tuple of ints.

    Examples
    --------
    >>> from neonlike.layers.recurrent import interpret_in_shape
    >>> interpret_in_shape(3), interpret_in_shape((3, 5)), interpret_in_shape((2, 4, 6))
    ((3, 1), (3, 5), (8, 6))
    """
    if isinstance(shape, int | np.integer):
        return int(shape), 1
    if not isinstance(shape, tuple | list) or not all(isinstance(size, int | np.integer) for size in shape):
        raise ShapeError(f"the layer before must have one output of known shape, an int or a tuple; got {shown(shape)}")
    if len(shape) < 2:
        return int(shape[0]) if shape else 1, 1
    return int(np.prod(shape[:-1])), int(shape[-1])


def get_steps(x: Any, shape: Sequence[int]) -> list[Any]:
    """Views of the steps of a buffer.

    Parameters
    ----------
    x : Tensor, ndarray or None
        The buffer, ``(features, steps * N)``; None gives None for each step.
    shape : tuple
        ``(features, steps)``.

    Returns
    -------
    list
        A view ``(features, N)`` for each step; None for each step if ``x`` is None.

    Raises
    ------
    ShapeError
        If ``x`` has another number of features, or its columns are not a multiple of the steps.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.layers.recurrent.steps import get_steps
    >>> get_steps(np.arange(8).reshape(2, 4), (2, 2))[1].tolist()
    [[2, 3], [6, 7]]
    """
    features, steps = shape
    if x is None:
        return [None] * steps
    if x.ndim != 2 or x.shape[0] != features or x.shape[1] % steps:
        raise ShapeError(
            f"get_steps: cannot cut a buffer of shape {tuple(x.shape)} into {steps} steps of {features} features"
        )
    samples = x.shape[1] // steps
    return [x[:, t * samples : (t + 1) * samples] for t in range(steps)]


class Extent(NamedTuple):
    """Steps and samples in use during a call of a layer.

    Parameters
    ----------
    steps, samples : int
        Number of steps, and of samples, in use.
    """

    steps: int
    samples: int

    @property
    def columns(self) -> int:
        """Number of columns in use."""
        return self.steps * self.samples


def extent_of(layer: Any, inputs: Tensor, features: int, inference: bool) -> Extent:
    """Steps and samples of ``inputs (features, columns)``: as allocated, or fewer.

    :meth:`Layer.set_batch_size` and :meth:`Layer.set_seq_len` set smaller numbers; without them, fewer columns in
    inference mean fewer samples with the configured number of steps.

    Parameters
    ----------
    layer : Layer
        The layer whose ``fprop`` is called.
    inputs : Tensor
        ``(features, columns)``.
    features : int
        Features of a step that the layer was configured for.
    inference : bool
        True outside of training: batches may be partial.

    Raises
    ------
    ArgumentError
        If the layer is not configured or not allocated.
    ShapeError
        If ``inputs`` has other features or columns.
    """
    where = f"{layer.name}.fprop"
    if layer.outputs is None:
        missing = "configure and allocate" if layer.in_shape is None else "allocate"
        raise ArgumentError(f"{where}: the layer is not set up; call model.initialize(data), or {missing} on the layer")
    require_tensor(where, "inputs", inputs)
    fits = inputs.shape[0] == features or _is_image(layer, inputs, features) or dialect.is_neon()
    if inputs.size % features or not fits:
        raise ShapeError(
            f"{where}: input has shape {tuple(inputs.shape)}, but the layer was configured for {features} features "
            f"({layer.in_shape}); configure it for the new shape"
        )
    columns, most = inputs.size // features, layer.allocated_samples
    if layer.actual_bsz is None and layer.actual_seq_len is None:
        samples, odd = divmod(columns, layer.nsteps)
        if odd or samples > most or (samples < most and not inference):
            raise ShapeError(_other_columns(where, layer, columns, inference))
        return Extent(layer.nsteps, samples)
    steps = layer.nsteps if layer.actual_seq_len is None else layer.actual_seq_len
    samples = most if layer.actual_bsz is None else layer.actual_bsz
    if not 0 < steps <= layer.nsteps or not 0 < samples <= most or steps * samples > columns:
        raise ShapeError(
            f"{where}: {steps} steps of {samples} samples are set, the input has {columns} columns and the layer was "
            f"allocated for {layer.nsteps} steps of {most}; set fewer by set_seq_len and set_batch_size, or set the "
            "network up for more"
        )
    return Extent(steps, samples)


def _is_image(layer: Any, inputs: Tensor, features: int) -> bool:
    """Whether ``inputs`` has one row per element of a sample, in the order of its maps."""
    return isinstance(layer.in_shape, tuple) and inputs.shape[0] == features * layer.nsteps


def _other_columns(where: str, layer: Any, columns: int, inference: bool) -> str:
    hint = (
        f"fewer samples need {layer.nsteps} columns each, fewer steps need set_seq_len"
        if inference
        else "fewer samples are for fprop(x, inference=True), or for set_batch_size"
    )
    return (
        f"{where}: input has {columns} columns, but the layer was allocated for {layer.nsteps} steps of "
        f"{layer.allocated_samples} samples; if the batch size was changed since, set the network up again ({hint})"
    )


def same_memory(a: Any, b: Any) -> bool:
    """Whether two tensors are the same elements of the same buffer (the caller must have kept ``b`` alive)."""
    if a is b:
        return True
    return bool(
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.ptr == b.ptr
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
        and a.backend is b.backend
    )


def in_rows(buffer: Any, features: int) -> Any:
    """A buffer as ``(features, columns)``: itself, or reshaped if it has the rows of images."""
    return buffer if buffer.shape[0] == features else buffer.viewed(features, -1)


def first_columns(buffer: Any, columns: int) -> Any:
    """The first columns of a buffer; the buffer itself if it has no others."""
    return buffer if buffer.shape[1] == columns else buffer[:, :columns]


def require_error(layer: Layer, error: Any, rows: int, extent: Extent | None) -> Tensor:
    """The columns in use of the error at a layer's outputs.

    Parameters
    ----------
    layer : Layer
        The layer whose ``bprop`` is called.
    error : Tensor
        ``(rows, columns)``.
    rows : int
        Rows of the layer's outputs.
    extent : Extent or None
        Steps and samples of the forward pass; None if there was none.

    Raises
    ------
    ArgumentError
        If no forward pass has run.
    ShapeError, DTypeError
        If ``error`` is not a tensor ``(rows, columns)`` with at least the columns of the forward pass.
    """
    where = f"{layer.name}.bprop"
    if extent is None:
        raise ArgumentError(f"{where}: there are no inputs to take the gradient by; call fprop first")
    if not isinstance(error, Tensor):
        raise DTypeError(f"{where}: the error must be a tensor, got {shown(error)}; make one with be.array")
    if error.shape[0] != rows or error.shape[1] < extent.columns:
        raise ShapeError(
            f"{where}: the error has shape {tuple(error.shape)}, but the forward pass had {extent.steps} steps of "
            f"{extent.samples} samples; expected {(rows, extent.columns)}"
        )
    used: Tensor = first_columns(error, extent.columns)
    return used
