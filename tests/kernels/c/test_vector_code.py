"""No chain of ops loses its vector code: a sample of the cases of ``python tests/kernels/c/vector_code.py``."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from neonlike.backends import Backend, gen_backend
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from tests.kernels.c import vector_code
from tests.kernels.c.vector_code import Chain, Tree
from tests.support.kept_runs import run_kept

pytestmark = [pytest.mark.cpu_only("the C compiler"), pytest.mark.optimized]

LOST: tuple[Tree, ...] = (
    ("minimum", ("maximum", "x", "c"), "c"),  # be.clip
    ("maximum", ("exp", "x"), "y"),
    ("maximum", "y", ("pow", "x", "z")),
    ("relu", ("log", "x")),
    ("softplus", ("sgn", "x")),
    ("safelog", ("exp", "x")),
    ("and", ("hypot", "x", "z"), "y"),
    ("or", ("relu", "x"), "y"),
    ("xor", ("exp2", "x"), "y"),
    ("all", ("sgn", "x"), 0),
    ("min", ("relu", "x"), 1),
    ("max", ("exp2", "x"), 1),
    ("prod", ("ge", "x", "y"), 1),
    ("sub", "x", ("max", ("isnan", "x"), 1)),
    ("floordiv", "x", ("min", ("eq", "x", "y"), 1)),
)
"""Chains that gcc 11 or 12 once left scalar."""
GCC_LEFT = "NL_FN float planted(float a, float b) { return a >= b || a != a ? a : b; }"
"""The larger of two, in words of which gcc makes no vectors beside exp."""
ALL_LEAVE = "__attribute__((noinline)) static float planted(float a) { return a < 0 ? 0.5f : a; }"
"""A function that is called for each element."""


@pytest.fixture(autouse=True)
def reports_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of the compiler are those of an earlier run, if the kernels are the same."""
    monkeypatch.setattr(vector_code, "run", run_kept)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C compiler on this machine")
    known = vector_code.macros(found)
    if "__GNUC__" not in known:
        pytest.skip("only gcc and clang report their loops in a form that is read here")
    if "__AVX2__" not in known and "__aarch64__" not in known:
        pytest.skip("this machine has neither AVX2 nor the vectors of aarch64; less has no 64-bit integer lanes")
    return found


@pytest.fixture(scope="module")
def be() -> Backend:
    return gen_backend("cpu")


def test_chains_that_were_scalar_once_have_vector_code(be: Backend, compiler: Compiler) -> None:
    chains = [chain for dtype in vector_code.DTYPES for chain in vector_code.render(be, LOST, dtype)]
    assert len(chains) == len(LOST) * len(vector_code.DTYPES)
    assert [line for lines in vector_code.check(chains, compiler, jobs=2) for line in lines] == []


@pytest.mark.parametrize("dtype", vector_code.DTYPES)
def test_a_sample_of_all_chains_has_vector_code(be: Backend, compiler: Compiler, dtype: str) -> None:
    """Each dtype another sample, the same in every run."""
    chains = vector_code.render(be, vector_code.sample(20, random.Random(dtype)), dtype)
    assert len(chains) >= 20
    assert [line for lines in vector_code.check(chains, compiler, jobs=2) for line in lines] == []


def planted(chain: Chain, function: str, other: str) -> Chain:
    """``chain`` with the function ``planted``, whose text is ``other``, in place of another."""
    source = str(chain.kernel.source)
    assert f" {function}(" in source
    return Chain("planted", chain.kernel._replace(source=f"{other}\n{source.replace(f' {function}(', ' planted(')}"))


def test_a_scalar_loop_among_others_is_found(be: Backend, compiler: Compiler) -> None:
    chains = vector_code.render(be, [("exp", "x"), ("maximum", ("exp", "x"), "y"), ("neg", "x")], "float32")
    (found,) = vector_code.scalar_loops([chains[2], planted(chains[0], "nl_exp_f32", ALL_LEAVE)], compiler)
    assert found.startswith("planted: line ") and "for (int64_t i = first; i < last; i++) {" in found
    if "__clang__" not in vector_code.macros(compiler):
        (found,) = vector_code.scalar_loops([planted(chains[1], "nl_max_nan_f32", GCC_LEFT), chains[2]], compiler)
        assert found.startswith("planted: line ")
    assert vector_code.scalar_loops(chains, compiler) == []


def test_a_compiler_that_reports_nothing_is_no_proof(be: Backend, compiler: Compiler) -> None:
    chains = vector_code.render(be, [("exp", "x")], "float32")
    silent = replace(compiler, flags=tuple(flag for flag in compiler.flags if flag != "-O3"))
    with pytest.raises(RuntimeError, match="reports no loop"):
        vector_code.scalar_loops(chains, silent)


def test_every_op_stands_in_the_whole_run() -> None:
    names = {spec.name for spec in (*vector_code.ELEMENTWISE, *vector_code.REDUCTIONS)}
    trees = [*vector_code.singles(), *vector_code.pairs(), *vector_code.reductions()]
    outer, inner = (
        {tree[0] for tree in trees},
        {part[0] for tree in trees for part in tree[1:] if isinstance(part, tuple)},
    )
    assert outer == names
    assert inner == names
    assert len(vector_code.ELEMENTWISE) > 60
