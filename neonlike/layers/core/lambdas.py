"""Lambda wraps a function of :mod:`neonlike.autograd` variables as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.autograd import ops
from neonlike.autograd.blocks import grad
from neonlike.autograd.leaves import const, param
from neonlike.autograd.variable import Variable
from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input
from neonlike.layers.core.parameter import StoredLayer
from neonlike.layers.core.setup import axes_of, rows_of
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

RESERVED = ("inference", "type")
"""Name of the optional inference argument, and the key that marks a described object."""

_known: dict[str, Callable[..., Any]] = {}
"""Registered functions by their names in saved models."""


class Lambda(StoredLayer):
    """A differentiable function of variables as a layer: outputs = function(x, w=..., b=...).

    Parameters
    ----------
    function : callable
        ``function(x, **parameters)`` returns a variable computed with :mod:`neonlike.autograd`. ``x`` has all of its
        axes: (features, N), (features, steps, N), (C, H, W, N). The last axis of the result must be the batch, too. An
        argument ``inference``, if the function has one, is True outside of training.
    parameters : dict, optional
        Name -> initial value: an array, a pair (shape, initializer), or a shape alone, for zeros. A shape may be a
        function of the layer's ``in_shape``.
    out_shape : int or tuple, optional
        Shape of the output without the batch. By default the function is traced with zeros when the network is
        configured: nothing is computed, unless the function reads values.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    gradients : dict
        Name -> gradient, summed over the batch. The parameters are attributes with these names.

    Raises
    ------
    ArgumentError
        If a parameter has a name that layers use for something else.

    Notes
    -----
    A saved model names the function by module and name. Building from a file requires that a Lambda or :meth:`register`
    has seen the function before; ``load_params`` of a model built by the program always works.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Lambda
    >>> be = gen_backend("cpu", batch_size=2)
    >>> gate = Lambda(lambda x, w: x * ag.sigmoid(w * x), parameters={"w": np.zeros((3, 1))})
    >>> gate(np.ones((3, 2))).tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """

    def __init__(
        self,
        function: Any,
        parameters: Mapping[str, Any] | None = None,
        out_shape: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.function = _function(self.name, function)
        self._takes_inference = "inference" in inspect.signature(self.function).parameters
        self._given = dict(parameters or {})
        for one in self._given:
            if not isinstance(one, str) or not one.isidentifier() or hasattr(self, one) or one in RESERVED:
                raise ArgumentError(f"{self.name}: {brief(one)} cannot be the name of a parameter; choose another")
        self._check_declared()
        self.has_params = bool(self._given)
        self.declared_shape = out_shape
        self.gradients: dict[str, Any] = {}
        self.states = [[] for _ in self._given]
        self._graph: Any = None
        for one in self._given:
            setattr(self, one, None)

    def _check_declared(self) -> None:
        """Raise ArgumentError unless the function accepts x and the declared parameters."""
        more = {"inference": False} if self._takes_inference else {}
        try:
            inspect.signature(self.function).bind(None, **dict.fromkeys(self._given), **more)
        except TypeError as error:
            raise ArgumentError(
                f"{self.name}: {_spoken(self.function)} cannot be called with x and the parameters "
                f"{list(self._given)}: {error}; declare its arguments behind x: "
                "Lambda(function, parameters={'w': ...})"
            ) from error

    @staticmethod
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator that registers a function for models built from files.

        Parameters
        ----------
        function : callable
            A function at the top level of a module.
        """
        if name := _name_of(function):
            _known[name] = function
        return function

    def __str__(self) -> str:
        return f"Lambda Layer '{self.name}': {self.in_shape} -> {self.out_shape}, {_spoken(self.function)}"

    def notes(self) -> list[str]:
        """The text for this layer in ``model.explain()``."""
        shapes = [f"{one} {'x'.join(map(str, self._shape_of(one)))}" for one in self._given]
        return [f"runs {_spoken(self.function)}" + (f" with {', '.join(shapes)}" if shapes else "")]

    # -- life cycle ----------------------------------------------------------------------------------------

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Determine the output shape by tracing the function, unless it was declared.

        Raises
        ------
        ShapeError
            If the last axis of the result is not the batch.
        """
        super().configure(in_obj)
        found = self._probed() if self.declared_shape is None else self.declared_shape
        self.out_shape = (found, 1) if isinstance(found, int) else tuple(found)
        return self

    def _probed(self) -> tuple[int, ...]:
        be = self.be
        samples = be.bsz or 1
        x = const(be.zeros(axes_of(self.in_shape, samples * interpret_in_shape(self.in_shape)[1])))
        state = be.rng_get_state()
        try:
            y = self._called(x, {one: const(be.zeros(self._shape_of(one))) for one in self._given}, True)
        finally:
            be.rng_set_state(state)
        if y.shape[-1] != samples:
            raise ShapeError(
                f"{self.name}: {_spoken(self.function)} makes {y.shape} of an input {x.shape}; its last axis must be "
                f"the batch, {samples}"
            )
        return (y.shape[0], 1) if y.ndim == 2 else y.shape[:-1]

    def _called(self, x: Variable, parameters: dict[str, Variable], inference: bool) -> Variable:
        more = {"inference": inference} if self._takes_inference else {}
        y = self.function(x, **parameters, **more)
        if not isinstance(y, Variable):
            raise DTypeError(f"{self.name}: {_spoken(self.function)} must return a variable, got {shown(y)}")
        if inference and y.needs_grad:
            raise ArgumentError(
                f"{self.name}: {_spoken(self.function)} uses parameters of autograd that the layer does not know, so "
                "that nothing would train them; declare them: Lambda(function, parameters={...})"
            )
        return y

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the output buffer, and the parameters unless they exist."""
        super().allocate(shared_outputs)
        for one, given in self._given.items():
            shape = self._shape_of(one)
            present = getattr(self, one)
            if present is None:
                setattr(self, one, self._made(shape, given))
            elif tuple(present.shape) != shape:
                raise ShapeError(
                    f"{self.name}: its parameter {one} has shape {tuple(present.shape)}, but {shape} is declared"
                )
            if one not in self.gradients:
                self.gradients[one] = self.be.zeros(shape)
        self.accumulate_updates = accumulate_updates
        if accumulate_updates:
            self.acc_params = [(self.be.empty_like(gradient), gradient) for gradient in self.gradients.values()]

    def _shape_of(self, one: str) -> tuple[int, ...]:
        """The declared shape of a parameter."""
        given = self._given[one]
        if _is_pair(given):
            given = given[0]
        if callable(given):
            given = given(self.in_shape)
        shape = tuple(given.shape) if hasattr(given, "shape") else tuple(given)
        if len(shape) < 2 or not all(isinstance(size, int | np.integer) and size > 0 for size in shape):
            raise ShapeError(f"{self.name}: parameter {one} needs a shape of two sizes at least, got {brief(shape)}")
        return tuple(map(int, shape))

    def _made(self, shape: tuple[int, ...], given: Any) -> Tensor:
        if hasattr(given, "shape"):
            made: Tensor = self.be.array(given.get() if isinstance(given, Tensor) else given, **self.get_param_attrs())
            return made
        made = self.be.zeros(shape, **self.get_param_attrs())
        if _is_pair(given):
            given[1].fill(made)
        return made

    # -- passes --------------------------------------------------------------------------------------------

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """outputs = function(inputs); inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        inputs, outputs = require_input(self, inputs, rows_of(self.in_shape), inference)
        self.inputs = inputs
        x = param(inputs) if self.deltas is not None and not inference else const(inputs)
        shaped = ops.reshape(x, *axes_of(self.in_shape, inputs.shape[1]))
        make = const if inference else param
        parameters = {one: make(getattr(self, one), name=one) for one in self._given}
        y = self._called(shaped, parameters, inference)
        if y.shape != (expected := axes_of(self.out_shape, outputs.shape[1])):
            raise ShapeError(f"{self.name}: {_spoken(self.function)} made {y.shape} of {x.shape}, not {expected}")
        y = ops.reshape(y, *outputs.shape)
        outputs[:] = y.value
        self._graph = None if inference else (y, x, list(parameters.values()))
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · derivative by the inputs + beta · deltas; gradients of the parameters.

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
            If there was no forward pass in training.
        """
        if self._graph is None:
            raise ArgumentError(f"{self.name}.bprop: there is nothing to differentiate; call fprop in training first")
        y, x, parameters = self._graph
        found = grad(y, [*parameters, x], const(error), absent="zeros")
        for gradient, derivative in zip(self.gradients.values(), found):
            gradient[:] = derivative.value
        if self.deltas is not None:
            change = found[-1].value if alpha == 1 else alpha * found[-1].value
            self.deltas[:] = change + beta * self.deltas if beta else change
        return self.deltas

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the graph of the last pass, which holds its inputs, from copies and pickles."""
        return {**self.__dict__, "_graph": None}

    # -- parameters ----------------------------------------------------------------------------------------

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return tuple(self._given)

    def get_params(self) -> Any:
        """``[((parameter, gradient), states), ...]``."""
        return [
            ((getattr(self, one), self.gradients.get(one)), states)
            for one, states in zip(self._given, self.states, strict=True)
        ]

    def set_states(self, pdict: Description) -> None:
        """Load the optimizer states, one list per parameter."""
        super().set_states(pdict)
        self.states += [[] for _ in range(len(self.states), len(self._given))]

    # -- description ---------------------------------------------------------------------------------------

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the layer by the function's name and the parameters' shapes."""
        skip = {*kwargs.pop("skip", ()), "function", "parameters", "out_shape"}
        described = super().get_description(get_weights, keep_states, skip=skip, **kwargs)
        config = described["config"]
        config["function"] = _name_of(self.function) or ""
        if self._given:
            config["parameters"] = {one: list(self._shape_of(one)) for one in self._given}
        if self.out_shape is not None or self.declared_shape is not None:
            config["out_shape"] = self.declared_shape if self.out_shape is None else self.out_shape
        return described


def _function(layer: str, given: Any) -> Callable[..., Any]:
    """Return the function itself, or look up the name in a description."""
    if isinstance(given, str):
        if given not in _known:
            raise ArgumentError(
                f"{layer}: the function {given or 'without a name'} of a saved Lambda is not known here; import what "
                "defines it and give it to Lambda.register, or make the network in the program and call "
                "model.load_params(path)"
            )
        return _known[given]
    if not callable(given) or isinstance(given, type):
        raise DTypeError(f"{layer}: function must be a function of variables, got {shown(given)}")
    Lambda.register(given)
    return given  # type: ignore[no-any-return]


def _name_of(function: Any) -> str | None:
    """The dotted name of a module-level function; None for others, such as lambdas."""
    name = getattr(function, "__qualname__", "<")
    return None if "<" in name else f"{function.__module__}.{name}"


def _spoken(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _is_pair(given: Any) -> bool:
    """Whether ``given`` is a pair (shape, initializer)."""
    return isinstance(given, tuple | list) and len(given) == 2 and hasattr(given[1], "fill")
