"""Costs in the middle of a deep network, as in GoogLeNet: a plain tree, whose branches all answer in inference too."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Constant, GlorotUniform, Kaiming
from neon.layers import (
    Affine,
    BranchNode,
    Conv,
    Dropout,
    GeneralizedCost,
    MergeBroadcast,
    Multicost,
    Pooling,
    Tree,
)
from neon.models import Model
from neon.optimizers import GradientDescentMomentum, StepSchedule
from neon.transforms import CrossEntropyMulti, Rectlin, Softmax
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
parser.add_argument("--weights", type=float, nargs=3, default=[1.0, 0.3, 0.3])
args = parser.parse_args()
rng = np.random.RandomState(15)
labels = rng.randint(0, 4, 320)
images = 0.3 * rng.rand(320, 1, 8, 8)
for image, label in zip(images, labels):  # a bar along or across, in one of two halves
    at = rng.randint(0, 3) + 4 * (label % 2)
    image[0][(at, slice(1, 7)) if label < 2 else (slice(1, 7), at)] += 1
images = images.reshape(320, -1).astype(np.float32)
train = ArrayIterator(images[:256], labels[:256], nclass=4, lshape=(1, 8, 8))
valid = ArrayIterator(images[256:], labels[256:], nclass=4, lshape=(1, 8, 8))

conv = dict(init=Kaiming(), bias=Constant(0), activation=Rectlin())


def inception(maps):
    branch1 = [Conv((1, 1, maps), **conv)]
    branch2 = [Conv((1, 1, maps), **conv), Conv((3, 3, maps), padding=1, **conv)]
    branch3 = [Pooling(3, padding=1, strides=1), Conv((1, 1, maps), **conv)]
    return MergeBroadcast([branch1, branch2, branch3], merge="depth")


def top(name):
    return Affine(4, GlorotUniform(), bias=Constant(0), activation=Softmax(), name=name)


def aux(node, name):
    return [node, Pooling(2, op="avg"), Affine(16, name=name + "_fc", **conv), Dropout(keep=0.8), top(name)]


nodes = [BranchNode(name="aux%d" % i) for i in range(2)]
trunk = [Conv((3, 3, 6), padding=1, **conv), nodes[0], inception(4), nodes[1], inception(4)]
trunk += [Pooling(2), Affine(24, **conv), top("main")]
model = Model(layers=Tree([trunk, aux(nodes[0], "first"), aux(nodes[1], "second")], alphas=[1.0, 1.0, 1.0]))
cost = Multicost(costs=[GeneralizedCost(costfunc=CrossEntropyMulti()) for _ in range(3)], weights=args.weights)
callbacks = Callbacks(model, progress_bar=False, multicost=True)
opt = GradientDescentMomentum(0.05, 0.9, schedule=StepSchedule(step_config=[6], change=[0.02]))
model.initialize(train, cost)
W = dict((layer.name, layer.W) for layer in model.layers_to_optimize)
start = W["first"].get().copy()
model.fit(train, optimizer=opt, num_epochs=args.epochs, cost=cost, callbacks=callbacks)
print("the first top has changed: %s" % bool(np.abs(W["first"].get() - start).max() > 0))

errors = []
for x, t in valid:
    ys = model.fprop(x, inference=True)
    errors.append([np.mean(y.get().argmax(axis=0) != t.get().argmax(axis=0)) for y in ys])
print("errors of main, first, second: %.1f%% %.1f%% %.1f%%" % tuple(100 * np.mean(errors, axis=0)))
