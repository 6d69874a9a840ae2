"""Region pooling against plain loops."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import roi as kernels
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import check_other_backends, refused_after_cleanup, use_threads

pytestmark = pytest.mark.engines("numpy", "c")

Array = np.ndarray[Any, Any]


# Region pooling in loops --------------------------------------------------------------------------------------------


def positions(low: float, high: float, scale: float, part: int, parts: int, length: int) -> list[int]:
    """Positions along an axis in bin ``part`` of a region from ``low`` to ``high``."""
    first, last = round(low * scale), round(high * scale)
    step = max(last - first + 1, 1) / parts
    begin, end = first + math.floor(part * step), first + math.ceil((part + 1) * step)
    return [at for at in range(begin, end) if 0 <= at < length]


def pooled(features: Array, rois: Array, high: int, wide: int, scale: float) -> tuple[Array, Array]:
    """Largest elements (C, high, wide, regions) of ``features`` (C, H, W, N), and their positions."""
    channels, height, width, _ = features.shape
    out = np.zeros((channels, high, wide, len(rois)), features.dtype)
    where = np.full(out.shape, -1)
    for region, (image, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = corners
        for p in range(high):
            for q in range(wide):
                ys = positions(y1, y2, scale, p, high, height)
                xs = positions(x1, x2, scale, q, wide, width)
                for c in range(channels):
                    for y in ys:
                        for x in xs:
                            value, cell = features[c, y, x, int(image)], (c, p, q, region)
                            best = out[cell]
                            if where[cell] < 0 or value > best or (np.isnan(value) and not np.isnan(best)):
                                out[cell], where[cell] = value, y * width + x
    return out, where


def spread(error: Array, where: Array, images: Array, shape: tuple[int, ...]) -> Array:
    """Errors (C, high, wide, regions) at their positions in maps of ``shape`` (C, H, W, N), added up."""
    channels, height, width, count = shape
    delta = np.zeros((channels, height * width, count))
    for c, p, q, region in np.ndindex(error.shape):
        if where[c, p, q, region] >= 0:
            delta[c, where[c, p, q, region], images[region]] += error[c, p, q, region]
    return delta.reshape(shape)


REGIONS = [
    (0, 0, 15, 15), (16, 32, 79, 111), (8, 24, 40, 56), (24, 8, 24, 8), (-40, -24, 30, 40), (60, 50, 400, 500),
    (-300, 10, -200, 60), (10, 900, 60, 990), (100, 100, 20, 30), (0, 0, 463, 463), (3.3, 7.9, 61.2, 88.8),
    (32, 0, 32, 200), (7, 7, 8.1, 8.1), (-8, -8, 8, 8),
]  # fmt: skip
"""xmin, ymin, xmax, ymax: inside, on halves of an element (of 16 pixels), of one element, partly and all outside, the
corners swapped, larger than the map, and with 29 elements, of which seven bins take 30 as 7 * (29 / 7) is above 29."""


class Case:
    """Tensors of one pooling, and its passes on the backend."""

    def __init__(
        self, be: Backend, shape: tuple[int, int, int, int], grid: tuple[int, int] = (3, 2), dtype: Any = np.float32,
        regions: Any = REGIONS, scale: float = 1 / 16,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(0)
        self.be, self.shape, self.grid, self.scale, self.dtype = be, shape, grid, scale, dtype
        self.features = rng.integers(-50, 50, shape).astype(dtype) / 4  # with ties
        self.images = rng.integers(0, shape[3], len(regions))
        self.rois = np.column_stack([self.images, np.reshape(regions, (-1, 4))]).astype(np.float32)
        self.out_shape = (shape[0], *grid, len(regions))
        matrix = (shape[0] * grid[0] * grid[1], len(regions))
        self.error = rng.integers(-8, 8, self.out_shape).astype(dtype)
        self.I = be.array(self.features.reshape(-1, shape[3]), dtype=dtype)
        self.R = be.array(self.rois)
        self.E = be.array(self.error.reshape(matrix), dtype=dtype)
        self.O = be.array(np.full(matrix, np.nan), dtype=dtype)
        self.argmax = be.array(np.full(matrix, 77), dtype=np.int32)
        self.delta = be.array(np.full(self.I.shape, np.nan), dtype=dtype)

    def sizes(self) -> tuple[Any, ...]:
        return (len(self.rois), *self.shape[:3], *self.grid, self.scale)

    def fprop(self, *sizes: Any, **options: Any) -> Any:
        return self.be.roipooling_fprop(self.I, self.R, self.O, self.argmax, *(sizes or self.sizes()), **options)

    def bprop(self, *sizes: Any, **options: Any) -> Any:
        return self.be.roipooling_bprop(self.E, self.R, self.delta, self.argmax, *(sizes or self.sizes()), **options)

    def check(self) -> None:
        """Both passes, to the last bit: nothing is rounded, errors being small whole numbers."""
        assert self.fprop() is None
        out, where = pooled(self.features, self.rois, *self.grid, self.scale)
        np.testing.assert_array_equal(self.O.get().reshape(self.out_shape), out)
        np.testing.assert_array_equal(self.argmax.get().reshape(self.out_shape), where)
        assert self.bprop() is None
        wanted = spread(self.error, where, self.images, self.shape)
        np.testing.assert_array_equal(self.delta.get().reshape(self.shape), wanted)
        assert (self.I.get() == self.features.reshape(self.I.shape)).all()
        assert (self.E.get() == self.error.reshape(self.E.shape)).all()


def test_sizes_of_numpys_narrow_integers(be: Backend) -> None:
    case = Case(be, (70, 9, 8, 1))
    case.fprop()
    case.bprop()
    wanted = [tensor.get() for tensor in (case.O, case.argmax, case.delta)]
    case.O[:], case.delta[:] = 0, 0
    sizes = (*map(np.uint8, case.sizes()[:-1]), np.float32(1 / 16))
    case.fprop(*sizes)
    case.bprop(*sizes)
    assert all(np.array_equal(t.get(), its) for t, its in zip((case.O, case.argmax, case.delta), wanted))


# Region pooling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(1, 1), (3, 2), (7, 7)])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, 9, 6, 3), (3, 7, 29, 1), (5, 32, 30, 2), (33, 5, 8, 1), (70, 4, 3, 2)]
)
def test_pooling_and_its_gradient(be: Backend, shape: tuple[int, int, int, int], grid: tuple[int, int]) -> None:
    Case(be, shape, grid).check()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1 / 16, 0.3, 1, 2.5])
def test_scales_and_dtypes(be: Backend, scale: float, dtype: Any) -> None:
    Case(be, (3, 13, 17, 2), (4, 3), dtype, scale=scale).check()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_counts_of_regions(be: Backend, count: int) -> None:
    rng = np.random.default_rng(count)
    Case(be, (4, 9, 8, 3), regions=rng.integers(-20, 170, (count, 4))).check()


def test_regions_are_given_as_x_and_y(be: Backend) -> None:
    """A row of rois is (image, xmin, ymin, xmax, ymax): columns before rows."""
    case = Case(be, (1, 4, 6, 2), (1, 1), regions=[(16, 0, 32, 48)])
    case.R[:] = be.array([[1, 16, 0, 32, 48]])
    case.I[:] = be.array(np.arange(48.0).reshape(24, 2))
    case.fprop()
    assert case.argmax.get().item() == 3 * 6 + 2
    assert case.O.get().item() == 2 * (3 * 6 + 2) + 1


def test_halves_go_to_the_even_element(be: Backend) -> None:
    case = Case(be, (1, 1, 8, 1), (1, 1), regions=[(8, 0, 8, 0), (24, 0, 24, 0), (40, 0, 40, 0), (56, 0, 56, 0)])
    case.fprop()
    assert case.argmax.get().ravel().tolist() == [0, 2, 2, 4]


def test_bins_without_elements_give_zero(be: Backend) -> None:
    case = Case(be, (2, 3, 3, 1), (2, 2), regions=[(-160, 0, -100, 40), (0, 0, 48, 32)])
    case.I[:] = -5
    case.fprop()
    out, where = case.O.get().reshape(case.out_shape), case.argmax.get().reshape(case.out_shape)
    assert (out[..., 0] == 0).all()
    assert (where[..., 0] == -1).all()
    assert (out[..., 1] == -5).all()
    assert where[1, :, :, 1].tolist() == [[0, 2], [3, 5]]
    case.bprop()
    assert case.delta.get().sum() == pytest.approx(case.error[..., 1].sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_corners_far_away(be: Backend, dtype: Any) -> None:
    """Up to the largest numbers, which times the scale are infinite."""
    far, features = float(np.finfo(dtype).max), be.array(np.arange(18.0).reshape(9, 2))
    regions = [[0, -far, -far, far, far], [1, 0, 0, far, far], [1, far, 0, far, 1], [0, 0, -far, 1, far]]
    rois, out = be.array(np.array(regions), dtype=dtype), be.empty((1, 4))
    argmax = be.empty((1, 4), dtype=np.int32)
    be.roipooling_fprop(features, rois, out, argmax, 4, 1, 3, 3, 1, 1, 16.0)
    np.testing.assert_array_equal(out.get(), [[16, 17, 0, 16]])
    np.testing.assert_array_equal(argmax.get(), [[8, 8, -1, 8]])


def test_nan_is_the_largest_and_infinities_are_numbers(be: Backend) -> None:
    case = Case(be, (40, 9, 11, 2))
    rng = np.random.default_rng(3)
    for value, share in ((np.nan, 0.02), (-np.inf, 0.5), (np.inf, 0.02)):
        case.features[rng.random(case.features.shape) < share] = value
    case.I[:] = be.array(case.features.reshape(case.I.shape))
    case.fprop()
    out, where = pooled(case.features, case.rois, *case.grid, case.scale)
    assert np.isnan(out).any()
    np.testing.assert_array_equal(case.O.get().reshape(case.out_shape), out)
    np.testing.assert_array_equal(case.argmax.get().reshape(case.out_shape), where)
    case.features[:] = -np.inf
    case.I[:] = be.array(case.features.reshape(case.I.shape))
    case.fprop()
    assert (case.argmax.get().reshape(case.out_shape) == pooled(case.features, case.rois, 3, 2, case.scale)[1]).all()


def test_backward_is_the_gradient_of_forward(be: Backend) -> None:
    case = Case(be, (2, 6, 7, 2), dtype=np.float64, regions=REGIONS[:6])
    rng = np.random.default_rng(1)
    values = rng.permutation(case.features.size).reshape(case.I.shape) * 1.0  # no ties
    towards = rng.standard_normal(values.shape)
    losses = []
    for step in (1e-3, -1e-3, 0):
        case.I[:] = be.array(values + step * towards, dtype=np.float64)
        case.fprop()
        losses.append((case.O.get() * case.E.get()).sum())
    case.bprop()
    assert (case.delta.get() * towards).sum() == pytest.approx((losses[0] - losses[1]) / 2e-3, rel=1e-8)


def test_views_and_integer_regions(be: Backend) -> None:
    case = Case(be, (3, 9, 8, 2), regions=[region for region in REGIONS if all(v == int(v) for v in region)])
    rows, columns = case.O.shape
    case.I = be.array(np.ascontiguousarray(case.features.reshape(case.I.shape).T)).T
    case.R = be.array(case.rois, dtype=np.int32)
    case.O = be.array(np.full((rows, 2 * columns), 9.0))[:, ::2]
    case.argmax = be.array(np.full((2 * rows, columns), 9), dtype=np.int32)[::2]
    case.E = be.array(np.ascontiguousarray(case.E.get().T)).T
    case.delta = be.array(np.full((9, 2 * case.I.size // 9), 9.0))[:, ::2]
    assert not case.delta.is_contiguous
    case.check()


def test_no_regions(be: Backend) -> None:
    case = Case(be, (3, 9, 8, 2), regions=np.empty((0, 4)))
    case.fprop()
    case.bprop()
    assert (case.delta.get() == 0).all()


def test_the_names_of_the_gpu(be: Backend) -> None:
    case = Case(be, (3, 9, 8, 2))
    named: dict[str, float] = {"fm_channel": 3, "fm_height": 9, "fm_width": 8, "pooled_height": 3, "pooled_width": 2}
    named["spatial_scale"] = 1 / 16
    case.fprop(len(case.rois), **named)
    case.bprop(len(case.rois), **named)
    out, delta = case.O.get(), case.delta.get()
    case.check()
    assert (out == case.O.get()).all()
    assert (delta == case.delta.get()).all()
    for method in (be.roipooling_fprop, be.roipooling_bprop):
        wanted = "I rois O argmax roi_count C H W pooled_height pooled_width spatial_scale".split()
        assert [*inspect.signature(method).parameters][: len(wanted)] == wanted


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_agree_with_the_definition_for_any_threads(
    compiled: Backend, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    rng = np.random.default_rng(2)
    case = Case(compiled, (70, 9, 8, 2), dtype=dtype, regions=rng.integers(-20, 170, (50, 4)))
    case.E[:] = compiled.array(rng.standard_normal(case.E.shape), dtype=dtype)
    request = compiled._check_regions("test", case.I, case.R, dict(zip(
        ("roi_count", "C", "H", "W", "pooled_height", "pooled_width"), case.sizes())), case.scale)  # fmt: skip
    results = []
    for family, threads in (*((kernels.RoiKernels, count) for count in "125"), (RoiFamily, "1")):
        use_threads(monkeypatch, threads)
        family._fprop_roi(compiled, request, case.I, case.R, case.O, case.argmax)  # type: ignore[arg-type]
        family._bprop_roi(compiled, request, case.E, case.R, case.delta, case.argmax)  # type: ignore[arg-type]
        results.append([tensor.get().tobytes() for tensor in (case.O, case.argmax, case.delta)])
    assert all(result == results[0] for result in results)


# Errors of region pooling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "half", "size", "none"])
@pytest.mark.parametrize("name", ["I", "R", "O", "argmax", "E", "delta"])
def test_wrong_tensors_write_nothing(be: Backend, name: str, kind: str) -> None:
    case = Case(be, (3, 9, 8, 2))
    case.O[:] = case.delta[:] = 7
    case.argmax[:] = 5
    outputs = {key: getattr(case, key) for key in ("O", "argmax", "delta")}
    shape = getattr(case, name).shape
    if (name, kind) == ("R", "half"):
        return  # any numbers will do
    wrong: tuple[Any, type[Exception]] = {
        "array": (np.ones(shape, np.float32), DTypeError),
        "half": (be.ones(shape, dtype=np.float64), DTypeError),
        "size": (be.ones((shape[0] + 1, shape[1]), dtype=np.int32 if name == "argmax" else np.float32), ShapeError),
        "none": (None, DTypeError),
    }[kind]
    setattr(case, name, wrong[0])
    passes = {"I": [case.fprop], "O": [case.fprop], "E": [case.bprop], "delta": [case.bprop]}
    for run in passes.get(name, [case.fprop, case.bprop]):
        with pytest.raises(wrong[1], match=f"roipooling_{run.__name__}") as raised:
            run()
        assert isinstance(raised.value, AssertionError)
    for key, tensor in outputs.items():
        assert (tensor.get() == (5 if key == "argmax" else 7)).all()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"roi_count": 3}, ShapeError, "rois must have the shape"),
        ({"roi_count": -1}, ArgumentError, "roi_count must be at least 0"),
        ({"C": 4}, ShapeError, "maps of 4x9x8"),
        ({"H": 0}, ArgumentError, "H must be at least 1"),
        ({"W": 8.0}, DTypeError, "W must be an integer"),
        ({"W": None}, ArgumentError, "W is missing"),
        ({"pooled_height": None}, ArgumentError, "pooled_height is missing"),
        ({"pooled_width": 3}, ShapeError, "pooled_width"),
        ({"pooled_width": 0}, ArgumentError, "pooled_width must be at least 1"),
        ({"spatial_scale": None}, DTypeError, "spatial_scale must be a number"),
        ({"spatial_scale": 0}, ArgumentError, "spatial_scale must be above 0"),
        ({"spatial_scale": np.nan}, ArgumentError, "spatial_scale must be above 0"),
        ({"fm_channel": 3}, ArgumentError, "C and fm_channel are one argument"),
        ({"fm_height": 9}, ArgumentError, "H and fm_height are one argument"),
        ({"fm_width": 8}, ArgumentError, "W and fm_width are one argument"),
    ],
)
def test_wrong_sizes(be: Backend, changes: dict[str, Any], error: type[Exception], words: str) -> None:
    case = Case(be, (3, 9, 8, 2))
    case.argmax[:] = 5
    names = ("C", "H", "W", "pooled_height", "pooled_width", "spatial_scale")
    sizes = {**dict(zip(("roi_count", *names), case.sizes())), **changes}
    count = sizes.pop("roi_count")
    for run in (case.fprop, case.bprop):
        with pytest.raises(error, match=words):
            run(count, **sizes)
    assert np.isnan(case.O.get()).all()
    assert np.isnan(case.delta.get()).all()


@pytest.mark.parametrize(
    "row", [(2, 0, 0, 9, 9), (-1, 0, 0, 9, 9), (0.5, 0, 0, 9, 9), (0, np.nan, 0, 9, 9), (0, 0, 0, 9, np.inf)]
)
def test_regions_in_no_image_or_nowhere(be: Backend, row: tuple[float, ...]) -> None:
    case = Case(be, (3, 9, 8, 2))
    case.argmax[:] = 5
    case.R[4:5] = be.array([row])
    for run in (case.fprop, case.bprop):
        with pytest.raises(ArgumentError, match=r"row 4 of rois.* 2 images"):
            run()
    assert np.isnan(case.O.get()).all()


@pytest.mark.parametrize("position", [-2, 72])
def test_positions_outside_the_map_are_refused(be: Backend, position: int) -> None:
    case = Case(be, (3, 9, 8, 2))
    case.fprop()
    case.argmax[3, 3] = position
    with pytest.raises(ArgumentError, match="map of 9x8 elements, or -1, but reaches"):
        case.bprop()
    assert np.isnan(case.delta.get()).all()
    case.argmax[3, 3] = 71
    case.bprop()


def test_outputs_need_memory_of_their_own(be: Backend) -> None:
    case = Case(be, (6, 2, 2, 14), (2, 2))  # what is pooled is as large as the map
    i, rois, argmax = case.I, case.R, case.argmax
    with pytest.raises(AliasError, match="shares memory"):
        be.roipooling_fprop(i, rois, i, argmax, *case.sizes())
    inside = case.O[:14, :5]
    inside[:] = rois
    with pytest.raises(AliasError, match="O shares memory with rois"):
        be.roipooling_fprop(i, inside, case.O, argmax, *case.sizes())
    case.fprop()
    with pytest.raises(AliasError, match="shares memory"):
        be.roipooling_bprop(i, rois, i, argmax, *case.sizes())


def test_closed_and_foreign_backends(be: Backend) -> None:
    case = Case(be, (3, 9, 8, 2))
    check_other_backends(case)
    with refused_after_cleanup():
        be.nms(np.ones((2, 5)), 0.5)
