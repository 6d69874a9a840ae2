"""Public names have docstrings, which describe their parameters."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest

from neonlike.backends import Backend
from sitebuilder import described
from sitebuilder.inventory import Public, everything, listed, methods


def test_every_public_name_is_described() -> None:
    assert described.faults() == []


def test_all_kinds_of_names_are_known() -> None:
    kinds = {public.path: public.kind for public in everything()}
    assert kinds["neonlike.layers.Conv"] == "class"
    assert kinds["neonlike.errors.ShapeError"] == "exception"
    assert kinds["neonlike.backends.gen_backend"] == "function"
    assert kinds["neonlike.backends.Backend.sig"] == kinds["neonlike.backends.Backend.fprop_conv"] == "method"
    assert kinds["neonlike.models.Model.fit"] == "method"
    assert kinds["neonlike.backends.backend.Tensor.size"] == "property"
    assert kinds["neonlike.autograd.tanh"] == "function"


def test_every_public_method_of_a_backend_is_known() -> None:
    known = {public.name for public in everything() if public.parent == "neonlike.backends.Backend"}
    assert len(known) > 200
    there = {name for name in dir(Backend) if not name.startswith("_") and callable(getattr(Backend, name))}
    assert {name for name in there - known if not isinstance(getattr(Backend, name), type)} == set()


def test_an_inherited_method_is_its_bases() -> None:
    by_name = {public.path: public for public in listed()}
    conv, layer = by_name["neonlike.layers.Convolution"], by_name["neonlike.layers.layer.Layer"]
    assert "fprop" in {one.name for one in methods(conv)} & {one.name for one in methods(layer)}
    inherited = {one.name for one in methods(layer)} - set(vars(conv.value))
    assert inherited and inherited.isdisjoint(one.name for one in methods(conv))


# Planted faults ---------------------------------------------------------------------------------------------------


class Described:
    """A class.

    Parameters
    ----------
    a, b : int
        Numbers.
    *more
        Others.

    Attributes
    ----------
    c : int
    """

    def __init__(self, a: int, b: int, c: int, *more: int, **options: Any) -> None: ...

    @cached_property
    def kept(self) -> int:
        return 0

    def bare(self, x: Any) -> None: ...

    def walk(self, x: Any, y: Any, z: Any) -> None:
        """Have parameters.

        Parameters
        ----------
        x, y, z
            Of a point.
        """


class Derived(Described):
    def bare(self, x: Any) -> None: ...

    def walk(self, x: Any, y: Any, z: Any) -> None:
        """Have those of the base."""


class Renamed(Described):
    def walk(self, x: Any, y: Any, height: Any) -> None:
        """Have another one."""


def bare(a: Any) -> None: ...


def few(a: Any, b: Any) -> None:
    """Has two parameters."""


def many(a: Any, b: Any, c: Any = None, *, out: Any = None) -> None:
    """Has four.

    Parameters
    ----------
    a, b
        Two of them.
    c : any

    Returns
    -------
    out : not this one
    """


@pytest.mark.parametrize(
    ("kind", "value", "fault"),
    [
        ("class", Described, ""),
        ("class", Derived, described.NO_DOCSTRING),
        ("function", bare, described.NO_DOCSTRING),
        ("function", few, ""),
        ("function", many, described.NO_PARAMETERS),
        ("data", 3, ""),
    ],
)
def test_a_fault_is_found(kind: str, value: Any, fault: str) -> None:
    assert described.fault(Public(f"{__name__}.{getattr(value, '__name__', 'x')}", kind, value)) == fault


@pytest.mark.parametrize(("owner", "fault"), [(Derived, ""), (Renamed, described.NO_PARAMETERS)])
def test_the_base_describes_what_is_called_the_same(owner: type, fault: str) -> None:
    assert described.fault(Public(f"{__name__}.{owner.__name__}.walk", "method", vars(owner)["walk"])) == fault


def test_a_name_without_docstring_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Public("neonlike.planted", "function", bare)
    monkeypatch.setattr(described, "everything", lambda: (planted,))
    assert described.faults() == ["neonlike.planted: no docstring"]


def test_a_name_on_no_page_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described, "INTERNAL", {})
    assert any(found.startswith("neonlike.models.saving: ") for found in described.missing_from_reference())
