"""Names of Python in the site: those of types that the reference lacks are found missing at once."""

from __future__ import annotations

from typing import Any

from sphinx.domains.python import PythonDomain


class Names(PythonDomain):
    """Sphinx's domain of Python, which looks through all names for each word in the type of a parameter.

    Most of these words, such as ``int`` and ``array``, end no name of the reference.
    """

    _ends: tuple[int, frozenset[str]] = (0, frozenset())

    def find_obj(
        self, env: Any, modname: str, classname: str, name: str, type: str | None, searchmode: int = 0
    ) -> list[tuple[str, Any]]:
        """The entries that ``name`` may mean; see the base class."""
        if searchmode == 1 and _end(name.removesuffix("()")) not in self.ends():
            return []
        return super().find_obj(env, modname, classname, name, type, searchmode)

    def ends(self) -> frozenset[str]:
        """The last parts of all names."""
        if self._ends[0] != len(self.objects):
            self._ends = len(self.objects), frozenset(map(_end, self.objects))
        return self._ends[1]


def _end(name: str) -> str:
    return name.rpartition(".")[2]
