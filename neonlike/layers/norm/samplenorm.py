"""Layer and group normalization: each sample is normalized alone, in training and inference alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.core.base import Layer, require_input, require_size
from neonlike.layers.norm.scaleshift import ScaleShiftLayer
from neonlike.optree.functions import moments, standardized

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

LARGE = 1 << 24
"""Size of the inputs in bytes from which statistics and results are computed in one kernel, block by block of samples.
Larger inputs would otherwise be read from memory repeatedly. While inputs and errors fit the caches, separate kernels
take half the time (a Zen 4 with 32 MB, 768 features, 4,096 samples)."""


class SampleNorm(ScaleShiftLayer):
    """Base: outputs = gamma · (x − mean) / sqrt(variance + eps) + beta, with statistics of a part of each sample.

    Subclasses define the axes of the statistics by ``view``.

    Parameters
    ----------
    eps : float
        Added to the variance; above 0.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    """

    statistics_axes: Any = 0
    parameter_axes: Any = 1
    at_once = True
    """Whether statistics that are not needed later may be computed in one kernel with the results."""

    def __init__(self, eps: float, name: str | None = None) -> None:
        super().__init__(name)
        if eps <= 0:
            raise ArgumentError(f"{self.classnm}: eps={eps} must be positive, it keeps from dividing by 0")
        self.eps = eps
        self._mean: Any = None
        self._rest: Any = None
        self._scale: Any = None
        self._sums: list[Any] = []
        self._stale = True

    def __str__(self) -> str:
        return f"{self.classnm} Layer '{self.name}': {self.in_shape}"

    def view(self, buffer: Tensor) -> Tensor:
        """A view of a buffer that separates the axes of the statistics from the others."""
        return buffer

    def by_feature(self, parameter: Tensor) -> Tensor:
        """A parameter or its gradient, in a shape that broadcasts to the views."""
        return parameter

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = normalized inputs + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, columns)``: columns are samples, of sequences steps of samples.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, in the shape of the inputs.
        """
        inputs, outputs = require_input(self, inputs, self._rows, inference)
        self.inputs = inputs
        axes = self.statistics_axes
        x, y = self.view(inputs), self.view(outputs)
        if inference and self.at_once and x.nbytes >= LARGE:
            self._stale, normal = True, standardized(x, axes, self.eps)
        else:
            normal = self._statistics(x)
        tree = self.by_feature(self.gamma) * normal + self.by_feature(self.beta)
        y[:] = tree + beta * y if beta else tree
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas; gradients of gamma and beta.

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

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        x, e = self.view(self.inputs), self.view(error)
        normal = self._statistics(x) if self._stale else self._normal(x)
        mean, mean_of_product = self._parameter_gradients(e, normal)
        if self.deltas is not None:
            deltas = self.view(self.deltas)
            centred = self.by_feature(self.gamma) * e - mean - normal * mean_of_product
            gradient = centred * (self._scale if alpha == 1 else alpha * self._scale)
            deltas[:] = gradient + beta * deltas if beta else gradient
        return self.deltas

    def _parameter_gradients(self, e: Tensor, normal: Any) -> tuple[Any, Any]:
        """Compute the gradients of gamma and beta; return the means of gamma · e and of gamma · e · normal."""
        be, axes = self.be, self.parameter_axes
        gradients = self.by_feature(self.grad_gamma), self.by_feature(self.grad_beta)
        be.assign_many([(gradients[0], be.sum(e * normal, axis=axes)), (gradients[1], be.sum(e, axis=axes))])
        scaled, axes = self.by_feature(self.gamma) * e, self.statistics_axes
        means = be.mean(scaled, axis=axes), be.mean(scaled * normal, axis=axes)
        if self.deltas is None or e.nbytes >= LARGE:
            return means
        kept = self._kept_sums([mean.shape for mean in means])
        be.assign_many(list(zip(kept, means)))
        return kept[0], kept[1]

    def _kept_sums(self, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        """Tensors of these shapes for sums of the backward pass, reused as long as the first shape is unchanged."""
        if not self._sums or self._sums[0].shape != shapes[0]:
            self._sums = [self.be.empty(shape, dtype=self.stats_dtype) for shape in shapes]
        return self._sums

    def _statistics(self, x: Tensor) -> Any:
        """Compute and keep the statistics of ``x``; return the expression of the normalized inputs."""
        be = self.be
        mean, rest, variance = moments(x, self.statistics_axes)
        if self._mean is None or self._mean.shape != mean.shape:
            self._mean, self._rest, self._scale = (be.empty(mean.shape, dtype=self.stats_dtype) for _ in range(3))
        be.assign_many([(self._mean, mean), (self._rest, rest), (self._scale, 1 / be.sqrt(variance + self.eps))])
        self._stale = False
        return self._normal(x)

    def _normal(self, x: Tensor) -> Any:
        """Expression of the normalized inputs from the kept statistics; the mean is in two parts, see ``moments``."""
        return (x - self._mean - self._rest) * self._scale


class LayerNorm(SampleNorm):
    """Normalize all features of each sample (of each step in sequences), then scale and shift each feature.

    Parameters
    ----------
    eps : float
        Added to the variance.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Ba et al., "Layer normalization" (2016).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import LayerNorm
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(LayerNorm()(be.array([[1.0, 2.0], [3.0, 6.0]])).get().round(3))  # each column
    [[-1. -1.]
     [ 1.  1.]]
    """

    repeatable = True

    def __init__(self, eps: float = 1e-5, name: str | None = None) -> None:
        super().__init__(eps, name)

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Accept inputs of any shape; images are normalized over all maps and pixels, each with its own scale."""
        super().configure(in_obj)
        self.nfm = self._rows
        return self


class GroupNorm(SampleNorm):
    """Normalize groups of maps of each sample over all pixels or steps, then scale and shift each map.

    Parameters
    ----------
    groups : int
        Number of groups, a divisor of the number of maps. 1: all maps together; one per map: instance normalization.
    eps : float
        Added to the variance.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Wu and He, "Group normalization" (2018).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import GroupNorm
    >>> be = gen_backend("cpu", batch_size=2)
    >>> x = be.array([[1.0, 1.0], [3.0, 3.0], [5.0, 5.0], [9.0, 9.0]])
    >>> print(GroupNorm(groups=2)(x).get()[:, 0].round(3))
    [-1.  1. -1.  1.]
    """

    repeatable = True

    statistics_axes = (1, 2)
    parameter_axes = (2, 3)
    at_once = False

    def __init__(self, groups: int, eps: float = 1e-5, name: str | None = None) -> None:
        super().__init__(eps, name)
        self.groups = require_size(groups, "GroupNorm: groups")
        self._dims = (0, 0, 0)

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Accept inputs (C, H, W), (C, D, H, W), (C, steps) or C; ``groups`` divides C."""
        super().configure(in_obj)
        if self.nfm % self.groups:
            raise ShapeError(f"{self.name}: {self.groups} groups do not divide the {self.nfm} maps of {self.in_shape}")
        shape = (self.in_shape,) if isinstance(self.in_shape, int) else self.in_shape
        self._dims = (self.groups, self.nfm // self.groups, math.prod(shape[1:]))
        return self

    def view(self, buffer: Tensor) -> Tensor:
        """View with axes (groups, maps of a group, pixels or steps, N)."""
        return buffer.reshape(*self._dims, -1)

    def by_feature(self, parameter: Tensor) -> Tensor:
        """View with axes (groups, maps of a group, 1, 1)."""
        return parameter.reshape(self._dims[0], self._dims[1], 1, 1)

    def _parameter_gradients(self, e: Tensor, normal: Any) -> tuple[Any, Any]:
        """As the base class, but with the sums over pixels computed first: all four sums read ``e`` once."""
        be, gamma = self.be, self.by_feature(self.gamma)
        groups, maps, pixels, samples = e.shape
        shapes = [(groups, maps, 1, samples)] * 2 + [(groups, 1, 1, samples)] * 2
        products, sums, mean_of_product, mean = self._kept_sums(shapes)
        be.assign_many([(products, be.sum(e * normal, axis=2)), (sums, be.sum(e, axis=2))])
        gradients = self.by_feature(self.grad_gamma), self.by_feature(self.grad_beta)
        be.assign_many([(gradients[0], be.sum(products, axis=3)), (gradients[1], be.sum(sums, axis=3))])
        share = 1.0 / (maps * pixels)
        of_group = [share * be.sum(gamma * by_map, axis=1) for by_map in (products, sums)]
        be.assign_many([(mean_of_product, of_group[0]), (mean, of_group[1])])
        return mean, mean_of_product
