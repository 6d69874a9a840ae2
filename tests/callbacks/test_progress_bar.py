"""The progress bar: on a terminal, in a log, with one cost or several."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

from neonlike.callbacks import progress
from neonlike.callbacks.callbacks import Callback, Callbacks, ProgressBarCallback, get_progress_string
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, BranchNode, GeneralizedCost, Linear, Multicost, Tree
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax, SumSquared
from tests.callbacks.training import N, fit

NCLASS = 2


@pytest.fixture
def model(be):
    return Model([Affine(NCLASS, GlorotUniform(), activation=Softmax())])


def test_the_string():
    text = get_progress_string("Train", 12, 5, 20, 0.256, 1.5)
    assert text == "Epoch 12  [Train |█████               |    5/20   batches, 0.26 cost, 1.50s]"
    full = get_progress_string("Train", 0, 20, 20, 0.1, 0.1, blockchar="=")
    assert "|" + 20 * "=" + "|" in full


def test_a_log_gets_one_line_an_epoch(be, model, data, valid, capsys):
    fit(model, data, Callbacks(model, eval_set=valid, eval_freq=2), 3)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    pattern = r"Epoch 0   \[Train \|█{20}\|    6/6    batches, \d\.\d\d cost, \d+\.\d\ds\]"
    assert re.fullmatch(pattern, lines[0])
    assert re.search(r"\] \[CrossEntropyMulti Loss \d\.\d\d, \d+\.\d\ds\]$", lines[1])
    assert "Loss" not in lines[2]


def test_a_terminal_gets_a_line_that_grows(be, model, data, monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_callback(ProgressBarCallback(update_thresh_s=0))
    fit(model, data, callbacks, 1)
    drawn = terminal.getvalue()
    assert drawn.count("\n") == 1 and drawn.endswith("\n") and drawn.count("\r") == 7
    blocks = [frame.count("█") for frame in drawn.split("\r")[1:]]
    assert blocks == sorted(blocks) and blocks[-1] == 20
    pace = r"s\] [\d.]+k? samples/s, (\d+)s left *$"
    left = [re.search(pace, frame) is not None for frame in drawn.split("\r")[1:]]
    assert left == [True] * 5 + [False] * 2


def test_an_ascii_output(be, model, data, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    fit(model, data, Callbacks(model), 1)
    output.seek(0)
    assert "|####################|" in output.read()


def test_the_cost_is_the_mean_of_the_last_ten_minibatches(be, model, data, capsys):
    costs, ends = [], []
    callbacks = Callbacks(model)
    watch = Callback()
    watch.on_minibatch_end = lambda data, model, epoch, minibatch: costs.append(model.cost.cost.item())
    watch.on_epoch_end = lambda data, model, epoch: ends.append(len(costs))
    callbacks.add_callback(watch)
    fit(model, data, callbacks, 3)
    shown = [float(cost) for cost in re.findall(r"(\S+) cost,", capsys.readouterr().out)]
    assert shown == pytest.approx([np.mean(costs[max(0, end - 10) : end]) for end in ends], abs=0.0051)


def test_several_costs_are_shown_each(be, data, capsys):
    assert "(0.10, 2.00, 3.46) costs, 1.00s]" in get_progress_string("Train", 0, 1, 2, [0.1, 2, 3.456], 1.0)
    branch, init = BranchNode("shown"), GlorotUniform()
    trunk = [Linear(5, init), branch, Affine(NCLASS, init, activation=Softmax())]
    model = Model(Tree([trunk, [branch, Linear(NCLASS, init)]]))
    costs = [GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(SumSquared())]

    class Twice:
        shape, nbatches, ndata = data.shape, data.nbatches, data.ndata

        def __iter__(self):
            return ((x, (t, None)) for x, t in data)

    model.fit(Twice(), Multicost(costs), GradientDescentMomentum(0.1, 0.9), 1, Callbacks(model))
    assert re.search(r"batches, \(\d\.\d\d, 0\.00\) costs, ", capsys.readouterr().out)


def test_a_long_epoch_writes_lines_to_a_log(be, model, data, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    fit(model, data, Callbacks(model), 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(line.endswith("s left") for line in lines[:-1]) and lines[-1].endswith("s]")


def test_the_rate_is_that_of_the_minibatches_of_this_run(be, data, model, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    seconds = iter(range(20))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(seconds))
    model.progress.minibatches = 2  # as in an epoch that is resumed
    bar = ProgressBarCallback()
    model.nbatches, model.cost = 6, GeneralizedCost(CrossEntropyMulti())
    bar.on_train_begin({}, model, 1), bar.on_epoch_begin({}, model, 0)
    for minibatch in (2, 3):
        bar.on_minibatch_end({}, model, 0, minibatch)
    shown = re.findall(r"([\d.]+) samples/s, (\d+)s left", capsys.readouterr().out)
    assert shown == [(str(N), "3"), (str(N), "2")]
    assert [progress._amount(n) for n in (0.234, 9.94, 9.96, 99.6, 4321, 9999, 56_000)] == [
        "0.23", "9.9", "10", "100", "4300", "10k", "56k"
    ]  # fmt: skip


def test_a_duration_is_said_as_people_do():
    assert [progress._duration(s) for s in (0.2, 59, 185, 7650)] == ["0s", "59s", "3m05s", "2h07m"]
