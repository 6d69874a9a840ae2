"""Requests to the hooks of convolution: everything of a call except its tensors, and the only input of plans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry, Five
from neonlike.backends.tensors.operands import Array
from neonlike.errors import ArgumentError, ShapeError


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Post-processing of a convolution's result A around its storage in the target T, in order.

    ``A = alpha A + bias``; brelu: ``A *= (X > 0) + slope (X < 0)``; relu: ``A = max(A, 0) + slope min(A, 0)``;
    ``T = A + beta X``; ``bsum`` = row sums of T. X is the old T, unless the hook gets a tensor X.

    Parameters
    ----------
    alpha, beta : float
        Factors of A and of X.
    relu, brelu : bool
    slope : float
        Slope below 0 of both.
    """

    alpha: float = 1.0
    beta: float = 0.0
    relu: bool = False
    brelu: bool = False
    slope: float = 0.0

    @property
    def reads_x(self) -> bool:
        """Whether X is used."""
        return self.brelu or self.beta != 0

    def apply(self, result: Array, x: Array | None, bias: Array | None) -> Array:
        """Apply all steps but ``bsum`` to ``result`` (rows, columns); x if it is used; bias (rows, 1) or None.

        Parameters
        ----------
        result : array (rows, columns)
            Overwritten.
        x : array of that shape, or None
        bias : array (rows, 1), or None
        """
        result *= self.alpha
        if bias is not None:
            result += bias
        assert x is not None or not self.reads_x
        if self.brelu:
            result *= (x > 0) + self.slope * (x < 0)  # type: ignore[operator]
        if self.relu:
            result = np.where(result < 0, self.slope * result if self.slope else 0, result)
        return result if self.beta == 0 else result + self.beta * x  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class ConvPass:
    """Forward pass, or with ``backward`` data gradient, for the images in ``geometry``."""

    geometry: ConvGeometry
    backward: bool
    epilogue: Epilogue = field(default_factory=Epilogue)

    @property
    def source_dims(self) -> Five:
        """Shape of the input that is combined with the filters."""
        return self.geometry.dimO if self.backward else self.geometry.dimI

    @property
    def target_dims(self) -> Five:
        """Shape of the output."""
        return self.geometry.dimI if self.backward else self.geometry.dimO


@dataclass(frozen=True, slots=True)
class ConvUpdate:
    """A weight gradient: ``grad_F = alpha * result + beta * grad_F``."""

    geometry: ConvGeometry
    alpha: float = 1.0
    beta: float = 0.0


def conv_request(geometry: ConvGeometry, operation: str) -> ConvPass | ConvUpdate | None:
    """Plain request for the operation "fprop", "bprop" or "update"; None for any other word."""
    if operation == "update":
        return ConvUpdate(geometry)
    return ConvPass(geometry, operation == "bprop") if operation in ("fprop", "bprop") else None


def checked_layer(name: str, layer: Any) -> ConvGeometry:
    """Return ``layer``; raise ArgumentError if it is not a convolution geometry."""
    if not isinstance(layer, ConvGeometry):
        raise ArgumentError(
            f"{name}: layer must be what be.conv_layer or be.deconv_layer returns, got {type(layer).__name__}"
        )
    return layer


def at_batch(name: str, layer: ConvGeometry, argument: str, tensor: Any, features: int) -> ConvGeometry:
    """The layer at the number of images in ``tensor``.

    Parameters
    ----------
    name, argument : str
        Method and argument, for messages.
    layer : ConvGeometry
    tensor : tensor
    features : int
        Elements of an image.

    Raises
    ------
    ShapeError
        If the tensor does not hold whole images.
    """
    images, rest = divmod(tensor.size, features)
    if rest or images < 1:
        raise ShapeError(
            f"{name}: {argument} must have {features} elements for each image, as {layer.describe()} gives; "
            f"got {tensor.shape} = {tensor.size}"
        )
    return layer.at_batch(images)
