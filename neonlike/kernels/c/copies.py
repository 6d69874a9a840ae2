"""Stages that compute nothing, as steps of the extension: windows of arrays, copies, calls of compound primitives."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from neonlike.kernels.c import fastpath
from neonlike.kernels.codegen.layout import Axis, collapse
from neonlike.kernels.numpy_engine.engine import ClassesStage, NumpyCallStage, ViewStage
from neonlike.kernels.planning.plan import Store
from neonlike.kernels.run.call_stage import CallStage
from neonlike.kernels.run.placing import Placing, after, fragment_of
from neonlike.kernels.run.program import Fragment, Source, Step, Word
from neonlike.kernels.run.stage import CopyBack, buffer_key, destination
from neonlike.optree.calls import PART
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.shapes import Shape, contiguous_strides, is_reshape

_ITEMSIZES = (1, 2, 4, 8)
_NOTHING = Fragment((), False, True, None)
RELEASED_BYTES = 1 << 16
"""Bytes copied from which other Python threads may run meanwhile."""


def copy_steps(
    to: Any, place: Word, source: Any, read: Word, whole: Word = (Source.PLAIN, 0), zeros: int = 0
) -> Fragment | None:
    """The copy of an array that lies as ``source`` into one that lies as ``to``; None where elements are converted.

    Parameters
    ----------
    to, source : arrays or layouts of one shape
    place, read : Word
        Where they begin.
    whole, zeros : Word and int
        Where so many bytes are cleared before.
    """
    extension = fastpath.loaded()
    if extension is None or to.dtype != source.dtype or to.shape != source.shape or to.itemsize not in _ITEMSIZES:
        return None
    size, count = to.itemsize, math.prod(to.shape)
    if not count or any(step % size for step in (*to.strides, *source.strides)):
        return None
    axes = collapse(to.shape, (), [to, source]) or [Axis(1, False, (1, 1))]
    numbers = [size, zeros, len(axes)]
    for axis in axes:
        numbers += [axis.size, *(step * size for step in axis.steps)]
    meta = (ctypes.c_int64 * len(numbers))(*numbers)
    words: tuple[Word, ...] = (whole, place, read, (Source.PLAIN, ctypes.addressof(meta)))
    return Fragment((Step(extension.copies, words),), count * size >= RELEASED_BYTES, True, meta)


def joined_steps(found: list[Fragment | None]) -> Fragment | None:
    """Steps one after the other; None if some are."""
    steps = [one for one in found if one is not None]
    if len(steps) < len(found):
        return None
    return Fragment(
        tuple(step for one in steps for step in one.steps), any(one.release for one in steps),
        all(one.forks for one in steps), tuple(one.keep for one in steps),
    )  # fmt: skip


class CViewStage(ViewStage):
    """A window of an array, or zeros around one."""

    def steps(self, run: Placing) -> Fragment | None:
        """The kernels of the stage on the arrays of ``run``, for the program of its plan; None if there are none."""
        (read,) = self.inputs
        shape, strides, offset = layout = run.attrs(self.value.node)["layout"]
        if self._show(run):
            shown = run.temps[self.value.index]
            run.place(shown, read, offset * shown.itemsize if self.is_view else 0)
            return _NOTHING
        if self.others:
            return None
        self._allocate(run)
        out, source = run.temps[self.value.index], run.array(read, 0)
        place, size = run.written(out), out.itemsize
        if _is_plain(out) and math.prod(source.shape) == math.prod(out.shape) and is_reshape(layout):
            return copy_steps(_Lying(source.shape, out), place, source, run.read(read))
        inner = _Lying(shape, out, [step * size for step in strides])
        if self.is_view:
            if not _is_plain(source):
                return None
            inner = _Lying(shape, source, inner.strides)
            return copy_steps(out, place, inner, after(run.read(read), offset * size))
        if not _is_plain(out):
            return None
        cleared = math.prod(out.shape) * size
        return copy_steps(inner, after(place, offset * size), source, run.read(read), place, cleared)


class _Lying:
    """Elements of ``of`` that lie in another shape or with other strides."""

    def __init__(self, shape: Shape, of: Any, strides: Any = None) -> None:
        self.shape, self.dtype, self.ndim, self.itemsize = tuple(shape), of.dtype, len(shape), of.itemsize
        self.strides = contiguous_strides(self.shape, of.itemsize) if strides is None else tuple(strides)


def _is_plain(array: Any) -> bool:
    return tuple(array.strides) == contiguous_strides(array.shape, array.itemsize)


class CClassesStage(ClassesStage):
    """Indices that must be below a size."""

    def steps(self, run: Placing) -> Fragment | None:
        """The kernels of the stage on the arrays of ``run``, for the program of its plan; None if there are none."""
        extension = fastpath.loaded()
        if extension is None or self.others:
            return None
        self._allocate(run)
        (read,) = self.inputs
        source = run.array(read, 0)
        size, step = source.itemsize, max((s for s, n in zip(source.strides, source.shape) if n != 1), default=0)
        kind = 2 * _ITEMSIZES.index(size) + (source.dtype.kind == "u")
        classes = (ctypes.c_int64 * 4)(kind, math.prod(source.shape), step, self.value.limit(run.graph))
        to = run.written(run.temps[self.value.index])
        words: tuple[Word, ...] = (to, run.read(read), (Source.PLAIN, ctypes.addressof(classes)))
        return Fragment((Step(extension.classes, words),), False, True, classes)


class ConcatStage(NumpyCallStage):
    """Arrays one after the other along an axis."""

    def steps(self, run: Placing) -> Fragment | None:
        """The kernels of the stage on the arrays of ``run``, for the program of its plan; None if there are none."""
        if self.others:
            return None
        self._allocate(run)
        out, axis, start = run.temps[self.value.index], run.attrs(self.value.node)["axis"], 0
        found = []
        for read in self.inputs:
            source = run.array(read, 0)
            place = after(run.written(out), start * out.strides[axis])
            found.append(copy_steps(_Lying(source.shape, out, out.strides), place, source, run.read(read)))
            start += source.shape[axis]
        return joined_steps(found)


class CCopyBack(CopyBack):
    """The end of a run for a target that was still read."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.target = target

    def steps(self, run: Placing) -> Fragment | None:
        """The copy on the arrays of ``run``, for the program of its plan; None if elements are converted."""
        to, source = run.graph.targets[self.target].array, run.temps[buffer_key(self.target)]
        return copy_steps(to, run.written(to), source, run.written(source))


class CCallStage(CallStage):
    """A compound primitive: one kernel, where the backend says which."""

    def steps(self, run: Placing) -> Fragment | None:
        """The kernels of the stage on the arrays of ``run``, for the program of its plan; None if there are none."""
        self.sources(run)
        node, result = run.graph.nodes[self.value.node], run.temps[self.value.index]
        if result.dtype != compute_dtype(result.dtype):
            return None
        found = [] if node.spec is PART else [self._kernel_steps(run, node)]
        return joined_steps(found + [self._copied(run, store, result) for store in self.stores])

    def _copied(self, run: Placing, store: Store, result: Any) -> Fragment | None:
        """The copy of the result to where ``store`` goes, unless the call has written it there."""
        to = destination(run, store)
        return _NOTHING if to is result else copy_steps(to, run.written(to), result, run.written(result))

    def _kernel_steps(self, run: Placing, node: Any) -> Fragment | None:
        request, results = node.attrs["request"], run.results[self.value.index]
        operands = [run.array(one, 0) for one in self.inputs]
        wanted = [(array.dtype, dtype) for array, dtype in zip(operands, request.dtypes, strict=True)]
        if any(dtype is not None and found != dtype for found, dtype in wanted):
            return None
        launch = request.planned(node.backend, results, operands)
        program = None if launch is None else launch.program()
        if program is None or not program.is_whole:
            return None
        places = {id(array): run.read(one) for array, one in zip(operands, self.inputs)}
        places |= {id(array): run.written(array) for array in results}
        found = [places[id(array)] for array in launch.addresses]
        return fragment_of(program, found, run, program.keep)
