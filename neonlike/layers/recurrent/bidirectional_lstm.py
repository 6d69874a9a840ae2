"""Bidirectional LSTM layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import require_transform
from neonlike.layers.recurrent.bidirectional import BiRNN
from neonlike.layers.recurrent.sequence import Views
from neonlike.layers.recurrent.steps import get_steps

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class BiLSTM(BiRNN):
    """Two LSTM layers side by side; the second reads the steps from last to first.

    Parameters
    ----------
    output_size, init, init_inner, activation, gate_activation, reset_cells
        As of :class:`LSTM`, for each direction.
    split_inputs : bool
        As of :class:`BiRNN`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    ifog_buffer, ifog_delta_buffer : Tensor ``(8 nout, steps * N)``
        Gates, forward direction above backward, and the errors before their activations.
    c_f, c_b, c_act_f, c_act_b, ifog_f, ifog_b : lists of Tensor
        Cells, activated cells and gates of each step.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BiLSTM
    >>> from neonlike.transforms import Logistic, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = BiLSTM(4, init=Constant(0.1), activation=Tanh(), gate_activation=Logistic())
    >>> layer(be.ones((3, 5, 2))).shape  # both directions, steps, samples
    (8, 5, 2)
    """

    repeatable = True

    ngates = 4
    gate_lists: ClassVar[tuple[str, ...]] = ("h_ff", "ifog", "c", "c_act", "ifog_delta")

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        gate_activation: Transform | None = None,
        reset_cells: bool = False,
        split_inputs: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(output_size, init, init_inner, activation, reset_cells, split_inputs, name)
        self.gate_activation = require_transform(gate_activation, f"{self.classnm}: gate_activation")

    def _allocate_gates(self) -> None:
        self.ifog_buffer, self.ifog_delta_buffer = (self._step_buffer(8 * self.nout) for _ in range(2))
        self.c_buffer, self.c_act_buffer = (self._step_buffer(2 * self.nout) for _ in range(2))
        self._c_initial, self._c_delta = (
            self.be.zeros((2 * self.nout, self.allocated_samples), dtype=self.outputs.dtype) for _ in range(2)
        )

    def _cut_gates(self, views: Views) -> None:
        steps, samples = views.extent
        views.sums, _ = views.cut(self.ifog_buffer)
        D, _ = views.cut(self.ifog_delta_buffer)
        c_all, c_act_all = views.cut(self.c_buffer)[0], views.cut(self.c_act_buffer)[0]
        buffers = views.sums, D, c_all, c_act_all, self._c_initial[:, :samples], self._c_delta[:, :samples]
        for way, cut in zip(views.ways, zip(*map(self._halves, buffers), strict=True), strict=True):
            gates, errors, c, c_act, way.c_initial, c_delta = cut
            way.ifog, way.ifog_delta = (get_steps(rows, (4 * self.nout, steps)) for rows in (gates, errors))
            way.h_ff = way.ifog  # gates overwrite their projections
            way.c, way.c_act = (get_steps(rows, (self.nout, steps)) for rows in (c, c_act))
            way.c_prev = [*way.c[1:], way.c_initial] if way.backward else [way.c_initial, *way.c[:-1]]
            way.c_prev_back = [*way.c[1:], None] if way.backward else [None, *way.c[:-1]]
            way.c_last = way.c[0 if way.backward else -1]
            way.c_delta, way.c_deltas = c_delta, [c_delta] * steps
        self._set_gate_errors(views, D)

    def _cut_gate_errors(self, views: Views) -> None:
        """Do nothing: ``_cut_gates`` cuts the layer's buffer of gate errors."""

    def _states(self, views: Views) -> list[tuple[Tensor, Tensor]]:
        return [*super()._states(views), *((way.c_initial, way.c_last) for way in views.ways)]

    def _unroll(self, views: Views, way: Any) -> None:
        steps = views.extent.steps
        self.be.compound_lstm_unroll_fprop(
            self._part("W_recur", way), way.h_prev, way.c_prev, way.ifog, way.ifog, way.c, way.c_act, way.h,
            self._part("b", way), self.nout, steps, steps, self.activation, self.gate_activation, reverse=way.backward,
        )  # fmt: skip

    def _unroll_back(self, views: Views, way: Any) -> None:
        steps = views.extent.steps
        way.c_delta.fill(0)
        self.be.compound_lstm_unroll_bprop(
            self._part("_W_recur", way, "_T"), way.e_prev, way.e, way.c_deltas, way.c_deltas, way.ifog_delta, way.ifog,
            way.c_prev_back, way.c_act, self.nout, steps, steps, self.activation, self.gate_activation,
            reverse=not way.backward,
        )  # fmt: skip
