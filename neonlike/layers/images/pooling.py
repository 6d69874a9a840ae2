"""Pooling layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, part_of
from neonlike.layers.core.parts import apart
from neonlike.layers.images.windows import Sizes, by_axis, image_shape, image_sizes, require_images, window_sizes

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

WHOLE_MAP = "all"


class Pooling(Layer):
    """Maximum, mean, or root of the sum of squares of each window.

    Parameters
    ----------
    fshape : int, tuple, dict or "all"
        Window height and width (R, S), or one number for both; with a depth (T, R, S). By name, ``J`` is a number of
        channels. "all": each map is one window.
    op : "max", "avg" or "l2"
        Kind of pooling; padding does not count.
    strides, padding : int or dict
        For height and width, or by name: ``{"str_h": 2}``, ``{"pad_h": 1}``. Strides default to the window.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    poolparams : dict
        Sizes by name, as ``be.pool_layer`` takes them.
    nglayer : PoolGeometry
        The geometry returned for them.
    argmax : Tensor or None
        Position of each maximum in its window, in a backend-specific encoding.

    Raises
    ------
    ArgumentError
        If ``op`` is none of these.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Pooling
    >>> be = gen_backend("cpu", batch_size=2)
    >>> x = be.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    >>> images = be.concatenate([x, 10 * x], axis=3)  # two images of 2 x 2 pixels
    >>> Pooling(2, op="max")(images).tolist(), Pooling("all", op="avg")(images).tolist()
    ([[[[4.0, 40.0]]]], [[[[2.5, 25.0]]]])
    """

    repeatable = True

    def __init__(
        self,
        fshape: Any,
        op: str = "max",
        strides: Any = {},  # noqa: B006  never modified; described only if replaced
        padding: Any = {},  # noqa: B006
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if op not in ("max", "avg", "l2"):
            raise ArgumentError(f"Pooling: op must be 'max', 'avg' or 'l2', got {op!r:.40}")
        self.fshape, self.op, self.strides, self.padding = fshape, op, strides, padding
        self.owns_delta = True
        self.nglayer: Any = None
        self.argmax: Any = None
        self._rows = 0
        self.poolparams = {
            "op": op,
            **self._window(),
            **by_axis("Pooling: strides", strides, "str", "cdhw"),
            **by_axis("Pooling: padding", padding, "pad", "cdhw"),
        }

    def _window(self) -> Sizes:
        fshape = self.fshape
        if isinstance(fshape, str):
            if fshape != WHOLE_MAP:
                raise ArgumentError(f"Pooling: fshape must be 'all', a number or a tuple, got {fshape!r:.40}")
            return {}
        if isinstance(fshape, int | np.integer) and not isinstance(fshape, bool):
            fshape = (fshape, fshape)
        if isinstance(fshape, dict):
            return window_sizes("Pooling: fshape", fshape, "RS", "JT")
        return window_sizes("Pooling: fshape", fshape, "RS", "T")

    def __str__(self) -> str:
        if self.nglayer is None:
            return super().__str__()
        window, strides = ("x".join(map(str, sizes)) for sizes in (self.nglayer.JTRS, self.nglayer.strides))
        return (
            f"Pooling Layer '{self.name}': {self.op} of {self.in_shape} -> {self.out_shape}, windows of {window}, "
            f"strides {strides}"
        )

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape of an input (C, H, W) or (C, D, H, W): (K, P, Q) or (K, M, P, Q)."""
        super().configure(in_obj)
        sizes = image_sizes(self)
        if isinstance(self.fshape, str):
            self.poolparams.update(R=sizes["H"], S=sizes["W"])
        self.poolparams.update(sizes, N=self.be.bsz)
        self.nglayer = g = self.be.pool_layer(self.be.default_dtype, **self.poolparams)
        self._rows = math.prod(self.in_shape)
        self.out_shape = image_shape(g.K, g.M, g.P, g.Q, keep_depth=len(self.in_shape) == 4)
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer, and for max pooling the buffer of positions."""
        super().allocate(shared_outputs)
        if self.op == "max" and (self.argmax is None or self.argmax.size != self.outputs.size):
            self.argmax = self.be.empty(self.outputs.shape, dtype=self.nglayer.argmax_dtype)

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = pooled inputs + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(C*H*W, N)``, or with all axes, ``(C, H, W, N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, ``(K*P*Q, N)``.
        """
        inputs, outputs = require_images(self, inputs, inference)
        self.inputs = inputs
        argmax = self.argmax
        if argmax is not None and argmax.shape[1] != outputs.shape[1]:
            argmax = part_of(self, "argmax", argmax, outputs.shape[1])
        self.be.fprop_pool(self.nglayer, inputs, outputs, argmax, beta=beta)
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · (errors at the maxima, or spread over the windows) + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(K*P*Q, N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        if self.deltas is None:
            return None
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: no maxima are known yet; call fprop first")
        values = self.inputs if self.op == "l2" else None
        error = apart(self, error, self.deltas)
        self.be.bprop_pool(self.nglayer, error, self.deltas, self.argmax, alpha=alpha, beta=beta, inputs=values)
        return self.deltas
