// The devices: one, or CUEMU_DEVICES of them, all alike, with the limits of an A100 (CUEMU_CC=80) or an H100 (90).
#include <cstdio>

#include "driver.h"

static bool initialised = false;

int compute_capability() { return option("CUEMU_CC", 90); }
bool is_sm90() { return compute_capability() >= 90; }

static CUresult check_initialised() {
    return initialised ? CUDA_SUCCESS : fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
}

API cuInit(unsigned) {
    initialised = true;
    return CUDA_SUCCESS;
}

API cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *count) {
    *count = option("CUEMU_DEVICES", 1);
    return check_initialised();
}

CUresult check_device(CUdevice device) {
    int count = option("CUEMU_DEVICES", 1);
    if (device >= 0 && device < count) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_INVALID_DEVICE, count == 1 ? "the emulator has one device, number 0"
                                                      : "the emulator has " + std::to_string(count) + " devices");
}

API cuDeviceGet(CUdevice *device, int ordinal) {
    if (CUresult failed = check_initialised()) return failed;
    *device = ordinal;
    return check_device(ordinal);
}

API cuDeviceGetName(char *name, int bytes, CUdevice) {
    snprintf(name, bytes, "cuemu CPU device (sm_%d)", compute_capability());
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    snprintf(uuid->bytes, sizeof uuid->bytes, "cudaemu-device%d", device % 10);
    return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device) {
    snprintf(text, bytes, "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    unsigned bus = 0;
    sscanf(text, "%*x:%x", &bus);
    *device = (int)bus;
    return check_device(*device);
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice) {
    *major = compute_capability() / 10;
    *minor = compute_capability() % 10;
    return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
    *bytes = total_memory();
    return CUDA_SUCCESS;
}

API cuDeviceCanAccessPeer(int *result, CUdevice, CUdevice) {
    *result = 0;
    return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute which) {
    switch (which) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 2147483647;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return kDefaultSharedLimit;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return shared_limit();
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return shared_limit() + 1024;
        case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1024;
        case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return is_sm90() ? 1980000 : 1410000;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return is_sm90() ? 2619000 : 1215000;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return (is_sm90() ? 50 : 40) << 20;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return option("CUEMU_SMS", is_sm90() ? 132 : 108);
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return compute_capability() / 10;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return compute_capability() % 10;
        case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
        case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
        default: return 0;
    }
}

API cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
    *value = attribute(which);
    return CUDA_SUCCESS;
}

API cuProfilerStart() { return CUDA_SUCCESS; }
API cuProfilerStop() { return CUDA_SUCCESS; }
