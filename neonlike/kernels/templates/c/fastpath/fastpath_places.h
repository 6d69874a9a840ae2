/* Places: address and layout of a tensor's memory, cached in the tensor's attribute _place. Part of fastpath.c. */
#ifndef NL_FASTPATH_PLACES_H
#define NL_FASTPATH_PLACES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { MAX_AXES = 16 };

static PyObject *name_place, *name_array, *name_root, *name_struct, *name_shape, *name_dtype, *name_backend;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *tensor; /* borrowed, only compared: a copied __dict__ may contain another tensor's place */
    PyObject *root;   /* NULL: foreign memory, which may overlap anything */
    PyObject *shape, *dtype, *backend; /* the tensor's, which never change */
    char *address, *low, *high;
    uint64_t hash;
    int64_t words[]; /* data type and rank, shape, strides */
} Place;

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

static Place *place_from(PyObject *tensor, PyObject *root, const Interface *from)
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
    *word++ = from->typekind | (int64_t)from->itemsize << 8 | (int64_t)from->nd << 40;
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
        place = place_from(tensor, root, PyCapsule_GetPointer(capsule, NULL));
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
