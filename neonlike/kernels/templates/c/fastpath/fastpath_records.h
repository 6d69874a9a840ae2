/* Records: passes of a network that were made before, made again as long as nothing has changed that they depend on. Part
 * of fastpath.c.
 *
 * A pass (backends/replays.py) calls the same kernels on the same memory whenever the objects that it is made of are
 * as they were: their classes, their attributes and the lists and dictionaries among these, value by value. A record has
 * the kernels with all their arguments, and *watches* these objects. Values are compared by identity, without any code of
 * Python's, so that nothing can change between the look and the start.
 */
#ifndef NL_FASTPATH_RECORDS_H
#define NL_FASTPATH_RECORDS_H

#include "fastpath_fixed.h"
#include <time.h>

enum { SIGNALS_EVERY = 20 * 1000 * 1000 }; /* nanoseconds of kernels, after which Ctrl-C is looked for */

/* An object and what it has to hold: a list its items; a dictionary, or else the object's attributes, keys and values. */
typedef struct {
    PyObject *thing, *dict; /* dict: NULL for a list */
    PyTypeObject *type;
    unsigned int tag; /* of the type, which has another one once it or one of its bases has changed */
    uint64_t version; /* of the dictionary when it was looked through last */
    PyObject *items;
} Watch;

typedef struct {
    PyObject_HEAD
    Py_ssize_t hits, watches, steps, given, insides;
    int64_t memory;
    Watch *watch;
    Step *step;
    union nl_word *words;
    Py_ssize_t *inside;  /* words that are distances in working memory */
    PyObject *keep; /* all that the words have addresses of; NULL while it is being made */
} Record;

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

static int has_items(PyObject *dict, PyObject *items)
{
    Py_ssize_t at = 0, k = 0;
    PyObject *key, *value;
    if (2 * PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(items))
        return 0;
    for (; PyDict_Next(dict, &at, &key, &value); k += 2)
        if (key != PyTuple_GET_ITEM(items, k) || value != PyTuple_GET_ITEM(items, k + 1))
            return 0;
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

static int is_as_it_was(Watch *watch)
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
    }
    const uint64_t version = version_of(watch->dict);
    if (version && version == watch->version)
        return 1;
    if (!has_items(watch->dict, watch->items))
        return 0;
    watch->version = version;
    return 1;
}

/* A watch from (thing, items); -1 if there is no way to watch it. */
static int read_watch(PyObject *pair, Watch *watch)
{
    PyObject *thing, *items;
    if (!PyTuple_CheckExact(pair) || !PyArg_ParseTuple(pair, "OO!", &thing, &PyTuple_Type, &items))
        return -1;
    watch->thing = own(thing);
    watch->items = own(items);
    watch->type = (PyTypeObject *)own((PyObject *)Py_TYPE(thing));
    if (PyList_Check(thing))
        return is_as_it_was(watch) ? 0 : -1;
    if (PyDict_Check(thing))
        watch->dict = own(thing);
    else {
        PyObject *found = PyObject_GetAttrString(thing, "__class__"); /* looking into a class gives it a version */
        Py_XDECREF(found);
        watch->dict = PyObject_GenericGetDict(thing, NULL);
        watch->tag = tag_of(watch->type);
        if (!found || !watch->dict || !watch->tag)
            return -1;
    }
    return is_as_it_was(watch) ? 0 : -1;
}

/* Kernels ---------------------------------------------------------------------------------------------------------- */

/* Room for so many steps and words more; -1 without memory. */
static int grow(Record *self, Py_ssize_t steps, Py_ssize_t words)
{
    Step *step = PyMem_Realloc(self->step, sizeof *step * (size_t)(self->steps + steps));
    if (step)
        self->step = step;
    union nl_word *word = PyMem_Realloc(self->words, sizeof *word * (size_t)(self->given + words + 1));
    if (word)
        self->words = word;
    Py_ssize_t *inside = PyMem_Realloc(self->inside, sizeof *inside * (size_t)(self->insides + words + 1));
    if (inside)
        self->inside = inside;
    return step && word && inside ? 0 : -1;
}

/* Has working memory at least so many bytes? What several kernels work in is the same memory. */
static void needs(Record *self, int64_t memory)
{
    self->memory = memory > self->memory ? memory : self->memory;
}

/* A kernel from (entry, arguments, which is working memory, bytes of that). */
static int read_kernel(Record *self, PyObject *kernel)
{
    unsigned long long entry;
    const char *words;
    Py_ssize_t bytes;
    int work_at;
    long long work;
    if (!PyArg_ParseTuple(kernel, "Ky#iL", &entry, &words, &bytes, &work_at, &work))
        return -1;
    const Py_ssize_t count = bytes / (Py_ssize_t)sizeof(union nl_word);
    if (work_at >= count || grow(self, 1, count))
        return -1;
    memcpy(self->words + self->given, words, (size_t)bytes);
    if (work_at >= 0) {
        self->words[self->given + work_at].integer = 0;
        self->inside[self->insides++] = self->given + work_at;
        needs(self, work);
    }
    self->step[self->steps++] = (Step){(Kernel)(uintptr_t)entry, (int)count};
    self->given += count;
    return 0;
}

/* The kernels of an assignment from (fixed, bases). */
static int read_fixed(Record *self, const Launch *launch, PyObject *tensors)
{
    if (launch->device || !PyList_CheckExact(tensors) || grow(self, launch->steps, launch->given))
        return -1;
    for (int k = 0; k < launch->given; k++) {
        const Word *from = &launch->argument[k];
        union nl_word *word = &self->words[self->given + k];
        word->integer = from->value;
        if (from->source == MEMORY)
            self->inside[self->insides++] = self->given + k;
        else if (from->source == BASE) {
            Place *place = from->base < PyList_GET_SIZE(tensors) ? place_of(PyList_GET_ITEM(tensors, from->base)) : NULL;
            if (!place)
                return -1;
            word->pointer = place->address + from->value;
            Py_DECREF(place); /* the tensor has it */
        }
    }
    needs(self, launch->memory);
    memcpy(self->step + self->steps, launch->step, sizeof(Step) * (size_t)launch->steps);
    self->steps += launch->steps;
    self->given += launch->given;
    return 0;
}

static int read_one(Record *self, PyObject *kernel)
{
    if (!PyTuple_CheckExact(kernel) || !PyTuple_GET_SIZE(kernel))
        return -1;
    PyObject *first = PyTuple_GET_ITEM(kernel, 0);
    if (Py_TYPE(first) == &fixed_type && PyTuple_GET_SIZE(kernel) == 2)
        return read_fixed(self, ((Fixed *)first)->launch, PyTuple_GET_ITEM(kernel, 1));
    return read_kernel(self, kernel);
}

/* The type --------------------------------------------------------------------------------------------------------- */

static PyObject *record_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *kernels, *watches, *keep;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!O!O", &PyTuple_Type, &kernels, &PyTuple_Type, &watches, &keep))
        return NULL;
    Record *self = (Record *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(watches);
    int failed = !(self->watch = PyMem_Calloc((size_t)count + 1, sizeof *self->watch));
    for (Py_ssize_t k = 0; k < count && !failed; k++)
        failed = read_watch(PyTuple_GET_ITEM(watches, k), &self->watch[self->watches++]);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kernels) && !failed; k++)
        failed = read_one(self, PyTuple_GET_ITEM(kernels, k));
    if (failed) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "Record: a kernel or watch that cannot be repeated");
    }
    self->keep = PyTuple_Pack(2, keep, kernels);
    if (!self->keep)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Run kernels from `first` on until there is one without memory, or some time has passed; which would be the next. */
static Py_ssize_t run_some(const Record *self, Py_ssize_t first, union nl_word **words, int *failed)
{
    const int64_t end = now() + SIGNALS_EVERY;
    while (first < self->steps && !(*failed = self->step[first].kernel(*words))) {
        *words += self->step[first++].words;
        if (now() > end)
            break;
    }
    return first;
}

/* Run all of them, on a copy of their arguments; 1: it was done, 0: none was, -1: an exception. */
static int run_kernels(const Record *self, union nl_word *words, char *begin)
{
    Py_ssize_t next = 0;
    int failed = 0;
    if (self->given) /* else there may be no memory of them to copy from */
        memcpy(words, self->words, sizeof *words * (size_t)self->given);
    for (Py_ssize_t k = 0; k < self->insides; k++)
        words[self->inside[k]].pointer = begin + words[self->inside[k]].integer;
    while (next < self->steps) {
        Py_BEGIN_ALLOW_THREADS
        next = run_some(self, next, &words, &failed);
        Py_END_ALLOW_THREADS
        if (failed) {
            if (next)
                refuse(failed);
            return next ? -1 : 0;
        }
        if (next < self->steps && PyErr_CheckSignals())
            return -1;
    }
    return 1;
}

static PyObject *record_run(PyObject *object, PyObject *ignored)
{
    Record *self = (Record *)object;
    PyObject *memory = NULL;
    (void)ignored;
    if (serial || !self->keep)
        Py_RETURN_FALSE;
    fetch_ahead(self->watch, self->watches);
    for (Py_ssize_t k = 0; k < self->watches; k++)
        if (!is_as_it_was(&self->watch[k]))
            Py_RETURN_FALSE;
    if (self->insides && !(memory = lent(self->memory)))
        PyErr_Clear(); /* Python says so */
    int done = 0;
    union nl_word *words = self->insides && !memory ? NULL : PyMem_Malloc(sizeof *words * (size_t)(self->given + 1));
    if (words) {
        Py_INCREF(object);
        done = run_kernels(self, words, memory ? PyLong_AsVoidPtr(PyTuple_GET_ITEM(memory, 1)) : NULL);
        self->hits += done > 0;
        PyMem_Free(words);
        Py_DECREF(object);
    }
    Py_XDECREF(memory);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static int record_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Record *self = (Record *)object;
    for (Py_ssize_t k = 0; k < self->watches; k++) {
        Py_VISIT(self->watch[k].thing);
        Py_VISIT(self->watch[k].dict);
        Py_VISIT(self->watch[k].type);
        Py_VISIT(self->watch[k].items);
    }
    Py_VISIT(self->keep);
    return 0;
}

static int record_clear(PyObject *object)
{
    Record *self = (Record *)object;
    const Py_ssize_t watches = self->watches;
    self->watches = 0;
    Py_CLEAR(self->keep); /* without which it is not run any more */
    for (Py_ssize_t k = 0; k < watches; k++) {
        Py_CLEAR(self->watch[k].thing);
        Py_CLEAR(self->watch[k].dict);
        Py_CLEAR(self->watch[k].type);
        Py_CLEAR(self->watch[k].items);
    }
    return 0;
}

static void record_dealloc(PyObject *object)
{
    Record *self = (Record *)object;
    PyObject_GC_UnTrack(object);
    record_clear(object);
    PyMem_Free(self->watch);
    PyMem_Free(self->step);
    PyMem_Free(self->words);
    PyMem_Free(self->inside);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef record_methods[] = {
    {"run", record_run, METH_NOARGS, "run(): the kernels, if what is watched is as it was; whether it was done."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef record_members[] = {
    {"hits", T_PYSSIZET, offsetof(Record, hits), READONLY, "How often it was run."},
    {"kernels", T_PYSSIZET, offsetof(Record, steps), READONLY, "How many kernels it has."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject record_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Record",
    .tp_basicsize = sizeof(Record),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Record(kernels, watches, what is to be held): kernels on fixed operands, and (object, its values) to watch.",
    .tp_new = record_new,
    .tp_traverse = record_traverse,
    .tp_clear = record_clear,
    .tp_dealloc = record_dealloc,
    .tp_methods = record_methods,
    .tp_members = record_members,
};

#endif
