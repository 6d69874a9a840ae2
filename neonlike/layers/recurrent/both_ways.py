"""Two recurrent layers of any kind as one that reads both ways: of cells and states that BiRNN and BiLSTM lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import Layer, interpret_in_shape
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.layers.recurrent.simple_recurrent import Recurrent

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource


class BothWays(ParameterLayer):
    """Two layers side by side, of which the second reads a copy of the input with the steps in reverse order.

    Both have their parts of one weight, whose rows lie as in :class:`~neonlike.layers.recurrent.BiRNN`.

    Parameters
    ----------
    kind : type
        Recurrent, LSTM or GRU.
    units : int
        Units of each direction.
    init : Initializer or array
        Initializer of the weights of both.
    options
        Further arguments of both layers.

    Attributes
    ----------
    W_input_f, W_input_b, W_recur_f, ... : Tensor
        Views of ``W``.
    ways : list of layers
        The forward direction, and the backward one.
    W, dW : Tensor
        The weight and its gradient, ``(rows of all parts, gates * units)``.
    """

    def __init__(self, kind: type[Recurrent], units: int, init: Init, **options: Any) -> None:
        super().__init__(init)
        self.ways: list[Any] = [kind(units, init, **options) for _ in "fb"]
        self.units = units

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Input ``(features, steps)``, output ``(2 units, steps)``."""
        super().configure(in_obj)
        for way in self.ways:
            way.configure(self.in_shape)
        features, steps = interpret_in_shape(self.in_shape)
        self.out_shape = (2 * self.units, steps)
        self.weight_shape = (2 * (features + self.units + 1), self.ways[0].ngates * self.units)
        return self

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`: those of one direction, as the other's are the same."""
        return self.ways[0].products(backward)

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the parameters, and buffers for what each direction reads, writes and is given back."""
        super().allocate(shared_outputs, accumulate_updates)
        units, (features, steps) = self.units, interpret_in_shape(self.in_shape)
        for place, (way, suffix) in enumerate(zip(self.ways, "fb")):
            way.starts = {
                "W_input": place * features, "W_recur": 2 * features + place * units,
                "b": 2 * (features + units) + place,
            }  # fmt: skip
            way.W, way.dW, way.weight_shape = self.W, self.dW, self.weight_shape
            way.takes_gradients = self.takes_gradients
            way.allocate()
            for name in ("W_input", "W_recur", "b"):
                setattr(self, f"{name}_{suffix}", getattr(way, name))
        columns = steps * self.be.bsz
        self._reversed = self.be.empty((features, columns))
        if self.takes_gradients:
            self._back = self.be.empty((features, columns))
            self._errors = [self.be.empty((units, columns)) for _ in self.ways]

    def _steps(self, tensor: Any) -> Any:
        """``(rows, steps, N)`` of a buffer."""
        return tensor.viewed(tensor.shape[0], self.out_shape[1], -1)

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Outputs ``(2 units, steps * N)``, the states of the forward direction above those of the backward one."""
        self._steps(self._reversed)[:] = self._steps(inputs)[:, ::-1]
        y, back = (way.fprop(x, inference) for way, x in zip(self.ways, (inputs, self._reversed)))
        self.outputs[: self.units] = y
        self._steps(self.outputs[self.units :])[:] = self._steps(back)[:, ::-1]
        return self.outputs

    def bprop(self, error: Any) -> Any:
        """Gradients of the parameters, and the error for the layer before."""
        forward, backward = self._errors
        forward[:] = error[: self.units]
        self._steps(backward)[:] = self._steps(error[self.units :])[:, ::-1]
        self.ways[0].deltas = self.deltas
        self.ways[1].deltas = None if self.deltas is None else self._back
        for way, given in zip(self.ways, self._errors):
            way.bprop(given)
        if self.deltas is not None:
            whole = self._steps(self.deltas)
            whole[:] = whole + self._steps(self._back)[:, ::-1]
        return self.deltas

    # -- states: those of the forward direction first ------------------------------------------------------

    def get_state(self) -> list[Tensor]:
        """Copies of all that goes from step to step, after the last step that each direction reads."""
        return [state for way in self.ways for state in way.get_state()]

    def set_state(self, state: list[Tensor]) -> None:
        """Start the next forward pass from ``state``, as :meth:`get_state` gives it."""
        half = len(state) // 2
        for way, given in zip(self.ways, (state[:half], state[half:])):
            way.set_state(given)

    def add_final_errors(self, error: Tensor, finals: Sequence[Tensor]) -> None:
        """Add the gradients by the last states to the ``error`` that ``bprop`` is to be given.

        Each direction is given the columns of its last step: samples have no lengths here.
        """
        half, samples = len(finals) // 2, finals[0].shape[1]
        places = error[: self.units, -samples:], error[self.units :, :samples]
        for way, place, given in zip(self.ways, places, (finals[:half], finals[half:])):
            way.add_final_errors(place, given)

    def errors_passed(self) -> list[Tensor]:
        """Gradients by the states that each direction starts from."""
        return [error for way in self.ways for error in way.errors_passed()]
