"""TensorBoard's event files, read back."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback, LossCallback, MetricCallback
from neonlike.callbacks.store import epoch_dataset
from neonlike.errors import MissingExtra
from neonlike.models import Model
from neonlike.transforms import Misclassification
from tests.callbacks.training import fit


def events(folder: Path) -> Iterator[Any]:
    """The events of all files, in the order of their files; lengths and checksums of records are checked."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            head, (length,) = content[:8], struct.unpack("<Q", content[:8])
            record = content[12 : 12 + length]
            sums = struct.unpack("<I", content[8:12]) + struct.unpack("<I", content[12 + length : 16 + length])
            assert sums == (masked_crc32c(head), masked_crc32c(record)), path
            yield Event.FromString(record)
            content = content[16 + length :]


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Values by tag and step, without those that a later session replaces."""
    found: dict[str, dict[int, float]] = {}
    for event in events(folder):
        if event.HasField("session_log"):
            for values in found.values():
                for step in [step for step in values if step >= event.step]:
                    del values[step]
        for value in event.summary.value:
            if value.HasField("simple_value"):
                assert event.step not in found.setdefault(value.tag, {}), "a step twice: TensorBoard would show both"
                found[value.tag][event.step] = value.simple_value
    return found


def test_costs_metrics_and_rates(model: Any, data: Any, valid: Any, tmp_path: Path) -> None:
    callbacks = Callbacks(
        model, eval_set=valid, eval_freq=2, metric=Misclassification(), tensorboard=tmp_path, progress_bar=False
    )
    fit(model, data, callbacks, 4)
    found, record = scalars(tmp_path), callbacks.callback_data
    assert sorted(found) == ["cost/loss", "cost/train", "metrics/Top1Misclass", "rate/rate"]
    ends = record["time_markers/minibatch"][...].astype(int).tolist()
    assert list(found["cost/train"]) == list(range(1, ends[-1] + 1))
    np.testing.assert_allclose(list(found["cost/train"].values()), record["cost/train"][: ends[-1]], rtol=1e-6)
    assert list(found["cost/loss"]) == [ends[1], ends[3]], "after the epochs of an evaluation"
    np.testing.assert_allclose(list(found["cost/loss"].values()), record["cost/loss"][...], rtol=1e-6)
    assert set(found["rate/rate"].values()) == {np.float32(0.1)}


def test_values_of_callbacks_that_are_added_later(model: Any, data: Any, valid: Any, tmp_path: Path) -> None:
    callbacks = Callbacks(model, tensorboard=tmp_path, progress_bar=False)
    callbacks.add_callback(MetricCallback(valid, Misclassification()))
    callbacks.add_callback(LossCallback(valid), insert_pos=0)
    fit(model, data, callbacks, 2)
    found, record = scalars(tmp_path), callbacks.callback_data
    for name in ("metrics/Top1Misclass", "cost/loss"):
        np.testing.assert_allclose(list(found[name].values()), record[name][...], rtol=1e-6)


def test_a_value_that_is_missing_is_left_out(model: Any, data: Any, tmp_path: Path) -> None:
    class Holes(Callback):
        """Records a value for the second epoch only, and loses a cost."""

        def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
            epoch_dataset(callback_data, "metrics/own", range(2), 1)
            callback_data["metrics/own"][1] = 0.5
            callback_data["cost/train"][3] = np.nan

    callbacks = Callbacks(model, tensorboard=tmp_path, progress_bar=False)
    callbacks.add_callback(Holes(), insert_pos=0)
    fit(model, data, callbacks, 2)
    found, ends = scalars(tmp_path), callbacks.callback_data["time_markers/minibatch"][...].astype(int).tolist()
    assert found["metrics/own"] == {ends[1]: 0.5}
    assert sorted(found["cost/train"]) == [step for step in range(1, ends[1] + 1) if step != 4]


def test_histograms_and_facts(model: Any, data: Any, tmp_path: Path) -> None:
    fit(model, data, Callbacks(model, tensorboard=tmp_path, progress_bar=False), 2)
    weights = [layer.W.get() for layer in model.layers.layers_fprop() if hasattr(layer, "W")]
    found = [value for event in events(tmp_path) for value in event.summary.value if value.HasField("histo")]
    assert {value.tag.rpartition("/")[2] for value in found} == {"W", "dW"} and len(found) == 2 * 2 * len(weights)
    (last,) = [value.histo for value in found[-2 * len(weights) :] if value.tag == found[-2 * len(weights)].tag]
    first = weights[0]
    assert (last.num, last.min, last.max) == (first.size, pytest.approx(first.min()), pytest.approx(first.max()))
    texts = [value.tensor.string_val[0].decode() for event in events(tmp_path) for value in event.summary.value
             if value.HasField("tensor")]  # fmt: skip
    assert any("rng_seed of the backend" in text for text in texts)


def test_a_resumed_training_continues_the_curves(model: Any, data: Any, tmp_path: Path) -> None:
    folder, saved = tmp_path / "logs", str(tmp_path / "model.prm")
    fit(model, data, Callbacks(model, save_path=saved, tensorboard=folder, progress_bar=False), 2)
    for epochs in (3, 4):  # the third epoch twice: what the first attempt wrote of it is replaced
        again = Model(saved)
        callbacks = Callbacks(again, model_file=saved, tensorboard=folder, progress_bar=False)
        fit(again, data, callbacks, epochs)
    costs = scalars(folder)["cost/train"]
    last = int(callbacks.callback_data["time_markers/minibatch"][3])
    assert sorted(costs) == list(range(1, last + 1))
    recorded = callbacks.callback_data["cost/train"][:last]
    np.testing.assert_allclose([costs[step] for step in sorted(costs)], recorded, rtol=1e-6)


def test_without_tensorboardx(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtra, match=r"neonlike\[tensorboard\]"):
        Callbacks(model, tensorboard=tmp_path)
