"""Networks of blueprints: one after the other, and several side by side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from neonlike.checks import shown
from neonlike.errors import DTypeError, ShapeError
from neonlike.layers.blueprint.base import Blueprint, room
from neonlike.layers.blueprint.built import BuiltLayer, Scales, ports_of
from neonlike.layers.blueprint.description import listed

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class NetworkLayer(BuiltLayer):
    """Base of networks.

    Attributes
    ----------
    layers : list of BuiltLayer
        The layers, in the order of the blueprints.
    """

    layers: list[Any]

    def __getitem__(self, index: int) -> Any:
        """The layer at a position."""
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters of all layers."""
        return tuple(tensor for layer in self.layers for tensor in layer.parameters)

    @property
    def trainable(self) -> list[Any]:
        """All layers with parameters."""
        return [one for layer in self.layers for one in layer.trainable]

    def init(self, fn: Any, bias: Any = None) -> Any:
        """As :meth:`BuiltLayer.init`, of all layers but batch normalization, which starts at scale 1 and shift 0."""
        for layer in self.layers:
            if layer.blueprint.draws_weights:
                layer.init(fn, bias)
        return self

    def _forward(self, inference: bool) -> None:
        for layer in self.layers:
            layer._forward(inference)

    def _backward(self) -> None:
        for layer in reversed(self.layers):
            layer._backward()


class SequentialLayer(NetworkLayer):
    """The layers of a :class:`Sequential`; ``output`` is that of the last one."""

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        bp = self.blueprint
        self.layers = []
        places = [None] * len(bp.blueprints) if self.train else [self._place(*pair) for pair in enumerate(bp.buffers)]
        for blueprint, place in zip(bp.blueprints, [*places[:-1], output]):
            before = self.layers[-1] if self.layers else source
            wanted = input_gradient or bool(self.layers)
            self.layers.append(
                blueprint.build(self.train, before, workspace=self.workspace, input_gradient=wanted, output=place)
            )
        first, last = self.layers[0], self.layers[-1]
        self.input, self.diff_input = first.input, first.diff_input
        self.output, self.diff_output = last.output, last.diff_output

    def _place(self, position: int, buffer: int | None) -> Any:
        bp = self.blueprint
        if buffer is None:
            return None
        start = bp.inner_bytes + (bp.buffer_bytes[0] if buffer else 0)
        return self.workspace.tensor(bp.blueprints[position].dst_desc, offset=start)

    @property
    def diff_z(self) -> Any:
        """The tensor of the last layer."""
        return self.layers[-1].diff_z

    def leave_to_cost(self, left: bool) -> None:
        """As of the last layer."""
        self.layers[-1].leave_to_cost(left)

    def _backward_activation(self) -> None:
        self.layers[-1]._backward_activation()

    def _backward_diff(self, scales: Scales) -> None:
        """Run the backward passes of all layers with the same factors."""
        for layer in reversed(self.layers):
            if layer is not self.layers[-1]:
                layer._backward_activation()
            layer._backward_diff(scales)


class ParallelLayer(NetworkLayer):
    """The layers of a :class:`Parallel`."""

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        blueprints = self.blueprint.blueprints
        self.layers = [
            one.build(self.train, port, workspace=self.workspace, input_gradient=input_gradient)
            for one, port in zip(blueprints, ports_of(str(self.blueprint), source, len(blueprints)))
        ]
        for name in ("input", "output", "diff_input", "diff_output"):
            tensors = tuple(getattr(layer, name) for layer in self.layers)
            setattr(self, name, None if any(one is None for one in tensors) else tensors)

    def _backward_activation(self) -> None:
        for layer in self.layers:
            layer._backward_activation()

    def _backward_diff(self, scales: Scales) -> None:
        for layer in self.layers:
            layer._backward_diff(scales)


@dataclass(frozen=True)
class Network(Blueprint):
    """Base of networks, all of whose layers work in one workspace.

    Attributes
    ----------
    blueprints : tuple of Blueprint
        The blueprints of its layers.
    """

    blueprints: tuple[Blueprint, ...]

    def most(self, attribute: str) -> int:
        """The largest value that an attribute has among the blueprints."""
        return max(getattr(one, attribute) for one in self.blueprints)

    inf_workspace_bytes = property(lambda self: self.most("inf_workspace_bytes"))
    train_workspace_bytes = property(lambda self: self.most("train_workspace_bytes"))
    kernel_bytes = property(lambda self: self.most("kernel_bytes"))


@dataclass(frozen=True)
class Sequential(Network):
    """Layers one after the other; inference keeps the outputs between them in the workspace, too."""

    layer_class = SequentialLayer
    activation_name = property(lambda self: self.blueprints[-1].activation_name)

    @property
    def inf_workspace_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the layer that needs most, and of outputs, which lie in two buffers in turn."""
        return self.inner_bytes + sum(self.buffer_bytes)

    @property
    def inner_bytes(self) -> int:
        """The largest workspace of a layer in inference."""
        return self.most("inf_workspace_bytes")

    @property
    def buffers(self) -> list[int | None]:
        """For each layer, in which of two buffers its output lies in inference; None: in memory of its own."""
        found: list[int | None] = [None] * len(self.blueprints)
        for one in self.blueprints:
            if isinstance(one, Sequential) or isinstance(one.src_desc, tuple) or isinstance(one.dst_desc, tuple):
                return found
        writing = [position for position, one in enumerate(self.blueprints) if not one.hands_input_on]
        for turn, position in enumerate(writing[:-1]):
            found[position] = turn % 2
        return found

    @property
    def buffer_bytes(self) -> tuple[int, int]:
        """The sizes of both buffers."""
        sizes = [0, 0]
        for buffer, one in zip(self.buffers, self.blueprints):
            if buffer is not None:
                sizes[buffer] = max(sizes[buffer], room(one.dst_desc))
        return sizes[0], sizes[1]

    def __str__(self) -> str:
        return f"{super().__str__()} in {len(self.blueprints)} layers"


@dataclass(frozen=True)
class Parallel(Network):
    """Blueprints side by side, each with an input and an output of its own."""

    layer_class = ParallelLayer


def sequential(be: Backend, blueprints: Any) -> Sequential:
    """See ``Blueprints.sequential``."""
    chain = checked_blueprints("sequential", blueprints)
    for before, after in pairwise(chain):
        if before.train_desc != after.src_desc:
            raise ShapeError(
                f"sequential: {after} cannot follow {before}: it takes {listed(after.src_desc)}, not "
                f"{listed(before.train_desc)}"
            )
    return Sequential(be, "sequential", chain[0].src_desc, chain[-1].dst_desc, chain)


def parallel(be: Backend, blueprints: Any) -> Parallel:
    """See ``Blueprints.parallel``."""
    paths = checked_blueprints("parallel", blueprints)
    for one in paths:
        if isinstance(one.src_desc, tuple) or isinstance(one.dst_desc, tuple):
            raise ShapeError(f"parallel: takes blueprints of one input and one output, got {one}")
    sources, outputs = tuple(one.src_desc for one in paths), tuple(one.dst_desc for one in paths)
    return Parallel(be, "parallel", sources, outputs, paths)


def checked_blueprints(where: str, blueprints: Any) -> tuple[Blueprint, ...]:
    """``blueprints`` as a tuple that is not empty."""
    if isinstance(blueprints, Blueprint) or not isinstance(blueprints, (list, tuple)):
        raise DTypeError(f"{where}: takes a list of blueprints, got {shown(blueprints)}")
    for one in blueprints:
        if not isinstance(one, Blueprint):
            raise DTypeError(f"{where}: takes blueprints, got {shown(one)}")
    if not blueprints:
        raise ShapeError(f"{where}: needs at least one blueprint")
    return tuple(blueprints)
