// Contexts: a stack of them for each host thread, and the device's primary one.
#include <map>
#include <vector>

#include "driver.h"

static thread_local std::vector<Context *> stack;

static std::set<Context *> &living() {
    static auto *contexts = new std::set<Context *>;
    return *contexts;
}

Context *current_context() { return stack.empty() || !living().count(stack.back()) ? nullptr : stack.back(); }

Context *make_context(int device) {
    Context *made = new Context;
    made->device = device;
    living().insert(made);
    return made;
}

CUresult check_context(const char *function, Context **context) {
    *context = current_context();
    if (!*context)
        return fail(CUDA_ERROR_INVALID_CONTEXT, std::string(function) + ": no context is current in this thread");
    if ((*context)->lost)
        return fail((*context)->lost, std::string(function) + ": the context was lost by an earlier error");
    return CUDA_SUCCESS;
}

void context_fault(CUresult code) {
    Context *context = current_context();
    if (context && option("CUEMU_STICKY", 0)) context->lost = code;
}

static CUresult check_living(CUcontext handle) {
    if (living().count((Context *)handle)) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_INVALID_CONTEXT, "the context does not exist any more");
}

static void destroy(Context *context) {
    for (Stream *stream : context->streams) finish_stream(stream);
    free_memory_of(context);
    living().erase(context);
}

static void pop_if_current(Context *context) {
    if (!stack.empty() && stack.back() == context) stack.pop_back();
}

API cuCtxCreate_v4(CUcontext *made, CUctxCreateParams *, unsigned, CUdevice device) {
    Lock lock(driver_lock());
    if (CUresult failed = check_device(device)) return failed;
    stack.push_back(make_context(device));
    *made = (CUcontext)stack.back();
    return CUDA_SUCCESS;
}

API cuCtxDestroy_v2(CUcontext handle) {
    Lock lock(driver_lock());
    if (CUresult failed = check_living(handle)) return failed;
    pop_if_current((Context *)handle);
    destroy((Context *)handle);
    return CUDA_SUCCESS;
}

API cuCtxAttach(CUcontext *handle, unsigned) {
    IN_CONTEXT;
    ++context->references;
    *handle = (CUcontext)context;
    return CUDA_SUCCESS;
}

API cuCtxDetach(CUcontext handle) {
    Lock lock(driver_lock());
    if (CUresult failed = check_living(handle)) return failed;
    if (--((Context *)handle)->references > 0) return CUDA_SUCCESS;
    return cuCtxDestroy_v2(handle);
}

API cuCtxPushCurrent_v2(CUcontext handle) {
    Lock lock(driver_lock());
    if (CUresult failed = check_living(handle)) return failed;
    stack.push_back((Context *)handle);
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *handle) {
    if (stack.empty()) return fail(CUDA_ERROR_INVALID_CONTEXT, "no context to pop in this thread");
    if (handle) *handle = (CUcontext)stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *handle) {
    *handle = stack.empty() ? nullptr : (CUcontext)stack.back();
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext handle) {
    Lock lock(driver_lock());
    if (handle)
        if (CUresult failed = check_living(handle)) return failed;
    if (!stack.empty()) stack.pop_back();
    if (handle) stack.push_back((Context *)handle);
    return CUDA_SUCCESS;
}

// The primary context has one handle for good: what was pushed before its last release works after the next retain.
static Context *primary(CUdevice device) {
    static auto *contexts = new std::map<int, Context>;
    return &(*contexts)[device];
}

static bool primary_is_active(CUdevice device) { return living().count(primary(device)); }

API cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device) {
    Lock lock(driver_lock());
    if (CUresult failed = check_device(device)) return failed;
    if (primary_is_active(device)) {
        ++primary(device)->references;
    } else {
        *primary(device) = Context();
        primary(device)->device = device;
        living().insert(primary(device));
    }
    *handle = (CUcontext)primary(device);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    Lock lock(driver_lock());
    if (!primary_is_active(device)) return fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    if (--primary(device)->references == 0) destroy(primary(device));
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    Lock lock(driver_lock());
    if (primary_is_active(device)) destroy(primary(device));
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    Lock lock(driver_lock());
    *flags = 0;
    *active = primary_is_active(device);
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device) {
    IN_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

API cuCtxSynchronize() {
    IN_CONTEXT;
    if (CUresult failed = refuse_beside_recording(context, __func__, true)) return failed;
    count_synchronisation();
    return finish_all(true);
}

API cuCtxGetApiVersion(CUcontext, unsigned *version) {
    *version = 3020;
    return CUDA_SUCCESS;
}

static size_t &limit(Context *context, CUlimit which) {
    if (which == CU_LIMIT_STACK_SIZE) return context->stack_limit;
    return which == CU_LIMIT_MALLOC_HEAP_SIZE ? context->heap_limit : context->print_limit;
}

API cuCtxGetLimit(size_t *value, CUlimit which) {
    IN_CONTEXT;
    *value = limit(context, which);
    return CUDA_SUCCESS;
}

API cuCtxSetLimit(CUlimit which, size_t value) {
    IN_CONTEXT;
    limit(context, which) = value;
    return CUDA_SUCCESS;
}

API cuCtxGetCacheConfig(CUfunc_cache *value) {
    *value = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}
API cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
API cuCtxGetSharedMemConfig(CUsharedconfig *value) {
    *value = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}
API cuCtxSetSharedMemConfig(CUsharedconfig) { return CUDA_SUCCESS; }
