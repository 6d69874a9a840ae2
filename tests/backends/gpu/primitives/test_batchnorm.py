"""Batch normalisation in CUDA: each way in which rows are cut, alignment, operands that have to be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.primitives.batchnorm.cases import Backward, Case, Forward, agree
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]

SHAPES = {
    "short rows": (9, 24), "a warp a row": (5, 515), "a block a row": (2, 2 * 4096), "parts": (2, 20_002),
    "single elements": (2, 16_385),
}  # fmt: skip
FORWARD = (
    Forward(), Forward(relu=True, accumbeta=0.5, alpha=-1.5), Forward(given=True), Forward(binary=True),
    Forward(binary=True, given=True), Forward(inference=True, relu=True),
)  # fmt: skip
BACKWARD = Backward(), Backward(1e-3, 0.5, 0.25, 3, 2, masked=True), Backward(binary=True)


@pytest.fixture
def kernels(gpu: Any) -> Any:
    """The module, which imports PyCUDA."""
    from neonlike.backends.gpu.primitives import batchnorm

    return batchnorm


@pytest.mark.parametrize("shape", SHAPES)
def test_results(gpu: Any, shape: str) -> None:
    case = Case(*SHAPES[shape])
    for how in FORWARD:
        agree(case.forward(gpu, how), how.of(case), "float32", how)
    for back in BACKWARD:
        agree(case.backward(gpu, back), back.of(case), "float32", back)


@pytest.mark.parametrize("shape", [(40, 33), (2, 17_000)])
def test_rows_far_from_zero(gpu: Any, shape: tuple[int, int]) -> None:
    """Given means lie between neighbours in float32, which are 1/16 apart: all launches use them as they are."""
    case = Case(*shape, offset=1e6)
    for how in (Forward(given=True), Forward()):
        wanted, got = how.of(case), case.forward(gpu, how)
        np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
        agree({"y": got["y"]}, {"y": wanted["y"]}, "float32", how)
    agree(case.backward(gpu, Backward()), Backward().of(case), "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(gpu: Any, dtype: str) -> None:
    """Data of two bytes, statistics in float32; all of it in float64."""
    from neonlike.optree.dtypes import as_dtype

    narrow = dtype == "bfloat16"
    for shape in ((3, 48), (2, 40_000)):
        case = Case(*shape, "float32" if narrow else dtype)
        if narrow:
            for name in ("x", "y", "delta", "out"):
                values = getattr(case, name).astype(as_dtype(dtype))
                setattr(case, name, values)
        for run, how in ((case.forward, Forward(relu=True, accumbeta=0.5)), (case.backward, Backward(masked=True))):
            wanted, got = how.of(case), run(gpu, how)
            if not narrow:
                agree(got, wanted, dtype, (shape, how))
                continue
            for name, right in wanted.items():
                error = np.abs(got[name].astype(np.float64) - right)
                assert (error <= (5e-3 if name in ("y", "delta_out") else 1e-6) * np.maximum(1, np.abs(right))).all()


def test_long_parts_are_taken_in_turns(gpu: Any, kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part exceeds a block's registers, and rows drift: their first elements tell little of the rest."""
    monkeypatch.setattr(kernels, "MOST_PARTS", 3)
    kernels.cut.cache_clear()
    case = Case(2, 20_001)
    case.x += np.linspace(0, 400, 20_001, dtype=np.float32)
    form = kernels.cut((2, 20_001), 4, 4, kernels.FPROP_BYTES)
    assert form.parts == 3 and form.part > form.block[0] * form.vector * form.turns
    wanted, got = Forward().of(case), case.forward(gpu, Forward())
    np.testing.assert_allclose(got["xvar"], wanted["xvar"], rtol=1e-6)
    agree({"y": got["y"]}, {"y": wanted["y"]}, "float32")
    for how in (Forward(given=True), Forward(binary=True)):
        wanted, got = how.of(case), case.forward(gpu, how)
        for name, right in wanted.items():
            np.testing.assert_allclose(got[name], right, rtol=2e-6, atol=2e-5, err_msg=f"{how} {name}")
    case = Case(2, 20_001)
    agree(case.backward(gpu, Backward()), Backward().of(case), "float32")
    kernels.cut.cache_clear()


@pytest.mark.parametrize("shape", [(4, 64), (2, 24_000)])
def test_alignment_changes_no_bit(gpu: Any, shape: tuple[int, int]) -> None:
    """Arrays that start anywhere are read by single elements, by the same threads in the same order."""
    case = Case(*shape)

    def shifted(values: Any) -> Any:
        base = gpu.zeros((values.size + 1, 1))
        return base[1:].reshape(shape).set(values)

    for run, how, names in (
        (case.forward, Forward(accumbeta=0.5), {"x": case.x, "y": case.y}),
        (case.backward, Backward(beta_data=2), {"x": case.x, "delta_in": case.delta, "delta_out": case.out}),
    ):
        plain = run(gpu, how)
        moved = run(gpu, how, **{name: shifted(values) for name, values in names.items()})
        for name, values in plain.items():
            np.testing.assert_array_equal(moved[name], values, name)


def test_views_and_statistics_of_other_dtypes_stay_on_the_device(gpu: Any) -> None:
    case = Case(6, 40)
    x, y = gpu.array(np.repeat(case.x, 2, axis=1))[:, ::2], gpu.zeros((12, 40))[::2]
    rows = {name: gpu.array(case.rows[name], dtype=np.float64) for name in ("gmean", "gvar", "gamma")}
    tensors = {name: gpu.array(case.rows[name]) for name in ("xsum", "xvar", "beta")} | rows
    call = {"x": x, "y": y, **tensors, **Forward(rho=0.0).arguments()}
    gpu.compound_fprop_bn(**call)
    with traffic(gpu) as seen:
        gpu.compound_fprop_bn(**call)
    assert not len(seen), str(seen)
    wanted = Forward(rho=0.0).of(case)
    agree({"y": y.get(), "gmean": tensors["gmean"].get()}, {n: wanted[n] for n in ("y", "gmean")}, "float32")


def test_every_element_is_some_threads(kernels: Any) -> None:
    """Parts and rows of blocks cover all elements, vectors divide rows, and registers hold a block's whole rows."""
    for rows in (1, 3, 64, 70_000):
        for length in (1, 2, 7, 32, 33, 100, 1000, 4096, 16_384, 16_385, 50_176, 3 << 20):
            for itemsize, computed, held in ((4, 4, 128), (2, 4, 128), (8, 8, 64), (4, 4, 64)):
                form = kernels.cut((rows, length), itemsize, computed, held)
                threads, count, _ = form.block
                assert length % form.vector == 0 and threads * count <= 512 and form.turns <= kernels.MOST_TURNS
                assert threads & (threads - 1) == 0 and (threads <= 32 or count == 1)
                if form.parts == 1:
                    assert form.grid[0] * count >= rows > (form.grid[0] - 1) * count
                    assert threads * form.vector * form.turns >= length
                else:
                    assert form.grid[0] == rows * form.parts and 1 < form.parts <= kernels.MOST_PARTS
                    assert (form.parts - 1) * form.part < length <= form.parts * form.part
                    assert form.part % (threads * form.vector * form.turns) == 0
