"""Branches: a tree with two costs, and a merge of two streams."""

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Gaussian
from neon.layers import (
    Affine,
    BranchNode,
    GeneralizedCost,
    MergeMultistream,
    Multicost,
    Sequential,
    SingleOutputTree,
)
from neon.models import Model
from neon.optimizers import GradientDescentMomentum
from neon.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax

be = gen_backend(backend="cpu", batch_size=64, rng_seed=0)
rng = np.random.RandomState(4)
labels = rng.randint(0, 3, 512)
x = rng.randn(512, 10).astype(np.float32)
x[np.arange(512), labels] += 3
train = ArrayIterator(x, labels, nclass=3)

init = Gaussian(scale=0.1)
node = BranchNode(name="branch")
trunk = [Affine(20, init, activation=Rectlin()), node, Affine(3, init, activation=Softmax())]
side = [node, Affine(10, init, activation=Rectlin()), Affine(3, init, activation=Softmax())]
model = Model(layers=SingleOutputTree([trunk, side], alphas=[1.0, 0.25]))
cost = Multicost(
    costs=[GeneralizedCost(costfunc=CrossEntropyMulti()), GeneralizedCost(costfunc=CrossEntropyMulti())],
    weights=[1, 0.25],
)
opt = GradientDescentMomentum(0.1, momentum_coef=0.9)
model.fit(train, cost=cost, optimizer=opt, num_epochs=8, callbacks=Callbacks(model, progress_bar=False))
print("tree error = %.1f%%" % (model.eval(train, metric=Misclassification()) * 100))

streams = ArrayIterator([x[:, :5], x[:, 5:]], labels, nclass=3)
path1 = Sequential([Affine(12, init, activation=Rectlin())])
path2 = Sequential([Affine(12, init, activation=Rectlin())])
merged = Model(layers=[MergeMultistream([path1, path2], merge="stack"), Affine(3, init, activation=Softmax())])
merged.fit(
    streams, cost=GeneralizedCost(CrossEntropyMulti()), optimizer=GradientDescentMomentum(0.1, momentum_coef=0.9),
    num_epochs=8, callbacks=Callbacks(merged, progress_bar=False),
)  # fmt: skip
print("streams error = %.1f%%" % (merged.eval(streams, metric=Misclassification()) * 100))
