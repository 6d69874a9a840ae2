// Kernel launches: everything that a GPU refuses is refused here, with words.
#include <cstring>

#include "module.h"

static uint64_t launches = 0;
EXPORT uint64_t cuemu_launch_count() { return launches; }

static CUresult check_launch(const Function *function, dim3 grid, dim3 block, unsigned dynamic_shared, size_t bytes) {
    const cuemu_kernel *kernel = function->kernel;
    unsigned long threads = (unsigned long)block.x * block.y * block.z;
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    char text[200] = "";
    int limit = function->dynamic_shared_limit;
    // What it declares is known from the real nvcc, or once a kernel of the module ran.
    int declared = std::max(function->static_shared(), dynamic_shared ? function->module->shared_layout.declared.load() : 0);
    if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
        snprintf(text, sizeof text, "bad grid (%u,%u,%u)", grid.x, grid.y, grid.z);
    } else if (!threads || threads > 1024 || block.z > 64) {
        snprintf(text, sizeof text, "bad block (%u,%u,%u)", block.x, block.y, block.z);
    } else if (threads > (unsigned long)kernel->max_threads) {
        snprintf(text, sizeof text, "%lu threads in a block, __launch_bounds__(%d)", threads, kernel->max_threads);
    } else if (function->registers() * ((threads + 31) / 32 * 32) > 65536) {
        code = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        snprintf(text, sizeof text, "%d registers for each of %lu threads, a block has 65536", kernel->registers,
                 threads);
    } else if ((int)dynamic_shared > limit) {
        snprintf(text, sizeof text, "%u bytes of dynamic shared memory, %d allowed (cuFuncSetAttribute allows more)",
                 dynamic_shared, limit);
    } else if ((int)dynamic_shared + declared > function->shared_allowed()) {
        snprintf(text, sizeof text, kTooMuchShared, dynamic_shared, declared, function->shared_allowed());
    } else if (bytes != kernel->argument_bytes) {  // padding at the end is refused by real drivers, too
        snprintf(text, sizeof text, "%zu bytes of arguments, the kernel takes %u in %u parameters", bytes,
                 kernel->argument_bytes, kernel->parameters);
    } else {
        return CUDA_SUCCESS;
    }
    return fail(code, "launch of " + std::string(kernel->name) + ": " + text);
}

// Blocks that wait for each other must fit on the device at once.
static CUresult check_cooperative(Function *function, dim3 grid, dim3 block, unsigned dynamic_shared) {
    int each = 0, processors = 0;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, (CUfunction)function, (int)(block.x * block.y * block.z),
                                                dynamic_shared);
    cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    unsigned long blocks = (unsigned long)grid.x * grid.y * grid.z;
    if (blocks <= (unsigned long)each * (unsigned long)processors) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                "launch of " + std::string(function->kernel->name) + ": " + std::to_string(blocks) + " blocks, of which " +
                    std::to_string(each) + " fit on each of " + std::to_string(processors) + " multiprocessors");
}

// A device reaches its own memory only.
static std::string foreign_argument(const Context *context, const char *arguments, size_t bytes) {
    for (size_t offset = 0; offset + sizeof(uintptr_t) <= bytes; offset += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, arguments + offset, sizeof word);
        Allocation *found = in_device_range((void *)word) ? find_allocation(word) : nullptr;
        if (found && !found->host && ((Context *)found->context)->device != context->device)
            return "its argument at byte " + std::to_string(offset) + " points to memory of device " +
                   std::to_string(((Context *)found->context)->device) + ", it runs on " +
                   std::to_string(context->device);
    }
    return "";
}

static CUresult launch(Function *function, dim3 grid, dim3 block, unsigned dynamic_shared, CUstream stream,
                       const char *arguments, size_t bytes, bool cooperative = false) {
    if (CUresult failed = check_launch(function, grid, block, dynamic_shared, bytes)) return failed;
    if (cooperative)
        if (CUresult failed = check_cooperative(function, grid, block, dynamic_shared)) return failed;
    const Module *module = function->module;
    Context *context = current_context();
    if (module->context != context)
        return fail(CUDA_ERROR_INVALID_HANDLE, "the kernel was loaded in another context than the current one");
    auto launch = std::make_shared<Launch>();
    launch->kernel = function->kernel;
    launch->arguments.assign(arguments, arguments + bytes);
    launch->arguments.resize(bytes + 16);
    launch->grid = grid;
    launch->block = block;
    launch->dynamic_shared = dynamic_shared;
    launch->shared_layout = &function->module->shared_layout;
    launch->shared_allowed = function->shared_allowed();
    launch->data_begin = module->data_begin;
    launch->data_end = module->data_end;
    launch->library = module->path;
    launch->library_base = module->base;
    launch->checked = module->checked;
    launch->cooperative = cooperative;
    ++launches;
    return submit(stream, [launch, context] {
        KernelError error;
        std::string foreign = foreign_argument(context, launch->arguments.data(), launch->arguments.size());
        if (foreign.empty())
            error = run_kernel(*launch);
        else
            error = {700, "kernel " + std::string(launch->kernel->name) + ": " + foreign};
        if (!error.code && option("CUEMU_CANARY", 1)) {
            std::string damage = damage_around(launch->arguments.data(), launch->arguments.size());
            if (!damage.empty()) error = {700, "after kernel " + std::string(launch->kernel->name) + ": " + damage};
        }
        if (!error.code) return CUDA_SUCCESS;
        context_fault((CUresult)error.code);
        return fail((CUresult)error.code, error.message);
    });
}

static CUresult launch_packed(CUfunction handle, dim3 grid, dim3 block, unsigned dynamic_shared, CUstream stream,
                              void **parameters, void **extra, bool cooperative = false) {
    Function *function = (Function *)handle;
    const cuemu_kernel *kernel = function->kernel;
    std::vector<char> packed(kernel->argument_bytes);
    const char *arguments = packed.data();
    size_t bytes = packed.size();
    if (extra) {
        for (void **entry = extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
            if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) arguments = (const char *)entry[1];
            if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)entry[1];
        }
    } else {
        for (unsigned i = 0; i < kernel->parameters; ++i)
            memcpy(&packed[kernel->offsets[i]], parameters[i], kernel->sizes[i]);
    }
    return launch(function, grid, block, dynamic_shared, stream, arguments, bytes, cooperative);
}

API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned dynamic_shared, CUstream stream, void **parameters,
                   void **extra) {
    IN_CONTEXT;
    return launch_packed(function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), dynamic_shared, stream,
                         parameters, extra);
}

API cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned dynamic_shared, CUstream stream,
                              void **parameters) {
    IN_CONTEXT;
    return launch_packed(function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), dynamic_shared, stream,
                         parameters, nullptr, true);
}

API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    IN_CONTEXT;
    bool cooperative = false;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            return fail(CUDA_ERROR_NOT_SUPPORTED, "cuLaunchKernelEx: of the attributes only COOPERATIVE is emulated");
        cooperative = config->attrs[i].value.cooperative;
    }
    return launch_packed(function, dim3(config->gridDimX, config->gridDimY, config->gridDimZ),
                         dim3(config->blockDimX, config->blockDimY, config->blockDimZ), config->sharedMemBytes,
                         config->hStream, parameters, extra, cooperative);
}

// ---- the launch interface from before CUDA 4 ----

API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    ((Function *)function)->old_block = dim3(x, y, z);
    return CUDA_SUCCESS;
}
API cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
    ((Function *)function)->old_shared = bytes;
    return CUDA_SUCCESS;
}
API cuParamSetSize(CUfunction function, unsigned bytes) {
    ((Function *)function)->old_argument_bytes = bytes;
    return CUDA_SUCCESS;
}
API cuParamSetv(CUfunction function, int offset, void *from, unsigned bytes) {
    if (offset < 0 || offset + bytes > sizeof Function::old_arguments) return CUDA_ERROR_INVALID_VALUE;
    memcpy(((Function *)function)->old_arguments + offset, from, bytes);
    return CUDA_SUCCESS;
}
API cuParamSeti(CUfunction function, int offset, unsigned value) { return cuParamSetv(function, offset, &value, 4); }
API cuParamSetf(CUfunction function, int offset, float value) { return cuParamSetv(function, offset, &value, 4); }
API cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
    IN_CONTEXT;
    Function *function = (Function *)handle;
    return launch(function, dim3(width, height), function->old_block, function->old_shared, stream,
                  function->old_arguments, function->old_argument_bytes);
}
API cuLaunchGrid(CUfunction function, int width, int height) { return cuLaunchGridAsync(function, width, height, 0); }
API cuLaunch(CUfunction function) { return cuLaunchGridAsync(function, 1, 1, 0); }

// ---- for the emulated cuBLAS ----

// `release` frees the data once the work cannot run any more: that of a graph runs again and again.
EXPORT int cuemu_submit(void *stream, int (*work)(void *), void (*release)(void *), void *data) {
    std::shared_ptr<void> kept(data, release);
    IN_CONTEXT;
    return submit((CUstream)stream, [=] { return (CUresult)work(kept.get()); });
}

EXPORT int cuemu_check_range(const void *address, size_t bytes, int written, const char *function) {
    IN_CONTEXT;
    return check_range((CUdeviceptr)address, bytes, written, function);
}
