"""Layers and costs called on variables of :mod:`neonlike.autograd`; the results are variables.

:mod:`.calls` keeps the state of calls for their backward passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.autograd import ops
from neonlike.autograd.leaves import const
from neonlike.autograd.parameters import SharedParameter
from neonlike.autograd.variable import Variable, made
from neonlike.backends.primitives.lazy.requests import no_second
from neonlike.errors import DTypeError, GradientError, ShapeError
from neonlike.layers.core.calls import (
    Call,
    LayerGradient,
    calls_of,
    copied,
    joined,
    parameters_of,
    places,
    works_in_place,
)
from neonlike.layers.core.setup import as_buffer, axes_of, set_up
from neonlike.optree import tape
from neonlike.optree.calls import call, call_spec, part
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import OpTreeNode
from neonlike.transforms import CrossEntropyBinary, CrossEntropyMulti
from neonlike.transforms.transform import Cost

if TYPE_CHECKING:
    from neonlike.layers.core.protocol import CalledLayer
    from neonlike.transforms.transform import Transform

F: Any = Functions
_GRADIENT = call_spec("layer_gradient", no_second("a layer"))


class OnVariables:
    """A mixin that makes layers callable on variables."""

    def __call__(self: CalledLayer, inputs: Any, inference: bool = False) -> Any:
        """Forward pass on variables; ``backprop`` from the result runs the backward pass.

        A layer that is not set up is configured for the shape of the input and allocated for batches of ``be.bsz``.
        ``backprop`` through the call is derived each time: it is never repeated.

        Parameters
        ----------
        inputs : Variable, tensor or array; or a list of them, for a container of several inputs
            As for ``fprop``, (features, N) or (features, steps * N); or with all axes, (C, H, W, N) or
            (features, steps, N), which gives a result with all axes.
        inference : bool
            Whether this is inference, not training; the result is then a constant.

        Returns
        -------
        Variable, or a list of them
            Tensors in separate memory: the next call does not overwrite them.

        Raises
        ------
        ShapeError
            If the input does not fit.
        """
        return on_variables(self, inputs, inference)

    def parameters(self: CalledLayer) -> list[SharedParameter]:
        """The trained weights as variables; their derivatives are the layers' gradients.

        Raises
        ------
        ArgumentError
            If they do not exist yet: before ``allocate``, ``model.initialize`` or the first call.
        """
        return parameters_of(self)


class ListOnVariables:
    """A mixin that makes lists of layers, such as Affine, callable on variables as a chain."""

    sequential: ClassVar[Any] = None
    """The class of chains, from a module above, which registers itself here."""
    _chain: Any = None

    def _network(self) -> Any:
        layers: Any = self
        if self._chain is None or self._chain[0] != list(layers):
            self._chain = list(layers), self.sequential(layers)
        return self._chain[1]

    def __call__(self, inputs: Any, inference: bool = False) -> Any:
        """See ``Layer.__call__``."""
        return self._network()(inputs, inference)

    def parameters(self) -> list[SharedParameter]:
        """See ``Layer.parameters``."""
        return parameters_of(self._network())


def on_variables(layer: CalledLayer, inputs: Any, inference: bool) -> Any:
    """See :meth:`OnVariables.__call__`.

    Parameters
    ----------
    layer : Layer
        Layer, container or chain.
    inputs : Variable, Tensor, ndarray or list of these
        ``(features, N)``, or with all axes of a sample and the batch last.
    inference : bool
        True outside of training: batches may be partial.

    Returns
    -------
    Variable or list of Variable
        The outputs, in the form of the inputs.
    """
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    be = layer.require_backend("call")
    variables = [x if isinstance(x, Variable) else const(x, backend=be) for x in given]
    with_axes = any(x.ndim > 2 for x in variables)
    _prepare(layer, variables, not inference and any(x.needs_grad for x in variables))
    shapes = layer.in_shape if len(variables) > 1 else [layer.in_shape]
    variables = [as_buffer(layer, x, shape) for x, shape in zip(variables, shapes)]
    tensors = [x.value for x in variables]
    if inference:
        results = _inferred(layer, tensors)
    else:
        results = _trained(layer, variables, tensors)
    if with_axes:
        out = layer.out_shape if isinstance(layer.out_shape, list) else [layer.out_shape]
        results = [ops.reshape(y, *axes_of(shape, y.shape[1])) for y, shape in zip(results, out)]
    return results if len(results) > 1 else results[0]


def _prepare(layer: CalledLayer, variables: list[Variable], passes_error: bool) -> None:
    calls = calls_of(layer)
    if not calls.ready or (passes_error and not calls.passes_error):
        set_up(layer, variables, passes_error)
        calls.ready, calls.passes_error = True, passes_error or calls.passes_error


def _inferred(layer: CalledLayer, tensors: list[Any]) -> list[Variable]:
    calls = calls_of(layer)
    calls.make_room(layer)
    calls.owner = None
    calls.inputs = inputs = [copied(x) if works_in_place(layer) else x for x in tensors]
    given = layer.fprop(inputs if len(inputs) > 1 else inputs[0], True)
    return [const(copied(y)) for y in (given if isinstance(given, list) else [given])]


def _trained(layer: CalledLayer, variables: list[Variable], tensors: list[Any]) -> list[Variable]:
    """The results of a training forward pass as variables."""
    parameters = parameters_of(layer)
    if len(variables) > 1 and any(x.needs_grad for x in variables):
        raise GradientError(f"{layer.name}: hands no errors on to several inputs; pass their values, x.detach()")
    parents = (*(x for x in variables if x.needs_grad), *parameters)
    done = Call(layer, tensors, parameters)
    outputs = done.outputs
    if not parents:
        return [const(y) for y in outputs]
    shapes = [y.shape for y in outputs]
    value = outputs[0] if len(outputs) == 1 else joined(outputs)
    wanted = variables[0].needs_grad
    results = tuple((parent.shape, parent.dtype) for parent in parents)

    def gradient(F: Any, d: Any, z: Any, *operands: Any) -> tuple[Any, ...]:
        node = call(_GRADIENT, LayerGradient(done, shapes, results, value.dtype, wanted), (d, *operands))
        return tuple(part(node, position) for position in range(len(results)))

    rule = tape.Rule(layer.name, tuple(parent._expr for parent in parents), gradient, heavy=True)
    whole = _computed(layer.name, tape.ruled(value, rule), value, parents)
    last = layer.get_terminal()
    if len(outputs) == 1:
        return [_with_true_derivative(last, whole, value)]
    parts = [ops.index(whole, (slice(None), slice(*ends))) for ends in places(shapes)]
    found = [ops.reshape(one, *shape) for one, shape in zip(parts, shapes)]
    return [_with_true_derivative(*one) for one in zip(last, found, outputs)]


def _computed(name: str, node: OpTreeNode, tensor: Any, parents: tuple[Any, ...]) -> Variable:
    """A variable with a value already computed, kept for the backward pass."""
    tape.keep(node, [tensor], "computed when the layer was called", True)
    variable = made(name, node, parents)
    variable._tensor = tensor
    return variable


# Activations with a derivative left to the cost -----------------------------------------------------------------------

LEFT_TO_COST = "an activation whose derivative is the cost's"


def _with_true_derivative(last: Any, y: Variable, value: Any) -> Variable:
    """Give ``y``, the output of the layer ``last``, the true derivative that a softmax or logistic shortcut omits.

    The variable before the activation has the same value, and serves costs with gradients that include the derivative.
    """
    transform: Any = getattr(last, "transform", None)
    if not getattr(transform, "left_to_cost", False):
        return y
    node = tape.ruled(y._expr, tape.Rule(LEFT_TO_COST, (y._expr,), Through(transform)))
    return _computed(str(y.op), node, value, (y,))


class Through:
    """The gradient rule of an activation with a derivative left to the cost.

    Parameters
    ----------
    activation : Transform
        Transform that leaves its derivative to the cost.
    """

    def __init__(self, activation: Transform) -> None:
        self.activation = activation

    def __call__(self, F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
        return (self.activation.through(z, d),)


def _before_cost(y: Variable) -> tuple[Variable | None, Any]:
    """The variable before the activation of ``y``, and the activation, if its derivative is left to the cost."""
    rule = tape.rule_of(y._expr) if isinstance(y._expr, OpTreeNode) else None
    if rule is None or not isinstance(rule.grad, Through):
        return None, None
    return y.parents[0], rule.grad.activation


def cost_of(cost: Any, y: Any, targets: Any) -> Variable:
    """Sum a cost over the columns of ``y``; see ``GeneralizedCost.__call__``.

    Parameters
    ----------
    cost : GeneralizedCost
        The cost layer.
    y : Variable
        Outputs of a network, ``(features, columns)``.
    targets : Variable, Tensor or ndarray
        Targets of that shape; a pair with the mask for a masked cost.

    Returns
    -------
    Variable
        The sum of the cost over the columns, ``(1, 1)``.

    Raises
    ------
    DTypeError
        If ``y`` is no variable.
    ShapeError
        If ``y`` has other than two axes.
    """
    if not isinstance(y, Variable):
        raise DTypeError(f"{cost.name}: is called with variables; for tensors there are get_cost and get_errors")
    if y.ndim != 2:
        raise ShapeError(f"{cost.name}: needs outputs (features, columns), got {y.shape}; reshape them")
    given = [_constant(t, y) for t in targets] if isinstance(targets, list | tuple) else _constant(targets, y)
    value = F.sum(cost.of_columns(y._expr, given))
    function, (below, activation) = cost.costfunc, _before_cost(y)
    paired = below is not None and isinstance(function, Cost) and function.fits(activation)
    if isinstance(function, CrossEntropyBinary | CrossEntropyMulti) and not paired:
        rule = tape.Rule("scale", (value,), lambda F, d, z, x: (d * function.scale,))
        return made(cost.name, value if function.scale == 1 else tape.ruled(value, rule), (y,))
    source = below if paired and below is not None else y

    def gradient(F: Any, d: Any, z: Any, x: Any) -> tuple[Any, ...]:
        slope = cost.slope(x, given) if cost.as_written else cost.slope_by(activation if paired else None, x, given)
        return (slope * d,)

    return made(cost.name, tape.ruled(value, tape.Rule(cost.name, (source._expr,), gradient)), (y,))


def _constant(targets: Any, y: Variable) -> Any:
    return (targets if isinstance(targets, Variable) else const(targets, backend=y.backend)).value
