/* The walk of an assignment's expression into a key, as linearize() in graph.py does it. Part of fastpath.c. */
#ifndef NL_FASTPATH_WALK_H
#define NL_FASTPATH_WALK_H

#include "fastpath_words.h"

/* The memo entry of `thing`, or the free one for it. */
static size_t memo_slot(PyObject *thing)
{
    size_t slot = ((uintptr_t)thing >> 4) % MEMO;
    while (walk.memo[slot].generation == walk.generation && walk.memo[slot].thing != thing)
        slot = (slot + 1) % MEMO;
    return slot;
}

static void remember(PyObject *thing, int32_t reference)
{
    const size_t slot = memo_slot(thing);
    walk.memo[slot].thing = thing;
    walk.memo[slot].generation = walk.generation;
    walk.memo[slot].reference = reference;
}

static int add_number(Number number, int32_t *reference)
{
    int64_t bits = number.integer;
    if (number.is_real)
        memcpy(&bits, &number.real, sizeof bits);
    if (walk.numbers == MAX_NUMBERS || (walk.kept && (put(AT_NUMBER) || put(bits))))
        return -1;
    *reference = (number.is_real ? NUMBER_FLOAT : NUMBER_INT) + walk.numbers;
    walk.number[walk.numbers++] = number;
    return 0;
}

static int add_leaf(PyObject *tensor, int32_t *reference)
{
    if (walk.leaves == MAX_LEAVES)
        return -1;
    Place *place = place_of(tensor);
    if (!place)
        return -1;
    walk.leaf[walk.leaves] = place;
    *reference = -1 - walk.leaves++;
    remember(tensor, *reference);
    return put_place(AT_LEAF, place);
}

/* Reference of an operand; 1: of a node that is yet to be walked, -1: Python has to do it. */
static int look_up(PyObject *operand, PyTypeObject *tensor_type, int32_t *reference)
{
    PyTypeObject *type = Py_TYPE(operand);
    if (type == &PyFloat_Type)
        return add_number((Number){PyFloat_AS_DOUBLE(operand), 0, 1}, reference);
    if (type == &PyLong_Type) {
        int64_t integer;
        return integer_of(operand, &integer) ? -1 : add_number((Number){(double)integer, integer, 0}, reference);
    }
    if (type != node_type && type != tensor_type)
        return -1;
    const size_t slot = memo_slot(operand);
    if (walk.memo[slot].generation == walk.generation) {
        *reference = walk.memo[slot].reference;
        return 0;
    }
    return type == node_type ? 1 : add_leaf(operand, reference);
}

/* References of what an entry of Kept has; -1 if that cannot be told. */
static int refer_kept(PyObject *tensor, PyObject *parts, PyTypeObject *tensor_type, Leaves *leaves)
{
    if (!PyTuple_CheckExact(parts) || PyTuple_GET_SIZE(parts) > MAX_OPERANDS)
        return -1;
    leaves->count = 1 + (int)PyTuple_GET_SIZE(parts);
    leaves->reference[0] = NOT_KEPT; /* an expression stands for the value, where only further results are worth keeping */
    if (Py_TYPE(tensor) == node_type ? leaves->count == 1 : look_up(tensor, tensor_type, &leaves->reference[0]))
        return -1;
    for (int k = 1; k < leaves->count; k++) {
        PyObject *part = PyTuple_GET_ITEM(parts, k - 1);
        if (Py_TYPE(part) != tensor_type || look_up(part, tensor_type, &leaves->reference[k]))
            return -1;
    }
    return 0;
}

/* Find what is kept of a node; -1 if that cannot be told. */
static int find_kept(PyObject *node, PyTypeObject *tensor_type, Leaves *leaves)
{
    leaves->count = 0;
    if (!PyDict_GET_SIZE(walk.kept))
        return 0;
    PyObject *id = PyLong_FromVoidPtr(node), *entry = id ? PyDict_GetItemWithError(walk.kept, id) : NULL;
    int failed = PyErr_Occurred() != NULL;
    if (entry && PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) == KEPT_FIELDS) {
        PyObject *tensor = PyTuple_GET_ITEM(entry, KEPT_TENSOR), *parts = PyTuple_GET_ITEM(entry, KEPT_PARTS);
        failed = PyList_Append(walk.held, entry) || refer_kept(tensor, parts, tensor_type, leaves)
                 || PyList_Append(walk.met, id);
    } else if (entry)
        failed = 1;
    Py_XDECREF(id);
    return failed ? -1 : 0;
}

/* Go on with what the gradient of a node goes to by its rule, if it has one, and find whether its value is kept; -1 if that
 * cannot be told. What is met for the first time comes before the count, so that no two tapes have one key. */
static int begin_gradient(Visit *visit, PyTypeObject *tensor_type)
{
    PyObject *attrs = SLOT(visit->node, attrs_at);
    PyObject *rule = attrs == Py_None ? NULL : PyDict_GetItemWithError(attrs, name_rule), *parents = NULL;
    if (find_kept(visit->node, tensor_type, &visit->saved))
        return -1;
    if (rule) {
        if (!PyTuple_Check(rule) || PyTuple_GET_SIZE(rule) != RULE_FIELDS)
            return -1;
        PyObject *key = PyTuple_GET_ITEM(rule, RULE_KEY);
        parents = PyTuple_GET_ITEM(rule, RULE_PARENTS);
        if (!PyTuple_CheckExact(parents) || PyTuple_GET_SIZE(parents) > MAX_OPERANDS || !PyLong_CheckExact(key)
            || integer_of(key, &visit->rule))
            return -1;
    }
    visit->ruled = rule != NULL;
    visit->next = 0;
    visit->count = parents ? (int)PyTuple_GET_SIZE(parents) : 0;
    Py_XSETREF(visit->operands, own(parents));
    return 0;
}

/* The words of what begin_gradient() has begun. */
static int end_gradient(const Visit *visit)
{
    const int count = visit->count;
    if (put_hashed(visit->ruled ? 1 + count : 0) || put_hashed(visit->ruled ? visit->rule : 0) || put_hashed(visit->saved.count))
        return -1;
    for (int k = 0; k < visit->saved.count; k++)
        if (put_hashed(visit->saved.reference[k]))
            return -1;
    for (int k = 0; k < count; k++)
        if (put_hashed(visit->reference[k]))
            return -1;
    return 0;
}

/* Enter a node: its operands are walked before it. */
static int begin_node(Visit *visit, PyObject *node)
{
    PyObject *spec = SLOT(node, spec_at), *operands = SLOT(node, operands_at), *attrs = SLOT(node, attrs_at);
    if (!spec || !attrs || !operands || !PyTuple_CheckExact(operands) || PyTuple_GET_SIZE(operands) > MAX_OPERANDS)
        return -1;
    const Spec *known = spec_of(spec);
    if (!known || walk.entered++ == MAX_NODES)
        return -1;
    visit->node = node, visit->known = known, visit->operands = own(operands);
    visit->count = (int)PyTuple_GET_SIZE(operands);
    visit->next = visit->listed = 0;
    return 0;
}

/* The seed and the call of a node that draws random numbers: two numbers of an assignment. In the key of a tape is the seed
 * alone; its program is given the calls. */
static int put_draw(PyObject *node, PyObject *attrs)
{
    if (put_hashed((int64_t)(intptr_t)SLOT(node, dtype_at))) /* the backend's default when it was built */
        return -1;
    PyObject *seed = PyDict_CheckExact(attrs) ? PyDict_GetItemWithError(attrs, name_seed) : NULL;
    PyObject *call = seed ? PyDict_GetItemWithError(attrs, name_call) : NULL;
    if (!call || !PyLong_CheckExact(seed) || !PyLong_CheckExact(call))
        return -1;
    const int64_t given[2] = {(int64_t)PyLong_AsUnsignedLongLongMask(seed), (int64_t)PyLong_AsUnsignedLongLongMask(call)};
    if (walk.kept) {
        if (walk.calls == MAX_NUMBERS)
            return -1;
        walk.call[walk.calls++] = given[1];
        return put_hashed(given[0]);
    }
    for (int k = 0; k < 2; k++) {
        int32_t reference;
        if (add_number((Number){(double)given[k], given[k], 0}, &reference) || put_hashed(reference))
            return -1;
    }
    return 0;
}

/* List a node, whose operands were walked. */
static int list_node(Visit *visit)
{
    PyObject *attrs = SLOT(visit->node, attrs_at);
    const int count = visit->count;
    if (put_hashed((int64_t)(intptr_t)visit->known->spec) || put((int64_t)count << 1 | (attrs != Py_None)))
        return -1;
    for (int k = 0; k < count; k++)
        if (put_hashed(visit->reference[k]))
            return -1;
    walk.node[walk.nodes] = visit->node;
    visit->listed_as = walk.nodes++;
    visit->listed = 1;
    remember(visit->node, visit->listed_as);
    if (visit->known->draws)
        return put_draw(visit->node, attrs);
    return attrs != Py_None && put_attributes(visit->node, attrs, visit->known->keyed) ? -1 : 0;
}

/* Whether a node whose operands were walked is done; 0: what its gradient goes to is to be walked first, -1: it cannot be. */
static int end_node(Visit *visit, PyTypeObject *tensor_type)
{
    if (visit->listed)
        return end_gradient(visit) ? -1 : 1;
    if (list_node(visit))
        return -1;
    return !walk.kept ? 1 : begin_gradient(visit, tensor_type);
}

/* Reference of an operand, which is walked the first time; -1 if Python has to do it. A list of visits takes the place of
 * recursion, for which threads may have too little stack. */
static int refer(PyObject *operand, PyTypeObject *tensor_type, int32_t *reference)
{
    int found = look_up(operand, tensor_type, reference);
    if (found < 1)
        return found;
    Visit *visit = walk.visit;
    if (begin_node(visit, operand))
        return -1;
    for (;;) {
        int k = visit->next;
        for (found = 0; k < visit->count; k++)
            if ((found = look_up(operand = PyTuple_GET_ITEM(visit->operands, k), tensor_type, &visit->reference[k])))
                break;
        visit->next = k;
        if (found > 0 && !begin_node(visit + 1, operand))
            visit++;
        else if (found || (found = end_node(visit, tensor_type)) < 0)
            break;
        else if (found) {
            Py_XDECREF(visit->operands); /* none of a node without a rule */
            if (visit == walk.visit) {
                *reference = visit->listed_as;
                return 0;
            }
            visit--;
            visit->reference[visit->next++] = visit[1].listed_as;
        }
    }
    for (; visit >= walk.visit; visit--)
        Py_XDECREF(visit->operands);
    return -1;
}

/* Whether a tensor rounds stochastically, or does not say: its kernels draw numbers, which is Python's business. */
static int rounds(PyObject *target)
{
    PyObject *rounding = PyObject_GetAttr(target, name_rounding);
    const int found = !rounding || PyObject_IsTrue(rounding);
    Py_XDECREF(rounding);
    return found;
}

static int add_target(PyObject *backend, PyObject *target, PyObject *value, PyTypeObject *tensor_type)
{
    int32_t root;
    if (Py_TYPE(target) != tensor_type || value == target || walk.targets == MAX_TARGETS)
        return -1;
    if (Py_TYPE(value) == node_type && SLOT(value, backend_at) != backend)
        return -1;
    if (refer(value, tensor_type, &root))
        return -1;
    if (Py_TYPE(value) == tensor_type && walk.leaf[-1 - root]->backend != backend)
        return -1;
    Place *place = place_of(target);
    if (!place)
        return -1;
    walk.root[walk.targets] = root;
    walk.target[walk.targets++] = place;
    if (place->words[0] & ON_DEVICE && rounds(target))
        return -1;
    return place->backend == backend ? 0 : -1; /* tensors in the tree were checked when it was built */
}

/* As alias(), calling the tensors where that does not decide; -1 if they do not either. */
static int64_t shared_memory(const Place *leaf, const Place *target)
{
    int64_t shared = alias(leaf, target);
    if (shared < 0) {
        PyObject *answer = PyObject_CallMethodObjArgs(leaf->tensor, name_alias_of, target->tensor, NULL);
        if (answer && (!PyLong_Check(answer) || integer_of(answer, &shared)))
            shared = -1;
        Py_XDECREF(answer);
    }
    return shared;
}

/* The end of the key: targets, which leaves they share memory with, and whether nobody will look at them should this fail,
 * since then they may be written, and read, before all is known. */
static int put_targets(int fresh)
{
    if (put_hashed(fresh))
        return -1;
    for (int t = 0; t < walk.targets; t++) {
        if (put_place(AT_TARGET, walk.target[t]) || put_hashed(walk.root[t]))
            return -1;
        for (int l = 0; l < walk.leaves; l++) {
            const int64_t shared = shared_memory(walk.leaf[l], walk.target[t]);
            if (shared < 0 || put_hashed(shared))
                return -1;
        }
        for (int other = 0; other < t; other++)
            if (alias(walk.target[other], walk.target[t])) /* an error, which Python reports */
                return -1;
    }
    return 0;
}

static void begin_walk(void)
{
    walk.busy = 1;
    walk.kept = NULL;
    walk.entered = walk.nodes = walk.leaves = walk.numbers = walk.calls = walk.targets = walk.words = 0;
    walk.hash = 0;
    if (++walk.generation == 0) {
        memset(walk.memo, 0, sizeof walk.memo);
        walk.generation = 1;
    }
}

static void end_walk(void)
{
    PyErr_Clear();
    while (walk.leaves)
        Py_DECREF(walk.leaf[--walk.leaves]);
    while (walk.targets)
        Py_DECREF(walk.target[--walk.targets]);
    walk.busy = 0;
}

/* Walk the arguments of run() or run_many(); -1 if Python has to do it. end_walk() has to follow. */
static int walk_pairs(PyObject *backend, PyObject *pairs, PyTypeObject *tensor_type, int fresh)
{
    if (!PyTuple_CheckExact(pairs) && !PyList_CheckExact(pairs))
        return -1;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(pairs); k++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(pairs, k);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2)
            return -1;
        if (add_target(backend, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), tensor_type))
            return -1;
    }
    return walk.targets ? put_targets(fresh) : -1;
}

#endif
