"""neon's small framework of layers for timing kernels, without networks: buffers, forward, backward, gradient step.

It works on every backend, ``lib``. A configuration names a class of this module as ``layer``::

    conf = {"layer": ConvLayer, "common": {"relu": True}, "K": 64, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1}
    conv = Layer.create(lib, conf, data, np.float32)

``ConvLayer``, ``DeconvLayer`` and ``PoolLayer`` are neon's names of the geometries returned by ``be.conv_layer`` and
similar; ``create`` builds the layer from them. In neon they are in ``layer_cpu``, ``layer_gpu`` and ``layer_mkl``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry as ConvLayer
from neonlike.backends.geometry.conv import DeconvGeometry as DeconvLayer
from neonlike.backends.geometry.pool import PoolGeometry as PoolLayer
from neonlike.errors import ArgumentError

__all__ = ["BatchNorm", "ConvLayer", "DataLayer", "DeconvLayer", "FullLayer", "Inception", "Layer", "PoolLayer"]

RATE = 0.01
"""Learning rate of ``grad_descent``."""


class Layer:
    """Base of these layers.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N : int
        Images per minibatch.
    inner, outer : sequence of four int
        Sizes of the input (C, D, H, W) and of the output (K, M, P, Q).

    Attributes
    ----------
    C, D, H, W : int
        Sizes of the input; ``nIn`` is their product.
    K, M, P, Q : int
        Sizes of the output; ``nOut`` is their product.
    fprop_in, fprop_out, bprop_in, bprop_out : Tensor or None
        Input, output, error of the output and of the input.
    weights, updat_out : Tensor or None
        Parameters and their gradient.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> data = DataLayer(be, np.float32, N=4, C=2, H=4, W=4)
    >>> print(Layer.create(be, {"layer": FullLayer, "nOut": 5}, data, np.float32))
    FullLayer 32x1x1x1 -> 5x1x1x1, 4 images
    """

    def __init__(
        self, lib: Any, dtype: Any, N: int, inner: Sequence[int] = (1, 1, 1, 1), outer: Sequence[int] = (1, 1, 1, 1)
    ) -> None:
        self.lib, self.dtype, self.N = lib, dtype, N
        self.C, self.D, self.H, self.W = inner
        self.K, self.M, self.P, self.Q = outer
        self.nIn, self.nOut = math.prod(inner), math.prod(outer)
        self.dimF2: tuple[int, int] | None = None
        self.fprop_in: Any = None
        self.fprop_out: Any = None
        self.bprop_in: Any = None
        self.bprop_out: Any = None
        self.weights: Any = None
        self.updat_out: Any = None
        self.prev_layer: Layer | None = None

    @staticmethod
    def create(lib: Any, conf: dict[str, Any], prev_layer: Layer | None, dtype: Any) -> Layer:
        """Build the layer of a configuration; missing input sizes are taken from ``prev_layer``.

        Parameters
        ----------
        lib : Backend
        conf : dict
            Configuration, with the class under ``layer`` and settings of several layers under ``common``.
        prev_layer : Layer or None
        dtype : dtype
            Dtype of its tensors.

        Raises
        ------
        ArgumentError
            If ``conf`` names no class of this module.
        """
        config = {**conf.get("common", {}), **conf, "dtype": dtype}
        config.pop("common", None)
        kind = config.pop("layer", None)
        kind = {ConvLayer: Convolution, PoolLayer: Pooling}.get(kind, kind)
        if not (isinstance(kind, type) and issubclass(kind, Layer)):
            raise ArgumentError(f"Layer.create: the configuration names no layer of this module, but {kind!r}")
        if prev_layer is not None:
            flat = kind is FullLayer
            sizes = {"nIn": prev_layer.nOut} if flat else _image(prev_layer)
            config = {"N": prev_layer.N, **sizes, **config}
        return kind(lib, **config)

    def connect(self, prev_layer: Layer) -> None:
        """Use the output of ``prev_layer`` as the input of ``fprop`` calls without one.

        Raises
        ------
        ArgumentError
            If this layer was built for another number of inputs or images.
        """
        if (prev_layer.nOut, prev_layer.N) != (self.nIn, self.N):
            raise ArgumentError(
                f"connect: {prev_layer} gives {(prev_layer.nOut, prev_layer.N)}, and {self} takes "
                f"{(self.nIn, self.N)}; make the layers with sizes that agree"
            )
        self.prev_layer = prev_layer

    def _input(self, fprop_in: Any) -> Any:
        """The given input, or else the output of the connected layer."""
        self.fprop_in = self.prev_layer.fprop_out if fprop_in is None and self.prev_layer else fprop_in
        return self.fprop_in

    def init_activations(self, fprop_out: Any = None) -> None:
        """Create the output, or use the given tensor."""
        self.fprop_out = self._new(self.nOut) if fprop_out is None else fprop_out

    def init_deltas(self, shared: list[Any] | None = None) -> None:
        """Create the error of the input; of two ``shared`` tensors the first is used, and they are swapped."""
        if shared is None:
            self.bprop_out = self._new(self.nIn)
            return
        self.bprop_out = shared[0].share((self.nIn, self.N))
        shared.reverse()

    def init_weights(self, loc: float = 0.0, scale: float = 0.1, shared: Any = None, zeros: bool = False) -> None:
        """Draw the weights from a normal distribution, or set them to 0; ``shared`` is memory for their gradient.

        Parameters
        ----------
        loc, scale : float
            Mean and standard deviation.
        shared : Tensor, optional
            Memory for the gradient.
        zeros : bool
            Whether all weights are 0.
        """
        if self.dimF2 is None:
            return
        self.weights = self.lib.zeros(self.dimF2, dtype=self.dtype)
        if not zeros:
            self.weights[:] = self.lib.rng.normal(loc, scale, self.dimF2)
        self.updat_out = self.lib.empty(self.dimF2, dtype=self.dtype) if shared is None else shared.share(self.dimF2)

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        return self._input(fprop_in)

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """Error of the input from the error of the output, plus ``beta`` times the old one."""
        return bprop_in

    def grad_descent(self) -> None:
        """Apply a gradient step to the weights."""
        if self.weights is not None:
            self.weights[:] = self.weights - RATE / self.N * self.updat_out

    def _new(self, rows: int) -> Any:
        return self.lib.empty((rows, self.N), dtype=self.dtype)

    def _rectified(self, bprop_in: Any) -> Any:
        """Error before the rectifier, in place."""
        bprop_in[:] = bprop_in * self.lib.greater(self.fprop_out, 0)
        return bprop_in

    # -- magnitudes --------------------------------------------------------------------------------------

    def get_activation_mean(self) -> float:
        """Mean magnitude of the output."""
        return self._mean(self.fprop_out)

    def get_activation_max(self) -> float:
        """Largest magnitude of the output."""
        return self._max(self.fprop_out)

    def get_delta_mean(self) -> float:
        """Mean magnitude of the error of the input."""
        return self._mean(self.bprop_out)

    def get_delta_max(self) -> float:
        """Largest magnitude of the error of the input."""
        return self._max(self.bprop_out)

    def get_update_mean(self) -> float:
        """Mean magnitude of the gradient of the weights."""
        return self._mean(self.updat_out)

    def get_update_max(self) -> float:
        """Largest magnitude of the gradient of the weights."""
        return self._max(self.updat_out)

    def get_weight_mean(self) -> float:
        """Mean magnitude of the weights."""
        return self._mean(self.weights)

    def get_weight_max(self) -> float:
        """Largest magnitude of the weights."""
        return self._max(self.weights)

    def _mean(self, tensor: Any) -> float:
        return 0.0 if tensor is None else float(np.abs(tensor.get()).mean(dtype=np.float64))

    def _max(self, tensor: Any) -> float:
        return 0.0 if tensor is None else float(np.abs(tensor.get()).max())

    def fprop_stats(self) -> str:
        """Magnitudes of weights and output, as a line."""
        return (
            f"fprop: activations {self.get_activation_mean():.6f} max {self.get_activation_max():.6f}, "
            f"weights {self.get_weight_mean():.6f} max {self.get_weight_max():.6f} {self}"
        )

    def bprop_stats(self) -> str:
        """Magnitudes of the gradients, as a line."""
        return (
            f"bprop: deltas {self.get_delta_mean():.6f} max {self.get_delta_max():.6f}, "
            f"updates {self.get_update_mean():.6f} max {self.get_update_max():.6f} {self}"
        )

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name} {self.C}x{self.D}x{self.H}x{self.W} -> {self.K}x{self.M}x{self.P}x{self.Q}, {self.N} images"


def _image(layer: Layer) -> dict[str, int]:
    return {"C": layer.K, "D": layer.M, "H": layer.P, "W": layer.Q}


class DataLayer(Layer):
    """The input of a network: images (C, D, H, W).

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N, C, D, H, W : int
        Images, channels, depth, height, width.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> data = DataLayer(be, np.float32, N=4, C=2, H=4, W=4)
    >>> data.init_activations()
    >>> data.init_data(np.zeros((32, 4)))
    >>> data.fprop().shape
    (32, 4)
    """

    def __init__(self, lib: Any, dtype: Any, N: int, C: int, D: int = 1, H: int = 1, W: int = 1) -> None:
        super().__init__(lib, dtype, N, (C, D, H, W), (C, D, H, W))

    def init_data(self, ary: Any) -> None:
        """Fill the output with an array of ``(C*D*H*W, N)``."""
        self.fprop_out.set(np.asarray(ary).reshape(self.nOut, self.N))

    def fprop(self, fprop_in: Any = None) -> Any:
        """The images."""
        return self.fprop_out


class Convolution(Layer):
    """A convolution, rectified with ``relu``; sizes as of ``be.conv_layer``.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N, C, K : int
        Images, input channels, output maps.
    relu : bool
        Whether negative outputs become 0.
    **sizes : int
        As of ``be.conv_layer``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> print(Convolution(be, np.float32, N=4, C=2, K=3, H=4, W=4, R=3, S=3))
    Convolution 2x1x4x4 -> 3x1x2x2, 4 images
    """

    def __init__(self, lib: Any, dtype: Any, N: int, C: int, K: int, relu: bool = False, **sizes: int) -> None:
        self.nglayer = g = lib.conv_layer(dtype, N, C, K, **sizes)
        super().__init__(lib, dtype, N, (C, *g.DHW), (K, *g.MPQ))
        self.relu, self.dimF2 = relu, g.dimF2

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        fprop_in = self._input(fprop_in)
        self.lib.fprop_conv(self.nglayer, fprop_in, self.weights, self.fprop_out, relu=self.relu)
        return self.fprop_out

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """Compute both gradients; with ``relu`` the error is modified in place."""
        self.bprop_in = self._rectified(bprop_in) if self.relu else bprop_in
        if self.bprop_out is not None:
            self.lib.bprop_conv(self.nglayer, self.weights, bprop_in, self.bprop_out, beta=beta)
        self.lib.update_conv(self.nglayer, self.fprop_in, bprop_in, self.updat_out)
        return self.bprop_out


class Pooling(Layer):
    """A pooling; sizes as of ``be.pool_layer``.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N, C : int
        Images and channels.
    op : "max", "avg" or "l2"
    **sizes : int
        As of ``be.pool_layer``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> print(Pooling(be, np.float32, N=4, C=2, H=4, W=4, R=2, S=2))
    Pooling 2x1x4x4 -> 2x1x2x2, 4 images
    """

    def __init__(self, lib: Any, dtype: Any, N: int, C: int, op: str = "max", **sizes: int) -> None:
        self.nglayer = g = lib.pool_layer(dtype, op, N, C, **sizes)
        super().__init__(lib, dtype, N, (C, *g.DHW), (g.K, *g.MPQ))
        self.argmax: Any = None

    def init_activations(self, fprop_out: Any = None) -> None:
        """Create the output and the buffer of maxima positions."""
        super().init_activations(fprop_out)
        if self.nglayer.op == "max":
            self.argmax = self.lib.empty((self.nOut, self.N), dtype=self.nglayer.argmax_dtype)

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        fprop_in = self._input(fprop_in)
        self.lib.fprop_pool(self.nglayer, fprop_in, self.fprop_out, self.argmax)
        return self.fprop_out

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """The error of the input."""
        self.bprop_in = bprop_in
        if self.bprop_out is not None:
            values = self.fprop_in if self.nglayer.op == "l2" else None
            self.lib.bprop_pool(self.nglayer, bprop_in, self.bprop_out, self.argmax, beta=beta, inputs=values)
        return self.bprop_out


class FullLayer(Layer):
    """A fully connected layer, rectified with ``relu``.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N : int
        Images.
    nIn, nOut : int
        Inputs and outputs of each image.
    relu : bool
        Whether negative outputs become 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> layer = FullLayer(be, None, 4, nIn=3, nOut=2)
    >>> layer.init_activations()
    >>> layer.init_weights()
    >>> layer.fprop(be.ones((3, 4))).shape
    (2, 4)
    """

    def __init__(self, lib: Any, dtype: Any, N: int, nIn: int, nOut: int, relu: bool = False) -> None:
        super().__init__(lib, dtype, N, (nIn, 1, 1, 1), (nOut, 1, 1, 1))
        self.relu, self.dimF2 = relu, (nOut, nIn)

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        fprop_in = self._input(fprop_in)
        self.lib.compound_dot(self.weights, fprop_in, self.fprop_out, relu=self.relu)
        return self.fprop_out

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """Compute both gradients; with ``relu`` the error is modified in place."""
        self.bprop_in = self._rectified(bprop_in) if self.relu else bprop_in
        if self.bprop_out is not None:
            self.lib.compound_dot(self.weights.T, bprop_in, self.bprop_out, beta=beta)
        self.lib.compound_dot(bprop_in, self.fprop_in.T, self.updat_out)
        return self.bprop_out


class BatchNorm(Layer):
    """Batch normalization of each map of images (C, D, H, W), or of ``nIn`` values, rectified with ``relu``.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    N, C, D, H, W : int
        Images, channels, depth, height, width.
    nIn : int
        Values of each image, in place of ``C``.
    rho : float
        Share of the old running statistics.
    eps : float
        Added to the variance.
    relu : bool
        Whether negative outputs become 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> print(BatchNorm(be, np.float32, N=4, C=2, H=4, W=4))
    BatchNorm 2x1x4x4 -> 2x1x4x4, 4 images
    """

    def __init__(
        self, lib: Any, dtype: Any, N: int, C: int = 0, D: int = 1, H: int = 1, W: int = 1, nIn: int = 0,
        rho: float = 0.99, eps: float = 1e-6, relu: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(lib, dtype, N, (C or nIn, D, H, W), (C or nIn, D, H, W))
        self.rho, self.eps, self.relu = rho, eps, relu
        self.statistics: dict[str, Any] = {}

    def init_weights(self, loc: float = 0.0, scale: float = 0.1, shared: Any = None, zeros: bool = False) -> None:
        """Make factors 1, offsets 0 and the running statistics.

        Parameters
        ----------
        loc, scale, shared, zeros
            Without effect.
        """
        names = ("beta", "xsum", "xvar", "gmean", "gvar", "grad_gamma", "grad_beta")
        self.statistics = {name: self.lib.zeros((self.C, 1)) for name in names}
        self.weights = self.statistics["gamma"] = self.lib.ones((self.C, 1))
        self.updat_out = self.statistics["grad_gamma"]

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        s, fprop_in = self.statistics, self._input(fprop_in)
        self.lib.compound_fprop_bn(
            fprop_in.reshape(self.C, -1), s["xsum"], s["xvar"], s["gmean"], s["gvar"], s["gamma"], s["beta"],
            self.fprop_out.reshape(self.C, -1), self.eps, self.rho, True, relu=self.relu,
        )  # fmt: skip
        return self.fprop_out

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """Compute both gradients; with ``relu`` the error is modified in place."""
        s, self.bprop_in = self.statistics, self._rectified(bprop_in) if self.relu else bprop_in
        self.lib.compound_bprop_bn(
            self.bprop_out.reshape(self.C, -1), s["grad_gamma"], s["grad_beta"], bprop_in.reshape(self.C, -1),
            self.fprop_in.reshape(self.C, -1), s["xsum"], s["xvar"], s["gamma"], self.eps, beta_data=beta,
        )  # fmt: skip
        return self.bprop_out

    def grad_descent(self) -> None:
        """Apply a gradient step to factors and offsets."""
        super().grad_descent()
        s = self.statistics
        s["beta"][:] = s["beta"] - RATE / self.N * s["grad_beta"]


class Inception(Layer):
    """Parallel chains of layers on the same input, with concatenated maps.

    Parameters
    ----------
    lib : Backend
    dtype : dtype
        Dtype of its tensors.
    partitions : list of list of dict
        Configurations of each chain.
    N, C, D, H, W : int
        Images, channels, depth, height, width.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> chains = [[{"layer": ConvLayer, "K": 3}], [{"layer": ConvLayer, "K": 5}]]
    >>> print(Inception(be, np.float32, chains, N=4, C=2, H=4, W=4))
    Inception 2x1x4x4 -> 8x1x4x4, 4 images
    """

    def __init__(
        self, lib: Any, dtype: Any, partitions: Sequence[Sequence[dict[str, Any]]], N: int, C: int,
        D: int = 1, H: int = 1, W: int = 1,
    ) -> None:  # fmt: skip
        data = DataLayer(lib, dtype, N, C, D, H, W)
        self.partitions: list[list[Layer]] = []
        for confs in partitions:
            chain: list[Layer] = [data]
            for conf in confs:
                chain.append(Layer.create(lib, conf, chain[-1], dtype))
            self.partitions.append(chain[1:])
        ends = [chain[-1] for chain in self.partitions]
        if len({(end.M, end.P, end.Q) for end in ends}) != 1:
            raise ArgumentError(f"Inception: the chains end in maps of other sizes: {'; '.join(map(str, ends))}")
        super().__init__(lib, dtype, N, (C, D, H, W), (sum(end.K for end in ends), *(ends[0].M, ends[0].P, ends[0].Q)))

    def init_activations(self, fprop_out: Any = None) -> None:
        """Create the output, with a part for each chain, and the outputs within the chains."""
        super().init_activations(fprop_out)
        for chain, rows in zip(self.partitions, self._rows(), strict=True):
            for layer in chain[:-1]:
                layer.init_activations()
            chain[-1].init_activations(self.fprop_out[rows])

    def init_deltas(self, shared: list[Any] | None = None) -> None:
        """Create the error of the input, shared by the chains, and the errors within them."""
        super().init_deltas(shared)
        for chain in self.partitions:
            chain[0].bprop_out = self.bprop_out
            for layer in chain[1:]:
                layer.init_deltas()

    def init_weights(self, loc: float = 0.0, scale: float = 0.1, shared: Any = None, zeros: bool = False) -> None:
        """Create the weights of all chains; ``shared`` is not used, because their gradients are needed together.

        Parameters
        ----------
        loc, scale, shared, zeros
            As of :meth:`Layer.init_weights`.
        """
        for chain in self.partitions:
            for layer in chain:
                layer.init_weights(loc, scale, None, zeros)

    def fprop(self, fprop_in: Any = None) -> Any:
        """The output for an input ``(nIn, N)``."""
        fprop_in = self._input(fprop_in)
        for chain in self.partitions:
            x = fprop_in
            for layer in chain:
                x = layer.fprop(x)
        return self.fprop_out

    def bprop(self, bprop_in: Any, beta: float = 0.0) -> Any:
        """Compute all gradients; the errors of the chains are added up."""
        self.bprop_in = bprop_in
        for number, (chain, rows) in enumerate(zip(self.partitions, self._rows(), strict=True)):
            error = bprop_in[rows]
            for layer in reversed(chain[1:]):
                error = layer.bprop(error)
            chain[0].bprop(error, 1.0 if number else beta)
        return self.bprop_out

    def grad_descent(self) -> None:
        """Apply a gradient step to all chains."""
        for chain in self.partitions:
            for layer in chain:
                layer.grad_descent()

    def _rows(self) -> list[slice]:
        """The part of the output of each chain."""
        ends = np.cumsum([0, *(chain[-1].nOut for chain in self.partitions)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]
