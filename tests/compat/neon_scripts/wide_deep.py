"""Whether somebody likes a film: vectors of people and films, and beside them, wide, a weight for each combination."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Constant, GlorotUniform, Uniform
from neon.layers import Activation, Affine, GeneralizedCost, Linear, LookupTable, MergeMultistream, Reshape, Sequential
from neon.models import Model
from neon.optimizers import Adagrad, Adam, MultiOptimizer
from neon.transforms import CrossEntropyBinary, Logistic, Rectlin
from neon.util.argparser import NeonArgparser

args = NeonArgparser(__doc__).parse_args()
rng = np.random.RandomState(16)
people, films, count, known = 12, 10, 1600, 1280
who, what = rng.randint(0, people, count), rng.randint(0, films, count)
taste, kind = np.arange(people) % 2, np.arange(films) // 5
late = rng.rand(count) < 0.4
liked = np.where(late, who % 3 == 0, taste[who] == kind[what])  # late at night all depends on who it is
night = np.zeros((count, 2 * people))
night[np.arange(count), 2 * who + late] = 1
ids = np.vstack([who, people + what]).T
numbers = rng.rand(count, 2)


class Streams(ArrayIterator):
    """Inputs as the network nests its branches: those of its deep part in a list of their own."""

    def __init__(self, rows):
        X = [x[rows].astype(np.float32) for x in (ids, numbers, night)]
        y = liked[rows].reshape(-1, 1).astype(np.float32)
        super(Streams, self).__init__(X, y, make_onehot=False, lshape=[(2, 1), (2,), (2 * people,)])
        self.shape = [self.shape[:2], self.shape[2]]

    def __iter__(self):
        for (words, dense, crossed), y in super(Streams, self).__iter__():
            yield ((words, dense), crossed), y


train, valid = Streams(slice(0, known)), Streams(slice(known, count))
init, relu = GlorotUniform(), dict(bias=Constant(0), activation=Rectlin())
table = LookupTable(vocab_size=people + films, embedding_dim=8, init=Uniform(-0.3, 0.3), name="table")
inputs = MergeMultistream([[table, Reshape((16,))], [Affine(4, init, **relu)]], merge="stack")
deep = Sequential([inputs, Affine(24, init, **relu), Affine(8, init, **relu), Affine(1, init, name="deep")])
wide = Sequential([Linear(1, Constant(0.0), name="wide")])
layers = [MergeMultistream([deep, wide], merge="stack"), Linear(1, Constant(1.0)), Activation(Logistic(shortcut=True))]
model = Model(layers=layers)
cost = GeneralizedCost(costfunc=CrossEntropyBinary())
opt = MultiOptimizer({"default": Adam(learning_rate=0.01), "wide": Adagrad(learning_rate=0.1)})
callbacks = Callbacks(model, eval_set=valid, **args.callback_args)
model.fit(train, optimizer=opt, num_epochs=args.epochs, cost=cost, callbacks=callbacks)


def right():
    return np.mean((model.get_outputs(valid)[:, 0] > 0.5) == liked[known:])


print("right %.3f" % right())
wide.layers[0].W.fill(0)
print("without the wide part %.3f" % right())
