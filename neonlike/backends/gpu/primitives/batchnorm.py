"""CUDA kernels for the hooks of ``BatchNormFamily``.

A row that fits into the registers of a block is read once: one launch finds its statistics and writes its results.
Longer rows are cut into parts, a block each: one launch finds the moments of the parts, and the next one merges them,
in each block in the same order, and writes the results. How a row is cut follows from sizes and dtype alone, and so do
the order of all sums and the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import Any, NamedTuple

from neonlike.backends.geometry.counts import power_of_two
from neonlike.backends.gpu.primitives.calls import Draft, Launched, device_call
from neonlike.backends.gpu.primitives.elements import conversions
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.primitives.batchnorm.family import BatchNormBackward, BatchNormFamily, BatchNormForward
from neonlike.kernels.cuda.device import Device, Size3
from neonlike.kernels.cuda.fit import ALIGNMENT
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import DType, compute_dtype

FPROP_FLAGS = ("GIVEN_SUM", "INFERENCE", "RELU", "BINARY")
BPROP_FLAGS = ("RELU", "BINARY", "OWN_SUM")
"""Names of the bits of ``flags`` in the templates."""
FPROP = CudaRoutine("cuda/batchnorm/fprop.cu.j2", "9Q4q4dq", "batch normalisation")
BPROP = CudaRoutine("cuda/batchnorm/bprop.cu.j2", "10Q4q5dq", "gradients of batch normalisation")

FPROP_BYTES, BPROP_BYTES = 112, 64
"""Bytes of a row that a thread keeps in registers, of each array that it reads."""
WHOLE_THREADS, PART_THREADS, SHORT_THREADS = 512, 256, 256
"""Most threads of a row that is one block's; of a block that takes a part of a row; of a block of short rows."""
MOST_TURNS = 16
"""Of a thread before anything leaves its registers: more, of single elements, would not fit into these."""
FEWEST_THREADS, ENOUGH_PARTS = 64, 256
"""Parts shrink down to so few threads each until there are so many of them in all."""
MOST_PARTS = 256
"""Of a row; longer ones have longer parts, which a block takes in turns."""
CELL = 16
"""Bytes of what a launch leaves about a part."""


class Cut(NamedTuple):
    """How rows are shared among threads.

    Attributes
    ----------
    vector, turns : int
        Consecutive elements that a thread takes at once, and how often it does before anything leaves its registers.
    block, grid : (int, int, int)
        Threads of a row along x, rows of a block along y.
    parts, part : int
        Of each row, and elements of one; one part: a block has whole rows.
    """

    vector: int
    turns: int
    block: Size3
    grid: Size3
    parts: int
    part: int

    @property
    def cells(self) -> int:
        """Parts of all rows."""
        return self.grid[0] if self.parts > 1 else 0


@lru_cache(maxsize=1024)
def cut(dims: tuple[int, int], itemsize: int, computed: int, held: int) -> Cut:
    """How rows (nfm, M) = ``dims`` are shared among threads, each of which keeps ``held`` bytes of a row.

    Parameters
    ----------
    dims : (int, int)
    itemsize, computed : int
        Bytes of an element in memory, and of the type it is computed in.
    held : int
    """
    rows, length = dims
    vector = ALIGNMENT // itemsize
    while length % vector:
        vector //= 2
    share = held // max(itemsize, computed)
    if length <= 32 * vector:
        threads = power_of_two(-(-length // vector))
        count = SHORT_THREADS // threads
        return Cut(vector, 1, (threads, count, 1), (-(-rows // count), 1, 1), 1, length)
    turns = min(max(share // vector, 1), MOST_TURNS)
    share = turns * vector
    if length <= WHOLE_THREADS * share:
        threads = max(32, power_of_two(-(-length // share)))
        count = 4 if threads == 32 else 1
        return Cut(vector, turns, (threads, count, 1), (-(-rows // count), 1, 1), 1, length)
    threads = PART_THREADS
    while threads > FEWEST_THREADS and rows * -(-length // (threads * share)) < ENOUGH_PARTS:
        threads //= 2
    chunk = threads * share
    part = chunk * -(-length // (MOST_PARTS * chunk))
    parts = -(-length // part)
    return Cut(vector, turns, (threads, 1, 1), (rows * parts, 1, 1), parts, part)


class BatchNormCuda(BatchNormFamily):
    """Overrides of BatchNormFamily's hooks."""

    device: Device

    def _fprop_bn(
        self, request: BatchNormForward, x: Any, xsum: Any, xvar: Any, gmean: Any, gvar: Any, gamma: Any, beta: Any,
        y: Any,
    ) -> KernelCall | None:  # fmt: skip
        kind = compute_dtype(x.dtype)
        with ExitStack() as ends:
            if request.inference:
                statistics = [None, None, plain(gmean, kind), plain(gvar, kind)]
            else:
                kept = request.given_sum, False, request.rho != 0, request.rho != 0
                given = zip((xsum, xvar, gmean, gvar), kept)
                statistics = [ends.enter_context(stored(tensor, keep, kind)) for tensor, keep in given]
            result = ends.enter_context(stored(y, keep=request.accumbeta != 0))
            operands = [plain(x), *statistics, plain(gamma, kind), plain(beta, kind), result]
            return device_call(partial(_forward_program, self.device, request, x.dtype), operands)

    def _bprop_bn(
        self, request: BatchNormBackward, delta_out: Any, grad_gamma: Any, grad_beta: Any, delta_in: Any, x: Any,
        xsum: Any, xvar: Any, gamma: Any, y: Any,
    ) -> KernelCall | None:  # fmt: skip
        kind = compute_dtype(x.dtype)
        with ExitStack() as ends:
            out = ends.enter_context(stored(delta_out, keep=request.beta_data != 0))
            keep = request.beta_param != 0
            gradients = [ends.enter_context(stored(tensor, keep, kind)) for tensor in (grad_gamma, grad_beta)]
            rows = [plain(tensor, kind) for tensor in (xsum, xvar, gamma)]
            operands = [out, *gradients, plain(delta_in), plain(x), *rows, None if y is None else plain(y)]
            choose = partial(_backward_program, self.device, request, x.dtype, y is not None)
            return device_call(choose, operands)


def _forward_program(device: Device, request: BatchNormForward, dtype: DType, aligned: bool) -> Draft:
    form = cut(request.dims, dtype.itemsize, compute_dtype(dtype).itemsize, FPROP_BYTES)
    phases = _forward_phases(form, request)
    flags = request.given_sum, request.inference, request.relu, request.binary
    numbers = request.eps, request.rho, request.alpha, request.accumbeta, _bits(*flags)
    program, cells = Draft(device), (2 if "around" in phases else 1) * form.cells * CELL
    places = [None if request.inference and slot in (1, 2) else Place(slot) for slot in range(8)]
    places.append(program.room(cells) if cells else None)
    for phase in phases:
        small = form.turns <= MOST_TURNS // 2 and dtype.itemsize < 8  # what a thread keeps besides its elements
        blocks = _blocks_of_parts(form) if phase != "whole" else 2 if small else 1
        context = _context(form, dtype, aligned, FPROP_FLAGS, phase, blocks)
        _add(program, FPROP, form, places, (*request.dims, form.parts, form.part, *numbers), context)
    return program


def _backward_program(device: Device, request: BatchNormBackward, dtype: DType, masked: bool, aligned: bool) -> Draft:
    form = cut(request.dims, dtype.itemsize, compute_dtype(dtype).itemsize, BPROP_BYTES)
    factors = request.alpha_data, request.beta_data, request.alpha_param, request.beta_param
    numbers = request.eps, *factors, _bits(masked, request.binary, request.own_sum)
    program, cells = Draft(device), 2 * form.cells * CELL
    places = [*map(Place, range(8)), Place(8) if masked else None, program.room(cells) if cells else None]
    for phase in ("sums", "finish") if form.parts > 1 else ("whole",):
        blocks = 1 if phase == "whole" else _blocks_of_parts(form)
        context = _context(form, dtype, aligned, BPROP_FLAGS, phase, blocks)
        _add(program, BPROP, form, places, (*request.dims, form.parts, form.part, *numbers), context)
    return program


def _add(
    program: Draft, routine: CudaRoutine, form: Cut, places: Sequence[Place | None], numbers: Sequence[int | float],
    context: dict[str, Any],
) -> None:  # fmt: skip
    program.steps.append(Launched(program.device, routine, (form.grid, form.block), places, numbers, context))


def _forward_phases(form: Cut, request: BatchNormForward) -> Sequence[str]:
    """The launches of a forward call, in their order."""
    if form.parts == 1:
        return ("whole",)
    if request.inference:
        return ("finish",)
    moments = () if request.given_sum else ("moments",)
    return (*moments, *(("around",) if request.given_sum or request.binary else ()), "finish")


def _context(
    form: Cut, dtype: DType, aligned: bool, flags: tuple[str, ...], phase: str, blocks: int
) -> dict[str, Any]:
    """Context of the templates for ``blocks`` blocks at a time on a multiprocessor, which bounds the registers."""
    most = WHOLE_THREADS if phase == "whole" and form.turns > 1 else PART_THREADS
    return {
        "phase": phase,
        **conversions(dtype),
        "bytes": dtype.itemsize,
        "vector": form.vector,
        "turns": form.turns,
        "aligned": aligned or form.vector == 1,
        "most": most,
        "blocks": blocks,
        "flags": flags,
    }


def _blocks_of_parts(form: Cut) -> int:
    """Blocks at a time that take parts of rows: many single elements of a thread take more registers."""
    return 3 if form.turns <= MOST_TURNS // 2 else 2


def _bits(*flags: bool) -> int:
    return sum(bool(flag) << position for position, flag in enumerate(flags))
