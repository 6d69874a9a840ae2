"""Faults in other parts: lookup tables, products, helpers of layers, statistics, merging containers, scratch memory."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import EXPRESSIONS, KERNELS, MACHINE, OPTREE, PRIMITIVES, TENSORS, C, Mutant

LOOKUP, LUT, LINALG, XNOR = PRIMITIVES + "lookup.py", C + "lut_bprop.c.j2", PRIMITIVES + "linalg.py", C + "xnor_product.c.j2"
BLAS = C + "gemm_blas.c.j2"
STATS, SCRATCH, MERGE, ACTIVATION = TENSORS + "stats.py", TENSORS + "scratch.py", MACHINE + "merge.py", EXPRESSIONS + "activation.py"
NUMPY = OPTREE + "npfuncs.py"

MUTANTS = (
    Mutant("lookup", "pad_idx ignored", LOOKUP, "words[words == pad_idx] = -1", "words[words == pad_idx] = pad_idx"),
    Mutant("lookup", "beta ignored", LOOKUP, "if beta != 1:", "if False:"),
    Mutant("lookup", "alias check removed", LOOKUP, '        check_apart(name, {"dW": dW, "error_t": error_t}, {"inputs": inputs, "error": error})\n', ""),
    Mutant("lookup", "definition: dW replaced", LOOKUP, "rows[found] + request.alpha * sums", "request.alpha * sums"),
    Mutant("lookup", "definition: columns of one word not added up", LOOKUP, "np.add.reduceat(host(error).T[order], starts, axis=0, dtype=np.float64)", "host(error).T[order][starts].astype(np.float64)"),
    Mutant("lookup", "definition: rows added up in float32", LOOKUP, "starts, axis=0, dtype=np.float64)", "starts, axis=0)"),
    Mutant("lookup", "C: dW replaced", LUT, "(to[e] + g->alpha * total[e])", "(g->alpha * total[e])"),
    Mutant("lookup", "C: alpha ignored", LUT, "g->alpha * total[e]", "total[e]"),
    Mutant("lookup", "C: words sorted by their lowest bits", LUT, "(uint64_t)(limit - 1) >> (shift - 32);", "shift == 32 && limit > 1;"),
    Mutant("lookup", "C: the last column of a word dropped", LUT, "last = g->start[group + 1];", "last = g->start[group + 1] - (g->start[group + 1] - g->start[group] > 1);"),
    Mutant("lookup", "onehot on the wrong axis", LOOKUP, "functions.onehot(indices, axis, self)", "functions.onehot(indices, 1 - axis, self)"),
    Mutant("lookup", "kernels: onehot on the wrong axis", KERNELS + "run/arrays.py", "int(axis in value.axes)", "int(axis not in value.axes)"),
    Mutant("lookup", "wrong tie in argmax", NUMPY, "    np.argmax(x, axis=axes[0], out=out, keepdims=True)\n", "    last = np.argmax(np.flip(x, axes[0]), axis=axes[0], keepdims=True)\n    out[...] = x.shape[axes[0]] - 1 - last\n"),
    Mutant("lookup", "C: wrong tie in argmax", KERNELS + "codegen/reductions.py", 'i, ">" if largest else "<", ctype', 'i, ">=" if largest else "<=", ctype'),
    Mutant("linalg", "bsum before relu and beta", LINALG, "F.sum(C, axis=1)", "F.sum(product, axis=1)"),
    Mutant("linalg", "beta ignored", LINALG, "result + c * beta", "result + c"),
    Mutant("linalg", "alpha ignored", LINALG, "result = product if alpha == 1.0 else product * alpha", "result = product"),
    Mutant("linalg", "relu applied after beta", LINALG, "    if relu:\n        result = F.relu(result)\n    return result if beta == 0.0 else result + c * beta", "    result = result if beta == 0.0 else result + c * beta\n    return F.relu(result) if relu else result"),
    Mutant("linalg", "float16 rounded twice", LINALG, "(bare or C.dtype == compute_dtype(C.dtype))", "True"),
    Mutant("linalg", "alias check of bsum removed", LINALG, "if bsum.alias_of(C):", "if False:"),
    Mutant("linalg", "sum over a batch mixes rows", LINALG, "a.transpose(1, 0, 2).reshape(a.shape[1], -1)", "a.reshape(a.shape[1], -1)"),
    Mutant("linalg", "BLAS blocks: rows of the last one wrong", BLAS, "? p->m - top : p->high,", "? p->m - top - (top > 0) : p->high,"),
    Mutant("linalg", "BLAS blocks: columns of all begin at the first", BLAS, "p->b.at + left * p->b.column", "p->b.at"),
    Mutant("linalg", "BLAS blocks: beta ignored", BLAS, "pitch(b, p->k, columns), p->beta, c,", "pitch(b, p->k, columns), 0, c,"),
    Mutant("linalg", "BLAS blocks: number of threads not put back", C + "workers.c", "limited.set_threads(threads);", "(void)0;"),
    Mutant("linalg", "thread partition off by one", LINALG, "for part in range(parts + 1)]", "for part in range(parts)]"),
    Mutant("linalg", "definition: xnor: sign of zero", LINALG, "t.asnumpyarray() >= 0, 1, -1", "t.asnumpyarray() > 0, 1, -1"),
    Mutant("linalg", "C: xnor: sign of zero", XNOR, "signs[i] = from[i] >= 0;", "signs[i] = from[i] > 0;"),
    Mutant("linalg", "C: xnor: sign of zero in columns", XNOR, "(at[i] >= 0)", "(at[i] > 0)"),
    Mutant("linalg", "C: xnor: signs past the end counted", XNOR, "(k - 2 * (int64_t)differ[r][c])", "(64 * words - 2 * (int64_t)differ[r][c])"),
    Mutant("linalg", "C: xnor: rows of the last block wrong", XNOR, "a + (r < rows ? r : 0) * words", "a + (r < rows - 1 ? r : 0) * words"),
    Mutant("linalg", "axes of copy_transpose ignored", LINALG, "moved = moves.transpose(source, order)", "moved = moves.transpose(source, tuple(range(len(source.shape)))[::-1])"),
    Mutant("stats", "histogram: top bin", STATS, "0, request.bins - 1)", "0, request.bins - 2)"),
    Mutant("stats", "histogram: exponents rounded down", STATS, "np.rint(np.log2(", "np.floor(np.log2("),
    Mutant("stats", "histogram: record not cleared", STATS, "        tags = self.hist_map\n        self._clear_histograms()\n", "        tags = self.hist_map\n"),
    Mutant("stats", "kahan compensation dropped", STATS, "            y = y - cmp_tensor * float(cmp_scale)\n", "            pass\n"),
    Mutant("stats", "kahan compensation turned round", STATS, "(total - sum_tensor) - y)", "y - (total - sum_tensor))"),
    Mutant("stats", "kahan in float16: what rounding lost is not seen", STATS, "(rounded - sum_tensor) - y)", "((sum_tensor + y) - sum_tensor) - y)"),
    Mutant("stats", "kahan reset one call early", STATS, "count > reset", "count >= reset"),
    Mutant("stats", "kahan: add_scale ignored", STATS, "y = added * float(add_scale)", "y = added * 1.0"),
    Mutant("stats", "kahan: alias check removed", STATS, '        check_apart(name, {"sum_tensor": sum_tensor, "cmp_tensor": cmp_tensor}, {})\n', ""),
    Mutant("stats", "binarize: probability is the value", STATS, "F.greater((source + 1) / 2, self.rand())", "F.greater(source, self.rand())"),
    Mutant("stats", "binarize: sign of zero", NUMPY, "    np.greater_equal(x, 0, out)\n    np.multiply(out, 2, out)", "    np.greater(x, 0, out)\n    np.multiply(out, 2, out)"),
    Mutant("stats", "shift: exponents rounded down", NUMPY, "np.rint(np.log2(np.abs(by)))", "np.floor(np.log2(np.abs(by)))"),
    Mutant("merge", "sum: old outputs stay", MERGE, "beta=1.0 if position else 0.0", "beta=1.0"),
    Mutant("merge", "sum: branches backward in forward order", MERGE, "enumerate(reversed(layers))", "enumerate(layers)"),
    Mutant("merge", "sum: beta counts for every branch", MERGE, "beta=1.0 if position else beta", "beta=beta"),
    Mutant("merge", "broadcast: alpha of a branch ignored", MERGE, "alpha=factor * alpha", "alpha=alpha"),
    Mutant("merge", "broadcast: beta goes to the first branch", MERGE, "betas[-1] = beta", "betas[0] = beta"),
    Mutant("scratch", "sizes rounded down", SCRATCH, "-(-int(size) // GRANULE) * GRANULE", "int(size) // GRANULE * GRANULE"),
    Mutant("scratch", "buffers overlap", SCRATCH, "self.scratch_offset += needed", "self.scratch_offset = needed"),
    Mutant("scratch", "size is that of the largest buffer", SCRATCH, "sum(_rounded(", "max(_rounded("),
    Mutant("activation", "relu: slope ignored", ACTIVATION, "F.maximum(x, 0) + slope * F.minimum(x, 0) if slope else F.maximum(x, 0)", "F.maximum(x, 0)"),
    Mutant("activation", "relu: derivative at 0 is the slope", ACTIVATION, "slope * F.less(x, 0)", "slope * (1 - F.greater(x, 0))"),
    Mutant("activation", "softmax: axis ignored", ACTIVATION, 'expression("fprop_softmax", x, self), axis)', 'expression("fprop_softmax", x, self), 0)'),
    Mutant("activation", "transform: error ignored", ACTIVATION, "inputs) * expression(\"bprop_transform\", error, self))", "inputs) * (error * 0 + 1))"),
    Mutant("activation", "skip connection: beta ignored", ACTIVATION, "y * float(beta) + x if beta", "y + x if beta"),
    Mutant("activation", "skip connection: alpha ignored", ACTIVATION, "scaled = error * float(alpha)", "scaled = error * 1.0"),
    Mutant("activation", "bias gradient accumulates", ACTIVATION, "F.sum(err, axis=1)", "out + F.sum(err, axis=1)"),
    Mutant("onehot", "negative indices count", NUMPY, "bad = indices[(indices < 0) | (indices >= limit)]", "bad = indices[indices >= limit]"),
    Mutant("onehot", "C: no index is out of range", C + "fastpath/fastpath_classes.h", "return wrong ? OUT_OF_RANGE : 0;", "return 0;"),
    Mutant("onehot", "C: steps of bytes are those of elements", C + "fastpath/fastpath_classes.h", "from += classes->from)", "from += sizeof(type))"),
    Mutant("onehot", "targets are written before indices are checked", KERNELS + "planning/plan.py", '("take", "untake", "classes")', '("take", "untake")'),
    Mutant("onehot", "neon's dialect refuses", OPTREE + "functions.py", "if not dialect.is_neon() if checked is None else checked:", "if checked is not False:"),
)
