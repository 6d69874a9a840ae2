"""Finds the headers that a kernel includes: those that define a function or a macro that its text uses, and no others.

To read all of them takes a compiler longer than most kernels do. And a kernel that was compiled before is found in the
cache when a header changes that it does not include.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

SYSTEM = {"math.h": r"\b(?:INFINITY|isfinite)\b", "stdlib.h": r"\b(?:malloc|free)\("}
"""Headers of C itself, and what is used of them."""
_DEFINED = re.compile(
    r"#define (NL_\w+)|(?:NL_FN|NL_ANYWHERE|NL_DIVIDING|static inline)\b[^;={}()#]*?\b(nl_\w+?)(?:##|\()"
)
_USED = re.compile(r"\b(?:NL|nl)_\w+")
_TYPE = re.compile(r"_(f|bf|i|u)(\d+)(?=_|$)")
_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Library:
    """Headers that kernels of a language may include.

    Attributes
    ----------
    texts : mapping of str to str
        Text of each header, by the name it is included with.
    parts : mapping of str to str
        Headers that cannot be included alone -> those that include them.
    always : tuple of str
        Those that each kernel includes.
    whole : str
        The header with the functions of int64 and uint64.
    narrow : str
        The one with those of narrower integers.
    system : bool
        Whether headers of C itself are included where they are used.
    """

    texts: Mapping[str, str]
    parts: Mapping[str, str] = field(default_factory=dict)
    always: tuple[str, ...] = ()
    whole: str = "intmath.h"
    narrow: str = "intmath_narrow.h"
    system: bool = False
    _found: dict[str, str | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _definitions(self) -> Mapping[str, str]:
        """What a header defines -> its name. Of functions that a macro defines, this is what their names begin with."""
        found: dict[str, str] = {}
        for header, text in self.texts.items():
            if header not in (self.whole, self.narrow):
                for macro, function in _DEFINED.findall(text):
                    found.setdefault(macro or function, self.parts.get(header, header))
        return found

    def used_by(self, names: Iterable[str]) -> list[str]:
        """The headers that define ``names``, in the library's order."""
        found = {*self.always, *map(self._find, names)}
        return [header for header in self.texts if header in found]

    def _find(self, name: str) -> str | None:
        """The header that defines ``name``, which says the type it computes in if there is one for each type."""
        if name not in self._found:
            first = _TYPE.search(name)
            if first is not None and first.group(1) in "iu":
                self._found[name] = self.whole if first.group(2) == "64" else self.narrow
            else:
                beginnings = (name[:end] for end in range(len(name), len("nl_"), -1))
                defined = self._definitions
                self._found[name] = next((defined[part] for part in beginnings if part in defined), None)
        return self._found[name]

    def includes(self, text: str) -> str:
        """The lines that include what ``text`` uses."""
        system = [f"<{name}>" for name, used in SYSTEM.items() if self.system and re.search(used, text)]
        own = [f'"{name}"' for name in self.used_by(names_in(text))]
        return "".join([f"#include {name}\n" for name in (*system, *own)])

    def closure(self, headers: Iterable[str]) -> dict[str, str]:
        """Texts of headers and of those that they include, by name."""
        found = dict.fromkeys(headers, "")
        pending = list(found)
        for header in pending:
            new = [other for other in self._included[header] if other not in found]
            found |= dict.fromkeys(new, "")
            pending += new
        return {header: self.texts[header] for header in found}

    @cached_property
    def _included(self) -> Mapping[str, list[str]]:
        """What each header includes."""
        return {header: _INCLUDED.findall(text) for header, text in self.texts.items()}


def names_in(text: str) -> frozenset[str]:
    """The names of a library that ``text`` uses."""
    return frozenset(_USED.findall(text))
