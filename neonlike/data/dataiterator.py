"""Batches from arrays in memory."""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Collection, Iterator, Sequence
from operator import is_not
from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.data.protocol import (
    ArrayShapeError,
    CyclicIterator,
    NervanaDataIterator,
    check_labels,
    warn_of_rounding,
)
from neonlike.errors import ArgumentError, BackendUnavailable, DTypeError, MissingArgument, OtherBackend
from neonlike.nervanaobject import Description
from neonlike.optree.functions import onehot

__all__ = ["ArrayIterator", "ArrayShapeError", "NervanaDataIterator"]

MOST_VIEWS = 1024
"""Number of batches with cached views."""


SAMPLED = 8
"""Rows sampled by :func:`checksum` at the start, in the middle and at the end of arrays."""


def checksum(arrays: Sequence[np.ndarray]) -> int:
    """Compute a checksum of arrays from their shapes and some of their rows; never 0."""
    found = 1
    for array in arrays:
        middle = len(array) // 2
        for rows in (array[:SAMPLED], array[middle : middle + SAMPLED], array[-SAMPLED:]):
            found = zlib.crc32(np.ascontiguousarray(rows).tobytes(), zlib.crc32(str(array.shape).encode(), found))
    return found or 1


class ArrayIterator(CyclicIterator):
    """Batches from arrays kept entirely on the backend; they move when another backend becomes current.

    The last batch of an epoch is completed with the first samples, and the next epoch starts after them. Each of
    several ranks keeps all data, and copies its columns of a batch.

    Parameters
    ----------
    X : ndarray or list of ndarray
        Inputs ``(ndata, features)``; a list for networks with several inputs.
    y : ndarray, optional
        Labels 0 … nclass−1, ``(ndata,)`` or ``(ndata, 1)``; or one-hot rows, ``(ndata, nclass)``; or with
        ``make_onehot=False`` any targets ``(ndata, k)``. By default the inputs are the targets.
    nclass : int, optional
        Number of classes; required for labels.
    lshape : tuple or list of tuples, optional
        Shape of a sample, e.g. ``(C, H, W)``, for all inputs or for each; a flat vector by default.
    make_onehot : bool
        Convert labels to one-hot columns ``(nclass, N)``. The attribute is False if no conversion is needed.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArrayShapeError
        If the arrays do not match each other, ``lshape`` or the batch size.
    ArgumentError
        If labels are not integers from 0 to nclass−1.
    MissingArgument
        If labels are given without ``nclass``.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ArrayIterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = ArrayIterator(np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1]), nclass=2)
    >>> for x, t in data:  # features and classes in rows, samples in columns
    ...     print(x.tolist(), t.tolist())
    [[0.0, 2.0], [1.0, 3.0]] [[1.0, 0.0], [0.0, 1.0]]
    [[4.0, 6.0], [5.0, 7.0]] [[1.0, 0.0], [0.0, 1.0]]
    """

    shares = True

    def __init__(
        self,
        X: Any,
        y: Any = None,
        nclass: int | None = None,
        lshape: Any = None,
        make_onehot: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        arrays = [_matrix(array, "X") for array in (X if isinstance(X, list) else [X])]
        if not arrays:
            raise ArgumentError("ArrayIterator: X is an empty list; give at least one array")
        self.ndata = len(arrays[0])
        self.lshape = lshape = lshape if isinstance(X, list) or not isinstance(lshape, list) else tuple(lshape)
        self.make_onehot = make_onehot and y is not None and not _is_onehot(y, nclass)
        self.nclass = nclass
        shapes = [array.shape[1] for array in arrays] if lshape is None else _shapes_of(lshape, arrays)
        self.shape = shapes if isinstance(X, list) else shapes[0]
        self._check_rows(arrays)
        targets = self._labels(y) if self.make_onehot else None if y is None else _matrix(np.asarray(y), "y")
        if targets is not None and len(targets) != self.ndata:
            raise ArrayShapeError(f"ArrayIterator: X has {self.ndata} samples but y has {len(targets)}")
        self.Xdev = [self.be.array(array) for array in arrays]
        self.ydev = None if targets is None else self.be.array(targets, dtype=np.int32 if self.make_onehot else None)
        for array, kept in zip([*arrays, targets], [*self.Xdev, self.ydev]):
            warn_of_rounding("ArrayIterator", array, kept)
        self._data_id = checksum([*arrays, *([] if targets is None else [targets])])
        self.Xbuf: list[Any] = []
        self.ybuf: Any = None
        self._views = _Views()
        self._allocate_buffers()

    def data_id(self) -> int:
        """A checksum of some of the data, used to recognize it when a training resumes."""
        return self._data_id

    def _check_rows(self, arrays: list[np.ndarray]) -> None:
        if any(len(array) != self.ndata for array in arrays):
            raise ArrayShapeError(
                f"ArrayIterator: the inputs have {', '.join(str(len(array)) for array in arrays)} samples; "
                "all must have the same number"
            )
        self._check_size(self.ndata)

    def _labels(self, y: Any) -> np.ndarray:
        labels = np.asarray(y)
        if self.nclass is None:
            raise MissingArgument(
                "ArrayIterator: labels need nclass, the number of classes; for targets that are not labels pass "
                "make_onehot=False"
            )
        if isinstance(self.nclass, bool) or not isinstance(self.nclass, int | np.integer):
            raise DTypeError(f"ArrayIterator: nclass={brief(self.nclass)} is not the number of classes, an integer")
        if labels.ndim > 2 or (labels.ndim == 2 and labels.shape[1] != 1):
            raise ArrayShapeError(
                f"ArrayIterator: labels have shape {labels.shape}; expected (ndata,), (ndata, 1), one-hot rows (ndata, "
                "nclass), or make_onehot=False"
            )
        labels = labels.reshape(-1, 1)
        check_labels("ArrayIterator", labels, self.nclass)
        return labels.astype(np.int32)

    def _allocate_buffers(self) -> None:
        self.Xbuf = [self.be.iobuf(array.shape[1]) for array in self.Xdev]
        if self.ydev is None:
            self.ybuf = None
        elif self.make_onehot:
            self.ybuf = self.be.iobuf(self.nclass)
        else:
            self.ybuf = self.be.iobuf(self.ydev.shape[1])

    def _move(self) -> None:
        """Copy the data to the current backend, which differs from theirs."""
        self._check_size(self.ndata)
        try:
            inputs = [array.get() for array in self.Xdev]
            targets = None if self.ydev is None else self.ydev.get()
        except BackendUnavailable as error:
            raise OtherBackend(
                f"{self.name}: its data are on {self.Xdev[0].backend!r}, and the current backend is {self.be!r}; make "
                "the iterator after gen_backend"
            ) from error
        self.Xdev = [self.be.array(array) for array in inputs]
        self.ydev = None if targets is None else self.be.array(targets, dtype=np.int32 if self.make_onehot else None)
        self._allocate_buffers()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self._batch_size()
        if self.Xbuf[0].backend is not self.be:
            self._move()
        if self.Xbuf[0].shape[1] != self.be.bsz:  # the batch size was changed
            self._check_size(self.ndata)
            self._allocate_buffers()
        for first in self._firsts():
            for columns, samples in self._pieces(first):
                self._fill(columns, samples)
            self._begin(first)
            inputs = self.Xbuf[0] if len(self.Xbuf) == 1 else self.Xbuf
            yield inputs, (inputs if self.ybuf is None else self.ybuf)

    def get_description(self, skip: Collection[str] = (), **kwargs: Any) -> Description:
        """Describe the iterator without its data."""
        return super().get_description(skip=[*skip, "X", "y"], **kwargs)

    def _fill(self, columns: slice, samples: slice) -> None:
        inputs, targets = self._views.of((self.Xdev, self.ydev), samples, self.make_onehot)
        for buffer, values in zip(self.Xbuf, inputs, strict=True):
            _part(buffer, columns)[:] = values
        if targets is not None:
            _part(self.ybuf, columns)[:] = targets


class _Views(dict[tuple[int, int, bool], tuple[list[Any], Any]]):
    """Cached views behind the batches: creating them takes longer than copying small batches."""

    sources: tuple[Any, ...] = ()

    def of(self, data: tuple[list[Any], Any], samples: slice, by_label: bool) -> tuple[list[Any], Any]:
        """Columns of inputs and targets of ``data``; with ``by_label``, one-hot columns of the labels.

        Targets may be None.
        """
        inputs, targets = data
        sources = (*inputs, targets)
        if len(self) >= MOST_VIEWS or len(sources) != len(self.sources) or any(map(is_not, sources, self.sources)):
            self.clear()
            self.sources = sources
        key = samples.start, samples.stop, by_label
        found = self.get(key)
        if found is None:
            chosen = None if targets is None else targets[samples]
            if chosen is not None:
                chosen = onehot(chosen, 0, chosen.backend, checked=False) if by_label else chosen.T
            found = self[key] = [array[samples].T for array in inputs], chosen
        return found

    def __reduce__(self) -> tuple[type[_Views], tuple[()]]:
        return _Views, ()  # a copy is empty: copied views would not be views of copied data


def _part(buffer: Any, columns: slice) -> Any:
    """Some columns of a buffer; the buffer itself for all columns, so that most batches need no view."""
    return buffer if columns == slice(0, buffer.shape[1]) else buffer[:, columns]


def _is_onehot(y: Any, nclass: Any) -> bool:
    """Whether targets have one column per class and more than one class, and so are not labels."""
    return isinstance(nclass, int | np.integer) and bool(nclass > 1) and np.shape(y)[1:] == (nclass,)


def _matrix(array: Any, what: str) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"ArrayIterator: {what} is a {type(array).__name__}; expected a NumPy array")
    if array.ndim == 0:
        raise ArrayShapeError(f"ArrayIterator: {what} is a single number; expected one row for each sample")
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _shapes_of(lshape: Any, arrays: list[np.ndarray]) -> list[Any]:
    """Return one shape per array, checked against the number of features."""
    shapes = lshape if isinstance(lshape, list) else [lshape] * len(arrays)
    if len(shapes) != len(arrays):
        raise ArrayShapeError(f"ArrayIterator: {len(arrays)} inputs but {len(shapes)} shapes in lshape")
    for shape, array in zip(shapes, arrays, strict=True):
        if (count := _elements(shape)) != array.shape[1]:
            raise ArrayShapeError(
                f"ArrayIterator: lshape={shape} has {count} elements, but a sample has {array.shape[1]}"
            )
    return shapes


def _elements(shape: Any) -> int:
    """Number of elements in a sample of ``shape``: an integer, or a sequence of them."""
    try:
        return math.prod(operator.index(size) for size in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        raise DTypeError(
            f"ArrayIterator: lshape must be an integer or a tuple of integers for each input, got {brief(shape)}"
        ) from None
