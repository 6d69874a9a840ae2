"""The wanted behaviour where neon's backend and expressions were known to be wrong.

neon's 44 known defects by number. A test ``test_defect_NN_...`` shows the wanted behaviour.

Here (tensors, expressions, products, histograms, gradients of views, current Python and NumPy):
    1 2 3 4 5 6 7 8 9 10 11 12 17 18 19 20 38
In tests of the training stack:
    10 initializers/test_initializers, 21 layers/test_mlp, 24 layers/test_mlp, 28 transforms/test_costs, 29
    transforms/test_metrics, 30 optimizers/test_schedules, 32 data/test_array_iterator, 34 util/test_persist, 35
    optimizers/test_optimizers, 37 models/test_model_storage, 38 callbacks/test_callbacks, 40 models/test_model_mlp,
    40 layers/container/test_sequential
Come with what they are about:
    12 13 convolution; 14 15 23 pooling; 16 22 44 batch normalisation; 25 26 27 recurrent layers; 31 the GPU;
    10 33 data sets; 36 the ``neon`` command; 39 41 43 sequence models; 40 load_experiment; 42 merge layers
"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree.node import OpTreeNode
from tests import ROOT
from tests.support.engines import new_backend

pytestmark = pytest.mark.optree

A = np.arange(12.0).reshape(3, 4)


def test_defect_01_integers_out_of_range_raise_and_iteration_ends(be: Backend) -> None:
    t = be.array(A)
    for index in (3, -4, (0, 4)):
        with pytest.raises(IndexError):
            t[index]
    rows = list(itertools.islice(t, 10))
    assert [row.get().tolist() for row in rows] == [[row] for row in A.tolist()]


def test_defect_02_numpy_integers_arrays_and_tensors_index(be: Backend) -> None:
    t = be.array(A)
    assert t[np.int32(1)].shape == t[1].shape == (1, 4)
    assert t[:, np.int64(-1)].get().tolist() == [[3], [7], [11]]
    for index in (np.array([2, 0]), be.array([2, 0], dtype=np.int32), [2, 0]):
        assert np.array_equal(t[index].get(), A[[2, 0]])
        assert np.array_equal(t[:, index].get(), A[:, [2, 0]])


def test_defect_03_assignment_through_a_list_scatters(be: Backend) -> None:
    for index in ([2, 0], np.array([2, 0]), be.array([2, 0], dtype=np.int32)):
        t = be.array(A)
        t[index] = be.array([[1, 1, 1, 1], [2, 2, 2, 2]])
        assert t.get().tolist() == [[2] * 4, A[1].tolist(), [1] * 4]
        t[:, index] = t[:, index] * 0 - 1
        assert t.get().tolist() == [[-1, 2, -1, 2], [-1, 5, -1, 7], [-1, 1, -1, 1]]


def test_defect_04_slices_of_length_one_keep_their_axis(be: Backend) -> None:
    t = be.array(np.arange(24.0).reshape(2, 3, 4))
    assert t[:, :, 0:1].shape == (2, 3, 1)
    assert t[0:1].shape == (1, 3, 4)
    assert t[0:1, 1:2, 2:3].shape == (1, 1, 1)
    assert t[0].shape == (3, 4)


@pytest.mark.parametrize("scalar", [np.float16(2), np.float32(2), np.float64(2), np.int32(2), np.uint8(2), np.array(2)])
def test_defect_05_numpy_scalars_are_numbers_on_either_side(be: Backend, scalar: Any) -> None:
    t = be.array(A)
    for node, wanted in (
        (scalar * t, A * 2), (t * scalar, A * 2), (scalar - t, 2 - A), (t / scalar, A / 2), (t**scalar, A**2),
        (scalar + (t + 1), A + 3), (t > scalar, A > 2), (scalar > t, A < 2),
    ):  # fmt: skip
        assert isinstance(node, OpTreeNode)
        assert np.allclose(node.asnumpyarray(), wanted)
    t[:] = scalar
    assert (t.get() == 2).all()


def test_defect_05_arrays_build_one_expression_on_either_side(be: Backend) -> None:
    t = be.array(A)
    for node in (A * t, t * A, A.astype(np.float32) * (t + 0), A[:1] * t / A[:1].clip(1) * A[:, :1].clip(1)):
        assert isinstance(node, OpTreeNode)  # not an array of expressions
        assert node.shape == (3, 4)
    assert np.array_equal((A * t).asnumpyarray(), A * A)


def test_defect_06_reshape_never_copies_silently(be: Backend) -> None:
    t = be.array(A)
    for strided, shape in ((t.T, (3, 4)), (t[:, :2], (6, 1))):  # an expression, which is no memory to write to
        with pytest.raises(DTypeError, match="cannot be written to"):
            strided.reshape(shape)[:] = 0
        with pytest.raises(ShapeError, match="copy"):
            strided.viewed(shape)
    view = t[::2].reshape(2, 2, 2)  # strided, but a view exists
    view[:] = -1
    assert t.get().tolist() == [[-1] * 4, A[1].tolist(), [-1] * 4]


def test_defect_07_comparisons_are_numbers(be: Backend) -> None:
    x, y = be.array([[1.0, 2.0, 3.0]]), be.array([[2.0, 2.0, 2.0]])
    assert (-(x > y)).asnumpyarray().tolist() == [[0, 0, -1]]
    assert ((x > y) - (x < y)).asnumpyarray().tolist() == [[-1, 0, 1]]
    assert ((x >= y) + (x <= 3)).asnumpyarray().tolist() == [[1, 2, 2]]
    assert ((x == y) * 2.5).asnumpyarray().tolist() == [[0, 2.5, 0]]
    assert be.sum(x != y, axis=1).asnumpyarray().tolist() == [[2]]
    assert (x > y).asnumpyarray().dtype == np.float32
    assert (be.array([[1, 3]], dtype=np.int32) > 2).dtype == np.float32


def test_defect_08_finite_and_rounding_run_everywhere(be: Backend) -> None:
    t = be.array([[np.nan, np.inf, -np.inf, 0.5, 1.5, -2.5]])
    assert be.finite(t).asnumpyarray().tolist() == [[0, 0, 0, 1, 1, 1]]
    assert be.rint(t).asnumpyarray()[0, 3:].tolist() == [0, 2, -2]
    assert np.allclose((be.finite(t) * 2 + be.finite(t)).asnumpyarray(), [[0, 0, 0, 3, 3, 3]])
    assert be.shift(be.ones((1, 2)), be.array([[4.0, -3.0]])).get().tolist() == [[4, -4]]
    out = be.zeros((1, 6))
    assert be.binarize(be.array([[-1.0, 0, 1, -2, 2, 0.1]]), out, stochastic=False) is out
    assert out.get().tolist() == [[-1, 1, 1, -1, 1, 1]]
    nodes = (OpTreeNode.build("shift", t, t), OpTreeNode.build("binarize", t, None), OpTreeNode.build("rint", t, None))
    for node in nodes:
        assert node.asnumpyarray().shape == (1, 6)


def test_defect_09_take_has_out_and_runs_inside_expressions(be: Backend) -> None:
    t, out = be.array(A), be.zeros((2, 4))
    indices = be.array([2, 0], dtype=np.int32)
    assert t.take(indices, axis=0, out=out) is out
    assert np.array_equal(out.get(), A[[2, 0]])
    out.fill(0)
    assert be.take(t, indices, axis=0, out=out) is out
    assert np.array_equal(out.get(), A[[2, 0]])
    assert np.allclose(be.exp(be.take(t, indices, 1) - 10).asnumpyarray(), np.exp(A[:, [2, 0]] - 10))


@pytest.mark.backend
def test_defect_10_all_random_numbers_follow_the_seed() -> None:
    def drawn(seed: int) -> list[np.ndarray]:
        be = new_backend(rng_seed=seed)
        normal, signs, mask = be.zeros((4, 5)), be.zeros((4, 5)), be.zeros((4, 5))
        be.fill_normal(normal, 1, 2)
        be.binarize(be.zeros((4, 5)), signs)
        be.make_binary_mask(mask)
        return [normal.get(), signs.get(), mask.get()]

    np.random.seed(0)
    first = drawn(5)
    np.random.seed(1)  # the global generator plays no part
    for a, b, c in zip(first, drawn(5), drawn(6)):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)


def test_defect_11_fully_connected_biases_work(be: Backend) -> None:
    t, bias, gradient = be.array(A), be.array([1.0, 2.0, 3.0]), be.zeros((3, 1))
    be.add_fc_bias(t, bias)
    assert np.array_equal(t.get(), A + np.array([[1], [2], [3]]))
    be.update_fc_bias(t, gradient)
    assert np.array_equal(gradient.get(), t.get().sum(axis=1, keepdims=True))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("relu", [False, True])
def test_defect_12_products_honour_alpha_beta_relu_and_bsum(be: Backend, alpha: float, beta: float, relu: bool) -> None:
    a, b, c, sums = be.array(A - 5), be.array(A.T - 3), be.ones((3, 3)), be.zeros((3, 1))
    product = alpha * ((A - 5) @ (A.T - 3))
    wanted = (np.maximum(product, 0) if relu else product) + beta
    be.compound_dot(a, b, c, alpha=alpha, beta=beta, relu=relu, bsum=sums)
    assert np.allclose(c.get(), wanted)
    assert np.allclose(sums.get(), wanted.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("inner", [1, 31, 33, 515])
def test_defect_17_products_of_signs_are_exact(be: Backend, rng: np.random.Generator, inner: int) -> None:
    a, b = rng.normal(size=(5, inner)), rng.normal(size=(inner, 17))
    a[0, 0] = 0
    c = be.ones((5, 17))
    be.xnor_compound_dot(be.array(a), be.array(b), c, beta=3.0)
    assert np.array_equal(c.get(), np.where(a >= 0, 1, -1) @ np.where(b >= 0, 1, -1) + 3)


def test_defect_18_batched_products_follow_one_rule(be: Backend, rng: np.random.Generator) -> None:
    left, right = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 5, 2))
    for a, b in ((left, right), (left, right[0]), (left[0], right)):
        each, summed = be.empty((4, 3, 2)), be.empty((3, 2))
        be.batched_dot(be.array(a), be.array(b), each)
        be.batched_dot(be.array(a), be.array(b), summed)
        assert np.allclose(each.get(), np.matmul(a, b), atol=1e-5)
        assert np.allclose(summed.get(), np.matmul(a, b).sum(axis=0), atol=1e-5)


def test_defect_19_large_values_count_in_the_last_bin(be: Backend) -> None:
    exponents = [14, 15, 16, 17, 30, 100, -48, -49, -100]  # bins reach from -48 to 15
    counts = be.array([[2.0**e for e in exponents]]).hist("t").get()[0]
    assert counts[-2:].tolist() == [1, 5]
    assert counts[0] == 3
    assert counts.sum() == len(exponents)


def test_defect_20_gradients_reach_the_tensor_behind_a_view(be: Backend, rng: np.random.Generator) -> None:
    host, weights = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    x, w = be.array(host), be.array(weights)
    (gradient,) = Autodiff(be.sum(be.dot(x.T, w) * 1), be).get_grad_asnumpyarray([x])
    assert np.allclose(gradient, np.tile(weights.sum(axis=1, keepdims=True), (1, 4)), atol=1e-6)
    (gradient,) = Autodiff(x[0] * x[1], be).get_grad_asnumpyarray([x])
    assert np.allclose(gradient, np.stack([host[1], host[0], np.zeros(4)]), atol=1e-6)
    (gradient,) = Autodiff(be.sum(be.square(x[1:, ::2])) + be.sum(x.reshape(4, 3)[0]), be).get_grad_asnumpyarray([x])
    wanted = np.zeros((3, 4))
    wanted[1:, ::2] = 2 * host[1:, ::2]
    wanted.ravel()[:3] += 1
    assert np.allclose(gradient, wanted, atol=1e-6)


REMOVED = {
    "numpy": "float int bool object str float_ complex_ unicode_ product cumproduct asscalar alltrue sometrue cast "
    "in1d row_stack trapz source safe_eval msort find_common_type",
    "inspect": "getargspec formatargspec",
    "collections": "Mapping MutableMapping Iterable Callable Sequence",
}
"""Names that scripts of neon's time used and that current versions lack."""


def test_defect_38_nothing_uses_what_python_and_numpy_removed() -> None:
    package = ROOT / "neonlike"
    aliases = {"np": "numpy", **{name: name for name in REMOVED}}
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = aliases.get(node.value.id)
                if module and node.attr in REMOVED[module].split():
                    found.append(f"{path.name}:{node.lineno}: {node.value.id}.{node.attr}")
    assert list(package.rglob("*.py"))
    assert found == []


def test_defect_38_several_axes_may_be_indexed_with_lists_and_numpy_integers(be: Backend) -> None:
    t = be.array(A)
    index = [np.s_[1:], np.int64(2)]
    assert t[tuple(index)].get().tolist() == [[6], [10]]
    labels = be.array(np.array([0, 2, 1, 0]), dtype=np.int32)
    t[:] = be.onehot(labels, axis=0)
    assert t.get().tolist() == [[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]


def test_the_list_above_is_complete_and_true() -> None:
    assert __doc__ is not None
    here, elsewhere, later = re.split(r"\n(?=In tests|Come with)", __doc__.split("Here (", 1)[1])
    own = {int(n) for n in here.split(":")[1].split()}
    assert own == {int(n) for n in re.findall(r"def test_defect_(\d+)", Path(__file__).read_text(encoding="utf-8"))}
    pairs = re.findall(r"(\d+)\s+([\w/]+)", elsewhere)
    for number, name in pairs:
        text = (ROOT / "tests" / f"{name}.py").read_text(encoding="utf-8")
        assert f"def test_defect_{number}" in text, (number, name)
    named = own | {int(n) for n, _ in pairs} | {int(n) for n in re.findall(r"\b\d+\b", later)}
    assert named == set(range(1, 45))
