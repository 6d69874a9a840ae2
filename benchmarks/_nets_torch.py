"""The networks of ``_nets.py`` as one writes them in PyTorch: eager, channels last or compiled; float32 or float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _libraries import STORED, Array, autocast
from _nets import EPS, MOMENTUM, RHO, Builder, Conv, Dense, Lstm, Net, Pool, data, torch_gates
from _precision import way_of

COMPILED, CHANNELS_LAST = "torch.compile", "torch NHWC"


class Way:
    """How PyTorch is to do it.

    Parameters
    ----------
    name : str
        ``torch``, ``torch NHWC`` or ``torch.compile``; with the way to bfloat16 after it, if there is one.
    double : bool
        In float64, as a reference.
    device : str
    """

    def __init__(self, name: str, double: bool = False, device: str = "cpu") -> None:
        import torch

        name, self.rounds = way_of(name)
        self.torch, self.compiled, self.channels_last = torch, name == COMPILED, name == CHANNELS_LAST
        single = torch.bfloat16 if self.rounds == STORED else torch.float32
        self.dtype, self.device = torch.float64 if double else single, device

    def tensor(self, array: Array, trained: bool = False) -> Any:
        """A tensor of its own memory, rows contiguous."""
        made = self.torch.tensor(np.ascontiguousarray(array), dtype=self.dtype)
        return made.requires_grad_(trained)

    def images(self, array: Array, axes: tuple[int, ...]) -> Any:
        """Maps or filters of four axes, in the layout of this way."""
        made = self.tensor(array.transpose(axes))
        form = self.torch.channels_last if self.channels_last else self.torch.contiguous_format
        return made.contiguous(memory_format=form).requires_grad_(True)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiled where that is the way."""
        compiled: Callable[..., Any] = self.torch.compile(function, dynamic=False)
        return compiled if self.compiled else function

    def run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """:meth:`wrap`, under autocast where that is the way; of what goes forward."""
        return autocast(self.torch, self.rounds, self.wrap(function))


class TorchBuilder(Builder):
    """Builds networks of PyTorch's modules.

    Parameters
    ----------
    way : Way
        eager, channels last or compiled; in float64 as a reference.
    shape : tuple
        Of the input.
    """

    def __init__(self, way: Way, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.way, self.nn = way, way.torch.nn

    def make_conv(self, node: Conv, values: Array) -> list[Any]:
        nn, window = self.nn, node.window
        made = nn.Conv2d(self.channels, node.maps, window, node.stride, node.pad, bias=not node.norm)
        set_to(made.weight, values.reshape(self.channels, window, window, node.maps).transpose(3, 0, 1, 2))
        if not node.norm:
            set_to(made.bias, np.zeros(node.maps))
        norm = [nn.BatchNorm2d(node.maps, EPS, 1 - RHO)] if node.norm else []
        return [made, *norm, *([nn.ReLU(inplace=True)] if node.relu else [])]

    def make_pool(self, node: Pool) -> list[Any]:
        """Windows that go beyond the edge of the image count, as they do for neon."""
        kind = self.nn.MaxPool2d if node.op == "max" else self.nn.AvgPool2d
        return [kind(node.window, node.stride, node.pad)]

    def make_dense(self, node: Dense, values: Array) -> list[Any]:
        made = self.nn.Linear(values.shape[1], node.outputs, bias=node.bias)
        set_to(made.weight, values)
        if node.bias:
            set_to(made.bias, np.zeros(node.outputs))
        before = [] if self.flat else [self.nn.Flatten()]
        return [*before, made, *([self.nn.ReLU(inplace=True)] if node.relu else [])]

    def make_residual(self, body: list[Any], shortcut: list[Any]) -> list[Any]:
        around = self.nn.Sequential(*shortcut) if shortcut else self.nn.Identity()
        return [_sum_of(self.way, self.nn.Sequential(*body), around)]

    def make_inception(self, branches: Sequence[list[Any]]) -> list[Any]:
        return [_joined(self.way, [self.nn.Sequential(*branch) for branch in branches])]

    def make_lstm(self, node: Lstm, values: Array, inputs: int) -> list[Any]:
        made = self.nn.LSTM(inputs, node.units)
        for parameter, weights in zip((made.weight_ih_l0, made.weight_hh_l0), torch_gates(values, inputs)):
            set_to(parameter, weights)
        for bias in (made.bias_ih_l0, made.bias_hh_l0):
            set_to(bias, np.zeros(4 * node.units))
        made.bias_hh_l0.requires_grad_(False)  # two biases that are added are one
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
    """A network, its optimizer and a minibatch."""

    def __init__(self, way: Way, net: Net) -> None:
        torch = way.torch
        self.way, self.net = way, net
        model = way.torch.nn.Sequential(*TorchBuilder(way, net.shape).build(net.layers)).to(way.device, way.dtype)
        self.model = model.to(memory_format=torch.channels_last) if way.channels_last else model
        self.first = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        trained = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = torch.optim.SGD(trained, net.rate, MOMENTUM, fused=not way.compiled)
        x, labels = data(net)
        self.x, self.labels = self.batch(x), torch.from_numpy(labels).to(way.device)
        cross_entropy = torch.nn.functional.cross_entropy

        def loss_of() -> Any:
            made = self.model(self.x)
            made = made.float() if way.rounds else made  # costs are of float32 wherever products are not
            return cross_entropy(made, self.labels, reduction="sum") / net.N

        self.loss_of, self.update = way.run(loss_of), way.wrap(self.optimizer.step)
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

    def in_turn(self) -> Any:
        """A call that makes a step, and then runs the network forward on another minibatch."""
        torch = self.way.torch
        other = self.batch(np.ascontiguousarray(data(self.net)[0][:, ::-1]))
        run = self.way.run(lambda: self.model(other))

        def call() -> None:
            self.step()
            self.model.eval()
            with torch.inference_mode():
                run()
            self.model.train()

        return call

    def inference(self) -> Any:
        """A call that runs the network forward on one sample."""
        torch, net = self.way.torch, self.net
        x, _ = data(net)
        one = self.batch(x.reshape(x.shape[0], net.steps, net.N)[:, :, 0])
        model = self.model.eval()
        run = self.way.run(lambda: model(one))

        def call() -> None:
            with torch.inference_mode():
                run()

        return call
