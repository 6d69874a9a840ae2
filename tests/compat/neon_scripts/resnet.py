"""A residual network, saved after each epoch; a second one goes on from the middle, and ends as the first one did."""

import os
import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Kaiming
from neon.layers import Activation, Affine, Conv, GeneralizedCost, MergeSum, Pooling, SkipNode
from neon.models import Model
from neon.optimizers import GradientDescentMomentum, Schedule
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neon.util.persist import load_obj

folder, epochs = sys.argv[1], 6
rng = np.random.RandomState(18)
labels = rng.randint(0, 4, 320)
images = 0.5 * rng.rand(320, 1, 8, 8)
for image, label in zip(images, labels):  # corners, of which the bright one is meant
    image[0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.4
images = images.reshape(320, -1).astype(np.float32)
be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
train = ArrayIterator(images[:256], labels[:256], nclass=4, lshape=(1, 8, 8))
valid = ArrayIterator(images[256:], labels[256:], nclass=4, lshape=(1, 8, 8))


def conv(fshape, relu=True, **more):
    return Conv(fshape, Kaiming(local=True), batch_norm=True, activation=Rectlin() if relu else None, **more)


def module(maps, strides=1):
    main = [conv((3, 3, maps), padding=1, strides=strides), conv((3, 3, maps), relu=False, padding=1)]
    side = SkipNode() if strides == 1 else conv((1, 1, maps), relu=False, strides=strides)
    return [MergeSum([main, side]), Activation(Rectlin())]


def network():
    layers = [conv((3, 3, 6), padding=1), module(6), module(8, strides=2), module(8)]
    return [layers, Pooling("all", op="avg"), Affine(4, init=Kaiming(local=False), activation=Softmax())]


def fit(model, num_epochs, **more):
    opt = GradientDescentMomentum(0.1, 0.9, wdecay=0.0001, schedule=Schedule(step_config=[2, 4], change=0.1))
    cost = GeneralizedCost(costfunc=CrossEntropyMulti())
    callbacks = Callbacks(model, eval_set=valid, eval_freq=1, progress_bar=False, **more)
    model.fit(train, optimizer=opt, num_epochs=num_epochs, cost=cost, callbacks=callbacks)
    return opt.schedule.get_learning_rate(opt.learning_rate, num_epochs - 1)


def parameters(model):
    return np.concatenate([layer.W.get().ravel() for layer in model.layers_to_optimize if hasattr(layer, "W")])


first = Model(layers=network())
rate = fit(first, epochs, save_path=folder + "/res.p", serialize=1, history=epochs)
error = first.eval(valid, metric=Misclassification())
print("error = %.1f%%, rate at the end %.4f" % (error * 100, rate))
print("files: %s" % " ".join(sorted(os.listdir(folder))))

by_file = Model(folder + "/res_2.p")
by_dict = Model(layers=network())
by_dict.deserialize(load_obj(folder + "/res_2.p"))
for name, model in (("Model(file)", by_file), ("deserialize", by_dict)):
    train.reset()
    begun = model.epoch_index
    fit(model, epochs)
    change = np.abs(parameters(model) - parameters(first)).max()
    print("%s: went on at epoch %d, ends as the first did: %s" % (name, begun, change == 0))
other = Model(layers=network())
other.load_params(folder + "/res_0.p")
print("error after an epoch = %.1f%%" % (100 * other.eval(valid, metric=Misclassification())))
