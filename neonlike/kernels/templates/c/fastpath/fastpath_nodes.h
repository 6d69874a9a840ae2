/* Nodes of expressions, equal to those built by the builders in node.py and builders.py. Part of fastpath.c.
 *
 * These functions handle the common cases: operands are nodes, tensors of a known type and Python numbers, and
 * all dtypes are equal and floats. For all other cases, errors included, they return NULL without an
 * exception: then Python has to do it.
 */
#ifndef NL_FASTPATH_NODES_H
#define NL_FASTPATH_NODES_H

#include "fastpath_walk.h"

enum { FEW_AXES = 8, TENSOR_CLASSES = 2 };

static PyTypeObject *tensor_class[TENSOR_CLASSES]; /* known types of tensors, CPU and GPU; NULL: none yet */
static PyObject *float32, *float64, *float16, *bfloat16; /* the last: NULL until a tensor has it */
static PyTypeObject *numpy_scalar, *numpy_array; /* the base of NumPy's numbers; its arrays */
static PyObject *integers; /* a tuple: the dtypes that are computed in int64 */
static PyObject *name_kind, *name_axis, *name_constant, *name_bits, *name_item, *name_ndim, *name_wrap;
static PyObject *one_axis[FEW_AXES], *all_axes[FEW_AXES + 1], *all_ones[FEW_AXES + 1];
static PyObject *number_one;
/* Tuples: axis k is (k,), all of so many axes are (0, 1, ...), and reduced they are (1, 1, ...). */

static int is_tensor(const PyTypeObject *type)
{
    return type == tensor_class[0] || type == tensor_class[1];
}

/* Properties that a node takes from its operands; holds references. */
typedef struct {
    PyObject *shape, *dtype, *backend;
} Traits;

static void drop(Traits *traits)
{
    Py_XDECREF(traits->shape);
    Py_XDECREF(traits->dtype);
    Py_XDECREF(traits->backend);
}

static Traits tensor_traits(PyObject *tensor)
{
    Traits found;
    Place *place = kept_place(tensor);
    if (place) {
        found = (Traits){own(place->shape), own(place->dtype), own(place->backend)};
        Py_DECREF(place);
    } else {
        found.shape = PyObject_GetAttr(tensor, name_shape);
        found.dtype = PyObject_GetAttr(tensor, name_dtype);
        found.backend = PyObject_GetAttr(tensor, name_backend);
    }
    return found;
}

/* Whether a dtype is bfloat16, which a package provides that is not imported before it is used: the only one of a tensor
 * with the kind "V". NumPy tells a kind at once, and finds a name by a function in Python. */
static int is_bfloat16(PyObject *dtype)
{
    if (bfloat16 || !dtype)
        return dtype && dtype == bfloat16;
    PyObject *kind = PyObject_GetAttr(dtype, name_kind);
    if (kind && PyUnicode_Check(kind) && !PyUnicode_CompareWithASCIIString(kind, "V"))
        bfloat16 = own(dtype);
    Py_XDECREF(kind);
    PyErr_Clear();
    return dtype == bfloat16;
}

static int is_float32(PyObject *dtype)
{
    return dtype == float32;
}

static int is_half(PyObject *dtype)
{
    return dtype == float16 || is_bfloat16(dtype);
}

static int is_integer(PyObject *dtype)
{
    if (dtype == float32) /* nearly always */
        return 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(integers); k++)
        if (dtype == PyTuple_GET_ITEM(integers, k))
            return 1;
    return 0;
}

/* Whether `operand` is an expression of floats, or if `whole` of those or integers, and its traits then. */
static int numeric_traits(PyObject *operand, Traits *traits, int whole)
{
    const PyTypeObject *type = Py_TYPE(operand);
    if (type == node_type)
        *traits = (Traits){own(SLOT(operand, shape_at)), own(SLOT(operand, dtype_at)), own(SLOT(operand, backend_at))};
    else if (is_tensor(type))
        *traits = tensor_traits(operand);
    else
        return 0;
    PyObject *dtype = traits->dtype;
    const int known = dtype == float32 || dtype == float64 || is_half(dtype) || (whole && dtype && is_integer(dtype));
    if (traits->shape && known && traits->backend && traits->backend != Py_None)
        return 1;
    drop(traits);
    PyErr_Clear();
    return 0;
}

/* Whether `operand` is an expression of floats, and its traits then. */
static int expression_traits(PyObject *operand, Traits *traits)
{
    return numeric_traits(operand, traits, 0);
}

static int is_number(PyObject *operand)
{
    return Py_TYPE(operand) == &PyFloat_Type || Py_TYPE(operand) == &PyLong_Type;
}

/* Sizes of a shape; returns their number, or -1 if Python has to do it: an unknown shape is not a plain tuple. */
static Py_ssize_t sizes_of(PyObject *shape, Py_ssize_t *sizes)
{
    if (!PyTuple_CheckExact(shape) || PyTuple_GET_SIZE(shape) > FEW_AXES)
        return -1;
    const Py_ssize_t count = PyTuple_GET_SIZE(shape);
    for (Py_ssize_t axis = 0; axis < count; axis++) {
        PyObject *size = PyTuple_GET_ITEM(shape, axis);
        sizes[axis] = PyLong_CheckExact(size) ? PyLong_AsSsize_t(size) : -1;
        if (sizes[axis] < 0) {
            PyErr_Clear();
            return -1;
        }
    }
    return count;
}

/* Whether two shapes consist of identical objects: mostly so for equal shapes, because Python caches small integers. */
static int same_items(PyObject *a, PyObject *b)
{
    if (!PyTuple_CheckExact(a) || !PyTuple_CheckExact(b) || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
        return 0;
    for (Py_ssize_t axis = 0; axis < PyTuple_GET_SIZE(a); axis++)
        if (PyTuple_GET_ITEM(a, axis) != PyTuple_GET_ITEM(b, axis))
            return 0;
    return 1;
}

/* The shape that `mine` and `other` broadcast to, a new reference; see broadcast() in shapes.py. */
static PyObject *joined(PyObject *mine, PyObject *other)
{
    Py_ssize_t a[FEW_AXES], b[FEW_AXES];
    if (same_items(mine, other))
        return own(mine);
    const Py_ssize_t m = sizes_of(mine, a), n = sizes_of(other, b);
    if (m < 0 || n < 0)
        return NULL;
    int keeps_mine = m >= n, keeps_other = n >= m;
    const Py_ssize_t count = m >= n ? m : n;
    for (Py_ssize_t axis = 1; axis <= count; axis++) { /* from the last */
        const Py_ssize_t x = axis <= m ? a[m - axis] : 1, y = axis <= n ? b[n - axis] : 1;
        if (x == y)
            continue;
        if (x != 1 && y != 1)
            return NULL;
        keeps_mine &= y == 1;
        keeps_other &= x == 1;
    }
    if (keeps_mine || keeps_other)
        return own(keeps_mine ? mine : other);
    PyObject *shape = PyTuple_New(count);
    for (Py_ssize_t axis = 1; axis <= count && shape; axis++) {
        const int from_mine = axis <= m && (axis > n || a[m - axis] != 1);
        PyObject *size = from_mine ? PyTuple_GET_ITEM(mine, m - axis) : PyTuple_GET_ITEM(other, n - axis);
        PyTuple_SET_ITEM(shape, count - axis, own(size));
    }
    return shape;
}

static PyObject *packed(PyObject *const *items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t k = 0; k < count && tuple; k++)
        PyTuple_SET_ITEM(tuple, k, own(items[k]));
    return tuple;
}

/* A new node; steals the references, also on failure, except that of the row. */
static PyObject *new_node(PyObject *spec, PyObject *operands, PyObject *attrs, Traits traits)
{
    PyObject *node = operands && attrs ? node_type->tp_alloc(node_type, 0) : NULL;
    if (!node) {
        Py_XDECREF(operands);
        Py_XDECREF(attrs);
        drop(&traits);
        return NULL;
    }
    SLOT(node, spec_at) = own(spec);
    SLOT(node, operands_at) = operands;
    SLOT(node, attrs_at) = attrs;
    SLOT(node, shape_at) = traits.shape;
    SLOT(node, dtype_at) = traits.dtype;
    SLOT(node, backend_at) = traits.backend;
    return node;
}

/* A new node whose operands promote to the dtype of `traits`; of integers to int64, and the result has the dtype `whole`.
 * Steals the references of operands and traits, also on failure. */
static PyObject *new_promoted(PyObject *spec, PyObject *whole, PyObject *operands, Traits traits)
{
    if (is_integer(traits.dtype))
        Py_SETREF(traits.dtype, own(whole));
    return new_node(spec, operands, own(Py_None), traits);
}

/* A node of one operand; `whole`: the dtype of the result of integers, or None: Python has to build that. */
static PyObject *build_one(PyObject *spec, PyObject *whole, PyObject *a)
{
    Traits traits;
    return numeric_traits(a, &traits, whole != Py_None) ? new_promoted(spec, whole, packed(&a, 1), traits) : NULL;
}

/* Whether `operand`, a number, may stand beside what has these traits; a fraction makes float32 of integers, which whole
 * numbers of int64 leave as they are. */
static int suits(PyObject *operand, Traits *traits)
{
    int64_t integer;
    if (!is_integer(traits->dtype))
        return 1;
    if (PyLong_CheckExact(operand))
        return !integer_of(operand, &integer);
    Py_SETREF(traits->dtype, own(float32));
    return 1;
}

/* Whether `operand` is an expression of the backend of `traits` and of the same dtype, or if `whole` of integers beside floats
 * or other integers; shape and dtype of `traits` are then those of both. */
static int joins(PyObject *operand, Traits *traits, int whole)
{
    Traits its;
    if (!numeric_traits(operand, &its, whole))
        return 0;
    const int promoted = is_integer(traits->dtype); /* to the other one's dtype, whatever that is */
    const int known = its.dtype == traits->dtype || promoted || is_integer(its.dtype);
    PyObject *shape = known && its.backend == traits->backend ? joined(traits->shape, its.shape) : NULL;
    if (shape) {
        Py_SETREF(traits->shape, shape);
        if (promoted)
            Py_SETREF(traits->dtype, own(its.dtype));
    }
    drop(&its);
    return shape != NULL;
}

/* A node of two operands, of which one may be a Python number; `whole` as of build_one(). */
static PyObject *build_pair(PyObject *spec, PyObject *whole, PyObject *a, PyObject *b)
{
    Traits traits;
    PyObject *first = is_number(a) ? b : a, *second = first == a ? b : a;
    if (!numeric_traits(first, &traits, whole != Py_None))
        return NULL;
    if (is_number(second) ? suits(second, &traits) : second == first || joins(second, &traits, whole != Py_None))
        return new_promoted(spec, whole, packed((PyObject *[]){a, b}, 2), traits);
    drop(&traits);
    return NULL;
}

/* The value of one of NumPy's numbers, a new reference; NULL without an exception for anything else. */
static PyObject *value_of_scalar(PyObject *operand)
{
    if (!PyType_IsSubtype(Py_TYPE(operand), numpy_scalar))
        return NULL;
    PyObject *number = PyObject_CallMethodNoArgs(operand, name_item);
    PyErr_Clear();
    return number;
}

/* The tensor that one of NumPy's arrays of two axes or more stands for beside `other`, an expression of `backend` unless that
 * is NULL; a new reference, or NULL without an exception. */
static PyObject *tensor_of_array(PyObject *array, PyObject *other, PyObject *backend)
{
    Traits traits;
    PyObject *ndim = Py_TYPE(array) == numpy_array ? PyObject_GetAttr(array, name_ndim) : NULL, *tensor = NULL;
    if (ndim && PyLong_AsLong(ndim) > 1 && numeric_traits(other, &traits, 1)) {
        if (!backend || backend == traits.backend)
            tensor = PyObject_CallMethodOneArg(traits.backend, name_wrap, array);
        drop(&traits);
    }
    Py_XDECREF(ndim);
    PyErr_Clear(); /* Python says what is wrong */
    return tensor;
}

/* What stands for `operand` in a node beside `other`: a value of NumPy's, or a tensor; a new reference, or NULL. */
static PyObject *stand_in(PyObject *operand, PyObject *other, PyObject *backend)
{
    PyObject *number = value_of_scalar(operand);
    return number ? number : tensor_of_array(operand, other, backend);
}

/* A node of two operands, of which one may be a number, Python's or NumPy's, or an array; `whole` as of build_one(), `backend`
 * that of a method, else NULL. */
static PyObject *build_two(PyObject *spec, PyObject *whole, PyObject *a, PyObject *b, PyObject *backend)
{
    PyObject *made = build_pair(spec, whole, a, b), *instead;
    if (made || PyErr_Occurred())
        return made;
    if ((instead = stand_in(b, a, backend)))
        made = build_pair(spec, whole, a, instead);
    else if ((instead = stand_in(a, b, backend)))
        made = build_pair(spec, whole, instead, b);
    Py_XDECREF(instead);
    return made;
}

/* Whether `operand` is a number, or floats of the dtype of `traits`, with whose shape its own is joined. */
static int fits(PyObject *operand, Traits *traits)
{
    return is_number(operand) || joins(operand, traits, 0);
}

/* One of the last two is an expression: they determine the dtype of where(). */
static PyObject *build_three(PyObject *spec, PyObject *a, PyObject *b, PyObject *c)
{
    Traits traits;
    if ((is_number(b) && is_number(c)) || !expression_traits(a, &traits))
        return NULL;
    if (fits(b, &traits) && fits(c, &traits))
        return new_node(spec, packed((PyObject *[]){a, b, c}, 3), own(Py_None), traits);
    drop(&traits);
    return NULL;
}

/* The axis of a reduction, -1 for all; -2 if Python has to do it. */
static Py_ssize_t reduced_axis(PyObject *axis, Py_ssize_t ndim)
{
    if (axis == Py_None)
        return -1;
    const Py_ssize_t given = PyLong_CheckExact(axis) ? PyLong_AsSsize_t(axis) : ndim;
    if (given == -1 && PyErr_Occurred())
        PyErr_Clear();
    else if (given >= -ndim && given < ndim)
        return given < 0 ? given + ndim : given;
    return -2;
}

/* A reduction of `a`, and the number of elements per result. */
static PyObject *build_reduced(PyObject *spec, PyObject *a, PyObject *axis, const Traits *traits, double *count)
{
    Py_ssize_t sizes[FEW_AXES];
    const Py_ssize_t ndim = sizes_of(traits->shape, sizes), over = ndim < 1 ? -2 : reduced_axis(axis, ndim);
    if (over == -2)
        return NULL;
    *count = 1;
    for (Py_ssize_t k = 0; k < ndim; k++)
        if (over == -1 || k == over)
            *count *= (double)sizes[k];
    if (!(*count > 0)) /* an empty reduction: perhaps an error */
        return NULL;
    PyObject *shape = over == -1 ? own(all_ones[ndim]) : packed(&PyTuple_GET_ITEM(traits->shape, 0), ndim);
    if (over != -1 && shape) {
        Py_DECREF(PyTuple_GET_ITEM(shape, over));
        PyTuple_SET_ITEM(shape, over, own(number_one));
    }
    PyObject *attrs = shape ? PyDict_New() : NULL;
    if (!attrs || PyDict_SetItem(attrs, name_axis, over == -1 ? all_axes[ndim] : one_axis[over])) {
        Py_XDECREF(shape);
        Py_XDECREF(attrs);
        return NULL;
    }
    return new_node(spec, packed(&a, 1), attrs, (Traits){shape, own(traits->dtype), own(traits->backend)});
}

static PyObject *build_reduction(PyObject *spec, PyObject *a, PyObject *axis, double *count)
{
    Traits traits;
    if (!expression_traits(a, &traits))
        return NULL;
    PyObject *node = build_reduced(spec, a, axis, &traits, count);
    drop(&traits);
    return node;
}

/* Compositions: several nodes by one call, as kernels/c/compositions.py has read them from the Python function. */

enum { MOST_NODES = 16 };
enum step { ELEMENTWISE, REDUCED, REDUCED_TO_CONSTANT, CONVERTED, RULED };

/* What a composition is being built from and of; holds references but that of `a`. */
typedef struct {
    PyObject *made[1 + MOST_NODES]; /* its argument `a`, then the nodes of its steps */
    PyObject *count; /* of elements per result of a reduction, a float; NULL before the first */
} Composition;

/* An operand of a step, borrowed: the node of an earlier step by its number, (a constant,), or None: the count. */
static PyObject *step_operand(const Composition *so_far, PyObject *operand)
{
    if (operand == Py_None)
        return so_far->count;
    return PyTuple_Check(operand) ? PyTuple_GET_ITEM(operand, 0) : so_far->made[PyLong_AsLong(operand)];
}

static PyObject *build_reduced_step(Composition *so_far, PyObject *spec, PyObject *a, PyObject *axis, int constant)
{
    double count;
    PyObject *node = build_reduction(spec, a, axis, &count);
    if (node && !so_far->count)
        so_far->count = PyFloat_FromDouble(count);
    if (node && (!so_far->count || (constant && PyDict_SetItem(SLOT(node, attrs_at), name_constant, Py_True))))
        Py_CLEAR(node);
    return node;
}

/* `a` in the dtype that `attrs` names: float32, or float64. */
static PyObject *build_converted(PyObject *spec, PyObject *a, PyObject *attrs)
{
    Traits traits;
    PyObject *bits = PyDict_Check(attrs) ? PyDict_GetItemWithError(attrs, name_bits) : NULL;
    const long digits = bits ? PyLong_AsLong(bits) : 0;
    if ((digits != 32 && digits != 64) || !expression_traits(a, &traits))
        return NULL;
    Py_SETREF(traits.dtype, own(digits == 32 ? float32 : float64));
    return new_node(spec, packed(&a, 1), own(attrs), traits);
}

/* A rule as tape.py's class of that name makes it for one parent; `more` is that class, name, grad, key. */
static PyObject *new_rule(PyObject *more, PyObject *parent)
{
    PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(more, 0);
    PyObject *parents = packed(&parent, 1), *made = NULL;
    if (parents) {
        PyObject *fields = packed(
            (PyObject *[]){PyTuple_GET_ITEM(more, 1), parents, PyTuple_GET_ITEM(more, 2), Py_True, Py_False, PyTuple_GET_ITEM(more, 3)}, 6);
        PyObject *given = fields ? packed(&fields, 1) : NULL;
        made = given ? PyTuple_Type.tp_new(type, given, NULL) : NULL; /* a named tuple, without Python's constructor */
        Py_XDECREF(given);
        Py_XDECREF(fields);
    }
    Py_XDECREF(parents);
    return made;
}

/* `a` with the gradient by `parent` that a rule says, as ruled() of tape.py. */
static PyObject *build_ruled(PyObject *spec, PyObject *a, PyObject *parent, PyObject *more)
{
    Traits traits;
    if (!expression_traits(a, &traits))
        return NULL;
    PyObject *rule = new_rule(more, parent), *attrs = rule ? PyDict_New() : NULL;
    if (!attrs || PyDict_SetItem(attrs, name_shape, traits.shape) || PyDict_SetItem(attrs, name_rule, rule))
        Py_CLEAR(attrs);
    Py_XDECREF(rule);
    PyErr_Clear();
    return new_node(spec, packed(&a, 1), attrs, traits);
}

/* Whether `a` is an expression whose dtype is of this kind. */
static int has_dtype(PyObject *a, int (*is)(PyObject *))
{
    Traits traits;
    if (!expression_traits(a, &traits))
        return 0;
    const int it_is = is(traits.dtype);
    drop(&traits);
    return it_is;
}

/* The node of a step (row of the op, operands, enum step, what else it is made of). */
static PyObject *build_step(Composition *so_far, PyObject *step, PyObject *axis)
{
    PyObject *spec = PyTuple_GET_ITEM(step, 0), *given = PyTuple_GET_ITEM(step, 1), *operand[3];
    const long kind = PyLong_AsLong(PyTuple_GET_ITEM(step, 2));
    const Py_ssize_t count = PyTuple_GET_SIZE(given);
    for (Py_ssize_t k = 0; k < count; k++)
        if (!(operand[k] = step_operand(so_far, PyTuple_GET_ITEM(given, k))))
            return NULL;
    if (kind == CONVERTED || kind == RULED) {
        if (!has_dtype(so_far->made[0], is_float32))
            return NULL;
        PyObject *more = PyTuple_GET_ITEM(step, 3);
        return kind == CONVERTED ? build_converted(spec, operand[0], more) : build_ruled(spec, operand[0], so_far->made[0], more);
    }
    if (kind != ELEMENTWISE)
        return build_reduced_step(so_far, spec, operand[0], axis, kind == REDUCED_TO_CONSTANT);
    if (count == 1)
        return build_one(spec, Py_None, operand[0]);
    return count == 2 ? build_two(spec, Py_None, operand[0], operand[1], NULL) : build_three(spec, operand[0], operand[1], operand[2]);
}

static PyObject *build_composed(PyObject *steps, PyObject *a, PyObject *axis)
{
    Composition so_far = {{a}, NULL};
    const Py_ssize_t count = PyTuple_GET_SIZE(steps);
    Py_ssize_t done = 0;
    while (done < count && (so_far.made[done + 1] = build_step(&so_far, PyTuple_GET_ITEM(steps, done), axis)))
        done++;
    PyObject *last = done == count ? own(so_far.made[count]) : NULL;
    while (done)
        Py_DECREF(so_far.made[done--]);
    Py_XDECREF(so_far.count);
    return last;
}

/* The tuples of axes. */
static int prepare_axes(void)
{
    PyObject *numbers[FEW_AXES], *ones[FEW_AXES];
    if (!(number_one = PyLong_FromLong(1)))
        return -1;
    for (Py_ssize_t axis = 0; axis < FEW_AXES; axis++) {
        ones[axis] = number_one;
        if (!(numbers[axis] = PyLong_FromSsize_t(axis)) || !(one_axis[axis] = packed(&numbers[axis], 1)))
            return -1;
        if (!(all_axes[axis + 1] = packed(numbers, axis + 1)) || !(all_ones[axis + 1] = packed(ones, axis + 1)))
            return -1;
    }
    return 0;
}

#endif
