"""Faults in pooling: the NumPy definition, the C templates, sizes, checks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, GEOMETRY, PRIMITIVES, C, Mutant

FAMILY, DEFINITION, SIZES = PRIMITIVES + "pooling/family.py", PRIMITIVES + "pooling/definition.py", GEOMETRY + "sizes.py"
FORWARD, BACKWARD = C + "pooling/forward.c.j2", C + "pooling/backward.c.j2"
ROWS, SCATTER, WHOLE = C + "pooling/rows.c.j2", C + "pooling/scatter.c.j2", C + "pooling/whole.c.j2"
TURNS = C + "pooling/turns.j2"
GATHER, STORED, KERNELS = C + "pooling/gather.c.j2", C + "stored.j2", CPU + "primitives/pool.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("pool", name, file, old, new)


MUTANTS = (
    fault("definition: padding counted in means", DEFINITION, "return sums / np.maximum(layer.counts, 1) if", "return sums / layer.window if"),
    fault("definition: padding counted in gradients of means", DEFINITION, "share = error / np.maximum(layer.counts, 1)", "share = error / layer.window"),
    fault("definition: the last of equal maxima", DEFINITION, "(new > old)", "(new >= old)"),
    fault("definition: nan is no maximum", DEFINITION, " | (np.isnan(new) & ~np.isnan(old))", ""),
    fault("definition: last window dropped", DEFINITION, "(length - 1 + padding - offset) // stride + 1", "(length - 1 + padding - offset) // stride"),
    fault("definition: overlapping windows not accumulated", DEFINITION, "delta[places] += share", "delta[places] = share"),
    fault("definition: l2 gradient without the input", DEFINITION, "    delta[read] *= values[read]\n", ""),
    fault("definition: l2 gradient in no window", DEFINITION, "    delta[read] *= values[read]\n", "    delta *= values\n"),
    fault("definition: division by a zero norm", DEFINITION, ", where=norm != 0", ""),
    fault("definition: beta ignored", DEFINITION, "scaled + beta * target", "scaled + target"),
    fault("definition: alpha ignored", DEFINITION, "scaled = result if alpha == 1 else alpha * result", "scaled = result"),
    fault("C forward: the last of equal maxima", FORWARD, "const ivec better = x > result[v];", "const ivec better = x >= result[v];"),
    fault("C forward: padding counted in means", FORWARD, "const real divisor = count * columns > 0 ? (real)(count * columns) : 1;", "const real divisor = (real)(g->meta[J] * g->meta[T] * g->meta[R] * g->meta[S]);"),
    fault("C forward: positions of maxima without padding", FORWARD, "(c - k * m[STR_C] + m[PAD_C]) * m[T]", "(c - k * m[STR_C]) * m[T]"),
    fault("C forward: beta ignored", FORWARD, "y += g->beta * load(out);", "y += load(out);"),
    fault("C forward: last lanes blended twice", FORWARD, "if (from > 0 && g->beta != 0) {", "if (0) {"),
    fault("C forward: images past the last whole vectors left out", FORWARD, "    else if (n < all)\n", "    else if (0)\n"),
    fault("C: numbers of maxima in the wrong lanes", C + "pooling/common.j2", "i // number_bytes * bytes + i % number_bytes", "i % number_bytes"),
    fault("C forward: nan is no maximum", FORWARD, "if (__builtin_expect(any(nans[v] != nans[v]), 0)) {", "if (0) {"),
    fault("C forward: thread partition off by one", FORWARD, "windows(g, g->lines + me * g->most, lo, hi);", "windows(g, g->lines + me * g->most, lo + (lo > 0), hi);"),
    fault("C backward: overlapping windows not accumulated", BACKWARD, "sum[v] += weight * e;", "sum[v] = weight * e;"),
    fault("C backward: stride phase of a window wrong", BACKWARD, "place_there -= g->meta[STR_W])", "place_there -= 1)"),
    fault("C backward, few images: beta ignored", BACKWARD, "y += g->beta * g->delta[element];", "y += g->delta[element];"),
    fault("C backward: row of other windows copied", BACKWARD, "p0[h] == p0[h - 1] && p1[h] == p1[h - 1]", "p1[h] == p1[h - 1]"),
    fault("C backward: element of other windows copied", BACKWARD, "q0[w] == q0[w - 1] && q1[w] == q1[w - 1]", "q0[w] == q0[w - 1]"),
    fault("C backward: row copied from another thread's part", BACKWARD, "h > 0 && lo - m[W] >= begin", "h > 0"),
    fault("C backward: copies in spite of beta", BACKWARD, "copies = g->beta == 0 && !g->streamed", "copies = !g->streamed"),
    fault("C backward: alpha ignored", BACKWARD, "vec y = g->alpha * sum[v];", "vec y = sum[v];"),
    fault("C backward: windows of the row above", BACKWARD, "+ h + m[PAD_H] - p * m[STR_H];", "+ h - p * m[STR_H];"),
    fault("caffe rounds down", SIZES, "size = -(-room // stride) + 1", "size = room // stride + 1"),
    fault("caffe keeps a window in the padding", SIZES, "(size - 1) * stride >= length + padding", "(size - 1) * stride > length + padding"),
    fault("strides default to 1", FAMILY, "size if step is None else step", "1 if step is None else step"),
    fault("l2 gradient of the first input ever", FAMILY, 'layer.seen["input"] = I', 'layer.seen.setdefault("input", I)'),
    fault("narrow argmax counts one too few", FAMILY, "return layer.window - 1 <= int(", "return layer.window - 2 <= int("),
    fault("alias check removed", FAMILY, "check_apart(name, outputs, inputs)\n        return layer", "return layer"),
    fault("C: l2 gradient not divided by the norm", CPU + "primitives/pool.py", "error = share_of_norm(error, norm)", "share_of_norm(error, norm)"),
    fault("C: rows: the last of equal maxima", ROWS, "const ivec more = y > best;", "const ivec more = y >= best;"),
    fault("C: rows: nan looked for nowhere", ROWS, "none |= y != y;", ""),
    fault("C: rows: padding on the right read", ROWS, "for (int64_t x = before + width; x < read; x += LANES) {", "for (int64_t x = before + width + 1; x < read; x += LANES) {"),
    fault("C: rows: maximum in the padding", ROWS, "NOWHERE = 1 << 30", "NOWHERE = -1"),
    fault("C: rows: padding counted in means", ROWS, "(real)(w1[x / IMAGES] - w0[x / IMAGES]) : 1", "COLUMNS : 1"),
    fault("C: rows: vectors past the end of the input", ROWS, "g->end - last >= width + LANES", "1"),
    fault("C: rows: beta ignored", ROWS, "out[n] = beta != 0 ? y[n] + beta * out[n] : y[n];", "out[n] = y[n];"),
    fault("C: rows: beta ignored in whole vectors", ROWS, "y + beta * *(const gloose *)out", "y + *(const gloose *)out"),
    fault("C: rows: the later of equal maxima in another column", ROWS, "((x == *best) & (here < *at))", "((x == *best) & (here > *at))"),
    fault("C: rows: rows read that a window does not have", ROWS, "if (all && inside)", "if (inside)"),
    fault("C: rows: channels of a window numbered alike", ROWS, "((c * DEEP + d) * ROWS + h) * COLUMNS))", "(d * ROWS + h) * COLUMNS))"),
    fault("C: scatter: padding written", SCATTER, "if (d >= 0 && d < m[D] && h >= 0 && h < m[H] && w >= 0 && w < m[W])", "if (1)"),
    fault("C: scatter: the last place of a window", SCATTER, "if (numbers[n] < window)", "if (numbers[n] < window - 1)"),
    fault("C: scatter: rows below the last window kept", SCATTER, "        memset(delta + cleared * row, 0, (size_t)((m[D] * m[H] - cleared) * row) * sizeof(real));\n", ""),
    fault("C: scatter: windows that overlap overwrite", SCATTER, '"=" if apart else "+="', '"="'),
    fault("C: scatter: columns of windows that are cut", SCATTER, "while (qa < qb && w1[qa] - w0[qa] < m[S])", "while (0)"),
    fault("C: scatter: the first small channels cleared alone", SCATTER, "(c - lo) % small == 0", "c == lo"),
    fault("C: gather: window after the last one taken for one", GATHER, "for (; x < pitch; x += LANES)", "for (x += LANES; x < pitch; x += LANES)"),
    fault("C: gather: windows before the first row kept from another band", GATHER, "if (p >= 0 && p < m[P]) {", "if (p < 0)\n                x = pitch;\n            else if (p < m[P]) {"),
    fault("C: gather: numbers read past their end", GATHER, ">= size + LANES)\n        for (int64_t x = 0; x < size; x += LANES)\n            *(nloose", ">= size)\n        for (int64_t x = 0; x < size; x += LANES)\n            *(nloose"),
    fault("C: gather: last values of a row not written", GATHER, "        *(loose *)(to + size - LANES) = *(const loose *)(from + size - LANES);\n", ""),
    fault("C: gather: a row of windows missed below a band", GATHER, "p < bottom + BELOW; p++", "p < bottom + BELOW - 1; p++"),
    fault("C: gather: shares of means by the whole window", GATHER, "(real)(s->alpha * weight_h[p])", "(real)(s->alpha * weight_h[m[P] / 2])"),
    fault("C: rows: last columns of a row of windows missed", ROWS, "for (int64_t x = 0; x < width; x += LANES) {", "for (int64_t x = 0; x + LANES <= width; x += LANES) {"),
    fault("C: rows: rows of the next channel", ROWS, "if (++p == m[P]) {", "if (0) {"),
    fault("C: rows: beta applied to lanes of the next windows", ROWS, "if (beta == 0 && room >= GROUP)", "if (0)\n        ;\n    else if (beta != 0 && room >= GROUP)\n        *(gloose *)out = y + beta * *(gloose *)out;\n    else if (room >= GROUP)"),
    fault("C: whole: the last of equal maxima", WHOLE, "(b.at < a.at)", "(b.at > a.at)"),
    fault("C: whole: values of the next channel added", WHOLE, "*(const ivec *)lane < (ivec){ 0 } + (integer)rest", "*(const ivec *)lane <= (ivec){ 0 } + (integer)rest"),
    fault("C: whole: sums of channels in another order", WHOLE, "(lanes if l // half % 2 else 0) }}", "(lanes if l // half % 2 == 0 else 0) }}"),
    fault("C: whole: vectors read behind the input", WHOLE, "(vectors - (end - in < vectors * USED + LANES)) * USED", "vectors * USED"),
    fault("C: whole: beta ignored where channels fill a vector", WHOLE, "y += (real)g->s->beta * *(const loose *)(g->to + to);", "y += 0;"),
    fault("C backward: last images of an element not copied", BACKWARD, "    if (all % LANES > 0)\n        *(same *)(to + all - LANES)", "    if (0)\n        *(same *)(to + all - LANES)"),
    fault("C: whole: nan looked for in the first block alone", WHOLE, "    *nan |= x != x;\n", ""),
    fault("C: whole: beta ignored", WHOLE, "beta != 0 ? alpha * x + beta * g->to[to] : alpha * x", "alpha * x"),
    fault("C: 16 bits: bfloat16 widened by one bit too few", TURNS, "(vec)(both << 16)", "(vec)(both << 15)"),
    fault("C: 16 bits: two numbers of a word run together", TURNS, "(vec)(both & 0xffff0000u)", "(vec)both"),
    fault("C: 16 bits: vectors change places when they are put in order", TURNS, "values[v + 1] = SHUFFLE(even, odd", "values[v + 1] = SHUFFLE(odd, even"),
    fault("C: 16 bits: sums of turns out of order", FORWARD, "    if (by_turns)\n        in_order(result, wide);\n", ""),
    fault("C: 16 bits: numbers of maxima out of order", FORWARD, "        numbers_in_order(at, wide);\n", ""),
    fault("C: 16 bits: a nan is looked for in other lanes", FORWARD, "        in_order(nans, wide);\n", ""),
    fault("C: 16 bits: last of a vector not rounded", STORED, "nl_narrow_{{ half }}(to, values, LANES);", "nl_narrow_{{ half }}(to, values, LANES - 1);"),
    fault("C: 16 bits: kernel in place given copies", KERNELS, "with forward_arrays(layer, I, O, argmax, request.beta, self._pool_dtype(kernel, I, O))", "with forward_arrays(layer, I, O, argmax, request.beta)"),
    fault("C: 16 bits: gradient in place given copies", KERNELS, "inputs, request.beta, stored)", "inputs, request.beta)"),
    fault("C: 16 bits: tensors of two dtypes read alike", KERNELS, "return dtype if dtype == O.dtype else compute_dtype(dtype)", "return dtype"),
    fault("C: 16 bits: half of a row copied", BACKWARD, "* m[N]) * sizeof(stored));\n            lo", "* m[N]) * sizeof(stored) / 2);\n            lo"),
    fault("C: 16 bits: few images converted to no purpose", KERNELS, "in_place(stored if layer.N >= most and", "in_place(dtype if layer.N >= most and"),
    fault("C: whole: last values of a gradient not written", WHOLE, "if (i >= BLOCK)", "if (0)"),
)
