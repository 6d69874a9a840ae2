"""Stages that compute nothing, as steps of the extension: windows of arrays, copies, calls of compound primitives."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

from neonlike.kernels.c import fastpath
from neonlike.kernels.c.convert import as_floats, conversion_steps
from neonlike.kernels.codegen.layout import ArrayLayout, Axis, collapse
from neonlike.kernels.numpy_engine.engine import ClassesStage, NumpyCallStage, ViewStage
from neonlike.kernels.run.call_stage import CallStage
from neonlike.kernels.run.placing import Placing, after, fragment_of
from neonlike.kernels.run.program import Fragment, Source, Step, Word
from neonlike.kernels.run.stage import CopyBack, Run, buffer_key, destination
from neonlike.optree.calls import PART
from neonlike.optree.dtypes import DType, half_of
from neonlike.optree.shapes import contiguous_strides, is_gapless, is_reshape

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


class Lying(NamedTuple):
    """An array: its layout, where it begins, and the steps after which it is there."""

    array: Any
    place: Word
    steps: Fragment = _NOTHING


def without_gaps(run: Placing, array: Any, read: Word) -> Lying | None:
    """``array`` if there are no gaps between its elements, else a copy in working memory; None where none is made.

    Parameters
    ----------
    run : Placing
    array : array or layout
    read : Word
        Where it begins.
    """
    if is_gapless(array.shape, array.strides, array.itemsize):
        return Lying(array, read)
    copy = ArrayLayout(array.shape, array.dtype)
    place = run.room(copy.nbytes)
    steps = copy_steps(copy, place, array, read)
    return None if steps is None else Lying(copy, place, steps)


def in_dtype(run: Placing, array: Any, read: Word, dtype: DType) -> Lying | None:
    """``array`` in ``dtype``, converted in working memory; None where it is not: other than 16-bit floats and float32.

    Parameters
    ----------
    run, array, read
        As of :func:`without_gaps`.
    dtype : dtype
    """
    dense = without_gaps(run, array, read)
    if dense is None or dense.array.dtype == dtype:
        return dense
    strides = [step // array.itemsize * dtype.itemsize for step in dense.array.strides]
    found = ArrayLayout(array.shape, dtype, strides)
    place = run.room(found.nbytes)
    steps = joined_steps([dense.steps, conversion_steps(found, place, dense.array, dense.place)])
    return None if steps is None else Lying(found, place, steps)


def as_wanted(run: Placing, array: Any, read: Word, dtype: DType | None = None) -> Lying | None:
    """An operand of a kernel in the ``dtype`` that it asks for, or in its own; numbers of 16 bits without gaps.

    Parameters
    ----------
    run, array, read
        As of :func:`without_gaps`.
    dtype : dtype, optional
    """
    kind = dtype or array.dtype
    return Lying(array, read) if kind == array.dtype and not half_of(kind) else in_dtype(run, array, read, kind)


def stored_steps(
    run: Placing, to: Any, place: Word, source: Any, read: Word, whole: Word = (Source.PLAIN, 0), zeros: int = 0
) -> Fragment | None:
    """As :func:`copy_steps`, also from 16-bit floats to float32 and back.

    Parameters
    ----------
    run : Placing
    to, place, source, read, whole, zeros
        As of :func:`copy_steps`.
    """
    if to.dtype == source.dtype:
        return copy_steps(to, place, source, read, whole, zeros)
    dense = without_gaps(run, source, read)
    if dense is None or to.shape != source.shape:
        return None
    steps = None if zeros else conversion_steps(to, place, dense.array, dense.place)
    if steps is not None:
        return joined_steps([dense.steps, steps])
    found = in_dtype(run, dense.array, dense.place, to.dtype)
    if found is None:
        return None
    return joined_steps([dense.steps, found.steps, copy_steps(to, place, found.array, found.place, whole, zeros)])


class CMoveStage(NumpyCallStage):
    """A stage whose steps are copies."""

    def steps(self, run: Placing) -> Fragment | None:
        """The kernels of the stage on the arrays of ``run``, for the program of its plan; None if there are none."""
        out, others = self._only_target(run), self.others[:0]
        if out is None:
            out, others = self._allocate(run), self.others
        place = run.written(out)
        targets = [destination(run, store) for store in others]
        stored = [stored_steps(run, to, run.written(to), out, place) for to in targets]
        return joined_steps([self._moved(run, out), *stored])

    def _moved(self, run: Placing, out: Any) -> Fragment | None:
        """The steps that move the operands' elements into ``out``."""
        raise NotImplementedError


class CViewStage(CMoveStage, ViewStage):
    """A window of an array, or zeros around one."""

    def steps(self, run: Placing) -> Fragment | None:
        """As of the base class; nothing if the result is a window of the operand."""
        if not self._show(run):
            return super().steps(run)
        shown = run.temps[self.value.index]
        offset = run.attrs(self.value.node)["layout"][2]
        run.place(shown, self.inputs[0], offset * shown.itemsize if self.is_view else 0)
        return _NOTHING

    def _moved(self, run: Placing, out: Any) -> Fragment | None:
        (one,) = self.inputs
        shape, strides, offset = layout = run.attrs(self.value.node)["layout"]
        source, read, place = run.array(one, 0), run.read(one), run.written(out)
        if _is_plain(out) and math.prod(source.shape) == math.prod(out.shape) and is_reshape(layout):
            return stored_steps(run, ArrayLayout(source.shape, out.dtype), place, source, read)
        whole = source if self.is_view else out
        if not _is_plain(whole):
            return None
        size = whole.itemsize
        inner = ArrayLayout(tuple(shape), whole.dtype, [step * size for step in strides])
        if self.is_view:
            return stored_steps(run, out, place, inner, after(read, offset * size))
        cleared = math.prod(out.shape) * size
        return stored_steps(run, inner, after(place, offset * size), source, read, place, cleared)


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


class ConcatStage(CMoveStage):
    """Arrays one after the other along an axis."""

    def _moved(self, run: Placing, out: Any) -> Fragment | None:
        axis, start = run.attrs(self.value.node)["axis"], 0
        found = []
        for read in self.inputs:
            source = run.array(read, 0)
            place = after(run.written(out), start * out.strides[axis])
            part = ArrayLayout(source.shape, out.dtype, out.strides)
            found.append(stored_steps(run, part, place, source, run.read(read)))
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
        node, result, wide = run.graph.nodes[self.value.node], self._own(run), run.temps[self.value.index]
        found = [] if node.spec is PART else [self._kernel_steps(run, node)]
        stored = [destination(run, store) for store in self.stores] + [wide]
        return joined_steps(found + [self._copied(run, to, result) for to in stored])

    def _copied(self, run: Placing, to: Any, result: Any) -> Fragment | None:
        """The copy of the result to where it goes, unless the call has written it there."""
        return _NOTHING if to is result else stored_steps(run, to, run.written(to), result, run.written(result))

    def _direct(self, run: Run, request: Any) -> Any:
        """As of the base class; none with gaps between its elements of 16 bits, which are converted without."""
        target = super()._direct(run, request)
        return None if target is None or as_floats(target.array) is None else target

    def _kernel_steps(self, run: Placing, node: Any) -> Fragment | None:
        request, results = node.attrs["request"], run.results[self.value.index]
        operands = []
        for one, dtype in zip(self.inputs, request.dtypes, strict=True):
            lying = as_wanted(run, run.array(one, 0), run.read(one), dtype)
            if lying is None:
                return None
            operands.append(lying)
        launch = request.planned(node.backend, results, [lying.array for lying in operands])
        program = None if launch is None else launch.program()
        if program is None or not program.is_whole:
            return None
        places = {id(lying.array): lying.place for lying in operands}
        places |= {id(array): run.written(array) for array in results}
        found = [places[id(array)] for array in launch.addresses]
        kernel = fragment_of(program, found, run, program.keep)
        return joined_steps([*(lying.steps for lying in operands), kernel])
