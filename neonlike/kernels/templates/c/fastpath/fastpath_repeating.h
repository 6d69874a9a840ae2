/* How calls of fastpath_calls.h are learned, and the types that Python sees. Part of fastpath.c. */
#ifndef NL_FASTPATH_REPEATING_H
#define NL_FASTPATH_REPEATING_H

#include "fastpath_calls.h"
#include <stddef.h>
#include <structmember.h>

/* Learning --------------------------------------------------------------------------------------------------------- */

/* The parameter that `value` was given for; -1: none. */
static int parameter_of(const Asked *asked, PyObject *value)
{
    for (int k = 0; k < asked->parameters; k++)
        if (asked->place[k] && asked->at[k] == value)
            return k;
    return -1;
}

static int read_arguments(Known *known, const Asked *asked, PyObject *tensors, const char *given, Py_ssize_t bytes)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    if (count > MOST_GIVEN || bytes != count * (Py_ssize_t)sizeof(union nl_word) || known->work_at >= count)
        return -1;
    memcpy(known->argument, given, (size_t)bytes);
    known->given = (int)count;
    for (int k = 0; k < count; k++) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, k);
        known->parameter[k] = (int8_t)parameter_of(asked, tensor);
        if (tensor != Py_None && known->parameter[k] < 0)
            return -1;
    }
    return 0;
}

/* Rows of `width` integers from a tuple of tuples, the first `indices` of which name arguments of `known`; -1: others. */
static int read_rows(const Known *known, PyObject *rows, int width, int indices, int64_t *to)
{
    for (Py_ssize_t row = 0; row < PyTuple_GET_SIZE(rows); row++) {
        PyObject *numbers = PyTuple_GET_ITEM(rows, row);
        if (!PyTuple_CheckExact(numbers) || PyTuple_GET_SIZE(numbers) != width)
            return -1;
        for (int k = 0; k < width; k++, to++) {
            *to = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, k));
            if (PyErr_Occurred())
                return -1;
            if (k < indices && (*to < 0 || *to >= known->given || known->parameter[*to] < 0))
                return -1;
        }
    }
    return 0;
}

/* Room for the key and the conditions of `known`, and the key in it. */
static int make_room(Known *known, const Asked *asked, PyObject *aparts, PyObject *phases)
{
    known->hash = asked->hash;
    known->words = asked->words;
    known->aparts = (int)PyTuple_GET_SIZE(aparts);
    known->phases = (int)PyTuple_GET_SIZE(phases);
    const size_t key = sizeof(int64_t) * (size_t)asked->words, apart = sizeof(Apart) * (size_t)known->aparts;
    known->word = PyMem_Malloc(key + apart + sizeof(Phase) * (size_t)known->phases);
    if (!known->word)
        return -1;
    memcpy(known->word, asked->word, key);
    known->apart = (Apart *)((char *)known->word + key);
    known->phase = (Phase *)((char *)known->word + key + apart);
    return 0;
}

/* What CallCache.recipe() of calls.py says of a call that has returned `result`; NULL if it cannot be repeated here. */
static Known *new_known(const Repeating *self, const Asked *asked, PyObject *recipe, PyObject *result)
{
    unsigned long long kernel;
    long long work;
    int work_at;
    PyObject *tensors, *aparts, *phases, *refused, *keep;
    const char *words;
    Py_ssize_t bytes;
    if (!PyTuple_CheckExact(recipe)
        || !PyArg_ParseTuple(recipe, "KO!y#iLO!O!UO", &kernel, &PyTuple_Type, &tensors, &words, &bytes, &work_at, &work,
                             &PyTuple_Type, &aparts, &PyTuple_Type, &phases, &refused, &keep))
        return NULL;
    Known *known = PyMem_Calloc(1, sizeof *known);
    if (!known)
        return NULL;
    known->kernel = (Kernel)(uintptr_t)kernel;
    known->work = work;
    known->work_at = work_at;
    known->answer = result == Py_None ? -1 : parameter_of(asked, result);
    known->keep = PyTuple_Pack(2, keep, self->original); /* the key has addresses of the method and, in `keep`, the layer */
    known->refused = own(refused);
    if ((result != Py_None && known->answer < 0) || !known->keep || read_arguments(known, asked, tensors, words, bytes)
        || make_room(known, asked, aparts, phases) || read_rows(known, aparts, 4, 2, (int64_t *)known->apart)
        || read_rows(known, phases, 3, 1, (int64_t *)known->phase)) {
        free_known(known);
        return NULL;
    }
    return known;
}

/* Call the method, and have what it did repeated from now on if that was one kernel. */
static PyObject *learn_call(const Repeating *self, Asked *asked, Calls *fast, PyObject *calls, PyObject *const *given,
                            size_t flagged, PyObject *named)
{
    PyObject *expected = PyObject_CallMethodNoArgs(calls, name_expect), *type, *value, *trace;
    if (!expected)
        return NULL;
    Py_DECREF(expected);
    PyObject *result = PyObject_Vectorcall(self->original, given, flagged, named);
    PyErr_Fetch(&type, &value, &trace);
    PyObject *recipe = PyObject_CallMethodNoArgs(calls, name_recipe);
    Known *known = recipe && result ? new_known(self, asked, recipe, result) : NULL;
    Py_XDECREF(recipe);
    PyErr_Clear(); /* what cannot be learned is left to the method */
    PyErr_Restore(type, value, trace);
    if (!known)
        return result;
    if (fast->used >= CALLS / 2)
        clear_calls(fast);
    Known **slot = find_call(fast, asked);
    if (*slot)
        free_known(known);
    else {
        *slot = known;
        fast->used++;
    }
    return result;
}

/* Repeating: a method of backends ---------------------------------------------------------------------------------- */

static PyTypeObject calls_type;

/* The table of a backend, and in `calls` its cache, both new references; NULL if all is left to Python. */
static Calls *table_of(PyObject *backend, PyObject **calls)
{
    *calls = serial ? NULL : PyObject_GenericGetAttr(backend, name_calls); /* in a forked process no thread may start */
    PyObject *fast = *calls && *calls != Py_None ? PyObject_GetAttr(*calls, name_fast) : NULL;
    if (fast && Py_TYPE(fast) == &calls_type)
        return (Calls *)fast;
    Py_XDECREF(fast);
    Py_CLEAR(*calls);
    PyErr_Clear();
    return NULL;
}

static PyObject *repeating_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    const Repeating *self = (Repeating *)object;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged);
    PyObject *calls = NULL, *result = NULL;
    Calls *fast = count ? table_of(given[0], &calls) : NULL;
    if (!fast)
        return PyObject_Vectorcall(self->original, given, flagged, named);
    Asked asked;
    if (ask(&asked, self, given, count, named)) {
        PyErr_Clear();
        result = PyObject_Vectorcall(self->original, given, flagged, named);
    } else {
        const Known *known = *find_call(fast, &asked);
        if (!known)
            result = learn_call(self, &asked, fast, calls, given, flagged, named);
        else if (lie_alike(known, &asked))
            result = start_known(fast, known, &asked);
        else
            result = PyObject_Vectorcall(self->original, given, flagged, named);
    }
    forget_asked(&asked);
    Py_DECREF(fast);
    Py_DECREF(calls);
    return result;
}

/* Other attributes are the method's: __name__, __doc__, ... */
static PyObject *repeating_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Repeating *)self)->original, name);
}

static PyObject *repeating_doc(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyObject_GetAttrString(((Repeating *)self)->original, "__doc__");
}

static PyObject *repeating_repr(PyObject *self)
{
    return PyObject_Repr(((Repeating *)self)->original);
}

static PyObject *repeating_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *original, *names, *attributes;
    int positional, layer;
    (void)named;
    if (!PyArg_ParseTuple(given, "OO!iO!i", &original, &PyTuple_Type, &names, &positional, &PyTuple_Type, &attributes,
                          &layer))
        return NULL;
    if (!PyCallable_Check(original) || !PyTuple_GET_SIZE(names) || PyTuple_GET_SIZE(names) > MOST_PARAMETERS)
        return PyErr_Format(PyExc_TypeError, "Repeating: %R has too many parameters, or none", original);
    Repeating *self = (Repeating *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = repeating_call;
    self->positional = positional;
    self->layer = layer;
    self->original = own(original);
    self->names = own(names);
    self->attributes = own(attributes);
    return (PyObject *)self;
}

/* It never changes, so that there is nothing to clear in a cycle through it. */
static int repeating_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Repeating *self = (Repeating *)object;
    Py_VISIT(self->original);
    Py_VISIT(self->names);
    Py_VISIT(self->attributes);
    return 0;
}

static void repeating_dealloc(PyObject *object)
{
    Repeating *self = (Repeating *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->original);
    Py_XDECREF(self->names);
    Py_XDECREF(self->attributes);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef repeating_getset[] = {
    {"__doc__", repeating_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef repeating_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Repeating, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject repeating_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Repeating",
    .tp_basicsize = sizeof(Repeating),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "Repeating(method, parameters after self, how many go by position, attributes of the backend, layer's parameter)",
    .tp_vectorcall_offset = offsetof(Repeating, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = builder_bound,
    .tp_getattro = repeating_attribute,
    .tp_repr = repeating_repr,
    .tp_new = repeating_new,
    .tp_traverse = repeating_traverse,
    .tp_dealloc = repeating_dealloc,
    .tp_getset = repeating_getset,
    .tp_members = repeating_members,
};

/* Calls: the table of a backend ------------------------------------------------------------------------------------ */

static PyObject *calls_clear(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    clear_calls((Calls *)object);
    Py_RETURN_NONE;
}

static void calls_dealloc(PyObject *object)
{
    clear_calls((Calls *)object);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef calls_methods[] = {
    {"clear", calls_clear, METH_NOARGS, "Forget everything."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef calls_members[] = {
    {"used", T_PYSSIZET, offsetof(Calls, used), READONLY, "Calls learned."},
    {"hits", T_PYSSIZET, offsetof(Calls, hits), READONLY, "Kernels started."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject calls_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Calls",
    .tp_basicsize = sizeof(Calls),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Calls(): calls of a backend's compound primitives that were made before.",
    .tp_new = PyType_GenericNew,
    .tp_dealloc = calls_dealloc,
    .tp_methods = calls_methods,
    .tp_members = calls_members,
};

#endif
