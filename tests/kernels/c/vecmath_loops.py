"""Loops over the functions of the C math header and over their references, numbers to try them on, and their errors.

One shared object holds a loop over each function and over its reference: float64 for float32 functions, long double
for float64 ones. ``ULPS`` is the place where the error bounds are claimed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests import ROOT
from tests.support.kept_runs import run_kept

Array: TypeAlias = np.ndarray[Any, Any]

HEADERS = ROOT / "neonlike" / "kernels" / "templates" / "c"
INCLUDES = (f"-I{HEADERS}", f"-I{HEADERS}/vecmath")
FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", *INCLUDES)
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOAT = {"f32": np.float32, "f64": np.float64}
C_FLOAT = {"f32": "float", "f64": "double"}

ULPS = {
    "exp": (3, 1.5), "exp2": (1.5, 1.5), "expm1": (2, 2), "log": (1, 1), "log2": (2, 2), "log1p": (1.5, 1.5),
    "sin": (1, 1), "cos": (1.5, 1), "tan": (2, 2.5), "atan": (1.5, 2), "tanh": (3, 3), "erf": (4, 1.5),
    "sigmoid": (4, 2.5), "sigmoid2": (2.5, 2.5), "pow": (1, 1.5),
    "asin": (2.5, 2.5), "acos": (1.5, 1.5), "atan2": (2, 2), "hypot": (1, 2), "sinh": (2, 2), "cosh": (2, 2),
    "asinh": (2, 2), "acosh": (2.5, 2.5), "atanh": (2.5, 2), "log10": (1, 1), "cbrt": (1, 1), "softplus": (3, 2),
}  # fmt: skip
"""Largest error of each function in units in the last place: in float32, in float64."""

EXACT = ("fabs", "sqrt", "rint", "floor", "ceil", "trunc", "sign", "isnan", "isinf", "isfinite")
"""Functions of one number that give the nearest floating-point number."""

DIVISIONS = {"fmod": np.fmod, "mod": np.remainder, "floordiv": np.floor_divide}
"""Functions of two numbers that give the bits of NumPy's."""

OF_TWO = ("pow", "atan2", "hypot", "max_nan", "min_nan", "shift_by", *DIVISIONS)

BOUNDED = {"sin": "angle", "cos": "angle", "tan": "angle", "pow": "pow"}
"""Functions with a fast form for most numbers, and the name of the check for these."""
LIMIT = 2.0**20
"""Of angles."""

OWN_REFERENCES = {
    "softplus": "((a > 0 ? a : a == a ? 0 : a) + NL_LOG1P(NL_EXP(a > 0 ? -a : a)))",
    "sigmoid": "(1 / (1 + NL_EXP(-a)))",
    "sigmoid2": "(1 / (1 + NL_EXP2(-a)))",
    "sign": "(a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a)",
    "isnan": "(a != a)",
    "isinf": "(a == a && a - a != 0)",
    "isfinite": "(a - a == 0)",
}


def c_integer(name: str) -> str:
    return ("uint" if name[0] == "u" else "int") + name[1:] + "_t"


def loops() -> list[tuple[str, str]]:
    """(function, C text of a loop over it), one a line."""
    lines = []
    for kind, number in C_FLOAT.items():
        for name in dict.fromkeys((*ULPS, *EXACT, *OF_TWO)):
            two = name in OF_TWO
            arguments = f"const {number} *restrict a, " + (f"const {number} *restrict b, " if two else "")
            call = f"nl_{name}_{kind}(a[i]" + (", b[i])" if two else ")")
            lines.append((f"{name}_{kind}", f"({arguments}{number} *restrict y, long n)", call))
        fast = [(f"{name}_bounded", number, name in OF_TWO) for name in BOUNDED]
        checks = [(f"{name}_in_range", f"int{kind[1:]}_t", name in OF_TWO) for name in dict.fromkeys(BOUNDED.values())]
        for name, result, two in fast + checks:
            operands = f"const {number} *restrict a, " + (f"const {number} *restrict b, " if two else "")
            call = f"nl_{name}_{kind}(a[i]" + (", b[i])" if two else ")")
            lines.append((f"{name}_{kind}", f"({operands}{result} *restrict y, long n)", call))
        for name in INTEGERS:
            text = f"(const {number} *restrict a, {c_integer(name)} *restrict y, long n)"
            lines.append((f"sat_{kind}_{name}", text, f"nl_sat_{kind}_{name}(a[i])"))
    for source, target, have, want in (
        ("f16", "f32", "uint16_t", "float"),
        ("f32", "f16", "float", "uint16_t"),
        ("f64", "f16", "double", "uint16_t"),
        ("f64", "bf16", "double", "uint16_t"),
        ("bf16", "f32", "uint16_t", "float"),
        ("f32", "bf16", "float", "uint16_t"),
    ):
        name = f"{source}_to_{target}"
        call = f"nl_{name}(a[i])" if source != "f64" else f"nl_f32_to_{target}(nl_odd_f64(a[i]))"
        lines.append((name, f"(const {have} *restrict a, {want} *restrict y, long n)", call))
    return [(n, f"void {n}{arguments} {{ for (long i = 0; i < n; i++) y[i] = {c}; }}") for n, arguments, c in lines]


def references() -> str:
    """The same names with ``wide_`` before, computed by the C library in the next wider type."""
    lines = ["#include <math.h>"]
    for kind, wide, suffix in (("f32", "double", ""), ("f64", "long double", "l")):
        lines += [f"#undef NL_EXP\n#undef NL_EXP2\n#define NL_EXP exp{suffix}\n#define NL_EXP2 exp2{suffix}"]
        lines += [f"#undef NL_LOG1P\n#define NL_LOG1P log1p{suffix}"]
        number = C_FLOAT[kind]
        for name in (*ULPS, *EXACT):
            two = name in OF_TWO
            arguments = f"const {number} *x, " + (f"const {number} *z, " if two else "")
            value = OWN_REFERENCES.get(name, f"{name}{suffix}(a" + (", z[i])" if two else ")"))
            body = f"{wide} a = x[i]; y[i] = {value};"
            head = f"void wide_{name}_{kind}({arguments}{wide} *y, long n)"
            lines.append(f"{head} {{ for (long i = 0; i < n; i++) {{ {body} }} }}")
    return "\n".join(lines)


ARRAYS = """\
void exp_array_f32(const float *restrict a, float *restrict y, long n) {
    for (long i = 0; i < n; i++) y[i] = a[i];
    nl_exp_array_f32(y, n);
}"""
"""Loops over functions of ``vecmath_array.h``."""


def compiler() -> str:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return path
    pytest.skip("no C compiler (cc, gcc or clang) on this machine")


def build(folder: Path, *flags: str) -> Path:
    source = folder / "loops.c"
    text = "\n".join(line for _, line in loops())
    includes = '#include "vecmath_array.h"\n#include "vecmath_more.h"'
    source.write_text("\n".join((includes, text, ARRAYS, references(), "")), encoding="utf-8")
    library = folder / "loops.so"
    command = [compiler(), *FLAGS, *flags, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", source.name]
    done = run_kept([*command, "-o", library.name, "-lm"], folder, library.name, headers=HEADERS)
    assert done.returncode == 0, done.stderr
    return library


class Loops:
    """The functions of a shared object, called with arrays."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))

    def __call__(self, name: str, *operands: Array, out: Any) -> Array:
        """``name`` of each element; ``out`` is the dtype of the result."""
        arrays = [np.ascontiguousarray(a) for a in operands]
        result = np.empty(arrays[0].shape, out)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, result)]
        getattr(self.library, name)(*pointers, ctypes.c_long(result.size))
        return result


def native_flag(folder: Path) -> tuple[str, ...]:
    """``-march=native`` where the compiler has it."""
    (folder / "empty.c").write_text("", encoding="utf-8")
    command = [compiler(), "-march=native", "-c", str(folder / "empty.c"), "-o", str(folder / "empty.o")]
    return ("-march=native",) if subprocess.run(command, capture_output=True, timeout=60).returncode == 0 else ()


# Samples ----------------------------------------------------------------------------------------------------------


def neighbours(values: Array, count: int = 3) -> Array:
    """``values`` of both signs with the floating-point numbers on both sides of each."""
    integer = np.uint32 if values.dtype == np.float32 else np.uint64
    bits = np.abs(values).view(integer).astype(np.int64)[:, None] + np.arange(-count, count + 1)
    around = np.maximum(bits, 0).astype(integer).ravel().view(values.dtype)
    return np.concatenate((around, -around))


def specials(dtype: Any) -> Array:
    info = np.finfo(dtype)
    edges = [0, info.smallest_subnormal, info.tiny, 0.5, 1, 2, 3, info.max, np.inf, np.nan, 2.0**info.nmant]
    return neighbours(np.array(edges, dtype))


LANDMARKS = (
    0.25, 0.4142135623730951, 0.7071067811865476, 1.4142135623730951, 3.92, 5.92, 9.01, 9.02, 10.0, 17.33, 19.06, 20.0,
    87.33654475, 88.72283905, 103.972076, 104.0, 126.0, 127.0, 128.0, 149.0, 150.0, 151.0,
    708.3964185322641, 709.782712893384, 744.4400719213812, 745.1332191019412, 1022.0, 1024.0, 1074.0, 1075.0, 1076.0,
)  # fmt: skip
"""Where some function overflows, underflows, saturates or changes its formula."""


def quarter_turns(dtype: Any) -> Array:
    """Numbers near multiples of pi/2, with the hardest of each type."""
    turns = (np.arange(1, 3000, dtype=np.longdouble) ** 3 * (np.pi / 2)).astype(dtype)
    hard = (float.fromhex("0x1.47d0fep34"), 16367173.0 * 2.0**72, 6381956970095103.0 * 2.0**797)
    return np.append(turns, np.array(hard[:2] if dtype == np.float32 else hard[2:], dtype))


@cache
def sample(kind: str) -> Array:
    """Every 4099th float32, or random bits of float64; uniform numbers; landmarks and specials."""
    dtype, rng = FLOAT[kind], np.random.default_rng(4099)
    if kind == "f32":
        bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    else:
        bits = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    size = 20_000
    uniform = [rng.uniform(-limit, limit, size).astype(dtype) for limit in (1.0, 1.5, 7.0, 110.0, 760.0, 1e8)]
    near = [1 + rng.uniform(-1, 1, size).astype(dtype) * dtype(2.0**-k) for k in (1, 8, 20)]
    landmarks = neighbours(np.array(LANDMARKS, dtype))
    return np.concatenate((bits, *uniform, *near, landmarks, neighbours(quarter_turns(dtype), 1), specials(dtype)))


@cache
def pairs(kind: str) -> tuple[Array, Array]:
    """Bases and exponents for pow: random bits, results of every size, and the specials with each other."""
    dtype, rng = FLOAT[kind], np.random.default_rng(754)
    bits = np.uint32 if kind == "f32" else np.uint64
    size = 30_000
    top = 160 if kind == "f32" else 1100
    wild = [rng.integers(0, np.iinfo(bits).max, size, dtype=bits, endpoint=True).view(dtype) for _ in range(2)]
    base = np.concatenate((np.exp2(rng.uniform(-100, 100, size)), 1 + rng.uniform(-1e-3, 1e-3, size)))
    exponent = rng.uniform(-top, top, 2 * size) / np.log2(base)
    whole = rng.integers(-40, 40, size).astype(dtype)
    corner = np.concatenate((specials(dtype), whole[:10], whole[:10] + dtype(0.5)))
    cross = np.meshgrid(corner, corner)
    x = np.concatenate((wild[0], base.astype(dtype), -np.abs(wild[0][:size]), cross[0].ravel()))
    y = np.concatenate((wild[1], exponent.astype(dtype), whole, cross[1].ravel()))
    return x, y


def ulps(result: Array, wide: Array) -> Array:
    """Error of ``result`` in its units in the last place; nan where both are nan."""
    info = np.finfo(result.dtype)
    limit = np.ldexp(wide.dtype.type(1), info.maxexp)
    near = np.where(np.isinf(result), np.copysign(limit, result), result.astype(wide.dtype))
    reference = np.clip(wide, -limit, limit)
    exponent = np.maximum(np.frexp(reference)[1] - 1, info.minexp) - info.nmant
    return np.abs(near - reference) / np.ldexp(wide.dtype.type(1), exponent)


def check(name: str, kind: str, operands: tuple[Array, ...], result: Array, wide: Array, bound: float) -> None:
    """Fail with the worst operands if an error exceeds ``bound``, or a nan, a zero or its sign is wrong."""
    with np.errstate(all="ignore"):
        error = ulps(result, wide)
        limit = np.ldexp(wide.dtype.type(1), np.finfo(result.dtype).maxexp)
        exact = (np.isinf(wide) | (np.abs(wide) > limit * (1 + 1e-5))) & (result != np.copysign(np.inf, wide))
        exact |= (wide == 0) & (result != 0)
    unsigned = (result == 0) & (wide == 0) & (np.signbit(result) != np.signbit(wide))
    wrong = (np.isnan(result) != np.isnan(wide)) | exact | unsigned
    error = np.where(wrong, np.inf, np.nan_to_num(error))
    worst = int(np.argmax(error))
    at = ", ".join(f"{a[worst]!r} ({float(a[worst]).hex()})" for a in operands)
    what = f"{name}_{kind}({at}) = {result[worst]!r}, not {wide[worst]!r}"
    assert error[worst] <= bound, f"{what}: {error[worst]:.3g} ulp"
