"""The C column of the op table against its NumPy column, in double: one small file with a function for every row."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.optree.ops import Kind, OpSpec
from tests.support.float64.reference import domains, rows, sample
from tests.support.kept_runs import run_kept

pytestmark = pytest.mark.cpu_only("the C compiler and its cache")

HELPERS = """
#include <math.h>
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double sigmoid2(double x) { return 1 / (1 + exp2(-x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double sign(double x) { return x != x ? x : (x > 0) - (x < 0); }
#undef isinf
#define isinf(x) (fabs(x) == INFINITY)
static double mod(double x, double y) {
    double rest = fmod(x, y);
    return rest == 0 ? copysign(0, y) : (rest < 0) != (y < 0) ? rest + y : rest;
}
static double floordiv(double x, double y) {
    double rest = fmod(x, y), quotient = rint((x - rest) / y);
    quotient -= rest != 0 && (rest < 0) != (y < 0);
    return y == 0 ? x / y : quotient == 0 ? copysign(0, x / y) : quotient;
}
static double max_nan(double x, double y) { return x != x || x > y ? x : y; }
static double min_nan(double x, double y) { return x != x || x < y ? x : y; }
static double shift_by(double x, double by) {
    return x * (by == 0 ? 0 : sign(by) * exp2(rint(log2(fabs(by)))));
}
"""
"""What the emitters provide besides the C library."""

FUNCTION = """
void row_{position}(const double *x, const double *y, const double *z, double *out, long count) {{
    for (long i = 0; i < count; ++i) {{
        const double a = x[i], b = y[i], c = z[i];
        (void)b; (void)c;
        out[i] = {text};
    }}
}}
"""
ROWS = rows(Kind.ELEMENTWISE)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, -2.5, 3.0, 1e-300, -60.0, 700.0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The compiled rows."""
    named = os.environ.get("CC", "").split()[:1]
    compiler = next((found for name in (*named, "cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("there is no C compiler: neither $CC nor cc, gcc or clang is on the path")
    folder: Path = tmp_path_factory.mktemp("rows")
    texts = [FUNCTION.format(position=i, text=spec.c.format("a", "b", "c")) for i, spec in enumerate(ROWS)]
    (folder / "rows.c").write_text(HELPERS + "".join(texts))
    command = [
        compiler,
        "-O1",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-ffp-contract=off",
        "rows.c",
        "-o",
        "rows.so",
        "-lm",
    ]
    done = run_kept(command, folder, "rows.so")
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "rows.so"))


def operands_of(spec: OpSpec, rng: np.random.Generator) -> list[Any]:
    """Three vectors: samples of the domain, then all combinations of special values."""
    used = [sample(domain, (500,), np.float64, rng) for domain in domains(spec)]
    special = np.array(list(itertools.product(SPECIAL, repeat=spec.arity))).T
    vectors = [np.concatenate([values, more]) for values, more in zip(used, special)]
    return vectors + [np.zeros_like(vectors[0])] * (3 - spec.arity)


@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: spec.name)
def test_c_says_what_numpy_says(library: Any, rng: np.random.Generator, spec: OpSpec) -> None:
    assert spec.c, "an elementwise row needs a C expression"
    operands = [np.ascontiguousarray(vector) for vector in operands_of(spec, rng)]
    expected, found = np.empty_like(operands[0]), np.empty_like(operands[0])
    with np.errstate(all="ignore"):
        spec.numpy(*operands[: spec.arity], expected)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*operands, found)]
    getattr(library, f"row_{ROWS.index(spec)}")(*pointers, ctypes.c_long(found.size))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)
    # 1 / -0 is not 1 / 0: where both are zero, the signs that NumPy's arithmetic gives are kept
    zero = (expected == 0) & (spec.name in ("add", "sub", "mul", "neg", "sqr", "sqrt", "sin", "arctan", "tanh"))
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


def test_texts_name_each_operand_and_no_other() -> None:
    for spec in ROWS:
        for position in range(3):
            assert (f"{{{position}}}" in spec.c) is (position < spec.arity), spec.name
        if spec.cuda is not None:
            assert f"{{{spec.arity - 1}}}" in spec.cuda
