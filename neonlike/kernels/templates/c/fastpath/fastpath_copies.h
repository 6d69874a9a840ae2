/* The copy of an array into another, which may lie otherwise: a kernel for stages that move elements. Part of fastpath.c. */
#ifndef NL_FASTPATH_COPIES_H
#define NL_FASTPATH_COPIES_H

#include "fastpath_program.h"

typedef struct {
    int64_t size, to, from; /* elements, and bytes from one to the next */
} CopiedAxis;

/* What c/copies.py says of a copy; the axes, outermost first, follow. */
typedef struct {
    int64_t itemsize, zeros, axes; /* zeros: bytes that are cleared before */
    CopiedAxis axis[];
} Copied;

#define COPY_ELEMENTS(type)                                                                                           \
    for (int64_t k = 0; k < axis->size; k++, to += axis->to, from += axis->from)                                      \
        *(type *)to = *(const type *)from;                                                                            \
    return

static void copy_line(char *to, const char *from, const CopiedAxis *axis, const int64_t itemsize)
{
    if (axis->to == itemsize && axis->from == itemsize) {
        memcpy(to, from, (size_t)(axis->size * itemsize));
        return;
    }
    switch (itemsize) {
    case 1: COPY_ELEMENTS(int8_t);
    case 2: COPY_ELEMENTS(int16_t);
    case 4: COPY_ELEMENTS(int32_t);
    default: COPY_ELEMENTS(int64_t);
    }
}

static void copy_axes(char *to, const char *from, const CopiedAxis *axis, const int64_t axes, const int64_t itemsize)
{
    if (axes == 1) {
        copy_line(to, from, axis, itemsize);
        return;
    }
    for (int64_t k = 0; k < axis->size; k++, to += axis->to, from += axis->from)
        copy_axes(to, from, axis + 1, axes - 1, itemsize);
}

/* (where zeros begin, to, from, what is copied): elements of 1, 2, 4 or 8 bytes, bit by bit. */
static int copy_window(const union nl_word *given)
{
    const Copied *copied = given[3].pointer;
    if (copied->zeros)
        memset(given[0].pointer, 0, (size_t)copied->zeros);
    copy_axes(given[1].pointer, given[2].pointer, copied->axis, copied->axes, copied->itemsize);
    return 0;
}

#endif
