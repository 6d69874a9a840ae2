"""Sums of tensors over all ranks: on their devices, where these are linked, else by messages of the hosts.

Of such messages, large tensors are each one, where they are; small ones are together in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.distributed.ranks import Ranks

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
    """

    def __init__(self, ranks: Ranks, tensors: Iterable[Any], mean: bool = False) -> None:
        tensors = list({id(tensor): tensor for tensor in tensors}.values())  # each once: sums are in place
        self._ranks, self._op = ranks, "mean" if mean else "sum"
        self._links = links = tensors[0].backend.links() if tensors else None
        self._linked = [one for one in tensors if links is not None and links.reduces(one.dtype)]
        others = [one for one in tensors if links is None or not links.reduces(one.dtype)]
        self._packs = {dtype: _Pack(found, dtype) for dtype, found in _by_dtype(others).items()}

    def __call__(self) -> None:
        """Sum the tensors."""
        if self._linked and self._links is not None:
            self._links.reduce(self._linked, self._op)
        large: list[tuple[Any, npt.NDArray[Any]]] = []
        for pack in self._packs.values():
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


class _Pack:
    """Tensors of a dtype; the small ones have a place in one array, ``flat``."""

    def __init__(self, tensors: Sequence[Any], dtype: np.dtype[Any]) -> None:
        self._large = [tensor for tensor in tensors if _is_message(tensor, dtype)]
        self._small = [tensor for tensor in tensors if not _is_message(tensor, dtype)]
        self.flat = np.empty(sum(tensor.size for tensor in self._small), dtype)
        ends = np.cumsum([0, *[tensor.size for tensor in self._small]])
        self._parts = [
            self.flat[start:end].reshape(tensor.shape) for tensor, start, end in zip(self._small, ends, ends[1:])
        ]

    def read(self) -> list[tuple[Any, npt.NDArray[Any]]]:
        """Copy the small tensors; return the large ones with their values."""
        for tensor, part in zip(self._small, self._parts):
            np.copyto(part, _host(tensor), casting="unsafe")
        return [(tensor, _host(tensor)) for tensor in self._large]

    def write(self) -> None:
        """Copy the small tensors back."""
        for tensor, part in zip(self._small, self._parts):
            if tensor.live_host:
                np.copyto(_host(tensor), part, casting="unsafe")
            else:
                tensor.set(part.astype(tensor.dtype))


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


def _host(tensor: Any) -> npt.NDArray[Any]:
    """The memory of a tensor, or a copy where that is not on the host."""
    found: npt.NDArray[Any] = np.asarray(tensor) if tensor.live_host else tensor.get()
    return found
