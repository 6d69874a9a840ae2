/* Products of int8 by quads: four numbers that are multiplied and added one after the other lie in one word of 32 bits, the
 * first in the lowest byte. Words of one factor hold its numbers plus 128, from 0 to 255, as instructions take them; 128
 * times the sum of the other factor is subtracted at the end. Sums are int32, and exact for PART words: 65,536 products
 * of at most 255 * 128.
 *
 * Before this is included, QUADS is 1: by the processor's instruction where it has one (AVX512-VNNI, AVX-VNNI); 2: without
 * it, by products of 16 bits; 3: in plain arithmetic. All give the same bits. ROWS is the height of a register
 * tile, which is two vectors of VECTOR_BYTES wide. */
#ifndef NL_QUADS_H
#define NL_QUADS_H

#include <stdint.h>
#include <string.h>

#define LANES ((int64_t)(VECTOR_BYTES / 4))
#define COLUMNS (2 * LANES)
#define PART 16384
#define NARROW 8 /* most columns for which rows are in the lanes of vectors: a vector of them would be mostly empty */
#define APART static __attribute__((noinline)) /* for what would take registers from the loop that counts */
#define BIASED 0x80808080u /* a word of four zeros plus 128 */

typedef int32_t nl_ints __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t nl_words __attribute__((vector_size(VECTOR_BYTES)));
typedef float nl_floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t nl_words_anywhere __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint32_t nl_four __attribute__((vector_size(16), aligned(4), may_alias));
typedef nl_floats nl_floats_anywhere __attribute__((aligned(4), may_alias));
typedef nl_ints nl_ints_anywhere __attribute__((aligned(4), may_alias));

/* Add four products to each lane: of bytes from 0 to 255 in `words`, and of int8 in `quad`. */
static inline __attribute__((always_inline)) nl_ints add_quads(nl_ints sum, nl_words words, nl_ints quad)
{
#if QUADS == 1 && defined(__AVX512VNNI__) && (VECTOR_BYTES == 64 || defined(__AVX512VL__))
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(words), "v"(quad));
#elif QUADS == 1 && defined(__AVXVNNI__) && VECTOR_BYTES <= 32
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(words), "x"(quad));
#elif QUADS <= 2 && ((defined(__AVX512BW__) && VECTOR_BYTES == 64) || (defined(__AVX2__) && VECTOR_BYTES <= 32))
    typedef int16_t nl_shorts __attribute__((vector_size(VECTOR_BYTES)));
    const nl_words even = words & 0x00ff00ffu, odd = words >> 8 & 0x00ff00ffu;
    const nl_shorts even_quad = (nl_shorts)((nl_words)quad << 8) >> 8, odd_quad = (nl_shorts)quad >> 8;
    nl_ints first, second;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(first) : "x"(even), "x"(even_quad));
    __asm__("vpmaddwd %2, %1, %0" : "=x"(second) : "x"(odd), "x"(odd_quad));
    sum += first + second;
#else
    for (int at = 0; at < 32; at += 8)
        sum += (nl_ints)(words >> at & 255u) * (nl_ints)((nl_ints)((nl_words)quad << (24 - at)) >> 24);
#endif
    return sum;
}

/* The sums of a tile: `depth` lines of ROWS quads, of which `height` count, and of `vectors` vectors of words. */
static inline __attribute__((always_inline)) void add_lines(const int32_t *quads, const uint32_t *words, int64_t depth,
                                                            nl_ints sum[ROWS][2], const int height, const int vectors)
{
    for (int r = 0; r < height; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = (nl_ints){ 0 };
    for (int64_t k = 0; k < depth; k++) {
        nl_words line[2];
        for (int j = 0; j < vectors; j++)
            line[j] = ((const nl_words_anywhere *)words)[j];
        for (int r = 0; r < height; r++)
            for (int j = 0; j < vectors; j++)
                sum[r][j] = add_quads(sum[r][j], line[j], quads[r] - (nl_ints){ 0 });
        words += vectors * LANES;
        quads += ROWS;
    }
}

/* sum[c] has in its lanes, of which the first ROWS count, the sums of column c of `columns`: 1, 2 or 4. Four sums that do not wait for
 * each other hide the latency. Lanes behind the rows read what follows the panel. */
static inline __attribute__((always_inline)) void add_columns(const int32_t *quads, const uint32_t *words, int64_t depth, int64_t line,
                                                              nl_ints sum[4], const int columns)
{
    const int together = 4 / columns;
    int64_t k = 0;
    for (int i = 0; i < 4; i++)
        sum[i] = (nl_ints){ 0 };
    for (; k + together <= depth; k += together)
        for (int i = 0; i < 4; i++) {
            const nl_ints rows = *(const nl_ints_anywhere *)(quads + (k + i / columns) * ROWS);
            sum[i] = add_quads(sum[i], words[(k + i / columns) * line + i % columns] + (nl_words){ 0 }, rows);
        }
    for (; k < depth; k++)
        for (int c = 0; c < columns; c++)
            sum[c] = add_quads(sum[c], words[k * line + c] + (nl_words){ 0 }, *(const nl_ints_anywhere *)(quads + k * ROWS));
    for (int i = columns; i < 4; i++)
        sum[i % columns] += sum[i];
}

/* Four words, in each four lanes the same. */
static inline __attribute__((always_inline)) nl_words four_words(const uint32_t *from)
{
    nl_words found;
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    __asm__("vbroadcasti32x4 %1, %0" : "=v"(found) : "m"(*(const nl_four *)from));
#elif defined(__AVX2__) && VECTOR_BYTES == 32
    __asm__("vbroadcasti128 %1, %0" : "=x"(found) : "m"(*(const nl_four *)from));
#else
    for (int at = 0; at < VECTOR_BYTES; at += 16)
        memcpy((char *)&found + at, from, 16);
#endif
    return found;
}

/* Lane after lane that of four words which is named. */
static inline __attribute__((always_inline)) nl_words spread(nl_words four, nl_ints names)
{
    nl_words found;
#if (defined(__AVX512F__) && VECTOR_BYTES == 64) || (defined(__AVX2__) && VECTOR_BYTES == 32)
    __asm__("vpermilps %2, %1, %0" : "=v"(found) : "v"(four), "v"(names));
#else
    for (int lane = 0; lane < LANES; lane++)
        found[lane] = four[names[lane]];
#endif
    return found;
}

/* As add_columns, of one column whose words follow each other. Vectors of the panel are full: one has the quads of more than one word,
 * one row after the other, and is multiplied by these words. */
static inline __attribute__((always_inline)) nl_ints add_column(const int32_t *quads, const uint32_t *words, int64_t depth)
{
    enum { VECTORS = ROWS * 4 / LANES }; /* of four words */
    nl_ints names[VECTORS], sum[2][VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        for (int lane = 0; lane < LANES; lane++)
            names[j][lane] = (j * (int)LANES + lane) / ROWS;
        sum[0][j] = sum[1][j] = (nl_ints){ 0 };
    }
    int64_t k = 0;
    for (; k + 8 <= depth; k += 8, words += 8, quads += 8 * ROWS)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const nl_words four = four_words(words + 4 * half);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++)
                sum[half][j] = add_quads(sum[half][j], spread(four, names[j]), ((const nl_ints_anywhere *)quads)[half * VECTORS + j]);
        }
    for (; k < depth; k += 4, words += 4, quads += 4 * ROWS) {
        const int64_t left = depth - k;
        uint32_t last[4] = { 0 }; /* not 0 plus 128: what is behind the panel counts nothing */
        memcpy(last, words, (size_t)(left < 4 ? left : 4) * sizeof *last);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++)
            if (j * LANES < left * ROWS)
                sum[0][j] = add_quads(sum[0][j], spread(four_words(last), names[j]), ((const nl_ints_anywhere *)quads)[j]);
    }
    int32_t apart[(VECTORS + 1) * LANES] = { 0 };
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        const nl_ints part = sum[0][j] + sum[1][j];
        memcpy(apart + j * LANES, &part, sizeof part);
    }
    nl_ints total = *(const nl_ints_anywhere *)apart;
    for (int at = ROWS; at < VECTORS * LANES; at += ROWS)
        total += *(const nl_ints_anywhere *)(apart + at);
    return total;
}

/* Panels of ROWS rows of a matrix of int8 with contiguous rows: word after word of each; and the sum of each row times
 * 128. Missing numbers and rows are 0. */
static inline void pack_rows(const int8_t *from, int64_t rows, int64_t columns, int64_t panel, int32_t *quads, int64_t *less)
{
    const int64_t depth = (columns + 3) / 4;
    quads += panel * ROWS * depth;
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t row = panel * ROWS + r;
        const int8_t *const at = from + row * columns;
        const int64_t count = row < rows ? columns : 0;
        int64_t sum = 0;
        for (int64_t k = 0; k < count; k++)
            sum += at[k];
        for (int64_t k = 0; k < depth; k++) {
            int32_t word = 0;
            if (4 * k + 4 <= count)
                memcpy(&word, at + 4 * k, 4);
            else if (4 * k < count)
                memcpy(&word, at + 4 * k, (size_t)(count - 4 * k));
            quads[k * ROWS + r] = word;
        }
        less[row] = 128 * sum;
    }
}

#endif
