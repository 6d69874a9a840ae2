"""ONNX files that PyTorch writes, by both of its exporters, are read as models with the same outputs."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest

from neonlike.errors import NotDefined
from neonlike.models import Model
from tests.exchange.networks import outputs

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
from tests.exchange.onnx_runs import compare, turned  # noqa: E402
from tests.exchange.torch_networks import NETWORKS, SEQUENCE, WORDS, randomized  # noqa: E402

N = 3
pytestmark = [
    pytest.mark.peers("torch"),
    pytest.mark.peers("onnxscript"),
    pytest.mark.engines("numpy", batch_size=N),
    pytest.mark.cpu_only("files are the same on every backend"),
]


REFUSED = {
    "MobileNet v3": "operator Mul: a product of computed values cannot be read",
    "list of DenseNet": "result is read by branches that do not end at one place|operator Concat: no layer is made",
    "U-Net, bilinear": "operator Resize: its mode=linear",
    "encoder": "operator Reshape: shape .* cannot be read",
    "encoder, norm first": "operator Reshape: shape .* cannot be read",
    "encoder, GELU": "operator Reshape: shape .* cannot be read",
    "attention by formula": "operator MatMul: it has several computed inputs; docs/exchange.md lists what can be read",
    "attention of heads": "operator Reshape: shape .* cannot be read",
    "reflection": "operator Pad: its mode=reflect with pads=",
    "ConvNeXt": "operator LayerNormalization: its attribute axis=-1 of maps last",
    "normalization of groups": "operator InstanceNormalization: no layer is made of this operator; docs/exchange.md",
    "two outputs": "has 2 outputs .*; a graph with one can be read",
}
"""Name of a network that cannot be read -> its error."""
OF_ONE_EXPORTER = {
    ("RNN", True): "operator Slice: no layer is made of this operator",  # its steps are unrolled
    ("Mish", False): "operator Mul: a product of computed values cannot be read",
    ("Softplus", True): "operator Where: no layer is made of this operator",
}
"""Beginning of a network's name, and whether the newer exporter writes it -> the error."""


def written(module: Any, x: Any, path: Any, dynamo: bool, open_size: bool = True) -> Any:
    """A file of a module, with any number of samples, or that of ``x``."""
    if dynamo:
        options: dict[str, Any] = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},), "verbose": False}
    else:
        options = {"opset_version": 17, "dynamic_axes": {"input": {0: "N"}}, "input_names": ["input"]}
        if not open_size:
            del options["dynamic_axes"]
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
    module = randomized(make())
    x = rng.integers(0, 11, (N, *shape)) if shape == WORDS else rng.normal(size=(N, *shape)).astype(np.float32)
    path = written(module, torch.tensor(x), tmp_path / "m.onnx", dynamo)
    refused = REFUSED.get(kind) or OF_ONE_EXPORTER.get((kind.partition(",")[0], dynamo))
    if refused:
        with pytest.raises(NotDefined, match=refused):
            Model.from_onnx(path)
        return
    with torch.no_grad():
        compare(module(torch.tensor(x)).numpy(), outputs(Model.from_onnx(path), turned(x) if shape == SEQUENCE else x))


def test_files_of_a_fixed_number_of_samples_are_read(be, rng, tmp_path):
    """Files as ``torch.onnx.export`` writes them without options, of one sample."""
    for kind in ("LeNet by functions", "ResNet", "LSTM, state", "convolutions of text"):
        torch.manual_seed(0)
        make, shape = NETWORKS[kind]
        module = randomized(make())
        x = rng.integers(0, 11, (N, *shape)) if shape == WORDS else rng.normal(size=(N, *shape)).astype(np.float32)
        path = written(module, torch.tensor(x[:1]), tmp_path / "m.onnx", False, open_size=False)
        with torch.no_grad():
            wanted = module(torch.tensor(x)).numpy()
        compare(wanted, outputs(Model.from_onnx(path), turned(x) if shape == SEQUENCE else x))
