// Copies and fills.
#include <algorithm>
#include <cstring>

#include "driver.h"

#define CHECK_RANGE(ADDRESS, BYTES, WRITTEN) \
    if (CUresult failed = check_range(ADDRESS, BYTES, WRITTEN, __func__)) return failed

API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    IN_CONTEXT;
    CHECK_RANGE(to, bytes, true);
    if (CUresult failed = refuse_beside_recording(context, __func__)) return failed;
    count_synchronisation();
    finish_blocking_streams();
    memcpy((void *)to, from, bytes);
    return CUDA_SUCCESS;
}

API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    IN_CONTEXT;
    CHECK_RANGE(from, bytes, false);
    if (CUresult failed = refuse_beside_recording(context, __func__)) return failed;
    count_synchronisation();
    finish_blocking_streams();
    memcpy(to, (void *)from, bytes);
    return CUDA_SUCCESS;
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    CHECK_RANGE(from, bytes, false);
    CHECK_RANGE(to, bytes, false);
    return submit(stream, [=] {
        copy_initialised(to, from, bytes);
        memmove((void *)to, (void *)from, bytes);
        return CUDA_SUCCESS;
    });
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr);
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    CHECK_RANGE(to, bytes, true);
    std::shared_ptr<std::string> staged;
    bool recorded = !is_null_stream(stream) && ((Stream *)stream)->capture;
    if (!recorded && !find_allocation((uintptr_t)from)) {  // pageable memory is read before the call returns
        staged = std::make_shared<std::string>((const char *)from, bytes);
        from = staged->data();
    }
    return submit(stream, [=] {
        (void)staged;
        memcpy((void *)to, from, bytes);
        return CUDA_SUCCESS;
    });
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    IN_CONTEXT;
    CHECK_RANGE(from, bytes, false);
    CUresult result = submit(stream, [=] {
        memcpy(to, (void *)from, bytes);
        return CUDA_SUCCESS;
    });
    if (!result && !is_null_stream(stream) && !((Stream *)stream)->capture && !find_allocation((uintptr_t)to))
        count_synchronisation(), finish_stream((Stream *)stream);  // pageable memory is written before the call returns
    return result;
}

// Of any two kinds of memory: host and device share their addresses here.
API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (in_device_range((void *)from))
        return in_device_range((void *)to) ? cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
                                           : cuMemcpyDtoHAsync_v2((void *)to, from, bytes, stream);
    return cuMemcpyHtoDAsync_v2(to, (void *)from, bytes, stream);
}

// ---- fills ----

template <class T>
static CUresult fill(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height, CUstream stream,
                     const char *function) {
    for (size_t y = 0; y < height; ++y)
        if (CUresult failed = check_range(to + y * pitch, width * sizeof(T), true, function)) return failed;
    return submit(stream, [=] {
        for (size_t y = 0; y < height; ++y) std::fill_n((T *)(to + y * pitch), width, value);
        return CUDA_SUCCESS;
    });
}

#define CUEMU_FILL(BITS, TYPE)                                                                          \
    API cuMemsetD##BITS##Async(CUdeviceptr to, TYPE value, size_t count, CUstream stream) {             \
        IN_CONTEXT;                                                                                     \
        return fill(to, 0, value, count, 1, stream, __func__);                                          \
    }                                                                                                   \
    API cuMemsetD##BITS##_v2(CUdeviceptr to, TYPE value, size_t count) {                                \
        return cuMemsetD##BITS##Async(to, value, count, nullptr);                                       \
    }                                                                                                   \
    API cuMemsetD2D##BITS##Async(CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height, \
                                 CUstream stream) {                                                     \
        IN_CONTEXT;                                                                                     \
        return fill(to, pitch, value, width, height, stream, __func__);                                 \
    }                                                                                                   \
    API cuMemsetD2D##BITS##_v2(CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height) { \
        return cuMemsetD2D##BITS##Async(to, pitch, value, width, height, nullptr);                      \
    }
CUEMU_FILL(8, unsigned char)
CUEMU_FILL(16, unsigned short)
CUEMU_FILL(32, unsigned)

// ---- copies of boxes ----

static CUresult copy_box(const CUDA_MEMCPY3D &box, CUstream stream, const char *function) {
    if (box.srcMemoryType == CU_MEMORYTYPE_ARRAY || box.dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return fail(CUDA_ERROR_NOT_SUPPORTED, "CUDA arrays are not emulated");
    bool from_host = box.srcMemoryType == CU_MEMORYTYPE_HOST, to_host = box.dstMemoryType == CU_MEMORYTYPE_HOST;
    const char *source = from_host ? (const char *)box.srcHost : (const char *)box.srcDevice;
    char *target = to_host ? (char *)box.dstHost : (char *)box.dstDevice;
    auto from = [=](size_t y, size_t z) {
        return source + ((z + box.srcZ) * box.srcHeight + y + box.srcY) * box.srcPitch + box.srcXInBytes;
    };
    auto to = [=](size_t y, size_t z) {
        return target + ((z + box.dstZ) * box.dstHeight + y + box.dstY) * box.dstPitch + box.dstXInBytes;
    };
    for (size_t z = 0; z < box.Depth; ++z)
        for (size_t y = 0; y < box.Height; ++y) {
            CUresult failed = CUDA_SUCCESS;
            if (!from_host) failed = check_range((CUdeviceptr)from(y, z), box.WidthInBytes, false, function);
            if (!to_host && !failed) failed = check_range((CUdeviceptr)to(y, z), box.WidthInBytes, true, function);
            if (failed) return failed;
        }
    return submit(stream, [=] {
        for (size_t z = 0; z < box.Depth; ++z)
            for (size_t y = 0; y < box.Height; ++y) memmove(to(y, z), from(y, z), box.WidthInBytes);
        return CUDA_SUCCESS;
    });
}

static CUDA_MEMCPY3D as_box(const CUDA_MEMCPY2D &plane) {
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = plane.srcMemoryType;
    box.srcHost = plane.srcHost;
    box.srcDevice = plane.srcDevice;
    box.srcXInBytes = plane.srcXInBytes;
    box.srcY = plane.srcY;
    box.srcPitch = plane.srcPitch ? plane.srcPitch : plane.WidthInBytes;
    box.dstMemoryType = plane.dstMemoryType;
    box.dstHost = plane.dstHost;
    box.dstDevice = plane.dstDevice;
    box.dstXInBytes = plane.dstXInBytes;
    box.dstY = plane.dstY;
    box.dstPitch = plane.dstPitch ? plane.dstPitch : plane.WidthInBytes;
    box.WidthInBytes = plane.WidthInBytes;
    box.Height = plane.Height;
    box.Depth = 1;
    return box;
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *plane, CUstream stream) {
    IN_CONTEXT;
    return copy_box(as_box(*plane), stream, __func__);
}
API cuMemcpy2D_v2(const CUDA_MEMCPY2D *plane) { return cuMemcpy2DAsync_v2(plane, nullptr); }
API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *plane) { return cuMemcpy2DAsync_v2(plane, nullptr); }
API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *box, CUstream stream) {
    IN_CONTEXT;
    return copy_box(*box, stream, __func__);
}
API cuMemcpy3D_v2(const CUDA_MEMCPY3D *box) { return cuMemcpy3DAsync_v2(box, nullptr); }
