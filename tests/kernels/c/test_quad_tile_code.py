"""Machine code of products of int8 by Intel's tiles (AMX), and the emulation of their instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c import quads, simd
from neonlike.kernels.c.quads import INSTRUCTION, MATRICES, META, PACKED, PANELS, TILES, Tile
from neonlike.kernels.c.toolchain import find_compiler
from tests.kernels.c.test_tile_code import EMULATION, HEADERS, multiplier
from tests.support.engines import needs_compiler
from tests.support.machine_code import assembly, check_inner_loop, functions_of

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]

BYTES = EMULATION.replace("nl_tile_multiply(", "nl_tile_multiply_bytes(")
CONTRACTED = "#pragma clang fp contract(fast)\n"
"""As -ffp-contract=fast, which is gcc's default, and with which kernels are compiled."""
COMPILERS = pytest.mark.parametrize("command", ["gcc", "clang"])


def source(form: int, packed: bool = True) -> Any:
    routine, types = (PACKED, ("float", "float")) if packed else (MATRICES, ("int8_t", "int32_t"))
    tile = Tile(2 * quads.SIDE, 64) if form == TILES else Tile(12, 64)
    return routine.source(quads=form, tile=tile, source=types[0], result=types[1], packed=packed, meta=META)


def code_of(command: str, folder: Path, made: Any) -> dict[str, list[str]]:
    folder.mkdir(exist_ok=True)
    text = f"{CONTRACTED if command == 'clang' else ''}{made.source}"
    return functions_of(assembly(command, folder, text, made.headers))


@COMPILERS
def test_four_products_for_four_loads(command: str, tmp_path: Path) -> None:
    for packed in (True, False):
        check_inner_loop(code_of(command, tmp_path / str(packed), source(TILES, packed))["add_square"], "tdpbsud")


@COMPILERS
def test_tiles_are_given_back(command: str, tmp_path: Path) -> None:
    """Each unit of work begins with tiles and ends with them: no thread keeps them."""
    both = ["ldtilecfg", "tilerelease"]
    lines = code_of(command, tmp_path, source(TILES))["take_units"]
    assert [line.split()[0] for line in lines if line.startswith(tuple(both))] == both


@COMPILERS
def test_sums_become_results_as_without_tiles(command: str, tmp_path: Path) -> None:
    """The scale and the bias are rounded at once in the same places: for few columns, and in parts."""

    def fused(form: int, *functions: str) -> list[bool]:
        code = code_of(command, tmp_path / str(form), source(form))
        assert set(functions) <= set(code)
        return [any(line.startswith("vfmadd") for line in code[name]) for name in functions]

    few, parts, whole = fused(INSTRUCTION, "multiply_narrow", "multiply_parts", "take_units")
    found = fused(TILES, "store_few", "multiply_parts", "take_units", "store_tile_row")
    assert found == [few, parts, whole, whole] and few and not whole


@COMPILERS
def test_the_instruction_is_that_of_the_compiler(tmp_path: Path, command: str) -> None:
    """The order of operands and their signs: our text against the function that compilers have."""
    codes = []
    for head, name in (('#include "tiles.h"', "nl_tile_multiply_bytes"), ("#include <immintrin.h>", "_tile_dpbsud")):
        folder = tmp_path / name
        folder.mkdir()
        code = functions_of(assembly(command, folder, f"{head}\nvoid f(void) {{ {name}(0, 4, 6); }}\n", HEADERS))["f"]
        codes.append([line.replace(", ", ",") for line in code if line.startswith("tdp")])
    assert codes == [["tdpbsud %tmm6,%tmm4,%tmm0"]] * 2


@COMPILERS
def test_panels_compile(tmp_path: Path, command: str) -> None:
    made = PANELS.source(tile=Tile(2 * quads.SIDE, 64), quads=TILES)
    assert any(made.name in name for name in code_of(command, tmp_path, made))


# The emulation --------------------------------------------------------------------------------------------------------


def described(a: Any, b: Any, c: Any) -> Any:
    """Sums as Intel's manual has them, of signed bytes of ``a`` and unsigned ones of ``b``, modulo 2^32."""
    sums = c.astype(np.int64)
    signed, unsigned = (x.view(kind).reshape(*x.shape, 4).astype(np.int64) for x, kind in ((a, np.int8), (b, np.uint8)))
    for k in range(a.shape[1]):
        for byte in range(4):
            sums += signed[:, k, byte, None] * unsigned[k, :, byte]
    return sums.astype(np.int32)


def test_the_emulation_adds_as_described(rng: Any) -> None:
    multiply = multiplier(BYTES)
    for _ in range(5):
        a, b = (rng.integers(0, 2**32, (16, 16), dtype=np.uint32) for _ in range(2))
        c = rng.integers(-(2**31), 2**31, (16, 16)).astype(np.int32)
        np.testing.assert_array_equal(multiply(a, b, c), described(a, b, c))


@pytest.mark.parametrize("one", [0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0x01010101])
@pytest.mark.parametrize("other", [0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0x00000000])
def test_signs_of_extreme_numbers(one: int, other: int) -> None:
    a, b = np.full((16, 16), one, np.uint32), np.full((16, 16), other, np.uint32)
    product = ((one & 0xFF) - 256 * (one >> 31)) * (other & 0xFF)
    assert (multiplier(BYTES)(a, b, np.full((16, 16), 5, np.int32)) == 64 * product + 5).all()


def test_the_emulation_has_the_sizes_of_its_configuration(rng: Any) -> None:
    """Rows and bytes that tiles have not are neither read nor written; other sizes than fit make -1."""
    a, b = (rng.integers(0, 2**32, (16, 16), dtype=np.uint32) for _ in range(2))
    c, multiply = np.full((16, 16), 9, np.int32), multiplier(BYTES)
    found = multiply(a, b, c, (5, 5, 3), (28, 12, 28))
    np.testing.assert_array_equal(found[:5, :7], described(a[:5, :3].copy(), b[:3, :7].copy(), c[:5, :7]))
    found[:5, :7] = 9
    assert (found == 9).all()
    assert (multiply(a, b, c, begun=False) == -1).all()
    assert (multiply(a, b, c, (16, 16, 8)) == -1).all()


def test_the_processor_does_as_the_emulation(rng: Any) -> None:
    needs_compiler()
    compiler = find_compiler()
    assert compiler is not None
    if not (simd.has_byte_tiles(compiler) and simd.ask_for_tiles(compiler)):
        pytest.skip("the processor has no tiles for int8, or the system does not permit them")
    real, emulated = multiplier(BYTES.replace("#define NL_EMULATED_TILES\n", "")), multiplier(BYTES)
    for _ in range(20):
        a, b = (rng.integers(0, 2**32, (16, 16), dtype=np.uint32) for _ in range(2))
        c = rng.integers(-(2**31), 2**31, (16, 16)).astype(np.int32)
        np.testing.assert_array_equal(real(a, b, c), emulated(a, b, c))
        sizes = (5, 5, 3), (28, 12, 28)
        np.testing.assert_array_equal(real(a, b, c, *sizes), emulated(a, b, c, *sizes))
