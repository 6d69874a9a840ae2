/* Launches: the kernels of assignments seen before, by key. Part of fastpath.c. */
#ifndef NL_FASTPATH_LAUNCHES_H
#define NL_FASTPATH_LAUNCHES_H

#include "fastpath_recipes.h"
#include <stddef.h>
#include <structmember.h>

enum { TABLE = 2048 };
enum answer { LEFT, DONE, NEW, ANSWERS };

static PyObject *answers[ANSWERS]; /* Python's names of these, see Replayed in recipe.py */

static int serial; /* whether this is a forked process, in which no thread may be started */

static PyObject *kept_memory, *lend, *name_memory; /* of workspace.py */

typedef struct {
    PyObject_HEAD
    PyTypeObject *tensor_type;
    Py_ssize_t used, hits;
    Launch *table[TABLE];
} Launches;

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

/* Working memory of at least so many bytes: (array, address, bytes), see held_workspace() of workspace.py. */
static PyObject *lent(int64_t needed)
{
    PyObject *held = PyObject_GetAttr(kept_memory, name_memory);
    if (held && PyTuple_CheckExact(held) && PyLong_AsLongLong(PyTuple_GET_ITEM(held, 2)) >= needed)
        return held;
    Py_XDECREF(held);
    PyErr_Clear();
    return PyObject_CallFunction(lend, "L", (long long)needed);
}

/* A launch about to be made, with its arguments: others may free the launch from the first code of theirs on. */
typedef struct {
    int steps, given, insides, release, status;
    const struct nl_device *device;
    int64_t memory;
    PyObject *keep;
    Step step[MOST_STEPS];
    union nl_word words[MOST_WORDS];
    uint16_t inside[MOST_WORDS]; /* words that are distances in working memory */
} Started;

/* What is needed of a launch, all arguments but those that are found on operands. */
static void take_launch(Started *to, const Launch *launch)
{
    to->steps = launch->steps, to->given = launch->given, to->insides = 0, to->release = launch->release, to->status = 0;
    to->device = launch->device, to->memory = launch->memory, to->keep = own(launch->keep);
    memcpy(to->step, launch->step, sizeof *to->step * (size_t)to->steps);
    for (int k = 0; k < to->given; k++) {
        const Word *from = &launch->argument[k];
        to->words[k].integer = from->source == THREADS && serial ? 1 : from->value;
        if (from->source == MEMORY)
            to->inside[to->insides++] = (uint16_t)k;
    }
}

/* The arguments of a launch that the walk found. */
static void take_walk(Started *to, const Launch *launch)
{
    for (int k = 0; k < to->given; k++) {
        const Word *from = &launch->argument[k];
        switch (from->source) {
        case LEAF: to->words[k].pointer = walk.leaf[from->base]->address + from->value; break;
        case TARGET: to->words[k].pointer = walk.target[from->base]->address + from->value; break;
        case WHOLE: to->words[k].integer = walk.number[from->value].integer; break;
        case REAL: to->words[k].real = walk.number[from->value].real; break;
        default: break;
        }
    }
}

/* Run kernels one after the other; how many ran. `status`: what the one after them returned. */
static int run_steps(const Step *step, const int steps, const union nl_word *words, int *status)
{
    for (int k = 0; k < steps; words += step[k++].words)
        if ((*status = step[k].kernel(words)))
            return k;
    return steps;
}

/* Run the kernels; how many ran. Their operands have to live meanwhile. */
static int run_started(Started *started)
{
    PyObject *memory = NULL;
    int done = 0;
    if (started->memory && (memory = lent(started->memory))) {
        char *const begin = PyLong_AsVoidPtr(PyTuple_GET_ITEM(memory, 1));
        for (int k = 0; k < started->insides; k++) {
            union nl_word *word = &started->words[started->inside[k]];
            word->pointer = begin + word->integer;
        }
    }
    if (!started->memory || memory) {
        PyThreadState *state = started->release ? PyEval_SaveThread() : NULL;
        if (started->device)
            done = start_on_device(started->device, started->words, started->given) ? 0 : started->steps;
        else
            done = run_steps(started->step, started->steps, started->words, &started->status);
        if (state)
            PyEval_RestoreThread(state);
    }
    PyErr_Clear(); /* of memory that was not lent: Python has other means */
    Py_XDECREF(memory);
    Py_DECREF(started->keep);
    return done;
}

/* Run the kernels on the operands found by the walk, and end the walk; an exception if they cannot be run again. */
static enum answer start(Launches *self, const Launch *launch)
{
    Started started;
    const int restarts = launch->restarts;
    take_launch(&started, launch);
    take_walk(&started, launch);
    end_walk(); /* the caller has the tensors, and so the addresses */
    const int done = run_started(&started);
    self->hits += done > 0;
    if (done && done < started.steps && !restarts)
        refuse(started.status);
    return done == started.steps ? DONE : LEFT;
}

static PyObject *answered(Launches *self, int failed)
{
    enum answer answer = LEFT;
    Launch *launch = NULL;
    if (!failed) {
        launch = *find(self);
        answer = launch ? LEFT : NEW;
    }
    if (launch && launch->keep && (launch->forks || !serial)) { /* no thread and no driver works in a forked process */
        answer = start(self, launch);
        if (PyErr_Occurred())
            return NULL;
    } else
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
    return answered(self, add_target(given[0], given[1], given[2], self->tensor_type) || put_targets(0));
}

static PyObject *launches_run_many(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Launches *self = (Launches *)object;
    if (count != 3 || !PyBool_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "run_many(backend, pairs, fresh)");
        return NULL;
    }
    if (walk.busy)
        return own(answers[LEFT]);
    begin_walk();
    return answered(self, walk_pairs(given[0], given[1], self->tensor_type, given[2] == Py_True));
}

static PyObject *launches_learn(PyObject *object, PyObject *given)
{
    Launches *self = (Launches *)object;
    PyObject *backend, *pairs, *recipe;
    int fresh = 0;
    if (!PyArg_ParseTuple(given, "OOO|p", &backend, &pairs, &recipe, &fresh))
        return NULL;
    if (walk.busy)
        Py_RETURN_NONE;
    begin_walk();
    if (!walk_pairs(backend, pairs, self->tensor_type, fresh)) {
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

static PyObject *launches_tape(PyObject *object, PyObject *const *given, Py_ssize_t count);
static PyObject *launches_fixed(PyObject *object, PyObject *const *given, Py_ssize_t count);

static PyMethodDef launches_methods[] = {
    {"run", (PyCFunction)(void (*)(void))launches_run, METH_FASTCALL,
     "run(backend, target, value): make the assignment if it was learned; one of the answers that set_up() was given."},
    {"run_many", (PyCFunction)(void (*)(void))launches_run_many, METH_FASTCALL,
     "run_many(backend, pairs, fresh): as run(), for a list or tuple of pairs (target, value)."},
    {"tape", (PyCFunction)(void (*)(void))launches_tape, METH_FASTCALL,
     "tape(backend, root, kept): what gradients depend on, leaves, ids of kept nodes, nodes; None: unknown."},
    {"fixed", (PyCFunction)(void (*)(void))launches_fixed, METH_FASTCALL,
     "fixed(backend, pairs, bases, fresh): a learned assignment for tensors like these; None if there is none."},
    {"learn", launches_learn, METH_VARARGS, "learn(backend, pairs, recipe, fresh=False): what to do from now on; None: nothing."},
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
