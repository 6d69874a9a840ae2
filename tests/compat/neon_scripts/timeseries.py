"""The next point of a curve, from an iterator of the script's own."""

import numpy as np

from neon import NervanaObject
from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks
from neon.initializers import GlorotUniform
from neon.layers import LSTM, Affine, GeneralizedCost, RecurrentLast
from neon.models import Model
from neon.optimizers import RMSProp
from neon.transforms import Identity, Logistic, MeanSquared, Tanh

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)


class Curve(NervanaObject):
    def __init__(self, x, steps):
        self.steps, self.nbatches = steps, (len(x) - steps) // self.be.bsz
        self.ndata = self.nbatches * self.be.bsz
        windows = np.array([x[i : i + steps] for i in range(self.ndata)])
        self.windows, self.targets = windows, x[steps : steps + self.ndata]
        self.shape = (x.shape[1], steps)
        self.dev_X = self.be.iobuf((x.shape[1], steps))
        self.dev_y = self.be.iobuf(x.shape[1])

    def reset(self):
        pass

    def __iter__(self):
        for i in range(self.nbatches):
            rows = slice(i * self.be.bsz, (i + 1) * self.be.bsz)
            batch = self.windows[rows].transpose(2, 1, 0).reshape(self.dev_X.shape)
            self.dev_X.set(batch.copy())
            self.dev_y.set(self.targets[rows].T.copy())
            yield self.dev_X, self.dev_y


at = np.arange(0, 60, 0.1)
data = np.vstack([np.cos(at), np.sin(2 * at)]).T
train = Curve(data, 8)
init = GlorotUniform()
model = Model(
    layers=[
        LSTM(16, init, activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
        RecurrentLast(),
        Affine(2, init, bias=init, activation=Identity()),
    ]
)
model.fit(
    train, optimizer=RMSProp(), num_epochs=25, cost=GeneralizedCost(MeanSquared()),
    callbacks=Callbacks(model, progress_bar=False),
)  # fmt: skip
output = model.get_outputs(train)
error = np.mean((output.reshape(-1, 2) - train.targets) ** 2)
print("outputs %s, mean squared error %.5f" % (output.shape, error))
