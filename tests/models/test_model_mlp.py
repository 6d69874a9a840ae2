"""The model: training, evaluation and timing."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator, NervanaDataIterator
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Gaussian
from neonlike.layers import Affine, GeneralizedCost, Linear, Sequential
from neonlike.logger import logger
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum, MultiOptimizer, RMSProp, Schedule
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.values import values
from neonlike.transforms import CrossEntropyMulti, Misclassification, Softmax, TopKMisclassification
from tests.models.perceptron import N, cost, layers, weights
from tests.support.clusters import NCLASS, NIN, samples


class TestFit:
    """The training loop."""

    def test_it_learns(self, be, data):
        model = Model(layers(dropout=0.8))
        before = model.eval(data, Misclassification()).item()
        model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 20)
        after = model.eval(data, Misclassification()).item()
        assert after < 0.05 < before
        assert model.epoch_index == 20 and model.nbatches == 6 and model.ndata == 6 * N

    @pytest.mark.parametrize("optimizer", [Adam(), RMSProp(), MultiOptimizer({"default": Adam(), "Bias": RMSProp()})],
                             ids=lambda o: o.classnm)  # fmt: skip
    def test_other_optimizers_lower_the_cost(self, be, data, optimizer):
        model = Model(layers())
        model.fit(data, cost(), optimizer, 1)
        first = model.total_cost.item()
        model.fit(data, cost(), optimizer, 12)
        assert model.total_cost.item() < 0.8 * first

    def test_equal_seeds_give_equal_weights(self, be, data):
        results = []
        for _ in range(2):
            be.rng_reset()
            data.reset()
            model = Model(layers(dropout=0.8))
            model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 3)
            results.append(weights(model))
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_fit_goes_on_where_it_ended(self, be, data, trained):
        calls = []

        class Recorder:
            def __getattr__(self, hook):
                return lambda *args: calls.append((hook, *args))

        trained.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 3, Recorder())
        assert calls[:3] == [("on_train_begin", 3), ("on_epoch_begin", 2), ("on_minibatch_begin", 2, 0)]
        assert calls[-3:] == [("on_epoch_end", 2), ("on_train_end",), ("on_fit_exit",)]
        assert [c for c in calls if c[0] == "on_minibatch_end"] == [("on_minibatch_end", 2, i) for i in range(6)]

    def test_a_schedule_sees_each_epoch(self, be, data):
        epochs, schedule, model = [], Schedule(), Model(layers())
        schedule.get_learning_rate = lambda rate, epoch: epochs.append(epoch) or rate
        for count in (2, 3):
            model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9, schedule=schedule), count)
        assert sorted({*epochs}) == [0, 1, 2] and epochs == sorted(epochs)

    def test_the_cost_of_an_epoch_is_the_mean_over_its_batches(self, be, data):
        each, total, model = [], cost(), Model(layers())
        get_cost = total.get_cost
        total.get_cost = lambda y, t: each.append(get_cost(y, t).item()) or total.cost
        model.fit(data, total, GradientDescentMomentum(0.1, 0.9), 1)
        assert len(each) == data.nbatches > 1
        assert model.total_cost.item() == pytest.approx(np.mean(each), rel=1e-5)

    def test_finished_ends_the_training(self, be, data):
        model = Model(layers())

        class Stop:
            def __getattr__(self, hook):
                return lambda *args: setattr(model, "finished", hook == "on_epoch_end")

        model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 5, Stop())
        assert model.epoch_index == 1

    def test_a_fit_with_nothing_left_to_train_says_so(self, be, data, trained, monkeypatch):
        said = []
        monkeypatch.setattr(logger, "warning", lambda message, *args: said.append(message % args))
        trained.fit(data, cost(), Adam(), 2)
        assert len(said) == 1 and "2 epochs are done" in said[0]
        trained.finished = True
        trained.fit(data, cost(), Adam(), 5)
        assert len(said) == 2 and "model.finished = False" in said[1]
        trained.finished = False
        trained.fit(data, cost(), Adam(), 3)
        assert len(said) == 2 and trained.epoch_index == 3

    def test_data_for_another_network(self, be, data, trained, rng):
        other = ArrayIterator(rng.normal(size=(N, NIN + 1)), np.zeros(N), nclass=NCLASS)
        with pytest.raises(ShapeError, match="7"):
            trained.fit(other, cost(), GradientDescentMomentum(0.1, 0.9), 4)

    def test_targets_of_another_size(self, be, rng):
        be.bsz = N
        data = ArrayIterator(rng.normal(size=(N, NIN)), np.zeros(N), nclass=NCLASS + 1)
        with pytest.raises(ShapeError, match=r"\(3, 16\).*\(4, 16\)"):
            Model(layers()).fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 1)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [({"cost": CrossEntropyMulti()}, "GeneralizedCost"), ({"cost": GeneralizedCost}, "GeneralizedCost"),
         ({"optimizer": 0.1}, "GradientDescentMomentum"), ({"optimizer": Adam}, "class Adam"),
         ({"dataset": np.zeros((N, NIN))}, "dataset is a ndarray.*ArrayIterator"),
         ({"dataset": ArrayIterator}, "class ArrayIterator"), ({"callbacks": Callbacks}, "class Callbacks"),
         ({"callbacks": []}, r"callbacks is a list.*Callbacks\(model")],
    )  # fmt: skip
    def test_an_argument_of_the_wrong_type(self, be, data, wrong, message):
        arguments = {"dataset": data, "cost": cost(), "optimizer": Adam(), **wrong}
        with pytest.raises(DTypeError, match=message):
            Model(layers()).fit(num_epochs=1, **arguments)

    def test_what_is_no_dataset_is_not_evaluated(self, be):
        be.bsz = N
        model, x = Model(layers()), np.zeros((N, NIN))
        for ask in (lambda: model.eval(x, Misclassification()), lambda: model.get_outputs(x)):
            with pytest.raises(DTypeError, match=r"dataset is a ndarray.*ArrayIterator"):
                ask()

    @pytest.mark.parametrize("bsz", [0, None])
    def test_no_batch_size(self, be, bsz):
        model = Model(layers())
        be.bsz = bsz
        with pytest.raises(ArgumentError, match="batch_size"):
            model.initialize(NIN)

    def test_no_layers(self, be):
        with pytest.raises(ArgumentError, match="empty"):
            Model([])

    def test_no_batches(self, be, data):
        class Empty(NervanaDataIterator):
            shape, nbatches, ndata = NIN, 0, 0

            def __iter__(self):
                return iter(())

            def reset(self):
                pass

        with pytest.raises(ArgumentError, match="no batch"):
            Model(layers()).fit(Empty(), cost(), Adam(), 1)
        with pytest.raises(ArgumentError, match="no batch"):
            Model(layers()).eval(Empty(), Misclassification())


class TestEvaluation:
    """eval and get_outputs count every sample once."""

    def test_a_partial_last_batch(self, be, rng):
        be.bsz = N
        x, labels = samples(2 * N + 5, rng, 3)
        data = ArrayIterator(x, labels, nclass=NCLASS)
        model = Model(layers())
        outputs = model.get_outputs(data)
        assert outputs.shape == (2 * N + 5, NCLASS)
        error = (outputs.argmax(axis=1) != labels).mean()
        for _ in range(2):  # the second time starts after a wrapped epoch
            got = model.eval(data, Misclassification())
            assert got.dtype == np.float32 and got.shape == (1,)
            assert got.item() == pytest.approx(error, abs=1e-6)
        np.testing.assert_array_equal(model.get_outputs(data), outputs)
        assert model.eval(data, TopKMisclassification(2)).shape == (3,)

    def test_outputs_of_sequences(self, be, rng):
        be.bsz = 2
        x = rng.normal(size=(3, 4 * 5))

        class Sequences(NervanaDataIterator):
            shape, nbatches, ndata = (4, 5), 2, 3

            def __iter__(self):
                for rows in ([0, 1], [2, 0]):
                    batch = x[rows].reshape(2, 4, 5).transpose(1, 2, 0)
                    yield be.array(batch.reshape(4, 5 * 2)), None

            def reset(self):
                pass

        model = Model([Linear(3, Gaussian())])
        outputs = model.get_outputs(Sequences())
        W = model.layers_to_optimize[0].W.get()
        assert outputs.shape == (3, 5, 3)
        np.testing.assert_allclose(outputs, np.einsum("kf,nft->ntk", W, x.reshape(3, 4, 5)), rtol=1e-4, atol=1e-5)

    def test_costs_and_metrics_of_sequences(self, be, rng):
        """In a smaller batch only its samples count in each step (neon took the first columns); costs are means."""
        be.bsz = 4
        x, labels = rng.normal(size=(2, 3, 5 * 4)), rng.integers(2, size=(2, 5 * 4))

        class Sequences(NervanaDataIterator):
            shape, nbatches, ndata = (3, 5), 2, 6

            def __iter__(self):
                for batch in (0, 1):
                    yield be.array(x[batch]), be.array(np.eye(2)[labels[batch]].T)

            def reset(self):
                pass

        data, model = Sequences(), Model([Affine(2, Gaussian(), activation=Softmax())])
        wrong = model.eval(data, Misclassification(steps=5))
        y = [model.fprop(be.array(batch), inference=True).get() for batch in x]
        valid = [np.arange(20), np.arange(20).reshape(5, 4)[:, :2].ravel()]
        missed = [(y[batch].argmax(axis=0) != labels[batch])[valid[batch]] for batch in (0, 1)]
        assert wrong[0] == pytest.approx((4 * missed[0].mean() + 2 * missed[1].mean()) / 6)
        callbacks = Callbacks(model, eval_set=data, eval_freq=1, progress_bar=False)
        model.fit(data, cost(), GradientDescentMomentum(0.0, 0.0), 1, callbacks)
        each = [-np.log(y[batch][labels[batch], np.arange(20)]) for batch in (0, 1)]
        loss = (each[0].sum() + each[1][valid[1]].sum()) / 5 / 6
        assert callbacks.callback_data["cost/loss"][0] == pytest.approx(loss, rel=1e-5)

    def test_dropout_only_scales_in_evaluation(self, be, data):
        model = Model(layers(dropout=0.8))
        np.testing.assert_array_equal(model.get_outputs(data), model.get_outputs(data))

    def test_a_metric_class_is_refused(self, be, data):
        with pytest.raises(DTypeError, match="Misclassification"):
            Model(layers()).eval(data, Misclassification)


def test_defect_40_error_buffers_can_be_allocated_again(be, data):
    model = Model(layers())
    model.initialize(data)
    before = [layer.deltas for layer in model.layers.layers]
    model.allocate_deltas()
    after = [layer.deltas for layer in model.layers.layers]
    assert [d is None for d in before] == [d is None for d in after]
    model.fit(data, cost(), Adam(), 1)


def test_a_container_is_taken_as_it_is(be):
    net = Sequential(layers())
    assert Model(net).layers is net
    assert Model(layers()).layers.layers[1].parallelism == "Data"


def test_batch_size_and_sequence_length_are_passed_on(be):
    model = Model(layers())
    model.set_batch_size(3)
    model.set_seq_len(2)
    assert all((layer.actual_bsz, layer.actual_seq_len) == (3, 2) for layer in model.layers.layers)


class TestBenchmark:
    """Timing: the measured quantities and the result, not the speed."""

    def test_training(self, be, data, capsys):
        model = Model(layers())
        got = model.benchmark(data, cost=cost(), optimizer=Adam(), niterations=8, nskip=1)
        assert list(got) == ["fprop", "bprop", "iteration"]
        for statistics in got.values():
            assert set(statistics) == {"mean", "median", "min", "max"}
            assert 0 < statistics["min"] <= statistics["median"] <= statistics["max"]

    def test_inference_needs_no_cost(self, be, data):
        assert list(Model(layers()).benchmark(data, inference=True, niterations=2)) == ["fprop"]

    @pytest.mark.parametrize("given", [{"cost": None, "optimizer": None}, {"optimizer": None}, {"cost": None}])
    def test_training_needs_cost_and_optimizer(self, be, data, given):
        arguments = {"cost": cost(), "optimizer": Adam(), **given}
        with pytest.raises(RuntimeError, match=r"cost|optimizer"):
            Model(layers()).benchmark(data, **arguments)

    def test_layers_are_timed_and_left_as_they_were(self, be, data, trained):
        from neonlike.benchmark import Benchmark

        benchmark = Benchmark(trained)
        times = benchmark.time(data, niterations=3)
        names = [layer.name for layer in trained.layers.layers]
        expected = ["fprop", "bprop", "iteration", "data_loading"]
        expected += [f"{way} {name}" for way in ("fprop", "bprop") for name in names]
        assert list(times) == expected
        assert all(len(values) == 3 and (values >= 0).all() for values in times.values())
        assert all("fprop" not in vars(layer) for layer in trained.layers.layers)
        lines = []

        class Output:
            display = staticmethod(lines.append)

        Benchmark.print_stats(times, functions=[np.min, np.max, np.sum], output=Output(), nskip=1)
        Benchmark.print_stats({"fprop": np.arange(4.0)}, functions=[np.average], output=Output())
        table, averages = (text.split("\n") for text in lines)
        assert "Amin" in table[1] and "Amax" in table[1] and "Sum" in table[1]
        assert len(table) == len(times) + 4
        assert "Average" in averages[1] and averages[3].split() == ["fprop", "|", "1.5000", "ms"]

    def test_unusable_arguments(self, be, data, trained):
        from neonlike.benchmark import Benchmark

        for arguments in (({}, False, 3), (data, False, 0)):
            with pytest.raises(ValueError, match="Benchmark"):
                Benchmark(trained).time(*arguments)
        with pytest.raises(RuntimeError, match="cost"):
            Benchmark(Model(layers())).time(data)
        with pytest.raises(ValueError, match="nothing"):
            Benchmark.print_stats({})
        with pytest.raises(TypeError, match="display"):
            Benchmark.print_stats({"fprop": np.ones(2)}, output=3)


def test_callbacks_are_called_by_fit(be, data):
    model = Model(layers())
    callbacks = Callbacks(model, progress_bar=False)
    model.fit(data, cost(), Adam(), 2, callbacks)
    recorded = callbacks.callback_data
    np.testing.assert_array_equal(recorded["time_markers/minibatch"][...], [6, 12])


class TestResultsAreNumbers:
    """neon's scripts format the results of ``eval`` and the costs; NumPy alone refuses one-element arrays since 2.4."""

    def test_they_format_and_convert(self):
        error = values(np.array([0.125], np.float32))
        assert "%.1f%%" % (error * 100) == "12.5%"
        assert f"{error:.2f}" == "0.12"
        assert float(error) == 0.125
        assert int(values(np.array([[3.0]]))) == 3

    def test_in_neons_dialect_an_element_of_a_tensor_is_a_number(self, be):
        total = be.array([[2.5]])
        assert type(total.get()) is np.ndarray
        with neon_dialect():
            for host in (total.get(), total.asnumpyarray(), (total + 0).asnumpyarray()):
                assert "%.1f" % host == "2.5"  # noqa: UP031
                assert float(host) == float(host[0]) == 2.5
                assert int(host * 2) == 5
            column = be.array([[1.5], [0.5]]).get()
            assert float(column[0]) == 1.5 and "%.1f" % column[1] == "0.5"  # noqa: UP031
            assert int(np.argsort(column, axis=0)[0]) == 1 and float(np.partition(column, 0, axis=0)[0]) == 0.5
            assert repr(column) == "array([[1.5],\n       [0.5]], dtype=float32)"
            with pytest.raises(ValueError, match="can only convert an array of size 1"):
                float(column)
        if be.device_type == 0:
            with neon_dialect():
                total.asnumpyarray()[0, 0] = 3
            assert total.item() == 3

    def test_several_values_are_an_array(self):
        pair = values(np.array([1.0, 2.0]))
        with pytest.raises((TypeError, ValueError)):
            float(pair)
        assert pair.sum() == 3.0

    def test_a_script_prints_error_and_cost(self, be, data):
        model = Model(layers())
        model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 1)
        error = model.eval(data, Misclassification())
        assert "%.3f" % error == f"{error.item():.3f}"  # noqa: UP031
        assert "%.3f" % model.cost.cost == f"{model.cost.cost.item():.3f}"  # noqa: UP031
