"""Convolution and pooling layers, one at a time: shapes, forward and backward passes, partial batches, errors."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import LRN, Conv, Convolution, Deconvolution, Pooling
from neonlike.layers.layer import Convolution_bias
from neonlike.transforms import Rectlin
from tests.layers.layering import ready, tensor
from tests.support.float64 import conv_loops, pool_loops

N = 3
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


def matrix(values):
    return values.reshape(-1, values.shape[-1])


class TestConvolution:
    """Against loops in float64."""

    @pytest.mark.parametrize(
        ("fshape", "strides", "padding", "dilation", "in_shape", "triples", "out_shape"),
        [
            ((3, 2, 4), {}, {}, {}, (2, 5, 6), {"window": (1, 3, 2)}, (4, 3, 5)),
            ((3, 3, 4), 2, 1, {}, (2, 5, 6), {"window": (1, 3, 3), "pad": (0, 1, 1), "step": (1, 2, 2)}, (4, 3, 3)),
            (
                {"R": 2, "S": 3, "K": 5, "T": 2}, {"str_d": 2, "str_w": 2}, {"pad_d": 1}, {"dil_h": 2},
                (2, 4, 5, 6),
                {"window": (2, 2, 3), "pad": (1, 0, 0), "step": (2, 1, 2), "dil": (1, 2, 1)},
                (5, 3, 3, 2),
            ),
            ((1, 1, 4), {}, {}, {}, (2, 1, 5, 6), {}, (4, 5, 6)),
        ],
    )  # fmt: skip
    def test_forward_and_backward(self, be64, rng, fshape, strides, padding, dilation, in_shape, triples, out_shape):
        layer = ready(Convolution(fshape, strides, padding, dilation, init=Gaussian()), in_shape)
        image = in_shape[1:] if len(in_shape) == 4 else (1, *in_shape[1:])
        s = conv_loops.Sizes(N, in_shape[0], layer.nglayer.K, image=image, **triples)
        assert layer.out_shape == out_shape
        assert layer.W.shape == layer.weight_shape == (np.prod(s.shape_f[:-1]), s.K)
        x, e = rng.normal(size=s.shape_i), rng.normal(size=s.shape_o)
        W = layer.W.get().reshape(s.shape_f)
        y = layer.fprop(tensor(be64, matrix(x))).get()
        np.testing.assert_allclose(y, matrix(conv_loops.forward(s, x, W)), rtol=1e-10, atol=1e-12)
        deltas = layer.bprop(tensor(be64, matrix(e))).get()
        np.testing.assert_allclose(deltas, matrix(conv_loops.backward(s, e, W)), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), matrix(conv_loops.update(s, x, e)), rtol=1e-10, atol=1e-12)

    def test_groups_see_their_channels_only(self, be64, rng):
        layer = ready(Convolution((2, 2, 4), init=Gaussian(), groups=2), (6, 3, 3))
        s = conv_loops.Sizes(N, 6, 4, image=(1, 3, 3), window=(1, 2, 2), groups=2)
        x = rng.normal(size=s.shape_i)
        wanted = conv_loops.forward(s, x, layer.W.get().reshape(s.shape_f))
        np.testing.assert_allclose(layer.fprop(tensor(be64, matrix(x))).get(), matrix(wanted), rtol=1e-10, atol=1e-12)
        assert layer.get_description()["config"]["groups"] == 2

    def test_the_contracts_numbers(self, be):
        """Section 22 of the facts about neon."""
        be.bsz = 2
        values = (np.arange(36) / 10).reshape(18, 2), (np.arange(16) / 10 - 0.8).reshape(8, 2)
        sizes = {"strides": {"str_h": 2, "str_w": 1}, "padding": {"pad_h": 1, "pad_w": 0}}
        layer = ready(Convolution((2, 2, 2), init=values[1].astype(np.float32), **sizes), (2, 3, 3))
        assert layer.out_shape == (2, 2, 2)
        y = layer.fprop(tensor(be, values[0])).get()
        wanted = [1.88, 1.92, 1.96, 2, 1.92, 1.84, 1.76, 1.68, 2.28, 2.36, 2.44, 2.52, 3.44, 3.44, 3.44, 3.44]
        np.testing.assert_allclose(y.ravel(), wanted, rtol=1e-5)
        deltas = layer.bprop(tensor(be, (np.arange(16) / 10).reshape(8, 2))).get()
        np.testing.assert_allclose(deltas[:3, 0], [-0.24, -0.46, -0.14], rtol=1e-4)
        np.testing.assert_allclose(layer.dW.get()[[0, 7]], [[1.7, 4.1], [8.76, 26.36]], rtol=1e-5)

    def test_alpha_and_beta_apply_to_the_deltas_only(self, be64, rng):
        layer = ready(Convolution((2, 2, 3), init=Gaussian()), (2, 3, 4))
        x, e = tensor(be64, rng.normal(size=(24, N))), tensor(be64, rng.normal(size=(18, N)))
        y = layer.fprop(x).get().copy()
        np.testing.assert_allclose(layer.fprop(x, beta=0.5).get(), 1.5 * y, rtol=1e-12)
        plain, dW = layer.bprop(e).get().copy(), layer.dW.get().copy()
        layer.deltas.fill(1.0)
        np.testing.assert_allclose(layer.bprop(e, alpha=2.0, beta=3.0).get(), 2 * plain + 3, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), dW, rtol=1e-12)

    @pytest.mark.parametrize("kind", [Convolution, Convolution_bias])
    def test_dw_alpha_and_dw_beta_apply_to_the_gradient_of_the_weight_only(self, be64, rng, kind):
        given = {"bias": Constant(0)} if kind is Convolution_bias else {}
        layer = ready(kind((2, 2, 3), init=Gaussian(), **given), (2, 3, 4))
        x, e = tensor(be64, rng.normal(size=(24, N))), tensor(be64, rng.normal(size=(18, N)))
        layer.fprop(x)
        plain, dW = layer.bprop(e).get().copy(), layer.dW.get().copy()
        np.testing.assert_allclose(layer.bprop(e, dW_alpha=2.0, dW_beta=0.5).get(), plain, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), 2.5 * dW, rtol=1e-12)

    def test_a_layer_that_takes_no_gradients(self, be, rng):
        layer = Convolution_bias((2, 2, 3), init=Gaussian(), bias=Constant(0)).configure((2, 3, 4))
        layer.takes_gradients = False
        layer.allocate()
        assert layer.dW is layer.grad_bias is None
        assert np.isfinite(layer.fprop(tensor(be, rng.normal(size=(24, N)))).get()).all()

    def test_bsum_sums_each_map_in_training(self, be, rng):
        layer = ready(Convolution((2, 2, 3), init=Gaussian(), bsum=True), (2, 3, 4))
        x = tensor(be, rng.normal(size=(24, N)))
        y = layer.fprop(x).get()
        assert layer.batch_sum.shape == (3, 1) and layer.batch_sum.dtype == np.float32
        sums = y.reshape(3, -1).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(layer.batch_sum.get(), sums, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("columns", [1, 2])
    def test_fewer_images_in_inference(self, be, rng, columns):
        layer = ready(Convolution((2, 2, 3), init=Gaussian()), (2, 3, 4))
        x = rng.normal(size=(24, N))
        whole = layer.fprop(tensor(be, x)).get().copy()
        part = layer.fprop(tensor(be, x[:, :columns]), inference=True)
        assert part.shape == (18, columns)
        np.testing.assert_allclose(part.get(), whole[:, :columns], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(layer.fprop(tensor(be, x)).get(), whole, rtol=1e-6)
        with pytest.raises(ShapeError, match="inference"):
            layer.fprop(tensor(be, x[:, :columns]))

    def test_gradients_add_up(self, be64, rng):
        layer = ready(Convolution_bias((2, 2, 3), init=Gaussian(), bias=Uniform()), (2, 3, 4), accumulate_updates=True)
        x, e = tensor(be64, rng.normal(size=(24, N))), tensor(be64, rng.normal(size=(18, N)))
        layer.fprop(x)
        layer.bprop(e)
        once = [grad.get().copy() for _, grad in layer.acc_params]
        layer.set_acc_on(True)
        layer.bprop(e)
        for grad, (_, pair) in zip(once, layer.acc_params, strict=True):
            np.testing.assert_allclose(pair.get(), 2 * grad, rtol=1e-12)
        layer.set_acc_on(False)
        layer.bprop(e)
        np.testing.assert_allclose(layer.grad_bias.get(), once[1], rtol=1e-12)

    def test_defaults_are_left_out_of_descriptions_and_the_users_form_stays(self, be):
        layer = Convolution((3, 3, 4), padding={"pad_h": 1}, init=Constant(1), name="c")
        config = layer.get_description()["config"]
        assert config["fshape"] == (3, 3, 4) and config["padding"] == {"pad_h": 1}
        assert not {"strides", "dilation", "groups", "bsum"} & set(config)


class TestConvolutionErrors:
    """Errors say what came and what was expected."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"fshape": (3, 4)}, r"\(R, S, K\) or \(T, R, S, K\)"),
            ({"fshape": {"R": 3, "K": 2}}, "no S"),
            ({"fshape": {"R": 3, "S": 3, "k": 2}}, "did you mean|there is no size 'k'"),
            ({"fshape": (3, 0, 2)}, "S.*positive"),
            ({"strides": 0}, "str_h must be at least 1"),
            ({"padding": -1}, "pad_h must be at least 0"),
            ({"padding": {"pad_x": 1}}, "pad_x.*pad_h"),
        ],
    )
    def test_wrong_values(self, be, arguments, message):
        with pytest.raises((ArgumentError, ShapeError), match=message):
            Convolution(**{"fshape": (3, 3, 2), "init": Gaussian(), **arguments})

    @pytest.mark.parametrize("arguments", [{"fshape": 3}, {"fshape": (3, 3.0, 2)}, {"strides": "2"}, {"strides": 1.5}])
    def test_wrong_types(self, be, arguments):
        with pytest.raises(DTypeError, match="Convolution"):
            Convolution(**{"fshape": (3, 3, 2), "init": Gaussian(), **arguments})

    def test_inputs_that_are_no_images(self, be):
        with pytest.raises(ShapeError, match="Reshape"):
            Convolution((3, 3, 2), init=Gaussian()).configure((10, 4))
        with pytest.raises(ShapeError, match="larger than the padded input"):
            Convolution((3, 3, 2), init=Gaussian()).configure((1, 2, 8))

    def test_weights_of_another_shape(self, be):
        with pytest.raises(ShapeError, match=r"\(2, 2\).*\(8, 2\)"):
            ready(Convolution((2, 2, 2), init=np.ones((2, 2))), (2, 3, 3))

    def test_a_layer_that_is_not_ready(self, be):
        layer = Convolution((2, 2, 2), init=Gaussian())
        with pytest.raises(ArgumentError, match="configure"):
            layer.fprop(be.zeros((18, N)))
        with pytest.raises(ArgumentError, match="fprop first"):
            ready(layer, (2, 3, 3)).bprop(be.zeros((8, N)))


class TestConvolutionBias:
    """The bias in the same call."""

    def test_forward_and_backward(self, be64, rng):
        layer = ready(Convolution_bias((2, 2, 3), init=Gaussian(), bias=Uniform()), (2, 3, 4))
        s = conv_loops.Sizes(N, 2, 3, image=(1, 3, 4), window=(1, 2, 2))
        x, e = rng.normal(size=s.shape_i), rng.normal(size=s.shape_o)
        bias = layer.weight_bias.get()
        wanted = conv_loops.forward(s, x, layer.W.get().reshape(s.shape_f)) + bias.reshape(3, 1, 1, 1, 1)
        np.testing.assert_allclose(layer.fprop(tensor(be64, matrix(x))).get(), matrix(wanted), rtol=1e-10, atol=1e-12)
        layer.bprop(tensor(be64, matrix(e)))
        np.testing.assert_allclose(layer.grad_bias.get(), e.reshape(3, -1).sum(axis=1, keepdims=True), rtol=1e-10)
        (weight, weight_states), (shift, shift_states) = layer.get_params()
        assert weight[0] is layer.W and shift == (layer.weight_bias, layer.grad_bias)
        assert weight_states == shift_states == [] and weight_states is not shift_states

    def test_defect_24_an_array_as_bias(self, be):
        layer = ready(Convolution_bias((2, 2, 3), init=np.ones((8, 3)), bias=np.arange(3.0).reshape(3, 1)), (2, 3, 4))
        np.testing.assert_array_equal(layer.weight_bias.get(), [[0], [1], [2]])
        with pytest.raises(ShapeError, match=r"\(8, 3\).*\(3, 1\)"):
            ready(Convolution_bias((2, 2, 3), init=np.ones((8, 3)), bias=np.ones((8, 3))), (2, 3, 4))

    def test_a_missing_bias(self, be):
        with pytest.raises(ArgumentError, match="bias="):
            ready(Convolution_bias((2, 2, 3), init=Gaussian()), (2, 3, 4))

    def test_conv_makes_one_layer_of_both(self, be):
        layers = Conv((2, 2, 3), Gaussian(), bias=Constant(0), activation=Rectlin(), name="c")
        assert [type(layer).__name__ for layer in layers] == ["Convolution_bias", "Activation"]
        assert [layer.name for layer in layers] == ["c", "c_Rectlin"]
        assert [layer.name for layer in Conv((2, 2, 3), Gaussian(), batch_norm=True, name="c")] == ["c", "c_bnorm"]
        assert Conv((2, 2, 3), Gaussian(), batch_norm=True)[0].bsum
        with pytest.raises(AttributeError, match="batch_norm"):
            Conv((2, 2, 3), Gaussian(), bias=Constant(0), batch_norm=True)

    @pytest.mark.parametrize("layers", [1, 2])
    def test_saving_and_loading_in_neons_old_form_too(self, be, layers):
        made = Convolution_bias((2, 2, 3), init=Gaussian(), bias=Uniform(), name="c")
        layer = ready(made, (2, 3, 4))
        layer.states[0].append(be.ones(layer.W.shape))
        layer.states[1].append(be.array(np.full((3, 1), 2.0)))
        saved = layer.get_description(get_weights=True)
        assert set(saved["params"]) == {"W", "weight_bias"} and len(saved["states"]) == 2
        if layers == 2:
            weight, bias = saved["params"]["W"], saved["params"]["weight_bias"]
            saved = [
                {"type": "neon.layers.layer.Convolution", "params": {"W": weight}, "states": saved["states"][0]},
                {"type": "neon.layers.layer.Bias", "params": {"W": bias}, "states": saved["states"][1]},
            ]
        other = ready(Convolution_bias((2, 2, 3), init=Constant(0), bias=Constant(0)), (2, 3, 4))
        other.load_weights(saved)
        np.testing.assert_array_equal(other.W.get(), layer.W.get())
        np.testing.assert_array_equal(other.weight_bias.get(), layer.weight_bias.get())
        assert [state[0].get().max() for state in other.states] == [1, 2]

    def test_missing_states_are_said(self, be):
        layer = ready(Convolution_bias((2, 2, 3), init=Gaussian(), bias=Uniform()), (2, 3, 4))
        saved = layer.get_description(get_weights=True, keep_states=False)
        with pytest.raises(AssertionError, match="load_states=False"):
            layer.load_weights(saved)
        layer.load_weights(saved, load_states=False)


class TestPooling:
    """Against loops in float64."""

    @pytest.mark.parametrize("op", ["max", "avg", "l2"])
    def test_forward_and_backward(self, be64: Backend, rng, op):
        layer = ready(Pooling((3, 2), op, strides=2, padding={"pad_h": 1}), (2, 5, 6))
        sizes = pool_loops.Sizes(N, C=2, H=5, W=6, R=3, S=2, str_h=2, str_w=2, pad_h=1)
        assert layer.out_shape == (2, 3, 3)
        x, e = rng.normal(size=sizes.dimI), rng.normal(size=sizes.dimO)
        wanted = pool_loops.forward(op, sizes, x)
        np.testing.assert_allclose(layer.fprop(tensor(be64, matrix(x))).get(), matrix(wanted), rtol=1e-10)
        deltas = pool_loops.backward(op, sizes, x, e)
        found = layer.bprop(tensor(be64, matrix(e))).get().copy()
        np.testing.assert_allclose(found, matrix(deltas), rtol=1e-10, atol=1e-12)
        layer.deltas.fill(1.0)
        found = layer.bprop(tensor(be64, matrix(e)), alpha=2.0, beta=0.5).get()
        np.testing.assert_allclose(found, 2 * matrix(deltas) + 0.5, rtol=1e-10, atol=1e-12)
        blended = layer.fprop(tensor(be64, matrix(x)), beta=1.0).get()
        np.testing.assert_allclose(blended, 2 * matrix(wanted), rtol=1e-10)

    @pytest.mark.parametrize(
        ("fshape", "in_shape", "out_shape", "strides"),
        [
            (2, (2, 5, 6), (2, 2, 3), (1, 1, 2, 2)),
            ("all", (2, 5, 6), (2, 1, 1), (1, 1, 5, 6)),
            ((2, 3, 2), (2, 4, 5, 6), (2, 2, 1, 3), (1, 2, 3, 2)),
            ({"J": 2, "R": 1, "S": 1}, (4, 3, 3), (2, 3, 3), (2, 1, 1, 1)),
            ((2, 2), (2, 1, 4, 4), (2, 1, 2, 2), (1, 1, 2, 2)),
        ],
    )
    def test_windows(self, be, fshape, in_shape, out_shape, strides):
        layer = ready(Pooling(fshape), in_shape)
        assert layer.out_shape == out_shape and layer.nglayer.strides == strides
        y = layer.fprop(be.ones((int(np.prod(in_shape)), N)))
        np.testing.assert_array_equal(y.get(), np.ones((int(np.prod(out_shape)), N)))

    def test_the_contracts_numbers(self, be):
        be.bsz = 2
        layer = ready(Pooling(2, strides=1, padding=1), (1, 2, 2))
        y = layer.fprop(tensor(be, [[1, 2], [3, 4], [5, 6], [7, 8]])).get()
        np.testing.assert_array_equal(y[:, 0], [1, 3, 3, 5, 7, 7, 5, 7, 7])
        np.testing.assert_array_equal(layer.bprop(be.ones((9, 2))).get()[:, 0], [1, 2, 2, 4])

    def test_defect_23_forward_before_set_deltas(self, be):
        layer = Pooling(2).configure((1, 4, 4))
        layer.allocate()
        assert layer.argmax.dtype == np.uint8
        np.testing.assert_array_equal(layer.fprop(be.ones((16, N))).get(), np.ones((4, N)))
        assert layer.bprop(be.ones((4, N))) is None

    def test_defect_14_windows_of_more_than_255_positions(self, be, rng):
        layer = ready(Pooling("all"), (1, 17, 17))
        x = np.zeros((17 * 17, N))
        x[280] = 1
        layer.fprop(tensor(be, x))
        np.testing.assert_array_equal(layer.bprop(be.ones((1, N))).get(), x)

    def test_fewer_images_in_inference(self, be, rng):
        layer = ready(Pooling(2), (2, 4, 4))
        x = rng.normal(size=(32, N))
        whole = layer.fprop(tensor(be, x)).get().copy()
        np.testing.assert_array_equal(layer.fprop(tensor(be, x[:, :2]), inference=True).get(), whole[:, :2])

    def test_errors(self, be):
        with pytest.raises(ArgumentError, match="'max', 'avg' or 'l2'"):
            Pooling(2, op="mean")
        with pytest.raises(ArgumentError, match="'all'"):
            Pooling("everything")
        with pytest.raises(DTypeError, match="fshape"):
            Pooling(2.5)
        with pytest.raises(ShapeError, match="larger"):
            Pooling(3).configure((1, 2, 2))
        with pytest.raises(ShapeError, match="images"):
            Pooling(3).configure(12)
        with pytest.raises(ArgumentError, match="fprop first"):
            ready(Pooling(2), (1, 4, 4)).bprop(be.ones((4, N)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Convolution((2, 2, 3), padding=1, init=Gaussian()),
        lambda: Deconvolution((2, 2, 3), init=Gaussian()),
        lambda: Pooling(2),
        lambda: LRN(3),
    ],
    ids=["convolution", "deconvolution", "pooling", "lrn"],
)
def test_images_may_come_with_all_their_axes(be, rng, make):
    layer = ready(make(), (2, 4, 6))
    x = rng.normal(size=(2, 4, 6, N))
    wanted = layer.fprop(tensor(be, x.reshape(48, N))).get()
    e = rng.normal(size=wanted.shape)
    deltas = layer.bprop(tensor(be, e)).get()
    gradient = layer.dW.get() if layer.has_params else None
    np.testing.assert_array_equal(layer.fprop(tensor(be, x)).get(), wanted)
    np.testing.assert_array_equal(layer.bprop(tensor(be, e.reshape(*layer.out_shape, N))).get(), deltas)
    if gradient is not None:
        np.testing.assert_array_equal(layer.dW.get(), gradient)
    with pytest.raises(ShapeError, match="configured for 48 features"):
        layer.fprop(tensor(be, x.transpose(3, 0, 1, 2)))
