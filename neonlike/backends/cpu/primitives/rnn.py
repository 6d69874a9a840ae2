"""Recurrent unrolls as one compiled call each: the hooks of ``RecurrentFamily`` and ``GatedFamily``.

Each step is a product of packed matrices whose epilogue is the whole cell (see ``templates/c/rnn_steps.h``). Tensors of
16 bits are read and written as they are stored, and computed in float32 (``templates/c/rnn_stored.j2``). Factors of
bfloat16, and others where ``be.product_precision`` says so, are packed as pairs of bfloat16
(``templates/c/pair_panels.h``). Cases without kernel support (activations that are not elementwise, samples that are
not contiguous) run step by step by the families' definitions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from neonlike.backends.cpu.primitives.compiled import CompiledFamily, in_place
from neonlike.backends.primitives.rnn.family import RecurrentFamily
from neonlike.backends.primitives.rnn.formula import Trace, activation, activations, joined, slope, slopes
from neonlike.backends.primitives.rnn.steps import Steps, Unroll, row_strides, same_or_apart, samples_apart
from neonlike.backends.tensors.operands import host
from neonlike.kernels.c.gemm import with_tiles
from neonlike.kernels.c.pairs import TILES, Pairing, context_of, pairing_of
from neonlike.kernels.c.routine import INT, POINTER, REAL_TYPES, TILE, Routine, address, threads_for
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run import calls
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import compute_dtype

ARGUMENTS = (POINTER, POINTER, *(INT,) * 4, POINTER, INT, INT, *(POINTER,) * 3, INT)
HEADERS = ("rnn_steps.h", "rnn_one.h", "rnn_unroll.h", "rnn_tiles.h", "pair_panels.h", "halves.h", "tiles.h", *TILE)
SIMPLE, LSTM, GRU = (
    Routine(f"c/rnn_{kind}.c.j2", ARGUMENTS, f"{kind} unroll", HEADERS) for kind in ("simple", "lstm", "gru")
)
PARALLEL_PRODUCTS = 1 << 19
"""Multiplications per step below which barriers between threads cost more than threads save."""
PARALLEL_OF_ONE = 1 << 17
"""The same for a single sample, where reading the weight limits a step."""
MOST_LANES, MOST_ROWS, ROWS_BY_TILES = 16, 12, 32
"""Largest tile of the kernels, and rows of one that the processor's tiles multiply; packed matrices may be padded to
multiples of it."""
FEWEST_OF_PAIRS = 32
"""Units from which making pairs of bfloat16 pays."""
FEWEST_BY_TILES = 16
"""Samples from which pairs are multiplied by tiles (``tiles.h``) where there are any: those of one tile. By reasoning:
no such processor was at hand to measure."""


class UnrollLaunch(NamedTuple):
    """Kernel arguments for checked tensors; the kernel's code depends on the activations.

    Attributes
    ----------
    routine : Routine
    context : dict
        What the kernel's text depends on besides the activations.
    trace : callable
        Returns the formulas of a request's activations, by name.
    request : Unroll
        The request; its activations are ignored, because each call brings its own.
    arguments : tuple
        Arguments of the kernel, up to the bias.
    work : int
        Bytes of working memory.
    products : tuple of int
        Multiplications per step, and the number above which several threads pay.
    keep : tuple
        Owners of memory in the arguments, apart from the tensors.
    lasts : bool
        See :class:`~neonlike.kernels.run.calls.Unrolled`.
    """

    routine: Routine
    context: dict[str, Any]
    trace: Trace
    request: Unroll
    arguments: tuple[int | None, ...]
    work: int
    products: tuple[int, int]
    keep: tuple[Any, ...]
    lasts: bool

    def again(self, backend: Any, functions: tuple[Any, ...]) -> bool:
        """Run the kernel for these activations; return False, with nothing done, if there is none."""
        request = replace(self.request, **dict(zip(("activation", "gate_activation"), functions)))
        formulas = joined(self.trace(backend, request, "c"))
        if formulas is None:
            return False
        text, numbers = formulas
        function = self.routine.variant(backend.compiler, **self.context, activation=text)
        if function is None:
            return False
        constants = (ctypes.c_double * max(1, len(numbers)))(*numbers)
        addresses = *self.arguments, ctypes.addressof(constants)
        keep = self.keep, constants
        KernelCall(function, addresses, (threads_for(*self.products),), self.work, keep).run()
        return True


class RecurrentKernels(CompiledFamily, RecurrentFamily):
    """Overrides of the hooks of RecurrentFamily and GatedFamily."""

    def _rnn_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        call = Unrolled(SIMPLE, activation, 2, False, (("h_s", "h_ff_s"),))
        launch = call.run(self, request, steps, weight, bias)
        return launch or super()._rnn_fprop(request, steps, weight, bias)

    def _rnn_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        launch = Unrolled(SIMPLE, slope, 2, True).run(self, request, steps, weight)
        return launch or super()._rnn_bprop(request, steps, weight)

    def _lstm_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        call = Unrolled(LSTM, activations, 2, False, (("ifog_s", "ifog_ff_s"), ("c_s", "c_prev_s")))
        launch = call.run(self, request, steps, weight, bias)
        return launch or super()._lstm_fprop(request, steps, weight, bias)

    def _lstm_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        call = Unrolled(LSTM, slopes, 8, True, (("c_delta_s", "c_delta_prev_s"),))
        launch = call.run(self, request, steps, weight)
        return launch or super()._lstm_bprop(request, steps, weight)

    def _gru_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        call = Unrolled(GRU, activations, 3, False, (("rzn_s", "rzn_ff_s"), ("h_s", "h_prev_s")))
        launch = call.run(self, request, steps, weight, bias)
        return launch or super()._gru_fprop(request, steps, weight, bias)

    def _gru_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        call = Unrolled(GRU, slopes, 6, True, (("delta_s", "delta_prev_s"),))
        launch = call.run(self, request, steps, weight)
        return launch or super()._gru_bprop(request, steps, weight)


class Unrolled(NamedTuple):
    """A kind of unroll.

    Attributes
    ----------
    routine, trace, backward
        As in :class:`UnrollLaunch`.
    buffers : int
        Packed matrices of the size of a state, kept by the kernel.
    in_place : pairs of roles
        Pairs whose tensors may be identical, but must not overlap otherwise.
    """

    routine: Routine
    trace: Trace
    buffers: int
    backward: bool
    in_place: Sequence[tuple[str, str]] = ()

    def run(
        self, backend: Any, request: Unroll, steps: Steps, weight: Any, bias: Any = None
    ) -> calls.Unrolled | None:
        """Compute ``steps``; None if there is no kernel for them, and nothing was done.

        Parameters
        ----------
        backend : Backend
        request : Unroll
        steps : Steps
        weight : Tensor
        bias : Tensor or None
        """
        strides = row_strides(steps)
        if strides is None:
            return None
        if not all(same_or_apart(a, b, steps) for a, b in self.in_place):
            return None
        units, samples = steps.units, steps.samples
        computed, (half, _) = compute_dtype(steps.dtype), in_place(steps.dtype)
        columns = -(-samples // MOST_LANES) * MOST_LANES
        pointers = [0 if tensor is None else tensor.address for role in steps.roles.values() for tensor in role]
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        row_steps = (ctypes.c_int64 * len(strides))(*strides)
        bias_values = None if bias is None else host(bias, dtype=bias.dtype)
        arguments = (
            ctypes.addressof(table), ctypes.addressof(row_steps), len(steps), units, samples, samples_apart(steps),
            weight.address, *weight.strides, address(bias_values),
        )  # fmt: skip
        least = PARALLEL_OF_ONE if samples == 1 else PARALLEL_PRODUCTS
        pairing = _pairing(backend, steps, weight)
        pairs = form_of(units, samples, backend._pairs_of(steps.dtype), backend.compiler) if pairing else 0
        rows = ROWS_BY_TILES if pairs == TILES else MOST_ROWS
        elements = self.buffers * columns * units + weight.size + 4 * rows * units
        if pairing:
            elements += pairing.words
        elif half:
            elements += -(-weight.size // LINE) * LINE
        context = {"real": REAL_TYPES[computed], "half": half, "backward": self.backward, **context_of(pairs)}
        launch = UnrollLaunch(
            self.routine, context, self.trace, request, arguments,
            elements * computed.itemsize, (weight.size * samples, least),
            (table, row_steps, bias_values), bias is None or address(bias_values) == bias.address,
        )  # fmt: skip
        return launch if launch.again(backend, (request.activation, request.gate_activation)) else None


def _pairing(backend: Any, steps: Steps, weight: Any) -> Pairing | None:
    """The pairs of an unroll's weight; None where they would not pay, as for one sample, or none can be made."""
    if not pairs_pay(steps.units, steps.samples) or not backend._pairs_of(steps.dtype):
        return None
    return pairing_of(weight.asnumpyarray())


def pairs_pay(units: int, samples: int) -> bool:
    """Whether an unroll of such steps gains by rounding its factors to pairs of bfloat16."""
    return samples > 1 and units >= FEWEST_OF_PAIRS


def form_of(units: int, samples: int, pairs: int, compiler: Compiler | None) -> int:
    """The form in which an unroll multiplies pairs, see ``pairs.h``; 0 where they do not pay.

    ``pairs``: the form for its dtype; tiles take the place of ``vdpbf16ps`` where steps fill them.
    """
    if not pairs_pay(units, samples):
        return 0
    return with_tiles(pairs, compiler) if samples >= FEWEST_BY_TILES else pairs
