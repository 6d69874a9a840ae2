/* The words of a key: which ops it may name, and what of their attributes it has. Part of fastpath.c. */
#ifndef NL_FASTPATH_WORDS_H
#define NL_FASTPATH_WORDS_H

#include "fastpath_layout.h"
#include "fastpath_places.h"

enum {
    MAX_NODES = 2048, MAX_LEAVES = 512, MAX_NUMBERS = 512, MAX_TARGETS = 256, MAX_OPERANDS = 8,
    MAX_WORDS = 32768, MEMO = 8192, SPECS = 1024, /* there are more places in the memo than nodes and leaves */
    MAX_NESTED = 4,  /* tuples in tuples of an attribute */
    NOT_KEPT = 3 << 24,
    AT_LEAF = -1, AT_TARGET = -2, AT_NUMBER = -3, /* other words that begin an item are addresses of specs */
    INTEGER = -1, NONE = -2, ABSENT_ATTRIBUTE = -3, TRUE_ATTRIBUTE = -4, FALSE_ATTRIBUTE = -5, KEYED = -6,
};

static PyTypeObject *node_type; /* OpTreeNode, and the offsets of its slots */
static Py_ssize_t spec_at, operands_at, attrs_at, shape_at, dtype_at, backend_at;
static PyObject *describe; /* spec -> names of its attributes in the key; None: left to Python */
static PyObject *name_value, *name_alias_of, *name_rounding, *name_rule, *name_key, *name_picks, *name_seed, *name_call;

#define SLOT(node, at) (*(PyObject **)((char *)(node) + (at)))

/* Specs: rows of the table of ops that keys may name -------------------------------------------------------------- */

typedef struct {
    PyObject *spec, *keyed; /* never released, because keys hold the address of the spec */
    int draws; /* whether its attributes are the seed and the call of random numbers */
} Spec;

static Spec specs[SPECS];
static int specs_used;

/* NULL if Python has to do it. */
static const Spec *spec_of(PyObject *spec)
{
    size_t slot = ((uintptr_t)spec >> 4) % SPECS;
    for (; specs[slot].spec; slot = (slot + 1) % SPECS)
        if (specs[slot].spec == spec)
            return specs[slot].keyed == Py_None ? NULL : &specs[slot];
    if (specs_used >= SPECS / 2)
        return NULL;
    PyObject *keyed = PyObject_CallFunctionObjArgs(describe, spec, NULL);
    if (!keyed || (keyed != Py_None && !PyTuple_CheckExact(keyed)) || specs[slot].spec) {
        Py_XDECREF(keyed);
        return NULL;
    }
    Py_INCREF(spec);
    const int draws = keyed != Py_None && PyTuple_GET_SIZE(keyed) && !PyUnicode_Compare(PyTuple_GET_ITEM(keyed, 0), name_seed);
    specs[slot] = (Spec){spec, keyed, draws};
    specs_used++;
    return keyed == Py_None ? NULL : &specs[slot];
}

/* The walk -------------------------------------------------------------------------------------------------------- */

typedef struct {
    double real;
    int64_t integer;
    int is_real;
} Number;

/* What is kept of a node: none, or references of the leaves that are its value and, of a primitive, its further results. */
typedef struct {
    int count;
    int32_t reference[1 + MAX_OPERANDS];
} Leaves;

/* A node that was entered and not yet left. */
typedef struct {
    PyObject *node;
    const Spec *known;
    PyObject *operands; /* those of the node; of a listed one what its gradient goes to, or NULL */
    int count, next; /* of those operands; the one that is looked at next */
    int listed, ruled; /* whether the node is listed, whether it has a gradient rule */
    int32_t listed_as, reference[MAX_OPERANDS];
    int64_t rule; /* the rule's key */
    Leaves saved;
} Visit;

static struct {
    int busy;
    PyObject *kept; /* of a tape: what is kept of nodes, by id; NULL: this is an assignment */
    PyObject *met;  /* of a tape: a list of the ids of those nodes of it that something is kept of */
    PyObject *held; /* of a tape: a list of what is kept, of which others may let go while a tensor is asked for its place */
    int entered, nodes, leaves, numbers, targets, words;
    uint64_t hash;
    uint32_t generation; /* of the valid entries of memo */
    PyObject *node[MAX_NODES]; /* borrowed: the caller has their root */
    Place *leaf[MAX_LEAVES], *target[MAX_TARGETS];
    int32_t root[MAX_TARGETS]; /* references of the targets' values */
    Number number[MAX_NUMBERS];
    int calls;
    int64_t call[MAX_NUMBERS]; /* of a tape: the calls of its nodes that draw random numbers */
    struct {
        PyObject *thing;
        uint32_t generation;
        int32_t reference;
    } memo[MEMO];
    int64_t word[MAX_WORDS];
    Visit visit[MAX_NODES + 1]; /* from the root to the innermost */
} walk;

static int put(int64_t word)
{
    if (walk.words == MAX_WORDS)
        return -1;
    walk.word[walk.words++] = word;
    return 0;
}

static int put_hashed(int64_t word)
{
    walk.hash = mix(walk.hash, (uint64_t)word);
    return put(word);
}

static int put_place(int64_t kind, const Place *place)
{
    const int64_t count = Py_SIZE(place);
    if (walk.words + 1 + count > MAX_WORDS)
        return -1;
    walk.hash = mix(walk.hash, place->hash);
    walk.word[walk.words++] = kind;
    memcpy(walk.word + walk.words, place->words, sizeof(int64_t) * (size_t)count);
    walk.words += (int)count;
    return 0;
}

/* Attributes ------------------------------------------------------------------------------------------------------ */

static int integer_of(PyObject *value, int64_t *integer)
{
    int overflow = 0;
    *integer = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow || (*integer == -1 && PyErr_Occurred()) ? -1 : 0;
}

/* What a request of a primitive has as its `key`, see Request in optree/calls.py; -1 if it has none. */
static int put_request(PyObject *request)
{
    int64_t integer;
    PyObject *key = PyObject_GetAttr(request, name_key);
    const int failed = !key || !PyLong_CheckExact(key) || integer_of(key, &integer) || put_hashed(KEYED)
                       || put_hashed(integer);
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

/* An attribute in the key: nothing, None, a truth value, an integer, a request, or a tuple of these. Each kind begins with
 * a word of its own, so that no two have one key. */
static int put_attribute(PyObject *value, int depth)
{
    int64_t integer;
    if (!value || value == Py_None)
        return put_hashed(value ? NONE : ABSENT_ATTRIBUTE);
    if (value == Py_True || value == Py_False)
        return put_hashed(value == Py_True ? TRUE_ATTRIBUTE : FALSE_ATTRIBUTE);
    if (PyLong_CheckExact(value))
        return integer_of(value, &integer) || put_hashed(INTEGER) || put_hashed(integer) ? -1 : 0;
    if (!PyTuple_CheckExact(value))
        return put_request(value);
    if (depth == MAX_NESTED || put_hashed(PyTuple_GET_SIZE(value)))
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(value); k++)
        if (put_attribute(PyTuple_GET_ITEM(value, k), depth + 1))
            return -1;
    return 0;
}

/* The attributes of a node that its plan and its gradient depend on; `shape` is the node's where it is none of them. */
static int put_attributes(PyObject *node, PyObject *attrs, PyObject *keyed)
{
    if (!PyDict_CheckExact(attrs) || PyDict_GetItemWithError(attrs, name_value)) /* a tree of numbers */
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(keyed); k++) {
        PyObject *name = PyTuple_GET_ITEM(keyed, k);
        PyObject *value = PyDict_GetItemWithError(attrs, name);
        if (!value && name == name_shape)
            value = SLOT(node, shape_at);
        if ((!value && name != name_picks) || PyErr_Occurred() || put_attribute(value, 0))
            return -1;
    }
    return 0;
}

#endif
