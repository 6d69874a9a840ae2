"""A small convolutional network with batch normalization, all convolutional at its end."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Gaussian, GlorotUniform
from neon.layers import Activation, Conv, Dropout, GeneralizedCost, Pooling
from neon.models import Model
from neon.optimizers import GradientDescentMomentum, Schedule
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
args = parser.parse_args(gen_be=True)

rng = np.random.RandomState(2)
labels = rng.randint(0, 3, 384)
images = rng.rand(384, 3, 12, 12)
images[np.arange(384), labels] += 0.4
images = images.reshape(384, -1).astype(np.float32)
train = ArrayIterator(images[:288], labels[:288], nclass=3, lshape=(3, 12, 12))
valid = ArrayIterator(images[288:], labels[288:], nclass=3, lshape=(3, 12, 12))

relu = Rectlin()
conv = dict(init=Gaussian(scale=0.1), batch_norm=True, activation=relu)
layers = [
    Dropout(keep=0.9),
    Conv((3, 3, 8), padding=1, **conv),
    Conv((3, 3, 8), padding=1, strides=2, **conv),
    Dropout(keep=0.8),
    Conv((1, 1, 3), init=GlorotUniform(), activation=relu),
    Pooling(6, op="avg"),
    Activation(Softmax()),
]
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
opt = GradientDescentMomentum(
    0.1, 0.9, wdecay=0.0001, schedule=Schedule(step_config=[4, 6], change=[0.05, 0.02])
)
model = Model(layers=layers)
callbacks = Callbacks(model, eval_set=valid, **args.callback_args)
model.fit(train, optimizer=opt, num_epochs=args.epochs, cost=cost, callbacks=callbacks)
print("Misclassification error = %.1f%%" % (model.eval(valid, metric=Misclassification()) * 100))
