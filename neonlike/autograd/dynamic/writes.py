"""Writes of a dynamic graph: results that become values, in memory that others may have read."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

from neonlike.autograd.dynamic.tensor_variable import Storage, TensorVariable
from neonlike.autograd.variable import Variable, made, upstream
from neonlike.errors import GradientError
from neonlike.optree import tape
from neonlike.optree.node import OpTreeNode


class Writes:
    """Knows the values that were overwritten, and stores results."""

    def __init__(self) -> None:
        self._gone: dict[int, weakref.ref[Variable]] = {}  # by id: variables compare by elements

    def overwritten(self, node: Variable) -> None:
        """Remember that the memory of ``node`` holds other values from now on."""
        self._gone[id(node)] = weakref.ref(node, partial(self._gone.pop, id(node)))

    def check(self, root: Variable, name: str) -> None:
        """Raise GradientError if ``root`` was computed from values that were overwritten since."""
        for variable in upstream(root):
            if id(variable) in self._gone:
                raise GradientError(
                    f"gradient of {name}: the values of variable {variable.name} that it was computed from were "
                    "overwritten; ask for gradients before, or write to a new variable"
                )

    def settle(self, nodes: Iterable[Variable], storages: Iterable[Storage]) -> None:
        """Compute what depends on any of ``nodes`` and is not computed yet, before their memory is overwritten."""
        changing = {id(node): node.value for node in nodes}
        for storage in storages:
            value = storage.node
            if value is None or id(value) in changing:
                continue
            if any(id(variable) in changing for variable in upstream(value, spent_too=True)):
                storage.node = _settled(value, changing.values())

    def store(self, target: TensorVariable, result: Variable, operation: str, storages: Iterable[Storage]) -> None:
        """Let ``target`` hold ``result``; in its memory, if that is the caller's or an alias's.

        Parameters
        ----------
        target : TensorVariable
        result : Variable
        operation : str
            Name of the command, for messages.
        storages : iterable of Storage
            Those of the graph, which may depend on what is overwritten.
        """
        storage = target.storage(operation)
        if target.window is None and storage.memory is None:
            if not result.needs_grad:
                mine = result._expr.__class__ is OpTreeNode and result.value.base is None  # no view of another's
                storage.hold(result.value if mine else result.value.copy())
                return
            storage.node = _alone(result, storages)
            storage.node.name = storage.name
            return
        before = storage.read()
        value = result.value
        if storage.memory is not None:
            self.settle([before], storages)
            memory = storage.memory
        else:
            memory = before.value.copy()
        if target.window is None:
            memory[:] = value
            storage.node = _written(memory, result, None, storage)
        else:
            target.window.of(memory)[:] = value
            storage.node = self._patched(target, memory, before, result, storage)
        if storage.memory is not None:
            self.overwritten(before)

    def _patched(
        self, target: TensorVariable, memory: Any, before: Variable, result: Variable, storage: Storage
    ) -> Variable:
        """The value of ``memory`` after the window of ``target`` was written."""
        if before.op is None and not result.needs_grad:
            storage.hold(memory)
            return storage.read()
        return _written(memory, result, target, storage, before)


def _settled(value: Variable, changing: Iterable[Any]) -> Variable:
    """``value`` as it is now, in memory apart from the tensors ``changing``, and for what will be computed from it."""
    tensor = value.value
    if any(tensor.alias_of(other) for other in changing):
        tensor = tensor.copy()
    found = made("copy", _copied(tensor, value), (value,), value.name)
    found._tensor = tensor
    return found


def _copied(tensor: Any, value: Variable) -> Any:
    """An expression of ``tensor``, whose gradient goes to ``value``."""
    return tape.ruled(tensor, tape.Rule("copy", (value._expr,), lambda F, d, z, x: (d,), False))


def _alone(result: Variable, storages: Iterable[Storage]) -> Variable:
    """``result``, or a variable of its own if it is another one's value: each has a name and gradient of its own."""
    if result.is_parameter or any(storage.node is result for storage in storages):
        return made("copy", _copied(result._expr, result), (result,))
    return result


def _written(
    memory: Any, result: Variable, target: TensorVariable | None, storage: Storage, before: Variable | None = None
) -> Variable:
    """The value of ``memory`` as a variable made of ``result`` and, outside the window of ``target``, ``before``."""
    parents = (result,) if before is None or before.op is None else (result, before)

    def gradient(F: Any, d: Any, z: Any, *values: Any) -> tuple[Any, ...]:
        if target is None or target.window is None:
            return (d,)
        part = target.window.of(d)
        return (part,) if outside is None else (part, d * outside)

    outside = None
    if len(parents) > 1:
        assert target is not None and target.window is not None
        outside = storage.be.ones(memory.shape, dtype=memory.dtype)
        target.window.of(outside)[:] = 0
    rule = tape.Rule("write", tuple(parent._expr for parent in parents), gradient, False)
    found = made("write", tape.ruled(memory, rule), parents, storage.name)
    found._tensor = memory
    if not found.needs_grad:
        storage.hold(memory)
        return storage.read()
    return found
