"""A language model over words, from files named as the Penn Treebank's, with the best possible perplexity beside its
own."""

import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import PTB
from neon.initializers import Uniform
from neon.layers import LSTM, Affine, Dropout, GeneralizedCost, LookupTable
from neon.models import Model
from neon.optimizers import RMSProp, Schedule
from neon.transforms import Accuracy, CrossEntropyMulti, Logistic, Softmax, Tanh

folder, steps = sys.argv[1], 10
rng = np.random.RandomState(12)
subjects, objects = {"dog": "barks", "cat": "purrs", "cow": "moos"}, ["here", "there", "now", "again"]
for part, count in (("train", 5000), ("valid", 400), ("test", 400)):
    with open("%s/ptb.%s.txt" % (folder, part), "w") as f:
        for _ in range(count):  # the verb follows from the subject, two words before it
            who = sorted(subjects)[rng.randint(3)]
            f.write(" the %s always %s %s \n" % (who, subjects[who], objects[rng.randint(4)]))

be = gen_backend(backend="cpu", batch_size=20, rng_seed=0)
dataset = PTB(steps, path=folder, onehot_input=False, tokenizer="newline_tokenizer")
train, valid, test = dataset.train_iter, dataset.valid_iter, dataset.test_iter
print("words %d: %s" % (len(train.vocab), " ".join(train.vocab)))
init = Uniform(-0.2, 0.2)
lstm = dict(init=init, activation=Tanh(), gate_activation=Logistic(), reset_cells=False)
layers = [
    LookupTable(vocab_size=len(train.vocab), embedding_dim=12, init=init),
    LSTM(24, **lstm),
    Dropout(keep=0.9),
    LSTM(24, **lstm),
    Affine(len(train.vocab), init, bias=init, activation=Softmax()),
]
model = Model(layers=layers)
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
opt = RMSProp(learning_rate=0.01, gradient_clip_norm=5.0, schedule=Schedule(step_config=[2], change=0.3))
callbacks = Callbacks(model, eval_set=valid, eval_freq=1, progress_bar=False)
model.fit(train, optimizer=opt, num_epochs=3, cost=cost, callbacks=callbacks)


def perplexity(data):
    total = words = 0
    for x, t in data:
        y = model.fprop(x, inference=True)
        p = np.sum(y.get() * t.get(), axis=0)
        total, words = total - np.log(p).sum(), words + p.size
    return np.exp(total / words)


losses = [np.exp(loss) for loss in callbacks.callback_data["cost/loss"][:]]
print("perplexity of epochs %.2f ... %.2f" % (losses[0], losses[-1]))
print("test perplexity %.3f, of the sentences themselves %.3f" % (perplexity(test), 12 ** (1.0 / 6)))
print("words right %.3f of %.3f" % (model.eval(test, metric=Accuracy()), (4 + 1 / 3.0 + 1 / 4.0) / 6))
