"""Scaled dot-product attention in NumPy in float64, with the matrix of all weights; a case that runs on a backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends import Backend

Array = np.ndarray[Any, Any]
CLOSE = {np.float16: 3e-3, np.float32: 5e-6, np.float64: 3e-14}
"""dtype -> error, relative to the largest value of a result."""


def forward(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array, Array]:
    """Outputs, logarithms of the sums of exponentials, and weights, of matrices in any number."""
    scores = scale * (q @ np.swapaxes(k, -1, -2))
    if causal:
        unseen = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None]
        scores = np.where(unseen, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True)
    sums = np.exp(scores - top).sum(axis=-1, keepdims=True)
    weights = np.exp(scores - top) / sums
    return weights @ v, (top + np.log(sums))[..., 0], weights


def backward(q: Array, k: Array, v: Array, e: Array, scale: float, causal: bool) -> tuple[Array, Array, Array]:
    """Gradients of the queries, keys and values; of a softmax as its Jacobian says."""
    _, _, weights = forward(q, k, v, scale, causal)
    of_weights = e @ np.swapaxes(v, -1, -2)
    of_scores = weights * of_weights - weights * (weights * of_weights).sum(axis=-1, keepdims=True)
    turned = np.swapaxes(of_scores, -1, -2)
    return scale * of_scores @ k, scale * turned @ q, np.swapaxes(weights, -1, -2) @ e


def close(found: Array, wanted: Array) -> None:
    """``found`` is ``wanted`` within its dtype's tolerance."""
    scale = max(1.0, np.abs(wanted).max(initial=0))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=CLOSE[found.dtype.type] * scale)


class Case:
    """Tensors of one attention, and its passes on the backend and in NumPy.

    Parameters
    ----------
    dims : (samples, heads, queries, keys, size, value_size)
    values : mapping, optional
        Arrays in place of random ones, by the names q, k, v and e.
    """

    def __init__(
        self, be: Backend, dims: tuple[int, int, int, int, int, int], causal: bool = False, scale: float | None = None,
        dtype: Any = np.float32, **values: Array,
    ) -> None:  # fmt: skip
        N, heads, queries, keys, size, value_size = dims
        self.be, self.dtype = be, dtype
        self.layer = be.attention_layer(dtype, N, heads, queries, size, keys, value_size, causal, scale)
        rng = np.random.default_rng(sum(dims))
        shapes = {"q": self.layer.dimQ, "k": self.layer.dimK, "v": self.layer.dimV, "e": self.layer.dimO}
        normal = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
        self.arrays = [(normal | values)[name].astype(dtype) for name in shapes]
        self.Q, self.K, self.V, self.E = (be.array(array, dtype=dtype) for array in self.arrays)
        self.O = be.empty(self.layer.dimO, dtype=dtype)
        self.lse = be.empty(self.layer.dimL, dtype=self.layer.lse_dtype)
        self.gradients = [be.empty(tensor.shape, dtype=dtype) for tensor in (self.Q, self.K, self.V)]

    def fprop(self, **more: Any) -> Any:
        """The forward pass."""
        return self.be.fprop_attention(self.layer, self.Q, self.K, self.V, self.O, self.lse, **more)

    def bprop(self, **more: Any) -> Any:
        """The backward pass."""
        operands = self.Q, self.K, self.V, self.O, self.lse, self.E
        return self.be.bprop_attention(self.layer, *operands, *self.gradients, **more)

    def check_fprop(self) -> None:
        """Outputs, and logarithms of sums."""
        wide = [array.astype(np.float64) for array in self.arrays[:3]]
        outputs, sums, _ = forward(*wide, self.layer.scale, self.layer.causal)
        close(self.O.get(), outputs)
        close(self.lse.get(), sums)

    def check_bprop(self) -> None:
        """Gradients."""
        wide = [array.astype(np.float64) for array in self.arrays]
        for found, wanted in zip(self.gradients, backward(*wide, self.layer.scale, self.layer.causal)):
            close(found.get(), wanted)

    def check(self) -> None:
        """Both passes."""
        self.fprop()
        self.check_fprop()
        self.bprop()
        self.check_bprop()
