"""An unrolled recurrent layer of the backend: parameters, buffers, forward and backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike import transforms

TANH, LOGISTIC = transforms.Tanh(), transforms.Logistic()
GATES = {"simple": 1, "lstm": 4, "gru": 3}


class Layer:
    """A recurrent layer of ``kind`` on a backend: parameters, buffers, forward and backward pass.

    ``ff`` holds the input projection, then the gates; ``d`` the errors before the activations. All are of ``dtype``, by
    default the backend's.
    """

    def __init__(
        self, be: Any, kind: str, n: int, batch: int, steps: int, recur: Any, bias: Any, ff: Any, dtype: Any = None
    ) -> None:
        self.be, self.kind, self.n, self.batch, self.steps = be, kind, n, batch, steps
        rows, columns = GATES[kind] * n, batch * steps
        self.w, self.b, self.ff = (be.array(x, dtype=dtype) for x in (recur, np.reshape(bias, (rows, 1)), ff))
        self.h, self.c, self.a, self.e, self.dc, self.reset = (be.zeros((n, columns), dtype=dtype) for _ in range(6))
        self.h0, self.c0, self.dh0, self.dc0 = (be.zeros((n, batch), dtype=dtype) for _ in range(4))
        self.d = self.e if kind == "simple" else be.zeros((rows, columns), dtype=dtype)

    def cut(self, tensor: Any, first: Any = None) -> list[Any]:
        """A view for each step; with ``first``, those of the steps before, and ``first`` before all."""
        steps = [tensor[:, t * self.batch : (t + 1) * self.batch] for t in range(self.steps)]
        return steps if first is None else [first, *steps[:-1]]

    def forward(self) -> Any:
        be, sizes, cut = self.be, (self.n, self.steps, None), self.cut
        h, ff, before = cut(self.h), cut(self.ff), cut(self.h, self.h0)
        if self.kind == "simple":
            be.compound_rnn_unroll_fprop(self.w, before, ff, h, self.b, *sizes, TANH)
        elif self.kind == "lstm":
            c, a, c_before = cut(self.c), cut(self.a), cut(self.c, self.c0)
            be.compound_lstm_unroll_fprop(self.w, before, c_before, ff, ff, c, a, h, self.b, *sizes, TANH, LOGISTIC)
        else:
            be.compound_gru_unroll_fprop(self.w, before, ff, ff, cut(self.reset), h, self.b, *sizes, TANH, LOGISTIC)
        return self.h.get()

    def backward(self, error: Any) -> None:
        be, sizes, cut = self.be, (self.n, self.steps, None), self.cut
        self.e[:], self.dh0[:], self.dc[:] = np.array(error), 0, 0
        e, passed, h0 = cut(self.e), cut(self.e, self.dh0), cut(self.h, self.h0)
        if self.kind == "simple":
            be.compound_rnn_unroll_bprop(self.w.T, passed, e, cut(self.h), *sizes, TANH)
        elif self.kind == "lstm":
            dc, dc_passed, c_before = cut(self.dc), cut(self.dc, self.dc0), cut(self.c, self.c0)
            be.compound_lstm_unroll_bprop(
                self.w.T, passed, e, dc_passed, dc, cut(self.d), cut(self.ff), c_before, cut(self.a), *sizes,
                TANH, LOGISTIC,
            )  # fmt: skip
        else:
            be.compound_gru_unroll_bprop(self.w.T, passed, e, cut(self.d), cut(self.ff), h0, *sizes, TANH, LOGISTIC)

    def recurrent_gradient(self) -> Any:
        """dW_recur, the step before the first included."""
        d, before = self.d.get(), np.concatenate((self.h0.get(), self.h.get()[:, : -self.batch]), axis=1)
        if self.kind != "gru":
            return d @ before.T
        return np.concatenate((d[: 2 * self.n] @ before.T, d[2 * self.n :] @ self.reset.get().T))


def made_layer(
    be: Any, kind: str, n: int = 20, batch: int = 35, steps: int = 3, seed: int = 1, dtype: Any = None
) -> Layer:
    rng, rows = np.random.default_rng(seed), n * GATES[kind]
    made = Layer(
        be, kind, n, batch, steps, rng.standard_normal((rows, n)) / n**0.5, rng.standard_normal((rows, 1)),
        rng.standard_normal((rows, batch * steps)), dtype,
    )  # fmt: skip
    made.h0[:], made.c0[:] = rng.standard_normal((n, batch)), rng.standard_normal((n, batch))
    return made


def results(layer: Layer, error: Any) -> list[Any]:
    layer.forward()
    layer.backward(error)
    return [t.get() for t in (layer.h, layer.c, layer.a, layer.ff, layer.reset, layer.e, layer.d, layer.dh0, layer.dc0)]


def check_a_spoiled_sample(clean: Layer, spoiled: Layer, strange: float, error: Any) -> None:
    """Check that a strange state of one sample changes no results of the 34 others, in two equal layers."""
    spoiled.h0[3:4, 4:5] = strange
    others = [i for i in range(35) if i != 4]
    for one, two in zip(results(clean, error), results(spoiled, error)):
        columns = np.arange(one.shape[1]).reshape(-1, 35)[:, others].ravel()
        np.testing.assert_array_equal(one[:, columns], two[:, columns])
