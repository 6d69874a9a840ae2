"""Pages that show another library's code beside ours: both run, and what they make is the same.

Blocks of other libraries are marked ``py``. Each section of a page is run in two namespaces, one for each library, that
last for the page; then the networks and arrays that both call by the same name are compared.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.tensor import Tensor
from neonlike.exchange.places import arrays_of, leaves
from neonlike.layers import Dropout
from neonlike.models import Model
from tests.exchange.networks import outputs
from tests.support.page_blocks import blocks, not_printed, page_text

LIBRARIES = {"from_pytorch": "torch", "from_keras": "keras", "from_numpy": "numexpr"}
"""Page -> the library that its blocks import."""
BESIDE = [pytest.param(page, marks=pytest.mark.peers(library)) for page, library in LIBRARIES.items()]
pytestmark = pytest.mark.cpu_only("pages make their own backend")
Found = dict[str, Any]
N = 50


def sections(text: str) -> list[tuple[list[str], list[str]]]:
    """Blocks of the other library and ours of each section that has any."""
    parts = [(blocks(part, "py"), blocks(part, "python")) for part in re.split(r"^## ", text, flags=re.MULTILINE)]
    return [both for both in parts if any(both)]


def run(code: list[str], names: Found) -> None:
    """Run blocks in a namespace, and compare what they print with what their comments promise."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in code:
            exec(compile(block, "page", "exec"), names)
    assert not_printed(code, printed.getvalue()) == []


def compared(theirs: Found, ours: Found) -> list[str]:
    """Names of the networks and arrays that both have, which are equal."""
    found = []
    for name in sorted(set(theirs) & set(ours)):
        given, own = theirs[name], ours[name]
        if isinstance(own, Model):
            same_network(given, own)
        elif isinstance(own, np.ndarray | Tensor) and isinstance(given, np.ndarray):  # no batches of PyTorch's loops
            own = own.get() if isinstance(own, Tensor) else own
            np.testing.assert_allclose(own, given, rtol=1e-5, atol=1e-6)
        else:
            continue
        found.append(name)
    return found


def same_network(given: Any, own: Model) -> None:
    """Same number of parameters and shape of the output; the same outputs when ours has the other's weights."""
    size, weights, options, call = (of_keras if hasattr(given, "count_params") else of_torch)(given)
    assert sum(array.size for array in arrays_of(own.layers).values()) == size
    own.load_torch(weights, **options)
    for _, layer in leaves(own.layers):
        if isinstance(layer, Dropout):
            layer.keep = 1  # the others scale in training
    shape = own.layers.in_shape
    x = np.random.default_rng(0).uniform(-1, 1, (N, *((shape,) if isinstance(shape, int) else shape)))
    wanted, found = call(x.astype(np.float32)), outputs(own, x.astype(np.float32))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


Network = tuple[int, Any, dict[str, Any], Callable[[np.ndarray], np.ndarray]]
"""Number of parameters, the weights as ``load_torch`` takes them with its options, and the network as a function."""


def of_torch(module: Any) -> Network:
    """A network of PyTorch, with the softmax that is part of the cost there."""
    import torch

    def call(x: np.ndarray) -> Any:
        with torch.no_grad():
            return torch.softmax(module.eval()(torch.tensor(x)), dim=1).numpy()

    state = {name: value for name, value in module.state_dict().items() if not name.endswith("num_batches_tracked")}
    return sum(value.numel() for value in state.values()), module, {}, call


def of_keras(model: Any) -> Network:
    """A network of Keras; images have the channels last there."""
    state, maps, eps = {}, None, None
    for place, layer in enumerate(model.layers):
        given = [np.asarray(array) for array in layer.get_weights()]
        if type(layer).__name__ == "Flatten":
            maps = layer.input.shape[1:]
        elif type(layer).__name__ == "Dense":
            kernel = given[0]
            if maps is not None:  # the rows of pixels, channels last, as rows of channels
                kernel, maps = np.moveaxis(kernel.reshape(*maps, -1), 2, 0).reshape(kernel.shape), None
            state |= {f"{place}.weight": kernel.T, f"{place}.bias": given[1]}
        elif type(layer).__name__ == "Conv2D":
            state[f"{place}.weight"] = given[0].transpose(3, 2, 0, 1)
        elif type(layer).__name__ == "BatchNormalization":
            names = ("weight", "bias", "running_mean", "running_var")
            state |= {f"{place}.{name}": array for name, array in zip(names, given)}
            eps = layer.epsilon
        else:
            assert not given, layer
    return (
        model.count_params(), state, {"eps": eps},
        lambda x: np.asarray(model.predict(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x, verbose=0)),
    )  # fmt: skip


@pytest.mark.parametrize("page", BESIDE)
def test_both_libraries_make_the_same(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs: Found = {}
    ours: Found = {}
    pairs = 0
    for other, own in sections(page_text(page)):
        before = dict(theirs)
        run(other, theirs)
        run(own, ours)
        new = {name: value for name, value in theirs.items() if value is not before.get(name)}
        if other:
            assert compared(new, ours)
            pairs += 1
    assert pairs


def test_what_differs_is_found() -> None:
    text = "## A\n```py\ny = [1.0, 2.0]\nprint(y)  # [1.0]\n```\n```python\ny = one\n```\n## B\nnone\n"
    ((other, own),) = sections(text)
    assert own == ["y = one\n"]
    with pytest.raises(AssertionError, match=r"1\.0"):
        run(other, {})
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        compared({"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.1])})
    assert compared({"y": np.ones(1), "z": 2, "a": 1}, {"y": np.ones(1), "z": 3}) == ["y"]


# The tables of names ------------------------------------------------------------------------------------------------


def first_cells(page: str) -> list[str]:
    """Code in the first column of a page's tables."""
    rows = re.findall(r"^\| ((?:[^|]|\\\|)*) \|", page_text(page), re.MULTILINE)
    return [spoken for row in rows for spoken in re.findall(r"`([^`]+)`", row)]


def found_in(name: str, places: list[Any]) -> bool:
    """Whether a dotted name is an attribute of one of the places."""
    for place in places:
        for part in name.split("."):
            place = getattr(place, part, None)
        if place is not None:
            return True
    return False


def roots(page: str, owner: str = "") -> set[str]:
    """Dotted names at the beginning of code in the first columns, without the name of their owner."""
    names = {re.sub(rf"^(?:{owner})\.", "", one) for one in first_cells(page)}
    return {found[0].rstrip(".") for one in names if (found := re.match(r"[A-Za-z_][\w.]*(?=[(\[]|$)", one))}


@pytest.mark.peers("keras")
def test_what_the_table_says_of_keras_is_there() -> None:
    import keras

    places = [
        keras, keras.layers, keras.optimizers, keras.optimizers.schedules, keras.callbacks, keras.metrics,
        keras.Model, keras.utils, keras.models,
    ]  # fmt: skip
    of_arguments = {"return_sequences", "validation_data", "save_best_only", "clipnorm", "global_clipnorm"}
    names = roots("from_keras", "model|keras") - of_arguments
    assert len(names) > 40
    assert sorted(one for one in names if not found_in(one, places)) == []
    getters = [kind.get for kind in (keras.activations, keras.initializers, keras.losses, keras.metrics)]
    texts = [one.strip('"') for one in first_cells("from_keras") if re.fullmatch(r'"\w+"', one)]
    assert len(texts) > 10
    assert [text for text in texts if not any(takes(get, text) for get in getters)] == []


def takes(get: Callable[[str], Any], text: str) -> bool:
    """Whether a function that looks names up knows this one."""
    try:
        return get(text) is not None
    except ValueError:
        return False


@pytest.mark.peers("torch")
def test_what_the_tables_say_of_pytorch_is_there() -> None:
    import torch
    import torch.ao.quantization
    import torch.onnx
    import torch.utils.checkpoint
    from torch.optim import lr_scheduler
    from torch.utils import data

    functions = {"nn": torch.nn, "F": torch.nn.functional, "torch": torch}
    places = [
        SimpleNamespace(**functions), torch, torch.nn, torch.nn.init, torch.nn.Module, torch.Tensor, torch.optim,
        lr_scheduler, data, torch.nn.utils, torch.amp, torch.nn.parallel,
    ]  # fmt: skip
    elsewhere = {
        "torchvision.datasets.ImageFolder", "torchrun", "num_workers", "print", "SummaryWriter", "bf16_compress_hook",
    }  # fmt: skip
    names = {one for one in roots("from_pytorch", "x|t|v|p|model|optimizer|loss") if not one.startswith(("be.", "ag."))}
    names -= elsewhere
    assert len(names) > 60
    assert sorted(one for one in names if not found_in(one, places)) == []


def test_what_the_tables_say_of_numpy_is_there() -> None:
    names = {one for spoken in first_cells("from_numpy") for one in re.findall(r"\bnp\.([a-z][\w.]*\w)", spoken)}
    assert len(names) > 30
    assert sorted(one for one in names if not found_in(one, [np])) == []
