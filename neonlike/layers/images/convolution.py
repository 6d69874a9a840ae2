"""Convolution layers: with weights only, with bias, and with normalization and activation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer
from neonlike.layers.core.epilogue import EpilogueLayer
from neonlike.layers.core.int8 import Int8Layer
from neonlike.layers.core.oldformats import join_bias
from neonlike.layers.core.parts import apart, reshaped
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.images.windows import PLAIN, Sizes, convolution_sizes, image_shape, image_sizes, require_images
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class Convolution(Int8Layer, EpilogueLayer):
    """Convolution of images (C, H, W) or volumes (C, D, H, W); filters are not flipped.

    Parameters
    ----------
    fshape : tuple or dict
        Filter height, width and number of maps (R, S, K), or with a depth (T, R, S, K).
    strides, padding, dilation : int or dict
        For height and width, or by name: ``{"str_h": 2, "str_w": 1}``, with ``pad_`` and ``dil_`` for the others, and
        ``d`` for the depth.
    init : Initializer or array
        Initializer of the weight ``(C*T*R*S, K)``.
    bsum : bool
        Also sum each map over the batch into ``batch_sum``, for a following batch normalization.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.
    groups : int
        Number of groups; the maps of a group see only the channels of that group.

    Attributes
    ----------
    convparams : dict
        Sizes by name, as ``be.conv_layer`` takes them.
    nglayer : ConvGeometry
        The geometry returned for them.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Convolution
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Convolution((3, 3, 8), init=Constant(1.0), padding=1)
    >>> y = layer(be.ones((1, 4, 4, 2)))  # channels, height, width, samples
    >>> y.shape, y.get()[0, :2, :, 0].tolist()
    ((8, 4, 4, 2), [[4.0, 6.0, 6.0, 4.0], [6.0, 9.0, 9.0, 6.0]])
    """

    repeatable = takes_int8 = True

    def __init__(
        self,
        fshape: Any,
        strides: Any = {},  # noqa: B006  never modified; described only if replaced
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        init: Init | None = None,
        bsum: bool = False,
        name: str | None = None,
        parallelism: str = "Data",
        groups: int = 1,
    ) -> None:
        super().__init__(init, name, parallelism)
        self.fshape, self.strides, self.padding, self.dilation = fshape, strides, padding, dilation
        self.bsum, self.groups = bsum, groups
        self.nglayer: Any = None
        self._rows = 0
        self.convparams = {**PLAIN, "T": 1, "D": 1, **convolution_sizes(self, fshape, strides, padding, dilation)}

    def __str__(self) -> str:
        if self.nglayer is None:
            return super().__str__()
        return f"{self.classnm} Layer '{self.name}': {self.in_shape} -> {self.out_shape}, {self.nglayer.describe()}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape of an input (C, H, W) or (C, D, H, W): (K, P, Q), or (K, M, P, Q) if M is not 1."""
        super().configure(in_obj)
        self.convparams.update(self.sizes(), N=self.be.bsz)
        self.nglayer = g = self.be.conv_layer(self.be.default_dtype, **self.convparams)
        self._rows = math.prod(self.in_shape)
        self.out_shape = image_shape(g.K, g.M, g.P, g.Q, keep_depth=g.M != 1)
        self.weight_shape = g.dimF2
        if self.bsum:
            self.batch_sum_shape = (g.K, 1)
        return self

    def sizes(self) -> Sizes:
        """The ``convparams`` derived from the input shape: its sizes, and the number of groups above 1."""
        return image_sizes(self) if self.groups == 1 else {**image_sizes(self), "groups": self.groups}

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`."""
        if self.int8_step is not None:
            return []  # it notes int8 itself
        return [(self.nglayer, operation) for operation in (("bprop", "update") if backward else ("fprop",))]

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = inputs convolved with W + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(C*H*W, N)``, or with all axes, ``(C, H, W, N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, ``(K*P*Q, N)``.
        """
        inputs, outputs = require_images(self, inputs, inference)
        self.inputs = inputs
        bias, relu, slope = self.epilogue(outputs)
        if self.int8_step is not None:
            self.multiply_int8(inputs, outputs, inference, beta, bias, relu, slope)
            return outputs
        self.be.fprop_conv(
            self.nglayer,
            inputs,
            self.W,
            outputs,
            bias=bias,
            bsum=self.asked_sums(inference),
            beta=beta,
            relu=relu,
            slope=slope,
        )
        return outputs

    @Layer.accumulates
    def bprop(
        self, error: Tensor, alpha: float = 1.0, beta: float = 0.0, *, dW_alpha: float = 1.0, dW_beta: float = 0.0
    ) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas; dW = dW_alpha · weight gradient + dW_beta · dW.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(K*P*Q, N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.
        dW_alpha, dW_beta : float
            dW = dW_alpha · gradient + dW_beta · dW.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        self._differentiate(error, alpha, beta, dW_alpha, dW_beta)
        return self.deltas

    def _differentiate(self, error: Tensor, alpha: float, beta: float, dW_alpha: float, dW_beta: float) -> Tensor:
        """Both gradients; returns the error, which may have been in the memory of the first."""
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        if self.deltas is not None:
            error = apart(self, error, self.deltas)
            self.be.bprop_conv(self.nglayer, self.W, error, self.deltas, alpha=alpha, beta=beta)
        self.be.update_conv(self.nglayer, self.inputs, error, self.dW, alpha=dW_alpha, beta=dW_beta)
        return error


class Convolution_bias(Convolution):  # noqa: N801  neon's name
    """Convolution that adds a bias to each map in the same call.

    Parameters
    ----------
    fshape, init, strides, padding, dilation, bsum, groups
        As of :class:`Convolution`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    bias : Initializer or array
        For the bias ``weight_bias`` (K, 1).
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    weight_bias, grad_bias : Tensor
        The bias and its gradient, (K, 1).
    states : list of two lists
        Optimizer states of the weight and of the bias.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers.layer import Convolution_bias
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Convolution_bias((3, 3, 1), init=Constant(1.0), bias=Constant(0.5))
    >>> layer(be.ones((1, 3, 3, 2))).tolist()
    [[[[9.5, 9.5]]]]
    """

    has_bias = repeatable = takes_int8 = True

    def __init__(
        self,
        fshape: Any,
        strides: Any = {},  # noqa: B006
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        init: Init | None = None,
        bsum: bool = False,
        name: str | None = None,
        bias: Init | None = None,
        parallelism: str = "Data",
        groups: int = 1,
    ) -> None:
        super().__init__(fshape, strides, padding, dilation, init, bsum, name, parallelism, groups)
        self.bias = bias
        self.weight_bias: Any = None
        self.grad_bias: Any = None
        self.states = [[], []]

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the output buffer, and weight and bias unless they exist; see :class:`ParameterLayer`."""
        super().allocate(shared_outputs, accumulate_updates)
        if self.weight_bias is None:
            if self.bias is None:
                raise ArgumentError(f"{self.name}: no initializer for the bias; give bias=, or use Convolution")
            self.weight_bias = self.new_parameter((self.nglayer.K, 1), self.bias)
        if self.grad_bias is None:
            self.grad_bias = self.gradient_of(self.weight_bias)
        if accumulate_updates:
            self.acc_params = [*self.acc_params, (self.be.empty_like(self.grad_bias), self.grad_bias)]

    def init_params(self, shape: Any) -> None:
        """Create the weight and its gradient and fill the weight."""
        super().init_params(shape)
        self.states = [[], []]

    def own_bias(self) -> Any:
        """The bias added by the convolution's call."""
        return self.weight_bias

    @Layer.accumulates
    def bprop(
        self, error: Tensor, alpha: float = 1.0, beta: float = 0.0, *, dW_alpha: float = 1.0, dW_beta: float = 0.0
    ) -> Tensor | None:
        """As :meth:`Convolution.bprop`, and grad_bias = sums of the error.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(K*P*Q, N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.
        dW_alpha, dW_beta : float
            dW = dW_alpha · gradient + dW_beta · dW.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        error = self._differentiate(error, alpha, beta, dW_alpha, dW_beta)
        self.grad_bias[:] = self.be.sum(reshaped(self, "error", error, self.weight_bias.shape[0]), axis=1)
        return self.deltas

    def get_params(self) -> Any:
        """``[((W, dW), states), ((weight_bias, grad_bias), states)]``."""
        return [((self.W, self.dW), self.states[0]), ((self.weight_bias, self.grad_bias), self.states[1])]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return (*super().parameter_names(), "weight_bias")

    def present_form(self, pdict: Any) -> Description:
        """Merge the two descriptions in neon's early files, convolution and bias, into one."""
        if isinstance(pdict, list | tuple) and len(pdict) == 2:
            return join_bias(*pdict)
        return super().present_form(pdict)

    def load_weights(self, pdict: Any, load_states: bool = True) -> None:
        """Restore the parameters, and with ``load_states`` the optimizer states, which must exist then.

        Parameters
        ----------
        pdict : dict, or list of two
            A description, or the two descriptions in neon's early files.
        load_states : bool
            Whether the optimizer states are restored, too.
        """
        pdict = self.present_form(pdict)
        if load_states and "states" not in pdict:
            raise ArgumentError(f"{self.name}.load_weights: no optimizer states were saved; use load_states=False")
        super().load_weights(pdict, load_states)

    def set_params(self, pdict: Any) -> None:
        """Load the parameters in ``pdict["params"]``; existing tensors are overwritten in place."""
        super().set_params(pdict)
        if self.weight_bias is not None and self.grad_bias is None:
            self.grad_bias = self.be.zeros_like(self.weight_bias)

    def set_states(self, pdict: Any) -> None:
        """Load the optimizer states in ``pdict["states"]``, one list for the weight and one for the bias."""
        super().set_states(self.present_form(pdict))
        if len(self.states) != 2:
            self.states = [[], []]


class Conv(CompoundLayer):
    """Convolution, with bias in the same layer or with batch normalization, then activation.

    Parameters
    ----------
    fshape, init, strides, padding, dilation
        As of :class:`Convolution`.
    bias : Initializer, optional
        For the bias; none without it.
    batch_norm : bool
        Normalize each map over the batch (has its own bias).
    activation : Transform, optional
        Applied last.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    groups : int
        Number of groups; the maps of a group see only the channels of that group.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Conv
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = Conv((3, 3, 1), init=Constant(-1.0), bias=Constant(0.5), activation=Rectlin())
    >>> layers(be.ones((1, 3, 3, 2))).tolist()
    [[[[0.0, 0.0]]]]
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
        groups: int = 1,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        sizes = {"fshape": fshape, "strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        if bias is None:
            self.append(Convolution(**sizes, init=init, bsum=batch_norm, name=name))
        else:
            self.append(Convolution_bias(**sizes, init=init, bsum=batch_norm, name=name, bias=bias))
        self.add_postfilter_layers(None)
