"""Blocks of branches: inception, residual, LRN, as in the large networks of that time."""

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Kaiming
from neon.layers import (
    LRN,
    Activation,
    Affine,
    BatchNorm,
    Conv,
    Dropout,
    GeneralizedCost,
    MergeBroadcast,
    MergeSum,
    Pooling,
    SkipNode,
)
from neon.models import Model
from neon.optimizers import GradientDescentMomentum, PolySchedule
from neon.transforms import CrossEntropyMulti, Rectlin, Softmax, TopKMisclassification

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
rng = np.random.RandomState(13)
labels = rng.randint(0, 4, 256)
images = rng.rand(256, 3, 12, 12)
for image, label in zip(images, labels):
    image[:, 3 * label : 3 * label + 3] += 0.5
train = ArrayIterator(images.reshape(256, -1).astype(np.float32), labels, nclass=4, lshape=(3, 12, 12))


def conv(fshape, **more):
    return Conv(fshape, init=Kaiming(), batch_norm=True, activation=Rectlin(), **more)


def inception():
    branch1 = [conv((1, 1, 4))]
    branch2 = [conv((1, 1, 4)), conv((3, 3, 4), padding=1)]
    branch3 = [Pooling(fshape=3, padding=1, strides=1, op="max"), conv((1, 1, 4))]
    return MergeBroadcast([branch1, branch2, branch3], merge="depth")


def residual(maps):
    main = [conv((3, 3, maps), padding=1), Conv((3, 3, maps), init=Kaiming(), padding=1, batch_norm=True)]
    return [MergeSum([SkipNode(), main]), Activation(Rectlin())]


layers = [conv((3, 3, 8), padding=1, strides=2), LRN(5, ascale=0.0001, bpower=0.75), inception(), BatchNorm()]
layers += residual(12)
layers += [Pooling("all", op="avg"), Dropout(keep=0.8), Affine(4, init=Kaiming(), activation=Softmax())]
model = Model(layers=layers)
opt = GradientDescentMomentum(0.05, 0.9, wdecay=0.0002, schedule=PolySchedule(total_epochs=8, power=0.5))
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
callbacks = Callbacks(model, eval_set=train, metric=TopKMisclassification(k=2), progress_bar=False)
model.fit(train, optimizer=opt, num_epochs=8, cost=cost, callbacks=callbacks)
logloss, top1, top2 = model.eval(train, metric=TopKMisclassification(k=2))[:3]
print("top 1 error %.1f, top 2 error %.1f" % (top1 * 100, top2 * 100))
results = model.benchmark(train, cost=cost, optimizer=opt, niterations=3, nskip=1)
print("timed: %s" % " ".join(sorted(results)))
