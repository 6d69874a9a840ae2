/* How a kernel shares its work among the threads of the one pool (see pool.c).
 *
 * The work is a loop over `size` elements, cut into units that threads take one after another. Who takes which unit, and
 * how many threads there are, depends on what else the machine does; so results must not depend on it.
 */
#ifndef NL_TEAM_H
#define NL_TEAM_H

#include <stdint.h>

/* Elements lo to hi - 1, on the member `me` of the team (from 0 to threads - 1, which tells whose working memory to use). */
typedef void nl_range(const void *context, int64_t lo, int64_t hi, int64_t me);

#define NL_LEAST 4096 /* elements of a unit of light work: fewer take no longer to compute than to hand out */

/* How another library's number of threads, one for the process, is asked for and set. */
struct nl_library {
    int (*get_threads)(void);
    void (*set_threads)(int);
};

struct nl_pool {
    void (*share)(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads, int64_t parts);
    void (*limit)(const struct nl_library *library); /* to one thread, until each who called it has called lift */
    void (*lift)(void);
};

static const struct nl_pool *nl_pool; /* 0: there is none, and kernels run on the caller's thread */

void nl_use_pool(const struct nl_pool *pool) {
    nl_pool = pool;
}

/* Call range for all elements, unit by unit on up to so many threads, and wait until all are done. Each thread begins with
 * a part of its own, the same in kernel after kernel, whose data may still be in its cache. */
static inline void nl_share(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads) {
    if (threads > 1 && size > unit && nl_pool)
        nl_pool->share(range, context, size, unit, threads, threads);
    else
        range(context, 0, size, 0);
}

/* As nl_share, but all threads take units in the order there is, so that they are at work on neighbours, which read the
 * same data. */
static inline void nl_share_in_order(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads) {
    if (threads > 1 && size > unit && nl_pool)
        nl_pool->share(range, context, size, unit, threads, 1);
    else
        range(context, 0, size, 0);
}

/* Elements of a unit, a multiple of `step`: small enough for a thread to take some eight units, so that one whose core is
 * busy with another process leaves the others little to wait for, but `least` or more. */
static inline int64_t nl_unit(int64_t size, int64_t threads, int64_t least, int64_t step) {
    const int64_t wanted = size / (8 * (threads > 0 ? threads : 1)), unit = wanted > least ? wanted : least;
    return (unit + step - 1) / step * step;
}

#endif
