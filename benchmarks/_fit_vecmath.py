"""Derives every constant of ``kernels/templates/c/vecmath/vecmath_*.h``: ``python benchmarks/_fit_vecmath.py [name]``.

Polynomials are minimax fits (Remez exchange, E. Ya. Remez 1934, in 50-digit arithmetic with mpmath) of the function
named in ``FITS``, weighted so that the printed error is relative to the function the header computes; the
coefficients are then rounded to the working precision, and the error printed is that of the rounded polynomial.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp

mp.mp.dps = 50
Function = Callable[[Any], Any]


class Fit(NamedTuple):
    """Approximate ``f`` by a polynomial with ``terms`` coefficients, so that max |weight * error| is least."""

    f: Function
    weight: Function
    low: Any
    high: Any
    terms: int
    bits: int  # of the type of the coefficients


def _rest(f: Function, *taylor: Any) -> Function:
    """(f(x) - taylor(x)) / x^len(taylor), by its limit where that would cancel."""
    order = len(taylor)
    limit = mp.taylor(f, 0, order + 3)[order:]

    def rest(x: Any) -> Any:
        if abs(x) < mp.mpf(10) ** -8:
            return mp.polyval(limit[::-1], x)
        return (f(x) - mp.polyval(taylor[::-1], x)) / x**order

    return rest


def _in_square(f: Function) -> Function:
    """g with g(x^2) = f(x) / x, for odd f."""
    slope = mp.diff(f, 0)
    return lambda u: f(mp.sqrt(u)) / mp.sqrt(u) if u > mp.mpf(10) ** -30 else slope


def _odd_fit(f: Function, high: Any, terms: int, bits: int, *taylor: Any) -> Fit:
    """f(x) = x * (taylor + x^(2 len(taylor)) * polynomial(x^2)) for 0 <= x <= high, relative error."""
    g = _in_square(f)
    order = len(taylor)
    return Fit(_rest(g, *taylor), lambda u: u**order / g(u), 0, mp.mpf(high) ** 2, terms, bits)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
SQRT_HALF = mp.sqrt(mp.mpf(1) / 2)
SINH_LIMIT = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # of s = (m - 1) / (m + 1) for sqrt(1/2) <= m <= sqrt(2)
QUARTER_PI = mp.pi / 4 * mp.mpf("1.001")
LOG2_SLOPE = 2 / mp.log(2)


def _exp(terms: int, bits: int) -> Fit:
    return Fit(_rest(mp.exp, 1, 1), lambda r: r * r / mp.exp(r), -HALF_LN2, HALF_LN2, terms, bits)


def _exp2(terms: int, bits: int) -> Fit:
    return Fit(_rest(lambda r: mp.mpf(2) ** r, 1), lambda r: r / mp.mpf(2) ** r, -0.5005, 0.5005, terms, bits)


def _cos(unit: Any, high: Any, terms: int, bits: int, *taylor: Any) -> Fit:
    f = _rest(lambda u: mp.cos(unit * mp.sqrt(u)) if u >= 0 else mp.cosh(unit * mp.sqrt(-u)), *taylor)
    return Fit(f, lambda u: u ** len(taylor), 0, high**2, terms, bits)


def _erf(terms: int, bits: int) -> Fit:
    g = _in_square(mp.erf)
    return Fit(lambda u: g(u) - 1, lambda u: 1 / g(u), 0, 1, terms, bits)


def _log_erfc(high: Any, terms: int, bits: int) -> Fit:
    weight = lambda x: mp.erfc(x) / mp.erf(x)  # noqa: E731
    return Fit(lambda x: -mp.log(mp.erfc(x)), weight, 1, mp.mpf(high), terms, bits)


def _cbrt(terms: int, bits: int) -> Fit:
    f = lambda m: mp.cbrt(m)  # noqa: E731
    return Fit(f, lambda m: 1 / f(m), SQRT_HALF, mp.sqrt(2), terms, bits)


def _root_erfc(high: Any, terms: int, bits: int) -> Fit:
    """The weight turns the error of w = erfc(x)^(1/8) into that of erf(x) = 1 - w^8."""
    root = lambda x: mp.erfc(x) ** (mp.mpf(1) / 8)  # noqa: E731
    return Fit(
        lambda x: (8 * (1 - root(x)) / x if x else 2 / mp.sqrt(mp.pi)) - 1,
        lambda x: root(x) ** 7 * x / mp.erf(x) if x else mp.sqrt(mp.pi) / 2, 0, mp.mpf(high), terms, bits,
    )  # fmt: skip


FITS: dict[str, Callable[[], Fit]] = {
    "EXP_F32: (e^r - 1 - r) / r^2": lambda: _exp(5, 24),
    "EXP_SHORT_F32: (e^r - 1 - r) / r^2": lambda: _exp(4, 24),
    "EXP2_F32: (2^r - 1) / r": lambda: _exp2(6, 24),
    "LOG_F32: (log(1+f) - f + f^2/2) / f^3": lambda: Fit(
        _rest(mp.log1p, 0, 1, mp.mpf(-1) / 2),
        lambda f: f**3 / mp.log1p(f) if f else f, SQRT_HALF - 1, mp.sqrt(2) - 1, 9, 24,
    ),
    "TANH_F32: (tanh(b)/b - 1) / b^2 in b^2": lambda: _odd_fit(mp.tanh, HALF_LN2 / 2, 2, 24, 1),
    "ATAN_F32: (atan(t)/t - 1) / t^2 in t^2": lambda: _odd_fit(mp.atan, 1, 10, 24, 1),
    "ASIN_F32: (asin(t)/t - 1) / t^2 in t^2": lambda: _odd_fit(mp.asin, 0.5, 5, 24, 1),
    "SINH_F32: (sinh(x)/x - 1) / x^2 in x^2": lambda: _odd_fit(mp.sinh, 1, 3, 24, 1),
    "ERF_F32: 8 (1 - erfc(x)^(1/8))/x - 1": lambda: _root_erfc("3.92", 8, 24),
    "LOG1P_UNIT_F32: (log(1+z) - z + z^2/2) / z^3": lambda: Fit(
        _rest(mp.log1p, 0, 1, mp.mpf(-1) / 2), lambda z: z**3 / mp.log1p(z) if z else z, 0, 1, 8, 24
    ),
    "SIN_PI_F64: sin(pi t)/t in t^2": lambda: _odd_fit(lambda t: mp.sin(mp.pi * t), mp.mpf("0.5005"), 5, 53),
    "SINQ_F64: sin(pi/2 t)/t in t^2": lambda: _odd_fit(lambda t: mp.sin(mp.pi / 2 * t), 0.5005, 4, 53),
    "COSQ_F64: (cos(pi/2 t) - 1)/t^2 in t^2": lambda: _cos(mp.pi / 2, mp.mpf("0.5005"), 4, 53, 1),
    "POW_LOG2_F32: (log2((1+s)/(1-s))/s - a - b s^2) / s^4 in s^2": lambda: _odd_fit(
        lambda s: LOG2_SLOPE * mp.atanh(s), SINH_LIMIT, 3, 24, LOG2_SLOPE, rounded(LOG2_SLOPE / 3, 24)
    ),
    "EXP_F64: (e^r - 1 - r) / r^2": lambda: _exp(11, 53),
    "EXP2_F64: (2^r - 1) / r": lambda: _exp2(12, 53),
    "LOG_F64: (2 atanh(s)/s - 2) / s^2 in s^2": lambda: _odd_fit(lambda s: 2 * mp.atanh(s), SINH_LIMIT, 7, 53, 2),
    "SIN_F64: (sin(r)/r - 1) / r^2 in r^2": lambda: _odd_fit(mp.sin, QUARTER_PI, 6, 53, 1),
    "COS_F64: (cos(r) - 1 + r^2/2) / r^4 in r^2": lambda: _cos(1, QUARTER_PI, 6, 53, 1, mp.mpf(-1) / 2),
    "ATAN_F64: (atan(t)/t - 1) / t^2 in t^2": lambda: _odd_fit(mp.atan, 1, 21, 53, 1),
    "ASIN_F64: (asin(t)/t - 1) / t^2 in t^2": lambda: _odd_fit(mp.asin, 0.5, 12, 53, 1),
    "SINH_F64: (sinh(x)/x - 1) / x^2 in x^2": lambda: _odd_fit(mp.sinh, 1, 7, 53, 1),
    "CBRT_F64: the cube root of sqrt(1/2) <= m <= sqrt(2)": lambda: _cbrt(4, 53),
    "ERF_F64: erf(x)/x - 1 in x^2": lambda: _erf(13, 53),
    "ERFC_F64: -log(erfc(x))": lambda: _log_erfc("5.95", 19, 53),
    "POW_LOG2_F64: (log2((1+s)/(1-s))/s - a - b s^2) / s^4 in s^2": lambda: _odd_fit(
        lambda s: LOG2_SLOPE * mp.atanh(s), SINH_LIMIT, 7, 53, LOG2_SLOPE, LOG2_SLOPE / 3
    ),
}  # fmt: skip


def minimax(fit: Fit) -> list[Any]:
    """Coefficients of the minimax polynomial, lowest power first."""
    n, low, high = fit.terms, mp.mpf(fit.low), mp.mpf(fit.high)
    cosines = lambda count: [mp.cos(mp.pi * i / count) for i in range(count + 1)]  # noqa: E731
    grid = [(low + high) / 2 - (high - low) / 2 * c for c in cosines(40 * (n + 1))]
    points = [(low + high) / 2 - (high - low) / 2 * c for c in cosines(n)]
    # A point of weight 0 has no error to balance.
    points = [x + (high - low) / 97 if abs(x) < (high - low) / 1000 else x for x in points]
    f, weight = [fit.f(x) for x in grid], [fit.weight(x) for x in grid]
    for _ in range(40):
        rows = [[x**j for j in range(n)] + [(-1) ** i / fit.weight(x)] for i, x in enumerate(points)]
        solution = list(mp.lu_solve(mp.matrix(rows), mp.matrix([fit.f(x) for x in points])))[:n]
        error = [w * (y - mp.polyval(solution[::-1], x)) for x, y, w in zip(grid, f, weight)]
        peaks: list[int] = []  # the largest error of each run of one sign
        for i, e in enumerate(error):
            if not peaks or (e > 0) != (error[peaks[-1]] > 0):
                peaks.append(i)
            elif abs(e) > abs(error[peaks[-1]]):
                peaks[-1] = i
        while len(peaks) > n + 1:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        exchanged = [grid[i] for i in peaks]
        if len(exchanged) <= n or exchanged == points:
            break
        points = exchanged
    return solution


def rounded(value: Any, bits: int) -> Any:
    """``value`` to nearest with ``bits`` bits of significand."""
    fraction, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(fraction, bits)), exponent - bits)


def literal(value: Any, bits: int) -> str:
    """``value`` as a hexadecimal C constant."""
    mantissa, exponent = float(value).hex().split("p")
    mantissa = mantissa.rstrip("0") if "." in mantissa else mantissa
    return f"{mantissa.rstrip('.')}p{exponent}" + ("f" if bits == 24 else "")


def print_parts(name: str, value: Any, *bits: int) -> None:
    """A constant as a sum of parts of the given widths, each the rounded remainder of those before."""
    for width in bits:
        part = rounded(value, width)
        print(f"{name}: {literal(part, 53)}")
        value -= part


def print_window(name: str, value: Any, width: int, count: int) -> None:
    """Consecutive bits of ``value``, ``width`` at a time, each piece scaled to [0, 1)."""
    pieces = []
    for _ in range(count):
        piece = mp.ldexp(mp.floor(mp.ldexp(value, width)), -width)
        pieces.append(literal(piece, 53))
        value = mp.ldexp(value - piece, width)
    print(f"{name}, {width} bits each:\n    " + ", ".join(pieces))


def main() -> None:
    """Print the constants whose names contain the argument."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="part of a constant's name")
    wanted = parser.parse_args().name
    for name, make in FITS.items():
        if wanted in name:
            fit = make()
            c = [rounded(x, fit.bits) for x in minimax(fit)]
            places = [fit.low + (mp.mpf(fit.high) - fit.low) * (i + mp.mpf("0.3")) / 1000 for i in range(1000)]
            worst = max(abs(fit.weight(x) * (fit.f(x) - mp.polyval(c[::-1], x))) for x in places)
            print(f"{name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
            print("    " + ", ".join(literal(x, fit.bits) for x in c))
    print_parts("LOG10_2_F64", mp.log10(2), 53, 53)
    print_parts("LOG10_2_F32", mp.log10(2), 24, 24)
    print_parts("CBRT_2_F64, CBRT_4_F64", mp.cbrt(2), 53)
    print_parts("CBRT_HALF_F64", mp.cbrt(mp.mpf(1) / 2), 53)
    print_parts("PI_F32", mp.pi, 24, 24)
    print_parts("PI_F64", mp.pi, 53, 53)
    print_parts("LN2_F32", mp.log(2), 15, 24)
    print_parts("LN2_F64", mp.log(2), 40, 53)
    print_parts("HALF_PI_F32", mp.pi / 2, 24, 24)
    print_parts("HALF_PI_F64", mp.pi / 2, 53, 53)
    print_parts("LOG2_SLOPE_F32", LOG2_SLOPE, 24, 24)
    print_parts("LOG2_SLOPE", LOG2_SLOPE, 53, 53)
    print_parts("LOG2_SLOPE_THIRD", LOG2_SLOPE / 3, 53, 53)
    print_parts("HALF_PI_BOUNDED_F64", mp.pi / 2, 33, 33, 53)
    half_turns = mp.floor(mp.ldexp(1 / mp.pi, 30)) / mp.mpf(2) ** 30
    print_parts("TURNS_BOUNDED_F32", half_turns, 53)
    print_parts("TURNS_BOUNDED_F32, the rest", 1 / mp.pi - half_turns, 53)
    with mp.workprec(1400):
        turn = 1 / (2 * mp.pi)
        print_window("TURNS_F32: 1 / (2 pi)", turn, 29, 5)
        print_parts("TURNS_F32, the next", mp.ldexp(mp.ldexp(turn, 145) % 1, -145), 53)
        print_window("TURNS_F64: 1 / (2 pi)", turn, 53, 22)


if __name__ == "__main__":
    main()
