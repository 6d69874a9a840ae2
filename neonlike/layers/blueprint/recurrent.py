"""Recurrent networks of one or several layers, in one direction or both, on sequences (features, steps, N)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import ArgumentError, ShapeError
from neonlike.initializers import Constant
from neonlike.layers.blueprint.activations import Activation
from neonlike.layers.blueprint.base import Blueprint, room, working
from neonlike.layers.blueprint.built import BuiltLayer, Scales
from neonlike.layers.blueprint.wrapped import connected, in_rows
from neonlike.layers.recurrent import GRU, LSTM, BiLSTM, BiRNN, BiSum, Recurrent
from neonlike.layers.recurrent.both_ways import BothWays
from neonlike.transforms import Logistic

ONE_WAY, CONCAT, SUM = DIRECTIONS = "unidirectional", "bidirectional_concat", "bidirectional_sum"
CELLS: dict[str, tuple[Any, Any]] = {"rnn": (Recurrent, BiRNN), "lstm": (LSTM, BiLSTM), "gru": (GRU, None)}
"""Kind of cell -> its layer, and the layer that reads both ways from states of 0."""


class RnnLayer(BuiltLayer):
    """Recurrent layers of :mod:`neonlike.layers.recurrent`.

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

    bias_iter: tuple[Any, ...] = ()

    def _allocate(self) -> None:
        bp = self.blueprint
        self._x, y = in_rows(self.input, bp.src_desc.shape[:-1]), in_rows(self.output, bp.dst_desc.shape[:-1])
        self._chain, self.layers = bp.connected()
        self.cells = cells = [layer for layer in self.layers if layer.has_params]
        for cell in cells:
            cell.takes_gradients = self.train
        for layer in self.layers:
            layer.allocate(shared_outputs=y if layer is self.layers[-1] else None)
        self.weights, self.bias = zip(*((cell.W[: -bp.ways], cell.W[-bp.ways :]) for cell in cells))
        suffixes = ("_f", "_b") if bp.ways == 2 else ("",)
        self.weights_layer, self.weights_iter, self.bias_layer = (
            tuple(getattr(cell, name + way) for cell in cells for way in suffixes)
            for name in ("W_input", "W_recur", "b")
        )
        self.src_iter = self._states() if bp.src_iter else None
        self.dst_iter = self._states() if bp.dst_iter else None
        self.diff_src_iter = self.diff_dst_iter = None
        if self.train:
            self.diff_weights, self.diff_bias = zip(*((cell.dW[: -bp.ways], cell.dW[-bp.ways :]) for cell in cells))
            self.diff_src_iter = tuple(tuple(cell.errors_passed()) for cell in cells) if bp.src_iter else None
            self.diff_dst_iter = self._states() if bp.dst_iter else None
            self._place_errors()

    def _states(self) -> tuple[Any, ...]:
        """New tensors for the states of each layer."""
        bp = self.blueprint
        count = bp.ways * (2 if bp.cell == "lstm" else 1)
        desc = TensorDesc((bp.units, self._desc.shape[-1]), self._desc.dtype)
        return tuple(tuple(self._new(desc) for _ in range(count)) for _ in self.cells)

    def _place_errors(self) -> None:
        """Let layers write their errors into two buffers in turn, and the first one into ``diff_input``."""
        bp = self.blueprint
        columns = self._x.shape[1]
        buffers = self.workspace.tensors(bp.error_desc, bp.error_desc)
        self._error = buffers[0].share((bp.dst_desc.shape[0], columns))
        for position, layer in enumerate(reversed(self.layers[1:]), start=1):
            layer.deltas = buffers[position % 2].share((layer.in_shape[0], columns))
        self.layers[0].deltas = in_rows(self.diff_input, bp.src_desc.shape[:-1])

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
        for states, cell in zip(self.src_iter or (), self.cells):
            cell.set_state(list(states))
        self._chain.fprop(self._x, inference)
        for states, cell in zip(self.dst_iter or (), self.cells):
            for state, value in zip(states, cell.get_state()):
                state[:] = value

    def _backward_diff(self, scales: Scales) -> None:
        error = self._error
        error[:] = in_rows(self.diff_output, self.blueprint.dst_desc.shape[:-1])
        for layer in reversed(self.layers):
            if layer not in self.cells:
                error = layer.bprop(error)
                continue
            level, old = self.cells.index(layer), None
            if self.diff_dst_iter is not None:
                layer.add_final_errors(error, self.diff_dst_iter[level])
            if scales.g:
                offset = 2 * room(self.blueprint.error_desc)
                old = self.workspace.tensor(self.diff_weights[level].shape, self._desc.dtype, offset)
                old[:] = self.diff_weights[level]
            error = layer.bprop(error)
            scales.apply(self.diff_weights[level], old)
            scales.move(self.bias[level], self.diff_bias[level])


@dataclass(frozen=True)
class Rnn(Blueprint):
    """A blueprint of recurrent layers on top of each other.

    Attributes
    ----------
    activation : Activation
        Of the new state.
    direction : str
        "unidirectional"; or both, whose outputs lie side by side ("bidirectional_concat") or are added up
        ("bidirectional_sum").
    layers : int
        The number of layers.
    src_iter, dst_iter : bool
        Whether the states before the first step are given, and those after the last one handed out.
    weights_desc, bias_desc : tuple of TensorDesc
        Of each layer: rows of the input and of the state, gates * units columns; a row for each direction.
    cell : str
        "rnn", "lstm" or "gru".
    """

    cell: str
    activation: Activation
    direction: str
    layers: int
    src_iter: bool
    dst_iter: bool

    layer_class = RnnLayer

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise ArgumentError(f"{self}: there is no direction {self.direction!r}, only {', '.join(DIRECTIONS)}")
        if self.direction == CONCAT and self.dst_desc.shape[0] % 2:
            raise ShapeError(f"{self}: two directions side by side make an even number of features")

    @property
    def ways(self) -> int:
        """The number of directions."""
        return 1 if self.direction == ONE_WAY else 2

    @property
    def units(self) -> int:
        """Units of a layer and direction."""
        return self.dst_desc.shape[0] // (2 if self.direction == CONCAT else 1)

    def connected(self) -> tuple[Any, list[Any]]:
        """New layers that know their shapes and have no memory, see :func:`.wrapped.connected`."""
        made: list[Any] = []
        one_way, both_ways = CELLS[self.cell]
        with working(self.be, self.src_desc):
            for _ in range(self.layers):
                options = {"init": Constant(0), "activation": self.activation.make(), "reset_cells": True}
                if self.cell != "rnn":
                    options["gate_activation"] = Logistic()
                if self.ways == 1:
                    made.append(one_way(self.units, **options))
                elif both_ways is None or self.src_iter or self.dst_iter:
                    made.append(BothWays(one_way, self.units, **options))
                else:
                    made.append(both_ways(self.units, **options))
                if self.direction == SUM:
                    made.append(BiSum())
            return connected(made, self.src_desc.shape[:-1])

    @cached_property
    def _weight_shapes(self) -> list[tuple[int, int]]:
        """Rows of weights and biases together, and columns, of each layer."""
        return [layer.weight_shape for layer in self.connected()[1] if layer.has_params]

    @property
    def weights_desc(self) -> tuple[TensorDesc, ...]:
        """The weights."""
        return tuple(TensorDesc((m - self.ways, n), self.dst_desc.dtype, "IO") for m, n in self._weight_shapes)

    @property
    def bias_desc(self) -> tuple[TensorDesc, ...]:
        """The biases."""
        return tuple(TensorDesc((self.ways, n), self.dst_desc.dtype, "IO") for _, n in self._weight_shapes)

    @property
    def error_desc(self) -> TensorDesc:
        """The largest error between layers."""
        return TensorDesc((self.ways * self.units, *self.dst_desc.shape[1:]), self.dst_desc.dtype, self.dst_desc.layout)

    @property
    def train_workspace_bytes(self) -> int:  # type: ignore[override]
        """Bytes of two buffers for errors between layers, and of a copy of the largest weight gradient."""
        return 2 * room(self.error_desc) + max(map(room, self.weights_desc))

    def __str__(self) -> str:
        several = "" if self.layers == 1 else f", {self.layers} layers"
        cell = self.cell if self.cell != "rnn" else str(self.activation)
        return f"{super().__str__()}, {cell}, {self.direction}{several}"
