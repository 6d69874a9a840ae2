"""Pooling: ``pool_layer``, ``fprop_pool``, ``bprop_pool``; ``definition.py`` defines them in NumPy."""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.backends.primitives.pooling.definition import blend, pool, unpool
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
from neonlike.errors import ArgumentError, DTypeError, MissingArgument
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.dtypes import DType, compute_dtype, is_index
from neonlike.optree.forms import owner


@dataclass(frozen=True, slots=True)
class PoolPass:
    """Request of a pooling, or with ``backward`` of its gradient, for the images in ``geometry``.

    The result is stored as ``alpha * result + beta * old``.
    """

    geometry: PoolGeometry
    backward: bool
    alpha: float = 1.0
    beta: float = 0.0


@owner
class PoolFamily(Family):
    """Pooling: ``pool_layer``, ``fprop_pool``, ``bprop_pool``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.pool_layer(None, "avg", 16, 8, H=4, W=4, R=2, S=2).nOut
    32
    """

    def pool_layer(
        self,
        dtype: Any,
        op: str,
        N: int,
        C: int,
        D: int = 1,
        H: int = 1,
        W: int = 1,
        J: int = 1,
        T: int = 1,
        R: int = 1,
        S: int = 1,
        pad_c: int = 0,
        pad_d: int = 0,
        pad_h: int = 0,
        pad_w: int = 0,
        str_c: int | None = None,
        str_d: int | None = None,
        str_h: int | None = None,
        str_w: int | None = None,
    ) -> PoolGeometry:
        """Create the geometry of a pooling over windows of ``(J,T,R,S)``; strides default to the window.

        Parameters
        ----------
        dtype : dtype
            Dtype of the tensors; None for the backend's.
        op : "max", "avg" or "l2"
            Maximum of a window, mean, or root of the sum of squares; padding does not count. Sums, of squares too, must
            be representable in the compute dtype.
        N, C, D, H, W : int
            Images, channels, and size of the input.
        J, T, R, S : int
            Size of a window: channels, depth, height, width.
        pad_c, pad_d, pad_h, pad_w : int
            Padding on either side of each axis.
        str_c, str_d, str_h, str_w : int, optional
            Steps between windows; default: their sizes.

        Raises
        ------
        ArgumentError
            For another op, and for padding not less than the window.
        DTypeError
            If dtype is not a float.
        ShapeError
            If a window is larger than the padded input.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.pool_layer(None, "max", 16, 8, H=28, W=28, R=2, S=2).dimO
        (8, 1, 14, 14, 16)
        """
        window = (J, T, R, S)
        strides = tuple(size if step is None else step for step, size in zip((str_c, str_d, str_h, str_w), window))
        padding = (pad_c, pad_d, pad_h, pad_w)
        caffe = self.compat_mode == "caffe"
        kind = self._layer_dtype("pool_layer", dtype)
        return PoolGeometry(op, kind, N, (C, D, H, W), window, padding, strides, caffe)  # type: ignore[arg-type]

    @repeatable()
    def fprop_pool(
        self,
        layer: PoolGeometry,
        I: Any,
        O: Any,
        argmax: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        repeat: int = 1,
    ) -> tuple[float, float] | None:
        """``O = alpha * pool(I) + beta * O``; with beta 0 the old ``O`` is not read.

        Max pooling takes the first of several equal values, and a nan before all others (the first nan). A window
        entirely in the padding, possible only with Caffe's sizes, gives 0.

        Parameters
        ----------
        layer : PoolGeometry
            Result of ``pool_layer``.
        I, O : Tensor
            ``(C*D*H*W, N)`` and ``(K*M*P*Q, N)``, or any shapes of these sizes; one float dtype; float16 is computed in
            float32.
        argmax : integer Tensor as large as O
            For max pooling, an output for ``bprop_pool``. If its dtype cannot number all positions of a window (uint8:
            more than 256), the numbers are kept separately, and ``bprop_pool`` must receive the same tensor. Not used
            otherwise.
        alpha, beta : float
            Factors of the result and of the old ``O``.
        repeat : int
            Number of timed runs if above 1.

        Returns
        -------
        (milliseconds, GFLOP/s) or None
            Mean of one run, if timed.

        Raises
        ------
        ShapeError, DTypeError, AliasError, MissingArgument
            Raised before anything is written.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.pool_layer(None, "max", 1, 1, H=2, W=2, R=2, S=2)
        >>> out, argmax = be.empty(layer.dimO2), be.empty(layer.dimO2, dtype="uint8")
        >>> rate = be.fprop_pool(layer, be.array([1., 5., 3., 2.]), out, argmax)
        >>> out.item(), argmax.item()
        (5.0, 1)
        """
        used = _used(layer, argmax)
        layer = self._check_pool("fprop_pool", layer, I, O, argmax, {"O": O, "argmax": used}, {"I": I})
        if layer.op == "l2":
            layer.seen["input"] = I
        sized = layer.at_batch(_images(layer, I))
        request = PoolPass(sized, False, float(alpha), float(beta))

        def run() -> KernelCall | None:
            return self._fprop_pool(request, I, O, used)

        nbytes = I.nbytes + O.nbytes * (1 + (beta != 0)) + (0 if used is None else used.nbytes)
        shapes = [sized.dimI, sized.JTRS, sized.dimO]
        operands = None if layer.op == "l2" else Operands((I, O, used))  # whose input has to be seen at each call
        name = f"fprop_pool {layer.op}"
        return self._run_primitive(name, run, [O, used], shapes, nbytes, repeat=repeat, operands=operands)

    @repeatable()
    def bprop_pool(
        self,
        layer: PoolGeometry,
        I: Any,
        O: Any,
        argmax: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        repeat: int = 1,
        inputs: Any = None,
    ) -> tuple[float, float] | None:
        """``O = alpha * gradient + beta * O`` for the error ``I``; with beta 0 the old ``O`` is not read.

        The gradient of an input is summed over its windows: for max, the error where it was the maximum; for avg, the
        error over the number of values; for l2, ``error * input / output``, 0 where the output is 0.

        Parameters
        ----------
        layer : PoolGeometry
            From ``pool_layer``.
        I, O : Tensor
            Error of the output ``(K*M*P*Q, N)`` and gradient of the input ``(C*D*H*W, N)``, or any shapes of these
            sizes; one float dtype.
        argmax : integer Tensor as large as I
            For max pooling, as written by ``fprop_pool``.
        alpha, beta : float
            Factors of the gradient and of the old ``O``.
        repeat : int
            Number of timed runs if above 1.
        inputs : Tensor, optional
            For l2 pooling, the input of ``fprop_pool``; default: the last input of ``fprop_pool`` with this layer.

        Returns
        -------
        (milliseconds, GFLOP/s) or None
            Mean of one run, if timed.

        Raises
        ------
        ShapeError, DTypeError, AliasError, MissingArgument
            Raised before anything is written.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.pool_layer(None, "avg", 1, 1, H=2, W=2, R=2, S=2)
        >>> delta = be.empty(layer.dimI2)
        >>> rate = be.bprop_pool(layer, be.array([[8.]]), delta)
        >>> delta.tolist()
        [[2.0], [2.0], [2.0], [2.0]]
        """
        used = _used(layer, argmax)
        others = {"I": I, "argmax": used}
        X = None
        if isinstance(layer, PoolGeometry) and layer.op == "l2":
            others["inputs"] = X = layer.seen.get("input") if inputs is None else inputs
        layer = self._check_pool("bprop_pool", layer, O, I, argmax, {"O": O}, others)
        sized = layer.at_batch(_images(layer, O))
        request = PoolPass(sized, True, float(alpha), float(beta))

        def run() -> KernelCall | None:
            return self._bprop_pool(request, I, O, used, X)

        nbytes = I.nbytes + O.nbytes * (1 + (beta != 0)) + sum(t.nbytes for t in (used, X) if t is not None)
        shapes = [sized.dimO, sized.JTRS, sized.dimI]
        name, operands = f"bprop_pool {layer.op}", Operands((I, O, used, None))
        return self._run_primitive(name, run, [O], shapes, nbytes, repeat=repeat, operands=operands)

    # Checks

    def _check_pool(
        self,
        name: str,
        layer: Any,
        image: Any,
        pooled: Any,
        argmax: Any,
        outputs: dict[str, Any],
        inputs: dict[str, Any],
    ) -> PoolGeometry:
        """Check a call of ``name``; ``image`` is the tensor on the input side, ``pooled`` on the output side."""
        if not isinstance(layer, PoolGeometry):
            raise DTypeError(f"{name}: layer must come from be.pool_layer, got {type(layer).__name__}")
        check_tensors(self, name, **{**outputs, **inputs, "argmax": argmax})
        require_tensors(self, name, I=inputs["I"], O=outputs["O"])
        given = inputs.get("inputs")
        if layer.op == "max" and argmax is None:
            raise MissingArgument(
                f"{name}: max pooling needs argmax, as large as the output, e.g. "
                f"be.empty({layer.dimO2}, dtype=np.{layer.argmax_dtype})"
            )
        if "inputs" in inputs and given is None:
            raise MissingArgument(f"{name}: l2 pooling needs inputs, or fprop_pool with the same layer before")
        sides = ("I", "O") if name == "fprop_pool" else ("O", "I")
        check_floats(name, **dict(zip(sides, (image, pooled))), **({} if given is None else {"inputs": given}))
        sized = layer.at_batch(_images(layer, image))
        check_size(name, sides[0], image, sized.dimI, str(sized))
        check_size(name, sides[1], pooled, sized.dimO, str(sized))
        check_size(name, "inputs", given, sized.dimI, str(sized))
        if layer.op == "max":
            if not is_index(argmax.dtype):
                raise DTypeError(f"{name}: argmax must hold integers, got {argmax.dtype.name}; use uint8 to int64")
            check_size(name, "argmax", argmax, sized.dimO, str(sized))
            if name == "bprop_pool":
                _check_numbers(sized, argmax)
        check_apart(name, outputs, inputs)
        return layer

    # Hooks, with the definitions

    def _fprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any) -> KernelCall | None:
        """``fprop_pool`` of checked tensors; argmax is None except for max pooling.

        Returns the kernel launch, if that was all; see ``kernels/run/calls.py``.
        """
        layer, beta = request.geometry, request.beta
        with forward_arrays(layer, I, O, argmax, beta) as (values, out, numbers), np.errstate(all="ignore"):
            blend(out, pool(layer, values, numbers), request.alpha, beta)
        return None

    def _bprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any, inputs: Any) -> KernelCall | None:
        """``bprop_pool`` of checked tensors; argmax is for max pooling, inputs for l2.

        Returns as :meth:`_fprop_pool`.
        """
        layer, beta = request.geometry, request.beta
        with backward_arrays(layer, I, O, argmax, inputs, beta) as (error, delta, numbers, values):
            with np.errstate(all="ignore"):
                blend(delta, unpool(layer, error, numbers, values), request.alpha, beta)
        return None

    def _workspace(self, layer: Any, operation: str) -> int:
        if not isinstance(layer, PoolGeometry):
            return super()._workspace(layer, operation)
        if operation not in ("fprop", "bprop"):
            raise ArgumentError(f"workspace_bytes: operation must be fprop or bprop, got {operation!r}")
        return self._pool_workspace(PoolPass(layer, operation == "bprop"))

    def _pool_workspace(self, request: PoolPass) -> int:
        """Bytes of workspace; for the definition, host copies of all tensors, and results in float64."""
        layer = request.geometry
        return 2 * (layer.sizeI + layer.sizeO) * (8 + compute_dtype(layer.dtype).itemsize)


# Arrays of a call


@contextmanager
def forward_arrays(
    layer: PoolGeometry, I: Any, O: Any, argmax: Any, beta: float, dtype: DType | None = None
) -> Iterator[tuple[Array, Array, Array | None]]:
    """Contiguous arrays for the input, the output, and the positions of maxima.

    Parameters
    ----------
    layer : PoolGeometry
    I, O : tensors
        Input and output.
    argmax : tensor or None
    beta : float
        0: the old output is not read.
    dtype : dtype, optional
        Of input and output; the compute dtype by default.
    """
    with written(O, layer.dimO, keep=beta != 0, dtype=dtype) as out:
        if argmax is None:
            yield host(I, layer.dimI, dtype), out, None
            return
        with _numbers_written(layer, argmax) as numbers:
            yield host(I, layer.dimI, dtype), out, numbers


@contextmanager
def backward_arrays(
    layer: PoolGeometry, I: Any, O: Any, argmax: Any, inputs: Any, beta: float, dtype: DType | None = None
) -> Iterator[tuple[Array, Array, Array | None, Array | None]]:
    """Contiguous arrays of the error, the gradient to write, the positions of maxima, and the input.

    Parameters
    ----------
    layer : PoolGeometry
    I, O : tensors
        Error of the output, and gradient to write.
    argmax : tensor or None
    inputs : tensor or None
        Input of the forward pass.
    beta : float
        0: the old gradient is not read.
    dtype : dtype, optional
        Of error and gradient; the compute dtype by default.
    """
    with written(O, layer.dimI, keep=beta != 0, dtype=dtype) as delta:
        numbers = None if argmax is None else _numbers(layer, argmax)
        yield host(I, layer.dimO, dtype), delta, numbers, None if inputs is None else host(inputs, layer.dimI)


def _used(layer: Any, argmax: Any) -> Any:
    """The given ``argmax`` for max pooling, which alone writes and reads it; else None: it may lie anywhere."""
    return argmax if isinstance(layer, PoolGeometry) and layer.op == "max" else None


def fits(layer: PoolGeometry, argmax: Any) -> bool:
    """Whether the dtype of ``argmax`` numbers all positions of a window."""
    return layer.window - 1 <= int(np.iinfo(argmax.dtype).max)


def kept_under(argmax: Any) -> tuple[Any, ...]:
    """Key of a tensor's elements within its base."""
    shape, steps, offset = argmax.layout
    return (offset, argmax.size) if argmax.is_contiguous else (offset, shape, steps)


@contextmanager
def _numbers_written(layer: PoolGeometry, argmax: Any) -> Iterator[Array]:
    """Integer array of the output's shape, written to ``argmax`` or kept separately."""
    if fits(layer, argmax):
        with written(argmax, layer.dimO, dtype=argmax.dtype) as numbers:
            yield numbers
        return
    numbers = np.empty(layer.dimO, layer.argmax_dtype)
    yield numbers
    base = argmax._original_base
    if not hasattr(base, "wide_argmax"):
        base.wide_argmax = {}
    base.wide_argmax[kept_under(argmax)] = numbers


def _numbers(layer: PoolGeometry, argmax: Any) -> Array:
    """The positions written by ``fprop_pool`` through ``argmax``."""
    if fits(layer, argmax):
        return host(argmax, layer.dimO, argmax.dtype)
    numbers: Array = argmax._original_base.wide_argmax[kept_under(argmax)]
    return numbers


def _check_numbers(layer: PoolGeometry, argmax: Any) -> None:
    """Raise ArgumentError if ``argmax`` is too narrow for the layer and fprop_pool kept no separate positions."""
    if fits(layer, argmax):
        return
    kept = getattr(argmax._original_base, "wide_argmax", {}).get(kept_under(argmax))
    if kept is None or kept.shape != layer.dimO:
        raise ArgumentError(
            f"bprop_pool: argmax of {argmax.dtype.name} cannot number the {layer.window} positions of a window "
            f"{layer.JTRS}, and it is not the tensor that fprop_pool of this layer was given; pass that one to both, "
            f"or make it wider: be.empty({layer.dimO2}, dtype=np.{layer.argmax_dtype})"
        )


def _images(layer: PoolGeometry, image: Any) -> int:
    """Number of images in a tensor on the layer's input side; the layer's N if they are not whole."""
    each = math.prod(layer.CDHW)
    return layer.N if image.size % each else image.size // each
