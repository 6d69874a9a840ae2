/* Places: address and layout of a tensor's memory, cached in the tensor's attribute _place. Part of fastpath.c. */
#ifndef NL_FASTPATH_PLACES_H
#define NL_FASTPATH_PLACES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum {
    MAX_AXES = 16,
    DEVICE_ALIGNMENT = 16, /* bytes, on which the kernels of a device depend */
};
/* In the first word of a place on a device, besides data type and rank. */
static const int64_t ON_DEVICE = (int64_t)1 << 60, NOT_ALIGNED = (int64_t)1 << 61;

static PyObject *name_place, *name_array, *name_root, *name_struct, *name_shape, *name_dtype, *name_backend;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *tensor; /* borrowed, only compared: a copied __dict__ may contain another tensor's place */
    PyObject *root;   /* NULL: foreign memory, which may overlap anything */
    PyObject *shape, *dtype, *backend; /* the tensor's, which never change */
    char *address, *low, *high;
    uint64_t hash;
    int64_t words[]; /* data type and rank, on a device whether it is aligned; shape, strides */
} Place;

static PyObject *own(PyObject *object)
{
    Py_XINCREF(object);
    return object;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static void place_dealloc(PyObject *self)
{
    Place *place = (Place *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(place->root);
    Py_XDECREF(place->shape);
    Py_XDECREF(place->dtype);
    Py_XDECREF(place->backend);
    Py_TYPE(self)->tp_free(self);
}

/* A place never changes, so that a cycle through one goes through the tensor too, which can be cleared. */
static int place_traverse(PyObject *self, visitproc visit, void *arg)
{
    Place *place = (Place *)self;
    Py_VISIT(place->root);
    Py_VISIT(place->shape);
    Py_VISIT(place->dtype);
    Py_VISIT(place->backend);
    return 0;
}

/* Copies and pickles of a tensor's attributes hold None instead. */
static PyObject *place_reduce(PyObject *self, PyObject *ignored)
{
    (void)self, (void)ignored;
    return Py_BuildValue("O()", (PyObject *)Py_TYPE(Py_None));
}

static PyMethodDef place_methods[] = {
    {"__reduce__", place_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject place_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Place",
    .tp_basicsize = sizeof(Place),
    .tp_itemsize = sizeof(int64_t),
    .tp_dealloc = place_dealloc,
    .tp_traverse = place_traverse,
    .tp_free = PyObject_GC_Del,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = place_methods,
    .tp_doc = "Where a tensor's elements lie.",
};

/* NumPy's array interface, https://numpy.org/doc/stable/reference/arrays.interface.html */
typedef struct {
    int two, nd;
    char typekind;
    int itemsize, flags;
    Py_intptr_t *shape, *strides;
    void *data;
} Interface;

enum { ALIGNED = 0x100, NATIVE = 0x200 };

/* An integer attribute, or -1 with an exception. */
static long long number_of(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    const long long number = found ? PyLong_AsLongLong(found) : -1;
    Py_XDECREF(found);
    return number;
}

/* An attribute that is a tuple of `count` integers (-1: of up to MAX_AXES), into `to`; how many, or -1. */
static int numbers_of(PyObject *object, const char *name, int count, Py_intptr_t *to)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    const int right = found && PyTuple_CheckExact(found) && PyTuple_GET_SIZE(found) <= MAX_AXES;
    const int size = right ? (int)PyTuple_GET_SIZE(found) : -1;
    for (int k = 0; k < size; k++)
        to[k] = (Py_intptr_t)PyLong_AsLongLong(PyTuple_GET_ITEM(found, k));
    Py_XDECREF(found);
    return PyErr_Occurred() || (count >= 0 && size != count) ? -1 : size;
}

/* The interface of an array of a device, see array.py in backends/gpu; -1 if it is none. `axes` is room for it. */
static int device_interface(PyObject *array, Interface *to, Py_intptr_t axes[2 * MAX_AXES])
{
    PyObject *address = PyObject_GetAttrString(array, "address"), *dtype = PyObject_GetAttr(array, name_dtype);
    PyObject *kind = dtype ? PyObject_GetAttrString(dtype, "kind") : NULL;
    int failed = !address || !kind || !PyUnicode_Check(kind) || PyUnicode_GET_LENGTH(kind) != 1;
    if (!failed) {
        const int rank = numbers_of(array, "shape", -1, axes);
        *to = (Interface){2, rank, (char)PyUnicode_READ_CHAR(kind, 0), (int)number_of(dtype, "itemsize"), ALIGNED | NATIVE,
                          axes, axes + MAX_AXES, PyLong_AsVoidPtr(address)};
        failed = rank < 0 || numbers_of(array, "strides", rank, axes + MAX_AXES) < 0 || PyErr_Occurred();
    }
    Py_XDECREF(address);
    Py_XDECREF(dtype);
    Py_XDECREF(kind);
    return failed ? -1 : 0;
}

static Place *place_from(PyObject *tensor, PyObject *root, const Interface *from, const int64_t marks)
{
    if (from->two != 2 || from->nd < 1 || from->nd > MAX_AXES || (from->flags & (ALIGNED | NATIVE)) != (ALIGNED | NATIVE))
        return NULL;
    Place *place = PyObject_GC_NewVar(Place, &place_type, 1 + 2 * from->nd);
    if (!place)
        return NULL;
    place->tensor = tensor;
    place->root = root == Py_None ? NULL : root;
    Py_XINCREF(place->root);
    place->shape = place->dtype = place->backend = NULL;
    place->address = place->low = place->high = from->data;
    int64_t *word = place->words;
    *word++ = from->typekind | (int64_t)from->itemsize << 8 | (int64_t)from->nd << 40 | marks;
    int empty = 0;
    for (int axis = 0; axis < from->nd; axis++) {
        const Py_intptr_t size = from->shape[axis], stride = from->strides[axis];
        word[axis] = size;
        word[from->nd + axis] = stride;
        empty |= size == 0;
        *(stride < 0 ? &place->low : &place->high) += (size - 1) * stride;
    }
    place->high += from->itemsize;
    place->hash = 0;
    for (Py_ssize_t k = 0; k < Py_SIZE(place); k++)
        place->hash = mix(place->hash, (uint64_t)place->words[k]);
    PyObject_GC_Track((PyObject *)place);
    if (empty || !(place->shape = PyObject_GetAttr(tensor, name_shape))
        || !(place->dtype = PyObject_GetAttr(tensor, name_dtype))
        || !(place->backend = PyObject_GetAttr(tensor, name_backend)))
        Py_CLEAR(place);
    return place;
}

static Place *new_place(PyObject *tensor)
{
    Place *place = NULL;
    PyObject *array = PyObject_GetAttr(tensor, name_array), *root = PyObject_GetAttr(tensor, name_root);
    PyObject *capsule = array ? PyObject_GetAttr(array, name_struct) : NULL;
    if (root && capsule && PyCapsule_IsValid(capsule, NULL))
        place = place_from(tensor, root, PyCapsule_GetPointer(capsule, NULL), 0);
    else if (root && array && !capsule) {
        Interface device;
        Py_intptr_t axes[2 * MAX_AXES];
        PyErr_Clear();
        if (!device_interface(array, &device, axes)) {
            const int odd = (uintptr_t)device.data % DEVICE_ALIGNMENT != 0;
            place = place_from(tensor, root, &device, odd ? ON_DEVICE | NOT_ALIGNED : ON_DEVICE);
        }
    }
    if (place && PyObject_GenericSetAttr(tensor, name_place, (PyObject *)place) < 0)
        Py_CLEAR(place);
    Py_XDECREF(array);
    Py_XDECREF(root);
    Py_XDECREF(capsule);
    return place;
}

/* The cached place of a tensor, a new reference; NULL without an exception if there is none. */
static Place *kept_place(PyObject *tensor)
{
    PyObject *found = PyObject_GetAttr(tensor, name_place);
    if (found && Py_TYPE(found) == &place_type && ((Place *)found)->tensor == tensor)
        return (Place *)found;
    Py_XDECREF(found);
    PyErr_Clear();
    return NULL;
}

/* A new reference; NULL, perhaps with an exception, if Python has to do it. */
static Place *place_of(PyObject *tensor)
{
    Place *kept = kept_place(tensor);
    return kept ? kept : new_place(tensor);
}

/* 0: no overlap, 1: the same elements, -1: not decided here. See Leaf.alias_of in graph.py. */
static int alias(const Place *a, const Place *b)
{
    if (a == b)
        return 1;
    if (a->root != b->root && a->root && b->root)
        return 0;
    if (a->address == b->address && Py_SIZE(a) == Py_SIZE(b)
        && !memcmp(a->words, b->words, sizeof(int64_t) * (size_t)Py_SIZE(a)))
        return 1;
    return a->high <= b->low || b->high <= a->low ? 0 : -1;
}

#endif
