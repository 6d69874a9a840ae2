"""Recurrent layers, RNN, LSTM and GRU, forward and with backward, against PyTorch: 20 steps, 256 to 1024 hidden units.

``--quick``: the three cells of 256 and 512 units at N = 32, under a minute on two cores. ``python benchmarks/rnn.py
--help`` lists the options. PyTorch's GRU resets after the recurrent product, so that it needs one a step where ours
needs two, one after the other; it is checked against itself in float64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import _cell_references
import numpy as np
from _cells import CELLS as OWN_CELLS
from _layers import CELL_BATCHES, CELLS, Cell
from _libraries import STORED, Array, Made, Torch, returns
from _precision import PRECISIONS, rounded
from _primitives import Primitives, Problem, values

FORWARD, BOTH = "fprop", "fprop+bprop"
DIRECTIONS: dict[str, float | None] = {FORWARD: 1.2, BOTH: 1.2}
QUICK = [cell.title for cell in CELLS if cell.hidden <= 512]


class Unrolled(Problem):
    """A recurrent layer over all its steps.

    Attributes
    ----------
    arrays : dict of float32 arrays
        W_input (gates, features), W_recur (gates, hidden), b (gates, 1), x (features, steps * N), E (hidden, steps * N)
    """

    def __init__(self, layer: Cell, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.backward = direction == BOTH
        self.flops = layer.flops(N) * (3 if self.backward else 1)
        self.needs = tuple(f"compound_{layer.kind}_unroll_{way}" for way in ("fprop", "bprop"))
        rows, columns = layer.GATES[layer.kind] * layer.hidden, layer.steps * N
        self.arrays = {
            "W_input": values((rows, layer.features), 1, layer.features**-0.5),
            "W_recur": values((rows, layer.hidden), 2, layer.hidden**-0.5),
            "b": values((rows, 1), 3, 0.1),
            "x": values((layer.features, columns), 4),
            "E": values((layer.hidden, columns), 5),
        }

    rounds_within = True

    def round(self) -> None:
        super().round()
        self.arrays = {name: rounded(array) for name, array in self.arrays.items()}

    def cast(self, dtype: Any) -> None:
        super().cast(dtype)
        self.arrays = {name: array.astype(dtype) for name, array in self.arrays.items()}

    def sample(self, *made: Array) -> list[Array]:
        """All."""
        return list(made)

    def reference(self) -> list[Array]:
        """Outputs or gradients."""
        *operands, E = self.arrays.values()
        return _cell_references.unroll(self.layer, *operands, E if self.backward else None)

    def reference_of(self, who: str) -> Callable[[], list[Array]] | None:
        """PyTorch in float64 for its GRU."""
        if self.layer.kind != "gru":
            return None

        def reference() -> list[Array]:
            library = Torch("cpu")
            made = self._torch(library, np.float64)
            made.run()
            return list(made.back(*map(library.get, made.results())))

        return reference

    def ours(self, library: Any) -> Made:
        """The layer from our primitives."""
        cell = OWN_CELLS[self.layer.kind](library.be, self.layer, self.arrays)
        return Made(cell.train if self.backward else cell.forward, lambda: cell.results(self.backward))

    def peer(self, library: Any, who: str) -> Made:
        return self._torch(library, np.float32)

    def _torch(self, library: Any, dtype: Any) -> Made:
        """``torch.nn``'s layer; the second bias is zero."""
        torch, cell = library.torch, self.layer
        W_input, W_recur, b, x, E = (array.astype(dtype) for array in self.arrays.values())
        kind = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell.kind]
        with torch.inference_mode(False):
            precise = torch.bfloat16 if library.way == STORED else getattr(torch, np.dtype(dtype).name)
            layer = kind(cell.features, cell.hidden).to(library.device, precise)
            for parameter, value in zip(layer.parameters(), (W_input, W_recur, b.ravel(), 0 * b.ravel())):
                parameter.data.copy_(library.put(torch_order(cell.kind, value)))
            inputs, errors = (library.put(self._steps(array)) for array in (x, E))
            inputs.requires_grad_(self.backward)
        forward = library.autocast(lambda: layer(inputs)[0])
        if not self.backward:
            return returns(forward, lambda made: [self._columns(made)])

        def both() -> Any:
            with library.gradients():
                return torch.autograd.grad(forward(), (inputs, *layer.parameters()), errors)

        def back(dx: Array, dW_input: Array, dW_recur: Array, db: Array, _: Array) -> list[Array]:
            gates = [torch_order(cell.kind, made) for made in (dW_input, dW_recur, db.reshape(-1, 1))]
            return [self._columns(dx), *gates]

        return returns(both, back)

    def _steps(self, array: Array) -> Array:
        """(features, steps * N) as PyTorch has it, (steps, N, features)."""
        return array.reshape(len(array), self.layer.steps, self.N).transpose(1, 2, 0)

    @staticmethod
    def _columns(array: Array) -> Array:
        """The inverse of :meth:`_steps`."""
        return array.transpose(2, 0, 1).reshape(array.shape[2], -1)


def torch_order(kind: str, rows: Array) -> Array:
    """Our gates in PyTorch's order, and back: i f g o, and r z n."""
    if kind != "lstm":
        return rows
    i, f, o, g = np.split(rows, 4)
    return np.concatenate([i, f, g, o])


SUITE = Primitives(
    "rnn", __doc__, Unrolled, CELLS, DIRECTIONS, QUICK, batches=CELL_BATCHES, peers=("torch",), precisions=PRECISIONS
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
