/* What an unroll is given, and how its steps are cut into parts: shared by the products for samples in vectors
 * (rnn_steps.h) and for one sample (rnn_one.h).
 *
 * Before this is included, FORWARD is 1 or, in the kernel of a backward pass, 0, and operands are of `stored`, as
 * rnn_stored.j2 says.
 */
#ifndef NL_RNN_UNROLL_H
#define NL_RNN_UNROLL_H

#include "pair_panels.h"
#include "team.h"

/* The operands of all steps: tensor `role` of step s begins at table[role * steps + s] (0: there is none), its rows
 * are strides[role * steps + s] apart. A column is one sample. */
struct unroll {
    stored *const *table;
    const int64_t *strides;
    int64_t steps, units, first, samples; /* `samples` columns of the operands, from `first` on */
    const stored *given; /* W */
    const REAL *w; /* W widened and paired: element (r, k), or pair, lies at w[r * w_row + k * w_column] */
    int64_t w_row, w_column; /* for one sample, of `given` */
    const stored *bias; /* 0: none */
    const double *numbers; /* of the activations */
    REAL *work; /* packed B of two steps (GRU: and more) */
    REAL *packed; /* W, after what was made of it before */
    int64_t threads;
    int one; /* whether there is one sample: W is not packed, and B is a column without padding */
    int apart; /* whether memory of one sample is never that of another */
};

NL_FN int64_t panels_of(int64_t units, int64_t gates) {
    return (units + TILE_ROWS / gates - 1) / (TILE_ROWS / gates);
}

/* Tiles of a panel. */
NL_FN int64_t tiles_of(const struct unroll *u) {
    return (u->samples + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

/* Whether it is the product for one sample, which kernels of backward passes do without. */
NL_FN int for_one(const struct unroll *u) {
    return FORWARD && u->one;
}

/* Parts of a stage that threads take: tiles, or for one sample as many units as a tile has columns. */
NL_FN int64_t parts_of(const struct unroll *u, int64_t gates) {
    return for_one(u) ? (u->units + TILE_COLUMNS - 1) / TILE_COLUMNS : panels_of(u->units, gates) * tiles_of(u);
}

/* Parts that a thread takes at a time: few, since each is some microseconds of work and all threads wait for the last. */
NL_FN int64_t parts_at_a_time(const struct unroll *u, int64_t parts) {
    return nl_unit(parts, 8 * u->threads, 1, 1);
}

NL_FN stored *operand(const struct unroll *u, int role, int64_t step) {
    stored *const whole = u->table[role * u->steps + step];
    return whole ? whole + u->first : 0;
}

NL_FN int64_t stride(const struct unroll *u, int role, int64_t step) {
    return u->strides[role * u->steps + step];
}

/* The part of a tile that an epilogue processes: units unit to unit + rows, samples column to column + there; `width` with
 * those that pad the panel. */
struct patch {
    int64_t step, unit, rows, column, width, there;
    const REAL *tile;
};

/* It computes `count` columns: in 16 bits all of the panel, whose lines it has on the stack, otherwise those that are there. */
typedef void epilogue(const struct unroll *u, struct patch at, int64_t count, REAL *next);

/* The tensors that an epilogue reads or writes: one bit per role, in `gated` those with a block of rows for each of
 * `gates` gates. They are those of the step `ahead` steps later. `read` and `written` are for one sample. */
struct touched {
    int64_t roles, gated, gates, ahead, read, written;
};

enum { ROLES = 8, GATES_MOST = 4 };

/* Memory that is needed after a tile's product, or for the next panel of W: single lines, and lines one after the other. */
struct ahead {
    const stored *line[ROLES * GATES_MOST * TILE_ROWS * 2];
    int64_t count;
    const char *next; /* the part of the next panel that is fetched with this tile */
    int64_t bytes;
};

/* A step's product: packed W (panels of `gates` blocks of rows) times packed B, both of `depth` lines. */
struct stage {
    const struct unroll *u;
    int64_t step;
    const REAL *packed, *b;
    int64_t depth, gates;
    REAL *next; /* for the epilogue */
    struct touched touched;
    int64_t row; /* of W that the product begins with, for one sample */
};

#endif
