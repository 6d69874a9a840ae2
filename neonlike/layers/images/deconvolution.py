"""Transposed convolution layers, each the data gradient of a convolution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer
from neonlike.layers.core.epilogue import EpilogueLayer
from neonlike.layers.core.parts import apart
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.images.windows import PLAIN, convolution_sizes, image_shape, image_sizes, require_images

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class Deconvolution(EpilogueLayer):
    """Transposed convolution: adds each input, weighted by the filter, to a window of the outputs.

    Parameters
    ----------
    fshape : tuple or dict
        Filter height, width and number of *output* maps (R, S, C), or with a depth (T, R, S, C).
    strides, padding, dilation : int or dict
        Those of the corresponding convolution: strides enlarge, and padding cuts the border off; see
        :class:`Convolution`.
    init : Initializer or array
        Initializer of the weight ``(C*T*R*S, K)``, with K input maps.
    bsum : bool
        Also sum each map over the batch into ``batch_sum``, for a following batch normalization.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    deconvparams : dict
        Sizes by name, as ``be.deconv_layer`` takes them.
    nglayer : DeconvGeometry
        The geometry returned for them.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Deconvolution
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Deconvolution((2, 2, 1), init=Constant(1.0), strides=2)
    >>> layer(be.ones((1, 3, 3, 2))).shape  # 3 x 3 pixels become 6 x 6
    (1, 6, 6, 2)
    """

    repeatable = True

    def __init__(
        self,
        fshape: Any,
        strides: Any = {},  # noqa: B006  never modified; described only if replaced
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        init: Init | None = None,
        bsum: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(init, name)
        self.fshape, self.strides, self.padding, self.dilation = fshape, strides, padding, dilation
        self.bsum = bsum
        self.nglayer: Any = None
        self._rows = 0
        sizes = convolution_sizes(self, fshape, strides, padding, dilation, maps="C")
        self.deconvparams = {**PLAIN, "T": 1, "M": 1, **sizes}

    def __str__(self) -> str:
        if self.nglayer is None:
            return super().__str__()
        return f"Deconvolution Layer '{self.name}': {self.in_shape} -> {self.out_shape}, {self.nglayer.describe()}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape of an input (K, P, Q) or (K, M, P, Q): (C, H, W), or (C, D, H, W) if D is not 1."""
        super().configure(in_obj)
        self.deconvparams.update(image_sizes(self, "KMPQ"), N=self.be.bsz)
        self.nglayer = g = self.be.deconv_layer(self.be.default_dtype, **self.deconvparams)
        self._rows = math.prod(self.in_shape)
        depth, height, width = g.DHW
        self.out_shape = image_shape(g.C, depth, height, width, keep_depth=depth != 1)
        self.weight_shape = g.dimF2
        if self.bsum:
            self.batch_sum_shape = (g.C, 1)
        return self

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`: the forward pass is a convolution's data gradient."""
        return [(self.nglayer, operation) for operation in (("fprop", "update") if backward else ("bprop",))]

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = inputs transposed-convolved with W + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(K*P*Q, N)``, or with all axes, ``(K, P, Q, N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, ``(C*H*W, N)``.
        """
        inputs, outputs = require_images(self, inputs, inference)
        self.inputs = inputs
        bias, relu, slope = self.epilogue(outputs)
        self.be.bprop_conv(
            self.nglayer,
            self.W,
            inputs,
            outputs,
            bias=bias,
            bsum=self.asked_sums(inference),
            beta=beta,
            relu=relu,
            slope=slope,
        )
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · error convolved with W + beta · deltas; dW = weight gradient.

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
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        if self.deltas is not None:
            error = apart(self, error, self.deltas)
            self.be.fprop_conv(self.nglayer, error, self.W, self.deltas, alpha=alpha, beta=beta)
        self.be.update_conv(self.nglayer, error, self.inputs, self.dW)
        return self.deltas


class Deconv(CompoundLayer):
    """Deconvolution, then bias or batch normalization, then activation.

    Parameters
    ----------
    fshape, init, strides, padding, dilation
        As of :class:`Deconvolution`.
    bias : Initializer, optional
        Initializer of a bias per map; no bias without it.
    batch_norm : bool
        Normalize each map over the batch (has its own bias).
    activation : Transform, optional
        Applied last.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Deconv
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = Deconv((2, 2, 1), init=Constant(1.0), strides=2, bias=Constant(0.5))
    >>> layers(be.ones((1, 1, 1, 2))).get()[0, :, :, 0].tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """

    def __init__(
        self,
        fshape: Any,
        init: Init,
        strides: Any = {},  # noqa: B006
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        self.append(Deconvolution(fshape, strides, padding, dilation, init=init, bsum=batch_norm, name=name))
        self.add_postfilter_layers()
