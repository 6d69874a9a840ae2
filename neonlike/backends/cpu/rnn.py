"""Recurrent unrolls as one compiled call each: the hooks of ``families/rnn.py`` and ``families/rnn_gated.py``.

Each step is a product of packed matrices whose epilogue is the whole cell (see ``templates/c/rnn_steps.h``). What the
kernels do not support (float16, activations that are not elementwise, samples that are not contiguous) runs step by
step as the families define it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from neonlike.backends.cpu.compiled import CompiledFamily
from neonlike.backends.cpu.rnn_formula import Formula, functions, trace
from neonlike.backends.families.operands import host
from neonlike.backends.families.rnn import RecurrentFamily
from neonlike.backends.families.rnn_steps import Steps, Unroll
from neonlike.kernels.c.routine import INT, POINTER, REAL_TYPES, VECMATH, Routine, address, threads_for
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.workspace import workspace

ARGUMENTS = (POINTER, POINTER, INT, INT, INT, POINTER, INT, INT, POINTER, POINTER, POINTER, INT)
HEADERS = ("rnn_steps.h", "gemm_tile.h", *VECMATH)
SIMPLE, LSTM, GRU = (
    Routine(f"c/rnn_{kind}.c.j2", ARGUMENTS, f"{kind} unroll", HEADERS) for kind in ("simple", "lstm", "gru")
)
PARALLEL_PRODUCTS = 1 << 19
"""Multiplications of a step below which barriers between threads cost more than threads save."""
MOST_LANES, MOST_ROWS = 16, 12
"""Largest tile of the kernels, to whose multiples packed matrices may be padded."""


class RecurrentKernels(CompiledFamily, RecurrentFamily):
    """Overrides of the hooks of RecurrentFamily and GatedFamily."""

    def _rnn_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> None:
        formulas = {"act": trace(self, request.activation, request.dtype)}
        in_place = (("h_s", "h_ff_s"),)
        if not _run(self.compiler, SIMPLE, steps, weight, bias, formulas, buffers=2, in_place=in_place, backward=False):
            super()._rnn_fprop(request, steps, weight, bias)

    def _rnn_bprop(self, request: Unroll, steps: Steps, weight: Any) -> None:
        formulas = {"slope": trace(self, request.activation.bprop, request.dtype)}
        if not _run(self.compiler, SIMPLE, steps, weight, None, formulas, buffers=2, backward=True):
            super()._rnn_bprop(request, steps, weight)

    def _lstm_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> None:
        formulas = self._formulas(request)
        in_place = (("ifog_s", "ifog_ff_s"), ("c_s", "c_prev_s"))
        if not _run(self.compiler, LSTM, steps, weight, bias, formulas, buffers=2, in_place=in_place, backward=False):
            super()._lstm_fprop(request, steps, weight, bias)

    def _lstm_bprop(self, request: Unroll, steps: Steps, weight: Any) -> None:
        formulas = self._slopes(request)
        in_place = (("c_delta_s", "c_delta_prev_s"),)
        if not _run(self.compiler, LSTM, steps, weight, None, formulas, buffers=8, in_place=in_place, backward=True):
            super()._lstm_bprop(request, steps, weight)

    def _gru_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> None:
        formulas = self._formulas(request)
        in_place = (("rzn_s", "rzn_ff_s"), ("h_s", "h_prev_s"))
        if not _run(self.compiler, GRU, steps, weight, bias, formulas, buffers=3, in_place=in_place, backward=False):
            super()._gru_fprop(request, steps, weight, bias)

    def _gru_bprop(self, request: Unroll, steps: Steps, weight: Any) -> None:
        formulas = self._slopes(request)
        in_place = (("delta_s", "delta_prev_s"),)
        if not _run(self.compiler, GRU, steps, weight, None, formulas, buffers=6, in_place=in_place, backward=True):
            super()._gru_bprop(request, steps, weight)

    def _formulas(self, request: Unroll) -> dict[str, Formula | None]:
        """The activations of a gated unroll."""
        functions = {"act": request.activation, "gate_act": request.gate_activation}
        return {name: trace(self, function, request.dtype) for name, function in functions.items()}

    def _slopes(self, request: Unroll) -> dict[str, Formula | None]:
        """Their derivatives."""
        functions = {"slope": request.activation.bprop, "gate_slope": request.gate_activation.bprop}
        return {name: trace(self, function, request.dtype) for name, function in functions.items()}


def _run(
    compiler: Compiler | None,
    routine: Routine,
    steps: Steps,
    weight: Any,
    bias: Any,
    formulas: dict[str, Formula | None],
    buffers: int,
    backward: bool,
    in_place: Sequence[tuple[str, str]] = (),
) -> bool:
    """Compute ``steps`` by ``routine``; False if it cannot, and nothing was done.

    Parameters
    ----------
    buffers : int
        Packed matrices of the size of a state that the kernel keeps.
    in_place : pairs of roles
        Those whose tensors may be the same, but must not overlap otherwise.
    """
    known = {name: formula for name, formula in formulas.items() if formula is not None}
    real = REAL_TYPES.get(steps.dtype)
    strides = _row_strides(steps)
    if len(known) != len(formulas) or real is None or strides is None:
        return False
    if not all(_same_or_apart(a, b, steps) for a, b in in_place):
        return False
    text, numbers = functions(known)
    function = routine.variant(compiler, real=real, backward=backward, activation=text)
    if function is None:
        return False
    units, samples = steps.units, steps.samples
    columns = -(-samples // MOST_LANES) * MOST_LANES
    work = workspace(buffers * columns * units + weight.size + 4 * MOST_ROWS * units, steps.dtype)
    pointers = [0 if tensor is None else tensor.address for role in steps.roles.values() for tensor in role]
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    row_steps = (ctypes.c_int64 * len(strides))(*strides)
    constants = (ctypes.c_double * max(1, len(numbers)))(*numbers)
    bias_values = None if bias is None else host(bias)
    function(
        ctypes.addressof(table), ctypes.addressof(row_steps), len(steps), units, samples,
        weight.address, *weight.strides, address(bias_values), ctypes.addressof(constants), address(work),
        threads_for(weight.size * samples, PARALLEL_PRODUCTS),
    )  # fmt: skip
    return True


def _row_strides(steps: Steps) -> list[int] | None:
    """Elements from row to row of each role's tensors; None if samples are not neighbours somewhere."""
    size, found = steps.dtype.itemsize, list[int]()
    for tensors in steps.roles.values():
        for tensor in tensors:
            row, column = (0, size) if tensor is None else tensor.geometry[1]
            if column != size and steps.samples > 1:
                return None
            found.append(row // size)
    return found


def _same_or_apart(a: str, b: str, steps: Steps) -> bool:
    """Whether in each step the tensors of both roles are the same elements, or share no memory."""
    for mine, its in steps.each(a, b):
        if mine is its or mine is None or its is None:
            continue
        if mine.geometry == its.geometry and mine.geometry[1][1] == steps.dtype.itemsize:
            pitch, width = abs(mine.geometry[1][0]), steps.samples * steps.dtype.itemsize
            if pitch and width <= (mine.address - its.address) % pitch <= pitch - width:
                continue  # disjoint columns of one matrix
        if mine.alias_of(its) == 2:
            return False
    return True
