"""Pictures of the pages: a function each, which draws it by Matplotlib and computes its numbers by the library.

``python -m sitebuilder.pictures`` writes them into docs/pictures, where the pages find them, on code hosts too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from sitebuilder import DOCS
from sitebuilder.pictures import sequences, sets, trees, windows
from sitebuilder.pictures.drawing import Canvas

FOLDER = DOCS / "pictures"


def _drawn(module: object) -> dict[str, Callable[[], Canvas]]:
    """The functions of a module that draw a picture, by name."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: made for name, made in found if made.__annotations__.get("return") == "Canvas" and name[0] != "_"}


PICTURES: dict[str, Callable[[], Canvas]] = {
    name: made for module in (windows, sets, sequences, trees) for name, made in _drawn(module).items()
}
"""The name of each picture's file, without suffix, and the function that draws it."""
