"""Batch normalization, activations and Gaussian dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc
from neonlike.layers.blueprint.activations import ActivationPart
from neonlike.layers.blueprint.base import Blueprint, working
from neonlike.layers.blueprint.built import BuiltLayer, blend, flat
from neonlike.layers.blueprint.dense import ActivatedLayer, WithActivation
from neonlike.layers.core.parameter import stats_dtype


@dataclass(frozen=True)
class BatchNorm(WithActivation):
    """Each feature, or each map of an image, normalized over the batch, scaled and shifted; then an activation.

    Attributes
    ----------
    eps : float
        Added to the variance.
    rho : float
        What is kept of the running averages, which inference uses, at each batch.
    """

    eps: float
    rho: float

    kind = "batch_norm"

    @property
    def weights_desc(self) -> TensorDesc:
        """The scale, (features, 1), of float32 for float16 data."""
        with working(self.be, self.src_desc):
            return TensorDesc((self.src_desc.shape[0], 1), np.dtype(stats_dtype(self.be)), "OX")

    @property
    def bias_desc(self) -> TensorDesc:
        """The shift, as the scale."""
        return self.weights_desc

    def layer_class(self) -> Any:
        """The class of the layers."""
        return BatchNormLayer


class BatchNormLayer(ActivatedLayer):
    """y = f(gamma · (x − mean) / sqrt(variance + eps) + beta).

    Attributes
    ----------
    weights, bias : Tensor (features, 1)
        gamma, which starts at 1, and beta, at 0.
    running_mean, running_variance : Tensor (features, 1)
    """

    draws_weights = False

    def _allocate(self) -> None:
        bp = self.blueprint
        desc = bp.weights_desc
        self._make_parameters(desc.shape, desc.shape, desc.dtype)
        self.weights.fill(1)
        self.running_mean, self.running_variance, self._sum, self._variance = (self._new(desc) for _ in range(4))
        self._diff_gamma = self._new(desc) if self.train else None
        self._allocate_activation()
        # Both gradients of the parameters come with that of the input, wanted or not.
        self._target = self._new(bp.src_desc) if self.train and self.diff_input is None else self.diff_input

    def _forward(self, inference: bool) -> None:
        bp = self.blueprint
        self.be.compound_fprop_bn(
            self.input, self._sum, self._variance, self.running_mean, self.running_variance, self.weights, self.bias,
            self.z, bp.eps, bp.rho, True, inference=inference,
        )  # fmt: skip
        self.act.forward()

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        self.be.compound_bprop_bn(
            self._target, self._diff_gamma, self.diff_bias, self._diff_z, self.input, self._sum, self._variance,
            self.weights, self.blueprint.eps, own_sum=True,
        )  # fmt: skip
        blend(self.diff_weights, self._diff_gamma, scale_dw, scale_g)
        self._blend_bias(scale_db, scale_b)


@dataclass(frozen=True)
class ActivationOnly(WithActivation):
    """An activation."""

    kind = "activation"

    def layer_class(self) -> Any:
        """The class of the layers."""
        return ActivationLayer


class ActivationLayer(BuiltLayer):
    """y = f(x). Its derivative may need x: the input is left as it is."""

    def _allocate(self) -> None:
        bp = self.blueprint
        gradients = self.diff_output, self.diff_input
        views = [None if one is None else flat(one, bp.act_rows) for one in (self.input, self.output, *gradients)]
        self.act = ActivationPart(self.be, bp.activation, *views)

    def _forward(self, inference: bool) -> None:
        self.act.forward()

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        if self.diff_input is not None:
            self.act.backward()

    @property
    def diff_z(self) -> Any:
        """The gradient with respect to what the activation is applied to, which is the input."""
        return self.diff_input

    def leave_to_cost(self, left: bool) -> None:
        """See :class:`BuiltLayer`."""
        self.act.leave_to_cost(left)


@dataclass(frozen=True)
class GaussianDropout(Blueprint):
    """Each element times a number drawn from N(1, sd²) in training; nothing in inference.

    Attributes
    ----------
    sd : float
    """

    sd: float

    kind = "gaussian_dropout"
    hands_input_on = True

    def layer_class(self) -> Any:
        """The class of the layers."""
        return GaussianDropoutLayer


class GaussianDropoutLayer(BuiltLayer):
    """y = m · x; a layer for inference has its input as its output.

    Attributes
    ----------
    mask : Tensor
        m of the last training pass.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014), section 10.
    """

    def _output(self, given: Any) -> Any:
        return super()._output(given) if self.train or given is not None else self.input

    mask: Any

    def _allocate(self) -> None:
        self.mask = self._new(self.blueprint.src_desc).fill(1) if self.train else None

    def _forward(self, inference: bool) -> None:
        if not inference:
            self.mask[:] = 1 + self.blueprint.sd * self.be.randn()
            self.output[:] = self.input * self.mask
        elif self.output is not self.input:
            self.output[:] = self.input

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        if self.diff_input is not None:
            self.diff_input[:] = self.diff_output * self.mask
