// Emulated cuBLAS: matrix products in the forms that a neural-network library needs. Matrices are column-major.
//
// Every other function that bindings look up exists too and answers NOT_SUPPORTED (cublas_symbols.txt).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "sixteen.h"

extern "C" int cuemu_submit(void *stream, int (*work)(void *), void (*release)(void *), void *data);
extern "C" int cuemu_check_range(const void *address, size_t bytes, int written, const char *function);

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

enum Status { kSuccess = 0, kNotInitialised = 1, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };
enum DataType { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 14 };  // cudaDataType_t
enum ComputeType { k16F = 64, k32F = 68, k32FPedantic = 69, k64F = 70, k32F16F = 74, k32F16BF = 75, k32FTF32 = 77 };
enum MathMode { kDefaultMath = 0, kTensorOp = 1, kPedantic = 2, kTF32 = 3 };

static constexpr uint64_t kMagic = 0xC0B1A5;

struct Handle {
    uint64_t magic = kMagic;
    void *stream = nullptr;
    int math_mode = 0, pointer_mode = 0;
};

static Handle *valid(void *handle) {
    return handle && ((Handle *)handle)->magic == kMagic ? (Handle *)handle : nullptr;
}

API cublasCreate_v2(void **handle) {
    *handle = new Handle;
    return kSuccess;
}

API cublasDestroy_v2(void *handle) {
    if (!valid(handle)) return kNotInitialised;
    ((Handle *)handle)->magic = 0;
    delete (Handle *)handle;
    return kSuccess;
}

API cublasGetVersion_v2(void *, int *version) {
    *version = 130000;
    return kSuccess;
}

#define CUEMU_PROPERTY(NAME, TYPE, FIELD)            \
    API cublasSet##NAME(void *handle, TYPE value) {  \
        if (!valid(handle)) return kNotInitialised;  \
        ((Handle *)handle)->FIELD = value;           \
        return kSuccess;                             \
    }                                                \
    API cublasGet##NAME(void *handle, TYPE *value) { \
        if (!valid(handle)) return kNotInitialised;  \
        *value = ((Handle *)handle)->FIELD;          \
        return kSuccess;                             \
    }
CUEMU_PROPERTY(Stream_v2, void *, stream)
CUEMU_PROPERTY(MathMode, int, math_mode)
CUEMU_PROPERTY(PointerMode_v2, int, pointer_mode)

API cublasSetWorkspace_v2(void *handle, void *, size_t) { return valid(handle) ? kSuccess : kNotInitialised; }

EXPORT const char *cublasGetStatusString(int status) {
    switch (status) {
        case kSuccess: return "success";
        case kNotInitialised: return "not initialised";
        case kInvalidValue: return "invalid value";
        case kNotSupported: return "not supported";
        default: return "execution failed";
    }
}

// TF32 keeps 10 bits of the mantissa of a product's factors.
static float as_tf32(float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    if ((word & 0x7f800000) == 0x7f800000) return value;
    word = (word + 0x1000) & 0xffffe000;
    memcpy(&value, &word, 4);
    return value;
}

template <class T>
struct Matrix {
    T *data;
    long ld, stride;  // between columns, between matrices of a batch
};

struct Shape {
    bool transpose_a, transpose_b;
    long m, n, k;
    int batch;
    bool tf32;
};

template <class T, class Out, class Sum>
static void multiply(const Shape &s, Sum alpha, const T *a, long lda, const T *b, long ldb, Sum beta, Out *c,
                     long ldc) {
    auto factor = [&](T value) { return s.tf32 ? (Sum)as_tf32((float)value) : (Sum)value; };
    // In which order cuBLAS adds up depends on the GPU and the sizes.
    const char *inexact = getenv("CUEMU_INEXACT");
    const bool backwards = inexact && *inexact == '1';
    std::vector<Sum> column(s.m), packed((size_t)s.m * s.k);
    for (long p = 0; p < s.k; ++p)
        for (long i = 0; i < s.m; ++i) packed[p * s.m + i] = factor(s.transpose_a ? a[p + i * lda] : a[i + p * lda]);
    for (long j = 0; j < s.n; ++j) {
        std::fill(column.begin(), column.end(), Sum(0));
        for (long turn = 0; turn < s.k; ++turn) {
            const long p = backwards ? s.k - 1 - turn : turn;
            Sum f = factor(s.transpose_b ? b[j + p * ldb] : b[p + j * ldb]);
            const Sum *from = &packed[p * s.m];
            for (long i = 0; i < s.m; ++i) column[i] += from[i] * f;
        }
        for (long i = 0; i < s.m; ++i) {
            // Where beta is 0, cuBLAS does not read what C held before.
            Sum result = alpha * column[i];
            if (beta != Sum(0)) result += beta * (Sum)c[i + j * ldc];
            c[i + j * ldc] = Out(result);
        }
    }
}

static size_t bytes_of(long rows, long columns, long ld, size_t element) {
    return rows > 0 && columns > 0 ? ((columns - 1) * ld + rows) * element : 0;
}

template <class T, class Out, class Sum>
static int gemm(void *handle, int op_a, int op_b, int m, int n, int k, Sum alpha, Matrix<const T> a, Matrix<const T> b,
                Sum beta, Matrix<Out> c, int batch, bool tf32 = false) {
    if (!valid(handle)) return kNotInitialised;
    Shape s{op_a != 0, op_b != 0, m, n, k, batch, tf32};
    long rows_a = s.transpose_a ? k : m, columns_a = s.transpose_a ? m : k;
    long rows_b = s.transpose_b ? n : k, columns_b = s.transpose_b ? k : n;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || op_a < 0 || op_a > 2 || op_b < 0 || op_b > 2) return kInvalidValue;
    if (a.ld < std::max(1l, rows_a) || b.ld < std::max(1l, rows_b) || c.ld < std::max(1, m)) return kInvalidValue;
    if (!m || !n || !batch) return kSuccess;
    for (int i = 0; i < batch; ++i) {
        const T *at = a.data + i * a.stride, *bt = b.data + i * b.stride;
        if (cuemu_check_range(at, bytes_of(rows_a, columns_a, a.ld, sizeof(T)), 0, "cublas gemm, A") ||
            cuemu_check_range(bt, bytes_of(rows_b, columns_b, b.ld, sizeof(T)), 0, "cublas gemm, B") ||
            cuemu_check_range(c.data + i * c.stride, bytes_of(m, n, c.ld, sizeof(Out)), 1, "cublas gemm, C"))
            return kExecutionFailed;
    }
    auto *work = new std::function<void()>([=] {
        for (int i = 0; i < s.batch; ++i)
            multiply<T, Out, Sum>(s, alpha, a.data + i * a.stride, a.ld, b.data + i * b.stride, b.ld, beta,
                                  c.data + i * c.stride, c.ld);
    });
    auto run = [](void *data) { return (*(std::function<void()> *)data)(), 0; };
    auto release = [](void *data) { delete (std::function<void()> *)data; };
    return cuemu_submit(((Handle *)handle)->stream, run, release, work) ? kExecutionFailed : kSuccess;
}

static bool wants_tf32(void *handle) { return valid(handle) && ((Handle *)handle)->math_mode == kTF32; }

#define CUEMU_GEMM(PLAIN, LETTER, T, SUM)                                                                              \
    API PLAIN(void *h, int ta, int tb, int m, int n, int k, const T *alpha, const T *a, int lda, const T *b, int ldb,  \
              const T *beta, T *c, int ldc) {                                                                          \
        return gemm<T, T, SUM>(h, ta, tb, m, n, k, (SUM) * alpha, {a, lda, 0}, {b, ldb, 0}, (SUM) * beta, {c, ldc, 0}, \
                               1, sizeof(T) == 4 && wants_tf32(h));                                                    \
    }                                                                                                                  \
    API cublas##LETTER##gemmStridedBatched(void *h, int ta, int tb, int m, int n, int k, const T *alpha, const T *a,   \
                                           int lda, long long sa, const T *b, int ldb, long long sb, const T *beta,    \
                                           T *c, int ldc, long long sc, int batch) {                                   \
        return gemm<T, T, SUM>(h, ta, tb, m, n, k, (SUM) * alpha, {a, lda, sa}, {b, ldb, sb}, (SUM) * beta,            \
                               {c, ldc, sc}, batch, sizeof(T) == 4 && wants_tf32(h));                                  \
    }                                                                                                                  \
    API cublas##LETTER##gemmBatched(void *h, int ta, int tb, int m, int n, int k, const T *alpha, const T *const *a,   \
                                    int lda, const T *const *b, int ldb, const T *beta, T *const *c, int ldc,          \
                                    int batch) {                                                                       \
        for (int i = 0; i < batch; ++i)                                                                                \
            if (int failed = gemm<T, T, SUM>(h, ta, tb, m, n, k, (SUM) * alpha, {a[i], lda, 0}, {b[i], ldb, 0},        \
                                             (SUM) * beta, {c[i], ldc, 0}, 1, sizeof(T) == 4 && wants_tf32(h)))        \
                return failed;                                                                                         \
        return kSuccess;                                                                                               \
    }
CUEMU_GEMM(cublasSgemm_v2, S, float, float)
CUEMU_GEMM(cublasDgemm_v2, D, double, double)
CUEMU_GEMM(cublasHgemm, H, Half, float)

struct ExMatrix {
    const void *data;
    int type;
    long ld, stride;
};

template <class T, class Out, class Sum>
static int gemm_ex(void *h, int ta, int tb, int m, int n, int k, const void *alpha, ExMatrix a, ExMatrix b,
                   const void *beta, ExMatrix c, int batch, bool tf32) {
    return gemm<T, Out, Sum>(h, ta, tb, m, n, k, *(const Sum *)alpha, {(const T *)a.data, a.ld, a.stride},
                             {(const T *)b.data, b.ld, b.stride}, *(const Sum *)beta, {(Out *)c.data, c.ld, c.stride},
                             batch, tf32);
}

// alpha and beta are float here unless the sums are double (or half, which bindings here do not use).
static int gemm_ex_by_type(void *h, int ta, int tb, int m, int n, int k, const void *alpha, ExMatrix a, ExMatrix b,
                           const void *beta, ExMatrix c, int batch, int compute) {
    bool tf32 = compute == k32FTF32 || (compute == k32F && wants_tf32(h));
    auto types = [&](int factors, int result) { return a.type == factors && b.type == factors && c.type == result; };
    if (compute == k16F) return kNotSupported;
    if (compute == k64F)
        return types(kFloat64, kFloat64)
                   ? gemm_ex<double, double, double>(h, ta, tb, m, n, k, alpha, a, b, beta, c, batch, false)
                   : kNotSupported;
#define CUEMU_TYPES(FACTORS, RESULT, T, OUT) \
    if (types(FACTORS, RESULT))              \
        return gemm_ex<T, OUT, float>(h, ta, tb, m, n, k, alpha, a, b, beta, c, batch, tf32 && FACTORS == kFloat32);
    CUEMU_TYPES(kFloat32, kFloat32, float, float)
    CUEMU_TYPES(kFloat16, kFloat16, Half, Half)
    CUEMU_TYPES(kFloat16, kFloat32, Half, float)
    CUEMU_TYPES(kBFloat16, kBFloat16, BFloat, BFloat)
    CUEMU_TYPES(kBFloat16, kFloat32, BFloat, float)
    return kNotSupported;
}

API cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
                 const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
                 int /* algorithm */) {
    return gemm_ex_by_type(h, ta, tb, m, n, k, alpha, {a, type_a, lda, 0}, {b, type_b, ldb, 0}, beta,
                           {c, type_c, ldc, 0}, 1, compute);
}

API cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                               int type_a, int lda, long long sa, const void *b, int type_b, int ldb, long long sb,
                               const void *beta, void *c, int type_c, int ldc, long long sc, int batch, int compute,
                               int /* algorithm */) {
    return gemm_ex_by_type(h, ta, tb, m, n, k, alpha, {a, type_a, lda, sa}, {b, type_b, ldb, sb}, beta,
                           {c, type_c, ldc, sc}, batch, compute);
}

// Used by the generated file of functions that do nothing.
extern "C" int cuemu_cublas_unsupported(const char *name) {
    fprintf(stderr, "cuemu: %s is not emulated\n", name);
    return kNotSupported;
}
