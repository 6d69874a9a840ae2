"""Leaky sums along rows: the family with the public method, the request, and the definition in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import (
    as_numbers,
    check_apart,
    check_floats,
    check_size,
    host,
    require_tensors,
    written,
)
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.forms import owner


@dataclass(frozen=True, slots=True)
class LeakySum:
    """All arguments of a call but its tensors: rows and columns, and the decay of a sum from one column to the next."""

    dims: tuple[int, int]
    decay: float


@owner
class LeakyFamily(Family):
    """``leaky_sum``."""

    @repeatable()
    def leaky_sum(self, x: Any, out: Any, decay: float = 0.5, repeat: int = 1) -> Any:
        """``out[i, j] = x[i, j] + decay * out[i, j - 1]``.

        Parameters
        ----------
        x, out : tensors (rows, columns), of one float dtype
        decay : float
        repeat : int
            Above 1: time so many runs.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit each other; nothing was written.
        """
        name = "leaky_sum"
        require_tensors(self, name, x=x, out=out)
        check_floats(name, x=x, out=out)
        check_size(name, "out", out, x.shape, "x")
        check_apart(name, {"out": out}, {"x": x})
        request = LeakySum((x.shape[0], x.size // max(x.shape[0], 1)), *as_numbers(name, decay=decay))

        def run() -> KernelCall | None:
            return self._leaky_sum(request, x, out) if x.size else None

        nbytes, flops, operands = x.nbytes + out.nbytes, 2 * x.size, Operands((x, out))
        return self._run_primitive(name, run, (out,), (request.dims,), nbytes, flops, repeat=repeat, operands=operands)

    def _leaky_sum(self, request: LeakySum, x: Any, out: Any) -> KernelCall | None:
        """Hook: see :meth:`leaky_sum`. Returns the launch of a kernel, if that was all."""
        values = host(x, request.dims)
        with written(out, request.dims) as sums:
            total = np.zeros(request.dims[0], values.dtype)
            for column in range(request.dims[1]):
                total = values[:, column] + values.dtype.type(request.decay) * total
                sums[:, column] = total
        return None
