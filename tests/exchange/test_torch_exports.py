"""ONNX files that PyTorch writes, by both of its exporters, are read as models with the same outputs."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest

from neonlike.models import Model
from tests.exchange.networks import outputs

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
from tests.exchange.onnx_runs import compare, turned  # noqa: E402

nn = torch.nn
N = 3
pytestmark = [
    pytest.mark.peers("torch"),
    pytest.mark.peers("onnxscript"),
    pytest.mark.engines("numpy", batch_size=N),
    pytest.mark.cpu_only("files are the same on every backend"),
]


class First(nn.Module):
    """The first result of a recurrent module; the last step of it on request."""

    def __init__(self, module: Any, last: bool = False) -> None:
        super().__init__()
        self.module, self.last = module, last

    def forward(self, x):
        y = self.module(x)[0]
        return y[:, -1] if self.last else y


class Block(nn.Module):
    """A residual block with a shortcut of its own where shapes differ."""

    def __init__(self, maps: int, wanted: int, stride: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(maps, wanted, 3, stride, 1, bias=False), nn.Conv2d(wanted, wanted, 3, 1, 1)
        self.way = nn.Sequential(first, nn.BatchNorm2d(wanted), nn.ReLU(), second, nn.BatchNorm2d(wanted))
        self.beside = nn.Identity() if maps == wanted else nn.Conv2d(maps, wanted, 1, stride)

    def forward(self, x):
        return torch.relu(self.way(x) + self.beside(x))


NETWORKS = {
    "residual": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                                       nn.MaxPool2d(3, 2, 1), Block(4, 4, 1), Block(4, 8, 2),
                                       nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), (3, 12, 12)),
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 5), nn.SiLU(), nn.Dropout(),
                                         nn.LayerNorm(5), nn.Linear(5, 3), nn.Softmax(-1)), (4,)),
    "recurrent": (lambda: nn.Sequential(First(nn.LSTM(4, 5, num_layers=2, batch_first=True), True), nn.Linear(5, 2)),
                  (4, 6)),
    "both ways": (lambda: nn.Sequential(First(nn.LSTM(4, 4, bidirectional=True, batch_first=True)), nn.Linear(8, 2)),
                  (4, 6)),
    "gru": (lambda: nn.Sequential(First(nn.GRU(4, 4, batch_first=True)), nn.Linear(4, 3)), (4, 6)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1), nn.LeakyReLU(0.1), nn.ELU(),
                                         nn.Hardtanh(0, 6), nn.Sigmoid()), (3, 5, 5)),
}  # fmt: skip


def written(module: Any, x: Any, path: Any, dynamo: bool) -> Any:
    """A file of a module, with any number of samples."""
    if dynamo:
        options: dict[str, Any] = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},), "verbose": False}
    else:
        options = {"opset_version": 17, "dynamic_axes": {"input": {0: "N"}}, "input_names": ["input"]}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), str(path), dynamo=dynamo, **options)
    return path


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("kind", NETWORKS)
def test_files_of_pytorch_are_read(be, rng, kind, dynamo, tmp_path):
    torch.manual_seed(0)
    make, shape = NETWORKS[kind]
    module = make().eval()
    x = rng.normal(size=(N, *shape)).astype(np.float32)
    given = torch.tensor(turned(x))
    path = written(module, given, tmp_path / "m.onnx", dynamo)
    with torch.no_grad():
        compare(module(given).numpy(), outputs(Model.from_onnx(path), x))
