"""Sentiment of sequences of words, with any recurrent layer: --rlayer_type."""

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.data.text_preprocessing import pad_sentences
from neon.initializers import GlorotUniform, Uniform
from neon.layers import (
    GRU,
    LSTM,
    Affine,
    BiBNRNN,
    BiLSTM,
    BiRNN,
    DeepBiLSTM,
    Dropout,
    GeneralizedCost,
    LookupTable,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
)
from neon.models import Model
from neon.optimizers import Adagrad
from neon.transforms import Accuracy, CrossEntropyMulti, Logistic, Softmax, Tanh
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
parser.add_argument("--rlayer_type", default="lstm")
parser.add_argument("--reduce", default="sum", choices=["sum", "mean", "last"])
args = parser.parse_args(gen_be=False)
be = gen_backend(backend=args.backend, batch_size=32, rng_seed=0)

rng = np.random.RandomState(5)
labels = rng.randint(0, 2, 256)
sentences = [rng.randint(4 + 8 * label, 14 + 8 * label, rng.randint(6, 12)).tolist() for label in labels]
X = pad_sentences(sentences, sentence_length=10)
train = ArrayIterator(X, labels.reshape(-1, 1), nclass=2)
train.shape = (10, 1)

emb, glorot = Uniform(-0.1 / 16, 0.1 / 16), GlorotUniform()
kind = args.rlayer_type
rlayer = {
    "lstm": lambda: LSTM(16, glorot, activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
    "gru": lambda: GRU(16, glorot, activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
    "rnn": lambda: Recurrent(16, glorot, activation=Tanh(), reset_cells=True),
    "bilstm": lambda: BiLSTM(16, glorot, gate_activation=Logistic(), activation=Tanh(), reset_cells=True),
    "birnn": lambda: BiRNN(16, glorot, activation=Tanh(), reset_cells=True),
    "bibnrnn": lambda: BiBNRNN(16, glorot, activation=Tanh(), reset_cells=True),
    "deep": lambda: DeepBiLSTM(16, glorot, activation=Tanh(), gate_activation=Logistic(), reset_cells=True, depth=2),
}[kind]()
reduced = {"sum": RecurrentSum, "mean": RecurrentMean, "last": RecurrentLast}[args.reduce]()
layers = [
    LookupTable(vocab_size=24, embedding_dim=16, init=emb, pad_idx=0, update=True),
    rlayer,
    reduced,
    Dropout(keep=0.9),
    Affine(2, glorot, bias=glorot, activation=Softmax()),
]
model = Model(layers=layers)
cost = GeneralizedCost(costfunc=CrossEntropyMulti(usebits=True))
callbacks = Callbacks(model, eval_set=train, **args.callback_args)
model.fit(train, optimizer=Adagrad(learning_rate=0.05), num_epochs=args.epochs, cost=cost, callbacks=callbacks)
print("Accuracy %s = %.1f" % (kind, 100 * model.eval(train, metric=Accuracy())))
