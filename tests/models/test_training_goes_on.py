"""Positions, memories and random streams belong to a training: a model that was trained before learns other data."""

from __future__ import annotations

import os
import stat
import threading
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback, MetricCallback
from neonlike.errors import ArgumentError
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neonlike.util.atomic import replacing
from tests.support.clusters import NCLASS, NIN
from tests.support.clusters import clusters as data


def network() -> Model:
    init = GlorotUniform()
    return Model([Affine(8, init, activation=Rectlin()), Affine(NCLASS, init, activation=Softmax())])


def fit(model: Model, dataset: Any, epochs: int, callbacks: Any = None) -> Any:
    model.fit(dataset, GeneralizedCost(CrossEntropyMulti()), Adam(learning_rate=0.01), epochs, callbacks)
    return callbacks


@pytest.fixture
def pretrained(be: Any, tmp_path: Any) -> str:
    """A file of a model that was trained for 5 epochs of 10 minibatches of 8."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=8)
    model = network()
    fit(model, data(80), 5, Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1))
    path = str(tmp_path / "first.prm")
    model.save_params(path)
    return path


WAYS = ["path", "load_params", "model_file"]


def loaded(path: str, how: str, **options: Any) -> tuple[Model, Callbacks]:
    model = Model(path) if how == "path" else network()
    if how == "load_params":
        model.load_params(path)
    options |= {"model_file": path} if how == "model_file" else {}
    return model, Callbacks(model, progress_bar=False, **options)


class TestOtherData:
    """Fine-tuning."""

    @pytest.mark.parametrize("how", WAYS)
    @pytest.mark.parametrize(("count", "batch"), [(24, 8), (80, 40), (79, 8), (400, 8), (17, 3)])
    def test_of_any_size(self, be, pretrained, how, count, batch):
        gen_backend(be.backend_name, rng_seed=1, batch_size=batch)
        model, callbacks = loaded(pretrained, how)
        fit(model, data(count, 2), 8, callbacks)
        store = callbacks.callback_data
        assert model.epoch_index == 8
        steps = -(-count // batch)
        ends = store["time_markers/minibatch"][...]
        assert (ends[:5] == 0).all() and 2 * steps <= ends[7] <= 3 * steps
        cost = store["cost/train"][...]
        assert np.isfinite(cost[: int(ends[7])]).all() and np.isnan(cost[int(ends[7]) :]).all()

    @pytest.mark.parametrize("how", WAYS)
    def test_equal_sizes_are_told_apart(self, be, pretrained, how):
        """A checksum tells data of equal sizes apart: callbacks' memory belongs to the earlier data."""
        gen_backend(be.backend_name, rng_seed=1, batch_size=8)
        model, callbacks = loaded(pretrained, how, eval_set=data(40, 3), eval_freq=1)
        fit(model, data(80, 3), 6, callbacks)
        assert np.isnan(callbacks.callback_data["cost/loss"][...][:5]).all()
        model, callbacks = loaded(pretrained, how, eval_set=data(40), eval_freq=1)
        fit(model, data(80), 6, callbacks)
        assert np.isfinite(callbacks.callback_data["cost/loss"][...]).all()

    def test_the_best_file_and_patience_begin_anew(self, be, tmp_path):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, seen, best = network(), [], tmp_path / "best.prm"
        callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1)
        callbacks.add_save_best_state_callback(str(best))
        callbacks.add_early_stop_callback(lambda state, loss: (seen.append(state) or (state or 0) + 1, False))
        fit(model, data(80), 4, callbacks)
        saver = callbacks.callbacks[-2]
        saver.best_cost = -1.0  # nothing will ever be better
        best.unlink()
        fit(model, data(80), 5, callbacks)
        assert not best.exists() and seen == [None, 1, 2, 3, 4]
        fit(model, data(48, 2), 6, callbacks)
        assert best.exists() and saver.best_cost > 0 and seen[-1] is None

    def test_a_model_of_this_process(self, be):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model = network()
        fit(model, data(80), 3, Callbacks(model, progress_bar=False))
        callbacks = fit(model, data(16, 2), 5, Callbacks(model, progress_bar=False))
        assert callbacks.callback_data["time_markers/minibatch"][...].tolist() == [0, 0, 0, 2, 4]


class Reload(Callback):
    """Goes back to a file in the middle of a training."""

    def __init__(self, path: str, when: str, how: str) -> None:
        super().__init__()
        self.path, self.when, self.how = path, when, how
        self.done = False

    def back(self, model: Model) -> None:
        if self.how == "load_params":
            model.load_params(self.path)
        elif self.how == "weights":
            model.load_params(self.path, load_states=False)
        else:
            model.deserialize(Model(self.path).serialize())
        self.done = True

    def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
        if self.when == "epoch" and epoch == 1:
            self.back(model)

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        if self.when == "minibatch" and (epoch, minibatch) == (1, 3):
            self.back(model)


@pytest.mark.parametrize("when", ["epoch", "minibatch"])
@pytest.mark.parametrize("how", ["load_params", "weights", "deserialize"])
def test_a_callback_goes_back_to_other_weights(be: Any, pretrained: str, how: str, when: str) -> None:
    gen_backend(be.backend_name, rng_seed=3, batch_size=8)
    model = network()
    callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1)
    reload = Reload(pretrained, when, how)
    callbacks.add_callback(reload)
    fit(model, data(80), 4, callbacks)
    assert reload.done and model.epoch_index == 4
    assert callbacks.callback_data["time_markers/minibatch"][...].tolist() == [10, 20, 30, 40]
    losses = callbacks.callback_data["cost/loss"][...]
    assert losses[2] < 0.8 * losses[0] and np.isfinite(losses).all()


@pytest.mark.parametrize("how", WAYS)
def test_reading_weights_leaves_the_random_streams(be: Any, pretrained: str, how: str) -> None:
    drawn = []
    for seed in (1, 2, 3):
        here = gen_backend(be.backend_name, rng_seed=seed, batch_size=8)
        model, callbacks = loaded(pretrained, how)
        if how == "model_file":
            fit(model, data(24, 2), 6, callbacks)
        out = here.empty((1, 4))
        out[:] = here.rand()
        drawn.append((*here.rng.uniform(size=2), *out.get().ravel()))
    assert len(set(drawn)) == 3


def test_a_copy_of_a_file_has_its_random_streams(be: Any, pretrained: str, tmp_path: Any) -> None:
    """Read, and saved again after other draws: who goes on from the copy goes on from the file."""
    drawn, copy = [], tmp_path / "copy.prm"
    here = gen_backend(be.backend_name, rng_seed=7, batch_size=8)
    model = Model(pretrained)
    here.rng.uniform(size=3)
    model.save_params(copy)
    for path in (pretrained, copy):
        here = gen_backend(be.backend_name, rng_seed=8, batch_size=8)
        model = Model(path)
        fit(model, data(80), 6, Callbacks(model, progress_bar=False))
        out = here.empty((1, 2))
        out[:] = here.rand()
        drawn.append((*here.rng.uniform(size=2), *out.get().ravel()))
    assert drawn[0] == drawn[1]


def test_a_fit_with_nothing_to_do_keeps_the_position(be: Any, tmp_path: Any) -> None:
    """Interrupted within the second epoch, which does not begin with the first sample."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=8)
    model, path, found = network(), str(tmp_path / "m.prm"), []

    class Stop(Callback):
        def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
            if (epoch, minibatch) == (1, 1):
                raise KeyboardInterrupt

    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        fit(model, data(79), 3, callbacks)
    model.save_params(path)
    for idle in (False, True):
        if idle:
            model = Model(path)
            fit(model, data(79), 1, Callbacks(model, progress_bar=False))
            model.save_params(path)
        model = Model(path)
        fit(model, data(79), 3, Callbacks(model, progress_bar=False))
        found.append(model.layers.layers[0].W.get())
    assert np.array_equal(*found)


def test_back_to_a_file_of_fewer_epochs(be: Any, pretrained: str) -> None:
    """``model_file`` says how many epochs are done, not the model that reads it."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=8)
    model = network()
    fit(model, data(80), 8, Callbacks(model, progress_bar=False))
    fit(model, data(80), 6, Callbacks(model, progress_bar=False, model_file=pretrained))
    assert model.epoch_index == 6
    with pytest.raises(ArgumentError, match="5 epochs are done"):
        fit(model, data(80), 4, Callbacks(model, progress_bar=False, model_file=pretrained))


class TestRecords:
    """Records of epochs that were not run, or run at other times."""

    def test_epochs_that_were_not_run_are_nan(self, be):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model = network()

        class Stop(Callback):
            def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
                model.finished = epoch == 1

        callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1, metric=Misclassification())
        callbacks.add_callback(Stop())
        fit(model, data(80), 5, callbacks)
        for path in ("cost/loss", "metrics/Top1Misclass", "time/loss"):
            values = callbacks.callback_data[path][...]
            assert np.isfinite(values[:2]).all() and np.isnan(values[2:]).all()
        assert np.nanmin(callbacks.callback_data["cost/loss"][...]) > 0

    @pytest.mark.parametrize("output_file", [None, "m.h5"])
    @pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (2, 3), (3, 4)])
    def test_another_frequency(self, be, tmp_path, first, second, output_file):
        def callbacks(model: Model, freq: Any, **options: Any) -> Callbacks:
            where = None if output_file is None else str(tmp_path / f"{freq}{output_file}")
            return Callbacks(
                model, progress_bar=False, eval_set=data(40), eval_freq=freq, output_file=where,
                save_path=path, **options
            )

        def fires(epoch: int, freq: Any) -> bool:
            return epoch in freq if isinstance(freq, list) else (epoch + 1) % freq == 0

        path = str(tmp_path / "m.prm")
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, known = network(), {}

        class Listen(Callback):
            def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
                for at, value in zip(callback_data["epochs/cost/loss"][...], callback_data["cost/loss"][...]):
                    if at <= epoch:
                        known.setdefault(int(at), float(value))

        one = callbacks(model, first)
        one.add_callback(Listen())
        fit(model, data(80), 4, one)
        model = network()
        other = callbacks(model, second, model_file=path)
        other.add_callback(Listen())
        written: dict[int, float] = {}

        class Keep(Callback):
            def on_train_end(self, callback_data: Any, model: Any) -> None:
                epochs, values = callback_data["epochs/cost/loss"][...], callback_data["cost/loss"][...]
                written.update(zip(epochs.tolist(), values.tolist()))

        other.add_callback(Keep())
        fit(model, data(80), 8, other)
        wanted = {e for e in range(4) if fires(e, first)} | {e for e in range(4, 8) if fires(e, second)}
        assert {epoch for epoch, value in written.items() if not np.isnan(value)} == wanted
        assert all(written[epoch] == known[epoch] for epoch in wanted)

    def test_epochs_planned_before_are_no_new_losses(self, be, tmp_path):
        """A training that ended early goes on with another frequency; epochs are trained again."""
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, best, seen = network(), str(tmp_path / "best.prm"), []
        callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1)
        callbacks.add_save_best_state_callback(best)
        fit(model, data(80), 1, callbacks)
        fit(model, data(80), 5, Callbacks(model, progress_bar=False))
        model.epoch_index = 0
        fit(model, data(80), 4, callbacks)
        model.load_params(best)
        done = model.epoch_index
        callbacks.callbacks[0].epoch_freq = 5
        callbacks.add_early_stop_callback(lambda state, loss: (seen.append(loss), False))
        fit(model, data(80), 6, callbacks)
        epochs = callbacks.callback_data["epochs/cost/loss"][...].tolist()
        assert len(seen) == len([epoch for epoch in (4,) if epoch >= done])
        assert [epoch for epoch in epochs if epoch >= done] == [epoch for epoch in (4,) if epoch >= done]

        class Stop(Callback):
            def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
                model.finished = True

        model = network()
        callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=1)
        callbacks.add_callback(Stop())
        fit(model, data(80), 4, callbacks)
        model.save_params(best)
        model, losses = network(), []
        callbacks = Callbacks(model, progress_bar=False, eval_set=data(40), eval_freq=3, model_file=best)
        callbacks.add_early_stop_callback(lambda state, loss: (losses.append(loss), False))
        fit(model, data(80), 4, callbacks)
        assert len(losses) == 1 and np.isfinite(losses).all()

    def test_a_metric_on_two_data_sets(self, be):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, one, other = network(), data(40), data(64, 9)
        callbacks = Callbacks(model, progress_bar=False, eval_set=one, eval_freq=1, metric=Misclassification())
        callbacks.add_callback(MetricCallback(other, Misclassification()))
        fit(model, data(80), 2, callbacks)
        fit(model, data(80), 3, callbacks)
        for path, dataset in (("metrics/Top1Misclass", one), ("metrics/Top1Misclass_2", other)):
            values = callbacks.callback_data[path][...]
            assert values.shape == (3,)
            assert values[-1] == pytest.approx(model.eval(dataset, Misclassification()).item())


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and permissions of POSIX systems")
class TestWhereFilesGo:
    """Saving replaces the file of that name."""

    def test_a_link_stays(self, tmp_path):
        folder, link = tmp_path / "real", tmp_path / "link"
        folder.mkdir()
        for before in (True, False):
            target = folder / f"{before}"
            if before:
                target.write_bytes(b"old")
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            with replacing(str(link)) as file:
                file.write(b"new")
            assert link.is_symlink() and target.read_bytes() == b"new"
        assert sorted(os.listdir(tmp_path)) == ["link", "real"] and sorted(os.listdir(folder)) == ["False", "True"]

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
    def test_permissions_stay(self, tmp_path, mode):
        path = tmp_path / "m"
        path.write_bytes(b"old")
        path.chmod(mode)
        with replacing(str(path)) as file:
            file.write(b"new")
        assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_bytes() == b"new"

    def test_a_pipe_gets_the_whole_file(self, be, tmp_path):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, path, read = network(), tmp_path / "pipe.prm", []
        model.initialize(NIN)
        os.mkfifo(path)
        reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
        reader.start()
        model.save_params(path)
        reader.join(30)
        assert stat.S_ISFIFO(path.stat().st_mode) and os.listdir(tmp_path) == ["pipe.prm"]
        (tmp_path / "copy.prm").write_bytes(read[0])
        assert Model(tmp_path / "copy.prm").layers is not None

    def test_a_device_stays(self, be):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model = network()
        fit(model, data(16), 1, Callbacks(model, progress_bar=False, save_path=os.devnull))
        assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
        with pytest.raises(ArgumentError, match="is no file"):
            fit(model, data(16), 2, Callbacks(model, progress_bar=False, save_path=os.devnull, history=2))
        with pytest.raises(ArgumentError, match="is no file"):
            Callbacks(model, progress_bar=False, output_file=os.devnull)
        assert stat.S_ISCHR(os.stat(os.devnull).st_mode)

    def test_records_keep_permissions_and_links(self, be, tmp_path):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model, target, link = network(), tmp_path / "target.h5", tmp_path / "link.h5"
        target.write_bytes(b"")
        target.chmod(0o600)
        link.symlink_to(target)
        fit(model, data(16), 1, Callbacks(model, progress_bar=False, output_file=str(link)))
        assert link.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o600 and target.stat().st_size > 100

    def test_no_link_stays_behind(self, be, tmp_path, monkeypatch):
        gen_backend(be.backend_name, rng_seed=0, batch_size=8)
        model = network()
        callbacks = Callbacks(model, progress_bar=False, save_path=str(tmp_path / "m.prm"), history=2)
        replace = os.replace

        def interrupted(source: str, target: str) -> None:
            if str(source).endswith(".new"):
                raise KeyboardInterrupt
            replace(source, target)

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(model, data(16), 1, callbacks)
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
