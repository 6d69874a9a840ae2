"""Pooling and local response normalisation of ``gpu.py``: ours and PyTorch's, which move the same bytes.

Ours are (C, H, W, N), PyTorch's (N, C, H, W). Two images of two channels of a result are compared with the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from _cases import Case, Contender
from _gpu_contenders import TOLERANCES, Field, Set, contender
from _gpu_conv import Made, _spoil
from _gpu_libraries import Library

from neonlike.backends.families.pool_definition import pool, unpool
from neonlike.backends.geometry.pool import PoolGeometry

DTYPES = ("float32", "float16")
SAMPLE, CORNER = 2, (slice(2), slice(None), slice(None), slice(2))
"""Channels and images that are compared."""
ASCALE, POWER = 1e-2, 0.75
"""Of LRN."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Images:
    """Images (C, size, size, N), and what is done to them: "max", "avg", or "lrn" over ``window`` channels."""

    name: str
    op: str
    N: int
    C: int
    size: int
    window: int
    stride: int = 1
    pad: int = 0

    @property
    def out(self) -> int:
        """Height and width of the result."""
        return self.size if self.op == "lrn" else (self.size + 2 * self.pad - self.window) // self.stride + 1

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that PyTorch has kernels for."""
        return ("fprop",) if self.op == "lrn" else ("fprop", "bprop")


IMAGES = (
    Images("max 3x3/2", "max", 64, 64, 112, 3, 2, 1),
    Images("max 2x2", "max", 64, 256, 56, 2, 2),
    Images("max 3x3", "max", 64, 256, 28, 3, 1, 1),
    Images("mean of maps", "avg", 64, 2048, 7, 7, 7),
    Images("LRN over 5", "lrn", 64, 96, 55, 5),
)
"""For a full run; a quick one takes the first."""
EMULATED_IMAGES = (Images("small max", "max", 16, 8, 9, 3, 2, 1), Images("small LRN", "lrn", 4, 6, 3, 5))
"""For an emulated GPU."""


def images(quick: bool, emulated: bool) -> tuple[Images, ...]:
    """What a run measures."""
    if emulated:
        return EMULATED_IMAGES
    return IMAGES[:1] if quick else IMAGES


def defined(what: Images, which: str, x: Array, error: Array) -> Array:
    """The result of a pass over (C, H, W, N), in float64."""
    if what.op == "lrn":
        squares = np.pad(np.square(x), ((what.window // 2,) * 2, (0, 0), (0, 0), (0, 0)))
        total = sum(squares[j : j + len(x)] for j in range(what.window))
        below: Array = (1 + ASCALE / what.window * total) ** -POWER
        return x * below
    sides = (1, 1, what.window, what.window), (0, 0, what.pad, what.pad), (1, 1, what.stride, what.stride)
    layer = PoolGeometry(what.op, x.dtype, x.shape[-1], (len(x), 1, *x.shape[1:3]), *sides)  # type: ignore[arg-type]
    numbers = np.zeros(layer.dimO, np.int64) if what.op == "max" else None
    pooled = pool(layer, x.reshape(layer.dimI), numbers)
    found = pooled if which == "fprop" else unpool(layer, error.reshape(layer.dimO), numbers, None)
    return found.reshape((error if which == "fprop" else x).shape)


def image_case(what: Images, which: str, precision: str, field: Field) -> Case:
    """A pass over images."""
    rng, inner = np.random.default_rng(what.C), (what.out, what.out, what.N)
    x = rng.standard_normal((what.C, what.size, what.size, what.N), dtype=np.float32).astype(precision)
    error = rng.standard_normal((what.C, *inner), dtype=np.float32).astype(precision)
    first = what.window // 2 + SAMPLE if what.op == "lrn" else SAMPLE

    def made(library: Library, name: str, one: Callable[..., Made], turned: bool) -> Contender:
        run, found = one(library, which, what, x, error)
        each = contender(library, name, [Set(run, found, partial(_spoil, library, found))], not turned)

        def corner() -> list[Any]:
            whole = each.result()[0]
            return [(whole.transpose(1, 2, 3, 0) if turned else whole)[CORNER]]

        return Contender(name, each.run, corner, each.reset, not turned, each.elapsed)

    def reference() -> list[Any]:
        part = x[:first, :, :, :SAMPLE].astype(np.float64)
        return [defined(what, which, part, error[:first, :, :, :SAMPLE].astype(np.float64))[:SAMPLE]]

    found = [made(field.ours, "neonlike", _ours, False)]
    refused = {name: why for name, why in field.absent.items() if name == "torch"}
    if torch := field.peers.get("torch"):
        found.append(made(torch, "torch", _torch, True))
    nbytes = x.nbytes + error.nbytes + (error.nbytes if what.op == "lrn" else 0)
    if what.op == "max":
        nbytes += error.size  # positions, of one byte each
    text = f"images, {what.name} {which} {precision}"
    return Case(f"{what.name} {which}", text, x.size, found, reference, nbytes, TOLERANCES[precision], refused)


def _ours(library: Any, which: str, what: Images, x: Array, error: Array) -> Made:
    be, (image, y) = library.be, (library.put(x), library.put(error))
    if what.op == "lrn":
        norm, below = be.lrn_layer(x.dtype, what.N, what.C, 1, what.size, what.size, what.window), library.put(x)
        return lambda: be.fprop_lrn(norm, image, y, below, ascale=ASCALE, bpower=POWER), lambda: [y]
    sides = {"R": what.window, "S": what.window, "pad_h": what.pad, "pad_w": what.pad}
    strides = {"str_h": what.stride, "str_w": what.stride}
    layer = be.pool_layer(x.dtype, what.op, what.N, what.C, 1, what.size, what.size, **sides, **strides)
    where = be.zeros(error.shape, dtype=np.uint8)
    if which == "fprop":
        return lambda: be.fprop_pool(layer, image, y, where), lambda: [y]
    be.fprop_pool(layer, image, be.empty_like(y), where)
    return lambda: be.bprop_pool(layer, y, image, where), lambda: [image]


def _torch(library: Any, which: str, what: Images, x: Array, error: Array) -> Made:
    torch, last = library.torch, list[Any]()
    functions, aten = torch.nn.functional, torch.ops.aten
    image, y = (library.put(np.ascontiguousarray(array.transpose(3, 0, 1, 2))) for array in (x, error))
    how = [what.window] * 2, [what.stride] * 2, [what.pad] * 2
    runs: dict[str, Callable[[], Any]] = {
        "lrn fprop": lambda: functions.local_response_norm(image, what.window, ASCALE, POWER, 1.0),
        "max fprop": lambda: aten.max_pool2d_with_indices(image, *how)[0],
        "avg fprop": lambda: aten.avg_pool2d(image, *how, False, False),
        "avg bprop": lambda: aten.avg_pool2d_backward(y, image, *how, False, False, None),
    }
    if (what.op, which) == ("max", "bprop"):
        _, where = aten.max_pool2d_with_indices(image, *how)
        runs["max bprop"] = lambda: aten.max_pool2d_with_indices_backward(y, image, *how, [1, 1], False, where)
    one = runs[f"{what.op} {which}"]

    def run() -> None:
        last[:] = [one()]

    return run, lambda: last
