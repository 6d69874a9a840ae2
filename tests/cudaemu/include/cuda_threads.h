// Barriers, warp operations and atomics of the device language.
#ifndef CUDA_THREADS_H
#define CUDA_THREADS_H

#define __syncthreads() cuemu::barrier(__LINE__)
#define __syncthreads_count(predicate) cuemu::barrier_count(__LINE__, (predicate))
#define __syncthreads_and(predicate) cuemu::barrier_and(__LINE__, (predicate))
#define __syncthreads_or(predicate) (cuemu::barrier_count(__LINE__, (predicate)) != 0)
#define __syncwarp(...) cuemu::syncwarp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) cuemu::shuffle<cuemu::Indexed>(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) cuemu::shuffle<cuemu::Up>(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) cuemu::shuffle<cuemu::Down>(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) cuemu::shuffle<cuemu::Xor>(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) cuemu::ballot(__LINE__, (mask), (predicate)).set
#define __any_sync(mask, predicate) (cuemu::ballot(__LINE__, (mask), (predicate)).set != 0)
#define __all_sync(mask, predicate) cuemu::all(__LINE__, (mask), (predicate))
#define __match_any_sync(mask, value) cuemu::match_any(__LINE__, (mask), (value))
#define __reduce_add_sync(mask, value) cuemu::reduce(__LINE__, (mask), (value), [](auto a, auto b) { return a + b; })
#define __reduce_max_sync(mask, value) \
    cuemu::reduce(__LINE__, (mask), (value), [](auto a, auto b) { return a > b ? a : b; })
#define __reduce_min_sync(mask, value) \
    cuemu::reduce(__LINE__, (mask), (value), [](auto a, auto b) { return a < b ? a : b; })

extern "C++" {
namespace cuemu {

static inline void barrier(int line) {
    int set;
    cuemu_barrier(line, 0, &set);
}

static inline int barrier_count(int line, int predicate) {
    int set;
    cuemu_barrier(line, predicate != 0, &set);
    return set;
}

static inline int barrier_and(int line, int predicate) {
    int set;
    int threads = cuemu_barrier(line, predicate != 0, &set);
    return set == threads;
}

static inline void syncwarp(int line, unsigned mask = 0xffffffffu) {
    unsigned lanes;
    cuemu_warp(mask, CUEMU_SYNCWARP, 0, line, &lanes);
}

enum ShuffleKind { Indexed, Up, Down, Xor };

template <ShuffleKind kind, class T>
CUEMU_UNSANITIZED static inline T shuffle(int line, unsigned mask, T value, int argument, int width = 32) {
    unsigned lanes;
    const uint64_t *values = cuemu_warp(mask, CUEMU_SHUFFLE + 16 * kind, to_bits(value), line, &lanes);
    int lane = cuemu_thread.linear & 31, first = lane & ~(width - 1), source;
    if (kind == Indexed)
        source = first + (argument & (width - 1));
    else if (kind == Up)
        source = lane - argument < first ? lane : lane - argument;
    else if (kind == Down)
        source = lane + argument >= first + width ? lane : lane + argument;
    else
        source = (lane ^ argument) >= first + width ? lane : lane ^ argument;
    // The value of a lane that takes no part is undefined on a GPU: something that no test takes for a result.
    return from_bits<T>(lanes >> source & 1 ? values[source] : 0xDEADBEEFFFC0DEADull);
}

struct Ballot {
    unsigned set, lanes;
};

CUEMU_UNSANITIZED static inline Ballot ballot(int line, unsigned mask, int predicate) {
    Ballot result = {0, 0};
    const uint64_t *values = cuemu_warp(mask, CUEMU_VOTE, predicate != 0, line, &result.lanes);
    for (int lane = 0; lane < 32; ++lane)
        if ((result.lanes >> lane & 1) && values[lane]) result.set |= 1u << lane;
    return result;
}

static inline int all(int line, unsigned mask, int predicate) {
    Ballot result = ballot(line, mask, predicate);
    return result.set == result.lanes;
}

// The lanes that have this lane's value.
template <class T>
CUEMU_UNSANITIZED static inline unsigned match_any(int line, unsigned mask, T value) {
    unsigned lanes, alike = 0;
    const uint64_t mine = to_bits(value), *values = cuemu_warp(mask, CUEMU_REDUCE, mine, line, &lanes);
    for (int lane = 0; lane < 32; ++lane)
        if ((lanes >> lane & 1) && values[lane] == mine) alike |= 1u << lane;
    return alike;
}

template <class T, class Combine>
CUEMU_UNSANITIZED static inline T reduce(int line, unsigned mask, T value, Combine combine) {
    unsigned lanes;
    const uint64_t *values = cuemu_warp(mask, CUEMU_REDUCE, to_bits(value), line, &lanes);
    bool first = true;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(lanes >> lane & 1)) continue;
        T other = from_bits<T>(values[lane]);
        value = first ? other : combine(value, other);
        first = false;
    }
    return value;
}

static inline uint16_t compare_and_swap(void *p, uint16_t e, uint16_t d) { return cuemu_cas16(p, e, d); }
static inline uint32_t compare_and_swap(void *p, uint32_t e, uint32_t d) { return cuemu_cas32(p, e, d); }
static inline uint64_t compare_and_swap(void *p, uint64_t e, uint64_t d) { return cuemu_cas64(p, e, d); }

// Every atomic is a loop around one function of the driver, so that the checker sees all of them.
template <class T, class Update>
CUEMU_UNSANITIZED static inline T update(T *address, Update function) {
    typedef std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>> Bits;
    static_assert(sizeof(T) == sizeof(Bits), "atomics take 2, 4 or 8 bytes");
    Bits old;
    cuemu_coherent(&old, address, sizeof old, CUEMU_RELAXED);
    for (;;) {
        Bits changed = (Bits)to_bits(function(from_bits<T>(old)));
        Bits seen = compare_and_swap(address, old, changed);
        if (seen == old) {
            if (changed == old) cuemu_pause();  // it may have asked for what another block is to write
            return from_bits<T>(old);
        }
        old = seen;
    }
}

}  // namespace cuemu

#define CUEMU_ATOMIC(NAME, RESULT)                                          \
    template <class T>                                                      \
    static inline T NAME(T *address, typename cuemu::identity<T>::type v) { \
        return cuemu::update(address, [=](T old) -> T { return RESULT; });  \
    }
CUEMU_ATOMIC(atomicAdd, old + v)
CUEMU_ATOMIC(atomicSub, old - v)
CUEMU_ATOMIC(atomicExch, v)
CUEMU_ATOMIC(atomicMin, (old < v ? old : v))
CUEMU_ATOMIC(atomicMax, (old > v ? old : v))
CUEMU_ATOMIC(atomicAnd, old &v)
CUEMU_ATOMIC(atomicOr, old | v)
CUEMU_ATOMIC(atomicXor, old ^ v)
CUEMU_ATOMIC(atomicInc, (old >= v ? 0 : old + 1))
CUEMU_ATOMIC(atomicDec, ((old == 0 || old > v) ? v : old - 1))

template <class T>
static inline T atomicCAS(T *address, typename cuemu::identity<T>::type expected,
                          typename cuemu::identity<T>::type desired) {
    typedef std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>> Bits;
    return cuemu::from_bits<T>(
        cuemu::compare_and_swap(address, (Bits)cuemu::to_bits(expected), (Bits)cuemu::to_bits(desired)));
}

static inline unsigned __activemask() { return 0xffffffffu; }
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline void __nanosleep(unsigned) { cuemu_pause(); }
}  // extern "C++"

#endif
