"""The C math header (``kernels/templates/c/vecmath/vecmath.h``) against wider arithmetic of the C library."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.c.vecmath_loops import (
    BOUNDED,
    DIVISIONS,
    EXACT,
    FLAGS,
    FLOAT,
    HEADERS,
    INCLUDES,
    INTEGERS,
    LIMIT,
    OF_TWO,
    ULPS,
    Array,
    Loops,
    build,
    check,
    compiler,
    loops,
    native_flag,
    neighbours,
    pairs,
    sample,
    specials,
)  # fmt: skip
from tests.support.kept_runs import run_kept

pytestmark = pytest.mark.cpu_only("the C compiler and its cache")


@pytest.fixture(scope="module", params=["native", "baseline"])
def c(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loops:
    """Built for this machine, and for the least machine of its kind (on x86 without fused multiply-add)."""
    folder = tmp_path_factory.mktemp(request.param)
    return Loops(build(folder, *(native_flag(folder) if request.param == "native" else ())))


def wider(kind: str) -> Any:
    if kind == "f64" and np.finfo(np.longdouble).nmant <= 52:
        pytest.skip("long double is no wider than double on this machine, so there is no reference")
    return np.float64 if kind == "f32" else np.longdouble


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, str], Any]:
    """The C library's results in the wider type, by function and type: those of the first build are the other's too."""
    return {}


# Tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", (*ULPS, *EXACT))
def test_error_is_bounded(c: Loops, references: dict[tuple[str, str], Any], name: str, kind: str) -> None:
    operands = pairs(kind) if name in OF_TWO else (sample(kind),)
    if (name, kind) not in references:
        references[name, kind] = c(f"wide_{name}_{kind}", *operands, out=wider(kind))
    wide = references[name, kind]
    bound = ULPS[name][kind == "f64"] if name in ULPS else 0.5
    check(name, kind, operands, c(f"{name}_{kind}", *operands, out=FLOAT[kind]), wide, bound)


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", ["max_nan", "min_nan"])
def test_nan_wins(c: Loops, name: str, kind: str) -> None:
    a, b = (grid.ravel() for grid in np.meshgrid(specials(FLOAT[kind]), specials(FLOAT[kind])))
    expected = (np.maximum if name == "max_nan" else np.minimum)(a, b)
    np.testing.assert_array_equal(c(f"{name}_{kind}", a, b, out=FLOAT[kind]), expected)


def quotients(kind: str) -> tuple[Array, Array]:
    """Dividends and divisors: of every size, next to each other's multiples, whole ones, subnormal ones."""
    dtype, rng = FLOAT[kind], np.random.default_rng(1234)
    info, size = np.finfo(dtype), 30_000
    spread = np.ldexp(rng.uniform(1, 2, (2, size)), rng.integers(info.minexp - info.nmant, info.maxexp, (2, size)))
    divisor = rng.uniform(0.01, 9, size).astype(dtype)
    multiple = (divisor * rng.integers(-1000, 1000, size)).astype(dtype)
    tiny = rng.integers(1, 1000, (2, size)) * info.smallest_subnormal
    whole = rng.integers(-100, 100, (2, size))
    x, y = pairs(kind)
    many = [x, spread[0], multiple, np.nextafter(multiple, dtype(0)), tiny[0], whole[0], tiny[1] * 2**30]
    by = [y, spread[1], divisor, -divisor, tiny[1], whole[1], tiny[0]]
    return np.concatenate([a.astype(dtype) for a in many]), np.concatenate([b.astype(dtype) for b in by])


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_gives_the_bits_of_numpy(c: Loops, name: str, kind: str) -> None:
    """Also where the quotient has hundreds of digits, and the signs of zeros."""
    x, y = quotients(kind)
    found = c(f"{name}_{kind}", x, y, out=FLOAT[kind])
    with np.errstate(all="ignore"):
        expected = DIVISIONS[name](x, y)
    wrong = (found != expected) & ~(np.isnan(found) & np.isnan(expected))
    wrong |= (found == 0) & (expected == 0) & (np.signbit(found) != np.signbit(expected))
    at = int(np.argmax(wrong))
    assert not wrong.any(), f"{name}({x[at].hex()}, {y[at].hex()}) = {found[at]!r}, not {expected[at]!r}"


@pytest.mark.parametrize("kind", FLOAT)
def test_roots_of_cubes_and_logarithms_of_powers_are_exact(c: Loops, kind: str) -> None:
    whole = np.arange(-200, 201).astype(FLOAT[kind])
    np.testing.assert_array_equal(c(f"cbrt_{kind}", whole**3, out=FLOAT[kind]), whole)
    powers = np.arange(0, 11 if kind == "f32" else 23)
    np.testing.assert_array_equal(c(f"log10_{kind}", (10.0**powers).astype(FLOAT[kind]), out=FLOAT[kind]), powers)


@pytest.mark.parametrize("kind", FLOAT)
def test_powers_that_are_numbers_of_the_type_are_exact(c: Loops, kind: str) -> None:
    dtype, rng, digits = FLOAT[kind], np.random.default_rng(3), np.finfo(FLOAT[kind]).nmant + 1
    y = rng.integers(2, 16, 100_000).astype(np.float64)
    x = rng.integers(1, np.floor(2.0 ** (digits / y)), endpoint=True)
    exact = np.array([int(a) ** int(b) for a, b in zip(x, y)], dtype)
    power = c(f"pow_{kind}", x.astype(dtype), y.astype(dtype), out=dtype)
    np.testing.assert_array_equal(power, exact)
    roots = c(f"pow_{kind}", (x.astype(dtype) ** 2)[y < 4], np.full(int((y < 4).sum()), 0.5, dtype), out=dtype)
    np.testing.assert_array_equal(roots, x[y < 4])


@pytest.mark.parametrize("kind", FLOAT)
def test_shift_by_multiplies_by_the_nearest_power_of_two(c: Loops, kind: str) -> None:
    x, by = pairs(kind)
    wide = wider(kind)
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(by.astype(wide))
        above = np.abs(fraction) * 2 > np.sqrt(wide(2))
        power = np.sign(by) * np.ldexp(wide(1), exponent - 1 + above)
        power = np.where(np.isinf(by), by, power)
        expected = (x.astype(wide) * power).astype(FLOAT[kind])
    result = c(f"shift_by_{kind}", x, by, out=FLOAT[kind])
    np.testing.assert_array_equal(result, expected)
    small = np.array([[3] * 4, [5, 6, -0.3, 0]], FLOAT[kind])
    np.testing.assert_array_equal(c(f"shift_by_{kind}", *small, out=FLOAT[kind]), [12, 24, -0.75, 0])


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_rounded_to_even_and_saturate(c: Loops, name: str, kind: str) -> None:
    dtype = np.dtype(name[0] + str(int(name[1:]) // 8))
    info = np.iinfo(dtype)
    ends = neighbours(np.array([info.max, info.max // 2 + 1, info.max - 0.5, info.min - 0.5], FLOAT[kind]))
    halves = (np.arange(-1000, 1000) / 2).astype(FLOAT[kind])
    whole = np.random.default_rng(0).integers(info.min, info.max, 1000, dtype=dtype).astype(FLOAT[kind])
    x = np.concatenate((sample(kind)[-40_000:], ends, halves, whole))
    finite = np.nan_to_num(np.clip(x, -1e30, 1e30)).tolist()
    expected = [max(info.min, min(info.max, round(v))) for v in finite]
    np.testing.assert_array_equal(c(f"sat_{kind}_{name}", x, out=dtype), np.array(expected, dtype))


def test_float16_conversions(c: Loops) -> None:
    halves = np.arange(2**16).astype(np.uint16)
    wide = halves.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(c("f16_to_f32", halves, out=np.float32), wide)
    assert np.array_equal(np.signbit(c("f16_to_f32", halves, out=np.float32)), np.signbit(wide))
    with np.errstate(all="ignore"):
        middles = (wide[:-1].astype(np.float64) + wide[1:]) / 2  # of two neighbours: ties
        for kind, dtype in FLOAT.items():
            x = np.concatenate((sample(kind), neighbours(middles.astype(dtype), 1), wide.astype(dtype)))
            result = c(f"{kind}_to_f16", x, out=np.uint16).view(np.float16)
            expected = x.astype(np.float16)
            np.testing.assert_array_equal(result, expected)
            numbers = ~np.isnan(x)
            assert np.array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])


def test_bfloat16_conversions(c: Loops) -> None:
    """All values as bits; of nan the bits that are kept, quiet."""
    upper = np.arange(2**16).astype(np.uint16)
    wide = upper.astype(np.uint32) << 16
    assert np.array_equal(c("bf16_to_f32", upper, out=np.float32).view(np.uint32), wide)
    nan = np.isnan(wide.view(np.float32))
    assert np.array_equal(c("f32_to_bf16", wide.view(np.float32), out=np.uint16), np.where(nan, upper | 0x40, upper))
    x = sample("f32")
    with np.errstate(invalid="ignore"):
        stored, expected = c("f32_to_bf16", x, out=np.uint16), x.astype("bfloat16")
    assert np.array_equal(stored[~np.isnan(x)], expected.view(np.uint16)[~np.isnan(x)])


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", ULPS)
def test_a_value_does_not_depend_on_its_place(c: Loops, name: str, kind: str) -> None:
    """Vectors and the rest of a loop, done one by one, agree to the last bit."""
    given = pairs(kind) if name in OF_TWO else (sample(kind)[::-1],)
    operands = tuple(a[:: max(1, a.size // 37)][:37] for a in given)
    together = c(f"{name}_{kind}", *operands, out=FLOAT[kind])
    apart = [c(f"{name}_{kind}", *(a[i : i + 1] for a in operands), out=FLOAT[kind])[0] for i in range(37)]
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("kind", FLOAT)
@pytest.mark.parametrize("name", BOUNDED)
def test_fast_forms_give_the_same_bits(c: Loops, name: str, kind: str) -> None:
    dtype, signed, unsigned = FLOAT[kind], f"int{kind[1:]}", f"uint{kind[1:]}"
    if name == "pow":
        operands = pairs(kind)
        x, y = operands
        expected = (x >= np.finfo(dtype).tiny) & (x < np.inf) & (np.abs(y) <= 2.0**14)
    else:
        operands = (np.concatenate((sample(kind), neighbours(np.array([LIMIT], dtype), 2))),)
        expected = np.abs(operands[0]) < LIMIT  # nan is not
    inside = c(f"{BOUNDED[name]}_in_range_{kind}", *operands, out=np.dtype(signed)) >= 0
    np.testing.assert_array_equal(inside, expected)
    assert 1000 < inside.sum() < inside.size - 1000
    some = [a[inside] for a in operands]
    fast, full = (c(f"{name}{form}_{kind}", *some, out=dtype).view(unsigned) for form in ("_bounded", ""))
    np.testing.assert_array_equal(fast, full)


def test_arrays_give_the_bits_of_one_number(c: Loops) -> None:
    """Whatever instructions they take: also of nan's places, infinities and subnormal results."""
    x = np.concatenate((sample("f32"), neighbours(np.array([-104, -103.9721, -87.3366, 88.7229, 104], np.float32))))
    assert x.size % 16 != 0, "no rest to compute one by one"
    found, expected = (c(name, x, out=np.float32) for name in ("exp_array_f32", "exp_f32"))
    np.testing.assert_array_equal(found, expected)  # nan equals nan
    assert np.isnan(found).any() and np.isinf(found).any() and ((found > 0) & (found < 2.0**-126)).any()


def test_every_loop_is_vectorised(tmp_path: Path) -> None:
    asked = [compiler(), *native_flag(tmp_path), "-dM", "-E", "-x", "c", os.devnull]
    macros = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout
    if "__GNUC__" not in macros or "__clang__" in macros:
        pytest.skip("only gcc reports the loops it vectorised in a form this test reads")
    if "__AVX2__" not in macros and "__aarch64__" not in macros:
        pytest.skip("this machine has neither AVX2 nor the vectors of aarch64; less has no 64-bit integer lanes")
    text = loops()
    lines_of_c = ['#include "vecmath_more.h"', *(line for _, line in text)]
    (tmp_path / "v.c").write_text("\n".join(lines_of_c), encoding="utf-8")
    command = [compiler(), *FLAGS, *native_flag(tmp_path), "-fopt-info-vec-optimized", "-c", "v.c", "-o", "v.o"]
    done = run_kept(command, tmp_path, headers=HEADERS)
    assert done.returncode == 0, done.stderr
    lines = {int(n) for n in re.findall(r"^v\.c:(\d+):\d+: optimized: loop vectorized", done.stderr, re.M)}
    scalar = {name for number, (name, _) in enumerate(text, 2) if number not in lines}
    converts = "__AVX512DQ__" in macros or "__aarch64__" in macros  # doubles to uint64, which takes an instruction
    assert scalar <= (set() if converts else {"sat_f32_u64", "sat_f64_u64"})


def test_no_undefined_behaviour(tmp_path: Path) -> None:
    """Every function on every special under UBSan, which traps; also a header that compiles as strict C11."""
    calls = []
    for _, line in loops():
        types = re.findall(r"const (\w+) \*restrict", line)
        operands = ["(uint16_t)(i * 257)" if types[0] == "uint16_t" else f"({types[0]})specials[i]"]
        operands += [f"({kind})specials[j]" for kind in types[1:]]
        call = line.partition("y[i] = ")[2].partition(";")[0]
        for name, operand in zip(("a[i]", "b[i]"), operands, strict=False):
            call = call.replace(name, operand)
        calls.append(f"sink += (double){call};")
    values = ", ".join(float(v).hex() for v in specials(np.float64) if np.isfinite(v))
    program = f"""#include "vecmath_more.h"
static const double specials[] = {{{values}, 1e4, -1e10, 3e38, -2147483648.5, 0x1p63,
                                  __builtin_inf(), __builtin_nan("")}};
int main(void) {{
    volatile double sink = 0;
    int count = sizeof specials / sizeof *specials;
    for (int i = 0; i < count; i++) for (int j = 0; j < count; j++) {{ {" ".join(calls)} }}
    return 0;
}}
"""
    (tmp_path / "ub.c").write_text(program, encoding="utf-8")
    strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    sanitize = ["-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error"]
    command = [compiler(), *strict, *sanitize, *INCLUDES, "-O1", "ub.c", "-o", "ub", "-lm"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(tmp_path / "ub")], capture_output=True, timeout=120)
    assert ran.returncode == 0, f"undefined behaviour: ended with {ran.returncode}"
