"""Faults in CUDA kernels of the smaller families: lookup tables, the sort of indices, histograms."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CUDA, GPU, KERNELS, Mutant

HISTOGRAM = CUDA + "histogram.cu.j2"
SUMS, SORT = CUDA + "lut_bprop.cu.j2", CUDA + "sort.cu.j2"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of these families."""
    return Mutant("lookup_cuda", name, file, old, new)


def counting(name: str, old: str, new: str) -> Mutant:
    """A row of the histogram."""
    return Mutant("stats_cuda", name, HISTOGRAM, old, new)


MUTANTS = (
    counting("nan counts", "if (size == size)", "if (size == size || true)"),
    counting("the last elements are not counted", "if (l < left)\n                    nl_count", "if (left >= VECTOR)\n                    nl_count"),
    counting("subnormal numbers count as 0", "(tiny ? 127 + 24 : 127)", "(tiny ? 127 + 240 : 127)"),
    counting("exponents cut, not rounded", "+ 0x004afb0cu", "+ 0"),
    counting("vectors ahead overlap", "const int64_t first = (chunk + k * step) * VECTOR, left", "const int64_t first = (chunk + k) * VECTOR, left"),
    counting("bins beyond the block's threads not added", "bin < (int)bins; bin += THREADS)\n        if", "bin < (int)bins && bin < THREADS; bin += THREADS)\n        if"),
    fault("a word that goes on counts as one that begins", SUMS, "bool begins = word[0] != word[1];", "bool begins = true;"),
    fault("the total of a word goes on into the next", SUMS, "                    total = 0;\n", ""),
    fault("alpha ignored", SUMS, "(double)nl_number(*to) + alpha * total", "(double)nl_number(*to) + total"),
    fault("a word in the middle of its columns is joined twice", SUMS, "|| came_before ||", "|| (came_before && 0) ||"),
    fault("the last chunk of a frequent word left out", SUMS, "c <= last; c++", "c < last; c++"),
    fault("bad words change the table", SUMS, "if (e >= embed || *g_bad)", "if (e >= embed)"),
    fault("columns of no word are added", SUMS, "if (at < count && word[at + 1] < limit) {", "if (at < count) {"),
    fault("sort: equal keys of a warp in no order", SORT, "at[digit] + __popc(peers & ((1u << lane) - 1))", "at[digit] + __popc(peers & ~((2u << lane) - 1))"),
    fault("sort: places taken by a warp are given again", SORT, "                at[digit] += __popc(peers);\n", "                at[digit] += 1;\n"),
    fault("sort: one block: counts of the last warp not passed on", SORT, "for (int w = 0; w < WARPS && me < DIGITS; w++)\n            total", "for (int w = 0; w < WARPS - 1 && me < DIGITS; w++)\n            total"),
    fault("sort: the scan of many blocks starts anew", SORT, "int at = nl_before(total, room);\n    for (int64_t", "int at = 0 * nl_before(total, room);\n    for (int64_t"),
    fault("sort: the tile's first key is the grid's", SORT, "const int64_t first = (int64_t)blockIdx.x * {{ tile }};\n    const int size", "const int64_t first = 0;\n    const int size"),
    fault("sort: too few digits", KERNELS + "cuda/sorting.py", "-(-limit.bit_length() // DIGIT)", "limit.bit_length() // DIGIT"),
    fault("sort: results looked for in the other buffer", KERNELS + "cuda/sorting.py", "passes(limit) % 2 * 4 * n", "(passes(limit) + 1) % 2 * 4 * n"),
    fault("negative indices out of range", SORT, "index < 0 ? index + limit : index", "index"),
    fault("what kernels report is not looked at", GPU + "device/faults.py", "if word is None or not word[0]:", "if word is None or word is not None:"),
)
