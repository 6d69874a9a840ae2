"""Inner products and fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.layers.blueprint.activations import Activation, ActivationPart
from neonlike.layers.blueprint.base import Blueprint, room
from neonlike.layers.blueprint.built import WeightedLayer, flat
from neonlike.layers.blueprint.description import SEQUENCE, features


@dataclass(frozen=True)
class WithActivation(Blueprint):
    """Base of blueprints whose last step is an activation.

    Attributes
    ----------
    activation : Activation
    """

    dst: TensorDesc
    activation: Activation

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output."""
        return self.dst

    @property
    def activation_name(self) -> str:
        """Its name."""
        return self.activation.name

    @property
    def act_rows(self) -> int | None:
        """Rows of the matrix that the activation sees; None: those of ``(features, N)``. A sequence is seen by step."""
        return self.dst.shape[0] if self.dst.layout == SEQUENCE else None

    @property
    def inf_workspace_bytes(self) -> int:  # type: ignore[override]
        """The bytes of the activation's input, where it must not be overwritten; training keeps that."""
        return room(self.dst) if self.activation.keeps_inputs else 0

    def __str__(self) -> str:
        shown = "" if self.activation.is_identity else f", {self.activation}"
        return f"{super().__str__()}{shown}"


class ActivatedLayer(WeightedLayer):
    """Base of their layers: z, then y = f(z)."""

    _diff_z: Any = None

    def _allocate_activation(self) -> None:
        """Make ``self.z``, ``self.act`` and the gradients between them."""
        activation, desc = self.blueprint.activation, self.blueprint.dst
        self.z = self.output
        if activation.keeps_inputs:
            self.z = self._new(desc) if self.train else self.workspace.tensor(desc)
        self._diff_z = self.diff_output
        if self.train and not activation.is_identity:
            self._diff_z = self._new(desc)
        views: dict[int, Any] = {}  # the same view of the same tensor: the part compares them
        buffers = [self.z, self.output, self.diff_output, self._diff_z]
        for one in buffers:
            if one is not None:
                views.setdefault(id(one), flat(one, self.blueprint.act_rows))
        self.act = ActivationPart(self.be, activation, *(views.get(id(one)) for one in buffers))

    @property
    def diff_z(self) -> Any:
        """The gradient with respect to what the activation is applied to."""
        return self._diff_z

    def _backward_activation(self) -> None:
        self.act.backward()

    def leave_to_cost(self, left: bool) -> None:
        """See :class:`BuiltLayer`."""
        self.act.leave_to_cost(left)


@dataclass(frozen=True)
class InnerProduct(WithActivation):
    """W · x + b of each sample, and with an activation a fully connected layer.

    Attributes
    ----------
    weights_desc, bias_desc : TensorDesc
        ``(outputs, inputs)`` and ``(outputs, 1)``.
    """

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The name that messages call it by."""
        return "inner_product" if self.activation.is_identity else "fully_connected"

    @property
    def weights_desc(self) -> TensorDesc:
        """The weight."""
        return TensorDesc((features(self.dst), features(self.src_desc)), self.src_desc.dtype, "OI")

    @property
    def bias_desc(self) -> TensorDesc:
        """The bias."""
        return TensorDesc((features(self.dst), 1), self.src_desc.dtype, "OX")

    def layer_class(self) -> Any:
        """The class of the layers."""
        return InnerProductLayer


class InnerProductLayer(ActivatedLayer):
    """y = f(W · x + b)."""

    def _allocate(self) -> None:
        self._make_parameters(self.blueprint.weights_desc.shape, self.blueprint.bias_desc.shape)
        self._allocate_activation()
        self._x, self._z = flat(self.input), flat(self.z)
        self._W_T, self._x_T = self.weights.T, self._x.T
        self._dz = None if self._diff_z is None else flat(self._diff_z)
        self._dx = None if self.diff_input is None else flat(self.diff_input)

    def _forward(self, inference: bool) -> None:
        self.be.compound_dot(self.weights, self._x, self._z)
        self.act.forward(self.bias)

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        be = self.be
        be.compound_dot(self._dz, self._x_T, self.diff_weights, alpha=scale_dw, beta=scale_g)
        if self._dx is not None:
            be.compound_dot(self._W_T, self._dz, self._dx)
        be.sum(self._dz, axis=1, out=self.diff_bias)
        self._blend_bias(scale_db, scale_b)
