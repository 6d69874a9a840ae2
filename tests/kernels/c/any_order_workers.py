"""Workers that run units in any order; for processes of their own, as they stay with kernels."""

from __future__ import annotations

import ctypes
import random
from typing import Any

from neonlike.kernels.c import workers

INT = ctypes.c_int64
RANGE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, INT, INT, INT)
SHARE = ctypes.CFUNCTYPE(None, RANGE, ctypes.c_void_p, INT, INT, INT, INT)

units: list[int] = []
"""How many each call had."""
_rng = random.Random(1)


def _share(run: Any, context: Any, size: int, unit: int, threads: int, parts: int) -> None:
    order = list(range(-(-size // unit)))
    units.append(len(order))
    _rng.shuffle(order)
    for number in order:
        run(context, number * unit, min(size, (number + 1) * unit), _rng.randrange(threads))


_functions = (
    SHARE(_share),
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda library: None),
    ctypes.CFUNCTYPE(None)(lambda: None),
)
_made = (ctypes.c_void_p * 3)(*(ctypes.cast(function, ctypes.c_void_p) for function in _functions))


def install() -> list[int]:
    """Give these workers to all kernels that are loaded from now on; returns ``units``."""
    workers._address = lambda compiler: ctypes.addressof(_made)
    return units
