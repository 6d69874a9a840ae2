"""Modules, launches and faults on the emulated driver, through real PyCUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cudaemu import Emulator
from tests.cudaemu.kernels import ADD, compile_cubin, load

pytestmark = pytest.mark.emulator


class TestModules:
    def test_plain_and_prepared_calls(self, cuda: Any, rng: np.random.Generator) -> None:
        x, y = rng.normal(size=(2, 1000)).astype(np.float32)
        to, by = cuda.to_device(y), cuda.to_device(x)
        kernel = load(ADD)
        kernel(to, by, np.float32(2), np.int32(1000), block=(128, 1, 1), grid=(8, 1))
        kernel.prepare("PPfi")
        kernel.prepared_call((8, 1), (128, 1, 1), to, by, 0.5, 1000)
        kernel.prepared_async_call((8, 1), (128, 1, 1), cuda.Stream(), to, by, 0.25, 1000)
        cuda.Context.synchronize()
        np.testing.assert_allclose(
            cuda.from_device(to, (1000,), np.float32), y + 2.75 * x, rtol=1e-5, atol=1e-5
        )

    def test_constants_and_device_variables(self, cuda: Any) -> None:
        module = cuda.module_from_buffer(
            compile_cubin(
                "__constant__ float weights[4]; __device__ unsigned counter;\n"
                'extern "C" __global__ void k(float *y) {\n'
                "    y[threadIdx.x] = weights[threadIdx.x]; atomicAdd(&counter, 1);\n}"
            )
        )
        weights, nbytes = module.get_global("weights")
        counter, _ = module.get_global("counter")
        cuda.memcpy_htod(weights, np.arange(4, dtype=np.float32))
        y = cuda.mem_alloc(16)
        module.get_function("k")(y, block=(4, 1, 1))
        assert nbytes == 16
        assert (cuda.from_device(y, (4,), np.float32) == np.arange(4)).all()
        assert cuda.from_device(counter, (1,), np.uint32)[0] == 4

    def test_two_modules_keep_their_own_variables_and_shared_memory(self, cuda: Any) -> None:
        source = """template <int N> __device__ float tile_sum(float v) {
            __shared__ float tile[N];
            tile[threadIdx.x] = v; __syncthreads();
            float sum = 0; for (int i = 0; i < N; ++i) sum += tile[i];
            return sum;
        }
        extern "C" __global__ void k(float *y) { PAD y[threadIdx.x] = tile_sum<32>(SCALE); }"""
        y = cuda.mem_alloc(128)
        kernels = [
            load(source.replace("SCALE", scale).replace("PAD", pad))
            for scale, pad in (("1.f", ""), ("2.f", "__shared__ float pad[500]; pad[threadIdx.x] = 0;"))
        ]
        for kernel, expected in zip(kernels * 2, (32, 64) * 2):
            kernel(y, block=(32, 1, 1))
            assert (cuda.from_device(y, (32,), np.float32) == expected).all()

    def test_hundreds_of_modules_with_shared_memory(self, cuda: Any) -> None:
        """Each has its own layout: shared variables of one never take the room of another's."""
        cubin = compile_cubin(
            'extern "C" __global__ void k(float *y) {\n'
            "    __shared__ float s[8192]; s[threadIdx.x] = 3; y[threadIdx.x] = s[threadIdx.x];\n}"
        )
        y = cuda.mem_alloc(128)
        modules = [cuda.module_from_buffer(cubin) for _ in range(200)]
        for module in modules:
            module.get_function("k")(y, block=(32, 1, 1))
        assert (cuda.from_device(y, (32,), np.float32) == 3).all()

    def test_what_is_not_a_module_is_refused_with_advice(self, cuda: Any) -> None:
        with pytest.raises(cuda.LogicError, match="not a cubin"):
            cuda.module_from_buffer(b"// PTX text" + bytes(64))
        real = bytearray(compile_cubin(ADD))
        real[18:20] = (190).to_bytes(2, "little")  # the machine number of a GPU
        with pytest.raises(cuda.RuntimeError, match=r"compiled for a GPU.*NEONLIKE_NVCC"):
            cuda.module_from_buffer(bytes(real))
        with pytest.raises(cuda.LogicError, match="no kernel named absent"):
            load(ADD, "absent")

    def test_source_modules_of_pycuda(self, cuda: Any) -> None:
        """Whole PyCUDA: its compiler wrapper finds the stand-in on PATH, its arrays run kernels of their own."""
        from pycuda import gpuarray
        from pycuda.compiler import SourceModule

        module = SourceModule("__global__ void twice(float *x) { x[threadIdx.x] *= 2; }", cache_dir=False)
        x = gpuarray.to_gpu(np.arange(32, dtype=np.float32))
        module.get_function("twice")(x, block=(32, 1, 1))
        assert (x.get() == 2 * np.arange(32)).all()


class TestLaunches:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"block": (2048, 1, 1)}, r"bad block \(2048,1,1\)"),
            ({"block": (1, 1, 65)}, "bad block"),
            ({"grid": (1, 70000)}, "bad grid"),
            ({"shared": 50000}, "50000 bytes of dynamic shared memory, 49152 allowed"),
        ],
    )
    def test_what_a_gpu_refuses_is_refused(self, cuda: Any, changes: dict[str, Any], message: str) -> None:
        x = cuda.to_device(np.zeros(4, np.float32))
        shape = {"block": (1, 1, 1), "grid": (1, 1), "shared": 0, **changes}
        with pytest.raises(cuda.LogicError, match=message):
            load(ADD)(x, x, np.float32(1), np.int32(0), **shape)

    def test_launch_bounds_hold(self, cuda: Any) -> None:
        kernel = load(
            '#define MOST 64\nextern "C" __global__ void __launch_bounds__(MOST, 2) k(float *y) { y[0] = 1; }'
        )
        y = cuda.mem_alloc(4)
        kernel(y, block=(64, 1, 1))
        assert kernel.max_threads_per_block == 64
        with pytest.raises(cuda.LogicError, match=r"96 threads in a block, __launch_bounds__\(64\)"):
            kernel(y, block=(96, 1, 1))

    def test_more_shared_memory_where_a_kernel_asks_for_it(self, cuda: Any) -> None:
        kernel = load(
            'extern "C" __global__ void k(float *y) { extern __shared__ float s[]; s[40000] = 2; y[0] = s[40000]; }'
        )
        attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        with pytest.raises(cuda.LogicError, match="232448 bytes of shared memory at most"):
            kernel.set_attribute(attribute, 232449)
        kernel.set_attribute(attribute, 200_000)
        y = cuda.mem_alloc(4)
        kernel(y, block=(1, 1, 1), shared=180_000)
        assert cuda.from_device(y, (1,), np.float32)[0] == 2

    def test_launches_are_counted(self, cuda: Any, emulator: Emulator) -> None:
        before, y = emulator.launches, cuda.mem_alloc(4)
        load('extern "C" __global__ void k(float *y) {}')(y, block=(1, 1, 1))
        assert emulator.launches == before + 1


class TestFaults:
    def test_the_device_stays_usable_after_an_error_unless_asked_otherwise(self, cuda: Any) -> None:
        kernel = load('extern "C" __global__ void k(float *y) { y[threadIdx.x] = 1; }')
        with pytest.raises(cuda.LogicError, match="illegal address"):
            kernel(np.intp(0), block=(1, 1, 1))
        y = cuda.mem_alloc(4)
        kernel(y, block=(1, 1, 1))
        assert cuda.from_device(y, (1,), np.float32)[0] == 1

    @pytest.mark.filterwarnings("ignore")
    def test_an_error_takes_the_context_with_it_when_sticky(
        self, cuda: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUEMU_STICKY", "1")
        other = cuda.Device(0).make_context()
        try:
            with pytest.raises(cuda.LogicError):
                load('extern "C" __global__ void k(float *y) { y[0] = 1; }')(np.intp(0), block=(1, 1, 1))
            with pytest.raises(cuda.LogicError, match="the context was lost by an earlier error"):
                cuda.mem_alloc(4)
        finally:
            cuda.Context.pop()
            other.detach()
        cuda.mem_alloc(4).free()

    def test_a_context_can_be_lost_on_purpose(self, cuda: Any, emulator: Emulator) -> None:
        other = cuda.Device(0).make_context()
        emulator.lose_context(719)
        with pytest.raises(cuda.LaunchError, match="the context was lost"):
            cuda.Context.synchronize()
        cuda.Context.pop()
        other.detach()

    def test_a_stack_overflow_is_told_from_other_faults(self, cuda: Any) -> None:
        source = """__device__ __noinline__ float deep(float v, int n) {
            volatile float frame[1000]; frame[n % 1000] = v;
            return n ? deep(frame[n % 1000], n - 1) + frame[0] : v;
        }
        extern "C" __global__ void k(float *y) { y[0] = deep(1, 1000); }"""
        with pytest.raises(cuda.LogicError, match="stack overflowed"):
            load(source)(cuda.mem_alloc(4), block=(1, 1, 1))
