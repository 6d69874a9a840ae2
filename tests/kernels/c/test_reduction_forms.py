"""Forms of compiled reductions: stretches of memory as lanes, rows of one chunk, narrow integers, four rows at a time.

Which form a layout takes is asked of the schedule; what it computes is compared with NumPy, on 1 and 3 threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import fit
from neonlike.kernels.c.stage import CStage
from neonlike.optree.dtypes import compute_dtype
from tests.support.engines import use_threads

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the forms of the C engine's kernels")]

REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min}
FEW_COLUMNS: Any = (
    *(((rows, columns), (0,)) for rows, columns in ((5000, 3), (4099, 17), (3001, 24), (70000, 4), (1500, 130))),
    ((40, 100, 30), (1,)),
)
"""Of many rows: lanes that fill vectors, that do not, and a last row of fewer."""
BY_TURNS: Any = (
    *(((13, 50, 20, 28), axes) for axes in ((1, 3), (0, 3), (0, 2))),
    *(((4, 90, 31), (0, 2)), ((3, 5, 7, 11, 40), (0, 2, 4)), ((7, 9, 6, 6), (0, 2, 3)), ((300, 3, 100, 5), (0, 2))),
)
"""Kept and reduced axes."""
LANES = FEW_COLUMNS + BY_TURNS
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the forms that kernels were fitted to, with the number of rows if that is known."""
    names: list[str] = []
    choose = CStage._fit

    def fit(stage: CStage, shape: Any, arrays: list[Any]) -> Any:
        found = choose(stage, shape, arrays)
        rows = found.schedule.unrolled if found is not None else 0
        names.append("none" if found is None else f"{found.schedule.form} {rows}" if rows else found.schedule.form)
        return found

    monkeypatch.setattr(CStage, "_fit", fit)
    return names


@pytest.fixture(params=(1, 3), ids="{} threads".format)
def threads(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    use_threads(monkeypatch, request.param)
    return int(request.param)


def reduced(be: Any, name: str, x: Any, axes: tuple[int, ...]) -> Any:
    """The reduction of that name as an array."""
    return getattr(be, name)(x, axis=axes).asnumpyarray()


@pytest.mark.optimized
@pytest.mark.compiles(5)
@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        *((*case, "float32") for case in LANES),
        *((*case, dtype) for case in LANES[1::5] for dtype in ("float64", "float16", "int16")),
    ],
    ids=str,
)
def test_lanes(
    be: Backend, taken: list[str], threads: int, rng: np.random.Generator, shape: Any, axes: Any, dtype: str
) -> None:
    host = (10 * rng.standard_normal(shape)).astype(dtype)
    x = be.array(host, dtype=dtype)
    for name, function in REDUCTIONS.items():
        found = reduced(be, name, x, axes)
        wanted = function(host.astype(np.float64), axis=axes, keepdims=True)
        exact = name != "sum" or dtype == "int16"
        scale = np.abs(host.astype(np.float64)).sum(axis=axes, keepdims=True)
        bound = 0 if exact else scale * {"float16": 0, "float32": 1e-7, "float64": 1e-15}[dtype]
        rounding = np.abs(wanted) * 2**-10 if dtype == "float16" else 0
        assert (np.abs(found - wanted) <= bound + rounding + (0 if exact else 1e-7 * scale)).all(), name
    assert set(taken) == {"lanes"}


@pytest.mark.parametrize(("shape", "axes"), LANES, ids=str)
def test_passes_and_epilogues_by_lanes(
    be: Backend, taken: list[str], threads: int, rng: np.random.Generator, shape: Any, axes: Any
) -> None:
    """Values and operands of columns that later passes read, one number for all, and stores of both sizes."""
    host = rng.standard_normal(shape, dtype=np.float32)
    wide = host.astype(np.float64)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    scale, shift = rng.random(kept, dtype=np.float32), rng.random((1,) * len(shape), dtype=np.float32)
    x, s, t = be.array(host), be.array(scale), be.array(shift)
    mean = wide.mean(axes, keepdims=True)
    found = (s * (x - be.mean(x, axis=axes)) + t).asnumpyarray()
    np.testing.assert_allclose(found, scale * (wide - mean) + shift, rtol=1e-5, atol=1e-5)
    found = be.sqrt(be.sum(be.square(x * s), axis=axes) + t).asnumpyarray()
    np.testing.assert_allclose(found, np.sqrt(((wide * scale) ** 2).sum(axes, keepdims=True) + shift), rtol=1e-5)
    np.testing.assert_allclose(be.var(x, axis=axes).asnumpyarray(), wide.var(axes, keepdims=True), rtol=1e-5)
    powers = be.exp(x - be.max(x, axis=axes))
    exact = np.exp(wide - wide.max(axes, keepdims=True))
    np.testing.assert_allclose(
        (powers / be.sum(powers, axis=axes)).asnumpyarray(), exact / exact.sum(axes, keepdims=True), rtol=2e-5
    )
    assert "lanes" in taken


@pytest.mark.parametrize("axes", ((0,), (0, 2)), ids=str)
def test_lanes_do_not_depend_on_threads(
    be: Backend, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, axes: Any
) -> None:
    host = rng.standard_normal((900, 40, 21) if len(axes) == 2 else (300_007, 3), dtype=np.float32)
    found = []
    for count in (1, 2, 3, 5):
        use_threads(monkeypatch, count)
        be.executor.clear()
        x = be.array(host)
        found.append([e.asnumpyarray().tobytes() for e in (be.sum(x, axis=axes), be.var(x, axis=axes))])
    assert all(other == found[0] for other in found)


def test_nan_and_infinities_by_lanes_and_by_columns(be: Backend, threads: int) -> None:
    for shape, axes in (((5000, 3), (0,)), ((30, 20, 40), (0, 2)), ((203, 700), (0,)), ((300, 70), (1,))):
        host = np.zeros(shape, np.float32)
        host.reshape(-1)[[5, 1234, 4001]] = np.nan, -np.inf, np.inf
        x = be.array(host)
        for name, function in REDUCTIONS.items():
            with np.errstate(invalid="ignore"):
                wanted = function(host, axis=axes, keepdims=True)
            np.testing.assert_array_equal(reduced(be, name, x, axes), wanted, f"{name} {shape}")


@pytest.mark.compiles(3)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", ((700, 333), (1, 150_001), (5001, 7), (64, 9), (1030, 1)), ids=str)
def test_integers_keep_their_extremes(
    be: Backend, threads: int, rng: np.random.Generator, shape: tuple[int, int], dtype: str
) -> None:
    """At both ends of the type: partial results of extremes are as narrow as the elements, sums are exact in int64."""
    limits = np.iinfo(dtype)
    host = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    for part in (host, np.full_like(host, limits.min), np.full_like(host, limits.max)):
        x = be.array(part, dtype=dtype)
        for axis in (0, 1):
            for name, function in (*REDUCTIONS.items(), ("argmax", np.argmax), ("argmin", np.argmin)):
                found = getattr(be, name)(x, axis=axis).asnumpyarray()
                wide = part.astype(np.uint64 if dtype == "uint64" else np.int64)
                wanted = function(wide, axis=axis, keepdims=True)
                np.testing.assert_array_equal(found, wanted, f"{name} over {axis}")


@pytest.mark.compiles(6)
@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
@pytest.mark.parametrize("length", (1, 2, 15, 16, 17, 49, 63, 64, 65, 100, 127, 200, 1023, 1024, 1025))
def test_rows_of_every_length(be: Backend, taken: list[str], rng: np.random.Generator, length: int, dtype: str) -> None:
    host = rng.standard_normal((61, length)).astype(dtype)
    x, wide = be.array(host, dtype=dtype), host.astype(np.float64)
    found = be.empty((61, 1), dtype=np.float64)
    for view, seen in ((x, wide), (x[::2], wide[::2]), (x[:, ::3], wide[:, ::3]), (x[::-1], wide[::-1])):
        out = found[: len(seen)]
        out[:] = be.sum(view, axis=1)
        exact = seen.sum(1, keepdims=True)
        np.testing.assert_allclose(out.get(), exact, rtol=1e-6, atol=1e-6 * np.abs(seen).sum(1).max())
        out[:] = 2 * be.max(be.absolute(view), axis=1) + 1
        np.testing.assert_allclose(out.get(), 2 * np.abs(seen).max(1, keepdims=True) + 1, rtol=1e-6)
    assert "rows" in taken or length < 49


@pytest.mark.parametrize("length", (1, 63, 64, 65, 2047, 2048, 2049, 5000, 70_001))
def test_the_place_of_the_best(be: Backend, threads: int, length: int) -> None:
    """The first of equals, also of nan, wherever it lies in a block of the search and whatever came before."""
    rng = np.random.default_rng(length)
    for place in {0, length // 2, length - 1, min(2048, length - 1)}:
        for value in (9, np.inf, np.nan):
            host = rng.random((3, length), dtype=np.float32)
            host[:, place] = value
            host[1, place:] = value
            host[2, rng.integers(length)] = np.nan
            x = be.array(host)
            np.testing.assert_array_equal(be.argmax(x, axis=1).asnumpyarray(), host.argmax(1)[:, None])
            np.testing.assert_array_equal(be.argmin(-x, axis=1).asnumpyarray(), (-host).argmin(1)[:, None])


@pytest.mark.compiles(4)
@pytest.mark.parametrize("dtype", ("float32", "float16", "float64", "int8"))
def test_the_place_of_the_best_down_few_columns(
    be: Backend, taken: list[str], threads: int, rng: np.random.Generator, dtype: str
) -> None:
    """The first of equals, also of nan, in whichever part of a column it lies."""
    for columns in (2, 4, 10, 11):
        host = rng.integers(-90, 90, (150_001, columns)).astype(dtype)
        host[70_000:, 0] = 99
        host[[65_535, 65_536, 140_000], 1] = -100
        if dtype != "int8":
            host[[100_000, 149_999], columns - 1] = np.nan
        x = be.array(host, dtype=dtype)
        for view, seen in ((x, host), (x[::-1], host[::-1]), (x[1:, :-1], host[1:, :-1])):
            np.testing.assert_array_equal(be.argmax(view, axis=0).asnumpyarray(), seen.argmax(0)[None])
            np.testing.assert_array_equal(be.argmin(view, axis=0).asnumpyarray(), seen.argmin(0)[None])
            assert taken[-1] == ("split" if seen.shape[1] <= fit.SEARCHED_COLUMNS else "columns")


@pytest.mark.compiles(8)
@pytest.mark.parametrize("rows", (1, 2, 3, 4, 5, 7, 255, 256, 257, 259, 513))
@pytest.mark.parametrize("dtype", ("float32", "float16", "float64", "int8"))
def test_columns_of_every_length(be: Backend, threads: int, rng: np.random.Generator, rows: int, dtype: str) -> None:
    """Columns are summed four rows at a time, then the rest, in a narrow accumulator that holds all or is emptied."""
    host = (9 * rng.standard_normal((rows, 1300))).astype(dtype)
    x, wide = be.array(host, dtype=dtype), host.astype(np.float64)
    for view, seen in ((x, wide), (x[:, 3:-2], wide[:, 3:-2]), (x[::-1], wide[::-1])):
        found = be.sum(view, axis=0).asnumpyarray()
        tolerance = 1e-3 if dtype == "float16" else 1e-6
        np.testing.assert_allclose(found, seen.sum(0, keepdims=True), tolerance, tolerance * np.abs(seen).sum(0).max())
        np.testing.assert_array_equal(be.min(view, axis=0).asnumpyarray(), seen.min(0, keepdims=True))


@pytest.mark.compiles(6)
@pytest.mark.parametrize("dtype", ("float32", "float16", "float64", "int8", "uint32"))
@pytest.mark.parametrize("rows", (2, 3, 4, 5, 7, 8, 11, 16, 17))
def test_few_rows_in_registers(
    be: Backend, taken: list[str], threads: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rows: int,
    dtype: str,
) -> None:  # fmt: skip
    """Few rows of many columns, with rows outside, a last block of fewer columns, epilogues, and nan."""
    monkeypatch.setattr(fit, "FEW_BYTES", 0)
    host = np.abs(9 * rng.standard_normal((3, rows, 700))).astype(dtype)
    if host.dtype.kind == "f":
        host[0, rows - 1, 5], host[1, 0, 699], host[2, rows // 2, 64] = np.nan, np.inf, -np.inf
    x = be.array(host, dtype=dtype)
    for view, seen, axis in ((x, host, 1), (x[1], host[1], 0), (x[:, ::-1, 2:-3], host[:, ::-1, 2:-3], 1)):
        wide = seen.astype(np.float64)
        for name, function in REDUCTIONS.items():
            found = reduced(be, name, view, (axis,))
            tolerance = {"float16": 1e-3, "float32": 1e-6}.get(dtype, 1e-14)
            np.testing.assert_allclose(found, function(wide, axis=axis, keepdims=True), tolerance, err_msg=name)
        found, scale = be.empty(wide.max(axis, keepdims=True).shape), be.array(np.ones((1, seen.shape[-1])))
        found[:] = 2 * be.max(view * view, axis=axis) + scale
        with np.errstate(over="ignore"):
            wanted = 2 * np.max(seen.astype(compute_dtype(seen.dtype)) ** 2, axis, keepdims=True) + 1.0
        np.testing.assert_allclose(found.get(), wanted, 1e-3 if dtype == "float16" else 1e-6)
    assert (f"columns {rows}" if rows <= fit.FEW_ROWS else "columns") in taken


def test_a_reduction_of_what_another_stage_made(be: Backend, rng: np.random.Generator) -> None:
    """A product is a stage of its own: its result is then no value of the reduction's kernel."""
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((7, 40))
    product, out, column = a @ b, be.empty((5, 1)), be.empty((1, 40))
    x, y = be.array(a), be.array(b)
    out[:] = be.sum(be.dot(x, y), axis=1)
    np.testing.assert_allclose(out.get(), product.sum(1, keepdims=True), rtol=1e-4, atol=1e-4)
    column[:] = be.max(be.dot(x, y), axis=0)
    np.testing.assert_allclose(column.get(), product.max(0, keepdims=True), rtol=1e-4, atol=1e-4)


@pytest.mark.compiles(6)
@pytest.mark.parametrize("dtype", ("float32", "float16", "float64"))
@pytest.mark.parametrize("length", (1, 7, 16, 25, 33, 63, 64, 100, 1025, 4097, 4111))
def test_a_pass_over_what_a_pass_before_it_kept(be: Backend, rng: np.random.Generator, length: int, dtype: str) -> None:
    """Values that cost much are kept along a row; the last elements of a row are those of no full vector."""
    host = rng.standard_normal((3, length)).astype(dtype)
    x, wide = be.array(host, dtype=dtype), host.astype(np.float64)
    powers, exact = be.exp(x), np.exp(wide)
    total, mean = exact.sum(1, keepdims=True), exact.mean(1, keepdims=True)
    made = {
        "sum": (be.sum(powers / be.sum(powers, axis=1), axis=1), np.ones((3, 1))),
        "max": (be.max(powers / be.sum(powers, axis=1), axis=1), (exact / total).max(1, keepdims=True)),
        "squares": (
            be.sum(be.square(powers - be.mean(powers, axis=1)), axis=1), ((exact - mean) ** 2).sum(1, keepdims=True)
        ),
        "beside": (be.sum(x * (powers - be.mean(powers, axis=1)), axis=1),
                   (wide * (exact - mean)).sum(1, keepdims=True)),
        "absolute": (be.sum(be.absolute(powers - be.max(powers, axis=1)), axis=1),
                     np.abs(exact - exact.max(1, keepdims=True)).sum(1, keepdims=True)),
    }  # fmt: skip
    for name, (expression, wanted) in made.items():
        out = be.empty((3, 1), dtype=np.float64)
        out[:] = expression
        close = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(out.get(), wanted, rtol=close, atol=close * length, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("columns", [2, 5, 10])
def test_positions_in_interleaved_rows_that_caches_do_not_hold(
    be: Backend, threads: int, taken: list[str], dtype: str, columns: int
) -> None:
    rows = (9 << 20) // (columns * np.dtype(dtype).itemsize) + 7
    host = np.random.default_rng(columns).integers(-50, 50, (rows, columns)).astype(dtype)
    host[[5, 2047, 2048, fit.SPLIT, rows - 1], 0] = 99  # the first of the largest counts
    host[rows - 3 :, 1] = -99
    host[[fit.SPLIT - 1, fit.SPLIT + 1], -1] = 98
    if dtype != "int32":
        host[[fit.SPLIT + 9, rows - 1], -1] = np.nan
    x = be.array(host, dtype=dtype)
    np.testing.assert_array_equal(be.argmax(x, axis=0).asnumpyarray()[0], host.argmax(0))
    np.testing.assert_array_equal(be.argmin(x, axis=0).asnumpyarray()[0], host.argmin(0))
    assert set(taken) == {"split"}
