// Arithmetic and conversion functions of the device language that the host's C library does not have.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

// glibc has internal functions of these names.
#define __expf cuemu_expf
#define __logf cuemu_logf
#define __log2f cuemu_log2f
#define __log10f cuemu_log10f
#define __exp10f cuemu_exp10f
#define __powf cuemu_powf
#define __sinf cuemu_sinf
#define __sincosf cuemu_sincosf
#define __cosf cuemu_cosf
#define __tanf cuemu_tanf

extern "C++" {

#define CUEMU_MIN_MAX(T)                                    \
    static inline T min(T a, T b) { return b < a ? b : a; } \
    static inline T max(T a, T b) { return a < b ? b : a; }
#define CUEMU_MIN_MAX_MIXED(A, B, T)                          \
    static inline T min(A a, B b) { return min((T)a, (T)b); } \
    static inline T min(B a, A b) { return min((T)a, (T)b); } \
    static inline T max(A a, B b) { return max((T)a, (T)b); } \
    static inline T max(B a, A b) { return max((T)a, (T)b); }
CUEMU_MIN_MAX(int)
CUEMU_MIN_MAX(unsigned)
CUEMU_MIN_MAX(long)
CUEMU_MIN_MAX(unsigned long)
CUEMU_MIN_MAX(long long)
CUEMU_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

CUEMU_MIN_MAX_MIXED(int, unsigned, unsigned)
CUEMU_MIN_MAX_MIXED(long, unsigned long, unsigned long)
CUEMU_MIN_MAX_MIXED(long long, unsigned long long, unsigned long long)
CUEMU_MIN_MAX_MIXED(float, double, double)

static inline void sincos(float x, float *s, float *c) { sincosf(x, s, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float exp10f(float x, int = 0) { return (float)pow(10.0, (double)x); }
static inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
static inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
static inline double sinpi(double x) { return sin(M_PI * x); }
static inline double cospi(double x) { return cos(M_PI * x); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// The fast versions are exact here: their errors on a GPU are not emulated.
static inline float cuemu_expf(float x) { return expf(x); }
static inline float cuemu_logf(float x) { return logf(x); }
static inline float cuemu_log2f(float x) { return log2f(x); }
static inline float cuemu_log10f(float x) { return log10f(x); }
static inline float cuemu_exp10f(float x) { return powf(10.0f, x); }
static inline float cuemu_powf(float x, float y) { return powf(x, y); }
static inline float cuemu_sinf(float x) { return sinf(x); }
static inline float cuemu_cosf(float x) { return cosf(x); }
static inline float cuemu_tanf(float x) { return tanf(x); }
static inline void cuemu_sincosf(float x, float *s, float *c) { sincosf(x, s, c); }
static inline float __fdividef(float a, float b) { return a / b; }

// Operations with a stated rounding; the optimisation barrier keeps the host from fusing them.
template <class T>
static inline T cuemu_unfused(T value) {
    __asm__("" : "+x"(value));
    return value;
}
static inline float __fadd_rn(float a, float b) { return cuemu_unfused(a + b); }
static inline float __fsub_rn(float a, float b) { return cuemu_unfused(a - b); }
static inline float __fmul_rn(float a, float b) { return cuemu_unfused(a * b); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return cuemu_unfused(a + b); }
static inline double __dsub_rn(double a, double b) { return cuemu_unfused(a - b); }
static inline double __dmul_rn(double a, double b) { return cuemu_unfused(a * b); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

static inline int __float_as_int(float f) { return cuemu::from_bits<int>(cuemu::to_bits(f)); }
static inline unsigned __float_as_uint(float f) { return cuemu::from_bits<unsigned>(cuemu::to_bits(f)); }
static inline float __int_as_float(int i) { return cuemu::from_bits<float>(cuemu::to_bits(i)); }
static inline float __uint_as_float(unsigned i) { return cuemu::from_bits<float>(cuemu::to_bits(i)); }
static inline long long __double_as_longlong(double d) { return cuemu::from_bits<long long>(cuemu::to_bits(d)); }
static inline double __longlong_as_double(long long i) { return cuemu::from_bits<double>(cuemu::to_bits(i)); }

// A GPU's conversions to integers saturate, and make 0 of a nan.
template <class I, class F>
static inline I cuemu_to_integer(F value) {
    typedef std::numeric_limits<I> Range;
    if (value != value) return 0;
    if (value <= (F)Range::min()) return Range::min();
    if (value >= (F)Range::max()) return Range::max();
    return (I)value;
}
#define CUEMU_TO_INTEGER(FLOAT, SUFFIX, INTEGER, NAME)                                               \
    static inline INTEGER NAME##_rn(FLOAT x) { return cuemu_to_integer<INTEGER>(rint##SUFFIX(x)); }  \
    static inline INTEGER NAME##_rz(FLOAT x) { return cuemu_to_integer<INTEGER>(trunc##SUFFIX(x)); } \
    static inline INTEGER NAME##_rd(FLOAT x) { return cuemu_to_integer<INTEGER>(floor##SUFFIX(x)); } \
    static inline INTEGER NAME##_ru(FLOAT x) { return cuemu_to_integer<INTEGER>(ceil##SUFFIX(x)); }
CUEMU_TO_INTEGER(float, f, int, __float2int)
CUEMU_TO_INTEGER(float, f, unsigned, __float2uint)
CUEMU_TO_INTEGER(float, f, long long, __float2ll)
CUEMU_TO_INTEGER(float, f, unsigned long long, __float2ull)
CUEMU_TO_INTEGER(double, , int, __double2int)
CUEMU_TO_INTEGER(double, , unsigned, __double2uint)
CUEMU_TO_INTEGER(double, , long long, __double2ll)
CUEMU_TO_INTEGER(double, , unsigned long long, __double2ull)
static inline float __int2float_rn(int i) { return (float)i; }
static inline float __uint2float_rn(unsigned i) { return (float)i; }
static inline float __ll2float_rn(long long i) { return (float)i; }
static inline float __ull2float_rn(unsigned long long i) { return (float)i; }
static inline float __double2float_rn(double d) { return (float)d; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}

// Loads and stores with a cache hint are plain ones.
template <class T>
static inline T __ldg(const T *p) {
    return *p;
}
template <class T>
static inline T __ldcs(const T *p) {
    return *p;
}
// Past the L1 cache, which other blocks' writes do not reach: what the checker wants where a block reads what another
// wrote in the same launch.
#define CUEMU_COHERENT_LOAD(NAME, KIND)                    \
    template <class T>                                     \
    static __forceinline__ T NAME(const T *p) {            \
        T value;                                           \
        cuemu_coherent((void *)&value, p, sizeof(T), KIND); \
        return value;                                      \
    }
CUEMU_COHERENT_LOAD(__ldcg, CUEMU_PAST_L1)
CUEMU_COHERENT_LOAD(__ldcv, CUEMU_PAST_L1)
template <class T>
static inline T __ldca(const T *p) {
    return *p;
}
template <class T>
static inline T __ldlu(const T *p) {
    return *p;
}
template <class T>
static inline void __stcs(T *p, typename cuemu::identity<T>::type v) {
    *p = v;
}
template <class T>
static inline void __stcg(T *p, typename cuemu::identity<T>::type v) {
    *p = v;
}
template <class T>
static inline void __stwb(T *p, typename cuemu::identity<T>::type v) {
    *p = v;
}
template <class T>
static inline void __stwt(T *p, typename cuemu::identity<T>::type v) {
    *p = v;
}
}  // extern "C++"

#endif
