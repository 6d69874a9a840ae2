/* Guards: objects that are watched, and a program that runs as long as all of them are as they were. Part of fastpath.c.
 *
 * A pass (backends/replays.py) calls the same kernels on the same memory whenever the objects that it depends on are as they
 * were: their classes, their attributes and the lists and dictionaries among these, value by value. Values are compared by
 * identity, without any code of Python's, so that nothing can change between the look and the start. Attributes that a pass sets
 * may have any values before it; they are given those of the recorded pass.
 */
#ifndef NL_FASTPATH_GUARD_H
#define NL_FASTPATH_GUARD_H

#include "fastpath_program.h"

/* An object and what it has to hold: a list its items; a dictionary, or else the object's attributes, keys and values. */
typedef struct {
    PyObject *thing, *dict; /* dict: NULL for a list */
    PyTypeObject *type;
    unsigned int tag; /* of the type, which has another one once it or one of its bases has changed; 0: see watch_classes */
    PyObject *mro;    /* the type and its bases in order, compared where there is no tag */
    uint64_t version; /* of the dictionary when it was looked through last */
    PyObject *items;
    PyObject *sets; /* names of attributes that forward passes set, and values, in turn; these are not among the items */
} Watch;

typedef struct {
    PyObject_HEAD
    Py_ssize_t watches;
    Watch *watch;
    Program *program; /* NULL: cleared */
    PyObject *free;   /* an item that stands for any value */
    int forward;      /* whether the program sets the attributes that watches name for it, else they must have its values */
    int settled;      /* whether there are such */
} Guard;

/* Watches ---------------------------------------------------------------------------------------------------------- */

/* The version of a class; 0 if it has none now. */
static unsigned int tag_of(const PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030c0000
    if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG))
        return 0;
#endif
    return type->tp_version_tag;
}

/* A number that a dictionary has only as long as nothing in it changes (PEP 509); 0 where Python has none. */
static uint64_t version_of(PyObject *dict)
{
#if PY_VERSION_HEX < 0x030c0000
    return ((PyDictObject *)dict)->ma_version_tag;
#else
    (void)dict;
    return 0;
#endif
}

static int has_items(PyObject *dict, PyObject *items, const PyObject *free)
{
    Py_ssize_t at = 0, k = 0;
    PyObject *key, *value;
    if (2 * PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(items))
        return 0;
    for (; PyDict_Next(dict, &at, &key, &value); k += 2) {
        const PyObject *expected = PyTuple_GET_ITEM(items, k + 1);
        if (key != PyTuple_GET_ITEM(items, k) || (value != expected && expected != free))
            return 0;
    }
    return 1;
}

/* Have what the next looks read on its way: kernels have pushed it out of the caches, and it lies all over the memory. */
static void fetch_ahead(const Watch *watch, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        __builtin_prefetch((const char *)watch[k].thing);
        __builtin_prefetch((const char *)watch[k].thing - 4 * sizeof(void *)); /* where its dictionary is named */
        if (watch[k].dict)
            __builtin_prefetch(watch[k].dict);
    }
}

static int is_as_it_was(Watch *watch, const PyObject *free)
{
    if (Py_TYPE(watch->thing) != watch->type)
        return 0;
    if (!watch->dict) {
        const Py_ssize_t count = PyTuple_GET_SIZE(watch->items);
        if (PyList_GET_SIZE(watch->thing) != count)
            return 0;
        for (Py_ssize_t k = 0; k < count; k++)
            if (PyList_GET_ITEM(watch->thing, k) != PyTuple_GET_ITEM(watch->items, k))
                return 0;
        return 1;
    }
    if (watch->dict != watch->thing) {
        PyObject *now = PyObject_GenericGetDict(watch->thing, NULL);
        Py_XDECREF(now); /* the object has it */
        if (!now)
            PyErr_Clear();
        if (now != watch->dict || tag_of(watch->type) != watch->tag)
            return 0;
        if (!watch->tag && watch->type->tp_mro != watch->mro)
            return 0;
    }
    const uint64_t version = version_of(watch->dict);
    if (version && version == watch->version)
        return 1;
    if (!has_items(watch->dict, watch->items, free))
        return 0;
    if (!PyTuple_GET_SIZE(watch->sets)) /* else settle() notes it */
        watch->version = version;
    return 1;
}

/* See that attributes have the values of the pass; without `old` they must have them, else they are set. Values that they had go
 * to this list, so that none ends before the pass, and runs code of Python's. -1: it is not so, or without memory with an error. */
static int settle(Watch *watch, PyObject *old)
{
    const uint64_t version = version_of(watch->dict);
    if (version && version == watch->version)
        return 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(watch->sets); k += 2) {
        PyObject *name = PyTuple_GET_ITEM(watch->sets, k), *value = PyTuple_GET_ITEM(watch->sets, k + 1);
        PyObject *now = PyDict_GetItemWithError(watch->dict, name);
        if (now == value)
            continue;
        if (!now || !old || PyList_Append(old, now) || PyDict_SetItem(watch->dict, name, value))
            return -1;
    }
    watch->version = version_of(watch->dict);
    return 0;
}

/* A watch from (thing, items) or (thing, items, sets); -1 if there is no way to watch it. */
static int read_watch(PyObject *given, Watch *watch, const PyObject *free)
{
    PyObject *thing, *items, *sets = NULL;
    if (!PyTuple_CheckExact(given) || !PyArg_ParseTuple(given, "OO!|O!", &thing, &PyTuple_Type, &items, &PyTuple_Type, &sets))
        return -1;
    watch->thing = own(thing);
    watch->items = own(items);
    watch->sets = sets ? own(sets) : PyTuple_New(0);
    watch->type = (PyTypeObject *)own((PyObject *)Py_TYPE(thing));
    if (PyList_Check(thing))
        return is_as_it_was(watch, free) ? 0 : -1;
    if (PyDict_Check(thing))
        watch->dict = own(thing);
    else {
        PyObject *found = PyObject_GetAttrString(thing, "__class__"); /* looking into a class gives it a version */
        Py_XDECREF(found);
        watch->dict = PyObject_GenericGetDict(thing, NULL);
        watch->tag = tag_of(watch->type);
        watch->mro = own(watch->type->tp_mro);
        if (!found || !watch->dict)
            return -1;
    }
    return is_as_it_was(watch, free) ? 0 : -1;
}

/* The dictionary of a class; a new reference. */
static PyObject *dict_of(PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030c0000
    return own(type->tp_dict);
#else
    return PyType_GetDict(type);
#endif
}

/* A tuple of the keys and values of a dictionary in turn; NULL with an error. */
static PyObject *items_of(PyObject *dict)
{
    Py_ssize_t at = 0, k = 0;
    PyObject *key, *value, *items = PyTuple_New(2 * PyDict_GET_SIZE(dict));
    for (; items && PyDict_Next(dict, &at, &key, &value); k += 2) {
        PyTuple_SET_ITEM(items, k, own(key));
        PyTuple_SET_ITEM(items, k + 1, own(value));
    }
    return items;
}

/* Whether the watches from number `first` on have a dictionary. */
static int has_dict(const Guard *self, Py_ssize_t first, const PyObject *dict)
{
    for (Py_ssize_t k = first; k < self->watches; k++)
        if (self->watch[k].dict == dict)
            return 1;
    return 0;
}

/* Watch the dictionaries of classes without version: from 3.13 on, Python gives none to a class that has changed a thousand
 * times, as one on which each new backend is set. Classes written in C do not change. -1: no memory. */
static int watch_classes(Guard *self)
{
    const Py_ssize_t given = self->watches;
    for (Py_ssize_t k = 0; k < given; k++) {
        PyObject *mro = self->watch[k].tag ? NULL : self->watch[k].mro;
        for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
            PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
            PyObject *dict = type->tp_flags & Py_TPFLAGS_HEAPTYPE ? dict_of(type) : NULL;
            if (!dict || has_dict(self, given, dict)) {
                Py_XDECREF(dict);
                continue;
            }
            Watch *more = PyMem_Realloc(self->watch, ((size_t)self->watches + 1) * sizeof *more);
            if (more)
                self->watch = more; /* before anything is made, which may visit it */
            PyObject *items = more ? items_of(dict) : NULL;
            if (!items) {
                Py_DECREF(dict);
                return -1;
            }
            more[self->watches++] = (Watch){ .thing = dict, .dict = own(dict), .type = (PyTypeObject *)own((PyObject *)Py_TYPE(dict)), .items = items, .sets = PyTuple_New(0) };
        }
    }
    return 0;
}

/* The type --------------------------------------------------------------------------------------------------------- */

static PyObject *guard_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *program, *watches, *free = NULL;
    int forward = 0;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!O!|Op", &program_type, &program, &PyTuple_Type, &watches, &free, &forward))
        return NULL;
    Guard *self = (Guard *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->forward = forward;
    const Py_ssize_t count = PyTuple_GET_SIZE(watches);
    int failed = ((Program *)program)->operands || ((Program *)program)->numbers
                 || !(self->watch = PyMem_Calloc((size_t)count + 1, sizeof *self->watch));
    for (Py_ssize_t k = 0; k < count && !failed; k++) {
        Watch *watch = &self->watch[self->watches++];
        failed = read_watch(PyTuple_GET_ITEM(watches, k), watch, free);
        self->settled |= watch->sets && PyTuple_GET_SIZE(watch->sets);
    }
    if (failed || watch_classes(self)) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "Guard: something that cannot be watched");
    }
    self->program = (Program *)own(program);
    self->free = free ? own(free) : NULL;
    return (PyObject *)self;
}

/* Whether all objects are as they were, but for attributes that forward passes set. */
static int all_as_they_were(const Guard *self)
{
    if (serial || !self->program)
        return 0;
    fetch_ahead(self->watch, self->watches);
    for (Py_ssize_t k = 0; k < self->watches; k++)
        if (!is_as_it_was(&self->watch[k], self->free))
            return 0;
    return 1;
}

static PyObject *guard_holds(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    return PyBool_FromLong(all_as_they_were((const Guard *)object));
}

/* run(): whether the program ran; not if something has changed, or there is no memory. An index out of range that one of the
 * first two kernels meets (the words of a table are copied and looked up) is left to Python, too, which says which it is. */
static PyObject *guard_run(PyObject *object, PyObject *ignored)
{
    Guard *self = (Guard *)object;
    PyObject *old = NULL; /* a list of what attributes had that the pass sets */
    Run run;
    int status;
    (void)ignored;
    if (self->forward && self->settled && !(old = PyList_New(0))) /* may collect garbage, which runs code of Python's: before the look */
        return NULL;
    int fit = all_as_they_were(self);
    for (Py_ssize_t k = 0; k < self->watches && fit; k++)
        fit = !PyTuple_GET_SIZE(self->watch[k].sets) || !settle(&self->watch[k], old);
    if (!fit) {
        PyErr_Clear();
        Py_XDECREF(old);
        Py_RETURN_FALSE;
    }
    if (begin_run(&run, self->program, NULL, NULL)) {
        Py_XDECREF(old);
        Py_RETURN_FALSE;
    }
    Program *program = (Program *)own((PyObject *)run.program);
    const int done = finish_run(&run, &status), all = done == program->steps;
    if (done > (status == OUT_OF_RANGE) && !all && !PyErr_Occurred())
        refuse(program, status);
    Py_DECREF(program);
    Py_XDECREF(old);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(all);
}

static int guard_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Guard *self = (Guard *)object;
    for (Py_ssize_t k = 0; k < self->watches; k++) {
        Py_VISIT(self->watch[k].thing);
        Py_VISIT(self->watch[k].dict);
        Py_VISIT(self->watch[k].type);
        Py_VISIT(self->watch[k].items);
        Py_VISIT(self->watch[k].sets);
        Py_VISIT(self->watch[k].mro);
    }
    Py_VISIT((PyObject *)self->program);
    Py_VISIT(self->free);
    return 0;
}

static int guard_clear(PyObject *object)
{
    Guard *self = (Guard *)object;
    const Py_ssize_t watches = self->watches;
    self->watches = 0;
    Py_CLEAR(self->program); /* without which nothing is run any more */
    Py_CLEAR(self->free);
    for (Py_ssize_t k = 0; k < watches; k++) {
        Py_CLEAR(self->watch[k].thing);
        Py_CLEAR(self->watch[k].dict);
        Py_CLEAR(self->watch[k].type);
        Py_CLEAR(self->watch[k].items);
        Py_CLEAR(self->watch[k].sets);
        Py_CLEAR(self->watch[k].mro);
    }
    return 0;
}

static void guard_dealloc(PyObject *object)
{
    Guard *self = (Guard *)object;
    PyObject_GC_UnTrack(object);
    guard_clear(object);
    PyMem_Free(self->watch);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *guard_program(PyObject *object, void *ignored)
{
    (void)ignored;
    PyObject *program = (PyObject *)((Guard *)object)->program;
    return own(program ? program : Py_None);
}

static PyMethodDef guard_methods[] = {
    {"run", guard_run, METH_NOARGS, "run(): the program, if what is watched is as it was; whether it was done."},
    {"holds", guard_holds, METH_NOARGS, "holds(): whether what is watched is as it was, but for what forward passes set."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef guard_getset[] = {
    {"program", guard_program, NULL, "The program that runs.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject guard_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Guard",
    .tp_basicsize = sizeof(Guard),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Guard(program without operands, watches, free, forward): a watch is (object, its values[, what forward passes set]); "
              "free stands for any value; forward: the program sets these.",
    .tp_new = guard_new,
    .tp_traverse = guard_traverse,
    .tp_clear = guard_clear,
    .tp_dealloc = guard_dealloc,
    .tp_methods = guard_methods,
    .tp_getset = guard_getset,
};

#endif
