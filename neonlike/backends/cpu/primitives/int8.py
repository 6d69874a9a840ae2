"""Compiled products in int8, for the hooks of ``Int8Family``, and of matrices of int8 for ``compound_dot``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neonlike.backends.cpu.primitives.compiled import CompiledFamily
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.primitives.int8 import definition
from neonlike.backends.primitives.int8.family import Int8Family, Int8Weights
from neonlike.backends.primitives.linalg import Product
from neonlike.backends.tensors.operands import Array, host, written
from neonlike.kernels.c import quads
from neonlike.kernels.c.quads import Sizes, matrix_sizes
from neonlike.kernels.c.routine import address
from neonlike.kernels.run.calls import KernelCall


class Int8Kernels(CompiledFamily, Int8Family):
    """Overrides of Int8Family's hooks."""

    multiplies_int8 = True

    def _compound_dot_int8(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> KernelCall | None:
        """The product of int8 ``A`` and ``B`` in ``C``, see :meth:`LinalgFamily.compound_dot`."""
        if request == Product() and bsum is None and self.compiler is not None and C.size and A.size:
            apart = not (C.alias_of(A) or C.alias_of(B))
            call = quads.matrix_call(A.array, B.array, C.array, self.compiler) if apart else None
            if call is not None:
                return call.run()
        self._finish_product(C, bsum, request, lambda out: self._multiply_int8(A, B, out))
        return None

    def _multiply_int8(self, A: Any, B: Any, out: Any) -> None:
        a, b = np.ascontiguousarray(A.asnumpyarray()), np.ascontiguousarray(B.asnumpyarray())
        if out.alias_of(A) or out.alias_of(B):
            a, b = a.copy(), b.copy()
        with written(out, dtype=out.dtype) as c:
            keeps = c.dtype in (np.int32, np.float32)
            into = c if keeps else np.empty(c.shape, np.int32)
            fits = c.size and a.size and (keeps or a.shape[1] <= quads.FIT_IN_INT32)
            call = quads.matrix_call(a, b, into, self.compiler) if fits and self.compiler else None
            if call is not None:
                call.run()
            if call is None:
                c[...] = definition.product(a, b).astype(c.dtype)
            elif not keeps:
                c[...] = into

    def _int8_panels(self, rows: Array, g: ConvGeometry | None) -> tuple[Array, ...]:
        """Panels of words of each four channels; a convolution's words of a tap follow those of the tap before.

        Where the processor's tiles multiply int8, panels for these follow; products of few columns read the others.
        """
        if g is not None:
            channels, taps = g.C // g.groups, math.prod(g.TRS)
            by_quad = np.zeros((g.K, quads.quads_of(channels) * 4, taps), np.int8)
            by_quad[:, :channels] = rows.reshape(g.K, channels, taps)
            rows = by_quad.reshape(g.K, -1, 4, taps).transpose(0, 1, 3, 2).reshape(g.K, -1)
        groups = 1 if g is None else g.groups
        found = quads.panels_of(rows, groups, self.compiler)
        if found is None or self.compiler is None:
            return ()
        tiled = None
        if quads.may_fill_tiles(len(rows) // groups, rows.shape[1]) and quads.by_tiles(self.compiler):
            tiled = quads.panels_of(rows, groups, self.compiler, quads.TILES)
        return (*found, *(tiled or ()))

    def _int8_product(
        self, weights: Int8Weights, g: ConvGeometry | None, x: Any, out: Any, bias: Any, slope: float | None
    ) -> KernelCall | None:
        if self.compiler is None or not weights.panels or not (x.size and out.size):
            return super()._int8_product(weights, g, x, out, bias, slope)
        source, added = _rows(x, g), None if bias is None else host(bias)
        direct = _in_rows(out, g)
        sizes = matrix_sizes(weights.rows, x.shape[0], x.shape[1]) if g is None else sizes_of(g)
        tiled = len(weights.panels) > 2 and quads.fills_tiles(sizes)
        panels, less = weights.panels[-2:] if tiled else weights.panels[:2]
        form = quads.TILES if tiled else quads.INSTRUCTION
        target = out.array if direct else np.empty(out.shape, np.float32)
        addresses = (address(source), None if added is None else address(added), address(target))
        given = panels.address, less.address, weights.scales.address
        steps = (_step(source, g, sizes.inside, sizes.images), _step(target, g, sizes.outside, sizes.images))
        inverse = definition.inverse_of(weights.step)
        call = quads.quantized_call(sizes, addresses, given, steps, inverse, slope, self.compiler, form)
        if call is None:
            return super()._int8_product(weights, g, x, out, bias, slope)
        call.run()
        if not direct:
            out.set(target)
        return call._replace(keep=(call.keep, weights))


def sizes_of(g: ConvGeometry) -> Sizes:
    """Sizes of a convolution."""
    channels, maps = g.C // g.groups, g.K // g.groups
    return Sizes(g.groups, channels, maps, g.N, g.DHW, g.TRS, g.MPQ, g.padding, g.strides, g.dilation)


def _in_rows(tensor: Any, g: ConvGeometry | None) -> bool:
    """Whether a kernel can work on the tensor's memory: a matrix with contiguous rows, or contiguous images."""
    array = tensor.array
    if g is not None:
        return bool(array.flags.c_contiguous)
    return bool(array.strides[1] == array.itemsize or array.shape[1] == 1)


def _rows(tensor: Any, g: ConvGeometry | None) -> Array:
    return tensor.array if _in_rows(tensor, g) else host(tensor)  # type: ignore[no-any-return]


def _step(array: Array, g: ConvGeometry | None, sizes: tuple[int, int, int], images: int) -> int:
    """Elements between rows of a matrix, or between channels of images."""
    return array.strides[0] // array.itemsize if g is None else math.prod(sizes) * images
