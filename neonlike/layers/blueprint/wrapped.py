"""Blueprints of layers of :mod:`neonlike.layers`. A built layer gives them its memory, and they compute.

It sets ``outputs`` and ``deltas`` of the layers before ``allocate``, which makes what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from neonlike.backends.descriptors import TensorDesc
from neonlike.layers.blueprint.activations import IDENTITY, Activation
from neonlike.layers.blueprint.base import Blueprint, room, working
from neonlike.layers.blueprint.built import BuiltLayer, Scales
from neonlike.layers.blueprint.description import named
from neonlike.layers.container.sequential import Sequential
from neonlike.layers.core.base import Layer
from neonlike.layers.core.elementwise import Activation as ActivationLayer
from neonlike.layers.core.setup import rows_of
from neonlike.nervanaobject import get_args


class Source(Layer):
    """The layer before the first one: its outputs are the input of a built layer, which stays as it is.

    Parameters
    ----------
    shape : tuple of int
        Shape of the input, without the batch.
    """

    needs_outputs = True

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_shape = shape


def connected(layers: list[Any], shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """``layers`` configured for inputs of ``shape``, without memory: as a chain (or the only one), and as a list."""
    chain = layers[0] if len(layers) == 1 else Sequential(layers)
    chain.configure(Source(shape))
    return chain, layers


def in_rows(tensor: Any, shape: tuple[int, ...]) -> Any:
    """A tensor as layers see it: ``(features, N)``, of sequences ``(features, steps * N)``; None stays None."""
    return tensor if tensor is None or tensor.ndim == 2 else tensor.viewed(rows_of(shape), -1)


@dataclass(frozen=True)
class Part:
    """A layer of a recipe: its class and arguments, with dictionaries as tuples of their items.

    Parameters
    ----------
    layer : type
        Class of the layer.
    arguments : tuple of (str, object)
        Its arguments by name.
    """

    layer: Any
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, layer: Any, **arguments: Any) -> Part:
        """The part that makes ``layer(**arguments)``."""
        frozen = {name: tuple(one.items()) if isinstance(one, dict) else one for name, one in arguments.items()}
        return cls(layer, tuple(frozen.items()))

    def make(self) -> Any:
        """A new layer, not configured."""
        return self.layer(**{name: dict(one) if isinstance(one, tuple) else one for name, one in self.arguments})


class WrappedLayer(BuiltLayer):
    """Layers of :mod:`neonlike.layers` and the activation behind them, in the memory that the blueprint promises.

    Attributes
    ----------
    layers : list of Layer
        The layers that compute.
    """

    _diff_z: Any = None

    def _allocate(self) -> None:
        self._chain, self.layers = self.blueprint.connected()
        last = self.layers[-1]
        self._act = last if isinstance(last, ActivationLayer) else None
        self._linear = self.layers[: -1 if self._act else None]
        self._place_outputs()
        if self.train:
            self._place_errors()
        for layer in self.layers:
            if layer.has_params:
                layer.takes_gradients = self.train
            layer.allocate()
        if entries := self.get_params():
            (self.weights, self.diff_weights), (self.bias, self.diff_bias) = (pair for pair, _ in entries)

    def _place_outputs(self) -> None:
        """Give the layers the input and their outputs: in inference an activation's input lies in the workspace."""
        bp, dst = self.blueprint, self.blueprint.dst_desc
        *before, last = [layer for layer in self.layers if layer.owns_output]
        self._x, last.outputs = in_rows(self.input, bp.in_shape), in_rows(self.output, dst.shape[:-1])
        for layer in before:
            layer.outputs = in_rows(self._new(dst) if self.train else self.workspace.tensor(dst), dst.shape[:-1])

    def _place_errors(self) -> None:
        """Give the layers the gradients that they write; the activation's is ``diff_z``."""
        bp, dst = self.blueprint, self.blueprint.dst_desc
        self._diff_z = self.diff_output
        if self._act:
            self._diff_z = self._new(dst) if self._linear else self.diff_input
            self._act.deltas, self._act.left_to_cost = in_rows(self._diff_z, dst.shape[:-1]), False
        if self._linear:
            self._linear[0].deltas = in_rows(self.diff_input, bp.in_shape)
            self._scales_inside = "dW_beta" in get_args(self._linear[0].bprop)
        self._error, self._error_z = (in_rows(one, dst.shape[:-1]) for one in (self.diff_output, self._diff_z))

    def get_params(self) -> list[Any]:
        """``[((weights, diff_weights), states), ((bias, diff_bias), states)]``; empty without parameters."""
        found = [layer.get_params() for layer in self.layers if layer.has_params]
        return found[0] if found and isinstance(found[0], list) else found

    @property
    def diff_z(self) -> Any:
        """The gradient with respect to what the activation is applied to."""
        return self._diff_z

    def leave_to_cost(self, left: bool) -> None:
        """See :class:`BuiltLayer`."""
        if self._act:
            self._act.left_to_cost = left

    def _forward(self, inference: bool) -> None:
        self._chain.fprop(self._x, inference)

    def _backward(self) -> None:
        """Compute all gradients as the chain does, whose passes are repeated."""
        self._chain.bprop(self._error)

    def _backward_activation(self) -> None:
        if self._act:
            self._act.bprop(self._error)

    def _backward_diff(self, scales: Scales) -> None:
        if not self._linear:
            return
        first, *behind = self._linear
        error = self._error_z
        for layer in reversed(behind):
            error = layer.bprop(error)
        if self.weights is None or scales.are_plain:
            first.bprop(error)
        elif self._scales_inside:
            first.bprop(error, dW_alpha=scales.dw, dW_beta=scales.g)
        else:
            old = self.be.array(self.diff_weights, dtype=self.diff_weights.dtype) if scales.g else None
            first.bprop(error)
            scales.apply(self.diff_weights, old)
        if self.bias is not None:
            scales.move(self.bias, self.diff_bias)


@dataclass(frozen=True)
class Wrapped(Blueprint):
    """A blueprint of layers of :mod:`neonlike.layers`, the first with the weights, and of an activation behind them.

    Attributes
    ----------
    in_shape : tuple of int
        The input without the batch, as the layers take it.
    recipe : tuple of Part
        The layers.
    weights_desc, bias_desc : TensorDesc or None
        The parameters.
    geometry : ConvGeometry, PoolGeometry or None
        The sizes of a convolution or pooling, as its kernels know them; None for other layers.
    activation : Activation
        The activation behind the layers.
    """

    in_shape: tuple[int, ...]
    recipe: tuple[Part, ...]
    activation: Activation = IDENTITY
    weights_desc: TensorDesc | None = None
    bias_desc: TensorDesc | None = None
    geometry: Any = field(default=None, compare=False, repr=False)

    layer_class = WrappedLayer

    def connected(self) -> tuple[Any, list[Any]]:
        """New layers that know their shapes, see :func:`connected`."""
        with named(self.kind), working(self.be, self.src_desc):
            layers = [part.make() for part in self.recipe]
            return connected(layers + self.activation.layers(), self.in_shape)

    @property
    def activation_name(self) -> str:  # type: ignore[override]
        """The name of the activation."""
        return self.activation.name

    @property
    def inf_workspace_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the activation's input, where it must not be overwritten; training keeps that."""
        return room(self.dst_desc) if self.activation.keeps_inputs and self.recipe else 0

    @property
    def kernel_bytes(self) -> int:  # type: ignore[override]
        """See :class:`Blueprint`."""
        if self.geometry is None:
            return 0
        operations = ("fprop", "bprop", "update") if self.weights_desc else ("fprop", "bprop")
        return max(self.be.workspace_bytes(self.geometry, one) for one in operations)

    def __str__(self) -> str:
        return super().__str__() + ("" if self.activation.is_identity else f", {self.activation}")


class BatchNormLayer(WrappedLayer):
    """A built batch normalization.

    Attributes
    ----------
    weights, bias : Tensor (features, 1)
        Scale, which starts at 1, and shift, at 0.
    running_mean, running_variance : Tensor (features, 1)
        Averages over batches, by which inference normalizes.
    """

    running_mean = property(lambda self: self.layers[0].gmean)
    running_variance = property(lambda self: self.layers[0].gvar)

    def get_params(self) -> list[Any]:
        """As of all layers: the scale before the shift."""
        return super().get_params()[::-1]

    def _backward(self) -> None:
        """Compute all gradients one by one: a chain leaves the derivative of a rectifier to the normalization.

        ``diff_z`` would not be written.
        """
        BuiltLayer._backward(self)


class BatchNorm(Wrapped):
    """A blueprint of batch normalization; ``init`` of a network leaves its parameters as they are."""

    layer_class = BatchNormLayer
    draws_weights: ClassVar[bool] = False
