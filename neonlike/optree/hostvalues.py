"""Host values: the protocols by which Python and NumPy read a tensor or an expression.

One rule for NumPy: its *functions* receive the values as a read-only array and return NumPy results (``np.sum(t)``,
``np.exp(t)``, ``np.linalg.norm(t + 1)``); *operators* build expressions, with the tensor on either side
(``np.float32(2) * t``). NumPy cannot distinguish ``np.add(x, t)`` from ``x + t``: both build an expression.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neonlike.errors import ArgumentError, DTypeError
from neonlike.optree.dtypes import F64, DType, is_float
from neonlike.optree.shapes import Shape, ShapeTypeError

_OPERATORS: dict[np.ufunc, tuple[str, str]] = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.divide: ("__truediv__", "__rtruediv__"),
    np.floor_divide: ("__floordiv__", "__rfloordiv__"),
    np.remainder: ("__mod__", "__rmod__"),
    np.divmod: ("__divmod__", "__rdivmod__"),
    np.power: ("__pow__", "__rpow__"),
    np.matmul: ("__matmul__", "__rmatmul__"),
    np.bitwise_and: ("__and__", "__rand__"),
    np.bitwise_or: ("__or__", "__ror__"),
    np.bitwise_xor: ("__xor__", "__rxor__"),
    np.left_shift: ("__lshift__", "__rlshift__"),
    np.right_shift: ("__rshift__", "__rrshift__"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
}
"""NumPy's ufunc for each operator, and the methods that handle it with an expression on the left or on the right."""

_WRITERS = {np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask}
"""NumPy functions that write to their first argument."""


class HostValues:
    """Base of tensors and expressions: ``item()``, ``float(t)``, ``tolist()``, ``np.sum(t)``; all wait for the values.

    Each of these computes an expression anew; ``e.astensor()`` computes it once.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> t = be.array([[1., 2.]])
    >>> float(be.sum(t)), np.sum(t + 1).item()
    (3.0, 5.0)
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # our operators take precedence, for example over those of SciPy's sparse matrices

    if TYPE_CHECKING:
        shape: Shape
        dtype: DType
        backend: Any

        def asnumpyarray(self) -> npt.NDArray[Any]: ...
        def astype(self, dtype: Any) -> Any: ...  # attached by ``methods``

    # Python numbers

    def item(self) -> Any:
        """The one element as a Python number: int, float or bool.

        Raises
        ------
        ShapeError
            If there is not exactly one element.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.sum(be.ones((2, 3))).item()
        6.0
        """
        return self._number("item")

    def _number(self, operation: str) -> Any:
        if math.prod(self.shape) != 1 or not self.shape:
            raise ShapeTypeError(
                f"{operation}: needs exactly one element, got shape {self.shape}; index one first, as in t[0, 0], "
                "or take them all with tolist() or get()"
            )
        host = self.asnumpyarray()
        return float(host.item()) if is_float(host.dtype) else host.item()

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __index__(self) -> int:
        """The single integer element, as a position or a size."""
        if self.dtype.kind not in "iu":
            raise DTypeError(f"index: needs one integer, got {self.dtype.name}; round with int(t) first")
        return int(self._number("index"))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        number = self._number(f"format {spec!r}")
        try:
            return format(number, spec)
        except ValueError:
            raise ArgumentError(f"format {spec!r}: is for no {type(number).__name__}, which the element is") from None

    def tolist(self) -> list[Any]:
        """The elements as nested lists of Python numbers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.array([[1, 2], [3, 4]]).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        host = self.asnumpyarray()
        values: list[Any] = (host.astype(F64) if is_float(host.dtype) else host).tolist()
        return values

    # NumPy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ArgumentError(
                f"np.asarray: {type(self).__name__} keeps no values in NumPy's reach, so they must be copied; "
                "leave copy=False out"
            )
        host = self.asnumpyarray()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options and ufunc in _OPERATORS:
            return _operate(ufunc, *inputs)
        _refuse_out(ufunc, options)
        if method == "at" and isinstance(inputs[0], HostValues):
            raise DTypeError(f"np.{ufunc.__name__}.at: needs a NumPy array; do it to host = t.get(), then t[:] = host")
        return getattr(ufunc, method)(*_on_host(inputs), **_on_host(options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        _refuse_out(function, options)
        if function in _WRITERS and isinstance(args[0] if args else None, HostValues):
            raise DTypeError(f"np.{function.__name__}: needs a NumPy array; in a tensor, t[index] = values stores")
        return function(*_on_host(args), **_on_host(options))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise DTypeError(
            "an expression cannot be copied or saved: it stands for tensors whose values may still change; "
            "compute it, expression.astensor(), and copy or save the tensor"
        )


def _operate(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    """Apply the operator behind ``ufunc`` to ``a`` and ``b``, of which one is ours."""
    left, right = _OPERATORS[ufunc]
    ours, name, other = (a, left, b) if isinstance(a, HostValues) else (b, right, a)
    if isinstance(other, (list, tuple)):
        other = np.asarray(other)
    elif isinstance(other, np.generic) and other.dtype.kind in "fiub":
        other = other.item() if other.dtype.itemsize <= 8 else other
    return getattr(type(ours), name)(ours, other)


def _refuse_out(function: Any, options: dict[str, Any]) -> None:
    out = options.get("out")
    if any(isinstance(given, HostValues) for given in (out if isinstance(out, tuple) else (out,))):
        name = getattr(function, "__name__", "function")
        raise DTypeError(f"np.{name}: out must be a NumPy array; to store in a tensor, write t[:] = np.{name}(...)")


def _on_host(given: Any) -> Any:
    """Replace tensors and expressions in ``given`` by read-only arrays, also within lists and dicts."""
    if isinstance(given, HostValues):
        host = given.asnumpyarray().view()
        host.flags.writeable = False
        return host
    if type(given) in (list, tuple):
        return type(given)(map(_on_host, given))
    if type(given) is dict:
        return {key: _on_host(value) for key, value in given.items()}
    return given
