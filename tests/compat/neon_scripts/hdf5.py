"""A data set in HDF5, read batch by batch."""

import sys

import h5py
import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import HDF5Iterator, HDF5IteratorOneHot
from neon.initializers import Gaussian
from neon.layers import Affine, GeneralizedCost
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax, SumSquared

path = sys.argv[1] + "/data.h5"
rng = np.random.RandomState(14)
labels = rng.randint(0, 3, 256)
images = rng.rand(256, 12) * 100
images[np.arange(256), labels] += 150
with h5py.File(path, "w") as f:
    f.create_dataset("input", data=images)
    f["input"].attrs["lshape"] = (1, 3, 4)
    f["input"].attrs["mean"] = images.mean(axis=0).reshape(1, 3, 4)
    f.create_dataset("output", data=labels.reshape(-1, 1))
    f["output"].attrs["nclass"] = 3

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
train = HDF5IteratorOneHot(path)
init = Gaussian(scale=0.01)
model = Model([Affine(16, init, activation=Rectlin()), Affine(3, init, activation=Softmax())])
cost = GeneralizedCost(CrossEntropyMulti())
callbacks = Callbacks(model, progress_bar=False)
model.fit(train, cost=cost, optimizer=Adam(learning_rate=0.005), num_epochs=8, callbacks=callbacks)
print("Misclassification error = %.1f%%" % (model.eval(train, metric=Misclassification()) * 100))
plain = HDF5Iterator(path)
x, t = next(iter(plain))
print("inputs %s, targets %s, a cost %s" % (x.shape, t.shape, GeneralizedCost(SumSquared()).costfunc.classnm))
train.cleanup()
