"""Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``."""

from __future__ import annotations

import itertools
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.families.base import Family
from neonlike.backends.families.operands import (
    Array,
    check_apart,
    check_floats,
    check_size,
    check_tensors,
    host,
    require_tensors,
    written,
)
from neonlike.backends.geometry.sizes import whole
from neonlike.backends.tensor import Tensor
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, MissingArgument, OutOfMemory, ShapeError


class Regions(NamedTuple):
    """What a region pooling works on.

    Attributes
    ----------
    C, H, W, N : int
        Sizes of the feature map.
    images : integer array (regions,)
        The image that each region lies in.
    rows, columns : integer arrays (regions, pooled_height, 2), (regions, pooled_width, 2)
        First and past-the-last row (column) of each bin, within the map.
    """

    C: int
    H: int
    W: int
    N: int
    images: Array
    rows: Array
    columns: Array

    @property
    def map(self) -> tuple[int, int, int, int]:
        """Shape of the feature map."""
        return self.C, self.H, self.W, self.N

    @property
    def pooled(self) -> tuple[int, int, int, int]:
        """Shape of what is pooled: channels, pooled rows and columns, regions."""
        return self.C, self.rows.shape[1], self.columns.shape[1], len(self.images)


class RoiFamily(Family):
    """Regions of interest: ``roipooling_fprop``, ``roipooling_bprop``, ``nms``."""

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
        """The largest activation in each bin of a grid laid over each region of interest (Girshick 2015, section 2.1).

        A region reaches from ``round(min * spatial_scale)`` to ``round(max * spatial_scale)``, halves going to the
        even neighbour, and is at least one element high and wide. Bin ``h`` of a region of ``side`` rows has the rows
        from ``floor(h * side / pooled_height)`` to before ``ceil((h + 1) * side / pooled_height)``, with the quotient
        in float64; what lies outside the map is cut off. Bins with nothing left give 0. nan is larger than any number.

        Parameters
        ----------
        I : tensor (C * H * W, N)
            Feature map.
        rois : tensor (roi_count, 5), of floats or integers
            Rows (image, xmin, ymin, xmax, ymax), the last four in pixels.
        O : tensor (C * pooled_height * pooled_width, roi_count)
            Written.
        argmax : int32 tensor of that size
            Written: ``h * W + w`` of the first largest element; -1 for an empty bin.
        roi_count, C, H, W, pooled_height, pooled_width : int
        spatial_scale : float
            Size of the feature map divided by that of the image.
        fm_channel, fm_height, fm_width : int
            Other names of C, H and W.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the sizes or each other.
        ArgumentError
            If a size or the scale is missing or not positive, or a region lies in no image or at no finite place.
            Nothing is written after any of these.
        """
        name = "roipooling_fprop"
        sizes = _sizes(name, roi_count, C, H, W, pooled_height, pooled_width, (fm_channel, fm_height, fm_width))
        regions = self._regions(name, I, rois, sizes, spatial_scale, O)
        self._check_pooled(name, regions, argmax, O=O)
        check_floats(name, I=I, O=O)
        check_apart(name, {"O": O, "argmax": argmax}, {"I": I, "rois": rois})
        moved = I.nbytes + O.nbytes + argmax.nbytes
        self._run_primitive(
            name, lambda: self._fprop_roi(I, O, argmax, regions), (O, argmax), (regions.map, regions.pooled), moved
        )

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
        """Error of the feature map: each error goes where the largest element of its bin was, and they add up there.

        Parameters
        ----------
        I : tensor (C * pooled_height * pooled_width, roi_count)
            Error of what the forward pass wrote.
        rois, argmax : tensors
            As in the forward pass.
        O : tensor (C * H * W, N)
            Overwritten: 0 where no error goes.
        roi_count, C, H, W, pooled_height, pooled_width, spatial_scale, fm_channel, fm_height, fm_width
            As in the forward pass.

        Raises
        ------
        DTypeError, ShapeError, AliasError, ArgumentError
            As the forward pass, and if ``argmax`` holds what none would write there; nothing is written then.
        """
        name = "roipooling_bprop"
        sizes = _sizes(name, roi_count, C, H, W, pooled_height, pooled_width, (fm_channel, fm_height, fm_width))
        regions = self._regions(name, O, rois, sizes, spatial_scale, I, ("O", "I"))
        self._check_pooled(name, regions, argmax, I=I)
        check_floats(name, I=I, O=O)
        check_apart(name, {"O": O}, {"I": I, "rois": rois, "argmax": argmax})
        where = argmax.asnumpyarray()
        if where.size and (where.min() < -1 or where.max() >= regions.H * regions.W):
            raise ArgumentError(
                f"{name}: argmax must hold positions in a map of {regions.H}x{regions.W} elements, or -1, but reaches "
                f"from {where.min()} to {where.max()}; pass what roipooling_fprop wrote"
            )
        moved = I.nbytes + O.nbytes + argmax.nbytes
        self._run_primitive(
            name, lambda: self._bprop_roi(I, O, argmax, regions), (O,), (regions.map, regions.pooled), moved
        )

    def nms(self, detections: Any, threshold: float, normalized: bool = False) -> list[int]:
        """Which boxes remain if, from the best on, each one drops all others that overlap it much.

        Two boxes overlap by their intersection divided by their union. Rows of score 0 are left out. A box that has no
        such quotient, since both are empty or a coordinate is nan, neither drops others nor is dropped.

        Parameters
        ----------
        detections : tensor or array (boxes, 5)
            Rows (x1, y1, x2, y2, score). By descending score, as detectors give them; others are sorted first, equal
            scores staying in order.
        threshold : float
            Boxes that overlap a better one by more are dropped.
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
            If the threshold or a score is nan, which has no place in the order.
        """
        values = self._detections(detections)
        if not isinstance(threshold, Real):
            raise DTypeError(f"nms: threshold must be a number, got {brief(threshold)}")
        if threshold != threshold:
            raise ArgumentError("nms: threshold is nan; give the overlap from which on boxes are dropped, such as 0.7")
        scores = values[:, 4]
        if np.isnan(scores).any():
            raise ArgumentError(f"nms: the score in row {int(np.isnan(scores).argmax())} is nan, so it has no rank")
        rows = np.flatnonzero(scores)
        if (np.diff(scores[rows]) > 0).any():
            rows = rows[np.argsort(-scores[rows], kind="stable")]
        corners = np.ascontiguousarray(values[rows, :4].T)
        kept: list[int] = []

        def run() -> None:
            kept.extend(rows[self._nms(corners, float(threshold), 0.0 if normalized else 1.0)].tolist())

        self._run_primitive("nms", run, (), (values.shape,), values.nbytes)
        return kept

    # Checks

    def _regions(
        self,
        name: str,
        features: Any,
        rois: Any,
        sizes: dict[str, int],
        scale: Any,
        pooled: Any = None,
        called: tuple[str, str] = ("I", "O"),
    ) -> Regions:
        """Where the bins lie on the map ``features``; raises on anything that does not fit.

        ``called`` names the map and what is ``pooled`` of it.
        """
        what = called[0]
        require_tensors(self, name, **{what: features, "rois": rois})
        if not isinstance(scale, Real):
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
        values = np.asarray(rois.asnumpyarray(), np.float64)
        _check_rois(name, values, images)
        corners = np.rint(values[:, 1:] * float(scale))
        _check_count(name, called[1], pooled, sizes)
        rows = _bins(corners[:, 1], corners[:, 3], sizes["pooled_height"], height)
        columns = _bins(corners[:, 0], corners[:, 2], sizes["pooled_width"], width)
        return Regions(channels, height, width, images, values[:, 0].astype(np.int64), rows, columns)

    def _check_pooled(self, name: str, regions: Regions, argmax: Any, **tensors: Any) -> None:
        """Raise unless ``argmax`` and the other tensor of the size of what is pooled are that."""
        require_tensors(self, name, argmax=argmax, **tensors)
        for what, tensor in {"argmax": argmax, **tensors}.items():
            check_size(name, what, tensor, regions.pooled, "C, pooled_height, pooled_width, roi_count")
        if argmax.dtype != np.int32:
            raise DTypeError(
                f"{name}: argmax must be of int32, got {argmax.dtype.name}; give be.empty(shape, dtype=np.int32)"
            )

    def _detections(self, detections: Any) -> Array:
        """Detections as a float64 array (boxes, 5)."""
        self.check_open("nms")
        if isinstance(detections, Tensor):
            check_tensors(self, "nms", detections=detections)
            detections = detections.asnumpyarray()
        if not isinstance(detections, np.ndarray) or detections.dtype.kind not in "fiu":
            raise DTypeError(
                f"nms: detections must be a tensor or an array of numbers, got {type(detections).__name__}"
            )
        if detections.ndim != 2 or detections.shape[1] != 5:
            raise ShapeError(
                f"nms: detections must have the shape (boxes, 5), rows of x1, y1, x2, y2, score; got {detections.shape}"
            )
        return detections.astype(np.float64)

    # Reference definition

    def _fprop_roi(self, I: Any, O: Any, argmax: Any, regions: Regions) -> None:  # noqa: E741
        features = host(I, regions.map)
        channels = np.arange(regions.C)
        with written(O, regions.pooled) as out, written(argmax, regions.pooled) as where:
            out[...], where[...] = 0, -1
            bins = itertools.product(*map(range, regions.pooled[1:]))
            for p, q, region in bins:
                (top, bottom), (left, right) = regions.rows[region, p], regions.columns[region, q]
                window = features[:, top:bottom, left:right, regions.images[region]]
                if window.size:
                    flat = window.reshape(regions.C, -1)
                    at = flat.argmax(axis=1)  # the first one, where a nan counts as the largest
                    out[:, p, q, region] = flat[channels, at]
                    row, column = np.divmod(at, right - left)
                    where[:, p, q, region] = (top + row) * regions.W + left + column

    def _bprop_roi(self, I: Any, O: Any, argmax: Any, regions: Regions) -> None:  # noqa: E741
        error, where = host(I, regions.pooled), host(argmax, regions.pooled)
        channel, _, _, region = found = np.nonzero(where >= 0)
        with written(O, (regions.C, regions.H * regions.W, regions.N)) as delta:
            delta[...] = 0
            np.add.at(delta, (channel, where[found], regions.images[region]), error[found])

    def _nms(self, corners: Array, threshold: float, offset: float) -> Array:
        """Positions that remain of boxes (4, boxes): x1, y1, x2, y2 in the order of descending score."""
        x1, y1, x2, y2 = corners
        areas = box_areas(corners, offset)
        gone = np.zeros(areas.size, np.bool_)
        with np.errstate(all="ignore"):
            for i in range(areas.size):
                if gone[i]:
                    continue
                rest = slice(i + 1, None)
                width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest]) + offset
                height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest]) + offset
                shared = np.maximum(width, 0) * np.maximum(height, 0)
                gone[rest] |= shared / (areas[i] + areas[rest] - shared) > threshold
        return np.flatnonzero(~gone)


def box_areas(corners: Array, offset: float) -> Array:
    """Areas (boxes,) of boxes (4, boxes)."""
    x1, y1, x2, y2 = corners
    with np.errstate(all="ignore"):
        areas: Array = (x2 - x1 + offset) * (y2 - y1 + offset)
    return areas


def _sizes(
    name: str, roi_count: Any, C: Any, H: Any, W: Any, pooled_height: Any, pooled_width: Any, others: tuple[Any, ...]
) -> dict[str, int]:
    """The sizes by name, each from the one of its two names that was given."""
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


def _check_count(name: str, what: str, tensor: Any, sizes: dict[str, int]) -> None:
    """Raise ShapeError if ``tensor`` has another size than what is pooled, before anything of that size is made."""
    wanted = sizes["C"] * sizes["pooled_height"] * sizes["pooled_width"] * sizes["roi_count"]
    if isinstance(tensor, Tensor) and tensor.size != wanted:
        raise ShapeError(
            f"{name}: {what} must have C * pooled_height * pooled_width * roi_count = {wanted} elements, "
            f"got {tensor.shape} = {tensor.size}"
        )


def _check_rois(name: str, rois: Array, images: int) -> None:
    """Raise unless every region is somewhere in one of the images."""
    lost = ~np.isfinite(rois).all(axis=1)
    lost |= (rois[:, 0] != np.floor(rois[:, 0])) | (rois[:, 0] < 0) | (rois[:, 0] >= images)
    if lost.any():
        row = int(lost.argmax())
        raise ArgumentError(
            f"{name}: row {row} of rois is {rois[row].tolist()}; expected the number of one of {images} images and "
            "four finite coordinates, as (image, xmin, ymin, xmax, ymax)"
        )


def _bins(low: Array, high: Array, count: int, length: int) -> Array:
    """First and past-the-last positions (regions, count, 2) of ``count`` bins of each region, cut off at the map."""
    step = (np.maximum(high - low + 1, 1) / count)[:, None]
    try:
        edges = np.stack((np.floor(np.arange(count) * step), np.ceil(np.arange(1, count + 1) * step)), axis=2)
    except MemoryError:
        raise OutOfMemory(f"roipooling_fprop: no memory for {count} bins a side; pool to fewer") from None
    bins: Array = np.clip(edges + low[:, None, None], 0, length).astype(np.int64)
    return bins
