"""``be.blueprints``: what makes blueprints of layers, costs and networks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc
from neonlike.checks import brief, check_methods, number, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant
from neonlike.layers.blueprint.activations import IDENTITY, Activation
from neonlike.layers.blueprint.base import working
from neonlike.layers.blueprint.cost import CostBlueprint, cost_blueprint
from neonlike.layers.blueprint.description import (
    axis_of,
    described,
    features,
    is_count,
    listed,
    output_of,
    resized,
    same_type,
    several,
    window_sizes,
)
from neonlike.layers.blueprint.network import Parallel, Sequential, parallel, sequential
from neonlike.layers.blueprint.recurrent import ONE_WAY, Rnn
from neonlike.layers.blueprint.streams import GaussianDropout, Stream
from neonlike.layers.blueprint.wrapped import BatchNorm, Part, Wrapped
from neonlike.layers.core.base import require_size
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.parameter import stats_dtype
from neonlike.layers.core.structure import SkipNode
from neonlike.layers.dense.linear import Linear
from neonlike.layers.images.convolution import Convolution_bias
from neonlike.layers.images.pooling import Pooling
from neonlike.layers.norm.normalization import BatchNorm as BatchNormalization

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.layers.blueprint.description import Function, Input, Output

ZERO = Constant(0)
"""What parameters are until ``init`` of a built layer."""


class Blueprints:
    """Makes blueprints for a backend. Nothing here takes memory for tensors.

    An input ``src`` is a TensorDesc, a shape in the backend's dtype, another blueprint, whose output it is then, or a
    tensor; an output ``dst`` a TensorDesc, a shape, or the number of its features. The batch is the last axis:
    (features, N), (features, steps, N), (C, H, W, N), (C, D, H, W, N).

    ``activation`` is a name (identity, linear, relu, bounded_relu, elu, logistic, tanh, softmax, swish, gelu) or a
    transform; ``alpha`` and ``beta`` are its parameters: of linear, alpha · x + beta; of relu, alpha is the slope below
    0, of bounded_relu the bound, of elu its factor, of swish the factor of x in the sigmoid.

    Parameters
    ----------
    be : Backend
        The backend of the layers that are built; ``be.blueprints`` makes them for it.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        By each method, if shapes, dtypes or arguments do not fit; the message names the blueprint and the shapes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu", batch_size=2)
    >>> make = be.blueprints
    >>> hidden = make.fully_connected((4, 2), 3, "relu")  # 4 features, 2 samples
    >>> net = make.sequential([hidden, make.fully_connected(hidden, 1)])
    >>> print(net)
    sequential: (4, 2) -> (1, 2) in 2 layers
    >>> layer = net.build().init(lambda weights: weights.fill(1.0))
    >>> layer.input[:] = 1
    >>> layer.forward().tolist()
    [[12.0, 12.0]]
    """

    def __init__(self, be: Backend) -> None:
        self.be = be

    # Layers with weights

    def inner_product(self, src: Input, dst: Output, weights_type: Any = None) -> Wrapped:
        """W · x + b of each sample; ``weights_type`` is the dtype of the weights, which must be that of the input.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input.
        dst : int, shape or TensorDesc
            Features of the output, or all of it.
        weights_type : dtype, optional
            The dtype of the weights: the input's.

        Returns
        -------
        Wrapped
            A blueprint with ``weights_desc`` ``(nout, nin)``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.inner_product((4, 2), 3).dst_desc.shape
        (3, 2)
        """
        return self._product("inner_product", src, dst, IDENTITY, weights_type)

    def fully_connected(
        self, src: Input, dst: Output, activation: Function = None, alpha: Any = None, beta: Any = None,
        weights_type: Any = None,
    ) -> Wrapped:  # fmt: skip
        """f(W · x + b) of each sample.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input.
        dst : int, shape or TensorDesc
            Features of the output, or all of it.
        activation : str or Transform, optional
            The function f; the identity by default.
        alpha, beta : float, optional
            Parameters of f.
        weights_type : dtype, optional
            The dtype of the weights: the input's.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> dense = be.blueprints.fully_connected((4, 2), 3, "relu")
        >>> dense.dst_desc.shape, dense.weights_desc.shape
        ((3, 2), (3, 4))
        """
        found = Activation.of("fully_connected", activation, alpha, beta)
        return self._product("fully_connected", src, dst, found, weights_type)

    def _product(self, where: str, src: Any, dst: Any, activation: Activation, weights_type: Any) -> Wrapped:
        given = described(self.be, where, src)
        same_type(where, given, weights_type)
        asked, n = output_of(self.be, where, given, dst), features(given)
        m, dtype = features(asked), given.dtype
        recipe = Part.of(Linear, nout=m, init=ZERO), Part.of(Bias, init=ZERO)
        weights, bias = TensorDesc((m, n), dtype, "OI"), TensorDesc((m, 1), dtype, "OX")
        kind = "inner_product" if activation.is_identity else "fully_connected"
        out = TensorDesc((m, given.shape[-1]), dtype)
        return Wrapped(self.be, kind, given, out, (n,), recipe, activation, weights, bias)

    def convolution(
        self,
        src: Input,
        kernel: Any,
        dst: Output,
        activation: Function = None,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        alpha: Any = None,
        beta: Any = None,
        groups: int = 1,
    ) -> Wrapped:
        """f(W * x + b) of images or volumes.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input, (C, H, W, N) or (C, D, H, W, N).
        kernel, strides, padding, dilation : int or tuple of int
            For all axes, or for each of (depth,) height and width.
        dst : int, shape or TensorDesc
            The number of maps, or (K, P, Q, N), (K, M, P, Q, N).
        activation : str or Transform, optional
            The function f; the identity by default.
        alpha, beta : float, optional
            Parameters of f.
        groups : int
            Maps of each of so many parts see only the channels of that part.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.convolution((1, 8, 8, 2), kernel=3, dst=16, padding=1).dst_desc.shape
        (16, 8, 8, 2)
        """
        where = "convolution"
        given = described(self.be, where, src)
        maps = dst if is_count(dst) else described(self.be, where, dst).shape[0]
        sizes = window_sizes(where, given, kernel=kernel, strides=strides, padding=padding, dilation=dilation)
        fshape = {**sizes.pop("kernel"), "K": maps}
        part = Part.of(Convolution_bias, fshape=fshape, **sizes, groups=groups, init=ZERO, bias=ZERO)
        made = self._images(where, given, dst, part, Activation.of(where, activation, alpha, beta))
        weights = TensorDesc(made.geometry.dimF2, given.dtype, "IO")
        return replace(made, weights_desc=weights, bias_desc=TensorDesc(made.geometry.dimS, given.dtype, "OX"))

    def _images(self, where: str, src: TensorDesc, dst: Any, part: Part, activation: Activation) -> Wrapped:
        """A blueprint of a layer of images, whose output's shape is the one that the layer works out."""
        made = Wrapped(self.be, where, src, src, src.shape[:-1], (part,), activation)
        g = made.connected()[1][0].nglayer
        out = output_of(self.be, where, src, dst, (g.K, *g.MPQ[5 - src.ndim :], g.N))
        return replace(made, dst_desc=out, geometry=g)

    def batch_norm(
        self, src: Input, activation: Function = None, alpha: Any = None, beta: Any = None, eps: float = 1e-3,
        rho: float = 0.9,
    ) -> BatchNorm:  # fmt: skip
        """Normalization of each feature or map over the batch, then scale, shift and an activation.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input.
        activation : str or Transform, optional
            Applied last; the identity by default.
        alpha, beta : float, optional
            Parameters of the activation.
        eps : float
            Added to the variance.
        rho : float
            What is kept of the running mean and variance at each batch.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.batch_norm((4, 2)).weights_desc.shape  # scales
        (4, 1)
        """
        given = described(self.be, "batch_norm", src)
        if not eps > 0 or not 0 <= rho <= 1:
            raise ArgumentError(f"batch_norm: eps must be above 0 and rho in [0, 1], got {brief(eps)} and {brief(rho)}")
        found = Activation.of("batch_norm", activation, alpha, beta)
        recipe = (Part.of(BatchNormalization, rho=float(rho), eps=float(eps)),)
        with working(self.be, given):
            scale = TensorDesc((given.shape[0], 1), np.dtype(stats_dtype(self.be)), "OX")
        return BatchNorm(self.be, "batch_norm", given, given, given.shape[:-1], recipe, found, scale, scale)

    def rnn_op(
        self,
        src: Input,
        dst: Output,
        activation: Function = "tanh",
        direction: str = ONE_WAY,
        layers: int = 1,
        src_iter: bool = False,
        dst_iter: bool = False,
        alpha: Any = None,
        weights_type: Any = None,
    ) -> Rnn:
        """Recurrent layers on top of each other, on sequences (features, steps, N).

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input, (features, steps, N).
        dst : int, shape or TensorDesc
            Features of the output, or all of it.
        activation : str or transform
            Of the new state; "lstm" and "gru" are cells with gates.
        direction : str
            "unidirectional", "bidirectional_concat" (outputs side by side) or "bidirectional_sum" (added up).
        layers : int
            Number of layers.
        src_iter, dst_iter : bool
            Whether the states before the first step are given, and those after the last one handed out.
        alpha : float, optional
            Parameter of the activation.
        weights_type : dtype, optional
            The dtype of the weights: the input's.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.rnn_op((3, 5, 2), 4, "lstm", direction="bidirectional_concat").dst_desc.shape
        (4, 5, 2)
        """
        states = src_iter, dst_iter
        return self._recurrent("rnn_op", src, dst, activation, alpha, direction, layers, states, weights_type)

    def rnn(
        self,
        src: Input,
        dst: Output,
        layers: int = 1,
        activation: Function = "tanh",
        alpha: Any = None,
        weights_type: Any = None,
        src_iter: bool = False,
        dst_iter: bool = False,
        direction: str = ONE_WAY,
    ) -> Rnn:
        """A recurrent layer of a network: as :meth:`rnn_op`, with arguments in another order.

        Parameters
        ----------
        src, dst, layers, activation, alpha, weights_type, src_iter, dst_iter, direction
            As of :meth:`rnn_op`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.rnn((3, 5, 2), 4, layers=2, activation="gru").dst_desc.shape
        (4, 5, 2)
        """
        states = src_iter, dst_iter
        return self._recurrent("rnn", src, dst, activation, alpha, direction, layers, states, weights_type)

    def _recurrent(
        self, where: str, src: Any, dst: Any, activation: Function, alpha: Any, direction: str, layers: int,
        states: tuple[bool, bool], weights_type: Any,
    ) -> Rnn:  # fmt: skip
        given = described(self.be, where, src)
        if given.ndim != 3:
            raise ShapeError(f"{where}: needs sequences (features, steps, N), got {given.shape}")
        same_type(where, given, weights_type)
        rows = dst if is_count(dst) else described(self.be, where, dst).shape[0]
        out = output_of(self.be, where, given, dst, (rows, *given.shape[1:]))
        cell = activation if activation in ("lstm", "gru") else "rnn"
        found = Activation.of(where, "tanh" if cell != "rnn" else activation, alpha)
        if found.keeps_inputs:
            raise ArgumentError(f"{where}: states are not kept before their activation, which {found} needs")
        count = require_size(layers, f"{where}: layers")
        return Rnn(self.be, "rnn", given, out, cell, found, direction, count, bool(states[0]), bool(states[1]))

    # Layers without weights

    def pooling(
        self, src: Input, kernel: Any, algorithm: str = "max", strides: Any = None, padding: Any = 0,
        dst: Output | None = None,
    ) -> Wrapped:  # fmt: skip
        """The greatest value ("max") or the mean ("avg") of each window; padding does not count.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input, (C, H, W, N) or (C, D, H, W, N).
        kernel, strides, padding : int or tuple of int
            For all axes, or for each of (depth,) height and width; strides are the kernel by default.
        algorithm : str
            ``"max"`` or ``"avg"``.
        dst : shape or TensorDesc, optional
            The output, for a check.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.pooling((1, 8, 8, 2), 2).dst_desc.shape
        (1, 4, 4, 2)
        """
        given = described(self.be, "pooling", src)
        if algorithm not in ("max", "avg"):
            raise ArgumentError(f"pooling: the algorithm must be 'max' or 'avg', got {brief(algorithm)}")
        steps = kernel if strides is None else strides
        sizes = window_sizes("pooling", given, kernel=kernel, strides=steps, padding=padding)
        part = Part.of(Pooling, fshape=sizes.pop("kernel"), op=algorithm, **sizes)
        return self._images("pooling", given, dst, part, IDENTITY)

    def activation(self, src: Input, activation: Function, alpha: Any = None, beta: Any = None) -> Wrapped:
        """f(x).

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input.
        activation : str or Transform
            The function f.
        alpha, beta : float, optional
            Parameters of f.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.activation((4, 2), "relu").activation_name
        'relu'
        """
        given = described(self.be, "activation", src)
        found = Activation.of("activation", activation, alpha, beta)
        recipe = (Part.of(SkipNode),) if found.is_identity else ()
        return Wrapped(self.be, "activation", given, given, given.shape[:-1], recipe, found)

    def gaussian_dropout(self, src: Input, sd: float) -> GaussianDropout:
        """Each element times a number drawn from N(1, sd²), in training.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.gaussian_dropout((4, 2), 0.1).dst_desc.shape
        (4, 2)
        """
        given = described(self.be, "gaussian_dropout", src)
        if not number("gaussian_dropout", "sd", sd) >= 0:
            raise ArgumentError(f"gaussian_dropout: the standard deviation must not be negative, got {brief(sd)}")
        return GaussianDropout(self.be, "gaussian_dropout", given, given, float(sd))

    def sum(self, srcs: Any) -> Stream:
        """The sum of inputs of one shape: a list of them, or a blueprint with several outputs.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.sum([(4, 2), (4, 2)]).dst_desc.shape
        (4, 2)
        """
        given = several(self.be, "sum", srcs)
        if any(one != given[0] for one in given):
            raise ShapeError(f"sum: inputs must be of one shape and dtype, got {listed(given)}")
        return Stream(self.be, "sum", given, given[0])

    def concat(self, srcs: Any, axis: Any = 0, dst_type: Any = None) -> Stream:
        """Inputs side by side along ``axis``, a number or letter; ``dst_type`` is the dtype of the output.

        Parameters
        ----------
        srcs : list of inputs, or Blueprint
            The inputs; of a blueprint its outputs.
        axis : int or str
            Number or letter of the axis; not the batch.
        dst_type : dtype, optional
            The dtype of the output; the inputs' by default.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.concat([(4, 2), (3, 2)]).dst_desc.shape
        (7, 2)
        """
        given = several(self.be, "concat", srcs)
        where = axis_of("concat", given[0], axis)
        if any(resized(one, where, 1) != resized(given[0], where, 1) for one in given if one.ndim > where):
            raise ShapeError(f"concat: inputs may differ along axis {where} alone, got {listed(given)}")
        out = resized(given[0], where, sum(one.shape[where] for one in given))
        return Stream(self.be, "concat", given, self._typed("concat", out, dst_type), where)

    def branch(self, src: Input, axis: Any, dsts: Any) -> Stream:
        """The input cut along ``axis`` into parts: a list of their sizes, shapes or descriptors.

        Parameters
        ----------
        src : TensorDesc, shape, Blueprint or Tensor
            The input.
        axis : int or str
            Number or letter of the axis; not the batch.
        dsts : list of int, shape or TensorDesc
            The parts, whose sizes add up to the input's.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> [part.shape for part in be.blueprints.branch((4, 2), 0, [1, 3]).dst_desc]
        [(1, 2), (3, 2)]
        """
        given = described(self.be, "branch", src)
        where = axis_of("branch", given, axis)
        if not isinstance(dsts, (list, tuple)) or not dsts:
            raise DTypeError(f"branch: expected a list of the parts of {given.shape}, got {shown(dsts)}")
        made = [self._part(given, where, one) for one in dsts]
        if (total := sum(one.shape[where] for one in made)) != given.shape[where]:
            raise ShapeError(
                f"branch: parts {listed(tuple(made))} have {total} elements along axis {where}, the input "
                f"{given.shape} has {given.shape[where]}"
            )
        return Stream(self.be, "branch", given, tuple(made), where)

    def _part(self, src: TensorDesc, axis: int, dst: Any) -> TensorDesc:
        if is_count(dst):
            return resized(src, axis, require_size(dst, "branch: a part"))
        found = described(self.be, "branch", dst)
        if found.ndim != src.ndim or resized(found, axis, 1).shape != resized(src, axis, 1).shape:
            raise ShapeError(f"branch: {found.shape} is no part of {src.shape} along axis {axis}")
        return found

    def split(self, src: Input, n: int) -> Stream:
        """The input as each of ``n`` outputs; their gradients add up.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> [one.shape for one in be.blueprints.split((4, 2), 3).dst_desc]
        [(4, 2), (4, 2), (4, 2)]
        """
        given = described(self.be, "split", src)
        return Stream(self.be, "split", given, (given,) * require_size(n, "split: n"))

    def abbreviate(self, src: Input, dst_type: Any = None) -> Stream:
        """The last step of a sequence (features, steps, N), as (features, N).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> be.blueprints.abbreviate((3, 5, 2)).dst_desc.shape
        (3, 2)
        """
        given = described(self.be, "abbreviate", src)
        if given.ndim != 3:
            raise ShapeError(f"abbreviate: needs sequences (features, steps, N), got {given.shape}")
        last = TensorDesc((given.shape[0], given.shape[2]), given.dtype)
        return Stream(self.be, "abbreviate", given, self._typed("abbreviate", last, dst_type))

    def _typed(self, where: str, desc: TensorDesc, dtype: Any) -> TensorDesc:
        return desc if dtype is None else described(self.be, where, desc.with_dtype(dtype))

    # Networks and costs

    def sequential(self, blueprints: Any) -> Sequential:
        """A network of a list of blueprints, each of which takes what the one before gives.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> make = be.blueprints
        >>> make.sequential([make.inner_product((4, 2), 3), make.inner_product((3, 2), 1)]).dst_desc.shape
        (1, 2)
        """
        return sequential(self.be, blueprints)

    def parallel(self, blueprints: Any) -> Parallel:
        """Blueprints side by side, for the outputs of branch and split.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> make = be.blueprints
        >>> paths = make.parallel([make.inner_product((4, 2), 3), make.inner_product((4, 2), 1)])
        >>> [one.shape for one in paths.dst_desc]
        [(3, 2), (1, 2)]
        """
        return parallel(self.be, blueprints)

    def cost(self, kind: str, last_layer: Any, targets: Any = None) -> CostBlueprint:
        """The mean over the batch of the cost of the output of ``last_layer``, a blueprint or a layer.

        Parameters
        ----------
        kind : str
            "crossentropy", behind softmax −Σ t log y and behind logistic −Σ (t log y + (1 − t) log (1 − y));
            "mean_absolute", mean ``|y − t|``; "quadratic", mean (y − t)² / 2, of each sample.
        last_layer : Blueprint or BuiltLayer
            The layer that computes the outputs.
        targets : TensorDesc, blueprint or tensor, optional
            Of the output's shape.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=2)
        >>> make = be.blueprints
        >>> make.cost("quadratic", make.inner_product((4, 2), 1)).src_desc.shape
        (1, 2)
        """
        return cost_blueprint(self.be, kind, last_layer, targets)

    def __repr__(self) -> str:
        return f"<blueprints of {self.be!r}>"


check_methods(Blueprints)
