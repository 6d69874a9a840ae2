"""Selection of a kernel's headers: only those that define a function or macro used in its text.

Reading all of them would take a compiler longer than most kernels do. It also keeps cached kernels valid when a header
that they do not include changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

SYSTEM = {"math.h": r"\b(?:INFINITY|isfinite)\b", "stdlib.h": r"\b(?:malloc|free)\("}
"""Standard C headers, and the names used from each."""
_DEFINED = re.compile(
    r"#define (NL_\w+)|(?:NL_FN|NL_ANYWHERE|NL_DIVIDING|static inline)\b[^;={}()#]*?\b(nl_\w+?)(?:##|\()"
)
_USED = re.compile(r"\b(?:NL|nl)_\w+")
_TYPE = re.compile(r"_(f|bf|i|u)(\d+)(?=_|$)")
_INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Library:
    """Headers available to kernels of a language.

    Attributes
    ----------
    texts : mapping of str to str
        Text of each header, by its name in ``#include``.
    parts : mapping of str to str
        Headers that cannot be included alone -> headers that include them.
    always : tuple of str
        Headers included by each kernel.
    whole : str
        Header with the functions of int64 and uint64.
    narrow : str
        Header with the functions of narrower integers.
    system : bool
        Whether standard C headers are included where they are used.
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
        """Defined name -> header. For functions defined by a macro, the key is the common start of their names."""
        found: dict[str, str] = {}
        for header, text in self.texts.items():
            if header not in (self.whole, self.narrow):
                for macro, function in _DEFINED.findall(text):
                    found.setdefault(macro or function, self.parts.get(header, header))
        return found

    def used_by(self, names: Iterable[str]) -> list[str]:
        """Headers that define ``names``, in the library's order."""
        found = {*self.always, *map(self._find, names)}
        return [header for header in self.texts if header in found]

    def _find(self, name: str) -> str | None:
        """Header that defines ``name``, which ends in a type if there is one function per type."""
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
        """Include lines for the names used in ``text``."""
        system = [f"<{name}>" for name, used in SYSTEM.items() if self.system and re.search(used, text)]
        own = [f'"{name}"' for name in self.used_by(names_in(text))]
        return "".join([f"#include {name}\n" for name in (*system, *own)])

    def closure(self, headers: Iterable[str]) -> dict[str, str]:
        """Texts of headers and of their includes, by name."""
        found = dict.fromkeys(headers, "")
        pending = list(found)
        for header in pending:
            new = [other for other in self._included[header] if other not in found]
            found |= dict.fromkeys(new, "")
            pending += new
        return {header: self.texts[header] for header in found}

    @cached_property
    def _included(self) -> Mapping[str, list[str]]:
        """Includes of each header."""
        return {header: _INCLUDED.findall(text) for header, text in self.texts.items()}


def names_in(text: str) -> frozenset[str]:
    """Library names used in ``text``."""
    return frozenset(_USED.findall(text))
