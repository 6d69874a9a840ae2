"""Captions of images, from a data set in neon's own format, which the script makes."""

import gzip
import os
import pickle
import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import Flickr8k
from neon.initializers import Constant, Uniform
from neon.layers import LSTM, Affine, Dropout, GeneralizedCostMask, MergeMultistream, Sequential
from neon.models import Model
from neon.optimizers import RMSProp
from neon.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh

folder = sys.argv[1]
rng = np.random.RandomState(9)
feats = np.zeros((4096, 72))
sents = {"train": [], "test": []}
things = ["cat", "dog", "bird"]
for i in range(72):
    feats[100 * (i % 3) : 100 * (i % 3) + 100, i] = 1 + 0.1 * rng.randn(100)
    words = ["a", things[i % 3], "sleeps"]
    image = {"imgid": i, "sentences": [{"tokens": words}, {"tokens": words}]}
    sents["train" if i < 64 else "test"].append(image)
os.makedirs(folder + "/flickr8k")
with gzip.open(folder + "/flickr8k/features.pkl.gz", "wb") as f:
    pickle.dump({"sents": sents, "feats": feats}, f, protocol=2)

be = gen_backend(backend="cpu", batch_size=8, rng_seed=0)
dataset = Flickr8k(path=folder, max_images=-1)
train_set, test_set = dataset.train_iter, dataset.test_iter
hidden, init = 24, Uniform(low=-0.08, high=0.08)
image_path = Sequential([Affine(hidden, init, bias=Constant(val=0.0))])
sent_path = Sequential([Affine(hidden, init, name="sent")])
layers = [
    MergeMultistream(layers=[image_path, sent_path], merge="recurrent"),
    Dropout(keep=0.9),
    LSTM(hidden, init, activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
    Affine(train_set.vocab_size, init, bias=Constant(train_set.bias_init), activation=Softmax()),
]
cost = GeneralizedCostMask(costfunc=CrossEntropyMulti(usebits=True))
model = Model(layers=layers)
callbacks = Callbacks(model, progress_bar=False)
opt = RMSProp(decay_rate=0.997, learning_rate=0.01, epsilon=1e-8, gradient_clip_value=1)
model.fit(train_set, optimizer=opt, num_epochs=8, cost=cost, callbacks=callbacks)
sents, targets = test_set.predict(model)
print("sentences: %s" % "; ".join(sorted(set(sents))))
right = sum(sent == target[0] for sent, target in zip(sents, targets))
print("right %d of %d" % (right, len(sents)))
scores = test_set.bleu_score(sents, targets)
