"""Attention on the GPU: each form of the kernels against float64, the choice of a form, and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.backends.gpu.primitives import attention_plan
from neonlike.backends.gpu.primitives.attention_plan import attention_program, form
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.backends.primitives.attention.family import AttentionFamily
from neonlike.optree.dtypes import as_dtype
from tests.support.float64 import attention_reference as reference
from tests.support.float64.attention_reference import Case
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]

KINDS = {
    "f32": ("f4", "float32", 5e-6), "tf32": ("f4", "tf32", 2e-3), "f16": ("f2", "float32", 3e-3),
    "bf16": ("bfloat16", "float32", 2e-2), "f64": ("f8", "float32", 3e-14),
}  # fmt: skip
"""What is multiplied -> dtype, ``product_precision``, and error, relative to the largest value of a result."""
DIMS = {"tiles": (2, 1, 70, 133, 16, 32), "odd": (1, 2, 33, 40, 5, 19)}
"""(samples, heads, queries, keys, size, value_size); with "odd" nothing is a whole unit of 16 bytes."""


@pytest.fixture
def precise(gpu: Any) -> Iterator[Any]:
    """Backend of the test, with ``product_precision`` restored afterwards."""
    yield gpu
    gpu.product_precision = "float32"


def numbers(tensor: Any) -> Any:
    """The values of ``tensor``, of any float dtype, in float64."""
    return tensor.get().astype(np.float64)


def check(case: Case, tolerance: float) -> None:
    """Both passes of ``case`` against float64."""
    case.fprop()
    case.bprop()
    wide = [array.astype(np.float64) for array in case.arrays]
    outputs, sums, _ = reference.forward(*wide[:3], case.layer.scale, case.layer.causal)
    gradients = reference.backward(*wide, case.layer.scale, case.layer.causal)
    found = (case.O, case.lse, *case.gradients)
    for name, tensor, wanted in zip(("O", "lse", "dQ", "dK", "dV"), found, (outputs, sums, *gradients)):
        slack = tolerance * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(numbers(tensor), wanted, rtol=0, atol=slack, err_msg=name)


@pytest.mark.checked
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", DIMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_agrees_with_float64(precise: Any, kind: str, name: str, causal: bool) -> None:
    dtype, precise.product_precision, tolerance = KINDS[kind]
    check(Case(precise, DIMS[name], causal, dtype=as_dtype(dtype)), tolerance)


@pytest.mark.parametrize(("kind", "sizes"), [("f32", (48, 48)), ("f16", (48, 64))])
def test_as_much_shared_memory_as_a_block_has_unasked(gpu: Any, kind: str, sizes: tuple[int, int]) -> None:
    """Gradients of keys then take that much dynamic shared memory, and declare some more."""
    check(Case(gpu, (1, 1, 33, 70, *sizes), dtype=as_dtype(KINDS[kind][0])), KINDS[kind][2])


def test_scores_of_minus_infinity(gpu: Any) -> None:
    """Weights are 0, also of a whole tile before the first that counts; a query with such scores alone gives nan."""
    for kind in ("f32", "f16"):
        dtype, _, tolerance = KINDS[kind]
        k = np.zeros((2, 1, 133, 16))
        k[0, 0, :100], k[1] = -np.inf, -np.inf
        case = Case(gpu, DIMS["tiles"], dtype=as_dtype(dtype), q=np.ones((2, 1, 70, 16)), k=k)
        case.fprop()
        mean = case.arrays[2][0, 0, 100:].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(numbers(case.O)[0, 0], np.tile(mean, (70, 1)), atol=tolerance)
        np.testing.assert_allclose(case.lse.get()[0], np.log(33), atol=1e-5)
        assert np.isnan(numbers(case.O)[1]).all() and (case.lse.get()[1] == -np.inf).all()


def test_elements_apart(gpu: Any) -> None:
    """Features that do not follow each other are copied on the device."""
    case = Case(gpu, DIMS["odd"], True)
    for name in ("Q", "K", "V", "E", "O"):
        tensor = getattr(case, name)
        turned = gpu.empty((*tensor.shape[:2], tensor.shape[3], tensor.shape[2])).permuted((0, 1, 3, 2))
        setattr(case, name, turned.set(tensor.get()) if name != "O" else turned)
    check(case, 5e-6)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_lines_that_begin_anywhere(gpu: Any, kind: str) -> None:
    """Sizes are whole units, addresses and steps are not: elements are copied one by one, with the same results."""
    dtype, _, tolerance = KINDS[kind]
    plain = Case(gpu, DIMS["tiles"], True, dtype=as_dtype(dtype))
    check(plain, tolerance)

    def apart(tensor: Any) -> Any:
        made = gpu.empty((*tensor.shape[:3], tensor.shape[3] + 3), dtype=tensor.dtype)[..., 1:-2]
        return made.set(tensor.get())

    Q, K, V, E = map(apart, (plain.Q, plain.K, plain.V, plain.E))
    O, gradients = apart(plain.O), [apart(tensor) for tensor in plain.gradients]  # noqa: E741
    for tensor in (O, *gradients):
        tensor.fill(np.nan)
    lse = gpu.empty(plain.layer.dimL)
    with traffic(gpu) as seen:
        gpu.fprop_attention(plain.layer, Q, K, V, O, lse)
        gpu.bprop_attention(plain.layer, Q, K, V, O, lse, E, *gradients)
    assert not len(seen), str(seen)
    for found, wanted in zip((O, *gradients), (plain.O, *plain.gradients)):
        np.testing.assert_array_equal(found.get(), wanted.get())
    np.testing.assert_array_equal(lse.get(), plain.lse.get())


def test_factors_are_rounded_as_the_precision_says(precise: Any) -> None:
    """To 10 bits of mantissa with "tf32": queries, keys, and weights; not at all with "float32". There is one tile."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal((1, 1, 30, 16)).astype(np.float32) for name in "qkve"}

    def rounded(values: Any) -> Any:
        bits = (values.astype(np.float32).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return bits.view(np.float32).astype(np.float64)

    q, k, v = (rounded(arrays[name]) for name in "qkv")
    scores = q @ np.swapaxes(k, -1, -2) / 4
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    coarse = rounded(weights) @ v / weights.sum(axis=-1, keepdims=True)
    exact = reference.forward(*(arrays[name].astype(np.float64) for name in "qkv"), 0.25, False)[0]
    assert np.abs(exact - coarse).max() > 1e-4
    for precision, wanted, near in (("float32", exact, 2e-6), ("tf32", coarse, 5e-5), ("bfloat16", coarse, 5e-5)):
        precise.product_precision = precision
        case = Case(precise, (1, 1, 30, 30, 16, 16), **arrays)
        case.fprop()
        np.testing.assert_allclose(case.O.get(), wanted, rtol=0, atol=near, err_msg=precision)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_results_do_not_depend_on_the_order_of_blocks(gpu: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        monkeypatch.setenv("CUEMU_ORDER", order)
        case = Case(gpu, DIMS["tiles"], dtype=as_dtype(KINDS[kind][0]))
        case.fprop()
        case.bprop()
        results.append(b"".join(tensor.get().tobytes() for tensor in (case.O, case.lse, *case.gradients)))
    assert results[0] == results[1] == results[2]


@pytest.mark.checked
def test_wide_heads(gpu: Any) -> None:
    """With 144 and 128 elements, gradients of keys and values have a launch each, and float32 blocks are lower."""
    for dtype, tolerance in (("f4", 5e-6), ("f2", 3e-3)):
        case = Case(gpu, (1, 1, 40, 48, 144, 128), True, dtype=as_dtype(dtype))
        program = passes(case.layer, True)
        assert [step.context.get("of_keys") for step in program.steps] == [None, True, False]
        check(case, tolerance)


def passes(layer: AttentionGeometry, backward: bool, precision: str = "float32") -> Any:
    """The program of a pass on operands without gaps, for any GPU."""
    device = SimpleNamespace(capabilities=SimpleNamespace(arch="sm_80"))
    request = AttentionPass(layer, (layer.N, layer.heads), backward)
    count = len(attention_plan.LINED[backward])
    return attention_program(device, precision, request, layer.dtype, [(0, 0, 0)] * count)


def test_what_no_kernel_can_hold_is_left_to_the_definition(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide heads of float64, GPUs before compute capability 8.0 and with little shared memory."""
    from neonlike.backends.gpu.primitives.attention import AttentionCuda

    asked: list[str] = []
    definition = AttentionFamily._fprop_attention

    def noted(self: Any, request: Any, *tensors: Any) -> Any:
        asked.append(tensors[0].dtype.name)
        return definition(self, request, *tensors)

    monkeypatch.setattr(AttentionFamily, "_fprop_attention", noted)
    dims = 1, 1, 5, 7, 129, 8
    check(Case(gpu, dims, dtype=np.float64), 3e-14)
    assert asked == ["float64"]
    check(Case(gpu, dims), 5e-6)
    assert asked == ["float64"]
    little = SimpleNamespace(arch="sm_80", shared_bytes_optin=48 << 10)
    for capabilities in (SimpleNamespace(arch="sm_75", shared_bytes_optin=64 << 10), little):
        asked.clear()
        request = AttentionPass(gpu.attention_layer("f4", 1, 1, 5, 64), (1, 1), True)
        stand_in = SimpleNamespace(device=SimpleNamespace(capabilities=capabilities), products=gpu.products)
        assert not AttentionCuda._has_attention(stand_in, request, np.dtype("f4"))  # type: ignore[arg-type]


def test_what_kernels_declare_has_to_fit_too(gpu: Any) -> None:
    """TF32 of heads of 128 takes just the 99 KiB of compute capability 8.6 besides."""
    from neonlike.backends.gpu.primitives.attention import AttentionCuda

    request = AttentionPass(gpu.attention_layer("f4", 1, 1, 64, 128), (1, 1), True)
    found = form(request, np.dtype("f4"), "tf32", "keys")
    assert found is not None and found.shared == 99 << 10
    products = SimpleNamespace(blas=SimpleNamespace(precision="tf32"))
    for most, fits in ((99 << 10, False), (100 << 10, True)):
        capabilities = SimpleNamespace(arch="sm_86", shared_bytes_optin=most)
        stand_in: Any = SimpleNamespace(device=SimpleNamespace(capabilities=capabilities), products=products)
        assert AttentionCuda._has_attention(stand_in, request, np.dtype("f4")) is fits


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_forms_fit_the_shared_memory(dtype: str, precision: str) -> None:
    """Forms fit compute capability 8.0, and the order of sums does not depend on the number of lines."""
    for size in (1, 16, 64, 80, 128, 256):
        for backward in (False, True):
            for own in ("queries", "keys"):
                few, many = (
                    form(
                        AttentionPass(
                            AttentionGeometry(np.dtype(dtype), 1, 1, n, n, size, size, False, 1.0), (1, 1), backward
                        ),
                        np.dtype(dtype), precision, own,
                    )
                    for n in (10, 10_000)
                )  # fmt: skip
                if dtype == "f8" and size > 96:
                    assert few is many is None
                    continue
                assert few is not None and many is not None
                assert max(few.shared, many.shared) <= 163 << 10
                assert few._replace(warps=0, shared=0, blocks=0) == many._replace(warps=0, shared=0, blocks=0)
                assert few.size % 16 == 0 <= few.size - size < 16


def test_memory_grows_with_the_length_and_not_with_its_square(gpu: Any) -> None:
    """A forward pass takes no memory, a backward pass a number a query; a call takes no more than was stated."""
    for length in (1 << 10, 1 << 20):
        layer = gpu.attention_layer("f2", 2, 3, length, 64, causal=True)
        assert gpu.workspace_bytes(layer, "fprop") == 0
        assert gpu.workspace_bytes(layer, "bprop") == 2 * 3 * length * 4
    case, asked = Case(gpu, (1, 1, 300, 300, 8, 8)), []
    allocate = type(gpu.device).allocate

    def noted(device: Any, nbytes: int) -> Any:
        asked.append(nbytes)
        return allocate(device, nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(gpu.device), "allocate", noted)
        case.fprop()
        assert asked == []
        case.bprop()
        assert asked == [gpu.workspace_bytes(case.layer, "bprop")]


def test_a_call_is_its_kernels_and_nothing_else(gpu: Any) -> None:
    """One forward, two backward; calls made before are repeated on other tensors."""
    case = Case(gpu, DIMS["tiles"])
    assert [len(passes(case.layer, backward).steps) for backward in (False, True)] == [1, 2]
    check(case, 5e-6)
    with traffic(gpu) as seen:
        case.fprop()
        case.bprop()
    assert not len(seen), str(seen)
    again = Case(gpu, DIMS["tiles"], q=np.ones((2, 1, 70, 16)))
    again.layer = case.layer
    check(again, 5e-6)
