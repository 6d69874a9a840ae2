"""Local response normalization."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, part_of, require_size
from neonlike.layers.core.parts import apart
from neonlike.layers.images.windows import image_sizes, require_images

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"


class LRN(Layer):
    """Divide each activation by a power of the mean square of the channels around it.

    outputs = alpha · inputs · denom^(−bpower) + beta · outputs, with denom = 1 + ascale / depth · Σ inputs² over
    ``depth`` channels.

    Parameters
    ----------
    depth : int
        Channels of a window; odd.
    alpha, beta : float
        Factors of the new and of the previous outputs.
    ascale : float
        Weight of the mean square, in ``denom``.
    bpower : float
        Exponent of ``denom``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    denom : Tensor
        The denominators, kept for the backward pass.

    References
    ----------
    Krizhevsky et al., "ImageNet classification with deep convolutional neural networks" (2012), section 3.3.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import LRN
    >>> be = gen_backend("cpu", batch_size=2)
    >>> LRN(depth=1)(be.ones((1, 1, 1, 2))).tolist()  # 1 / (1 + 1)
    [[[[0.5, 0.5]]]]
    """

    repeatable = needs_outputs = True

    def __init__(
        self,
        depth: int,
        alpha: float = 1.0,
        beta: float = 0.0,
        ascale: float = 1.0,
        bpower: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.depth = require_size(depth, "LRN: depth")
        if self.depth % 2 == 0:
            raise ArgumentError(f"LRN: depth={depth} channels have no middle one; give an odd number")
        self.alpha, self.beta, self.ascale, self.bpower = alpha, beta, ascale, bpower
        self.owns_delta = True
        self.nglayer: Any = None
        self.denom: Any = None
        self._plain: Any = None
        self._rows = 0

    def __str__(self) -> str:
        return f"LRN Layer '{self.name}': {self.in_shape}, windows of {self.depth} channels"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape, (C, H, W) or (C, D, H, W)."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        self._rows = math.prod(image_sizes(self).values())
        self.nglayer = self.be.lrn_layer(self.be.default_dtype, N=self.be.bsz, **image_sizes(self), J=self.depth)
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output and denominator buffers."""
        super().allocate(shared_outputs)
        if self.denom is None or self.denom.shape != self.outputs.shape:
            self.denom = self.be.iobuf(self.out_shape, parallelism=self.parallelism)

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """outputs = normalized inputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(C*H*W, N)``, or with all axes, ``(C, H, W, N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        inputs, outputs = require_images(self, inputs, inference)
        self.inputs = inputs
        denom = self.denom if outputs is self.outputs else part_of(self, "denom", self.denom, outputs.shape[1])
        self.be.fprop_lrn(self.nglayer, inputs, outputs, denom, self.alpha, self.beta, self.ascale, self.bpower)
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(C*H*W, N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        if self.deltas is None:
            return None
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        scale = alpha * self.alpha if self.alpha != 1 else alpha
        error = apart(self, error, self.deltas)
        self.be.bprop_lrn(
            self.nglayer, self.inputs, self._unblended(), error, self.deltas, self.denom, scale, beta, self.ascale,
            self.bpower,
        )  # fmt: skip
        return self.deltas

    def _unblended(self) -> Tensor:
        """The normalized inputs: the outputs, unless alpha and beta blended them with their old contents."""
        outputs: Tensor = self.outputs
        if self.alpha == 1 and not self.beta:
            return outputs
        if self._plain is None or self._plain.shape != outputs.shape:
            self._plain = self.be.empty_like(outputs)
        self._plain[:] = self.inputs.reshape(outputs.shape) * self.denom**-self.bpower
        return self._plain
