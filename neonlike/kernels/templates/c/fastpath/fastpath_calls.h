/* Calls of compound primitives that were made before, started without Python. Part of fastpath.c.
 *
 * A `Repeating` stands for a method of backends. It writes the arguments of a call into a key of words: data type, shape
 * and strides of each tensor, and which of them are one; numbers bit by bit; the identity of a layer. For a key that was
 * learned, the kernel is called with the tensors' addresses. Other arguments, and calls not met before, go to the method,
 * which defines what they mean; its cache (kernels/run/calls.py) then says whether the call was one kernel.
 */
#ifndef NL_FASTPATH_CALLS_H
#define NL_FASTPATH_CALLS_H

#include "fastpath_launches.h"

enum {
    MOST_PARAMETERS = 32, MOST_CALL_WORDS = 512, MOST_GIVEN = 64, CALLS = 1024,
    ABSENT = 0, NOTHING, YES, NO, REAL_NUMBER, WHOLE_NUMBER, LAYER, TENSOR /* and above: kinds of arguments */
};

static PyObject *name_calls, *name_fast, *name_expect, *name_recipe;

/* Which arguments must share no memory, and where one has to start in a line of the cache: as CallCache.recipe() says. */
typedef struct {
    int64_t written, other, low, high;
} Apart;

typedef struct {
    int64_t written, line, place;
} Phase;

typedef struct {
    uint64_t hash;
    int words, given, aparts, phases;
    int work_at, answer; /* the argument that is working memory; the parameter that is returned; -1: none, None */
    int64_t work;
    Kernel kernel;
    PyObject *keep, *refused;
    int64_t *word; /* the key; aparts and phases follow */
    Apart *apart;
    Phase *phase;
    union nl_word argument[MOST_GIVEN];
    int8_t parameter[MOST_GIVEN]; /* whose address an argument is; -1: of none */
} Known;

/* The calls of a backend, by key. */
typedef struct {
    PyObject_HEAD
    Py_ssize_t used, hits;
    Known *table[CALLS];
} Calls;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *original;   /* the method as Python defines it */
    PyObject *names;      /* of its parameters after self */
    PyObject *attributes; /* of the backend, on whose values the kernel depends */
    int positional;       /* how many of these may be given by position */
    int layer;            /* the parameter that is told by its identity; -1: none */
} Repeating;

/* A call: its arguments by parameter, the places of those that are tensors, its key. */
typedef struct {
    PyObject *at[MOST_PARAMETERS];
    Place *place[MOST_PARAMETERS];
    int parameters, words;
    uint64_t hash;
    int64_t word[MOST_CALL_WORDS];
} Asked;

/* Keys ------------------------------------------------------------------------------------------------------------- */

static int ask_word(Asked *asked, int64_t word)
{
    if (asked->words == MOST_CALL_WORDS)
        return -1;
    asked->hash = mix(asked->hash, (uint64_t)word);
    asked->word[asked->words++] = word;
    return 0;
}

static int ask_tensor(Asked *asked, int k, PyObject *backend)
{
    Place *place = asked->place[k] = place_of(asked->at[k]);
    if (!place || place->backend != backend || place->words[0] & ON_DEVICE)
        return -1;
    const Py_ssize_t count = Py_SIZE(place);
    int first = 0;
    while (asked->at[first] != asked->at[k])
        first++;
    if (asked->words + 1 + count > MOST_CALL_WORDS || ask_word(asked, TENSOR + first))
        return -1;
    asked->hash = mix(asked->hash, place->hash);
    memcpy(asked->word + asked->words, place->words, sizeof(int64_t) * (size_t)count);
    asked->words += (int)count;
    return 0;
}

static int ask_plain(Asked *asked, PyObject *value)
{
    int64_t bits;
    if (!value || value == Py_None || value == Py_True || value == Py_False)
        return ask_word(asked, !value ? ABSENT : value == Py_None ? NOTHING : value == Py_True ? YES : NO);
    if (PyFloat_CheckExact(value)) {
        const double real = PyFloat_AS_DOUBLE(value);
        memcpy(&bits, &real, sizeof bits);
        return ask_word(asked, REAL_NUMBER) || ask_word(asked, bits) ? -1 : 0;
    }
    if (!PyLong_CheckExact(value) || integer_of(value, &bits))
        return -1;
    return ask_word(asked, WHOLE_NUMBER) || ask_word(asked, bits) ? -1 : 0;
}

static int ask_attributes(Asked *asked, const Repeating *self, PyObject *backend)
{
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->attributes) && !failed; k++) {
        PyObject *value = PyObject_GetAttr(backend, PyTuple_GET_ITEM(self->attributes, k));
        failed = !value || ask_plain(asked, value);
        Py_XDECREF(value);
    }
    return failed;
}

/* Sort the arguments by parameter; -1 if the method would refuse them. */
static int sort_arguments(Asked *asked, const Repeating *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    const int parameters = (int)PyTuple_GET_SIZE(self->names);
    if (count > self->positional)
        return -1;
    for (int k = 0; k < parameters; k++) {
        asked->at[k] = k < count ? given[k] : NULL;
        asked->place[k] = NULL;
    }
    asked->parameters = parameters;
    int next = 0;
    for (Py_ssize_t k = 0; named && k < PyTuple_GET_SIZE(named); k++) {
        PyObject *name = PyTuple_GET_ITEM(named, k);
        int looked = 0; /* names are interned, and mostly in the order of the parameters */
        while (looked < parameters && PyTuple_GET_ITEM(self->names, next) != name) {
            next = (next + 1) % parameters;
            looked++;
        }
        if (looked == parameters || asked->at[next])
            return -1;
        asked->at[next] = given[count + k];
        next = (next + 1) % parameters;
    }
    return 0;
}

/* The key of a call; -1 if Python has to do it. forget_asked() has to follow. */
static int ask(Asked *asked, const Repeating *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    PyObject *const backend = given[0];
    asked->parameters = asked->words = 0;
    asked->hash = 0;
    if (sort_arguments(asked, self, given + 1, count - 1, named) || ask_word(asked, (int64_t)(intptr_t)self->original))
        return -1;
    for (int k = 0; k < asked->parameters; k++) {
        PyObject *value = asked->at[k];
        if (value && is_tensor(Py_TYPE(value)) ? ask_tensor(asked, k, backend)
            : value && k == self->layer && value != Py_None
                ? ask_word(asked, LAYER) || ask_word(asked, (int64_t)(intptr_t)value)
                : ask_plain(asked, value))
            return -1;
    }
    return ask_attributes(asked, self, backend);
}

static void forget_asked(Asked *asked)
{
    for (int k = 0; k < asked->parameters; k++)
        Py_XDECREF(asked->place[k]);
}

/* Starting --------------------------------------------------------------------------------------------------------- */

static void free_known(Known *known)
{
    PyObject *keep = known->keep, *refused = known->refused;
    PyMem_Free(known->word);
    PyMem_Free(known);
    Py_XDECREF(keep);
    Py_XDECREF(refused);
}

static void clear_calls(Calls *self)
{
    for (size_t slot = 0; self->used && slot < CALLS; slot++) {
        Known *known = self->table[slot];
        self->table[slot] = NULL;
        if (known) {
            self->used--;
            free_known(known);
        }
    }
}

/* The table entry of a key, or the free one for it. */
static Known **find_call(Calls *self, const Asked *asked)
{
    const size_t bytes = sizeof(int64_t) * (size_t)asked->words;
    for (size_t slot = asked->hash % CALLS;; slot = (slot + 1) % CALLS) {
        const Known *at = self->table[slot];
        if (!at || (at->hash == asked->hash && at->words == asked->words && !memcmp(at->word, asked->word, bytes)))
            return &self->table[slot];
    }
}

/* Whether the tensors lie to each other, and in the lines of the cache, as those that were learned. */
static int lie_alike(const Known *known, const Asked *asked)
{
#define START(argument) ((intptr_t)asked->place[known->parameter[argument]]->address)
    for (int k = 0; k < known->aparts; k++) {
        const Apart *apart = &known->apart[k];
        const int64_t distance = START(apart->other) - START(apart->written);
        if (apart->low < distance && distance < apart->high)
            return 0;
    }
    for (int k = 0; k < known->phases; k++)
        if (START(known->phase[k].written) % known->phase[k].line != known->phase[k].place)
            return 0;
    return 1;
#undef START
}

/* Run the kernel; what the method returns. */
static PyObject *start_known(Calls *self, const Known *known, const Asked *asked)
{
    union nl_word words[MOST_GIVEN];
    PyObject *keep = known->keep, *refused = known->refused, *memory = NULL;
    PyObject *answer = known->answer < 0 ? Py_None : asked->at[known->answer];
    const Kernel kernel = known->kernel;
    memcpy(words, known->argument, sizeof *words * (size_t)known->given);
    for (int k = 0; k < known->given; k++)
        if (known->parameter[k] >= 0)
            words[k].pointer = asked->place[known->parameter[k]]->address;
    const int work_at = known->work_at;
    Py_INCREF(keep); /* others may clear the table from here on */
    Py_INCREF(refused);
    if (work_at >= 0 && (memory = lent(known->work)))
        words[work_at].pointer = PyLong_AsVoidPtr(PyTuple_GET_ITEM(memory, 1));
    int failed = work_at >= 0 && !memory;
    if (!failed) {
        self->hits++;
        Py_BEGIN_ALLOW_THREADS
        failed = kernel(words);
        Py_END_ALLOW_THREADS
        if (failed)
            PyErr_SetObject(PyExc_MemoryError, refused);
    }
    Py_XDECREF(memory);
    Py_DECREF(refused);
    Py_DECREF(keep);
    return failed ? NULL : own(answer);
}

#endif
