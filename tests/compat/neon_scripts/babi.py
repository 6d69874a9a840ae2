"""Questions about short stories, from files that the script makes."""

import os
import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.data import BABI, QA
from neon.initializers import GlorotUniform, Uniform
from neon.layers import GRU, Affine, GeneralizedCost, LookupTable, MergeMultistream, RecurrentLast
from neon.models import Model
from neon.optimizers import Adam
from neon.transforms import Accuracy, CrossEntropyMulti, Logistic, Softmax, Tanh

folder, task = sys.argv[1], "qa1_single-supporting-fact"
rng = np.random.RandomState(11)
names, places = ["Mary", "John"], ["garden", "kitchen", "office"]
where = os.path.join(folder, "tasks_1-20_v1-2", "en")
os.makedirs(where)
for part, count in (("train", 320), ("test", 64)):
    with open(os.path.join(where, "%s_%s.txt" % (task, part)), "w") as f:
        for _ in range(count):
            who, place = names[rng.randint(2)], places[rng.randint(3)]
            f.write("1 %s went to the %s.\n2 Where is %s?\t%s\t1\n" % (who, place, who, place))

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
babi = BABI(path=folder, task=task, subset="en")
train_set, valid_set = QA(*babi.train), QA(*babi.test)
rlayer_params = dict(output_size=24, reset_cells=True, init=GlorotUniform(), init_inner=GlorotUniform(),
                     activation=Tanh(), gate_activation=Logistic())  # fmt: skip


def path():
    table = LookupTable(vocab_size=babi.vocab_size, embedding_dim=12, init=Uniform(-0.05, 0.05))
    return [table, GRU(**rlayer_params)]


layers = [
    MergeMultistream(layers=[path(), path()], merge="recurrent"),
    GRU(**rlayer_params),
    RecurrentLast(),
    Affine(babi.vocab_size, GlorotUniform(), bias=GlorotUniform(), activation=Softmax()),
]
model = Model(layers=layers)
cost = GeneralizedCost(costfunc=CrossEntropyMulti())
callbacks = Callbacks(model, eval_set=valid_set, eval_freq=10, progress_bar=False)
model.fit(train_set, optimizer=Adam(learning_rate=0.01), num_epochs=40, cost=cost, callbacks=callbacks)
print("Test Accuracy: %.1f" % (model.eval(valid_set, metric=Accuracy()) * 100))
story = babi.words_to_vector(BABI.tokenize("Mary went to the office."))
query = babi.words_to_vector(BABI.tokenize("Where is Mary?"))
s, q = np.zeros((babi.story_maxlen, 32)), np.zeros((babi.query_maxlen, 32))
s[-len(story) :, 0], q[-len(query) :, 0] = story, query
probs = model.fprop(x=(be.array(s), be.array(q)), inference=True).get()[:, :1].copy()
top = np.argsort(probs, axis=0)[-1]
print("answer: %s with %.2f" % (babi.index_to_word[int(top)], float(probs[int(top)])))
