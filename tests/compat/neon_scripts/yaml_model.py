"""A network described in YAML."""

import sys

import numpy as np

from neon.callbacks.callbacks import Callbacks
from neon.data import ArrayIterator
from neon.transforms import Misclassification
from neon.util.yaml_parse import create_objects

DESCRIPTION = """
layers:
- type: Linear
  config: {nout: 20, init: &init {type: Gaussian, config: {scale: 0.1}}}
- type: Activation
  config: {transform: {type: Rectlin}}
- type: Linear
  config: {nout: 3, init: *init}
- type: Activation
  config: {transform: {type: Softmax}}
cost: CrossEntropyMulti
optimizer:
  type: GradientDescentMomentum
  config: {learning_rate: 0.1, momentum_coef: 0.9}
"""
path = sys.argv[1] + "/network.yaml"
with open(path, "w") as f:
    f.write(DESCRIPTION)

model, cost, opt = create_objects(path, be_type="cpu", batch_size=32, rng_seed=0)
rng = np.random.RandomState(7)
labels = rng.randint(0, 3, 256)
x = rng.randn(256, 6)
x[np.arange(256), labels] += 4
train = ArrayIterator(x, labels, nclass=3)
model.fit(train, optimizer=opt, num_epochs=5, cost=cost, callbacks=Callbacks(model, progress_bar=False))
print("Misclassification error = %.1f%%" % (model.eval(train, metric=Misclassification()) * 100))
