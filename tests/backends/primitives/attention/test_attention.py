"""Scaled dot-product attention against float64 NumPy: values, gradients, layouts, the compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import attention as kernels
from neonlike.backends.primitives.attention import definition
from tests.support.engines import use_threads
from tests.support.float64 import attention_reference as reference
from tests.support.float64.attention_reference import Case

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

Array = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan


# Values -------------------------------------------------------------------------------------------------------------


def test_worked_numbers(be: Backend) -> None:
    """Scores are log 1 and log 3 of the first query, 0 and 0 of the second."""
    case = Case(
        be, (1, 1, 2, 2, 1, 2), scale=2.0, q=np.array([[[[0.5], [0.0]]]]), k=np.array([[[[0.0], [np.log(3)]]]]),
        v=np.array([[[[4.0, 0.0], [0.0, 8.0]]]]), e=np.array([[[[1.0, 0.0], [0.0, 1.0]]]]),
    )  # fmt: skip
    case.fprop()
    case.bprop()
    np.testing.assert_allclose(case.O.get()[0, 0], [[1, 6], [2, 4]], atol=1e-6)
    np.testing.assert_allclose(case.lse.get()[0, 0], np.log([4, 2]), atol=1e-6)
    np.testing.assert_allclose(case.gradients[2].get()[0, 0], [[0.25, 0.5], [0.75, 0.5]], atol=1e-6)
    slopes = np.array([[0.75, -0.75], [-2, 2]])
    np.testing.assert_allclose(case.gradients[0].get()[0, 0, :, 0], 2 * np.log(3) * slopes[:, 1], atol=1e-6)
    np.testing.assert_allclose(case.gradients[1].get()[0, 0, :, 0], 2 * 0.5 * slopes[0], atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "dims",
    [
        (1, 1, 1, 1, 1, 1), (2, 3, 5, 7, 3, 2), (1, 2, 13, 193, 16, 48), (3, 2, 97, 96, 8, 1), (1, 1, 33, 70, 256, 17),
        (1, 2, 200, 96, 64, 64), (2, 1, 70, 200, 33, 80), (1, 3, 2, 385, 5, 40), (1, 1, 385, 2, 40, 5),
    ],
)  # fmt: skip
def test_lengths_and_sizes(be: Backend, dims: tuple[int, ...], causal: bool) -> None:
    Case(be, dims, causal).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 32, 47, 48, 65, 128, 255])
def test_sizes_of_a_head(be: Backend, size: int) -> None:
    Case(be, (1, 2, 14, 40, size, 1 + size % 50), size % 2 == 0).check()


@pytest.mark.cpu_only("tiles and blocks of the C kernels, which the definition does not know")
@pytest.mark.engines("c")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(500, 500), (400, 600), (800, 200), (192, 192), (193, 577), (96, 384)])
def test_several_tiles(be: Backend, queries: int, keys: int, causal: bool) -> None:
    Case(be, (1, 2, queries, keys, 24, 20), causal).check()


@pytest.mark.optimized
@pytest.mark.compiles(2)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes(be: Backend, dtype: Any) -> None:
    Case(be, (2, 2, 30, 50, 12, 9), dtype=dtype).check()
    Case(be, (2, 2, 50, 30, 12, 9), True, dtype=dtype).check()


@pytest.mark.parametrize("scale", [1.0, 0.0, -0.5, 3])
def test_scales(be: Backend, scale: float) -> None:
    case = Case(be, (1, 2, 10, 20, 4, 4), scale=scale)
    assert case.layer.scale == scale
    case.check()


def test_bands_of_the_definition(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results do not depend on the bands' height, down to one query."""
    for most in (1, 700, 1400):
        monkeypatch.setattr(definition, "MOST_SCORES", most)
        for causal in (False, True):
            Case(be, (2, 3, 11, 13, 4, 5), causal).check()


def test_backward_is_the_gradient_of_forward(be: Backend) -> None:
    """Along random directions, numerically in float64."""
    for causal in (False, True):
        case = Case(be, (1, 2, 14, 20, 6, 5), causal, dtype=np.float64)
        case.fprop()
        case.bprop()
        rng, step = np.random.default_rng(1), 1e-6
        found = [gradient.get() for gradient in case.gradients]
        towards = [rng.standard_normal(gradient.shape) for gradient in found]
        loss = []
        for sign in (1, -1):
            for tensor, values, direction in zip((case.Q, case.K, case.V), case.arrays, towards):
                tensor.set(values + sign * step * direction)
            case.fprop()
            loss.append(np.sum(case.O.get() * case.arrays[3]))
        slope = sum(np.sum(gradient * direction) for gradient, direction in zip(found, towards))
        assert abs((loss[0] - loss[1]) / (2 * step) - slope) < 1e-7


# Large scores, infinities and nan -------------------------------------------------------------------------------------


def test_large_scores_do_not_overflow(be: Backend) -> None:
    """The largest comes first, last, or in the middle: sums are rescaled as it grows."""
    for order in (slice(None), slice(None, None, -1)):
        k = np.linspace(-3000, 3000, 450)[order].reshape(1, 1, 450, 1)
        q = np.array([1.0, -1.0, 0.01, 0.0]).reshape(1, 1, 4, 1)
        case = Case(be, (1, 1, 4, 450, 1, 3), scale=1.0, q=q, k=k)
        case.fprop()
        outputs, sums, _ = reference.forward(*(a.astype(np.float64) for a in case.arrays[:3]), 1.0, False)
        np.testing.assert_allclose(case.O.get(), outputs, atol=1e-4)
        np.testing.assert_allclose(case.lse.get(), sums, rtol=1e-6)


def test_scores_of_minus_infinity_and_nan(be: Backend) -> None:
    """Weights are 0 for scores of -inf; a query with such scores alone, or with nan or +inf, gives nan."""
    q = np.ones((1, 1, 5, 1))
    k = np.zeros((1, 1, 400, 1))
    k[0, 0, :390] = -INF
    case = Case(be, (1, 1, 5, 400, 1, 2), q=q, k=k)
    case.fprop()
    np.testing.assert_allclose(case.O.get()[0, 0], np.tile(case.arrays[2][0, 0, 390:].mean(axis=0), (5, 1)), atol=1e-6)
    np.testing.assert_allclose(case.lse.get(), np.log(10), atol=1e-6)
    for strange in (NAN, INF):
        for place in (0, 250, 399):
            values = np.zeros((1, 1, 400, 1))
            values[0, 0, place] = strange
            case = Case(be, (1, 1, 5, 400, 1, 2), q=np.array([1.0, 2, 3, 4, 5]).reshape(1, 1, 5, 1), k=values)
            case.fprop()
            assert np.isnan(case.O.get()).all()
            assert np.isnan(case.lse.get()).all()
    case = Case(be, (1, 1, 5, 7, 1, 2), q=q, k=np.full((1, 1, 7, 1), -INF))
    case.fprop()
    assert np.isnan(case.O.get()).all()
    assert (case.lse.get() == -INF).all()


def test_a_query_of_nan_is_alone(be: Backend) -> None:
    q = np.random.default_rng(0).standard_normal((1, 1, 30, 4))
    q[0, 0, 7] = NAN
    case = Case(be, (1, 1, 30, 40, 4, 4), q=q)
    case.fprop()
    assert np.isnan(case.O.get()[0, 0]).any(axis=1).tolist() == [i == 7 for i in range(30)]


def test_keys_that_are_not_seen_do_not_count(be: Backend) -> None:
    """Invisible keys do not change the outputs, even if they are nan."""
    clean = Case(be, (1, 2, 250, 250, 4, 4), True)
    clean.fprop()
    k = clean.arrays[1].copy()
    k[:, :, 217:] = NAN
    case = Case(be, (1, 2, 250, 250, 4, 4), True, k=k)
    case.fprop()
    np.testing.assert_array_equal(case.O.get()[:, :, :217], clean.O.get()[:, :, :217])
    assert np.isnan(case.O.get()[:, :, 217:]).all()


# Layouts --------------------------------------------------------------------------------------------------------------


def test_parts_of_one_projection(be: Backend) -> None:
    """Views of (N, steps, 3, heads, size) are read, and their gradients and the outputs written, where they lie."""
    N, steps, heads, size = 2, 40, 3, 20
    plain = Case(be, (N, heads, steps, steps, size, size), True)
    projected, of_projected = (be.empty((N, steps, 3, heads, size)) for _ in range(2))
    views, of_views = (
        [whole[:, :, part : part + 1].reshape(N, steps, heads, size).permuted((0, 2, 1, 3)) for part in range(3)]
        for whole in (projected, of_projected)
    )
    for view, tensor in zip(views, (plain.Q, plain.K, plain.V)):
        view[:] = tensor
    outputs = be.zeros((N, steps, heads, size))
    out = outputs.permuted((0, 2, 1, 3))
    lse = be.empty((*plain.layer.dimL, 2))[..., 1]
    be.fprop_attention(plain.layer, *views, out, lse)
    be.bprop_attention(plain.layer, *views, out, lse, plain.E, *of_views)
    plain.check()
    reference.close(out.get(), plain.O.get().astype(np.float64))
    for view, gradient in zip(of_views, plain.gradients):
        reference.close(view.get(), gradient.get().astype(np.float64))


def test_other_strides(be: Backend) -> None:
    """Features first, every other element, and lines in reverse."""
    plain = Case(be, (2, 2, 30, 45, 20, 18))
    plain.check()
    for make in (
        lambda shape: be.empty((*shape[:2], shape[3], shape[2])).permuted((0, 1, 3, 2)),
        lambda shape: be.empty((*shape[:3], 2 * shape[3] + 1))[..., 1::2],
        lambda shape: be.empty((shape[1], shape[0], *shape[2:])).permuted((1, 0, 2, 3))[:, :, ::-1],
    ):
        operands = [make(tensor.shape) for tensor in (plain.Q, plain.K, plain.V, plain.E)]
        for view, tensor in zip(operands, (plain.Q, plain.K, plain.V, plain.E)):
            view[:] = tensor
        out, *of_views = (make(tensor.shape) for tensor in (plain.O, *plain.gradients))
        lse = be.empty(plain.layer.dimL)
        be.fprop_attention(plain.layer, *operands[:3], out, lse)
        be.bprop_attention(plain.layer, *operands[:3], out, lse, operands[3], *of_views)
        for view, tensor in zip((out, *of_views), (plain.O, *plain.gradients)):
            reference.close(view.get(), tensor.get().astype(np.float64))


def test_fewer_axes(be: Backend) -> None:
    """(N heads, length, size) in place of (N, heads, length, size); one matrix; and without logarithms of sums."""
    case = Case(be, (2, 3, 10, 12, 4, 6))
    case.check()
    tensors = case.Q, case.K, case.V, case.O, case.lse, case.E, *case.gradients
    found = [t.get() for t in (case.O, *case.gradients)]
    merged = [t.reshape((6, *t.shape[2:])) for t in tensors]
    single = [t[4] if t.ndim == 3 else t[4].reshape(10, 1) for t in merged]
    for views, where in ((merged, slice(None)), (single, slice(4, 5))):
        inputs, out, lse, rest = views[:3], views[3], views[4], views[5:]
        out.fill(0)
        be.fprop_attention(case.layer, *inputs, out)
        reference.close(case.O.get().reshape(6, 10, 6)[where], found[0].reshape(6, 10, 6)[where].astype(np.float64))
        be.fprop_attention(case.layer, *inputs, out, lse)
        be.bprop_attention(case.layer, *inputs, out, lse, *rest)
        case.check_bprop()


# Kernels --------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("threads of the CPU")
@pytest.mark.engines("c")
@pytest.mark.parametrize("dims", [(1, 1, 300, 700, 20, 20), (2, 3, 260, 220, 16, 8), (5, 4, 30, 30, 8, 8)])
def test_results_do_not_depend_on_the_threads(
    be: Backend, dims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_PRODUCTS", 0)
    found = []
    for threads in (1, 2, 3, 7):
        use_threads(monkeypatch, threads)
        case = Case(be, dims, True)  # type: ignore[arg-type]
        case.fprop()
        case.bprop()
        found.append([t.get() for t in (case.O, case.lse, *case.gradients)])
    for others in found[1:]:
        for one, other in zip(found[0], others):
            np.testing.assert_array_equal(one, other)


@pytest.mark.cpu_only("what kernels of the CPU take beside tensors")
def test_memory_grows_with_the_length_and_not_with_its_square(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """For 8,192 queries and keys, kernels and definition use the stated memory, a fraction of all scores."""
    compiled = be.engine.name == "c"
    longest = 8192 if compiled else 2048
    monkeypatch.setattr(definition, "MOST_SCORES", 1 << 18)
    asked: list[int] = []
    start, allocate = kernels.KernelCall.start, type(be)._allocate

    def noted_start(call: Any, addresses: Any) -> None:
        asked.append(call.work)
        start(call, addresses)

    def noted(self: Any, shape: Any, dtype: Any, *rest: Any) -> Any:
        asked.append(int(np.prod(shape)) * dtype.itemsize)
        return allocate(self, shape, dtype, *rest)

    stated = {}
    for length in (longest // 2, longest):
        case = Case(be, (1, 1, length, length, 8, 8), True)
        stated[length] = [be.workspace_bytes(case.layer, operation) for operation in ("fprop", "bprop")]
    for operation, needed in zip((case.fprop, case.bprop), stated[longest]):
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(kernels.KernelCall, "start", noted_start)
            patch.setattr(type(be), "_allocate", noted)
            operation()
        assert asked and max(asked) <= needed
        if compiled:
            assert asked == [needed]
    assert all(2.1 * short >= long for short, long in zip(*stated.values()))
    assert all(needed < longest**2 * 4 / 4 for needed in stated[longest])
    weights = case.gradients[2].get()
    assert abs(weights.sum() - case.arrays[3].sum()) < 0.5  # each query's weights add up to 1
