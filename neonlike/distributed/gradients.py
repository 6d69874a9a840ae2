"""Sums of tensors over all ranks: on their devices, where these are linked, else by messages of the hosts.

Of such messages, large tensors are each one, where they are; small ones are together in one. Compression rounds the
large ones to 16 bits (:mod:`.compression`): small ones have few bytes, and their one sum by MPI takes fewer messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neonlike.distributed.compression import CompressedSum, message_dtype
from neonlike.distributed.ranks import Ranks

if TYPE_CHECKING:
    from neonlike.distributed.links import Links

LARGE_BYTES = 64 << 10
"""Bytes from which a tensor is a message of its own: to copy it would take longer than another message."""


class RankSum:
    """The sum of each of some tensors over all ranks, in place; call it after each backward pass.

    All ranks make it together.

    Parameters
    ----------
    ranks : Ranks
    tensors : sequence of Tensor
        Of one backend, the same on all ranks, in one order. Those of 16 bits are summed in float32 on the host.
    mean : bool
        Divide the sums by the number of ranks.
    compression : str, optional
        Name of a dtype of 16 bits in which large tensors are sent. Linked devices send and add all tensors in it.

    Attributes
    ----------
    nbytes : int
        Bytes of the tensors as they are sent.
    """

    def __init__(self, ranks: Ranks, tensors: Iterable[Any], mean: bool = False, compression: Any = None) -> None:
        tensors = list({id(tensor): tensor for tensor in tensors}.values())  # each once: sums are in place
        self._ranks, self._op = ranks, "mean" if mean else "sum"
        self._links = links = tensors[0].backend.links() if tensors else None
        self._linked = [one for one in tensors if links is not None and links.reduces(one.dtype)]
        others = [one for one in tensors if links is None or not links.reduces(one.dtype)]
        message = message_dtype(compression)
        self._linked_sent = [_in_message(one, message) for one in self._linked]
        self._packs = {dtype: _Pack(ranks, found, dtype, message) for dtype, found in _by_dtype(others).items()}
        self.nbytes = sum(part.nbytes for part in (*self._linked_sent, *self._packs.values()))

    def __call__(self) -> None:
        """Sum the tensors."""
        if self._linked and self._links is not None:
            self._reduce_linked(self._links)
        large: list[tuple[Any, npt.NDArray[Any]]] = []
        for pack in self._packs.values():
            pack.sum_compressed(self._op)
            large += pack.read()
        for _, array in large:
            self._ranks.reduce(array, self._op)
        for pack in self._packs.values():
            if pack.flat.size:
                self._ranks.reduce(pack.flat, self._op)
            pack.write()
        for tensor, array in large:
            if not tensor.live_host:
                tensor.set(array)

    def _reduce_linked(self, links: Links) -> None:
        """Sum the tensors of linked devices."""
        converted = [(one, sent) for one, sent in zip(self._linked, self._linked_sent) if sent is not one]
        for one, sent in converted:
            sent[...] = one
        links.reduce(self._linked_sent, self._op)
        for one, sent in converted:
            one[...] = sent


class _Pack:
    """Tensors summed in a dtype; the small ones have a place in one array, ``flat``."""

    def __init__(self, ranks: Ranks, tensors: Sequence[Any], dtype: np.dtype[Any], message: Any) -> None:
        self._compressed = [] if message is None else [
            (one, CompressedSum(ranks, one.size, one.dtype if one.dtype.itemsize == 2 else message, dtype))
            for one in tensors
            if one.size * dtype.itemsize >= LARGE_BYTES
        ]  # fmt: skip
        rest = [one for one in tensors if all(one is not other for other, _ in self._compressed)]
        self._large = [tensor for tensor in rest if _is_message(tensor, dtype)]
        self._small = [tensor for tensor in rest if not _is_message(tensor, dtype)]
        self.flat = np.empty(sum(tensor.size for tensor in self._small), dtype)
        messages = [self.flat, *self._large, *(compressed for _, compressed in self._compressed)]
        self.nbytes = sum(one.nbytes for one in messages)
        ends = np.cumsum([0, *[tensor.size for tensor in self._small]])
        self._parts = [
            self.flat[start:end].reshape(tensor.shape) for tensor, start, end in zip(self._small, ends, ends[1:])
        ]

    def sum_compressed(self, op: str) -> None:
        """Sum those that are sent in 16 bits."""
        for tensor, compressed in self._compressed:
            _store(tensor, compressed(_host(tensor), op))

    def read(self) -> list[tuple[Any, npt.NDArray[Any]]]:
        """Copy the small tensors; return the large ones with their values."""
        for tensor, part in zip(self._small, self._parts):
            np.copyto(part, _host(tensor), casting="unsafe")
        return [(tensor, _host(tensor)) for tensor in self._large]

    def write(self) -> None:
        """Copy the small tensors back."""
        for tensor, part in zip(self._small, self._parts):
            _store(tensor, part)


def _by_dtype(tensors: Sequence[Any]) -> dict[np.dtype[Any], list[Any]]:
    """The tensors by the dtype in which they are summed."""
    found: dict[np.dtype[Any], list[Any]] = {}
    for tensor in tensors:
        wide = np.dtype(np.float64 if tensor.dtype == np.float64 else np.float32)
        found.setdefault(wide, []).append(tensor)
    return found


def _is_message(tensor: Any, dtype: np.dtype[Any]) -> bool:
    fits = tensor.dtype == dtype and (tensor.is_contiguous or not tensor.live_host)  # a copy is contiguous
    return bool(fits and tensor.nbytes >= LARGE_BYTES)


def _in_message(tensor: Any, message: Any) -> Any:
    """A tensor for what a linked device sends of ``tensor``: the same one, if there is nothing to compress."""
    if message is None or tensor.dtype.itemsize == 2:
        return tensor
    return tensor.backend.empty(tensor.shape, dtype=message)


def _store(tensor: Any, values: npt.NDArray[Any]) -> None:
    """Copy ``values`` to a tensor, rounded to its dtype."""
    with np.errstate(over="ignore"):  # infinite in float16, as loss scaling expects
        if tensor.live_host:
            np.copyto(_host(tensor), values, casting="unsafe")
        else:
            tensor.set(values.astype(tensor.dtype))


def _host(tensor: Any) -> npt.NDArray[Any]:
    """The memory of a tensor, or a copy where that is not on the host."""
    found: npt.NDArray[Any] = np.asarray(tensor) if tensor.live_host else tensor.get()
    return found
