"""Character by character: an LSTM learns a text, and a model of batch 1 with its weights writes one."""

import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import Text
from neon.initializers import Uniform
from neon.layers import LSTM, Affine, GeneralizedCost
from neon.models import Model
from neon.optimizers import RMSProp
from neon.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh

folder = sys.argv[1]
path = folder + "/text.txt"
with open(path, "w") as f:
    f.write("the cat sat on the mat. " * 150)

be = gen_backend(backend="cpu", batch_size=10, rng_seed=0)
time_steps = 12
train_path, valid_path = Text.create_valid_file(path)
train = Text(time_steps, train_path)
valid = Text(time_steps, valid_path, vocab=train.vocab)


def build():
    init = Uniform(low=-0.2, high=0.2)
    return [
        LSTM(32, init, activation=Tanh(), gate_activation=Logistic()),
        Affine(len(train.vocab), init, bias=init, activation=Softmax()),
    ]


model = Model(layers=build())
cost = GeneralizedCost(costfunc=CrossEntropyMulti(usebits=True))
opt = RMSProp(gradient_clip_value=15, learning_rate=0.02, stochastic_round=False)
callbacks = Callbacks(model, eval_set=valid, progress_bar=False)
model.fit(train, optimizer=opt, num_epochs=12, cost=cost, callbacks=callbacks)
print("cost of the last epoch %.4f bits" % (model.total_cost / time_steps))
model.save_params(folder + "/char.p")

be.bsz = 1
writer = Model(layers=build())
writer.initialize((len(train.vocab), 1))
for theirs, ours in zip(model.layers.layers, writer.layers.layers):
    if ours.has_params:
        ours.set_params(theirs.get_description(get_weights=True))
x = be.zeros((len(train.vocab), 1))
text, token = [], "t"
for _ in range(40):
    text.append(token)
    x.fill(0)
    x[train.token_to_index[token], 0] = 1
    y = writer.fprop(x, inference=True)
    token = train.index_to_token[int(np.argmax(y.get()[:, -1]))]
print("writes: %s" % "".join(text))
