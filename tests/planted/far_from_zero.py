"""Faults in the precision of variances and norms far from 0, and where squares are out of range."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, OPTREE, PRIMITIVES, C, Mutant

CHUNKS = C + "reduce/chunks.j2"
FUNCTIONS, STEP = OPTREE + "functions.py", "neonlike/optimizers/step.py"
SAMPLES, MOMENTS = "neonlike/layers/norm/samplenorm.py", C + "reduce/moments.c.j2"
DEFINITION, BACKWARD = PRIMITIVES + "batchnorm/definition.py", C + "batchnorm_bprop.c.j2"

MUTANTS = tuple(
    Mutant("far_from_zero", name, file, old, new)
    for name, file, old, new in (
        ("the rest of the mean is left", FUNCTIONS, "F.div(F.sub(F.sub(a, middle), rest), F.sqrt", "F.div(F.sub(a, middle), F.sqrt"),
        ("layers leave the rest of the mean", SAMPLES, "return (x - self._mean - self._rest) * self._scale", "return (x - self._mean) * self._scale"),
        ("variances are not corrected", OPTREE + "ops.py", "max_nan(({0} - {1} * ({1} / {2})) / {2}, 0)", "max_nan({0} / {2}, 0)"),
        ("squares overflow in float32", FUNCTIONS, "    if is_float(dtype):\n        return OpTreeNode(_WIDEN", "    if dtype is F32:\n        return a\n    if is_float(dtype):\n        return OpTreeNode(_WIDEN"),
        ("sums out of range stay in float32", CHUNKS, "#define IN_RANGE(sum) ((sum) >= 0x1p-90 && (sum) < 0x1p127)", "#define IN_RANGE(sum) 1"),
        ("small squares are lost", CHUNKS, "((sum) >= 0x1p-90 && (sum) < 0x1p127)", "((sum) < 0x1p127)"),
        ("large squares are infinite", CHUNKS, "((sum) >= 0x1p-90 && (sum) < 0x1p127)", "((sum) >= 0x1p-90)"),
        ("the last column decides for its block", C + "reduce/columns.c.j2", "            good &= {{ chunks", "            good = {{ chunks"),
        ("the last column decides for its part", C + "reduce/lanes.c.j2", "        good &= {{ chunks", "        good = {{ chunks"),
        ("the last column decides how all are settled", C + "reduce/strips.j2", "        in_range &= {{", "        in_range = {{"),
        ("the first square decides for all", CHUNKS, "{% for i in level.ranged %}", "{% for i in level.ranged[:1] %}"),
        ("what a row begins with is not known again", C + "reduce/brief.j2", "            settle0(&one, &found);\n", ""),
        ("another use of a square is forgotten", KERNELS + "codegen/ranged.py", "if not sums or _mentions(others, lines):", "if not sums:"),
        ("squares of large float64 overflow", FUNCTIONS, "F.where(F.less(found, 2.0**-450), small, found), large)", "F.where(F.less(found, 2.0**-450), small, found), found)"),
        ("squares of small float64 are 0", FUNCTIONS, "F.where(F.less(found, 2.0**-450), small, found), large)", "found, large)"),
        ("sums of integers wrap", FUNCTIONS, "return F.div(F.sum(F.cast(a), axes), count)", "return F.div(F.cast(F.sum(a, axes)), count)"),
        ("an own gradient does not count", OPTREE + "sweep.py", "node.spec.grad if step.rule is None else step.rule.grad", "node.spec.grad"),
        ("a long row's rest is that of its first part", MOMENTS, "            left += part[k].t{{ m.deviations }} + count * shift;", "            left = part[k].t{{ m.deviations }} + count * shift;"),
        ("what the sum's rounding took stays lost", DEFINITION, "np.where(rounded, true, stored)", "stored"),
        ("what the sum's rounding took stays lost in C", BACKWARD, "g->flags & OWN_SUM ? all.left : NAN", "g->flags & OWN_SUM ? NAN : NAN"),
        ("the norm of gradients is infinite", STEP, "if _LEAST_NORM < found < math.inf or found != found:", "if _LEAST_NORM < found or found != found:"),
        ("the pair needs no sum of its own", KERNELS + "codegen/moments.py", "replace(pair, rest=_rest(form, pair, second))", "replace(pair, rest=None)"),
    )
)  # fmt: skip
