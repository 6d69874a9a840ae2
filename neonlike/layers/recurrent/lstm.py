"""LSTM: a recurrent layer with a cell controlled by write, keep and read gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import require_transform
from neonlike.layers.recurrent.gates import gate
from neonlike.layers.recurrent.sequence import Views
from neonlike.layers.recurrent.simple_recurrent import Recurrent, activate, recurrent_product
from neonlike.layers.recurrent.steps import first_columns

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class LSTM(Recurrent):
    """Long short-term memory: c = f · c_prev + i · g, h = o · activation(c).

    i, f, o = gate_activation and g = activation of the rows of W_input · x + W_recur · h_prev + b, in this order.

    Parameters
    ----------
    output_size, init, init_inner, activation, reset_cells
        As of :class:`Recurrent`. ``init`` fills the weights gate by gate.
    gate_activation : Transform
        Activation of the gates i, f and o, usually ``Logistic()``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    h, h_prev, c, c_prev, c_act : lists of Tensor ``(nout, N)``
        State, cell and activated cell of each step, and their predecessors.
    ifog_buffer, ifog_delta_buffer : Tensor ``(4 nout, steps * N)``
        Gates; after the backward pass, the errors before their activations.
    final_cell_error : Tensor ``(nout, N)``
        Error that the last backward pass propagated to the cell before the first step.

    Notes
    -----
    ``fprop(x, init_state=h)`` sets only h, and the backward pass treats the first step as starting from 0, as neon
    does; with ``init_state=[h, c]`` gradients are exact.

    Source: Hochreiter & Schmidhuber, "Long short-term memory" (1997); forget gate: Gers et al. (2000).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import LSTM
    >>> from neonlike.transforms import Logistic, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = LSTM(4, init=Constant(0.1), activation=Tanh(), gate_activation=Logistic())
    >>> layer(be.ones((3, 5, 2))).shape  # features, steps, samples
    (4, 5, 2)
    """

    ngates = 4
    repeatable = takes_int8 = True
    _cell_error: Any = None
    step_lists: ClassVar[tuple[str, ...]] = ("h", "h_prev", "h_ff", "c", "c_prev", "c_act", "ifog", "ifog_delta")
    i, f = gate("ifog_buffer", 0, "Input gate"), gate("ifog_buffer", 1, "Forget gate")
    o, g = gate("ifog_buffer", 2, "Output gate"), gate("ifog_buffer", 3, "What is written to the cell,")

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        gate_activation: Transform | None = None,
        reset_cells: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(output_size, init, init_inner, activation, reset_cells, name)
        self.gate_activation = require_transform(gate_activation, f"{self.classnm}: gate_activation")

    def _allocate_gates(self) -> None:
        self.ifog_buffer, self.ifog_delta_buffer = (self._step_buffer(4 * self.nout) for _ in range(2))
        self.c_buffer, self.c_act_buffer = (self._step_buffer(self.nout) for _ in range(2))
        self._c_final, self._c_initial, self.final_cell_error = (self._state_buffer() for _ in range(3))

    def _cut_gates(self, views: Views) -> None:
        views.sums, views.ifog = views.cut(self.ifog_buffer)
        views.h_ff = views.ifog  # gates overwrite their projections
        c_all, views.c = views.cut(self.c_buffer)
        _, views.c_act = views.cut(self.c_act_buffer)
        views.D, views.ifog_delta = views.cut(self.ifog_delta_buffer)
        buffers = self._c_initial, self._c_final, self.final_cell_error
        initial, final, views.c_passed = (first_columns(buffer, views.extent.samples) for buffer in buffers)
        views.c_prev = [initial, *views.c[:-1]]
        views.c_prev_back = [None, *views.c[:-1]]
        views.c_deltas = [views.c_passed] * views.extent.steps
        views.states.append((initial, c_all, final))
        views.products = [recurrent_product(views, "dW_recur", views.D)]

    def _cut_gate_errors(self, views: Views) -> None:
        """Do nothing: ``_cut_gates`` cuts the layer's buffer of gate errors."""

    @property
    def _first_step_counts(self) -> bool:
        return self._states_given == 2

    def _unroll(self, views: Views) -> None:
        steps = views.extent.steps
        self.be.compound_lstm_unroll_fprop(
            self.W_recur, views.h_prev, views.c_prev, views.ifog, views.ifog, views.c, views.c_act, views.h, self.b,
            self.nout, steps, steps, self.activation, self.gate_activation,
        )  # fmt: skip

    def _unroll_int8(self, views: Views) -> None:
        n = self.nout
        (weights,) = self._quantized_parts(0)
        total = self.be.fresh((4 * n, views.extent.samples))
        for h_prev, c_prev, gates, c, c_act, h in zip(
            views.h_prev, views.c_prev, views.ifog, views.c, views.c_act, views.h
        ):
            self.be.int8_product(weights, h_prev, total, bias=self.b)
            activate(gates[: 3 * n], self.gate_activation, total[: 3 * n] + gates[: 3 * n])
            activate(gates[3 * n :], self.activation, total[3 * n :] + gates[3 * n :])
            i, f, o, g = (gates[k * n : (k + 1) * n] for k in range(4))
            c[:] = f * c_prev + i * g
            activate(c_act, self.activation, c)
            h[:] = o * c_act

    def set_final_cell_error(self, final: Tensor) -> None:
        """Start the next backward pass with ``final``, ``(nout, N)``, as the error of the last cell.

        Parameters
        ----------
        final : Tensor
            The error, ``(nout, N)``.
        """
        self._cell_error = final

    def add_final_errors(self, error: Tensor, finals: Sequence[Tensor]) -> None:
        """As :meth:`Recurrent.add_final_errors`, of h and c.

        Parameters
        ----------
        error : Tensor
            Error at the outputs, ``(nout, steps * N)``, changed in place.
        finals : list of Tensor
            The errors of h and c, ``(nout, N)`` each.
        """
        super().add_final_errors(error, finals)
        self.set_final_cell_error(finals[1])

    def errors_passed(self) -> list[Tensor]:
        """As :meth:`Recurrent.errors_passed`, of h and c."""
        return [*super().errors_passed(), self.final_cell_error]

    def _unroll_back(self, views: Views) -> None:
        steps = views.extent.steps
        views.c_passed[:] = 0 if self._cell_error is None else self._cell_error
        self._cell_error = None
        self.be.compound_lstm_unroll_bprop(
            self._W_recur_T, views.e_prev, views.e_steps, views.c_deltas, views.c_deltas, views.ifog_delta, views.ifog,
            views.c_prev if self._first_step_counts else views.c_prev_back, views.c_act,
            self.nout, steps, steps, self.activation, self.gate_activation,
        )  # fmt: skip
