/* Indices of classes, each of which must be below their number: a kernel for what onehot compares. Part of fastpath.c. */
#ifndef NL_FASTPATH_CLASSES_H
#define NL_FASTPATH_CLASSES_H

#include "fastpath_program.h"

/* What c/copies.py says of the indices. */
typedef struct {
    int64_t kind, count, from, limit; /* kind: twice the binary logarithm of the bytes, and 1 if unsigned */
} Classes;

#define CHECK_CLASSES(type)                                                                                           \
    for (int64_t k = 0; k < classes->count; k++, from += classes->from) {                                             \
        to[k] = (int64_t)*(const type *)from;                                                                         \
        wrong |= (uint64_t)to[k] >= (uint64_t)classes->limit;                                                         \
    }                                                                                                                 \
    break

/* (to, from, what they are): copied as int64; OUT_OF_RANGE if one is no class. */
static int check_classes(const union nl_word *given)
{
    int64_t *to = given[0].pointer;
    const char *from = given[1].pointer;
    const Classes *classes = given[2].pointer;
    int wrong = 0;
    switch (classes->kind) {
    case 0: CHECK_CLASSES(int8_t);
    case 1: CHECK_CLASSES(uint8_t);
    case 2: CHECK_CLASSES(int16_t);
    case 3: CHECK_CLASSES(uint16_t);
    case 4: CHECK_CLASSES(int32_t);
    case 5: CHECK_CLASSES(uint32_t);
    default: CHECK_CLASSES(int64_t);
    }
    return wrong ? OUT_OF_RANGE : 0;
}

#endif
