"""A layer, an activation and a cost of a program's own."""

import numpy as np

from neon import NervanaObject
from neon.backends import gen_backend
from neon.data import ArrayIterator
from neon.initializers import Uniform
from neon.layers import Activation, GeneralizedCost
from neon.layers.layer import Layer, ParameterLayer, interpret_in_shape
from neon.models import Model
from neon.optimizers import GradientDescentMomentum
from neon.transforms import Cost
from neon.transforms.transform import Transform

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)


class MySoftplus(Transform):
    def __call__(self, x):
        return self.be.log(1.0 + self.be.exp(x))

    def bprop(self, x):
        return 1.0 - self.be.exp(-x)


class MySquared(Cost):
    def __init__(self):
        self.func = lambda y, t: 0.5 * self.be.mean(self.be.square(y - t), axis=0)
        self.funcgrad = lambda y, t: (y - t) / y.shape[0]


class MyLinear(ParameterLayer):
    def __init__(self, nout, init, name=None):
        super(MyLinear, self).__init__(init, name, "Disabled")
        self.nout = nout

    def __str__(self):
        return "MyLinear: %d -> %d" % (self.nin, self.nout)

    def configure(self, in_obj):
        super(MyLinear, self).configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        self.out_shape = (self.nout, self.nsteps)
        if self.weight_shape is None:
            self.weight_shape = (self.nout, self.nin)
        return self

    def fprop(self, inputs, inference=False, beta=0.0):
        self.inputs = inputs
        self.be.compound_dot(A=self.W, B=self.inputs, C=self.outputs, beta=beta)
        return self.outputs

    @Layer.accumulates
    def bprop(self, error, alpha=1.0, beta=0.0):
        if self.deltas:
            self.be.compound_dot(A=self.W.T, B=error, C=self.deltas, alpha=alpha, beta=beta)
        self.be.compound_dot(A=error, B=self.inputs.T, C=self.dW)
        return self.deltas


rng = np.random.RandomState(1)
x = rng.randn(256, 3)
t = np.log1p(np.exp(x.dot(np.array([[1.0, -2.0], [0.5, 0.25], [-1.0, 1.0]]))))
train = ArrayIterator(x, t, make_onehot=False)
model = Model([MyLinear(2, Uniform(-0.1, 0.1)), Activation(MySoftplus())])
model.initialize(train, GeneralizedCost(MySquared()))
opt = GradientDescentMomentum(1.0, 0.9)
for epoch in range(30):
    total = 0
    for batch, target in train:
        y = model.fprop(batch)
        total = total + model.cost.get_cost(y, target)
        model.bprop(model.cost.get_errors(y, target))
        opt.optimize(model.layers_to_optimize, epoch=epoch)
    if epoch in (0, 29):
        print("epoch %d cost %.6f" % (epoch, float(total) / 8))
print("is a NervanaObject: %s" % isinstance(model.layers.layers[0], NervanaObject))
