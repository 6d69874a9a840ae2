"""Files of the safetensors format: names, dtypes, checks before anything is changed, damage."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, DTypeError, MissingExtra, ShapeError
from neonlike.exchange import Differences
from neonlike.exchange.places import arrays_of
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import GRU, LSTM, Affine, Conv, LayerNorm, MergeSum, MultiHeadAttention, Pooling, SkipNode
from neonlike.layers import Sequential as Chain
from neonlike.models import Model
from neonlike.transforms import Logistic, Rectlin, Tanh
from neonlike.util.persist import UnreadableFile
from tests.exchange.networks import outputs, ready

safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import load_file, save_file  # noqa: E402

pytestmark = pytest.mark.engines("numpy", batch_size=4)
SAME = pytest.mark.cpu_only("files are the same on every backend")
INIT = Gaussian(scale=0.1)


def convnet() -> list[Any]:
    """A residual network of images, with a branch and statistics."""
    block = [Conv((3, 3, 4), INIT, padding=1, batch_norm=True, activation=Rectlin()), Conv((3, 3, 4), INIT, padding=1)]
    return [
        Conv((3, 3, 4), INIT, padding=1, bias=Constant(0), activation=Rectlin()),
        MergeSum([block, SkipNode()]),
        Pooling(2),
        Affine(3, INIT, bias=Constant(0)),
    ]


IMAGES = (3, 6, 6)


def same(model: Model, arrays: dict[str, np.ndarray]) -> bool:
    now = arrays_of(model.layers)
    return list(now) == list(arrays) and all(np.array_equal(now[name], arrays[name]) for name in now)


@pytest.fixture
def saved(be: Any, rng: Any, tmp_path: Any) -> tuple[Model, Any]:
    """A model, and its file."""
    model = ready(convnet(), IMAGES, rng)
    model.save_safetensors(tmp_path / "m.safetensors")
    return model, tmp_path / "m.safetensors"


@SAME
def test_names_are_places_and_parameters(saved):
    model, path = saved
    names = ["0.W", "0.weight_bias", "2.0.0.W", "2.0.1.beta", "2.0.1.gamma", "2.0.1.gmean", "2.0.1.gvar", "2.0.3.W"]
    found = load_file(path)
    assert sorted(found) == sorted([*names, "4.W", "5.W"])
    np.testing.assert_array_equal(found["2.0.1.gvar"], model.layers.layers[2].layers[0].layers[1].gvar.get())
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata()["input_shape"] == "[3, 6, 6]"
        assert re.match(r"\d+\.\d+", file.metadata()["neonlike"])


def test_there_and_back(saved, rng):
    model, path = saved
    for name in ("other", "m.safetensors.gz"):  # names of layers and files are of no importance
        model.save_safetensors(path.parent / name)
        again = Model([*convnet()])
        found = again.load_safetensors(path.parent / name)  # sets it up, too
        assert found == Differences([], [], [])
        assert same(again, arrays_of(model.layers))
        x = rng.normal(size=(4, *IMAGES)).astype(np.float32)
        np.testing.assert_array_equal(outputs(again, x), outputs(model, x))


@SAME
def test_recurrent_layers_and_attention(be, rng, tmp_path):
    def layers() -> list[Any]:
        gates = {"activation": Tanh(), "gate_activation": Logistic(), "reset_cells": True}
        return [LSTM(6, INIT, **gates), MultiHeadAttention(2, INIT), LayerNorm(), GRU(5, INIT, **gates)]

    model, again = ready(layers(), (6, 3), rng), ready(layers(), (6, 3), rng)
    x = rng.normal(size=(4, 6, 3)).astype(np.float32)
    assert not np.allclose(outputs(again, x), outputs(model, x))
    model.save_safetensors(tmp_path / "m")
    again.load_safetensors(tmp_path / "m")
    np.testing.assert_array_equal(outputs(again, x), outputs(model, x))


@SAME
@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16"])
def test_dtypes_are_kept(engine, name, rng, tmp_path, no_backend_left):
    gen_backend("cpu", batch_size=4, datatype=name if name == "bfloat16" else np.dtype(name).type)
    model = ready(convnet(), IMAGES, rng)
    model.save_safetensors(tmp_path / "m")
    with safetensors.safe_open(tmp_path / "m", "np") as file:
        kind = {"float64": "F64", "float16": "F16", "bfloat16": "BF16"}[name]
        assert {file.get_slice(one).get_dtype() for one in ("0.W", "4.W")} == {kind}
        assert file.get_slice("2.0.1.gvar").get_dtype() == ("F64" if name == "float64" else "F32")
    again = Model(convnet())
    again.load_safetensors(tmp_path / "m")
    assert same(again, arrays_of(model.layers))
    gen_backend("cpu", batch_size=4)
    single = Model(convnet())
    single.load_safetensors(tmp_path / "m")
    wanted = {key: array.astype(np.float32) for key, array in arrays_of(model.layers).items()}
    assert same(single, wanted)


@SAME
def test_quantized_models_stay_quantized(be, rng, tmp_path):
    if not be.multiplies_int8:
        pytest.skip("no int8 here")
    model = ready(convnet(), IMAGES, rng)
    x = rng.normal(size=(4, *IMAGES)).astype(np.float32)
    model.quantize(x.reshape(4, -1))
    model.save_safetensors(tmp_path / "int8")
    assert "0.int8_step" in load_file(tmp_path / "int8")
    again = Model(convnet())
    again.load_safetensors(tmp_path / "int8")
    np.testing.assert_array_equal(outputs(again, x), outputs(model, x))
    model.dequantize()
    model.save_safetensors(tmp_path / "float")
    again.load_safetensors(tmp_path / "float")
    assert again.layers.layers[0].int8_step is None


@SAME
def test_quantized_recurrent_layers_keep_the_steps_of_their_states(be, rng, tmp_path):
    if not be.multiplies_int8:
        pytest.skip("no int8 here")
    model, again = (Model([LSTM(5, Gaussian(), activation=Tanh(), gate_activation=Logistic())]) for _ in range(2))
    model.initialize((3, 4))
    model.quantize(rng.normal(size=(8, 12)).astype(np.float32))
    model.save_safetensors(tmp_path / "int8")
    assert {"0.int8_step", "0.int8_state_step"} <= {*load_file(tmp_path / "int8")}
    again.load_safetensors(tmp_path / "int8")
    assert again.layers.layers[0].int8_state_step.item() == model.layers.layers[0].int8_state_step.item()


def changed(saved: Any, **arrays: Any) -> Any:
    """A file with other arrays; None leaves one out."""
    _, path = saved
    found = {**load_file(path), **{name.replace("_", "."): array for name, array in arrays.items()}}
    with safetensors.safe_open(path, "np") as file:
        texts = file.metadata()
    save_file({name: array for name, array in found.items() if array is not None}, path, texts)
    return path


WRONG = {"4_W": np.zeros((36, 3), np.float32), "5_W": None, "7_W": np.ones((2, 2), np.float32)}


@SAME
def test_all_differences_are_listed_and_nothing_is_changed(saved, rng):
    path = changed(saved, **WRONG)
    model = ready(convnet(), IMAGES, rng)
    before = arrays_of(model.layers)
    with pytest.raises(ShapeError) as raised:
        model.load_safetensors(path)
    text = str(raised.value)
    assert "missing: 5.W" in text and "unexpected: 7.W" in text
    assert "4.W is (36, 3) there and (3, 36) here" in text and "strict=False" in text
    assert same(model, before)


@SAME
def test_names_are_compared_before_a_model_is_set_up(saved):
    model, fits = Model(convnet()), saved[1].read_bytes()
    path = changed(saved, **WRONG)
    with pytest.raises(ShapeError, match=r"missing: 5\.W; unexpected: 7\.W\. Nothing was loaded;"):
        model.load_safetensors(path)
    assert not model.initialized
    path.write_bytes(fits)
    model.load_safetensors(path)
    assert same(model, arrays_of(saved[0].layers))


@SAME
def test_an_error_of_shapes_says_that_the_model_is_set_up(saved):
    path, model = changed(saved, **{"4_W": WRONG["4_W"]}), Model(convnet())
    with pytest.raises(ShapeError, match=r"Nothing was loaded, but the model is initialized now, for the shape \(3, 6"):
        model.load_safetensors(path)
    assert model.initialized


@SAME
def test_what_fits_is_loaded_on_request(saved, rng):
    path = changed(saved, **WRONG)
    model = ready(convnet(), IMAGES, rng)
    before, wanted = arrays_of(model.layers), load_file(path)
    found = model.load_safetensors(path, strict=False)
    assert found == Differences(["5.W"], ["7.W"], [("4.W", (36, 3), (3, 36))])
    after = arrays_of(model.layers)
    for name in after:
        np.testing.assert_array_equal(after[name], before[name] if name in ("4.W", "5.W") else wanted[name])


@SAME
def test_a_dtype_that_numpy_lacks_is_named(saved, rng):
    model, path = saved
    header = json.dumps({"0.W": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(DTypeError, match=r"holds 0\.W as F8_E4M3; expected one of F64, F32"):
        model.load_safetensors(path)


@SAME
@pytest.mark.parametrize("damage", ["", "short", "header", "length", "text"])
def test_damaged_files_are_unreadable(saved, damage):
    model, path = saved
    content, before = path.read_bytes(), arrays_of(model.layers)
    path.write_bytes(
        {
            "": b"",
            "short": content[:-3],
            "header": content.replace(b'"shape"', b'"shale"', 1),
            "length": b"\xff" * 8 + content[8:],
            "text": b"nothing of the kind",
        }[damage]
    )
    with pytest.raises(UnreadableFile, match=r"m\.safetensors is not a file of the safetensors format"):
        model.load_safetensors(path)
    assert same(model, before)


@SAME
def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    model, path = saved
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        model.save_safetensors(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@SAME
def test_a_model_without_weights_is_told_what_to_do(be, saved):
    _, path = saved
    with pytest.raises(ArgumentError, match=r"call model\.initialize"):
        Model(convnet()).save_safetensors(path)
    save_file(load_file(path), path)  # which drops the texts
    with pytest.raises(ArgumentError, match="does not name an input shape"):
        Model(convnet()).load_safetensors(path)


@SAME
def test_without_the_package_the_extra_is_named(saved, monkeypatch):
    model, path = saved
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    for call in (model.save_safetensors, model.load_safetensors):
        with pytest.raises(MissingExtra, match=r"pip install 'neonlike\[safetensors\]'"):
            call(path)


@SAME
def test_nested_chains_have_longer_places(be, rng, tmp_path):
    model = ready([Chain([Chain([Affine(2, INIT)]), Affine(3, INIT, bias=Constant(0))])], 4, rng)
    model.save_safetensors(tmp_path / "m")
    assert sorted(load_file(tmp_path / "m")) == ["0.0.0.W", "0.1.W", "0.2.W"]
