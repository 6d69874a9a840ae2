"""Stores in float16 and bfloat16 are rounded once, halves to even: compared with fractions of Python's.

What is stored are tensors, expressions, sums, arrays and numbers of float64, float32 and int64, which lie on, next to
and between the middles of neighbours, among subnormals and around the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.growth import WIDTHS


class Format(NamedTuple):
    """A dtype of 16 bits: digits of its numbers, the exponents of the least and of the first too large one."""

    digits: int
    least: int
    over: int


FORMATS = {"float16": Format(11, -24, 16), "bfloat16": Format(8, -133, 128)}
SOURCES = ("float64", "float64", "float32", "int64")


def nearest(value: Any, dtype: str) -> float:
    """The number of a dtype nearest to ``value``, a whole number or a float, halves to even."""
    digits, least, over = FORMATS[dtype]
    if isinstance(value, float) and (not math.isfinite(value) or value == 0):
        return value
    size = abs(Fraction(value))
    if size >= Fraction(2) ** over:
        return math.copysign(math.inf, value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    rounded = round(size / unit) * unit  # of fractions, round takes halves to even
    return math.copysign(math.inf if rounded >= Fraction(2) ** over else float(rounded), value)


def all_nearest(host: Any, dtype: str) -> Any:
    """``nearest`` of each element, float64."""
    return np.array([nearest(value, dtype) for value in host.reshape(-1).tolist()]).reshape(host.shape)


def hard(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, source: str) -> Any:
    """Values of ``source`` on, beside and between the middles of a dtype's neighbours."""
    digits, least, over = FORMATS[dtype]
    exponents = rng.integers(least - 2, over + 1, shape)
    edges = rng.choice([least, least + digits - 1, over - 1, 0], shape)
    exponents = np.where(rng.random(shape) < 0.4, edges, exponents)
    if source == "int64":
        exponents = np.clip(exponents, digits - 1, 61)
    unit = np.maximum(exponents - digits + 1, least)
    kept = rng.integers(2 ** (digits - 1), 2**digits, shape)
    kept = np.where(rng.random(shape) < 0.15, 2**digits - 1, kept)  # below a power of two, and the largest
    kept = np.where(exponents < unit + digits - 1, kept >> np.clip(unit + digits - 1 - exponents, 0, 62), kept)
    signs = rng.choice([-1, 1], shape)
    if source == "int64":
        step = np.left_shift(np.int64(1), np.clip(unit, 0, 62).astype(np.int64))
        return signs * (kept * step + step // 2 + rng.integers(-1, 2, shape))
    with np.errstate(over="ignore"):
        middle = np.ldexp(kept + rng.choice([0.0, 0.5, 0.5, 0.5], shape), unit).astype(source)
        beside = np.nextafter(middle, rng.choice([0, np.inf], shape).astype(source))
    made = np.where(rng.random(shape) < 0.6, beside, middle)
    special = rng.choice([0, np.inf, np.nan, np.finfo(source).max, np.finfo(source).smallest_subnormal], shape)
    return signs.astype(source) * np.where(rng.random(shape) < 0.05, special, made).astype(source)


Store = Callable[[Any, Any, Any, Any], None]
STORES: dict[str, Store] = {
    "a tensor": lambda be, out, x, host: out.__setitem__(slice(None), x),
    "an expression": lambda be, out, x, host: out.__setitem__(slice(None), be.maximum(x, x)),
    "an array": lambda be, out, x, host: out.__setitem__(slice(None), host),
    "a sum": lambda be, out, x, host: out.__setitem__(slice(None), be.sum(be.concatenate([x, x * 0], axis=0), axis=0)),
    "a running sum": lambda be, out, x, host: out.__setitem__(slice(None), be.cumsum(x, axis=0)),
    "backwards": lambda be, out, x, host: out[:, ::-1].__setitem__(slice(None), x[:, ::-1]),
    "a column": lambda be, out, x, host: out.T.__setitem__(slice(None), be.array(host.T, dtype=host.dtype)),
    "gathered": lambda be, out, x, host: out.__setitem__(slice(None), be.take(x, np.arange(host.size), axis=1)),
    "in place": lambda be, out, x, host: be.assign(out, be.where(out == 0, x, x)),
}
"""Ways to store ``x``, a tensor of one row, and the array ``host``, which hold the same."""
ROWS: dict[str, Store] = {name: STORES[name] for name in ("a tensor", "an expression", "an array", "in place")} | {
    "turned": lambda be, out, x, host: out.T.__setitem__(slice(None), x.T),
    "every second": lambda be, out, x, host: [out[n::2].__setitem__(slice(None), x[n::2]) for n in range(2)],
}
"""Those, and more, of tensors of several rows."""


def compare(found: Any, wanted: Any, source: Any, what: str) -> int:
    """Fail unless the stored values are the wanted ones, zeros' signs too; return the number of values."""
    found = found.get().astype(np.float64)
    wrong = ~((found == wanted) & (np.signbit(found) == np.signbit(wanted)) | (np.isnan(found) & np.isnan(wanted)))
    if wrong.any():
        at = np.unravel_index(np.argmax(wrong), wrong.shape)
        value = np.broadcast_to(source, wrong.shape)[at].item()
        shown = value.hex() if isinstance(value, float) else value
        raise AssertionError(f"{what}: {shown} is stored as {found[at]!r}, not {wanted[at]!r}; {wrong.sum()} wrong")
    return found.size


def check(be: Any, seed: int) -> int:
    """Store the values of a seed in some ways; the number of values compared."""
    rng = np.random.default_rng(seed)
    dtype, source = list(FORMATS)[seed % 2], str(rng.choice(SOURCES))
    shape = (int(rng.choice((1, 1, 2, 3, 7))), int(rng.choice(WIDTHS)))
    host = hard(rng, shape, dtype, source)
    x, wanted = be.array(host, dtype=source), all_nearest(host, dtype)
    ways = STORES if shape[0] == 1 else ROWS
    total = 0
    for name in rng.permutation(list(ways))[:3]:
        if source == "int64" or name not in ("a sum", "a running sum") or np.isfinite(host).all():
            out = be.zeros(shape, dtype=dtype)
            ways[name](be, out, x, host)
            plus = all_nearest(host + host.dtype.type(0), dtype) if name == "a sum" else wanted  # -0 and 0 are 0
            total += compare(out, plus, host, f"{source} as {dtype}, {name}, {shape}")
    if source != "int64":
        other = hard(rng, shape, dtype, source)
        out = be.zeros(shape, dtype=dtype)
        out[:] = x + be.array(other, dtype=source)
        with np.errstate(all="ignore"):
            added = host + other
        total += compare(out, all_nearest(added, dtype), added, f"{source} as {dtype}, added, {shape}")
    return total + numbers(be, host, dtype)


def numbers(be: Any, host: Any, dtype: str) -> int:
    """Compare numbers, of Python, stored and filled, arrays made and casts; how many there were."""
    made = be.array(host, dtype=dtype), be.array(host, dtype=host.dtype).astype(dtype)
    total = sum(compare(one, all_nearest(host, dtype), host, f"{host.dtype} made {dtype}") for one in made)
    one, other = be.empty((1, 1), dtype=dtype), be.empty((1, 2), dtype=dtype)
    for value in host.reshape(-1)[:3].tolist():
        one.fill(value)
        other[:] = value
        for out in (one, other):
            total += compare(out, np.full(out.shape, nearest(value, dtype)), value, f"a number as {dtype}")
    return total
