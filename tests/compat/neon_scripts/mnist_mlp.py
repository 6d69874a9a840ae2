"""A multilayer perceptron on images of bars, as a first script of 2016; run with -b, -e, -r and the like."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Gaussian
from neon.layers import Affine, GeneralizedCost
from neon.models import Model
from neon.optimizers import GradientDescentMomentum
from neon.transforms import CrossEntropyBinary, Logistic, Misclassification, Rectlin
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
args = parser.parse_args()

rng = np.random.RandomState(0)
labels = rng.randint(0, 4, 512)
images = rng.rand(512, 8, 8) * 0.5
for image, label in zip(images, labels):
    image[2 * label : 2 * label + 2] += 0.5

train_set = ArrayIterator(images[:384].reshape(384, -1), labels[:384], nclass=4, lshape=(1, 8, 8))
valid_set = ArrayIterator(images[384:].reshape(128, -1), labels[384:], nclass=4, lshape=(1, 8, 8))

init_norm = Gaussian(loc=0.0, scale=0.1)
layers = [
    Affine(nout=32, init=init_norm, activation=Rectlin()),
    Affine(nout=4, init=init_norm, activation=Logistic(shortcut=True)),
]
cost = GeneralizedCost(costfunc=CrossEntropyBinary())
optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9, stochastic_round=args.rounding)

mlp = Model(layers=layers)
callbacks = Callbacks(mlp, eval_set=valid_set, **args.callback_args)
mlp.fit(train_set, optimizer=optimizer, num_epochs=args.epochs, cost=cost, callbacks=callbacks)
error_rate = mlp.eval(valid_set, metric=Misclassification())
print("Misclassification error = %.1f%%" % (error_rate * 100))
