"""Faults in folds of blocks on the GPU, in sums of powers found beside maxima, and in tiles turned by vectors."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CUDA, KERNELS, Mutant

REDUCE, FOLDS, TILES, FUNCTIONS = (CUDA + name for name in ("reduce.cu.j2", "reduce_folds.j2", "turned_vectors.cu.j2", "functions.h"))
SHIFTED, FIT = KERNELS + "codegen/shifted.py", KERNELS + "cuda/fit.py"


def reduction(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault that the tests of reductions must catch."""
    return Mutant("reductions_cuda", name, file, old, new)


def powers(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in sums of powers that the pass of a maximum finds."""
    return Mutant("powers_cuda", name, file, old, new)


def turned(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in tiles that are turned by vectors."""
    return Mutant("turned_cuda", name, file, old, new)


MUTANTS = (
    reduction("columns: a thread takes up its own pieces", FOLDS, '"piece * pitch + theirs"', '"lane * pitch + mine"'),
    reduction("columns: what was found is kept where it was", FOLDS, 'put(r, type, beside, "theirs")', 'put(r, type, beside, "mine")'),
    reduction("columns: rows of cells overlap", FOLDS, "pitch = ROWS + (32 >> digits)", "pitch = ROWS - (32 >> digits)"),
    powers("sums of powers are not scaled", FUNCTIONS, "sum * scale + other : sum + other * scale;                                         \\", "sum + other : sum + other;                                         \\"),
    powers("the larger sum is scaled", FUNCTIONS, "return more > 0 ? sum * scale + other : sum + other * scale;                                         \\", "return more < 0 ? sum * scale + other : sum + other * scale;                                         \\"),
    powers("sums of parts are not scaled", FUNCTIONS, "sum * scale + other : sum + other * scale;\n", "sum + other : sum + other;\n"),
    powers("a search begins at -infinity", FUNCTIONS, "NL_LEAST_F32 (-0x1.fffffep127f)", "NL_LEAST_F32 (-INFINITY)"),
    powers("nothing but -infinity has a maximum", REDUCE, "== 0 ? -INFINITY : t", "< 0 ? -INFINITY : t"),
    powers("sums around infinite maxima", FUNCTIONS, "< (T)INFINITY ? sum * scale : scale", "< (T)INFINITY ? sum * scale : sum * scale"),
    powers("sums around another number than the maximum", SHIFTED, "(v{most}, e{most}, {around})", "(v{most}, e{most}, v{most})"),
    powers("lanes: a maximum compared with itself", REDUCE, "p{{ r.index }}[{{ other }}], b{{ r.index }}[{{ other }}]", "p{{ r.index }}[{{ one }}], b{{ r.index }}[{{ other }}]"),
    powers("the maximum of anything", SHIFTED, 'v.spec.name == "max" and v.args[0] == difference.args[0]', 'v.spec.name == "max"'),
    powers("the sum of any function", SHIFTED, 'power.spec.name == "exp"', "power.args"),
    powers("a pass that is needed anyway is left out", SHIFTED, "if len(found) < len(sums):", "if not found:"),
    turned("tiles of other sizes of elements", FIT, "whole = array.itemsize == size and not", "whole = not"),
    turned("columns that start anywhere", FIT, "for axis in (*outer, across))", "for axis in outer)"),
    turned("rows that start anywhere", FIT, "for axis in (*outer, down))", "for axis in outer)"),
    turned("parts of vectors", FIT, "down.size % tile.rows or across.size % tile.vector", "down.size % tile.rows"),
    turned("memory that starts anywhere", FIT, "by_vectors = aligned and _has", "by_vectors = _has"),
    turned("the other columns of cells", TILES, "[y][x * STRIP + k] = (uint32_t)(uint16_t)strip_{{ a.name }}.v[k] |", "[y][x * STRIP + k] = (uint32_t)(uint16_t)next_{{ a.name }}.v[k] |"),
    turned("columns of a pair trade places", TILES, "v[l + 1] = ({{ a.ctype }})(cell >> 16)", "v[l + 1] = ({{ a.ctype }})cell"),
    turned("the lower part of a tile of 8 bytes", TILES, "place = (x + y / DOWN * {{ strips }})", "place = (x + 0 * y / DOWN * {{ strips }})"),
    turned("no barrier", TILES, "    __syncthreads();\n", ""),
)
