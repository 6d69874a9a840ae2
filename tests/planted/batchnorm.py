"""Faults in batch normalisation: the NumPy definition, the C and CUDA templates, checks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, CUDA, GPU, PRIMITIVES, C, Mutant

FAMILY, DEFINITION = PRIMITIVES + "batchnorm/family.py", PRIMITIVES + "batchnorm/definition.py"
ROWS = C + "batchnorm_rows.h"
FORWARD, BACKWARD = C + "batchnorm_fprop.c.j2", C + "batchnorm_bprop.c.j2"
CUDA_ROWS = CUDA + "batchnorm/rows.cu.j2"
CUDA_FORWARD, CUDA_BACKWARD = CUDA + "batchnorm/fprop.cu.j2", CUDA + "batchnorm/bprop.cu.j2"
ON_GPU = GPU + "primitives/batchnorm.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("batchnorm", name, file, old, new)


def on_gpu(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family in CUDA."""
    return Mutant("batchnorm_cuda", name, file, old, new)


MUTANTS = (
    fault("C: 16 bits: old results not read", FORWARD, "            if (g->accumbeta != 0)\n                nl_widen", "            if (0)\n                nl_widen"),
    fault("C: 16 bits: mask of relu not read", BACKWARD, "            if (g->flags & RELU)\n                nl_widen", "            if (0)\n                nl_widen"),
    fault("C: 16 bits: old gradient not read", BACKWARD, "            if (g->beta_data != 0)\n                nl_widen", "            if (0)\n                nl_widen"),
    fault("C: 16 bits: ends of rows read as the first", C + "batchnorm_load.j2", "load_one(from + l)", "load_one(from)"),
    fault("C: 16 bits: copies read in place of the data", CPU + "primitives/compiled.py", "return half, dtype if half else None", "return half, None"),
    fault("C: 16 bits: what is left of a row is left out", FORWARD, "for (; i < at.n; i += STRIP) {", "for (; i + STRIP <= at.n; i += STRIP) {"),
    fault("C: 16 bits: chunks ignore alpha", FORWARD, "chunk[l] = alpha * clamped;", "chunk[l] = clamped;"),
    fault("C: 16 bits: chunks forget old values", FORWARD, "g->accumbeta == 0 ? normalise_chunks", "1 ? normalise_chunks"),
    fault("definition: running mean not updated", DEFINITION, '((rows["gmean"], mean), (rows["gvar"], var))', '((rows["gvar"], var),)'),
    fault("definition: rho swapped", DEFINITION, "_blend(how.rho, running, (1 - how.rho) * now[:, 0])", "_blend(1 - how.rho, running, how.rho * now[:, 0])"),
    fault("definition: inference statistics wrong", DEFINITION, 'for name in ("gmean", "gvar"))\n        centred', 'for name in ("gvar", "gmean"))\n        centred'),
    fault("definition: epsilon outside the root", DEFINITION, "1 / np.sqrt(var + how.eps)", "1 / (np.sqrt(var) + how.eps)"),
    fault("definition: variance unbiased", DEFINITION, "how.binary).mean(axis=1)", "how.binary).sum(axis=1) / max(x.shape[1] - 1, 1)"),
    fault("definition: given sums taken as means", DEFINITION, 'mean = _column(rows["xsum"]) / x.shape[1]', 'mean = _column(rows["xsum"])'),
    fault("definition: relu applied after accumbeta", DEFINITION, "    if how.relu:\n        np.maximum(result, 0, out=result)\n    y[...] = _blend(how.accumbeta, y, how.alpha * result)", "    result = _blend(how.accumbeta, y, how.alpha * result)\n    y[...] = np.maximum(result, 0) if how.relu else result"),
    fault("definition: alpha ignored", DEFINITION, "_blend(how.accumbeta, y, how.alpha * result)", "_blend(how.accumbeta, y, result)"),
    fault("definition: grad_gamma without xhat", DEFINITION, "(xhat * error).sum(axis=1)", "error.sum(axis=1)"),
    fault("definition: beta_param blends the data", DEFINITION, "_blend(how.beta_data, out,", "_blend(how.beta_param, out,"),
    fault("definition: gradient passes where the relu gave 0", FAMILY, "error[~(given[block] > 0)] = 0", "error[~(given[block] >= 0)] = 0"),
    fault("alias check removed", FAMILY, "    check_apart(operation, written_rows, inputs)\n", ""),
    fault("C forward: running mean not updated", FORWARD, "        gmean[r] = (real)blend(rho, (double)gmean[r], (1.0 - rho) * group->mean[r]);\n", "        (void)gmean;\n"),
    fault("C forward: rho swapped", FORWARD, "blend(rho, (double)gvar[r], (1.0 - rho) * var)", "blend(1.0 - rho, (double)gvar[r], rho * var)"),
    fault("C forward: inference takes the first row's mean", FORWARD, "(double)g->gmean[row + r]", "(double)g->gmean[row]"),
    fault("C forward: epsilon outside the root", FORWARD, "1.0 / sqrt((double)var[r] + eps)", "1.0 / (sqrt((double)var[r]) + eps)"),
    fault("C forward: variance unbiased", FORWARD, "count = 1.0 / (double)g->length;", "count = 1.0 / (double)(g->length > 1 ? g->length - 1 : 1);"),
    fault("C forward: accumbeta ignored", FORWARD, "alpha * clamped + accumbeta * y[i]", "alpha * clamped + y[i]"),
    fault("C forward: relu applied after accumbeta", FORWARD, '{{ each("alpha * clamped + accumbeta * y[i]") }}', '{{ each("alpha * v + accumbeta * y[i] < bottom ? bottom : alpha * v + accumbeta * y[i]") }}'),
    fault("C forward: relu makes nan 0", FORWARD, "(x[i] - pivot) * scale + offset, clamped = v < bottom ? bottom : v", "(x[i] - pivot) * scale + offset, clamped = v > bottom ? v : bottom"),
    fault("C: 16 bits: relu makes nan of a chunk 0", FORWARD, "(given[l] - pivot) * scale + offset, clamped = v < bottom ? bottom : v", "(given[l] - pivot) * scale + offset, clamped = v > bottom ? v : bottom"),
    fault("C forward: variance within blocks alone", FORWARD, "b.squares + apart * apart * (a->n * b.n / (a->n + b.n))", "b.squares + 0 * apart"),
    fault("C forward: squares about the pivot, not the mean", FORWARD, "found.squares - found.sum * found.sum / (double)n", "found.squares"),
    fault("C forward: given sums: the mean's rounding counts", FORWARD, "all.squares - rest * (2 * all.sum - length * rest)", "all.squares + 0 * rest"),
    fault("C forward: shift-based gamma exact", FORWARD, "factor(scale[r], binary) * factor((double)gamma[r], binary)", "factor(scale[r], binary) * (double)gamma[r]"),
    fault("C backward: epsilon outside the root", BACKWARD, "1.0 / sqrt((double)xvar[r] + eps)", "1.0 / (sqrt((double)xvar[r]) + eps)"),
    fault("C backward: gradient passes where the relu gave 0", BACKWARD, "(bits)(y > zero)", "(bits)(y >= zero)"),
    fault("C backward: grad_gamma without the deviation", BACKWARD, "grad_gamma = inverse_std * (all.product - rest * all.error)", "grad_gamma = all.product - rest * all.error"),
    fault("C backward: alpha_param ignored", BACKWARD, "g->alpha_param * grad_beta", "grad_beta"),
    fault("C backward: beta_data ignored under a relu", BACKWARD, '{{ each("y[i] > 0 ? error[i] : 0", " + beta_data * to[i]") }}', '{{ each("y[i] > 0 ? error[i] : 0", " + to[i]") }}'),
    fault("C: lanes behind the last counted", C + "batchnorm_load.j2", "v[l] = l < n ? load_one(from + l) : rest;", "v[l] = l < n ? load_one(from + l) : 0 * rest;"),
    fault("C: thread partition off by one", ROWS, "p->run(p->group, lo, hi);", "p->run(p->group, lo + (lo > 0), hi);"),
    on_gpu("parts: sums of squares not corrected where means differ", CUDA_FORWARD, "(a.squares + b.squares) + apart * apart * (a.n * b.n / n)", "(a.squares + b.squares) + 0 * apart * n"),
    on_gpu("parts: the last part counts as a whole one", CUDA_FORWARD, "(double)(left < part ? left : part)", "(double)(left < part ? part : part)"),
    on_gpu("parts: elements that are not there are counted", CUDA_FORWARD, "const nl_moments next = {(double)n, found,", "const nl_moments next = {(double)(K * V), found,"),
    on_gpu("forward: relu applied after accumbeta", CUDA_FORWARD, "const nl_real result = times * (v < bottom ? bottom : v);", "const nl_real result = times * v;"),
    on_gpu("forward: given sums: the mean's rounding counts", CUDA_FORWARD, "sums.b - rest * (2 * sums.a - length * rest)", "sums.b + 0 * rest * length"),
    on_gpu("forward: running mean moved by the variance", CUDA_FORWARD, "nl_blend(g_gmean + row, rho, (1.0 - rho) * mean)", "nl_blend(g_gmean + row, rho, (1.0 - rho) * var)"),
    on_gpu("forward: shift-based variance exact", CUDA_FORWARD, "squares += binary ? shift_by(d, d) : d * d;", "squares += d * d;"),
    on_gpu("backward: errors pass where the relu gave 0", CUDA_BACKWARD, "nl_number(given.v[l]) > 0 ?", "nl_number(given.v[l]) >= -1 ?"),
    on_gpu("backward: only a thread's first part is counted", CUDA_BACKWARD, "p < parts; p += blockDim.x", "p < parts && p < 1; p += blockDim.x"),
    on_gpu("backward: beta_param ignored", CUDA_BACKWARD, "nl_blend(g_grad_beta + row, beta_param,", "nl_blend(g_grad_beta + row, 1.0,"),
    on_gpu("fold: one warp too few", CUDA_ROWS, "warp < threads / 32; warp++", "warp < threads / 32 - 1; warp++"),
    on_gpu("fold: no barrier before the sums are read", CUDA_ROWS, "            room[lane / 32] = sums;\n        __syncthreads();\n", "            room[lane / 32] = sums;\n"),
    on_gpu("rows of a block run over the last one", CUDA_ROWS, "const int end = active ? (int)length : 0;", "const int end = (int)length;"),
    on_gpu("elements of unaligned vectors all the first", CUDA_ROWS, "found.v[l] = from[l];", "found.v[l] = from[0];"),
    on_gpu("parts are one chunk, however long the row", ON_GPU, "part = chunk * -(-length // (MOST_PARTS * chunk))", "part = chunk"),
    on_gpu("vectors over the end of rows", ON_GPU, "while length % vector:", "while length % vector > 1:"),
)
