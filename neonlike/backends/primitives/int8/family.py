"""Products in int8: weights that are quantized once, and inputs that are quantized while they are multiplied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.primitives.conv.request import at_batch, checked_layer
from neonlike.backends.primitives.int8 import definition
from neonlike.backends.primitives.linalg import LinalgFamily, is_dense
from neonlike.backends.tensors.operands import check_apart, check_size, check_tensors, host, require_tensors, written
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.depends import Dependent
from neonlike.kernels.run.trace import Operands
from neonlike.optree.forms import owner


class Int8Weights(Dependent):
    """The weights of a product in int8, from :meth:`Int8Family.int8_weights`.

    Attributes
    ----------
    values : Tensor
        int8, of the weights' shape.
    scales : Tensor
        float32 (rows or maps, 1): what sums are multiplied by.
    step : float
        Of the inputs: numbers are rounded to multiples of it.
    layer : ConvGeometry or None
        None: a matrix product.
    panels : tuple of Tensor
        The weights as kernels read them; none where the definition is computed.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> if be.multiplies_int8:
    ...     weights = be.int8_weights(be.array([[1., -2.]]), step=0.1)
    ...     assert weights.rows == 1 and weights.values.dtype.name == "int8"
    """

    def __init__(self, values: Any, scales: Any, step: float, layer: Any, panels: tuple[Any, ...]) -> None:
        self.values, self.scales, self.step, self.layer, self.panels = values, scales, step, layer, panels

    @property
    def rows(self) -> int:
        """Rows, or maps."""
        return int(self.scales.shape[0])


@owner
class Int8Family(LinalgFamily):
    """Products of quantized weights and inputs: ``int8_weights`` and ``int8_product``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.multiplies_int8 in (True, False)
    True
    """

    def int8_weights(self, W: Any, step: float, layer: Any = None) -> Int8Weights:
        """Quantize weights of float32: each row or map to whole numbers from -127 to 127, by its largest magnitude.

        Parameters
        ----------
        W : tensor
            (m, k); or filters of a convolution, of dimF elements. Changes afterwards have no effect.
        step : float
            Size of the steps to which :meth:`int8_product` rounds its inputs: their largest magnitude / 127.
        layer : ConvGeometry, optional
            Of the convolution.

        Raises
        ------
        DTypeError, ShapeError
            If ``W`` is not of float32, or does not fit ``layer``.
        ArgumentError
            On a GPU, which does not multiply int8, if ``step`` is no positive finite number, or ``W`` has nan or inf.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> if be.multiplies_int8:
        ...     weights = be.int8_weights(be.array([[127., -64.]]), step=1.0)
        ...     assert weights.values.tolist() == [[127, -64]]
        """
        if not self.multiplies_int8:
            raise ArgumentError(
                f"int8_weights: {type(self).__name__} does not multiply int8; infer on the CPU, with "
                "gen_backend('cpu'), or in float32, after model.dequantize()"
            )
        require_tensors(self, "int8_weights", W=W)
        if W.dtype != np.float32:
            raise DTypeError(
                f"int8_weights: W must be of float32, got {W.dtype.name}; a quantized model needs a backend of "
                "float32; on others call model.dequantize()"
            )
        if not 0 < step < math.inf:
            raise ArgumentError(f"int8_weights: step must be a positive finite number, got {brief(step)}")
        if layer is None and W.ndim != 2:
            raise ShapeError(f"int8_weights: W must have the shape (m, k), got {W.shape}; filters need a layer")
        g = None if layer is None else checked_layer("int8_weights", layer)
        if g is not None:
            check_size("int8_weights", "W", W, g.dimF, g.describe())
        weights = host(W, W.shape if g is None else g.dimF2)
        if not np.isfinite(weights).all():
            raise ArgumentError("int8_weights: W has nan or infinite elements, which int8 has not")
        rows, steps = definition.quantized_rows(weights if g is None else weights.T)
        panels = tuple(self.wrap(array) for array in self._int8_panels(rows, g))
        values = self.wrap(np.ascontiguousarray(rows if g is None else rows.T).reshape(W.shape))
        scales = self.wrap(steps * np.float32(step))
        return Int8Weights(values, scales, float(np.float32(step)), layer, panels)

    @repeatable()
    def int8_product(
        self, weights: Any, x: Any, out: Any, bias: Any = None, relu: bool = False, slope: float = 0.0
    ) -> Any:
        """out = W . x + bias, or of the convolution, with x rounded to int8; then max(., 0) + slope min(., 0) if relu.

        Elements of ``x`` become multiples of ``weights.step``, rounded to nearest, ties to even, with at most 127 times
        its magnitude; nan becomes -127 times. Sums of products are exact, and the same for any number of threads.

        Parameters
        ----------
        weights : Int8Weights
        x, out : tensors of float32
            (k, n) and (m, n); or images and outputs of the convolution, of any number of images.
        bias : tensor (m, 1) or (K, 1), optional
        relu : bool
            Whether the last step is taken.
        slope : float
            Slope below 0 of that step.

        Returns
        -------
        out

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If tensors are not of float32, do not fit the weights, or ``out`` shares memory with the others.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> if be.multiplies_int8:
        ...     weights, out = be.int8_weights(be.array([[127., -64.]]), step=1.0), be.empty((1, 1))
        ...     assert be.int8_product(weights, be.array([[1.], [2.]]), out).item() == -1.0
        """
        name = "int8_product"
        if not isinstance(weights, Int8Weights):
            raise DTypeError(f"{name}: weights must come from be.int8_weights, got a {type(weights).__name__}")
        require_tensors(self, name, x=x, out=out)
        check_tensors(self, name, bias=bias, weights=weights.scales)
        if any(t is not None and t.dtype != np.float32 for t in (x, out, bias)):
            raise DTypeError(f"{name}: tensors must be of float32, got x {x.dtype.name}, out {out.dtype.name}")
        g = self._checked_int8(name, weights, x, out)
        if bias is not None:
            check_size(name, "bias", bias, (weights.rows, 1), "the weights")
        check_apart(name, {"out": out}, {"x": x, "bias": bias})
        operands = Operands((x, bias, out), alone=is_dense(x) and is_dense(out))

        def run() -> KernelCall | None:
            return self._int8_product(weights, g, x, out, bias, float(slope) if relu else None)

        shapes, flops = (x.shape, weights.values.shape, out.shape), 2 * out.size * weights.values.size // weights.rows
        nbytes = sum(tensor.nbytes for tensor in (x, weights.values, out))
        self._run_primitive(name, run, [out], shapes, nbytes, flops, "product", operands=operands)
        return out

    def _checked_int8(self, name: str, weights: Int8Weights, x: Any, out: Any) -> ConvGeometry | None:
        """Check shapes and return the convolution at the number of images of ``x``."""
        if weights.layer is None:
            m, k = weights.values.shape
            if not x.ndim == out.ndim == 2 or x.shape[0] != k or out.shape != (m, x.shape[1]):
                raise ShapeError(f"{name}: weights {(m, k)} x {x.shape} does not give out's {out.shape}")
            return None
        layer = weights.layer
        g = at_batch(name, layer, "x", x, layer.sizeI // layer.N)
        check_size(name, "x", x, g.dimI, g.describe())
        check_size(name, "out", out, g.dimO, g.describe())
        return g

    # Hooks, with the definitions

    def _int8_panels(self, rows: Any, g: ConvGeometry | None) -> tuple[Any, ...]:
        """Arrays of the quantized weights (rows, numbers along the inner dimension) for kernels; none here."""
        return ()

    def _int8_product(
        self, weights: Int8Weights, g: ConvGeometry | None, x: Any, out: Any, bias: Any, slope: float | None
    ) -> KernelCall | None:
        """Hook: see :meth:`int8_product`; operands are checked. Returns the kernel's launch, if that was all."""
        filters = weights.values.get()
        if g is None:
            sums = definition.product(filters, definition.quantized(host(x), weights.step))
        else:
            images = definition.quantized(host(x, g.dimI), weights.step)
            sums = definition.convolution(g, images, filters.reshape(g.dimF)).reshape(g.K, -1)
        value = sums.astype(np.float32) * weights.scales.get()
        if bias is not None:
            value += host(bias, (weights.rows, 1))
        if slope is not None:
            value = np.where(value < 0, value * np.float32(slope), value)
        with written(out) as array:
            array[...] = value.reshape(out.shape)
        return None
