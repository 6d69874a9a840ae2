"""The networks of ``_nets.py`` as one writes them in PyTorch: eager, channels last or compiled; float32 or float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from _libraries import Array
from _nets import EPS, MOMENTUM, NETS, RHO, Conv, Dense, Drawn, Inception, Lstm, Pool, Residual, data
from _sequences_torch import Way


class Builder:
    """Modules of one network, their weights drawn on the way.

    Parameters
    ----------
    way : Way
        eager, channels last or compiled; in float64 as a reference.
    shape : tuple
        Of the input.
    """

    def __init__(self, way: Way, shape: tuple[int, ...]) -> None:
        self.way, self.nn, self.drawn = way, way.torch.nn, Drawn()
        self.channels, self.size = shape[0], shape[-1]
        self.flat = len(shape) != 3

    def chain(self, layers: Sequence[Any]) -> Any:
        """The modules of ``layers`` in order."""
        return self.nn.Sequential(*[module for node in layers for module in self.modules(node)])

    def modules(self, node: Any) -> list[Any]:
        """Those of one layer."""
        makers = {Conv: self.conv, Pool: self.pool, Dense: self.dense, Residual: self.residual, Lstm: self.lstm}
        maker: Any = makers.get(type(node), self.inception)
        made: list[Any] = maker(node)
        return made

    def conv(self, node: Conv) -> list[Any]:
        """Convolution, batch normalisation or bias, relu."""
        nn, window = self.nn, node.window
        values = self.drawn.filters(self.channels, node).reshape(self.channels, window, window, node.maps)
        made = nn.Conv2d(self.channels, node.maps, window, node.stride, node.pad, bias=not node.norm)
        set_to(made.weight, values.transpose(3, 0, 1, 2))
        if not node.norm:
            set_to(made.bias, np.zeros(node.maps))
        self.channels, self.size = node.maps, (self.size + 2 * node.pad - window) // node.stride + 1
        norm = [nn.BatchNorm2d(node.maps, EPS, 1 - RHO)] if node.norm else []
        return [made, *norm, *([nn.ReLU(inplace=True)] if node.relu else [])]

    def pool(self, node: Pool) -> list[Any]:
        """Windows that go beyond the edge of the image count, as they do for neon."""
        kind = self.nn.MaxPool2d if node.op == "max" else self.nn.AvgPool2d
        self.size = (self.size + 2 * node.pad - node.window) // node.stride + 1
        return [kind(node.window, node.stride, node.pad)]

    def dense(self, node: Dense) -> list[Any]:
        """Fully connected layer with a bias."""
        before = [] if self.flat else [self.nn.Flatten()]
        inputs = self.channels if self.flat else self.channels * self.size**2
        made = self.nn.Linear(inputs, node.outputs)
        set_to(made.weight, self.drawn.matrix(node.outputs, inputs, inputs))
        set_to(made.bias, np.zeros(node.outputs))
        self.channels, self.flat = node.outputs, True
        return [*before, made, *([self.nn.ReLU(inplace=True)] if node.relu else [])]

    def residual(self, node: Residual) -> list[Any]:
        """Both ways around, and relu of their sum."""
        channels, size = self.channels, self.size
        body = self.chain(node.body)
        after = self.channels, self.size
        self.channels, self.size = channels, size
        shortcut = self.chain(node.shortcut) if node.shortcut else self.nn.Identity()
        self.channels, self.size = after
        return [_sum_of(self.way, body, shortcut)]

    def inception(self, node: Inception) -> list[Any]:
        """All branches on the same input."""
        channels, size, made, maps = self.channels, self.size, [], 0
        for branch in node.branches:
            self.channels, self.size = channels, size
            made.append(self.chain(branch))
            maps += self.channels
        self.channels = maps
        return [_joined(self.way, made)]

    def lstm(self, node: Lstm) -> list[Any]:
        """Gates are in another order here: input, forget, cell, output."""
        inputs, units = self.channels, node.units
        weights = self.drawn.matrix(inputs + units + 1, 4 * units, units)
        weights[-1] = 0
        made = self.nn.LSTM(inputs, units)
        order = np.concatenate([np.arange(units) + gate * units for gate in (0, 1, 3, 2)])
        set_to(made.weight_ih_l0, weights[:inputs].reshape(4 * units, inputs)[order])
        set_to(made.weight_hh_l0, weights[inputs:-1].reshape(4 * units, units)[order])
        for bias in (made.bias_ih_l0, made.bias_hh_l0):
            set_to(bias, np.zeros(4 * units))
        made.bias_hh_l0.requires_grad_(False)  # two biases that are added are one
        self.channels = units
        return [_outputs_of(self.way, made)]


def set_to(parameter: Any, values: Array) -> None:
    """Overwrite a parameter."""
    parameter.data.copy_(parameter.data.new_tensor(np.ascontiguousarray(values)))


def _sum_of(way: Way, body: Any, shortcut: Any) -> Any:
    torch = way.torch

    class Sum(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.shortcut(x))

    return Sum()


def _joined(way: Way, branches: list[Any]) -> Any:
    torch = way.torch

    class Joined(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.branches = torch.nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], 1)

    return Joined()


def _outputs_of(way: Way, lstm: Any) -> Any:
    class Outputs(way.torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0].flatten(0, 1)

    return Outputs()


class Training:
    """A network, its optimizer and a minibatch.

    Parameters
    ----------
    way : Way
    name : str
        One of ``NETS``.
    """

    def __init__(self, way: Way, name: str) -> None:
        torch, net = way.torch, NETS[name]
        self.way, self.net = way, net
        model = Builder(way, net.shape).chain(net.layers).to(way.device, way.dtype)
        self.model = model.to(memory_format=torch.channels_last) if way.channels_last else model
        self.first = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        trained = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = torch.optim.SGD(trained, net.rate, MOMENTUM, fused=not way.compiled)
        x, labels = data(net)
        self.x, self.labels = self.batch(x), torch.from_numpy(labels).to(way.device)
        cross_entropy = torch.nn.functional.cross_entropy

        def loss_of() -> Any:
            return cross_entropy(self.model(self.x), self.labels, reduction="sum") / net.N

        self.loss_of, self.update = way.wrap(loss_of), way.wrap(self.optimizer.step)
        self.costs: list[float] = []

    def batch(self, x: Array) -> Any:
        """Inputs (features, columns) as this network takes them, in this way's layout."""
        torch, net = self.way.torch, self.net
        columns = torch.tensor(x.T.copy(), dtype=self.way.dtype, device=self.way.device)
        if net.steps > 1:
            return columns.reshape(net.steps, -1, net.shape[0])
        images = columns.reshape(-1, *net.shape)
        return images.contiguous(memory_format=torch.channels_last) if self.way.channels_last else images

    def step(self) -> None:
        """Forward, backward, optimizer; the cost is read, as one does."""
        self.optimizer.zero_grad()
        loss = self.loss_of()
        loss.backward()
        self.update()
        self.costs.append(loss.item() / self.net.steps)

    def result(self) -> list[Array]:
        """Costs of the steps so far, and what has changed in each weight, as ours are laid out."""
        changes = [(value.detach() - self.first[name]).cpu().numpy() for name, value in self.model.named_parameters()]
        return [np.array(self.costs), *[change for change in changes if change.ndim > 1]]

    def inference(self) -> Any:
        """A call that runs the network forward on one sample."""
        torch, net = self.way.torch, self.net
        x, _ = data(net)
        one = self.batch(x.reshape(x.shape[0], net.steps, net.N)[:, :, 0])
        model = self.model.eval()
        run = self.way.wrap(lambda: model(one))

        def call() -> None:
            with torch.inference_mode():
                run()

        return call
