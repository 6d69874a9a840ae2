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
    judge,
    of_part,
    part,
    planted_in,
    private_copy,
    title,
)
from tests.planted.table import CUDA, Mutant

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
