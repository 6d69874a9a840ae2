"""Compiled convolution of the shapes that have plans of their own: few images, depthwise filters, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv import plan as conv_plan
from neonlike.backends.cpu.primitives.conv import thin as conv_thin
from neonlike.backends.cpu.primitives.conv.kind import Kind
from tests.backends.primitives.conv.conv_compiled import VECTORS, Guarded, Operands, compare, guarded, with_vectors
from tests.support.float64.conv_loops import Sizes, backward, forward, quarters, tensor, update

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["guarded"]

THIN = [
    Sizes(1, 6, 6, (1, 13, 17), (1, 3, 3), (0, 1, 1), groups=6),
    Sizes(1, 5, 5, (1, 12, 19), (1, 3, 3), (0, 1, 1), (1, 2, 2), groups=5),
    Sizes(3, 40, 40, (1, 9, 14), (1, 5, 5), (0, 2, 2), (1, 1, 3), groups=40),
    Sizes(33, 3, 9, (1, 11, 10), (1, 3, 2), (0, 1, 0), (1, 2, 1), groups=3),
    Sizes(2, 8, 2, (1, 9, 9), (1, 3, 3), (0, 2, 2), dil=(1, 2, 2), groups=2),
    Sizes(64, 2, 2, (13, 2, 1), (4, 3, 1), (0, 2, 2), (1, 3, 2), (3, 1, 1), groups=2),
    Sizes(2, 1, 4, (5, 6, 7), (3, 3, 3), (1, 1, 1), (2, 2, 2)),
    Sizes(1, 1, 1, (1, 1, 300), (1, 1, 11), (0, 0, 5), (1, 1, 4)),
    Sizes(900, 2, 2, (1, 25, 3), (1, 3, 3), (0, 1, 1), groups=2),
    Sizes(4, 3, 3, (1, 7, 8), (1, 2, 2), (0, 0, 0), (1, 3, 3), groups=3),
]
"""One map or channel a group: rows that are one run of lanes, steps, dilation, several areas, one to three axes."""


@pytest.mark.compiles(6, "f4-0", "f8-0", "f4-32")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", THIN, ids=str)
def test_few_channels_and_maps_a_group(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every end of the results; and by loops in float64, whose values have exact sums."""
    with_vectors(monkeypatch, nbytes)
    rng, dtype, layer = np.random.default_rng(nbytes), np.dtype(kind), s.layer(be, kind)
    vector = kernels.vector_bytes(be.compiler)
    for plan in (choice.choose_data_plan(layer, back, vector, dtype.itemsize, 2, True) for back in (False, True)):
        assert plan.kind in (Kind.THIN, Kind.DEPTHWISE)
    plan = choice.choose_update_plan(layer, vector, dtype.itemsize)
    assert plan.kind in (Kind.THIN, Kind.DEPTHWISE)
    for _ in range(3):
        compare(be, s, kind, rng)
    x = Operands(be, s, kind, rng)
    x.check(forward(s, x.image, x.filters), backward(s, x.error, x.filters), update(s, x.image, x.error))


def test_areas_of_few_rows(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lowered limit gives a small image areas of few rows, as only large images otherwise have."""
    monkeypatch.setattr(conv_thin, "AREA_LANES", 40)
    s = Sizes(3, 1, 4, (1, 9, 8), (1, 3, 3), (0, 1, 1), (1, 2, 1))
    rng, layer = np.random.default_rng(0), s.layer(be, "f4")
    plan = choice.choose_data_plan(layer, False, kernels.vector_bytes(be.compiler), 4, 2, True)
    assert plan.kind is Kind.THIN
    x = Operands(be, s, "f4", rng)
    x.check(forward(s, x.image, x.filters), backward(s, x.error, x.filters), update(s, x.image, x.error))


@pytest.mark.parametrize("step", [2, 3])
def test_long_rows_of_one_image_that_a_stride_passes_over(be: Backend, guarded: Guarded, step: int) -> None:
    """They are cut into several areas, whose packed columns begin a stride apart for each output before them."""
    s = Sizes(1, 4, 8, (1, 2, 4001), (1, 1, 3), (0, 0, 1), (1, 1, step))
    x = Operands(be, s, "f4", np.random.default_rng(0))
    x.check(forward(s, x.image, x.filters), backward(s, x.error, x.filters), update(s, x.image, x.error))


def test_errors_of_few_images_are_spread_where_the_filter_makes_steps(be: Backend) -> None:
    """And in phases where images fill a vector, or there would be little but zeros."""
    for N, step, expected in ((1, 2, True), (1, 1, False), (64, 2, False), (1, 3, False)):
        layer = Sizes(N, 4, 4, (1, 9, 9), (1, 3, 3), (0, 1, 1), (1, step, step), groups=4).layer(be, "f4")
        plan = conv_thin.thin_plan(layer, True, 64, 4)
        fields = dict(zip(conv_plan.META, plan.fields))
        assert (fields["UP_W"] > 1) == expected
        assert fields["PHASES"] == (1 if expected else step * step)


def test_an_infinity_reaches_the_filters_that_read_it(be: Backend, guarded: Guarded) -> None:
    """An infinity does not reach filters with errors that are the zeros between two rows."""
    s = Sizes(1, 1, 1, (1, 9, 7), (1, 3, 3), (0, 1, 1))
    rng, layer = np.random.default_rng(0), s.layer(be, "f4")
    image, error = quarters(rng, s.shape_i, np.dtype("f4")), np.ones(s.shape_o, "f4")
    image[0, 0, 4, 0, 0] = np.inf  # the first column: the tap of the last one never reads it
    dF = be.empty(s.shape_f)
    be.update_conv(layer, tensor(be, image), tensor(be, error), dF)
    found = dF.get().reshape(3, 3)
    wanted = np.isinf(found) & False
    wanted[:, :2] = True
    assert np.array_equal(np.isinf(found), wanted)
    image[0, 0, 4, 0, 0] = 0
    exact = update(s, image, error).reshape(3, 3)
    assert np.array_equal(found[:, 2], exact[:, 2])


RUNS = [
    Sizes(1, 20, 30, (1, 14, 14), (1, 3, 3), (0, 1, 1)),
    Sizes(1, 33, 26, (1, 7, 7), (1, 3, 3), (0, 1, 1)),
    Sizes(3, 5, 13, (2, 9, 5), (2, 3, 2), (1, 0, 1), dil=(1, 3, 2)),
    Sizes(1, 9, 8, (1, 60, 22), (1, 5, 4), (0, 2, 2), groups=1),
    Sizes(2, 26, 38, (1, 10, 9), (1, 3, 3), (0, 1, 1), groups=2),
]
"""Few images, whose rows are shorter than tiles."""


@pytest.mark.compiles(7, "f4-0", "f8-0", "f4-16")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", RUNS, ids=str)
def test_rows_that_are_one_run_of_lanes(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_vectors(monkeypatch, nbytes)
    rng, layer = np.random.default_rng(nbytes), s.layer(be, kind)
    for _ in range(4):
        compare(be, s, kind, rng)
    if nbytes == 0 and kind == "f4" and kernels.vector_bytes(be.compiler) == 64:
        plan = conv_plan.data_plan(layer, False, 64, 4, 2)
        assert dict(zip(conv_plan.META, plan.fields))["FLAT"]


STEPS = [
    Sizes(1, 20, 17, (1, 18, 22), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    Sizes(2, 3, 20, (1, 23, 26), (1, 7, 7), (0, 3, 3), (1, 2, 3)),
    Sizes(5, 24, 20, (1, 11, 12), (1, 4, 4), (0, 1, 1), (1, 2, 2)),
    Sizes(1, 300, 150, (1, 5, 5), (1, 2, 3)),
]


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", STEPS, ids=str)
def test_short_runs_of_images_and_many_filters(be: Backend, guarded: Guarded, s: Sizes, kind: str) -> None:
    """Columns a step apart are copied and stored in runs of a few elements; filters are packed in several parts."""
    rng = np.random.default_rng(1)
    for simple in ("", "", "", "bias", "relu"):
        compare(be, s, kind, rng, simple)


def test_streamed_results_of_few_channels(be: Backend, guarded: Guarded, monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
    for simple in ("bias", ""):
        compare(be, Sizes(32, 4, 4, (1, 9, 8), (1, 3, 3), (0, 1, 1), groups=4), "f4", np.random.default_rng(3), simple)
