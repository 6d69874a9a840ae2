"""Deconvolution, LRN, lookup tables, binary weights, batch normalization by expressions, regions of interest."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, NeonlikeError, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import (
    LRN,
    Activation,
    BatchNorm,
    BatchNormAutodiff,
    BinaryAffine,
    BinaryLinear,
    Conv,
    Deconv,
    Deconvolution,
    Embedding,
    Linear,
    LookupTable,
    RoiPooling,
    Sequential,
)
from neonlike.layers.container import DeltasTree
from neonlike.transforms import Rectlin, Sign, Tanh
from tests.layers.layering import check_gradients, ready, tensor
from tests.support.float64 import conv_loops, lrn_loops

N = 3
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


def matrix(values):
    return values.reshape(-1, values.shape[-1])


class TestDeconvolution:
    """The data gradient of a convolution, forward."""

    def test_the_contracts_numbers(self, be):
        be.bsz = 2
        weight = np.array([[1], [2], [3], [4]], dtype=np.float32)
        layer = ready(Deconvolution((2, 2, 1), strides=2, init=weight), (1, 2, 2))
        assert layer.out_shape == (1, 4, 4)
        y = layer.fprop(tensor(be, [[1, 2], [3, 4], [5, 6], [7, 8]])).get()
        np.testing.assert_array_equal(y[:, 0], [1, 2, 3, 6, 3, 4, 9, 12, 5, 10, 7, 14, 15, 20, 21, 28])

    @pytest.mark.parametrize(
        ("fshape", "in_shape", "triples", "out_shape"),
        [
            ((3, 2, 2), (4, 2, 3), {"image": (1, 3, 6), "window": (1, 3, 2)}, (2, 3, 6)),
            ((2, 3, 2, 2), (4, 2, 2, 3), {"image": (3, 3, 6), "window": (2, 3, 2)}, (2, 3, 3, 6)),
        ],
    )
    def test_forward_and_backward(self, be64, rng, fshape, in_shape, triples, out_shape):
        made = Deconvolution(fshape, strides={"str_h": 2, "str_w": 2}, padding={"pad_h": 1}, init=Gaussian())
        layer = ready(made, in_shape)
        assert layer.out_shape == out_shape
        s = conv_loops.Sizes(N, 2, 4, step=(1, 2, 2), pad=(0, 1, 0), **triples)
        assert layer.W.shape == (np.prod(s.shape_f[:-1]), 4)
        x, e = rng.normal(size=s.shape_o), rng.normal(size=s.shape_i)
        W = layer.W.get().reshape(s.shape_f)
        y = layer.fprop(tensor(be64, matrix(x))).get()
        np.testing.assert_allclose(y, matrix(conv_loops.backward(s, x, W)), rtol=1e-10, atol=1e-12)
        deltas = layer.bprop(tensor(be64, matrix(e))).get().copy()
        np.testing.assert_allclose(deltas, matrix(conv_loops.forward(s, e, W)), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), matrix(conv_loops.update(s, e, x)), rtol=1e-10, atol=1e-12)
        layer.deltas.fill(1.0)
        blended = layer.bprop(tensor(be64, matrix(e)), alpha=2.0, beta=3.0).get()
        np.testing.assert_allclose(blended, 2 * deltas + 3, rtol=1e-10, atol=1e-12)

    def test_compound_layers(self, be64, rng):
        names = [type(layer).__name__ for layer in Deconv((2, 2, 3), Gaussian(), bias=Constant(0), activation=Tanh())]
        assert names == ["Deconvolution", "Bias", "Activation"]
        found = []
        for folds in (True, False):
            be64.rng_reset()
            chain = [
                Deconv((2, 2, 3), Gaussian(), strides=2, bias=Uniform(-1, 1), activation=Rectlin(0.5)),
                Deconv((2, 2, 2), Gaussian(), padding=1, batch_norm=True, activation=Tanh()),
            ]
            net = Sequential(chain)
            net.folds = folds
            ready(net, (2, 2, 3))
            assert len(net.layers[0].folded) == 2 * folds
            x = np.linspace(-1, 1, 12 * N).reshape(12, N)
            check_gradients(net, x, rng)
            found.append(net.fprop(tensor(be64, x)).get().copy())
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6)

    def test_fewer_images_in_inference(self, be, rng):
        layer = ready(Deconvolution((2, 2, 3), init=Gaussian()), (2, 2, 3))
        x = rng.normal(size=(12, N))
        whole = layer.fprop(tensor(be, x)).get().copy()
        part = layer.fprop(tensor(be, x[:, :2]), inference=True).get()
        np.testing.assert_allclose(part, whole[:, :2], rtol=1e-5, atol=1e-6)

    def test_errors(self, be):
        with pytest.raises(ArgumentError, match=r"\(R, S, C\)"):
            Deconvolution((2, 2), init=Gaussian())
        with pytest.raises(ShapeError, match="Reshape"):
            Deconvolution((2, 2, 1), init=Gaussian()).configure(12)
        with pytest.raises(ShapeError, match="leave an output"):
            Deconvolution((2, 2, 1), padding=4, init=Gaussian()).configure((1, 2, 2))


class TestLrn:
    """Local response normalization."""

    def test_the_contracts_numbers(self, be):
        be.bsz = 2
        layer = ready(LRN(3, ascale=0.3, bpower=0.75), (3, 1, 1))
        y = layer.fprop(tensor(be, np.arange(1, 7).reshape(3, 2))).get()
        wanted = [[0.594604, 0.877383], [0.970984, 0.971409], [1.645813, 1.527065]]
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
        np.testing.assert_allclose(layer.denom.get(), [[2, 3], [4.5, 6.6], [4.4, 6.2]], rtol=1e-6)
        wanted = [[0.517642, 0.306798], [-0.075545, -0.168715], [-0.113204, -0.099625]]
        np.testing.assert_allclose(layer.bprop(be.ones((3, 2))).get(), wanted, rtol=1e-4)

    def test_forward_and_backward(self, be64, rng):
        layer = ready(LRN(5, ascale=0.5, bpower=0.75), (7, 2, 1))
        x, e = rng.normal(size=(7, 2 * N)), rng.normal(size=(7, 2 * N))
        denom, y = lrn_loops.forward(x, 5, 0.5, 0.75)
        np.testing.assert_allclose(layer.fprop(tensor(be64, x.reshape(14, N))).get(), y.reshape(14, N), rtol=1e-10)
        wanted, _ = lrn_loops.backward(x, y, e, denom, 5, 0.5, 0.75)
        found = layer.bprop(tensor(be64, e.reshape(14, N)), alpha=2.0).get()
        np.testing.assert_allclose(found, 2 * wanted.reshape(14, N), rtol=1e-9, atol=1e-12)
        part = layer.fprop(tensor(be64, x.reshape(14, N)[:, :1]), inference=True).get()
        np.testing.assert_allclose(part, y.reshape(14, N)[:, :1], rtol=1e-10)

    def test_errors(self, be):
        with pytest.raises(ArgumentError, match="odd"):
            LRN(4)
        with pytest.raises(ShapeError, match="images"):
            LRN(3).configure((4, 2))


class TestLookupTable:
    """Vectors of words."""

    def test_the_contracts_numbers(self, be):
        be.bsz = 2
        layer = ready(LookupTable(4, 2, np.arange(8, dtype=np.float32).reshape(4, 2) + 0.0, pad_idx=0), (2,))
        assert layer.out_shape == (2, 2) and layer.inputs.dtype == np.int32 and layer.inputs.shape == (1, 4)
        y = layer.fprop(tensor(be, [[1, 3], [2, 0]])).get()
        np.testing.assert_array_equal(y, [[2, 6, 4, 0], [3, 7, 5, 0]])
        layer.bprop(tensor(be, np.arange(8).reshape(2, 4)))
        np.testing.assert_array_equal(layer.dW.get(), [[0, 0], [0, 4], [2, 6], [1, 5]])

    @pytest.mark.parametrize("in_shape", [4, (4,), (4, 1)])
    def test_each_word_gets_the_sum_of_its_errors(self, be64, rng, in_shape):
        layer = ready(LookupTable(5, 3, Gaussian()), in_shape)
        words, e = rng.integers(5, size=(4, N)), rng.normal(size=(3, 4 * N))
        y = layer.fprop(tensor(be64, words)).get()
        np.testing.assert_array_equal(y, layer.W.get()[words.ravel()].T)
        layer.deltas.fill(7)
        for _ in range(2):  # overwritten, not added to
            deltas = layer.bprop(tensor(be64, e))
        wanted = np.zeros((5, 3))
        np.add.at(wanted, words.ravel(), e.T)
        np.testing.assert_allclose(layer.dW.get(), wanted, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(deltas.get(), np.zeros((4, N)))
        part = layer.fprop(tensor(be64, words[:, :2]), inference=True).get()
        np.testing.assert_array_equal(part, layer.W.get()[words[:, :2].ravel()].T)

    def test_without_update(self, be):
        layer = ready(LookupTable(5, 3, Gaussian(), update=False), 2)
        layer.fprop(be.ones((2, N)))
        layer.bprop(be.ones((3, 2 * N)))
        np.testing.assert_array_equal(layer.dW.get(), np.zeros((5, 3)))

    def test_gradients_cannot_add_up(self, be):
        layer = LookupTable(5, 3, Gaussian())
        layer.configure(2)
        with pytest.raises(TypeError):
            layer.allocate(accumulate_updates=True)
        layer.allocate()
        with pytest.raises(BufferError):
            layer.set_acc_on(True)

    def test_embedding_is_the_same_layer(self, be):
        layer = ready(Embedding(5, 3, padding_idx=1), 2)
        assert isinstance(layer, LookupTable) and (layer.vocab_size, layer.pad_idx) == (5, 1)
        np.testing.assert_array_equal(layer.W.get()[1], np.zeros(3))
        assert np.abs(layer.W.get()).max() > 0.1
        config = layer.get_description()["config"]
        assert (config["num_embeddings"], config["embedding_dim"], config["padding_idx"]) == (5, 3, 1)

    def test_errors(self, be):
        layer = ready(LookupTable(5, 3, Gaussian()), 2)
        with pytest.raises(IndexRangeError):
            layer.fprop(tensor(be, np.full((2, N), 5)))
            be.synchronize()  # a GPU tells it then
        with pytest.raises(ShapeError, match=r"\(3, 3\).*\(2, 3\)"):
            layer.fprop(be.ones((3, N)))
        with pytest.raises(IndexRangeError, match="pad_idx"):
            LookupTable(5, 3, Gaussian(), pad_idx=5)
        with pytest.raises(ShapeError, match="word numbers"):
            LookupTable(5, 3, Gaussian()).configure((2, 3))


class TestBinary:
    """Weights of +1 and -1."""

    @pytest.mark.parametrize("after_signs", [True, False])
    def test_forward_and_backward(self, be64, rng, after_signs):
        layer = BinaryLinear(4, Gaussian())
        net = ready(Sequential([Linear(6, Gaussian()), Activation(Sign() if after_signs else Tanh()), layer]), 5)
        net.fprop(tensor(be64, rng.normal(size=(5, N))))
        x, W = layer.inputs.get().copy(), layer.W.get()
        signs = np.where(W >= 0, 1.0, -1.0)
        np.testing.assert_array_equal(layer.Wb.get(), signs)
        np.testing.assert_allclose(layer.outputs.get(), signs @ x, rtol=1e-12)
        e = rng.normal(size=(4, N))
        np.testing.assert_allclose(layer.bprop(tensor(be64, e)).get(), signs.T @ e, rtol=1e-12)
        np.testing.assert_allclose(layer.dW.get(), e @ x.T, rtol=1e-12)

    def test_compound_layers(self, be):
        layers = BinaryAffine(4, Gaussian(), batch_norm=True, activation=Sign(), name="b")
        assert [layer.name for layer in layers] == ["b", "b_sbnorm", "b_Sign"]
        assert layers[0].bsum and type(layers[1]).__name__ == "ShiftBatchNorm"
        net = ready(Sequential([*layers, *BinaryAffine(2, Gaussian(), bias=Constant(0.5))]), 3)
        y = net.fprop(tensor(be, np.linspace(-1, 1, 3 * N).reshape(3, N))).get()
        assert set(np.unique(y - 0.5)) <= {-4, -2, 0, 2, 4}

    def test_gradients_cannot_add_up(self, be):
        with pytest.raises(TypeError):
            BinaryLinear(4, Gaussian()).configure(3).allocate(accumulate_updates=True)


class TestBatchNormAutodiff:
    """As BatchNorm, by expressions."""

    def test_defect_22_equals_batch_norm(self, be64, rng):
        x, e = rng.normal(size=(12, N)), rng.normal(size=(12, N))
        found = []
        for layer in (BatchNormAutodiff(0.9, 1e-3), BatchNorm(0.9, 1e-3)):
            ready(layer, (3, 2, 2))
            values = [layer.fprop(tensor(be64, x)).get().copy()]
            values += [layer.bprop(tensor(be64, e)).get().copy(), layer.grad_gamma.get(), layer.grad_beta.get()]
            values += [layer.gmean.get(), layer.gvar.get()]
            values += [layer.fprop(tensor(be64, x[:, :2]), inference=True).get()]
            layer.fprop(tensor(be64, 2 * x), beta=0.5)
            layer.deltas.fill(1.0)
            found.append([*values, layer.bprop(tensor(be64, e), alpha=2.0, beta=3.0).get()])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)

    def test_defaults(self, be):
        layer = BatchNormAutodiff()
        assert (layer.rho, layer.eps, layer.has_params) == (0.99, 1e-6, True)
        net = Sequential([layer, Activation(Rectlin())])
        net.configure(3)
        assert layer.folded == ()


class TestRoiPooling:
    """Regions of interest."""

    def regions(self):
        """Two regions of a map of 4 x 4 at a quarter of the image's size."""
        return np.array([[0, 0, 0, 12, 12], [0, 4, 8, 8, 12]]).T

    def made(self, be, **options):
        be.bsz = 1
        layer = RoiPooling((2, 2), spatial_scale=0.25, **options).configure([(2, 4, 4), (5, 2)])
        layer.prev_layer = True
        layer.allocate()
        tree = DeltasTree()
        layer.allocate_deltas(tree)
        tree.allocate_buffers()
        layer.set_deltas(tree)
        return layer

    def test_forward_and_backward(self, be):
        layer = self.made(be)
        assert layer.out_shape == (8, 2) and layer.max_idx.dtype == np.int32
        x = np.arange(32).reshape(32, 1)
        y = layer.fprop((tensor(be, x), tensor(be, self.regions()))).get()
        np.testing.assert_array_equal(y[:4, 0], [5, 7, 13, 15])
        np.testing.assert_array_equal(y[4:, 0] - y[:4, 0], [16] * 4)
        np.testing.assert_array_equal(y[:4, 1], [9, 10, 13, 14])
        deltas = layer.bprop(be.ones((8, 2))).get()
        wanted = np.zeros(16)
        np.add.at(wanted, [5, 7, 13, 15, 9, 10, 13, 14], 1)
        np.testing.assert_array_equal(deltas[:16, 0], wanted)
        np.testing.assert_array_equal(layer.error.get(), deltas)
        layer.deltas.fill(1.0)
        np.testing.assert_array_equal(layer.bprop(be.ones((8, 2)), alpha=2.0, beta=3.0).get()[:16, 0], 2 * wanted + 3)
        np.testing.assert_array_equal(layer.error.get(), deltas)

    def test_without_a_gradient(self, be):
        layer = self.made(be, bprop_enabled=False)
        layer.fprop((be.ones((32, 1)), tensor(be, self.regions())))
        layer.deltas.fill(5.0)
        np.testing.assert_array_equal(layer.bprop(be.ones((8, 2))).get(), np.zeros((32, 1)))

    def test_pixels_that_half_precision_cannot_tell_apart(self):
        be = gen_backend("cpu", batch_size=1, datatype=np.float16)
        layer = RoiPooling((1, 1), spatial_scale=1.0).configure([(1, 1, 2051), (5, 1)])
        layer.allocate()
        x = be.array(np.eye(2051)[:, 2049:2050])
        regions = be.array([[0.0], [2049], [0], [2050], [0]], dtype=np.float32)
        assert layer.fprop((x, regions)).get() == 1
        regions[3:4] = 2048.0
        regions[1:2] = 2047.0
        assert layer.fprop((x, regions)).get() == 0

    def test_errors(self, be):
        with pytest.raises(ArgumentError, match="HW"):
            RoiPooling(7)
        with pytest.raises(ShapeError, match="two layers or shapes"):
            RoiPooling().configure((2, 4, 4))
        with pytest.raises(ShapeError, match="5, regions"):
            RoiPooling().configure([(2, 4, 4), (4, 2)])
        layer = self.made(be)
        with pytest.raises(DTypeError, match="regions"):
            layer.fprop(be.ones((32, 1)))
        with pytest.raises(ShapeError, match=r"\(5, 3\)"):
            layer.fprop((be.ones((32, 1)), be.ones((5, 3))))


def test_a_linear_layer_rectifies_in_its_product(be64, rng):
    net = ready(Sequential([Linear(4, Gaussian()), Activation(Rectlin()), *Conv((1, 1, 2), Gaussian())][:2]), 5)
    assert net.layers[0].folded == (net.layers[1],)
    x = rng.normal(size=(5, N))
    y = net.fprop(tensor(be64, x)).get()
    np.testing.assert_allclose(y, np.maximum(net.layers[0].W.get() @ x, 0), rtol=1e-12)
    check_gradients(net, x, rng)
    with pytest.raises(NeonlikeError):
        net.fprop(be64.ones((6, N)))
