"""Compiled depthwise convolution, all three passes: lanes of channels and of images, against loops."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives.conv import choice
from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.cpu.primitives.conv.depthwise import across
from tests.backends.primitives.conv.conv_compiled import VECTORS, Guarded, Operands, compare, guarded, with_vectors
from tests.support.engines import use_threads
from tests.support.float64.conv_loops import Sizes, backward, finish, forward, quarters, same, tensor, update

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("the compiled kernels of the CPU")]
__all__ = ["guarded"]

SIZES = [
    Sizes(1, 20, 20, (1, 13, 17), (1, 3, 3), (0, 1, 1), groups=20),
    Sizes(1, 48, 48, (1, 31, 9), (1, 5, 5), (0, 2, 2), (1, 2, 2), groups=48),
    Sizes(3, 17, 17, (1, 10, 11), (1, 3, 4), (0, 0, 2), (1, 2, 3), (1, 1, 2), groups=17),
    Sizes(1, 16, 16, (1, 2, 3), (1, 5, 7), (0, 2, 3), groups=16),
    Sizes(2, 16, 16, (1, 7, 9), (1, 1, 2), (0, 0, 0), (1, 3, 3), groups=16),
    Sizes(1, 32, 32, (1, 20, 21), (1, 3, 3), (0, 4, 4), dil=(1, 4, 4), groups=32),
    Sizes(1, 9, 9, (1, 70, 70), (1, 1, 1), groups=9),
    Sizes(16, 5, 5, (1, 9, 8), (1, 3, 3), (0, 1, 1), groups=5),
    Sizes(8, 3, 3, (1, 12, 13), (1, 5, 5), (0, 2, 2), groups=3),
    Sizes(40, 3, 3, (1, 8, 11), (1, 5, 5), (0, 2, 2), (1, 2, 2), groups=3),
    Sizes(112, 2, 2, (1, 6, 9), (1, 3, 3), (0, 1, 1), (1, 1, 2), groups=2),
    Sizes(23, 33, 33, (1, 6, 5), (1, 3, 3), (0, 1, 1), (1, 2, 2), groups=33),
    Sizes(16, 2, 2, (1, 7, 9), (1, 1, 2), (0, 0, 0), (1, 3, 3), groups=2),
    Sizes(17, 2, 2, (1, 3, 2), (1, 5, 7), (0, 3, 3), (1, 1, 1), (1, 2, 1), groups=2),
    Sizes(1, 16, 16, (1, 7, 9), (1, 1, 1), (0, 0, 0), (1, 3, 3), groups=16),
]
"""Tails of channels, images and positions; bands; windows larger than the image; steps larger than the window."""


@pytest.mark.compiles(10, "f4-0", "f8-0", "f4-16", "f8-32")
@pytest.mark.parametrize("nbytes", VECTORS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("s", SIZES, ids=str)
def test_values(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every end of the results by chance; and by loops in float64, whose values have exact sums."""
    with_vectors(monkeypatch, nbytes)
    rng, dtype, layer = np.random.default_rng(nbytes), np.dtype(kind), s.layer(be, kind)
    vector = kernels.vector_bytes(be.compiler)
    plans = [choice.choose_data_plan(layer, back, vector, dtype.itemsize, 2, True) for back in (False, True)]
    plans.append(choice.choose_update_plan(layer, vector, dtype.itemsize))
    assert {dict(plan.variant)["across"] for plan in plans} == {across(layer, vector // dtype.itemsize)[0]} != {""}
    for simple in ("", "", "relu", "bias"):
        compare(be, s, kind, rng, simple)
    x = Operands(be, s, kind, rng)
    x.check(forward(s, x.image, x.filters), backward(s, x.error, x.filters))
    be.fprop_conv(layer, x.I, x.F, x.O, alpha=0.5, bias=x.bias, relu=True)  # from registers
    same(x.O, finish(forward(s, x.image, x.filters), 0.5, bias=x.shift, relu=True))
    be.update_conv(layer, x.I, x.E, x.dF, alpha=0.5)
    same(x.dF, 0.5 * update(s, x.image, x.error))


@pytest.mark.parametrize("maps", [1, 16])
def test_windows_in_the_padding_of_the_depth(be: Backend, guarded: Guarded, maps: int) -> None:
    """An image of one layer, whose only window in depth begins before it: there is no data in any of them."""
    s = Sizes(16, maps, maps, (1, 2, 3), (1, 2, 2), (1, 1, 1), (4, 1, 1), groups=maps)
    x = Operands(be, s, "f4", np.random.default_rng(0))
    assert s.shape_o[1] == 1
    x.check(*(np.zeros(shape) for shape in (s.shape_o, s.shape_i, s.shape_f)))


@pytest.mark.parametrize("s", [SIZES[1], SIZES[9], Sizes(64, 6, 6, (1, 30, 9), (1, 3, 3), groups=6)], ids=str)
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_threads_change_nothing(
    be: Backend, guarded: Guarded, s: Sizes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, with sums that are added up by bands."""
    rng, layer = np.random.default_rng(0), s.layer(be, kind)
    I, F, E = (tensor(be, rng.normal(size=d), np.dtype(kind)) for d in (s.shape_i, s.shape_f, s.shape_o))
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    results = set()
    for threads in ("1", "2", "5"):
        use_threads(monkeypatch, threads)
        O, dI, dF = (be.empty(shape, dtype=kind) for shape in (s.shape_o, s.shape_i, s.shape_f))
        sums = [be.empty((s.C, 1), dtype="f8") for _ in range(2)]
        be.fprop_conv(layer, I, F, O, bsum=sums[0], relu=True)
        be.bprop_conv(layer, F, E, dI, bsum=sums[1], alpha=0.3)
        be.update_conv(layer, I, E, dF, alpha=0.3)
        results.add(b"".join(values.get().tobytes() for values in (O, dI, dF, *sums)))
    assert len(results) == 1


@pytest.mark.optimized
@pytest.mark.parametrize(
    "s",
    [
        Sizes(64, 2, 2, (1, 26, 33), (1, 3, 3), (0, 1, 1), (1, 2, 2), groups=2),
        Sizes(16, 1, 1, (1, 2, 700), (1, 1, 3), groups=1),
        Sizes(48, 1, 1, (1, 2, 800), (1, 1, 3), (0, 0, 0), (1, 1, 2), groups=1),
        Sizes(1, 16, 16, (1, 3, 1500), (1, 3, 3), (0, 1, 1), groups=16),
    ],
    ids=str,
)
def test_gradients_of_many_terms(be: Backend, guarded: Guarded, s: Sizes) -> None:
    """Their sums are emptied now and then, also within a row."""
    rng, layer = np.random.default_rng(s.N), s.layer(be, "f4")
    image, error, old = quarters(rng, s.shape_i), quarters(rng, s.shape_o), quarters(rng, s.shape_f)
    dF = tensor(be, old)
    be.update_conv(layer, tensor(be, image), tensor(be, error), dF, alpha=0.5, beta=0.25)
    same(dF, 0.5 * update(s, image, error) + 0.25 * old)


def test_results_past_the_caches(be: Backend, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "STREAMED_RESULT_BYTES", 0)
    for simple in ("bias", "", ""):
        compare(be, Sizes(32, 3, 3, (1, 9, 8), (1, 3, 3), (0, 1, 1), groups=3), "f4", np.random.default_rng(3), simple)


@pytest.mark.parametrize(
    ("N", "C", "step", "expected"),
    [
        (1, 96, 1, ("channels", 16)),
        (1, 9, 2, ("channels", 16)),
        (1, 6, 1, ("", 0)),  # half a vector would be empty
        (64, 6, 2, ("images", 16)),
        (17, 6, 1, ("images", 16)),  # columns follow each other
        (17, 96, 2, ("images", 8)),  # these are apart
        (33, 96, 2, ("images", 8)),
        (9, 96, 2, ("channels", 16)),
        (9, 3, 2, ("images", 8)),
        (8, 96, 2, ("images", 8)),
        (7, 96, 1, ("channels", 16)),
    ],
)
def test_what_lanes_are(be: Backend, N: int, C: int, step: int, expected: tuple[str, int]) -> None:
    layer = Sizes(N, C, C, (1, 9, 9), (1, 3, 3), (0, 1, 1), (1, step, step), groups=C).layer(be, "f4")
    assert across(layer, 16) == expected


def test_other_convolutions_are_not_depthwise(be: Backend) -> None:
    """Several maps of a channel, and three dimensions."""
    for s in (
        Sizes(64, 4, 8, (1, 9, 9), (1, 3, 3), groups=4),
        Sizes(64, 4, 4, (3, 9, 9), (1, 3, 3), groups=4),
        Sizes(64, 4, 4, (1, 9, 9), (3, 3, 3), (1, 0, 0), groups=4),
    ):
        assert across(s.layer(be, "f4"), 16) == ("", 0)


def test_bands_of_an_image_are_units_of_their_own(be: Backend, guarded: Guarded) -> None:
    """Bands let few channels occupy several threads, and keep the transposed part in a cache."""
    for s, units in ((Sizes(1, 32, 32, (1, 112, 60), (1, 3, 3), groups=32), 8), (SIZES[1], 2), (SIZES[6], 8)):
        for back in (False, True):
            plan = choice.choose_data_plan(s.layer(be, "f4"), back, 64, 4, 2, True)
            assert plan.units >= units
            assert plan.private * 4 <= 1 << 20
    banded = Sizes(6, 16, 16, (1, 40, 40), (1, 3, 3), (0, 1, 1), (1, 2, 2), groups=16)
    compare(be, banded, "f4", np.random.default_rng(5))


def test_an_infinity_stays_in_its_channel(be: Backend) -> None:
    """Lanes that are no channels or images, and channels beside one in a vector, reach no result of it."""
    for s in (Sizes(1, 9, 9, (1, 4, 4), (1, 3, 3), groups=9), Sizes(9, 3, 3, (1, 4, 4), (1, 3, 3), groups=3)):
        layer, out = s.layer(be, "f4"), be.empty(s.shape_o)
        image = np.full(s.shape_i, np.inf, np.float32)
        image[0] = 1
        be.fprop_conv(layer, tensor(be, image), tensor(be, np.ones(s.shape_f, "f4")), out)
        found: Any = out.get()
        assert (found[0] == 9).all()
        assert np.isinf(found[1:]).all()
