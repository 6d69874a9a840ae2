"""Rendering kernels from template files. All decisions are made in Python; templates only loop and choose."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The template environment; an undefined name in a template is an error."""
    return Environment(
        loader=PackageLoader("neonlike.kernels", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **context: Any) -> str:
    """Text of ``template`` (a path below ``kernels/templates``)."""
    return environment().get_template(template).render(**context)


@lru_cache(maxsize=16)
def header(path: str) -> str:
    """Text of a header below ``kernels/templates``."""
    source = environment().loader
    assert source is not None
    return source.get_source(environment(), path)[0]
