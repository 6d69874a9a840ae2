"""Variables of a dynamic graph: names for values that commands write, and windows on such values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from neonlike.autograd.dynamic.html import of_tensor_variable
from neonlike.autograd.leaves import const, param
from neonlike.autograd.variable import FreedError, Variable, upstream
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, GradientError, IndexRangeError, ShapeError
from neonlike.optree.dtypes import DType, is_float
from neonlike.optree.shapes import Shape

if TYPE_CHECKING:
    from neonlike.autograd.dynamic.dot import Entry
    from neonlike.backends.backend import Backend


class Storage:
    """The storage that a variable and its aliases share: the value's node, and the memory that writes go to.

    Attributes
    ----------
    node : Variable or None
        The value; None: nothing was written or allocated yet.
    memory : Tensor or None
        Of a value that is no result of a command, or that was written to the caller's tensor. Writes go there.
    entry : Entry
        For pictures of the graph.
    """

    def __init__(self, be: Backend, constant: bool, shape: Shape | None, dtype: DType | None, entry: Entry) -> None:
        self.be, self.constant, self.shape, self.dtype, self.entry = be, constant, shape, dtype, entry
        self.node: Variable | None = None
        self.memory: Any = None

    @property
    def name(self) -> str:
        """The variable's name, for messages."""
        return self.entry.name

    def hold(self, tensor: Any) -> None:
        """Let ``tensor`` be the value and its memory."""
        make = const if self.constant or not is_float(tensor.dtype) else param
        self.node, self.memory = make(tensor, name=self.name), tensor

    def read(self) -> Variable:
        """The value, of zeros if nothing was written yet."""
        if self.node is None:
            if self.shape is None:
                raise ShapeError(
                    f"variable {self.name}: nothing was written to it and it has no shape; make it with one, set() a "
                    "tensor, or let a command write it"
                )
            self.hold(self.be.zeros(self.shape, dtype=self.dtype or self.be.default_np_dtype))
        assert self.node is not None
        return self.node


class Window(NamedTuple):
    """Part of a storage: its elements in C order in lines of sizes ``inc``, from ``offset`` on, ``shape`` of them."""

    offset: tuple[int, ...]
    shape: Shape
    inc: tuple[int, ...]

    def of(self, value: Any) -> Any:
        """The window of ``value``: of a tensor a view, of an expression or a variable an op."""
        line = math.prod(self.inc[1:])
        size = math.prod(value.shape)
        if size % line:
            value = value.reshape((1, size))[:, : size // line * line]
        rows = value.reshape((size // line, *self.inc[1:]))
        return rows[tuple(slice(first, first + count) for first, count in zip(self.offset, self.shape))]


class TensorVariable:
    """A variable of a dynamic graph; made by its ``variable``, ``constant``, ``alias``, ``exec`` and ``backward``.

    Parameters
    ----------
    graph : DynamicGraph
    name : str
    storage : Storage
        Of the value.
    window : Window, optional
        Of an alias: its part of the storage.

    Attributes
    ----------
    graph : DynamicGraph
    name : str
        In messages and pictures.
    is_constant : bool
        Whether no gradient is computed for it.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.dynamic_graph().variable(value=[[1.0, 2.0]], name="x")
    >>> x, x.get().tolist()
    (<variable x 1x2 float32>, [[1.0, 2.0]])
    """

    def __init__(self, graph: Any, name: str, storage: Storage, window: Window | None = None) -> None:
        self.graph, self.name, self.is_constant = graph, name, storage.constant
        self._storage: Storage | None = storage
        self._window = window
        self._seen: tuple[Variable, Variable] | None = None

    @property
    def shape(self) -> Shape | None:
        """Sizes; None if nothing says them yet."""
        storage = self._alive("shape")
        if self._window is not None:
            return self._window.shape
        return storage.shape if storage.node is None else storage.node.shape

    @property
    def dtype(self) -> DType | None:
        """The type of the elements; None if nothing says it yet."""
        storage = self._alive("dtype")
        return storage.dtype if storage.node is None else storage.node.dtype

    @property
    def tensor(self) -> Any:
        """The tensor with its value, computed or, filled with zeros, allocated now; a view of the base's for an alias.

        Raises
        ------
        ShapeError
            If nothing was written to it and it has no shape.
        FreedError
        """
        value = self._alive("tensor").read()
        if self._window is None:
            return value.value
        if not value.value.is_contiguous:  # a result that is a view of its operand
            value._tensor = value.value.copy()
        return self._window.of(value.value)

    def set(self, tensor: Any) -> TensorVariable:
        """Let ``tensor`` be the value; it stays the caller's, and commands that write the variable write into it.

        What was computed from the value before stays what it is. Returns self.

        Raises
        ------
        ShapeError, DTypeError
            If the variable was made with other sizes or another dtype, or this is no contiguous tensor of the backend.
        ArgumentError
            If it is an alias.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.dynamic_graph().variable()
        >>> x.set(be.ones((1, 2))).get().tolist()
        [[1.0, 1.0]]
        """
        storage = self._alive("set")
        if self._window is not None:
            raise ArgumentError(f"set: {self} is an alias; set a tensor on the variable that it is an alias of")
        be = self.graph.backend
        if not isinstance(tensor, be.tensor_cls) or not tensor.is_contiguous:
            raise DTypeError(f"set: {self} takes a contiguous tensor of its backend, got {brief(tensor)}")
        self.check_fits("set", tensor)
        storage.hold(tensor)
        self.graph.note(None, "", (), (self,))
        return self

    def free(self) -> None:
        """Dispose of the variable: using it from now on is a FreedError. What was computed from it stays.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.dynamic_graph().variable((1, 2), name="x")
        >>> x.free()
        >>> x
        <variable x (freed)>
        """
        self._storage = self._seen = None

    def get(self) -> Any:
        """The value as a NumPy array.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.dynamic_graph().variable((1, 2)).get().tolist()
        [[0.0, 0.0]]
        """
        return self.tensor.get()

    # For the graph

    def node(self, operation: str) -> Variable:
        """The value as a variable of ``neonlike.autograd``; of an alias, one and the same for one value of its base."""
        value = self._alive(operation).read()
        if self._window is None:
            return value
        if self._seen is None or self._seen[0] is not value:
            part = self._window.of(value)
            part.name = self.name
            self._seen = value, part
        return self._seen[1]

    @property
    def window(self) -> Window | None:
        """The part of the storage that an alias is."""
        return self._window

    def storage(self, operation: str) -> Storage:
        """The storage that it shares with its aliases."""
        return self._alive(operation)

    def check_fits(self, operation: str, value: Any) -> None:
        """Raise unless ``value`` has the shape and dtype that the variable was made with, if it was."""
        storage = self._alive(operation)
        shape = storage.shape if self._window is None else self._window.shape
        dtype = storage.dtype if self._window is None or storage.node is None else storage.node.dtype
        if shape is not None and shape != value.shape:
            raise ShapeError(f"{operation}: {self} has the shape {shape}, what it is to hold has {value.shape}")
        if dtype is not None and dtype != value.dtype:
            raise DTypeError(f"{operation}: {self} is of {dtype.name}, what it is to hold of {value.dtype.name}")

    def _alive(self, operation: str) -> Storage:
        self.graph.check_open(operation)
        if self._storage is None:
            raise FreedError(f"{operation}: variable {self.name} was freed")
        return self._storage

    def __str__(self) -> str:
        kind = "alias" if self._window is not None else "constant" if self.is_constant else "variable"
        return f"{kind} {self.name}"

    def __repr__(self) -> str:
        if self._storage is None or self.graph.closed:
            return f"<{self} (freed)>"
        shape = "of no shape yet" if self.shape is None else "x".join(map(str, self.shape))
        return f"<{self} {shape}{'' if self.dtype is None else ' ' + self.dtype.name}>"

    def _repr_html_(self) -> str:
        return of_tensor_variable(self)


def check_reached(what: str, root: Variable, inputs: Sequence[TensorVariable]) -> None:
    """Raise GradientError unless ``root``, which messages call ``what``, was made of all ``inputs``.

    Parameters
    ----------
    what : str
        Name of ``root``.
    root : Variable
    inputs : sequence of TensorVariable
    """
    below = {id(one) for one in upstream(root)}
    for one in inputs:
        if id(one.node("backward")) not in below:
            raise GradientError(f"{what} does not depend on {one}; leave that out")


def window_of(
    base: TensorVariable, offset: Sequence[int] | None, shape: Sequence[int], inc: Sequence[int] | None
) -> Window:
    """The window that ``graph.alias`` asks for, checked against its base.

    Parameters
    ----------
    base, offset, shape, inc
        As of ``DynamicGraph.alias``.

    Raises
    ------
    ShapeError
        If the base has no shape yet, or the numbers of sizes differ.
    IndexRangeError
        If a part of the window lies outside.
    """
    if base.shape is None:
        raise ShapeError(f"alias: {base} has no shape yet; write it or make it with one first")
    sizes = tuple(shape)
    lines = tuple(base.shape if inc is None else inc)
    first = tuple(offset) if offset is not None else (0,) * len(sizes)
    if len(sizes) < 2 or not len(sizes) == len(lines) == len(first):
        raise ShapeError(
            f"alias: offset, shape and inc need the same number of sizes, two at least; got {first}, {sizes}, {lines}"
        )
    least = (0, 1, 1)
    for what, numbers, low in zip(("offset", "shape", "inc"), (first, sizes, lines), least):
        if any(not isinstance(n, int) or isinstance(n, bool) or n < low for n in numbers):
            raise ShapeError(f"alias: {what} must be integers of at least {low}, got {numbers}")
    rows = math.prod(base.shape) // math.prod(lines[1:])
    for axis, (start, count, there) in enumerate(zip(first, sizes, (rows, *lines[1:]))):
        if start + count > there:
            raise IndexRangeError(
                f"alias: {count} from {start} on axis {axis} reach beyond {base}, which has {there} there (shape "
                f"{base.shape}, lines of {lines})"
            )
    return Window(first, sizes, lines)
