"""Networks of blueprints: one after the other, and several side by side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.checks import shown
from neonlike.errors import DTypeError, ShapeError
from neonlike.layers.blueprint.base import Blueprint, room
from neonlike.layers.blueprint.built import BuiltLayer, ports_of


@dataclass(frozen=True)
class Sequential(Blueprint):
    """Layers one after the other. All work in one workspace, in which inference keeps the outputs between them, too.

    Attributes
    ----------
    blueprints : tuple of Blueprint
    """

    blueprints: tuple[Blueprint, ...]

    kind = "sequential"

    @staticmethod
    def of(be: Any, blueprints: Any) -> Sequential:
        """The network.

        Raises
        ------
        ShapeError
            If there are none, or one's output is not the next one's input.
        DTypeError
            If something is no blueprint.
        """
        chain = tuple(checked_blueprints("sequential", blueprints))
        for before, after in pairwise(chain):
            if before.train_desc != after.src_desc:
                raise ShapeError(
                    f"sequential: {after} cannot follow {before}: it takes {describe(after.src_desc)}, not "
                    f"{describe(before.train_desc)}"
                )
        return Sequential(be, chain[0].src_desc, chain)

    @property
    def dst_desc(self) -> Any:  # type: ignore[override]
        """The output of the last one."""
        return self.blueprints[-1].dst_desc

    @property
    def activation_name(self) -> str | None:
        """The name of the last layer's activation."""
        return self.blueprints[-1].activation_name

    @property
    def inf_workspace_bytes(self) -> int:  # type: ignore[override]
        """The bytes of the layer that needs most, and of outputs, which lie in two buffers in turn."""
        return self.inner_bytes + sum(self.buffer_bytes)

    @property
    def inner_bytes(self) -> int:
        """The largest workspace of a layer in inference."""
        return max(int(one.inf_workspace_bytes) for one in self.blueprints)

    @property
    def train_workspace_bytes(self) -> int:  # type: ignore[override]
        """The bytes of the layer that needs most."""
        return max(int(one.train_workspace_bytes) for one in self.blueprints)

    @property
    def kernel_bytes(self) -> int:
        """See :class:`Blueprint`."""
        return max(one.kernel_bytes for one in self.blueprints)

    @property
    def buffers(self) -> list[int | None]:
        """For each layer, in which of two buffers its output lies in inference; None: in memory of its own."""
        found: list[int | None] = [None] * len(self.blueprints)
        if any(isinstance(one.src_desc, tuple) or isinstance(one, Sequential) for one in self.blueprints):
            return found
        if any(isinstance(one.dst_desc, tuple) for one in self.blueprints):
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

    def layer_class(self) -> Any:
        """The class of the layers."""
        return SequentialLayer

    def __str__(self) -> str:
        return f"{super().__str__()} in {len(self.blueprints)} layers"


@dataclass(frozen=True)
class Parallel(Blueprint):
    """Blueprints side by side, each with an input and an output of its own.

    Attributes
    ----------
    blueprints : tuple of Blueprint
    """

    blueprints: tuple[Blueprint, ...]

    kind = "parallel"

    @staticmethod
    def of(be: Any, blueprints: Any) -> Parallel:
        """The network.

        Raises
        ------
        ShapeError
            If there are none, or one has several inputs or outputs.
        DTypeError
            If something is no blueprint.
        """
        paths = tuple(checked_blueprints("parallel", blueprints))
        for one in paths:
            if isinstance(one.src_desc, tuple) or isinstance(one.dst_desc, tuple):
                raise ShapeError(f"parallel: takes blueprints of one input and one output, got {one}")
        return Parallel(be, tuple(one.src_desc for one in paths), paths)

    @property
    def dst_desc(self) -> tuple[TensorDesc, ...]:  # type: ignore[override]
        """The outputs."""
        return tuple(one.dst_desc for one in self.blueprints)

    @property
    def inf_workspace_bytes(self) -> int:  # type: ignore[override]
        """The bytes of the path that needs most."""
        return max(int(one.inf_workspace_bytes) for one in self.blueprints)

    @property
    def train_workspace_bytes(self) -> int:  # type: ignore[override]
        """The same in training."""
        return max(int(one.train_workspace_bytes) for one in self.blueprints)

    @property
    def kernel_bytes(self) -> int:
        """See :class:`Blueprint`."""
        return max(one.kernel_bytes for one in self.blueprints)

    def layer_class(self) -> Any:
        """The class of the layers."""
        return ParallelLayer


def checked_blueprints(where: str, blueprints: Any) -> list[Blueprint]:
    """``blueprints`` as a list that is not empty."""
    if isinstance(blueprints, Blueprint) or not isinstance(blueprints, (list, tuple)):
        raise DTypeError(f"{where}: takes a list of blueprints, got {shown(blueprints)}")
    for one in blueprints:
        if not isinstance(one, Blueprint):
            raise DTypeError(f"{where}: takes blueprints, got {shown(one)}")
    if not blueprints:
        raise ShapeError(f"{where}: needs at least one blueprint")
    return list(blueprints)


def describe(desc: Any) -> str:
    """Shapes and dtypes for messages."""
    return ", ".join(f"{one.shape} of {one.dtype.name}" for one in (desc if isinstance(desc, tuple) else (desc,)))


class NetworkLayer(BuiltLayer):
    """Base of networks.

    Attributes
    ----------
    layers : list of layers
    """

    draws_weights = True

    layers: list[Any]

    def __getitem__(self, index: int) -> Any:
        """The layer at a position."""
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Those of all layers."""
        return tuple(tensor for layer in self.layers for tensor in layer.parameters)

    @property
    def trainable(self) -> list[Any]:
        """All layers with parameters."""
        return [one for layer in self.layers for one in layer.trainable]

    def init(self, fn: Any, bias: Any = None) -> Any:
        """As :meth:`BuiltLayer.init`, of all layers but batch normalization, which starts at scale 1 and shift 0."""
        for layer in self.layers:
            if layer.draws_weights:
                layer.init(fn, bias)
        return self

    def _forward(self, inference: bool) -> None:
        for layer in self.layers:
            layer._forward(inference)


class SequentialLayer(NetworkLayer):
    """The layers of a :class:`Sequential`; ``output`` is that of the last one."""

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        bp = self.blueprint
        self.layers = []
        for position, blueprint in enumerate(bp.blueprints):
            place = output if position == len(bp.blueprints) - 1 else self._place(position)
            before = self.layers[-1] if self.layers else source
            gradient = input_gradient or position > 0
            self.layers.append(
                blueprint.build(self.train, before, workspace=self.workspace, input_gradient=gradient, output=place)
            )
        first, last = self.layers[0], self.layers[-1]
        self.input, self.diff_input, self.output = first.input, first.diff_input, last.output
        self.diff_output = last.diff_output

    def _place(self, position: int) -> Any:
        bp = self.blueprint
        buffer = None if self.train else bp.buffers[position]
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

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        """Of all layers, with the same factors."""
        for layer in reversed(self.layers):
            if layer is not self.layers[-1]:
                layer._backward_activation()
            layer._backward_diff(scale_dw, scale_g, scale_db, scale_b)


class ParallelLayer(NetworkLayer):
    """The layers of a :class:`Parallel`."""

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        self.layers = []
        blueprints = self.blueprint.blueprints
        ports = [None] * len(blueprints) if source is None else ports_of(source)
        if len(ports) != len(blueprints):
            raise ShapeError(f"{self.blueprint}: takes {len(blueprints)} inputs, got {shown(source)}")
        for blueprint, port in zip(blueprints, ports):
            self.layers.append(
                blueprint.build(self.train, port, workspace=self.workspace, input_gradient=input_gradient)
            )
        self.input, self.output, self.diff_output = (
            tuple(getattr(layer, name) for layer in self.layers) for name in ("input", "output", "diff_output")
        )
        gradients = tuple(layer.diff_input for layer in self.layers)
        self.diff_input = gradients if self.train and input_gradient else None
        if not self.train:
            self.diff_output = None

    def _backward_activation(self) -> None:
        for layer in self.layers:
            layer._backward_activation()

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        for layer in self.layers:
            layer._backward_diff(scale_dw, scale_g, scale_db, scale_b)
