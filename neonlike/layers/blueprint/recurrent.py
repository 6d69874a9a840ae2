"""Recurrent networks of one or several layers, in one direction or both, on sequences (features, steps, N)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import ArgumentError, ShapeError
from neonlike.initializers import Constant
from neonlike.layers.blueprint.activations import Activation
from neonlike.layers.blueprint.base import Blueprint, room, working
from neonlike.layers.blueprint.bothways import BothWays, add_final_errors, errors_passed
from neonlike.layers.blueprint.built import BuiltLayer, blend, flat
from neonlike.layers.recurrent import GRU, LSTM, BiLSTM, BiRNN, BiSum, Recurrent
from neonlike.transforms import Logistic

ONE_WAY, CONCAT, SUM = DIRECTIONS = "unidirectional", "bidirectional_concat", "bidirectional_sum"

CELLS: dict[tuple[str, bool], Any] = {
    ("rnn", False): Recurrent, ("lstm", False): LSTM, ("gru", False): GRU, ("rnn", True): BiRNN, ("lstm", True): BiLSTM,
}  # fmt: skip
"""Kind of cell, and whether it reads both ways -> layer."""
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


@dataclass(frozen=True)
class Rnn(Blueprint):
    """Recurrent layers on top of each other.

    Attributes
    ----------
    dst : TensorDesc
        (features, steps, N)
    cell : "rnn", "lstm" or "gru"
    activation : Activation
        Of the new state.
    direction : str
        "unidirectional"; or both, whose outputs lie side by side ("bidirectional_concat") or are added up
        ("bidirectional_sum").
    layers : int
    src_iter, dst_iter : bool
        Whether the states before the first step are given, and those after the last one handed out.
    """

    dst: TensorDesc
    cell: str
    activation: Activation
    direction: str
    layers: int
    src_iter: bool
    dst_iter: bool

    kind = "rnn"

    @property
    def dst_desc(self) -> TensorDesc:  # type: ignore[override]
        """The output."""
        return self.dst

    @property
    def both_ways(self) -> bool:
        """Whether there are two directions."""
        return self.direction != ONE_WAY

    @property
    def ways(self) -> int:
        """How many directions."""
        return 2 if self.both_ways else 1

    @property
    def units(self) -> int:
        """Units of a layer and direction."""
        return self.dst.shape[0] // (2 if self.direction == CONCAT else 1)

    def checked(self) -> Rnn:
        """The blueprint, if there is such a layer.

        Raises
        ------
        ArgumentError
            If there is no such direction.
        ShapeError
            If the output of two directions has an odd number of features.
        """
        if self.direction not in DIRECTIONS:
            raise ArgumentError(f"{self}: there is no direction {self.direction!r}, only {', '.join(DIRECTIONS)}")
        if self.direction == CONCAT and self.dst.shape[0] % 2:
            raise ShapeError(f"{self}: two directions side by side make an even number of features")
        return self

    @property
    def train_workspace_bytes(self) -> int:  # type: ignore[override]
        """Two buffers for errors between layers, which overwrite them, and a copy of the largest weight gradient."""
        return 2 * room(self.error_desc) + max(map(room, self.weights_desc))

    @property
    def error_desc(self) -> TensorDesc:
        """The largest error between layers."""
        return TensorDesc((self.ways * self.units, *self.dst.shape[1:]), self.dst.dtype, self.dst.layout)

    @property
    def weights_desc(self) -> tuple[TensorDesc, ...]:
        """The weights of each layer: rows of the input and of the state, gates * units columns."""
        inputs = [self.src_desc.shape[0], *[self.dst.shape[0]] * (self.layers - 1)]
        return tuple(self._gates(self.ways * (rows + self.units)) for rows in inputs)

    @property
    def bias_desc(self) -> tuple[TensorDesc, ...]:
        """The biases of each layer, a row for each direction."""
        return (self._gates(self.ways),) * self.layers

    def _gates(self, rows: int) -> TensorDesc:
        return TensorDesc((rows, GATES[self.cell] * self.units), self.dst.dtype, "IO")

    def layer_class(self) -> Any:
        """The class of the layers."""
        return RnnLayer

    def __str__(self) -> str:
        several = "" if self.layers == 1 else f", {self.layers} layers"
        cell = self.cell if self.cell != "rnn" else str(self.activation)
        return f"{super().__str__()}, {cell}, {self.direction}{several}"


class RnnLayer(BuiltLayer):
    """A blueprint of the recurrent layers of :mod:`neonlike.layers.recurrent`.

    Attributes
    ----------
    weights, bias, diff_weights, diff_bias : tuple of Tensor
        Of each layer, ``(rows of all parts, gates * units)``; views of one tensor a layer.
    weights_layer, weights_iter, bias_layer : tuple of Tensor
        Of each layer, and direction: ``(gates * units, inputs)``, ``(gates * units, units)``, ``(gates * units, 1)``.
    bias_iter : tuple
        Empty: cells have one bias.
    src_iter, dst_iter : tuple of tuple of Tensor ``(units, N)``, or None
        For each layer, the states before the first step, which are read, and after the last: h, of an LSTM h and c; in
        both directions those of the forward one, then those of the backward one, which begins at the last step.
    diff_src_iter, diff_dst_iter : tuple of tuple of Tensor, or None
        Gradients by these: the former are written, the latter read.
    """

    draws_weights = True
    bias_iter: tuple[Any, ...] = ()

    def _allocate(self) -> None:
        bp = self.blueprint
        self._x = flat(self.input, bp.src_desc.shape[0])
        with working(self.be, self._desc):
            self.chain = self._make_chain()
        self.cells = [layer for layer in self.chain if not isinstance(layer, BiSum)]
        ways = bp.ways
        self.weights, self.bias = zip(*((cell.W[:-ways], cell.W[-ways:]) for cell in self.cells))
        self.diff_weights, self.diff_bias = zip(*((cell.dW[:-ways], cell.dW[-ways:]) for cell in self.cells))
        suffixes = ("_f", "_b") if bp.both_ways else ("",)
        self.weights_layer, self.weights_iter, self.bias_layer = (
            tuple(getattr(cell, name + way) for cell in self.cells for way in suffixes)
            for name in ("W_input", "W_recur", "b")
        )
        self._allocate_states()
        if self.train:
            self._allocate_errors()

    def _make_chain(self) -> list[Any]:
        bp = self.blueprint
        chain: list[Any] = []
        before = bp.src_desc.shape[:2]
        for _ in range(bp.layers):
            options: dict[str, Any] = {"init": Constant(0), "activation": bp.activation.make(), "reset_cells": True}
            if bp.cell != "rnn":
                options["gate_activation"] = Logistic()
            cell: Any = CELLS.get((bp.cell, bp.both_ways))
            if bp.both_ways and (cell is None or bp.src_iter or bp.dst_iter):
                chain.append(BothWays(bp.cell, bp.units, **options))
            else:
                chain.append(cell(bp.units, **options))
            if bp.direction == SUM:
                chain.append(BiSum())
        for layer in chain:
            layer.configure(before)
            before = layer.out_shape
            layer.allocate(shared_outputs=flat(self.output, bp.dst.shape[0]) if layer is chain[-1] else None)
        return chain

    def _allocate_states(self) -> None:
        bp = self.blueprint
        shape, count = (bp.units, bp.src_desc.shape[-1]), bp.ways * (2 if bp.cell == "lstm" else 1)

        def states() -> tuple[Any, ...]:
            desc = TensorDesc(shape, self._dtype)
            return tuple(tuple(self._new(desc) for _ in range(count)) for _ in self.cells)

        self.src_iter = states() if bp.src_iter else None
        self.dst_iter = states() if bp.dst_iter else None
        self.diff_src_iter = self.diff_dst_iter = None
        if self.train and bp.src_iter:
            self.diff_src_iter = tuple(tuple(errors_passed(cell)) for cell in self.cells)
        if self.train and bp.dst_iter:
            self.diff_dst_iter = states()

    def _allocate_errors(self) -> None:
        """Let layers write their errors into two buffers in turn, and the first one into ``diff_input``."""
        bp = self.blueprint
        columns = bp.dst.shape[1] * bp.dst.shape[2]
        buffers = self.workspace.tensors(bp.error_desc, bp.error_desc)
        self._error = buffers[0].share((bp.dst.shape[0], columns))
        for position, layer in enumerate(reversed(self.chain[1:]), start=1):
            layer.deltas = buffers[position % 2].share((layer.in_shape[0], columns))
        if self.diff_input is not None:
            self.chain[0].deltas = flat(self.diff_input, bp.src_desc.shape[0])

    @property
    def parameters(self) -> tuple[Any, ...]:
        """All weights, then all biases."""
        return (*self.weights, *self.bias)

    def get_params(self) -> list[Any]:
        """The parameters of each layer, ``((W, dW), states)``: weights and biases together."""
        return [cell.get_params() for cell in self.cells]

    def _init(self, fn: Any, bias: Any) -> None:
        units = self.blueprint.units
        for weights in (*self.weights_layer, *self.weights_iter):
            for first in range(0, weights.shape[0], units):  # gate by gate, as their fan-out is
                fn(weights[first : first + units])
        for biases in self.bias_layer:
            bias(biases)

    def _forward(self, inference: bool) -> None:
        x = self._x
        for layer in self.chain:
            given = {}
            if self.src_iter is not None and layer in self.cells:
                given["init_state"] = list(self.src_iter[self.cells.index(layer)])
            x = layer.fprop(x, inference, **given)
        for states, cell in zip(self.dst_iter or (), self.cells):
            for state, value in zip(states, cell.get_state()):
                state[:] = value

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        error = self._error
        error[:] = flat(self.diff_output, self.blueprint.dst.shape[0])
        for layer in reversed(self.chain):
            if layer not in self.cells:
                error = layer.bprop(error)
                continue
            level = self.cells.index(layer)
            if self.diff_dst_iter is not None:
                add_final_errors(layer, error, self.diff_dst_iter[level])
            gradient, before = self.diff_weights[level], None
            if scale_g:
                offset = 2 * room(self.blueprint.error_desc)
                before = self.workspace.tensor(gradient.shape, self._dtype, offset)
                before[:] = gradient
            error = layer.bprop(error)
            if before is not None:
                gradient[:] = scale_dw * gradient + scale_g * before
            elif scale_dw != 1:
                gradient[:] = scale_dw * gradient
            blend(self.bias[level], self.diff_bias[level], scale_db, scale_b)
