"""Convolution, normalisation, embedding, attention: compound primitives as ops of variables, in neon's layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.autograd.leaves import const
from neonlike.autograd.ops import shape as shapes
from neonlike.autograd.ops.common import F, brief, derived, indices, per_axis, plain, variable
from neonlike.autograd.ops.elementwise import sqrt
from neonlike.autograd.variable import Variable
from neonlike.backends.tensors.operands import as_numbers
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from neonlike.optree.arrange import whole_number
from neonlike.optree.functions import standardized
from neonlike.optree.node import Expression

__all__ = [
    "batch_norm", "batch_norm2d", "convolution", "embedding", "layer_norm", "one_hot", "scaled_dot_product_attention",
]  # fmt: skip


def convolution(
    x: Any,
    w: Any,
    bias: Any = None,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: Any = 0,
) -> Variable:
    """Convolution (cross-correlation) in one to three dimensions; ``transposed``: the data gradient of one.

    Parameters
    ----------
    x : (C, W, N), (C, H, W, N) or (C, D, H, W, N); transposed: K in place of C
    w : (C / groups, R, K), (C / groups, R, S, K) or (C / groups, T, R, S, K)
    bias : (K, 1), transposed (C, 1); optional
    strides, padding, dilation : int or tuple
        One number for all spatial axes, or one each.
    groups : int
        Groups of feature maps that are convolved apart; both numbers of maps are multiples of it.
    transposed : bool
        Whether to compute the data gradient of a convolution with these filters.
    output_padding : int or tuple
        Of a transposed convolution: positions more at the end of each axis, of those that its strides leave open.

    Returns
    -------
    Variable (K, ..., N), transposed (C, ..., N)

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If shapes do not fit, or ``output_padding`` is given without ``transposed`` or is no smaller than the strides.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x, w = be.ones((1, 4, 4, 2)), be.ones((1, 3, 3, 5))
    >>> autograd.convolution(x, w).shape, autograd.convolution(x, w, padding=1).shape
    ((5, 2, 2, 2), (5, 4, 4, 2))
    """
    x = variable("convolution", x)
    w = variable("convolution", w, x)
    if x.ndim not in (3, 4, 5) or x.ndim != w.ndim:
        raise ShapeError(
            f"convolution: needs x (C, W, N), (C, H, W, N) or (C, D, H, W, N) and filters with as many axes, got "
            f"{x.shape} and {w.shape}"
        )
    axes = x.ndim - 2
    steps, margins, dilations, more = (
        per_axis("convolution", name, value, axes)
        for name, value in {
            "strides": strides, "padding": padding, "dilation": dilation, "output_padding": output_padding,
        }.items()
    )  # fmt: skip
    if (any(more) and not transposed) or any(not 0 <= m < max(s, d) for m, s, d in zip(more, steps, dilations)):
        raise ArgumentError(
            f"convolution: output_padding {more} is for transposed convolutions, and below their strides {steps}"
        )
    if axes == 1:
        x, w = (shapes.reshape(v, (v.shape[0], 1, *v.shape[1:])) for v in (x, w))
        steps, margins, dilations = (1, *steps), (0, *margins), (1, *dilations)
    options = {"strides": steps, "dilation": dilations, "groups": groups}
    if any(more):
        more = more if axes > 1 else (0, *more)
        return _narrowed(_cut(x, w, margins, more, options), axes, bias)
    run = x.backend.deconv if transposed else x.backend.conv
    operands = (x, w) if bias is None else (x, w, bias)
    found = derived("convolution", lambda *given: run(*given, padding=margins, **options), *operands)
    return _narrowed(found, axes, None)


def _cut(x: Variable, w: Variable, margins: Any, more: Any, options: dict[str, Any]) -> Variable:
    """A transposed convolution with all that its margins would take away, of which ``more`` stays at each end."""
    full = derived("convolution", lambda x, w: x.backend.deconv(x, w, padding=0, **options), x, w)
    for axis, (margin, extra) in enumerate(zip(margins, more), 1):
        end = full.shape[axis] - margin + extra
        if end > full.shape[axis]:
            shape = (*full.shape[:axis], end - full.shape[axis], *full.shape[axis + 1 :])
            full = shapes.concatenate([full, const(full.backend.zeros(shape, dtype=full.dtype))], axis)
        full = shapes.slice(full, axis, margin, end)
    return full


def _narrowed(found: Any, axes: int, bias: Any) -> Variable:
    """Without the height of one that a convolution in one dimension got, and with a bias that was left."""
    if bias is not None:
        bias = variable("convolution", bias, found)
        if bias.shape != (found.shape[0], 1):
            raise ShapeError(f"convolution: bias has shape {bias.shape}, expected {(found.shape[0], 1)}")
        found = found + shapes.reshape(bias, (found.shape[0], *(1,) * (found.ndim - 1)))
    return found if axes > 1 else shapes.reshape(found, (found.shape[0], *found.shape[2:]))


def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Variable:
    """``gamma (x - mean) / sqrt(variance + eps) + beta``, by rows.

    Parameters
    ----------
    x : (features, N)
    gamma, beta : (features, 1)
    running_mean, running_var : tensors (features, 1), optional
        In training they are moved towards the batch's by the fraction ``momentum``, now; else they are what is used.
        The variance is the unbiased one there, and the biased one in the formula, as PyTorch has it.
    training : bool
        True: statistics of this batch; False: the running ones.
    momentum, eps : float
        Weight of the batch in the running statistics; what is added to the variance.

    Raises
    ------
    ArgumentError
        Without running statistics where these are to be used.
    ShapeError, DTypeError

    References
    ----------
    Ioffe & Szegedy, "Batch normalization" (2015).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.batch_norm([[1.0, 3.0]], [[1.0]], [[5.0]], eps=0).tolist()
    [[4.0, 6.0]]
    """
    x = variable("batch_norm", x)
    if x.ndim != 2:
        raise ShapeError(f"batch_norm: needs x (features, N), got {x.shape}; images are for batch_norm2d")
    return _normalised("batch_norm", x, gamma, beta, (running_mean, running_var), training, momentum, eps)


def batch_norm2d(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Variable:
    """As :func:`batch_norm`, of images (C, H, W, N), with statistics of each channel; ``gamma`` and all are (C, 1).

    Parameters
    ----------
    x : (C, H, W, N)
    gamma, beta, running_mean, running_var : (C, 1)
    training, momentum, eps
        As of :func:`batch_norm`.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.batch_norm2d(be.ones((3, 2, 2, 4)), be.ones((3, 1)), be.zeros((3, 1))).shape
    (3, 2, 2, 4)
    """
    x = variable("batch_norm2d", x)
    if x.ndim != 4:
        raise ShapeError(f"batch_norm2d: needs x (C, H, W, N), got {x.shape}")
    return _normalised("batch_norm2d", x, gamma, beta, (running_mean, running_var), training, momentum, eps)


def _normalised(
    name: str, x: Variable, gamma: Any, beta: Any, running: tuple[Any, Any], training: bool, momentum: Any, eps: Any
) -> Variable:
    momentum, eps = as_numbers(name, momentum=momentum, eps=eps)
    gamma, beta = (variable(name, value, x) for value in (gamma, beta))
    rows = (x.shape[0], 1)
    for what, value in {"gamma": gamma, "beta": beta, "running_mean": running[0], "running_var": running[1]}.items():
        if value is not None and value.shape != rows:
            raise ShapeError(f"{name}: {what} needs the shape {rows} for x {x.shape}, got {value.shape}")
    if (running[0] is None) != (running[1] is None) or (running[0] is None and not training):
        raise ArgumentError(f"{name}: running_mean and running_var go together, and are needed without training")
    if training:
        if running[0] is not None:
            _move(running, x, momentum)
        return derived(name, lambda x, g, b: x.backend.batchnorm(x, g, b, eps), x, gamma, beta)
    flat: Any = shapes.reshape(x, (x.shape[0], x.size // x.shape[0]))
    centre, spread = (const(tensor) for tensor in running)
    return shapes.reshape(gamma * (flat - centre) / sqrt(spread + eps) + beta, x.shape)


def _move(running: tuple[Any, Any], x: Variable, momentum: float) -> None:
    """Move running statistics towards those of the batch."""
    be, values = x.backend, x.value
    flat = values.reshape(x.shape[0], x.size // x.shape[0])
    unbiased = flat.shape[1] / max(flat.shape[1] - 1, 1)
    moves = be.mean(flat, axis=1), be.var(flat, axis=1) * unbiased
    be.assign_many([(kept, kept * (1 - momentum) + new * momentum) for kept, new in zip(running, moves)])


def layer_norm(x: Any, axes: Any = 0, gamma: Any = None, beta: Any = None, eps: float = 1e-5) -> Variable:
    """``gamma (x - mean) / sqrt(variance + eps) + beta`` with statistics over ``axes`` of each sample.

    Parameters
    ----------
    x : Variable
    axes : int or tuple of int
        Axes of x over which statistics are taken, those of features.
    gamma, beta : shapes that broadcast to x's, optional
    eps : float
        What is added to the variance.

    References
    ----------
    Ba, Kiros & Hinton, "Layer normalization" (2016).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.layer_norm([[1.0], [3.0]], eps=0).tolist()
    [[-1.0], [1.0]]
    """
    x = variable("layer_norm", x)
    (eps,) = as_numbers("layer_norm", eps=eps)
    found: Any = derived("layer_norm", lambda x: standardized(x, axes, eps), x)
    if gamma is not None:
        found = found * variable("layer_norm", gamma, x)
    if beta is not None:
        found = found + variable("layer_norm", beta, x)
    if found.shape != x.shape:
        raise ShapeError(f"layer_norm: gamma and beta must broadcast to x's shape {x.shape}, they give {found.shape}")
    return found


def embedding(words: Any, table: Any) -> Variable:
    """Rows of a table (vocabulary, width) for integers of any shape: (..., width); of (n, 1) or (1, n): (n, width).

    Raises
    ------
    IndexRangeError
        If a word is not in the table.
    ShapeError
        If the table is no matrix.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.embedding([2, 0], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]).tolist()
    [[3.0, 3.0], [1.0, 1.0]]
    """
    table = variable("embedding", table)
    if table.ndim != 2:
        raise ShapeError(f"embedding: needs a table (vocabulary, width), got {table.shape}")
    places = indices("embedding", words, table)
    shape = _of_words(np.shape(places) if not hasattr(places, "shape") else places.shape)
    flat = places.reshape(1, -1) if hasattr(places, "reshape") else np.reshape(places, (1, -1))
    return shapes.reshape(shapes.index_select(table, 0, flat), (*shape, table.shape[1]))


def one_hot(words: Any, classes: int) -> Variable:
    """1 at the class of each word and 0 elsewhere, (..., classes); of words (n, 1) or (1, n): (n, classes). A constant.

    Raises
    ------
    ArgumentError
        If ``classes`` is no positive integer.
    IndexRangeError
        If a word in a list or array is none of the classes; of a tensor's such words, which are not looked at, all are
        0.
    DTypeError
        If words in a list or array are no integers.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.one_hot([[2], [0]], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    count = whole_number("one_hot", "classes", classes)
    if count < 1:
        raise ArgumentError(f"one_hot: classes must be at least 1, got {brief(classes)}")
    if not isinstance(words, (Variable, Expression)):
        words = _classes(words, count)
    given = plain("one_hot", words)
    be, shape = given.backend, _of_words(given.shape)
    column = given.reshape(shape[0] if len(shape) == 1 else int(np.prod(shape)), 1)
    found = F.equal(column, be.array(np.arange(count).reshape(1, -1), dtype=np.int64))
    tensor = be.empty((column.shape[0], count))
    tensor[:] = found
    return const(tensor.reshape(*shape, count))


def _classes(words: Any, count: int) -> Any:
    """Words on the host as an array of integers, checked."""
    host = np.asarray(words)
    if host.dtype.kind not in "iu":
        raise DTypeError(f"one_hot: words must be integers, got {host.dtype} from {brief(words)}")
    wrong = host[(host < 0) | (host >= count)]
    if wrong.size:
        raise IndexRangeError(f"one_hot: class {wrong[0]} is out of range for {count} classes")
    return host


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, causal: bool = False, scale: float | None = None
) -> Variable:
    """``softmax(scale query . key^T) . value``, the softmax over keys; the matrix of all scores is never stored.

    Parameters
    ----------
    query : (N, heads, queries, size), or without the first axis or the first two
    key, value : (N, heads, keys, size), (N, heads, keys, value_size)
    causal : bool
        Query i sees the keys 0 to i only.
    scale : float, optional
        Default: 1 / sqrt(size).

    Raises
    ------
    ShapeError, DTypeError
        If they do not fit each other.

    References
    ----------
    Vaswani et al., "Attention is all you need" (2017).

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> q, k, v = be.zeros((2, 4)), be.ones((3, 4)), be.ones((3, 5))
    >>> autograd.scaled_dot_product_attention(q, k, v).shape
    (2, 5)
    """
    query = variable("scaled_dot_product_attention", query)
    run = query.backend.attention
    return derived("scaled_dot_product_attention", lambda q, k, v: run(q, k, v, causal, scale), query, key, value)


def _of_words(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of words in the result: a vector's two are one."""
    return (max(shape),) if len(shape) == 2 and 1 in shape else tuple(shape)


DOCUMENT_NAMES = {
    "Convolution": convolution, "BatchNorm": batch_norm, "BatchNorm2D": batch_norm2d, "LayerNormOp": layer_norm,
    "Embedding": embedding, "OneHot": one_hot, "ScaledDotProductAttention": scaled_dot_product_attention,
}  # fmt: skip
"""The source document's names."""
