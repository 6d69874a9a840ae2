"""Convolutions of ``gpu.py``: the three passes of layers of published networks, ours and PyTorch's, which calls cuDNN.

Ours are (C, H, W, N), PyTorch's (N, C, H, W). A few elements of each result are compared with sums in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from _cases import Case, Contender
from _gpu_contenders import TOLERANCES, Field, Set, contender, stored
from _gpu_libraries import Library, Run

PASSES = ("fprop", "bprop", "update")
METHODS: dict[str, tuple[str, bool | int]] = {
    "auto": ("auto", True), "columns": ("columns", False), "implicit": ("implicit", False),
    "winograd 2x2": ("winograd", 2), "winograd 4x4": ("winograd", 4),
}  # fmt: skip
"""Ways of ours to convolve, ``be.conv_method`` and ``be.enable_winograd``; the first is what users get."""
CUBLAS = "cublas"
"""The product that a window of one element is, by cuBLAS alone: what a convolution of 1x1 is compared with."""
TOLERANCE_OF_4 = 5e-5
"""Largest error of Winograd's tiles of 4 x 4, whose transforms round more than sums do."""
CHECKED = 24
"""Elements of a result that are compared."""
Array = np.ndarray[Any, Any]
Made = tuple[Run, Callable[[], list[Any]]]
"""A call, and the results that the last one left."""


@dataclass(frozen=True)
class Layer:
    """A layer of N images of C maps of ``size`` squared, with K maps, a square window, padding and stride."""

    name: str
    N: int
    C: int
    K: int
    size: int
    window: int = 3
    pad: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def out(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.pad - self.window) // self.stride + 1

    @property
    def tiled(self) -> bool:
        """Whether Winograd's method has a form for it, in float32."""
        return self.window == 3 and self.stride == self.groups == 1

    @property
    def flops(self) -> int:
        """Of each pass."""
        return 2 * self.N * self.K * self.out**2 * self.C // self.groups * self.window**2

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of images, filters and outputs, in our order."""
        square = (self.window, self.window)
        return (
            (self.C, self.size, self.size, self.N),
            (self.C // self.groups, *square, self.K),
            (self.K, self.out, self.out, self.N),
        )


LAYERS = (
    Layer("ResNet 1x1", 64, 256, 64, 56, 1, 0),
    Layer("ResNet 3x3", 64, 128, 128, 28),
    Layer("ResNet 3x3/2", 64, 256, 256, 28, stride=2),
    Layer("ResNet first", 64, 3, 64, 224, 7, 3, 2),
    Layer("VGG 3x3", 64, 512, 512, 14),
    Layer("depthwise", 64, 256, 256, 28, groups=256),
)
"""For a full run; a quick one takes the second."""
EMULATED_LAYERS = (
    Layer("small 3x3/2", 4, 10, 12, 7, stride=2), Layer("small groups", 2, 18, 20, 5, groups=2),
    Layer("small 3x3", 2, 4, 5, 6), Layer("small 1x1", 4, 10, 12, 5, 1, 0),
)  # fmt: skip
"""For an emulated GPU."""


def layers(quick: bool, emulated: bool) -> tuple[Layer, ...]:
    """The layers of a run."""
    if emulated:
        return EMULATED_LAYERS
    return LAYERS[1:2] if quick else LAYERS


def sums(layer: Layer, which: str, I: Array, F: Array, E: Array, at: Any) -> Any:  # noqa: E741
    """Elements ``at`` of a result, in float64 and our order."""
    g, w, pad, step = layer.groups, layer.window, layer.pad, layer.stride
    channels, maps = layer.C // g, layer.K // g
    wide = np.pad(I, ((0, 0), (pad, pad), (pad, pad), (0, 0))).astype(np.float64)
    found = []
    for a, b, c, d in at:
        if which == "fprop":
            first = a // maps * channels
            patch = wide[first : first + channels, b * step : b * step + w, c * step : c * step + w, d]
            found.append((patch * F[..., a]).sum())
        elif which == "update":
            span = (layer.out - 1) * step + 1
            part = wide[d // maps * channels + a, b : b + span : step, c : c + span : step]
            found.append((part * E[d]).sum())
        else:
            total, group = 0.0, slice(a // channels * maps, (a // channels + 1) * maps)
            for r in range(w):
                for s in range(w):
                    (p, off_p), (q, off_q) = divmod(b + pad - r, step), divmod(c + pad - s, step)
                    if not off_p and not off_q and 0 <= p < layer.out and 0 <= q < layer.out:
                        total += float(F[a % channels, r, s, group].astype(np.float64) @ E[group, p, q, d])
            found.append(total)
    return np.array(found)


def conv_case(layer: Layer, which: str, precision: str, field: Field, ways: Mapping[str, Library]) -> Case:
    """A pass of a layer; ``ways``: ours by method of convolution."""
    dtype = stored(precision)
    rng = np.random.default_rng(layer.C)
    I, F, E = (rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in layer.shapes)  # noqa: E741
    result = {"fprop": E, "bprop": I, "update": F}[which].shape
    at = np.stack([rng.integers(size, size=CHECKED) for size in result], axis=1)
    spots = tuple(at.T)

    def made(library: Library, name: str, one: Callable[..., Made], turned: bool) -> Contender:
        run, found = one(library, which, layer, (I, F, E), precision)
        each = contender(library, name, [Set(run, found, partial(_spoil, library, found))], not turned)

        def sample() -> list[Any]:
            whole = each.result()[0]
            if turned:  # (N, C, H, W) and (K, C, R, S)
                whole = whole.transpose(1, 2, 3, 0)
            return [whole.reshape(result)[spots]]

        wide = TOLERANCE_OF_4 if "4x4" in name else None
        return Contender(name, each.run, sample, each.reset, not turned, each.elapsed, tolerance=wide)

    tiled = layer.tiled and precision == "float32"
    found = [
        made(ours, "neonlike" if method == "auto" else f"neonlike {method}", _ours, False)
        for method, ours in ways.items()
        if tiled or METHODS[method][0] != "winograd"
    ]
    if layer.window == layer.stride == layer.groups == 1:
        found.append(made(ways["auto"], CUBLAS, _product, False))
    refused = {name: why for name, why in field.absent.items() if name == "torch"}
    if torch := field.peers.get("torch"):
        found.append(made(torch, "torch", _torch, True))
    text = f"convolution {which} {precision}, {layer.name}"
    return Case(
        f"{layer.name} {which}", text, layer.N, found, lambda: [sums(layer, which, I, F, E, at)],
        I.nbytes + F.nbytes + E.nbytes, TOLERANCES[precision], refused, flops=layer.flops,
    )  # fmt: skip


def _ours(library: Any, which: str, layer: Layer, arrays: Any, precision: str) -> Made:
    be = library.be
    I, F, E = (library.put(array) for array in arrays)  # noqa: E741
    sizes = {"H": layer.size, "W": layer.size, "R": layer.window, "S": layer.window, "groups": layer.groups}
    sizes |= {"pad_h": layer.pad, "pad_w": layer.pad, "str_h": layer.stride, "str_w": layer.stride}
    made = be.conv_layer(arrays[0].dtype, layer.N, layer.C, layer.K, **sizes)
    if which == "fprop":
        return lambda: be.fprop_conv(made, I, F, E), lambda: [E]
    if which == "bprop":
        return lambda: be.bprop_conv(made, F, E, I), lambda: [I]
    return lambda: be.update_conv(made, I, E, F), lambda: [F]


def _product(library: Any, which: str, layer: Layer, arrays: Any, precision: str) -> Made:
    be = library.be
    tensors = [library.put(array) for array in arrays]
    shapes = (layer.C, -1), (layer.C, layer.K), (layer.K, -1)
    I, F, E = (tensor.reshape(shape) for tensor, shape in zip(tensors, shapes))  # noqa: E741
    if which == "fprop":
        return lambda: be.compound_dot(F.T, I, E), lambda: tensors[2:]
    if which == "bprop":
        return lambda: be.compound_dot(F, E, I), lambda: tensors[:1]
    return lambda: be.compound_dot(I, E.T, F), lambda: tensors[1:2]


def _spoil(library: Library, results: Callable[[], list[Any]]) -> None:
    """Nan in what is to be computed; PyTorch has nothing there before it ran, and makes its results anew."""
    for result in results():
        library.set(result, np.float32(np.nan))


def _torch(library: Any, which: str, layer: Layer, arrays: Any, precision: str) -> Made:
    torch, last = library.torch, list[Any]()
    I, F, E = (library.put(np.ascontiguousarray(array.transpose(3, 0, 1, 2))) for array in arrays)  # noqa: E741
    how = [layer.stride] * 2, [layer.pad] * 2, [1, 1]

    def run() -> None:
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        if which == "fprop":
            last[:] = [torch.nn.functional.conv2d(I, F, None, *how, layer.groups)]
        else:
            wanted = [which == "bprop", which == "update", False]
            both = torch.ops.aten.convolution_backward(E, I, F, None, *how, False, [0, 0], layer.groups, wanted)
            last[:] = [both[wanted.index(True)]]

    return run, lambda: last
