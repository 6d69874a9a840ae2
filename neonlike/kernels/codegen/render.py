"""Kernel sources: templates with their contexts. All decisions are made in Python; templates only loop and choose.

A source is identified by the files of its template and by its context, so that a compiled kernel is found without
rendering, which would cost more than loading it.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from neonlike.kernels.codegen.headers import Library, names_in
from neonlike.kernels.codegen.tidy import tidied

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE, FOLDER = "neonlike.kernels", "templates"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The template environment; an undefined name in a template is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(PACKAGE, FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@lru_cache(maxsize=128)
def template_text(path: str) -> str:
    """Text of a file below ``kernels/templates``."""
    data = pkgutil.get_data(PACKAGE, f"{FOLDER}/{path}")
    assert data is not None, path
    return data.decode("utf-8")


def header_texts(paths: Iterable[str]) -> dict[str, str]:
    """Texts of headers below ``templates/c``, by their names in ``#include``, which omit the folder."""
    return {path.rpartition("/")[2]: template_text(f"c/{path}") for path in paths}


_READS_FILE = re.compile(r'\{%-?\s*(?:include|import|from|extends)\s+"([^"]+)"')


def is_text(template: str) -> bool:
    """Whether ``template`` is a template's text, with several lines, not a file name."""
    return "\n" in template


def text_of(template: str) -> str:
    """Text of a template, given as text or as a file name."""
    return template if is_text(template) else template_text(template)


@lru_cache(maxsize=64)
def files_of(template: str) -> tuple[str, ...]:
    """A template, followed by all files that it includes or imports, directly or indirectly."""
    files = [template]
    for path in files:
        files += [name for name in _READS_FILE.findall(text_of(path)) if name not in files]
    return tuple(files)


STYLE = "1"
"""To be raised when the same template and context render to another text than before."""


@lru_cache(maxsize=64)
def _names_of(template: str) -> frozenset[str]:
    """Library names used in the files of a template."""
    return names_in("\0".join(map(text_of, files_of(template))))


class TemplateSource:
    """Source of one kernel, rendered on demand.

    Parameters
    ----------
    template : str
        Path below ``kernels/templates``, or the text itself, for a user's kernel.
    context : dict
        Context of the template except ``name``; its ``repr`` must determine its contents.
    library : Library, optional
        Library for a template without includes: used headers are included, and unused definitions of the text are
        removed.
    """

    def __init__(self, template: str, context: dict[str, Any], library: Library | None = None) -> None:
        self.template, self.context, self.library = template, context, library

    @cached_property
    def _shown(self) -> str:
        """The context as text."""
        return repr(self.context)

    @cached_property
    def identity(self) -> str:
        """Hash of everything that the text depends on, except headers."""
        files = files_of(self.template)
        parts = "\0".join([STYLE, *files, *map(text_of, files), self._shown])
        return hashlib.sha256(parts.encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        return f"nl_{self.identity[:16]}"

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts of the library's headers that the text may include, by name."""
        if self.library is None:
            return {}
        return self.library.closure(self.library.used_by(_names_of(self.template) | names_in(self._shown)))

    def __str__(self) -> str:
        make = environment().from_string if is_text(self.template) else environment().get_template
        text = make(self.template).render(name=self.name, **self.context)
        if self.library is None:
            return text
        text = tidied(text)
        return f"{self.library.includes(text)}\n{text}"
