"""Steps of optimizers on variables of a dynamic graph."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from neonlike.autograd import ops
from neonlike.autograd.blocks import grad
from neonlike.autograd.dynamic.tensor_variable import Storage, TensorVariable, check_reached
from neonlike.autograd.variable import Variable
from neonlike.checks import require_method
from neonlike.errors import ArgumentError, GradientError, ShapeError

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class OptimizerLike(Protocol):
    """An optimizer, as graphs call it. :class:`neonlike.optimizers.Optimizer` implements it."""

    def optimize(self, layer_list: Any, epoch: int, /) -> Any:
        """Update the parameters of layers in place.

        Parameters
        ----------
        layer_list : list
            Objects with ``get_params()``.
        epoch : int
            Number of the epoch, from 0.
        """
        ...


class _Layer:
    """Layer for an optimizer, which holds the parameters of a graph."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters

    def get_params(self) -> list[Any]:
        """[((parameter, gradient), states), ...]."""
        return self.parameters


class Minimiser:
    """Gradient buffers and optimizer states of the parameters of a graph, by the storage that they belong to."""

    def __init__(self, be: Backend) -> None:
        self.be = be
        self._buffers: weakref.WeakKeyDictionary[Storage, Any] = weakref.WeakKeyDictionary()
        self._states: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[Storage, list[Any]]]
        self._states = weakref.WeakKeyDictionary()

    def forget(self) -> None:
        """Drop them all."""
        self._buffers.clear()
        self._states.clear()

    def gradients(
        self, losses: list[TensorVariable], parameters: list[TensorVariable], weights: list[TensorVariable] | None
    ) -> list[Variable]:
        """The gradients of the sum of the losses, computed.

        Parameters
        ----------
        losses, parameters : list of TensorVariable
        weights : list of TensorVariable, optional
            One for each loss, of its shape.

        Raises
        ------
        GradientError
            If a parameter is none, or the losses do not depend on it.
        """
        if not losses or not parameters:
            raise ArgumentError(f"minimize: needs losses and parameters, got {len(losses)} and {len(parameters)}")
        if weights is not None and len(weights) != len(losses):
            raise ArgumentError(f"minimize: {len(losses)} losses need as many dlosses, got {len(weights)}")
        if len({id(one) for one in parameters}) != len(parameters):
            raise ArgumentError("minimize: the same variable stands twice among the parameters")
        for one in parameters:
            if one.is_constant or one.window is not None or not one.node("minimize").is_parameter:
                raise GradientError(
                    f"minimize: {one} is no parameter: those are variables of floats that no command computed; a "
                    "constant, an alias or a result cannot be updated"
                )
        total: Any = None
        for place, loss in enumerate(losses):
            value: Any = loss.node("minimize")
            if weights is not None:
                weight = weights[place].node("minimize")
                if weight.shape != value.shape:
                    raise ShapeError(f"minimize: {weights[place]} needs the shape of {loss}, {value.shape}")
                value = value * weight
            added = ops.sum(value)
            total = added if total is None else total + added
        check_reached("minimize: the loss", total, parameters)
        return grad(total, [one.node("minimize") for one in parameters])

    def step(
        self,
        optimizer: OptimizerLike,
        parameters: list[TensorVariable],
        gradients: list[Variable],
        saved_aux: list[list[Any]] | None,
        epoch: int,
    ) -> None:
        """Update the tensors of ``parameters``.

        Parameters
        ----------
        optimizer : Optimizer
        parameters : list of TensorVariable
        gradients : list of Variable
            One for each parameter.
        saved_aux : list of list of Tensor, optional
            The optimizer's states; None: those of this object.
        epoch : int
            For the optimizer's schedule.
        """
        require_method("minimize", "the optimizer", optimizer, "optimize", "GradientDescentMomentum(0.1, 0.9)")
        if saved_aux is not None and (
            len(saved_aux) != len(parameters) or not all(isinstance(states, list) for states in saved_aux)
        ):
            raise ArgumentError(f"minimize: saved_aux must be a list of {len(parameters)} lists, one a parameter")
        own = self._states.setdefault(optimizer, weakref.WeakKeyDictionary())
        entries = []
        for place, (one, gradient) in enumerate(zip(parameters, gradients)):
            storage = one.storage("minimize")
            buffer = self._buffers.get(storage)
            if buffer is None or buffer.shape != storage.memory.shape or buffer.dtype != storage.memory.dtype:
                buffer = self._buffers[storage] = self.be.empty_like(storage.memory)
            buffer[:] = gradient.value
            states = own.setdefault(storage, []) if saved_aux is None else saved_aux[place]
            entries.append(((storage.memory, buffer), states))
        samples, self.be.bsz = self.be.bsz, 1  # optimizers divide by it
        try:
            optimizer.optimize([_Layer(entries)], epoch)
        finally:
            self.be.bsz = samples
