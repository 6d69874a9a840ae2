"""A convolutional autoencoder: Conv, Pooling, Deconv."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Uniform
from neon.layers import Conv, Deconv, GeneralizedCost, Pooling
from neon.models import Model
from neon.optimizers import RMSProp
from neon.transforms import Logistic, Rectlin, SumSquared
from neon.util.argparser import NeonArgparser

args = NeonArgparser(__doc__).parse_args()
rng = np.random.RandomState(3)
rows = rng.randint(0, 14, 256)
images = np.zeros((256, 16, 16), np.float32)
for image, row in zip(images, rows):
    image[row : row + 3, 3:13] = 1
train = ArrayIterator(images.reshape(256, -1), lshape=(1, 16, 16))

init = Uniform(low=-0.2, high=0.2)
layers = [
    Conv((4, 4, 8), init=init, activation=Rectlin()),
    Pooling((3, 3), strides=2),
    Deconv((4, 4, 8), init=init, activation=Rectlin(), strides=2),
    Deconv((3, 3, 1), init=init, activation=Logistic(), strides=1),
]
model = Model(layers=layers)
cost = GeneralizedCost(costfunc=SumSquared())
callbacks = Callbacks(model, **args.callback_args)
model.fit(train, optimizer=RMSProp(learning_rate=0.003), num_epochs=1, cost=cost, callbacks=callbacks)
print("cost of the first epoch %.4f" % model.total_cost)
model.fit(train, optimizer=RMSProp(learning_rate=0.003), num_epochs=args.epochs, cost=cost, callbacks=callbacks)
print("cost of the last epoch %.4f" % model.total_cost)
