"""Precisions of products on a CPU: the settings of ours, the two ways of PyTorch, and the contenders of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from _cases import OURS
from _libraries import AUTOCAST, STORED, Array

from neonlike.optree.dtypes import bfloat16

PRECISIONS = FLOAT32, BFLOAT16 = "float32", "bfloat16"
IN_FLOAT32 = f"{OURS} float32"
"""Our contender in a run in bfloat16 whose products stay in float32."""

OURS_STORED = f"{OURS} {BFLOAT16}"
"""Our contender whose tensors are of bfloat16; ``OURS`` rounds float32 tensors as it multiplies."""

WAYS = {OURS: AUTOCAST, OURS_STORED: STORED}
"""Our ways to products in bfloat16, and PyTorch's way to each."""

LEAST = 1.0
"""Time of the faster of PyTorch's ways divided by ours, at least, on the geometric mean of a direction in bfloat16."""

TOLERANCE = 5e-2
"""Largest error in bfloat16, which has 8 bits, of whoever rounds results or what is computed on the way to them."""


def contenders(
    everyone: Sequence[str], precision: str, ways: Sequence[str] = (AUTOCAST, STORED), stored: bool = False
) -> list[str]:
    """The contenders in a precision of those in float32: ours with and without it, PyTorch's in each of the ways.

    ``stored``: ours with tensors of bfloat16, too.
    """
    if precision == FLOAT32:
        return list(everyone)
    peers = [name for name in everyone if name.startswith("torch")]
    own = [OURS, OURS_STORED] if stored else [OURS]
    return [*own, IN_FLOAT32, *(f"{peer} {way}" for peer in peers for way in ways)]


def way_of(who: str) -> tuple[str, str]:
    """Name of a contender without PyTorch's way to bfloat16, and that way; the latter is empty in float32."""
    for way in (AUTOCAST, STORED):
        if who.startswith("torch") and who.endswith(f" {way}"):
            return who.removesuffix(f" {way}"), way
    return who, ""


def settings(who: str, precision: str) -> dict[str, Any]:
    """Settings of the backend of a contender of ours; none in float32, which older versions know nothing else than."""
    if precision == FLOAT32:
        return {}
    if who == OURS_STORED:
        return {"product_precision": FLOAT32, "datatype": bfloat16()}
    return {"product_precision": precision if who == OURS else FLOAT32}


def add_option(parser: argparse.ArgumentParser, precisions: Sequence[str]) -> None:
    """Add the option that chooses a precision; one that is not to be seen where there is no choice."""
    text = f"of products, default {FLOAT32}; in {BFLOAT16} PyTorch has autocast, and tensors of that type"
    shown = text if len(precisions) > 1 else argparse.SUPPRESS
    parser.add_argument("--precision", choices=precisions, default=FLOAT32, help=shown)


def subject(name: str, precision: str) -> str:
    """Section of RESULTS.md of a script's run."""
    return name if precision == FLOAT32 else f"{name} {precision}"


def facts(precision: str, stored: bool = False) -> dict[str, str]:
    """The line about the precision in the description of a run; ``stored``: as of :func:`contenders`."""
    if precision == FLOAT32:
        return {}
    theirs = f"PyTorch's faster of autocast and tensors in {precision}"
    ours = f"ours the faster of float32 tensors and tensors in {precision}, " if stored else ""
    return {"products": f"{precision}; {ours}{theirs}"}


def rounded(array: Array) -> Array:
    """The float32 values nearest to these that bfloat16 has too, ties to even."""
    bits = array.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) & 0xFFFF0000).astype(np.uint32).view(np.float32)
