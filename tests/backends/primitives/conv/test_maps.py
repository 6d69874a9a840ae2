"""Convolution of few images with output maps side by side, against its definition and loops that are exact."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv import maps as conv_maps
from neonlike.backends.cpu.primitives.conv import plan as conv_plan
from neonlike.backends.cpu.primitives.conv.kind import Kind
from tests.backends.primitives.conv.conv_compiled import VECTORS, Guarded, Operands, compare, guarded, with_vectors
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, tensor

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["guarded"]

SHAPES = [
    Sizes(1, 20, 33, (1, 18, 22), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    Sizes(1, 37, 70, (1, 11, 31), (1, 5, 4), (0, 2, 1), (1, 1, 3)),
    Sizes(2, 3, 20, (1, 23, 26), (1, 7, 7), (0, 3, 3), (1, 2, 3)),
    Sizes(5, 24, 20, (1, 11, 12), (1, 4, 4), (0, 1, 1), (1, 2, 2)),
    Sizes(3, 40, 44, (1, 9, 9), (1, 2, 3), (0, 2, 2), (1, 3, 2), (1, 2, 2), groups=2),
    Sizes(1, 6, 90, (5, 13, 14), (3, 5, 5), (1, 2, 2), (2, 1, 3)),
    Sizes(1, 70, 33, (1, 9, 9), (1, 1, 1), step=(1, 2, 2)),
    Sizes(1, 17, 5, (1, 3, 90), (1, 2, 6), (0, 3, 9), (1, 1, 4), (1, 1, 3)),
    Sizes(130, 5, 18, (1, 4, 3), (1, 2, 2), (0, 1, 0)),
]
"""Steps and padding of all sizes, channels and maps that fill no vector, phases without taps, images in two blocks."""


def always(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Have all that other kernels are not made for done here; ``limits`` of the plan instead of its own."""
    monkeypatch.setattr(choice, "few_positions", lambda *_: False)
    monkeypatch.setattr(choice, "map_lanes", lambda *_: True)
    for name, value in limits.items():
        monkeypatch.setattr(conv_maps, name, value)
    conv_maps.maps_plan.cache_clear()


@pytest.fixture(autouse=True)
def _plans_of_their_own() -> Any:
    yield
    conv_maps.maps_plan.cache_clear()


@pytest.mark.compiles(6, "f4-0", "f8-0", "f4-16")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_maps_side_by_side(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every end of the results; and by loops in float64, whose values have exact sums."""
    with_vectors(monkeypatch, nbytes)
    always(monkeypatch)
    rng = np.random.default_rng(nbytes)
    for _ in range(3):
        compare(be, s, kind, rng)
    x = Operands(be, s, kind, rng)
    wanted = finish(forward(s, x.image, x.filters), bias=x.shift, relu=True)
    x.check(wanted, backward(s, x.error, x.filters), bsum_i=True, bias=x.bias, relu=True)


@pytest.mark.optimized
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_blocks_and_parts(be: Backend, guarded: Guarded, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few channels, rows and columns; parts of the maps; results past the caches."""
    always(monkeypatch, PANEL_BYTES=1, AREA_LANES=24, LEAST_LANES=8, DATA_UNITS=3)
    monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
    use_threads(monkeypatch, 2)
    for simple in ("", "", "bias", "relu"):
        compare(be, s, "f4", np.random.default_rng(7), simple)


@pytest.mark.parametrize("s", SHAPES[:4], ids=str)
def test_results_do_not_depend_on_threads(be: Backend, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the sums of a bsum."""
    always(monkeypatch)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    rng, layer = np.random.default_rng(2), s.layer(be)
    I, E, F = (tensor(be, rng.normal(size=shape).astype("f4")) for shape in (s.shape_i, s.shape_o, s.shape_f))
    found = []
    for threads in (1, 2, 3):
        use_threads(monkeypatch, threads)
        O, dI, sums, errors = (be.empty(shape) for shape in (s.shape_o, s.shape_i, (s.K, 1), (s.C, 1)))
        be.fprop_conv(layer, I, F, O, bsum=sums)
        be.bprop_conv(layer, F, E, dI, bsum=errors)
        found.append([result.get() for result in (O, dI, sums, errors)])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            assert np.array_equal(one, two)


def test_a_nan_reaches_the_results_that_read_it(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nan does not reach lanes past the end of a row, nor maps that share its vector."""
    always(monkeypatch)
    s = Sizes(1, 3, 5, (1, 7, 9), (1, 2, 2), (0, 1, 1), (1, 2, 2))
    rng = np.random.default_rng(0)
    image, filters = quarters(rng, s.shape_i, np.dtype("f4")), quarters(rng, s.shape_f, np.dtype("f4"))
    image[1, 0, 6, 8, 0] = np.nan
    O = be.empty(s.shape_o)
    be.fprop_conv(s.layer(be), tensor(be, image), tensor(be, filters), O)
    found = O.get().reshape(s.shape_o)
    wanted = np.zeros(s.shape_o, bool)
    wanted[:, 0, 3, 4] = True
    assert np.array_equal(np.isnan(found), wanted)


@pytest.mark.parametrize(
    ("s", "forward_here", "backward_here"),
    [
        (Sizes(1, 128, 128, (1, 56, 56), (1, 3, 3), (0, 1, 1), (1, 2, 2)), True, True),
        (Sizes(1, 3, 64, (1, 64, 64), (1, 7, 7), (0, 3, 3), (1, 2, 2)), True, False),
        (Sizes(64, 128, 128, (1, 28, 28), (1, 3, 3), (0, 1, 1), (1, 2, 2)), False, False),
        (Sizes(1, 8, 8, (1, 64, 64), (1, 5, 5), (0, 2, 2)), False, False),
        (Sizes(1, 64, 64, (1, 1, 4000), (1, 1, 3), (0, 0, 1)), False, False),
    ],
    ids=("few images", "few maps", "images fill vectors", "few maps and channels", "rows without ends"),
)
def test_where_it_makes_fewer_products(be: Backend, s: Sizes, forward_here: bool, backward_here: bool) -> None:
    """With vectors of 64 bytes; elsewhere lanes are positions."""
    for back, here in ((False, forward_here), (True, backward_here)):
        plan = choice.choose_data_plan(s.layer(be), back, 64, 4, 2, False)
        assert (plan.kind is Kind.MAPS) == here
        fields = dict(zip(conv_plan.META, plan.fields))
        assert (fields["SIDE"] > 0) == here
