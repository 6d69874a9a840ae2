"""Every op of variables: value and derivatives against NumPy and differences in float64, and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autograd_cases import CASES, ELEMENTWISE, Case, title

from neonlike import autograd as ag
from neonlike.autograd.ops import DOCUMENT_NAMES

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.compiles(4)]


@pytest.mark.parametrize("case", CASES, ids=title)
def test_value_and_derivative(be64: Any, case: Case) -> None:
    hosts = case.operands()
    wanted = case.numpy(*hosts)
    variables = [ag.param(host) for host in hosts]
    found = case.call(*variables)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.get(), wanted, rtol=1e-12, atol=1e-12)
    assert ag.check_gradient(case.call, *variables) < 1e-6


@pytest.mark.parametrize("case", [case for case in CASES if case.smooth], ids=title)
@pytest.mark.engines("numpy")
def test_second_derivative(be64: Any, case: Case) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(case.numpy(*case.operands()).shape)

    def slopes(*variables: Any) -> Any:
        value = ag.sum(case.call(*variables) * weights)
        parts = ag.grad(value, variables, create_graph=True, absent="zeros")
        return ag.concatenate([ag.reshape(part * part, (part.size, 1)) for part in parts])

    ag.check_gradient(slopes, *case.operands())


@pytest.mark.parametrize("case", CASES, ids=title)
@pytest.mark.engines("numpy")
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


def test_elementwise_ops_as_one_kernel(be: Any) -> None:
    """All of them in one expression: what compiled kernels compute of each is what NumPy does in float64."""
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


@pytest.mark.parametrize("case", [case for case in CASES if case.torch is not None], ids=title)
@pytest.mark.engines("numpy")
@pytest.mark.cpu_only("compares with PyTorch on the CPU")
def test_pytorch_agrees(be64: Any, case: Case) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    hosts = case.operands(seed=2)
    ours = [ag.param(host) for host in hosts]
    theirs = [torch.tensor(host, requires_grad=True) for host in hosts]
    value, reference = case.call(*ours), case.torch(torch, *theirs)  # type: ignore[misc]
    np.testing.assert_allclose(value.get(), reference.detach().numpy(), rtol=1e-10, atol=1e-12)
    ag.sum(value * value).backprop()
    (reference * reference).sum().backward()
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.partial_derivative.get(), other.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_each_op_of_the_document_has_a_case() -> None:
    assert {case.op for case in CASES} >= set(DOCUMENT_NAMES)
