"""The libraries of ``autograd.py``: the operations that networks are made of, and a training step of each.

A step is forward, the loss, which is read, backward, and momentum: ``v = MOMENTUM v + gradient``, ``w = w - RATE v``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from _libraries import Array
from _steps import some
from _trained import MOMENTUM, RATE, Trained


class Trainer:
    """A network in training on one minibatch; a library has the operations that networks call.

    ======================================  ==========================================================================
    ``linear(x, w, b)``                     x w + b
    ``dropout(x, keep)``                    x / keep with probability ``keep``, else 0
    ``layer_norm(x, gamma, beta)``          of rows
    ``cross_entropy(logits, labels)``       mean over rows
    ``add_to_samples(tokens, positions)``   tokens (N * length, d), and what is added to each sample, (length, d)
    ``mean_of_samples(tokens, length)``     (N * length, d) -> (N, d)
    ``attention(qkv, length, heads)``       queries, keys and values side by side (N * length, 3 d) -> (N * length, d)
    ======================================  ==========================================================================

    Parameters
    ----------
    net : Trained
    N : int

    Attributes
    ----------
    first, x : dict of arrays
        Weights and inputs, of which a library makes its own.
    drops : bool
        Whether steps have dropout: those after results were compared, since each library draws other masks.
    """

    drops = False

    def __init__(self, net: Trained, N: int) -> None:
        self.net, self.first, self.x = net, net.weights(), net.inputs(N)

    def step(self) -> float:
        """Make one step; the loss before it."""
        raise NotImplementedError

    def changed(self) -> dict[str, Array]:
        """Weights as they are now; of a network that does not learn, the gradients of the last step."""
        raise NotImplementedError

    def result(self, steps: int) -> list[Array]:
        """Make ``steps``; their losses, and some elements of what all steps so far have changed in each array."""
        self.drops = False
        losses = np.array([self.step() for _ in range(steps)])
        self.drops = True
        now, learns = self.changed(), self.net.learns
        changes = (now[name] - first if learns else now[name] for name, first in self.first.items())
        return [losses, *(np.array(some(change)) for change in changes)]


class Ours(Trainer):
    """By variables."""

    def __init__(self, net: Trained, N: int, be: Any) -> None:
        from neonlike import autograd as ag

        super().__init__(net, N)
        self.ag, self.be = ag, be
        self.w = {name: ag.param(be.array(array), name=name) for name, array in self.first.items()}
        self.velocities = {name: be.zeros(array.shape) for name, array in self.first.items()}
        dtypes = {"labels": np.int64}
        self.given = {name: ag.const(be.array(array, dtype=dtypes.get(name))) for name, array in self.x.items()}
        self.relu, self.gelu, self.tanh, self.sum, self.dropout = ag.relu, ag.gelu, ag.tanh, ag.sum, ag.dropout

    @staticmethod
    def linear(x: Any, w: Any, b: Any) -> Any:
        return x @ w + b

    def layer_norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        return self.ag.layer_norm(x, 1, gamma, beta)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.ag.nll_loss(self.ag.log_softmax(logits), labels)

    def add_to_samples(self, tokens: Any, positions: Any) -> Any:
        length, d = positions.shape
        return (tokens.reshape(-1, length, d) + positions.reshape(1, length, d)).reshape(-1, d)

    def mean_of_samples(self, tokens: Any, length: int) -> Any:
        return self.ag.mean(tokens.reshape(-1, length, tokens.shape[1]), 1, keepdims=False)

    def attention(self, qkv: Any, length: int, heads: int) -> Any:
        d = qkv.shape[1] // 3
        parts = qkv.reshape(-1, length, 3, heads, d // heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        return self.ag.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, d)

    def step(self) -> float:
        """By ``backprop``, and an assignment a weight."""
        self.ag.zero_grad(self.w.values())
        loss = self.net.loss(self, self.w, self.given)
        loss.backprop()
        if self.net.learns:
            for name, w in self.w.items():
                v = self.velocities[name]
                new = MOMENTUM * v + w.partial_derivative
                self.be.assign_many([(v, new), (w.value, w.value - RATE * new)])
        return float(loss.item())

    def changed(self) -> dict[str, Array]:
        return {name: (w.value if self.net.learns else w.partial_derivative).get() for name, w in self.w.items()}


class Torch(Trainer):
    """PyTorch eager, with its fused optimizer."""

    def __init__(self, net: Trained, N: int, double: bool = False) -> None:
        import torch
        from torch.nn import functional

        super().__init__(net, N)
        self.torch, self.functional = torch, functional
        torch.set_grad_enabled(True)
        dtype = torch.float64 if double else torch.float32
        self.w = {n: torch.from_numpy(a.copy()).to(dtype).requires_grad_() for n, a in self.first.items()}
        given = {name: torch.from_numpy(array) for name, array in self.x.items()}
        self.given = {name: t.to(dtype) if t.is_floating_point() else t for name, t in given.items()}
        self.optimizer = torch.optim.SGD(self.w.values(), RATE, MOMENTUM, fused=True)
        self.relu, self.tanh, self.sum = torch.relu, torch.tanh, torch.sum
        self.gelu, self.cross_entropy = functional.gelu, functional.cross_entropy

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return self.torch.addmm(b, x, w)

    def dropout(self, x: Any, keep: float) -> Any:
        return self.functional.dropout(x, 1 - keep)

    def layer_norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        return self.functional.layer_norm(x, x.shape[1:], gamma[0], beta[0])

    def add_to_samples(self, tokens: Any, positions: Any) -> Any:
        return (tokens.view(-1, *positions.shape) + positions).view(tokens.shape)

    def mean_of_samples(self, tokens: Any, length: int) -> Any:
        return tokens.view(-1, length, tokens.shape[1]).mean(1)

    def attention(self, qkv: Any, length: int, heads: int) -> Any:
        d = qkv.shape[1] // 3
        q, k, v = qkv.view(-1, length, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        return self.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, d)

    def step(self) -> float:
        """Eagerly."""
        self.optimizer.zero_grad()
        loss = self.net.loss(self, self.w, self.given)
        loss.backward()
        if self.net.learns:
            self.optimizer.step()
        return float(loss.item())

    def changed(self) -> dict[str, Array]:
        return {name: (w.detach() if self.net.learns else w.grad).numpy() for name, w in self.w.items()}


class Jax(Trainer):
    """JAX on the CPU: the whole step is compiled, and writes into the weights it was given."""

    def __init__(self, net: Trained, N: int) -> None:
        import jax

        super().__init__(net, N)
        self.jax, self.jnp = jax, jax.numpy
        put = partial(jax.device_put, device=jax.devices("cpu")[0])
        self.w = {name: put(array.copy()) for name, array in self.first.items()}
        self.velocities = {name: put(np.zeros_like(array)) for name, array in self.first.items()}
        self.given = {name: put(array) for name, array in self.x.items()}
        self.relu, self.tanh, self.sum = jax.nn.relu, self.jnp.tanh, self.jnp.sum
        self.gelu = partial(jax.nn.gelu, approximate=False)
        self.learn = jax.jit(self._learn, donate_argnums=(0, 1), static_argnums=4)
        self.run, self.steps = jax.jit(self._gradients), 0

    def _gradients(self, w: Any, x: Any) -> Any:
        return self.jax.value_and_grad(lambda w: self.net.loss(self, w, x))(w)

    def _learn(self, w: Any, velocities: Any, x: Any, count: Any, drops: bool) -> Any:
        self.key = self.jax.random.fold_in(self.jax.random.key(0), count) if drops else None
        loss, gradients = self._gradients(w, x)
        moved = self.jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
        return loss, self.jax.tree.map(lambda w, v: w - RATE * v, w, moved), moved

    @staticmethod
    def linear(x: Any, w: Any, b: Any) -> Any:
        return x @ w + b

    def dropout(self, x: Any, keep: float) -> Any:
        self.key, own = self.jax.random.split(self.key)
        return self.jnp.where(self.jax.random.bernoulli(own, keep, x.shape), x / keep, 0)

    def layer_norm(self, x: Any, gamma: Any, beta: Any) -> Any:
        away = x - x.mean(1, keepdims=True)
        return away * self.jax.lax.rsqrt((away * away).mean(1, keepdims=True) + 1e-5) * gamma + beta

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return -self.jnp.take_along_axis(self.jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    def add_to_samples(self, tokens: Any, positions: Any) -> Any:
        return (tokens.reshape(-1, *positions.shape) + positions).reshape(tokens.shape)

    def mean_of_samples(self, tokens: Any, length: int) -> Any:
        return tokens.reshape(-1, length, tokens.shape[1]).mean(1)

    def attention(self, qkv: Any, length: int, heads: int) -> Any:
        d = qkv.shape[1] // 3
        q, k, v = self.jnp.moveaxis(qkv.reshape(-1, length, 3, heads, d // heads), 2, 0)
        return self.jax.nn.dot_product_attention(q, k, v).reshape(-1, d)

    def step(self) -> float:
        """One call of what was compiled."""
        if self.net.learns:
            self.steps += 1
            given = self.w, self.velocities, self.given, np.int32(self.steps)
            loss, self.w, self.velocities = self.learn(*given, self.drops)
        else:
            loss, self.gradients = self.run(self.w, self.given)
        return float(loss)

    def changed(self) -> dict[str, Array]:
        return {name: np.asarray(array) for name, array in (self.w if self.net.learns else self.gradients).items()}
