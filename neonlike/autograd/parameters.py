"""Parameters as optimizers take them, and parameters whose values and derivatives are tensors of somebody else's."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

from neonlike.autograd import lifetimes
from neonlike.autograd.variable import Variable, leaf_of
from neonlike.errors import GradientError

Entry = tuple[tuple[Any, Any], list[Any]]
"""((value, derivative), states of the optimizer)"""


class SharedParameter(Variable):
    """A parameter of a layer as a variable: its value is the layer's weight, its derivative the layer's gradient.

    Made by ``layer.parameters()``. Derivatives gather in the layer's tensor, so that an optimizer may be given the
    layer, or this.
    """

    __slots__ = ("_entry", "_filled")

    _entry: Entry
    _filled: bool

    @property
    def _derivative(self) -> Any:  # type: ignore[override]
        return self._entry[0][1] if self._filled else None

    @_derivative.setter
    def _derivative(self, gradient: Any) -> None:
        self._entry[0][1][:] = 0 if gradient is None else gradient
        self._filled = gradient is not None

    @_derivative.deleter
    def _derivative(self) -> None:
        self._filled = False

    def assign(self, value: Any) -> Variable:
        """Write new values into the layer's weight; returns self."""
        self._tensor[:] = value.value if isinstance(value, Variable) else value
        return self

    def get_params(self) -> Entry:
        """``((weight, gradient), states)`` of the layer."""
        return self._entry


def shared_parameter(entry: Entry, name: str) -> SharedParameter:
    """A parameter on the tensors of ``entry``; no scope frees it."""
    variable = SharedParameter.__new__(SharedParameter)
    variable._entry, variable._filled = entry, False
    variable._tensor = tensor = entry[0][0]
    variable._expr = leaf_of(tensor)
    variable.op, variable.parents, variable.name = None, (), name
    variable.needs_grad = variable._wanted = True
    variable._spent = False
    lifetimes.register(variable)
    return variable


_states: dict[int, tuple[weakref.ref[Any], Any, list[Any]]] = {}
"""By the id of a parameter that an optimizer was given: a tensor for its derivative, and the optimizer's states."""


def get_params(self: Variable) -> Entry:
    """``((value, derivative), states)``, what optimizers ask for: ``optimizer.optimize([layer, parameter], epoch)``.

    The derivative is copied into a tensor that stays the same from step to step, which a step is prepared for.

    Raises
    ------
    GradientError
        If this is no parameter.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> w = autograd.param([[3.0]])
    >>> (value, derivative), states = w.get_params()
    >>> value.item(), derivative.item(), states
    (3.0, 0.0, [])
    """
    if not self.is_parameter:
        raise GradientError(f"{self!r} is no parameter, which an optimizer could update; make one with autograd.param")
    found = _states.get(id(self))
    if found is None or found[1].shape != self.shape or found[1].dtype != self.dtype:
        alive = weakref.ref(self, partial(_states.pop, id(self)))
        found = _states[id(self)] = alive, self.backend.empty_like(self.value), []
    _, gradient, states = found
    gradient[:] = 0 if self._derivative is None else self._derivative
    return (self.value, gradient), states


def store_gradients(layers: Iterable[Any]) -> None:
    """Copy the gradients that an optimizer changed to the variables among ``layers``, which had given it copies."""
    for one in layers:
        if isinstance(one, Variable) and (found := _states.get(id(one))) is not None:
            one.partial_derivative[:] = found[1]

