"""Two recurrent layers of any kind as one that reads both ways: where there is no layer that does, or states are given.

The second layer reads a copy of the input with the steps in reverse order. Both have their parts of one weight, whose
rows lie as in :class:`neonlike.layers.recurrent.BiRNN`.
"""

from __future__ import annotations

from typing import Any

from neonlike.layers.recurrent import GRU, LSTM, Recurrent
from neonlike.layers.recurrent.sequence import SequenceLayer


class Part(SequenceLayer):
    """A layer whose parts of the weight lie among those of another."""

    starts: dict[str, int]

    def _part_starts(self) -> dict[str, int]:
        return self.starts


class RecurrentPart(Recurrent, Part):
    """Recurrent as a direction of a layer."""


class LSTMPart(LSTM, Part):
    """LSTM as a direction of a layer."""


class GRUPart(GRU, Part):
    """GRU as a direction of a layer."""


PARTS: dict[str, Any] = {"rnn": RecurrentPart, "lstm": LSTMPart, "gru": GRUPart}
"""Kind of cell -> layer."""


class BothWays:
    """Two layers, of which the second reads the steps from the last to the first.

    Parameters
    ----------
    kind : "rnn", "lstm" or "gru"
    units : int
        Of each direction.
    options
        Of the layers.

    Attributes
    ----------
    W, dW : Tensor ``(rows of all parts, gates * units)``
    W_input_f, W_input_b, W_recur_f, ... : Tensor
        Views of ``W``.
    deltas : Tensor ``(features, steps * N)``, or None
        Where ``bprop`` writes the gradient by the input.
    ways : list of layers
        The forward direction, and the backward one.
    """

    def __init__(self, kind: str, units: int, **options: Any) -> None:
        self.ways = [PARTS[kind](units, **options) for _ in "fb"]
        self.units = units
        self.be = self.ways[0].be
        self.deltas: Any = None
        self.states: list[Any] = []

    def configure(self, in_shape: Any) -> None:
        """Input ``(features, steps)``, output ``(2 units, steps)``."""
        self.in_shape = in_shape
        for way in self.ways:
            way.configure(in_shape)
        self.out_shape = (2 * self.units, in_shape[1])

    def allocate(self, shared_outputs: Any = None) -> None:
        """Make the parameters, and buffers for what each direction reads, writes and is given back."""
        be, (features, steps), units = self.be, self.in_shape, self.units
        first = self.ways[0]
        shape = (2 * (features + units + 1), first.ngates * units)
        self.W, self.dW = be.zeros(shape), be.zeros(shape)
        for place, (way, suffix) in enumerate(zip(self.ways, "fb")):
            way.starts = {
                "W_input": place * features, "W_recur": 2 * features + place * units,
                "b": 2 * (features + units) + place,
            }  # fmt: skip
            way.W, way.dW, way.weight_shape = self.W, self.dW, shape
            way.allocate()
            for name in ("W_input", "W_recur", "b"):
                setattr(self, f"{name}_{suffix}", getattr(way, name))
        columns = steps * be.bsz
        self.outputs = be.zeros((2 * units, columns)) if shared_outputs is None else shared_outputs
        self._reversed, self._back = be.empty((features, columns)), be.empty((features, columns))
        self._errors = [be.empty((units, columns)) for _ in self.ways]

    def get_params(self) -> Any:
        """``((W, dW), states)``."""
        return (self.W, self.dW), self.states

    def _steps(self, tensor: Any) -> Any:
        """``(rows, steps, N)`` of a buffer."""
        return tensor.viewed(tensor.shape[0], self.in_shape[1], -1)

    def fprop(self, x: Any, inference: bool = False, init_state: Any = None) -> Any:
        """Outputs ``(2 units, steps * N)``, the states of the forward direction above those of the backward one.

        Parameters
        ----------
        init_state : list of Tensor ``(units, N)``, optional
            What each direction starts from, as of :meth:`get_state`.
        """
        self._steps(self._reversed)[:] = self._steps(x)[:, ::-1]
        half = None if init_state is None else len(init_state) // 2
        given = [None, None] if half is None else [init_state[:half], init_state[half:]]
        y, back = (way.fprop(one, inference, state) for way, one, state in zip(self.ways, (x, self._reversed), given))
        self.outputs[: self.units] = y
        self._steps(self.outputs[self.units :])[:] = self._steps(back)[:, ::-1]
        return self.outputs

    def bprop(self, error: Any) -> Any:
        """Gradients of the parameters, and the error for what is before."""
        forward, backward = self._errors
        forward[:] = error[: self.units]
        self._steps(backward)[:] = self._steps(error[self.units :])[:, ::-1]
        self.ways[0].deltas = self.deltas
        self.ways[1].deltas = None if self.deltas is None else self._back
        for way, given in zip(self.ways, self._errors):
            way.bprop(given)
        if self.deltas is not None:
            whole = self._steps(self.deltas)
            whole[:] = whole + self._steps(self.ways[1].deltas)[:, ::-1]
        return self.deltas

    # States: those of the forward direction first

    def get_state(self) -> list[Any]:
        """Copies of all that goes from step to step, after the last step that each direction reads."""
        return [state for way in self.ways for state in way.get_state()]

    def errors_passed(self) -> list[Any]:
        """Gradients by the states that each direction starts from."""
        return [error for way in self.ways for error in errors_passed(way)]

    def add_final_errors(self, error: Any, finals: Any) -> None:
        """Add the gradients by the last states to the ``error`` that ``bprop`` is to be given."""
        half = len(finals) // 2
        samples = finals[0].shape[1]
        places = (error[: self.units, -samples:], error[self.units :, :samples])
        for way, place, given in zip(self.ways, places, (finals[:half], finals[half:])):
            place[:] = place + given[0]
            if half > 1:
                way.set_final_cell_error(given[1])


def errors_passed(cell: Any) -> list[Any]:
    """Gradients by the states that a layer starts from: h, of an LSTM h and c."""
    if isinstance(cell, BothWays):
        return cell.errors_passed()
    return [getattr(cell, name) for name in ("final_hidden_error", "final_cell_error") if hasattr(cell, name)]


def add_final_errors(cell: Any, error: Any, finals: Any) -> None:
    """Add the gradients by the last states of a layer to the ``error`` that its ``bprop`` is to be given."""
    if isinstance(cell, BothWays):
        cell.add_final_errors(error, finals)
        return
    cell.add_final_error(error, finals[0])
    if len(finals) > 1:
        cell.set_final_cell_error(finals[1])
