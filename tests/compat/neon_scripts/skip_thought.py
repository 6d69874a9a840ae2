"""Sentences of stories: each one predicts the previous and the next one."""

import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import NervanaDataIterator, Text
from neon.initializers import Constant, GlorotUniform, Orthonormal, Uniform
from neon.layers import GRU, GeneralizedCostMask, Multicost, SkipThought
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import CrossEntropyMulti, Logistic, Tanh
from neon.util.persist import load_obj

folder, steps = sys.argv[1], 5
lines = ["the sun rises", "a cat wakes up", "birds sing in the tree", "the cat looks up", "birds fly", "a cat sleeps"]
with open(folder + "/stories.txt", "w") as f:
    f.write("\n".join(lines * 33))

be = gen_backend(backend="cpu", batch_size=16, rng_seed=0)


class Stories(NervanaDataIterator):
    """Sentences with their neighbours, padded by the end of a sentence, and masks without the padding."""

    def __init__(self, path):
        super(Stories, self).__init__()
        sentences = [[*line.split(), "<eos>"] for line in open(path)]
        self.vocab = Text.get_vocab([word for sentence in sentences for word in sentence])
        self.index = dict((word, i) for i, word in enumerate(self.vocab))
        self.X = np.array([self.numbers(sentence)[0] for sentence in sentences])
        self.lengths = np.array([len(sentence) for sentence in sentences])
        self.shape = [(steps, 1)] * 3
        self.nbatches = (len(sentences) - 2) // be.bsz
        self.ndata = self.nbatches * be.bsz
        self.inputs = [be.iobuf(steps, dtype=np.int32) for _ in range(3)]
        self.words = be.iobuf(steps, dtype=np.int32)
        self.targets = [(be.iobuf((len(self.vocab), steps)), be.iobuf((len(self.vocab), steps))) for _ in range(2)]

    def numbers(self, sentence):
        padded = sentence[: steps + 1] + ["<eos>"] * (steps + 1 - len(sentence))
        return np.array([[self.index[word] for word in padded[:steps]]])

    def reset(self):
        pass

    def __iter__(self):
        for start in range(1, self.ndata + 1, be.bsz):
            at = np.arange(start, start + be.bsz)
            self.inputs[0].set(self.X[at].T.astype(np.int32))
            for side, ours, (target, mask) in zip((at - 1, at + 1), self.inputs[1:], self.targets):
                words = self.X[side].T.astype(np.int32)
                ours.set(np.vstack([np.full((1, be.bsz), self.index["<eos>"]), words[:-1]]).astype(np.int32))
                self.words.set(words)
                target[:] = be.onehot(self.words.reshape((1, -1)), axis=0)
                said = (np.arange(steps).reshape(-1, 1) < self.lengths[side]).reshape(1, -1)
                mask[:] = be.array(said.astype(np.float32))
            yield self.inputs, self.targets


train = Stories(folder + "/stories.txt")
layers = SkipThought(
    len(train.vocab), 12, Uniform(-0.1, 0.1), 32, GRU, Orthonormal(), Tanh(), Logistic(), GlorotUniform(), Constant(0.0)
)
model = Model(layers)
cost = Multicost([GeneralizedCostMask(CrossEntropyMulti()) for _ in range(2)], weights=[1, 1])
callbacks = Callbacks(model, progress_bar=False, multicost=True)
model.fit(train, optimizer=Adam(learning_rate=0.01), num_epochs=15, cost=cost, callbacks=callbacks)
model.save_params(folder + "/skip.p")


def decode(net, sentence, side):
    """Decode word by word: each word is the input of the next step."""
    inputs = [be.zeros((steps, be.bsz), dtype=np.int32) for _ in range(3)]
    inputs[0].set(np.tile(train.numbers([*sentence.split(), "<eos>"]).T, (1, be.bsz)).astype(np.int32))
    inputs[1 + side].fill(train.index["<eos>"])
    words = []
    for step in range(steps):
        y = net.fprop(inputs, inference=True)[side].get()
        word = int(np.argmax(y[:, step * be.bsz]))
        if train.vocab[word] == "<eos>":
            break
        words.append(train.vocab[word])
        if step + 1 < steps:
            inputs[1 + side][step + 1] = word
    return " ".join(words)


loaded = Model(load_obj(folder + "/skip.p"))
loaded.initialize(train)
right = [sum(decode(net, line, side) == lines[(i + 2 * side - 1) % len(lines)] for i, line in enumerate(lines)
             for side in (0, 1)) for net in (model, loaded)]  # fmt: skip
print("after 'a cat wakes up': %s; before it: %s" % tuple(decode(model, lines[1], side) for side in (1, 0)))
print("right %d of %d, loaded %d" % (right[0], 2 * len(lines), right[1]))
