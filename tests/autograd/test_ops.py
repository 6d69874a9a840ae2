"""Every op of variables: value and derivatives against NumPy and differences in float64, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd.ops import DOCUMENT_NAMES
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from tests.autograd import network_op_cases
from tests.autograd.op_cases import CASES as PLAIN_CASES
from tests.autograd.op_cases import ELEMENTWISE, Case, title

CASES = (*PLAIN_CASES, *network_op_cases.CASES)
pytestmark = pytest.mark.engines("numpy")


@pytest.mark.parametrize("case", CASES, ids=title)
@pytest.mark.engines("numpy", "c")
@pytest.mark.compiles(4)
def test_value_and_derivative(be64: Any, case: Case) -> None:
    hosts = case.operands()
    wanted = case.numpy(*hosts)
    variables = [ag.param(host) for host in hosts]
    found = case.call(*variables)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.get(), wanted, rtol=1e-12, atol=1e-12)
    assert ag.check_gradient(case.call, *variables) < 1e-6


@pytest.mark.parametrize("case", [case for case in CASES if case.smooth], ids=title)
def test_second_derivative(be64: Any, case: Case) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(case.numpy(*case.operands()).shape)

    def slopes(*variables: Any) -> Any:
        value = ag.sum(case.call(*variables) * weights)
        parts = ag.grad(value, variables, create_graph=True, absent="zeros")
        return ag.concatenate([ag.reshape(part * part, (part.size, 1)) for part in parts])

    ag.check_gradient(slopes, *case.operands())


@pytest.mark.parametrize("case", CASES, ids=title)
def test_float32(be: Any, case: Case) -> None:
    """Values and derivatives are those of float64 but for rounding, and of float32."""
    hosts = case.operands()
    by_dtype = []
    for dtype in ("float32", "float64"):
        variables = [ag.param(host, dtype=dtype) for host in hosts]
        value = case.call(*variables)
        ag.sum(value * value).backprop()
        assert all(v.partial_derivative.dtype == dtype and v.partial_derivative.shape == v.shape for v in variables)
        by_dtype.append([value.get(), *(v.partial_derivative.get() for v in variables)])
    for narrow, wide in zip(*by_dtype):
        np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wide).max()))


@pytest.mark.engines("numpy", "c")
def test_elementwise_ops_as_one_kernel(be: Any) -> None:
    """Compiled kernels compute all ops of one expression as NumPy does in float64."""
    cases = [case for case in ELEMENTWISE if case.op not in ("CastToPrecision", "Debug") and len(case.shapes[0]) == 2]
    total: Any = 0.0
    wanted: Any = 0.0
    groups = []
    for case in cases:
        if case.shapes[0] != (3, 5):
            continue
        hosts = [host.astype(np.float32) for host in case.operands()]
        variables = [ag.param(host) for host in hosts]
        total = total + case.call(*variables)
        wanted = wanted + case.numpy(*(host.astype(np.float64) for host in hosts))
        groups.append((case, hosts, variables))
    assert len(groups) > 20
    np.testing.assert_allclose(total.get(), wanted, rtol=1e-5, atol=1e-5)
    ag.sum(total).backprop()
    for case, hosts, variables in groups:
        for place, variable in enumerate(variables):
            direction = np.random.default_rng(place).standard_normal(variable.shape)
            wide = [host.astype(np.float64) for host in hosts]
            ends = []
            for sign in (1, -1):
                moved = [h + sign * 1e-6 * direction if n == place else h for n, h in enumerate(wide)]
                ends.append(case.numpy(*moved).sum())
            slope = float((variable.partial_derivative.get() * direction).sum())
            np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-4, err_msg=title(case))


@pytest.mark.peers("torch")
@pytest.mark.parametrize("case", [case for case in CASES if case.torch is not None], ids=title)
@pytest.mark.cpu_only("compares with PyTorch on the CPU")
def test_pytorch_agrees(be64: Any, case: Case) -> None:
    compare_with_pytorch(case, "float64", (1e-10, 1e-12), (1e-8, 1e-10))


@pytest.mark.peers("torch")
@pytest.mark.parametrize("case", [case for case in CASES if case.torch is not None], ids=title)
@pytest.mark.cpu_only("compares with PyTorch on the CPU")
def test_pytorch_agrees_in_float32(be: Any, case: Case) -> None:
    compare_with_pytorch(case, "float32", (1e-5, 1e-5), (1e-4, 1e-4))


def compare_with_pytorch(case: Case, dtype: str, of_values: Any, of_slopes: Any) -> None:
    import torch

    hosts = [host.astype(dtype) for host in case.operands(seed=2)]
    ours = [ag.param(host, dtype=dtype) for host in hosts]
    theirs = [torch.tensor(host, requires_grad=True) for host in hosts]
    value, reference = case.call(*ours), case.torch(torch, *theirs)  # type: ignore[misc]
    ag.sum(value * value).backprop()
    (reference * reference).sum().backward()
    _close(value, reference.detach().numpy(), *of_values)
    for mine, other in zip(ours, theirs):
        _close(mine.partial_derivative, other.grad.numpy(), *of_slopes)


def _close(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Compare relative to the largest element: where gradients cancel, float32 leaves a part of the summands."""
    atol = atol if wanted.dtype == np.float64 else atol * max(1.0, np.abs(wanted).max())
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.get(), wanted, rtol=rtol, atol=atol)


def test_each_op_of_the_document_has_a_case() -> None:
    assert {case.op for case in CASES} >= set(DOCUMENT_NAMES)


def test_losses_refuse_what_does_not_fit(be: Any) -> None:
    a = ag.param(np.zeros((3, 4)))
    for loss in (ag.mse_loss, ag.smooth_l1_loss, ag.binary_cross_entropy_with_logits_loss):
        with pytest.raises(ShapeError, match=r"\(3, 4\) and target \(4, 3\) must have one shape"):
            loss(a, np.zeros((4, 3)))
        with pytest.raises(ArgumentError, match="reduction must be 'mean', 'sum' or 'none', got 'average'"):
            loss(a, a, reduction="average")
    with pytest.raises(IndexRangeError, match="class 4 is out of range for 4 classes"):
        ag.nll_loss(a, [0, 4, 1])
    with pytest.raises(ShapeError, match="a class for each of 3 rows, got 2"):
        ag.nll_loss(a, [0, 1])
    with pytest.raises(DTypeError, match="integers"):
        ag.nll_loss(a, [0.5, 1.0, 2.0])
    with pytest.raises(ShapeError, match="weights must hold 4 numbers"):
        ag.nll_loss(a, [0, 1, 2], [1.0, 2.0])
    with pytest.raises(ArgumentError, match="beta"):
        ag.smooth_l1_loss(a, a, beta=-1.0)


def test_impossible_classes_do_not_spoil_a_loss(be: Any) -> None:
    a = ag.param([[-np.inf, -1.0], [-2.0, -np.inf]])
    loss = ag.nll_loss(a, be.array([[1], [0]], dtype=np.int32))
    loss.backprop()
    assert (loss.item(), a.partial_derivative.tolist()) == (1.5, [[0.0, -0.5], [-0.5, 0.0]])


def test_shapes_and_indices_that_do_not_fit(be: Any) -> None:
    a, cube = ag.param(np.zeros((3, 4))), ag.param(np.zeros((2, 3, 4)))
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: ag.reshape(a, 5, -1), ShapeError, "cannot make"),
        (lambda: ag.flatten(cube, 2, 1), ShapeError, "behind axis 1"),
        (lambda: ag.expand(a, (2, 5, 4)), ShapeError, "does not stretch"),
        (lambda: ag.concatenate([a, cube]), ShapeError, "concatenate|axes"),
        (lambda: ag.concatenate([]), ShapeError, "one part at least"),
        (lambda: ag.stack([a, a.T]), ShapeError, "one shape"),
        (lambda: ag.index_select(a, 0, [3]), IndexRangeError, "3"),
        (lambda: ag.index_add(a, [0, 1], 0, 2), ShapeError, "each of 3 slices, got 2"),
        (lambda: ag.index_add(a, [0, 1, 2], 0, 2), IndexRangeError, "2"),
        (lambda: ag.scatter_add(a, [[0, 1]], 0, 2), ShapeError, "each element"),
        (lambda: ag.mask_select(a, np.ones((4, 3))), ShapeError, "the mask must have the shape"),
        (lambda: ag.assign(a, cube), ShapeError, "in the place of"),
        (lambda: ag.diag(cube), ShapeError, "a matrix or a vector"),
        (lambda: ag.diag(a, 4), ShapeError, "no diagonal 4"),
        (lambda: ag.sum(a, 2), ShapeError, "axis"),
        (lambda: ag.sum(a, 1, keepdims=False), ShapeError, "keepdims=False"),
        (lambda: ag.variance(ag.const([[1.0]])), ArgumentError, "unbiased=False"),
        (lambda: a @ a, ShapeError, "dot"),
        (lambda: ag.softplus(a, 0), ArgumentError, "beta"),
        (lambda: ag.exp("a"), DTypeError, "exp: needs a variable"),
    ]
    for call, error, match in refused:
        with pytest.raises(error, match=match):
            call()


def test_norms_of_nothing_have_no_slope(be: Any) -> None:
    x = ag.param([[0.0, 0.0], [3.0, 4.0]])
    ag.norm2(x, 1).sum().backprop()
    np.testing.assert_allclose(x.partial_derivative.get(), [[0.0, 0.0], [0.6, 0.8]])


def test_a_product_of_two_zeros_has_a_second_derivative(be64: Any) -> None:
    x = ag.param([[0.0, 0.0, 3.0, 2.0]])
    (slope,) = ag.grad(ag.sum(ag.prod(x, axis=1)), [x], create_graph=True)
    assert not slope.get().any()
    (curved,) = ag.grad(ag.sum(slope * np.array([[1.0, 2.0, 0.0, 0.0]])), [x])
    np.testing.assert_array_equal(curved.get(), [[12, 6, 0, 0]])


def test_infinite_slopes_do_not_pass_a_rectifier_that_is_shut(be64: Any) -> None:
    x = ag.param([[-1.0, 2.0]])
    (slope,) = ag.grad(ag.sum(ag.log(ag.relu(x))), [x])
    np.testing.assert_array_equal(slope.get(), [[0, 0.5]])


def test_derivatives_are_0_behind_the_last_that_is_not(be64: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    (slope,) = ag.grad(ag.sum(x * 3), [x], create_graph=True)
    (curved,) = ag.grad(ag.sum(slope), [x])
    np.testing.assert_array_equal(curved.get(), [[0, 0]])
