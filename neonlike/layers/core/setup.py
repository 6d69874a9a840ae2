"""Set-up of layers called on variables, and buffers with all of their axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.autograd import ops
from neonlike.autograd.variable import Variable
from neonlike.errors import ShapeError
from neonlike.layers.core.deltas import DeltasTree

if TYPE_CHECKING:
    from neonlike.layers.core.protocol import CalledLayer


def axes_of(shape: Any, columns: int) -> tuple[int, ...]:
    """All axes of a buffer of ``columns`` columns: (C, H, W, N), (features, steps, N), or (features, N)."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(sizes) == 2:
        return (sizes[0], columns) if sizes[1] == 1 else (*sizes, columns // sizes[1])
    return (*sizes, columns)


def rows_of(shape: Any) -> int:
    """Number of rows of a buffer."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return sizes[0] if len(sizes) == 2 else math.prod(sizes)


def as_buffer(layer: CalledLayer, x: Variable, shape: Any) -> Variable:
    """Convert ``x`` to the form of ``fprop``, for the configured input ``shape``.

    Parameters
    ----------
    layer : Layer
        A configured layer; its name is in the message.
    x : Variable
        The input: ``(features, columns)``, or with all axes of a sample and the batch last.
    shape : int or tuple
        Input shape of the layer, without the batch.

    Raises
    ------
    ShapeError
        If ``x`` has all of its axes, but with other sizes.
    """
    if x.ndim == 2:
        return x
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if x.shape[:-1] != sizes:
        raise ShapeError(f"{layer.name}: configured for inputs {sizes} and a last axis for the batch, got {x.shape}")
    rows = rows_of(sizes)
    return ops.reshape(x, rows, math.prod(x.shape) // rows)


def shape_of(layer: CalledLayer, x: Variable) -> Any:
    """The input shape, without the batch, of a layer that is not configured."""
    return x.shape[:-1] if x.ndim > 2 else (x.shape[0], max(1, x.shape[1] // (layer.be.bsz or x.shape[1])))


def set_up(layer: CalledLayer, variables: list[Variable], passes_error: bool) -> None:
    """Configure and allocate a new layer, with an error buffer of its first layer on request.

    Parameters
    ----------
    layer : Layer
        A new layer, or one that is configured.
    variables : list of Variable
        Its inputs, which tell the shapes.
    passes_error : bool
        Whether gradients by the inputs are wanted.
    """
    leaves: list[Any] = list(layer.layers_fprop()) if hasattr(layer, "layers_fprop") else [layer]
    allocated = any(leaf.outputs is not None for leaf in leaves if leaf.owns_output)
    needs_errors = passes_error and layer.deltas is None
    if layer.in_shape is None:
        shapes = [shape_of(layer, x) for x in variables]
        layer.configure(shapes if len(shapes) > 1 else shapes[0])
    if needs_errors:
        _follow_another(layer)
    if not allocated:
        layer.allocate()
    if needs_errors or not allocated:
        tree = DeltasTree()
        layer.allocate_deltas(tree)
        tree.allocate_buffers()
        layer.set_deltas(tree)


def _follow_another(layer: CalledLayer) -> None:
    """Make the first layer return its error, as if another layer came before it."""
    layer.prev_layer = layer.prev_layer or True
    if hasattr(layer, "layers"):
        _follow_another(layer.layers[0])
