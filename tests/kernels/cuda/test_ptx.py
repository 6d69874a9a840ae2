"""The instructions of ``templates/cuda/ptx.h``: on the emulator their plain twins, on a GPU the real ones.

And that the real nvcc takes them for each architecture.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.render import template_text
from neonlike.kernels.cuda.compile import load_kernels
from tests.support.gpu.sass import ARCHITECTURES, NO_NVCC, NVCC
from tests.support.kept_runs import run_kept

PTX = template_text("cuda/ptx.h")
on_device = [
    pytest.mark.engines("gpu", batch_size=16),
    pytest.mark.usefixtures("gpu_driver"),
    pytest.mark.checked,
]

HALVES = """#include "ptx.h"
extern "C" __global__ void k(const unsigned short *x, const unsigned short *z, float *y) {
    __shared__ __align__(16) unsigned short a[16][24], b[16][8];
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    nl_copy16(&a[lane / 2][lane % 2 * 8], x + 8 * lane, 16);
    if (lane < 16) nl_copy16(b[lane], z + 8 * lane, 16);
    nl_copy_commit();
    nl_copy_wait(0);
    __syncwarp();
    unsigned left[4], right[2];
    float sums[4] = {1, 2, 3, 4};
    nl_ldmatrix4(left, &a[lane % 16][lane / 16 * 8]);
    nl_ldmatrix2_trans(right, b[lane % 16]);
    nl_mma_TYPE(sums, left, right, sums);
    for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}
"""

TF32 = """#include "ptx.h"
extern "C" __global__ void k(const float *x, const float *z, float *y) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned left[4], right[2];
    float sums[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; ++i) left[i] = nl_tf32(x[(g + 8 * (i % 2)) * 8 + t + 4 * (i / 2)]);
    for (int i = 0; i < 2; ++i) right[i] = nl_tf32(z[(t + 4 * i) * 8 + g]);
    nl_mma_tf32(sums, left, right, sums);
    for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}
"""

TRANSPOSED = """#include "ptx.h"
extern "C" __global__ void k(const unsigned short *x, unsigned *y) {
    __shared__ __align__(16) unsigned short a[32][8];
    const int lane = threadIdx.x;
    nl_copy16(a[lane], x + 8 * lane, lane == 31 ? 6 : 16);
    nl_copy_commit();
    nl_copy_wait(0);
    __syncwarp();
    unsigned found[4];
    nl_ldmatrix4_trans(found, a[lane]);
    for (int i = 0; i < 4; ++i) y[32 * i + lane] = found[i];
}
"""

POWERS = """#include "ptx.h"
extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] = nl_exp2_weight(x[threadIdx.x]); }
"""

START = np.fromfunction(lambda row, column: 1 + row // 8 * 2 + column % 2, (16, 8))
"""What the sums begin with, by the map of their fragment."""


def launch(be: Any, source: str, *tensors: Any) -> None:
    kernel = KernelSource(source, "k", "instructions of the tests", {"ptx.h": PTX})
    (function,) = load_kernels(be.device, kernel, ["k"])
    pointers = [int(tensor.ptr) for tensor in tensors]
    be.device.launch(function, (1, 1, 1), (32, 1, 1), 0, struct.pack(f"{len(pointers)}Q", *pointers))


def bits_of(values: Any, dtype: str) -> Any:
    """Numbers as 16 bits of the type; they are small whole ones, which both types have exactly."""
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(params=["0", "1"], ids=["as they are", "by plain loads"])
def loads(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles and copies by their instructions, and by plain loads."""
    monkeypatch.setenv("NEONLIKE_GPU_PLAIN", request.param)


class TestOnTheDevice:
    pytestmark = on_device

    @pytest.mark.usefixtures("loads")
    @pytest.mark.parametrize("dtype", ["f16", "bf16"])
    def test_products_of_halves(self, be: Any, dtype: str) -> None:
        rng = np.random.default_rng(1)
        a, b = rng.integers(-9, 9, (16, 16)), rng.integers(-9, 9, (16, 8))
        x, z = be.array(bits_of(a, dtype), dtype=np.uint16), be.array(bits_of(b, dtype), dtype=np.uint16)
        y = be.empty((16, 8))
        launch(be, HALVES.replace("TYPE", dtype), x, z, y)
        assert np.array_equal(y.get(), a @ b + START)

    def test_products_of_floats_rounded_to_tf32(self, be: Any) -> None:
        rng = np.random.default_rng(2)
        a, b = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)

        def rounded(values: Any) -> Any:
            bits = (values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
            return bits.view(np.float32).astype(np.float64)

        y = be.empty((16, 8))
        launch(be, TF32, be.array(a), be.array(b), y)
        np.testing.assert_allclose(y.get(), rounded(a) @ rounded(b) + START, rtol=2e-6, atol=2e-6)
        assert np.abs(y.get() - (a.astype(np.float64) @ b + START)).max() > 1e-4, "tf32 has 10 bits"

    @pytest.mark.usefixtures("loads")
    def test_tiles_are_transposed_as_they_are_loaded_and_copies_end_in_zeros(self, be: Any) -> None:
        values = np.arange(1, 257, dtype=np.uint16).reshape(32, 8)
        y = be.empty((4, 32), dtype=np.uint32)
        launch(be, TRANSPOSED, be.array(values, dtype=np.uint16), y)
        values[31, 3:] = 0
        tiles = values.reshape(4, 8, 8).transpose(0, 2, 1).reshape(4, 32, 2).astype(np.uint32)
        assert np.array_equal(y.get(), tiles[:, :, 0] | tiles[:, :, 1] << 16)

    def test_powers_of_2(self, be: Any) -> None:
        """To 2 units in the last place, but for results that are subnormal."""
        strange = np.array([-np.inf, np.inf, np.nan, 0.0, -200.0], np.float32)
        x = np.concatenate((strange, np.linspace(-120, 3, 27, dtype=np.float32)))
        y = be.empty((32, 1))
        launch(be, POWERS, be.array(x), y)
        wanted = np.exp2(x.astype(np.float64))
        np.testing.assert_allclose(y.get()[:, 0], wanted, rtol=3e-7, atol=1e-38)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason=NO_NVCC)
@pytest.mark.parametrize("plain", [(), ("-DNL_PLAIN",)], ids=["as they are", "by plain loads"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_real_compiler_takes_them(tmp_path: Path, arch: str, plain: tuple[str, ...]) -> None:
    (tmp_path / "ptx.h").write_text(PTX)
    waits = """extern "C" __global__ void w(unsigned *x) { while (nl_load_acquire(x) < 4) {} nl_copy_wait(1); }\n"""
    kernels = [
        source.replace(" k(", f" k{i}(")
        for i, source in enumerate(
            (HALVES.replace("TYPE", "f16"), HALVES.replace("TYPE", "bf16"), TF32, TRANSPOSED, POWERS)
        )
    ]
    (tmp_path / "k.cu").write_text("".join(kernels) + waits)
    command = [str(NVCC), "-cubin", f"-arch={arch}", "-std=c++17", *plain, "-I.", "k.cu", "-o", os.devnull]
    done = run_kept(command, tmp_path)
    assert done.returncode == 0, done.stderr
