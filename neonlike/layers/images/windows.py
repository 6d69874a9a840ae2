"""Arguments of sliding-window layers: sizes, strides and padding as numbers, tuples or dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, ArgumentTypeError, ShapeError, UnknownArgument, did_you_mean
from neonlike.layers.core.base import Layer, require_input, require_size

Sizes = dict[str, Any]

PLAIN = {f"{what}_{axis}": int(what != "pad") for what in ("str", "pad", "dil") for axis in "dhw"}
"""Default strides, padding and dilation."""


def window_sizes(where: str, given: Any, names: str, optional: str = "") -> Sizes:
    """Name the sizes of a window: ``{"R": 3, "S": 3, "K": 16}`` for (3, 3, 16).

    Parameters
    ----------
    where : str
        Subject of the error messages.
    given : tuple, list or dict
        Sizes in the order of ``names``, optionally with ``optional`` ones before them, or by name.
    names, optional : str
        One letter per size.

    Raises
    ------
    ArgumentTypeError, ArgumentError, ShapeError
        If it is anything else, or a size is not a positive integer.
    """
    every = optional + names
    if isinstance(given, dict):
        found = _known(where, given, every)
        if missing := [name for name in names if name not in found]:
            raise ArgumentError(f"{where}: {brief(given)} has no {', '.join(missing)}; give {', '.join(every)}")
    elif isinstance(given, tuple | list):
        if len(given) not in (len(names), len(every)):
            raise ArgumentError(
                f"{where}: {brief(given)} has {len(given)} entries; expected ({', '.join(names)})"
                + (f" or ({', '.join(every)})" if optional else "")
            )
        found = dict(zip(names if len(given) == len(names) else every, given, strict=True))
    else:
        raise ArgumentTypeError(f"{where}: expected a tuple ({', '.join(names)}) or a dictionary, got {shown(given)}")
    return {name: require_size(size, f"{where}: {name}") for name, size in found.items()}


def by_axis(where: str, given: Any, prefix: str, axes: str = "dhw") -> Sizes:
    """Name strides, padding or dilation: ``{"str_h": 2, "str_w": 2}`` for 2.

    Parameters
    ----------
    where : str
        Subject of the error messages.
    given : int or dict
        One number for height and width, or numbers by name; missing names keep their defaults.
    prefix : str
        ``"str"``, ``"pad"`` or ``"dil"``.
    axes : str
        Letters at the end of the names.
    """
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        given = {f"{prefix}_h": given, f"{prefix}_w": given}
    elif not isinstance(given, dict):
        raise ArgumentTypeError(
            f"{where}: expected an integer or a dictionary such as {{'{prefix}_h': 1, '{prefix}_w': 1}}, "
            f"got {shown(given)}"
        )
    found = _known(where, given, [f"{prefix}_{axis}" for axis in axes])
    for name, size in found.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise ArgumentTypeError(f"{where}: {name} must be an integer, got {shown(size)}")
        if size < (prefix != "pad"):
            raise ArgumentError(f"{where}: {name} must be at least {int(prefix != 'pad')}, got {size}")
    return {name: int(size) for name, size in found.items()}


def _known(where: str, given: Sizes, names: Any) -> Sizes:
    for name in given:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise UnknownArgument(f"{where}: there is no size {brief(name)}, only {', '.join(names)}{hint}")
    return dict(given)


def image_sizes(layer: Layer, names: str = "CDHW") -> Sizes:
    """Name the input shape of ``layer``: ``{"C": 3, "D": 1, "H": 32, "W": 32}``.

    Raises
    ------
    ShapeError
        If it is not (C, H, W) or (C, D, H, W).
    """
    shape = layer.in_shape
    if not isinstance(shape, tuple) or len(shape) not in (3, 4) or not all(isinstance(size, int) for size in shape):
        raise ShapeError(
            f"{layer.name}: needs images, an input of shape (channels, height, width) or (channels, depth, height, "
            f"width), got {shown(shape)}; put Reshape((channels, height, width)) before it"
        )
    channels, *rest = shape
    return dict(zip(names, (channels, *([1] * (3 - len(rest))), *rest), strict=True))


def image_shape(maps: int, depth: int, height: int, width: int, keep_depth: bool) -> tuple[int, ...]:
    """The output shape of a layer, with the depth only where it is in use.

    Parameters
    ----------
    maps, depth, height, width : int
        Sizes of the output.
    keep_depth : bool
        Whether the depth is an axis of its own.

    Returns
    -------
    tuple of int
        (maps, height, width), or (maps, depth, height, width).
    """
    return (maps, depth, height, width) if keep_depth else (maps, height, width)


def convolution_sizes(layer: Layer, fshape: Any, strides: Any, padding: Any, dilation: Any, maps: str = "K") -> Sizes:
    """Name and check the arguments of a convolution; ``maps`` is the letter of its output maps.

    Parameters
    ----------
    layer : Layer
        The layer; messages have its class.
    fshape : tuple or dict
        Filter height, width and number of maps (R, S, K), or with a depth (T, R, S, K).
    strides, padding, dilation : int or dict
        One number for height and width, or numbers by name.
    maps : str
        Letter of the output maps: ``"K"``, or ``"C"`` of a deconvolution.

    Returns
    -------
    dict
        Sizes by the names that ``be.conv_layer`` takes.
    """
    return {
        **window_sizes(f"{layer.classnm}: fshape", fshape, f"RS{maps}", "T"),
        **by_axis(f"{layer.classnm}: strides", strides, "str"),
        **by_axis(f"{layer.classnm}: padding", padding, "pad"),
        **by_axis(f"{layer.classnm}: dilation", dilation, "dil"),
    }


def require_images(layer: Any, inputs: Any, inference: bool) -> tuple[Tensor, Tensor]:
    """Return the input and output tensors of an image layer, see :func:`require_input`.

    The inputs are ``(features, N)``, or have all axes of images, (C, H, W, N) or (C, D, H, W, N), as in primitives.

    Parameters
    ----------
    layer : Layer
        The layer whose ``fprop`` is called.
    inputs : Tensor
        Images with or without all axes.
    inference : bool
        True outside of training: batches may be partial.

    Returns
    -------
    inputs, outputs : Tensor
        The inputs, and the part of ``layer.outputs`` with their columns.
    """
    if isinstance(inputs, Tensor) and len(inputs.shape) > 2 and layer.outputs is not None:
        if inputs.size == layer._rows * inputs.shape[-1] and inputs.shape[-1] == layer.outputs.shape[1]:
            return inputs, layer.outputs
    return require_input(layer, inputs, layer._rows, inference)
