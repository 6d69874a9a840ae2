"""Recurrent unrolls by Intel's tiles (AMX), on an emulation of them in C where the processor has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import rnn as kernels
from neonlike.backends.geometry.products import UnrollSizes
from neonlike.kernels.c.pairs import INSTRUCTION, PLAIN, TILES
from neonlike.kernels.run import calls
from neonlike.optree.dtypes import bfloat16
from tests.backends.primitives.conv.conv_compiled import Guarded
from tests.backends.primitives.rnn import test_pairs
from tests.backends.primitives.rnn.test_pairs import check_steps, pairs_of_few_units
from tests.kernels.c.test_quad_tile_code import COMPILERS, code_of
from tests.support.float64.rnn_unrolled import GATES, TANH, made_layer, results
from tests.support.machine_code import check_inner_loop
from tests.support.rounded import multiply_in
from tests.support.tiles import compiler, with_tiles

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.cpu_only("the compiled kernels of the CPU"),
    pytest.mark.usefixtures("with_tiles"),
]
__all__ = ["compiler", "pairs_of_few_units", "with_tiles"]

SIZES = [(32, 32, 2), (16, 16, 2), (17, 16, 3), (37, 33, 4), (64, 65, 2), (33, 40, 3), (129, 17, 2), (31, 48, 2)]
"""Units, samples and steps: tiles that are full, and units and samples that fill none."""


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Guarded:
    """Kernels work in memory full of nan; whether they wrote around it is checked by ``check``."""
    found = Guarded()
    monkeypatch.setattr(calls, "held_workspace", found)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The forms of pairs of the kernels that are asked for."""
    found: list[int] = []
    for routine in (kernels.SIMPLE, kernels.LSTM, kernels.GRU):

        def variant(compiler: Any, of: Any = routine.variant, **told: Any) -> Any:
            found.append(told.get("pairs", 0))
            return of(compiler, **told)

        monkeypatch.setattr(routine, "variant", variant)
    return found


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("size", SIZES)
def test_steps_round_factors_and_nothing_else(
    be: Backend, memory: Guarded, asked: list[int], rng: Any, kind: str, size: Any
) -> None:
    check_steps(be, rng, kind, size, INSTRUCTION)
    memory.check()
    assert set(asked) == {TILES}


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", [np.float32, bfloat16()], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("n, batch", [(32, 32), (45, 19), (81, 70)])
def test_whole_numbers_are_exact(be: Any, asked: list[int], rng: Any, n: int, batch: int, dtype: Any) -> None:
    """Products of states that are packed, and of those that the step before passes on, and of errors."""
    multiply_in(be, INSTRUCTION)
    w, given = rng.integers(-1, 2, (n, n)), [rng.integers(-8, 9, (n, batch)) for _ in range(3)]
    weight, (h0, *ff) = be.array(w, dtype=dtype), [be.array(x, dtype=dtype) for x in given]
    h, linear = [be.zeros((n, batch), dtype=dtype) for _ in range(2)], transforms.Identity()
    be.compound_rnn_unroll_fprop(weight, [h0, h[0]], ff, h, None, n, 2, 2, linear)
    first = np.clip(w @ given[0], -256, 256) if dtype != np.float32 else w @ given[0]
    first = first + given[1]
    assert np.abs(first).max() <= 256  # what has eight bits is not rounded
    np.testing.assert_array_equal(h[0].get(), first)
    wanted = w @ first + given[2]
    np.testing.assert_array_equal(h[1].get(), wanted.astype(np.float32).astype(dtype).astype(np.float32))
    errors = [be.array(x, dtype=dtype) for x in given]
    be.compound_rnn_unroll_bprop(weight, [errors[0], errors[1]], errors[1:], h, n, 2, 2, linear)
    second = given[1] + w @ given[2]
    assert np.abs(second).max() <= 256
    np.testing.assert_array_equal(errors[1].get(), second)
    wanted = given[0] + w @ second
    np.testing.assert_array_equal(errors[0].get(), wanted.astype(np.float32).astype(dtype).astype(np.float32))
    assert set(asked) == {TILES}


@pytest.mark.parametrize("used", [3, 2])
def test_weights_by_column_and_states_of_other_tensors(be: Any, asked: list[int], rng: Any, used: int) -> None:
    test_pairs.test_weights_by_column_and_states_of_other_tensors(be, rng, INSTRUCTION, used)
    assert set(asked) == {TILES}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
def test_tensors_of_16_bits(be: Any, asked: list[int], rng: Any, kind: str, dtype: Any) -> None:
    """As in plain arithmetic, up to what results are rounded by."""
    error, found = rng.standard_normal((37, 40 * 3)), []
    for form in (INSTRUCTION, PLAIN):
        multiply_in(be, form)
        made = made_layer(be, kind, 37, 40, 3, dtype=dtype)
        found.append([x.astype(np.float32) for x in results(made, error)])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=0, atol=2.0**-6 * (1 + np.abs(other).max()))
    assert set(asked) == ({TILES, PLAIN} if dtype.name == "bfloat16" else {0})


@pytest.mark.parametrize("kind", GATES)
def test_results_do_not_depend_on_the_number_of_threads(
    be: Backend, asked: list[int], rng: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that share a step write the halves of the same words; those that keep their samples do not meet."""
    test_pairs.test_results_do_not_depend_on_the_number_of_threads(be, rng, kind, INSTRUCTION, monkeypatch)
    assert set(asked) == {TILES}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_strange_sample_spoils_no_other(be: Backend, rng: Any, kind: str, strange: float) -> None:
    test_pairs.test_a_strange_sample_spoils_no_other(be, rng, kind, strange, INSTRUCTION)


def test_subnormal_factors_count_as_zero(be: Any, asked: list[int]) -> None:
    multiply_in(be, INSTRUCTION)
    state, after, none = be.array(np.full((20, 16), 1e-40)), be.zeros((20, 16)), be.zeros((20, 16))
    weight = be.array(np.full((20, 20), 2.0))
    be.compound_rnn_unroll_fprop(weight, [state], [none], [after], None, 20, 1, 1, transforms.Identity())
    assert not after.get().any() and state.get().any() and asked == [TILES]


def test_steps_of_few_samples_have_no_tiles(be: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    multiply_in(be, INSTRUCTION)
    monkeypatch.setattr(kernels, "FEWEST_OF_PAIRS", 32)
    for n, batch, form in ((32, 16, TILES), (32, 15, INSTRUCTION), (31, 64, 0), (64, 1, 0)):
        asked.clear()
        state, ff = (be.array(np.ones((n, batch))) for _ in range(2))
        be.compound_rnn_unroll_fprop(be.zeros((n, n)), [state], [ff], [ff], None, n, 1, 1, TANH)
        assert set(asked) == {form}, (n, batch)
        said = be.factors_of(UnrollSizes(n, n, batch, np.dtype(np.float32)))
        assert (said == "bfloat16 by tdpbf16ps") == (form == TILES)


def test_the_variable(be: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_AMX", "0")
    multiply_in(be, INSTRUCTION)
    made_layer(be, "lstm", 37, 40, 2).forward()
    assert set(asked) == {INSTRUCTION}


# Machine code ---------------------------------------------------------------------------------------------------------

FUNCTIONS = "\n".join(f"NL_FN REAL {name}(REAL x, const double *n) {{ return x * n[0]; }}" for name in (
    "act", "gate_act", "slope", "gate_slope"
))  # fmt: skip


@COMPILERS
@pytest.mark.parametrize("routine", [kernels.SIMPLE, kernels.LSTM, kernels.GRU], ids=list(GATES))
@pytest.mark.parametrize("backward", [False, True])
def test_code_of_the_kernels(command: str, routine: Any, backward: bool, tmp_path: Path) -> None:
    """The inner loop multiplies each tile it loads twice; each unit of work begins with tiles and ends with them."""
    made = routine.source(real="float", half="", backward=backward, pairs=TILES, activation=FUNCTIONS)
    code, both = code_of(command, tmp_path, made), ("ldtilecfg", "tilerelease")
    check_inner_loop(code["multiply_square"])
    words = {name: [line.split()[0] for line in lines if line.startswith(both)] for name, lines in code.items()}
    holders = {name: found for name, found in words.items() if found}
    assert any("multiply_then" in name for name in holders)
    for name, found in holders.items():  # of both branches of a condition there may be one each
        assert (found[0], found[-1]) == both, name
