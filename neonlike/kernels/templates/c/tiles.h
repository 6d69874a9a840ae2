/* Intel's tiles (AMX): registers of 16 rows of 64 bytes, of which each thread has eight, and products of pairs of bfloat16, and of
 * four int8 by four uint8.
 *
 * A thread calls nl_tiles_begin before it uses them and nl_tiles_end behind: otherwise the system would save their 8 KB
 * whenever it switches threads. Numbers of tiles are part of instructions, so that macros have them as constants.
 *
 * By instructions where the compiler may use them. Elsewhere, and where NL_EMULATED_TILES is defined, plain C does the same, so
 * that kernels can be tested without such a processor: as Intel's manual describes LDTILECFG, TILELOADD, TDPBF16PS and TDPBSUD.
 * Where instructions would fail, it makes nan, as a whole number -1.
 *
 * The instructions are written out: gcc's own functions do not say that they read memory, so that a store may move behind them. */
#ifndef NL_TILES_H
#define NL_TILES_H
#include <stdint.h>
#include <string.h>

enum { NL_TILES = 8, NL_TILE_SIDE = 16 }; /* tiles of a thread; rows of a tile, and words of 32 bits in each row */

struct nl_tile_config { /* as LDTILECFG reads it */
    uint8_t palette, first_row, unused[14];
    uint16_t bytes[16]; /* of a row of each tile */
    uint8_t rows[16];
};

/* All eight tiles whole. */
static const struct nl_tile_config nl_whole_tiles = {
    1, 0, { 0 }, { 64, 64, 64, 64, 64, 64, 64, 64 }, { 16, 16, 16, 16, 16, 16, 16, 16 }
};

/* Older clang has the second name. */
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__x86_64__) && defined(__linux__) && !defined(NL_EMULATED_TILES)

static inline void nl_tiles_begin(const struct nl_tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

static inline void nl_tiles_end(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

/* `step`: bytes from one row to the next. */
#define nl_tile_zero(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define nl_tile_load(tile, from, step)                                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"((const void *)(from)), "r"((int64_t)(step)) : "memory")
#define nl_tile_store(tile, to, step)                                                                                  \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"((void *)(to)), "r"((int64_t)(step)) : "memory")
/* sum[m][n] += products of the pairs a[m][k] and b[k][n]. */
#define nl_tile_multiply(sum, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)
/* sum[m][n] += products of the four signed bytes a[m][k] and the four unsigned bytes b[k][n]; sums are int32, which wrap. */
#define nl_tile_multiply_bytes(sum, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)

#else

typedef uint32_t nl_tile_row __attribute__((vector_size(4 * NL_TILE_SIDE)));
typedef float nl_tile_sums __attribute__((vector_size(4 * NL_TILE_SIDE)));

static _Thread_local struct {
    int begun;
    struct nl_tile_config config;
    nl_tile_row row[NL_TILES][NL_TILE_SIDE];
} nl_tiles;

static inline void nl_tiles_begin(const struct nl_tile_config *config)
{
    memset(&nl_tiles, 0, sizeof nl_tiles);
    nl_tiles.config = *config;
    nl_tiles.begun = config->palette == 1 && config->first_row == 0;
}

static inline void nl_tiles_end(void)
{
    memset(&nl_tiles, 0, sizeof nl_tiles);
}

/* Clear a tile, or fill it with nan if tiles were not begun: the instruction would end the process. */
static inline void nl_tile_clear(int tile, int works)
{
    memset(nl_tiles.row[tile], nl_tiles.begun && works ? 0 : 0xff, sizeof nl_tiles.row[tile]);
}

static inline void nl_emulated_load(int tile, const void *from, int64_t step)
{
    nl_tile_clear(tile, 1);
    for (int r = 0; nl_tiles.begun && r < nl_tiles.config.rows[tile]; r++)
        memcpy(&nl_tiles.row[tile][r], (const char *)from + r * step, nl_tiles.config.bytes[tile]);
}

static inline void nl_emulated_store(int tile, void *to, int64_t step)
{
    const int whole = !nl_tiles.begun;
    for (int r = 0; r < (whole ? NL_TILE_SIDE : nl_tiles.config.rows[tile]); r++)
        memcpy((char *)to + r * step, &nl_tiles.row[tile][r], whole ? 64 : nl_tiles.config.bytes[tile]);
}

/* Each float, but zero of its sign for a subnormal one. */
static inline nl_tile_row nl_tile_flushed(nl_tile_row x)
{
    return x & ~((nl_tile_row)((x & 0x7f800000u) == 0) & 0x7fffffffu);
}

static inline nl_tile_row nl_tile_sum(nl_tile_row sum, nl_tile_row more)
{
    return nl_tile_flushed((nl_tile_row)((nl_tile_sums)nl_tile_flushed(sum) + (nl_tile_sums)more));
}

/* Products of bfloat16 are exact in float, so that it makes no difference whether they are rounded before they are added,
 * except where they are below 2^-126 or infinite. */
static inline nl_tile_row nl_tile_sum_of_products(nl_tile_row sum, nl_tile_row one, nl_tile_row other)
{
    return nl_tile_flushed((nl_tile_row)((nl_tile_sums)sum + (nl_tile_sums)one * (nl_tile_sums)other));
}

/* Whether tiles can be multiplied. */
static inline int nl_tiles_fit(int sum, int a, int b)
{
    const struct nl_tile_config *const c = &nl_tiles.config;
    return nl_tiles.begun && sum != a && sum != b && a != b && c->rows[sum] == c->rows[a] && c->bytes[sum] == c->bytes[b] && c->rows[b] == c->bytes[a] / 4;
}

static inline void nl_emulated_multiply(int sum, int a, int b)
{
    const struct nl_tile_config *const c = &nl_tiles.config;
    const int words = c->bytes[a] / 4;
    if (!nl_tiles_fit(sum, a, b)) {
        nl_tile_clear(sum, 0);
        return;
    }
    nl_tile_row first[NL_TILE_SIDE], second[NL_TILE_SIDE]; /* numbers of the pairs of b, as floats */
    for (int k = 0; k < words; k++)
        first[k] = nl_tile_flushed(nl_tiles.row[b][k] << 16), second[k] = nl_tile_flushed(nl_tiles.row[b][k] & 0xffff0000u);
    for (int m = 0; m < c->rows[sum]; m++) {
        const nl_tile_row row = nl_tiles.row[a][m], one = nl_tile_flushed(row << 16), other = nl_tile_flushed(row & 0xffff0000u);
        nl_tile_row some = { 0 }, more = { 0 }; /* sums of the first and of the second numbers of pairs */
        for (int k = 0; k < words; k++) {
            some = nl_tile_sum_of_products(some, one[k] - (nl_tile_row){ 0 }, first[k]);
            more = nl_tile_sum_of_products(more, other[k] - (nl_tile_row){ 0 }, second[k]);
        }
        nl_tiles.row[sum][m] = nl_tile_sum(nl_tiles.row[sum][m], nl_tile_sum(some, more));
        memset((char *)&nl_tiles.row[sum][m] + c->bytes[sum], 0, 64 - c->bytes[sum]);
    }
}

static inline void nl_emulated_multiply_bytes(int sum, int a, int b)
{
    const struct nl_tile_config *const c = &nl_tiles.config;
    if (!nl_tiles_fit(sum, a, b)) {
        nl_tile_clear(sum, 0);
        return;
    }
    for (int m = 0; m < c->rows[sum]; m++) {
        nl_tile_row total = nl_tiles.row[sum][m];
        for (int k = 0; k < c->bytes[a] / 4; k++)
            for (int at = 0; at < 32; at += 8) {
                const uint32_t number = (uint32_t)(int8_t)(nl_tiles.row[a][m][k] >> at);
                total += (number - (nl_tile_row){ 0 }) * (nl_tiles.row[b][k] >> at & 255u);
            }
        nl_tiles.row[sum][m] = total;
        memset((char *)&nl_tiles.row[sum][m] + c->bytes[sum], 0, 64 - c->bytes[sum]);
    }
}

#define nl_tile_zero(tile) nl_tile_clear(tile, 1)
#define nl_tile_load(tile, from, step) nl_emulated_load(tile, from, step)
#define nl_tile_store(tile, to, step) nl_emulated_store(tile, to, step)
#define nl_tile_multiply(sum, a, b) nl_emulated_multiply(sum, a, b)
#define nl_tile_multiply_bytes(sum, a, b) nl_emulated_multiply_bytes(sum, a, b)

#endif

/* Words of whole rows of tiles that hold so many. */
static inline __attribute__((unused)) int64_t nl_in_tiles(int64_t words)
{
    return (words + NL_TILE_SIDE - 1) / NL_TILE_SIDE * NL_TILE_SIDE;
}

/* Sums of `high` by `wide` tiles, one or two each: tile 0, tile 1 beside it, 2 and 3 below them. Tiles below begin at `low`, those
 * beside 64 bytes behind; `step`: bytes from one row to the next. */
#define NL_OF_SUMS static inline __attribute__((always_inline, unused)) void

NL_OF_SUMS nl_sums_zero(void)
{
    nl_tile_zero(0);
    nl_tile_zero(1);
    nl_tile_zero(2);
    nl_tile_zero(3);
}

NL_OF_SUMS nl_sums_load(const void *from, const void *low, int64_t step, const int high, const int wide)
{
    nl_tile_load(0, from, step);
    if (wide == 2)
        nl_tile_load(1, (const char *)from + 64, step);
    if (high == 2)
        nl_tile_load(2, low, step);
    if (high == 2 && wide == 2)
        nl_tile_load(3, (const char *)low + 64, step);
}

NL_OF_SUMS nl_sums_store(void *to, void *low, int64_t step, const int high, const int wide)
{
    nl_tile_store(0, to, step);
    if (wide == 2)
        nl_tile_store(1, (char *)to + 64, step);
    if (high == 2)
        nl_tile_store(2, low, step);
    if (high == 2 && wide == 2)
        nl_tile_store(3, (char *)low + 64, step);
}

/* Add the products of a's tiles, one below the other, and b's, side by side: each is loaded for two products, which take longer
 * than the loads. */
#define NL_ADD_TO_SUMS(name, multiply)                                                                                                           \
    NL_OF_SUMS name(const void *a, const void *low, int64_t a_step, const void *b, int64_t b_step, const int high, const int wide)              \
    {                                                                                                                                            \
        nl_tile_load(4, a, a_step);                                                                                                              \
        nl_tile_load(6, b, b_step);                                                                                                              \
        multiply(0, 4, 6);                                                                                                                       \
        if (high == 2) {                                                                                                                         \
            nl_tile_load(5, low, a_step);                                                                                                        \
            multiply(2, 5, 6);                                                                                                                   \
        }                                                                                                                                        \
        if (wide == 2) {                                                                                                                         \
            nl_tile_load(7, (const char *)b + 64, b_step);                                                                                       \
            multiply(1, 4, 7);                                                                                                                   \
        }                                                                                                                                        \
        if (high == 2 && wide == 2)                                                                                                              \
            multiply(3, 5, 7);                                                                                                                   \
    }
NL_ADD_TO_SUMS(nl_sums_add, nl_tile_multiply)
NL_ADD_TO_SUMS(nl_sums_add_bytes, nl_tile_multiply_bytes)
#endif
