"""Batch windows: ``t.offset(n)`` moves a view along the batch of a larger tensor, without copying."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from neonlike.errors import IndexRangeError, ShapeError
from neonlike.optree.arrange import one_axis, whole_number


class BatchWindow:
    """Base of tensors with a batch axis, and with views of other samples of the same memory.

    Attributes
    ----------
    desc : TensorDesc or None
        Descriptor from ``be.tensor(desc)``; it determines the batch axis.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> t = be.ones((3, 8))
    >>> t.batch_axis, t[:, :2].offset(6).shape
    (1, (3, 2))
    """

    desc: Any = None

    @property
    def batch_axis(self) -> int:
        """The axis of the samples: N of the tensor's descriptor, else the last one, as in neon.

        A slice has the axis of its base.

        Raises
        ------
        ShapeError
            If the descriptor has no such axis.
        """
        desc: Any = next((one.desc for one in itertools.chain([self], _larger(self)) if one.desc is not None), None)
        if desc is None:
            return len(self.shape) - 1  # type: ignore[attr-defined]
        if desc.batch_axis is None:
            raise ShapeError(f"batch_axis: the layout {desc.layout!r} has no axis N")
        return int(desc.batch_axis)

    def offset(self, n: int, axis: int | None = None) -> Any:
        """Move this view on its base tensor by ``n`` samples; nothing is copied.

        Parameters
        ----------
        n : int
            Number of samples of the base tensor, not of the window; negative: towards its start.
        axis : int, optional
            Axis to move along. Default: ``batch_axis``.

        Returns
        -------
        Tensor
            A view of the same shape, which can be moved in turn. This tensor is unchanged.

        Raises
        ------
        IndexRangeError
            If the window would leave the base tensor.
        ShapeError
            If there is no such axis.
        DTypeError
            If ``n`` is no integer.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> samples = be.array([[0, 1, 2, 3, 4, 5]])
        >>> window = samples[:, :2]
        >>> window.offset(2).tolist(), window.offset(2).offset(2).tolist()
        ([[2.0, 3.0]], [[4.0, 5.0]])
        """
        return moved(self, n, axis)


def moved(tensor: Any, n: Any, axis: Any) -> Any:
    """See :meth:`BatchWindow.offset`.

    Parameters
    ----------
    tensor : Tensor
    n : int
    axis : int or None
    """
    by = whole_number("offset", "n", n)
    place = one_axis("offset", tensor.batch_axis if axis is None else axis, tensor.shape)
    if not by:
        return tensor
    larger, taken = None, range(tensor.shape[place])
    for larger in _larger(tensor):
        slices = _slices(tensor, larger)
        if slices is None:
            continue
        taken = range(larger.shape[place])[slices[place]]
        if min(taken[0], taken[-1]) + by >= 0 and max(taken[0], taken[-1]) + by < larger.shape[place]:
            slices[place] = _slice(taken[0] + by, taken[-1] + by, taken.step)
            view = larger[tuple(slices)]
            if tensor.desc is not None:
                view.desc = tensor.desc
            return view
    size = tensor.shape[place] if larger is None else larger.shape[place]
    whole = "" if larger is not None else "; a window is cut out of a tensor with as many axes: t[..., :32]"
    raise IndexRangeError(
        f"offset: positions {min(taken, default=0)} to {max(taken, default=0)} of {size} cannot move by {by}{whole}"
    )


def _larger(tensor: Any) -> Iterator[Any]:
    """The bases of ``tensor``, from the nearest to the outermost."""
    part, whole = tensor, tensor.base
    while whole is not None and whole.ndim == part.ndim and _slices(part, whole) is not None:
        yield whole
        part, whole = whole, whole.base


def _slices(tensor: Any, larger: Any) -> list[slice] | None:
    """The slices of ``larger`` equal to ``tensor``; None if it is not a slice."""
    steps, size = larger.strides, tensor.dtype.itemsize
    lowest = sum((count - 1) * step for count, step in zip(larger.shape, steps) if step < 0)
    rest, odd = divmod(tensor.ptr - larger.ptr - lowest * size, size)
    if odd or tensor.dtype != larger.dtype or 0 in tensor.shape:
        return None
    starts = [0] * larger.ndim
    for axis in sorted(range(larger.ndim), key=lambda axis: -abs(steps[axis])):
        if larger.shape[axis] > 1 and steps[axis]:
            start, rest = divmod(rest, abs(steps[axis]))
            starts[axis] = start if steps[axis] > 0 else larger.shape[axis] - 1 - start
    found = []
    for axis, (start, size) in enumerate(zip(starts, tensor.shape)):
        step = tensor.strides[axis] // steps[axis] if size > 1 and steps[axis] else 1
        if not step:
            return None
        found.append(_slice(start, start + (size - 1) * step, step))
    cut = larger[tuple(found)]
    return found if cut.layout == tensor.layout and cut.ptr == tensor.ptr else None


def _slice(first: int, last: int, step: int) -> slice:
    """The slice from position ``first`` to ``last``, inclusive."""
    stop = last + (1 if step > 0 else -1)
    return slice(first, stop if stop >= 0 else None, step)
