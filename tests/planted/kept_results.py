"""Faults of convolutions that keep their results in bfloat16: as these are rounded, stored and read."""

# ruff: noqa: E501 - a fault is a line

from __future__ import annotations

from tests.planted.table import CPU, C, Mutant

RESULTS, FINISH, TILE, RUNS = (C + f"conv/conv_{name}.h" for name in ("results", "finish", "tile", "runs"))
HOOKS, DEPTHWISE = CPU + "primitives/conv/hooks.py", C + "conv/depthwise.c.j2"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("kept_results", name, file, old, new)


MUTANTS = (
    fault("the last old number of a run is left out", RESULTS, "nl_widen_part_bf16((real *)&v, from, n)", "nl_widen_part_bf16((real *)&v, from, n - 1)"),
    fault("a number behind a run is overwritten", RESULTS, "(const nl_halves_anywhere *)some, NL_SOME(n))", "(const nl_halves_anywhere *)some, NL_SOME(n + 1))"),
    fault("the last number of a run is not stored", RESULTS, "copy_numbers(to, some, n, sizeof *to);", "copy_numbers(to, some, n - 1, sizeof *to);"),
    fault("two vectors with the old numbers of the first", FINISH, "old[1] = load(x + i + LANES)", "old[1] = load(x + i)"),
    fault("subnormal sums in registers become 0", TILE, "__builtin_expect(tiny != 0, 0)", "__builtin_expect(tiny != 0 && KB == 0, 0)"),
    fault("rows of subnormal sums are a vector too short", TILE, "store_subnormal(all, out, step, nv * LANES);", "store_subnormal(all, out, step, (nv - 1) * LANES);"),
    fault("vectors of a tile change places", TILE, "uppers_of_two(sum[k][j], sum[k][j + 1])", "uppers_of_two(sum[k][j + 1], sum[k][j])"),
    fault("results past the caches of the first map for all", TILE, "NL_STREAM_VECTOR(out + j * LANES, both)", "NL_STREAM_VECTOR(out - k * step + j * LANES, both)"),
    fault("runs lie beside each other", RUNS, "stored *there = to + j * to_step;", "stored *there = to + j * n;"),
    fault("depthwise: the last result of a row is not stored", DEPTHWISE, "store_first(to + i, *(const loose *)(from + i), n - i);", "store_first(to + i, *(const loose *)(from + i), n - i - 1);"),
    fault("depthwise: channels are kept in working memory", DEPTHWISE, "store(to + k * step, v[k]);", "store(kept + j + k * SOME, v[k]);"),
    fault("old numbers of any dtype are read as bfloat16", HOOKS, "for tensor in (target, X)", "for tensor in (target,)"),
    fault("float16 is kept as bfloat16", HOOKS, "self._stored_dtype(tensor, computed).name == BFLOAT16 for", "half_of(self._stored_dtype(tensor, computed)) for"),
    fault("results go past the caches before they are converted", HOOKS, 'reads_old or (half_of(out.dtype) != "" and not keeps)', "reads_old"),
    fault("no results in 16 bits go past the caches", HOOKS, '(half_of(out.dtype) != "" and not keeps)', 'half_of(out.dtype) != ""'),
    fault("copies of results that are not made are counted", HOOKS, "[] if g.dtype.name == BFLOAT16 else", "[] if not g.dtype.name else"),
    fault("old numbers are converted, too", HOOKS, "OPERANDS, RESULTS = (0, 1), (2, 4)", "OPERANDS, RESULTS = (0, 1), (2,)"),
)  # fmt: skip
