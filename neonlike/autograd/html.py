"""Shows variables in notebooks: the op, whether a derivative is wanted, the values if they are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neonlike.optree.html import facts_of, heading, sizes, text, tree, values_of


def of_variable(self: Any) -> str:
    """HTML of a variable. Nothing is computed: a value that nobody asked for yet is said to be missing."""
    if self.is_freed:
        return heading("Variable", self.op or "input", "freed", name=self.name)
    head = heading("Variable", _kind(self), *facts_of(self), _wish(self), name=self.name)
    value = "<div>not computed yet</div>" if self._tensor is None else values_of(self._tensor)
    if not self.parents:
        return head + value
    return f"{head}{value}<details><summary>made of</summary>{tree(self, _parents, _line)}</details>"


def _kind(variable: Any) -> str:
    return str(variable.op or ("parameter" if variable.needs_grad else "constant"))


def _wish(variable: Any) -> str:
    if not variable.needs_grad:
        return "no gradient"
    return "needs a gradient" if variable._derivative is None else "has a gradient"


def _parents(variable: Any) -> Iterable[Any]:
    return () if variable.is_freed else variable.parents


def _line(variable: Any) -> str:
    if variable.is_freed:
        return f"<b>{text(variable.op or 'input')}</b> freed"
    named = f" {text(variable.name)}" if variable.name else ""
    wish = "" if variable.needs_grad else ", no gradient"
    return f"<b>{text(_kind(variable))}</b>{named} {sizes(variable.shape)} {variable.dtype.name}{wish}"
