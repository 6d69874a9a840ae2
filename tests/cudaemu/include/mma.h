// nvcuda::wmma on the CPU. Every lane holds the whole tile: 32 times the work, and the same results for code that
// treats fragments as opaque, which is all that CUDA promises.
#ifndef CUEMU_MMA_H
#define CUEMU_MMA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C++" {
namespace nvcuda {
namespace wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static constexpr int rows = std::is_same<Use, matrix_b>::value ? K : M;
    static constexpr int columns = std::is_same<Use, matrix_a>::value ? K : N;
    enum { num_elements = rows * columns };
    T x[num_elements];
};

template <class Fragment, class T>
static inline void fill_fragment(Fragment &tile, T value) {
    for (auto &element : tile.x) element = value;
}

template <class Tile, class T>
static inline void cuemu_load(Tile &tile, const T *from, unsigned ld, bool by_column) {
    cuemu::syncwarp(__LINE__);
    for (int r = 0; r < Tile::rows; ++r)
        for (int c = 0; c < Tile::columns; ++c)
            tile.x[r * Tile::columns + c] = by_column ? from[r + (size_t)c * ld] : from[(size_t)r * ld + c];
}

template <class Use, int M, int N, int K, class T, class Layout>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout> &tile, const T *from, unsigned ld) {
    cuemu_load(tile, from, ld, std::is_same<Layout, col_major>::value);
}

template <int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T> &tile, const T *from, unsigned ld,
                                    layout_t layout) {
    cuemu_load(tile, from, ld, layout == mem_col_major);
}

template <int M, int N, int K, class T>
static inline void store_matrix_sync(T *to, const fragment<accumulator, M, N, K, T> &tile, unsigned ld,
                                     layout_t layout) {
    if ((cuemu_thread.linear & 31) == 0)
        for (int r = 0; r < M; ++r)
            for (int c = 0; c < N; ++c)
                (layout == mem_col_major ? to[r + (size_t)c * ld] : to[(size_t)r * ld + c]) = tile.x[r * N + c];
    cuemu::syncwarp(__LINE__);
}

template <int M, int N, int K, class D, class T, class LayoutA, class LayoutB, class C>
static inline void mma_sync(fragment<accumulator, M, N, K, D> &d, const fragment<matrix_a, M, N, K, T, LayoutA> &a,
                            const fragment<matrix_b, M, N, K, T, LayoutB> &b,
                            const fragment<accumulator, M, N, K, C> &c) {
    cuemu::syncwarp(__LINE__);
    for (int i = 0; i < M; ++i) {
        float sums[N];
        for (int j = 0; j < N; ++j) sums[j] = (float)c.x[i * N + j];
        for (int k = 0; k < K; ++k)
            for (int j = 0; j < N; ++j) sums[j] += (float)a.x[i * K + k] * (float)b.x[k * N + j];
        for (int j = 0; j < N; ++j) d.x[i * N + j] = (D)sums[j];
    }
}

}  // namespace wmma
}  // namespace nvcuda
}  // extern "C++"

#endif
