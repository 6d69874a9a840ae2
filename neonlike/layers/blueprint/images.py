"""Convolution and pooling of images (C, H, W, N) and volumes (C, D, H, W, N)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.families.lazy import per_axis
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.blueprint.base import Blueprint
from neonlike.layers.blueprint.built import BuiltLayer
from neonlike.layers.blueprint.dense import ActivatedLayer, WithActivation
from neonlike.layers.blueprint.description import named


def spatial_axes(where: str, src: TensorDesc) -> int:
    """How many axes an image has, 2 or 3; ShapeError if it is none."""
    if src.ndim not in (4, 5):
        raise ShapeError(f"{where}: needs images (C, H, W, N) or volumes (C, D, H, W, N), got {src.shape}")
    return src.ndim - 2


def by_name(names: str, prefix: str, sizes: tuple[int, ...]) -> dict[str, int]:
    """Sizes of depth, height and width as ``be.conv_layer`` and ``be.pool_layer`` take them."""
    return {f"{prefix}{name}": size for name, size in zip(names, sizes)}


def conv_geometry(
    be: Any, where: str, src: TensorDesc, window: Any, maps: int, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """The geometry that ``be.conv_layer`` makes of a convolution's sizes."""
    axes = spatial_axes(where, src)
    steps = [("str_", "strides", strides, 1), ("pad_", "padding", padding, 0), ("dil_", "dilation", dilation, 1)]
    sizes: dict[str, int] = {}
    for prefix, name, value, filler in steps:
        sizes |= by_name("dhw", prefix, per_axis(where, name, value, axes, filler))
    image = (1,) * (3 - axes) + src.shape[1:-1]
    sizes |= by_name("DHW", "", image) | by_name("TRS", "", per_axis(where, "kernel", window, axes, 1))
    with named(where):
        return be.conv_layer(src.dtype, N=src.shape[-1], C=src.shape[0], K=maps, groups=groups, **sizes)


def pool_geometry(be: Any, where: str, src: TensorDesc, op: str, window: Any, strides: Any, padding: Any) -> Any:
    """The geometry that ``be.pool_layer`` makes of a pooling's sizes; ``op`` is "max" or "avg"."""
    if op not in ("max", "avg"):
        raise ArgumentError(f"{where}: the algorithm must be 'max' or 'avg', got {brief(op)}")
    axes = spatial_axes(where, src)
    kernel = per_axis(where, "kernel", window, axes, 1)
    steps = kernel if strides is None else per_axis(where, "strides", strides, axes, 1)
    sizes = by_name("TRS", "", kernel) | by_name("dhw", "str_", steps)
    sizes |= by_name("dhw", "pad_", per_axis(where, "padding", padding, axes, 0))
    sizes |= by_name("DHW", "", (1,) * (3 - axes) + src.shape[1:-1])
    with named(where):
        return be.pool_layer(src.dtype, op, src.shape[-1], src.shape[0], **sizes)


def image_of(geometry: Any, src: TensorDesc) -> tuple[int, ...]:
    """The shape of the output: with a depth if the input has one."""
    return (geometry.K, *geometry.MPQ[5 - src.ndim :], geometry.N)


@dataclass(frozen=True)
class Convolution(WithActivation):
    """Filters moved over images, not flipped; a bias for each map, and an activation.

    Attributes
    ----------
    geometry : ConvGeometry
    weights_desc, bias_desc : TensorDesc
        ``(C / groups * filter, K)`` and ``(K, 1)``.
    """

    geometry: Any

    kind = "convolution"

    @property
    def weights_desc(self) -> TensorDesc:
        """The filters, a column for each map."""
        return TensorDesc(self.geometry.dimF2, self.src_desc.dtype, "IO")

    @property
    def bias_desc(self) -> TensorDesc:
        """The bias."""
        return TensorDesc(self.geometry.dimS, self.src_desc.dtype, "OX")

    @property
    def kernel_bytes(self) -> int:
        """See :class:`Blueprint`."""
        return max(self.be.workspace_bytes(self.geometry, operation) for operation in ("fprop", "bprop", "update"))

    def layer_class(self) -> Any:
        """The class of the layers."""
        return ConvolutionLayer


class ConvolutionLayer(ActivatedLayer):
    """y = f(W * x + b)."""

    def _allocate(self) -> None:
        self._make_parameters(self.blueprint.weights_desc.shape, self.blueprint.bias_desc.shape)
        self._allocate_activation()

    def _forward(self, inference: bool) -> None:
        self.be.fprop_conv(self.blueprint.geometry, self.input, self.weights, self.z, bias=self.bias)
        self.act.forward()

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        g, dz = self.blueprint.geometry, self._diff_z
        self.be.update_conv(
            g, self.input, dz, self.diff_weights, alpha=scale_dw, beta=scale_g, grad_bias=self.diff_bias
        )
        if self.diff_input is not None:
            self.be.bprop_conv(g, self.weights, dz, self.diff_input)
        self._blend_bias(scale_db, scale_b)


@dataclass(frozen=True)
class Pooling(Blueprint):
    """The greatest value or the mean of each window.

    Attributes
    ----------
    geometry : PoolGeometry
    """

    dst: TensorDesc
    geometry: Any

    kind = "pooling"

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output."""
        return self.dst

    @property
    def kernel_bytes(self) -> int:
        """See :class:`Blueprint`."""
        return max(self.be.workspace_bytes(self.geometry, operation) for operation in ("fprop", "bprop"))

    def layer_class(self) -> Any:
        """The class of the layers."""
        return PoolingLayer


class PoolingLayer(BuiltLayer):
    """y = the pooled x."""

    def _allocate(self) -> None:
        g = self.blueprint.geometry
        self._places = self.be.zeros(self.output.shape, dtype=g.argmax_dtype) if g.op == "max" else None

    def _forward(self, inference: bool) -> None:
        self.be.fprop_pool(self.blueprint.geometry, self.input, self.output, self._places)

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        if self.diff_input is not None:
            self.be.bprop_pool(self.blueprint.geometry, self.diff_output, self.diff_input, self._places)
