"""Faults in elementwise kernels by blocks of short rows, and in positions in rows that lie between each other."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, C, Mutant

TEMPLATE, PARTS, FIT = C + "elementwise.c.j2", C + "reduce/parts.c.j2", KERNELS + "c/fit.py"

MUTANTS = tuple(
    Mutant("short_rows", name, file, old, new)
    for name, file, old, new in (
        ("the first group's values for all", TEMPLATE, "        for (int64_t i = 0; i < width; i++)\n            tile_{{ a.name }}[i] = {{ a.name }}[", "        for (int64_t i = 0; i < width; i++)\n            tile_{{ a.name }}[i] = g->{{ a.name }}["),
        ("values written out half as often as they are needed", TEMPLATE, "for (int64_t done = width; done < each * width; done *= 2)", "for (int64_t done = width; done < each / 2 * width; done *= 2)"),
        ("values next to each other, whatever their step", TEMPLATE, "[i * g->sizes->{{ a.name }}.along_{{ rank - 1 }}];\n        for (int64_t done", "[i];\n        for (int64_t done"),
        ("a row's value of the block before", TEMPLATE, "for (int64_t r = top; r < bottom; r++) {\n                const {{ a.ctype }} x", "for (int64_t r = top; r < bottom - 1; r++) {\n                const {{ a.ctype }} x"),
        ("a row's values as long as a vector", TEMPLATE, "from < to; from += {{ vector }})", "from < to; from += {{ vector }}, to = 0)"),
        ("the last block ends early", TEMPLATE, "bottom = top + each < height ? top + each : height, first = 0", "bottom = top + each < height ? top + each : height - 1, first = 0"),
        ("the last block left out", TEMPLATE, "each = g->sizes->each, blocks = (height + each - 1) / each;", "each = g->sizes->each, blocks = height / each ? height / each : 1;"),
        ("blocks of the first group in all", TEMPLATE, "{{ a.declaration }} = start.{{ a.name }} + top * g->", "{{ a.declaration }} = g->{{ a.name }} + top * g->"),
        ("blocks counted from where a thread began", TEMPLATE, "const int64_t top = block % blocks * each,", "const int64_t top = (block - lo) % blocks * each,"),
        ("threads go on over the end of their part", TEMPLATE, "until = block + blocks - block % blocks, stop = until < hi ? until : hi;\n        for (; block", "until = block + blocks - block % blocks, stop = until;\n        for (; block"),
        ("positions in a row taken for an array", FIT, "elif isinstance(arrays[i], Counter) or (down", "elif (down"),
        ("rows apart taken for one value a row", FIT, " or (down and right):", ":"),
        ("blocks longer than their buffers", FIT, "each = unit * max(1, BLOCK // (unit * width))", "each = unit * max(1, 8 * BLOCK // (unit * width))"),
    )
) + tuple(
    Mutant("interleaved", name, PARTS, old, new)
    for name, old, new in (
        ("each part begins anew at its last block", "c == first ? part : &found", "part"),
        ("later blocks of a part are not looked at", "if (c != first)\n                    merge0", "if (0)\n                    merge0"),
        ("the last block ends at that of the part before", "const int64_t first = k * s->each, last = first + s->each < s->length ? first + s->each : s->length;", "const int64_t first = k * s->each, last = first + s->each < s->length ? first + s->each : first;"),
        ("all rows are the first", "const struct arguments one = row_of(&s->g, row);\n                struct", "const struct arguments one = row_of(&s->g, 0);\n                struct"),
        ("later parts are not looked at", "            merge0(part, part + k);\n        settle1(&one, part);", "            merge0(part, part);\n        settle1(&one, part);"),
        ("the last part's largest counts", "        for (int64_t k = 1; k < s->parts; k++)\n            merge0(part, part + k);\n        settle1(&one", "        for (int64_t k = 1; k < s->parts; k++)\n            merge0(part + k, part), *part = part[k];\n        settle1(&one"),
    )
)  # fmt: skip
