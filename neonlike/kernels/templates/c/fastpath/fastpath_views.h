/* Views of tensors in host memory, equal to those that _make_view() of backends/cpu/tensor.py makes. Part of fastpath.c. */
#ifndef NL_FASTPATH_VIEWS_H
#define NL_FASTPATH_VIEWS_H

#include "fastpath_nodes.h"

static PyObject *name_base, *name_name, *name_persist;

/* Set an attribute past the class's __setattr__, stealing the value; -1 with an exception, also where that is NULL. */
static int give(PyObject *object, PyObject *name, PyObject *value)
{
    const int failed = value ? PyObject_GenericSetAttr(object, name, value) : -1;
    Py_XDECREF(value);
    return failed;
}

/* Give the view the tensor's name, and its mark of values that need not survive: classes have those of all others. */
static int put_marks(PyObject *view, PyObject *tensor)
{
    PyObject *name = PyObject_GenericGetAttr(tensor, name_name), *persists = PyObject_GenericGetAttr(tensor, name_persist);
    const int kept = persists ? PyObject_IsTrue(persists) : -1;
    int failed = !name || kept < 0;
    if (!failed && name != Py_None)
        failed = give(view, name_name, own(name));
    if (!failed && !kept)
        failed = give(view, name_persist, own(persists));
    Py_XDECREF(name);
    Py_XDECREF(persists);
    return failed;
}

/* The tensor over `array`, memory of `tensor`; NULL without an exception for classes that are not known: Python makes it. */
static PyObject *build_view(PyObject *tensor, PyObject *array)
{
    if (!is_tensor(Py_TYPE(tensor)))
        return NULL;
    PyObject *nothing = PyTuple_New(0);
    PyObject *view = nothing ? PyBaseObject_Type.tp_new(Py_TYPE(tensor), nothing, NULL) : NULL; /* without __init__ */
    Py_XDECREF(nothing);
    if (!view)
        return NULL;
    if (give(view, name_backend, PyObject_GenericGetAttr(tensor, name_backend)) || give(view, name_shape, PyObject_GetAttr(array, name_shape))
        || give(view, name_dtype, PyObject_GetAttr(array, name_dtype)) || put_marks(view, tensor)
        || give(view, name_base, own(tensor)) || give(view, name_array, own(array))
        || give(view, name_root, PyObject_GenericGetAttr(tensor, name_root)))
        Py_CLEAR(view);
    return view;
}

#endif
