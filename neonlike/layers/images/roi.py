"""Pooling over regions of interest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import Layer, plain_shape, require_size, require_tensor
from neonlike.layers.core.parameter import stats_dtype

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

ROI_ROWS = 5
"""Rows of a region: image, xmin, ymin, xmax, ymax."""


class RoiPooling(Layer):
    """Largest activation in each bin of a grid over each region of interest.

    Inputs are a pair: the feature map ``(C*H*W, N)`` and the regions ``(5, n)``, with columns (image, xmin, ymin, xmax,
    ymax), the last four in pixels of the image. Outputs are ``(C*height*width, n)``.

    Parameters
    ----------
    HW : tuple of int
        Height and width of the grid.
    bprop_enabled : bool
        Whether the feature map gets a gradient; if not, its gradient is 0.
    spatial_scale : float
        Size of the feature map divided by the size of the image.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    max_idx : Tensor
        int32 positions of the largest activations.
    error : Tensor
        The gradient of the feature map in the last ``bprop``, before ``alpha`` and ``beta``.
    rois_per_img, rois_per_batch : int
        Regions per image, and per batch.

    References
    ----------
    Girshick, "Fast R-CNN" (2015), section 2.1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import RoiPooling
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = RoiPooling(HW=(2, 2), spatial_scale=1.0)
    >>> layer.configure([(3, 8, 8), (5, 4)]).out_shape  # 3 maps of 2 x 2 bins, 4 regions an image
    (12, 4)
    """

    def __init__(
        self,
        HW: Any = (7, 7),
        bprop_enabled: bool = True,
        spatial_scale: float = 0.0625,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if not isinstance(HW, tuple | list) or len(HW) != 2:
            raise ArgumentError(f"RoiPooling: HW must be (height, width) of the grid, got {shown(HW)}")
        self.HW, self.bprop_enabled, self.spatial_scale = HW, bprop_enabled, spatial_scale
        self.roi_H, self.roi_W = (require_size(size, "RoiPooling: HW") for size in HW)
        self.owns_delta = True
        self.roi_shape: Any = None
        self.rois_per_img = self.rois_per_batch = 0
        self.max_idx: Any = None
        self.error: Any = None
        self.rois: Any = None
        self._sizes: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"RoiPooling Layer '{self.name}': {self.in_shape} -> {self.out_shape}, {self.rois_per_img} regions"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Read the shapes of a feature map (C, H, W) and regions (5, regions) from layers or shapes."""
        pair = getattr(in_obj, "out_shape", None) if isinstance(in_obj, Layer) else getattr(in_obj, "shape", in_obj)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ShapeError(f"{self.name}: needs a feature map and regions, two layers or shapes; got {shown(in_obj)}")
        features, regions = pair
        super().configure(features)
        if isinstance(in_obj, Layer):
            self.prev_layer = in_obj
        self.roi_shape = plain_shape(getattr(regions, "out_shape", regions))
        if not isinstance(self.in_shape, tuple) or len(self.in_shape) != 3:
            raise ShapeError(f"{self.name}: the feature map must have a shape (C, H, W), got {shown(self.in_shape)}")
        if not isinstance(self.roi_shape, tuple) or self.roi_shape[0] != ROI_ROWS or len(self.roi_shape) > 2:
            raise ShapeError(f"{self.name}: regions must have a shape (5, regions), got {shown(self.roi_shape)}")
        self.rois_per_img = self.roi_shape[1] if len(self.roi_shape) == 2 else 1
        self.rois_per_batch = self.rois_per_img * self.be.bsz
        channels, height, width = self.in_shape
        self.out_shape = (channels * self.roi_H * self.roi_W, self.rois_per_img)
        self._sizes = {
            "C": channels, "H": height, "W": width, "pooled_height": self.roi_H, "pooled_width": self.roi_W,
            "spatial_scale": self.spatial_scale,
        }  # fmt: skip
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer and the buffer of positions."""
        super().allocate(shared_outputs)
        if self.max_idx is None or self.max_idx.shape != self.outputs.shape:
            self.max_idx = self.be.zeros(self.outputs.shape, dtype=np.int32)
            self.rois = self.be.zeros((self.rois_per_batch, ROI_ROWS), dtype=stats_dtype(self.be))

    def fprop(self, inputs: Any, inference: bool = False) -> Tensor:
        """outputs = largest activation of each bin; 0 for an empty one.

        Parameters
        ----------
        inputs : pair of Tensor
            The feature map, ``(C*H*W, N)``, and the regions, ``(5, n)``.
        inference : bool
            True outside of training: batches may be partial.

        Returns
        -------
        Tensor
            ``outputs``, ``(C*height*width, n)``.
        """
        if self.max_idx is None:
            raise ArgumentError(f"{self.name}.fprop: the layer is not set up; call configure and allocate on it")
        if not isinstance(inputs, tuple | list) or len(inputs) != 2:
            raise DTypeError(f"{self.name}.fprop: inputs must be a feature map and regions, got {shown(inputs)}")
        features, regions = inputs
        require_tensor(f"{self.name}.fprop", "regions", regions)
        if regions.shape != (ROI_ROWS, self.rois_per_batch):
            raise ShapeError(
                f"{self.name}.fprop: regions have shape {regions.shape}, expected {(ROI_ROWS, self.rois_per_batch)}"
            )
        self.inputs = inputs
        self.rois[:] = regions.T
        outputs: Tensor = self.outputs
        self.be.roipooling_fprop(features, self.rois, outputs, self.max_idx, self.rois_per_batch, **self._sizes)
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · errors at the largest activations + beta · deltas, of the feature map.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(C*height*width, n)``.
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
        deltas = self.deltas
        if deltas is None:
            return None
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: no largest activations are known yet; call fprop first")
        if not self.bprop_enabled:
            deltas[:] = deltas * beta if beta else 0
        elif alpha == 1 and not beta:
            self._spread(error, deltas)
            self.error = deltas
        else:
            if self.error is None or self.error is deltas or self.error.shape != deltas.shape:
                self.error = self.be.empty_like(deltas)
            self._spread(error, self.error)
            deltas[:] = alpha * self.error + beta * deltas if beta else alpha * self.error
        return self.deltas

    def _spread(self, error: Tensor, target: Tensor) -> None:
        self.be.roipooling_bprop(error, self.rois, target, self.max_idx, self.rois_per_batch, **self._sizes)
