"""Movers copy samples from one tensor into another: transformer, batcher, shuffler.

Source and target may have different orders of axes and dtypes; each copy is one assignment. Either side may be on
``be.native``, the backend of host memory, so that large data stays there and minibatches go to a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neonlike.backends.descriptors import BATCH, TensorDesc
from neonlike.backends.geometry.counts import ceil_div
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import check_tensors
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, MissingArgument, ShapeError
from neonlike.optree.arrange import whole_number
from neonlike.optree.builders import index_operand
from neonlike.optree.node import Expression


class Mover:
    """Base of the movers: a source and a target, with the check that their samples have the same axes.

    Attributes
    ----------
    src, dst : Tensor or None
        None if a descriptor stands for the tensor.
    src_desc, dst_desc : TensorDesc
    """

    def __init__(self, name: str, be: Any, src: Any, dst: Any) -> None:
        self.name, self.backend = name, be
        self.src_desc, self.dst_desc = TensorDesc.of(src), TensorDesc.of(dst)
        self.src, self.dst = (self._checked(which, t) for which, t in (("src", src), ("dst", dst)))
        self._check_samples()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_words(self.src_desc)} -> {_words(self.dst_desc)}>"

    def _checked(self, which: str, given: Any) -> Any:
        """Return ``given`` if it is a usable tensor; None for a descriptor."""
        if not isinstance(given, Tensor):
            return None
        here = given.backend if given.backend is self.backend.native else self.backend
        check_tensors(here, self.name, **{which: given})
        return given

    def _check_samples(self) -> None:
        """Raise ShapeError unless one layout can become the other, apart from the number of samples."""
        (src, dst) = (one if one.batch_axis is None else one.with_batch(1) for one in (self.src_desc, self.dst_desc))
        if src.with_layout(dst.layout).shape != dst.shape:
            raise ShapeError(
                f"{self.name}: src {_words(self.src_desc)} cannot become dst {_words(self.dst_desc)}: the axes of a "
                "sample must have the same sizes"
            )


def _words(desc: TensorDesc) -> str:
    return f"{desc.layout}{desc.shape} {desc.dtype.name}"


class Transformer(Mover):
    """Copies between layouts and dtypes; the result of ``be.transformer(src, dst)``.

    ``t()`` copies src into dst and returns dst. ``t(src, dst)`` takes other tensors with the same descriptors, and
    creates dst if it is missing. Integers round and saturate, as in every assignment.

    Parameters
    ----------
    be : Backend
    src, dst : Tensor or TensorDesc

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> from neonlike.backends.descriptors import TensorDesc
    >>> turned = be.transformer(TensorDesc((2, 3), layout="NC"), TensorDesc((3, 2), layout="CN"))
    >>> turned(be.tensor(TensorDesc((2, 3), layout="NC"))).shape
    (3, 2)
    """

    def __init__(self, be: Any, src: Any, dst: Any) -> None:
        super().__init__("transformer", be, src, dst)
        if self.src_desc.with_layout(self.dst_desc.layout).shape != self.dst_desc.shape:
            raise ShapeError(
                f"transformer: src {_words(self.src_desc)} and dst {_words(self.dst_desc)} have other numbers of "
                "samples; be.batcher(src, dst) takes some of them at a time"
            )

    def __call__(self, src: Any = None, dst: Any = None) -> Any:
        """Copy ``src`` into ``dst``, by default the constructor's tensors.

        Returns
        -------
        Tensor
            The target; a new tensor if there was none.

        Raises
        ------
        MissingArgument
            If src is only a descriptor, and no tensor is passed.
        ShapeError, DTypeError, ArgumentError
            If a tensor does not match its descriptor.
        ReadOnlyError
            If dst is read-only.
        """
        source = self.src if src is None else self._checked("src", src)
        if source is None:
            given = "" if src is None else f", got {brief(src)}"
            raise MissingArgument(f"transformer: made with a descriptor of src; pass the tensor{given}")
        target = self.dst if dst is None else self._checked("dst", dst)
        if target is None:
            if dst is not None:
                raise DTypeError(f"transformer: dst must be a tensor, got {brief(dst)}")
            target = self.backend.tensor(self.dst_desc, init=False)
        view = self.dst_desc.view(target, "dst", "transformer")
        view[:] = self.src_desc.arranged(self.src_desc.view(source, "src", "transformer"), self.dst_desc.layout)
        return target

    def inverse(self) -> Transformer:
        """The transformer in the opposite direction.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> to_columns = be.transformer(TensorDesc((2, 3), layout="NC"), TensorDesc((3, 2), layout="CN"))
        >>> to_columns.inverse()
        <Transformer CN(3, 2) float32 -> NC(2, 3) float32>
        """
        ends = (self.dst_desc if self.dst is None else self.dst, self.src_desc if self.src is None else self.src)
        return Transformer(self.backend, *ends)


class Samples(Mover):
    """A mover of a few samples at a time: both sides have a batch axis and a tensor.

    Parameters
    ----------
    name : str
        Name of the mover, for messages.
    be : Backend
    src : Tensor
    dst : Tensor or TensorDesc
    """

    def __init__(self, name: str, be: Any, src: Any, dst: Any) -> None:
        super().__init__(name, be, src, dst)
        if self.src is None:
            raise DTypeError(f"{name}: src must be a tensor, got {brief(src)}")
        for which, desc in (("src", self.src_desc), ("dst", self.dst_desc)):
            if desc.batch_axis is None:
                raise ShapeError(f"{name}: the layout {desc.layout!r} of {which} has no axis {BATCH}, the batch")
        self.src = self.src_desc.view(self.src, "src", name)
        self.dst = be.tensor(self.dst_desc) if self.dst is None else self.dst_desc.view(self.dst, "dst", name)
        order = self.src_desc.order(self.dst_desc.layout)
        self._turned = self.src if order == tuple(range(self.src_desc.ndim)) else self.src.permuted(order)
        self._turned = self._turned.viewed(self.dst_desc.with_batch(self.src_desc.batch_size).shape)
        self._before = (slice(None),) * self.dst_desc.axis(BATCH)

    def _source(self, start: int, count: int) -> Any:
        """View of ``count`` samples of src, with the axes of dst."""
        return self._turned[(*self._before, slice(start, start + count))]

    def _target(self, start: int, count: int) -> Any:
        """View of ``count`` samples of dst, or dst."""
        view = self.dst[(*self._before, slice(start, start + count))]
        if view is not self.dst:
            view.desc = self.dst_desc.with_batch(count)
        return view


class Batcher(Samples):
    """Copies minibatches of a large tensor into a small one; the result of ``be.batcher(src, dst, mb_size)``.

    ``b(n)`` copies the ``mb_size`` samples from the n-th on and returns dst; if fewer remain, it copies these and
    returns their window of dst. ``for minibatch in b`` iterates over all of src in order. ``len(b)`` is the number of
    minibatches.

    Parameters
    ----------
    be : Backend
    src : Tensor
    dst : Tensor or TensorDesc
    mb_size : int, optional
        None: the samples of ``dst``.

    Attributes
    ----------
    mb_size : int
        Samples per minibatch.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> batches = be.batcher(be.array([[0, 1, 2, 3, 4]]), be.zeros((1, 2)))
    >>> len(batches), batches(3).tolist()
    (3, [[3.0, 4.0]])
    """

    def __init__(self, be: Any, src: Any, dst: Any, mb_size: Any = None) -> None:
        super().__init__("batcher", be, src, dst)
        room = self.dst_desc.batch_size
        self.mb_size = room if mb_size is None else whole_number("batcher", "mb_size", mb_size)
        if not 1 <= self.mb_size <= room:
            raise ArgumentError(f"batcher: mb_size must be 1 to {room}, the samples of dst, got {self.mb_size}")

    def __len__(self) -> int:
        return ceil_div(self.src_desc.batch_size, self.mb_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield dst with each minibatch in turn; for an incomplete last one, its window of dst."""
        return (self(start) for start in range(0, self.src_desc.batch_size, self.mb_size))

    def __call__(self, src_n: int = 0, dst_n: int = 0) -> Any:
        """Copy up to ``mb_size`` samples of src from ``src_n`` on to dst from ``dst_n`` on.

        Returns
        -------
        Tensor
            The target, or its written window; the rest of dst is unchanged.

        Raises
        ------
        IndexRangeError
            If src has no sample ``src_n``, or the samples exceed dst; nothing is written then.
        """
        start, place = (whole_number("batcher", name, n) for name, n in (("src_n", src_n), ("dst_n", dst_n)))
        size, room = self.src_desc.batch_size, self.dst_desc.batch_size
        if not 0 <= start < size:
            raise IndexRangeError(f"batcher: src_n {start} is none of the {size} samples of src")
        count = min(self.mb_size, size - start)
        if not 0 <= place <= room - count:
            raise IndexRangeError(f"batcher: {count} samples from dst_n {place} on reach beyond the {room} of dst")
        target = self._target(place, count)
        target[:] = self._source(start, count)
        return target


class Shuffler(Samples):
    """Copies selected samples of a tensor in any order; the result of ``be.shuffler(src, dst)``.

    Parameters
    ----------
    be : Backend
    src : Tensor
    dst : Tensor or TensorDesc

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.shuffler(be.array([[0, 1, 2]]), be.zeros((1, 2)))([2, 0]).tolist()
    [[2.0, 0.0]]
    """

    def __init__(self, be: Any, src: Any, dst: Any) -> None:
        super().__init__("shuffler", be, src, dst)

    def __call__(self, indices: Any) -> Any:
        """Copy the samples ``indices`` of src to the start of dst, in this order.

        Parameters
        ----------
        indices : list, array or tensor of integers
            At most as many as dst has samples, with repetitions allowed. Negative ones count from the end.

        Returns
        -------
        Tensor
            The target, or its written window; the rest of dst is unchanged.

        Raises
        ------
        IndexRangeError
            If a sample does not exist.
        DTypeError
            If they are not integers.
        ShapeError
            If there are more than dst has samples. Nothing is written in any of these cases.
        """
        given: Any = indices.asnumpyarray() if isinstance(indices, Expression) else indices
        chosen = index_operand("shuffler", given, self.src_desc.batch_size, self.src.backend)
        room = self.dst_desc.batch_size
        if chosen.size > room:
            raise ShapeError(f"shuffler: {chosen.size} indices are more than the {room} samples of dst")
        target = self._target(0, chosen.size)
        if chosen.size:
            picked = self.src.backend.take(self._turned, chosen, len(self._before))
            target[:] = picked if target.backend is self.src.backend else picked.astensor()
        return target
