"""``TensorDesc``: shape, dtype and layout of a tensor that need not exist, and views of tensors in other layouts.

A layout names the axes in memory order, one letter per axis: ``"NCHW"``, neon's ``"CDHWN"``, ``"TNC"`` for sequences. N
is the batch. The letters have no meaning here, except that equal letters denote the same axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from neonlike.backends.tensor import Tensor
from neonlike.checks import admit, brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree.dtypes import F32, DType, as_dtype
from neonlike.optree.shapes import Shape, as_shape, contiguous_strides, is_regrouped

BATCH = "N"
"""Letter of the batch axis."""


def neon_layout(ndim: int) -> str:
    """neon's default order of ``ndim`` axes: CN, CWN, CHWN or CDHWN.

    Raises
    ------
    ShapeError
        If there is no default for this number of axes.

    Examples
    --------
    >>> neon_layout(4)
    'CHWN'
    """
    if not 2 <= ndim <= 5:
        raise ShapeError(f"layout: there is a default for 2 to 5 axes, not for {ndim}; name them: layout='NTCHW'")
    return "C" + "DHW"[5 - ndim :] + BATCH


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Description of a tensor without its elements: a value, equal to others with the same three attributes.

    Parameters
    ----------
    shape : sequence of int
        At least two sizes, in the order of ``layout``.
    dtype : dtype
    layout : str
        One letter per axis, from outermost to innermost, N for the batch; lower case is accepted. Default: neon's,
        ``"CN"``, ``"CWN"``, ``"CHWN"`` or ``"CDHWN"``.

    Raises
    ------
    ShapeError
        For invalid sizes, fewer than two, or another number of sizes than letters.
    DTypeError
        If tensors cannot hold ``dtype``.
    ArgumentError
        For a layout that is not a string of different letters.

    Examples
    --------
    >>> images = TensorDesc((32, 3, 28, 28), "float32", "NCHW")
    >>> images.batch_axis, images.with_layout("CHWN").shape
    (0, (3, 28, 28, 32))
    """

    shape: Shape
    dtype: DType = F32
    layout: str = ""

    def __post_init__(self) -> None:
        given = tuple(self.shape) if isinstance(self.shape, (tuple, list)) else (self.shape,)
        if len(given) < 2:
            raise ShapeError(f"TensorDesc: needs a shape of at least two axes, got {brief(self.shape)}")
        object.__setattr__(self, "shape", as_shape(given, "TensorDesc"))
        object.__setattr__(self, "dtype", as_dtype(self.dtype, "TensorDesc"))
        unsaid = self.layout is None or (isinstance(self.layout, str) and not self.layout)
        layout = neon_layout(len(given)) if unsaid else checked_layout(self.layout)
        if len(layout) != len(given):
            raise ShapeError(
                f"TensorDesc: layout {layout!r} names {len(layout)} axes, the shape {self.shape} has {len(given)}"
            )
        object.__setattr__(self, "layout", layout)

    @staticmethod
    def of(thing: Any) -> TensorDesc:
        """Return a descriptor unchanged; of a tensor, its descriptor, or one in neon's layout.

        Raises
        ------
        DTypeError
            If ``thing`` is neither.
        ShapeError
            If it is a tensor of more than five axes without a descriptor.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> TensorDesc.of(be.ones((3, 4))).layout
        'CN'
        """
        if isinstance(thing, TensorDesc):
            return thing
        if not isinstance(thing, Tensor):
            raise DTypeError(f"TensorDesc: expected a descriptor or a tensor, got {shown(thing)}")
        return thing.desc if isinstance(thing.desc, TensorDesc) else TensorDesc(thing.shape, thing.dtype)

    # Derived properties

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements along each axis, for a tensor without gaps."""
        return contiguous_strides(self.shape)

    @property
    def batch_axis(self) -> int | None:
        """Position of N in the layout: 0 in NCHW, 1 in TNC, the last in neon's; None without batch axis."""
        found = self.layout.find(BATCH)
        return None if found < 0 else found

    @property
    def batch_size(self) -> int:
        """Number of samples.

        Raises
        ------
        ShapeError
            If there is no batch axis.
        """
        return self.shape[self.axis(BATCH)]

    def axis(self, letter: str) -> int:
        """Position of ``letter`` in the layout; raises ShapeError if it is missing.

        Examples
        --------
        >>> TensorDesc((8, 3, 4, 4), layout="NCHW").axis("H")
        2
        """
        found = self.layout.find(letter.upper()) if isinstance(letter, str) and len(letter) == 1 else -1
        if found < 0:
            raise ShapeError(f"TensorDesc: the layout {self.layout!r} has no axis {brief(letter)}")
        return found

    # Derived descriptors

    def with_dtype(self, dtype: Any) -> TensorDesc:
        """Copy with another dtype.

        Examples
        --------
        >>> TensorDesc((8, 3), "uint8", "NC").with_dtype("float32").dtype.name
        'float32'
        """
        return replace(self, dtype=dtype)

    def with_batch(self, count: int) -> TensorDesc:
        """Copy with ``count`` samples.

        Examples
        --------
        >>> TensorDesc((8, 3), layout="NC").with_batch(2).shape
        (2, 3)
        """
        axis = self.axis(BATCH)
        return replace(self, shape=(*self.shape[:axis], count, *self.shape[axis + 1 :]))

    def with_layout(self, layout: str) -> TensorDesc:
        """Copy with axes in the order of ``layout``, which may omit axes of size 1 and add such axes.

        Raises
        ------
        ShapeError
            If an omitted axis has another size.

        Examples
        --------
        >>> TensorDesc((8, 3, 4, 5), layout="NCHW").with_layout("CDHWN").shape
        (3, 1, 4, 5, 8)
        """
        new = checked_layout(layout)
        self._check_left_out(new)
        sizes = dict(zip(self.layout, self.shape))
        return replace(self, shape=tuple(sizes.get(letter, 1) for letter in new), layout=new)

    def _check_left_out(self, layout: str) -> None:
        for letter, size in zip(self.layout, self.shape):
            if letter not in layout and size != 1:
                raise ShapeError(
                    f"layout: {self.layout!r} {self.shape} cannot become {layout!r}, which has no {letter} for its "
                    f"{size} positions; only axes of size 1 can be left out"
                )

    # Tensors

    def view(self, tensor: Any, name: str = "tensor", operation: str = "TensorDesc.view") -> Any:
        """View ``tensor`` in this shape, unchanged or with axes split or merged, as (C*H*W, N) to (C, H, W, N).

        Parameters
        ----------
        tensor : Tensor
        name, operation : str
            Argument and method, for messages.

        Raises
        ------
        DTypeError
            If it is not a tensor, or of another dtype.
        ShapeError
            If it has another shape, or its strides allow no view.
        ArgumentError
            If it has a descriptor with another layout.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> TensorDesc((2, 3, 4), layout="CWN").view(gen_backend("cpu").ones((6, 4))).shape
        (2, 3, 4)
        """
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"{operation}: {name} must be a tensor, got {shown(tensor)}")
        if tensor.dtype != self.dtype:
            raise DTypeError(f"{operation}: {name} must hold {self.dtype.name}, got {tensor.dtype.name}")
        if tensor.desc is not None and tensor.desc.layout != self.layout and tensor.ndim == self.ndim:
            raise ArgumentError(
                f"{operation}: {name} must have the layout {self.layout!r}, got {tensor.desc.layout!r}; "
                "be.transformer(src, dst) makes the one of the other"
            )
        if tensor.shape == self.shape:
            return tensor
        if not is_regrouped(tensor.shape, self.shape):
            raise ShapeError(f"{operation}: {name} must have the shape {self.shape}, got {tensor.shape}")
        return tensor.viewed(self.shape)

    def arranged(self, tensor: Any, layout: str) -> Any:
        """View ``tensor``, of this shape, with axes in the order of ``layout``; see ``with_layout``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> desc = TensorDesc((8, 3), layout="NC")
        >>> desc.arranged(be.tensor(desc), "CN").shape
        (3, 8)
        """
        wanted, order = self.with_layout(layout), self.order(layout)
        turned = tensor if order == tuple(range(self.ndim)) else tensor.permuted(order)
        return turned.viewed(wanted.shape)

    def order(self, layout: str) -> tuple[int, ...]:
        """Order of the axes in ``layout``, followed by the axes it omits.

        Examples
        --------
        >>> TensorDesc((8, 3, 4, 5), layout="NCHW").order("CHWN")
        (1, 2, 3, 0)
        """
        kept = [self.layout.index(letter) for letter in checked_layout(layout) if letter in self.layout]
        return (*kept, *(axis for axis in range(self.ndim) if axis not in kept))

    # As plain values

    def info(self) -> dict[str, Any]:
        """The three attributes as JSON values, for :meth:`from_info`.

        Examples
        --------
        >>> TensorDesc((8, 3), "uint8", "NC").info()
        {'shape': [8, 3], 'dtype': 'uint8', 'layout': 'NC'}
        """
        return {"shape": list(self.shape), "dtype": self.dtype.name, "layout": self.layout}

    @staticmethod
    def from_info(record: Mapping[str, Any]) -> TensorDesc:
        """Create the descriptor from the result of :meth:`info`.

        Raises
        ------
        ArgumentError
            If shape, dtype or layout is missing.

        Examples
        --------
        >>> desc = TensorDesc((8, 3), "uint8", "NC")
        >>> TensorDesc.from_info(desc.info()) == desc
        True
        """
        if not isinstance(record, Mapping) or not {"shape", "dtype", "layout"} <= set(record):
            raise ArgumentError(f"TensorDesc.from_info: needs shape, dtype and layout, got {brief(record)}")
        return TensorDesc(record["shape"], record["dtype"], record["layout"])


admit(TensorDesc, "a TensorDesc")


def checked_layout(layout: Any) -> str:
    """Return ``layout`` in capitals; raise ArgumentError unless it is a string of different letters."""
    if not isinstance(layout, str) or not layout.isascii() or not layout.isalpha() or len(layout) < 2:
        raise ArgumentError(f"layout: must be two or more letters, such as 'NCHW' or 'CDHWN', got {brief(layout)}")
    upper = layout.upper()
    if len(set(upper)) != len(upper):
        raise ArgumentError(f"layout: {layout!r} names an axis twice")
    return upper
