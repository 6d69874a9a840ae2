"""Convolution with few output positions, against its definition and loops that are exact."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import few as conv_few
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv.kind import Kind
from tests.backends.primitives.conv.conv_compiled import VECTORS, Guarded, Operands, compare, guarded, with_vectors
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, tensor

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["guarded"]

SHAPES = [
    Sizes(1, 20, 70, (1, 7, 5), (1, 3, 3), (0, 1, 1), (1, 2, 2)),
    Sizes(3, 11, 33, (2, 3, 4), (2, 2, 3), (1, 0, 2), (1, 1, 2), (1, 1, 2)),
    Sizes(1, 17, 40, (1, 1, 1), (1, 1, 1)),
    Sizes(5, 9, 35, (1, 4, 3), (1, 4, 3)),
]
"""Steps, padding and dilation of all sizes, maps that fill no vector, one position; positions that are all images."""


def always(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Have all forward passes done here; ``limits`` of the plan instead of its own."""
    monkeypatch.setattr(choice, "winograd_edge", lambda *_: 0)
    monkeypatch.setattr(choice, "pointwise", lambda _: False)
    monkeypatch.setattr(choice, "few_positions", lambda g, backward, *_: not backward)
    for name, value in limits.items():
        monkeypatch.setattr(conv_few, name, value)
    conv_few.few_plan.cache_clear()


@pytest.fixture(autouse=True)
def _plans_of_their_own() -> Any:
    yield
    conv_few.few_plan.cache_clear()


@pytest.mark.compiles(5, "f4-0", "f8-0", "f4-16")
@pytest.mark.parametrize(("kind", "nbytes"), [*(("f4", nbytes) for nbytes in VECTORS), ("f8", 0)])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_few_positions(
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
    x.check(wanted, backward(s, x.error, x.filters), bias=x.bias, relu=True)


@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_blocks_and_units(be: Backend, guarded: Guarded, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows of filters; a unit for each tile of maps; results past the caches."""
    always(monkeypatch, BLOCK_BYTES=2000, PARTS=64)
    monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    use_threads(monkeypatch, 2)
    for simple in ("", "", "bias", "relu"):
        compare(be, s, "f4", np.random.default_rng(7), simple)


@pytest.mark.parametrize("s", SHAPES[:2], ids=str)
def test_results_do_not_depend_on_threads(be: Backend, s: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the sums of a bsum."""
    always(monkeypatch)
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    rng, layer = np.random.default_rng(2), s.layer(be)
    I, F = (tensor(be, rng.normal(size=shape).astype("f4")) for shape in (s.shape_i, s.shape_f))
    found = []
    for threads in (1, 2, 3):
        use_threads(monkeypatch, threads)
        O, sums = be.empty(s.shape_o), be.empty((s.K, 1))
        be.fprop_conv(layer, I, F, O, bsum=sums)
        found.append([O.get(), sums.get()])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            assert np.array_equal(one, two)


@pytest.mark.optimized
def test_a_nan_reaches_the_results_that_read_it(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nan reaches no other positions of its tile, and not the next image."""
    always(monkeypatch)
    s = Sizes(2, 3, 20, (1, 5, 6), (1, 2, 2), (0, 1, 0), (1, 2, 2))
    rng = np.random.default_rng(0)
    image, filters = quarters(rng, s.shape_i, np.dtype("f4")), quarters(rng, s.shape_f, np.dtype("f4"))
    image[1, 0, 4, 5, 1] = np.nan
    O = be.empty(s.shape_o)
    be.fprop_conv(s.layer(be), tensor(be, image), tensor(be, filters), O)
    wanted = np.zeros(s.shape_o, bool)
    wanted[:, 0, 2, 2, 1] = True
    assert np.array_equal(np.isnan(O.get().reshape(s.shape_o)), wanted)


@pytest.mark.parametrize(
    ("s", "here"),
    [
        (Sizes(1, 512, 512, (1, 4, 4), (1, 3, 3), (0, 1, 1)), True),
        (Sizes(1, 128, 256, (1, 16, 16), (1, 3, 3), (0, 1, 1), (1, 2, 2)), True),
        (Sizes(1, 128, 256, (1, 18, 18), (1, 3, 3), (0, 1, 1), (1, 2, 2)), False),
        (Sizes(16, 512, 512, (1, 2, 2), (1, 2, 2)), False),
        (Sizes(1, 16, 16, (1, 4, 4), (1, 3, 3), (0, 1, 1)), False),
        (Sizes(1, 512, 512, (1, 4, 4), (1, 3, 3), (0, 1, 1), groups=2), False),
    ],
    ids=("few positions", "with a stride", "more positions", "images fill vectors", "few filters", "groups"),
)
def test_where_filters_are_read_once(be: Backend, s: Sizes, here: bool) -> None:
    """With vectors of 64 bytes; data gradients never are."""
    plans = [choice.choose_data_plan(s.layer(be), back, 64, 4, 2, False) for back in (False, True)]
    assert [plan.kind is Kind.FEW for plan in plans] == [here, False]
