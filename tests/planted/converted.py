"""Faults in calls whose kernels convert tensors of 16 bits in working memory."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, KERNELS, OPTREE, C, Mutant

CALLS, CONVERT = KERNELS + "run/calls.py", KERNELS + "c/convert.py"
COPIES, PRODUCTS = KERNELS + "c/copies.py", KERNELS + "c/products.py"

MUTANTS = tuple(
    Mutant("converted", name, file, old, new)
    for name, file, old, new in (
        ("converted arrays overlap the kernel's memory", CALLS, "(Source.MEMORY, which + front) if source is Source.MEMORY", "word if source is Source.MEMORY"),
        ("all products of a stack read the first matrices", CALLS, "places[which] + sum(before)", "places[which]"),
        ("all arrays are converted to one place", CALLS, "for other in converted[:which])", "for other in converted[:0])"),
        ("results stay in working memory", CALLS, "        if one.narrow is not None:\n            steps.append", "        if False:\n            steps.append"),
        ("old values are not converted", CONVERT, "if written.get(operand, True) else None", "if operand not in written else None"),
        ("results of convolutions are not converted", CPU + "primitives/conv/hooks.py", "{2: reads_old}", "{}"),
        ("the kernel's own operands are converted, too", CPU + "primitives/compiled.py", "None if which in known else array", "array"),
        ("matrices with gaps pass for dense ones", CPU + "primitives/linalg.py", "if not dense or any(", "if any("),
        ("matrices in reverse pass for dense ones", OPTREE + "shapes.py", "* step for size, step in axes)\n    return all(step > 0 for _, step in axes) and ", "* abs(step) for size, step in axes)\n    return "),
        ("parts of matrices in expressions pass for dense ones", CONVERT, "    if not is_gapless(array.shape, array.strides, array.itemsize):\n        return None\n", ""),
        ("subnormal numbers of the first vector are lost", C + "halves.h", "kortestw %%k1, %%k2", "kortestw %%k2, %%k2"),
        ("two vectors change places", C + "halves.h", "vcvtne2ps2bf16 %1, %2, %0", "vcvtne2ps2bf16 %2, %1, %0"),
        ("subnormal numbers are rounded up at ties", C + "halves.h", "0x7fffu + (bits >> 16 & 1u)", "0x8000u"),
        ("the last number of a vector that is not full is left out", C + "halves.h", "(nl_halves)nl_uppers_of(rest), NL_SOME(count - i))", "(nl_halves)nl_uppers_of(rest), NL_SOME(count - i - 1))"),
        ("without an instruction ties are rounded up", C + "halves.h", "x + 0x7fffu + (x >> 16 & 1u)", "x + 0x8000u"),
        ("without an instruction nan of small fractions is infinite", C + "halves.h", "(x >> 16 | 0x40u)", "(x >> 16)"),
        ("bfloat16 at half its size", C + "halves.h", "(const nl_uppers_at_once *)(from + i), nl_words_at_once) << 16", "(const nl_uppers_at_once *)(from + i), nl_words_at_once) << 15"),
        ("inputs of 16 bits are kept as they are", KERNELS + "codegen/pass_cache.py", "compute_dtype(array.dtype) if array.half else array.dtype", "array.dtype"),
        ("bits are kept in place of numbers", KERNELS + "codegen/passes.py", "for array in reached.arrays if array.half}", "for array in ()}"),
        ("a single block keeps no values", KERNELS + "c/stage.py", "not large and forms.keeps_halves(self.kernel)", "False"),
        ("values are packed where a result can hold them", KERNELS + "c/forms.py", 'bool(halves) and "" not in halves', "True"),
        ("a product's result stays in float32", PRODUCTS, "product, *stored])", "product])"),
        ("results of attention stay in float32", CPU + "primitives/attention.py", "return call._replace(converted=conversions(arrays, self.compiler, _WRITTEN[request.backward]))", "return call._replace(converted=conversions(arrays, self.compiler, {}))"),
        ("computed operands are not rounded to 16 bits", COPIES, "return Lying(array, read) if kind == array.dtype and not half_of(kind) else in_dtype(run, array, read, kind)", "return Lying(array, read) if not half_of(array.dtype) else in_dtype(run, array, read, kind)"),
        ("operands with gaps are converted as dense ones", COPIES, "    if is_gapless(array.shape, array.strides, array.itemsize):\n        return Lying", "    if array.strides:\n        return Lying"),
        ("targets with gaps are written as dense ones", COPIES, "return None if target is None or as_floats(target.array) is None else target", "return target"),
        ("arrays in another order pass for those in this one", CONVERT, "if lying is None or _axes(lying) != _axes(floats):", "if lying is None:"),
        ("what is read of a call's result is not there", COPIES, " + [wide]", ""),
        ("results are converted where they are read alone", KERNELS + "run/stage.py", "and not plan.kept(stage)", "and True"),
        ("windows begin where they would in float32", COPIES, "inner, after(read, offset * size)", "inner, after(read, offset * 4)"),
        ("zeros are not written around what is converted", COPIES, "found.array, found.place, whole, zeros)", "found.array, found.place)"),
    )
)  # fmt: skip
