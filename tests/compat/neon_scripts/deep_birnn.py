"""Sequences whose first and last symbols are alike, or are not: deep layers that read both ways, --rlayer_type."""

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.initializers import Constant, GlorotUniform
from neon.layers import Affine, DeepBiLSTM, DeepBiRNN, GeneralizedCost, RecurrentMean
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Logistic, Misclassification, Softmax, Tanh
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
parser.add_argument("--rlayer_type", default="birnn", choices=["birnn", "bisum", "bibnrnn", "bilstm"])
parser.add_argument("--depth", type=int, default=2)
args = parser.parse_args()

rng, steps, symbols = np.random.RandomState(17), 6, 3
sequences = rng.randint(0, symbols, (768, steps))
alike = rng.rand(768) < 0.5
sequences[alike, -1] = sequences[alike, 0]
labels = (sequences[:, 0] == sequences[:, -1]).astype(int)
X = np.eye(symbols)[sequences].transpose(0, 2, 1).reshape(768, -1).astype(np.float32)
train = ArrayIterator(X[:640], labels[:640], nclass=2, lshape=(symbols, steps))
valid = ArrayIterator(X[640:], labels[640:], nclass=2, lshape=(symbols, steps))

rnn = dict(init=GlorotUniform(), activation=Tanh(), reset_cells=True, depth=args.depth)
rlayer = {
    "birnn": lambda: DeepBiRNN(16, **rnn),
    "bisum": lambda: DeepBiRNN(16, bi_sum=True, **rnn),
    "bibnrnn": lambda: DeepBiRNN(16, batch_norm=True, **rnn),
    "bilstm": lambda: DeepBiLSTM(16, gate_activation=Logistic(), **rnn),
}[args.rlayer_type]()
top = [RecurrentMean(), Affine(2, GlorotUniform(), bias=Constant(0), activation=Softmax())]
model = Model(layers=[rlayer, *top])
print("layers: %s" % " ".join(layer.classnm for layer in model.layers.layers))
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
callbacks = Callbacks(model, eval_set=valid, **args.callback_args)
opt = Adam(learning_rate=0.01)
model.fit(train, optimizer=opt, num_epochs=args.epochs, cost=cost, callbacks=callbacks)
print("Misclassification error = %.1f%%" % (model.eval(valid, metric=Misclassification()) * 100))
