"""The tensor as users see it, independent of its memory. ``backends/cpu/tensor.py`` has the NumPy one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from neonlike.backends import masks, pickling, tensor_text
from neonlike.backends.batch_window import BatchWindow
from neonlike.backends.hostdata import check_fills, host_array
from neonlike.backends.inplace import InPlaceOperators
from neonlike.backends.taken import written_through
from neonlike.backends.tensor_host import TensorHost
from neonlike.checks import admit, brief
from neonlike.errors import DTypeError, FixedAttribute, ShapeError
from neonlike.optree import moves
from neonlike.optree.dialect import is_neon
from neonlike.optree.dtypes import DType
from neonlike.optree.forms import mark
from neonlike.optree.node import Expression
from neonlike.optree.origin import Origin, computed
from neonlike.optree.shapes import Shape, normalize_axes, permutation, regrouped
from neonlike.optree.truth import as_mask
from neonlike.optree.windows import contiguous

_ALL = slice(None)
_AXES = frozenset((int, slice, tuple))
"""Index types that cannot be masks: the common cases."""
_NOTHING: Any = object()
_PLAN_KEYS: dict[tuple[Any, ...], int] = {}
_plan_numbers = count()  # not the number of keys: another thread may add one before its use
_FIXED = {
    "shape": "t.reshape(...) is a view of another shape",
    "dtype": "t.astype(dtype) is a converted copy",
    "backend": "other.array(t.get()) is a copy on another backend",
    **dict.fromkeys(("array", "root", "address", "geometry", "plan_key"), "be.wrap(array) is a tensor over an array"),
}
"""Fixed attributes, and the alternative to setting each."""

put: Callable[[Any, str, Any], None] = object.__setattr__
"""Sets an attribute of a tensor under construction. Unlike a write to its ``__dict__``, this keeps the values inside
the object, where Python 3.11 and 3.12 read them fastest."""
T = TypeVar("T")


class cached(Generic[T]):  # noqa: N801
    """A property computed once, like ``functools.cached_property``, and stored by :func:`put`."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, owner: type | None = None) -> T:
        if tensor is None:
            return self  # type: ignore[return-value]
        value = self.compute(tensor)
        put(tensor, self.name, value)
        return value


class Tensor(InPlaceOperators, BatchWindow, Expression):
    """An n-dimensional array on a backend, with at least two dimensions.

    Create one with ``be.empty``, ``be.zeros``, ``be.ones``, ``be.array`` or ``be.iobuf``. Operators build lazy
    expressions; ``t[:] = expression`` computes. All attributes except shape, dtype and backend may be set.

    ``repr`` shows values, ``str`` is neon's line without them; in neon's dialect both are that line.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    backend : Backend
    name : str or None
    persist_values : bool
    base : Tensor or None
        The tensor that this one is a view of.
    rounding : int or bool
        Mantissa bits of stochastic rounding; accepted everywhere, used on the GPU.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> t = be.array([[1., 2.], [3., 4.]], name="t")
    >>> t[:] = t * 2 + 1
    >>> t[0].tolist(), t.T.shape, (t > 4).tolist()
    ([[3.0, 5.0]], (2, 2), [[0.0, 1.0], [1.0, 1.0]])
    """

    name: str | None = None
    persist_values: bool = True
    base: Tensor | None = None
    origin: Origin | None = None
    """Expression that the values were computed from, for gradients; see :mod:`neonlike.optree.origin`."""
    is_parameter: bool = False
    """Whether expressions of a :mod:`neonlike.autograd` parameter read this tensor."""
    rounding: int | bool = 0
    writeable: bool = True
    """Whether writes are allowed; False over a file mapped for reading (``objects/mapped.py``)."""
    live_host: ClassVar[bool] = True
    """Whether ``asnumpyarray()`` returns the tensor's memory, not a copy."""
    kahan_count: int = 0
    """Calls of ``be.compensated_sum`` with this tensor as compensation since its last reset."""
    kahan_reset: int = 0
    """Number of calls after which the count is reset to 0; 0: never."""

    def __init__(
        self,
        backend: TensorHost,
        shape: Shape,
        dtype: DType,
        name: str | None = None,
        persist_values: bool = True,
        base: Tensor | None = None,
    ) -> None:
        put(self, "backend", backend)
        put(self, "shape", shape)
        put(self, "dtype", dtype)
        if name is not None:
            put(self, "name", name)
        if not persist_values:
            put(self, "persist_values", persist_values)
        if base is not None:
            put(self, "base", base)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise FixedAttribute(f"{name} of a tensor cannot be set, to {brief(value)}; {_FIXED[name]}")
        try:
            put(self, name, value)
        except AttributeError:
            raise FixedAttribute(f"{name} of a tensor cannot be set: it follows from its memory") from None

    # Provided by each backend's tensor

    def get(self, stream: Any = None) -> npt.NDArray[Any]:
        """Host copy with this shape and dtype.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.array([[1, 2]]).get().tolist()
        [[1.0, 2.0]]
        """
        raise NotImplementedError

    def _view(self, selection: Any) -> Tensor:
        raise NotImplementedError

    def permuted(self, axes: tuple[int, ...]) -> Tensor:
        """View with axes in the order ``axes``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((2, 3, 4)).permuted((2, 0, 1)).shape
        (4, 2, 3)
        """
        raise NotImplementedError

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides along each axis, in elements."""
        raise NotImplementedError

    @property
    def is_contiguous(self) -> bool:
        """True if elements lie in C order without gaps."""
        raise NotImplementedError

    @property
    def ptr(self) -> int:
        """Address of the first element, for detecting shared memory."""
        raise NotImplementedError

    def check_writeable(self, operation: str) -> None:
        """Raise ReadOnlyError if the tensor is read-only; see ``objects/mapped.py``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((1, 2)).check_writeable("my function")
        """

    # Size and identity

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def _original_base(self) -> Tensor:
        root = self
        while root.base is not None:
            root = root.base
        return root

    @property
    def layout(self) -> tuple[Shape, tuple[int, ...], int]:
        """Shape, strides and offset in elements within the base tensor; strides of single rows are 0."""
        strides = tuple(0 if size == 1 else step for size, step in zip(self.shape, self.strides))
        return self.shape, strides, (self.ptr - self._original_base.ptr) // self.dtype.itemsize

    @cached
    def plan_key(self) -> int:
        """Number that identifies dtype, rank, sizes of 1 and contiguity: this tensor's part of a plan's key."""
        what = (self.dtype.char, self.is_contiguous, *[size == 1 for size in self.shape])
        return _PLAN_KEYS.setdefault(what, next(_plan_numbers))

    __hash__ = Expression.__hash__

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Yield rows: views along the first axis."""
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self) -> str:
        """Values, shape and dtype, also for ``str`` and ``print``; in neon's dialect one line without values."""
        return tensor_text.line(self) if is_neon() else tensor_text.describe(self)

    # Copies

    def __copy__(self) -> Tensor:
        return pickling.copy_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        made = memo[id(self)] = pickling.copy_tensor(self)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle values, dtype, name and ``persist_values``; loading creates a tensor on the current backend."""
        return pickling.reduce_tensor(self)

    # Indexing and assignment

    def __getitem__(self, index: Any) -> Tensor:
        """View (slices, integers) or gathered copy (a list, array or integer tensor on one axis); never below 2-D.

        ``t[t > 0]``, with a mask of this shape, returns the selected elements as a tensor (n, 1), computed at once; a
        bool vector on an axis selects its slices. Gradients flow through a copy as long as neither it nor the tensor is
        written to: :mod:`neonlike.optree.origin`.
        """
        if index.__class__ is slice and index == _ALL:
            return self
        if index.__class__ not in _AXES and (mask := as_mask(index)) is not None:
            return masks.picked(self, mask)
        return self._view(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Compute ``value`` into the elements selected by ``index``.

        The value is a tensor or an expression, with sizes equal or 1, or any argument of :meth:`set`: a number, lists,
        an array with as many elements. The whole right side is evaluated before the target changes.

        ``t[t > 0] = value`` stores at the positions of a mask of this shape: a number, an operand of this shape, or (n,
        1) values for the n elements.
        """
        if index.__class__ is slice and index == _ALL:
            self.backend.assign(self, value)
        elif index.__class__ not in _AXES and (mask := as_mask(index)) is not None:
            masks.assign(self, mask, value)
        else:
            self._set_selected(index, value)

    mark(__setitem__, "set item")

    def _set_selected(self, index: Any, value: Any) -> None:
        raise NotImplementedError

    def _assign_view(self, view: Tensor, value: Any) -> None:
        """Assign to ``view`` of this tensor, unless ``value`` is that view: ``t[1:3] += x`` has already changed it."""
        ours = value.__class__ is self.__class__ and (value is self or value.base is self)
        if not ours or view.alias_of(value) != 1:
            self.backend.assign(view, value)

    def alias_of(self, other: Any) -> int:
        """0: no shared memory, 1: exactly the same elements in the same order, 2: any other overlap.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((4, 2))
        >>> t.alias_of(t), t.alias_of(t[1:]), t.alias_of(be.ones((4, 2)))
        (1, 2, 0)
        """
        raise NotImplementedError

    def fill(self, value: float) -> Tensor:
        """Set every element to ``value`` and return self.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.empty((1, 2)).fill(3).tolist()
        [[3.0, 3.0]]
        """
        return self.backend.assign(self, value)

    def copy(self, a: Any = _NOTHING) -> Tensor:
        """Assign ``a`` to self, without a new tensor, and return self, as in neon.

        Without an argument (an addition to neon): return a new tensor with the values, through which gradients flow.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> kept = t.copy()
        >>> t[:] = 5
        >>> kept.tolist()
        [[1.0, 1.0]]
        """
        if a is _NOTHING:
            made: Tensor = computed(pickling.copy_tensor(self), self)
            return made
        return self.backend.assign(self, a)

    def copy_from(self, a: Any) -> Tensor:
        """Assign ``a`` to self and return self: as :meth:`copy`, or as :meth:`set` for host data.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.empty((1, 2)).copy_from([[1, 2]]).tolist()
        [[1.0, 2.0]]
        """
        return self.copy(a) if isinstance(a, Expression) else self.set(a)

    def set(self, ary: Any) -> Tensor:
        """Copy external values into the tensor, converted to its dtype, and return self.

        The values are a number, nested lists, a NumPy array or another library's array (by ``__array__`` or DLPack). A
        number goes into every element; an array has this shape, or one that splits or merges its axes: (C, H, W, N) for
        (C*H*W, N), (n,) for (n, 1) or (1, n). Conversion to integers rounds and saturates, see :meth:`astype`.

        Raises
        ------
        ShapeTypeError
            If the number of elements differs, or neither shape splits axes of the other.
        DTypeError
            If the data are not numbers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.empty((2, 2)).set([[1, 2], [3, 4]]).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        host = host_array("set", ary)
        if host.ndim == 0:
            return self.backend.assign(self, host.item())
        check_fills("set", host.shape, self.shape)
        self._set_host(host.reshape(self.shape))
        return self

    def _set_host(self, host: npt.NDArray[Any]) -> None:
        raise NotImplementedError

    def asnumpyarray(self) -> npt.NDArray[Any]:
        """Host array: on the CPU the tensor's memory, elsewhere a copy.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((1, 2)).asnumpyarray()
        array([[1., 1.]], dtype=float32)
        """
        return self.get()

    # Views

    @property
    def T(self) -> Tensor:
        """View with the last two axes swapped."""
        return self.permuted(_swapped(len(self.shape)))

    def transpose(self, out: Any = None) -> Any:
        """Return ``self.T``, or assign it to ``out`` and return ``out``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.array([[1, 2]]).transpose().tolist()
        [[1.0], [2.0]]
        """
        return self.T if out is None else self.backend.assign(out, self.T)

    def reshape(self, *shape: Any) -> Any:
        """View of another shape with the same number of elements; one entry may be -1. At least 2-D.

        Returns self if the shape is unchanged. If no view exists, as for transposed tensors, the result is an
        expression, which cannot be written to; in neon's dialect a copy. :meth:`viewed` returns only views.

        Raises
        ------
        ShapeError
            If the sizes do not match.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((2, 6)).reshape(3, -1).shape
        (3, 4)
        """
        new = regrouped(self.shape, shape)
        if new == self.shape:
            return self
        found = self._reshaped(new)
        if found is not None:
            return found
        copied = moves.view(self, contiguous(new))
        return copied.astensor() if is_neon() else copied

    def viewed(self, *shape: Any) -> Tensor:
        """View of another shape, as in :meth:`reshape`, for writing.

        Raises
        ------
        ShapeError
            If the sizes do not match, or the strides allow no view.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.zeros((2, 2))
        >>> t.viewed(4, 1)[3] = 1
        >>> t.tolist()
        [[0.0, 0.0], [0.0, 1.0]]
        """
        new = regrouped(self.shape, shape)
        if new == self.shape:
            return self
        found = self._reshaped(new)
        if found is None:
            raise ShapeError(
                f"viewed: {self.shape} with strides {self.strides} has no view of shape {new}; copy it first: "
                "be.empty(t.shape).copy(t).reshape(...)"
            )
        return found

    def _reshaped(self, shape: Shape) -> Tensor | None:
        """View of ``shape``, or None if the strides allow none."""
        raise NotImplementedError

    def dimension_reorder(self, new_order: Any) -> Tensor:
        """Reshape to ``[shape[d] for d in new_order]`` without moving data.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((2, 3)).dimension_reorder((1, 0)).shape
        (3, 2)
        """
        return self.viewed([self.shape[d] for d in permutation("dimension_reorder", new_order, len(self.shape))])

    def take(self, indices: Any, axis: int | None = None, out: Any = None) -> Tensor:
        """Gather slices along ``axis`` by integer ``indices`` (vector): a copy, or assigned to ``out``.

        Without an axis, elements in C order. ``be.take`` is the lazy, differentiable form.

        Parameters
        ----------
        indices : sequence of int, array or integer tensor
            A vector; negative ones count from the end.
        axis : int, optional
            None: elements in C order.
        out : tensor, optional
            Receives the slices.

        Raises
        ------
        IndexRangeError
            If an index is out of range.
        IndexTypeError
            If the indices are not integers.
        ShapeError
            If the axis does not exist.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.array([[1., 2., 3.]]).take([2, 0], axis=1).tolist()
        [[3.0, 1.0]]
        """
        if axis is None:
            picked: Any = self.backend.take(self, indices, None, out)
            return picked if isinstance(picked, Tensor) else picked.astensor()  # type: ignore[no-any-return]
        before = [_ALL] * single_axis("take", axis, self.shape)
        try:
            host = indices.get() if isinstance(indices, Tensor) else np.asarray(indices)
        except ValueError:  # lists of different lengths
            raise DTypeError(f"take: indices must be integers, got {type(indices).__name__} of other things") from None
        if host.dtype.kind == "b":
            raise DTypeError("take: indices must be integers, got bool; t[mask] picks by a mask")
        chosen = (*before, host.reshape(1) if host.ndim == 0 else host)
        if out is not None:
            return self.backend.assign(out, self[chosen])
        return written_through(self[chosen], self, chosen) if is_neon() else self[chosen]

    def astensor(self) -> Tensor:
        """Return self, for symmetry with expressions.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> t.astensor() is t
        True
        """
        return self

    def hist(self, tag: str) -> Tensor:
        """Counts of round(log2|x|) over the backend's bins, recorded under ``tag``; int32 (1, hist_bins).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> counts = be.full((1, 10), 4.0).hist("fours")
        >>> counts.shape, be.argmax(counts).item() + be.hist_offset    # 2**2
        ((1, 64), 2)
        """
        return self.backend.record_histogram(self, tag)

    def execute(self) -> Tensor:
        """Return self: a tensor is already computed.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> t.execute() is t
        True
        """
        return self


admit(Tensor, "a tensor")


@lru_cache
def _swapped(ndim: int) -> tuple[int, ...]:
    return permutation("T", None, ndim)


def single_axis(operation: str, axis: Any, shape: Shape) -> int:
    """Convert ``axis`` to a non-negative number; ShapeError if it is not exactly one axis of ``shape``.

    Parameters
    ----------
    operation : str
        Method, for the message.
    axis : int
        Negative ones count from the end.
    shape : tuple of int
    """
    axes = normalize_axes(operation, axis, shape)
    if axis is None or len(axes) != 1:
        raise ShapeError(f"{operation}: needs one axis of {shape}, got axis={brief(axis)}")
    return axes[0]
