"""Convolution and its gradients; a transposed convolution is the data gradient of a convolution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.geometry.conv import ConvGeometry, DeconvGeometry, deconv_geometry
from neonlike.backends.geometry.sizes import output_size
from neonlike.backends.primitives.conv.definition import convolved, filter_gradient
from neonlike.backends.primitives.conv.request import (
    ConvPass,
    ConvUpdate,
    Epilogue,
    at_batch,
    checked_layer,
    conv_request,
)
from neonlike.backends.tensors.operands import (
    check_apart,
    check_floats,
    check_size,
    check_tensors,
    host,
    require_tensors,
    written,
)
from neonlike.errors import ArgumentError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.forms import owner
from neonlike.optree.functions import F as Functions


@owner
class ConvFamily(Family):
    """Convolution and deconvolution: ``conv_layer``, ``fprop_conv``, ``bprop_conv``, ``update_conv``.

    Images are (C, D, H, W, N), filters (C / groups, T, R, S, K), outputs (K, M, P, Q, N); tensors of any shape with as
    many elements are accepted, such as (C D H W, N). Calls accept any number of images N, independent of the layer's.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.conv_layer(None, 16, 3, 8, H=28, W=28, R=5, S=5).dimO2
    (4608, 16)
    """

    _untimed_rate: ClassVar[tuple[int, int] | None] = None
    """Result of untimed calls; in neon it differs by backend."""

    def conv_layer(
        self,
        dtype: Any,
        N: int,
        C: int,
        K: int,
        D: int = 1,
        H: int = 1,
        W: int = 1,
        T: int = 1,
        R: int = 1,
        S: int = 1,
        pad_d: int = 0,
        pad_h: int = 0,
        pad_w: int = 0,
        str_d: int = 1,
        str_h: int = 1,
        str_w: int = 1,
        dil_d: int = 1,
        dil_h: int = 1,
        dil_w: int = 1,
        groups: int = 1,
    ) -> ConvGeometry:
        """Create the geometry of a convolution for the calls below.

        Parameters
        ----------
        dtype : dtype
            Dtype of the tensors; None for the backend's.
        N, C, K : int
            Images, input channels, output maps.
        D, H, W : int
            Size of the input.
        T, R, S : int
            Size of the filter.
        pad_d, pad_h, pad_w, str_d, str_h, str_w, dil_d, dil_h, dil_w : int
            Zero padding on either side, step of the filter, distance of its elements.
        groups : int
            Number of groups, each with separate channels and maps; C gives a depthwise convolution.

        Raises
        ------
        DTypeError, ArgumentError
            If a size is not an integer, or too small, or ``groups`` does not divide C and K.
        ShapeError
            If the filter is larger than the padded input.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> print(be.conv_layer(None, 16, 3, 8, H=28, W=28, R=5, S=5, str_h=2, str_w=2))
        convolution of 16 images: input 3x1x28x28, filter 1x5x5, 8 maps of 1x12x12, strides 1x2x2
        """
        sizes = (D, H, W), (T, R, S), (pad_d, pad_h, pad_w), (str_d, str_h, str_w), (dil_d, dil_h, dil_w)
        return ConvGeometry(self._layer_dtype("conv_layer", dtype), N, C, K, *sizes, groups)

    def deconv_layer(
        self,
        dtype: Any,
        N: int,
        C: int,
        K: int,
        M: int = 1,
        P: int = 1,
        Q: int = 1,
        T: int = 1,
        R: int = 1,
        S: int = 1,
        pad_d: int = 0,
        pad_h: int = 0,
        pad_w: int = 0,
        str_d: int = 1,
        str_h: int = 1,
        str_w: int = 1,
        dil_d: int = 1,
        dil_h: int = 1,
        dil_w: int = 1,
        groups: int = 1,
    ) -> DeconvGeometry:
        """Create the geometry of a transposed convolution, from K maps of (M, P, Q) to C maps of (D, H, W).

        It is the data gradient of a convolution: forward is ``bprop_conv(layer, F=W, E=inputs, grad_I=outputs)``, the
        data gradient ``fprop_conv(layer, I=errors, F=W, O=deltas)``, the weight gradient
        ``update_conv(layer, I=errors, E=inputs, grad_F=dW)``. Arguments and errors as :meth:`conv_layer`.

        Parameters
        ----------
        dtype : dtype
            Dtype of the tensors; None for the backend's.
        N, C, K : int
            Images, output channels, input maps.
        M, P, Q : int
            Size of the input.
        T, R, S, pad_d, pad_h, pad_w, str_d, str_h, str_w, dil_d, dil_h, dil_w, groups
            As in :meth:`conv_layer`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.deconv_layer(None, 16, 3, 8, P=12, Q=12, R=5, S=5, str_h=2, str_w=2).DHW
        (1, 27, 27)
        """
        sizes = (M, P, Q), (T, R, S), (pad_d, pad_h, pad_w), (str_d, str_h, str_w), (dil_d, dil_h, dil_w)
        return deconv_geometry(self._layer_dtype("deconv_layer", dtype), N, C, K, *sizes, groups)

    def output_dim(self, X: int, S: int, padding: int, strides: int, pooling: bool = False, dilation: int = 1) -> int:
        """Number of windows of ``S`` elements along an axis of ``X``; in Caffe mode, pooling follows Caffe's rule.

        Parameters
        ----------
        X, S : int
            Elements of the axis and of a window.
        padding, strides : int
            Margin on both sides, and steps between windows.
        pooling : bool
            Whether the windows are those of a pooling.
        dilation : int
            Distance of the elements of a window.

        Raises
        ------
        ArgumentError
            If pooling windows could lie entirely in the padding.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.output_dim(28, 5, padding=0, strides=2)
        12
        """
        return output_size(X, S, padding, strides, pooling, dilation, self.compat_mode == "caffe")

    @repeatable("enable_winograd")
    def fprop_conv(
        self,
        layer: ConvGeometry,
        I: Any,  # noqa: E741
        F: Any,
        O: Any,  # noqa: E741
        X: Any = None,
        bias: Any = None,
        bsum: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        relu: bool = False,
        brelu: bool = False,
        slope: float = 0.0,
        repeat: int = 1,
        layer_op: Any = None,
    ) -> tuple[float, float] | None:
        """Convolve: O[k,m,p,q,n] = sum over c, t, r, s of F[c,t,r,s,k] I[c, m str + t dil - pad, ..., n].

        It is a cross-correlation: filters are not flipped. The result A is processed in this order: ``A = alpha A +
        bias``; brelu: ``A *= (X > 0) + slope (X < 0)``; relu: ``A = max(A, 0) + slope min(A, 0)``; ``O = A + beta X``;
        ``bsum`` = sums of each map of O.

        Parameters
        ----------
        layer : ConvGeometry
        I, F, O : tensors of dimI, dimF and dimO elements, of one float dtype
            float16 and bfloat16 are computed in float32 and rounded once.
        X : tensor of dimO elements, optional
            Operand of brelu and beta; default: the old O. It may be O.
        bias, bsum : tensors (K, 1), optional
            ``bsum`` is an output, independent of the number of threads.
        alpha, beta, slope : float
            With beta 0 old values are not read, not even nan.
        relu, brelu : bool
            Steps of the processing, see above.
        repeat : int
            Number of timed runs if above 1.
        layer_op
            neon's argument; ignored.

        Returns
        -------
        (milliseconds, GFLOP/s) or None
            Of one run, if ``repeat`` is above 1 or bench mode is on; otherwise None, or (0, 0) on the GPU, as in neon.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If dtypes differ, sizes do not fit the layer, or an output overlaps an input. O is unchanged.

        Notes
        -----
        A nan in I reaches exactly the results that read it. A nan or infinity in F may also reach results
        with its tap in the padding, where it is multiplied by zero; likewise one in E with :meth:`update_conv`.

        Where it is faster, 3 x 3 filters use Winograd's algorithm, unless ``enable_winograd`` is False: an infinity in
        I then gives nan in the results that read it, and with ``enable_winograd = 4`` it and a nan may reach others in
        a tile of 4 x 4. In :meth:`update_conv`, on GPUs, they may reach all taps of channel and map.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.conv_layer(None, 2, 1, 4, H=3, W=3, R=3, S=3)
        >>> images, filters, out = be.ones(layer.dimI2), be.ones(layer.dimF2), be.empty(layer.dimO2)
        >>> rate = be.fprop_conv(layer, images, filters, out)
        >>> out.shape, out[0, 0].item()
        ((4, 2), 9.0)
        """
        tensors, numbers = (I, F, O, bias, X, bsum), (float(alpha), float(beta), float(slope))
        return self._data_pass("fprop_conv", layer, False, tensors, numbers, (bool(relu), bool(brelu)), repeat)

    @repeatable("enable_winograd")
    def bprop_conv(
        self,
        layer: ConvGeometry,
        F: Any,
        E: Any,
        grad_I: Any,
        X: Any = None,
        bias: Any = None,
        bsum: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        relu: bool = False,
        brelu: bool = False,
        slope: float = 0.0,
        repeat: int = 1,
        layer_op: Any = None,
    ) -> tuple[float, float] | None:
        """Data gradient: grad_I[c,z,y,x,n] = sum of F[c,t,r,s,k] E[k,m,p,q,n] over all pairs of the forward pass.

        Arguments, post-processing and errors are as in :meth:`fprop_conv`, with E of dimO elements in place of I,
        grad_I of dimI elements in place of O, and C rows of ``bias`` and ``bsum``.

        Parameters
        ----------
        layer : ConvGeometry
        F, E : tensors of dimF and dimO elements
            Filters, and error of the output.
        grad_I : tensor of dimI elements
            Output.
        X, bias, bsum, alpha, beta, relu, brelu, slope, repeat, layer_op
            As in :meth:`fprop_conv`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.conv_layer(None, 2, 1, 4, H=3, W=3, R=3, S=3)
        >>> filters, error, delta = be.ones(layer.dimF2), be.ones(layer.dimO2), be.empty(layer.dimI2)
        >>> rate = be.bprop_conv(layer, filters, error, delta)
        >>> delta[0, 0].item()    # of 4 maps
        4.0
        """
        tensors, numbers = (E, F, grad_I, bias, X, bsum), (float(alpha), float(beta), float(slope))
        return self._data_pass("bprop_conv", layer, True, tensors, numbers, (bool(relu), bool(brelu)), repeat)

    @repeatable("enable_winograd")
    def update_conv(
        self,
        layer: ConvGeometry,
        I: Any,  # noqa: E741
        E: Any,
        grad_F: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        repeat: int = 1,
        grad_bias: Any = None,
        layer_op: Any = None,
        U: Any = None,
    ) -> tuple[float, float] | None:
        """Weight gradient: grad_F = alpha * sum over m, p, q, n of I[c, ..., n] E[k,m,p,q,n] + beta * grad_F.

        Parameters
        ----------
        layer : ConvGeometry
        I, E : tensors of dimI and dimO elements, of one float dtype
        grad_F : tensor of dimF elements, of any float dtype
            Named ``U`` in neon's CPU backend, which is accepted.
        alpha, beta, repeat, layer_op
            As in :meth:`fprop_conv`; so are errors and the return value.
        grad_bias : tensor (K, 1), optional
            Receives the sums of each map of E.
        U : tensor, optional
            neon's other name of ``grad_F``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.conv_layer(None, 2, 1, 4, H=3, W=3, R=3, S=3)
        >>> images, error, gradient = be.ones(layer.dimI2), be.ones(layer.dimO2), be.empty(layer.dimF2)
        >>> rate = be.update_conv(layer, images, error, gradient)
        >>> gradient[0, 0].item()    # of 2 images
        2.0
        """
        name, target = "update_conv", U if grad_F is None else grad_F
        tensors = (I, E, target)
        operands = Operands(tensors, alone=grad_bias is None)
        g = self._check_update(name, layer, I, E, target, grad_bias)
        request = ConvUpdate(g, float(alpha), float(beta))

        def run() -> KernelCall | None:
            launch = self._update_conv(request, *tensors)
            if grad_bias is not None:
                errors = E if E.is_contiguous else self.fresh(E.shape, E.dtype).set(E)
                sums: Any = Functions
                self.assign(grad_bias.reshape(g.dimS), sums.sum(errors.reshape((g.K, g.sizeO // g.K)), axis=1))
            return launch

        nbytes = sum(tensor.size * tensor.dtype.itemsize for tensor in tensors)
        shapes = (g.dimI, g.dimO, g.dimF)
        rate = self._run_primitive(name, run, [target, grad_bias], shapes, nbytes, g.flops, "product", repeat, operands)
        return self._untimed_rate if rate is None else rate

    def _data_pass(
        self,
        name: str,
        layer: Any,
        backward: bool,
        tensors: tuple[Any, ...],
        numbers: tuple[float, float, float],
        flags: tuple[bool, bool],
        repeat: int,
    ) -> tuple[float, float] | None:
        """Check and run a forward pass or data gradient.

        tensors: input, filters, target, bias, X, bsum; numbers: alpha, beta, slope; flags: relu, brelu.
        """
        target, X, bsum = tensors[2], tensors[4], tensors[5]
        operands = Operands(tensors, 4 if X is target else -1)
        alpha, beta, slope = numbers
        g = self._check_data_pass(name, layer, backward, tensors)
        request = ConvPass(g, backward, Epilogue(alpha, beta, *flags, slope))
        nbytes = sum(tensor.size * tensor.dtype.itemsize for tensor in tensors[:3])
        shapes = (request.source_dims, g.dimF, request.target_dims)

        def run() -> KernelCall | None:
            return self._conv(request, *tensors)

        rate = self._run_primitive(name, run, [target, bsum], shapes, nbytes, g.flops, "product", repeat, operands)
        return self._untimed_rate if rate is None else rate

    def _check_data_pass(self, name: str, layer: Any, backward: bool, tensors: tuple[Any, ...]) -> ConvGeometry:
        """Check everything and return the layer at the actual number of images."""
        source, filters, target, bias, X, bsum = tensors
        source_name, target_name = ("E", "grad_I") if backward else ("I", "O")
        main, extra = {source_name: source, "F": filters, target_name: target}, {"X": X, "bias": bias, "bsum": bsum}
        require_tensors(self, name, **main)
        check_tensors(self, name, **extra)
        check_floats(name, **main)
        for argument, tensor in extra.items():
            if tensor is not None:
                check_floats(name, **{argument: tensor})
        g = checked_layer(name, layer)
        g = at_batch(name, g, source_name, source, g.sizeO // g.N if backward else g.sizeI // g.N)
        dims = g.dimI if backward else g.dimO
        for argument, tensor, expected in (
            (source_name, source, g.dimO if backward else g.dimI),
            ("F", filters, g.dimF),
            (target_name, target, dims),
            ("X", X, dims),
            ("bias", bias, (dims[0], 1)),
            ("bsum", bsum, (dims[0], 1)),
        ):
            check_size(name, argument, tensor, expected, g.words)
        read = {source_name: source, "F": filters, "bias": bias}
        same = X is not None and target.alias_of(X) == 1  # elementwise access in place is harmless
        check_apart(name, {target_name: target}, read if same else {**read, "X": X})
        check_apart(name, {"bsum": bsum}, {**read, "X": X, target_name: target})
        return g

    def _check_update(self, name: str, layer: Any, I: Any, E: Any, target: Any, grad_bias: Any) -> ConvGeometry:  # noqa: E741
        """Check a weight gradient and return the layer at the actual number of images."""
        require_tensors(self, name, I=I, E=E, grad_F=target)
        check_tensors(self, name, grad_bias=grad_bias)
        check_floats(name, I=I, E=E)
        check_floats(name, grad_F=target)
        if grad_bias is not None:
            check_floats(name, grad_bias=grad_bias)
        g = at_batch(name, layer, "I", I, math.prod(checked_layer(name, layer).DHW) * layer.C)
        check_size(name, "I", I, g.dimI, g.words)
        check_size(name, "E", E, g.dimO, g.words)
        check_size(name, "grad_F", target, g.dimF, g.words)
        check_size(name, "grad_bias", grad_bias, g.dimS, g.words)
        check_apart(name, {"grad_F": target, "grad_bias": grad_bias}, {"I": I, "E": E})
        return g

    # Hooks, with the definitions

    def _conv(
        self,
        request: ConvPass,
        source: Any,
        filters: Any,
        target: Any,
        bias: Any = None,
        X: Any = None,
        bsum: Any = None,
    ) -> KernelCall | None:
        """Forward pass or data gradient: a matrix product for each tap of the filter and group.

        Returns the kernel launch if that did everything, bsum too, as on a GPU; else None: the call is not repeated.
        """
        g, epilogue = request.geometry, request.epilogue
        weights, read = host(filters, g.dimF), host(source, request.source_dims)
        result = convolved(g, request.backward, read, weights)
        matrix = result.reshape(len(result), -1)
        old = host(target if X is None else X, matrix.shape, matrix.dtype) if epilogue.reads_x else None
        added = None if bias is None else host(bias, (len(matrix), 1), matrix.dtype)
        target.set(epilogue.apply(matrix, old, added).reshape(target.shape))
        if bsum is not None:
            stored = host(target, matrix.shape).sum(axis=1, dtype=np.float64)
            bsum.set(stored.reshape(bsum.shape))
        return None

    def _update_conv(self, request: ConvUpdate, I: Any, E: Any, grad_F: Any) -> KernelCall | None:  # noqa: E741
        """Weight gradient, returning like :meth:`_conv`."""
        g, alpha, beta = request.geometry, request.alpha, request.beta
        images, errors = host(I, g.dimI), host(E, g.dimO)
        result = filter_gradient(g, images, errors)
        with written(grad_F, g.dimF, keep=beta != 0) as target:
            target[...] = alpha * result + beta * target if beta != 0 else alpha * result
        return None

    def _workspace(self, layer: Any, operation: str) -> int:
        if not isinstance(layer, ConvGeometry):
            return super()._workspace(layer, operation)
        request = conv_request(layer, operation)
        if request is None:
            raise ArgumentError(f"workspace_bytes: operation must be fprop, bprop or update, got {operation!r}")
        return self._conv_workspace(request)

    def _conv_workspace(self, request: ConvPass | ConvUpdate) -> int:
        """Bytes of workspace; for the definition, host copies of all tensors, and results of the same size."""
        g = request.geometry
        return 4 * (g.sizeI + g.sizeF + g.sizeO) * compute_dtype(g.dtype).itemsize
