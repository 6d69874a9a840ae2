/* A second entry to a kernel, with all arguments in one array: one C type for every kernel (see fastpath.c). */
#ifndef NL_PACKED_H
#define NL_PACKED_H

#include <stdint.h>

union nl_word {
    void *pointer;
    int64_t integer;
    double real;
};

/* name_packed(w), which calls name with the arguments that follow: w[0].pointer, w[1].real, ... */
#define NL_PACKED(name, ...) \
    int name##_packed(const union nl_word *w) { return name(__VA_ARGS__); }

/* The same for a function that returns nothing. */
#define NL_PACKED_VOID(name, ...) \
    int name##_packed(const union nl_word *w) \
    { \
        name(__VA_ARGS__); \
        return 0; \
    }

#endif
