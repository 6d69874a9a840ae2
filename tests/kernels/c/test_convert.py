"""Conversion of arrays of 16-bit floats, against NumPy's: every number of 16 bits, and float32 around each."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c import convert
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.optree.dtypes import bfloat16
from tests.support.engines import needs_compiler, use_threads

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": bfloat16()}


X86 = platform.machine() in ("x86_64", "AMD64")
PROCESSORS = ["", "-mno-avx512bf16", "-mno-avx512f", "-mno-avx"] if X86 else [""]
"""Flags with which kernels are those of this machine, and of processors with fewer instructions."""


@pytest.fixture(autouse=True, params=PROCESSORS)
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    native = find_compiler()
    assert native is not None
    flags = (*native.flags, *request.param.split())
    monkeypatch.setattr(convert, "find_compiler", lambda: replace(native, flags=flags))
    monkeypatch.setattr(convert.CONVERT, "variants", {})


def alike(found: Any, wanted: Any) -> None:
    """The same bits, but any nan for a nan."""
    kind = {2: np.uint16, 4: np.uint32}[found.itemsize]
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    np.testing.assert_array_equal(found.view(kind)[~nan], wanted.view(kind)[~nan])


def around(dtype: Any) -> Any:
    """float32 at every number of ``dtype``, half way to the next one, and next to both, in an odd number."""
    exact = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    bits = exact.view(np.uint32)
    half = bits + np.uint32(0x8000 if dtype != np.float16 else 0x1000)
    every = [bits, bits + np.uint32(1), bits - np.uint32(1), half, half + np.uint32(1), half - np.uint32(1)]
    return np.concatenate([*every, bits[:7]]).view(np.float32)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_conversions_are_those_of_numpy(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch, threads)
    dtype = DTYPES[name]
    halves = np.arange((1 << 16) + 5, dtype=np.uint32).astype(np.uint16).view(dtype)
    alike(convert.as_contiguous(halves, np.dtype(np.float32)), halves.astype(np.float32))
    given = around(dtype)
    with np.errstate(all="ignore"):
        wanted = given.astype(dtype)
    out = np.zeros(given.shape, dtype)
    assert convert.store_floats(given, out)
    alike(out, wanted)


def test_arrays_that_are_left_to_numpy() -> None:
    floats = np.dtype(np.float32)
    for halves in (np.ones((100, 100), np.float16)[:, ::2], np.ones(10, np.float16), np.ones((100, 100))):
        found = convert.as_contiguous(halves, floats)
        assert found.dtype == floats and found.flags.c_contiguous and (found == 1).all()
    turned = np.arange(10000, dtype=np.float16).reshape(100, 100).T
    found = convert.as_dtype(turned, floats)
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, turned)
    out = np.zeros((100, 100), np.float16)
    for source, target in ((np.ones((100, 100)), out), (np.ones((100, 100), "f4"), out.T), (np.ones(10, "f4"), out[0])):
        assert not convert.store_floats(source, target)
    assert not out.any()
    assert convert.as_dtype(out, np.dtype(np.float16)) is out


def rounded_by_integers(floats: Any) -> Any:
    """The upper 16 bits of float32, rounded to nearest, ties to even: bfloat16, but for nan."""
    bits = floats.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", ["alone", "all"])
def test_subnormal_numbers_among_others(name: str, kind: str) -> None:
    """Vectors are converted by an instruction that makes them 0, unless one of their lanes has one."""
    draws = np.random.default_rng(5)
    least = draws.integers(1, 1 << 23, 4096).astype(np.uint32) | draws.integers(0, 2, 4096).astype(np.uint32) << 31
    given = draws.standard_normal(4096).astype(np.float32)
    lanes = np.arange(64) * 65 % 4096 if kind == "alone" else np.arange(4096)  # each lane of a block of 64 once
    given.view(np.uint32)[lanes] = least[lanes]
    out = np.zeros(4096, DTYPES[name])
    assert convert.store_floats(given, out)
    with np.errstate(all="ignore"):
        alike(out, given.astype(DTYPES[name]))
    if name == "bfloat16":
        np.testing.assert_array_equal(out.view(np.uint16), rounded_by_integers(given))


@pytest.mark.parametrize("sign", [0, 1])
def test_bfloat16_of_every_exponent(sign: int) -> None:
    """A thousand fractions each, subnormal numbers and infinity too, in any order."""
    draws = np.random.default_rng(sign)
    fractions = draws.integers(0, 1 << 23, (256, 1024)).astype(np.uint32)
    fractions[255] = 0
    exponents = np.arange(256, dtype=np.uint32)[:, None]
    bits = draws.permutation((exponents << 23 | fractions | np.uint32(sign << 31)).ravel())
    given, out = bits.view(np.float32), np.zeros(bits.size, bfloat16())
    assert convert.store_floats(given, out)
    np.testing.assert_array_equal(out.view(np.uint16), rounded_by_integers(given))


@pytest.mark.parametrize("name", DTYPES)
def test_ends_of_arrays(name: str) -> None:
    """Lengths that fill no vector: nothing behind the end is read or written."""
    dtype = DTYPES[name]
    values = np.random.default_rng(7).standard_normal(4200).astype(dtype)
    for size in range(4096, 4170):
        room, floats = np.full(4200, 7, dtype), np.full(4200, np.nan, np.float32)
        floats[:size] = values[:size]
        assert convert.store_floats(floats[:size], room[:size])
        np.testing.assert_array_equal(room[:size].view(np.uint16), values[:size].view(np.uint16))
        assert (room[size:].astype(np.float32) == 7).all()
        np.testing.assert_array_equal(convert.as_contiguous(values[:size], np.dtype(np.float32)), floats[:size])
