"""The CUDA language on the emulated GPU: supported constructs, and the rewriting of source."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cudaemu.cuda_source import SourceError, kernels, needs_preprocessor, rewrite
from tests.cudaemu.kernels import compile_cubin, load

pytestmark = pytest.mark.emulator


def run(
    cuda: Any, source: str, count: int, dtype: Any = np.float32, *arguments: Any, threads: int = 32
) -> np.ndarray:
    """The array that one block writes: the kernel's first argument."""
    memory = cuda.mem_alloc(count * np.dtype(dtype).itemsize)
    load(source)(memory, *arguments, block=(threads, 1, 1))
    return cuda.from_device(memory, (count,), dtype)


FORMS = """
#define TILE 8
SHARED_MACRO
struct Pair { float a; int b; };
template <typename T, int N> __device__ T block_sum(T v) {
    static __shared__ T buffer[N];            // one for each instantiation
    buffer[threadIdx.x] = v; __syncthreads();
    for (int o = N / 2; o > 0; o >>= 1) {
        if (threadIdx.x < o) buffer[threadIdx.x] += buffer[threadIdx.x + o];
        __syncthreads();
    }
    T result = buffer[0]; __syncthreads();
    return result;
}
extern "C" {
__global__ void
__launch_bounds__(64, 4)
k(const float *__restrict__ x, float *__restrict__ y, int n, double d, short s, float4 q, const Pair p,
  bool flag, long long big)
{
    SHARED float4 t4[2][TILE]; SHARED __align__(16) unsigned char raw[64 * sizeof(float)], more[16];
    SHARED Pair pair[4], *pointer; SHARED volatile int shared_integer;
    alignas(32) SHARED double wide[2];
    extern SHARED double dynamic[];
    float *ones = reinterpret_cast<float *>(dynamic); /* __shared__ in a comment; __global__ void absent( */
    const char *text = "__shared__ int in_text;"; // and __shared__ int here;
    float *copy = (float *)raw;
    int t = threadIdx.x;
    if (t < 16) t4[t / TILE][t % TILE] = make_float4(t, 1, 2, 3);
    copy[t] = x[t]; ones[t] = 1.f;
    if (t == 0) {
        shared_integer = 7; pair[1].a = 2.5f; pair[1].b = 3; pointer = &pair[1]; more[3] = 9; wide[1] = 0.5;
        if ((size_t)wide % 32 || (size_t)raw % 16) wide[1] = 1e9;
    }
    __syncthreads();
    float a = block_sum<float, 64>(copy[t]); int b = block_sum<int, 64>(1); float c = block_sum<float, 64>(ones[t]);
    y[t] = a + b + c + t4[1][7].x + pointer->a + pointer->b + shared_integer + more[3] + wide[1] + text[0] + n + d + s
        + q.w + p.a + p.b + flag + big;
}
}
"""


@pytest.mark.parametrize("through_a_macro", [False, True])
def test_declarations_and_arguments_of_every_form(
    cuda: Any, rng: np.random.Generator, through_a_macro: bool
) -> None:
    macro = "#define SHARED __shared__" if through_a_macro else ""
    source = FORMS.replace("SHARED_MACRO", macro)
    if not through_a_macro:
        source = source.replace("SHARED ", "__shared__ ")
    assert needs_preprocessor(source, []) == through_a_macro
    x = rng.random(64).astype(np.float32)
    from_memory, to_memory = cuda.to_device(x), cuda.mem_alloc(256)
    arguments = struct.pack(
        "=QQi4xdh14x4ffiB7xq", int(from_memory), int(to_memory), 1, 2.0, 3, 1, 2, 3, 4, 0.5, 6, True, 100
    )
    load(source)._launch_kernel((1, 1, 1), (64, 1, 1), arguments, 64 * 4, None)
    expected = x.sum() + 64 + 64 + 15 + 2.5 + 3 + 7 + 9 + 0.5 + ord("_") + 1 + 2 + 3 + 4 + 0.5 + 6 + 1 + 100
    np.testing.assert_allclose(cuda.from_device(to_memory, (64,), np.float32), expected, rtol=1e-6)


class TestWarps:
    def test_shuffles_of_every_kind(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(int *y) {
            int t = threadIdx.x;
            y[t] = __shfl_sync(~0u, t, 5, 8);
            y[32 + t] = __shfl_up_sync(~0u, t, 3);
            y[64 + t] = __shfl_down_sync(~0u, t, 3, 16);
            y[96 + t] = __shfl_xor_sync(~0u, t, 17);
        }"""
        t = np.arange(32)
        down = np.where(t % 16 < 13, t + 3, t)
        expected = [t // 8 * 8 + 5, np.where(t >= 3, t - 3, t), down, t ^ 17]
        assert (run(cuda, source, 128, np.int32).reshape(4, 32) == expected).all()

    def test_votes_and_reductions(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(unsigned *y) {
            unsigned t = threadIdx.x;
            y[t] = __ballot_sync(~0u, t % 3 == 0);
            y[32 + t] = 2 * __any_sync(~0u, t == 31) + __all_sync(~0u, t < 31);
            y[64 + t] = __reduce_add_sync(~0u, t) + __reduce_max_sync(~0u, t) - __reduce_min_sync(~0u, t + 1);
            y[96 + t] = __syncthreads_count(t < 5) + 100 * __syncthreads_and(t < 5) + 1000 * __syncthreads_or(t < 5);
        }"""
        got = run(cuda, source, 128, np.uint32).reshape(4, 32)
        assert (got[0] == sum(1 << lane for lane in range(0, 32, 3))).all()
        assert (got[1:] == np.array([[2], [496 + 31 - 1], [1005]])).all()

    def test_part_of_a_warp_may_meet_and_others_return(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(int *y) {
            int t = threadIdx.x;
            y[t] = -1;
            if (t >= 40) return;
            if (t < 8) y[t] = __shfl_xor_sync(0xffu, t, 1);
            __syncthreads();
            if (t >= 8) y[t] = y[t - 8];
        }"""
        got = run(cuda, source, 64, np.int32, threads=64)
        assert (got[:8] == np.arange(8) ^ 1).all()
        assert (got[40:] == -1).all()

    def test_volatile_shared_memory_keeps_lanes_in_step(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(float *y) {
            __shared__ float s[64];
            volatile float *v = s;
            int t = threadIdx.x;
            v[t] = t; v[t + 32] = 0;
            v[t] += v[t + 16]; v[t] += v[t + 8]; v[t] += v[t + 4]; v[t] += v[t + 2]; v[t] += v[t + 1];
            y[t] = v[0];
        }"""
        assert (run(cuda, source, 32) == 496).all()


class TestArithmetic:
    def test_atomics_of_every_width_and_kind(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(double *y, float *f, unsigned *u) {
            atomicAdd(y, 0.5);
            atomicAdd(f, 0.25f);
            atomicMax(f + 1, (float)threadIdx.x); atomicMin((int *)u, -(int)threadIdx.x);
            atomicAdd(u + 1, 2); atomicOr(u + 2, 1u << threadIdx.x); atomicInc(u + 3, 9);
            atomicCAS(u + 4, 0u, 77u); atomicExch(u + 5, 5u);
        }"""
        y, f, u = (
            cuda.to_device(np.zeros(1)),
            cuda.to_device(np.zeros(2, np.float32)),
            cuda.to_device(np.zeros(6, np.uint32)),
        )
        load(source)(y, f, u, block=(32, 1, 1), grid=(4, 1))
        assert cuda.from_device(y, (1,), np.float64)[0] == 64
        assert cuda.from_device(f, (2,), np.float32).tolist() == [32, 31]
        got = cuda.from_device(u, (6,), np.int32).tolist()
        assert got == [-31, 256, -1, 128 % 10, 77, 5]

    def test_halves_and_bfloats(self, cuda: Any) -> None:
        source = """#include <cuda_fp16.h>
        #include <cuda_bf16.h>
        extern "C" __global__ void k(float *y, const __half2 *x) {
            __half2 h = __hfma2(x[0], x[0], __float2half2_rn(1.f));
            y[0] = __low2float(h); y[1] = __high2float(h);
            y[2] = __half2float(hexp(__float2half(0.f))); y[3] = __bfloat162float(__float2bfloat16(1.00390625f));
            __half e = __float2half(3.f); e += __float2half(0.5f); y[4] = __half2float(e);
            y[5] = __half2float(__hmax(__float2half(-1.f), __float2half(2.f)));
        }"""
        x = cuda.to_device(np.array([2, 0.5], np.float16))
        assert run(cuda, source, 6, np.float32, x, threads=1).tolist() == [5, 1.25, 1, 1, 3.5, 2]

    def test_conversions_to_integers_saturate(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(int *y, const float *x) {
            int t = threadIdx.x;
            y[t] = __float2int_rz(x[t]); y[8 + t] = __float2int_rn(x[t]); y[16 + t] = (int)__float2uint_rn(x[t]);
        }"""
        x = np.array([1.5, 2.5, -1.5, 3e9, -3e9, np.nan, np.inf, 0.49], np.float32)
        got = run(cuda, source, 24, np.int32, cuda.to_device(x), threads=8).reshape(3, 8)
        low, high = -(2**31), 2**31 - 1
        assert got[0].tolist() == [1, 2, -1, high, low, 0, high, 0]
        assert got[1].tolist() == [2, 2, -2, high, low, 0, high, 0]
        assert got[2].view(np.uint32).tolist() == [2, 2, 0, 3_000_000_000, 0, 0, 2**32 - 1, 0]

    def test_extremes_of_mixed_types(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(double *y, int i, unsigned u, float f) {
            y[0] = min(i, u); y[1] = max(u, i); y[2] = min(f, 2.5); y[3] = max(3ll, 4ull); y[4] = min(-1, 2);
        }"""
        values = (np.int32(3), np.uint32(5), np.float32(1.5))
        assert run(cuda, source, 5, np.float64, *values, threads=1).tolist() == [3, 5, 1.5, 4, -1]

    def test_bits_and_wide_products(self, cuda: Any) -> None:
        source = """extern "C" __global__ void k(unsigned *y) {
            y[0] = __popc(0xF0F0u); y[1] = __clz(1); y[2] = __ffs(8); y[3] = __brev(1u);
            y[4] = __umulhi(0x80000000u, 6u); y[5] = __float_as_uint(1.f);
            y[6] = (unsigned)(__umul64hi(1ull << 63, 6ull)); y[7] = __funnelshift_l(0x80000000u, 1u, 1);
        }"""
        assert run(cuda, source, 8, np.uint32, threads=1).tolist() == [8, 31, 4, 1 << 31, 3, 0x3F800000, 3, 3]

    def test_products_of_tiles_with_tensor_core_fragments(self, cuda: Any, rng: np.random.Generator) -> None:
        source = """#include <mma.h>
        using namespace nvcuda;
        extern "C" __global__ void k(float *c, const __half *a, const __half *b) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
            wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
            wmma::fill_fragment(sum, 1.f);
            wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16);
            wmma::mma_sync(sum, fa, fb, sum);
            wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
        }"""
        a, b = rng.normal(size=(2, 16, 16)).astype(np.float16)
        got = run(cuda, source, 256, np.float32, cuda.to_device(a), cuda.to_device(b)).reshape(16, 16)
        np.testing.assert_allclose(got, 1 + a.astype(float) @ b.astype(float).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_any_order_of_threads_and_blocks(cuda: Any, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks run once each, on several threads of the machine or on one, in any order."""
    monkeypatch.setenv("CUEMU_ORDER", order)
    source = """extern "C" __global__ void k(int *y) {
        y[blockIdx.x * blockDim.x + threadIdx.x] += blockIdx.x * 100 + threadIdx.x;
    }"""
    y = cuda.to_device(np.zeros(50 * 200, np.int32))
    load(source)(y, block=(200, 1, 1), grid=(50, 1))
    assert (cuda.from_device(y, (50, 200), np.int32) == np.arange(50)[:, None] * 100 + np.arange(200)).all()


class TestRewriting:
    def test_kernels_and_their_bounds_are_listed(self) -> None:
        source = """
        __global__ void declared(int *);
        __global__ void __launch_bounds__(MOST * 2, 4) declared(int *y) {}
        extern "C" __global__ void plain(int *y) { }
        template <int N> __global__ void generic(int *y) {}
        static __global__ __launch_bounds__(64) void bounded(int *y) {}
        """
        assert kernels(source) == {"declared": "MOST * 2", "plain": "1024", "bounded": "64"}

    def test_lines_stay_where_they_are(self) -> None:
        source = (
            "/* a\n comment */ __shared__ float\n  a[2],\n  b;\n__global__ void k() {} // end\nint here;\n"
        )
        rewritten = rewrite(source)
        assert rewritten.splitlines()[5] == "int here;"
        assert "__shared__" not in rewritten and "__global__" not in rewritten

    def test_included_files_are_looked_at(self, tmp_path: Path) -> None:
        (tmp_path / "plain.h").write_text('#include "inner.h"\n')
        (tmp_path / "inner.h").write_text("int inner;\n")
        source = '#include "plain.h"\n__global__ void k() {}\n'
        assert not needs_preprocessor(source, [str(tmp_path)])
        (tmp_path / "inner.h").write_text("#define TILE __shared__ float\n")
        assert needs_preprocessor(source, [str(tmp_path)])
        assert needs_preprocessor('#include "absent.h"\n', [str(tmp_path)])

    def test_what_it_cannot_read_is_an_error(self) -> None:
        with pytest.raises(SourceError, match=r"__shared__ float a = 3;.*one plain variable"):
            rewrite("__shared__ float a = 3;")

    def test_too_much_static_shared_memory_is_an_error(self, gpu_driver: Any) -> None:
        with pytest.raises(RuntimeError, match="tile: more than 48 KiB of static shared memory"):
            compile_cubin('extern "C" __global__ void k() { __shared__ float tile[12289]; tile[0] = 1; }')

    def test_messages_of_the_compiler_name_source_and_line(self, gpu_driver: Any) -> None:
        with pytest.raises(RuntimeError, match=r"kernel\.cu:3:\d+: error: .*absent"):
            compile_cubin('// one\n\nextern "C" __global__ void k(float *y) { y[0] = absent; }')

    def test_ptx_is_what_cubins_are(self, gpu_driver: Any) -> None:
        text = 'extern "C" __global__ void k(float *y) { y[0] = 1; }'
        assert compile_cubin(text, "--ptx")[:4] == compile_cubin(text)[:4] == b"\x7fELF"
        with pytest.raises(RuntimeError, match="makes cubins only; --fatbin is not emulated"):
            compile_cubin("", "--fatbin")


FUNCTIONS = """
extern "C" __global__ void k(float *y, double *z) {
    const int i = threadIdx.x;
    const float x = 0.37f * i - 20;
    y[i] = expf(x); y[i + 128] = tanhf(x / 8); y[i + 256] = powf(x * x, 0.7f); y[i + 384] = sqrtf(x * x);
    z[i] = exp((double)x);
    if (i == 0) y[0] = expf(0.0f);
}
"""


def test_inexact_functions_err_as_far_as_a_gpu_may(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUEMU_INEXACT", "1")
    singles, doubles = cuda.mem_alloc(512 * 4), cuda.mem_alloc(128 * 8)
    load(FUNCTIONS)(singles, doubles, block=(128, 1, 1))
    x = (np.float32(0.37) * np.arange(128, dtype=np.float32) - np.float32(20)).astype(np.float64)
    exps, tanhs, powers, roots = cuda.from_device(singles, (4, 128), np.float32)
    assert exps[0] == 1, "what is exact stays"
    units = {}
    for name, got, right in (
        ("exp", exps[1:], np.exp(x[1:])),
        ("tanh", tanhs, np.tanh(x / 8)),
        ("pow", powers, np.power((x * x).astype(np.float32).astype(np.float64), np.float64(np.float32(0.7)))),
        ("double", cuda.from_device(doubles, (128,), np.float64), np.array([math.exp(value) for value in x])),
    ):
        units[name] = np.abs((got - right) / np.spacing(np.abs(right).astype(got.dtype)))
    furthest = {name: round(float(found.max())) for name, found in units.items()}
    assert furthest == {"exp": 2, "tanh": 2, "pow": 4, "double": 1}
    assert np.abs(tanhs).max() <= 1
    assert all(found.mean() > 0.3 for found in units.values())
    np.testing.assert_allclose(roots, np.abs(x), 1e-7)
