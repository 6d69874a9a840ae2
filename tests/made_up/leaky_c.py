"""Leaky sums in C: rows are dealt out to threads."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.compiled import CompiledFamily
from neonlike.backends.tensors.operands import host, written
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.run.calls import KernelCall
from tests.made_up.leaky import LeakyFamily, LeakySum

TEXT = """
#include <stdint.h>
#include "team.h"

struct arguments { const {{ real }} *x; {{ real }} *y; int64_t columns; {{ real }} decay; };

static void sum_rows(const void *context, int64_t lo, int64_t hi, int64_t me)
{
    const struct arguments *g = context;
    (void)me;
    for (int64_t i = lo; i < hi; i++) {
        {{ real }} total = 0;
        for (int64_t j = 0; j < g->columns; j++)
            g->y[i * g->columns + j] = total = g->x[i * g->columns + j] + g->decay * total;
    }
}

void {{ name }}(const {{ real }} *x, {{ real }} *y, int64_t rows, int64_t columns, double decay, int64_t threads)
{
    const struct arguments g = { x, y, columns, ({{ real }})decay };
    nl_share(sum_rows, &g, rows, nl_unit(rows, threads, 1, 1), threads);
}
"""
ROUTINE = Routine(TEXT, [POINTER] * 2 + [INT] * 2 + [REAL, INT], "leaky sums")
PARALLEL_SIZE = 1 << 15
"""Elements below which one thread is done sooner."""


class LeakyKernels(CompiledFamily, LeakyFamily):
    """Overrides of LeakyFamily's hooks."""

    def _leaky_sum(self, request: LeakySum, x: Any, out: Any) -> KernelCall | None:
        values = host(x, request.dims)
        kernel = ROUTINE.variant(self.compiler, real=REAL_TYPES[values.dtype])
        if kernel is None:
            return super()._leaky_sum(request, x, out)
        with written(out, request.dims) as sums:
            tail = (*request.dims, request.decay, threads_for(values.size, PARALLEL_SIZE))
            return KernelCall(kernel, (address(values), address(sums)), tail).run()
