"""Calls of layers on variables: parameters as variables, one forward pass, and its backward pass.

A call runs ``fprop`` at once and copies the result. The layer's buffers hold the state for the backward pass. If the
layer is called again in between, the state is saved (:mod:`.snapshot`) and restored for the backward pass.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.autograd.parameters import SharedParameter, shared_parameter
from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, GradientError
from neonlike.layers.core.snapshot import Snapshot
from neonlike.optree.calls import Request

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.layers.core.protocol import CalledLayer

# Parameters -----------------------------------------------------------------------------------------------------------


def leaves_of(layer: CalledLayer) -> list[Any]:
    """The leaf layers, in the order of the forward pass."""
    return list(layer.layers_fprop()) if hasattr(layer, "layers_fprop") else [layer]


def parameters_of(layer: CalledLayer) -> list[SharedParameter]:
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
        known._entry = entry  # the list of states is replaced by loading
    return calls.parameters


def _name(layer: Any, entry: Any) -> str:
    value = entry[0][0]
    return next((name for name in layer.parameter_names() if getattr(layer, name, None) is value), "W")


# Calls ----------------------------------------------------------------------------------------------------------------


class Calls:
    """Bookkeeping of a layer's calls on variables; copies of the layer start with an empty one.

    Attributes
    ----------
    owner : weakref to Call, or None
        The call that owns the current contents of the layer's buffers.
    inputs : list of Tensor
        Inputs of the latest call; the caller owns them, so they are not restored.
    latest : Snapshot or None
        State after the latest call, while the buffers hold an older call.
    ready, passes_error : bool
        Whether the layer is set up, and whether its first layer has an error buffer.
    parameters : list of SharedParameter
        The trained weights as variables.
    """

    def __init__(self) -> None:
        self.parameters: list[SharedParameter] = []
        self.owner: weakref.ref[Call] | None = None
        self.inputs: list[Any] = []
        self.latest: Snapshot | None = None
        self.ready = self.passes_error = False

    def present(self) -> Call | None:
        """The call that owns the buffers, if it is alive."""
        return None if self.owner is None else self.owner()

    def take(self, layer: CalledLayer) -> Snapshot:
        """Save the current state of ``layer``."""
        return Snapshot(layer, [*_lasting(layer), *self.inputs])

    def make_room(self, layer: CalledLayer) -> None:
        """Save the state of the previous call before the next one, if a backward pass may still need it."""
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
    """The call bookkeeping of ``layer``."""
    found: Calls | None = vars(layer).get("_calls")
    if found is None:
        found = layer._calls = Calls()
    return found


class Call:
    """One forward pass of ``layer`` on ``inputs`` (tensors), alive as long as a backward pass can follow.

    Parameters
    ----------
    layer : Layer
        The layer, set up.
    inputs : list of Tensor
        Its inputs, ``(features, N)`` each.
    parameters : list of SharedParameter
        The variables that get its gradients.

    Attributes
    ----------
    outputs : list of Tensor
        Copies of the layer's outputs.
    snapshot : Snapshot or None
        The layer's state after the pass, saved when another call needs the buffers.
    """

    def __init__(self, layer: CalledLayer, inputs: list[Any], parameters: list[SharedParameter]) -> None:
        self.layer, self.parameters = layer, parameters
        self.snapshot: Snapshot | None = None
        self.done = False
        calls = calls_of(layer)
        calls.make_room(layer)
        copies = works_in_place(layer)
        # The identity of a new view shows later whether the layer was called in between.
        calls.inputs = given = [copied(x) if copies else x.T.T for x in inputs]
        given = layer.fprop(given if len(inputs) > 1 else given[0])
        self.outputs = [copied(y) for y in (given if isinstance(given, list) else [given])]
        self._noted = [getattr(leaf, "inputs", None) for leaf in leaves_of(layer)]
        calls.owner = weakref.ref(self)

    def is_untouched(self) -> bool:
        """Whether all calls of the layers since then were calls on variables."""
        leaves = leaves_of(self.layer)
        return all(getattr(leaf, "inputs", None) is noted for leaf, noted in zip(leaves, self._noted))

    def _enter(self) -> None:
        """Restore this call's state in the buffers."""
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
        """Run ``bprop``; return the input's error and the parameters' gradients."""
        self._enter()
        self.done = True
        given = errors if len(errors) > 1 else errors[0]
        return self.layer.bprop(given), [parameter.get_params()[0][1] for parameter in self.parameters]


class LayerGradient(Request):
    """``bprop`` of a call: the gradients of the input, if ``wanted``, and of all parameters.

    Its operands are the error, and the tensors that the gradients depend on.

    Parameters
    ----------
    made_by : Call
        The forward pass.
    shapes : list of tuple
        Shapes of the outputs.
    results : list of tuple
        Shapes of the gradients.
    dtype : dtype
        Of the gradient of the input; the others have their parameter's.
    wanted : bool
        Whether the gradient of the input is asked for.
    """

    direct: ClassVar[bool] = False

    def __init__(self, made_by: Call, shapes: list[Any], results: Any, dtype: Any, wanted: bool) -> None:
        self.call, self.shapes, self.wanted = made_by, shapes, wanted
        self.results, self.dtypes = results, (dtype, *[None] * len(results))  # type: ignore[misc]

    def run(self, be: Backend, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the gradients; gradients accumulated in the layer are preserved.

        Parameters
        ----------
        be : Backend
            The backend of the tensors.
        results : list of Tensor
            Tensors for the gradients: of the input if it is wanted, then of each parameter.
        operands : list of Tensor
            The error first; the others are what it depends on.

        Raises
        ------
        GradientError
            If the gradient of the input is wanted, but the layer passes none back.
        """
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
        """Name of the layer's method."""
        return f"{self.call.layer.name}.bprop"


# Tensors --------------------------------------------------------------------------------------------------------------


def copied(x: Any) -> Any:
    """Copy a tensor into new memory.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.

    Returns
    -------
    Tensor
        Tensor of the same shape and dtype.
    """
    made_anew = x.backend.fresh(x.shape, x.dtype)
    made_anew[:] = x
    return made_anew


def works_in_place(layer: CalledLayer) -> bool:
    """Whether the layer may overwrite its inputs: it, or a leading layer, has no output buffer."""
    first: Any = leaves_of(layer)[0]
    return not first.owns_output


def _lasting(layer: CalledLayer) -> list[Any]:
    """Tensors that outlive a call: parameters and running statistics, gradients, optimizer states."""
    found: list[Any] = []
    for leaf in leaves_of(layer):
        if leaf.has_params:
            named = [getattr(leaf, name, None) for name in leaf.parameter_names()]
            given = leaf.get_params()
            pairs = [pair for pair, _ in (given if isinstance(given, list) else [given])]
            found += [tensor for tensor in (*named, *itertools.chain(*pairs)) if isinstance(tensor, Tensor)]
    return found


def places(shapes: Sequence[Any]) -> list[tuple[int, int]]:
    """Start and end of each tensor of ``shapes`` in one joint row."""
    ends = list(itertools.accumulate((math.prod(shape) for shape in shapes), initial=0))
    return list(itertools.pairwise(ends))


def joined(tensors: Sequence[Any]) -> Any:
    """Join the elements of ``tensors`` in one row."""
    ends = places([tensor.shape for tensor in tensors])
    row = tensors[0].backend.fresh((1, ends[-1][1]), tensors[0].dtype)
    for (first, last), tensor in zip(ends, tensors):
        row[:, first:last] = tensor.reshape(1, -1)
    return row


def _split(row: Any, shapes: Sequence[Any]) -> list[Any]:
    """Split a row of :func:`joined` into views of its parts; a single tensor is returned itself."""
    if len(shapes) == 1:
        return [row]
    return [row[:, a:b].viewed(shape) for (a, b), shape in zip(places(shapes), shapes)]
