"""Kernels with a planted bug each, and a healthy twin of each: ``python -m tests.cudaemu.planted_bugs 0 1`` runs all.

The arguments are values of CUEMU_ASYNC to run them with, one after the other. It prints, as JSON, what became of bug
and twin with each: "clean" (no error, right results), "wrong" (other results), or the text of the error.
tests/cudaemu/test_bugs.py says what each mode must find.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

from . import planted_grids, planted_instructions
from .activate import activate
from .bug_cases import CASES, case, equal, filled, kernel

assert planted_grids and planted_instructions, "they add their cases"

BLOCK_SUM = """extern "C" __global__ void k(const float *x, float *y) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    FIRST
    for (int half = 128; half; half >>= 1) {
        if (t < half) part[t] += part[t + half];
        SECOND
    }
    if (t == 0) y[blockIdx.x] = part[0];
}"""


def block_sum(first: bool, second: bool) -> bool:
    sources = ["__syncthreads();" if wanted else "" for wanted in (first, second)]
    x = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)
    from pycuda.driver import to_device

    y = filled(4)
    kernel(BLOCK_SUM.replace("FIRST", sources[0]).replace("SECOND", sources[1]), False)(
        to_device(x), y, block=(256, 1, 1), grid=(4, 1)
    )
    return equal(y, x.sum(axis=1))


@case
def barrier_missing_after_a_write(bug: bool) -> bool:
    return block_sum(not bug, True)


@case
def barrier_missing_in_a_loop(bug: bool) -> bool:
    return block_sum(True, not bug)


@case
def barrier_missing_before_the_next_tile(bug: bool) -> bool:
    source = """extern "C" __global__ void k(const float *a, const float *b, float *c, int n) {
        __shared__ float as[8][8], bs[8][8];
        int x = threadIdx.x, y = threadIdx.y;
        float sum = 0;
        for (int k = 0; k < n; k += 8) {
            as[y][x] = a[(blockIdx.y * 8 + y) * n + k + x];
            bs[y][x] = b[(k + y) * n + blockIdx.x * 8 + x];
            __syncthreads();
            for (int i = 0; i < 8; ++i) sum += as[y][i] * bs[i][x];
            if (!BUG) __syncthreads();
        }
        c[(blockIdx.y * 8 + y) * n + blockIdx.x * 8 + x] = sum;
    }"""
    from pycuda.driver import to_device

    a, b = np.random.default_rng(1).normal(size=(2, 32, 32)).astype(np.float32)
    c = filled(32 * 32)
    kernel(source, bug)(to_device(a), to_device(b), c, np.int32(32), block=(8, 8, 1), grid=(4, 4))
    return equal(c, (a @ b).ravel())


@case
def warp_barrier_missing(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        __shared__ float s[32];
        int t = threadIdx.x;
        s[t] = t;
        if (!BUG) __syncwarp();
        y[t] = s[31 - t];
    }"""
    y = filled(32)
    kernel(source, bug)(y, block=(32, 1, 1))
    return equal(y, np.arange(32)[::-1])


@case
def shuffle_taken_for_a_warp_barrier(bug: bool) -> bool:
    """Shuffles and votes wait for the lanes, and order none of their accesses."""
    source = """extern "C" __global__ void k(float *y) {
        __shared__ float s[32];
        int t = threadIdx.x;
        s[t] = t;
        int all = __ballot_sync(0xffffffffu, t < 32);
        all &= __shfl_xor_sync(0xffffffffu, all, 1);
        if (!BUG) __syncwarp();
        y[t] = all == -1 ? s[31 - t] : 0;
    }"""
    y = filled(32)
    kernel(source, bug)(y, block=(32, 1, 1))
    return equal(y, np.arange(32)[::-1])


GUARDED = """extern "C" __global__ void k(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}"""


def guarded(body: str, bug: bool, n: int) -> bool:
    y = filled(n)
    blocks = n // 128 + 1
    kernel(GUARDED.replace("BODY", body), bug)(
        filled(n, 2.0), y, np.int32(n), block=(128, 1, 1), grid=(blocks, 1)
    )
    return equal(y, np.full(n, 2.0))


@case
def write_past_the_end(bug: bool) -> bool:
    return guarded("if (i < n + BUG) y[i] = 2.f;", bug, 1000)


@case
def write_past_the_end_of_a_page(bug: bool) -> bool:
    return guarded("if (i < n + BUG) y[i] = 2.f;", bug, 1024)


@case
def read_past_the_end(bug: bool) -> bool:
    return guarded("if (i < n) { float v = x[i + BUG]; y[i] = v > 0 ? v : 2.f; }", bug, 1000)


@case
def read_past_the_end_that_changes_nothing(bug: bool) -> bool:
    return guarded("if (!BUG && i >= n) return; float v = x[i]; if (i < n) y[i] = v;", bug, 1000)


@case
def shared_array_overrun(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y, int shift) {
        __shared__ float a[32]; __shared__ float b[32];
        int t = threadIdx.x;
        b[t] = 1; a[t] = 2;
        __syncthreads();
        a[t + shift] = 5;
        __syncthreads();
        y[t] = a[t] + b[t];
    }"""
    y = filled(32)
    kernel(source, bug)(y, np.int32(bug), block=(32, 1, 1))
    return equal(y, np.r_[[3.0] * bug, np.full(32 - bug, 6.0)])


@case
def shared_memory_not_initialised(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        __shared__ float a[32];
        int t = threadIdx.x;
        if (!BUG || t < 8) a[t] = 1;
        __syncthreads();
        y[t] = a[t];
    }"""
    y = filled(32)
    kernel(source, bug)(y, block=(32, 1, 1))
    return equal(y, np.ones(32))


@case
def global_memory_not_initialised(bug: bool) -> bool:
    from pycuda.driver import mem_alloc

    x = mem_alloc(128) if bug else filled(32)
    y = filled(32)
    kernel(
        'extern "C" __global__ void k(const float *x, float *y) { y[threadIdx.x] += x[threadIdx.x]; }', bug
    )(x, y, block=(32, 1, 1))
    return equal(y, np.zeros(32))


@case
def vector_load_misaligned(bug: bool) -> bool:
    source = """extern "C" __global__ void k(const float *x, float4 *y) {
        if (threadIdx.x < 8) y[threadIdx.x] = *(const float4 *)(x + BUG + 4 * threadIdx.x);
    }"""
    y = filled(64, 1.0)
    kernel(source, bug)(filled(64, 1.0), y, block=(32, 1, 1))
    return equal(y, np.ones(64))


@case
def vector_load_of_shared_floats(bug: bool) -> bool:
    """A declared array is aligned as its elements are."""
    source = """extern "C" __global__ void k(float4 *y) {
    #if BUG
        __shared__ float s[128];
    #else
        __shared__ __align__(16) float s[128];
    #endif
        int t = threadIdx.x;
        for (int i = t; i < 128; i += 32) s[i] = 1;
        __syncwarp();
        y[t] = *(const float4 *)(s + 4 * t);
    }"""
    y = filled(128)
    kernel(source, bug)(y, block=(32, 1, 1))
    return equal(y, np.ones(128))


@case
def atomic_missing(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        if (BUG) y[0] += 1.f; else atomicAdd(y, 1.f);
    }"""
    y = filled(1)
    kernel(source, bug)(y, block=(64, 1, 1), grid=(8, 1))
    return equal(y, [512])


@case
def blocks_write_the_same_output(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        if (BUG || threadIdx.x < 100)
            y[blockIdx.x * 100 + threadIdx.x] = threadIdx.x < 100 ? blockIdx.x : -1.f;
    }"""
    y = filled(1000)
    kernel(source, bug)(y, block=(128, 1, 1), grid=(7, 1))
    return equal(y, np.r_[np.repeat(np.arange(7), 100), np.full(28, -1.0 * bug), np.zeros(272)])


@case
def fence_missing_before_the_last_block(bug: bool) -> bool:
    source = """__device__ unsigned arrived;
    extern "C" __global__ void k(float *parts, float *y) {
        __shared__ bool last;
        if (threadIdx.x == 0) {
            parts[blockIdx.x] = blockIdx.x;
            if (!BUG) __threadfence();
            last = atomicAdd(&parts[gridDim.x], 1.f) == gridDim.x - 1;
        }
        __syncthreads();
        if (!last || threadIdx.x) return;
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += __ldcg(&parts[i]);
        y[0] = sum;
    }"""
    parts, y = filled(9), filled(1)
    kernel(source, bug)(parts, y, block=(32, 1, 1), grid=(8, 1))
    return equal(y, [28])


@case
def barrier_in_both_branches(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        int t = threadIdx.x;
        if (!BUG) { y[t] = 1; __syncthreads(); return; }
        if (t < 16) { y[t] = 1; __syncthreads(); }
        else {
            y[t] = 2;
            __syncthreads();
            y[t] = 1;
        }
    }"""
    y = filled(64)
    kernel(source, bug)(y, block=(64, 1, 1))
    return equal(y, np.ones(64))


@case
def shuffle_that_some_lanes_skip(bug: bool) -> bool:
    source = """extern "C" __global__ void k(float *y) {
        int t = threadIdx.x;
        float v = t;
        if (!BUG || t < 16) v += __shfl_down_sync(0xffffffffu, v, 8);
        __syncthreads();
        y[t] = v;
    }"""
    y = filled(32)
    kernel(source, bug)(y, block=(32, 1, 1))
    t = np.arange(32)
    return equal(y, t + np.where(t < 24, t + 8, t))


@case
def argument_of_the_wrong_size(bug: bool) -> bool:
    y = filled(32)
    extra = [np.int64(5)] if bug else []
    kernel('extern "C" __global__ void k(float *y, int n) { y[threadIdx.x] = n; }', bug)(
        y, *extra, np.int32(1), block=(32, 1, 1)
    )
    return equal(y, np.ones(32))


@case
def host_memory_in_a_kernel(bug: bool) -> bool:
    host = np.zeros(32, np.float32)
    y = np.uintp(host.ctypes.data) if bug else filled(32)
    kernel('extern "C" __global__ void k(float *y) { y[threadIdx.x] = 3; }', bug)(y, block=(32, 1, 1))
    return bool((host == 0).all()) if bug else equal(y, np.full(32, 3.0))


@case
def memory_used_after_it_was_freed(bug: bool) -> bool:
    y = filled(32)
    address = np.uintp(int(y))
    if bug:
        y.free()
    kernel('extern "C" __global__ void k(float *y) { y[threadIdx.x] = 3; }', bug)(address, block=(32, 1, 1))
    return bug or equal(y, np.full(32, 3.0))


DYNAMIC = """extern "C" __global__ void k(float *y) {
    extern __shared__ float s[];
    s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}"""

DYNAMIC_AND_DECLARED = DYNAMIC.replace(
    "    s[threadIdx.x] = 1;", "    __shared__ float own[64];\n    s[threadIdx.x] = own[threadIdx.x] = 1;"
)


@case
def more_dynamic_shared_memory_than_there_is(bug: bool) -> bool:
    y = filled(64)
    kernel(DYNAMIC, bug)(y, block=(64, 1, 1), shared=60000 if bug else 256)
    return equal(y, np.ones(64))


@case
def more_shared_memory_than_there_is_beside_what_is_declared(bug: bool) -> bool:
    y = filled(64)
    kernel(DYNAMIC_AND_DECLARED, bug)(y, block=(64, 1, 1), shared=48 << 10 if bug else 256)
    return equal(y, np.ones(64))


@case
def dynamic_shared_memory_overrun(bug: bool) -> bool:
    y = filled(64)
    kernel(DYNAMIC, bug)(y, block=(64, 1, 1), shared=128 if bug else 256)
    return equal(y, np.ones(64))


@case
def result_read_before_the_stream_is_done(bug: bool) -> bool:
    from pycuda.driver import Stream, memcpy_dtoh_async, pagelocked_zeros

    stream, y, result = Stream(), filled(1024), pagelocked_zeros(1024, np.float32)
    kernel('extern "C" __global__ void k(float *y) { y[blockIdx.x * 128 + threadIdx.x] = 7; }', bug)(
        y, block=(128, 1, 1), grid=(8, 1), stream=stream
    )
    memcpy_dtoh_async(result, y, stream)
    if not bug:
        stream.synchronize()
    right = bool((result == 7).all())
    stream.synchronize()
    return right


@case
def streams_without_an_event_between(bug: bool) -> bool:
    from pycuda.driver import Context, Event, Stream

    first, second, x, y = Stream(), Stream(), filled(128), filled(128)
    add = kernel('extern "C" __global__ void k(float *y) { y[threadIdx.x] += 7; }', bug)
    copy = kernel(
        'extern "C" __global__ void k(float *y, float *x) { y[threadIdx.x] = x[threadIdx.x]; }', bug
    )
    right = True
    for count in range(8):
        add(x, block=(128, 1, 1), stream=first)
        if not bug:
            event = Event()
            event.record(first)
            second.wait_for_event(event)
        copy(y, x, block=(128, 1, 1), stream=second)
        Context.synchronize()
        right &= equal(y, np.full(128, 7.0 * (count + 1)))
    return right


@case
def division_by_zero(bug: bool) -> bool:
    y = filled(32)
    kernel('extern "C" __global__ void k(float *y, int n) { y[threadIdx.x] = 5 / n; }', bug)(
        y, np.int32(0 if bug else 2), block=(32, 1, 1)
    )
    return equal(y, np.full(32, 2.0))


def outcome(name: str, bug: bool) -> str:
    """Outcome of a case."""
    from pycuda.driver import Error

    try:
        return "clean" if CASES[name](bug) else "wrong"
    except Error as error:
        return str(error).replace("\n", " ")


def main() -> None:
    """Run every case in each mode, with its bug and without, and print the outcomes."""
    os.environ["CUEMU_DEVICES"] = "2"  # one of which is used by a single case
    activate()
    import pycuda.driver as driver

    driver.init()
    context = driver.Device(0).make_context()
    try:
        outcomes = {}
        for asynchronous in sys.argv[1:]:
            os.environ["CUEMU_ASYNC"] = asynchronous
            outcomes[asynchronous] = {
                name: {"bug": outcome(name, True), "healthy": outcome(name, False)} for name in CASES
            }
    finally:
        context.pop()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
