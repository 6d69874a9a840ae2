"""Histograms of tensors, neon's power-of-two arithmetic (``shift``, ``binarize``), and compensated sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import check_apart, check_floats, require_tensors
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree import moves, node, shapes
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import adapt, expression
from neonlike.optree.ops import OPS

F: Any = Functions


@dataclass(frozen=True, slots=True)
class Histogram:
    """Request of ``tensor.hist``: number of bins, and exponent of the first."""

    bins: int
    offset: int


class StatsFamily(Family):
    """Histogram bookkeeping: ``hist_bins``, ``hist_offset``, ``hist_max``, ``hist_idx``, ``hist_map``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.hist_bins, be.hist_offset
    (64, -48)
    """

    _hist_limit: ClassVar[int] = 4096
    """Maximum number of unread histograms, as in neon."""

    def set_hist_buffers(self, hist_bins: int, hist_offset: int) -> None:
        """Set the number of bins and the first exponent; recorded histograms are dropped if either changes.

        Raises
        ------
        ArgumentError
            If there are no bins.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_hist_buffers(16, -8)
        >>> be.ones((1, 3)).hist("ones").tolist()[0].index(3)    # 2**0
        8
        """
        if hist_bins < 1:
            raise ArgumentError(f"set_hist_buffers: hist_bins must be at least 1, got {brief(hist_bins)}")
        if (hist_bins, hist_offset) == (getattr(self, "hist_bins", None), getattr(self, "hist_offset", None)):
            return
        self.hist_bins, self.hist_offset, self.hist_max = hist_bins, hist_offset, self._hist_limit
        self._clear_histograms()

    def _clear_histograms(self) -> None:
        self.hist_map: dict[str, int] = {}
        self.hist_idx = 0
        self._hist_rows: list[Any] = []

    def record_histogram(self, tensor: Tensor, tag: str) -> Any:
        """Counts of round(log2|x|) in bins from ``hist_offset``; int32 (1, bins).

        Values out of range count in the first or last bin, as do 0 in the first and inf in the last; nan does not
        count.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.record_histogram(be.ones((1, 3)), "ones").dtype.name
        'int32'
        """
        if self.hist_idx >= self.hist_max:
            raise ArgumentError(f"hist: {self.hist_max} histograms are recorded; read them with dump_hist_data()")
        row = self.fresh((1, self.hist_bins), dtype=np.int32)
        self._histogram(Histogram(self.hist_bins, self.hist_offset), tensor, row)
        self.hist_map[tag] = self.hist_idx
        self.hist_idx += 1
        self._hist_rows.append(row)
        return row

    def _histogram(self, request: Histogram, tensor: Any, row: Any) -> None:
        """Hook: write the counts into the tensor ``row`` (1, bins); see :meth:`record_histogram`."""
        host = tensor.get()
        with np.errstate(all="ignore"):
            exponent = np.rint(np.log2(np.abs(host[~np.isnan(host)].astype(np.float32))))
        bins = np.clip(exponent - request.offset, 0, request.bins - 1).astype(np.int64)
        row.set(np.bincount(bins, minlength=request.bins).reshape(1, -1))

    def dump_hist_data(self) -> tuple[Any, dict[str, int]]:
        """Return and clear recorded histograms: an int32 tensor (used rows, bins), and the row of each tag.

        Without records the tensor has one row of zeros.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> counts = be.ones((1, 3)).hist("a"), be.zeros((1, 3)).hist("b")
        >>> data, rows = be.dump_hist_data()
        >>> data.shape, rows
        ((2, 64), {'a': 0, 'b': 1})
        """
        data = self.zeros((max(len(self._hist_rows), 1), self.hist_bins), dtype=np.int32)
        for index, row in enumerate(self._hist_rows):
            data[index] = row
        tags = self.hist_map
        self._clear_histograms()
        return data, tags

    def shift(self, ary: Any, shift_ary: Any, value: bool = True, out: Any = None) -> Any:
        """Multiply by a power of two, immediately.

        With ``value`` the factor is sgn(b) * 2**rint(log2|b|), and 0 where b is 0; else it is 2**rint(b). Ties round to
        even.

        Parameters
        ----------
        ary : tensor, expression or number
        shift_ary : tensor, expression or number
            The operand b; both operands broadcast.
        value : bool
            Whether ``shift_ary`` has numbers, or else exponents.
        out : tensor, optional
            May be ``ary`` or ``shift_ary``.

        Returns
        -------
        ``out``, or a new tensor

        Raises
        ------
        ShapeError
            If the shapes do not fit; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1., 3.]])
        >>> be.shift(x, 4.5).tolist(), be.shift(x, 2, value=False).tolist()
        ([[4.0, 12.0]], [[4.0, 12.0]])
        """
        a, b = adapt("shift", ary, self), adapt("shift", shift_ary, self)
        shifted = node.apply(OPS["shift" if value else "shift_exponent"], (a, b), self)
        if out is None:
            out = self.fresh(shifted.shape, None if shifted.backend is None else shifted.dtype)
        return self._finish(shifted, out)

    def binarize(self, ary: Any, out: Any, stochastic: bool = True) -> Any:
        """Binarize to +1 or -1, immediately: the sign (+1 for 0), or +1 with probability clip((ary+1)/2, 0, 1).

        M. Courbariaux et al., "BinaryNet", 2016, equations 1 and 2. Random numbers come from the ``rand`` stream, which
        follows the seed; each stochastic call counts as one call of ``rand``. nan gives -1.

        Parameters
        ----------
        ary : tensor or expression
            Of ``out``'s shape, or one that broadcasts to it.
        out : tensor
            May be ``ary``.
        stochastic : bool
            Draw at random; False: take the sign.

        Returns
        -------
        out

        Raises
        ------
        ShapeError
            If ``ary`` does not fit ``out``; nothing is drawn then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.binarize(be.array([[-0.3, 0., 2.]]), be.empty((1, 3)), stochastic=False).tolist()
        [[-1.0, 1.0, 1.0]]
        """
        source = expression("binarize", ary, self)
        self._check_target(out)
        if not shapes.stretches_to(source.shape, out.shape):
            raise ShapeError(f"binarize: cannot store {source.shape} in a tensor of shape {out.shape}")
        if not stochastic:
            return self.assign(out, node.apply(OPS["binarize"], (source,), self))
        if source.shape != out.shape:
            source = moves.broadcast_to(source, out.shape)  # one number per element of out
        return self.assign(out, F.where(F.greater((source + 1) / 2, self.rand()), 1, -1))

    def compensated_sum(
        self, sum_tensor: Any, cmp_tensor: Any, add_tensor: Any, cmp_scale: float = 1.0, add_scale: float = 1.0
    ) -> None:
        """Add ``add_tensor * add_scale`` to ``sum_tensor``, keeping the rounding error in ``cmp_tensor``.

        ``y = add * add_scale - cmp * cmp_scale; t = sum + y; cmp = (t - sum) - y; sum = t``: W. Kahan, "Further remarks
        on reducing truncation errors", CACM 8 (1965). If ``cmp_tensor.kahan_reset`` is set and ``kahan_count`` exceeds
        it, the compensation is reset; each call counts.

        Parameters
        ----------
        sum_tensor, cmp_tensor : tensors
            One shape and dtype, separate memory; both are written.
        add_tensor : tensor or expression
            Of their shape, or one that broadcasts to it.
        cmp_scale, add_scale : float
            Factors of the compensation and of what is added.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit together; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> total, rest = be.full((1, 1), 1e8), be.zeros((1, 1))
        >>> for _ in range(16):
        ...     be.compensated_sum(total, rest, be.ones((1, 1)))
        >>> total.item() - 1e8
        16.0
        """
        name = "compensated_sum"
        require_tensors(self, name, sum_tensor=sum_tensor, cmp_tensor=cmp_tensor)
        check_floats(name, sum_tensor=sum_tensor, cmp_tensor=cmp_tensor)
        added = expression(name, add_tensor, self)
        if cmp_tensor.shape != sum_tensor.shape or not shapes.stretches_to(added.shape, sum_tensor.shape):
            raise ShapeError(
                f"{name}: sum_tensor {sum_tensor.shape}, cmp_tensor {cmp_tensor.shape} and add_tensor {added.shape} "
                "must have one shape"
            )
        check_apart(name, {"sum_tensor": sum_tensor, "cmp_tensor": cmp_tensor}, {})
        reset, count = cmp_tensor.kahan_reset, cmp_tensor.kahan_count
        if reset and count > reset:
            cmp_scale, count = 0.0, 0
        y = added * float(add_scale)
        if cmp_scale:
            y = y - cmp_tensor * float(cmp_scale)
        if sum_tensor.dtype == compute_dtype(sum_tensor.dtype):
            total = sum_tensor + y
            self.assign_many([(cmp_tensor, (total - sum_tensor) - y), (sum_tensor, total)])
        else:  # the sum has to be rounded before its error is known
            rounded = self.fresh(sum_tensor.shape, dtype=sum_tensor.dtype)
            self.assign(rounded, sum_tensor + y)
            self.assign(cmp_tensor, (rounded - sum_tensor) - y)
            self.assign(sum_tensor, rounded)
        cmp_tensor.kahan_count = count + 1
