"""Names in types of parameters are found as Sphinx finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sphinx.domains.python import ObjectEntry, PythonDomain

from sitebuilder.names import Names


def domain(kind: type[PythonDomain]) -> Any:
    made = kind(SimpleNamespace(domaindata={}, app=None, _registry=None))  # type: ignore[arg-type]
    names = {"neonlike.Tensor": "class", "neonlike.Tensor.get": "method", "neonlike.layers.get": "function"}
    for name, of in names.items():
        made.objects[name] = ObjectEntry("page", name, of, False)
    return made


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize(
    "name", ["Tensor", "neonlike.Tensor", "get", "get()", "Tensor.get", "other.get", "int", "list of int", "ensor", ""]
)
def test_what_is_found_is_what_sphinx_finds(name: str, mode: int) -> None:
    found, expected = (
        [one.find_obj(None, "neonlike.layers", None, name, kind, mode) for kind in ("class", "meth", "func", None)]
        for one in (domain(Names), domain(PythonDomain))
    )
    assert found == expected


def test_a_name_that_is_added_is_found() -> None:
    made = domain(Names)
    assert made.find_obj(None, "", "", "New", "class", 1) == []
    made.objects["neonlike.New"] = ObjectEntry("page", "neonlike.New", "class", False)
    assert [name for name, _ in made.find_obj(None, "", "", "New", "class", 1)] == ["neonlike.New"]
    assert made.find_obj(None, "", "", "Tensor", "class", 1)
