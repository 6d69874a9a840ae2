"""The protocol of data iterators, and base classes for cyclic and host-side iterators.

An iterator yields ``(inputs, targets)`` as tensors ``(features, N)`` in buffers that the next batch **reuses**.

Several ranks (docs/distributed.md) share each batch: samples, batches and positions are counted over all ranks, and
each rank reads and yields its columns alone, ``be.own_columns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from neonlike.errors import ArgumentError, MissingExtra, NeonlikeError, NotDefined, ShapeError
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject

__public_module__ = "neonlike.data.dataiterator"


class ArrayShapeError(ShapeError, ArgumentError):
    """Arrays of a data set do not match each other or the batch size."""


class MissingData(NeonlikeError, FileNotFoundError):
    """A file or folder of a data set does not exist."""


class DamagedData(NeonlikeError, OSError, ValueError):
    """A file of a data set is damaged, truncated, or in the wrong format."""


class Batches(int):
    """Number of batches that may also be called, because some iterators of neon have a method in its place."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


Shape = int | tuple[Any, ...] | list[Any]
"""Shape of a sample without the batch: a number of features, sizes of axes such as (C, H, W), or a list of shapes."""


class DataIterator(Protocol):
    """The attributes that a model reads of data, for training and for evaluation.

    Any class that has them will do: it need not derive from this one, which type checkers look at and nothing else.
    :class:`NervanaDataIterator` is a base class that has more.

    Some attributes are used if a class has them: ``masked_to``, the number of samples that count if an epoch has fewer
    than a batch; ``progress()``, ``set_progress(saved)`` and ``data_id()``, to resume a training; and ``shares``, which
    tells whether several ranks share each batch.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import DataIterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Squares:
    ...     shape, ndata, nbatches = 1, 4, 2
    ...     def reset(self):
    ...         pass
    ...     def __iter__(self):
    ...         for start in (0, 2):
    ...             x = be.array([[start, start + 1]])
    ...             yield x, x * x
    >>> data: DataIterator = Squares()
    >>> [t.tolist() for x, t in data]
    [[[0.0, 1.0]], [[4.0, 9.0]]]
    """

    @property
    def shape(self) -> Shape:
        """Shape of a sample of the inputs: features, ``(C, H, W)`` or ``(features, steps)``; a list for several inputs.

        The network is configured for it.
        """
        ...

    @property
    def ndata(self) -> int:
        """Number of samples, of all ranks together."""
        ...

    @property
    def nbatches(self) -> int:
        """Number of batches of the coming epoch, the same on all ranks."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch as pairs ``(inputs, targets)``.

        Inputs are a tensor ``(features, N)``, or ``(features, steps*N)`` for sequences; targets one of the shape that
        the cost takes, such as the network's outputs ``(nout, N)``. Lists of tensors are for several inputs or outputs.
        The buffers may be used again for the next batch.
        """
        ...

    def reset(self) -> Any:
        """Restart at the first sample; evaluations begin with it."""
        ...


class Predictor(Protocol):
    """A model, as far as data that predict with it need one. :class:`~neonlike.models.Model` implements it."""

    def fprop(self, x: Any, /, inference: bool) -> Any:
        """Outputs for a batch of inputs ``(features, N)``.

        Parameters
        ----------
        x : Tensor, or list of Tensor
            Inputs.
        inference : bool
            True outside of training.
        """
        ...


class NervanaDataIterator(NervanaObject):
    """Base of data iterators.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    shape : int, tuple or list of these
        Shape of the input(s) without the batch, for configuring a network.
    ndata : int
        Samples, of all ranks together.
    nbatches : int
        Batches of the coming epoch, the same on all ranks.
    shares : bool
        Whether each of several ranks reads its columns of each batch alone. A class that defines ``__iter__`` or
        ``host_batches`` has to say it again (:func:`neonlike.data.sharing.require_shares`).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import NervanaDataIterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Squares(NervanaDataIterator):
    ...     shape, ndata, nbatches = 1, 4, 2
    ...     def __iter__(self):
    ...         for start in (0, 2):
    ...             x = self.be.array([[start, start + 1]])
    ...             yield x, x * x
    >>> [t.tolist() for x, t in Squares()]
    [[[0.0, 1.0]], [[4.0, 9.0]]]
    """

    shares: bool = False

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def __iter__(self) -> Iterator[Any]:
        raise NotDefined(f"{self.classnm} does not define __iter__")

    def reset(self) -> None:
        """Restart at the first sample."""
        raise NotDefined(f"{self.classnm} does not define reset")

    def progress(self) -> dict[str, Any]:
        """Position of the next epoch as plain values, saved with a model to resume its training."""
        return {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Start the next epoch at the position ``saved``, a result of :meth:`progress`.

        Parameters
        ----------
        saved : dict
            The position.
        """

    def data_id(self) -> int:
        """A checksum of some of the data, used to recognize it when a training resumes; 0: unknown."""
        return 0

    def _batch_size(self) -> int:
        """Samples in a batch of all ranks together."""
        be = self.require_backend()
        if not (size := be.global_bsz):
            raise ArgumentError(
                f"{self.classnm}: the backend's batch size is {be.bsz}; give gen_backend(batch_size=...) or set be.bsz"
            )
        return size

    def _check_size(self, ndata: int) -> None:
        """Raise unless there are enough samples for a batch."""
        if ndata < (bsz := self._batch_size()):
            raise ArrayShapeError(
                f"{self.classnm}: {ndata} samples do not fill a batch of {bsz}; use a smaller batch size, "
                "or for the outputs of a few samples model.fprop(be.array(X.T), inference=True)"
            )


class CyclicIterator(NervanaDataIterator):
    """Base of iterators that wrap around: the last batch of an epoch is completed with the first samples.

    The next epoch starts after those samples.

    Attributes
    ----------
    start : int
        First sample of the next epoch.
    """

    ndata: int
    start: int = 0

    @property
    def nbatches(self) -> int:
        """Batches of the coming epoch."""
        return -(-(self.ndata - self.start) // self._batch_size())

    def reset(self) -> None:
        """Restart at the first sample."""
        self.start = 0

    def progress(self) -> dict[str, Any]:
        """First sample of the next epoch, as a saved position."""
        return {"start": self.start}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Start the next epoch at the saved sample, if there is one."""
        start = saved.get("start")
        if isinstance(start, int) and 0 <= start < self.ndata:
            self.start = start

    @property
    def masked_to(self) -> int | None:
        """Number of counted samples if an epoch has fewer than a batch; else None.

        The remaining columns repeat samples, and are excluded from costs, gradients and metrics.
        """
        return self.ndata if self.ndata < self._batch_size() else None

    def _check_size(self, ndata: int) -> None:
        """Raise unless there are samples."""
        if ndata < 1:
            raise ArrayShapeError(f"{self.classnm}: there are no samples; give one at least")
        self._batch_size()

    def _firsts(self) -> range:
        """The first sample of each batch of the coming epoch."""
        return range(self.start, self.ndata, self._batch_size())

    def _pieces(self, first: int) -> list[tuple[slice, slice]]:
        """Pieces of this rank's part of the batch that starts at sample ``first``: columns and their samples."""
        be, ndata, pieces, column = self.be, self.ndata, [], 0
        bsz = be.bsz
        sample = (first + be.ranks.rank * bsz) % ndata
        while column < bsz:
            count = min(bsz - column, ndata - sample)
            pieces.append((slice(column, column + count), slice(sample, sample + count)))
            column, sample = column + count, 0
        return pieces

    def _begin(self, first: int) -> None:
        """Note that the batch starting at sample ``first`` is handed out; after the last one the epoch is over."""
        if (after := first + self._batch_size()) >= self.ndata:
            self.start = after - self.ndata if self.masked_to is None else 0


class HostIterator(NervanaDataIterator):
    """Base of iterators that prepare batches on the host, and then copy them to the backend.

    A subclass defines :meth:`host_batches`, which may run in another thread (:class:`neonlike.data.Prefetch`) and must
    not touch the backend or the iterator's state, and :meth:`load`, which runs in the training thread. Buffers are
    allocated in :meth:`allocate_buffers`, which is called before an epoch whenever the backend or the batch size has
    changed.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import HostIterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Squares(HostIterator):
    ...     shape, ndata, nbatches = 1, 4, 2
    ...     def allocate_buffers(self):
    ...         self.x, self.t = self.be.iobuf(1), self.be.iobuf(1)
    ...     def host_batches(self):
    ...         for start in (0, 2):
    ...             yield np.array([[start, start + 1]], dtype=np.float32)
    ...     def load(self, batch):
    ...         return self.x.set(batch), self.t.set(batch**2)
    >>> [t.tolist() for x, t in Squares()]
    [[[0.0, 1.0]], [[4.0, 9.0]]]
    """

    _made_for: tuple[Any, int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made_for": None}  # backends cannot be copied

    def host_batches(self) -> Iterator[Any]:
        """Yield the arrays for :meth:`load`, for each batch of the coming epoch."""
        raise NotDefined(f"{self.classnm} does not define host_batches")

    def load(self, batch: Any) -> Any:
        """Copy one item of :meth:`host_batches` to the backend and return ``(inputs, targets)``.

        Parameters
        ----------
        batch : object
            One item of :meth:`host_batches`.

        Returns
        -------
        inputs, targets : Tensor, or list of Tensor
            Tensors ``(features, N)``.
        """
        raise NotDefined(f"{self.classnm} does not define load")

    def send_ahead(self, batch: Any, send: Callable[[Any], Any]) -> Any:
        """Start copies to a GPU before :meth:`load`; called in the prefetching thread.

        Parameters
        ----------
        batch : object
            An item of :meth:`host_batches`.
        send : callable
            Takes a contiguous array, starts its copy, and returns an array with the same values, which must not be
            modified, nor kept after :meth:`load`. Call it, in the same order for each batch, for the arrays that
            ``load`` copies entirely, unchanged and in the dtype of its buffer.

        Returns
        -------
        object
            Argument for ``load``; by default the batch itself.
        """
        return batch

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""

    def allocate(self) -> None:
        """Allocate the buffers, unless they exist for the current backend and batch size."""
        be, bsz, total = self.require_backend(), int(self.be.bsz or 0), self._batch_size()
        if self._made_for is None or self._made_for[0] is not be or self._made_for[1:] != (bsz, total):
            self.allocate_buffers()
            self._made_for = be, bsz, total

    def prepare_epoch(self) -> None:
        """Called in the training thread before an epoch."""
        self.allocate()

    def batch_begins(self, number: int) -> None:
        """Called in the training thread before batch ``number`` of an epoch."""

    def consume(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Load batches of :meth:`host_batches` to the backend."""
        for number, batch in enumerate(batches):
            loaded = self.load(batch)
            self.batch_begins(number)
            yield loaded

    def __iter__(self) -> Iterator[Any]:
        self.prepare_epoch()
        yield from self.consume(self.host_batches())


def columns(array: Any, dtype: Any) -> np.ndarray:
    """Convert samples in rows, ``(N, ...)``, to contiguous columns ``(features, N)`` of a dtype.

    Parameters
    ----------
    array : ndarray
        Samples in rows, ``(N, ...)``.
    dtype : dtype
        The dtype of the result.
    """
    host = np.asarray(array)
    return np.ascontiguousarray(host.reshape(len(host), -1).T, dtype=dtype)


def warn_of_rounding(who: str, array: np.ndarray | None, kept: Any) -> bool:
    """Warn if whole numbers, which may be word numbers, are rounded by the 16-bit dtype of ``kept``.

    Parameters
    ----------
    who : str
        The caller, for the message.
    array : ndarray or None
        Data as they come; only integers of several bytes are looked at, since 16 bits hold those of one exactly.
    kept : Tensor or ndarray
        The same data as they are kept.

    Returns
    -------
    bool
        Whether they are rounded.
    """
    if array is None or array.dtype.kind not in "iu" or array.dtype.itemsize == 1 or kept.dtype.itemsize > 2:
        return False
    values = kept if isinstance(kept, np.ndarray) else kept.get()
    if not np.any(values != array):
        return False
    logger.warning(
        "%s: %s rounds whole numbers of the data, which go up to %d; where they are numbers of words, use Text, or a "
        "backend with datatype=np.float32",
        who,
        kept.dtype,
        np.abs(array.astype(np.float64)).max(),
    )
    return True


def check_labels(who: str, labels: np.ndarray, nclass: int) -> None:
    """Raise ArgumentError unless ``labels`` are integers (of any dtype) from 0 to ``nclass`` − 1.

    Parameters
    ----------
    who : str
        The caller, for the message.
    labels : ndarray
        Labels, of any shape.
    nclass : int
        Number of classes.
    """
    if labels.dtype.kind not in "iufb" or not np.array_equal(labels, np.trunc(labels)):
        raise ArgumentError(f"{who}: labels of type {labels.dtype} are not integers")
    if labels.size and not (0 <= labels.min() and labels.max() < nclass):
        raise ArgumentError(
            f"{who}: labels go from {labels.min()} to {labels.max()}; with nclass={nclass} they must be between 0 and "
            f"{nclass - 1}"
        )


def need_h5py(who: str, path: Any) -> Any:
    """Return the module h5py.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra(
            f"{who}: reading {path} needs h5py; install it with: pip install 'neonlike[data]'"
        ) from error
    return h5py
