"""A sequence that is repeated: encoder, decoder, beam search."""

import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import Text
from neon.initializers import GlorotUniform
from neon.layers import GRU, Affine, GeneralizedCost, Seq2Seq
from neon.layers.container import Decoder, Encoder
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh
from neon.util.beamsearch import BeamSearch

path = sys.argv[1] + "/letters.txt"
rng = np.random.RandomState(0)
with open(path, "w") as f:
    f.write("".join("abcd"[i] for i in rng.randint(0, 4, 4 * 640)))

be = gen_backend(backend="cpu", batch_size=32, rng_seed=1)
steps = 4
train = Text(steps, path, reverse_target=True, get_prev_target=True)
test = Text(steps, path, reverse_target=True)
init = GlorotUniform()


def gru():
    return GRU(32, init, activation=Tanh(), gate_activation=Logistic(), reset_cells=True)


model = Model(layers=Seq2Seq([Encoder([gru()]), Decoder([gru(), Affine(4, init, bias=init, activation=Softmax())])]))
cost = GeneralizedCost(costfunc=CrossEntropyMulti(usebits=True))
callbacks = Callbacks(model, progress_bar=False)
model.fit(train, optimizer=Adam(learning_rate=0.02), num_epochs=12, cost=cost, callbacks=callbacks)
outputs = model.get_outputs(test)
wanted = np.concatenate([t.get().reshape(4, steps, -1).argmax(axis=0).T for _, t in test])
right = (outputs.argmax(axis=2) == wanted).all(axis=1).mean()
beams = model.get_outputs_beam(test, num_beams=3)
print("right %.2f, outputs %s, beams %s" % (right, outputs.shape, beams.shape))
print("right by beams %.2f" % (beams[:, :, 0] == wanted).all(axis=1).mean())
search = BeamSearch(model.layers)
for x, _ in test:
    print("one batch %s" % (search.beamsearch(x, num_beams=2).shape,))
    break
