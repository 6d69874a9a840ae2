"""Conversion of arrays between 16-bit floats and float32, compiled: NumPy converts one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.kernels.c.routine import INT, POINTER, VECMATH, Routine, address, threads_for
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.run.calls import Conversion
from neonlike.kernels.run.program import RELEASE_WORK, Fragment, Word
from neonlike.optree.dtypes import F32, DType, half_of
from neonlike.optree.npfuncs import Array
from neonlike.optree.shapes import is_gapless

CONVERT = Routine(
    "c/convert.c.j2", (POINTER, POINTER, INT, INT), "conversion of 16-bit numbers", ("halves.h", *VECMATH)
)
FEWEST, PARALLEL = 1 << 12, 1 << 13
"""Elements from which looking for a compiler pays, and from which several threads do."""


def as_contiguous(array: Array, dtype: DType) -> Array:
    """``array`` in C order and ``dtype``: itself if it is so, else a copy."""
    if dtype == F32 and array.size >= FEWEST and array.flags.c_contiguous and (half := half_of(array.dtype)):
        copy = np.empty(array.shape, F32)
        if _convert(f"widen_{half}", array, copy):
            return copy
    return np.ascontiguousarray(array, dtype)


def as_dtype(array: Array, dtype: DType) -> Array:
    """``array`` in ``dtype``, in its own order: itself if it has that dtype, else a copy."""
    if array.dtype == dtype:
        return array
    return as_contiguous(array.T, dtype).T if array.flags.f_contiguous else as_contiguous(array, dtype)


def store_floats(source: Array, out: Array) -> bool:
    """Store contiguous float32 in a contiguous 16-bit array; False, and nothing is done, if it is none or small."""
    half = half_of(out.dtype)
    if not half or source.dtype != F32 or out.size < FEWEST:
        return False
    plain = source.flags.c_contiguous and out.flags.c_contiguous and source.shape == out.shape
    return plain and _convert(f"narrow_{half}", source, out)


def convertible(dtype: DType, compiler: Compiler | None) -> bool:
    """Whether kernels of float32 may be given arrays of ``dtype``, 16-bit floats, by :func:`conversions`."""
    half = half_of(dtype)
    return half != "" and all(_kernel(way + half, compiler) is not None for way in ("widen_", "narrow_"))


def conversions(
    arrays: Sequence[Array | None], compiler: Compiler | None, written: dict[int, bool]
) -> tuple[Conversion, ...]:
    """The conversions with which a kernel of float32 works on those of ``arrays`` that are of 16-bit floats.

    Parameters
    ----------
    arrays : sequence of arrays or None
        Contiguous, as the kernel takes them.
    compiler : Compiler or None
    written : dict
        Which of them the kernel writes, and whether it reads their old values.
    """
    found = []
    for operand, array in enumerate(arrays):
        if array is not None and (half := half_of(array.dtype)):
            widen = _kernel(f"widen_{half}", compiler) if written.get(operand, True) else None
            narrow = _kernel(f"narrow_{half}", compiler) if operand in written else None
            found.append(Conversion(operand, array.size, threads_for(array.size, PARALLEL), widen, narrow))
    return tuple(found)


def as_floats(array: Any) -> Any:
    """The layout of an array of 16-bit floats in float32, in which :func:`conversions` put it; others as they are.

    None if there are gaps between the numbers, or they lie in reverse.
    """
    if not half_of(array.dtype):
        return array
    if not is_gapless(array.shape, array.strides, array.itemsize):
        return None
    return ArrayLayout(array.shape, F32, [2 * step for step in array.strides])


def conversion_steps(to: Any, place: Word, source: Any, read: Word) -> Fragment | None:
    """The conversion of an array of 16-bit floats into one of float32, or back, in the same order without gaps.

    None for other dtypes, and where elements lie otherwise.

    Parameters
    ----------
    to, source : arrays or layouts
    place, read : Word
        Where they begin.
    """
    compiler, narrows = find_compiler(), source.dtype == F32
    half, floats = (to, source) if narrows else (source, to)
    lying = as_floats(half) if floats.dtype == F32 and convertible(half.dtype, compiler) else None
    if lying is None or _axes(lying) != _axes(floats):
        return None
    (one,) = conversions((half,), compiler, {0: False} if narrows else {})
    step = one.step(one.narrow if narrows else one.widen, read, place)
    return Fragment((step,), one.numbers >= RELEASE_WORK, one.threads == 1, one)


def _axes(array: Any) -> list[tuple[int, int]]:
    """Sizes and strides of the axes, without those of size 1, whose strides mean nothing."""
    return [(size, step) for size, step in zip(array.shape, array.strides) if size != 1]


def _kernel(function: str, compiler: Compiler | None) -> Any:
    """The compiled ``function`` of ``halves.h``; None if there is no compiler."""
    types = ("uint16_t", "float") if function.startswith("widen") else ("float", "uint16_t")
    return CONVERT.variant(compiler, function=function, source=types[0], target=types[1])


def _convert(function: str, source: Array, out: Array) -> bool:
    kernel = _kernel(function, find_compiler())
    if kernel is None:
        return False
    kernel(address(source), address(out), source.size, threads_for(source.size, PARALLEL))
    return True
