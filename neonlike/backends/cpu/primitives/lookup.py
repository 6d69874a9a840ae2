"""Compiled kernels for the hooks of ``LookupFamily``."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from neonlike.backends.cpu.primitives.compiled import CompiledFamily, in_place
from neonlike.backends.primitives.lookup import LookupFamily, LookupGradient, words_of
from neonlike.backends.tensors.operands import host, written
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, VECMATH, Routine, address, threads_for
from neonlike.optree.dtypes import compute_dtype

BPROP = Routine(
    "c/lut_bprop.c.j2",
    (*(POINTER,) * 4, REAL, *(INT,) * 4),
    "gradient of a lookup table",
    ("halves.h", *VECMATH),
    result=ctypes.c_int,
)
PARALLEL_WORK = 1 << 15
"""Elements of the error below which starting threads does not pay."""
LARGEST = 1 << 31
"""Words and columns are sorted in 32 bits each."""


class LookupKernels(CompiledFamily, LookupFamily):
    """Overrides of LookupFamily's hooks."""

    def _bprop_lut(self, request: LookupGradient, inputs: Any, error: Any, error_t: Any, dW: Any) -> None:
        """Sort columns by word, then add rows, in C if there is a compiler."""
        half, stored = in_place(error.dtype)
        errors = host(error, dtype=stored)
        function = BPROP.variant(self.compiler, real=REAL_TYPES[compute_dtype(error.dtype)], half=half)
        if function is None or 0 in (errors.size, len(dW)) or max(inputs.size, len(dW)) >= LARGEST:
            super()._bprop_lut(request, inputs, error, error_t, dW)
            return
        self._scale_table(dW, request.beta)
        words = words_of(inputs, request.pad_idx)
        reusable = error_t is not None and error_t.is_contiguous and error_t.dtype == errors.dtype
        transposed = error_t.array if reusable else np.empty_like(errors)
        embed, count = errors.shape
        threads = threads_for(errors.size, PARALLEL_WORK)
        with written(dW, keep=True, dtype=stored) as rows:
            if function(
                address(words), address(errors), address(transposed), address(rows),
                request.alpha, count, embed, len(rows), threads,
            ):  # fmt: skip
                raise MemoryError(f"compound_bprop_lut: no memory to sort {count} words")
