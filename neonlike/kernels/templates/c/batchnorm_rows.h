/* Common parts of both directions of batch normalisation: vectors, sums over them, and the split of rows among threads.
 *
 * Short rows are processed in groups, which are still cached when they are read again; long rows are split into units,
 * which threads share if there are few rows. The split does not depend on the number of threads, so sums do not either:
 * they are taken over vectors in a BLOCK, in double over the blocks of a unit, then over units.
 * The including file defines `real`, `whole` (an integer as wide) and LANES, the number of reals in 64 bytes. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "vecmath.h"
#include "stream.h"
#include "team.h"

#define BLOCK 2048 /* reals that stay in the L1 cache together with those of another array */
#define UNIT 65536 /* reals for which sharing with another thread pays */
#define GROUP 64 /* most rows of a group */
#define GROUP_REALS 8192
#define STRIP 256 /* reals collected before they are written with streaming stores */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* no function that takes vectors is called: all are inlined */
#endif
typedef real vec __attribute__((vector_size(64)));
typedef whole bits __attribute__((vector_size(64)));

/* Sum of the lanes, adding halves. */
NL_FN double fold(vec v)
{
    typedef real half __attribute__((vector_size(32)));
    typedef real quarter __attribute__((vector_size(16)));
    half low, high;
    quarter first, second;
    memcpy(&low, &v, sizeof low);
    memcpy(&high, (const char *)&v + sizeof low, sizeof high);
    low += high;
    memcpy(&first, &low, sizeof first);
    memcpy(&second, (const char *)&low + sizeof first, sizeof second);
    first += second;
#if LANES == 16
    return (double)((first[0] + first[2]) + (first[1] + first[3]));
#else
    return (double)(first[0] + first[1]);
#endif
}

NL_FN int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The factor of a row: the number, or in binary networks the power of two it is rounded to. */
NL_FN double factor(double number, int64_t binary) { return binary ? nl_shift_by_f64(1.0, number) : number; }

/* A mean in two parts: x - pivot is exact for every x close to the mean; the remainder is subtracted at the end. */
struct centre { real pivot; double rest; };

NL_FN struct centre centre_of(double mean)
{
    const real pivot = (real)mean;
    return (struct centre){pivot, pivot - pivot == 0 ? mean - (double)pivot : 0};
}

#define ROUNDED (sizeof(real) == 4 ? 0x1p-21 : 0x1p-50) /* relative error of a stored sum, at most */

/* The centre of a row by its sum as it was stored, and so rounded: where `left`, the sum of x - pivot over `length`
 * elements, tells the same sum but for that, with the rest as it was before. */
NL_FN struct centre centre_by(double stored, double left, double length)
{
    struct centre centre = centre_of(stored / length);
    if (fabs(left - (stored - (double)centre.pivot * length)) <= ROUNDED * fabs(stored))
        centre.rest = left / length;
    return centre;
}

/* new + weight * old; with weight 0, old may be nan. */
NL_FN double blend(double weight, double old, double new) { return weight == 0 ? new : weight * old + new; }

/* The elements of one unit. */
struct slice { int64_t row, from, n; };

NL_FN int64_t units_of(int64_t length) { return (length + UNIT - 1) / UNIT; }

NL_FN struct slice slice_of(int64_t unit, int64_t length)
{
    if (length <= UNIT)
        return (struct slice){unit, unit * length, length};
    const int64_t row = unit / units_of(length), first = unit % units_of(length) * UNIT;
    return (struct slice){row, row * length + first, least(UNIT, length - first)};
}

struct group;
struct arguments;
typedef void phase(struct group *, int64_t lo, int64_t hi);
typedef void work(const struct arguments *, int64_t row, int64_t rows, int64_t threads, void *parts);

struct phase_of_group {
    phase *run;
    struct group *group;
};

static void take_units(const void *context, int64_t lo, int64_t hi, int64_t me)
{
    const struct phase_of_group *p = context;
    (void)me;
    p->run(p->group, lo, hi);
}

/* One phase of the work on a group: its units, on several threads. */
static void over_units(phase *run, struct group *group, int64_t units, int64_t threads)
{
    const struct phase_of_group p = {run, group};
    nl_share(take_units, &p, units, 1, threads);
}

struct groups {
    work *run;
    const struct arguments *g;
    int64_t rows, each, threads;
    char *parts;
    size_t room;
};

static void take_groups(const void *context, int64_t lo, int64_t hi, int64_t me)
{
    const struct groups *s = context;
    for (int64_t k = lo; k < hi; k++)
        s->run(s->g, k * s->each, least(s->each, s->rows - k * s->each), s->threads, s->parts + s->room * (size_t)me);
}

/* All rows, in groups: threads share a group's units if rows are few and long, else they share the groups.
 * Each unit has partial results of part_bytes. Returns 1 if there is no memory for them; nothing was written then. */
static int over_rows(work *run, const struct arguments *g, int64_t rows, int64_t length, int64_t threads, size_t part_bytes)
{
    const int together = threads > 1 && rows < 4 * threads && length > UNIT;
    const int64_t most = length * GROUP <= GROUP_REALS ? GROUP : length <= GROUP_REALS ? GROUP_REALS / length : 1;
    const int64_t each = together ? least(rows, GROUP) : most, count = (rows + each - 1) / each;
    const int64_t apart = together || threads < 1 ? 1 : threads;
    const size_t room = (size_t)(each * units_of(length)) * part_bytes;
    char *parts = malloc(room * (size_t)apart);
    if (!parts)
        return 1;
    const struct groups groups = {run, g, rows, each, together ? threads : 1, parts, room};
    nl_share(take_groups, &groups, count, nl_unit(count, apart, 1, 1), apart);
    free(parts);
    return 0;
}
