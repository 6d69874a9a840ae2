// What a kernel compiled for the host and the emulated driver (libcuda.so.1) agree on.
#ifndef CUEMU_ABI_H
#define CUEMU_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>  // uint3, dim3, float4 ... of the real CUDA headers, in host mode

#define CUEMU_ABI_VERSION 3

// What the running CUDA thread sees. One for each OS thread, rewritten whenever another CUDA thread is resumed.
struct cuemu_thread_t {
    uint3 thread, block, block_dim, grid_dim;
    char *static_shared, *dynamic_shared;  // the shared memory of this block
    unsigned linear;                       // linear index of the thread in its block
};

// One `__shared__` variable; one for each instantiation of a template that declares it.
struct cuemu_shared_site {
    const char *name;
    unsigned bytes, alignment;
    int offset;  // into static_shared; negative until the declaration runs for the first time
};

// One kernel of a module, exported under the name cuemu_kernel_<name>.
struct cuemu_kernel {
    const char *name;
    void (*call)(const char *arguments);
    unsigned parameters, argument_bytes;
    const unsigned *offsets, *sizes;           // of each parameter in the argument buffer
    int max_threads;                           // of a block, from __launch_bounds__
    int registers, shared_bytes, local_bytes;  // as the real nvcc reports them; -1: not known
};

enum cuemu_warp_operation { CUEMU_SYNCWARP = 1, CUEMU_SHUFFLE, CUEMU_VOTE, CUEMU_REDUCE, CUEMU_MATRIX };
// Loads that see what other blocks wrote in this launch: past the L1 cache, ordering all that follows too, or as a part of
// an atomic operation.
enum cuemu_coherent_load { CUEMU_PAST_L1, CUEMU_ACQUIRE, CUEMU_RELAXED };

#pragma GCC visibility push(default)
extern "C" {
extern __thread cuemu_thread_t cuemu_thread __attribute__((tls_model("initial-exec")));

void cuemu_place_shared(cuemu_shared_site *);
// Waits for the block; returns its living threads and stores how many of them came with `predicate` set.
int cuemu_barrier(int line, int predicate, int *set);
// Waits for the lanes of `mask`; returns their 32 values and stores the lanes that came.
const uint64_t *cuemu_warp(unsigned mask, int operation, uint64_t value, int line, unsigned *lanes);
uint16_t cuemu_cas16(void *, uint16_t expected, uint16_t desired);
uint32_t cuemu_cas32(void *, uint32_t expected, uint32_t desired);
uint64_t cuemu_cas64(void *, uint64_t expected, uint64_t desired);
void cuemu_fence(void);
// Makes such a load of so many bytes.
void cuemu_coherent(void *to, const void *from, unsigned bytes, int load);
// The thread waits for others, of whatever block.
void cuemu_pause(void);
// Copies to shared memory that land when they are waited for; bytes beyond `from_bytes` become zeros.
void cuemu_copy_async(void *to, const void *from, unsigned bytes, unsigned from_bytes, int line);
void cuemu_copy_commit(void);
// Until no more than so many of the latest groups are under way; negative: and nothing that is in no group.
void cuemu_copy_wait(int groups);
void cuemu_fail(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
}
#pragma GCC visibility pop

#endif
