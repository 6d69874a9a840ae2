"""Calls of convolution beyond their sums: worked numbers, nan, deconvolution, errors, the clock."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, NeonlikeError, ShapeError
from tests.support.engines import ON_GPU, current_backend, new_backend, refused_after_cleanup
from tests.support.float64.conv_loops import Sizes, backward, forward, quarters, same, tensor, update

pytestmark = pytest.mark.engines("numpy", "c")

Array = np.ndarray[Any, Any]


def ramp(shape: Any, divisor: float, offset: float) -> Array:
    return (np.arange(np.prod(shape)) / divisor + offset).reshape(shape)


# Worked numbers -----------------------------------------------------------------------------------------------------


def numbers(text: str) -> list[list[float]]:
    return [[float(word) for word in row.split()] for row in text.split(";")]


def test_worked_numbers(be: Backend) -> None:
    layer = be.conv_layer(np.float32, 2, 2, 2, H=3, W=3, R=2, S=2, pad_h=1, str_h=2)
    assert layer.dimO == (2, 1, 2, 2, 2)
    I, F, E = be.array(ramp((18, 2), 10, 0)), be.array(ramp((8, 2), 10, -0.8)), be.array(ramp((8, 2), 10, 0))
    O, delta, gradient = be.empty((8, 2)), be.empty((18, 2)), be.empty((8, 2))
    untimed = (0, 0) if ON_GPU else None  # as in neon
    assert be.fprop_conv(layer, I, F, O) == untimed
    assert be.bprop_conv(layer, F, E, delta) == untimed
    assert be.update_conv(layer, I, E, gradient) == untimed
    wanted = "1.88 1.92; 1.96 2.00; 1.92 1.84; 1.76 1.68; 2.28 2.36; 2.44 2.52; 3.44 3.44; 3.44 3.44"
    np.testing.assert_allclose(O.get(), numbers(wanted), atol=1e-6)
    wanted = (
        "-.24 -.31; -.46 -.56; -.14 -.17; -1.16 -1.31; -2.30 -2.56; -1.06 -1.17; -.52 -.59; -.86 -.96; -.26 -.29;"
        ".40 .49; 1.14 1.36; .82 .95; .12 .13; .58 .64; .54 .59; .76 .85; 2.02 2.24; 1.34 1.47"
    )
    np.testing.assert_allclose(delta.get(), numbers(wanted), atol=1e-6)
    wanted = "1.70 4.10; 2.14 5.18; 3.16 7.96; 3.72 9.80; 5.66 13.82; 6.10 14.90; 8.20 24.52; 8.76 26.36"
    np.testing.assert_allclose(gradient.get(), numbers(wanted), atol=1e-5)


def test_worked_numbers_of_a_deconvolution(be: Backend) -> None:
    layer = be.deconv_layer(np.float32, 2, 1, 1, 1, 2, 2, 1, 2, 2, str_h=2, str_w=2)
    assert (layer.dimI, layer.dimO, layer.nOut) == ((1, 1, 4, 4, 2), (1, 1, 2, 2, 2), 16)
    W, out = be.array([[1.0], [2], [3], [4]]), be.empty((16, 2))
    be.bprop_conv(layer, F=W, E=be.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]), grad_I=out)
    assert out.get()[:, 0].tolist() == [1, 2, 3, 6, 3, 4, 9, 12, 5, 10, 7, 14, 15, 20, 21, 28]


@pytest.mark.parametrize("groups", [1, 3])
def test_a_deconvolution_and_its_gradients(be: Backend, groups: int) -> None:
    """C maps out of K: as the contract calls them, bias and activation in the calls."""
    s = Sizes(5, 3, 6, (3, 7, 9), (2, 3, 2), (1, 1, 0), (2, 2, 3), (2, 1, 2), groups=groups)
    layer = be.deconv_layer(np.float32, 5, 3, 6, *s.out, *s.window, *s.pad, *s.step, *s.dil, groups=groups)
    made = Sizes(5, 3, 6, layer.DHW, s.window, s.pad, s.step, s.dil, groups)  # the least image with these outputs
    assert (made.out, layer.DHW) == (s.out, (3, 7, 9))
    rng = np.random.default_rng(0)
    x, filters, error, shift = (quarters(rng, d) for d in (s.shape_o, s.shape_f, s.shape_i, (3, 1)))
    W, inputs, errors = tensor(be, filters), tensor(be, x), tensor(be, error)
    out, delta, gradient = be.empty(layer.dimI2), be.empty(layer.dimO2), be.empty(layer.dimF2)
    be.bprop_conv(layer, F=W, E=inputs, grad_I=out, bias=be.array(shift), relu=True)
    same(out, np.maximum(backward(s, x, filters) + shift.reshape(-1, 1, 1, 1, 1), 0))
    be.fprop_conv(layer, errors, W, delta, alpha=0.5)
    same(delta, 0.5 * forward(s, error, filters))
    be.update_conv(layer, I=errors, E=inputs, grad_F=gradient)
    same(gradient, update(s, error, x))


# nan and infinity ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 3, 17, 64])
@pytest.mark.parametrize(
    "sizes",
    [
        {"image": (1, 5, 7), "window": (1, 3, 3), "pad": (0, 1, 1)},
        {"image": (1, 6, 7), "window": (1, 2, 3), "pad": (0, 1, 2), "step": (1, 3, 2), "dil": (1, 1, 2)},
        {"image": (3, 1, 5), "window": (2, 1, 2), "step": (1, 1, 2)},
        {"image": (1, 2, 3)},
    ],
    ids=str,
)
def test_nan_reaches_what_reads_it_and_nothing_else(be: Backend, N: int, sizes: dict[str, Any]) -> None:
    """One nan, and one infinity of another image or channel, in the input of a pass; filters have no zeros."""
    s, rng = Sizes(N, 4, 6, **sizes, groups=2), np.random.default_rng(N)
    layer, filters = s.layer(be), rng.choice([-1.0, 0.5, 2], s.shape_f).astype(np.float32)
    F, ones = tensor(be, filters), np.ones(s.shape_f)
    for back, shape in ((False, s.shape_i), (True, s.shape_o)):
        run, reach = (be.bprop_conv, backward) if back else (be.fprop_conv, forward)
        for turn in range(4):
            read = rng.choice([-1.0, 1], shape).astype(np.float32)
            places = [tuple(int(rng.integers(size)) for size in shape) for _ in range(2)]
            read[places[1]], read[places[0]] = np.inf, np.nan
            marks = [np.zeros(shape), np.zeros(shape)]
            for mark, value in zip(marks, (np.isnan(read), np.isinf(read))):
                mark[value] = 1
            at_nan, at_inf = (reach(s, mark, ones) > 0 for mark in marks)
            out = be.empty(s.shape_o if not back else s.shape_i)
            out.fill(np.nan)
            if back:
                run(layer, F, tensor(be, read), out)
            else:
                run(layer, tensor(be, read), F, out)
            found = out.get()
            np.testing.assert_array_equal(np.isnan(found), at_nan, err_msg=f"{turn} {places}")
            np.testing.assert_array_equal(np.isinf(found), at_inf & ~at_nan, err_msg=f"{turn} {places}")


@pytest.mark.parametrize("N", [1, 3, 17, 64])
def test_nan_in_gradients_of_filters(be: Backend, N: int) -> None:
    """A nan of the image reaches the taps that read it, one of the errors those of its map."""
    s, rng = Sizes(N, 4, 6, (1, 5, 6), (1, 3, 2), (0, 1, 1), (1, 2, 1), groups=2), np.random.default_rng(N)
    layer, signs = s.layer(be), np.array([-1.0, 1], np.float32)
    for _ in range(5):
        image, error = rng.choice(signs, s.shape_i), rng.choice(signs, s.shape_o)
        at = tuple(int(rng.integers(size)) for size in s.shape_i)
        image[at] = np.nan
        mark = np.zeros(s.shape_i)
        mark[at] = 1
        gradient, bias = be.empty(s.shape_f), be.empty((6, 1))
        gradient.fill(np.nan)
        be.update_conv(layer, tensor(be, image), tensor(be, error), gradient, grad_bias=bias)
        np.testing.assert_array_equal(np.isnan(gradient.get()), update(s, mark, np.ones(s.shape_o)) > 0)
        assert np.isfinite(bias.get()).all()
        image[at] = 1
        at = tuple(int(rng.integers(size)) for size in s.shape_o)
        error[at] = np.nan
        mark = np.zeros(s.shape_o)
        mark[at] = 1
        be.update_conv(layer, tensor(be, image), tensor(be, error), gradient, grad_bias=bias)
        found = np.isnan(gradient.get())
        assert found[update(s, np.ones(s.shape_i), mark) > 0].all()
        assert np.flatnonzero(found.any(axis=(0, 1, 2, 3))).tolist() == [at[0]]
        assert np.flatnonzero(np.isnan(bias.get())).tolist() == [at[0]]


def test_nan_in_the_filters_stays_in_its_map(be: Backend) -> None:
    s, rng = Sizes(3, 2, 6, (1, 4, 5), (1, 3, 3), (0, 1, 1), groups=2), np.random.default_rng(0)
    filters, out = quarters(rng, s.shape_f), be.empty(s.shape_o)
    filters[0, 0, 1, 1, 4] = np.nan
    be.fprop_conv(s.layer(be), tensor(be, quarters(rng, s.shape_i)), tensor(be, filters), out)
    found = np.isnan(out.get())
    assert found[4].all()
    assert not np.delete(found, 4, axis=0).any()


def test_what_activations_make_of_nan(be: Backend) -> None:
    """relu lets nan through; brelu is a product with 0 where X is nan; beta adds the values of X."""
    layer = be.conv_layer(np.float32, 4, 1, 1)
    nan, inf = np.nan, np.inf
    I, F, O = be.array([[nan, -inf, inf, -2.0]]), be.ones((1, 1)), be.empty((1, 4))
    be.fprop_conv(layer, I, F, O, relu=True)
    np.testing.assert_array_equal(O.get(), [[nan, 0, inf, 0]])
    be.fprop_conv(layer, I, F, O, relu=True, slope=0.5)
    np.testing.assert_array_equal(O.get(), [[nan, -inf, inf, -1]])
    X = be.array([[1.0, nan, -1.0, nan]])
    be.fprop_conv(layer, be.array([[nan, 3, 4, -2.0]]), F, O, X=X, brelu=True, slope=0.5)
    np.testing.assert_array_equal(O.get(), [[nan, 0, 2, 0]])
    be.fprop_conv(layer, be.ones((1, 4)), F, O, X=X, beta=1.0)
    np.testing.assert_array_equal(O.get(), [[2, nan, 0, nan]])
    be.fprop_conv(layer, be.ones((1, 4)), F, O, X=X)
    np.testing.assert_array_equal(O.get(), [[1, 1, 1, 1]])


def test_a_target_with_gaps_is_its_own_x(be: Backend) -> None:
    """Old outputs are X where there is none, for brelu without beta, too."""
    s, rng = Sizes(3, 2, 4, (1, 4, 5), (1, 3, 3), (0, 1, 1)), np.random.default_rng(2)
    image, filters, old = (quarters(rng, d) for d in (s.shape_i, s.shape_f, s.shape_o))
    layer, I, F = s.layer(be), tensor(be, image), tensor(be, filters)
    rows, columns = old.reshape(-1, s.N).shape
    whole, wide = tensor(be, old.reshape(rows, columns)), be.zeros((rows, 2 * columns))
    apart = wide[:, ::2]
    for options in ({"brelu": True}, {"brelu": True, "slope": 0.5, "beta": 0.25}, {"beta": 0.25}):
        apart[:] = whole[:] = tensor(be, old.reshape(rows, columns))
        for target in (whole, apart):
            np.full(old.shape, -1, np.float32)  # whose memory is the next array's of this size
            be.fprop_conv(layer, I, F, target, **options)
        np.testing.assert_array_equal(apart.get(), whole.get())
    assert np.any(apart.get()) and not np.any(wide[:, 1::2].get())


# Repeats, bench mode ------------------------------------------------------------------------------------------------


def test_repeats_start_from_the_same_values(be: Backend) -> None:
    s, rng = Sizes(3, 2, 4, (1, 4, 5), (1, 3, 2), (0, 1, 0)), np.random.default_rng(0)
    image, filters, error = (quarters(rng, d) for d in (s.shape_i, s.shape_f, s.shape_o))
    layer, I, F, E = s.layer(be), *(tensor(be, values) for values in (image, filters, error))
    O, delta, gradient = be.ones(s.shape_o), be.ones(s.shape_i), be.ones(s.shape_f)
    bias = be.empty((4, 1))
    timed = (
        be.fprop_conv(layer, I, F, O, beta=2.0, repeat=3),
        be.bprop_conv(layer, F, E, delta, beta=2.0, repeat=3),
        be.update_conv(layer, I, E, gradient, beta=2.0, repeat=3, grad_bias=bias),
    )
    for found in timed:
        assert found is not None
        milliseconds, rate = found
        assert milliseconds > 0
        assert np.isclose(rate * milliseconds * 1e6, layer.flops)
    same(O, forward(s, image, filters) + 2)
    same(delta, backward(s, error, filters) + 2)
    same(gradient, update(s, image, error) + 2)
    same(bias, error.reshape(4, -1).sum(axis=1, keepdims=True))


@pytest.mark.backend
def test_bench_mode_lists_the_calls() -> None:
    be = current_backend(batch_size=2, bench=True)
    try:
        layer = be.conv_layer(np.float32, 7, 3, 4, H=6, W=7, R=3, S=2)
        I, F, O = be.ones((126, 5)), be.ones(layer.dimF), be.ones((96, 5))
        timed = be.fprop_conv(layer, I, F, O), be.bprop_conv(layer, F, O, I), be.update_conv(layer, I, O, F)
        assert be.bench is not None
        rows = {row.name: row for row in be.bench.rows() if not row.inside}
    finally:
        cleanup_backend()
    image, filters, out = (3, 1, 6, 7, 5), (3, 1, 3, 2, 4), (4, 1, 4, 6, 5)
    flops, floats = 2 * 4 * 4 * 6 * 5 * 3 * 3 * 2, 3 * 6 * 7 * 5 + 3 * 3 * 2 * 4 + 4 * 4 * 6 * 5
    for found, (name, shapes) in zip(
        timed,
        {
            "fprop_conv": (image, filters, out),
            "bprop_conv": (out, filters, image),
            "update_conv": (image, out, filters),
        }.items(),
    ):
        assert found is not None
        assert found[0] > 0
        row = rows[name]
        assert (row.shapes, row.kind, row.dtype) == (shapes, "product", "float32")
        assert (row.flops, row.nbytes) == (flops, 4 * floats)


# Errors -------------------------------------------------------------------------------------------------------------


def test_signatures(be: Backend) -> None:
    sizes = "N C K D H W T R S".split()
    rest = "pad_d pad_h pad_w str_d str_h str_w dil_d dil_h dil_w groups".split()
    assert list(inspect.signature(be.conv_layer).parameters) == ["dtype", *sizes, *rest]
    sizes[3:6] = "MPQ"
    assert list(inspect.signature(be.deconv_layer).parameters) == ["dtype", *sizes, *rest]
    options = "X bias bsum alpha beta relu brelu slope repeat layer_op".split()
    assert list(inspect.signature(be.fprop_conv).parameters) == ["layer", "I", "F", "O", *options]
    assert list(inspect.signature(be.bprop_conv).parameters) == ["layer", "F", "E", "grad_I", *options]
    names = "layer I E grad_F alpha beta repeat grad_bias layer_op U".split()
    assert list(inspect.signature(be.update_conv).parameters) == names
    for method in (be.fprop_conv, be.bprop_conv):
        defaults = [parameter.default for parameter in inspect.signature(method).parameters.values()][4:]
        assert defaults == [None, None, None, 1.0, 0.0, False, False, 0.0, 1, None]


class Given:
    """Tensors that fit a small layer, in one memory for what may overlap."""

    def __init__(self, be: Any) -> None:
        self.layer = be.conv_layer(np.float32, 2, 2, 3, H=4, W=5, R=2, S=3, pad_w=1, str_h=2, dil_w=2)
        images, filters, maps = (40, 2), (12, 3), (18, 2)
        shapes = {"I": images, "F": filters, "O": maps, "E": maps, "grad_I": images, "grad_F": filters, "X": maps}
        self.all = {name: be.ones(shape) for name, shape in shapes.items()}
        self.all |= {name: be.ones((3, 1)) for name in ("bias", "bsum", "grad_bias")}
        self.memory = be.ones((400, 1))

    def part(self, name: str, start: int) -> Any:
        """A tensor of the size that ``name`` has, from element ``start`` of the common memory."""
        return self.memory[start : start + self.all[name].size]


def fails(be: Any, call: str, error: type[Exception], words: str, **changed: Any) -> None:
    """The call raises, and no tensor changes; ``changed``: a tensor, or where it lies in the common memory."""
    given = Given(be)
    names = {"fprop": ["I", "F", "O"], "bprop": ["F", "E", "grad_I"], "update": ["I", "E", "grad_F"]}[call]
    arguments = {"layer": given.layer, **{name: given.all[name] for name in names}}
    for name, value in changed.items():
        arguments[name] = given.part(name, value) if isinstance(value, int) else value
    with pytest.raises(error, match=words) as caught:
        getattr(be, f"{call}_conv")(**arguments)
    assert isinstance(caught.value, NeonlikeError)
    assert str(caught.value).startswith(f"{call}_conv: ")
    for value in (given.memory, *arguments.values()):
        if hasattr(value, "get"):
            assert (value.get() == 1).all()


def test_sizes_that_do_not_fit(be: Backend) -> None:
    words = (
        r"input 2x1x4x5, filter 1x2x3, 3 maps of 1x2x3, padding 0x0x1, strides 1x2x1, dilation 1x1x2.*got \(\d+, \d\)"
    )
    wrong = be.ones((7, 2))
    for name, dims in (("F", r"\(2, 1, 2, 3, 3\) = 36"), ("O", r"\(3, 1, 2, 3, 2\) = 36"), ("X", r"\(3, 1, 2, 3, 2\)")):
        fails(be, "fprop", ShapeError, f"{name} must have {dims}.*{words}", **{name: wrong})
    for name in ("bias", "bsum"):
        fails(be, "fprop", ShapeError, rf"{name} must have \(3, 1\) = 3 elements.*{words}", **{name: be.ones((2, 1))})
        fails(be, "bprop", ShapeError, rf"{name} must have \(2, 1\) = 2 elements.*{words}", **{name: be.ones((3, 1))})
    fails(be, "fprop", ShapeError, f"I must have 40 elements for each image.*{words}", I=be.ones((41, 2)))
    fails(be, "bprop", ShapeError, f"E must have 18 elements for each image.*{words}", E=be.ones((17, 2)))
    fails(be, "bprop", ShapeError, rf"grad_I must have \(2, 1, 4, 5, 2\) = 80.*{words}", grad_I=be.ones((39, 2)))
    fails(be, "bprop", ShapeError, rf"X must have \(2, 1, 4, 5, 2\) = 80.*{words}", X=be.ones((18, 2)))
    fails(be, "update", ShapeError, f"I must have 40 elements for each image.*{words}", I=be.ones((7, 2)))
    fails(be, "update", ShapeError, f"E must have .*{words}", E=be.ones((18, 3)))
    fails(be, "update", ShapeError, rf"grad_F must have \(2, 1, 2, 3, 3\) = 36.*{words}", grad_F=wrong)
    fails(be, "update", ShapeError, rf"grad_bias must have \(3, 1\).*{words}", grad_bias=be.ones((2, 1)))


def test_what_is_no_fitting_tensor_or_layer(be: Backend) -> None:
    words = r"one float dtype, got .*float64"
    double, half = (lambda n, t=t: be.ones((n, 2), dtype=t) for t in (np.float64, np.float16))
    fails(be, "fprop", DTypeError, words, I=double(40))
    fails(be, "fprop", DTypeError, words, F=double(18))
    fails(be, "bprop", DTypeError, words, grad_I=double(40))
    fails(be, "update", DTypeError, words, E=double(18))
    fails(be, "fprop", DTypeError, "one float dtype, got I float32, F float32, O float16", O=half(18))
    whole = be.ones((18, 2), dtype=np.int32)
    for name in ("O", "X"):
        fails(be, "fprop", DTypeError, f"one float dtype, got .*{name} int32", **{name: whole})
    fails(be, "update", DTypeError, "one float dtype, got grad_F int32", grad_F=whole)
    for name in ("bias", "bsum"):
        fails(be, "bprop", DTypeError, f"{name} int32", **{name: be.ones((2, 1), dtype=np.int32)})
    fails(be, "update", DTypeError, "grad_bias int32", grad_bias=be.ones((3, 1), dtype=np.int32))
    fails(be, "fprop", DTypeError, "X must be a tensor, got ndarray", X=np.ones((18, 2)))
    fails(be, "bprop", DTypeError, "F must be a tensor, got None", F=None)
    fails(be, "update", DTypeError, "grad_F must be a tensor, got None", grad_F=None)
    pool = be.pool_layer(np.float32, "max", 2, 2, H=4, W=5, R=2)
    for call in ("fprop", "bprop", "update"):
        fails(be, call, ArgumentError, "layer must be what be.conv_layer or .* got PoolGeometry", layer=pool)
        fails(be, call, ArgumentError, "layer must be .* got NoneType", layer=None)


def test_other_and_closed_backends(be: Backend) -> None:
    other = new_backend(rng_seed=0)
    fails(be, "fprop", DTypeError, "I belongs to another backend", I=other.ones((40, 2)))
    fails(be, "bprop", DTypeError, "bsum belongs to another backend", bsum=other.ones((2, 1)))
    fails(be, "update", DTypeError, "grad_bias belongs to another backend", grad_bias=other.ones((3, 1)))
    given = Given(other)
    other.cleanup_backend()
    arguments = (given.layer, given.all["I"], given.all["F"], given.all["O"])
    with refused_after_cleanup("fprop_conv: this backend was closed"):
        other.fprop_conv(*arguments)
    with refused_after_cleanup("update_conv: this backend was closed"):
        other.update_conv(given.layer, given.all["I"], given.all["E"], given.all["grad_F"])


def test_outputs_share_no_memory_with_what_is_read(be: Backend) -> None:
    fails(be, "fprop", AliasError, "O shares memory with I", I=0, O=79)
    fails(be, "fprop", AliasError, "O shares memory with F", F=0, O=0)
    fails(be, "fprop", AliasError, "O shares memory with X", X=0, O=1)
    fails(be, "fprop", AliasError, "O shares memory with bias", O=0, bias=35)
    fails(be, "fprop", AliasError, "bsum shares memory with O", O=2, bsum=0)
    fails(be, "fprop", AliasError, "bsum shares memory with bias", bias=2, bsum=0)
    fails(be, "fprop", AliasError, "bsum shares memory with X", X=0, bsum=35)
    fails(be, "fprop", AliasError, "bsum shares memory with I", I=0, bsum=10)
    fails(be, "bprop", AliasError, "grad_I shares memory with E", grad_I=0, E=50)
    fails(be, "bprop", AliasError, "grad_I shares memory with F", grad_I=0, F=79)
    fails(be, "update", AliasError, "grad_F shares memory with I", I=0, grad_F=79)
    fails(be, "update", AliasError, "grad_F shares memory with E", E=0, grad_F=35)
    fails(be, "update", AliasError, "grad_F shares memory with grad_bias", grad_F=0, grad_bias=35)
    fails(be, "update", AliasError, "grad_bias shares memory with E", E=0, grad_bias=0)


def test_tensors_that_are_read_may_share_memory(be: Backend) -> None:
    layer = be.conv_layer(np.float32, 4, 4, 4)
    values = be.array(ramp((4, 4), 1, 0))
    out = be.empty((4, 4))
    be.fprop_conv(layer, values, values, out, X=values, bias=values[:, 1:2], beta=1.0)
    held = ramp((4, 4), 1, 0)
    np.testing.assert_array_equal(out.get(), held.T @ held + held[:, 1:2] + held)
