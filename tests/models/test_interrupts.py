"""Ctrl-C while a model trains; random moments are in interrupts.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.callbacks.store import Steps, open_store
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax
from neonlike.util import interrupts

N = 8


def random_moments(moments: int) -> None:
    script = Path(__file__).with_name("interrupts.py")
    done = subprocess.run(
        [sys.executable, script, "--moments", str(moments)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"{moments} interrupts, 0 wrong" in done.stdout


@pytest.mark.cpu_only("sends signals to a process of its own, on the CPU")
def test_a_few_random_moments():
    random_moments(10)


@pytest.mark.slow
@pytest.mark.cpu_only("sends signals to a process of its own, on the CPU")
def test_many_random_moments():
    random_moments(50)


@pytest.fixture
def train(be, rng, tmp_path):
    """Train a small model for some epochs with a callback; it keeps the model and callbacks of the last call."""
    be.bsz = N
    x = rng.normal(size=(5 * N, 4))
    data = ArrayIterator(x, (x[:, 0] > 0).astype(int), nclass=2)

    def train(callback=None, epochs=3, **kwargs):
        train.model = Model([Affine(2, GlorotUniform(), activation=Softmax())])
        train.callbacks = Callbacks(train.model, progress_bar=False, **kwargs)
        if callback is not None:
            train.callbacks.add_callback(callback, insert_pos=0)
        train.model.fit(
            data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), epochs, train.callbacks
        )

    return train


class At(Callback):
    """Calls a function in one minibatch, before its computation."""

    def __init__(self, function, epoch=1, minibatch=2):
        super().__init__()
        self.function, self.at = function, (epoch, minibatch)

    def on_minibatch_begin(self, callback_data, model, epoch, minibatch):
        if (epoch, minibatch) == self.at:
            self.function()


def interrupt():
    signal.raise_signal(signal.SIGINT)


def state_of(train):
    return train.model.epoch_index, train.model.progress.minibatches


class TestGuard:
    """When KeyboardInterrupt is raised."""

    def test_what_python_swallows_ends_the_training(self, train, capsys):
        class Swallows:
            def __del__(self):
                interrupt()

        with pytest.raises(KeyboardInterrupt):
            train(At(Swallows))
        assert state_of(train) == (1, 2)
        assert "ignored" not in capsys.readouterr().err

    def test_what_python_swallows_while_a_file_is_opened(self, tmp_path, monkeypatch, capsys):
        class Swallows:
            def __del__(self):
                interrupt()

        class File(h5py.File):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                Swallows()

        monkeypatch.setattr(h5py, "File", File)
        with pytest.raises(KeyboardInterrupt):
            open_store(tmp_path / "m.h5")
        assert "ignored" not in capsys.readouterr().err
        with File.__base__(tmp_path / "m.h5"):
            pass  # it is not left open

    def test_the_minibatch_is_finished(self, train, tmp_path):
        class InFprop(Callback):
            def on_epoch_begin(self, callback_data, model, epoch):
                if epoch == 1:
                    layer = model.layers.layers[0]
                    original = layer.fprop

                    def fprop(*args, **kwargs):
                        interrupt()
                        return original(*args, **kwargs)

                    layer.fprop = fprop

        with pytest.raises(KeyboardInterrupt):
            train(InFprop(), save_path=str(tmp_path / "m.p"), output_file=str(tmp_path / "m.h5"))
        assert state_of(train) == (1, 1)
        assert Model(tmp_path / "m.p").progress.loaded["minibatches"] == 1
        with h5py.File(tmp_path / "m.h5") as store:
            assert (store["cost/train"][:6] > 0).all(), "that of the minibatch, too"

    def test_a_second_one_is_raised_at_once(self, train):
        after = []

        def twice():
            interrupt()
            after.append("first")
            interrupt()
            after.append("second")

        with pytest.raises(KeyboardInterrupt):
            train(At(twice))
        assert after == ["first"]

    def test_what_takes_long_is_interrupted(self, train, monkeypatch):
        monkeypatch.setattr(interrupts, "GRACE_S", 0.01)

        def hang():
            interrupt()
            while True:
                time.sleep(0.01)

        with pytest.raises(KeyboardInterrupt):
            train(At(hang))
        assert state_of(train) == (1, 2)

    def test_an_error_after_it_does_not_hide_it(self, train, tmp_path):
        def fail():
            interrupt()
            raise OSError("the compiler was interrupted, too")

        with pytest.raises(KeyboardInterrupt) as info:
            train(At(fail), save_path=str(tmp_path / "m.p"))
        assert isinstance(info.value.__cause__, OSError) and (tmp_path / "m.p").exists()

    def test_the_last_moment(self, train):
        class AtEnd(Callback):
            def on_train_end(self, callback_data, model):
                interrupt()

        with pytest.raises(KeyboardInterrupt):
            train(AtEnd())
        assert train.model.epoch_index == 3

    def test_pythons_handler_is_put_back(self, train):
        def fail():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            raise ArgumentError("something else")

        with pytest.raises(ArgumentError):
            train(At(fail))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        train()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_handler_of_the_program_stays(self, train):
        came = []
        before = signal.signal(signal.SIGINT, lambda *_: came.append("mine"))
        try:
            train(At(interrupt))
        finally:
            signal.signal(signal.SIGINT, before)
        assert came == ["mine"] and train.model.epoch_index == 3

    def test_a_training_in_another_thread_changes_no_handler(self, train):
        seen = []
        worker = threading.Thread(target=lambda: train(At(lambda: seen.append(signal.getsignal(signal.SIGINT)))))
        worker.start()
        worker.join()
        assert seen == [signal.default_int_handler] and train.model.epoch_index == 3


class TestRecords:
    """Records in an HDF5 file, minibatch by minibatch."""

    def test_minibatches_make_no_objects_of_h5py(self, train, tmp_path, monkeypatch):
        made = []

        class Watch(Callback):
            def on_minibatch_begin(self, callback_data, model, epoch, minibatch):
                made.append((epoch, minibatch, 0))

        def watch(cls, name):
            original = getattr(cls, name)

            def count(*args):
                made.append(name)
                return original(*args)

            monkeypatch.setattr(cls, name, count)

        for cls in (h5py.Group, h5py.Dataset, h5py.AttributeManager):
            watch(cls, "__getitem__")
            watch(cls, "__setitem__")
        train(Watch(), output_file=str(tmp_path / "m.h5"))
        later = [made.index((epoch, 1, 0)) for epoch in range(3)]
        for at in later:
            assert made[at : at + 4] == [(made[at][0], minibatch, 0) for minibatch in range(1, 5)]

    def test_the_file_of_a_process_that_was_killed_can_be_read(self, train, tmp_path):
        class Copy(Callback):
            def on_epoch_begin(self, callback_data, model, epoch):
                (tmp_path / f"{epoch}.h5").write_bytes((tmp_path / "m.h5").read_bytes())

        train(Copy(), output_file=str(tmp_path / "m.h5"))
        with h5py.File(tmp_path / "2.h5") as store:
            assert (store["cost/train"][:10] > 0).all() and np.isnan(store["cost/train"][10:]).all()
            np.testing.assert_array_equal(store["time_markers/minibatch"][...], [5, 10, 0])

    @pytest.mark.parametrize("in_file", [False, True])
    def test_steps(self, tmp_path, in_file):
        store = open_store(str(tmp_path / "s.h5") if in_file else None)
        for axis, shape in ((0, (4,)), (0, (4, 3)), (1, (3, 4))):
            dataset = store.create_dataset(f"d{axis}{len(shape)}", shape, dtype="float32")
            wanted, steps = np.zeros(shape, np.float32), Steps(dataset, axis)
            for step in (2, 0, 3):
                value = step + 0.5 if len(shape) == 1 else np.arange(3.0) + 10 * step
                steps[step] = value
                wanted[(slice(None),) * axis + (step,)] = value
            np.testing.assert_array_equal(dataset[...], wanted)
        with pytest.raises((IndexError, ValueError, OSError)):
            steps[4] = 1.0
