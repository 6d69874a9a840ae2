/* The words of a call: which parts of a key its arguments are. Part of fastpath.c.
 *
 * Calls of primitives (fastpath_calls.h) and of builders (fastpath_recalled.h) are looked up in the table of a backend by
 * these words.
 */
#ifndef NL_FASTPATH_ASKED_H
#define NL_FASTPATH_ASKED_H

#include "fastpath_nodes.h"
#include "fastpath_table.h"

enum {
    MOST_PARAMETERS = 32, MOST_CALL_WORDS = 4096, MOST_OPERANDS = 64, MOST_LISTED = 2048,
    ABSENT = 0, NOTHING, YES, NO, REAL_NUMBER, WHOLE_NUMBER, IDENTIFIED, LISTED, FUNCTION, NODE, SEVERAL, TEXT, TENSOR /* and above: kinds of arguments */
};

/* A call: its arguments by parameter, the places of those that are tensors or in lists, its key. */
typedef struct {
    PyObject *at[MOST_PARAMETERS];
    Place *place[MOST_PARAMETERS];
    int parameters, words, listed;
    uint64_t hash;
    int64_t word[MOST_CALL_WORDS];
    Place *held[MOST_LISTED];
} Asked;

static int ask_word(Asked *asked, int64_t word)
{
    if (asked->words == MOST_CALL_WORDS)
        return -1;
    asked->hash = mix(asked->hash, (uint64_t)word);
    asked->word[asked->words++] = word;
    return 0;
}

static int ask_tensor(Asked *asked, int k, PyObject *backend, int pinned)
{
    Place *place = asked->place[k] = place_of(asked->at[k]);
    if (!place || place->backend != backend || (place->words[0] & ON_DEVICE && rounds(asked->at[k])))
        return -1;
    const Py_ssize_t count = Py_SIZE(place);
    int first = 0;
    while (asked->at[first] != asked->at[k])
        first++;
    if (asked->words + 2 + count > MOST_CALL_WORDS || ask_word(asked, TENSOR + first))
        return -1;
    if (pinned && ask_word(asked, (int64_t)(intptr_t)place->address))
        return -1;
    ask_word(asked, place->words[0] & ~NOT_ALIGNED); /* programs of a device look where their operands begin */
    for (Py_ssize_t word = 1; word < count; word++)
        ask_word(asked, place->words[word]);
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

static void forget_asked(Asked *asked)
{
    for (int k = 0; k < asked->parameters; k++)
        Py_XDECREF(asked->place[k]);
    while (asked->listed)
        Py_DECREF(asked->held[--asked->listed]);
}

#endif
