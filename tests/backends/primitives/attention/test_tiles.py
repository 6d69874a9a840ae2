"""Attention by Intel's tiles (AMX), on an emulation of them in C where the processor has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import attention as kernels
from neonlike.kernels.c.pairs import INSTRUCTION, PLAIN, TILES
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.attention import test_pairs
from tests.backends.primitives.attention.test_pairs import guarded
from tests.kernels.c.test_quad_tile_code import COMPILERS, code_of
from tests.support.float64.attention_reference import Case
from tests.support.machine_code import check_inner_loop
from tests.support.rounded import multiply_in
from tests.support.tiles import compiler, with_tiles

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.cpu_only("the compiled kernels of the CPU"),
    pytest.mark.usefixtures("with_tiles"),
]
__all__ = ["compiler", "guarded", "with_tiles"]

Array = np.ndarray[Any, Any]
ONE_TILE = [
    (2, 1, 32, 192, 64, 64), (1, 2, 96, 64, 32, 32), (2, 3, 17, 33, 19, 17), (1, 2, 97, 96, 65, 48),
    (1, 1, 33, 71, 255, 40), (1, 2, 50, 191, 24, 66), (1, 1, 16, 32, 16, 16), (1, 2, 145, 178, 49, 100),
]  # fmt: skip
"""Lengths and sizes with as many keys as a tile of scores has at most: of whole tiles of the processor, and of none."""
SEVERAL_TILES = [(1, 1, 200, 500, 24, 33), (1, 1, 385, 193, 33, 16), (1, 2, 256, 384, 64, 64)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The forms of pairs of the kernels that are asked for."""
    found: list[int] = []
    for routine in (kernels.FORWARD, kernels.BACKWARD):

        def variant(compiler: Any, of: Any = routine.variant, **told: Any) -> Any:
            found.append(told.get("pairs", 0))
            return of(compiler, **told)

        monkeypatch.setattr(routine, "variant", variant)
    return found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", ONE_TILE)
def test_factors_are_rounded_and_nothing_else(be: Backend, asked: list[int], dims: Any, causal: bool) -> None:
    test_pairs.test_factors_are_rounded_and_nothing_else(be, dims, causal, INSTRUCTION)
    assert asked == [TILES, TILES]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", SEVERAL_TILES)
def test_several_tiles_of_keys(be: Backend, asked: list[int], dims: Any, causal: bool) -> None:
    test_pairs.test_several_tiles_of_keys(be, dims, causal, INSTRUCTION)
    assert asked == [TILES, TILES]


@pytest.mark.optimized
def test_optimized_kernels(be: Backend, asked: list[int]) -> None:
    for causal in (False, True):
        test_pairs.test_factors_are_rounded_and_nothing_else(be, (2, 3, 81, 133, 72, 53), causal, INSTRUCTION)
    assert asked == [TILES] * 4


def test_layouts(be: Backend, asked: list[int]) -> None:
    test_pairs.test_layouts(be, INSTRUCTION)
    assert set(asked) == {TILES}


@pytest.mark.parametrize("dims", [(1, 1, 300, 700, 20, 20), (2, 3, 131, 221, 17, 33)])
def test_results_do_not_depend_on_the_threads(
    be: Backend, asked: list[int], dims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they differ from run to run."""
    test_pairs.test_results_do_not_depend_on_the_threads(be, dims, INSTRUCTION, monkeypatch)
    assert set(asked) == {TILES}


def test_infinite_and_nan_factors(be: Backend, asked: list[int]) -> None:
    test_pairs.test_infinite_and_nan_factors(be, INSTRUCTION, 21)
    assert set(asked) == {TILES}


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_strange_error_spoils_the_gradient_of_its_query_alone(be: Backend, asked: list[int], strange: float) -> None:
    """And those of values only in its column; a value that no query sees spoils nothing."""
    multiply_in(be, INSTRUCTION)
    dims = (1, 1, 53, 70, 24, 18)
    clean = Case(be, dims, True)
    e, v = clean.arrays[3].copy(), clean.arrays[2].copy()
    e[0, 0, 52, 17], v[0, 0, 69, 3] = strange, strange  # of the last query, of the last key
    case = Case(be, dims, True, e=e, v=v)
    for each in (clean, case):
        each.fprop()
        each.bprop()
    np.testing.assert_array_equal(case.O.get(), clean.O.get())
    wrong = ~np.isfinite(case.gradients[0].get()[0, 0]).all(axis=1)
    assert wrong.tolist() == [i == 52 for i in range(53)]
    np.testing.assert_array_equal(case.gradients[0].get()[:, :, :52], clean.gradients[0].get()[:, :, :52])
    np.testing.assert_array_equal(case.gradients[2].get()[..., :17], clean.gradients[2].get()[..., :17])
    assert not np.isfinite(case.gradients[2].get()[:, :, :53, 17]).any()


@pytest.mark.parametrize("causal", [False, True])
def test_tensors_of_16_bits(be: Any, asked: list[int], causal: bool) -> None:
    """Results are those of plain arithmetic, up to what results are rounded by."""
    found = []
    for form in (INSTRUCTION, PLAIN):
        multiply_in(be, form)
        case = Case(be, (2, 2, 45, 77, 40, 24), causal, dtype=bfloat16())
        case.fprop()
        case.bprop()
        found.append([t.get().astype(np.float32) for t in (case.O, case.lse, *case.gradients)])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=0, atol=2.0**-7 * (1 + np.abs(other).max()))
    assert asked == [TILES, TILES, PLAIN, PLAIN]


def test_subnormal_factors_count_as_zero(be: Any, asked: list[int]) -> None:
    multiply_in(be, INSTRUCTION)
    case = Case(be, (1, 1, 20, 40, 16, 16), v=np.full((1, 1, 40, 16), 1e-40))
    case.fprop()
    assert not case.O.get().any() and case.V.get().any() and asked == [TILES]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", [(1, 1, 400, 33, 40, 40), (3, 5, 33, 65, 17, 31)])
def test_the_stated_memory(be: Any, monkeypatch: pytest.MonkeyPatch, dims: Any, causal: bool) -> None:
    multiply_in(be, INSTRUCTION)
    case, asked = Case(be, dims, causal), []
    start = kernels.KernelCall.start
    monkeypatch.setattr(kernels.KernelCall, "start", lambda call, at: (asked.append(call.work), start(call, at))[1])
    case.fprop()
    case.bprop()
    assert asked == [be.workspace_bytes(case.layer, operation) for operation in ("fprop", "bprop")]


FILLED = {
    (16, 32, 16, 16): TILES, (64, 32, 16, 64): TILES, (15, 64, 64, 64): INSTRUCTION, (1, 64, 64, 64): INSTRUCTION,
    (64, 31, 64, 64): INSTRUCTION, (64, 15, 64, 64): 0, (64, 64, 15, 64): 0, (64, 64, 64, 15): 0,
}  # fmt: skip
"""Queries, keys, and elements of a query and of a value, and the form in which they are multiplied."""


@pytest.mark.parametrize("lengths", FILLED)
def test_only_sizes_that_fill_tiles_use_them(be: Any, asked: list[int], lengths: Any) -> None:
    multiply_in(be, INSTRUCTION)
    case = Case(be, (1, 2, *lengths))
    case.fprop()
    case.bprop()
    form = FILLED[lengths]
    assert asked == [form, form]
    for operation in ("fprop", "bprop"):
        assert (be.factors_of(case.layer, operation) == "bfloat16 by tdpbf16ps") == (form == TILES)


def test_other_forms_and_dtypes_have_no_tiles(be: Any, asked: list[int]) -> None:
    for form in (PLAIN, 0):
        multiply_in(be, form)
        Case(be, (1, 1, 32, 32, 32, 32)).fprop()
    multiply_in(be, INSTRUCTION)
    Case(be, (1, 1, 32, 32, 32, 32), dtype=np.float64).fprop()
    assert asked == [PLAIN, 0, 0]


def test_the_variable(be: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_AMX", "0")
    multiply_in(be, INSTRUCTION)
    case = Case(be, (1, 1, 32, 32, 32, 32))
    case.fprop()
    case.bprop()
    assert asked == [INSTRUCTION, INSTRUCTION]


def test_expressions_tell_the_instruction(be: Any) -> None:
    multiply_in(be, INSTRUCTION)
    q = be.ones((2, 32, 32))
    assert "\n  factors bfloat16 by tdpbf16ps" in be.explain(be.attention(q, q, q))


# Machine code ---------------------------------------------------------------------------------------------------------


@COMPILERS
@pytest.mark.parametrize("routine", [kernels.FORWARD, kernels.BACKWARD], ids=["forward", "backward"])
def test_code_of_the_kernels(command: str, routine: Any, tmp_path: Path) -> None:
    """The inner loop multiplies each tile it loads twice; each unit of work begins with tiles and ends with them."""
    made = routine.source(real="float", suffix="f32", pairs=TILES)
    assert made.expression.endswith(", factors rounded to bfloat16 by tdpbf16ps")
    code, both = code_of(command, tmp_path, made), ["ldtilecfg", "tilerelease"]
    squares = [lines for name, lines in code.items() if name.startswith("multiply_square")]
    assert squares
    for lines in squares:
        check_inner_loop(lines)
    held = {name: [line.split()[0] for line in lines if line.startswith(tuple(both))] for name, lines in code.items()}
    assert [found for found in held.values() if found] == [both]
    assert not any("vdpbf16ps" in line for lines in code.values() for line in lines)


@pytest.mark.parametrize("routine", [kernels.FORWARD, kernels.BACKWARD], ids=["forward", "backward"])
def test_kernels_without_tiles_have_no_text_of_them(routine: Any) -> None:
    for context in ({}, {"pairs": INSTRUCTION}, {"pairs": PLAIN}):
        text = str(routine.source(real="float", suffix="f32", **context).source)
        assert "nl_tile" not in text and "tiles.h" not in text and "nl_sums" not in text
