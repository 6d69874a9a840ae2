"""The planted faults of ``mutants.py`` still fit the sources, and their judge can tell the verdicts apart."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from neonlike.kernels.c.toolchain import find_compiler
from tests.mutants import (
    CAUGHT,
    INVALID,
    MUTANTS,
    ROOT,
    STALE,
    SURVIVED,
    TESTS,
    Outcome,
    confirm,
    judge,
    of_part,
    part,
    planted_in,
    private_copy,
    title,
)
from tests.planted.table import CUDA, Mutant
from tests.planted.watch import FIRST, pytest_collection_modifyitems

NMS = ("tests/backends/primitives/roi/test_nms.py", "-k", "sides_of_pixels or wrong_detections")
SOURCE = "neonlike/backends/primitives/roi/family.py"


@pytest.mark.parametrize("mutant", MUTANTS, ids=title)
def test_each_fault_fits_its_file(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} no longer has this text once; plant the fault anew"
    assert mutant.new != mutant.old
    if mutant.file.endswith(".py"):
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_there_are_enough_and_each_has_a_name_and_tests() -> None:
    assert len(MUTANTS) >= 60
    assert max(Counter(map(title, MUTANTS)).values()) == 1
    assert {mutant.family for mutant in MUTANTS} == set(TESTS)
    for files in TESTS.values():
        assert all((ROOT / file).is_file() for file in files)


def test_parts_have_each_fault_once_and_do_not_depend_on_others() -> None:
    parts = [of_part(MUTANTS, *part(f"{number}/8")) for number in range(1, 9)]
    assert Counter(row for some in parts for row in some) == Counter(MUTANTS)
    assert all(len(some) > len(MUTANTS) / 16 for some in parts)
    assert of_part(MUTANTS[::2], 2, 8) == [row for row in parts[2] if row in MUTANTS[::2]]
    for wrong in ("0/8", "9/8", "1/0", "3", "a/b", "1/8/2", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="K/N"):
            part(wrong)


def test_each_family_of_cuda_templates_has_five() -> None:
    faults = [mutant for mutant in MUTANTS if mutant.file.startswith(CUDA)]
    few = {family: count for family, count in Counter(mutant.family for mutant in faults).items() if count < 5}
    assert not few
    planted = {Path(mutant.file).relative_to(CUDA).parts[0] for mutant in faults}
    templates = {path.name for path in (ROOT / CUDA).iterdir() if path.is_dir() or path.name.endswith(".cu.j2")}
    assert templates <= planted, "kernels, or folders of kernels, without any"


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    with private_copy() as folder:
        yield folder


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_verdicts(copy: Path) -> None:
    fault = next(mutant for mutant in MUTANTS if title(mutant) == "roi: definition: nms threshold >=")
    before = (copy / SOURCE).read_text(encoding="utf-8")
    caught = judge(copy, fault, NMS)
    assert caught.verdict == CAUGHT and caught.words.startswith("backends/primitives/roi/test_nms.py::"), caught
    harmless = fault._replace(old="such as 0.7", new="such as 0.5")
    assert judge(copy, harmless, NMS).verdict == SURVIVED
    assert judge(copy, fault._replace(old="import numpy as np\n", new="import nmpy as np\n"), NMS).verdict == INVALID
    broken = fault._replace(file="neonlike/kernels/templates/c/nms.c.j2", old="> threshold;", new="> threshold")
    assert find_compiler() is None or judge(copy, broken, NMS).verdict == INVALID
    assert (copy / SOURCE).read_text(encoding="utf-8") == before == (ROOT / SOURCE).read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [{"old": "no such text"}, {"old": "def "}, {"file": "neonlike/gone.py"}])
def test_stale_faults(copy: Path, change: dict[str, str]) -> None:
    fault = MUTANTS[0]._replace(**change)
    with planted_in(copy, fault) as fits:
        assert not fits
    assert judge(copy, fault, NMS).verdict == STALE


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_what_fails_without_a_fault_catches_none(copy: Path) -> None:
    fault = MUTANTS[0]
    kept = "backends/primitives/roi/test_nms.py::test_zero_scores_are_left_out_where_they_are"
    passes = Outcome(fault, CAUGHT, kept, 1.0)
    fails = Outcome(fault._replace(family="lrn"), CAUGHT, "backends/primitives/test_lrn.py::test_there_is_none", 1.0)
    missed = Outcome(fault, SURVIVED, "all tests passed", 1.0)
    confirmed = confirm([passes, fails, missed], 2)
    assert [found.verdict for found in confirmed] == [CAUGHT, INVALID, SURVIVED]
    assert "fails without the fault" in confirmed[1].words


class _Test:
    def __init__(self, name: str) -> None:
        self.nodeid = name


def test_tests_that_caught_a_fault_come_first_and_all_first_cases_before_second_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = "test_a.py::f[1] test_a.py::f[2] test_a.py::f[3] test_a.py::g test_b.py::h[1] test_b.py::h[2]".split()
    items = [_Test(f"tests/{name}") for name in names]
    monkeypatch.setenv(FIRST, "test_b.py::h[2]\ntest_a.py::f[3]\ntest_c.py::gone")
    pytest_collection_modifyitems(items)
    order = [names.index(item.nodeid.removeprefix("tests/")) for item in items]
    assert order == [5, 2, 0, 3, 4, 1]
