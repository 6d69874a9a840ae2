// Error codes and their texts; the calls through which tests plant faults.
#include <cstdio>

#include "driver.h"

static std::string message_of_last_failure;

std::recursive_mutex &driver_lock() {
    static auto *lock = new std::recursive_mutex;
    return *lock;
}

const std::string &last_message() { return message_of_last_failure; }

CUresult fail(CUresult code, const std::string &message) {
    message_of_last_failure = message;
    if (option("CUEMU_VERBOSE", 0)) fprintf(stderr, "cuemu: %s\n", message.c_str());
    return code;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// The emulator's own words follow CUDA's: PyCUDA shows them in its exceptions.
API cuGetErrorString(CUresult code, const char **text) {
    static thread_local std::string kept;
    Lock lock(driver_lock());
    for (const auto &error : errors) {
        if (error.code != (int)code) continue;
        kept = error.text;
        if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY && !message_of_last_failure.empty()) {
            kept += " -- cuemu: " + message_of_last_failure;
            message_of_last_failure.clear();
        }
        *text = kept.c_str();
        return CUDA_SUCCESS;
    }
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorName(CUresult code, const char **text) {
    for (const auto &error : errors) {
        if (error.code != (int)code) continue;
        *text = error.name;
        return CUDA_SUCCESS;
    }
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT int cuemu_unsupported(const char *function) {
    return fail(CUDA_ERROR_NOT_SUPPORTED, std::string(function) + " is not emulated");
}

// After so many allocations, all fail as if memory had run out; negative: none does.
EXPORT void cuemu_plan_allocation_failures(int after) {
    Lock lock(driver_lock());
    plan_allocation_failures(after);
}

// Every later call in the current context answers `code`.
EXPORT int cuemu_lose_context(int code) {
    IN_CONTEXT;
    context->lost = (CUresult)code;
    return CUDA_SUCCESS;
}

// For memory pools: what lies there is as undefined as in a new allocation.
EXPORT int cuemu_mark_uninitialised(CUdeviceptr address, size_t bytes) {
    IN_CONTEXT;
    if (CUresult failed = check_range(address, bytes, false, __func__)) return failed;
    set_initialised(address, bytes, false);
    return CUDA_SUCCESS;
}
