"""Faults for small kinds of random checks: roundings, functions, empty tensors, pairs of activations and costs."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, TRANSFORMS, C, Mutant


def contraction(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("contraction", name, KERNELS + file, old, new)


def functions(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("vecmath", name, C + "vecmath/" + file, old, new)


def kinds(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("kinds", name, file, old, new)


MUTANTS = (
    contraction("every kernel contracts", "build/source.py", "return self.contracts or settings.CONTRACT.get()", "return True"),
    contraction("none contracts when asked to", "build/source.py", "return self.contracts or settings.CONTRACT.get()", "return self.contracts"),
    contraction("the compiler is not told", "c/toolchain.py", '    ("-ffp-contract=off",),\n', '    ("-ffp-contract=fast",),\n'),
    functions("exp far below 0 is not 0", "vecmath_f32.h", "    return x < -104.0f ? 0.0f : result; /*", "    return x < -204.0f ? 0.0f : result; /*"),
    functions("exp2 far below 0 is not 0", "vecmath_f32.h", "return x < -151.0f ? 0.0f : result;", "return x < -451.0f ? 0.0f : result;"),
    functions("erf beyond its polynomial", "vecmath_f32.h", "size > 3.92f ? 1.0f : e", "size > 9.92f ? 1.0f : e"),
    functions("half a turn is taken off the angle", "vecmath_trigonometry.h", "nl_muladd_f64(x, per_x, -(n - 0.5))", "nl_muladd_f64(x, per_x, -(n - 0.25))"),
    kinds("whole numbers go to 16 bits by way of float64", KERNELS + "codegen/emit.py", ' or target.dtype.itemsize == 2 ', ' '),
    kinds("16 bits are rounded twice", KERNELS + "run/convert.py", "if values.dtype.itemsize > 4 or", "if values.dtype.itemsize > 8 or"),
    kinds("softmax and its cost take any weights for 1", TRANSFORMS + "activation.py", "return y * self.be.sum(t, axis=self.axis) - t", "return y - t"),
    kinds("mean squares have the slope of sums", TRANSFORMS + "cost.py", "return (y - t) / y.shape[0]", "return y - t"),
)
