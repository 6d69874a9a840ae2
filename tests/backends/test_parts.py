"""The parts of a backend: each family of methods is in one of them, and they have nothing of their own."""

from __future__ import annotations

import re
from pathlib import Path

import neonlike.backends
from neonlike.backends import Backend
from neonlike.backends.abstract_backend import AbstractBackend
from neonlike.backends.family import Family

FOLDERS = ("expressions", "machine", "primitives", "tensors")
PARTS = tuple(base for base in Backend.__bases__ if issubclass(base, Family))


def test_a_backend_has_seven_parts_above_neons_base() -> None:
    assert Backend.__bases__ == (*PARTS, AbstractBackend)
    assert len(PARTS) == 7
    assert {part.__module__ for part in PARTS} == {"neonlike.backends.parts"}


def test_each_family_is_in_one_part() -> None:
    folder = Path(neonlike.backends.__file__).parent
    sources = [path.read_text("utf-8") for name in FOLDERS for path in (folder / name).rglob("*.py")]
    written = {name for source in sources for name in re.findall(r"^class (\w+Family)\(", source, re.MULTILINE)}
    families = [cls.__name__ for part in PARTS for cls in part.__mro__[1:-2]]  # without Family and object
    assert len(written) > 20, "the families are not where this test looks"
    assert sorted(families) == sorted(written)


def test_parts_have_no_methods() -> None:
    own = {name for part in PARTS for name in vars(part)}
    assert {name for name in own if not re.fullmatch(r"__\w+__", name)} == set()
    assert own.isdisjoint({"__init__", "__call__", "__getattr__", "__setattr__", "__slots__"})
