/* Sharing of a kernel's work among worker threads (see workers.c).
 *
 * The work is a loop over `size` elements, split into units that threads take one after another. Which thread takes
 * which unit, and the number of threads, depend on the machine's load; so results must not depend on them.
 */
#ifndef NL_TEAM_H
#define NL_TEAM_H

#include <stdint.h>

/* Elements lo to hi - 1, on member `me` of the team (0 to threads - 1, the index of its scratch memory). */
typedef void nl_range(const void *context, int64_t lo, int64_t hi, int64_t me);

#define NL_LEAST 4096 /* elements of a unit of light work: with fewer, handing out units takes as long as computing them */

/* Access to another library's number of threads, which is global to the process. */
struct nl_library {
    int (*get_threads)(void);
    void (*set_threads)(int);
};

struct nl_workers {
    void (*share)(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads, int64_t parts);
    void (*limit)(const struct nl_library *library); /* to one thread, until every caller has called lift */
    void (*lift)(void);
};

static const struct nl_workers *nl_workers; /* 0: there is none, and kernels run on the caller's thread */

void nl_use_workers(const struct nl_workers *workers) {
    nl_workers = workers;
}

/* Call range for all elements, unit by unit on up to `threads` threads, and wait until all are done. Each thread begins
 * with its own part, the same in consecutive kernels, whose data may still be in its cache. */
static inline void nl_share(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads) {
    if (threads > 1 && size > unit && nl_workers)
        nl_workers->share(range, context, size, unit, threads, threads);
    else
        range(context, 0, size, 0);
}

/* As nl_share, but all threads take units in sequence, so that they work on adjacent units, which share data. */
static inline void nl_share_in_order(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads) {
    if (threads > 1 && size > unit && nl_workers)
        nl_workers->share(range, context, size, unit, threads, 1);
    else
        range(context, 0, size, 0);
}

/* Elements of a unit, a multiple of `step`: about eight units per thread for load balance, but at least `least`
 * elements. */
static inline int64_t nl_unit(int64_t size, int64_t threads, int64_t least, int64_t step) {
    const int64_t wanted = size / (8 * (threads > 0 ? threads : 1)), unit = wanted > least ? wanted : least;
    return (unit + step - 1) / step * step;
}

#endif
