"""GRU: a recurrent layer with gates that reset the state and mix it with a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.layers.core.base import require_transform
from neonlike.layers.recurrent.gates import gate, part
from neonlike.layers.recurrent.sequence import Views
from neonlike.layers.recurrent.simple_recurrent import Recurrent, activate, recurrent_product

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class GRU(Recurrent):
    """Gated recurrent unit: h = (1 - z) · h_prev + z · n, n = activation(W_n · x + U_n · (r · h_prev) + b_n).

    r, z = gate_activation of their rows of W_input · x + W_recur · h_prev + b. The rows of the weights are in the order
    r, z, n; U_n is the last part of ``W_recur``.

    Parameters
    ----------
    output_size, init, init_inner, activation, reset_cells
        As of :class:`Recurrent`. ``init`` fills the weights gate by gate.
    gate_activation : Transform
        Activation of the gates r and z, usually ``Logistic()``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    h, h_prev : lists of Tensor ``(nout, N)``
        State of each step, and the state before it.
    rzhcan_buffer, rzhcan_delta_buffer : Tensor ``(3 nout, steps * N)``
        r, z and n; after the backward pass, the errors before their activations.

    Notes
    -----
    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GRU
    >>> from neonlike.transforms import Logistic, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = GRU(4, init=Constant(0.1), activation=Tanh(), gate_activation=Logistic())
    >>> layer(be.ones((3, 5, 2))).shape  # features, steps, samples
    (4, 5, 2)
    """

    ngates = 3
    r, z = gate("rzhcan_buffer", 0, "Reset gate"), gate("rzhcan_buffer", 1, "Update gate")
    hcan = gate("rzhcan_buffer", 2, "Candidate state")
    Wrz_recur, b_rz = part("W_recur", 0, 2, "Weights of the gates"), part("b", 0, 2, "Biases of the gates")
    Whcan_recur = part("W_recur", 2, 3, "Weights of the candidate")
    b_hcan = part("b", 2, 3, "Biases of the candidate")
    repeatable = takes_int8 = True
    step_lists: ClassVar[tuple[str, ...]] = ("h", "h_prev", "h_ff", "rzhcan", "rzhcan_delta")

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
        self.rzhcan_buffer, self.rzhcan_delta_buffer = (self._step_buffer(3 * self.nout) for _ in range(2))
        self._reset_h_buffer = self._step_buffer(self.nout)

    def _cut_gates(self, views: Views) -> None:
        n = self.nout
        views.sums, views.rzhcan = views.cut(self.rzhcan_buffer)
        views.h_ff = views.rzhcan  # gates overwrite their projections
        reset_h_all, views.reset_h = views.cut(self._reset_h_buffer)
        views.D, views.rzhcan_delta = views.cut(self.rzhcan_delta_buffer)
        views.h_prev_back = [None, *views.h[:-1]]
        views.D_rz, views.D_n = views.D[: 2 * n], views.D[2 * n :]
        views.products = [
            recurrent_product(views, "_dW_rz", views.D_rz),
            recurrent_product(views, "_dW_n", views.D_n, reset_h_all),
        ]

    def _cut_gate_errors(self, views: Views) -> None:
        """Do nothing: ``_cut_gates`` cuts the layer's buffer of gate errors."""

    def _name_parts(self) -> None:
        super()._name_parts()
        if self.dW is not None:
            self._dW_rz, self._dW_n = self.dW_recur[: 2 * self.nout], self.dW_recur[2 * self.nout :]

    def _unroll(self, views: Views) -> None:
        steps = views.extent.steps
        self.be.compound_gru_unroll_fprop(
            self.W_recur, views.h_prev, views.rzhcan, views.rzhcan, views.reset_h, views.h, self.b, self.nout, steps,
            steps, self.activation, self.gate_activation,
        )  # fmt: skip

    def _unroll_int8(self, views: Views) -> None:
        n = self.nout
        to_gates, to_candidate = self._quantized_parts(0, 2 * n)
        total = self.be.fresh((3 * n, views.extent.samples))
        of_gates, of_candidate = total[: 2 * n], total[2 * n :]
        for h_prev, gates, reset_h, h in zip(views.h_prev, views.rzhcan, views.reset_h, views.h):
            self.be.int8_product(to_gates, h_prev, of_gates, bias=self.b_rz)
            activate(gates[: 2 * n], self.gate_activation, of_gates + gates[: 2 * n])
            r, z, candidate = (gates[k * n : (k + 1) * n] for k in range(3))
            reset_h[:] = r * h_prev
            self.be.int8_product(to_candidate, reset_h, of_candidate, bias=self.b_hcan)
            activate(candidate, self.activation, of_candidate + candidate)
            h[:] = (1.0 - z) * h_prev + z * candidate

    def _unroll_back(self, views: Views) -> None:
        steps = views.extent.steps
        self.be.compound_gru_unroll_bprop(
            self._W_recur_T, views.e_prev, views.e_steps, views.rzhcan_delta, views.rzhcan,
            views.h_prev if self._states_given else views.h_prev_back, self.nout, steps, steps, self.activation,
            self.gate_activation,
        )  # fmt: skip

    def _passed_back(self, views: Views) -> Any:
        n, W_T = self.nout, self._W_recur_T
        gates, _ = views.cut(self.rzhcan_buffer)
        to_gates, to_reset = self.be.dot(W_T[:, : 2 * n], views.D_rz), self.be.dot(W_T[:, 2 * n :], views.D_n)
        return views.e * (1.0 - gates[n : 2 * n]) + to_gates + gates[:n] * to_reset
