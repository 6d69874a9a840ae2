"""Batches read ahead by a thread while the network computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from neonlike.data.protocol import HostIterator, NervanaDataIterator
from neonlike.errors import ArgumentError, ArgumentTypeError

_END = object()


class Prefetch(NervanaDataIterator):
    """Lets a thread prepare the batches of an iterator, so many ahead, while those before are trained with.

    The thread does what the iterator's ``host_batches`` does: it reads files, decodes and augments images. For a GPU it
    also has the copy of what the iterator's ``send_ahead`` names begin, from page-locked memory, while the batch before
    is trained with; buffers are filled in the thread of the training, when their batch is asked for. All other
    attributes are the iterator's: ``shape``, ``nclass``, ``reset()``. The batches are the same as without, and so is a
    resumed training.

    An error in the thread is raised where the batch is asked for. The thread ends with the epoch, and when the loop
    over the batches is left early or interrupted; :meth:`close` ends it at once.

    Parameters
    ----------
    iterator : HostIterator
        One that prepares batches on the host: HDF5Iterator, ImageFolder, Text, or a class of your own derived from
        :class:`neonlike.data.HostIterator`. (Data that are on the backend already, as ArrayIterator's, need none.)
    depth : int
        Most batches in waiting.

    Raises
    ------
    ArgumentTypeError
        If the iterator is not of this kind.
    """

    from_description = False

    def __init__(self, iterator: Any, depth: int = 2, name: str | None = None) -> None:
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
        if name in ("iterator", "__setstate__"):  # not made yet
            raise AttributeError(name)
        return getattr(self.iterator, name)

    def reset(self) -> None:
        """Start over with the first sample."""
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
        # So many wait, one is trained with, and one is being read.
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
        """``batch`` with copies under way to a GPU, if it is one that is trained on."""
        if ahead is None:
            return batch
        ahead.begin()
        return self.iterator.send_ahead(batch, ahead.send)

    def close(self) -> None:
        """End the threads of all loops over the batches that are not at their end."""
        for reader in list(self._epochs):
            reader.close()


class _Reader:
    """A thread that puts batches into a queue; it runs from :meth:`start` to :meth:`close`."""

    def __init__(self, source: Iterator[Any], depth: int, prepared: Callable[[Any], Any]) -> None:
        self._source, self._prepared = source, prepared
        self._waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="neonlike-prefetch", daemon=True)

    def start(self) -> None:
        """Begin to read. Interrupted, it may have begun: :meth:`close` has to follow in any case."""
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
        """Whether more is wanted. Waits for room; :meth:`close` makes some."""
        if not self._stopped.is_set():
            self._waiting.put((batch, error))
        return not self._stopped.is_set()

    def batches(self) -> Iterator[Any]:
        """The batches that the thread read, in order.

        Raises
        ------
        BaseException
            What was raised in the thread.
        """
        while not self._stopped.is_set():
            batch, error = self._waiting.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            yield batch

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped.set()
        self._drain()  # the thread may wait for room
        if self._thread.ident is not None:
            self._thread.join()
        if hasattr(self._source, "close"):  # a generator, which may have files to close
            self._source.close()
        self._drain()
        self._waiting.put((_END, None))  # for a loop in another thread that waits for a batch

    def _drain(self) -> None:
        while True:
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                return
