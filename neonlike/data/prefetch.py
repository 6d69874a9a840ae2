"""Prefetching of batches by a thread while the network computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from neonlike.data.protocol import HostIterator, NervanaDataIterator
from neonlike.data.sharing import shares_batches
from neonlike.errors import ArgumentError, ArgumentTypeError

_END = object()


class Prefetch(NervanaDataIterator):
    """Prepares the batches of an iterator ahead of time in a thread.

    The thread runs the iterator's ``host_batches``: it reads files, and decodes and augments images. For a GPU it also
    starts the copies requested by the iterator's ``send_ahead``, from page-locked memory, during the training step of
    the previous batch. Buffers are filled in the training thread when their batch is requested. All other attributes
    are the iterator's: ``shape``, ``nclass``, ``reset()``. Batches and resumed trainings are identical to those without
    Prefetch.

    An error in the thread is raised when the batch is requested. The thread ends with the epoch, or when the loop over
    the batches is left early or interrupted; :meth:`close` ends it immediately.

    Parameters
    ----------
    iterator : HostIterator
        Iterator that prepares batches on the host: HDF5Iterator, ImageFolder, Text, or a user-defined subclass of
        :class:`neonlike.data.HostIterator`. (Data already on the backend, as in ArrayIterator, need no prefetching.)
    depth : int
        Maximum number of prepared batches.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentTypeError
        If the iterator is not of this kind.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import QA, Prefetch
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = QA(np.ones((4, 3), int), np.ones((4, 2), int), np.ones((4, 5)))
    >>> len(list(Prefetch(data, depth=2)))  # batches
    2
    """

    from_description = False

    def __init__(self, iterator: HostIterator, depth: int = 2, name: str | None = None) -> None:
        super().__init__(name=name)
        if not isinstance(iterator, HostIterator):
            raise ArgumentTypeError(
                f"Prefetch: a {type(iterator).__name__} prepares no batches on the host; expected a HostIterator such "
                "as HDF5Iterator or ImageFolder"
            )
        if depth < 1:
            raise ArgumentError(f"Prefetch: depth={depth}; at least one batch waits")
        self.iterator = iterator
        self.depth = depth
        self._epochs: list[_Reader] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("iterator", "__setstate__"):  # not constructed yet
            raise AttributeError(name)
        return getattr(self.iterator, name)

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Whether several ranks share the iterator's batches."""
        return shares_batches(self.iterator)

    def reset(self) -> None:
        """Restart at the first sample."""
        self.iterator.reset()

    def progress(self) -> dict[str, Any]:
        """The iterator's position."""
        return self.iterator.progress()

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Set the iterator's position."""
        self.iterator.set_progress(saved)

    def data_id(self) -> int:
        """The iterator's checksum of its data."""
        return int(self.iterator.data_id())

    def __iter__(self) -> Iterator[Any]:
        self.iterator.prepare_epoch()
        # These wait, one is in training, and one is being read.
        ahead = self.require_backend().upload_ahead(self.depth + 2)
        reader = _Reader(self.iterator.host_batches(), self.depth, partial(self._sent, ahead))
        self._epochs.append(reader)
        try:
            reader.start()
            yield from self.iterator.consume(reader.batches())
        finally:
            try:
                reader.close()
            finally:
                if ahead is not None:
                    ahead.close()
                self._epochs.remove(reader)

    def _sent(self, ahead: Any, batch: Any) -> Any:
        """Start copying ``batch`` if the training runs on a GPU."""
        if ahead is None:
            return batch
        ahead.begin()
        return self.iterator.send_ahead(batch, ahead.send)

    def close(self) -> None:
        """End the threads of all unfinished loops over the batches."""
        for reader in list(self._epochs):
            reader.close()


class _Reader:
    """A thread that puts batches into a queue, from :meth:`start` to :meth:`close`."""

    def __init__(self, source: Iterator[Any], depth: int, prepared: Callable[[Any], Any]) -> None:
        self._source, self._prepared = source, prepared
        self._waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="neonlike-prefetch", daemon=True)

    def start(self) -> None:
        """Start the thread. After an interrupt it may or may not run: :meth:`close` must follow in any case."""
        self._thread.start()

    def _read(self) -> None:
        if self._stopped.is_set():
            return
        try:
            for batch in self._source:
                if not self._put(self._prepared(batch), None):
                    return
            self._put(_END, None)
        except BaseException as error:
            self._put(_END, error)

    def _put(self, batch: Any, error: BaseException | None) -> bool:
        """Queue a batch, waiting for room, and return whether to continue; :meth:`close` makes room."""
        if not self._stopped.is_set():
            self._waiting.put((batch, error))
        return not self._stopped.is_set()

    def batches(self) -> Iterator[Any]:
        """Yield the batches of the thread in order.

        Raises
        ------
        BaseException
            Any exception raised in the thread.
        """
        while not self._stopped.is_set():
            batch, error = self._waiting.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            yield batch

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        self._drain()  # the thread may wait for room
        if self._thread.ident is not None:
            self._thread.join()
        if hasattr(self._source, "close"):  # a generator may have files to close
            self._source.close()
        self._drain()
        self._waiting.put((_END, None))  # for a loop in another thread that waits for a batch

    def _drain(self) -> None:
        while True:
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                return
