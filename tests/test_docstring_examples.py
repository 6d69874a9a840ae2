"""Examples in docstrings: all of them show what comes out, and what users call of a backend has one."""

from __future__ import annotations

import doctest
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import neonlike
from neonlike import autograd
from neonlike.backends import NervanaCPU
from neonlike.backends.family import public_methods
from neonlike.backends.tensor import Tensor
from sitebuilder.described import docstring
from sitebuilder.inventory import everything
from tests.support.doctests import failure

ROOT = Path(neonlike.__file__).parent
PROMPT = ">>> "
PARTS = sorted({path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py") if PROMPT in path.read_text("utf-8")})
"""Packages, and modules of the package itself, that have examples."""
WITHOUT = {"plan_key"}
"""Public names of tensors for other modules only."""

pytestmark = [pytest.mark.cpu_only("shows the CPU's values"), pytest.mark.engines("numpy")]


def modules_of(part: str) -> Iterator[ModuleType]:
    """The modules of a package that have a prompt, or the module ``part``."""
    for path in sorted((ROOT / part).rglob("*.py")) or [ROOT / part]:
        if PROMPT in path.read_text(encoding="utf-8"):
            names = path.relative_to(ROOT.parent).with_suffix("").parts
            yield import_module(".".join(names).removesuffix(".__init__"))


@pytest.fixture
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder; random numbers and the environment are afterwards as before."""
    monkeypatch.chdir(tmp_path)
    numbers, environment = np.random.get_state(), dict(os.environ)
    yield
    np.random.set_state(numbers)
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.usefixtures("engine", "no_backend_left", "anywhere")
def test_examples_show_what_comes_out(part: str) -> None:
    found = doctest.DocTestFinder(exclude_empty=True)
    sessions = [one for module in modules_of(part) for one in found.find(module) if one.examples]
    assert sessions
    assert [said for one in sessions if (said := failure(one))] == []


def test_an_example_that_shows_something_else_is_found() -> None:
    right, wrong = (doctest.DocTestParser().get_doctest(f">>> 1 + 1\n{n}\n", {}, "planted", None, 0) for n in (2, 3))
    assert failure(right) == ""
    assert "Expected:\n    3\nGot:\n    2\n" in failure(wrong) and "planted" in failure(wrong)


def without_example(owner: object, names: set[str]) -> list[str]:
    """Those of ``names`` whose docstring has no prompt."""
    return sorted(name for name in names if PROMPT not in (getattr(owner, name).__doc__ or ""))


def test_each_method_of_a_backend_has_an_example() -> None:
    names = {name for of_a_file in public_methods(NervanaCPU).values() for name in of_a_file}
    assert without_example(NervanaCPU, {name for name in names if callable(getattr(NervanaCPU, name))}) == []


def test_each_public_class_has_an_example() -> None:
    classes = [public for public in everything() if public.kind == "class"]
    assert len(classes) > 200
    assert [public.name for public in classes if PROMPT not in docstring(public)] == []


def test_each_method_of_a_tensor_has_an_example() -> None:
    names = {name for name in dir(Tensor) if name[0] != "_" and callable(getattr(Tensor, name))}
    assert without_example(Tensor, names - WITHOUT) == []


def test_each_function_of_variables_has_an_example() -> None:
    assert without_example(autograd, {name for name in autograd.__all__ if callable(getattr(autograd, name))}) == []
