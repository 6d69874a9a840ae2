"""Collective operations of the ranks of a program: sums, copies and barriers; see :mod:`neonlike.distributed`."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import require_tensors
from neonlike.checks import brief
from neonlike.distributed.compression import message_dtype
from neonlike.distributed.links import Links
from neonlike.distributed.ranks import ALONE, Ranks, check_operation
from neonlike.errors import ArgumentError


class RanksFamily(Family):
    """Collective operations; all ranks of the program must call each of them, in the same order.

    Attributes
    ----------
    ranks : Ranks
        Those of the program; a process alone is rank 0 of 1.
    shard_optimizer : bool
        Whether each rank updates a part of the rows of large parameters, and sends them to the others. Settable.
    overlap_gradients : bool
        Whether ``fit`` sends gradients of these parameters while the backward pass goes on, on the CPU. Settable.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.rank, be.num_ranks
    (0, 1)
    """

    ranks: Ranks = ALONE
    shard_optimizer: bool = True
    overlap_gradients: bool = False
    _gradient_compression: Any = None

    @property
    def gradient_compression(self) -> str | None:
        """The dtype in which large gradients are sent to other ranks: "float16", "bfloat16" or None, their own.

        Settable, on all ranks alike; they are added in float32. A rank alone sends nothing.
        """
        return None if self._gradient_compression is None else str(self._gradient_compression.name)

    @gradient_compression.setter
    def gradient_compression(self, compression: Any) -> None:
        self._gradient_compression = message_dtype(compression)

    @property
    def rank(self) -> int:
        """Number of this process among those that an MPI launcher started together, from 0."""
        return self.ranks.rank

    @property
    def num_ranks(self) -> int:
        """Number of processes that train together; 1 for a process alone."""
        return self.ranks.size

    @property
    def global_bsz(self) -> int:
        """Samples in a batch of all ranks together: ``be.bsz`` of each of them."""
        return int(self.bsz or 0) * self.ranks.size

    @property
    def own_columns(self) -> slice:
        """Columns of a batch of all ranks together that this one has: ``be.bsz`` of ``be.global_bsz``."""
        size, rank = int(self.bsz or 0), self.ranks.rank
        return slice(rank * size, (rank + 1) * size)

    def links(self) -> Links | None:
        """Links between the devices of all ranks, which call this together; None where tensors go through the host.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.links() is None
        True
        """
        return None

    def allreduce(self, tensor: Any, op: str = "sum") -> Any:
        """Replace ``tensor`` by its sum over all ranks, on every rank.

        Parameters
        ----------
        tensor : Tensor
            Of one shape and dtype on all ranks.
        op : str
            "sum", "mean", "min", "max" or "prod". Tensors of 16 bits are reduced in float32, but
            NCCL between GPUs rounds each partial result to 16 bits.

        Returns
        -------
        Tensor
            ``tensor``.

        Raises
        ------
        ArgumentError
            For another ``op``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.allreduce(be.ones((1, 2)), "mean").tolist()    # of this rank alone
        [[1.0, 1.0]]
        """
        check_operation("allreduce", op)
        require_tensors(self, "allreduce", tensor=tensor)
        links = self.links()
        if links is not None and links.reduces(tensor.dtype):
            links.reduce([tensor], op)
            return tensor
        host = tensor.get()
        self.ranks.reduce(host, op)
        return tensor.set(host)

    def broadcast(self, tensor: Any, root: int = 0) -> Any:
        """Replace ``tensor`` on every rank by that of rank ``root``; returns ``tensor``.

        Parameters
        ----------
        tensor : Tensor
            Of one shape and dtype on all ranks.
        root : int
            The rank that sends.

        Raises
        ------
        ArgumentError
            If there is no such rank.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.broadcast(be.ones((1, 2))).tolist()
        [[1.0, 1.0]]
        """
        require_tensors(self, "broadcast", tensor=tensor)
        if isinstance(root, bool) or not isinstance(root, int | np.integer) or not 0 <= root < self.ranks.size:
            raise ArgumentError(f"broadcast: root={brief(root)}; expected a rank, from 0 to {self.ranks.size - 1}")
        links = self.links()
        if links is not None:
            links.broadcast(tensor, int(root))
            return tensor
        host = tensor.get()
        self.ranks.broadcast(host, int(root))
        return tensor.set(host)

    def allgather(self, tensor: Any) -> np.ndarray:
        """The values of ``tensor`` on all ranks: an array ``(number of ranks, *shape)`` on the host.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.allgather(be.ones((1, 2))).shape
        (1, 1, 2)
        """
        require_tensors(self, "allgather", tensor=tensor)
        return self.ranks.gather(tensor.get())

    def barrier(self) -> None:
        """Wait until all ranks are here.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.barrier()
        """
        self.ranks.barrier()

    def distribute_data(self, tensor: Any, layer_parallelism: Any = None) -> None:
        """Does nothing: each rank has its own share of the data. neon splits ``tensor`` over its devices here.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.distribute_data(be.ones((1, 2)))
        """
