"""Products and convolutions in int8 against PyTorch's (oneDNN): float32 inputs, int8 weights, float32 results.

PyTorch is measured twice: with inputs that are uint8 already, which is less work than ours, and with float32 inputs,
which it quantizes first, as ours does. ``--list held-out`` measures the shapes that nothing was tuned with, ``--list
all`` both. ``--quick``: six shapes.
"""

from __future__ import annotations

import sys
from typing import Any

import conv_shapes
import gemm_shapes
import numpy as np
from _cases import geometric_mean
from _layers import Conv, Product
from _libraries import Array, Made, from_images, returns, writes
from _primitives import Lists, Rates
from conv import Convolution
from gemm import Multiplication

LARGEST, ZERO = 127, 128
"""The largest magnitude in int8, and the number that stands for 0 in PyTorch's inputs of uint8."""
GIVEN, QUANTIZED = "torch uint8 inputs", "torch float32 inputs"
QUICK = (
    "square 512x512x512", "layer 4096x4096x32", "odd 333x777x555", "one 1 64-64 56x56 3/1", "few 7 64-96 13x13 3/1",
    "many 32 192-192 14x14 3/1",
)  # fmt: skip


def on_grid(values: Array, axis: int | None = None) -> tuple[Array, Any]:
    """The nearest multiples of a step, and the step: the largest magnitude / 127, of each index of ``axis``."""
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    step = (np.abs(values).max(axis=others, keepdims=axis is not None) / LARGEST).astype(np.float32)
    return np.rint(values / step).astype(np.float32) * step, step


def whole(values: Array, step: Any, dtype: Any, zero: int = 0) -> Array:
    """Values on a grid as whole numbers, with ``zero`` added."""
    return (np.rint(values / step) + zero).astype(dtype)


class Int8Product(Multiplication):
    """Weights and inputs that int8 has, so that rounding them changes nothing."""

    needs = ("int8_weights", "int8_product")
    tolerance = 1e-4

    def __init__(self, layer: Product, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        (self.W, self.rows), (self.X, self.step) = on_grid(self.W, 0), on_grid(self.X)

    def ours(self, library: Any) -> Made:
        """The product with weights that are quantized before."""
        be = library.be
        weights, X, C = be.int8_weights(library.put(self.W), float(self.step)), library.put(self.X), be.zeros(self.dims)
        return writes(lambda: be.int8_product(weights, X, C), C)

    def peer(self, library: Any, who: str) -> Made:
        """Each image a row, the weights packed before."""
        torch, ops = library.torch, library.torch.ops.onednn
        packed = ops.qlinear_prepack(torch.from_numpy(whole(self.W, self.rows, np.int8)), list(self.X.T.shape))
        scales, zeros = library.put(self.rows[:, 0]), torch.zeros(len(self.W), dtype=torch.int32)
        step = float(self.step)

        def product(x: Any) -> Any:
            return ops.qlinear_pointwise(
                x, step, ZERO, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )  # fmt: skip

        return Made(*_of(library, who, self.X.T, step, product), lambda c: [c.T])


class Int8Convolution(Convolution):
    """Filters and images that int8 has, so that rounding them changes nothing."""

    def __init__(self, layer: Conv, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.needs = ("int8_weights", "int8_product")
        (self.F, self.maps), (self.I, self.step) = on_grid(self.F, -1), on_grid(self.I)

    def ours(self, library: Any) -> Made:
        """The convolution with filters that are quantized before."""
        be, s = library.be, self.layer
        geometry = be.conv_layer(
            np.float32, self.N, s.C, s.K, *s.size, *s.window, *s.pad, *s.stride, *s.dilation, s.groups
        )  # fmt: skip
        I, F, E = (library.put(x.reshape(-1, x.shape[-1])) for x in (self.I, self.F, self.E))  # noqa: E741
        weights = be.int8_weights(F, float(self.step), geometry)
        return writes(lambda: be.int8_product(weights, I, E), E, shapes=[self.E.shape])

    def peer(self, library: Any, who: str) -> Made:
        """Channels last, the filters packed before."""
        torch, ops, layer, step = library.torch, library.torch.ops.onednn, self.layer, float(self.step)
        stride, pad, dilation = (list(t[1:]) for t in (layer.stride, layer.pad, layer.dilation))
        filters = torch.from_numpy(whole(self.F, self.maps, np.int8)[:, 0].transpose(3, 0, 1, 2).copy())
        scales, zeros = library.put(self.maps.reshape(-1)), torch.zeros(layer.K, dtype=torch.int32)
        images = self.I[:, 0].transpose(3, 0, 1, 2)
        packed = ops.qconv_prepack(
            filters, scales, step, ZERO, stride, pad, dilation, layer.groups, list(images.shape)
        )  # fmt: skip

        def convolution(x: Any) -> Any:
            return ops.qconv2d_pointwise(
                x, step, ZERO, packed, scales, zeros, None, stride, pad, dilation, layer.groups, 1.0, 0, torch.float32,
                "none", [], "",
            )  # fmt: skip

        run, results = _of(library, who, images, step, convolution)
        return Made(run, results, lambda made: [maps[:, None] for maps in from_images(made)])


def _of(library: Any, who: str, inputs: Array, step: float, function: Any) -> tuple[Any, Any]:
    """PyTorch's call of ``function`` on inputs (N, ..) of the kind that ``who`` is given, and its results."""
    torch = library.torch
    form = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
    x = library.put(inputs).contiguous(memory_format=form)

    def quantized() -> Any:
        return torch.quantize_per_tensor(x, step, ZERO, torch.quint8).int_repr()

    if who == GIVEN:
        given = quantized()
        made = returns(lambda: function(given))
    else:
        made = returns(lambda: function(quantized()))
    return made.run, made.results


def problem(layer: Any, N: int, direction: str) -> Int8Product | Int8Convolution:
    """The problem of a layer of either kind."""
    kind: Any = Int8Product if isinstance(layer, Product) else Int8Convolution
    return kind(layer, N, direction)


def flat(layers: list[Conv]) -> list[Conv]:
    """Convolutions of images, not transposed, whose groups have channels to multiply."""
    return [s for s in layers if s.size[0] == s.window[0] == 1 and not s.transposed and s.C // s.groups > 1]


def remarks(rates: Rates) -> list[str]:
    """Geometric means by kind of shape, and against PyTorch with float32 inputs, too."""
    found = geometric_mean(
        (row.results[QUANTIZED].median or 0.0) / row.ours.median
        for row in rates.rows
        if row.ours and row.ours.median and QUANTIZED in row.results and row.results[QUANTIZED].median
    )
    lines = [f"against PyTorch on float32 inputs, geometric mean over {found[1]}: {found[0]:.2f}"] if found else []
    return [*lines, *rates.means_by(lambda row: row.layer.network, "{}")]


SUITE = Lists(
    "int8", __doc__, problem, [*gemm_shapes.SHAPES, *flat(conv_shapes.SHAPES)],
    [*gemm_shapes.HELD_OUT, *flat(conv_shapes.HELD_OUT)], {"fprop": 1.0}, QUICK, peers=(GIVEN, QUANTIZED),
    remarks=remarks,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(SUITE.main())
