"""Tools for kernels with planted bugs: the table of cases, their kernels, and buffers to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .kernels import load

CASES: dict[str, Callable[[bool], bool]] = {}
"""Runs one, with its bug or without; returns whether the results are right."""


def case(function: Callable[[bool], bool]) -> Callable[[bool], bool]:
    CASES[function.__name__] = function
    return function


def kernel(source: str, bug: bool) -> Any:
    """The kernel ``k`` of a source that asks ``#if BUG``."""
    return load(f"#define BUG {int(bug)}\n#line 1\n{source}")


def filled(count: int, value: float = 0.0) -> Any:
    from pycuda.driver import to_device

    return to_device(np.full(count, value, np.float32))


def equal(buffer: Any, expected: Any) -> bool:
    from pycuda.driver import from_device

    expected = np.asarray(expected, np.float32)
    return bool(np.allclose(from_device(buffer, expected.shape, np.float32), expected, rtol=1e-5, atol=1e-5))
