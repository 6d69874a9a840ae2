"""``DynamicGraph``: runs commands on variables as they come, and gives gradients of what was run.

Values stay expressions until a tensor is asked for, as in :mod:`neonlike.autograd`. Memory is overwritten in two cases
only: a command writes into a tensor that the caller set, or through an alias, and ``minimize`` updates parameters. What
was computed from the old values, and is still to be computed, is computed first; gradients that would need the old
values are refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neonlike.autograd.blocks import grad
from neonlike.autograd.dynamic.commands import Command, Outcome, as_command, as_hint, check_count, naming
from neonlike.autograd.dynamic.dot import Entry, Made, dot
from neonlike.autograd.dynamic.html import of_graph
from neonlike.autograd.dynamic.minimise import Minimiser, OptimizerLike
from neonlike.autograd.dynamic.tensor_variable import Storage, TensorVariable, check_reached, window_of
from neonlike.autograd.dynamic.writes import Writes
from neonlike.autograd.leaves import const
from neonlike.autograd.variable import FreedError, Variable
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from neonlike.optree.dtypes import as_dtype
from neonlike.optree.shapes import as_shape

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

Given = TensorVariable | Sequence[TensorVariable]
Runs = Command | Callable[..., Any]


def maker(be: Backend) -> Callable[[], DynamicGraph]:
    """``be.dynamic_graph``: called, it makes a graph.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> with maker(be)() as g:
    ...     g.closed
    False
    """
    return partial(DynamicGraph, be)


class DynamicGraph:
    """A graph on a backend; made by ``be.dynamic_graph()``. As a context manager it is closed at the end.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.autograd.dynamic import commands
    >>> be = gen_backend("cpu")
    >>> with be.dynamic_graph() as g:
    ...     x = g.variable(value=[[1.0, 2.0]])
    ...     y = g.exec(commands.ewise("sqr"), [x])
    ...     (slope,) = g.backward(y, [x])
    ...     slope.tensor.tolist()
    [[2.0, 4.0]]
    """

    def __init__(self, be: Backend) -> None:
        self.backend = be
        self.closed = False
        self._writes = Writes()
        self._minimiser = Minimiser(be)
        self._storages: weakref.WeakSet[Storage] = weakref.WeakSet()
        self._count = 0

    # Variables

    def variable(
        self, shape: Sequence[int] | None = None, dtype: Any = None, value: Any = None, name: str | None = None
    ) -> TensorVariable:
        """A variable, of which gradients can be asked.

        Parameters
        ----------
        shape : tuple of int, optional
            Two sizes at least. Without, a command or :meth:`TensorVariable.set` gives it.
        dtype : dtype, optional
        value : array, tensor or nested lists, optional
            Copied.
        name : str, optional
            For messages and pictures.

        Raises
        ------
        ShapeError, DTypeError
            If the value has another shape, or there is no such shape or dtype.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> graph.variable((2, 3), name="w")
        <variable w 2x3>
        """
        return self._new(False, shape, dtype, value, name)

    def constant(
        self, shape: Sequence[int] | None = None, dtype: Any = None, value: Any = None, name: str | None = None
    ) -> TensorVariable:
        """A variable that nothing is kept for and no gradient can be asked of; arguments as of :meth:`variable`.

        Of commands only those without inputs may write it.

        Parameters
        ----------
        shape, dtype, value, name
            As of :meth:`variable`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> graph.constant(value=[[1.0, 2.0]]).is_constant
        True
        """
        return self._new(True, shape, dtype, value, name)

    def _new(self, constant: bool, shape: Any, dtype: Any, value: Any, name: str | None) -> TensorVariable:
        kind = "constant" if constant else "variable"
        self.check_open(kind)
        be = self.backend
        wanted = None if dtype is None else as_dtype(dtype, kind)
        sizes = None if shape is None else as_shape(shape, kind)
        found = self._named(constant, sizes, wanted, name)
        if value is not None:
            tensor = be.array(value, dtype=wanted)
            if sizes is not None and tensor.shape != sizes:
                raise ShapeError(f"{kind}: the value has the shape {tensor.shape}, shape says {sizes}")
            found.storage(kind).hold(tensor)
            self.note(None, "", (), (found,))
        return found

    def _named(self, constant: bool, shape: Any, dtype: Any, name: str | None) -> TensorVariable:
        name = self._name(name)
        storage = Storage(self.backend, constant, shape, dtype, Entry(name, constant))
        self._storages.add(storage)
        return TensorVariable(self, name, storage)

    def _name(self, given: str | None) -> str:
        """``given``, or one for a variable that has none."""
        self._count += 1
        return given or f"v{self._count - 1}"

    def alias(
        self,
        variable: TensorVariable,
        offset: Sequence[int] | None = None,
        shape: Sequence[int] = (),
        inc: Sequence[int] | None = None,
        name: str | None = None,
    ) -> TensorVariable:
        """A variable that is a part of another one: reads see what is there, writes go there.

        Parameters
        ----------
        variable : TensorVariable
            No alias itself; its elements are taken in C order.
        offset : tuple of int, optional
            Where it begins on each axis; zeros by default.
        shape : tuple of int
            Two sizes at least.
        inc : tuple of int, optional
            Sizes of the lines that it is cut from; those of ``variable`` by default. The first does not matter.
        name : str, optional
            For messages and pictures.

        Raises
        ------
        IndexRangeError
            If it reaches beyond the variable.
        ShapeError, ArgumentError

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> x = graph.variable(value=[[1.0, 2.0, 3.0]])
        >>> graph.alias(x, (0, 1), (1, 2)).get().tolist()
        [[2.0, 3.0]]
        """
        self._mine("alias", [variable])
        if variable.window is not None:
            raise ArgumentError(f"alias: {variable} is one already; make the alias of the variable below it")
        window = window_of(variable, offset, shape, inc)
        return TensorVariable(self, self._name(name), variable.storage("alias"), window)

    # Running

    def exec(
        self, command: Runs, inputs: Given = (), outputs: Given | None = None, hint: Any = None, flags: int = 0
    ) -> Any:
        """Run a command.

        Parameters
        ----------
        command : Command, or a function of expressions that returns one
            See :mod:`neonlike.autograd.dynamic.commands`.
        inputs : list of TensorVariable
        outputs : list of TensorVariable, optional
            What gets the results; new variables if not given. One with the caller's tensor, and an alias, is written
            now; others get their values when these are asked for.
        hint : Hint or dict, optional
            Strides and padding, of commands with windows.
        flags : int
            Reserved: 0.

        Returns
        -------
        TensorVariable, or a tuple of them
            The outputs; one by itself.

        Raises
        ------
        ArgumentError
            If the command takes another number of inputs or gives another number of outputs, or an output is a constant
            though there are inputs.
        ShapeError, DTypeError
            If shapes or dtypes do not fit. Nothing was written then.
        FreedError

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> x = graph.variable(value=[[1.0, 2.0]])
        >>> graph.exec(lambda x: x * x, [x]).get().tolist()
        [[1.0, 4.0]]
        """
        command = as_command(command)
        if flags != 0:
            raise ArgumentError(f"exec: flags are reserved and must be 0, got {brief(flags)}")
        read, written = _listed(inputs), None if outputs is None else _listed(outputs)
        self._mine(command.name, [*read, *(written or ())])
        check_count(command, read)
        if written is not None:
            self._check_outputs(command, read, written)
        outcome = Outcome(None, None) if not written else Outcome(written[0].shape, written[0].dtype)
        nodes = [one.node(command.name) for one in read]
        with naming(read):
            found = command.build(self.backend, as_hint(command, hint), outcome, *nodes)
        results = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(results) != command.outputs:
            raise ArgumentError(f"{command.name}: made {len(results)} results, says that it makes {command.outputs}")
        stored = self._store(command.name, results, written)
        self.note(command.name, str(command), read, stored)
        return stored[0] if command.outputs == 1 else stored

    def _check_outputs(self, command: Command, read: list[TensorVariable], written: list[TensorVariable]) -> None:
        if len(written) != command.outputs:
            raise ArgumentError(f"{command.name}: gives {command.outputs} results, got {len(written)} outputs")
        if len({id(one) for one in written}) != len(written):
            raise ArgumentError(f"{command.name}: the same variable stands twice among the outputs")
        for one in written:
            if one.is_constant and read:
                raise ArgumentError(
                    f"{command.name}: {one} cannot be an output of a command with inputs; use graph.variable()"
                )

    def _store(
        self, operation: str, results: Sequence[Variable], written: list[TensorVariable] | None
    ) -> tuple[TensorVariable, ...]:
        """Let ``written``, new variables if None, hold the results."""
        if written is None:
            written = [self._named(False, None, None, None) for _ in results]
        for one, result in zip(written, results):
            one.check_fits(operation, result)
        for one, result in zip(written, results):
            self._writes.store(one, result, operation, self._storages)
        return tuple(written)

    # Gradients

    def backward(self, f: TensorVariable, inputs: Given, df: TensorVariable | None = None, outputs: Any = None) -> Any:
        """Gradients of ``f`` by ``inputs``, as variables that can be differentiated again.

        Parameters
        ----------
        f : TensorVariable
        inputs : list of TensorVariable
            Of which none is a constant.
        df : TensorVariable, optional
            What multiplies the gradients, of f's shape; ones by default.
        outputs : list of TensorVariable, optional
            What gets them; new variables if not given.

        Returns
        -------
        tuple of TensorVariable

        Raises
        ------
        GradientError
            If an input is a constant, ``f`` does not depend on it, or values that are needed were overwritten.
        ShapeError, ArgumentError, FreedError

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> x = graph.variable(value=[[1.0, 2.0]])
        >>> (slope,) = graph.backward(graph.exec(lambda x: x * x, [x]), [x])
        >>> slope.get().tolist()
        [[2.0, 4.0]]
        """
        wanted, written = _listed(inputs), None if outputs is None else _listed(outputs)
        self._mine("backward", [f, *wanted, *([] if df is None else [df]), *(written or ())])
        for one in wanted:
            if one.is_constant:
                raise GradientError(f"backward: {one} has no gradient, since nothing is kept for constants")
        if written is not None and len(written) != len(wanted):
            raise ArgumentError(f"backward: {len(wanted)} inputs need as many outputs, got {len(written)}")
        for one in written or ():
            if one.is_constant:
                raise ArgumentError(f"backward: {one} cannot be an output; use graph.variable()")
        root, nodes = f.node("backward"), [one.node("backward") for one in wanted]
        self._writes.check(root, f.name)
        check_reached(f"backward: {f}", root, wanted)
        found = grad(root, nodes, self._incoming(f, root, df), create_graph=True)
        stored = self._store("backward", found, written)
        self.note("backward", f"backward({f.name})", [f, *wanted], stored)
        return stored

    def _incoming(self, f: TensorVariable, root: Variable, df: TensorVariable | None) -> Variable:
        if df is None:
            return const(self.backend.ones(root.shape, dtype=root.dtype))
        if df.shape != root.shape:
            raise ShapeError(f"backward: df needs the shape of {f}, {root.shape}; {df} has {df.shape}")
        return df.node("backward")

    def minimize(
        self,
        optimizer: OptimizerLike,
        losses: Given,
        parameters: Given,
        dlosses: Any = None,
        saved_aux: list[list[Any]] | None = None,
        epoch: int = 0,
    ) -> None:
        """Take one step of an optimizer that makes the sum of ``losses`` smaller.

        Gradients are derived in each call: only passes of ``backprop`` of variables are recorded and repeated.

        Parameters
        ----------
        optimizer : Optimizer
            Of ``neonlike.optimizers``. The gradients it gets are those of the losses, not divided by the batch size.
        losses : list of TensorVariable
            Of any shapes; all elements count.
        parameters : list of TensorVariable
            Updated in place.
        dlosses : list of TensorVariable, optional
            A weight for each element of each loss; ones by default.
        saved_aux : list of list of Tensor, optional
            For each parameter the optimizer's tensors, such as the velocities of momentum; empty lists are filled. The
            graph keeps them if not given.
        epoch : int
            For the optimizer's schedule.

        Raises
        ------
        GradientError
            If a parameter is a constant or computed, no loss depends on it, or values needed were overwritten. Nothing
            has changed then.
        ArgumentError, ShapeError, FreedError

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.optimizers import GradientDescentMomentum
        >>> graph = be.dynamic_graph()
        >>> w = graph.variable(value=[[1.0]])
        >>> graph.minimize(GradientDescentMomentum(0.25, 0), graph.exec(lambda w: w * w, [w]), [w])
        >>> w.get().tolist()
        [[0.5]]
        """
        roots, targets = _listed(losses), _listed(parameters)
        weights = None if dlosses is None else _listed(dlosses)
        self._mine("minimize", [*roots, *targets, *(weights or ())])
        for one in roots:
            self._writes.check(one.node("minimize"), one.name)
        gradients = self._minimiser.gradients(roots, targets, weights)
        self._writes.settle([one.node("minimize") for one in targets], self._storages)
        self._minimiser.step(optimizer, targets, gradients, saved_aux, epoch)
        for one in targets:
            storage = one.storage("minimize")
            self._writes.overwritten(storage.read())
            storage.hold(storage.memory)

    # The end, and looking at it

    def to_dot(self, long: bool = False, file: Any = None) -> str:
        """The graph in the language of Graphviz: what variables that are alive were made of.

        Parameters
        ----------
        long : bool
            With shapes, dtypes and the options of commands.
        file : path or text file, optional
            Where to write it, too.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> x = graph.variable(value=[[1.0]], name="x")
        >>> print(graph.to_dot())
        digraph dynamic_graph {
            node [fontsize=10];
            v0 [label="x"];
        }
        <BLANKLINE>
        """
        self.check_open("to_dot")
        alive = sorted(self._storages, key=lambda storage: storage.entry.name)
        text = dot([storage.entry for storage in alive], long)
        if hasattr(file, "write"):
            file.write(text)
        elif file is not None:
            Path(file).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        alive = sorted(self._storages, key=lambda storage: storage.entry.name)
        return of_graph(self.closed, [storage.entry for storage in alive])

    def close(self) -> None:
        """Free the graph: using it or its variables from now on is a FreedError. Tensors that were set stay.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> graph = be.dynamic_graph()
        >>> graph.close()
        >>> graph.closed
        True
        """
        self.closed = True
        for storage in list(self._storages):
            storage.node = storage.memory = None
        self._storages.clear()
        self._minimiser.forget()

    def __enter__(self) -> DynamicGraph:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    # For its variables

    def check_open(self, operation: str) -> None:
        """Raise FreedError if the graph was closed."""
        if self.closed:
            raise FreedError(f"{operation}: the dynamic graph was closed")

    def note(
        self, name: str | None, text: str, read: Sequence[TensorVariable], written: Sequence[TensorVariable]
    ) -> None:
        """Remember for pictures that a command has written; without ``name``, that a value was given.

        Parameters
        ----------
        name : str or None
            Name of the command.
        text : str
            The command with its options.
        read, written : sequence of TensorVariable
            Inputs and outputs.
        """
        made = None if name is None else Made(name, text, tuple(one.storage(text).entry for one in read))
        for one in written:
            storage = one.storage(text)
            value = storage.read()
            shown = f"{'x'.join(map(str, value.shape))} {value.dtype.name}"
            storage.entry = Entry(storage.name, storage.constant, shown, made)

    def _mine(self, operation: str, variables: Sequence[Any]) -> None:
        """Raise unless all are variables of this graph, and the graph is open."""
        self.check_open(operation)
        for one in variables:
            if not isinstance(one, TensorVariable):
                raise DTypeError(f"{operation}: takes variables of the graph, got {brief(one)}; see graph.variable()")
            if one.graph is not self:
                raise ArgumentError(f"{operation}: {one} belongs to another graph")


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]
