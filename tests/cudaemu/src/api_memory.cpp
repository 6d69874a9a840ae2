// Allocation of device and of pinned host memory.
#include <cstdlib>

#include "driver.h"

CUresult check_range(CUdeviceptr address, size_t bytes, bool written, const char *function) {
    if (!bytes) return CUDA_SUCCESS;
    Allocation *found = find_allocation(address);
    if (found && address + bytes <= (uintptr_t)found->base + found->bytes) {
        if (written) set_initialised(address, bytes, true);
        return CUDA_SUCCESS;
    }
    if (in_module_data(address, bytes)) return CUDA_SUCCESS;
    char text[200];
    snprintf(text, sizeof text, "%s: %zu bytes at 0x%llx are not inside one device allocation", function, bytes,
             (unsigned long long)address);
    return fail(CUDA_ERROR_INVALID_VALUE, text);
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, Context *context) {
    uintptr_t made = 0;
    switch (allocate_device(&made, bytes, context)) {
        case MemoryError::none: *address = made; return CUDA_SUCCESS;
        case MemoryError::invalid: return fail(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
        default: break;
    }
    return fail(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " bytes asked for, " +
                                              std::to_string(free_memory()) + " of " +
                                              std::to_string(total_memory()) + " free");
}

static CUresult release(CUdeviceptr address) {
    std::string damage;
    if (free_device(address, &damage) == MemoryError::invalid)
        return fail(CUDA_ERROR_INVALID_VALUE, "cuMemFree: not the start of a live allocation (freed twice?)");
    return damage.empty() ? CUDA_SUCCESS : fail(CUDA_ERROR_ILLEGAL_ADDRESS, "at cuMemFree: " + damage);
}

void free_memory_of(Context *context) {
    for (auto next = allocations().begin(); next != allocations().end();) {
        auto entry = next++;
        std::string damage;
        if (entry->second.context == context && !entry->second.host) free_device(entry->first, &damage);
    }
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
    IN_CONTEXT;
    *total = total_memory();
    *free = free_memory();
    return CUDA_SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    IN_CONTEXT;
    if (CUresult failed = refuse_unsafe(context, __func__)) return failed;
    return allocate(address, bytes, context);
}

API cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned) {
    IN_CONTEXT;
    return allocate(address, bytes, context);
}

API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned) {
    IN_CONTEXT;
    *pitch = (width + 511) / 512 * 512;
    return allocate(address, *pitch * height, context);
}

API cuMemFree_v2(CUdeviceptr address) {
    IN_CONTEXT;
    if (CUresult failed = refuse_unsafe(context, __func__)) return failed;
    finish_all(false);
    return address ? release(address) : CUDA_SUCCESS;
}

// Stream-ordered: the address is valid at once, the memory goes back when the stream gets there.
API cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream) {
    IN_CONTEXT;
    return allocate(address, bytes, context);
}

API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    IN_CONTEXT;
    return submit(stream, [=] { return release(address); });
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    IN_CONTEXT;
    Allocation *found = find_allocation(address);
    if (!found) return fail(CUDA_ERROR_NOT_FOUND, "not the address of an allocation");
    if (base) *base = (CUdeviceptr)found->base;
    if (bytes) *bytes = found->bytes;
    return CUDA_SUCCESS;
}

static void add_host_memory(void *address, size_t bytes, Context *context) {
    allocations()[(uintptr_t)address] = Allocation{(char *)address, bytes, 0, context, true};
}

static bool remove_host_memory(void *address) {
    auto found = allocations().find((uintptr_t)address);
    if (found == allocations().end() || !found->second.host) return false;
    allocations().erase(found);
    return true;
}

API cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    IN_CONTEXT;
    if (CUresult failed = refuse_unsafe(context, __func__)) return failed;
    if (posix_memalign(address, 4096, bytes ? bytes : 1)) return CUDA_ERROR_OUT_OF_MEMORY;
    add_host_memory(*address, bytes, context);
    return CUDA_SUCCESS;
}

API cuMemFreeHost(void *address) {
    IN_CONTEXT;
    if (CUresult failed = refuse_unsafe(context, __func__)) return failed;
    finish_all(false);
    if (!remove_host_memory(address)) return fail(CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost: not pinned memory");
    free(address);
    return CUDA_SUCCESS;
}

API cuMemHostRegister_v2(void *address, size_t bytes, unsigned) {
    IN_CONTEXT;
    add_host_memory(address, bytes, context);
    return CUDA_SUCCESS;
}

API cuMemHostUnregister(void *address) {
    IN_CONTEXT;
    finish_all(false);
    return remove_host_memory(address) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned) {
    *device = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}

API cuMemHostGetFlags(unsigned *flags, void *) {
    *flags = 0;
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr address) {
    IN_CONTEXT;
    Allocation *found = find_allocation(address);
    if (!found) return fail(CUDA_ERROR_INVALID_VALUE, "cuPointerGetAttribute: not the address of an allocation");
    switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = (CUcontext)found->context; break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)value = found->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = ((Context *)found->context)->device; break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)value = 0; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(CUdeviceptr *)value = address; break;
        default: return fail(CUDA_ERROR_NOT_SUPPORTED, "cuPointerGetAttribute: this attribute is not emulated");
    }
    return CUDA_SUCCESS;
}
