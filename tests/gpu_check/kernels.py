"""Every kind of kernel once, on small odd shapes, compared with the CPU: what memory checkers are run on.

Run by ``python tests/gpu_check`` under compute-sanitizer; under the emulated GPU's checker it works as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends import gen_backend

Array = npt.NDArray[Any]
TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-12}
"""Largest difference, in parts of the largest value."""


def results(be: Any) -> Iterator[tuple[str, Any]]:
    """Name and result of each case on ``be``."""
    rng = np.random.default_rng(11)
    a, b = (be.array(rng.standard_normal((67, 129))) for _ in range(2))
    row, column = be.array(rng.standard_normal((1, 129))), be.array(rng.standard_normal((67, 1)))
    square, long = be.array(rng.standard_normal((129, 129))), be.array(rng.standard_normal((3, 20011)))

    def of(shape: tuple[int, ...], expression: Any, dtype: Any = np.float32) -> Any:
        out = be.empty(shape, dtype=dtype)
        out[:] = expression
        return out

    yield "elementwise", of((67, 129), be.sig(a * b + 0.5))
    yield "broadcasting", of((67, 129), a * row + column)
    yield "a transposed view", of((129, 67), a.T * 2 + b.T)
    yield "a slice", of((31, 43), a[2:64:2, ::3] * 2)
    yield "softmax of rows", of((67, 129), be.fprop_softmax(a, 1))
    yield "softmax of columns", of((67, 129), be.fprop_softmax(a, 0))
    for axis, shape in ((None, (1, 1)), (0, (1, 129)), (1, (67, 1))):
        yield f"sum, axis {axis}", of(shape, be.sum(a * b, axis=axis))
        yield f"variance, axis {axis}", of(shape, be.var(a, axis=axis))
    yield "argmax", of((67, 1), be.argmax(a, axis=1))
    yield "long rows", of((3, 1), be.max(long, axis=1))
    yield "long columns", of((1, 3), be.sum(long.T, axis=0))
    yield "a product", of((67, 129), be.dot(a, square))
    yield "a product of transposed factors", of((129, 129), be.dot(a.T, b) + square.T)
    yield "gathered rows", of((5, 129), be.take(a, be.array([[3], [0], [66], [3], [1]], dtype=np.int32), axis=0))
    yield "random numbers", of((67, 129), be.rand() + a)
    for dtype in (np.float16, np.float64, np.int32):
        wide, narrow = be.array(rng.integers(-9, 9, (33, 65)), dtype=dtype), be.empty((33, 65), dtype=dtype)
        narrow[:] = wide * 3 + 1
        yield f"{np.dtype(dtype).name}", narrow
        yield f"sums of {np.dtype(dtype).name}", of((33, 1), be.sum(wide, axis=1), dtype)
    square[:] = square.T + 1
    yield "a target that is read", square
    a[3:50, ::2] = b[3:50, ::2] - 1
    yield "a part of a target", a
    step = be.prepare([(a, a * 0.9 + b), (b, be.sqrt(b * b + a * a))])
    step()
    step()
    yield "several results", a
    yield "the other of them", b


def compare(name: str, got: Array, wanted: Array) -> str:
    """What is wrong; nothing if it is right."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{name}: {got.shape} of {got.dtype}, expected {wanted.shape} of {wanted.dtype}"
    allowed = TOLERANCES.get(got.dtype.name, 0.0) * max(float(np.abs(wanted).max()), 1.0)
    error = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
    return "" if error <= allowed else f"{name}: differs by {error:.2e}, allowed is {allowed:.2e}"


def main() -> int:
    """Compare all cases; the exit status is 1 if one is wrong."""
    found: list[dict[str, Array]] = []
    for kind in ("cpu", "gpu"):
        with gen_backend(kind, rng_seed=0) as be:
            found.append({name: tensor.get().copy() for name, tensor in results(be)})
            device = be.device.name if kind == "gpu" else ""
    wrong = [line for name in found[0] if (line := compare(name, found[1][name], found[0][name]))]
    print("\n".join(wrong))
    print(f"{device}: {len(found[0])} kinds of kernels, {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
