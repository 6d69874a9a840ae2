/* Kernels of a GPU, started through functions of its driver whose addresses Python found. Part of fastpath.c.
 *
 * An assignment that was learned is queued by one call of the driver a kernel. What is not as it was when it was learned
 * (another context is current in this thread, a graph is being recorded, the driver refuses) is left to Python, which
 * knows what to do or what to say.
 */
#ifndef NL_FASTPATH_DEVICE_H
#define NL_FASTPATH_DEVICE_H

#include "packed.h"
#include <string.h>

enum { MOST_ARGUMENTS = 4096, SUCCESS = 0 };

/* https://docs.nvidia.com/cuda/cuda-driver-api: cuLaunchKernel, cuCtxGetCurrent; handles are pointers. */
typedef int (*LaunchKernel)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, void *stream, void **arguments, void **extra);
typedef int (*CurrentContext)(void **context);
static void *const ARGUMENT_BUFFER = (void *)1, *const ARGUMENT_BYTES = (void *)2; /* CU_LAUNCH_PARAM_... */

/* A kernel with its grid and block. */
struct nl_step {
    void *function;
    int64_t grid[3], block[3];
};

/* How an assignment is started; starts.py of backends/gpu/device writes it. The steps are followed by `tail` bytes, which come
 * after addresses and numbers in the arguments of every step. */
struct nl_device {
    LaunchKernel launch;
    CurrentContext current;
    void *context, *stream;
    const int32_t *paused; /* not 0 while a graph is recorded: Python knows which stream that is */
    int64_t steps, tail;
    struct nl_step step[];
};

/* Queue the kernels of `device` on `count` addresses and numbers; not 0 if nothing was queued, or an error is pending. */
static int start_on_device(const struct nl_device *device, const union nl_word *words, const int count)
{
    char arguments[MOST_ARGUMENTS];
    const size_t head = sizeof *words * (size_t)count;
    size_t bytes = head + (size_t)device->tail;
    void *context = NULL;
    if (bytes > sizeof arguments || *device->paused || device->current(&context) != SUCCESS || context != device->context)
        return -1;
    memcpy(arguments, words, head);
    memcpy(arguments + head, device->step + device->steps, (size_t)device->tail);
    void *extra[] = {ARGUMENT_BUFFER, arguments, ARGUMENT_BYTES, &bytes, NULL};
    for (int64_t k = 0; k < device->steps; k++) {
        const struct nl_step *step = &device->step[k];
        const int64_t *g = step->grid, *b = step->block;
        if (device->launch(step->function, (unsigned)g[0], (unsigned)g[1], (unsigned)g[2], (unsigned)b[0], (unsigned)b[1],
                           (unsigned)b[2], 0, device->stream, NULL, extra) != SUCCESS)
            return -1;
    }
    return 0;
}

#endif
