"""Convolution and its gradients against loops in float64: sizes, flags, dtypes, views."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.run import calls
from tests.support.float64.conv_loops import (
    Sizes,
    backward,
    finish,
    forward,
    quarters,
    random_sizes,
    row_sums,
    same,
    tensor,
    update,
)

pytestmark = pytest.mark.engines("numpy", "c")

Array = np.ndarray[Any, Any]
FLOATS = (np.float16, np.float32, np.float64)

GRIDS: list[dict[str, Any]] = [
    {},
    {"image": (1, 3, 4)},
    {"image": (1, 3, 5), "step": (1, 2, 3)},
    {"image": (1, 3, 2), "pad": (0, 1, 2)},
    {"image": (1, 5, 6), "window": (1, 3, 3), "pad": (0, 1, 1)},
    {"image": (1, 5, 6), "window": (1, 3, 3)},
    {"image": (1, 7, 8), "window": (1, 3, 3), "pad": (0, 1, 1), "step": (1, 2, 2)},
    {"image": (1, 9, 8), "window": (1, 2, 3), "pad": (0, 2, 1), "step": (1, 3, 4), "dil": (1, 2, 1)},
    {"image": (1, 8, 11), "window": (1, 3, 4), "pad": (0, 3, 2), "dil": (1, 2, 3)},
    {"image": (1, 9, 9), "window": (1, 7, 7), "pad": (0, 3, 3), "step": (1, 2, 2)},
    {"image": (1, 7, 7), "window": (1, 7, 7)},
    {"image": (1, 2, 3), "window": (1, 5, 4), "pad": (0, 4, 3)},
    {"image": (1, 9, 10), "window": (1, 2, 1), "step": (1, 4, 3)},  # some inputs are never read
    {"image": (1, 6, 5), "window": (1, 6, 1), "pad": (0, 5, 0), "step": (1, 4, 1)},
    {"image": (1, 1, 19), "window": (1, 1, 5), "pad": (0, 0, 2), "step": (1, 1, 2)},
    {"image": (1, 23, 1), "window": (1, 4, 1), "dil": (1, 3, 1)},
    {"image": (5, 1, 1), "window": (2, 1, 1), "pad": (1, 0, 0), "step": (3, 1, 1)},
    {"image": (4, 5, 4), "window": (3, 2, 3), "pad": (1, 1, 0), "step": (1, 2, 1)},
    {"image": (5, 4, 5), "window": (2, 3, 2), "pad": (2, 0, 1), "step": (2, 1, 3), "dil": (3, 1, 2)},
]
"""Sizes along depth, height and width; channels, maps and images change from case to case."""

IMAGES = (1, 2, 3, 16, 33, 64)
CHANNELS = ((1, 1), (3, 5), (5, 33), (16, 3), (33, 16), (5, 8), (16, 1))
GROUPS = ((6, 4, 2), (5, 5, 5), (3, 6, 3), (16, 33 * 2, 2), (8, 4, 4))
"""(C, K, groups): depthwise among them, with one map and with two for each channel."""


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels find nan in memory that they have not written."""
    real = calls.held_workspace

    def poisoned(needed: int) -> Any:
        held = real(needed)
        held[0].fill(0xFF)
        return held

    monkeypatch.setattr(calls, "held_workspace", poisoned)


def check(be: Any, s: Sizes, alpha: float = 1.0, beta: float = 0.0, dtype: Any = np.float32, seed: int = 0) -> None:
    """All three passes of one case against the loops, with sums and old values that are nan where they do not count."""
    rng, layer = np.random.default_rng(seed), s.layer(be, dtype)
    assert (layer.dimI, layer.dimF, layer.dimO) == (s.shape_i, s.shape_f, s.shape_o)
    image, filters, error = (quarters(rng, shape, dtype) for shape in (s.shape_i, s.shape_f, s.shape_o))
    I, F, E = (tensor(be, values) for values in (image, filters, error))

    def target(shape: Any) -> tuple[Any, Array]:
        old = quarters(rng, shape, dtype)
        made = tensor(be, old)
        if beta == 0:
            made.fill(np.nan)
        return made, old.astype(np.float64)

    for back, result in ((False, forward(s, image, filters)), (True, backward(s, error, filters))):
        sums = be.empty((len(result), 1), dtype=np.float64)
        for bsum in (None, sums):
            out, old = target(result.shape)
            if back:
                be.bprop_conv(layer, F, E, out, bsum=bsum, alpha=alpha, beta=beta)
            else:
                be.fprop_conv(layer, I, F, out, bsum=bsum, alpha=alpha, beta=beta)
            same(out, finish(result, alpha, beta=beta, x=old))
        same(sums, row_sums(out.get().reshape(result.shape)))
    (dF, old), bias = target(s.shape_f), be.empty((s.K, 1), dtype=dtype)
    be.update_conv(layer, I, E, dF, alpha=alpha, beta=beta, grad_bias=bias)
    same(dF, alpha * update(s, image, error) + beta * old)
    same(bias, row_sums(error))
    for made, values in ((I, image), (F, filters), (E, error)):
        same(made, values)


def test_the_loops_are_the_formula() -> None:
    """Sums over single elements, for a size that allows it."""
    s = Sizes(2, 4, 6, (2, 4, 5), (2, 2, 3), (1, 0, 2), (1, 2, 1), (1, 3, 2), groups=2)
    rng = np.random.default_rng(0)
    image, filters, error = (quarters(rng, shape) for shape in (s.shape_i, s.shape_f, s.shape_o))
    out, delta, gradient = np.zeros(s.shape_o), np.zeros(s.shape_i), np.zeros(s.shape_f)
    for (c, t, r, q), k in itertools.product(np.ndindex(*s.shape_f[:4]), range(s.K)):
        channel = c + k // 3 * 2
        for m, p, x in np.ndindex(*s.out):
            at = (m + t - 1, 2 * p + 3 * r, x + 2 * q - 2)
            if all(0 <= i < size for i, size in zip(at, s.image)):
                out[k, m, p, x] += filters[c, t, r, q, k] * image[(channel, *at)]
                delta[(channel, *at)] += filters[c, t, r, q, k] * error[k, m, p, x]
                gradient[c, t, r, q, k] += (image[(channel, *at)] * error[k, m, p, x]).sum()
    np.testing.assert_array_equal(forward(s, image, filters), out)
    np.testing.assert_array_equal(backward(s, error, filters), delta)
    np.testing.assert_array_equal(update(s, image, error), gradient)


# Sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.compiles(5)
@pytest.mark.parametrize("case", range(len(GRIDS)))
def test_agrees_with_loops(be: Backend, case: int) -> None:
    for turn, N in enumerate(IMAGES):
        C, K = CHANNELS[(turn + case) % len(CHANNELS)]
        alpha, beta = ((1.0, 0.0), (0.5, 2.0), (-2.0, 0.0), (1.0, 1.0), (1.0, -0.5))[(turn + case) % 5]
        check(be, Sizes(N, C, K, **GRIDS[case]), alpha, beta, seed=case)


@pytest.mark.parametrize("channels", GROUPS)
def test_groups_agree_with_loops(be: Backend, channels: tuple[int, int, int]) -> None:
    C, K, groups = channels
    for turn, case in enumerate((0, 2, 4, 7, 9, 18)):
        N, beta = IMAGES[(turn + C) % len(IMAGES)], (0.0, 2.0)[turn % 2]
        check(be, Sizes(N, C, K, **GRIDS[case], groups=groups), 0.5, beta, seed=turn)


@pytest.mark.compiles(14)
@pytest.mark.parametrize("seed", range(40))
def test_random_sizes_agree_with_loops(be: Backend, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(be, random_sizes(rng), float(rng.choice([1, 2])), float(rng.choice([0, 0.5])), seed=seed)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_agree_with_loops(be: Backend, dtype: Any) -> None:
    """float16 is computed in float32 and rounded once, and bsum sums the stored values."""
    for turn, case in enumerate((0, 2, 6, 8, 11, 17)):
        C, K = CHANNELS[turn]
        check(be, Sizes(IMAGES[turn], C, K, **GRIDS[case]), 0.5, (0.0, 2.0)[turn % 2], dtype, seed=case)
    check(be, Sizes(64, 4, 8, **GRIDS[4], groups=2), 2.0, 0.5, dtype)
    check(be, Sizes(3, 33, 5, **GRIDS[9]), 1.0, 0.0, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_many_products_agree_with_loops(be: Backend, dtype: Any) -> None:
    """Layers so deep that results are stored tile by tile."""
    window = {"window": (1, 3, 3), "pad": (0, 1, 1)}
    check(be, Sizes(64, 180, 5, (1, 3, 2), **window), 0.5, 2.0, dtype)
    check(be, Sizes(128, 7, 180, (1, 3, 2), **window), 1.0, 0.0, dtype)
    check(be, Sizes(64, 1600, 13, (1, 1, 2)), 1.0, 0.0, dtype)
    check(be, Sizes(192, 360, 6, (1, 5, 3), **window, step=(1, 2, 1), groups=2), 1.0, 0.5, dtype)


def test_float16_is_rounded_once(be: Backend) -> None:
    """2049 + 1 is 2050 in float16; rounded on the way to it, 2048."""
    layer = be.conv_layer(np.float16, 1, 3, 1)
    I, F = be.array([2048.0, 1, 1], dtype=np.float16), be.ones((3, 1), dtype=np.float16)
    O, bsum = be.empty((1, 1), dtype=np.float16), be.empty((1, 1), dtype=np.float32)
    be.fprop_conv(layer, I, F, O, bsum=bsum)
    assert O.get()[0, 0] == bsum.get()[0, 0] == 2050
    bias = be.array([1.0], dtype=np.float16)
    F[2] = 0
    be.fprop_conv(layer, I, F, O, bias=bias, bsum=bsum)
    assert O.get()[0, 0] == bsum.get()[0, 0] == 2050
    F[:] = np.array([[1.0], [0.0], [1.0]])
    be.fprop_conv(layer, I, F, O, bsum=bsum)  # halfway: to even, and the sum is of that
    assert O.get()[0, 0] == bsum.get()[0, 0] == 2048


@pytest.mark.parametrize("N", [1, 5, 64])
def test_any_number_of_images_at_call_time(be: Backend, N: int) -> None:
    rng, s = np.random.default_rng(N), Sizes(N, 3, 4, **GRIDS[6])
    layer = Sizes(17, 3, 4, **GRIDS[6]).layer(be)
    image, filters, error = (quarters(rng, shape) for shape in (s.shape_i, s.shape_f, s.shape_o))
    I, F, E = tensor(be, image), tensor(be, filters), tensor(be, error)
    O, dI, dF = (be.empty(shape) for shape in (s.shape_o, s.shape_i, s.shape_f))
    be.fprop_conv(layer, I, F, O)
    be.bprop_conv(layer, F, E, dI)
    be.update_conv(layer, I, E, dF)
    same(O, forward(s, image, filters))
    same(dI, backward(s, error, filters))
    same(dF, update(s, image, error))
    assert layer.N == 17


# What is done to the result -----------------------------------------------------------------------------------------

FLAGS = list(
    itertools.product((1.0, -0.5), (0.0, 2.0), (False, True), (False, True), (0.0, 0.25), (False, True), range(3))
)
"""alpha, beta, relu, brelu, slope, bias, which X: none, one of its own, the target; each with and without bsum."""


def flags_agree(be: Any, s: Sizes, back: bool, dtype: Any) -> None:
    """Every combination of flags on one geometry."""
    rng, layer = np.random.default_rng(3), s.layer(be, dtype)
    source, filters = quarters(rng, s.shape_o if back else s.shape_i, dtype), quarters(rng, s.shape_f, dtype)
    result = backward(s, source, filters) if back else forward(s, source, filters)
    old, other = quarters(rng, result.shape, dtype), quarters(rng, result.shape, dtype)
    shift = quarters(rng, (len(result), 1), dtype)
    E, F, bias, X, first = (tensor(be, values) for values in (source, filters, shift, other, old))
    out, bsum = be.empty(first.shape, dtype=dtype), be.empty(bias.shape, dtype=np.float64)
    for (alpha, beta, relu, brelu, slope, with_bias, which), sums in itertools.product(FLAGS, (None, bsum)):
        x = other if which == 1 else old
        if which == 1 or not (beta or brelu):
            out.fill(np.nan)
        else:
            out.copy_from(first)
        bsum.fill(np.nan)
        given = {"X": (None, X, out)[which], "bias": bias if with_bias else None, "bsum": sums}
        given |= {"alpha": alpha, "beta": beta, "relu": relu, "brelu": brelu, "slope": slope}
        if back:
            be.bprop_conv(layer, F, E, out, **given)
        else:
            be.fprop_conv(layer, E, F, out, **given)
        used = shift.astype(np.float64) if with_bias else None
        wanted = finish(result, alpha, used, brelu, relu, slope, beta, x.astype(np.float64))
        try:
            same(out, wanted)
            if sums is not None:
                same(bsum, row_sums(wanted.astype(dtype)))
        except AssertionError as error:
            raise AssertionError(f"{s} {given}") from error


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    "s",
    [
        Sizes(3, 3, 5, (1, 2, 2)),
        Sizes(64, 4, 3, (1, 1, 3)),
        Sizes(2, 2, 3, (1, 4, 3), (1, 3, 2), (0, 1, 1), (1, 2, 1)),
        Sizes(32, 2, 4, (1, 2, 5), (1, 1, 3), (0, 1, 1), groups=2),
    ],
    ids=str,
)
def test_all_combinations_of_flags(be: Backend, s: Sizes, back: bool) -> None:
    flags_agree(be, s, back, np.float32)


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
def test_flags_of_deep_layers(be: Backend, back: bool) -> None:
    """Results of many products are stored tile by tile."""
    flags_agree(be, Sizes(64, *((3, 260) if back else (260, 3)), (1, 1, 3), (1, 2, 3), (0, 1, 1)), back, np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_flags_in_other_dtypes(be: Backend, dtype: Any) -> None:
    s = Sizes(2, 2, 3, (1, 3, 3), (1, 2, 2), (0, 1, 0))
    for back in (False, True):
        flags_agree(be, s, back, dtype)


def test_update_scales_the_new_and_the_old(be: Backend) -> None:
    """In any float dtype of the gradient; neon's CPU backend calls it U."""
    rng, s = np.random.default_rng(5), Sizes(3, 4, 6, **GRIDS[6], groups=2)
    image, error, old = (quarters(rng, shape) for shape in (s.shape_i, s.shape_o, s.shape_f))
    layer, I, E, new = s.layer(be), tensor(be, image), tensor(be, error), update(s, image, error)
    for alpha, beta, dtype in itertools.product((1.0, -0.5, 0.0), (0.0, 1.0, -2.0), FLOATS):
        gradient = tensor(be, old, dtype)
        if beta == 0:
            gradient.fill(np.nan)
        be.update_conv(layer, I, E, alpha=alpha, beta=beta, **{"U" if alpha == 1 else "grad_F": gradient})
        same(gradient, alpha * new + beta * old)


def test_update_ignores_alpha_and_beta_in_the_gradient_of_the_bias(be: Backend) -> None:
    rng, s = np.random.default_rng(6), Sizes(33, 2, 5, **GRIDS[4])
    error = quarters(rng, s.shape_o)
    dF, bias = be.zeros(s.shape_f), be.array(np.full((5, 1), np.nan))
    be.update_conv(s.layer(be), be.zeros(s.shape_i), tensor(be, error), dF, alpha=3.0, beta=2.0, grad_bias=bias)
    same(bias, row_sums(error))


# Gradients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [0, 2, 7, 9, 13, 18])
@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_are_those_of_the_forward_pass(be: Backend, case: int, groups: int) -> None:
    """Slopes along random directions, in float64, of a sum over the convolution of a leaky relu."""
    rng, s, h = np.random.default_rng(case), Sizes(3, 6, 3, **GRIDS[case], groups=groups), 1e-6
    layer = s.layer(be, np.float64)
    z, filters, error, along_z, along_f = (
        rng.normal(size=shape) for shape in (s.shape_i, s.shape_f, s.shape_o, s.shape_i, s.shape_f)
    )

    def made(values: Array) -> Any:
        return tensor(be, values, np.float64)

    def objective(z: Array, filters: Array) -> float:
        out = made(np.zeros(s.shape_o))
        be.fprop_conv(layer, made(np.where(z > 0, z, 0.1 * z)), made(filters), out, alpha=0.7)
        return float((out.get().reshape(s.shape_o) * error).sum())

    image = np.where(z > 0, z, 0.1 * z)
    delta, gradient = made(np.zeros(s.shape_i)), made(np.zeros(s.shape_f))
    be.bprop_conv(layer, made(filters), made(error), delta, X=made(image), alpha=0.7, brelu=True, slope=0.1)
    be.update_conv(layer, made(image), made(error), gradient, alpha=0.7)
    slopes = (
        (objective(z + h * along_z, filters) - objective(z - h * along_z, filters)) / (2 * h),
        (objective(z, filters + h * along_f) - objective(z, filters - h * along_f)) / (2 * h),
    )
    found = (delta.get().reshape(s.shape_i) * along_z).sum(), (gradient.get().reshape(s.shape_f) * along_f).sum()
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-7)


# Tensors of any shape and view --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_tensors_of_any_rank_and_views(be: Backend, dtype: Any) -> None:
    """5-D, matrices, and views with steps, transposed or of part of a larger tensor; nothing around them is written."""
    rng, s = np.random.default_rng(7), Sizes(4, 3, 6, **GRIDS[6])
    layer = s.layer(be, dtype)
    image, filters, error, old = (quarters(rng, shape, dtype) for shape in (s.shape_i, s.shape_f, s.shape_o, s.shape_o))

    def every_second(values: Array) -> tuple[Any, Any]:
        matrix = values.reshape(-1, values.shape[-1])
        base = be.array(np.full((len(matrix), 2 * matrix.shape[1]), 9.0), dtype=dtype)
        view = base[:, ::2]
        view[:] = matrix
        return base, view

    def columns(values: Array) -> tuple[Any, Any]:
        matrix = values.reshape(-1, values.shape[-1])
        base = be.array(np.full((len(matrix), matrix.shape[1] + 3), 9.0), dtype=dtype)
        view = base[:, 1 : 1 + matrix.shape[1]]
        view[:] = matrix
        return base, view

    def turned(values: Array) -> tuple[Any, Any]:
        base = be.array(values.reshape(-1, values.shape[-1]).T, dtype=dtype)
        return base, base.T

    def whole(values: Array) -> tuple[Any, Any]:
        made = be.array(values, dtype=dtype)
        return made, made

    for view in (every_second, columns, turned, whole):
        (_, I), (_, F), (_, E), (base, O) = (view(values) for values in (image, filters, error, old))
        around = np.ones(base.shape, bool)
        if view is columns:
            around[:, 1 : 1 + s.N] = False
        else:
            around[..., :: 2 if view is every_second else 1] = False
        bsum = be.empty((s.K, 2), dtype=dtype)[:, 1:]
        be.fprop_conv(layer, I, F, O, beta=0.5, bsum=bsum)
        same(O, forward(s, image, filters) + 0.5 * old.astype(np.float64))
        assert (base.get()[around] == 9).all()
        be.fprop_conv(layer, I, F, O, X=E, brelu=True, bias=bsum)
        shift = bsum.get().astype(np.float64)
        same(O, finish(forward(s, image, filters), 1.0, shift, True, x=error.astype(np.float64)))
        delta, gradient = view(image)[1], view(filters)[1]
        be.bprop_conv(layer, F, E, delta)
        same(delta, backward(s, error, filters))
        bias = be.empty((s.K, 2), dtype=dtype)[:, :1]
        be.update_conv(layer, I, E, gradient, beta=1.0, grad_bias=bias)
        same(gradient, update(s, image, error) + filters.astype(np.float64))
        same(bias, row_sums(error))


def test_extra_tensors_may_have_other_float_dtypes(be: Backend) -> None:
    rng, s = np.random.default_rng(8), Sizes(3, 2, 5, **GRIDS[4])
    layer, image, filters = s.layer(be), quarters(rng, s.shape_i), quarters(rng, s.shape_f)
    x, shift, O = quarters(rng, s.shape_o), quarters(rng, (5, 1)), be.empty(s.shape_o)
    for dtype in FLOATS:
        bsum = be.empty((5, 1), dtype=dtype)
        X, bias = tensor(be, x, dtype), be.array(shift, dtype=dtype)
        be.fprop_conv(layer, tensor(be, image), tensor(be, filters), O, X=X, bias=bias, bsum=bsum, beta=2.0)
        wanted = finish(forward(s, image, filters), bias=shift, beta=2.0, x=x)
        same(O, wanted)
        same(bsum, row_sums(wanted))


def test_calls_of_other_sizes_do_not_disturb_each_other(be: Backend) -> None:
    """Working memory is kept from call to call."""
    for seed in (1, 2, 1, 3, 2):
        check(be, random_sizes(np.random.default_rng(1000 + seed)), dtype=(np.float32, np.float64)[seed % 2])
