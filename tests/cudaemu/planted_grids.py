"""Planted bugs between blocks, graphs and devices; see planted_bugs.py."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .bug_cases import case, equal, filled, kernel


@case
def plain_read_of_what_another_block_wrote(bug: bool) -> bool:
    """Ordered by a fence and a counter, and yet read through a cache that is not coherent."""
    source = """extern "C" __global__ void k(float *parts, float *y, unsigned *arrived) {
        __shared__ bool last;
        if (threadIdx.x == 0) {
            parts[blockIdx.x] = blockIdx.x;
            __threadfence();
            last = atomicAdd(arrived, 1u) == gridDim.x - 1;
        }
        __syncthreads();
        if (!last || threadIdx.x) return;
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += BUG ? parts[i] : __ldcg(&parts[i]);
        y[0] = sum;
    }"""
    parts, y, arrived = filled(8), filled(1), filled(1)
    kernel(source, bug)(parts, y, arrived, block=(32, 1, 1), grid=(8, 1))
    return equal(y, [28])


TOGETHER = """__device__ void all_arrive(unsigned *arrived, unsigned blocks) {
    ENTER;
    if (threadIdx.x == 0) {
        FENCE;
        atomicAdd(arrived, 1u);
        while (cuemu::load_acquire(arrived) < WANTED) {}
    }
    __syncthreads();
}
extern "C" __global__ void k(float *x, unsigned *arrived) {
    int place = blockIdx.x * 32 + threadIdx.x, size = gridDim.x * 32;
    for (int step = 1; step <= 3; ++step) {
        float neighbour = __ldcg(&x[(place + 32) % size]);
        SECOND;
        x[place] = neighbour + 1;
        all_arrive(arrived, 2 * step * gridDim.x);
    }
    if (threadIdx.x == 0 && atomicAdd(arrived + 1, 1u) == LAST) atomicExch(arrived, 0u);
}"""
"""Rows that each block takes from the next one, three times; two barriers a step, whose counter is 0 afterwards."""


def cooperative(function: Any, grid: int, *arguments: Any) -> None:
    """Launch with all blocks there at once; PyCUDA has no such launch."""
    from pycuda.driver import LaunchError, LogicError

    driver = ctypes.CDLL("libcuda.so.1")
    values = [ctypes.c_uint64(int(each)) for each in arguments]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(each) for each in values])
    status = driver.cuLaunchCooperativeKernel(function, grid, 1, 1, 32, 1, 1, 0, None, pointers)
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise (LaunchError if status >= 700 else LogicError)((text.value or b"").decode())


def cooperative_kernel(source: str, bug: bool) -> Any:
    """As ``kernel``, for ``cooperative``: PyCUDA does not give its handles."""
    from .kernels import compile_cubin

    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    cubin = compile_cubin(f"#define BUG {int(bug)}\n#line 1\n{source}")
    assert driver.cuModuleLoadData(ctypes.byref(module), cubin) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
    return function


def _together(bug: bool, plain: bool = False, **broken: str) -> bool:
    parts = {"ENTER": "__syncthreads()", "FENCE": "__threadfence()", "WANTED": "blocks", "LAST": "gridDim.x - 1"}
    parts["SECOND"] = "all_arrive(arrived, (2 * step - 1) * gridDim.x)"
    source = TOGETHER
    for name, text in (parts | (broken if bug else {})).items():
        source = source.replace(name, text)
    from pycuda.driver import to_device

    start = np.arange(4 * 32, dtype=np.float32)
    x, arrived = to_device(start), filled(2)
    if plain and bug:
        kernel(source, bug)(x, arrived, block=(32, 1, 1), grid=(4, 1))
    else:
        cooperative(cooperative_kernel(source, bug), 4, x, arrived)
    return equal(x, np.roll(start, -96) + 3)


@case
def barrier_of_the_grid_missing(bug: bool) -> bool:
    """A block writes its row while another one may not have read it."""
    return _together(bug, SECOND="if (threadIdx.x == 0) atomicAdd(arrived, 1u)")


@case
def fence_missing_before_a_barrier_of_the_grid(bug: bool) -> bool:
    return _together(bug, FENCE="")


@case
def block_arrives_before_its_threads_have_written(bug: bool) -> bool:
    return _together(bug, ENTER="")


@case
def barrier_of_the_grid_that_waits_for_one_block_too_few(bug: bool) -> bool:
    return _together(bug, WANTED="blocks - 1")


@case
def barrier_of_the_grid_set_back_while_a_block_waits(bug: bool) -> bool:
    """By the last block but one that leaves it."""
    return _together(bug, LAST="gridDim.x - 2")


@case
def barrier_of_the_grid_in_a_plain_launch(bug: bool) -> bool:
    return _together(bug, plain=True)


@case
def barrier_of_the_grid_that_one_block_skips(bug: bool) -> bool:
    return _together(bug, ENTER="__syncthreads(); if (blockIdx.x == 3) return")


@case
def stream_of_a_graph_without_an_event_between(bug: bool) -> bool:
    from pycuda.driver import Event, Stream, memcpy_dtod_async, memset_d32_async

    driver = ctypes.CDLL("libcuda.so.1")
    first, second = Stream(), Stream()
    x, y, graph, made = filled(4), filled(4), ctypes.c_void_p(), ctypes.c_void_p()
    begun, written, joined = Event(), Event(), Event()
    assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(first.handle), 2) == 0
    begun.record(first)
    memset_d32_async(x, 0x40E00000, 4, first)  # 7
    written.record(first)
    second.wait_for_event(begun if bug else written)
    memcpy_dtod_async(y, x, 16, second)
    joined.record(second)
    first.wait_for_event(joined)
    assert driver.cuStreamEndCapture(ctypes.c_void_p(first.handle), ctypes.byref(graph)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0)) == 0
    right = True
    for _ in range(8):
        memset_d32_async(x, 0, 4, first)
        assert driver.cuGraphLaunch(made, ctypes.c_void_p(first.handle)) == 0
        first.synchronize()
        right &= equal(y, np.full(4, 7.0))
    return right


@case
def memory_of_another_device(bug: bool) -> bool:
    from pycuda.driver import Context, Device, mem_alloc

    here = Context.get_current()
    other = Device(1).make_context()
    there = mem_alloc(128)
    Context.pop()
    mine = filled(32)
    try:
        kernel('extern "C" __global__ void k(float *y) { y[threadIdx.x] = 7; }', bug)(
            there if bug else mine, block=(32, 1, 1)
        )
        return equal(mine, np.full(32, 0.0 if bug else 7.0))
    finally:
        other.push()
        there.free()
        Context.pop()
        assert Context.get_current() == here
