"""Calls of layers on variables: their parameters as variables, one forward pass, and its backward pass.

A call runs ``fprop`` at once and copies its result. Until the backward pass the layer's buffers hold what that needs; a
call in between puts it aside (:mod:`.snapshot`), and the backward pass brings it back.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from neonlike.autograd.parameters import SharedParameter, shared_parameter
from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, GradientError
from neonlike.layers.core.snapshot import Snapshot
from neonlike.optree.calls import Request

# Parameters -----------------------------------------------------------------------------------------------------------


def leaves_of(layer: Any) -> list[Any]:
    """The layers that are no containers, in the order of the forward pass."""
    return list(layer.layers_fprop()) if hasattr(layer, "layers_fprop") else [layer]


def parameters_of(layer: Any) -> list[SharedParameter]:
    """See :meth:`OnVariables.parameters`."""
    if hasattr(layer, "layers_to_optimize"):
        trained = layer.layers_to_optimize
    else:
        trained = [layer] if layer.has_params else []
    return [parameter for one in trained for parameter in _of_leaf(one)]


def _of_leaf(layer: Any) -> list[SharedParameter]:
    found = layer.get_params()
    entries = found if isinstance(found, list) else [found]
    if any(value is None for (pair, _) in entries for value in pair):
        raise ArgumentError(
            f"{layer.name}.parameters: there are none before the layer is allocated; call it on a batch, or "
            "model.initialize(data)"
        )
    calls = calls_of(layer)
    same = len(calls.parameters) == len(entries) and all(
        known.get_params()[0][0] is pair[0] and known.get_params()[0][1] is pair[1]
        for known, (pair, _) in zip(calls.parameters, entries)
    )
    if not same:
        calls.parameters = [shared_parameter(entry, f"{layer.name}.{_name(layer, entry)}") for entry in entries]
    for known, entry in zip(calls.parameters, entries):
        known._entry = entry  # the list of states may be another after loading
    return calls.parameters


def _name(layer: Any, entry: Any) -> str:
    value = entry[0][0]
    return next((name for name in layer.parameter_names() if getattr(layer, name, None) is value), "W")


# Calls ----------------------------------------------------------------------------------------------------------------


class Calls:
    """The memory of a layer that was called on variables; a copy of the layer remembers nothing.

    Attributes
    ----------
    parameters : list of SharedParameter
    owner : weakref to Call, or None
        The call whose state is in the layer's buffers.
    inputs : list of Tensor
        What the latest call was given, which is not the layer's to bring back.
    latest : Snapshot or None
        The state after the latest call, while that of an older one is in the buffers.
    ready, passes_error : bool
        Whether the layer was set up, and so that its first layer has an error buffer.
    """

    def __init__(self) -> None:
        self.parameters: list[SharedParameter] = []
        self.owner: weakref.ref[Call] | None = None
        self.inputs: list[Any] = []
        self.latest: Snapshot | None = None
        self.ready = self.passes_error = False

    def present(self) -> Call | None:
        """The call whose state is in the buffers, if it is alive."""
        return None if self.owner is None else self.owner()

    def take(self, layer: Any) -> Snapshot:
        """The state of ``layer`` now."""
        return Snapshot(layer, [*_lasting(layer), *self.inputs])

    def make_room(self, layer: Any) -> None:
        """Before the next call: put aside the state of the one before, if a backward pass may still need it."""
        if self.latest is not None:
            self.latest.restore()
            self.latest = None
            return
        before = self.present()
        if before is not None and not before.done and before.is_untouched():
            before.snapshot = self.take(layer)

    def __deepcopy__(self, memo: dict[int, Any]) -> Calls:
        return Calls()

    __copy__ = __reduce__ = lambda self: (Calls, ())  # type: ignore[assignment]


def calls_of(layer: Any) -> Calls:
    """The calls of ``layer``."""
    found: Calls | None = vars(layer).get("_calls")
    if found is None:
        found = layer._calls = Calls()
    return found


class Call:
    """One forward pass of ``layer`` on ``inputs`` (tensors), alive until no backward pass can come any more.

    Attributes
    ----------
    outputs : list of Tensor
        Copies of what the layer gave.
    snapshot : Snapshot or None
        The layer's state after it, once another call needed the buffers.
    """

    def __init__(self, layer: Any, inputs: list[Any], parameters: list[SharedParameter]) -> None:
        self.layer, self.parameters = layer, parameters
        self.snapshot: Snapshot | None = None
        self.done = False
        calls = calls_of(layer)
        calls.make_room(layer)
        copies = works_in_place(layer)
        # A new view, so that it is known by its identity whether the layer was called since.
        calls.inputs = given = [copied(x) if copies else x.T.T for x in inputs]
        given = layer.fprop(given if len(inputs) > 1 else given[0])
        self.outputs = [copied(y) for y in (given if isinstance(given, list) else [given])]
        self._noted = [getattr(leaf, "inputs", None) for leaf in leaves_of(layer)]
        calls.owner = weakref.ref(self)

    def is_untouched(self) -> bool:
        """Whether the layers were not called since but by way of variables."""
        leaves = leaves_of(self.layer)
        return all(getattr(leaf, "inputs", None) is noted for leaf, noted in zip(leaves, self._noted))

    def _enter(self) -> None:
        """Bring this call's state into the buffers."""
        calls = calls_of(self.layer)
        owner = calls.present()
        if owner is not self and self.snapshot is not None:
            if calls.latest is None:
                calls.latest = calls.take(self.layer)
                if owner is not None:
                    owner.snapshot = calls.latest
            self.snapshot.restore()
            calls.owner = weakref.ref(self)
        elif owner is not self and self.done:
            raise GradientError(
                f"{self.layer.name}: backprop went through this call before, and the layer was called again since; go "
                "through it a second time before that, or call the layer once more"
            )
        elif owner is not self or not self.is_untouched():
            raise GradientError(
                f"{self.layer.name}: its layers were run otherwise since it was called on variables, so that their "
                "buffers hold another batch; call backprop before that, or run them on variables too"
            )

    def backward(self, errors: list[Any]) -> tuple[Any, list[Any]]:
        """Run ``bprop``; returns the error for what was before, and the parameters' gradients as it left them."""
        self._enter()
        self.done = True
        given = errors if len(errors) > 1 else errors[0]
        return self.layer.bprop(given), [parameter.get_params()[0][1] for parameter in self.parameters]


class LayerGradient(Request):
    """``bprop`` of a call: the gradient of the input, if that is ``wanted``, then of all parameters.

    Its operands are the error, and what these are gradients by, which it depends on.
    """

    direct: ClassVar[bool] = False

    def __init__(self, made_by: Call, shapes: list[Any], results: Any, dtype: Any, wanted: bool) -> None:
        self.call, self.shapes, self.wanted = made_by, shapes, wanted
        self.results, self.dtypes = results, (dtype, *[None] * len(results))  # type: ignore[misc]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute them; what had gathered in the layer's gradients stays there."""
        error = operands[0]
        if any(leaf.overwrites_error for leaf in leaves_of(self.call.layer)):
            error = copied(error)
        parameters = self.call.parameters
        before = [(p, copied(p._derivative)) for p in parameters if p._derivative is not None]
        try:
            deltas, gradients = self.call.backward(_split(error, self.shapes))
            if self.wanted and deltas is None:
                raise GradientError(f"{self.call.layer.name}: passes no error back, so its input has no derivative")
            errors = [deltas] if self.wanted else []
            for target, gradient in zip(results, [*errors, *gradients]):
                target[:] = gradient
        finally:
            for parameter, gathered in before:
                parameter.get_params()[0][1][:] = gathered

    def describe(self) -> str:
        """The layer's method."""
        return f"{self.call.layer.name}.bprop"


# Tensors --------------------------------------------------------------------------------------------------------------


def copied(x: Any) -> Any:
    made_anew = x.backend.fresh(x.shape, x.dtype)
    made_anew[:] = x
    return made_anew


def works_in_place(layer: Any) -> bool:
    """Whether the layer may write into what it is given: before one with outputs of its own comes one without."""
    first: Any = leaves_of(layer)[0]
    return not first.owns_output


def _lasting(layer: Any) -> list[Any]:
    """Tensors that are not of one call: parameters and running statistics, their gradients, states of optimizers."""
    found: list[Any] = []
    for leaf in leaves_of(layer):
        if leaf.has_params:
            named = [getattr(leaf, name, None) for name in leaf.parameter_names()]
            given = leaf.get_params()
            pairs = [pair for pair, _ in (given if isinstance(given, list) else [given])]
            found += [tensor for tensor in (*named, *itertools.chain(*pairs)) if isinstance(tensor, Tensor)]
    return found


def places(shapes: Sequence[Any]) -> list[tuple[int, int]]:
    """Where tensors of ``shapes`` lie in one row."""
    ends = list(itertools.accumulate((math.prod(shape) for shape in shapes), initial=0))
    return list(itertools.pairwise(ends))


def joined(tensors: Sequence[Any]) -> Any:
    """The elements of ``tensors`` in one row."""
    ends = places([tensor.shape for tensor in tensors])
    row = tensors[0].backend.fresh((1, ends[-1][1]), tensors[0].dtype)
    for (first, last), tensor in zip(ends, tensors):
        row[:, first:last] = tensor.reshape(1, -1)
    return row


def _split(row: Any, shapes: Sequence[Any]) -> list[Any]:
    """Views of the parts of a row that :func:`joined` made; of a single tensor the tensor."""
    if len(shapes) == 1:
        return [row]
    return [row[:, a:b].viewed(shape) for (a, b), shape in zip(places(shapes), shapes)]
