"""Builder of an ONNX graph from layers.

A value of the graph has the samples first: ``(N, features)``; ``(N, steps, features)`` for a sequence, whose shape here
is (features, steps); ``(N, C, H, W)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neonlike.errors import NotDefined
from neonlike.exchange.onnx.library import DOMAIN, OPSET

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

Shape = tuple[int, ...]


class Value(NamedTuple):
    """A value of the graph: its name, and the shape of a sample as layers have it."""

    name: str
    shape: Shape


def plain(shape: Any) -> Shape:
    """The shape of a sample as a tuple; a sequence of one step counts as features."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return sizes[:1] if len(sizes) == 2 and sizes[1] == 1 else sizes


class Writer:
    """Collects nodes, constants and functions.

    Parameters
    ----------
    onnx : module
    table : dict
        Class of a layer -> function of (writer, layer, input value) that writes the layer and returns the name of its
        output; for a container with several outputs, a list of values.
    dtype : dtype
        Of all constants that are no positions or sizes.

    Attributes
    ----------
    words : set of str
        Names of values that are word numbers.
    places : dict
        Id of a BranchNode -> its value.
    """

    def __init__(self, onnx: Any, table: Mapping[type, Callable[..., Any]], dtype: Any) -> None:
        self.onnx, self.table, self.dtype = onnx, table, np.dtype(dtype)
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.functions: dict[str, Any] = {}
        self.inputs: dict[str, Shape] = {}
        self.words: set[str] = set()
        self.places: dict[int, Value] = {}
        self.path: list[str] = []
        self._layer: Any = None
        self._names: set[str] = set()

    # -- layers --------------------------------------------------------------------------------------------

    def write(self, layer: Layer, x: Any, place: int | None) -> Any:
        """Write the layer at a place of its container, or the whole network (None); return its output value."""
        before = self._layer, self.path
        self._layer, self.path = layer, [*self.path, *([] if place is None else [str(place)])]
        written = self.table.get(type(layer), _unknown)(self, layer, x)
        self._layer, self.path = before
        return Value(written, plain(layer.out_shape)) if isinstance(written, str) else written

    def refuse(self, reason: str) -> Any:
        """Raise NotDefined for the layer that is written."""
        layer = self._layer
        place = f"at {'.'.join(self.path)}" if self.path else "the whole network"
        raise NotDefined(f"to_onnx: {layer.classnm} {layer.name!r}, {place}: {reason}")

    # -- nodes ---------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        """A new name that begins with the place of the layer."""
        stem = name = "/".join([".".join(self.path), what]) if self.path else what
        count = 1
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def node(self, operator: str, inputs: Sequence[Any], outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; return the name of its output, or a list of names.

        Parameters
        ----------
        inputs : sequence
            Names and values; None for one that is left out.
        """
        names = ["" if one is None else getattr(one, "name", one) for one in inputs]
        name = self.name(operator)
        results = [name, *(f"{name}:{i}" for i in range(1, outputs))]
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(
            self.onnx.helper.make_node(operator, names, results, name=name, domain=domain, **attributes)
        )
        return name if outputs == 1 else results

    def constant(self, what: str, array: Any, dtype: Any = None) -> str:
        """Add a constant in the graph's dtype; return its name, the place of the layer and ``what``."""
        array = np.asarray(array).astype(self.dtype if dtype is None else dtype, order="C")
        name = ".".join([*self.path, what])
        count = 1
        while name in self.initializers:
            count += 1
            name = ".".join([*self.path, f"{what}_{count}"])
        self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def sizes(self, what: str, *numbers: int) -> str:
        """Add a constant of sizes or axes."""
        return self.constant(what, np.array(numbers), np.int64)

    def function(self, name: str, inputs: Sequence[str], nodes: Sequence[Any], attributes: Sequence[str] = ()) -> str:
        """Define a function of ``nodes``, the last of which writes ``y``, unless it is there; return its name."""
        if name not in self.functions:
            helper = self.onnx.helper
            self.functions[name] = helper.make_function(
                DOMAIN, name, list(inputs), ["y"], list(nodes), [helper.make_opsetid("", OPSET)], list(attributes)
            )
        return name

    def made_constant(self, name: str, array: Any, dtype: Any = None) -> Any:
        """A node that makes a constant, for the body of a function."""
        array = np.asarray(array, self.dtype if dtype is None else dtype)
        return self.onnx.helper.make_node("Constant", [], [name], value=self.onnx.numpy_helper.from_array(array))

    # -- shapes --------------------------------------------------------------------------------------------

    def in_order(self, x: Value) -> str:
        """The value with the elements of a sample in the order of its shape: sequences as (N, features, steps)."""
        return self.node("Transpose", [x], perm=[0, 2, 1]) if len(x.shape) == 2 else x.name

    def from_order(self, name: str, shape: Shape) -> str:
        """Undo :meth:`in_order` of a value of this shape."""
        return self.node("Transpose", [name], perm=[0, 2, 1]) if len(shape) == 2 else name

    def reshaped(self, x: Value, shape: Shape) -> str:
        """The value with samples of another shape, in the same order of elements."""
        if x.shape == shape:
            return x.name
        if len(shape) == 1:
            return self.node("Flatten", [self.in_order(x)], axis=1)
        sizes = self.sizes("shape", 0, *shape)
        return self.from_order(self.node("Reshape", [self.in_order(x), sizes]), shape)

    def flat(self, x: Value) -> str:
        """The value as (N, features)."""
        return self.reshaped(x, (math.prod(x.shape),))

    def steps(self, x: Value, from_image: bool = False) -> str:
        """The value as (N, steps, features); an image has its columns as steps, ``from_image``."""
        if len(x.shape) == 2:
            return x.name
        if len(x.shape) > 2 and from_image:
            axes = len(x.shape)
            turned = self.node("Transpose", [x], perm=[0, axes, *range(1, axes)])
            return self.node("Reshape", [turned, self.sizes("shape", 0, x.shape[-1], math.prod(x.shape[:-1]))])
        return self.node("Unsqueeze", [self.flat(x), self.sizes("axes", 1)])

    def without_steps(self, name: str, steps: int) -> str:
        """A sequence (N, steps, features) as (N, features) if it has one step."""
        return name if steps > 1 else self.node("Squeeze", [name, self.sizes("axes", 1)])


def _unknown(w: Writer, layer: Layer, x: Any) -> Any:
    """Refuse a layer that no table has."""
    w.refuse("ONNX has no operator for it, or this library does not know which")
