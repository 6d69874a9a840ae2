"""Costs of a network's output: cross-entropy, mean absolute and quadratic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.backends.descriptors import TensorDesc
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.blueprint.base import Blueprint, working
from neonlike.layers.blueprint.built import BuiltLayer
from neonlike.layers.blueprint.description import fitting, listed
from neonlike.layers.blueprint.wrapped import in_rows
from neonlike.layers.core.cost import GeneralizedCost
from neonlike.transforms import CrossEntropyBinary, CrossEntropyMulti, Logistic, MeanAbsolute, MeanSquared, Softmax

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

COSTS: dict[str, Any] = {"mean_absolute": MeanAbsolute, "quadratic": MeanSquared}
ENTROPIES = {
    "softmax": (CrossEntropyMulti, Softmax()),
    "logistic": (CrossEntropyBinary, Logistic(shortcut=True)),
}
"""Activation of the last layer -> its cross-entropy, and the activation whose derivative the gradient contains."""


@dataclass(frozen=True)
class CostBlueprint:
    """A blueprint of a cost of outputs (features, N), or of sequences (features, steps, N) at each step.

    Attributes
    ----------
    name : str
        "crossentropy", "mean_absolute" or "quadratic".
    src_desc : TensorDesc
        The outputs, and the targets.
    activation : str or None
        The last layer's, which cross-entropy depends on.
    be : Backend
        The backend of the cost.
    layer : BuiltLayer or None
        The last layer, if it was built.
    targets : Tensor or None
        Memory for the targets, if it was given.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.blueprint.cost import CostBlueprint
    >>> be = gen_backend("cpu", batch_size=2)
    >>> make = be.blueprints
    >>> blueprint = make.cost("quadratic", make.inner_product((4, 2), 1))
    >>> isinstance(blueprint, CostBlueprint), blueprint.name, blueprint.src_desc.shape
    (True, 'quadratic', (1, 2))
    """

    be: Backend = field(compare=False, repr=False)
    name: str
    src_desc: TensorDesc
    activation: str | None
    layer: Any = field(compare=False, repr=False, default=None)
    targets: Any = field(compare=False, repr=False, default=None)

    def build(self, layer: Any = None, targets: Any = None) -> CostLayer:
        """The cost of a layer that was built for training.

        Parameters
        ----------
        layer : layer, optional
            The last layer; by default the one that the blueprint was made for.
        targets : Tensor, optional
            By default the tensor that the blueprint was made with, or a new one.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If there is no such layer, or it or the targets do not fit.
        """
        return CostLayer(self, self.layer if layer is None else layer, self.targets if targets is None else targets)

    def __str__(self) -> str:
        return f"{self.name} cost: {self.src_desc.shape}"


def cost_blueprint(be: Backend, kind: Any, last_layer: Any, targets: Any) -> CostBlueprint:
    """See ``Blueprints.cost``.

    Parameters
    ----------
    be : Backend
        The backend.
    kind, last_layer, targets
        As of :meth:`~neonlike.layers.blueprint.Blueprints.cost`.
    """
    name = "crossentropy" if kind == "cross_entropy" else kind
    if name not in ("crossentropy", *COSTS):
        raise ArgumentError(f"cost: there is no cost {brief(kind)}, only crossentropy, {', '.join(COSTS)}")
    layer = last_layer if isinstance(last_layer, BuiltLayer) else None
    blueprint = layer.blueprint if layer is not None else last_layer
    if not isinstance(blueprint, Blueprint):
        raise DTypeError(f"cost: the last layer must be a layer or its blueprint, got {shown(last_layer)}")
    desc, activation = blueprint.train_desc, blueprint.activation_name
    if isinstance(desc, tuple):
        raise ShapeError(f"cost: takes one output, {blueprint} has {len(desc)}")
    if name == "crossentropy" and str(activation).lower() not in ENTROPIES:
        raise ArgumentError(
            "cost: cross-entropy needs probabilities, which softmax and logistic give; the last layer is "
            f"{blueprint}"
        )
    given = targets.train_desc if isinstance(targets, Blueprint) else targets
    if given is not None:
        TensorDesc.of(given)  # says what is wrong with it
        if tuple(given.shape) != desc.shape or given.dtype != desc.dtype:
            raise ShapeError(
                f"cost: the targets {tuple(given.shape)} of {given.dtype} are not of the shape of the outputs of "
                f"{blueprint}, {listed(desc)}"
            )
    return CostBlueprint(be, name, desc, activation, layer, given if isinstance(given, Tensor) else None)


class CostLayer:
    """The mean of a cost over the samples of a batch (of sequences: and steps), and its gradient.

    Parameters
    ----------
    blueprint : CostBlueprint
        The cost's blueprint.
    layer : BuiltLayer
        The last layer, built for training.
    targets : Tensor, optional
        Memory for the targets; new by default.

    Attributes
    ----------
    targets : Tensor
        Of the shape of the outputs; ``cost.targets[:] = t``.
    layer
        The last layer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.blueprint.cost import CostLayer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = be.blueprints.inner_product((4, 2), 1).build()  # its weights are 0
    >>> cost = be.blueprints.cost("quadratic", layer).build()
    >>> cost.targets[:] = 1
    >>> output = layer.forward()
    >>> isinstance(cost, CostLayer), cost(), cost.backward().tolist()
    (True, 0.5, [[-1.0, -1.0]])
    """

    def __init__(self, blueprint: CostBlueprint, layer: Any, targets: Any) -> None:
        if not isinstance(layer, BuiltLayer) or not layer.train:
            raise ArgumentError(f"{blueprint}: needs the last layer, built for training; got {shown(layer)}")
        if layer.blueprint.train_desc != blueprint.src_desc or layer.blueprint.activation_name != blueprint.activation:
            raise ShapeError(f"{blueprint}: was made for another layer than {layer.blueprint}")
        self.blueprint, self.layer, self.be = blueprint, layer, blueprint.be
        desc = blueprint.src_desc
        self.targets = self.be.tensor(desc) if targets is None else fitting(str(blueprint), desc, targets)
        self._y, self._t, error = (
            in_rows(one, desc.shape[:-1]) for one in (layer.output, self.targets, layer.diff_output)
        )
        self._is_entropy = blueprint.name == "crossentropy"
        function, activation = (
            ENTROPIES[str(blueprint.activation).lower()] if self._is_entropy else (COSTS[blueprint.name], None)
        )
        with working(self.be, desc):
            self._cost = GeneralizedCost(function())
            self._cost.outputs, self._cost.deltas = self.be.empty((1, self._y.shape[1])), error
            self._cost.activation = activation

    def __call__(self) -> float:
        """The cost of the last layer's present output."""
        with working(self.be, self.blueprint.src_desc):
            return float(self._cost.get_cost(self._y, self._t)[0, 0])

    def backward(self) -> Any:
        """Write the gradient of the sum of the cost over the samples into the layer's ``diff_output``; returns that.

        That of cross-entropy is the one by ``diff_z``: the layer's backward passes leave out its activation from now
        on, until another cost has written there.
        """
        self.layer.leave_to_cost(self._is_entropy)
        with working(self.be, self.blueprint.src_desc):
            self._cost.get_errors(self._y, self._t)
        return self.layer.diff_output
