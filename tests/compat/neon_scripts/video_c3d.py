"""Clips of moving dots: which way they go is in no single image, so that windows over time are needed."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Constant, Gaussian, Kaiming
from neon.layers import Affine, Conv, Dropout, GeneralizedCost, Pooling
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neon.util.argparser import NeonArgparser

args = NeonArgparser(__doc__).parse_args()
rng, frames, size = np.random.RandomState(14), 6, 8
ways = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


def clips(count):
    labels = rng.randint(0, 4, count)
    films = 0.1 * rng.rand(count, 1, frames, size, size)
    for film, label in zip(films, labels):
        start, phase = rng.randint(0, size, 2), np.arange(frames)
        at = (start + phase.reshape(-1, 1) * ways[label]) % size
        film[0, phase, at[:, 0], at[:, 1]] += 1
    return ArrayIterator(films.reshape(count, -1).astype(np.float32), labels, nclass=4, lshape=(1, frames, size, size))


train, valid = clips(384), clips(128)
relu = Rectlin()
conv = dict(init=Kaiming(), bias=Constant(0), activation=relu)
padding = dict(pad_d=1, pad_h=1, pad_w=1)
layers = [
    Conv((3, 3, 3, 8), padding=padding, strides=1, **conv),
    Pooling((1, 2, 2), strides={"str_d": 1, "str_h": 2, "str_w": 2}),
    Conv((3, 3, 3, 12), padding=padding, strides=dict(str_d=1, str_h=1, str_w=1), **conv),
    Pooling((2, 2, 2), strides=2),
    Affine(24, Kaiming(), bias=Constant(0), activation=relu),
    Dropout(keep=0.9),
    Affine(4, Gaussian(scale=0.1), bias=Constant(0), activation=Softmax()),
]
model = Model(layers=layers)
callbacks = Callbacks(model, eval_set=valid, **args.callback_args)
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
model.fit(train, optimizer=Adam(learning_rate=0.005), num_epochs=args.epochs, cost=cost, callbacks=callbacks)
shapes = [layer.out_shape for layer in model.layers.layers if "Conv" in layer.classnm or "Pool" in layer.classnm]
print("shapes: %s" % " ".join(str(shape).replace(" ", "") for shape in shapes))
print("Misclassification error = %.1f%%" % (model.eval(valid, metric=Misclassification()) * 100))
