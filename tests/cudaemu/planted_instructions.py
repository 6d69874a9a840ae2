"""Planted bugs in asynchronous copies to shared memory and in matrix instructions; see planted_bugs.py."""

from __future__ import annotations

import numpy as np

from .bug_cases import case, equal, filled, kernel

PIPELINE = """extern "C" __global__ void k(const float *x, float *y) {
    __shared__ __align__(16) float tile[2][128];
    int t = threadIdx.x;
    cuemu_copy_async(&tile[0][4 * t], x + 4 * t, 16, 16, __LINE__);
    cuemu_copy_commit();
    for (int step = 0; step < 4; ++step) {
        if (step < 3) cuemu_copy_async(&tile[(step + 1) % 2][4 * t], x + 128 * (step + 1) + 4 * t, 16, 16, __LINE__);
        cuemu_copy_commit();
        WAIT;
        BEFORE;
        for (int i = t; i < 128; i += 32) y[128 * step + i] = tile[step % 2][127 - i];
        AFTER;
    }
}"""
"""Two stages: while one is read, the next one is on its way."""


def _pipeline(bug: bool, **broken: str) -> bool:
    from pycuda.driver import to_device

    parts = {"WAIT": "cuemu_copy_wait(1)", "BEFORE": "__syncthreads()", "AFTER": "__syncthreads()"}
    source = PIPELINE
    for name, text in (parts | (broken if bug else {})).items():
        source = source.replace(name, text)
    x, y = np.arange(512, dtype=np.float32), filled(512)
    kernel(source, bug)(to_device(x), y, block=(32, 1, 1))
    return equal(y, x.reshape(4, 128)[:, ::-1].reshape(-1))


@case
def asynchronous_copy_not_waited_for(bug: bool) -> bool:
    return _pipeline(bug, WAIT="")


@case
def asynchronous_copy_waited_for_by_one_group_too_few(bug: bool) -> bool:
    return _pipeline(bug, WAIT="cuemu_copy_wait(2)")


@case
def barrier_missing_after_an_asynchronous_copy(bug: bool) -> bool:
    """Each thread has waited for its own copies only."""
    return _pipeline(bug, BEFORE="")


@case
def asynchronous_copy_into_a_tile_that_is_read(bug: bool) -> bool:
    return _pipeline(bug, AFTER="")


PRODUCT = """extern "C" __global__ void k(const __half *x, const __half *z, float *y) {
    __shared__ __align__(16) __half a[16][24], b[16][8];
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    for (int i = lane; i < 256; i += 32) a[i / 16][i % 16] = x[i];
    for (int i = lane; i < 128; i += 32) b[i / 8][i % 8] = z[i];
    STORED;
    unsigned left[4], right[2];
    float sums[4] = {0, 0, 0, 0};
    cuemu::ldmatrix(left, &a[ROW][COLUMN], 4, false, __LINE__);
    cuemu::ldmatrix(right, &b[lane % 16][0], 2, TRANSPOSED, __LINE__);
    cuemu::mma_m16n8k16<__half>(sums, left, right, sums, __LINE__);
    for (int i = 0; i < 4; ++i) y[(g + 8 * (HALF)) * 8 + 2 * t + i % 2] = sums[i];
}"""


def _product(bug: bool, **broken: str) -> bool:
    from pycuda.driver import to_device

    parts = {"ROW": "lane % 16", "COLUMN": "lane / 16 * 8", "TRANSPOSED": "true", "HALF": "i / 2"}
    parts["STORED"] = "__syncwarp()"
    source = PRODUCT
    for name, text in (parts | (broken if bug else {})).items():
        source = source.replace(name, text)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-8, 8, shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    y = filled(128)
    kernel(source, bug)(to_device(a), to_device(b), y, block=(32, 1, 1))
    return equal(y, (a.astype(np.float32) @ b.astype(np.float32)).reshape(-1))


@case
def quarters_of_a_fragment_exchanged(bug: bool) -> bool:
    """The second register is that of the rows below, not of the columns to the right."""
    return _product(bug, ROW="lane % 8 + lane / 16 * 8", COLUMN="lane / 8 % 2 * 8")


@case
def fragment_loaded_without_transposing(bug: bool) -> bool:
    return _product(bug, TRANSPOSED="false")


@case
def sums_of_a_fragment_stored_in_the_wrong_rows(bug: bool) -> bool:
    return _product(bug, HALF="i % 2")


@case
def warp_barrier_missing_before_a_fragment_is_loaded(bug: bool) -> bool:
    return _product(bug, STORED="")


@case
def matrix_instruction_in_a_part_of_a_warp(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        int lane = threadIdx.x;
        unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
        float sums[4] = {1, 1, 1, 1};
        if (!BUG || lane < 16) cuemu::mma_m16n8k8_tf32(sums, a, b, sums, __LINE__);
        __syncthreads();
        y[lane] = sums[0];
    }"""
    y = filled(32)
    kernel(source, bug)(y, block=(32, 1, 1))
    return equal(y, np.ones(32))


@case
def factors_not_rounded_to_tf32(bug: bool) -> bool:
    """The tensor core drops the low bits: all products come out too small, where rounding errs to either side."""
    source = """extern "C" __global__ void k(const float *x, float *y) {
        int lane = threadIdx.x, g = lane / 4, t = lane % 4;
        unsigned a[4], b[2];
        float sums[4] = {0, 0, 0, 0};
        for (int i = 0; i < 4; ++i) {
            float value = x[(g + 8 * (i % 2)) * 8 + t + 4 * (i / 2)];
            a[i] = BUG ? __float_as_uint(value) : cuemu::to_tf32(value);
        }
        for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(g == t + 4 * i ? 1.0f : 0.0f);
        cuemu::mma_m16n8k8_tf32(sums, a, b, sums, __LINE__);
        for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
    }"""
    from pycuda.driver import from_device, to_device

    x, y = np.random.default_rng(5).random((16, 8), np.float32) + 1, filled(128)
    kernel(source, bug)(to_device(x), y, block=(32, 1, 1))
    error = from_device(y, (16, 8), np.float32) - x
    return bool(np.abs(error).max() <= 2.0**-11 and abs(error.mean()) < 2.0**-13)
