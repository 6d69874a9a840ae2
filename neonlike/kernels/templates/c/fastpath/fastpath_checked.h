/* Methods whose arguments are checked by their annotations, as checked() of checks.py does it. Part of fastpath.c.
 *
 * Types that are admitted without a closer look are looked for here; with any other, Python's function is called.
 */
#ifndef NL_FASTPATH_CHECKED_H
#define NL_FASTPATH_CHECKED_H

#include "fastpath_builders.h"

typedef struct {
    Py_ssize_t place;             /* among the positional arguments */
    PyObject *name, *quick, *assumed; /* of the parameter: its admitted types, a tuple or a set; its default */
} Look;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc call;
    PyObject *original; /* the function that checks */
    PyObject *function; /* the one that it calls */
    PyObject *looked;   /* holds what the looks refer to */
    Look look[];
} Checked;

/* Whether `type` is admitted at once; -1 with an exception. */
static int is_quick(PyObject *quick, PyTypeObject *type)
{
    if (!PyTuple_CheckExact(quick))
        return PySet_Contains(quick, (PyObject *)type);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(quick); k++)
        if (PyTuple_GET_ITEM(quick, k) == (PyObject *)type)
            return 1;
    return 0;
}

/* Whether no argument needs a closer look; -1 with an exception. */
static int all_quick(const Checked *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    const Py_ssize_t names = named ? PyTuple_GET_SIZE(named) : 0;
    for (Py_ssize_t k = 0; k < names; k++)
        if (!PyUnicode_CHECK_INTERNED(PyTuple_GET_ITEM(named, k)))
            return 0; /* else equal names are one object */
    int quick = 1;
    for (const Look *look = self->look; look < self->look + Py_SIZE(self) && quick > 0; look++) {
        PyObject *value = look->place < count ? given[look->place] : NULL;
        for (Py_ssize_t k = 0; k < names && !value; k++)
            if (PyTuple_GET_ITEM(named, k) == look->name)
                value = given[count + k];
        if (value && value != look->assumed)
            quick = is_quick(look->quick, Py_TYPE(value));
    }
    return quick;
}

static PyObject *checked_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    const Checked *self = (Checked *)object;
    const int quick = all_quick(self, given, PyVectorcall_NARGS(flagged), named);
    return quick < 0 ? NULL : PyObject_Vectorcall(quick ? self->function : self->original, given, flagged, named);
}

/* Other attributes are the original's: __name__, __doc__, ... */
static PyObject *checked_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Checked *)self)->original, name);
}

static PyObject *checked_doc(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyObject_GetAttrString(((Checked *)self)->original, "__doc__");
}

static PyObject *checked_repr(PyObject *self)
{
    return PyObject_Repr(((Checked *)self)->original);
}

static PyObject *checked_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *original, *function, *looked;
    (void)named;
    if (!PyArg_ParseTuple(given, "OOO!", &original, &function, &PyTuple_Type, &looked))
        return NULL;
    Checked *self = (Checked *)type->tp_alloc(type, PyTuple_GET_SIZE(looked));
    if (!self)
        return NULL;
    self->call = checked_call;
    self->original = own(original);
    self->function = own(function);
    self->looked = own(looked);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(looked); k++) {
        Look *look = &self->look[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(looked, k), "nUOO", &look->place, &look->name, &look->quick, &look->assumed)) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

/* It never changes, so that there is nothing to clear in a cycle through it. */
static int checked_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Checked *self = (Checked *)object;
    Py_VISIT(self->original);
    Py_VISIT(self->function);
    Py_VISIT(self->looked);
    return 0;
}

static void checked_dealloc(PyObject *object)
{
    Checked *self = (Checked *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->original);
    Py_XDECREF(self->function);
    Py_XDECREF(self->looked);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef checked_getset[] = {
    {"__doc__", checked_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef checked_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Checked, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject checked_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Checked",
    .tp_basicsize = sizeof(Checked),
    .tp_itemsize = sizeof(Look),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "Checked(checking function, function, looks): a look is (place, name, admitted types, default).",
    .tp_vectorcall_offset = offsetof(Checked, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = builder_bound,
    .tp_getattro = checked_attribute,
    .tp_repr = checked_repr,
    .tp_new = checked_new,
    .tp_traverse = checked_traverse,
    .tp_dealloc = checked_dealloc,
    .tp_getset = checked_getset,
    .tp_members = checked_members,
};

#endif
