"""The networks of ``_nets.py`` of our layers, as scripts written for neon build them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from _libraries import Array
from _nets import EPS, MOMENTUM, NETS, RHO, Call, Conv, Dense, Drawn, Inception, Lstm, Pool, Residual, data


class Builder:
    """Layers of one network, their weights drawn on the way, and where each weight's values are found later.

    Parameters
    ----------
    shape : tuple
        Of the input.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.drawn, self.channels, self.size = Drawn(), shape[0], shape[-1]
        self.flat = len(shape) != 3
        self.weighted: list[tuple[Any, Array]] = []

    def chain(self, layers: Sequence[Any]) -> list[Any]:
        """The layers in order."""
        return [made for node in layers for made in self.layers(node)]

    def layers(self, node: Any) -> list[Any]:
        """Those of one node."""
        makers = {Conv: self.conv, Pool: self.pool, Dense: self.dense, Residual: self.residual, Lstm: self.lstm}
        maker: Any = makers.get(type(node), self.inception)
        made: list[Any] = maker(node)
        return made

    def conv(self, node: Conv) -> list[Any]:
        """Convolution, batch normalisation or bias, relu."""
        from neonlike.initializers import Constant
        from neonlike.layers import Activation, BatchNorm, Conv
        from neonlike.transforms import Rectlin

        values, channels = self.drawn.filters(self.channels, node), self.channels
        window = (node.window, node.window, node.maps)
        made: list[Any] = [
            *Conv(window, values, strides=node.stride, padding=node.pad, bias=None if node.norm else Constant(0))
        ]
        self.weighted.append((made[0], values))
        made[0].shape_there = (channels, node.window, node.window, node.maps)
        if node.norm:
            made[0].bsum = True
            made.append(BatchNorm(rho=RHO, eps=EPS))
        self.channels, self.size = node.maps, (self.size + 2 * node.pad - node.window) // node.stride + 1
        return [*made, *([Activation(Rectlin())] if node.relu else [])]

    def pool(self, node: Pool) -> list[Any]:
        """Pooling."""
        from neonlike.layers import Pooling

        self.size = (self.size + 2 * node.pad - node.window) // node.stride + 1
        return [Pooling(node.window, op=node.op, strides=node.stride, padding=node.pad)]

    def dense(self, node: Dense) -> list[Any]:
        """Fully connected layer with a bias."""
        from neonlike.initializers import Constant
        from neonlike.layers import Affine
        from neonlike.transforms import Rectlin

        inputs = self.channels if self.flat else self.channels * self.size**2
        values = self.drawn.matrix(node.outputs, inputs, inputs)
        made = [*Affine(node.outputs, values, bias=Constant(0), activation=Rectlin() if node.relu else None)]
        self.weighted.append((made[0], values))
        self.channels, self.flat = node.outputs, True
        return made

    def residual(self, node: Residual) -> list[Any]:
        """Both ways around, and relu of their sum."""
        from neonlike.layers import Activation, MergeSum, SkipNode
        from neonlike.transforms import Rectlin

        channels, size = self.channels, self.size
        body = self.chain(node.body)
        after = self.channels, self.size
        self.channels, self.size = channels, size
        shortcut = self.chain(node.shortcut) or [SkipNode()]
        self.channels, self.size = after
        return [MergeSum([body, shortcut]), Activation(Rectlin())]

    def inception(self, node: Inception) -> list[Any]:
        """All branches on the same input."""
        from neonlike.layers import MergeBroadcast

        channels, size, made, maps = self.channels, self.size, [], 0
        for branch in node.branches:
            self.channels, self.size = channels, size
            made.append(self.chain(branch))
            maps += self.channels
        self.channels = maps
        return [MergeBroadcast(made, merge="depth")]

    def lstm(self, node: Lstm) -> list[Any]:
        """Gates in the order input, forget, output, cell."""
        from neonlike.layers import LSTM
        from neonlike.transforms import Logistic, Tanh

        inputs, units = self.channels, node.units
        values = self.drawn.matrix(inputs + units + 1, 4 * units, units)
        values[-1] = 0
        made = LSTM(units, values, activation=Tanh(), gate_activation=Logistic(), reset_cells=True)
        self.weighted.append((made, values))
        self.channels = units
        return [made]


class Training:
    """A network, its optimizer and a minibatch.

    Parameters
    ----------
    be : Backend
    name : str
        One of ``NETS``.
    """

    def __init__(self, be: Any, name: str) -> None:
        from neonlike.layers import Activation, GeneralizedCost
        from neonlike.models import Model
        from neonlike.optimizers import GradientDescentMomentum
        from neonlike.transforms import CrossEntropyMulti, Softmax

        self.be, self.net = be, NETS[name]
        net = self.net
        be.bsz = net.N
        builder = Builder(net.shape)
        self.model = Model([*builder.chain(net.layers), Activation(Softmax())])
        self.weighted = builder.weighted
        self.cost, self.optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(net.rate, MOMENTUM)
        self.model.initialize(net.shape[0] if len(net.shape) == 1 else net.shape, self.cost)
        x, labels = data(net)
        self.host = x
        self.x, self.t = be.array(x), be.array(np.eye(net.classes, dtype=np.float32)[labels].T)
        self.model.optimizer, self.layers = self.optimizer, self.model.layers_to_optimize
        self.costs: list[float] = []

    def step(self) -> None:
        """What ``Model.fit`` does for a minibatch; the cost is read."""
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
        units, inputs = layer.nout, layer.nin
        order = np.concatenate([np.arange(units) + gate * units for gate in (0, 1, 3, 2)])
        by_input = change[:inputs].reshape(4 * units, inputs)[order]
        return [by_input, change[inputs:-1].reshape(4 * units, units)[order]]

    def inference(self) -> Call:
        """A call that runs the network forward on one sample."""
        net = self.net
        x = self.be.array(np.ascontiguousarray(self.host.reshape(len(self.host), net.steps, net.N)[:, :, 0]))
        return lambda: self.model.fprop(x, inference=True)
