"""A program on the backend alone: op-trees, automatic differentiation, a logistic regression by hand."""

import numpy as np

from neon.backends import Autodiff, gen_backend
from neon.backends.backend import OpTreeNode

be = gen_backend(backend="cpu", rng_seed=0, batch_size=128)
rng = np.random.RandomState(12)
x = rng.randn(2, 128).astype(np.float32)
t = (x[:1] - 2 * x[1:] > 0).astype(np.float32)
X, T, W, b = be.array(x), be.array(t), be.zeros((1, 2)), be.zeros((1, 1))
for step in range(200):
    y = be.sig(be.dot(W, X) + b)
    cost = -be.mean(T * be.safelog(y) + (1 - T) * be.safelog(1 - y), axis=1)
    ad = Autodiff(op_tree=cost, be=be, next_error=None)
    dW, db = ad.get_grad_tensor([W, b])
    W[:] = W - 1.0 * dW
    b[:] = b - 1.0 * db
out = be.empty((1, 1))
out[:] = cost
print("cost %.4f" % out.get()[0, 0])
right = be.empty((1, 1))
right[:] = be.mean(be.equal(be.greater(be.sig(be.dot(W, X) + b), 0.5), T), axis=1)
print("right %.3f" % float(right.get()))
f = 2 * X + 1
print("an op-tree: %s, its op %s" % (isinstance(f, OpTreeNode), f[0]["op"]))
X += 1
print("an expression: %s" % isinstance(X, OpTreeNode))
unused = be.ones((3, 1))
print("gradient of what is not there: %s" % Autodiff(be.sum(W * W), be).get_grad_asnumpyarray([unused])[0].tolist())
