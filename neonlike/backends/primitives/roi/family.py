"""Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.geometry.sizes import whole
from neonlike.backends.primitives.roi.definition import (
    RoiPooling,
    Suppression,
    bins_of,
    box_areas,
    images_of,
    ranked,
)
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import (
    check_apart,
    check_floats,
    check_size,
    check_tensors,
    host,
    require_tensors,
    written,
)
from neonlike.checks import brief, is_real
from neonlike.errors import ArgumentError, DTypeError, MissingArgument, ShapeError
from neonlike.optree.dtypes import BFLOAT16


class RoiFamily(Family):
    """Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.nms(be.array([[0., 0., 9., 9., 0.9]]), 0.5)
    [0]
    """

    def roipooling_fprop(
        self,
        I: Any,  # noqa: E741
        rois: Any,
        O: Any,  # noqa: E741
        argmax: Any,
        roi_count: int,
        C: int | None = None,
        H: int | None = None,
        W: int | None = None,
        pooled_height: int | None = None,
        pooled_width: int | None = None,
        spatial_scale: float | None = None,
        *,
        fm_channel: int | None = None,
        fm_height: int | None = None,
        fm_width: int | None = None,
    ) -> None:
        """Maximum of the activations in each bin of a grid over each region of interest (Girshick 2015, section 2.1).

        A region extends from ``round(min * spatial_scale)`` to ``round(max * spatial_scale)``, with ties to even, and
        is at least one element high and wide. Bin ``h`` of a region with ``side`` rows covers the rows from ``floor(h *
        side / pooled_height)`` to before ``ceil((h + 1) * side / pooled_height)``, with the quotient in float64, and is
        clipped to the map. Empty bins give 0. nan is larger than any number.

        Parameters
        ----------
        I : tensor (C * H * W, N)
            Feature map.
        rois : tensor (roi_count, 5), of floats or integers
            Rows (image, xmin, ymin, xmax, ymax), the last four in pixels.
        O : tensor (C * pooled_height * pooled_width, roi_count)
            Output.
        argmax : int32 tensor of that size
            Output: ``h * W + w`` of the first largest element; -1 for an empty bin.
        roi_count, C, H, W, pooled_height, pooled_width : int
            Numbers of regions and of feature maps, size of a map, and of the grid, in elements.
        spatial_scale : float
            Size of the feature map divided by the size of the image.
        fm_channel, fm_height, fm_width : int
            Alternative names of C, H and W.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the sizes or each other.
        ArgumentError
            If a size or the scale is missing or not positive, or a region is in no image or not finite. Nothing is
            written in any of these cases.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> image, regions = be.array([1., 2., 3., 4.]), be.array([[0., 0., 0., 1., 1.]])
        >>> out, argmax = be.empty((1, 1)), be.empty((1, 1), dtype="int32")
        >>> be.roipooling_fprop(image, regions, out, argmax, 1, 1, 2, 2, 1, 1, 1.0)
        >>> out.item(), argmax.item()
        (4.0, 3)
        """
        name = "roipooling_fprop"
        sizes = _sizes(name, roi_count, C, H, W, pooled_height, pooled_width, (fm_channel, fm_height, fm_width))
        request = self._check_regions(name, I, rois, sizes, spatial_scale, O)
        self._check_pooled(name, request, argmax, O=O)
        check_floats(name, I=I, O=O)
        check_apart(name, {"O": O, "argmax": argmax}, {"I": I, "rois": rois})
        self._check_places(name, request, rois)
        moved = I.nbytes + O.nbytes + argmax.nbytes
        shapes = request.map, request.pooled
        self._run_primitive(name, lambda: self._fprop_roi(request, I, rois, O, argmax), (O, argmax), shapes, moved)

    def roipooling_bprop(
        self,
        I: Any,  # noqa: E741
        rois: Any,
        O: Any,  # noqa: E741
        argmax: Any,
        roi_count: int,
        C: int | None = None,
        H: int | None = None,
        W: int | None = None,
        pooled_height: int | None = None,
        pooled_width: int | None = None,
        spatial_scale: float | None = None,
        *,
        fm_channel: int | None = None,
        fm_height: int | None = None,
        fm_width: int | None = None,
    ) -> None:
        """Error of the feature map: each error is added at the position of its bin's largest element.

        Parameters
        ----------
        I : tensor (C * pooled_height * pooled_width, roi_count)
            Error of the forward pass's output.
        rois, argmax : tensors
            As in the forward pass.
        O : tensor (C * H * W, N)
            Overwritten; 0 at positions without error.
        roi_count, C, H, W, pooled_height, pooled_width, spatial_scale, fm_channel, fm_height, fm_width
            As in the forward pass.

        Raises
        ------
        DTypeError, ShapeError, AliasError, ArgumentError
            As in the forward pass, and if ``argmax`` has impossible positions; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> regions, argmax = be.array([[0., 0., 0., 1., 1.]]), be.full((1, 1), 3, dtype="int32")
        >>> delta = be.empty((4, 1))
        >>> be.roipooling_bprop(be.array([[5.]]), regions, delta, argmax, 1, 1, 2, 2, 1, 1, 1.0)
        >>> delta.T.tolist()
        [[0.0, 0.0, 0.0, 5.0]]
        """
        name = "roipooling_bprop"
        sizes = _sizes(name, roi_count, C, H, W, pooled_height, pooled_width, (fm_channel, fm_height, fm_width))
        request = self._check_regions(name, O, rois, sizes, spatial_scale, I, ("O", "I"))
        self._check_pooled(name, request, argmax, I=I)
        check_floats(name, I=I, O=O)
        check_apart(name, {"O": O}, {"I": I, "rois": rois, "argmax": argmax})
        self._check_places(name, request, rois, argmax)
        moved = I.nbytes + O.nbytes + argmax.nbytes
        shapes = request.map, request.pooled
        self._run_primitive(name, lambda: self._bprop_roi(request, I, rois, O, argmax), (O,), shapes, moved)

    def nms(self, detections: Any, threshold: float, normalized: bool = False) -> list[int]:
        """Non-maximum suppression: from the best box on, drop all others that overlap it too much.

        The overlap of two boxes is their intersection divided by their union. Rows of score 0 are ignored. A box
        without such a quotient, because both boxes are empty or a coordinate is nan, neither drops others nor is
        dropped.

        Parameters
        ----------
        detections : tensor or array (boxes, 5)
            Rows (x1, y1, x2, y2, score), by descending score, as detectors produce them; others are sorted first, with
            equal scores in order.
        threshold : float
            Overlap above which a box is dropped for a better one.
        normalized : bool
            False: coordinates are pixels, and a box from 3 to 5 is 3 wide. True: it is 2 wide.

        Returns
        -------
        list of int
            Rows of ``detections``, the best first.

        Raises
        ------
        ShapeError, DTypeError
            If detections are not numbers of that shape.
        ArgumentError
            If the threshold or a score is nan, which cannot be ordered.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> boxes = be.array([[0, 0, 9, 9, 0.9], [1, 0, 9, 9, 0.8], [20, 20, 29, 29, 0.7]])
        >>> be.nms(boxes, 0.5)
        [0, 2]
        """
        boxes = self._detections(detections)
        if not is_real(threshold):
            raise DTypeError(f"nms: threshold must be a number, got {brief(threshold)}")
        if threshold != threshold:
            raise ArgumentError("nms: threshold is nan; give the overlap from which on boxes are dropped, such as 0.7")
        request = Suppression(float(threshold), bool(normalized))
        kept: list[int] = []
        self._run_primitive("nms", lambda: kept.extend(self._nms(request, boxes)), (), (boxes.shape,), boxes.nbytes)
        return kept

    # Checks

    def _check_regions(
        self,
        name: str,
        features: Any,
        rois: Any,
        sizes: dict[str, int],
        scale: Any,
        pooled: Any = None,
        called: tuple[str, str] = ("I", "O"),
    ) -> RoiPooling:
        """Check a call on the map ``features`` and return its request.

        ``called`` names the map and its pooled tensor.
        """
        what = called[0]
        require_tensors(self, name, **{what: features, "rois": rois})
        if not is_real(scale):
            raise DTypeError(f"{name}: spatial_scale must be a number, got {brief(scale)}")
        if not 0 < float(scale) < float("inf"):
            raise ArgumentError(f"{name}: spatial_scale must be above 0, got {scale}")
        channels, height, width = sizes["C"], sizes["H"], sizes["W"]
        images, rest = divmod(features.size, channels * height * width)
        if rest:
            raise ShapeError(
                f"{name}: {what} must hold maps of {channels}x{height}x{width} = {channels * height * width} elements, "
                f"got {features.shape} = {features.size}"
            )
        if rois.shape != (sizes["roi_count"], 5):
            raise ShapeError(
                f"{name}: rois must have the shape {(sizes['roi_count'], 5)}, rows of image, xmin, ymin, xmax, ymax; "
                f"got {rois.shape}"
            )
        _check_count(name, called[1], pooled, sizes)
        wanted = sizes["pooled_height"], sizes["pooled_width"], sizes["roi_count"]
        return RoiPooling(channels, height, width, images, *wanted, float(scale))

    def _check_places(self, name: str, request: RoiPooling, rois: Any, argmax: Any = None) -> None:
        """Raise unless every region is in one of the images, and ``argmax`` has possible values of a forward pass."""
        row, outside = self._misplaced(request, rois, argmax)
        if row is not None:
            raise ArgumentError(
                f"{name}: row {row} of rois is {rois.get()[row].tolist()}; expected the number of one of "
                f"{request.N} images and four finite coordinates, as (image, xmin, ymin, xmax, ymax)"
            )
        if outside:
            where = argmax.get()
            raise ArgumentError(
                f"{name}: argmax must hold positions in a map of {request.H}x{request.W} elements, or -1, but reaches "
                f"from {where.min()} to {where.max()}; pass what roipooling_fprop wrote"
            )

    def _check_pooled(self, name: str, request: RoiPooling, argmax: Any, **tensors: Any) -> None:
        """Raise unless ``argmax`` and the other pooled tensor have the pooled size."""
        require_tensors(self, name, argmax=argmax, **tensors)
        for what, tensor in {"argmax": argmax, **tensors}.items():
            check_size(name, what, tensor, request.pooled, "C, pooled_height, pooled_width, roi_count")
        if argmax.dtype != np.int32:
            raise DTypeError(
                f"{name}: argmax must be of int32, got {argmax.dtype.name}; give be.empty(shape, dtype=np.int32)"
            )

    def _detections(self, detections: Any) -> Any:
        """Detections as a tensor (boxes, 5); an array is converted to float64."""
        self.check_open("nms")
        if isinstance(detections, Tensor):
            check_tensors(self, "nms", detections=detections)
        if not isinstance(detections, (Tensor, np.ndarray)) or not _has_numbers(detections):
            kind = f" of {detections.dtype.name}" if hasattr(detections, "dtype") else ""
            raise DTypeError(
                f"nms: detections must be a tensor or an array of numbers, got {type(detections).__name__}{kind}"
            )
        if detections.ndim != 2 or detections.shape[1] != 5:
            raise ShapeError(
                f"nms: detections must have the shape (boxes, 5), rows of x1, y1, x2, y2, score; got {detections.shape}"
            )
        return detections if isinstance(detections, Tensor) else self.wrap(detections.astype(np.float64))

    # Hooks, with the definitions

    def _misplaced(self, request: RoiPooling, rois: Any, argmax: Any) -> tuple[int | None, bool]:
        """First row of ``rois`` in no image or not finite, if any; whether a position is outside the map."""
        values = np.asarray(rois.asnumpyarray(), np.float64)
        images = values[:, 0]
        lost = ~np.isfinite(values).all(axis=1) | (images != np.floor(images)) | (images < 0) | (images >= request.N)
        where = np.empty(0, np.int32) if argmax is None else argmax.asnumpyarray()
        outside = where.size > 0 and (where.min() < -1 or where.max() >= request.H * request.W)
        return int(lost.argmax()) if lost.any() else None, bool(outside)

    def _fprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        features, bins = host(I, request.map), bins_of(request, rois)
        channels = np.arange(request.C)
        with written(O, request.pooled) as out, written(argmax, request.pooled) as where:
            out[...], where[...] = 0, -1
            for p, q, region in itertools.product(*map(range, request.pooled[1:])):
                (top, bottom), (left, right) = bins.rows[region, p], bins.columns[region, q]
                window = features[:, top:bottom, left:right, bins.images[region]]
                if window.size:
                    flat = window.reshape(request.C, -1)
                    at = flat.argmax(axis=1)  # the first one; nan counts as the largest
                    out[:, p, q, region] = flat[channels, at]
                    row, column = np.divmod(at, right - left)
                    where[:, p, q, region] = (top + row) * request.W + left + column

    def _bprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        error, where = host(I, request.pooled), host(argmax, request.pooled)
        channel, _, _, region = found = np.nonzero(where >= 0)
        images = images_of(rois)
        with written(O, (request.C, request.H * request.W, request.N)) as delta:
            delta[...] = 0
            np.add.at(delta, (channel, where[found], images[region]), error[found])

    def _nms(self, request: Suppression, detections: Any) -> list[int]:
        """Hook: see :meth:`nms`."""
        rows, corners = ranked(detections)
        x1, y1, x2, y2 = corners
        areas = box_areas(corners, request.offset)
        gone = np.zeros(areas.size, np.bool_)
        with np.errstate(all="ignore"):
            for i in range(areas.size):
                if gone[i]:
                    continue
                rest = slice(i + 1, None)
                width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest]) + request.offset
                height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest]) + request.offset
                shared = np.maximum(width, 0) * np.maximum(height, 0)
                gone[rest] |= shared / (areas[i] + areas[rest] - shared) > request.threshold
        return [int(row) for row in rows[~gone]]


def _sizes(
    name: str, roi_count: Any, C: Any, H: Any, W: Any, pooled_height: Any, pooled_width: Any, others: tuple[Any, ...]
) -> dict[str, int]:
    """The sizes by name, each from whichever of its two names was given."""
    sizes = {"C": C, "H": H, "W": W, "pooled_height": pooled_height, "pooled_width": pooled_width}
    for key, other_name, other in zip("CHW", ("fm_channel", "fm_height", "fm_width"), others):
        if other is not None and sizes[key] is not None:
            raise ArgumentError(f"{name}: {key} and {other_name} are one argument; give one of them")
        sizes[key] = other if sizes[key] is None else sizes[key]
    for key, size in sizes.items():
        if size is None:
            raise MissingArgument(f"{name}: {key} is missing")
    whole(name, 0, roi_count=roi_count)
    whole(name, **sizes)
    return {key: int(size) for key, size in {"roi_count": roi_count, **sizes}.items()}


def _has_numbers(detections: Any) -> bool:
    return detections.dtype.kind in "fiu" or detections.dtype.name == BFLOAT16


def _check_count(name: str, what: str, tensor: Any, sizes: dict[str, int]) -> None:
    """Raise ShapeError if ``tensor`` does not have the pooled size, before anything of that size is allocated."""
    wanted = sizes["C"] * sizes["pooled_height"] * sizes["pooled_width"] * sizes["roi_count"]
    if isinstance(tensor, Tensor) and tensor.size != wanted:
        raise ShapeError(
            f"{name}: {what} must have C * pooled_height * pooled_width * roi_count = {wanted} elements, "
            f"got {tensor.shape} = {tensor.size}"
        )
