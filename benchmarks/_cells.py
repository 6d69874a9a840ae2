"""Our contenders of ``rnn.py``: whole layers over all steps, from the primitives.

Activations lie as neon's layers have them, (features, steps * N), a step being some columns. All inputs are multiplied
at once, then the layer is unrolled. Backward, the errors of the gates are gathered, and the weights' gradients are one
product over all steps.
"""

from __future__ import annotations

from typing import Any

from _layers import Cell
from _libraries import Array


class OwnCell:
    """Buffers all cells have, and the products over all steps at once.

    Attributes
    ----------
    W_input, W_recur, b : tensors (gates, features), (gates, hidden), (gates, 1)
    x, e : tensors (features, steps * N), (hidden, steps * N)
    h : tensor (hidden, (steps + 1) * N)
        The initial state, then all steps.
    gates, D : tensors (gates, steps * N)
        Gates, and the errors of their sums.
    """

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        from neonlike.transforms import Logistic, Tanh

        self.be, self.cell, self.n, self.T = be, cell, cell.hidden, cell.steps
        self.act, self.gate_act = Tanh(), Logistic()
        self.W_input, self.W_recur, self.b, self.x, self.E = (
            be.array(arrays[name]) for name in ("W_input", "W_recur", "b", "x", "E")
        )
        self.N = self.x.shape[1] // self.T
        rows, columns = self.W_recur.shape[0], self.T * self.N
        self.h, self.e = be.zeros((self.n, columns + self.N)), be.zeros((self.n, columns))
        self.gates, self.D = be.zeros((rows, columns)), be.zeros((rows, columns))
        self.dx, self.dW_input = be.zeros_like(self.x), be.zeros_like(self.W_input)
        self.dW_recur, self.db = be.zeros_like(self.W_recur), be.zeros_like(self.b)
        self.hs, self.h_prevs, self.gates_s = self.split(self.h, 1), self.split(self.h), self.split(self.gates)
        self.es, self.D_s = self.split(self.e), self.split(self.D)
        self.e_prevs = [None, *self.es[:-1]]

    def split(self, buffer: Any, first: int = 0) -> list[Any]:
        """Views of as many steps as the cell has, from that of index ``first`` on."""
        return [buffer[:, t * self.N : (t + 1) * self.N] for t in range(first, first + self.T)]

    @property
    def outputs(self) -> Any:
        """h without the initial state."""
        return self.h[:, self.N :]

    @property
    def before(self) -> Any:
        """h of the steps before."""
        return self.h[:, : -self.N]

    def multiply_inputs(self) -> None:
        """Into the gates of all steps."""
        self.be.compound_dot(self.W_input, self.x, self.gates)

    def gradients(self, D: Any) -> None:
        """Compute the gradients of everything but the recurrent weights."""
        self.be.compound_dot(D, self.x.T, self.dW_input)
        self.be.compound_dot(self.W_input.T, D, self.dx)
        self.be.sum(D, axis=1, out=self.db)

    def forward(self) -> None:
        """Fill h."""
        raise NotImplementedError

    def backward(self) -> None:
        """Fill the gradients, after :meth:`forward`."""
        raise NotImplementedError

    def train(self) -> None:
        """Both; the errors are copied, because the unrolling adds to them."""
        self.forward()
        self.e[:] = self.E
        self.backward()

    def results(self, backward: bool) -> list[Any]:
        """[outputs], or gradients as ``_cell_references.unroll`` orders them."""
        return [self.dx, self.dW_input, self.dW_recur, self.db] if backward else [self.outputs]


class OwnRnn(OwnCell):
    """One gate, tanh; its errors take the place of the outputs'."""

    def forward(self) -> None:
        """One product, one unrolling."""
        self.multiply_inputs()
        self.be.compound_rnn_unroll_fprop(
            self.W_recur, self.h_prevs, self.gates_s, self.hs, self.b, self.n, self.T, self.T, self.act
        )

    def backward(self) -> None:
        """One unrolling, then sums over all steps."""
        self.be.compound_rnn_unroll_bprop(
            self.W_recur.T, self.e_prevs, self.es, self.hs, self.n, self.T, self.T, self.act
        )
        self.be.compound_dot(self.e, self.before.T, self.dW_recur)
        self.gradients(self.e)


class OwnLstm(OwnCell):
    """Gates in the order i f o g."""

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        super().__init__(be, cell, arrays)
        self.c, self.a = be.zeros(self.h.shape), be.zeros(self.outputs.shape)
        self.cs, self.c_prevs, self.a_s = self.split(self.c, 1), self.split(self.c), self.split(self.a)
        self.dc = be.zeros((self.n, self.N))
        self.dcs = [self.dc] * self.T

    def forward(self) -> None:
        """One product, one unrolling."""
        self.multiply_inputs()
        self.be.compound_lstm_unroll_fprop(
            self.W_recur, self.h_prevs, self.c_prevs, self.gates_s, self.gates_s, self.cs, self.a_s, self.hs, self.b,
            self.n, self.T, self.T, self.act, self.gate_act,
        )  # fmt: skip

    def backward(self) -> None:
        """One unrolling, then sums over all steps."""
        self.dc.fill(0)
        self.be.compound_lstm_unroll_bprop(
            self.W_recur.T, self.e_prevs, self.es, self.dcs, self.dcs, self.D_s, self.gates_s, self.c_prevs, self.a_s,
            self.n, self.T, self.T, self.act, self.gate_act,
        )  # fmt: skip
        self.be.compound_dot(self.D, self.before.T, self.dW_recur)
        self.gradients(self.D)


class OwnGru(OwnCell):
    """Gates in the order r z candidate."""

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        super().__init__(be, cell, arrays)
        self.rh = be.zeros(self.outputs.shape)
        self.rh_s = self.split(self.rh)
        self.dW_rz, self.dW_candidate = self.dW_recur[: 2 * self.n], self.dW_recur[2 * self.n :]

    def forward(self) -> None:
        """One product, one unrolling."""
        self.multiply_inputs()
        self.be.compound_gru_unroll_fprop(
            self.W_recur, self.h_prevs, self.gates_s, self.gates_s, self.rh_s, self.hs, self.b, self.n, self.T, self.T,
            self.act, self.gate_act,
        )  # fmt: skip

    def backward(self) -> None:
        """One unrolling, then sums over all steps."""
        self.be.compound_gru_unroll_bprop(
            self.W_recur.T, self.e_prevs, self.es, self.D_s, self.gates_s, self.h_prevs, self.n, self.T, self.T,
            self.act, self.gate_act,
        )  # fmt: skip
        self.be.compound_dot(self.D[: 2 * self.n], self.before.T, self.dW_rz)
        self.be.compound_dot(self.D[2 * self.n :], self.rh.T, self.dW_candidate)
        self.gradients(self.D)


CELLS = {"rnn": OwnRnn, "lstm": OwnLstm, "gru": OwnGru}
