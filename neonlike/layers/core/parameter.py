"""Layers with parameters: creation, initialization, gradients, saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, NotDefined, ShapeError
from neonlike.initializers import Initializer
from neonlike.layers.core.base import Layer
from neonlike.nervanaobject import Description
from neonlike.optimizers.masters import masters_of, restore_masters
from neonlike.optimizers.states import restore_steps, steps_of
from neonlike.optree.dtypes import compute_dtype

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.initializers.initializer import Fills, Init

__public_module__ = "neonlike.layers.layer"


class StoredLayer(Layer):
    """Base of layers with parameters, with their saving and loading.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    states : list
        Optimizer states of the parameters.
    acc_params : list of (Tensor, Tensor)
        Pairs (saved gradient, gradient) for accumulation.
    takes_gradients : bool
        Whether ``allocate`` takes memory for gradients of the parameters; set to False for a layer that never trains.
    """

    takes_gradients = True

    def __init__(self, name: str | None = None, parallelism: str = "Unknown") -> None:
        super().__init__(name, parallelism)
        self.has_params = True
        self.owns_delta = True
        self.states: list[Any] = []
        self.acc_params: list[tuple[Any, Any]] = []

    def gradient_of(self, parameter: Tensor) -> Any:
        """A new tensor of zeros for the gradient of ``parameter``; None if the layer takes no gradients.

        Parameters
        ----------
        parameter : Tensor
            A parameter of the layer.
        """
        return self.be.zeros_like(parameter) if self.takes_gradients else None

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        raise NotDefined(f"{self.classnm} does not define parameter_names")

    def loaded_names(self) -> tuple[str, ...]:
        """Attributes that a file may set: those that are saved, and what this layer has not but may have."""
        return self.parameter_names()

    def present_form(self, pdict: Any) -> Description:
        """Convert a description to today's form; layers with older formats of neon override this."""
        if not isinstance(pdict, dict):
            raise ArgumentError(f"{self.name}: expected the description of a layer, a dictionary, got {shown(pdict)}")
        return pdict

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the layer, with ``params`` and optimizer ``states`` on the host if asked for.

        Returns
        -------
        dict
            ``{"type", "config"[, "params": {name: ndarray}][, "states": list][, "steps": int or list of int]
            [, "masters": bool or list of bool]}``.
        """
        described = super().get_description(**kwargs)
        if isinstance(init := described["config"].get("init"), Tensor):
            described["config"]["init"] = init.get()
        if get_weights:
            values = {name: getattr(self, name) for name in self.parameter_names()}
            described["params"] = {name: value.get() for name, value in values.items() if value is not None}
            if keep_states:
                described["states"] = _to_host(self.states)
                for key, found in (("steps", steps_of(self.states)), ("masters", masters_of(self.states))):
                    if any(found) if isinstance(found, list) else found:
                        described[key] = found
        return described

    def check_weights(self, pdict: Description) -> None:
        """Raise if a saved parameter is unknown, not numeric, or of another shape than the layer's."""
        pdict = self.present_form(pdict)
        params = pdict.get("params", {})
        if not isinstance(params, dict):
            raise ArgumentError(f"{self.name}: saved params must be a dictionary, got {shown(params)}")
        for name, value in params.items():
            if name not in self.loaded_names():
                raise ArgumentError(
                    f"{self.name}: saved parameter {name!r} is none of this layer's, {list(self.loaded_names())}; "
                    "the file belongs to another network"
                )
            _check_numbers(self.name, f"parameter {name!r}", value)
            present = getattr(self, name, None)
            if isinstance(present, Tensor) and tuple(present.shape) != np.shape(value):
                raise ShapeError(
                    f"{self.name}: saved parameter {name!r} has shape {np.shape(value)}, the layer's has "
                    f"{tuple(present.shape)}; the file belongs to another network"
                )
        self._check_states(pdict.get("states", []))
        entries = pdict.get("states") or [[]]
        if "steps" in pdict and not _are_of(pdict["steps"], entries, _is_count):
            steps = brief(pdict["steps"])
            raise ArgumentError(f"{self.name}: steps={steps} is no number of steps; the file is damaged")
        if "masters" in pdict and not _are_of(pdict["masters"], entries, _is_flag):
            raise ArgumentError(
                f"{self.name}: masters={brief(pdict['masters'])} does not say whether parameters have master weights; "
                "the file is damaged"
            )

    def _check_states(self, states: Any) -> None:
        """Raise unless ``states`` are numeric arrays, or one list of them per parameter."""
        entries = _as_list(self.name, states)
        unknown = not self.states and getattr(type(self), "get_params", None) is not ParameterLayer.get_params
        several = any(isinstance(entry, list) for entry in (entries if unknown else self.states))
        for entry in entries:
            for state in _as_list(self.name, entry) if several else [entry]:
                _check_numbers(self.name, "optimizer state", state)

    def load_weights(self, pdict: Description, load_states: bool = True) -> None:
        """Restore the parameters, and if wanted the optimizer states, as far as they were saved."""
        pdict = self.present_form(pdict)
        if "params" in pdict:
            self.set_params(pdict)
        if load_states:
            self.set_states(pdict)

    def set_params(self, pdict: Description) -> None:
        """Load the parameters in ``pdict["params"]``; an existing tensor is overwritten in place."""
        pdict = self.present_form(pdict)
        if not isinstance(pdict.get("params"), dict):
            raise ArgumentError(f"{self.name}.set_params: there is no dictionary 'params' in what was given")
        self.check_weights(pdict)
        for name, value in pdict["params"].items():
            present = getattr(self, name, None)
            if isinstance(present, Tensor):
                present.set(np.ascontiguousarray(value))
            elif isinstance(value, np.ndarray):
                setattr(self, name, self.be.array(value, dtype=self.stored_dtype(name), **self.get_param_attrs()))
            else:
                setattr(self, name, value)

    def stored_dtype(self, name: str) -> Any:
        """The dtype of the named parameter; None for the backend's default."""
        return None

    def set_states(self, pdict: Description) -> None:
        """Load the optimizer states in ``pdict["states"]``, if there are any."""
        if "states" in pdict:
            self.states = self._to_device(pdict["states"])
            restore_steps(self.states, pdict.get("steps"))
            restore_masters(self.states, pdict.get("masters"))

    def _to_device(self, states: Any) -> Any:
        if isinstance(states, list | tuple):
            return [self._to_device(entry) for entry in states]
        be = self.be
        # As in optimizers: states of 16 bits would lose small updates.
        return be.array(states, dtype=compute_dtype(be.default_np_dtype), **self.get_param_attrs())


class ParameterLayer(StoredLayer):
    """Base of layers with a weight ``W`` and its gradient ``dW``.

    Parameters
    ----------
    init : Initializer, Tensor or ndarray
        Initializer of the weight, or its values in exactly its shape.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    W, dW : Tensor or None
        Weight and gradient (sum over the batch), of shape ``weight_shape``.
    states : list of Tensor
        Optimizer states of the weight.
    batch_sum : Tensor or None
        Sums of the outputs over the batch, for a following batch normalization.
    acc_params : list of (Tensor, Tensor)
        Pairs (saved gradient, gradient) for accumulation.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers.layer import ParameterLayer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Scale(ParameterLayer):
    ...     def configure(self, in_obj):
    ...         super().configure(in_obj)
    ...         self.out_shape, self.weight_shape = self.in_shape, (self.in_shape[0], 1)
    ...         return self
    ...     def fprop(self, inputs, inference=False):
    ...         self.inputs = inputs
    ...         self.outputs[:] = self.W * inputs
    ...         return self.outputs
    ...     def bprop(self, error):
    ...         self.dW[:] = self.be.sum(error * self.inputs, axis=1)
    ...         self.deltas[:] = self.W * error
    ...         return self.deltas
    >>> Scale(init=Constant(3.0))(be.ones((2, 2))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(self, init: Init | None = None, name: str | None = None, parallelism: str = "Unknown") -> None:
        super().__init__(name, parallelism)
        if init is not None and not isinstance(init, Initializer | Tensor | np.ndarray) and not _fills(init):
            raise DTypeError(
                f"{self.classnm}: init={init!r} is not usable; expected an initializer, e.g. Gaussian(scale=0.01), "
                "or an array of the weight's shape"
            )
        self.init = init
        self.W: Any = None
        self.dW: Any = None
        self.weight_shape: tuple[int, int] | None = None
        self.batch_sum: Any = None
        self.batch_sum_shape = None
        self.acc_dW: Any = None

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the output buffer, and the parameters unless they exist.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory for the outputs.
        accumulate_updates : bool
            Prepare for gradient accumulation over several backward passes.
        """
        super().allocate(shared_outputs)
        if self.W is None:
            self.init_params(self.weight_shape)
        elif self.weight_shape is not None and tuple(self.W.shape) != tuple(self.weight_shape):
            raise ShapeError(
                f"{self.name}: its weight has shape {tuple(self.W.shape)}, but an input of shape {self.in_shape} "
                f"needs {tuple(self.weight_shape)}; the weights belong to another input shape"
            )
        if self.dW is None:
            self.dW = self.gradient_of(self.W)
        if self.batch_sum_shape is not None and self.batch_sum is None:
            self.batch_sum = self.be.empty(self.batch_sum_shape, dtype=stats_dtype(self.be), **self.get_param_attrs())
        self.accumulate_updates = accumulate_updates
        if accumulate_updates:
            self.acc_dW = self.be.empty_like(self.dW)
            self.acc_params = [(self.acc_dW, self.dW)]

    def asked_sums(self, inference: bool) -> Any:
        """``batch_sum`` if the forward pass fills it: in training, unless the next layer computes the sums."""
        return None if inference or self.sums_left else self.batch_sum

    def init_params(self, shape: Any) -> None:
        """Create the weight and its gradient and fill the weight.

        Parameters
        ----------
        shape : tuple of int
            Shape of the weight.
        """
        if shape is None:
            raise ArgumentError(f"{self.name}.allocate: the layer does not know its shape; call configure first")
        if self.init is None:
            raise ArgumentError(f"{self.name}: no initializer for the weight; give init=, e.g. Gaussian(scale=0.01)")
        self.W = self.new_parameter(shape, self.init)
        self.dW = self.gradient_of(self.W)
        self.states = []

    def new_parameter(self, shape: Any, init: Init | None) -> Tensor:
        """A tensor of ``shape``, filled by an initializer or with the given values.

        Parameters
        ----------
        shape : tuple of int
            Shape of the parameter.
        init : Initializer, Tensor or ndarray
            Its initializer, or its values.
        """
        parameter = self.be.empty(shape, **self.get_param_attrs())
        if _fills(init) and not isinstance(init, Tensor | np.ndarray):
            init.fill(parameter)
            return parameter
        if not isinstance(init, Tensor | np.ndarray):
            raise DTypeError(f"{self.name}: init must be an initializer or an array, got {shown(init)}")
        if tuple(init.shape) != tuple(parameter.shape):
            raise ShapeError(
                f"{self.name}: init has shape {tuple(init.shape)}, but the weight needs {tuple(parameter.shape)}"
            )
        parameter[:] = init
        return parameter

    def get_params(self) -> Any:
        """``((W, dW), states)``."""
        return (self.W, self.dW), self.states

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return ("W",)

    def set_params(self, pdict: Description) -> None:
        """Load the parameters in ``pdict["params"]``; an existing tensor is overwritten in place."""
        super().set_params(pdict)
        if self.W is not None and self.dW is None:
            self.dW = self.be.zeros_like(self.W)


def stats_dtype(be: Backend) -> type:
    """The dtype of sums, means and variances over a batch: float32, or float64 on a float64 backend."""
    return np.float64 if be.default_dtype == np.float64 else np.float32


def _as_list(layer: str, states: Any) -> list[Any]:
    if not isinstance(states, list | tuple):
        raise ArgumentError(f"{layer}: saved optimizer states must be a list, got {shown(states)}; the file is damaged")
    return list(states)


def _check_numbers(layer: str, what: str, value: Any) -> None:
    if not isinstance(value, np.ndarray | np.number) or value.dtype.kind not in "biufV":
        raise DTypeError(
            f"{layer}: saved {what} is a {type(value).__name__} of "
            f"{getattr(value, 'dtype', 'no dtype')}; expected an array of numbers: the file is damaged"
        )


def _fills(init: Any) -> TypeGuard[Fills]:
    return hasattr(init, "fill") and not isinstance(init, type | np.generic)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _are_of(value: Any, entries: Any, is_one: Callable[[Any], bool]) -> bool:
    """Whether ``value`` is one, or a list of one for each parameter, for such states of a layer."""
    if isinstance(entries[0], list | tuple):
        return isinstance(value, list) and len(value) == len(entries) and all(map(is_one, value))
    return is_one(value)


def _to_host(states: Any) -> Any:
    if isinstance(states, list | tuple):
        return [_to_host(entry) for entry in states]
    return states.get()
