"""Menus of titles are made from titles alone, and are those that Sphinx makes of all headings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from docutils import nodes
from sphinx import addnodes

from sitebuilder import navigation


def entry(name: str, *below: nodes.Element) -> nodes.Element:
    """An entry of a page's contents."""
    line = addnodes.compact_paragraph("", "", nodes.reference("", name, refuri=name, anchorname=""))
    return nodes.list_item("", line, *([nodes.bullet_list("", *below)] if below else []))


def names(tree: nodes.Element) -> str:
    return " ".join(line.astext() for line in tree.findall(nodes.reference))


def contents() -> dict[str, nodes.Element]:
    """A page with headings, and one that lists another page below a heading."""
    listing = addnodes.toctree(entries=[(None, "page")], hidden=False)
    first = entry("page", entry("heading", entry("lower heading")))
    return {"page": nodes.bullet_list("", first), "list": nodes.bullet_list("", entry("list", entry("part", listing)))}


def test_headings_are_left_out_and_listed_pages_stay() -> None:
    whole = contents()
    before = {name: tree.pformat() for name, tree in whole.items()}
    page, listing = (navigation.titles(whole[name]) for name in ("page", "list"))
    assert names(page) == "page"
    assert names(listing) == "list" and len(list(listing.findall(addnodes.toctree))) == 1
    assert {name: tree.pformat() for name, tree in whole.items()} == before


@pytest.mark.parametrize("fails", [False, True])
def test_menus_of_titles_alone_are_made_so(fails: bool) -> None:
    """Other menus, as the contents of the page itself, have the headings; and so has whatever comes after a menu."""
    app = SimpleNamespace(env=SimpleNamespace(tocs=contents()))
    handlers: list[Any] = []
    app.connect = lambda event, handler, priority: handlers.append((event, handler, priority))

    def made(**options: Any) -> str:
        if fails:
            raise LookupError("planted")
        return "+".join(map(names, app.env.tocs.values()))

    navigation.connect(app)
    ((event, handler, priority),) = handlers
    assert event == "html-page-context" and priority < 500  # that of the theme
    context: dict[str, Any] = {"toctree": made}
    handler(app, "page", "page.html", context, None)
    handler(app, "genindex", "genindex.html", {}, None)
    before = app.env.tocs
    if fails:
        with pytest.raises(LookupError):
            context["toctree"](titles_only=True)
    else:
        assert context["toctree"](titles_only=True, collapse=False) == "page+list"
        assert context["toctree"](collapse=False) == "page heading lower heading+list part"
    assert app.env.tocs is before
