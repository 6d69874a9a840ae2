"""Recurrent layers, RNN, LSTM and GRU, forward and with backward, against PyTorch: 20 steps, 256 to 1024 hidden units.

``--quick``: the three cells of 256 and 512 units at N = 32, under a minute on two cores. ``python benchmarks/rnn.py
--help`` lists the options. PyTorch's GRU resets after the recurrent product, so that it needs one a step where ours
needs two, one after the other; it is checked against itself in float64.
"""

from __future__ import annotations

import sys
from typing import Any

import _cell_references
import _primitives
import numpy as np
from _cases import Case, Contender
from _cells import CELLS as OWN_CELLS
from _layers import CELL_BATCHES, CELLS, Cell
from _primitives import Peers, Subject, need, own, peer
from _references import Array

FORWARD, BOTH = "fprop", "fprop+bprop"
DIRECTIONS: dict[str, float | None] = {FORWARD: 1.2, BOTH: 1.2}
QUICK = [cell.title for cell in CELLS if cell.hidden <= 512]


class Problem:
    """Weights, inputs and errors of one layer at one minibatch.

    Attributes
    ----------
    arrays : dict of float32 arrays
        W_input (gates, features), W_recur (gates, hidden), b (gates, 1), x (features, steps * N), E (hidden, steps * N)
    """

    def __init__(self, cell: Cell, N: int, direction: str) -> None:
        self.cell, self.N, self.direction, self.backward = cell, N, direction, direction == BOTH
        rows, columns = cell.GATES[cell.kind] * cell.hidden, cell.steps * N
        self.arrays = {
            "W_input": _primitives.values((rows, cell.features), 1, cell.features**-0.5),
            "W_recur": _primitives.values((rows, cell.hidden), 2, cell.hidden**-0.5),
            "b": _primitives.values((rows, 1), 3, 0.1),
            "x": _primitives.values((cell.features, columns), 4),
            "E": _primitives.values((cell.hidden, columns), 5),
        }

    def reference(self) -> list[Array]:
        """Outputs or gradients, in float64."""
        W_input, W_recur, b, x, E = self.arrays.values()
        return _cell_references.unroll(self.cell, W_input, W_recur, b, x, E if self.backward else None)

    def steps(self, array: Array) -> Array:
        """(features, steps * N) as PyTorch has it, (steps, N, features)."""
        return np.ascontiguousarray(array.reshape(len(array), self.cell.steps, self.N).transpose(1, 2, 0))

    @staticmethod
    def columns(array: Array) -> Array:
        """The inverse of :meth:`steps`."""
        return array.transpose(2, 0, 1).reshape(array.shape[2], -1)


def ours(be: Any, problem: Problem) -> Contender:
    """The layer from our primitives."""
    kind = problem.cell.kind
    need(be, f"compound_{kind}_unroll_fprop", f"compound_{kind}_unroll_bprop")
    cell = OWN_CELLS[kind](be, problem.cell, problem.arrays)
    run = cell.train if problem.backward else cell.forward
    return own(run, lambda: cell.result(problem.backward))


def torch_order(kind: str, rows: Array) -> Array:
    """Our gates in PyTorch's order, and back: i f g o, and r z n."""
    if kind != "lstm":
        return rows
    i, f, o, g = np.split(rows, 4)
    return np.concatenate([i, f, g, o])


class TorchCell:
    """``torch.nn``'s layer with a problem's weights; the second bias is zero."""

    def __init__(self, problem: Problem, double: bool = False) -> None:
        import torch

        self.problem, self.torch, cell = problem, torch, problem.cell
        dtype = torch.float64 if double else torch.float32
        kinds = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
        self.layer = kinds[cell.kind](cell.features, cell.hidden).to(dtype)
        W_input, W_recur, b, x, E = problem.arrays.values()
        with torch.no_grad():
            self.layer.weight_ih_l0.copy_(torch.from_numpy(torch_order(cell.kind, W_input)))
            self.layer.weight_hh_l0.copy_(torch.from_numpy(torch_order(cell.kind, W_recur)))
            self.layer.bias_ih_l0.copy_(torch.from_numpy(torch_order(cell.kind, b)).ravel())
            self.layer.bias_hh_l0.zero_()
        self.x = torch.from_numpy(problem.steps(x)).to(dtype).requires_grad_(problem.backward)
        self.g = torch.from_numpy(problem.steps(E)).to(dtype)

    def run(self) -> Any:
        """Outputs, or gradients of the inputs and all weights."""
        if not self.problem.backward:
            return (self.layer(self.x)[0],)
        with self.torch.enable_grad():
            y = self.layer(self.x)[0]
            return self.torch.autograd.grad(y, (self.x, *self.layer.parameters()), self.g)

    def sample(self, made: Any) -> list[Array]:
        """In the order and layout of the reference."""
        kind, maps = self.problem.cell.kind, self.problem.columns(made[0].numpy())
        if not self.problem.backward:
            return [maps]
        weights = [torch_order(kind, made[index].numpy()) for index in (1, 2)]
        return [maps, *weights, torch_order(kind, made[3].numpy()).reshape(-1, 1)]


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch's layer."""
    cell = TorchCell(problem)
    made = peer(name, cell.run, cell.sample)
    if problem.cell.kind != "gru":
        return made

    def reference() -> list[Array]:
        double = TorchCell(problem, double=True)
        return double.sample(double.run())

    return Contender(name, made.run, made.result, reference=reference)


PEERS: Peers = {"torch": torch_peer}


def make_case(be: Any, cell: Cell, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of a layer, forward or forward and backward: ours if there is a backend, and ``peers``."""
    problem = Problem(cell, N, direction)
    return _primitives.make(
        be,
        cell,
        N,
        problem,
        ours,
        peers,
        nbytes=cell.nbytes(N),
        flops=cell.flops(N) * (3 if problem.backward else 1),
    )


SUBJECT = Subject("rnn", f"{__doc__}", CELLS, make_case, PEERS, DIRECTIONS, QUICK, batches=CELL_BATCHES)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
