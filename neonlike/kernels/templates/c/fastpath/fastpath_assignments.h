/* Assignments seen before, found in the table by their key and made by their program. Part of fastpath.c. */
#ifndef NL_FASTPATH_ASSIGNMENTS_H
#define NL_FASTPATH_ASSIGNMENTS_H

#include "fastpath_table.h"
#include "fastpath_walk.h"

/* Run a program on the operands found by the walk, and end the walk. Should a kernel fail, Python does the assignment from
 * the beginning (LEFT). It cannot if earlier kernels may have overwritten what they read: then an exception is set. */
static enum answer start(Table *self, const Entry *entry)
{
    Run run;
    char *operands[MAX_LEAVES + MAX_TARGETS];
    Program *program = entry->program;
    const int restarts = entry->restarts, steps = program->steps;
    int status;
    for (int k = 0; k < walk.leaves; k++)
        operands[k] = walk.leaf[k]->address;
    for (int k = 0; k < walk.targets; k++)
        operands[walk.leaves + k] = walk.target[k]->address;
    const int failed = begin_run(&run, program, operands, walk.number);
    end_walk(); /* the caller has the tensors, and so the addresses */
    if (failed)
        return LEFT;
    Py_INCREF(program);
    const int done = finish_run(&run, &status);
    self->hits += done > 0;
    if (done > restarts && done < steps && !PyErr_Occurred())
        refuse(program, status);
    Py_DECREF(program);
    return done == steps ? DONE : LEFT;
}

/* Run the program of the walk's key, if the table has one; the answer for Python. `failed`: whether there is no key. */
static PyObject *run_walked(Table *self, int failed)
{
    enum answer answer = LEFT;
    const Entry *entry = NULL;
    if (!failed) {
        entry = *find(self, walk.hash, walk.word, walk.words);
        answer = entry ? LEFT : NEW;
    }
    if (entry && entry->program && (entry->program->forks || !serial)) { /* no thread, no driver works in a forked process */
        answer = start(self, entry);
        if (PyErr_Occurred())
            return NULL;
    } else
        end_walk();
    return own(answers[answer]);
}

static PyObject *table_run(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Table *self = (Table *)object;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "run(backend, target, value)");
        return NULL;
    }
    if (walk.busy)
        return own(answers[LEFT]);
    begin_walk();
    return run_walked(self, add_target(given[0], given[1], given[2], self->tensor_type) || put_targets(0));
}

static PyObject *table_run_many(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Table *self = (Table *)object;
    if (count != 3 || !PyBool_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "run_many(backend, pairs, fresh)");
        return NULL;
    }
    if (walk.busy)
        return own(answers[LEFT]);
    begin_walk();
    return run_walked(self, walk_pairs(given[0], given[1], self->tensor_type, given[2] == Py_True));
}

/* Learning -------------------------------------------------------------------------------------------------------- */

/* How many steps of a program write no target: those with none among their arguments, before the first that has one. */
static int steps_before_targets(const Program *program)
{
    int first = program->given; /* the first argument that is a target */
    for (const Patch *patch = program->patch; patch < program->patch + program->patches; patch++)
        if (patch->source == OPERAND && patch->which >= walk.leaves && patch->at < first)
            first = patch->at;
    int step = 0;
    for (int end = 0; step < program->steps && (end += program->step[step].words) <= first;)
        step++;
    return step;
}

/* Whether a target shares memory with a leaf: then it may have been read before it was written. */
static int reads_targets(void)
{
    for (int t = 0; t < walk.targets; t++)
        for (int l = 0; l < walk.leaves; l++)
            if (alias(walk.leaf[l], walk.target[t]))
                return 1;
    return 0;
}

/* Whether a program takes the operands and numbers of the walk. No kernel that takes an integer is given a real number. */
static int takes_walk(const Program *program)
{
    if (program->operands != walk.leaves + walk.targets || program->numbers != walk.numbers)
        return 0;
    for (const Patch *patch = program->patch; patch < program->patch + program->patches; patch++)
        if (patch->source == WHOLE && walk.number[patch->which].is_real)
            return 0;
    return 1;
}

static PyObject *table_learn(PyObject *object, PyObject *given)
{
    Table *self = (Table *)object;
    PyObject *backend, *pairs, *program;
    int fresh = 0;
    if (!PyArg_ParseTuple(given, "OOO|p", &backend, &pairs, &program, &fresh))
        return NULL;
    if (program != Py_None && Py_TYPE(program) != &program_type)
        return PyErr_Format(PyExc_TypeError, "learn: a program, not %R", program);
    if (walk.busy)
        Py_RETURN_NONE;
    begin_walk();
    if (!walk_pairs(backend, pairs, self->tensor_type, fresh)
        && (program == Py_None || takes_walk((Program *)program))) {
        Entry *entry = new_entry(walk.hash, walk.word, walk.words, 0, 0, 0);
        if (entry && program != Py_None)
            entry->program = (Program *)own(program);
        if (entry && entry->program)
            entry->restarts = reads_targets() ? steps_before_targets(entry->program) : entry->program->steps;
        keep_entry(self, entry);
    }
    end_walk();
    Py_RETURN_NONE;
}

/* Tapes ----------------------------------------------------------------------------------------------------------- */

/* The calls of the nodes of a tape that draw random numbers, as a tuple. */
static PyObject *walked_calls(void)
{
    PyObject *calls = PyTuple_New(walk.calls);
    for (int k = 0; k < walk.calls && calls; k++) {
        PyObject *call = PyLong_FromLongLong(walk.call[k]);
        if (call)
            PyTuple_SET_ITEM(calls, k, call);
        else
            Py_CLEAR(calls);
    }
    return calls;
}

/* (key, leaves, ids of nodes that something is kept of, nodes, calls) of what the walk has found. */
static PyObject *walked_tape(void)
{
    PyObject *leaves = PyTuple_New(walk.leaves), *nodes = PyTuple_New(walk.nodes), *calls = walked_calls();
    if (!leaves || !nodes || !calls) {
        Py_XDECREF(leaves);
        Py_XDECREF(nodes);
        Py_XDECREF(calls);
        return NULL;
    }
    for (int k = 0; k < walk.leaves; k++)
        PyTuple_SET_ITEM(leaves, k, own(walk.leaf[k]->tensor));
    const Py_ssize_t bytes = (Py_ssize_t)sizeof *walk.word * walk.words;
    for (int k = 0; k < walk.nodes; k++)
        PyTuple_SET_ITEM(nodes, k, own(walk.node[k]));
    return Py_BuildValue("y#NONN", (const char *)walk.word, bytes, leaves, walk.met, nodes, calls);
}

/* The key of a tape is that of an assignment and all else that gradients depend on: values of numbers, gradient rules, and
 * of which nodes the value is kept, which is a leaf then. See autograd/passes.py. */
static PyObject *table_tape(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    Table *self = (Table *)object;
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

#endif
