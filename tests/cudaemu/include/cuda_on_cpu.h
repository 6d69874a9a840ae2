// CUDA C++ for the host compiler: included before every kernel source by the stand-in for nvcc.
//
// `__global__` and `__shared__` never get here: the stand-in rewrites them (cuda_source.py). Everything else of the
// device language that the kernels use is a macro or a function of this header or of those it includes. It is
// compiled once into a precompiled header, so what it costs to read does not matter; what it instantiates does.
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#define __CUEMU__ 1
// <math.h> of GNU's C++17 library brings Bessel functions and the like: loading them made up a fifth of a compilation.
#include <cstddef>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector_functions.h>
#include <vector_types.h>

#include "cuda_kernel.h"
#include "cuemu_abi.h"

#undef __global__
#undef __shared__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

#define warpSize 32
#define threadIdx ((const uint3 &)cuemu_thread.thread)
#define blockIdx ((const uint3 &)cuemu_thread.block)
#define blockDim ((const dim3 &)cuemu_thread.block_dim)
#define gridDim ((const dim3 &)cuemu_thread.grid_dim)

#define __trap() cuemu_fail(719, "__trap() on line %d", __LINE__)
#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : cuemu_fail(710, "assert(%s) failed on line %d", #condition, __LINE__))
#define __threadfence() cuemu_fence()
#define __threadfence_block() __sync_synchronize()
#define __threadfence_system() cuemu_fence()

// The kernel's source is C++ throughout, also where it is wrapped in one large extern "C".
extern "C++" {
namespace cuemu {

template <class T>
struct identity {
    typedef T type;
};

template <class T>
CUEMU_UNSANITIZED static inline uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8, "warp and atomic operations take values of up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
CUEMU_UNSANITIZED static inline T from_bits(uint64_t bits) {
    T value;
    memcpy((void *)&value, &bits, sizeof value);
    return value;
}

// The place of a `__shared__` variable in the memory of the running block.
template <class T>
CUEMU_UNSANITIZED static inline T &shared(cuemu_shared_site &site) {
    if (__atomic_load_n(&site.offset, __ATOMIC_ACQUIRE) < 0) cuemu_place_shared(&site);
    return *(T *)(cuemu_thread.static_shared + site.offset);
}

// Where the parameters of a kernel lie in its argument buffer, by the rules of C for a structure.
template <class... Parameters>
struct Layout {
    static constexpr unsigned count = sizeof...(Parameters);
    struct Offsets {
        unsigned of[count + 1];
    };
    static constexpr unsigned bytes[count + 1] = {(unsigned)sizeof(std::decay_t<Parameters>)..., 0};
    static constexpr Offsets compute() {
        Offsets offsets{};
        unsigned end = 0;
        unsigned alignment[count + 1] = {(unsigned)alignof(std::decay_t<Parameters>)..., 1};
        for (unsigned i = 0; i < count; ++i) {
            end = (end + alignment[i] - 1) / alignment[i] * alignment[i];
            offsets.of[i] = end;
            end += bytes[i];
        }
        offsets.of[count] = end;
        return offsets;
    }
    static constexpr Offsets offsets = compute();
};

template <class... Parameters, size_t... I>
CUEMU_UNSANITIZED static inline void call_indexed(void (*kernel)(Parameters...), const char *arguments,
                                                  std::index_sequence<I...>) {
    kernel(*(std::decay_t<Parameters> *)(arguments + Layout<Parameters...>::offsets.of[I])...);
}

template <class... Parameters>
CUEMU_UNSANITIZED static inline void call(void (*kernel)(Parameters...), const char *arguments) {
    call_indexed(kernel, arguments, std::index_sequence_for<Parameters...>());
}

template <class... Parameters>
constexpr cuemu_kernel describe(void (*)(Parameters...), const char *name, void (*call)(const char *), int max_threads,
                                int registers, int shared_bytes, int local_bytes) {
    typedef Layout<Parameters...> Arguments;
    return {name,
            call,
            Arguments::count,
            Arguments::offsets.of[Arguments::count],
            Arguments::offsets.of,
            Arguments::bytes,
            max_threads,
            registers,
            shared_bytes,
            local_bytes};
}

}  // namespace cuemu
}  // extern "C++"

// What the driver reads of every module.
extern "C" {
extern const int cuemu_abi_version, cuemu_checked;
const int cuemu_abi_version = CUEMU_ABI_VERSION;
#ifdef __SANITIZE_THREAD__
const int cuemu_checked = 1;
#else
const int cuemu_checked = 0;
#endif
}

#include "cuda_math.h"
#include "cuda_threads.h"
#include "ptx_twins.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifdef CUEMU_INEXACT
#include "inexact.h"
#endif

#endif
