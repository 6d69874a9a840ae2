"""Kernels of int8 in each form and width of their tiles, against exact sums of whole numbers."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends.primitives.int8.definition import quantized
from neonlike.kernels.c import quads
from neonlike.kernels.c.quads import INSTRUCTION, PLAIN, WORDS_OF_16_BITS, matrix_sizes
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import find_compiler
from tests.support.engines import needs_compiler, use_threads

pytestmark = [pytest.mark.cpu_only("the compiled kernels of the CPU")]

FORMS = (INSTRUCTION, WORDS_OF_16_BITS, PLAIN)
SIZES = [
    (1, 1, 1), (3, 5, 7), (13, 801, 33), (12, 64, 32), (25, 7, 17), (30, 2, 100), (5, 2001, 49), (64, 99, 1),
    (1, 6, 80), (40, 21, 2), (12, 3, 3), (14, 70, 8), (25, 22, 701),
]  # fmt: skip


@pytest.fixture(autouse=True)
def compiler() -> Any:
    needs_compiler()
    return find_compiler()


def with_tiles(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Have kernels use vectors of so many bytes; 0: the machine's."""
    if nbytes:
        monkeypatch.setattr(quads, "vector_bytes", lambda _: nbytes)


def int8(rng: Any, *shape: int) -> Any:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def multiplied(a: Any, b: Any, dtype: Any, compiler: Any, form: int = INSTRUCTION) -> Any:
    c = np.full((len(a), b.shape[1]), 77, dtype)
    call = quads.matrix_call(a, b, c, compiler, form)
    assert call is not None
    call.run()
    return c


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("nbytes", [0, 32, 16])
def test_products_are_exact(rng: Any, compiler: Any, form: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tiles(monkeypatch, nbytes)
    for (m, k, n), dtype in itertools.product(SIZES, (np.int32, np.float32)):
        a, b = int8(rng, m, k), int8(rng, k, n)
        assert np.array_equal(multiplied(a, b, dtype, compiler, form), a.astype(int) @ b.astype(int)), (m, k, n)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("one, other", [(-128, -128), (-128, 127), (127, 127)])
def test_no_sum_of_extreme_numbers_saturates_or_wraps(compiler: Any, form: int, one: int, other: int) -> None:
    k = quads.FIT_IN_INT32
    a, b = np.full((2, k), one, np.int8), np.full((k, 3), other, np.int8)
    assert (multiplied(a, b, np.int32, compiler, form) == one * other * k).all()


def test_longer_sums_are_rounded_once_or_taken_modulo(compiler: Any) -> None:
    k = quads.FIT_IN_INT32 + 2
    a, b = np.full((2, k), -128, np.int8), np.full((k, 18), -128, np.int8)
    assert (multiplied(a, b, np.float32, compiler) == np.float32(k * 128 * 128)).all()
    assert (multiplied(a, b, np.int32, compiler) == k * 128 * 128 - 2**32).all()


def test_rows_may_be_parts_of_longer_ones(rng: Any, compiler: Any) -> None:
    a, wide = int8(rng, 14, 30), int8(rng, 30, 60)
    b, c = wide[:, 7:52], np.zeros((14, 50), np.int32)
    call = quads.matrix_call(a, b, c[:, :45], compiler)
    assert call is not None
    call.run()
    assert np.array_equal(c[:, :45], a.astype(int) @ b.astype(int)) and not c[:, 45:].any()


def test_what_has_no_contiguous_rows_has_no_kernel(rng: Any, compiler: Any) -> None:
    a, b, c = int8(rng, 8, 8), int8(rng, 8, 8), np.zeros((8, 8), np.int32)
    assert quads.matrix_call(a.T, b, c, compiler) is None
    assert quads.matrix_call(a, b.T, c, compiler) is None
    assert quads.matrix_call(a[:, :4], b[:4], c, compiler) is None
    assert quads.matrix_call(a, b, c.T, compiler) is None


def test_results_are_the_same_for_any_number_of_threads(
    rng: Any, compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = int8(rng, 130, 400), int8(rng, 400, 170)
    found = []
    for threads in (1, 2, 3):
        use_threads(monkeypatch, threads)
        found.append(multiplied(a, b, np.int32, compiler))
    assert all(np.array_equal(one, a.astype(int) @ b.astype(int)) for one in found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [1, 2, 3, 8, 66000])
def test_input_is_quantized_as_defined(rng: Any, compiler: Any, form: int, k: int) -> None:
    """Ties, numbers beyond the largest, infinities and nan; inner dimensions that end with a part of a word."""
    m, n, step = 13, 45, 0.5
    x = (rng.integers(-300, 301, (k, n)) * np.float32(0.25)).astype(np.float32)
    x[0, :6] = np.inf, -np.inf, np.nan, -0.0, 1e-40, 3e38
    a, out = rng.integers(-127, 128, (m, k), dtype=np.int8), np.zeros((m, n), np.float32)
    scales, bias = (rng.standard_normal((m, 1)).astype(np.float32) for _ in range(2))
    panels = quads.panels_of(a, 1, compiler)
    assert panels is not None
    given, weights = (tuple(map(address, arrays)) for arrays in ((x, bias, out), (*panels, scales)))
    call = quads.quantized_call(matrix_sizes(m, k, n), given, weights, (n, n), 1 / step, 0.125, compiler, form)
    assert call is not None
    call.run()
    wanted = (a.astype(int) @ quantized(x, step).astype(int)).astype(np.float32) * scales.astype(float) + bias
    wanted = np.where(wanted < 0, wanted * 0.125, wanted)
    size = np.abs(a.astype(int) @ quantized(x, step).astype(int)) * np.abs(scales) + np.abs(bias)
    assert (np.abs(out - wanted) <= 2.0**-22 * size).all()


def of_floats(a: Any, x: Any, out: Any, compiler: Any, form: int = INSTRUCTION) -> Any:
    """Products with whole numbers in float32, which stay as they are; ``x`` and ``out`` have contiguous rows."""
    panels = quads.panels_of(a, 1, compiler)
    assert panels is not None
    ones = np.ones(len(a), np.float32)
    given, weights = (tuple(map(address, arrays)) for arrays in ((x, None, out), (*panels, ones)))
    steps = tuple(array.strides[0] // array.itemsize for array in (x, out))
    call = quads.quantized_call(matrix_sizes(len(a), *x.shape), given, weights, steps, 1.0, None, compiler, form)
    assert call is not None
    call.run()
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("nbytes", [0, 32, 16])
def test_few_columns_are_exact(
    rng: Any, compiler: Any, form: int, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a word, a vector or a panel ends; in arrays of their own and in parts of longer rows."""
    with_tiles(monkeypatch, nbytes)
    for m, k, n in itertools.product((1, 13, 29), (1, 3, 6, 35, 66), (1, 2, 3, 5, 8, 9, 15, 17)):
        a, x = int8(rng, m, k), rng.integers(-127, 128, (k, n + 3)).astype(np.float32)
        wanted = a.astype(int) @ x.astype(int)
        whole = of_floats(a, x[:, :n].copy(), np.full((m, n), 77, np.float32), compiler, form)
        part = of_floats(a, x[:, 2 : n + 2], np.full((m, n + 1), 77, np.float32)[:, :n], compiler, form)
        assert np.array_equal(whole, wanted[:, :n]) and np.array_equal(part, wanted[:, 2 : n + 2]), (m, k, n)
        assert (part.base[:, n] == 77).all()


@pytest.mark.parametrize("n, k", [(1, 20_001), (2, 17_003), (5, 9_002)])
def test_few_columns_are_shared_by_threads(
    rng: Any, compiler: Any, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quads, "PARALLEL_PRODUCTS", 0)
    use_threads(monkeypatch, 3)
    a, x = int8(rng, 50, k), rng.integers(-127, 128, (k, n)).astype(np.float32)
    for _ in range(3):
        assert np.array_equal(of_floats(a, x, np.zeros((50, n), np.float32), compiler), a.astype(int) @ x.astype(int))


@pytest.mark.parametrize(
    "processor, nbytes, instruction",
    [
        ("alderlake", 32, "vpdpbusd"), ("sapphirerapids", 64, "vpdpbusd"), ("haswell", 32, "vpmaddwd"),
        ("skylake-avx512", 64, "vpmaddwd"), ("x86-64", 16, ""),
    ],
)  # fmt: skip
def test_texts_for_other_processors_compile(
    compiler: Any, tmp_path: Path, processor: str, nbytes: int, instruction: str
) -> None:
    """Assembled, with the instruction of that processor; they are not run."""
    tile = quads.Tile(12 if nbytes == 64 else 4, nbytes)
    kernel = quads.PACKED.source(
        quads=INSTRUCTION, tile=tile, source="float", result="float", packed=True, meta=quads.META
    )
    for name, text in {"kernel.c": str(kernel.source), **kernel.headers}.items():
        (tmp_path / name).write_text(text)
    command = [*compiler.command, "-O2", "-std=gnu11", "-Wall", "-Werror", f"-march={processor}", "-S", "kernel.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if re.search("(bad|invalid|unknown|unrecognized|unsupported).*march|unknown target CPU", done.stderr):
        pytest.skip(f"the compiler knows no {processor}")
    assert not done.returncode, done.stderr
    assembled = subprocess.run([*compiler.command, "-c", "kernel.s"], cwd=tmp_path, capture_output=True, text=True)
    assert not assembled.returncode, assembled.stderr
    assert instruction in (tmp_path / "kernel.s").read_text()
