"""The fuzz program itself: a short run, its detection of faults, and its runnable scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c.toolchain import Compiler
from neonlike.logger import logger
from neonlike.optree.functions import F
from tests.fuzz import bounds
from tests.fuzz.check import ENGINES, Bench
from tests.fuzz.growth import Grower, other_spaces
from tests.fuzz.minimise import minimised
from tests.fuzz.optree import ops_of
from tests.fuzz.programs import Leaf, Op, Program, Ref, Target, build, snippet
from tests.fuzz.sanitize import MAIN, environment, prove
from tests.fuzz.values import Val, exact
from tests.support.compiling import Wrapper
from tests.support.engines import needs_compiler, ready

pytestmark = [pytest.mark.backend, pytest.mark.optimized]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    needs_compiler()
    ready()
    made = Bench()
    yield made
    logger.removeHandler(made.complaints)


def test_numbers_and_classes_grow_as_operands(bench: Bench) -> None:
    found = Counter(name for seed in range(60) for name in ops_of(Grower(bench.backends["numpy"], seed).grow()))
    assert all(found[name] for name in ("rand", "onehot", "classes"))


@pytest.mark.compiles(4)
@pytest.mark.parametrize("seed", range(12))  # `make fuzz` has more
def test_programs_of_random_trees(bench: Bench, seed: int) -> None:
    program = Grower(bench.backends["numpy"], seed).grow()
    bench.check(program)
    for other in other_spaces(program, bench.backends["numpy"], np.random.default_rng(seed), 1):
        bench.check(other)


def test_a_seed_always_grows_the_same_program(bench: Bench) -> None:
    first, second = (Grower(bench.backends["numpy"], 77).grow() for _ in range(2))
    assert first == second and first.targets


def product(space: tuple[int, int] = (1, 5), dtype: str = "f4") -> Program:
    """Twice a tensor."""
    return Program(space, (Leaf((0, 1), dtype, "plain", "real", 1), Op("mul", (Ref(0), 2))), (Target(1),))


def test_a_program_assigns_something_in_every_space(bench: Bench) -> None:
    """A square target turned round takes the value of its term, which in other spaces has another shape."""
    terms = Leaf((0, 1), "f4", "plain", "real", 1), Op("neg", (Ref(0),))
    turned = Program((3, 3), terms, (Target(1, leaf=0, view="T"),), "prepare")
    be = bench.backends["numpy"]
    found = [space for seed in range(4) for space in other_spaces(turned, be, np.random.default_rng(seed), 2)]
    assert all(build(program, be).pairs for program in (turned, *found))


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_a_wrong_element_of_a_kernel_is_seen() -> None:
    """One element too few is written; in a process and a cache of its own."""
    needs_compiler()
    done = subprocess.run([sys.executable, str(MAIN), "--fault", "value"], capture_output=True, text=True)
    assert done.returncode and "Failure: c: out0 (t1) [0, 4] of (1, 5)" in done.stderr, done.stderr


def possible(bench: Bench, program: Program) -> Any:
    """Possible contents of the only target of ``program``."""
    return build(program, bench.backends["numpy"]).vals[program.targets[0].term]


def test_bounds_see_three_units_in_the_last_place(bench: Bench) -> None:
    val = possible(bench, product((3, 50)))
    right = val.v.astype(np.float32)
    assert not bounds.wrong(right, val, right.dtype).any()
    off = right * np.float32(1 + 4e-7)
    assert bounds.wrong(off, val, right.dtype).all()


@pytest.mark.parametrize("count", (10, 5000, 131073))
def test_bounds_see_one_missing_element_of_a_long_sum(bench: Bench, count: int) -> None:
    """Sums of small whole numbers are exact in any order."""
    leaf = Leaf((0, 1), "f4", "plain", "whole", 3)
    val = possible(bench, Program((1, count), (leaf, Op("sum", (Ref(0),), 1)), (Target(1),)))
    right = val.v.astype(np.float32)
    assert not bounds.wrong(right, val, right.dtype).any()
    assert bounds.wrong(right + 1, val, right.dtype).all()


def test_bounds_let_nothing_pass_for_nan_and_inf() -> None:
    val = exact(np.array([[np.nan, np.inf, -np.inf, 1.0]], np.float32))
    f4 = np.dtype(np.float32)
    assert bounds.wrong(np.array([[0, 1e38, np.inf, np.nan]], f4), val, f4).all()
    assert not bounds.wrong(np.array([[np.nan, np.inf, -np.inf, 1]], f4), val, f4).any()
    assert bounds.wrong(np.array([[1, 254, 1, 2]], np.uint8), val, f4).all()
    assert not bounds.wrong(np.array([[0, 255, 0, 1]], np.uint8), val, f4).any()


def test_bounds_round_what_an_uncertain_operand_may_give(bench: Bench) -> None:
    """``tanh`` of 0 or 1: in float32 that of 1 is greater than tanh(1), although that of 0 is exact."""
    node = F.tanh(bench.backends["numpy"].zeros((1, 1)))
    val = bounds.evaluate(node, [Val(np.zeros((1, 1)), np.ones((1, 1)))])
    got = np.array([[np.nextafter(np.float32(np.tanh(1.0)), np.float32(1))]])
    assert got.item() > np.tanh(1.0)
    assert not bounds.wrong(got, val, got.dtype).any()
    assert bounds.wrong(got + np.float32(1e-5), val, got.dtype).all()


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arctanh"])
def test_bounds_know_domains_within_an_interval(bench: Bench, name: str) -> None:
    """In -44 +- 56, nan in the middle and at both ends, 0 is possible, and its inverse sine is a number."""
    node = getattr(F, name)(bench.backends["numpy"].zeros((1, 3)))
    val = bounds.evaluate(node, [Val(np.array([[-44.0, -44, 3]]), np.array([[56.0, 42, 0]]))])
    assert np.isnan(val.v).all() and val.e.tolist() == [[np.inf, 0, 0]]


def test_a_failure_is_cut_down_to_what_fails(bench: Bench) -> None:
    """Anything with a sine is taken to fail."""

    def has_sine(program: Program) -> bool:
        return any(isinstance(term, Op) and term.name == "sin" for term in program.terms)

    grown = (Grower(bench.backends["numpy"], seed).grow() for seed in range(500))
    program = next(candidate for candidate in grown if has_sine(candidate))

    def fails(candidate: Program) -> bool:
        try:
            build(candidate, bench.backends["numpy"], reference=False)
        except ValueError:
            return False
        return has_sine(candidate)

    smallest = minimised(program, fails)
    assert [term.name for term in smallest.terms if isinstance(term, Op)] == ["sin"]
    assert len(smallest.targets) == 1 and np.prod(smallest.space) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "f4"])
def test_the_printed_script_runs(bench: Bench, dtype: str, tmp_path: Path) -> None:
    be = bench.backends["numpy"]
    grown = (Grower(be, seed).grow() for seed in range(100))
    program = next(one for one in grown if f"dtype={dtype!r}" in snippet(one, be, ENGINES[1]))
    script = tmp_path / "failure.py"
    script.write_text(snippet(program, be, ENGINES[1]))
    root = MAIN.parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run([sys.executable, str(script)], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_a_window_scattered_into_a_strided_target(bench: Bench) -> None:
    """``unview`` wrote beyond the memory of targets that run backwards."""
    for layout in ("backwards", "second", "transposed", "margin"):
        leaf = Leaf((0, 1), "f4", "plain", "real", 1)
        bench.check(Program((4, 6), (leaf, Op("unview", (Ref(0),), 0, 5)), (Target(1, "f4", layout),)))


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_sanitizers_catch_deliberate_faults(capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_compiler()
    if os.name == "posix" and "CC" not in os.environ:
        monkeypatch.setenv("CC", str(Wrapper(tmp_path, Compiler("", ("gcc",), ())).path))  # repeats what it made
    try:
        variables = environment(sanitized=True)
    except SystemExit as reason:
        pytest.skip(str(reason))
    prove(variables)
    assert "overrun" in capfd.readouterr().out
