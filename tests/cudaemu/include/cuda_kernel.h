// How a kernel is exported. Apart from the rest for sources that were preprocessed with the rest in them.
#ifndef CUDA_KERNEL_H
#define CUDA_KERNEL_H

#define CUEMU_UNSANITIZED __attribute__((no_sanitize("thread", "address", "undefined")))

// Written by the stand-in after the source, once for each kernel.
#define CUEMU_KERNEL(NAME, MAX_THREADS, REGISTERS, SHARED, LOCAL)                               \
    extern "C" {                                                                                \
    CUEMU_UNSANITIZED void cuemu_call_##NAME(const char *a) { cuemu::call(NAME, a); }           \
    extern const cuemu_kernel cuemu_kernel_##NAME;                                              \
    const cuemu_kernel cuemu_kernel_##NAME =                                                    \
        cuemu::describe(NAME, #NAME, cuemu_call_##NAME, MAX_THREADS, REGISTERS, SHARED, LOCAL); \
    }

#endif
