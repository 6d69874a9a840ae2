"""Variables: values that know what they were computed from, so that a scalar's derivatives can be asked for.

A variable is an op-tree and the variables it was made of; nothing is computed before :attr:`Variable.value` or
:meth:`Variable.backprop` asks. The engine, which says what is computed and kept then, is :mod:`neonlike.optree.tape`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from neonlike.autograd import lifetimes, passes, report
from neonlike.backends.tensor import put
from neonlike.errors import GradientError, MissingAttribute, NeonlikeError, ShapeError
from neonlike.optree import tape
from neonlike.optree.backward import TapeSweep
from neonlike.optree.dtypes import DType
from neonlike.optree.keeping import compute
from neonlike.optree.node import OpTreeNode
from neonlike.optree.shapes import Shape

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class FreedError(NeonlikeError, RuntimeError):
    """A variable was used whose memory was given back, by ``free()``, a scope, or a backward pass.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.param([[1.0]])
    >>> x.free()
    >>> try:
    ...     x.value
    ... except autograd.FreedError:
    ...     print("freed")
    freed
    """


ELSEWHERE = {
    "backward": "backprop()", "data": "value", "grad": "partial_derivative, or autograd.grad()", "grad_fn": "op",
    "is_leaf": "is_parameter", "numpy": "get()", "requires_grad": "needs_grad", "retain_grad": "keep_derivative()",
    "squeeze": "reshape(), as tensors have two axes at least", "unsqueeze": "reshape()", "var": "variance()",
}  # fmt: skip
"""What PyTorch's variables have by another name."""


class Variable:
    """A value of a function of others. Made by :func:`const`, :func:`param`, operators and ``autograd.ops``.

    Attributes
    ----------
    op : str or None
        What made it; None for constants and parameters.
    parents : tuple of Variable
        What it was made of. None are kept where no derivative is needed, or after :meth:`backprop`.
    needs_grad : bool
        Whether it is a parameter or depends on one.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x, y = autograd.const(be.array([[1, 0], [0, 1]])), autograd.param(be.ones((2, 2)))
    >>> w = autograd.sum(x + y)
    >>> w.backprop()
    >>> x.partial_derivative is None, y.partial_derivative.tolist()
    (True, [[1.0, 1.0], [1.0, 1.0]])
    """

    __slots__ = (
        "__weakref__", "_derivative", "_expr", "_spent", "_tensor", "_wanted", "name", "needs_grad", "op", "parents",
    )  # fmt: skip

    _expr: Any
    _tensor: Any
    _derivative: Any
    _spent: bool
    _wanted: bool
    op: str | None
    parents: tuple[Variable, ...]
    needs_grad: bool
    name: str | None

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there: everything, once the variable is freed."""
        if name in Variable.__slots__:
            raise FreedError(
                f"{name.lstrip('_')} of a variable that was freed; ask for what you need of it before, keep it with "
                "scope.keep(variable), or compute it again"
            )
        other = ELSEWHERE.get(name)
        text = f"a Variable has no attribute {name!r}" + (f"; use {other}" if other else "")
        raise MissingAttribute(text, "" if other or name.startswith("_") else name, lambda: dir(self))

    # Values

    @property
    def value(self) -> Any:
        """The tensor; computed when it is first asked for, from what the tensors below hold then."""
        found = self._tensor
        if found is None:
            expr = self._expr
            if expr.__class__ is not OpTreeNode:
                found = expr
            else:
                found = passes.value_of(self.backend, expr, self.needs_grad and not self._spent)
                if not self.needs_grad:
                    self._expr = found
            self._tensor = found
        return found

    @property
    def partial_derivative(self) -> Any:
        """Tensor of the derivative that :meth:`backprop` gathered since the last :meth:`zero_grad`.

        Zeros before there is any; None for what is no parameter, unless :meth:`keep_derivative` asked for it.
        """
        if not self._wanted:
            return None
        if self._derivative is None:
            self._derivative = self.backend.zeros(self.shape, dtype=self.dtype)
        return self._derivative

    @property
    def shape(self) -> Shape:
        """Sizes, at least two."""
        shape: Shape = self._expr.shape
        return shape

    @property
    def dtype(self) -> DType:
        """dtype of the value."""
        dtype: DType = self._expr.dtype
        return dtype

    @property
    def backend(self) -> Any:
        """The backend that computes it."""
        return self._expr.backend

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_parameter(self) -> bool:
        """Whether :func:`param` made it."""
        return self.needs_grad and self.op is None

    def get(self) -> Any:
        """The value as a NumPy array.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> (autograd.const([[1.0, 2.0]]) * 2).get().shape
        (1, 2)
        """
        return self.value.get()

    def item(self) -> Any:
        """The one element as a number.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> autograd.sum(autograd.const([[1.0, 2.0]])).item()
        3.0
        """
        return self.value.item()

    def tolist(self) -> list[Any]:
        """The value as nested lists.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> (autograd.const([[1.0, 2.0]]) * 2).tolist()
        [[2.0, 4.0]]
        """
        found: list[Any] = self.value.tolist()
        return found

    def assign(self, value: Any) -> Variable:
        """Give a constant or parameter new values, in memory of their own; returns self.

        What was made from the old ones still sees those, whenever it is computed; writing into ``value[:]`` instead
        saves memory, and what was not computed before will see the new values.

        Raises
        ------
        GradientError
            If it is neither.
        ShapeError
            If the shape is another.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[1.0]])
        >>> w.assign(w * 5).item()
        5.0
        """
        if self.op is not None:
            raise GradientError(f"assign: {self!r} is computed; assign to the constants and parameters below it")
        expr = value._expr if isinstance(value, Variable) else value
        be = self.backend
        tensor = be.fresh(self.shape, self.dtype)
        if isinstance(expr, OpTreeNode):
            expr, _ = compute(expr, False)
        tensor[:] = expr
        self._tensor = tensor
        self._expr = leaf_of(tensor) if self.needs_grad else tensor
        return self

    # Derivatives

    def backprop(self, keep_graph: bool = False) -> None:
        """Add the derivatives of this scalar to ``partial_derivative`` of each parameter that it depends on.

        From its third pass of one kind on it starts the kernels of the second, see :mod:`.passes`.

        Parameters
        ----------
        keep_graph : bool
            Keep what is needed for another pass, which is an error otherwise.

        Raises
        ------
        ShapeError
            If this has more than one element.
        GradientError
            If it depends on no parameter, or another pass has used its graph up. No derivative has changed then.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[1.0, 2.0]])
        >>> autograd.sum(w * w).backprop()
        >>> w.partial_derivative.tolist()
        [[2.0, 4.0]]
        """
        if not self.needs_grad:
            raise GradientError(f"backprop: {self!r} depends on no parameter; make some with autograd.param(values)")
        if self.size != 1:
            raise ShapeError(
                f"backprop: needs one element, got {self!r} of shape {self.shape}; sum it first, or take "
                "autograd.grad(variable, inputs, incoming)"
            )
        graph = upstream(self)
        wanted = [v for v in graph if v._wanted]
        more = any(v._expr.__class__ is OpTreeNode for v in wanted)
        gradients = self._differentiated({id(v._expr) for v in wanted} if more else None, keep_graph)
        _gather(self.backend, wanted, gradients)
        if not keep_graph:
            for variable in graph:
                variable._spend()

    def _differentiated(self, wanted: set[int] | None, keep_graph: bool) -> dict[int, Any]:
        """Compute the value, unless it was, and gradients by the ids of the expressions ``wanted``: those of all
        parameters if that is None."""
        be, expr = self.backend, self._expr
        is_tree = expr.__class__ is OpTreeNode
        fresh = is_tree and self._tensor is None
        known = passes.repeat(be, expr, not fresh) if is_tree and not keep_graph and wanted is None else None
        if known.__class__ is passes.Result:
            if fresh:
                self._tensor = known.value  # type: ignore[union-attr]
            return known.gradients  # type: ignore[union-attr, no-any-return]
        recording = known if known.__class__ is passes.Recording else None
        one = be.ones(expr.shape, dtype=expr.dtype) if recording is None else recording.one  # type: ignore[union-attr]
        with recording or nullcontext():  # type: ignore[union-attr]
            sweep = None
            if fresh:
                self._tensor, sweep = compute(expr, True)
            if sweep is None or wanted is not None:
                sweep = TapeSweep(expr, True, wanted)
            found = sweep.compute(one, keep_graph)
        if recording is not None:
            recording.finish(self._tensor if fresh else None, found)  # type: ignore[union-attr]
        return found

    def zero_grad(self) -> None:
        """Forget the derivative gathered so far.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[1.0]])
        >>> (w * 3).backprop()
        >>> w.zero_grad()
        >>> w.partial_derivative.item()
        0.0
        """
        self._derivative = None

    def keep_derivative(self) -> Variable:
        """Have :meth:`backprop` fill ``partial_derivative`` of this too, which is computed; returns self.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[2.0]])
        >>> square = (w * w).keep_derivative()
        >>> (square * 3).backprop()
        >>> square.partial_derivative.item()
        3.0
        """
        if not self.needs_grad:
            raise GradientError(f"keep_derivative: {self!r} depends on no parameter, so it has no derivative")
        self._wanted = True
        return self

    def detach(self) -> Variable:
        """A constant of the same value, through which no derivative flows.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[2.0]])
        >>> (w * w.detach()).backprop()
        >>> w.partial_derivative.item()
        2.0
        """
        expr = self._expr if not self.needs_grad else tape.ruled(self._expr, _NOTHING)
        return made("detach", expr, ())

    def _spend(self) -> None:
        """Forget what a backward pass has used up."""
        if self.op is not None:
            self._spent = True
            self.parents = ()
            if not self.is_freed and self._tensor is not None:
                self._expr = self._tensor

    def free(self) -> None:
        """Give the memory back; using the variable from now on is a FreedError. What others need of it stays.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[2.0]])
        >>> w.free()
        >>> w
        <Variable input, freed>
        """
        if not self.is_freed:
            del self._expr, self._tensor, self._derivative
            self._wanted = False

    @property
    def is_freed(self) -> bool:
        """Whether :meth:`free` was called, or a scope did."""
        try:
            object.__getattribute__(self, "_expr")
        except AttributeError:
            return True
        return False

    # Looking at it

    def memory_report(self) -> report.MemoryReport:
        """Numbers and bytes of the parameters, constants and kept intermediates that this depends on.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> report = autograd.sum(autograd.param([[2.0]])).memory_report()
        >>> type(report).__name__
        'MemoryReport'
        """
        return report.of_graph(upstream(self, spent_too=True))

    def explain(self) -> str:
        """Text: each op below, whether its value is kept for the backward pass, and why.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w = autograd.param([[2.0]])
        >>> "square" in autograd.square(w).explain()
        True
        """
        return report.explain(self)

    def __repr__(self) -> str:
        if self.is_freed:
            return f"<Variable {self.op or 'input'}, freed>"
        kind = self.op or ("parameter" if self.needs_grad else "constant")
        named = f" {self.name!r}" if self.name else ""
        return f"<Variable{named} {kind} {'x'.join(map(str, self.shape))} {self.dtype.name}>"

    __array_ufunc__ = None
    """NumPy's scalars and arrays leave operators to variables."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.value.__array__(dtype, copy)

    def __iter__(self) -> Iterator[Any]:
        """Slices along the first axis."""
        return (self[position] for position in range(self.shape[0]))  # type: ignore[index]

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __hash__(self) -> int:
        return id(self)


_new: Callable[[type[Variable]], Variable] = object.__new__
_NOTHING = tape.Rule("detach", (), lambda F, d, z: (), dear=False, key=tape.rule_key("detach"))


def made(op: str | None, expr: Any, parents: tuple[Variable, ...], name: str | None = None) -> Variable:
    """A variable of ``expr``, made by ``op`` of ``parents``: how every op ends.

    Parameters
    ----------
    op : str or None
        None: a constant or parameter.
    expr : Expression
        The value.
    parents : tuple of Variable
        Those that ``expr`` was made of.
    name : str, optional
    """
    variable = _new(Variable)
    needs = False
    for parent in parents:
        if parent.needs_grad:
            needs = True
            break
    variable._expr, variable.op, variable.needs_grad = expr, op, needs
    variable.parents = parents if needs else ()
    variable._tensor = variable._derivative = None
    variable._spent = variable._wanted = False
    variable.name = name
    if lifetimes.watched:
        lifetimes.watch(variable)
    return variable


def leaf_of(tensor: Any) -> Any:
    """The tensor that a parameter's expressions read: of its own on the memory of ``tensor``, apart from others."""
    be = tensor.backend
    leaf = be.tensor_cls(be, tensor.array, tensor.name)
    put(leaf, "root", tensor.root)
    leaf.is_parameter = True
    return leaf


# Graphs -----------------------------------------------------------------------------------------------------------


def upstream(root: Variable, spent_too: bool = False) -> list[Variable]:
    """``root`` and what it was made of, each once.

    Raises
    ------
    GradientError
        If a backward pass has used some of it up.
    """
    found: dict[int, Variable] = {id(root): root}
    stack = [root]
    while stack:
        variable = stack.pop()
        if variable._spent and not spent_too:
            raise GradientError(
                f"backprop: what {variable!r} was made of was freed by an earlier backprop(); call that with "
                "keep_graph=True to go through a graph twice"
            )
        for parent in variable.parents:
            if id(parent) not in found:
                found[id(parent)] = parent
                stack.append(parent)
    return list(found.values())


def _gather(be: Backend, variables: list[Variable], gradients: dict[int, Any]) -> None:
    """Add ``gradients`` to the derivatives of ``variables``; all are added or none."""
    pairs = []
    first = []
    for variable in variables:
        gradient = gradients.get(id(variable._expr))
        if gradient is None:
            continue
        if variable._derivative is None:
            first.append((variable, gradient))
        else:
            pairs.append((variable._derivative, variable._derivative + gradient))
    if pairs:
        be.assign_many(pairs)
    for variable, gradient in first:
        variable._derivative = gradient
