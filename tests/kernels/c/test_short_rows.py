"""Elementwise expressions over rows that are too short for vectors: blocks of rows, computed as one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import stage as stage_c
from neonlike.kernels.c.fit import BLOCK_MAX, fit
from neonlike.kernels.c.schedule import REPEATED, REVERSED, SPREAD, CSchedule
from neonlike.kernels.codegen.layout import Counter
from neonlike.kernels.planning.plan import StageKind
from tests.support.engines import use_threads

pytestmark = pytest.mark.optree

SHAPES = ((1, 5000, 3), (2, 1500, 7), (3, 1024, 2), (2, 100, 127), (3, 37, 100), (5, 128, 16), (1, 70, 33))
"""One group of rows and several; blocks that are all full, and a last one that is not; about as long as rows may be."""
FORMS: dict[str, Callable[..., Any]] = {
    "the same in all rows": lambda x, same, along, apart: (x - same) * same,
    "the same along a row": lambda x, same, along, apart: x * along,
    "both, for each group": lambda x, same, along, apart: apart + x * along - same,
}


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Whole numbers, whose products with each other every dtype holds."""
    return rng.integers(0 if dtype == "uint8" else -5, 7, shape).astype(dtype)


def operands(rng: np.random.Generator, shape: tuple[int, int, int], dtype: str) -> list[Any]:
    groups, height, width = shape
    return [whole(rng, of, dtype) for of in (shape, (1, 1, width), (groups, height, 1), (groups, 1, width))]


class Stage:
    kind, axes = StageKind.ELEMENTWISE, ()


def schedule(*arrays: Any, light: bool = False) -> Any:
    found = fit(Stage(), arrays[-1].shape, list(arrays), len(arrays) - 1, light=light)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_which_rows_are_computed_by_blocks() -> None:
    x, same, along = (np.zeros(shape, np.float32) for shape in ((4, 3000, 5), (5,), (4, 3000, 1)))
    found = schedule(x, same, along, x)
    assert found.schedule == CSchedule("blocks", 2, (1, REPEATED, SPREAD, 1))
    assert found.sizes[:3] == [12000, 5, 192], "rows of 4 groups are one axis; 192 of them are 60 cache lines"
    assert found.count == 63
    backwards = x[::-1, ::-1, ::-1]
    assert schedule(backwards, same, x).schedule == CSchedule("blocks", 2, (REVERSED, REPEATED, 1))
    assert schedule(x, np.zeros((4, 1, 5), np.float32), x).schedule.rank == 3
    positions = Counter((4, 3000, 5), (15000, 5, 1))
    assert schedule(positions, same, x).schedule.form == "blocks"
    y = np.zeros((900, 32), "f")
    assert schedule(Counter((900, 32), (32, 1)), y[0], y, light=True).schedule.form == "nested"
    for arrays, why in (
        ((x, np.zeros((4, 3000, 9), np.float32)[..., :5], x), "an input whose rows are apart"),
        ((same, x, np.zeros((4, 3000, 9), np.float32)[..., :5]), "an output whose rows are apart"),
        ((x, Counter((5,), (1,)), x), "positions in a row"),
        ((x[0, :400], same, x[0, :400]), "few elements"),
    ):
        assert schedule(*arrays).schedule.form == "nested", why
    for width, light, heavy in ((127, 1, 1), (129, 0, 0), (250, 1, 1), (256, 0, 0), (32, 0, 1), (40, 1, 1), (16, 1, 1)):
        y = np.zeros((500, width), np.float32)
        assert (schedule(y, y[0], y, light=True).schedule.form == "blocks") == light, width
        assert (schedule(y, y[0], y, light=False).schedule.form == "blocks") == heavy, width


@pytest.mark.parametrize(
    ("width", "dtype", "light", "blocks"),
    [(7, "f4", True, True), (9, "f4", True, False), (9, "f4", False, True), (9, "f2", True, True)],
)
def test_what_is_spread_pays_where_rows_are_shorter_or_work_is_more(
    width: int, dtype: str, light: bool, blocks: bool
) -> None:
    x = np.zeros((900, width), dtype)
    assert (schedule(x, x[:, :1], x, light=light).schedule.form == "blocks") == blocks


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "f8"])
def test_blocks_fit_into_their_buffers(dtype: str) -> None:
    for width in range(2, 256):
        x = np.zeros((9000 // width + 70, width), dtype)
        found = schedule(x, x[0], x)
        if found.schedule.form == "blocks":
            each = found.sizes[2]
            assert 0 < each * width <= BLOCK_MAX
            assert each * width * max(x.itemsize, 4) % 64 == 0


def test_buffers_on_the_stack_are_few() -> None:
    """A stack may have 128 KiB; other forms need none."""
    x = np.zeros((900, 5))
    for inputs, form in ((4, "blocks"), (5, "nested")):
        assert schedule(x, *[x[i] for i in range(inputs)], x).schedule.form == form


@pytest.mark.compiles(3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_vary_within_rows_or_between_them(be: Backend, rng: Any, form: str, dtype: str) -> None:
    for shape in SHAPES:
        arrays = operands(rng, shape, dtype)
        out = be.empty(shape, dtype=dtype)
        out[:] = FORMS[form](*[be.array(x, dtype=dtype) for x in arrays])
        expected = FORMS[form](*[x.astype(np.float64) for x in arrays])
        np.testing.assert_array_equal(out.get(), expected.astype(dtype), str(shape))


@pytest.mark.parametrize("count", [1, 3])
def test_any_threads(be: Backend, rng: Any, monkeypatch: Any, count: int) -> None:
    """They begin in the middle of groups, and go on from one to the next."""
    use_threads(monkeypatch, count)
    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 1)
    compute = FORMS["both, for each group"]
    for shape in ((9, 3000, 5), (1, 40000, 3)):
        arrays = operands(rng, shape, "float32")
        x, *rest = [be.array(x) for x in arrays]
        out = be.empty(shape)
        out[:] = compute(x, *rest)
        np.testing.assert_array_equal(out.get(), compute(*arrays))
        x[:] = compute(x, *rest)
        np.testing.assert_array_equal(x.get(), compute(*arrays), "in place")


def test_past_the_caches(be: Backend, rng: Any, monkeypatch: Any) -> None:
    """Streaming stores, of blocks that begin at cache lines and of a last one that ends anywhere."""
    monkeypatch.setattr(stage_c, "STREAMED_BYTES", 0)
    for shape in ((2, 4001, 5), (1, 20000, 3)):
        x, same, _, _ = operands(rng, shape, "float32")
        out = be.zeros((3, *shape[1:]))
        out[: shape[0]] = be.array(x) * be.array(same) + 1
        np.testing.assert_array_equal(out.get()[: shape[0]], x * same + 1)
        np.testing.assert_array_equal(out.get()[shape[0] :], 0)


def test_in_place_and_from_a_row_of_the_target(be: Backend, rng: Any) -> None:
    x = whole(rng, (3000, 5), "float32")
    a = be.array(x)
    a -= a[:1]
    np.testing.assert_array_equal(a.get(), x - x[:1])
    a[:] = a * be.array(x[:1, ::-1].copy())[:, ::-1]
    np.testing.assert_array_equal(a.get(), (x - x[:1]) * x[:1])


def test_functions_whose_operands_are_checked_row_by_row(be: Backend, rng: Any) -> None:
    """A sine may have a whole block of large arguments; the others' results stay the same."""
    x = rng.uniform(-3, 3, (4000, 5)).astype("f")
    same = rng.uniform(-1, 1, (1, 5)).astype("f")
    x[1234, 3] = 1e6
    out = be.empty(x.shape)
    out[:] = be.sin(be.array(x) + be.array(same)) + be.exp(be.array(same))
    np.testing.assert_allclose(out.get(), np.sin((x + same).astype("d")) + np.exp(same), rtol=1e-5, atol=1e-6)


def test_random_numbers_are_those_of_long_rows(be: Backend) -> None:
    """They depend on the place of an element alone."""
    drawn = []
    for shape in ((3000, 5), (5, 3000)):
        be.rng_reset()
        out = be.empty(shape)
        out[:] = (be.zeros(shape) + be.rand()) * be.ones((1, shape[1])) + be.zeros((shape[0], 1))
        drawn.append(out.get().reshape(-1))
    np.testing.assert_array_equal(*drawn)
    assert len(np.unique(drawn[0])) > 14000
