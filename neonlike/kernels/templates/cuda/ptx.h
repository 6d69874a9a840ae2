// Tensor cores, asynchronous copies, acquiring loads and powers of 2 (PTX for sm_80 and later); the emulator has plain
// twins of them.
//
// Fragments, with g = lane / 4 and t = lane % 4:
//   nl_mma_f16, nl_mma_bf16   16x16 times 16x8   a[i]: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next
//                                                b[i]: rows 2t + 8 i and the next, column g
//   nl_mma_tf32               16x8 times 8x8     a[i]: row g + 8 (i % 2), column t + 4 (i / 2);  b[i]: row t + 4 i, column g
//   sums of all                                  d[i]: row g + 8 (i / 2), column 2t + i % 2
#ifndef NL_PTX_H
#define NL_PTX_H

#ifdef __CUEMU__

#define nl_mma_f16(d, a, b, c) cuemu::mma_m16n8k16<__half>(d, a, b, c, __LINE__)
#define nl_mma_bf16(d, a, b, c) cuemu::mma_m16n8k16<__nv_bfloat16>(d, a, b, c, __LINE__)
#define nl_mma_tf32(d, a, b, c) cuemu::mma_m16n8k8_tf32(d, a, b, c, __LINE__)
#define nl_tf32(x) cuemu::to_tf32(x)
#ifndef NL_PLAIN
#define nl_ldmatrix4(to, row) cuemu::ldmatrix(to, row, 4, false, __LINE__)
#define nl_ldmatrix4_trans(to, row) cuemu::ldmatrix(to, row, 4, true, __LINE__)
#define nl_ldmatrix2_trans(to, row) cuemu::ldmatrix(to, row, 2, true, __LINE__)
#define nl_copy16(to, from, bytes) cuemu_copy_async(to, from, 16, bytes, __LINE__)
#define nl_copy4(to, from, bytes) cuemu_copy_async(to, from, 4, bytes, __LINE__)
#define nl_copy_commit() cuemu_copy_commit()
#define nl_copy_wait(groups) cuemu_copy_wait(groups)
#endif
#define nl_load_acquire(from) cuemu::load_acquire(from)
#define nl_exp2_weight(x) exp2f(x)

#else

#define NL_MMA(NAME, SHAPE_AND_TYPES)                                                                      \
    static __device__ __forceinline__ void NAME(float *d, const unsigned *a, const unsigned *b, const float *c) { \
        asm volatile("mma.sync.aligned." SHAPE_AND_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};" \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), \
                       "f"(c[2]), "f"(c[3]));                                                              \
    }
NL_MMA(nl_mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
NL_MMA(nl_mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
NL_MMA(nl_mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef NL_MMA

// Rounded as tensor cores need it: they drop the bits below.
static __device__ __forceinline__ unsigned nl_tf32(float x) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

#ifndef NL_PLAIN
static __device__ __forceinline__ unsigned nl_shared_address(const void *place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// Tiles of 8x8 elements of 16 bits in shared memory; lane 8 i + r has the address of row r of tile i.
static __device__ __forceinline__ void nl_ldmatrix4(unsigned *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(nl_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void nl_ldmatrix4_trans(unsigned *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(nl_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void nl_ldmatrix2_trans(unsigned *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(nl_shared_address(row))
                 : "memory");
}

// From global to shared memory, past the registers; what lies beyond `bytes` becomes 0. It lands when its group is waited
// for, for this thread: others see it after a barrier.
static __device__ __forceinline__ void nl_copy16(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(nl_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void nl_copy4(void *to, const void *from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(nl_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void nl_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than so many of the latest groups are under way: a constant.
#define nl_copy_wait(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")
#endif

// 2^x as exp2f has it, but 0 where that is subnormal: one instruction instead of four.
static __device__ __forceinline__ float nl_exp2_weight(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What other blocks wrote before they changed this word is seen by what follows.
static __device__ __forceinline__ unsigned nl_load_acquire(const unsigned *from) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

#endif

#ifdef NL_PLAIN
// The same by plain loads (NEONLIKE_GPU_PLAIN): a lane asks the lane that has the address of a row for it.
static __device__ __forceinline__ const char *nl_row_of(const void *row, int lane) {
    return (const char *)__shfl_sync(0xffffffffu, (unsigned long long)row, lane);
}
static __device__ __forceinline__ int nl_lane() {
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
template <int TILES>
static __device__ __forceinline__ void nl_tiles(unsigned *to, const void *row) {
    const int lane = nl_lane();
    for (int i = 0; i < TILES; i++)
        to[i] = *(const unsigned *)(nl_row_of(row, 8 * i + lane / 4) + 4 * (lane % 4));
}
template <int TILES>
static __device__ __forceinline__ void nl_turned_tiles(unsigned *to, const void *row) {
    const int lane = nl_lane();
    for (int i = 0; i < TILES; i++) {
        const char *low = nl_row_of(row, 8 * i + 2 * (lane % 4)), *high = nl_row_of(row, 8 * i + 2 * (lane % 4) + 1);
        to[i] = *(const unsigned short *)(low + 2 * (lane / 4)) | (unsigned)*(const unsigned short *)(high + 2 * (lane / 4)) << 16;
    }
}
#define nl_ldmatrix4(to, row) nl_tiles<4>(to, row)
#define nl_ldmatrix4_trans(to, row) nl_turned_tiles<4>(to, row)
#define nl_ldmatrix2_trans(to, row) nl_turned_tiles<2>(to, row)
static __device__ __forceinline__ void nl_copy16(void *to, const void *from, int bytes) {
    if (bytes == 16) {
        *(uint4 *)to = *(const uint4 *)from;
        return;
    }
    for (int k = 0; k < 16; k++)
        ((char *)to)[k] = k < bytes ? ((const char *)from)[k] : 0;
}
static __device__ __forceinline__ void nl_copy4(void *to, const void *from, int bytes) {
    for (int k = 0; k < 4; k++)
        ((char *)to)[k] = k < bytes ? ((const char *)from)[k] : 0;
}
#define nl_copy_commit() ((void)0)
#define nl_copy_wait(groups) ((void)0)
#endif
#endif
