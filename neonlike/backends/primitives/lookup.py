"""Index operations: gather and one-hot in expressions, and the gradient of a lookup table."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import (
    Array,
    check_apart,
    check_floats,
    check_size,
    check_tensors,
    host,
    require_tensors,
    written,
)
from neonlike.checks import brief
from neonlike.errors import DTypeError, IndexRangeError, ShapeError
from neonlike.optree import functions, moves
from neonlike.optree.arrange import in_line
from neonlike.optree.dtypes import is_index
from neonlike.optree.forms import owner, recalled
from neonlike.optree.node import expression


@dataclass(frozen=True, slots=True)
class LookupGradient:
    """Request of ``compound_bprop_lut``: scale dW by ``beta``, then ``dW[w] += alpha * sum``, except ``pad_idx``.

    If ``pad_idx`` is None, no word is excluded.
    """

    pad_idx: int | None
    alpha: float
    beta: float = 1.0


@owner
class LookupFamily(Family):
    """``take`` and ``onehot``, with integer tensors, arrays or lists as indices; ``compound_bprop_lut``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.take(be.array([[1., 2.]]), [1], axis=1).tolist()
    [[2.0]]
    """

    @recalled
    def take(self, a: Any, indices: Any, axis: int | None = None, out: Any = None) -> Any:
        """Gather slices of ``a`` along ``axis`` by ``indices``, as many as there are indices. Differentiable.

        Without an axis, elements in C order, as a column (n, 1).

        Parameters
        ----------
        a : tensor, expression or array
        indices : sequence of int, array or integer tensor
            Negative ones count from the end.
        axis : int, optional
            None: elements in C order.
        out : tensor, optional
            Receives the slices at once.

        Raises
        ------
        IndexRangeError
            If an index is out of range: at once for host indices, at computation for tensors; on a GPU when the host
            next waits for it, by ``get()`` or ``be.synchronize()``: the results of the operation are undefined then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.take(be.array([[1., 2., 3.]]), [2, 0], axis=1).tolist()
        [[3.0, 1.0]]
        """
        a, along = in_line(expression("take", a, self), axis)
        return self._finish(moves.take(a, indices, along), out)

    @recalled
    def onehot(self, indices: Any, axis: int, out: Any = None) -> Any:
        """1 where the position along ``axis`` equals the index, else 0; takes the shape it is used at.

        Parameters
        ----------
        indices : integer vector of shape (1, n) or (n, 1)
        axis : int
            0: ``out[indices[j], j] = 1`` for a target (classes, n); 1: its transpose.
        out : tensor, optional
            Receives the result at once.

        Raises
        ------
        IndexRangeError
            At computation, if an index is negative or not below the size of the axis; on a GPU as in :meth:`take`. In
            neon's dialect such an index gives zeros.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.onehot(be.array([[2, 0]], dtype="int32"), axis=0, out=be.empty((3, 2))).tolist()
        [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
        """
        return self._finish(functions.onehot(indices, axis, self), out)

    def compound_bprop_lut(
        self,
        nin: int,
        inputs: Any,
        error: Any,
        error_t: Any,
        dW: Any,
        pad_idx: int | None = None,
        alpha: float = 1.0,
        beta: float = 0,
        repeat: int = 1,
    ) -> None:
        """Gradient of a lookup table: ``dW[w] += alpha * sum of error[:, j] over the j with inputs[j] == w``.

        Each row is summed in the order of j, in double precision: the result depends on the values alone.

        Parameters
        ----------
        nin : int
            Words per sample; neon's argument, ignored.
        inputs : integer tensor (1, nin * N)
            Word of each column of ``error``.
        error : tensor (embedding, nin * N)
        error_t : tensor (nin * N, embedding) or None
            Working memory with undefined contents afterwards.
        dW : tensor (vocabulary, embedding)
            Accumulated into: zero it first for the gradient alone, as neon's layers do.
        pad_idx : int or None
            The padding word, which gets no gradient.
        alpha, beta : float
            dW is first multiplied by ``beta``, if that is neither 0 nor 1.
        repeat : int
            Number of timed runs if above 1; the logger shows the mean.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit together, or an output shares memory.
        IndexRangeError
            If a word other than ``pad_idx`` is not in [0, vocabulary); on a GPU when the host next waits for it, by
            ``get()`` or ``be.synchronize()``. dW is unchanged in all of these cases.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> words, error = be.array([[1, 0, 1]], dtype="int32"), be.array([[1., 2., 3.]])
        >>> dW = be.zeros((2, 1))
        >>> be.compound_bprop_lut(3, words, error, None, dW)
        >>> dW.tolist()
        [[2.0], [4.0]]
        """
        touched = self._check_lut(inputs, error, error_t, dW, pad_idx) * error.shape[0]
        scale = 1.0 if beta == 0 else float(beta)
        request = LookupGradient(None if pad_idx is None else int(pad_idx), float(alpha), scale)

        def run() -> None:
            self._bprop_lut(request, inputs, error, error_t, dW)

        nbytes = error.nbytes + inputs.nbytes + 2 * min(touched * dW.dtype.itemsize, dW.nbytes)
        shapes = (inputs.shape, error.shape, dW.shape)
        self._run_primitive("compound_bprop_lut", run, (dW,), shapes, nbytes, touched, repeat=repeat)

    def _check_lut(self, inputs: Any, error: Any, error_t: Any, dW: Any, pad_idx: Any) -> int:
        """Check everything and return the number of columns of ``error`` that count."""
        name = "compound_bprop_lut"
        require_tensors(self, name, inputs=inputs, error=error, dW=dW)
        check_tensors(self, name, error_t=error_t)
        check_floats(name, error=error, error_t=error_t, dW=dW)
        if not is_index(inputs.dtype):
            raise DTypeError(f"{name}: inputs must hold integers, up to int64, the words, got {inputs.dtype.name}")
        if pad_idx is not None and not isinstance(pad_idx, numbers.Integral):
            raise DTypeError(f"{name}: pad_idx must be an integer or None, got {brief(pad_idx)}")
        if dW.ndim != 2 or error.shape != (dW.shape[1], inputs.size):
            raise ShapeError(
                f"{name}: for dW (vocabulary, embedding) = {dW.shape} and {inputs.size} inputs, error must be "
                f"{(dW.shape[-1], inputs.size)}, got {error.shape}"
            )
        check_size(name, "error_t", error_t, error.shape[::-1], "the transpose of error")
        check_apart(name, {"dW": dW, "error_t": error_t}, {"inputs": inputs, "error": error})
        return self._check_words(inputs, len(dW), None if pad_idx is None else int(pad_idx))

    # Hooks, with the definitions

    def _check_words(self, inputs: Any, limit: int, pad_idx: int | None) -> int:
        """Number of words with a gradient; IndexRangeError if one is neither below ``limit`` nor ``pad_idx``."""
        words = inputs.asnumpyarray().reshape(-1)
        outside = words[(words < 0) | (words >= limit)]
        if outside.size and (outside != pad_idx).any():
            raise IndexRangeError(out_of_vocabulary(int(outside[outside != pad_idx][0]), limit))
        return words.size if pad_idx is None else int(np.count_nonzero(words != pad_idx))

    def _scale_table(self, dW: Any, beta: float) -> None:
        if beta != 1:
            self.assign(dW, dW * beta)

    def _bprop_lut(self, request: LookupGradient, inputs: Any, error: Any, error_t: Any, dW: Any) -> None:
        """``compound_bprop_lut`` of checked tensors."""
        self._scale_table(dW, request.beta)
        words = words_of(inputs, request.pad_idx)
        order = np.argsort(words, kind="stable")
        order = order[np.count_nonzero(words < 0) :]
        if order.size == 0 or error.size == 0:
            return
        found, starts = np.unique(words[order], return_index=True)
        with np.errstate(all="ignore"):
            sums = np.add.reduceat(host(error).T[order], starts, axis=0, dtype=np.float64)
            with written(dW, keep=True) as rows:
                rows[found] = rows[found] + request.alpha * sums


def out_of_vocabulary(word: int | str, limit: int) -> str:
    """Message for an invalid ``word``."""
    return f"compound_bprop_lut: word {word} is not in a vocabulary of {limit}"


def words_of(inputs: Any, pad_idx: int | None) -> Array:
    """The words as int64 (columns,), on the host: rows of dW, or -1 for those without gradient."""
    words: Array = inputs.asnumpyarray().astype(np.int64).reshape(-1)
    if pad_idx is not None:
        words[words == pad_idx] = -1
    return words
