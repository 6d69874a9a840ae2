"""Faults in products of int8, and in models that are quantized for them."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, KERNELS, LAYERS, MODELS, PRIMITIVES, C, Mutant

HEADER, PRODUCT = C + "int8/quads.h", C + "int8/product.c.j2"
TILES, CHOICE = C + "int8/quad_tiles.h", KERNELS + "c/quads.py"
LAYER, LINEAR, RECURRENT = LAYERS + "core/int8.py", LAYERS + "dense/linear.py", LAYERS + "recurrent/"

MUTANTS = tuple(
    Mutant(family, name, file, old, new)
    for family, name, file, old, new in (
        ("int8", "ties are rounded up", PRODUCT, "(nl_words)(within + 12582912.0f)", "(nl_words)(within + 0.001f + 12582912.0f)"),
        ("int8", "clipped to -128", PRODUCT, "low = (nl_floats){ 0 } - 127", "low = (nl_floats){ 0 } - 128"),
        ("int8", "the end of a short row is rounded as zeros", PRODUCT, "    for (int c = 0; c < present; c++)\n        memcpy(rest", "    for (int c = 1; c < present; c++)\n        memcpy(rest"),
        ("int8", "long sums wrap in float32", PRODUCT, "if (p->depth > PART)", "if (p->depth > 4 * PART)"),
        ("int8", "padding on the left is left as it was", PRODUCT, "        zeros(to, left);\n", ""),
        ("int8", "panels that are taken together are one", PRODUCT, "words + (column - first) / COLUMNS * size", "words"),
        ("int8", "groups share scales", PRODUCT, "p->scales + group * p->meta[MAPS]", "p->scales"),
        ("int8", "columns of a stride are read as they were", PRODUCT, "x % stride * part + x / stride * meta[N];", "x * meta[N];"),
        ("int8", "pieces of a row are set where the first was", PRODUCT, "const int64_t x = w + phase + meta[PAD_W];", "const int64_t x = phase + meta[PAD_W];"),
        ("int8", "images of a stride are set in one place", PRODUCT, "column += stride, at += images)", "column += stride, at++)"),
        ("int8", "the last vector of a row begins where the others end", PRODUCT, "i = count > LANES ? count - LANES : 0;", "i = count > LANES ? count - LANES + 1 : 0;"),
        ("int8", "the last short row is read as a vector", PRODUCT, "left + LANES <= room && more <= readable", "left + LANES <= room"),
        ("int8", "one column: what is behind a panel counts", HEADER, "uint32_t last[4] = { 0 };", "uint32_t last[4] = { BIASED, BIASED, BIASED, BIASED };"),
        ("int8", "one column: rows of the last lanes are left out", HEADER, "for (int at = ROWS; at < VECTORS * LANES; at += ROWS)\n        total", "for (int at = ROWS; at < VECTORS * LANES - ROWS; at += ROWS)\n        total"),
        ("int8", "products of 16 bits: signs of even numbers are lost", HEADER, "(nl_shorts)((nl_words)quad << 8) >> 8", "(nl_shorts)(quad & 0x00ff00ff)"),
        ("int8", "narrow: the last words are left out", HEADER, "    for (; k < depth; k++)\n        for (int c = 0", "    for (; k + 1 < depth; k++)\n        for (int c = 0"),
        ("int8", "a convolution's words of a tap stand together with others", CPU + "primitives/int8.py", ".transpose(0, 1, 3, 2)", ""),
        ("int8", "one step for all rows", PRIMITIVES + "int8/definition.py", "for size in largest]", "for size in np.full_like(largest, largest.max())]"),
        ("int8", "products are not repeated", "neonlike/kernels/run/calls.py", 'IDENTIFIED = ("layer", "weights")', 'IDENTIFIED = ("layer",)'),
        ("int8", "products of views are repeated", PRIMITIVES + "int8/family.py", "alone=is_dense(x) and is_dense(out)", "alone=True"),
        ("int8", "a slope without a rectifier", PRIMITIVES + "int8/family.py", "float(slope) if relu else None", "float(slope)"),
        ("int8_tiles", "factors of the instruction change places", C + "tiles.h", '"tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sum', '"tdpbsud %%tmm" #a ", %%tmm" #b ", %%tmm" #sum'),
        ("int8_tiles", "the emulation loses the upper half of unsigned bytes", C + "tiles.h", "(nl_tiles.row[b][k] >> at & 255u)", "(nl_tiles.row[b][k] >> at & 127u)"),
        ("int8_tiles", "both tiles of a panel of weights are the first", TILES, "nl_sums_add_bytes(quads, quads + NL_TILE_SIDE * NL_TILE_SIDE, LINE", "nl_sums_add_bytes(quads, quads, LINE"),
        ("int8_tiles", "sums of two tiles change places", TILES, "nl_sums_store(to, to + 2 * NL_TILE_SIDE * NL_TILE_SIDE,", "nl_sums_store(to + 2 * NL_TILE_SIDE * NL_TILE_SIDE, to,"),
        ("int8_tiles", "weights behind the end are left as they were", TILES, "    memset(quads, 0, (size_t)(ROWS * depth) * sizeof *quads);\n", ""),
        ("int8_tiles", "the inner dimension fills no tiles", PRODUCT, "nl_in_tiles(meta[QUADS_OF_GROUP] * p->taps);", "meta[QUADS_OF_GROUP] * p->taps;"),
        ("int8_tiles", "threads do not begin with tiles", PRODUCT, "    nl_tiles_begin(&nl_whole_tiles);\n", ""),
        ("int8_tiles", "threads keep their tiles", PRODUCT, "    nl_tiles_end();\n", ""),
        ("int8_tiles", "few columns are rounded as many are", PRODUCT, "    if (width <= NARROW)\n        store_few(", "    if (width <= 0)\n        store_few("),
        ("int8_tiles", "working memory is that of the instruction", CHOICE, "* _depth(self.depth, form) * columns\n", "* self.depth * columns\n"),
        ("int8_tiles", "few columns use tiles", CHOICE, "columns >= NARROWEST_BY_TILES and ", ""),
        ("int8_tiles", "few columns read panels of tiles", CPU + "primitives/int8.py", "panels, less = weights.panels[-2:] if tiled else weights.panels[:2]", "panels, less = weights.panels[-2:]"),
        ("int8_tiles", "wrong products pass", CHOICE, "    return np.array_equal(found, a.astype(int) @ b.astype(int))", "    return found.size > 0"),
        ("int8_tiles", "the system is not asked", KERNELS + "c/simd.py", "    if not permitted:", "    if permitted is None:"),
        ("int8_tiles", "the variable has no effect", CHOICE, " and settings.AMX.get()", ""),
        ("quantize", "layers stay apart when they are quantized", LAYER, "        self._int8 = None\n        fold_again(self)\n", "        self._int8 = None\n"),
        ("quantize", "layers stay joined when float32 is loaded", LAYER, "                setattr(self, name, None)\n        self._changed()\n", "                setattr(self, name, None)\n        self._int8 = None\n"),
        ("quantize", "states are measured after the steps alone", RECURRENT + "simple_recurrent.py", "(views.h_initial, views.h_all)", "(views.h_initial,)"),
        ("quantize", "states have the step of the inputs", RECURRENT + "simple_recurrent.py", "float(self.int8_state_step.item())", "float(self.int8_step.item())"),
        ("quantize", "weights of states are those of before", RECURRENT + "simple_recurrent.py", "        super()._changed()\n        self._int8_recur = None\n", "        super()._changed()\n"),
        ("quantize", "gru: the candidate sees the state before its reset", RECURRENT + "gru.py", "int8_product(to_candidate, reset_h,", "int8_product(to_candidate, h_prev,"),
        ("quantize", "lstm: the cell written is a gate", RECURRENT + "lstm.py", "activate(gates[3 * n :], self.activation,", "activate(gates[3 * n :], self.gate_activation,"),
        ("quantize", "columns are copied within the product", LAYER, "self._int8, _rows(inputs), target", "self._int8, inputs, target"),
        ("quantize", "steps of a single sample are copied within the product", LAYER, "direct = not beta and _in_rows(outputs)", "direct = not beta"),
        ("quantize", "a product takes over a bias in float32 too", LINEAR, "        if self.int8_step is not None:\n            return super().takes_over(following)\n", "        if True:\n            return super().takes_over(following)\n"),
        ("quantize", "a loaded weight has no effect", LAYER, "                setattr(self, name, None)\n        self._changed()\n", "                setattr(self, name, None)\n        fold_again(self)\n"),
        ("quantize", "a file that is not quantized leaves the layer quantized", LAYER, "            if name not in given:\n", "            if name is None:\n"),
        ("quantize", "training is allowed", LAYER, "        if not inference:", "        if inference is None:"),
        ("quantize", "only the last batch counts", MODELS + "quantize.py", "[*map(max, known, _largest(layer))]", "_largest(layer)"),
    )
)  # fmt: skip
