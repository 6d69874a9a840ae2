"""Semantics of operations that neon and NumPy define differently.

==========================  ===============================================  ======================================
form                        as NumPy and PyTorch mean it (the default)       in neon's dialect
==========================  ===============================================  ======================================
``t += x`` on a tensor      changes the tensor                               binds ``t`` to the expression ``t + x``
``e[0]`` on an expression   its first row, as an expression                  its op dict: ``(op_dict, left, right)``
``bool(e)``                 the value of one element; an error for several   True: there is an expression
``repr(t)``, ``str(t)``     a tensor's values                                one line without them
``t.take(i, axis)[:] = x``  changes a copy                                   stores into ``t``
``float(t.get()[i])``       NumPy's: an error since 2.4, of rank 1 or more   the value of one element
``layer.modulenm``          ``neonlike.layers.layer.Linear``                 ``neon.layers.layer.Linear``
gradient of a tie           equal shares, which add up to one                all of it to each that is tied
an argument ``name``        a string                                         any object, with a warning
an argument ``inference``   a truth value                                    the truth of any object, with a warning
a whole float for a size    an error                                         the integer
``eval_freq=True``          an error                                         1, each epoch
rows and columns of a       as configured, or each column a whole sequence   any, of as many elements
layer's input
==========================  ===============================================  ======================================

Importing :mod:`neonlike.compat.neon` selects neon's dialect for the process. The library itself uses none of these
forms, so that it works in both dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neonlike.checks import admit_anything

_LOOSE = {"name": "another argument", "inference": "init_state="}
"""Parameters that accept any object in neon's dialect, with the likely intention behind a wrong type."""

_neon = False

when_changed: list[Callable[[], None]] = []
"""Functions to call after the dialect has changed: what was learned in one may mean something else in the other."""


def is_neon() -> bool:
    """True if the forms have neon's meaning."""
    return _neon


def use_neon(on: bool = True) -> None:
    """Select neon's dialect, or the default one, for the process."""
    global _neon
    changed, _neon = on != _neon, on
    admit_anything(_LOOSE if on else {})
    if changed:
        for forget in when_changed:
            forget()


@contextmanager
def neon_dialect() -> Iterator[None]:
    """Select neon's dialect within a ``with`` block."""
    before = _neon
    use_neon()
    try:
        yield
    finally:
        use_neon(before)
