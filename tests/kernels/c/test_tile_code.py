"""Machine code of products by Intel's tiles (AMX), and the emulation of tiles, which needs no such processor."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c import simd
from neonlike.kernels.c.compile import build
from neonlike.kernels.c.gemm import GEMM
from neonlike.kernels.c.pairs import TILES
from neonlike.kernels.c.toolchain import find_compiler
from tests.support.engines import needs_compiler
from tests.support.machine_code import assembly, check_inner_loop, functions_of

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

HEADERS = GEMM.source(real="float", pairs=TILES).headers


@pytest.fixture(params=["gcc", "clang"])
def code(request: Any, tmp_path: Path) -> dict[str, list[str]]:
    """Functions of the kernel of products, compiled for a processor with tiles."""
    source = GEMM.source(**{"real": "float", "pairs": TILES})
    return functions_of(assembly(request.param, tmp_path, str(source.source), source.headers))


def test_four_products_for_four_loads(code: dict[str, list[str]]) -> None:
    check_inner_loop(code["multiply_square"])


def test_tiles_are_given_back(code: dict[str, list[str]]) -> None:
    """Each unit of work begins with tiles and ends with them: no thread keeps them."""
    both = ("ldtilecfg", "tilerelease")
    words = {name: [line.split()[0] for line in lines if line.startswith(both)] for name, lines in code.items()}
    holders = {name: found for name, found in words.items() if found}
    assert {f"take_{unit}_by_tiles" for unit in ("rows", "columns", "parts")} <= set(holders)
    for found in holders.values():
        assert found == [*both] * (len(found) // 2)


@pytest.mark.parametrize("command", ["gcc", "clang"])
def test_instructions_are_those_of_the_compiler(tmp_path: Path, command: str) -> None:
    """The order of operands in particular: our texts against the functions that compilers have."""
    ours = "nl_tiles_begin(c); nl_tile_zero(3); nl_tile_load(5, a, s); nl_tile_multiply(0, 4, 6); "
    ours += "nl_tile_store(2, o, s); nl_tiles_end();"
    names = {"nl_tiles_begin": "_tile_loadconfig", "nl_tile_load": "_tile_loadd", "nl_tile_multiply": "_tile_dpbf16ps"}
    names |= {"nl_tile_zero": "_tile_zero", "nl_tile_store": "_tile_stored", "nl_tiles_end": "_tile_release"}
    body = f"void f(const void *c, const void *a, void *o, long s) {{ {ours} }}\n"
    texts = {"ours": f'#include "tiles.h"\n{body}'}
    texts["theirs"] = f"#include <immintrin.h>\n{re.sub('nl_tile[a-z_]+', lambda found: names[found[0]], body)}"
    codes = {}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        lines = functions_of(assembly(command, tmp_path / name, text, HEADERS))["f"]
        codes[name] = [line.replace(", ", ",") for line in lines if line.startswith(("t", "ldtilecfg"))]
    assert len(codes["ours"]) == 6
    assert codes["ours"] == codes["theirs"]


# The emulation --------------------------------------------------------------------------------------------------------

EMULATION = """\
#define NL_EMULATED_TILES
#include "tiles.h"
void nl_try(const struct nl_tile_config *config, const void *a, const void *b, void *c, int64_t begun)
{
    nl_tiles_begin(config);
    nl_tile_load(0, c, 64);
    nl_tile_load(1, a, 64);
    nl_tile_load(2, b, 64);
    if (!begun)
        nl_tiles_end();
    nl_tile_multiply(0, 1, 2);
    nl_tile_store(0, c, 64);
    nl_tiles_end();
}
"""
CONFIG = np.dtype([("palette", "u1"), ("unused", "u1", 15), ("bytes", "u2", 16), ("rows", "u1", 16)])


def multiplier(text: str) -> Callable[..., Any]:
    """A function that multiplies tiles of words by a compiled ``text``, with rows and bytes of a row of each."""
    needs_compiler()
    library = build(text, "nl_try_tiles", headers=HEADERS)
    library.nl_try.argtypes = (*(ctypes.c_void_p,) * 4, ctypes.c_int64)

    def multiply(a: Any, b: Any, c: Any, rows: Any = (16,) * 3, sizes: Any = (64,) * 3, begun: bool = True) -> Any:
        config, found = np.zeros((), CONFIG), c.copy()
        config["palette"], config["bytes"][:3], config["rows"][:3] = 1, sizes, rows
        library.nl_try(*(x.ctypes.data for x in (config, a, b, found)), begun)
        return found

    return multiply


@pytest.fixture
def emulated() -> Callable[..., Any]:
    return multiplier(EMULATION)


def flushed(x: Any) -> Any:
    """Zero of its sign for each subnormal number."""
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x).astype(np.float32)


def described(a: Any, b: Any, c: Any) -> Any:
    """The sums of float32 as Intel's manual has them: two of each row, of first and of second numbers of pairs."""
    halves = [[flushed(part.view(np.float32)) for part in (x << 16, x & np.uint32(0xFFFF0000))] for x in (a, b)]
    sums = []
    for one, other in zip(*halves):
        total = np.zeros(c.shape, np.float32)
        for k in range(a.shape[1]):
            exact = one[:, k, None].astype(float) * other[k]
            total = flushed((total.astype(float) + exact).astype(np.float32))
        sums.append(total)
    return flushed(flushed(c) + flushed(sums[0] + sums[1]))


def test_the_emulation_adds_as_described(emulated: Any, rng: Any) -> None:
    """Also among subnormal numbers, which count as zero; numbers are of sizes whose sums depend on the order."""
    for size in (1.0, 2.0**-62):
        a, b = ((rng.standard_normal((16, 32)) * size).astype(np.float32).view(np.uint32) >> 16 for _ in range(2))
        a, b = (np.ascontiguousarray(x[:, ::2] | x[:, 1::2] << 16, np.uint32) for x in (a, b))
        a[3, 5], b[7, 2] = 0x00018001, 0x80010001  # subnormal numbers of both signs
        c = (rng.standard_normal((16, 16)) * size * size).astype(np.float32)
        with np.errstate(under="ignore"):
            wanted = described(a, b, c)
        np.testing.assert_array_equal(emulated(a, b, c), wanted)


def test_the_emulation_has_the_sizes_of_its_configuration(emulated: Any, rng: Any) -> None:
    """Rows and bytes that tiles have not are neither read nor written."""
    a, b = (np.full((16, 16), 0x7FC07FC0, np.uint32) for _ in range(2))
    one = rng.integers(1, 9, (5, 3)).astype(np.float32).view(np.uint32)
    other = rng.integers(1, 9, (3, 7)).astype(np.float32).view(np.uint32)
    a[:5, :3], b[:3, :7] = one >> 16, other >> 16
    c = np.full((16, 16), -1, np.float32)
    found = emulated(a, b, c, (5, 5, 3), (28, 12, 28))
    np.testing.assert_array_equal(found[:5, :7], one.view(np.float32) @ other.view(np.float32) - 1)
    found[:5, :7] = -1
    assert (found == -1).all()


def test_the_emulation_makes_nan_where_instructions_fail(emulated: Any) -> None:
    a, b, c = np.zeros((16, 16), np.uint32), np.zeros((16, 16), np.uint32), np.zeros((16, 16), np.float32)
    assert (emulated(a, b, c) == 0).all()
    assert np.isnan(emulated(a, b, c, begun=False)).all()
    assert np.isnan(emulated(a, b, c, (16, 16, 8))).all()  # rows of b that are not the words of a
    assert np.isnan(emulated(a, b, c, (16, 8, 16))).all()
    assert np.isnan(emulated(a, b, c, (16,) * 3, (64, 64, 32))[:, :8]).all()


def test_the_processor_does_as_the_emulation(emulated: Any, rng: Any) -> None:
    needs_compiler()
    compiler = find_compiler()
    assert compiler is not None
    if not (simd.has_tiles(compiler) and simd.ask_for_tiles(compiler)):
        pytest.skip("the processor has no tiles, or the system does not permit them")
    real = multiplier(EMULATION.replace("#define NL_EMULATED_TILES\n", ""))
    for _ in range(20):
        a, b = (rng.integers(0, 2**32, (16, 16), dtype=np.uint32) for _ in range(2))
        c = rng.standard_normal((16, 16)).astype(np.float32)
        np.testing.assert_array_equal(real(a, b, c), emulated(a, b, c))
        sizes = (5, 5, 3), (28, 12, 28)
        np.testing.assert_array_equal(real(a, b, c, *sizes), emulated(a, b, c, *sizes))
