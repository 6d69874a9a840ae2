"""Examples of the methods that are made from rows of the op table: operands from a row's domain, and NumPy's results.

They are computed when the methods are made, so that a new row has an example without another line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.ops import WHOLE, OpSpec

BACKEND = ">>> from neonlike.backends import gen_backend\n>>> be = gen_backend('cpu')\n"
"""First lines of an example of a backend's method."""
VARIABLES = f">>> from neonlike import autograd\n{BACKEND}"
"""First lines of an example of a function of variables."""

Method = TypeVar("Method", bound=Callable[..., Any])

_PLACES = ((0.2, 0.5, 0.8), (0.8, 0.6, 0.8), (0.5, 0.5, 0.5))
"""Where the elements of each operand lie in the domain, from 0 to 1."""
_ROWS = [[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]
"""Operand of reductions."""


def section(first: str, text: str) -> str:
    """Format a section ``Examples`` of the lines ``first`` and ``text``."""
    return f"\n\nExamples\n--------\n{first}{text}\n"


def of_elements(spec: OpSpec, call: str, first: str = BACKEND) -> str:
    """Example of an elementwise row.

    Parameters
    ----------
    spec : OpSpec
    call : str
        The method with its owner, such as ``be.exp``.
    first : str
        Lines before it.
    """
    whole = spec.dtype is DTypeRule.WHOLE
    operands = [_operand(place, domain, whole or domain == WHOLE) for place, domain in zip(_PLACES, spec.domain)]
    arrays = [np.array(operand, np.int64 if whole else np.float64) for operand in operands]
    out = np.empty_like(arrays[0])
    with np.errstate(all="ignore"):
        spec.numpy(*arrays, out)
    dtype = "int64" if whole else "float64"
    names = "abc"[: len(operands)]
    made = "".join(
        f">>> {name} = be.array({operand}, dtype='{dtype}')\n" for name, operand in zip(names, map(_shown, arrays))
    )
    return section(first, f"{made}>>> {call}({', '.join(names)}).get().round(4).tolist()\n{out.round(4).tolist()}")


def of_rows(spec: OpSpec, call: str) -> str:
    """Example of a reduction of each row of a matrix by ``call``, such as ``be.sum``."""
    rows = np.array(_ROWS)
    out = np.empty((2, 1), np.int64 if spec.dtype is DTypeRule.INDEX else np.float64)
    spec.numpy(rows, (1,), out)
    return section(BACKEND, f">>> {call}(be.array({_ROWS}), axis=1).tolist()\n{out.tolist()}")


def added(method: Method, example: str) -> Method:
    """Append ``example`` to the docstring of ``method``, and return the method."""
    method.__doc__ = f"{method.__doc__}{example}"
    return method


def _operand(place: tuple[float, ...], domain: tuple[float, float], whole: bool) -> list[list[float]]:
    """A row of numbers in ``domain``, whole ones or multiples of 1/4."""
    low, high = domain
    scale = 1 if whole else 4
    return [[round(scale * (low + (high - low) * share)) / scale for share in place]]


def _shown(array: Any) -> str:
    return str(array.tolist())
