"""The menu of all pages, made of their titles alone.

The theme asks for a menu of titles once for each page, the shown sources among them. Sphinx then copies the headings of
all pages each time, only to leave them out: a quarter of the time of a build. Without these headings the menu is the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from docutils import nodes
from sphinx import addnodes


def connect(app: Any) -> None:
    """Have Sphinx make menus of titles from titles; before the theme asks for them."""
    kept: dict[str, nodes.Element] = {}

    def with_titles(app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
        _wrap(app, context, kept)

    app.connect("html-page-context", with_titles, priority=400)


def _wrap(app: Any, context: dict[str, Any], kept: dict[str, nodes.Element]) -> None:
    """Put a quicker function in the place of the one that makes a page's menus."""
    if "toctree" in context:
        whole = context["toctree"]

        def toctree(**options: Any) -> str:
            if not options.get("titles_only"):
                return str(whole(**options))
            with _titles_alone(app.env, kept):
                return str(whole(**options))

        context["toctree"] = toctree


@contextmanager
def _titles_alone(environment: Any, kept: dict[str, nodes.Element]) -> Iterator[None]:
    """Have the contents of pages be their titles for a while; ``kept`` holds them from then on."""
    whole = environment.tocs
    if not kept:
        kept.update((page, titles(contents)) for page, contents in whole.items())
    environment.tocs = kept
    try:
        yield
    finally:
        environment.tocs = whole


def titles(contents: nodes.Element) -> nodes.Element:
    """The contents of a page without its headings below the title; pages that it lists stay.

    Sphinx cuts them in this way too, in the copies that it makes.
    """
    cut: nodes.Element = contents.deepcopy()
    for item in cut.children:
        if isinstance(item, nodes.Element) and len(item) > 1:
            if listed := list(item.findall(addnodes.toctree)):
                item[1][:] = listed  # type: ignore[index]
            else:
                item.pop(1)
    return cut
