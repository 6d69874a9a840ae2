"""SVG images reduced to their shapes and texts: a file that somebody else wrote may put links and scripts into one."""

from __future__ import annotations

from html import escape
from xml.etree import ElementTree

from neonlike.errors import NeonlikeError

ELEMENTS = ("svg", "g", "polygon", "polyline", "path", "ellipse", "text")
"""Elements of shapes and texts."""
ATTRIBUTES = (
    "width", "height", "viewBox", "transform", "points", "d", "cx", "cy", "rx", "ry", "x", "y", "fill", "stroke",
    "stroke-width", "stroke-dasharray", "text-anchor", "font-family", "font-size", "font-weight", "font-style",
)  # fmt: skip
"""Attributes of where and how these are drawn."""


def shapes_of(svg: str) -> str:
    """Build an SVG image of the shapes and texts of another, with no link, script, id or reference.

    Raises
    ------
    NeonlikeError
        If it is no SVG image.
    """
    try:
        return _rebuilt(ElementTree.fromstring(svg[max(svg.find("<svg"), 0) :]))
    except ElementTree.ParseError as error:
        raise NeonlikeError(f"expected an SVG image, got one that cannot be read: {error}") from error


def _rebuilt(element: ElementTree.Element) -> str:
    name = element.tag.rpartition("}")[2]
    parts = [escape(element.text or "")]
    for child in element:
        parts += _rebuilt(child), escape(child.tail or "")
    inner = "".join(parts)
    if name == "a":
        return inner
    if name not in ELEMENTS:
        return ""
    kept = [
        f' {key}="{escape(value)}"'
        for key, value in element.attrib.items()
        if key in ATTRIBUTES and "url(" not in value.lower()
    ]
    return f"<{name}{''.join(kept)}>{inner}</{name}>"
