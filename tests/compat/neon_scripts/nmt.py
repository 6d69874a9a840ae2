"""Translation of numbered sentences from an HDF5 file, word by word, printed in the order of the words."""

import sys

import h5py
import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data.text import TextNMT
from neon.initializers import GlorotUniform
from neon.layers import GRU, Affine, GeneralizedCost, LookupTable, Seq2Seq
from neon.layers.container import Decoder, Encoder
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh

folder, steps, words = sys.argv[1], 4, 6
rng = np.random.RandomState(10)
for split, count in (("train", 640), ("valid", 64)):
    X = rng.randint(1, words, (count, steps))
    with h5py.File("%s/toy-%s.h5" % (folder, split), "w") as f:
        f["X"], f["y"] = X, X
        f["s_vocab"] = [("s%d" % i).encode() for i in range(words)]
        f["t_vocab"] = [("t%d" % i).encode() for i in range(words)]

be = gen_backend(backend="cpu", batch_size=32, rng_seed=2)
train = TextNMT(steps, folder, onehot_input=False, get_prev_target=True, split="train", dataset="toy")
valid = TextNMT(steps, folder, onehot_input=False, get_prev_target=False, split="valid", dataset="toy")
init = GlorotUniform()


def gru():
    return GRU(48, init, activation=Tanh(), gate_activation=Logistic(), reset_cells=True)


encoder = Encoder([LookupTable(vocab_size=len(train.s_vocab), embedding_dim=12, init=init), gru()])
decoder = Decoder(
    [
        LookupTable(vocab_size=len(train.t_vocab), embedding_dim=12, init=init), gru(),
        Affine(train.nout, init, bias=init, activation=Softmax()),
    ]
)  # fmt: skip
model = Model(layers=Seq2Seq([encoder, decoder], decoder_connections=[0]))
cost = GeneralizedCost(costfunc=CrossEntropyMulti(usebits=True))
callbacks = Callbacks(model, progress_bar=False)
model.fit(train, optimizer=Adam(learning_rate=0.01), num_epochs=25, cost=cost, callbacks=callbacks)
ypred = model.get_outputs_beam(valid, num_beams=2)
ypred = ypred.reshape((-1, steps))[:, ::-1]
reference = np.transpose(valid.y, (1, 0, 2)).reshape(-1, steps)
sentence = " ".join(valid.t_index_to_token[i].decode() for i in ypred[0])
wanted = " ".join(valid.t_index_to_token[i].decode() for i in reference[0])
print("translated: %s" % sentence)
print("reference:  %s" % wanted)
print("right %.2f of %d" % ((ypred == reference).all(axis=1).mean(), len(reference)))
