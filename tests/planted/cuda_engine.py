"""Faults in the CUDA kernels of expressions that have no table of their own: elementwise ones, moves, lines, products."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CUDA, Mutant

MAP, TURNED, GATHER, SCATTER, INDICES = (CUDA + f"{name}.cu.j2" for name in ("elementwise", "turned", "gather", "scatter", "indices"))
ALONG, LINES, MERGE, GEMM = (CUDA + f"{name}.cu.j2" for name in ("along", "lines", "merge", "gemm"))


def elementwise(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in maps over elements."""
    return Mutant("elementwise_cuda", name, file, old, new)


def turned(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in tiles that are turned by elements."""
    return Mutant("turned_cuda", name, file, old, new)


def moves(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in gathers and scatters of slices."""
    return Mutant("moves_cuda", name, file, old, new)


def lines(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault in scans, sorts, and moves with an index for each element."""
    return Mutant("lines_cuda", name, file, old, new)


def product(name: str, old: str, new: str) -> Mutant:
    """A fault in our own kernel of matrix products."""
    return Mutant("gemm_cuda", name, GEMM, old, new)


MUTANTS = (
    elementwise("uint64: infinity is stored as the largest int64", CUDA + "conversions.h", "u64, 0, 0x1p64, UINT64_MAX)", "u64, 0, 0x1p64, INT64_MAX)"),
    elementwise("chunks of other blocks", MAP, "(nl_index)blockIdx.x * {{ threads }} + (nl_index)threadIdx.x", "(nl_index)blockIdx.x + (nl_index)threadIdx.x"),
    elementwise("the chunk behind the last one", MAP, "chunk < meta.v[0];", "chunk <= meta.v[0];"),
    elementwise("what is left of a row counted in chunks", MAP, "meta.v[1] - {{ inner }} * {{ vector }};", "meta.v[1] - {{ inner }};"),
    elementwise("one element too many of the last chunk", MAP, "                if (l < left) {\n", "                if (l <= left) {\n"),
    elementwise("the last chunk stored as a whole", MAP, "            continue;\n", ""),
    elementwise("the last chunk not loaded", MAP, "l < left ? {{ a.name }}[l] : ({{ a.ctype }})0", "({{ a.ctype }})0"),
    turned("rows and columns exchanged as they are read", TURNED, "tile_{{ a.name }}[y][threadIdx.x] = g_", "tile_{{ a.name }}[threadIdx.x][y] = g_"),
    turned("no barrier between elements", TURNED, "    __syncthreads();\n", ""),
    turned("rows of the first tile in all", TURNED, "top = {{ down }} * TILE,", "top = 0 * {{ down }},"),
    moves("negative indices count from the beginning", GATHER, "found < 0 ? found + meta.v[1] : found;", "found < 0 ? -found : found;"),
    moves("indices next to each other, whatever their step", GATHER, "g_index[{{ axis }} * meta.v[2]]", "g_index[{{ axis }}]"),
    moves("positions next to each other, whatever their step", GATHER, "place * meta.v[3];", "place;"),
    moves("the last slice of each place left out", SCATTER, "end = g_start[{{ axis }} + 1]; k < end;", "end = g_start[{{ axis }} + 1]; k + 1 < end;"),
    moves("slices replace each other", SCATTER, "total += (", "total = ("),
    moves("slices taken in the order in which they lie", SCATTER, "(nl_index)g_slices[k] * meta.v[1]", "(nl_index)k * meta.v[1]"),
    moves("negative indices out of range", INDICES, "found < lowest ||", "found < 0 ||"),
    moves("the index behind the last one in range", INDICES, "found >= limit)", "found > limit)"),
    moves("places begin behind their first slice", INDICES, "if (keys[middle] < p)", "if (keys[middle] <= p)"),
    lines("picking: negative indices count from the beginning", ALONG, "found < 0 ? found + meta.v[1] : found;", "found < 0 ? -found : found;"),
    lines("picking: positions next to each other", ALONG, '" + place * meta.v[2]" }};\n        const', '" + place" }};\n        const'),
    lines("placing: where it lay", ALONG, '{{ " + place * meta.v[2]" if scatters else "" }}', ""),
    lines("scan: lanes add their own once more", LINES, "if (lane >= by)", "if (lane + 1 >= by)"),
    lines("scan: the last lane's total not in the warp's", LINES, "if (lane == 31)", "if (lane == 30)"),
    lines("scan: parts begin anew", LINES, "            before = all;\n", ""),
    lines("scan: the next part's totals while these are read (checked)", LINES, "            }\n            __syncthreads();\n        }\n", "            }\n        }\n"),
    lines("scan by a thread: totals of one element", LINES, "total = total {{ sign }} ({{ total_type }})x;\n            const", "total = ({{ total_type }})x;\n            const"),
    lines("adding: what is there is replaced", LINES, "total[at] += (", "total[at] = ("),
    lines("adding: totals of the line before", LINES, "            total[p] = 0;\n", "            total[p] *= 1;\n"),
    lines("sort: equal values change places", MERGE, "left ? other < key : other <= key", "left ? other <= key : other < key"),
    lines("sort: runs end together", MERGE, "end = middle + run < n ? middle + run : n;", "end = n;"),
    lines("sort: the first line's keys", MERGE, "nl_key(g_bits[line + mine])", "nl_key(g_bits[mine])"),
    product("depth beyond the last product", "if (top + row < meta.m && first + ka < meta.k) {", "if (top + row < meta.m) {"),
    product("tiles of the first column in each row", "(int64_t)blockIdx.x % across * TILE;", "(int64_t)blockIdx.x / across * TILE;"),
    product("the first matrix of a stack for all", "g_b + (int64_t)blockIdx.z * meta.b_matrix;", "g_b;"),
    product("what C held not scaled", "x0 += ({{ compute }})beta * {{ load_c }};", "x0 += {{ load_c }};"),
    product("what C held read though beta is 0", "                if (beta != 0)\n", ""),
    product("relu after the old values were added", "                x0 = x0 < 0 ? 0 : x0;\n{% endif %}\n{% if scaled %}\n                if (beta != 0)\n                    x0 += ({{ compute }})beta * {{ load_c }};\n", "{% endif %}\n{% if scaled %}\n                if (beta != 0)\n                    x0 += ({{ compute }})beta * {{ load_c }};\n{% endif %}\n{% if relu %}\n                x0 = x0 < 0 ? 0 : x0;\n"),
    product("a tile overwritten while it is read", "        }\n        __syncthreads();\n    }\n#pragma unroll\n    for (int i = 0; i < MINE; i++) {", "        }\n    }\n#pragma unroll\n    for (int i = 0; i < MINE; i++) {"),
)
