"""Layers of ``gpu.py`` besides convolution and pooling: batch normalization, lookup tables, recurrent unrolls.

Ours are (features, N) in memory, PyTorch's (N, features). Recurrent layers are those of ``rnn.py``: the product with
all inputs, then the unroll; backward, the gradients of inputs and weights too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import rnn
from _cases import Case, Contender
from _cells import CELLS as OWN_CELLS
from _gpu_contenders import TOLERANCES, Field, Set, contender
from _gpu_conv import Made, _spoil
from _gpu_libraries import Library
from _layers import Cell

Array = np.ndarray[Any, Any]
EPS, PRECISION = 1e-3, "float32"
WHOLE = "neonlike persistent"
"""Ours with all steps of a recurrent layer forward in one launch."""


@dataclass(frozen=True)
class Normalized:
    """Images (C, size, size, N) that are normalized by their batch, in training: forward with relu, backward without.

    (Whether a result is above 0 may depend on rounding; relu's gradient would make that a large error.)
    """

    name: str
    C: int
    size: int
    N: int

    passes = ("fprop", "bprop")


@dataclass(frozen=True)
class Table:
    """A lookup table of ``words`` rows, and a minibatch of ``n`` words, of which few are frequent."""

    name: str
    words: int
    width: int
    n: int

    passes = ("fprop", "bprop")


@dataclass(frozen=True)
class Unrolled:
    """A recurrent layer and its batch size."""

    cell: Cell
    N: int

    passes = ("fprop", "fprop+bprop")

    @property
    def name(self) -> str:
        """What the layer is."""
        return f"{self.cell.text}, N = {self.N}"


Measured = Normalized | Table | Unrolled
LAYERS: tuple[Measured, ...] = (
    Normalized("batch norm 64x112x112", 64, 112, 64),
    Normalized("batch norm 512x7x7", 512, 7, 64),
    Table("50k words of 512", 50_000, 512, 1 << 14),
    Unrolled(Cell("lstm", "1024", 1, "lstm", 1024, 1024), 32),
    Unrolled(Cell("rnn", "1024", 1, "rnn", 1024, 1024), 32),
    Unrolled(Cell("lstm", "512", 1, "lstm", 512, 512, 200), 1),
)
"""For a full run; a quick one takes the first of each."""
EMULATED: tuple[Measured, ...] = (
    Normalized("small batch norm", 3, 8, 32),
    Table("9 words of 5", 9, 5, 40),
    Unrolled(Cell("lstm", "4", 1, "lstm", 4, 3, 3), 2),
)
"""For an emulated GPU."""


def layers(quick: bool, emulated: bool) -> tuple[Measured, ...]:
    """What a run measures."""
    if emulated:
        return EMULATED
    return (LAYERS[0], LAYERS[2], LAYERS[3]) if quick else LAYERS


def layer_case(what: Measured, which: str, field: Field, whole: Any) -> Case:
    """A pass of a layer; ``whole``: ours with the kernels of all steps of recurrent layers."""
    if isinstance(what, Normalized):
        return _case(what, which, field, *_normalized(what, which))
    if isinstance(what, Table):
        return _case(what, which, field, *_looked_up(what, which))
    return _unrolled(what, which, field, whole)


Makers = tuple[Callable[[Any], Made], Callable[[Any], Made]]
"""What make our run and its results, and PyTorch's."""


def _case(what: Any, which: str, field: Field, makers: Makers, wanted: Array, nbytes: int, turn: Any) -> Case:
    """``turn`` brings PyTorch's result into our order."""

    def made(library: Library, name: str, make: Callable[[Any], Made], ours: bool) -> Contender:
        run, results = make(library)
        each = contender(library, name, [Set(run, results, partial(_spoil, library, results))], ours)
        found = each.result if ours else lambda: [turn(each.result()[0])]
        return Contender(name, each.run, found, each.reset, ours, each.elapsed)

    found = [made(field.ours, "neonlike", makers[0], True)]
    refused = {name: why for name, why in field.absent.items() if name == "torch"}
    if torch := field.peers.get("torch"):
        found.append(made(torch, "torch", makers[1], False))
    text, title = f"layer, {what.name} {which}", f"{what.name} {which}"
    return Case(title, text, wanted.size, found, lambda: [wanted], nbytes, TOLERANCES[PRECISION], refused)


# Batch normalization --------------------------------------------------------------------------------------------


def _normalized(what: Normalized, which: str) -> tuple[Makers, Array, int, Any]:
    rng, shape = np.random.default_rng(what.C), (what.C, what.size**2 * what.N)
    x, error = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    gamma, beta = (rng.uniform(0.5, 2, (what.C, 1)).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    mean, deviation = wide.mean(1, keepdims=True), np.sqrt(wide.var(1, keepdims=True) + EPS)
    unit = (wide - mean) / deviation
    part = error - error.mean(1, keepdims=True, dtype=np.float64) - unit * (error * unit).mean(1, keepdims=True)
    wanted = np.maximum(gamma * unit + beta, 0) if which == "fprop" else gamma * part / deviation
    nbytes = (2 if which == "fprop" else 3) * x.nbytes

    def ours(library: Any) -> Made:
        be, given = library.be, [library.put(array) for array in (x, error, gamma, beta)]
        y, statistics = be.empty(shape), [be.zeros((what.C, 1)) for _ in range(4)]
        gradients = [be.zeros((what.C, 1)) for _ in range(2)]

        def forward() -> None:
            be.compound_fprop_bn(given[0], *statistics, *given[2:], y, EPS, 0.9, True, relu=True)

        def backward() -> None:
            be.compound_bprop_bn(y, *gradients, given[1], given[0], *statistics[:2], given[2], EPS)

        forward()
        return (forward if which == "fprop" else backward), lambda: [y]

    def torch(library: Any) -> Made:
        aten, last = library.torch.ops.aten, list[Any]()
        images = [library.put(_turned(array, what)) for array in (x, error)]
        weights = [library.put(array.ravel()) for array in (gamma, beta)]
        moving = [library.put(np.zeros(what.C, np.float32)) for _ in range(2)]
        _, *saved = aten.native_batch_norm(images[0], *weights, *moving, True, 0.1, EPS)

        def run() -> None:
            if which == "fprop":
                last[:] = [aten.native_batch_norm(images[0], *weights, *moving, True, 0.1, EPS)[0].relu_()]
            else:
                last[:] = aten.native_batch_norm_backward(
                    images[1], images[0], weights[0], *moving, *saved, True, EPS, [True] * 3
                )[:1]

        return run, lambda: last

    return (ours, torch), wanted, nbytes, lambda found: found.transpose(1, 2, 3, 0).reshape(shape)


def _turned(array: Array, what: Normalized) -> Array:
    """(N, C, size, size) of (C, size * size * N)."""
    return np.ascontiguousarray(array.reshape(what.C, what.size, what.size, what.N).transpose(3, 0, 1, 2))


# Lookup tables --------------------------------------------------------------------------------------------------


def _looked_up(what: Table, which: str) -> tuple[Makers, Array, int, Any]:
    rng = np.random.default_rng(what.words)
    words = (rng.zipf(1.2, what.n) % what.words).astype(np.int32)
    table = rng.standard_normal((what.words, what.width), dtype=np.float32)
    error = rng.standard_normal((what.width, what.n), dtype=np.float32)
    wanted = table[words].T.astype(np.float64)
    if which == "bprop":
        wanted = np.zeros(table.shape)
        np.add.at(wanted, words, error.T.astype(np.float64))

    def ours(library: Any) -> Made:
        be, given = library.be, [library.put(array) for array in (words.reshape(1, -1), table, error)]
        out, gradient = be.empty(error.shape), be.zeros(table.shape)

        def forward() -> None:
            out[:] = be.take(given[1], given[0], 0).T

        def backward() -> None:
            gradient.fill(0)
            be.compound_bprop_lut(1, given[0], given[2], None, gradient)

        return (forward, lambda: [out]) if which == "fprop" else (backward, lambda: [gradient])

    def torch(library: Any) -> Made:
        aten, last = library.torch.ops.aten, list[Any]()
        given = [library.put(array) for array in (words.astype(np.int64), table, np.ascontiguousarray(error.T))]

        def run() -> None:
            if which == "fprop":
                last[:] = [aten.embedding(given[1], given[0])]
            else:
                last[:] = [aten.embedding_dense_backward(given[2], given[0], what.words, -1, False)]

        return run, lambda: last

    nbytes = words.nbytes + (2 * error.nbytes if which == "fprop" else error.nbytes + table.nbytes)
    return (ours, torch), wanted, nbytes, (lambda found: found.T) if which == "fprop" else (lambda found: found)


# Recurrent layers -----------------------------------------------------------------------------------------------


def _unrolled(what: Unrolled, which: str, field: Field, whole: Any) -> Case:
    problem = rnn.Problem(what.cell, what.N, which)
    found = [_own_unrolled(field.ours, "neonlike", problem)]
    refused = {name: why for name, why in field.absent.items() if name == "torch"}
    if _is_whole(whole.be, what):
        found.append(_own_unrolled(whole, WHOLE, problem))
    else:
        refused[WHOLE] = "the recurrent weight does not fit the shared memory of this GPU"
    if torch := field.peers.get("torch"):
        found.append(_torch_unrolled(torch, problem))
    cells, flops = what.cell.nbytes(what.N), what.cell.flops(what.N) * (3 if problem.backward else 1)
    text = f"layer, {what.name} {which}"
    return Case(
        f"{what.name} {which}", text, what.N, found, problem.reference, cells, TOLERANCES[PRECISION], refused,
        flops=flops,
    )  # fmt: skip


def _own_unrolled(library: Any, name: str, problem: rnn.Problem) -> Contender:
    cell = OWN_CELLS[problem.cell.kind](library.be, problem.cell, problem.arrays)

    def results() -> list[Any]:
        return [cell.dx, cell.dW_input, cell.dW_recur, cell.db] if problem.backward else [cell.outputs]

    run = cell.train if problem.backward else cell.forward
    return contender(library, name, [Set(run, results, partial(_spoil, library, results))], ours=True)


def _is_whole(be: Any, what: Unrolled) -> bool:
    """Whether all steps forward are one launch where that is asked for."""
    from neonlike.backends.gpu.primitives import rnn_persistent as persistent

    kind = {"rnn": persistent.SIMPLE, "lstm": persistent.LSTM, "gru": persistent.GRU}[what.cell.kind]
    return persistent.form(kind.gates, what.cell.hidden, what.N, 4, be.device.capabilities) is not None


def _torch_unrolled(library: Any, problem: rnn.Problem) -> Contender:
    """PyTorch's layer, which is cuDNN's, without TF32."""
    torch, last = library.torch, list[Any]()
    with torch.inference_mode(False):
        cell = rnn.TorchCell(problem)
        cell.layer = cell.layer.to(library.device)
        cell.x = cell.x.detach().to(library.device).requires_grad_(problem.backward)
        cell.g = cell.g.to(library.device)

    def run() -> None:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        with torch.inference_mode(not problem.backward):
            last[:] = cell.run()

    def result() -> list[Any]:
        library.synchronize()
        return cell.sample([made.detach().cpu() for made in last])

    return Contender("torch", run, result, last.clear, False, lambda loops: library.elapsed(run, loops))
