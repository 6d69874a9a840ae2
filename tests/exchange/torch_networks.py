"""Networks as people write them with PyTorch, small and with random weights, for tests of their ONNX files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Lambda(nn.Module):
    """A module of a function and of modules that it uses."""

    def __init__(self, forward: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleList(parts), forward

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.parts)


def randomized(module: nn.Module) -> nn.Module:
    """The module in inference, with running statistics and factors of normalizations that are none of the defaults."""
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.dtype.is_floating_point and value.ndim == 1:
            low, high = (0.5, 1.5) if name.endswith(("weight", "running_var")) else (-0.5, 0.5)
            nn.init.uniform_(value, low, high)
    return module.eval()


def normed(maps: int, wanted: int, size: int = 3, stride: int = 1, groups: int = 1, last: Any = None) -> nn.Module:
    """A convolution without bias, a normalization, an activation."""
    own = nn.Conv2d(maps, wanted, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(own, nn.BatchNorm2d(wanted), nn.ReLU() if last is None else last)


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(16 * 2 * 2, 12), nn.Tanh(), nn.Linear(12, 10), nn.LogSoftmax(1),
    )  # fmt: skip


def view_lenet() -> nn.Module:
    """By functions, and ``view`` with the size of the batch."""
    def forward(x: Any, first: Any, second: Any, top: Any) -> Any:
        x = functional.max_pool2d(functional.relu(first(x)), 2)
        x = functional.max_pool2d(functional.relu(second(x)), 2)
        return functional.softmax(top(x.view(x.size(0), -1)), dim=1)

    return Lambda(forward, nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.Linear(8 * 16, 10))


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 5),
    )  # fmt: skip


def residual_block(maps: int, wanted: int, stride: int) -> nn.Module:
    way = nn.Sequential(normed(maps, wanted, 3, stride), normed(wanted, wanted, last=nn.Identity()))
    beside = normed(maps, wanted, 1, stride, last=nn.Identity()) if stride > 1 else nn.Identity()
    return Lambda(lambda x, a, b: functional.relu(a(x) + b(x)), way, beside)


def resnet() -> nn.Module:
    return nn.Sequential(
        normed(3, 4, 7, 2), nn.MaxPool2d(3, 2, 1), residual_block(4, 4, 1), residual_block(4, 8, 2),
        residual_block(8, 8, 1), Lambda(lambda x: torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)),
        nn.Linear(8, 5),
    )  # fmt: skip


def inverted(maps: int, wanted: int, stride: int) -> nn.Module:
    inner = 2 * maps
    way = nn.Sequential(
        normed(maps, inner, 1, last=nn.ReLU6()), normed(inner, inner, 3, stride, inner, nn.ReLU6()),
        normed(inner, wanted, 1, last=nn.Identity()),
    )  # fmt: skip
    return Lambda(lambda x, a: x + a(x), way) if stride == 1 and maps == wanted else way


def mobilenet() -> nn.Module:
    return nn.Sequential(
        normed(3, 4, 3, 2, last=nn.ReLU6()), inverted(4, 4, 1), inverted(4, 6, 2), inverted(6, 6, 1),
        Lambda(lambda x: x.mean([2, 3])), nn.Dropout(0.2), nn.Linear(6, 5),
    )  # fmt: skip


def mobilenet_v3() -> nn.Module:
    """With hard swish and a gate of squeezed maps."""
    def gate(x: Any, down: Any, up: Any) -> Any:
        return x * functional.hardsigmoid(up(functional.relu(down(functional.adaptive_avg_pool2d(x, 1)))))

    return nn.Sequential(
        normed(3, 4, 3, 2, last=nn.Hardswish()), Lambda(gate, nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6), nn.Hardswish(), nn.Linear(6, 5),
    )  # fmt: skip


def dense_layer(maps: int, more: int) -> nn.Module:
    parts = nn.BatchNorm2d(maps), nn.ReLU(), nn.Conv2d(maps, more, 3, padding=1, bias=False)
    return Lambda(lambda x, a: torch.cat([x, a(x)], 1), nn.Sequential(*parts))


def densenet() -> nn.Module:
    return nn.Sequential(
        normed(3, 4), dense_layer(4, 3), dense_layer(7, 3), nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 5, 1),
        nn.AvgPool2d(2, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(5, 4),
    )  # fmt: skip


def dense_list() -> nn.Module:
    """A block of DenseNet that keeps a list of all results before."""
    def forward(x: Any, *parts: Any) -> Any:
        found = [x]
        for part in parts:
            found.append(functional.relu(part(torch.cat(found, 1))))
        return torch.cat(found, 1)

    return Lambda(forward, nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(5, 2, 3, padding=1), nn.Conv2d(7, 2, 3, padding=1))


def inception() -> nn.Module:
    def forward(x: Any, a: Any, b: Any, c: Any) -> Any:
        return torch.cat([a(x), b(x), c(functional.avg_pool2d(x, 3, 1, 1))], dim=1)

    return nn.Sequential(
        Lambda(forward, normed(3, 2, 1), nn.Sequential(normed(3, 2, 1), normed(2, 3, 3)), normed(3, 2, 1)),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(7, 4),
    )  # fmt: skip


def unet(up: nn.Module | None = None) -> nn.Module:
    def forward(x: Any, down: Any, bottom: Any, up: Any, top: Any) -> Any:
        left = down(x)
        right = up(bottom(functional.max_pool2d(left, 2)))
        return top(torch.cat([left, right], 1))

    widened = nn.ConvTranspose2d(8, 4, 2, 2) if up is None else up
    maps = 4 + (4 if up is None else 8)
    top = nn.Sequential(nn.Conv2d(maps, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    return Lambda(forward, normed(3, 4), normed(4, 8), widened, top)


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1), nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
    )  # fmt: skip


def recurrent(kind: str, last: str, batch_first: bool = True, **more: Any) -> nn.Module:
    """A classifier of sequences (N, steps, 4) by the last output, the last state, or the mean."""
    units = 5 * (2 if more.get("bidirectional") else 1)

    def forward(x: Any, part: Any, top: Any) -> Any:
        y, state = part(x if batch_first else x.transpose(0, 1))
        state = state[0] if isinstance(state, tuple) else state
        y = y if batch_first else y.transpose(0, 1)
        if last == "both":
            return top(torch.cat([state[-2], state[-1]], 1))
        return top({"output": lambda: y[:, -1], "slice": lambda: y[:, -1, :], "state": lambda: state[-1],
                    "mean": lambda: y.mean(1), "max": lambda: y.max(1)[0], "all": lambda: y}[last]())

    return Lambda(forward, getattr(nn, kind)(4, 5, batch_first=batch_first, **more), nn.Linear(units, 3))


def words() -> nn.Module:
    def forward(x: Any, table: Any, part: Any, top: Any) -> Any:
        return top(part(table(x))[0][:, -1])

    return Lambda(forward, nn.Embedding(11, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3))


def bag_of_words() -> nn.Module:
    return nn.Sequential(nn.Embedding(11, 4), Lambda(lambda x: x.mean(1)), nn.Linear(4, 3))


def convolution_of_text() -> nn.Module:
    """Windows of 2 and 3 words, the largest of each, side by side."""
    def forward(x: Any, table: Any, two: Any, three: Any, top: Any) -> Any:
        x = table(x).transpose(1, 2)
        found = [functional.max_pool1d(functional.relu(one(x)), one(x).shape[2]).squeeze(2) for one in (two, three)]
        return top(torch.cat(found, 1))

    return Lambda(forward, nn.Embedding(11, 4), nn.Conv1d(4, 3, 2), nn.Conv1d(4, 3, 3), nn.Linear(6, 3))


def convolution_of_signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 6, 3, 2, 1),
        nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(6 * 2, 3),
    )  # fmt: skip


def global_signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 5, padding=2), nn.ReLU(), nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def cnn_lstm() -> nn.Module:
    """A convolution along the steps before an LSTM."""
    def forward(x: Any, first: Any, part: Any, top: Any) -> Any:
        return top(part(functional.relu(first(x)).permute(0, 2, 1))[0][:, -1])

    return Lambda(forward, nn.Conv1d(2, 4, 3, padding=1), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3))


def encoder(**more: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **more)
    return nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
                         Lambda(lambda x: x.mean(1)), nn.Linear(8, 3))


def own_attention() -> nn.Module:
    """Attention of one head by its formula, as courses write it."""
    def forward(x: Any, q: Any, k: Any, v: Any, out: Any, norm: Any) -> Any:
        weights = torch.softmax(q(x) @ k(x).transpose(-2, -1) / 4**0.5, -1)
        return norm(x + out(weights @ v(x)))

    parts = [nn.Linear(4, 4) for _ in range(4)]
    return nn.Sequential(Lambda(forward, *parts, nn.LayerNorm(4)), Lambda(lambda x: x.mean(1)), nn.Linear(4, 3))


def heads_attention() -> nn.Module:
    """Attention of two heads by reshapes, as courses write it."""
    def forward(x: Any, qkv: Any, out: Any) -> Any:
        n, t, c = x.shape
        q, k, v = qkv(x).reshape(n, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        weights = ((q @ k.transpose(-2, -1)) * (c // 2) ** -0.5).softmax(-1)
        return out((weights @ v).transpose(1, 2).reshape(n, t, c))

    return nn.Sequential(Lambda(forward, nn.Linear(4, 12), nn.Linear(4, 4)), Lambda(lambda x: x.mean(1)))


def padded() -> nn.Module:
    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.ZeroPad2d(1), nn.Conv2d(4, 4, 3), nn.ReLU(),
        nn.ConstantPad2d(1, 0.0), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 3),
    )  # fmt: skip


def reflected() -> nn.Module:
    return nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.ReLU())


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(8, 8, bias=False),
        nn.PReLU(), nn.Linear(8, 4), nn.ELU(), nn.Linear(4, 4), nn.GELU(),
        nn.Linear(4, 4), nn.SiLU(), nn.LayerNorm(4), nn.Linear(4, 3), nn.Hardtanh(0, 1), nn.Sigmoid(),
    )  # fmt: skip


def noise() -> nn.Module:
    """Axes added, removed, turned and turned back."""
    def forward(x: Any, first: Any, top: Any) -> Any:
        x = x.unsqueeze(1).squeeze(1)
        x = x.permute(0, 2, 3, 1).permute(0, 3, 1, 2)
        x = first(x)
        x = x.reshape(x.shape[0], x.shape[1], -1).view(x.size(0), -1)
        return top(x.unsqueeze(-1).squeeze(-1).view(-1, 4 * 64)).unsqueeze(1).flatten(1)

    return Lambda(forward, nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 64, 3))


def normalized_input() -> nn.Module:
    """Means and deviations of colours as part of the network."""
    mean, deviation = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)
    return Lambda(lambda x, a: a((x - mean) / deviation), nn.Sequential(normed(3, 4), nn.Flatten(), nn.Linear(256, 3)))


def last_channels() -> nn.Module:
    """A block of ConvNeXt: normalized and widened with the maps last."""
    def forward(x: Any, deep: Any, norm: Any, up: Any, down: Any) -> Any:
        y = down(functional.gelu(up(norm(deep(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
        return x + y

    return Lambda(forward, nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.LayerNorm(3), nn.Linear(3, 6), nn.Linear(6, 3))


def patches() -> nn.Module:
    """The beginning of a vision transformer: patches as steps, places added."""
    place = torch.randn(1, 16, 6)

    def forward(x: Any, cut: Any, norm: Any, top: Any) -> Any:
        return top(norm(cut(x).flatten(2).transpose(1, 2) + place).mean(1))

    return Lambda(forward, nn.Conv2d(3, 6, 2, 2), nn.LayerNorm(6), nn.Linear(6, 3))


def groups() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.SiLU(), nn.InstanceNorm2d(6))


def two_outputs() -> nn.Module:
    return Lambda(lambda x, a, b, c: (b(a(x)), c(a(x))), nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 2))


IMAGE, PIXELS, SEQUENCE, WORDS, SIGNAL = (3, 8, 8), (1, 16, 16), (6, 4), (7,), (2, 16)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LeNet": (lenet, PIXELS), "LeNet by functions": (view_lenet, PIXELS), "VGG": (vgg, IMAGE),
    "ResNet": (resnet, (3, 32, 32)), "MobileNet v2": (mobilenet, (3, 16, 16)), "MobileNet v3": (mobilenet_v3, IMAGE),
    "DenseNet": (densenet, IMAGE), "list of DenseNet": (dense_list, IMAGE), "Inception": (inception, IMAGE),
    "U-Net": (unet, IMAGE), "U-Net, nearest": (lambda: unet(nn.Upsample(scale_factor=2)), IMAGE),
    "U-Net, bilinear": (lambda: unet(nn.Upsample(scale_factor=2, mode="bilinear")), IMAGE),
    "autoencoder": (autoencoder, (1, 8, 8)),
    **{f"{kind}, {last}": ((lambda k=kind, w=last: recurrent(k, w)), SEQUENCE)
       for kind in ("LSTM", "GRU", "RNN") for last in ("output", "slice", "state", "mean", "max", "all")},
    **{f"{kind}, steps first": ((lambda k=kind: recurrent(k, "output", False)), SEQUENCE)
       for kind in ("LSTM", "GRU", "RNN")},
    **{f"{kind}, both ways, {last}": ((lambda k=kind, w=last: recurrent(k, w, bidirectional=True)), SEQUENCE)
       for kind in ("LSTM", "GRU", "RNN") for last in ("output", "both", "mean")},
    "LSTM, both ways, steps first": (lambda: recurrent("LSTM", "output", False, bidirectional=True), SEQUENCE),
    "LSTM of two levels": (lambda: recurrent("LSTM", "state", num_layers=2, dropout=0.1), SEQUENCE),
    "GRU of two levels": (lambda: recurrent("GRU", "state", num_layers=2), SEQUENCE),
    "LSTM of two levels, both ways": (lambda: recurrent("LSTM", "both", num_layers=2, bidirectional=True), SEQUENCE),
    "words by LSTM": (words, WORDS), "bag of words": (bag_of_words, WORDS),
    "convolutions of text": (convolution_of_text, WORDS), "convolutions of signals": (convolution_of_signals, SIGNAL),
    "global pooling of signals": (global_signals, SIGNAL), "convolution before LSTM": (cnn_lstm, SIGNAL),
    "encoder": (encoder, SEQUENCE), "encoder, norm first": (lambda: encoder(norm_first=True), SEQUENCE),
    "encoder, GELU": (lambda: encoder(activation="gelu"), SEQUENCE), "attention by formula": (own_attention, SEQUENCE),
    "attention of heads": (heads_attention, SEQUENCE), "padding": (padded, IMAGE), "reflection": (reflected, IMAGE),
    "perceptron": (perceptron, (6,)),
    "Mish": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Mish()), (6,)),
    "Softplus": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Softplus()), (6,)),
    "noise of shapes": (noise, IMAGE), "normalized input": (normalized_input, IMAGE),
    "ConvNeXt": (last_channels, IMAGE), "patches": (patches, IMAGE), "normalization of groups": (groups, IMAGE),
    "two outputs": (two_outputs, (6,)),
}  # fmt: skip
"""Name -> function that makes a module, and the shape of a sample in PyTorch's order of axes."""
