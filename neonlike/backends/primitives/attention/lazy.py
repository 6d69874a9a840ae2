"""Scaled dot-product attention in expressions: ``be.attention``, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.backends.primitives.attention.family import AttentionFamily
from neonlike.backends.primitives.lazy.requests import Result, matmul_node
from neonlike.backends.tensors.operands import check_floats
from neonlike.errors import ShapeError
from neonlike.optree.calls import Request, call, call_spec, of_result, part
from neonlike.optree.dtypes import DType
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import common_backend, expression
from neonlike.optree.sweep import differentiated
from neonlike.optree.tape import rule_key

F: Any = Functions


class _Request(Request):
    """Base of both requests."""

    geometry: AttentionGeometry
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    @property
    def key(self) -> int | None:
        """Key that is equal for requests of the same class and sizes."""
        return rule_key(type(self), self.geometry, self.results, self.dtypes)

    def _planned(self, be: Any, arrays: Sequence[Any], backward: bool) -> Any:
        """Kernel for ``arrays`` in the order of the backend's method; None if it takes several, or there is no work."""
        layer, leading = self.geometry, tuple(arrays[0].shape[:-2])
        request = AttentionPass(layer, leading, backward)
        return be._planned_attention(arrays, request) if layer.keys and request.heads * layer.queries else None


@dataclass(frozen=True, eq=False)
class Attention(_Request):
    """``fprop_attention`` of (Q, K, V); its second result is the logarithm of each query's sum of exponentials."""

    geometry: AttentionGeometry
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the attention.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            O, and the logarithms of the sums.
        operands : sequence of Tensor
            Q, K, V.
        """
        be.fprop_attention(self.geometry, *operands, *results)

    def planned(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
        """See :meth:`Request.planned`.

        Parameters
        ----------
        be, results, operands
            As of :meth:`run`, with arrays in the place of tensors.
        """
        return self._planned(be, (*operands, *results), False)

    @property
    def products(self) -> tuple[Any, str]:
        """See :attr:`Request.products`."""
        return self.geometry, "fprop"

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.fprop_attention, {self.geometry}"


@dataclass(frozen=True, eq=False)
class AttentionGradient(_Request):
    """``bprop_attention`` of (Q, K, V, O, lse, error): the gradients of Q, K and V."""

    geometry: AttentionGeometry
    results: tuple[Result, ...]
    dtypes: tuple[DType | None, ...]

    def run(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Compute the gradients.

        Parameters
        ----------
        be : Backend
        results : sequence of Tensor
            Gradients of Q, K, V.
        operands : sequence of Tensor
            Q, K, V, O, lse, error.
        """
        be.bprop_attention(self.geometry, *operands, *results)

    def planned(self, be: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
        """See :meth:`Request.planned`.

        Parameters
        ----------
        be, results, operands
            As of :meth:`run`, with arrays in the place of tensors.
        """
        return self._planned(be, (*operands, *results), True)

    def slopes(self, position: int, d: Any, *operands: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients of the formula, with weights recomputed from queries and keys.

        Parameters
        ----------
        position : int
            Which gradient is differentiated: of Q (0), K (1) or V (2).
        d : expression
            The gradient that arrives at it.
        *operands : expressions
            As of :meth:`run`.
        """
        Q, K, V, _, _, error = operands
        *by_inputs, by_error = differentiated(partial(_formula, self.geometry, position), d, (Q, K, V, error))
        return (*by_inputs, None, None, by_error)

    @property
    def products(self) -> tuple[Any, str]:
        """See :attr:`Request.products`."""
        return self.geometry, "bprop"

    def describe(self) -> str:
        """Name of the backend's method, with sizes."""
        return f"be.bprop_attention, {self.geometry}"


def _formula(layer: AttentionGeometry, position: int, *operands: Any) -> Any:
    """The gradient of Q (0), K (1) or V (2) from these and the error; see ``bprop_attention``."""
    shape = operands[position].shape
    q, k, v, error = (one.reshape(-1, *one.shape[-2:]) for one in operands)
    scores = _product(q, k.T) * layer.scale
    if layer.causal:
        hidden = scores.backend.array(np.triu(np.ones((1, *scores.shape[1:])), 1), dtype=np.int8)
        scores = F.where(hidden, -math.inf, scores)
    weights = F.softmax(scores, 2)
    if position == 2:
        return _product(weights.T, error).reshape(shape)
    of_weights = _product(error, v.T)
    slopes = weights * (of_weights - F.sum(weights * of_weights, 2)) * layer.scale
    return (_product(slopes, k) if position == 0 else _product(slopes.T, q)).reshape(shape)


def _product(a: Any, b: Any) -> Any:
    return matmul_node(a, b, (a.shape[0], a.shape[1], b.shape[2]), a.dtype)


class LazyAttentionFamily(AttentionFamily):
    """``attention``, as an expression.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.attention(be.ones((2, 4)), be.ones((3, 4)), be.ones((3, 4))).shape
    (2, 4)
    """

    def attention(self, Q: Any, K: Any, V: Any, causal: bool = False, scale: float | None = None) -> Any:
        """Scaled dot-product attention as an expression; see :meth:`fprop_attention`.

        Parameters
        ----------
        Q : (N, heads, queries, size), or without the first axis or the first two
        K, V : (N, heads, keys, size), (N, heads, keys, value_size)
            As many axes as Q.
        causal : bool
            Restrict query i to keys 0 to i.
        scale : float, optional
            Factor of the products of queries and keys; default: 1 / sqrt(size).

        Returns
        -------
        expression (N, heads, queries, value_size)
            Its gradient takes no more memory than :meth:`bprop_attention`; second derivatives store all scores.

        Raises
        ------
        ShapeError, DTypeError
            If shapes do not match, or dtypes differ or are not floats.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> Q, K, V = be.zeros((2, 4)), be.ones((3, 4)), be.ones((3, 5))
        >>> be.attention(Q, K, V).shape
        (2, 5)
        """
        given = {"Q": Q, "K": K, "V": V}
        operands: list[Any] = [expression("attention", value, self) for value in given.values()]
        check_floats("attention", **dict(zip(given, operands)))
        common_backend("attention", tuple(operands))
        shapes = [operand.shape for operand in operands]
        q, k, v = shapes
        if not 2 <= len(q) <= 4 or k[:-2] != q[:-2] or v[:-2] != q[:-2] or k[-1] != q[-1] or v[-2] != k[-2]:
            raise ShapeError(
                "attention: needs Q (N, heads, queries, size), K (N, heads, keys, size) and V (N, heads, keys, "
                f"value_size), with two to four axes; got {q}, {k}, {v}"
            )
        if len(q) == 2:
            operands = [operand.reshape(1, *operand.shape) for operand in operands]
        N, heads = (1, 1, *q[:-2])[-2:]
        kind = operands[0].dtype
        layer = self.attention_layer(kind, N, heads, q[-2], q[-1], k[-2], v[-1], causal, scale)
        leading = operands[0].shape[:-2]
        results = ((*leading, q[-2], v[-1]), kind), ((*leading, q[-2]), layer.lse_dtype)
        found: Any = call(_ATTENTION, Attention(layer, results, (kind,) * 3), operands)
        return found if len(q) > 2 else found.reshape(q[-2], v[-1])


def _attention_gradients(F: Any, d: Any, z: Any, Q: Any, K: Any, V: Any) -> tuple[Any, ...]:
    had: Attention = z.attrs["request"]
    kind, sums = (dtype for _, dtype in had.results)
    results = tuple((operand.shape, kind) for operand in (Q, K, V))
    request = AttentionGradient(had.geometry, results, (kind, kind, kind, kind, sums, kind))
    node = call(_ATTENTION_GRADIENT, request, (Q, K, V, z, part(z, 1), d))
    return node, part(node, 1), part(node, 2)


_ATTENTION = call_spec("attention", _attention_gradients)
_ATTENTION_GRADIENT = call_spec("attention_gradient", of_result)
