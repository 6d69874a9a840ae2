// Plain twins of PTX instructions that kernels reach by inline assembly: under `#ifdef __CUEMU__` they call these.
//
// Fragments lie over the lanes as PTX says (ISA, "Matrix fragments for mma"): with g = lane / 4 and t = lane % 4,
//   m16n8k16, 16 bits   a[i]: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next;  b[i]: rows 2t + 8i and the next, column g
//   m16n8k8, tf32       a[i]: row g + 8 (i % 2), column t + 4 (i / 2);                 b[i]: row t + 4i, column g
//   sums                c[i]: row g + 8 (i / 2), column 2t + i % 2
// Each lane computes its own four sums, from the registers of the lanes that hold its rows and its column.
#ifndef CUEMU_PTX_TWINS_H
#define CUEMU_PTX_TWINS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C++" {
namespace cuemu {

// Registers of the whole warp.
struct Gathered {
    uint64_t of[32];
    CUEMU_UNSANITIZED unsigned low(int lane) const { return (unsigned)of[lane]; }
    CUEMU_UNSANITIZED unsigned high(int lane) const { return (unsigned)(of[lane] >> 32); }
};

CUEMU_UNSANITIZED static inline Gathered gather(unsigned low, unsigned high, int kind, int line) {
    unsigned lanes;
    const uint64_t *values = cuemu_warp(0xffffffffu, CUEMU_MATRIX + 16 * kind, (uint64_t)high << 32 | low, line, &lanes);
    if (lanes != 0xffffffffu) cuemu_fail(719, "matrix instruction on line %d: not all lanes of the warp are there", line);
    Gathered result;
    memcpy(result.of, values, sizeof result.of);
    return result;
}

template <class T>
CUEMU_UNSANITIZED static inline float half_of(unsigned pair, int which) {
    T value;
    uint16_t bits = (uint16_t)(pair >> 16 * which);
    memcpy((void *)&value, &bits, 2);
    return (float)value;
}

// d = a.b + c on tiles of 16x16 and 16x8, of __half or __nv_bfloat16.
template <class T>
CUEMU_UNSANITIZED static inline void mma_m16n8k16(float *d, const unsigned *a, const unsigned *b, const float *c,
                                                  int line) {
    const int lane = cuemu_thread.linear & 31, g = lane / 4, t = lane % 4;
    const Gathered top = gather(a[0], a[2], 0, line), bottom = gather(a[1], a[3], 1, line);
    const Gathered right = gather(b[0], b[1], 2, line);
    for (int i = 0; i < 4; ++i) {
        const Gathered &rows = i < 2 ? top : bottom;
        const int column = 2 * t + i % 2;
        float sum = c[i];
        for (int k = 0; k < 16; ++k) {
            const int from = 4 * g + k % 8 / 2, to = 4 * column + k % 8 / 2;
            const unsigned left = k < 8 ? rows.low(from) : rows.high(from), other = k < 8 ? right.low(to) : right.high(to);
            sum += half_of<T>(left, k % 2) * half_of<T>(other, k % 2);
        }
        d[i] = sum;
    }
}

// What a tensor core reads of a float: the 13 lowest bits are not there.
CUEMU_UNSANITIZED static inline float as_tf32(unsigned bits) {
    bits &= 0xffffe000u;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// cvt.rna.tf32.f32: to the nearest, ties away from zero.
CUEMU_UNSANITIZED static inline unsigned to_tf32(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return (finite ? bits + 0x1000u : bits) & 0xffffe000u;
}

// d = a.b + c on tiles of 16x8 and 8x8 of floats.
CUEMU_UNSANITIZED static inline void mma_m16n8k8_tf32(float *d, const unsigned *a, const unsigned *b, const float *c,
                                                      int line) {
    const int lane = cuemu_thread.linear & 31, g = lane / 4, t = lane % 4;
    const Gathered top = gather(a[0], a[2], 3, line), bottom = gather(a[1], a[3], 4, line);
    const Gathered right = gather(b[0], b[1], 5, line);
    for (int i = 0; i < 4; ++i) {
        const Gathered &rows = i < 2 ? top : bottom;
        const int column = 2 * t + i % 2;
        float sum = c[i];
        for (int k = 0; k < 8; ++k) {
            const int from = 4 * g + k % 4, to = 4 * column + k % 4;
            sum += as_tf32(k < 4 ? rows.low(from) : rows.high(from)) * as_tf32(k < 4 ? right.low(to) : right.high(to));
        }
        d[i] = sum;
    }
}

// `count` (1, 2, 4) tiles of 8x8 elements of 16 bits; lane 8 i + r has the address of row r of tile i, in shared memory.
static inline void ldmatrix(unsigned *to, const void *row, int count, bool transposed, int line) {
    const int lane = cuemu_thread.linear & 31, g = lane / 4, t = lane % 4;
    const char *begin = (const char *)cuemu_thread.static_shared;
    if (lane < 8 * count) {
        if ((uintptr_t)row & 15) cuemu_fail(716, "ldmatrix on line %d: a row is at no multiple of 16 bytes", line);
        if ((uintptr_t)((const char *)row - begin) >= (512u << 10))
            cuemu_fail(700, "ldmatrix on line %d: a row is not in shared memory", line);
    }
    const uint64_t address = (uint64_t)(uintptr_t)row;
    const Gathered rows = gather((unsigned)address, (unsigned)(address >> 32), 6, line);
    for (int i = 0; i < count; ++i) {
        if (transposed) {
            const uint16_t *first = (const uint16_t *)(uintptr_t)rows.of[8 * i + 2 * t];
            const uint16_t *second = (const uint16_t *)(uintptr_t)rows.of[8 * i + 2 * t + 1];
            to[i] = first[g] | (unsigned)second[g] << 16;
        } else {
            to[i] = ((const unsigned *)(uintptr_t)rows.of[8 * i + g])[t];
        }
    }
}

// ld.acquire.gpu
template <class T>
static __forceinline__ T load_acquire(const T *from) {
    T value;
    cuemu_coherent((void *)&value, from, sizeof(T), CUEMU_ACQUIRE);
    return value;
}

}  // namespace cuemu
}  // extern "C++"

#endif
