/* Assignments learned on tensors, for others that lie like these: what a repeated backward pass consists of. Part of
 * fastpath.c.
 *
 * A pass (autograd/passes.py) makes the same assignments whenever the tape below its root is the same. The key of a tape
 * is that of an assignment and all else that gradients depend on: values of numbers, gradient rules, and of which nodes
 * the value is kept, which is a leaf then. Its assignments are fixed then, but for where the memory of the tape's leaves
 * and of the results lies.
 */
#ifndef NL_FASTPATH_FIXED_H
#define NL_FASTPATH_FIXED_H

#include "fastpath_launches.h"

enum { MOST_BASES = 1024 };

typedef struct {
    PyObject_HEAD
    Launch *launch;
} Fixed;

static PyTypeObject fixed_type;

/* (key, leaves, ids of nodes that something is kept of, nodes) of what the walk has found. */
static PyObject *walked_tape(void)
{
    PyObject *leaves = PyTuple_New(walk.leaves), *nodes = PyTuple_New(walk.nodes);
    if (!leaves || !nodes) {
        Py_XDECREF(leaves);
        Py_XDECREF(nodes);
        return NULL;
    }
    for (int k = 0; k < walk.leaves; k++)
        PyTuple_SET_ITEM(leaves, k, own(walk.leaf[k]->tensor));
    const Py_ssize_t bytes = (Py_ssize_t)sizeof *walk.word * walk.words;
    for (int k = 0; k < walk.nodes; k++)
        PyTuple_SET_ITEM(nodes, k, own(walk.node[k]));
    return Py_BuildValue("y#NON", (const char *)walk.word, bytes, leaves, walk.met, nodes);
}

static PyObject *launches_tape(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Launches *self = (Launches *)object;
    int32_t root;
    if (count != 3 || !PyDict_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "tape(backend, root, kept)");
    if (Py_TYPE(given[1]) != node_type || SLOT(given[1], backend_at) != given[0] || walk.busy)
        Py_RETURN_NONE;
    PyObject *found = NULL, *met = PyList_New(0), *held = PyList_New(0);
    if (!met || !held) {
        Py_XDECREF(met);
        Py_XDECREF(held);
        return NULL;
    }
    begin_walk();
    walk.kept = given[2], walk.met = met, walk.held = held;
    if (!refer(given[1], self->tensor_type, &root) && !put(root))
        found = walked_tape();
    end_walk();
    Py_DECREF(met);
    Py_DECREF(held);
    return found ? found : own(Py_None);
}

/* Which of the bases a tensor is, or else lies in, and where; -1 if that is none, or several. */
static int find_base(const Place *place, Place *const *bases, Py_ssize_t count, Word *word)
{
    int found = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (bases[k] == place) {
            *word = (Word){BASE, (int)k, 0};
            return 0;
        }
        if (bases[k]->low <= place->low && place->high <= bases[k]->high) {
            *word = (Word){BASE, (int)k, place->address - bases[k]->address};
            found++;
        }
    }
    return found == 1 ? 0 : -1;
}

/* A copy of `launch` whose operands are in the memory of the bases; NULL if one is not. */
static Launch *fix(const Launch *launch, Place *const *bases, Py_ssize_t count)
{
    Launch *copy = PyMem_Malloc(sizeof *copy + sizeof(Step) * (size_t)launch->steps);
    if (!copy)
        return NULL;
    memcpy(copy, launch, sizeof *copy + sizeof(Step) * (size_t)launch->steps);
    copy->word = NULL;
    copy->keep = own(launch->keep);
    copy->argument = PyMem_Malloc(sizeof(Word) * (size_t)(launch->given + 1));
    int failed = !copy->argument;
    for (int k = 0; k < launch->given && !failed; k++) {
        Word word = launch->argument[k];
        if (word.source == LEAF || word.source == TARGET) {
            const Place *place = word.source == LEAF ? walk.leaf[word.base] : walk.target[word.base];
            const int64_t distance = word.value;
            failed = find_base(place, bases, count, &word);
            word.value += distance;
        } else if (word.source == WHOLE || word.source == REAL) {
            const Number *number = &walk.number[word.value];
            if (word.source == REAL)
                memcpy(&word.value, &number->real, sizeof word.value);
            else
                word.value = number->integer;
            word.source = PLAIN;
        }
        copy->argument[k] = word;
    }
    if (failed) {
        free_launch(copy);
        return NULL;
    }
    return copy;
}

static PyObject *launches_fixed(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Launches *self = (Launches *)object;
    Place *bases[MOST_BASES];
    Py_ssize_t known = 0;
    if (count != 4 || !PyList_CheckExact(given[2]) || !PyBool_Check(given[3]))
        return PyErr_Format(PyExc_TypeError, "fixed(backend, pairs, bases, fresh)");
    const Py_ssize_t wanted = PyList_GET_SIZE(given[2]);
    if (walk.busy || wanted > MOST_BASES)
        Py_RETURN_NONE;
    begin_walk();
    while (known < wanted && (bases[known] = place_of(PyList_GET_ITEM(given[2], known))))
        known++;
    Launch *launch = NULL;
    const int fresh = given[3] == Py_True;
    if (known == wanted && !walk_pairs(given[0], given[1], self->tensor_type, fresh) && (launch = *find(self)))
        launch = launch->keep && !launch->device ? fix(launch, bases, wanted) : NULL;
    end_walk();
    while (known)
        Py_DECREF(bases[--known]);
    if (!launch)
        Py_RETURN_NONE;
    Fixed *fixed = (Fixed *)fixed_type.tp_alloc(&fixed_type, 0);
    if (fixed)
        fixed->launch = launch;
    else
        free_launch(launch);
    return (PyObject *)fixed;
}

/* run(bases): on these tensors, which must lie as those did that it was learned on; whether it was done. */
static PyObject *fixed_run(PyObject *object, PyObject *tensors)
{
    const Launch *launch = ((Fixed *)object)->launch;
    Started started;
    if (!PyList_CheckExact(tensors))
        return PyErr_Format(PyExc_TypeError, "run(bases)");
    if (serial && !launch->forks)
        Py_RETURN_FALSE;
    take_launch(&started, launch);
    for (int k = 0; k < started.given; k++) {
        const Word *from = &launch->argument[k];
        if (from->source != BASE)
            continue;
        Place *place = from->base < PyList_GET_SIZE(tensors) ? place_of(PyList_GET_ITEM(tensors, from->base)) : NULL;
        if (!place) {
            PyErr_Clear();
            Py_DECREF(started.keep);
            Py_RETURN_FALSE;
        }
        started.words[k].pointer = place->address + from->value;
        Py_DECREF(place); /* the tensor has it */
    }
    return PyBool_FromLong(run_started(&started) == started.steps);
}

static PyObject *fixed_bases(PyObject *object, void *ignored)
{
    const Launch *launch = ((Fixed *)object)->launch;
    (void)ignored;
    PyObject *found = PySet_New(NULL);
    for (int k = 0; k < launch->given && found; k++) {
        PyObject *base = launch->argument[k].source == BASE ? PyLong_FromLong(launch->argument[k].base) : own(Py_None);
        if (!base || (base != Py_None && PySet_Add(found, base)))
            Py_CLEAR(found);
        Py_XDECREF(base);
    }
    return found;
}

static void fixed_dealloc(PyObject *object)
{
    free_launch(((Fixed *)object)->launch);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef fixed_methods[] = {
    {"run", fixed_run, METH_O, "run(bases): on tensors that lie like those that it was learned on; whether it was done."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef fixed_getset[] = {
    {"bases", fixed_bases, NULL, "Which of the bases it reads or writes, a set.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject fixed_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Fixed",
    .tp_basicsize = sizeof(Fixed),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "An assignment on tensors of which only the addresses change.",
    .tp_dealloc = fixed_dealloc,
    .tp_methods = fixed_methods,
    .tp_getset = fixed_getset,
};

#endif
