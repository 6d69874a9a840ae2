/* Launches: the kernels of assignments seen before, by key. Part of fastpath.c. */
#ifndef NL_FASTPATH_LAUNCHES_H
#define NL_FASTPATH_LAUNCHES_H

#include "fastpath_walk.h"
#include <stddef.h>
#include <structmember.h>
#include "fastpath_device.h"

enum { TABLE = 2048 };
enum answer { LEFT, DONE, NEW, ANSWERS };

static PyObject *answers[ANSWERS]; /* Python's names of these, see Replayed in recipe.py */

static int serial; /* whether this is a forked process, in which no thread may be started */

typedef int (*Kernel)(const union nl_word *);

enum { MOST_WORDS = MAX_LEAVES + MAX_TARGETS + MAX_NUMBERS + 3 };

typedef struct {
    uint64_t hash;
    int words, inputs, outputs, numbers;
    int release; /* whether to release the interpreter lock: the kernel is long, or runs on several threads */
    Kernel kernel; /* NULL: known to have none */
    void *meta;
    int64_t count, threads; /* threads 0: meta is a struct nl_device */
    PyObject *keep; /* owners of the memory of kernel and meta */
    int64_t *word;
    uint8_t slot[]; /* of inputs, outputs and numbers; twice the slot, and 1 for a real, of a number */
} Launch;

typedef struct {
    PyObject_HEAD
    PyTypeObject *tensor_type;
    Py_ssize_t used, hits;
    Launch *table[TABLE];
} Launches;

static void free_launch(Launch *launch)
{
    PyObject *keep = launch->keep;
    PyMem_Free(launch->word);
    PyMem_Free(launch);
    Py_XDECREF(keep);
}

static void clear_launches(Launches *self)
{
    for (size_t slot = 0; self->used && slot < TABLE; slot++) {
        Launch *launch = self->table[slot];
        self->table[slot] = NULL;
        if (launch) {
            self->used--;
            free_launch(launch);
        }
    }
}

/* The table entry of the walk's key, or the free one for it. */
static Launch **find(Launches *self)
{
    const size_t bytes = sizeof(int64_t) * (size_t)walk.words;
    for (size_t slot = walk.hash % TABLE;; slot = (slot + 1) % TABLE) {
        const Launch *at = self->table[slot];
        if (!at || (at->hash == walk.hash && at->words == walk.words && !memcmp(at->word, walk.word, bytes)))
            return &self->table[slot];
    }
}

/* Call the kernel on the operands found by the walk, and end the walk. */
static enum answer start(Launches *self, const Launch *launch)
{
    union nl_word words[MOST_WORDS], *word = words;
    const uint8_t *slot = launch->slot;
    for (int k = 0; k < launch->inputs; k++)
        word++->pointer = walk.leaf[*slot++]->address;
    for (int k = 0; k < launch->outputs; k++)
        word++->pointer = walk.target[*slot++]->address;
    for (int k = 0; k < launch->numbers; k++, slot++, word++) {
        const Number *number = &walk.number[*slot >> 1];
        if (*slot & 1)
            word->real = number->real;
        else
            word->integer = number->integer;
    }
    const Kernel kernel = launch->kernel;
    const struct nl_device *device = launch->threads ? NULL : launch->meta;
    const int count = (int)(word - words);
    if (!device) {
        word++->pointer = launch->meta;
        word++->integer = launch->count;
        word->integer = serial ? 1 : launch->threads;
    }
    end_walk(); /* the caller has the tensors, and so the addresses */
    int failed;
    self->hits++;
    if (!launch->release)
        failed = device ? start_on_device(device, words, count) : kernel(words);
    else {
        PyObject *keep = launch->keep; /* others may clear the table now */
        Py_INCREF(keep);
        Py_BEGIN_ALLOW_THREADS
        failed = device ? start_on_device(device, words, count) : kernel(words);
        Py_END_ALLOW_THREADS
        Py_DECREF(keep);
    }
    return failed ? LEFT : DONE; /* no memory: Python has other means */
}

static PyObject *answered(Launches *self, int failed)
{
    enum answer answer = LEFT;
    Launch *launch = NULL;
    if (!failed) {
        launch = *find(self);
        answer = launch ? LEFT : NEW;
    }
    if (launch && launch->kernel && (launch->threads || !serial)) /* no driver works in a forked process */
        answer = start(self, launch);
    else
        end_walk();
    return own(answers[answer]);
}

static PyObject *launches_run(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Launches *self = (Launches *)object;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "run(backend, target, value)");
        return NULL;
    }
    if (walk.busy)
        return own(answers[LEFT]);
    begin_walk();
    return answered(self, add_target(given[0], given[1], given[2], self->tensor_type) || put_targets());
}

static PyObject *launches_run_many(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Launches *self = (Launches *)object;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "run_many(backend, pairs)");
        return NULL;
    }
    if (walk.busy)
        return own(answers[LEFT]);
    begin_walk();
    return answered(self, walk_pairs(given[0], given[1], self->tensor_type));
}

/* Slots from a tuple, checked against the operands found by the walk. */
static int read_slots(PyObject *tuple, uint8_t *slot, int limit)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); k++) {
        const long value = PyLong_AsLong(PyTuple_GET_ITEM(tuple, k));
        if (value < 0 || value >= limit)
            return -1;
        slot[k] = (uint8_t)value;
    }
    return 0;
}

/* A new launch for the walk's key; NULL if the recipe does not fit it. See Recipe in run/recipe.py. */
static Launch *new_launch(PyObject *recipe)
{
    PyObject *inputs, *outputs, *numbers, *keep = NULL;
    unsigned long long kernel = 0, meta = 0;
    long long count = 0, threads = 0;
    int release = 0, leaves = 0, met = 0;
    inputs = outputs = numbers = NULL;
    if (recipe != Py_None
        && !PyArg_ParseTuple(recipe, "KiiO!O!O!KLLpO", &kernel, &leaves, &met, &PyTuple_Type, &inputs, &PyTuple_Type,
                             &outputs, &PyTuple_Type, &numbers, &meta, &count, &threads, &release, &keep))
        return NULL;
    const Py_ssize_t n = inputs ? PyTuple_GET_SIZE(inputs) : 0, m = outputs ? PyTuple_GET_SIZE(outputs) : 0;
    const Py_ssize_t p = numbers ? PyTuple_GET_SIZE(numbers) : 0;
    if (n > MAX_LEAVES || m > MAX_TARGETS || p > MAX_NUMBERS || (keep && (leaves != walk.leaves || met != walk.numbers)))
        return NULL;
    Launch *launch = PyMem_Calloc(1, sizeof *launch + (size_t)(n + m + p));
    int64_t *word = PyMem_Malloc(sizeof *word * (size_t)walk.words);
    int bad = !launch || !word;
    if (!bad && keep) {
        bad = read_slots(inputs, launch->slot, walk.leaves) || read_slots(outputs, launch->slot + n, walk.targets)
              || read_slots(numbers, launch->slot + n + m, 2 * walk.numbers);
        for (Py_ssize_t k = 0; k < p && !bad; k++) {
            const uint8_t slot = launch->slot[n + m + k];
            bad = !(slot & 1) && walk.number[slot >> 1].is_real; /* integers are computed with integers only */
        }
    }
    if (bad) {
        PyMem_Free(launch);
        PyMem_Free(word);
        return NULL;
    }
    memcpy(word, walk.word, sizeof *word * (size_t)walk.words);
    launch->hash = walk.hash, launch->words = walk.words, launch->word = word;
    launch->inputs = (int)n, launch->outputs = (int)m, launch->numbers = (int)p;
    launch->kernel = (Kernel)(uintptr_t)kernel, launch->meta = (void *)(uintptr_t)meta;
    launch->count = count, launch->threads = threads, launch->release = release, launch->keep = keep;
    Py_XINCREF(keep);
    return launch;
}

static PyObject *launches_learn(PyObject *object, PyObject *given)
{
    Launches *self = (Launches *)object;
    PyObject *backend, *pairs, *recipe;
    if (!PyArg_ParseTuple(given, "OOO", &backend, &pairs, &recipe))
        return NULL;
    if (walk.busy)
        Py_RETURN_NONE;
    begin_walk();
    if (!walk_pairs(backend, pairs, self->tensor_type)) {
        if (self->used >= TABLE / 2)
            clear_launches(self);
        Launch **place = find(self), *launch = *place ? NULL : new_launch(recipe);
        if (launch) {
            *place = launch;
            self->used++;
        }
    }
    end_walk();
    Py_RETURN_NONE;
}

static PyObject *launches_clear(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    clear_launches((Launches *)object);
    Py_RETURN_NONE;
}

static PyObject *launches_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyTypeObject *tensor_type;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!", &PyType_Type, &tensor_type))
        return NULL;
    Launches *self = (Launches *)type->tp_alloc(type, 0);
    if (self) {
        Py_INCREF(tensor_type);
        self->tensor_type = tensor_type;
    }
    return (PyObject *)self;
}

static void launches_dealloc(PyObject *object)
{
    Launches *self = (Launches *)object;
    clear_launches(self);
    Py_XDECREF(self->tensor_type);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef launches_methods[] = {
    {"run", (PyCFunction)(void (*)(void))launches_run, METH_FASTCALL,
     "run(backend, target, value): make the assignment if it was learned; one of the answers that set_up() was given."},
    {"run_many", (PyCFunction)(void (*)(void))launches_run_many, METH_FASTCALL,
     "run_many(backend, pairs): as run(), for a list or tuple of pairs (target, value)."},
    {"learn", launches_learn, METH_VARARGS, "learn(backend, pairs, recipe): what to do from now on; None: nothing."},
    {"clear", launches_clear, METH_NOARGS, "Forget everything."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef launches_members[] = {
    {"used", T_PYSSIZET, offsetof(Launches, used), READONLY, "Keys learned."},
    {"hits", T_PYSSIZET, offsetof(Launches, hits), READONLY, "Kernels started."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject launches_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Launches",
    .tp_basicsize = sizeof(Launches),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Launches(tensor type): the assignments of a backend that were seen before.",
    .tp_new = launches_new,
    .tp_dealloc = launches_dealloc,
    .tp_methods = launches_methods,
    .tp_members = launches_members,
};

#endif
