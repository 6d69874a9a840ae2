"""Optimizers and schedules, saved and loaded, with callbacks of the script's own."""

import os
import sys

import h5py
import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callback, Callbacks, MetricCallback
from neon.data import ArrayIterator
from neon.initializers import Gaussian, Uniform
from neon.layers import Affine, GeneralizedCost
from neon.models import Model
from neon.optimizers import Adadelta, Adam, ExpSchedule, GradientDescentMomentum, MultiOptimizer, RMSProp
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neon.util.persist import load_obj

folder = sys.argv[1]
be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
rng = np.random.RandomState(8)
labels = rng.randint(0, 3, 256)
x = rng.randn(256, 6)
x[np.arange(256), labels] += 4
train = ArrayIterator(x, labels, nclass=3)


class Count(Callback):
    def __init__(self):
        super(Count, self).__init__(epoch_freq=1, minibatch_freq=1)
        self.epochs = self.minibatches = 0

    def on_epoch_end(self, callback_data, model, epoch):
        self.epochs += 1

    def on_minibatch_end(self, callback_data, model, epoch, minibatch):
        self.minibatches += 1


def stop(state, loss):
    """Enough once the loss was small twice; the state counts how often it was."""
    small = (state or 0) + int(loss < 0.1)
    return small, small == 2


layers = [
    Affine(16, Gaussian(scale=0.1), bias=Uniform(0, 0.1), activation=Rectlin(), name="hidden"),
    Affine(3, Gaussian(scale=0.1), bias=Uniform(0, 0.1), activation=Softmax()),
]
opt = MultiOptimizer(
    {
        "default": GradientDescentMomentum(0.05, 0.9, schedule=ExpSchedule(0.1)),
        "Bias": RMSProp(learning_rate=0.01),
        "hidden": Adam(learning_rate=0.01),
        "Unused": Adadelta(),
    }
)
model = Model(layers)
cost = GeneralizedCost(CrossEntropyMulti())
count = Count()
callbacks = Callbacks(
    model, eval_set=train, eval_freq=1, output_file=folder + "/metrics.h5", progress_bar=False, serialize=1, history=2,
    save_path=folder + "/model.p",
)  # fmt: skip
callbacks.add_callback(count)
callbacks.add_callback(MetricCallback(train, Misclassification(), epoch_freq=1))
callbacks.add_save_best_state_callback(folder + "/best.p")
callbacks.add_early_stop_callback(stop)
callbacks.add_hist_callback(plot_per_mini=False, filter_key=["W"])
model.fit(train, cost=cost, optimizer=opt, num_epochs=50, callbacks=callbacks)
print("epochs %d, minibatches %d" % (count.epochs, count.minibatches))
with h5py.File(folder + "/metrics.h5", "r") as f:
    print("losses %s" % " ".join("%.4f" % loss for loss in f["cost/loss"][: count.epochs]))
print("stopped: %s, with %d epochs done" % (model.finished, model.epoch_index))

model.save_params(folder + "/last.p", keep_states=False)
expected = model.get_outputs(train)
loaded = Model(folder + "/last.p")
loaded.initialize(train)
print("the same outputs: %s" % np.allclose(loaded.get_outputs(train), expected))
other = Model(load_obj(folder + "/last.p"))
print("layers of the file: %d" % len(other.layers.layers))
hidden = Affine(16, Gaussian(), bias=Uniform(), activation=Rectlin(), name="hidden")
fresh = Model([hidden, Affine(3, Gaussian(), bias=Uniform(), activation=Softmax())])
fresh.load_params(folder + "/best.p")
print("error of the best = %.1f%%" % (fresh.eval(train, metric=Misclassification()) * 100))
print("files: %s" % " ".join(sorted(os.listdir(folder))))
