"""Our contenders of ``rnn.py``: whole layers over all steps, from primitives and prepared expressions.

Activations lie as neon's layers have them, (features, steps * N), a step being some columns. All inputs are multiplied
at once; the recurrent product and the gates follow step by step. Backward, the errors of the gates are gathered, and
the weights' gradients are one product over all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _layers import Cell
from _references import Array

Run = Callable[[], object]


class OwnCell:
    """Buffers all cells have, and the products over all steps at once.

    Attributes
    ----------
    W_input, W_recur, b : tensors (gates, features), (gates, hidden), (gates, 1)
    x, h, e : tensors (features, steps * N), (hidden, (steps + 1) * N) twice
        Step t of h and e lies in the columns t + 1: before them is the initial state and its error.
    gates, D : tensors (gates, steps * N)
        Gates, and the errors of their sums.
    """

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        self.be, self.cell, self.n, self.T = be, cell, cell.hidden, cell.steps
        self.W_input, self.W_recur, self.b, self.x, self.E = (
            be.array(arrays[name]) for name in ("W_input", "W_recur", "b", "x", "E")
        )
        self.N = self.x.shape[1] // self.T
        rows, columns = self.W_recur.shape[0], self.T * self.N
        self.h, self.e = (be.zeros((self.n, columns + self.N)) for _ in range(2))
        self.gates, self.D = be.zeros((rows, columns)), be.zeros((rows, columns))
        self.dx, self.dW_input = be.zeros_like(self.x), be.zeros_like(self.W_input)
        self.dW_recur, self.db = be.zeros_like(self.W_recur), be.zeros_like(self.b)

    def at(self, buffer: Any, t: int, rows: slice = slice(None)) -> Any:
        """Columns of step ``t``, from 0."""
        return buffer[rows, t * self.N : (t + 1) * self.N]

    def gate(self, buffer: Any, t: int, index: int, count: int = 1) -> Any:
        """Rows of ``count`` gates at step ``t``."""
        return self.at(buffer, t, slice(index * self.n, (index + count) * self.n))

    @property
    def outputs(self) -> Any:
        """h without the initial state."""
        return self.h[:, self.N :]

    @property
    def before(self) -> Any:
        """h of the steps before."""
        return self.h[:, : -self.N]

    def take_errors(self) -> None:
        """Fill e: the unrolling adds to it."""
        self.e[:, self.N :] = self.E

    def multiply_inputs(self) -> None:
        """Into the gates of all steps."""
        self.be.compound_dot(self.W_input, self.x, self.gates)

    def gradients(self, D: Any) -> None:
        """Of everything but the recurrent weights."""
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
        """Both."""
        self.forward()
        self.take_errors()
        self.backward()

    def result(self, backward: bool) -> list[Array]:
        """[outputs], or gradients as ``_cell_references.unroll`` orders them."""
        tensors = [self.dx, self.dW_input, self.dW_recur, self.db] if backward else [self.outputs]
        return [np.asarray(tensor.get()) for tensor in tensors]


class OwnRnn(OwnCell):
    """The unrolling primitives."""

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        from neonlike.transforms import Tanh

        super().__init__(be, cell, arrays)
        steps = range(self.T)
        self.act, self.W_turned = Tanh(), self.W_recur.T
        self.hs, self.h_prevs = [self.at(self.h, t + 1) for t in steps], [self.at(self.h, t) for t in steps]
        self.h_ffs = [self.at(self.gates, t) for t in steps]
        self.es, self.e_prevs = [self.at(self.e, t + 1) for t in steps], [self.at(self.e, t) for t in steps]
        self.errors = self.e[:, self.N :]

    def forward(self) -> None:
        """One product, one unrolling."""
        self.multiply_inputs()
        self.be.compound_rnn_unroll_fprop(
            self.W_recur, self.h_prevs, self.h_ffs, self.hs, self.b, self.n, self.T, self.T, self.act
        )

    def backward(self) -> None:
        """One unrolling, four sums over all steps."""
        self.be.compound_rnn_unroll_bprop(
            self.W_turned, self.e_prevs, self.es, self.hs, self.n, self.T, self.T, self.act
        )
        self.be.compound_dot(self.errors, self.before.T, self.dW_recur)
        self.gradients(self.errors)


class PreparedCell(OwnCell):
    """A cell whose steps are prepared expressions, made once."""

    def __init__(self, be: Any, cell: Cell, arrays: dict[str, Array]) -> None:
        super().__init__(be, cell, arrays)
        self.prepare()
        self.steps: list[Run] = [run for t in range(self.T) for run in self.step(t)]
        self.steps_back: list[Run] = [run for t in reversed(range(self.T)) for run in self.step_back(t)]

    def prepare(self) -> None:
        """Further buffers."""

    def step(self, t: int) -> list[Run]:
        """What fills step ``t`` of h."""
        raise NotImplementedError

    def step_back(self, t: int) -> list[Run]:
        """What fills step ``t`` of D, and adds to the error of the step before."""
        raise NotImplementedError

    def forward(self) -> None:
        """One product, then the steps."""
        self.multiply_inputs()
        for run in self.steps:
            run()

    def add_product(self, W: Any, x: Any, target: Any) -> Run:
        """target += W.x."""
        return self.be.prepare([(target, target + self.be.dot(W, x))])  # type: ignore[no-any-return]


class OwnLstm(PreparedCell):
    """Gates in the order i f o g."""

    def prepare(self) -> None:
        """Cell states, with the initial one, and what their activation gives."""
        be, columns = self.be, self.T * self.N
        self.c, self.a = be.zeros((self.n, columns + self.N)), be.zeros((self.n, columns))
        self.dc, self.W_turned = be.zeros((self.n, self.N)), self.W_recur.T

    def step(self, t: int) -> list[Run]:
        """The recurrent product; then all gates, the state and the output at once."""
        be = self.be
        targets = [self.gate(self.gates, t, index) for index in range(4)]
        sums = [gate + self.b[index * self.n : (index + 1) * self.n] for index, gate in enumerate(targets)]
        i, f, o, gate = (*(be.sig(total) for total in sums[:3]), be.tanh(sums[3]))
        c = f * self.at(self.c, t) + i * gate
        a = be.tanh(c)
        states = [(self.at(self.c, t + 1), c), (self.at(self.a, t), a), (self.at(self.h, t + 1), o * a)]
        cell = be.prepare([*zip(targets, (i, f, o, gate)), *states])
        return [self.add_product(self.W_recur, self.at(self.h, t), self.at(self.gates, t)), cell]

    def step_back(self, t: int) -> list[Run]:
        """All gates at once; then the product."""
        be, dc, e = self.be, self.dc, self.at(self.e, t + 1)
        i, f, o, gate = (self.gate(self.gates, t, index) for index in range(4))
        di, df, do, dgate = (self.gate(self.D, t, index) for index in range(4))
        a = self.at(self.a, t)
        total = dc + (1 - a * a) * o * e
        errors = be.prepare([
            (di, i * (1 - i) * total * gate),
            (df, f * (1 - f) * total * self.at(self.c, t)),
            (do, o * (1 - o) * e * a),
            (dgate, (1 - gate * gate) * total * i),
            (dc, total * f),
        ])  # fmt: skip
        return [errors, self.add_product(self.W_turned, self.at(self.D, t), self.at(self.e, t))]

    def backward(self) -> None:
        """The steps, then sums over all of them."""
        self.dc.fill(0)
        for run in self.steps_back:
            run()
        self.be.compound_dot(self.D, self.before.T, self.dW_recur)
        self.gradients(self.D)


class OwnGru(PreparedCell):
    """Gates in the order r z candidate."""

    def prepare(self) -> None:
        """r * h of all steps, and the weights of the candidate by themselves."""
        be, n = self.be, self.n
        self.rh, self.q = be.zeros((n, self.T * self.N)), be.zeros((n, self.N))
        self.W_rz, self.W_hh = self.W_recur[: 2 * n], self.W_recur[2 * n :]
        self.dW_rz, self.dW_hh = self.dW_recur[: 2 * n], self.dW_recur[2 * n :]

    def step(self, t: int) -> list[Run]:
        """Two products, each followed by what its gates give."""
        be, n, before, h = self.be, self.n, self.at(self.h, t), self.at(self.h, t + 1)
        rz, rh = self.gate(self.gates, t, 0, 2), self.at(self.rh, t)
        r, z, candidate = (self.gate(self.gates, t, index) for index in range(3))
        opened = be.sig(r + self.b[:n])
        reset = be.prepare([(r, opened), (z, be.sig(z + self.b[n : 2 * n])), (rh, opened * before)])
        new = be.tanh(candidate + self.b[2 * n :])
        update = be.prepare([(candidate, new), (h, (1 - z) * before + z * new)])
        return [self.add_product(self.W_rz, before, rz), reset, self.add_product(self.W_hh, rh, candidate), update]

    def step_back(self, t: int) -> list[Run]:
        """The candidate's error and its product; then the other gates and theirs."""
        be, before, e, e_before = self.be, self.at(self.h, t), self.at(self.e, t + 1), self.at(self.e, t)
        r, z, candidate = (self.gate(self.gates, t, index) for index in range(3))
        dr, dz, inner = (self.gate(self.D, t, index) for index in range(3))
        q, W_hh_turned = self.q, self.W_hh.T
        first = be.prepare([
            (inner, (1 - candidate * candidate) * e * z), (dz, z * (1 - z) * e * (candidate - before)),
        ])  # fmt: skip
        second = be.prepare([(dr, r * (1 - r) * q * before), (e_before, e_before + e * (1 - z) + r * q)])
        product = be.prepare([(q, be.dot(W_hh_turned, inner))])
        return [first, product, second, self.add_product(self.W_rz.T, self.gate(self.D, t, 0, 2), e_before)]

    def backward(self) -> None:
        """The steps, then sums over all of them."""
        for run in self.steps_back:
            run()
        n = self.n
        self.be.compound_dot(self.D[: 2 * n], self.before.T, self.dW_rz)
        self.be.compound_dot(self.D[2 * n :], self.rh.T, self.dW_hh)
        self.gradients(self.D)


CELLS = {"rnn": OwnRnn, "lstm": OwnLstm, "gru": OwnGru}
