/* Programs: kernels that run one after the other, on operands whose addresses are given when they run. Part of fastpath.c.
 *
 * Everything that runs a second time is one: an assignment, a call of a primitive, a prepared assignment, a pass of a
 * network or of variables. Python makes them, see run/program.py. A program never changes.
 */
#ifndef NL_FASTPATH_PROGRAM_H
#define NL_FASTPATH_PROGRAM_H

#include "fastpath_words.h"
#include "fastpath_device.h"
#include <stddef.h>
#include <structmember.h>
#include <time.h>

typedef int (*Kernel)(const union nl_word *);

enum {
    FEW_WORDS = 512,  /* arguments of the kernels of a program that are on the stack */
    FEW_STEPS = 16,   /* kernels without a look for Ctrl-C */
    SIGNALS_EVERY = 20 * 1000 * 1000, /* nanoseconds of kernels, after which it is looked for */
};

typedef struct {
    Kernel kernel;
    int words;
} Step;

/* An argument that is not known before the program runs: where it is found. Its constant is in the words already. */
typedef struct {
    int32_t at, which;
    enum source source;
} Patch;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Py_ssize_t hits;
    int steps, given, patches, operands, numbers; /* the last two: how many it takes */
    int release;  /* whether to release the interpreter lock: the kernels are long, or run on several threads */
    int forks;    /* whether it may run in a forked process, where no thread may be started */
    int64_t memory; /* bytes of working memory */
    const struct nl_device *device; /* where the one step runs; NULL: on the host */
    Step *step;
    union nl_word *word;
    Patch *patch;
    PyObject *keep;    /* owners of the memory of kernels and their constants; NULL: cleared, it cannot run */
    PyObject *refused; /* the message of an error if there is no memory */
    PyObject *python;  /* a function that runs it where there are no kernels, or these may not run; NULL: there is none */
} Program;

static int serial; /* whether this is a forked process, in which no thread may be started */

static PyObject *kept_memory, *lend, *name_memory; /* of workspace.py */

/* (a function of Python): called; an exception of its own stays set, and ends the run. Kernels may run without the lock. */
static int call_function(const union nl_word *given)
{
    const PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *done = PyObject_CallNoArgs(given[0].pointer);
    Py_XDECREF(done);
    PyGILState_Release(lock);
    return done ? 0 : -1;
}

/* The exception for a program that stopped at a kernel, by refuse() of program.py. */
static void refuse(const Program *program, const int status)
{
    PyObject *module = PyImport_ImportModule("neonlike.kernels.run.program");
    PyObject *answer = module ? PyObject_CallMethod(module, "refuse", "Oi", program->refused, status) : NULL;
    Py_XDECREF(answer);
    Py_XDECREF(module);
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

/* Running --------------------------------------------------------------------------------------------------------- */

/* The arguments of all kernels; `begin`: of working memory. */
static void fill_words(const Program *self, union nl_word *words, char *const *operands, const Number *numbers, char *begin)
{
    if (self->given)
        memcpy(words, self->word, sizeof *words * (size_t)self->given);
    for (const Patch *patch = self->patch; patch < self->patch + self->patches; patch++) {
        union nl_word *word = &words[patch->at];
        switch (patch->source) {
        case OPERAND: word->pointer = operands[patch->which] + word->integer; break;
        case WHOLE: word->integer = numbers[patch->which].integer; break;
        case REAL: word->real = numbers[patch->which].real; break;
        case MEMORY: word->pointer = begin + word->integer; break;
        case THREADS: word->integer = serial ? 1 : word->integer; break;
        default: break;
        }
    }
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Run kernels from `first` on until one fails, or long ones take their time; which would be the next. */
static int run_some(const Program *self, int first, const union nl_word **words, int *status)
{
    const int watched = self->steps > FEW_STEPS;
    const int64_t end = watched ? now() + SIGNALS_EVERY : 0;
    while (first < self->steps && !(*status = self->step[first].kernel(*words))) {
        *words += self->step[first++].words;
        if (watched && now() > end)
            break;
    }
    return first;
}

/* Run the kernels; how many ran. `status`: what the next one returned, 0 if a signal stopped it, with an exception. */
static int run_kernels(const Program *self, const union nl_word *words, int *status)
{
    int next = 0;
    *status = 0;
    while (next < self->steps && !*status) {
        PyThreadState *state = self->release ? PyEval_SaveThread() : NULL;
        next = run_some(self, next, &words, status);
        if (state)
            PyEval_RestoreThread(state);
        if (next < self->steps && !*status && PyErr_CheckSignals())
            break;
    }
    return next;
}

/* A program about to run, with its arguments. */
typedef struct {
    Program *program;
    PyObject *memory;
    union nl_word *words, few[FEW_WORDS];
} Run;

/* Take all that a run needs; -1 without memory. The operands have to live until finish_run(), which has to follow else. */
static int begin_run(Run *run, Program *program, char *const *operands, const Number *numbers)
{
    run->program = (Program *)own((PyObject *)program); /* others may forget it from the first code of theirs on */
    run->memory = program->keep && program->memory ? lent(program->memory) : NULL;
    run->words = run->few;
    int failed = !program->keep || (program->memory && !run->memory);
    if (!failed && program->given > FEW_WORDS)
        failed = !(run->words = PyMem_Malloc(sizeof *run->words * (size_t)program->given));
    if (failed) {
        PyErr_Clear(); /* Python has other means, or says so */
        Py_XDECREF(run->memory);
        Py_DECREF(run->program);
        return -1;
    }
    fill_words(program, run->words, operands, numbers, run->memory ? PyLong_AsVoidPtr(PyTuple_GET_ITEM(run->memory, 1)) : NULL);
    return 0;
}

/* Run it; how many steps ran. `status` as of run_kernels(). */
static int finish_run(Run *run, int *status)
{
    Program *program = run->program;
    int done = 0;
    *status = 0;
    if (program->device) {
        PyThreadState *state = program->release ? PyEval_SaveThread() : NULL;
        done = start_on_device(program->device, run->words, program->given) ? 0 : program->steps;
        if (state)
            PyEval_RestoreThread(state);
    } else
        done = run_kernels(program, run->words, status);
    program->hits += done == program->steps;
    if (run->words != run->few)
        PyMem_Free(run->words);
    Py_XDECREF(run->memory);
    Py_DECREF(program);
    return done;
}

/* Whether Python's function runs it. */
static int is_python(const Program *self)
{
    return self->python && (!self->steps || (serial && !self->forks));
}

/* Whether Python's function ran it on these operands, with `functions` that came in the call; -1 with an exception. */
static int run_python(const Program *self, char *const *operands, PyObject *functions)
{
    PyObject *addresses = PyTuple_New(self->operands), *done = NULL;
    int failed = !addresses || !functions;
    for (int k = 0; k < self->operands && !failed; k++) {
        PyObject *address = operands[k] ? PyLong_FromVoidPtr(operands[k]) : own(Py_None);
        failed = !address;
        PyTuple_SET_ITEM(addresses, k, address);
    }
    PyObject *python = own(self->python); /* others may forget the program from here on */
    if (!failed)
        done = PyObject_CallFunctionObjArgs(python, addresses, functions, NULL);
    Py_XDECREF(python);
    Py_XDECREF(addresses);
    const int truth = done ? PyObject_IsTrue(done) : -1;
    Py_XDECREF(done);
    return truth;
}

/* Run a program that cannot be run otherwise; -1: with an exception. */
static int run_or_refuse(Program *self, char *const *operands)
{
    Run run;
    int status = -1;
    if (!begin_run(&run, self, operands, NULL) && finish_run(&run, &status) == self->steps)
        return 0;
    if (!PyErr_Occurred())
        refuse(self, status);
    return -1;
}

/* Making ---------------------------------------------------------------------------------------------------------- */

/* An argument from (source, value), or of an operand (source, which, distance); -1 if it is none. */
static int read_word(Program *self, PyObject *given, const int at)
{
    int source;
    long long value, distance = 0;
    if (!PyTuple_CheckExact(given) || !PyArg_ParseTuple(given, "iL|L", &source, &value, &distance))
        return -1;
    const int64_t limits[SOURCES] = {
        [PLAIN] = INT64_MAX, [OPERAND] = self->operands, [WHOLE] = self->numbers, [REAL] = self->numbers,
        [MEMORY] = self->memory + 1, [THREADS] = INT64_MAX,
    };
    if (source < 0 || source >= SOURCES || (source != PLAIN && (value < 0 || value >= limits[source])))
        return -1;
    const int which = source == OPERAND || source == WHOLE || source == REAL ? (int)value : 0;
    self->word[at].integer = source == OPERAND ? distance : value;
    if (source != PLAIN)
        self->patch[self->patches++] = (Patch){at, which, (enum source)source};
    return 0;
}

/* Room for the steps and all their arguments; -1 if there is none, or they are none. */
static int make_room(Program *self, PyObject *steps)
{
    Py_ssize_t words = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(steps); k++) {
        PyObject *step = PyTuple_GET_ITEM(steps, k);
        if (!PyTuple_Check(step) || PyTuple_GET_SIZE(step) != 2 || !PyTuple_Check(PyTuple_GET_ITEM(step, 1)))
            return -1;
        words += PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, 1));
    }
    self->step = PyMem_Calloc((size_t)PyTuple_GET_SIZE(steps) + 1, sizeof *self->step);
    self->word = PyMem_Calloc((size_t)words + 1, sizeof *self->word);
    self->patch = PyMem_Calloc((size_t)words + 1, sizeof *self->patch);
    return self->step && self->word && self->patch && words < INT32_MAX ? 0 : -1;
}

static int read_steps(Program *self, PyObject *steps)
{
    if (make_room(self, steps))
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(steps); k++) {
        PyObject *words = PyTuple_GET_ITEM(PyTuple_GET_ITEM(steps, k), 1);
        void *entry = PyLong_AsVoidPtr(PyTuple_GET_ITEM(PyTuple_GET_ITEM(steps, k), 0));
        if (!entry)
            return -1;
        self->step[self->steps++] = (Step){(Kernel)(uintptr_t)entry, (int)PyTuple_GET_SIZE(words)};
        for (Py_ssize_t word = 0; word < PyTuple_GET_SIZE(words); word++)
            if (read_word(self, PyTuple_GET_ITEM(words, word), self->given++))
                return -1;
    }
    return 0;
}

static PyObject *program_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named);

/* Program(*what run/program.py has): see there. */
static PyObject *program_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *steps, *keep, *refused, *python;
    int operands, numbers, on_device, release, forks;
    long long memory;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!iiLpppUOO", &PyTuple_Type, &steps, &operands, &numbers, &memory, &on_device, &release,
                          &forks, &refused, &keep, &python))
        return NULL;
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = program_call;
    self->operands = operands, self->numbers = numbers, self->memory = memory;
    self->release = release, self->forks = forks;
    if (read_steps(self, steps) || (on_device && self->steps != 1)) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "Program: steps or arguments that are none");
    }
    self->device = on_device ? (const struct nl_device *)(uintptr_t)self->step[0].kernel : NULL;
    self->refused = own(refused);
    self->keep = own(keep);
    self->python = python == Py_None ? NULL : own(python);
    return (PyObject *)self;
}

/* The addresses of operands, integers or None; -1 with an exception. */
static int read_addresses(const Program *self, PyObject *const *given, Py_ssize_t count, char **operands)
{
    if (count != self->operands || self->numbers) {
        PyErr_Format(PyExc_TypeError, "a program of %d operands and %d numbers: got %zd addresses", self->operands,
                     self->numbers, count);
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++)
        operands[k] = given[k] == Py_None ? NULL : PyLong_AsVoidPtr(given[k]);
    return PyErr_Occurred() ? -1 : 0;
}

/* program(*addresses): run it; MemoryError if there is no memory for it. */
static PyObject *program_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    Program *self = (Program *)object;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged);
    if (named)
        return PyErr_Format(PyExc_TypeError, "a program takes addresses");
    char **operands = PyMem_Malloc(sizeof *operands * (size_t)(count + 1));
    int failed = !operands || read_addresses(self, given, count, operands);
    if (!failed && is_python(self)) {
        PyObject *functions = PyList_New(0);
        failed = run_python(self, operands, functions) < 0;
        Py_XDECREF(functions);
    } else if (!failed)
        failed = run_or_refuse(self, operands);
    PyMem_Free(operands);
    if (failed)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* The items of a tuple of integers as numbers, to be freed; NULL with an exception if it has others. */
static Number *integers_of(PyObject *given)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(given);
    Number *numbers = PyMem_Malloc(sizeof *numbers * (size_t)(count + 1));
    if (!numbers)
        PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < count && !PyErr_Occurred(); k++)
        numbers[k] = (Number){0, PyLong_AsLongLong(PyTuple_GET_ITEM(given, k)), 0};
    if (PyErr_Occurred()) {
        PyMem_Free(numbers);
        return NULL;
    }
    return numbers;
}

/* run_on(tensors, integers): on the memory of these; False if there is none for a kernel, or no thread may be started. */
static PyObject *program_run_on(PyObject *object, PyObject *given)
{
    Program *self = (Program *)object;
    PyObject *tensors, *integers;
    Run run;
    int status, done = 0;
    if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &tensors, &PyTuple_Type, &integers))
        return NULL;
    if (PyTuple_GET_SIZE(tensors) != self->operands || PyTuple_GET_SIZE(integers) != self->numbers)
        return PyErr_Format(PyExc_TypeError, "run_on: tuples of %d tensors and %d integers", self->operands, self->numbers);
    Number *numbers = integers_of(integers);
    char **operands = numbers ? PyMem_Malloc(sizeof *operands * (size_t)(self->operands + 1)) : NULL;
    if (!numbers)
        return NULL;
    int failed = !operands || (serial && !self->forks);
    for (int k = 0; k < self->operands && !failed; k++) {
        Place *place = place_of(PyTuple_GET_ITEM(tensors, k));
        failed = !place;
        if (place)
            operands[k] = place->address;
        Py_XDECREF(place); /* the tensor has it */
    }
    PyErr_Clear();
    if (!failed && !begin_run(&run, self, operands, numbers))
        done = finish_run(&run, &status) == self->steps;
    PyMem_Free(operands);
    PyMem_Free(numbers);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

static int program_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Program *)object)->keep);
    Py_VISIT(((Program *)object)->python);
    return 0;
}

static int program_clear(PyObject *object)
{
    Py_CLEAR(((Program *)object)->keep); /* without which it is not run any more */
    Py_CLEAR(((Program *)object)->python);
    return 0;
}

static void program_dealloc(PyObject *object)
{
    Program *self = (Program *)object;
    PyObject_GC_UnTrack(object);
    program_clear(object);
    Py_XDECREF(self->refused);
    PyMem_Free(self->step);
    PyMem_Free(self->word);
    PyMem_Free(self->patch);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef program_methods[] = {
    {"run_on", program_run_on, METH_VARARGS, "run_on(tensors, integers): run it on the memory of these; whether it was done."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef program_members[] = {
    {"kernels", T_INT, offsetof(Program, steps), READONLY, "How many kernels it has."},
    {"hits", T_PYSSIZET, offsetof(Program, hits), READONLY, "How often all of them ran."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject program_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Program(*program of run/program.py): kernels one after the other; call it with the addresses of operands.",
    .tp_vectorcall_offset = offsetof(Program, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = program_new,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_dealloc = program_dealloc,
    .tp_methods = program_methods,
    .tp_members = program_members,
};

#endif
