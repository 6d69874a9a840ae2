"""Callbacks that act on the training: saving models, keeping the best, stopping early, interrupts."""

from __future__ import annotations

import os

import numpy as np
import pytest

from neonlike.callbacks.callbacks import (
    Callback,
    Callbacks,
    EarlyStopCallback,
    LossCallback,
    SaveBestStateCallback,
    SerializeModelCallback,
)
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Constant
from neonlike.layers import Affine
from neonlike.models import Model
from neonlike.transforms import Softmax, Tanh
from tests.callbacks.training import fit


class TestSaving:
    """Callbacks that write models."""

    def test_every_so_many_epochs(self, be, model, data, tmp_path):
        path = str(tmp_path / "m.p")
        fit(model, data, Callbacks(model, progress_bar=False, save_path=path, serialize=3), 4)
        assert Model(path).epoch_index == 3

    @pytest.mark.parametrize("serialize", [{}, {"serialize": None}, {"serialize": 0}])
    def test_save_path_alone_saves_each_epoch(self, be, model, data, tmp_path, serialize):
        path = str(tmp_path / "m.p")
        fit(model, data, Callbacks(model, progress_bar=False, save_path=path, **serialize), 2)
        assert Model(path).epoch_index == 2

    def test_a_history_of_files(self, be, model, data, tmp_path):
        path = str(tmp_path / "m.p")
        fit(model, data, Callbacks(model, progress_bar=False, save_path=path, history=2), 5)
        assert sorted(os.listdir(tmp_path)) == ["m.p", "m_3.p", "m_4.p"]
        assert os.path.islink(path) and Model(path).epoch_index == 5
        assert Model(str(tmp_path / "m_3.p")).epoch_index == 4
        with pytest.raises(ArgumentError, match="history"):
            SerializeModelCallback(path, history=0)

    def test_the_best_state(self, be, model, data, valid, tmp_path):
        path = str(tmp_path / "best.p")
        callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=1)
        callbacks.add_save_best_state_callback(path)
        losses = iter([3.0, 1.0, 2.0, 1.5])
        callbacks.callbacks[0]._evaluate = lambda model: next(losses)
        fit(model, data, callbacks)
        assert Model(path).epoch_index == 2
        assert callbacks.callbacks[-1].best_cost == 1.0

    def test_a_resumed_training_removes_the_file_that_it_went_on_from(self, be, model, data, tmp_path):
        path = str(tmp_path / "m.p")
        fit(model, data, Callbacks(model, progress_bar=False, save_path=path, history=2), 3)
        again = Model(path)
        fit(again, data, Callbacks(again, progress_bar=False, save_path=path, history=2), 6)
        assert sorted(os.listdir(tmp_path)) == ["m.p", "m_4.p", "m_5.p"]

    def test_any_loss_is_better_than_none_and_a_nan_never_is(self, be, model, data, valid, tmp_path):
        path = str(tmp_path / "best.p")
        callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=1)
        callbacks.add_save_best_state_callback(path)
        losses = iter([np.nan, 2.0, np.nan, 3.0])
        callbacks.callbacks[0]._evaluate = lambda model: next(losses)
        fit(model, data, callbacks, 4)
        assert Model(path).epoch_index == 2
        assert callbacks.callbacks[-1].best_cost == 2.0

    def test_the_best_state_looks_at_new_losses_only(self, be, model, data, valid, tmp_path):
        callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=2)
        callbacks.add_callback(SaveBestStateCallback(str(tmp_path / "best.p")))
        fit(model, data, callbacks, 3)
        assert Model(str(tmp_path / "best.p")).epoch_index == 2

    def test_a_resumed_training_keeps_the_best_of_the_one_before(self, be):
        callback = SaveBestStateCallback("best.p")
        for best in (0.25, None):
            callback.set_progress({"best_cost": best})
            assert callback.best_cost == best

    def test_a_model_file_is_loaded_first(self, be, model, data, tmp_path):
        path = str(tmp_path / "m.p")
        fit(model, data, None, 2)
        model.save_params(path)
        other = Model([Affine(6, Constant(0.1), bias=Constant(0), activation=Tanh()),
                       Affine(2, Constant(0.1), activation=Softmax())])  # fmt: skip
        trained = []

        class Epochs(Callback):
            def on_epoch_end(self, callback_data, model, epoch):
                trained.append(epoch)

        callbacks = Callbacks(other, progress_bar=False, model_file=path)
        callbacks.add_callback(Epochs())
        fit(other, data, callbacks, 3)
        assert trained == [2]

    def test_an_interrupt_saves_the_model(self, be, model, data, tmp_path):
        path = str(tmp_path / "m.p")
        callbacks = Callbacks(model, progress_bar=False, save_path=path, serialize=100)

        class Interrupt(Callback):
            def on_minibatch_end(self, callback_data, model, epoch, minibatch):
                if (epoch, minibatch) == (1, 2):
                    raise KeyboardInterrupt

        callbacks.add_callback(Interrupt())
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, callbacks)
        saved = Model(path)
        assert saved.epoch_index == 1
        for a, b in zip(saved.layers_to_optimize, model.layers_to_optimize, strict=True):
            np.testing.assert_array_equal(a.W.get(), b.W.get())

    def test_an_interrupt_without_a_path_is_only_passed_on(self, model, data, tmp_path):
        callbacks = Callbacks(model, progress_bar=False)

        class Interrupt(Callback):
            def on_epoch_begin(self, callback_data, model, epoch):
                raise KeyboardInterrupt

        callbacks.add_callback(Interrupt())
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, callbacks)


class TestEarlyStop:
    """Stopping by a function of the loss."""

    def test_it_stops(self, be, model, data, valid):
        callbacks, seen = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=1), []

        def stop(state, loss):
            seen.append((state, loss))
            return (0 if state is None else state + 1), state == 1

        callbacks.add_early_stop_callback(stop)
        fit(model, data, callbacks, 10)
        assert [state for state, _ in seen] == [None, 0, 1] and model.epoch_index == 3 and model.finished
        np.testing.assert_allclose([loss for _, loss in seen], callbacks.callback_data["cost/loss"][:3])

    @pytest.mark.parametrize("make", [lambda: EarlyStopCallback(lambda s, x: (s, True)),
                                      lambda: SaveBestStateCallback("best.p")])  # fmt: skip
    def test_it_needs_a_loss(self, be, model, data, make):
        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_callback(make())
        with pytest.raises(ArgumentError, match="eval_set"):
            fit(model, data, callbacks)

    def test_it_follows_a_list_of_epochs(self, be, model, data, valid):
        callbacks, seen = Callbacks(model, progress_bar=False), []
        callbacks.add_callback(LossCallback(valid, epoch_freq=[1, 2]))
        callbacks.add_early_stop_callback(lambda state, loss: (seen.append(loss), len(seen) == 2))
        fit(model, data, callbacks, 10)
        assert model.epoch_index == 3
        np.testing.assert_allclose(seen, callbacks.callback_data["cost/loss"][...])

    def test_an_unusable_function(self, be, model, data, valid):
        with pytest.raises(DTypeError, match="stop_func"):
            EarlyStopCallback(3)
        callbacks = Callbacks(model, progress_bar=False, eval_set=valid, eval_freq=1)
        callbacks.add_early_stop_callback(lambda state, loss: loss < 1)
        with pytest.raises(DTypeError, match=r"\(state, finished\)"):
            fit(model, data, callbacks)
