/* Chains: kernels on fixed operands, started one after the other by one call. Part of fastpath.c. */
#ifndef NL_FASTPATH_CHAINS_H
#define NL_FASTPATH_CHAINS_H

#include "fastpath_launches.h"

typedef struct {
    Kernel kernel;
    const union nl_word *words;
} Link;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc call;
    PyObject *calls; /* the same in Python: for a forked process, and for a kernel that finds no memory */
    Link link[];
} Chain;

static PyObject *chain_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    const Chain *self = (Chain *)object;
    const Py_ssize_t count = Py_SIZE(self);
    (void)given;
    if (PyVectorcall_NARGS(flagged) || named)
        return PyErr_Format(PyExc_TypeError, "a chain takes no arguments");
    Py_INCREF(object);
    PyObject *done = own(Py_None);
    for (Py_ssize_t k = 0; k < count && done; k++) {
        if (!serial) {
            Py_BEGIN_ALLOW_THREADS
            while (k < count && !self->link[k].kernel(self->link[k].words))
                k++;
            Py_END_ALLOW_THREADS
        }
        if (k < count)
            Py_XSETREF(done, PyObject_CallNoArgs(PyTuple_GET_ITEM(self->calls, k)));
    }
    Py_DECREF(object);
    if (!done)
        return NULL;
    Py_DECREF(done);
    Py_RETURN_NONE;
}

static PyObject *chain_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *links, *calls;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!O!", &PyTuple_Type, &links, &PyTuple_Type, &calls))
        return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(links);
    if (PyTuple_GET_SIZE(calls) != count)
        return PyErr_Format(PyExc_TypeError, "Chain: as many links as calls");
    Chain *self = (Chain *)type->tp_alloc(type, count);
    for (Py_ssize_t k = 0; k < count && self; k++) {
        unsigned long long kernel, words;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(links, k), "KK", &kernel, &words)) {
            Py_CLEAR(self);
            break;
        }
        self->link[k] = (Link){(Kernel)(uintptr_t)kernel, (const union nl_word *)(uintptr_t)words};
    }
    if (self) {
        self->call = chain_call;
        self->calls = own(calls);
    }
    return (PyObject *)self;
}

static int chain_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Chain *)object)->calls);
    return 0;
}

static int chain_clear(PyObject *object)
{
    Chain *self = (Chain *)object;
    Py_SET_SIZE(self, 0); /* the calls hold the kernels' operands */
    Py_CLEAR(self->calls);
    return 0;
}

static void chain_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    chain_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyTypeObject chain_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Chain",
    .tp_basicsize = sizeof(Chain),
    .tp_itemsize = sizeof(Link),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Chain(links, calls): (packed entry, address of its arguments) of kernels, and Python's calls of these.",
    .tp_vectorcall_offset = offsetof(Chain, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = chain_new,
    .tp_traverse = chain_traverse,
    .tp_clear = chain_clear,
    .tp_dealloc = chain_dealloc,
};

#endif
