"""The networks of ``_nets.py`` of our layers, as scripts written for neon build them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from _libraries import Array
from _nets import EPS, MOMENTUM, RHO, Builder, Call, Conv, Dense, Lstm, Net, Pool, data, torch_gates


class OurBuilder(Builder):
    """Builds networks of our layers.

    Attributes
    ----------
    weighted : list of (layer, array)
        Layers with weights, and the values that these had at first.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.weighted: list[tuple[Any, Array]] = []

    def make_conv(self, node: Conv, values: Array) -> list[Any]:
        from neonlike.initializers import Constant
        from neonlike.layers import Activation, BatchNorm, Conv
        from neonlike.transforms import Rectlin

        window, bias = (node.window, node.window, node.maps), None if node.norm else Constant(0)
        made: list[Any] = [*Conv(window, values, strides=node.stride, padding=node.pad, bias=bias)]
        self.weighted.append((made[0], values))
        made[0].shape_there = (self.channels, *window)
        if node.norm:
            made[0].bsum = True
            made.append(BatchNorm(rho=RHO, eps=EPS))
        return [*made, *([Activation(Rectlin())] if node.relu else [])]

    def make_pool(self, node: Pool) -> list[Any]:
        from neonlike.layers import Pooling

        return [Pooling(node.window, op=node.op, strides=node.stride, padding=node.pad)]

    def make_dense(self, node: Dense, values: Array) -> list[Any]:
        from neonlike.initializers import Constant
        from neonlike.layers import Affine
        from neonlike.transforms import Rectlin

        bias, activation = Constant(0) if node.bias else None, Rectlin() if node.relu else None
        made = [*Affine(node.outputs, values, bias=bias, activation=activation)]
        self.weighted.append((made[0], values))
        return made

    def make_residual(self, body: list[Any], shortcut: list[Any]) -> list[Any]:
        from neonlike.layers import Activation, MergeSum, SkipNode
        from neonlike.transforms import Rectlin

        return [MergeSum([body, shortcut or [SkipNode()]]), Activation(Rectlin())]

    def make_inception(self, branches: Sequence[list[Any]]) -> list[Any]:
        from neonlike.layers import MergeBroadcast

        return [MergeBroadcast(list(branches), merge="depth")]

    def make_lstm(self, node: Lstm, values: Array, inputs: int) -> list[Any]:
        from neonlike.layers import LSTM
        from neonlike.transforms import Logistic, Tanh

        made = LSTM(node.units, values, activation=Tanh(), gate_activation=Logistic(), reset_cells=True)
        self.weighted.append((made, values))
        return [made]


class Training:
    """A network, its optimizer and a minibatch."""

    def __init__(self, be: Any, net: Net) -> None:
        from neonlike.layers import Activation, GeneralizedCost
        from neonlike.models import Model
        from neonlike.optimizers import GradientDescentMomentum
        from neonlike.transforms import CrossEntropyMulti, Softmax

        self.be, self.net = be, net
        be.bsz = net.N
        builder = OurBuilder(net.shape)
        self.model = Model([*builder.build(net.layers), Activation(Softmax())])
        self.weighted = builder.weighted
        self.cost, self.optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(net.rate, MOMENTUM)
        self.model.initialize(net.shape[0] if len(net.shape) == 1 else net.shape, self.cost)
        x, labels = data(net)
        self.host = x
        self.x, self.t = be.array(x), be.array(np.eye(net.classes, dtype=np.float32)[labels].T)
        self.model.optimizer, self.layers = self.optimizer, self.model.layers_to_optimize
        self.costs: list[float] = []

    def step(self) -> None:
        """Make a step as ``Model.fit`` does for a minibatch; the cost is read."""
        self.costs.append(float(self.model._train_batch(self.x, self.t, self.layers)[0, 0]))

    def result(self) -> list[Array]:
        """Costs of the steps so far, and what has changed in each weight, as PyTorch's are laid out."""
        changes: list[Array] = []
        for layer, first in self.weighted:
            change = layer.W.get() - first
            if hasattr(layer, "shape_there"):
                changes.append(change.reshape(layer.shape_there).transpose(3, 0, 1, 2))
            elif hasattr(layer, "gate_activation"):
                changes += self._gates(layer, change)
            else:
                changes.append(change)
        return [np.array(self.costs), *changes]

    @staticmethod
    def _gates(layer: Any, change: Array) -> list[Array]:
        """The parts of an LSTM's weight, with gates in PyTorch's order."""
        return torch_gates(change, layer.nin)

    def in_turn(self) -> Call:
        """A call that makes a step, and then runs the network forward on another minibatch."""
        other = self.be.array(np.ascontiguousarray(self.host[:, ::-1]))

        def call() -> None:
            self.step()
            self.model.fprop(other, inference=True)

        return call

    def inference(self) -> Call:
        """A call that runs the network forward on one sample."""
        net = self.net
        x = self.be.array(np.ascontiguousarray(self.host.reshape(len(self.host), net.steps, net.N)[:, :, 0]))
        return lambda: self.model.fprop(x, inference=True)
