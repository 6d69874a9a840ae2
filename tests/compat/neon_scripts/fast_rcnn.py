"""Regions of images: their classes, and the offsets of their bounding boxes."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import NervanaDataIterator
from neon.initializers import Constant, Gaussian, Kaiming
from neon.layers import (
    Affine,
    BranchNode,
    Conv,
    GeneralizedCost,
    GeneralizedCostMask,
    Multicost,
    RoiPooling,
    Tree,
)
from neon.layers.layer import Layer
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Identity, Rectlin, SmoothL1Loss, Softmax
from neon.util.argparser import NeonArgparser

args = NeonArgparser(__doc__).parse_args()
rng, size, rois_per_img, nclass = np.random.RandomState(3), 24, 4, 3


class Boxes(NervanaDataIterator):
    """Images with a square in one of two colours; half of the regions are near it, the others see nothing."""

    shape, rois = (3, size, size), None

    def __init__(self, count):
        super(Boxes, self).__init__()
        self.ndata, self.nbatches, columns = count, count // self.be.bsz, rois_per_img * self.be.bsz
        self.batches = [self.make(self.be.bsz, columns) for _ in range(count // self.be.bsz)]
        Boxes.rois = self.be.zeros((5, columns)) if Boxes.rois is None else Boxes.rois
        self.x, self.labels = self.be.iobuf(3 * size * size), self.be.zeros((nclass, columns))
        self.offsets, self.mask = self.be.zeros((4, columns)), self.be.zeros((4, columns))

    def make(self, bsz, columns):
        images, rois, labels = 0.1 * rng.rand(bsz, 3, size, size), np.zeros((5, columns)), np.zeros((nclass, columns))
        offsets, mask = np.zeros((4, columns)), np.zeros((4, columns))
        for n, image in enumerate(images):
            where, kind = rng.randint(0, 2, 2) * 12 + rng.randint(2, 4, 2), rng.randint(1, nclass)
            image[kind - 1, where[1] : where[1] + 8, where[0] : where[0] + 8] += 1
            for column in range(n, columns, bsz):
                near, shift = column < columns // 2, rng.randint(-2, 3, 2)
                left, top = where + shift if near else (where + 12) % size
                rois[:, column] = n, left, top, left + 7, top + 7
                labels[kind if near else 0, column] = 1
                offsets[:, column], mask[:, column] = np.tile(-shift / 2.0, 2) * near, near
        return images.reshape(bsz, -1).T, rois, labels, offsets, mask

    def reset(self):
        pass

    def __iter__(self):
        for batch in self.batches:
            for buffer, values in zip((self.x, self.rois, self.labels, self.offsets, self.mask), batch):
                buffer.set(np.ascontiguousarray(values, dtype=np.float32))
            yield self.x, (self.labels, (self.offsets, self.mask))


class Proposals(Layer):
    """Hands the feature map on, with the regions of the minibatch beside it."""

    def configure(self, in_obj):
        super(Proposals, self).configure(in_obj)
        self.owns_output, self.out_shape = False, [self.in_shape, (5, rois_per_img)]
        return self

    def fprop(self, inputs, inference=False):
        self.outputs = (inputs, Boxes.rois)
        return self.outputs

    def bprop(self, error, alpha=1.0, beta=0.0):
        return error


train, valid = Boxes(192), Boxes(32)
b1, relu, init = BranchNode(name="b1"), Rectlin(), Gaussian(scale=0.05)
conv = dict(init=Kaiming(), padding=1, bias=Constant(0), activation=relu)
trunk = [Conv((3, 3, 8), **conv), Conv((3, 3, 8), strides=2, **conv), Proposals()]
trunk += [RoiPooling(HW=(5, 5), spatial_scale=0.5), Affine(48, Kaiming(), bias=Constant(0), activation=relu), b1]
classes = [Affine(nclass, init, bias=Constant(0), activation=Softmax())]
boxes = [b1, Affine(4, init, bias=Constant(0), activation=Identity())]
model = Model(layers=Tree([trunk + classes, boxes]))
cost = Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCostMask(SmoothL1Loss(sigma=1.0))], weights=[1, 4])
callbacks = Callbacks(model, progress_bar=False, multicost=True)
model.fit(train, optimizer=Adam(learning_rate=0.004), num_epochs=args.epochs, cost=cost, callbacks=callbacks)

right, off, guessed = [], [], []
for x, (labels, (offsets, mask)) in valid:
    found, box = [y.get() for y in model.fprop(x, inference=True)]
    right.append(found.argmax(axis=0) == labels.get().argmax(axis=0))
    off.append(np.abs(box - offsets.get())[mask.get() > 0])
    guessed.append(np.abs(offsets.get())[mask.get() > 0])
print("classes right %.3f, boxes off by %.3f of %.3f" % (np.mean(right), np.mean(off), np.mean(guessed)))
