/* Callables and operators that build nodes by fastpath_nodes.h and views by fastpath_views.h, and call Python where that cannot. Part of fastpath.c.
 *
 * A builder replaces a Python function, its original, whose attributes it forwards. The operators of a class are slots
 * of its type: they are set in C, and reset by Python itself if the class is given another operator.
 */
#ifndef NL_FASTPATH_BUILDERS_H
#define NL_FASTPATH_BUILDERS_H

#include "fastpath_recalled.h"
#include "fastpath_views.h"
#include <stddef.h>
#include <structmember.h>

/* Builders -------------------------------------------------------------------------------------------------------- */

enum kind { UNARY, BINARY, TERNARY, REDUCTION, COMPOSED, RECALLED, ASSIGN, VIEW }; /* those before ASSIGN build nodes */
static const char *const kinds[] = {"unary", "binary", "ternary", "reduction", "composed", "recalled", "assign", "view"};

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *original;      /* the Python function that it replaces */
    PyObject *spec; /* a row of the table of ops (recalled: of an op on bits), or the steps of a composition; None where there is none */
    PyObject *axis; /* unless one is given, of reductions and compositions */
    PyObject *whole; /* dtype of a result of integers, of elementwise ops; None: Python's function makes the node */
    enum kind kind;
    int skip; /* arguments before the operands: 1 in a method of backends */
    int halves; /* whether a composition has the same steps in 16 bits */
    int out; /* place of the parameter `out` behind these, of a method that computes the nodes into it; -1: it has none */
} Builder;

static PyObject *name_assign, *name_out;

static PyObject *assign(PyObject *backend, PyObject *target, PyObject *value);

/* The axis argument of a reduction, `unless` it is not given; NULL if there are other arguments. */
static PyObject *axis_of(PyObject *const *given, Py_ssize_t count, PyObject *named, PyObject *unless)
{
    const Py_ssize_t all = count + (named ? PyTuple_GET_SIZE(named) : 0);
    if (count == 1 && all == 1)
        return unless;
    if (all != 2 || (count == 1 && PyUnicode_Compare(PyTuple_GET_ITEM(named, 0), name_axis)))
        return NULL;
    return count ? given[1] : NULL;
}

/* The result of a call; NULL without an exception where there is no rule for it. */
static PyObject *build(const Builder *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    PyObject *axis;
    double elements;
    switch (self->kind) {
    case UNARY:
        return count == 1 && !named ? build_one(self->spec, self->whole, given[0]) : NULL;
    case BINARY:
        return count == 2 && !named ? build_two(self->spec, self->whole, given[0], given[1], self->skip ? given[-1] : NULL) : NULL;
    case TERNARY:
        return count == 3 && !named ? build_three(self->spec, given[0], given[1], given[2]) : NULL;
    case REDUCTION:
        axis = axis_of(given, count, named, self->axis);
        return axis ? build_reduction(self->spec, given[0], axis, &elements) : NULL;
    case COMPOSED:
        axis = axis_of(given, count, named, self->axis);
        return axis && (self->halves || !has_dtype(given[0], is_half)) ? build_composed(self->spec, given[0], axis) : NULL;
    case RECALLED:
        return NULL;
    case ASSIGN:
        return count == 2 && !named ? assign(given[-1], given[0], given[1]) : NULL;
    case VIEW:
        return count == 1 && !named ? build_view(given[-1], given[0]) : NULL;
    }
    return NULL;
}

/* Whether a function that builds nodes of no rule looks at what others move. */
static int looks_at_moves(const Builder *self)
{
    return self->kind == RECALLED && self->spec != Py_None;
}

/* The nodes of a call: by the rule of their kind, else as Python has made them before, else by Python. */
static PyObject *build_or_recall(const Builder *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    PyObject *made = count > self->skip ? build(self, given + self->skip, count - self->skip, named) : NULL;
    if (made || PyErr_Occurred())
        return made;
    if (self->kind < ASSIGN && count > self->skip)
        return recall(&(Built){self->original, NULL, given, named, count, self->skip, looks_at_moves(self)});
    return PyObject_Vectorcall(self->original, given, (size_t)count, named);
}

/* `out`, a tensor of the backend, which is the last argument of a call; NULL: it has none. */
static PyObject *out_of(const Builder *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    const Py_ssize_t names = named ? PyTuple_GET_SIZE(named) : 0;
    const Py_ssize_t before = self->skip + self->out; /* arguments by position */
    const int by_name = names && PyTuple_GET_ITEM(named, names - 1) == name_out && count <= before;
    if (self->out < 0 || !(by_name || (!names && count == before + 1)))
        return NULL;
    PyObject *last = given[count + names - 1];
    Place *place = is_tensor(Py_TYPE(last)) ? place_of(last) : NULL;
    const int ours = place && place->backend == given[0];
    Py_XDECREF(place);
    PyErr_Clear();
    return ours ? last : NULL;
}

static PyObject *store(PyObject *backend, PyObject *target, PyObject *value);

static PyObject *builder_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    const Builder *self = (Builder *)object;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged), names = named ? PyTuple_GET_SIZE(named) : 0;
    PyObject *out = out_of(self, given, count, named);
    if (!out)
        return build_or_recall(self, given, count, named);
    PyObject *others = names > 1 ? PyTuple_GetSlice(named, 0, names - 1) : NULL, *done = NULL;
    PyObject *made = PyErr_Occurred() ? NULL : build_or_recall(self, given, names ? count : count - 1, others);
    if (made)
        done = store(given[0], out, made);
    Py_XDECREF(others);
    Py_XDECREF(made);
    return done;
}

static PyObject *builder_bound(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : own(self);
}

/* Other attributes are the original's: __name__, __module__, ... */
static PyObject *builder_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Builder *)self)->original, name);
}

static PyObject *builder_doc(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyObject_GetAttrString(((Builder *)self)->original, "__doc__");
}

static PyObject *builder_repr(PyObject *self)
{
    return PyObject_Repr(((Builder *)self)->original);
}

/* Whether `operand` is one that a step has which `before` others precede. */
static int is_step_operand(PyObject *operand, Py_ssize_t before)
{
    if (PyTuple_Check(operand))
        return PyTuple_GET_SIZE(operand) == 1;
    if (!PyLong_Check(operand))
        return operand == Py_None;
    const long place = PyLong_AsLong(operand);
    return place >= 0 && place <= before;
}

/* Whether a step of this kind may be made of this besides its operands: a rule of its class, name, grad and key. */
static int is_made_of(long kind, PyObject *more)
{
    if (kind != RULED)
        return kind == CONVERTED ? PyDict_Check(more) : more == Py_None;
    PyObject *type = PyTuple_Check(more) && PyTuple_GET_SIZE(more) == 4 ? PyTuple_GET_ITEM(more, 0) : Py_None;
    return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
}

/* Whether `steps` are those of a composition, of as many as there may be. */
static int is_composition(PyObject *steps)
{
    const Py_ssize_t count = PyTuple_Check(steps) ? PyTuple_GET_SIZE(steps) : 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *step = PyTuple_GET_ITEM(steps, k);
        PyObject *operands = PyTuple_Check(step) && PyTuple_GET_SIZE(step) == 4 ? PyTuple_GET_ITEM(step, 1) : Py_None;
        const Py_ssize_t arity = PyTuple_Check(operands) ? PyTuple_GET_SIZE(operands) : 0;
        if (arity < 1 || arity > 3 || !PyLong_Check(PyTuple_GET_ITEM(step, 2)))
            return 0;
        if (!is_made_of(PyLong_AsLong(PyTuple_GET_ITEM(step, 2)), PyTuple_GET_ITEM(step, 3)))
            return 0;
        for (Py_ssize_t i = 0; i < arity; i++)
            if (!is_step_operand(PyTuple_GET_ITEM(operands, i), k))
                return 0;
    }
    return count > 0 && count <= MOST_NODES;
}

static PyObject *builder_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"kind", "original", "spec", "axis", "skip", "halves", "whole", "out", NULL};
    const char *kind;
    PyObject *original, *spec = Py_None, *axis = Py_None, *whole = Py_None;
    int skip = 0, halves = 0, out = -1;
    size_t k = 0;
    if (!PyArg_ParseTupleAndKeywords(given, named, "sO|OOppOi", names, &kind, &original, &spec, &axis, &skip, &halves, &whole, &out))
        return NULL;
    while (k < sizeof kinds / sizeof *kinds && strcmp(kinds[k], kind))
        k++;
    if (k == sizeof kinds / sizeof *kinds || !PyCallable_Check(original) || ((k == ASSIGN || k == VIEW) && !skip)
        || (k == COMPOSED && !is_composition(spec)) || (out >= 0 && !skip)) {
        PyErr_Format(PyExc_TypeError, "no builder of kind '%s' for %R", kind, original);
        return NULL;
    }
    Builder *self = (Builder *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = builder_call;
    self->kind = (enum kind)k;
    self->skip = skip;
    self->halves = halves;
    self->out = out;
    self->original = own(original);
    self->spec = own(spec);
    self->axis = own(axis);
    self->whole = own(whole);
    return (PyObject *)self;
}

/* Builders never change, so that there is nothing to clear in a cycle through one. */
static int builder_traverse(PyObject *object, visitproc visit, void *arg)
{
    Builder *self = (Builder *)object;
    Py_VISIT(self->original);
    Py_VISIT(self->spec);
    Py_VISIT(self->axis);
    Py_VISIT(self->whole);
    return 0;
}

static void builder_dealloc(PyObject *object)
{
    Builder *self = (Builder *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->original);
    Py_XDECREF(self->spec);
    Py_XDECREF(self->axis);
    Py_XDECREF(self->whole);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef builder_getset[] = {
    {"__doc__", builder_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef builder_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Builder, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject builder_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Builder",
    .tp_basicsize = sizeof(Builder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Builder, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = builder_bound,
    .tp_getattro = builder_attribute,
    .tp_repr = builder_repr,
    .tp_new = builder_new,
    .tp_traverse = builder_traverse,
    .tp_dealloc = builder_dealloc,
    .tp_getset = builder_getset,
    .tp_members = builder_members,
};

/* Operators ------------------------------------------------------------------------------------------------------- */

enum operator {
    NEG, ABS, SQR, ADD, SUB, MUL, DIV, FLOORDIV, MOD, POW, LT, LE, EQ, NE, GT, GE, MATMUL, AND, OR, XOR, LSHIFT, RSHIFT, INVERT, OPERATORS
};
/* Comparisons are in the order of Python's Py_LT to Py_GE. */

static Builder *operators[OPERATORS];

static PyObject *operate(enum operator which, PyObject *a, PyObject *b)
{
    const Builder *row = operators[which];
    PyObject *made = NULL;
    if (row->kind != RECALLED)
        made = b ? build_two(row->spec, row->whole, a, b, NULL) : build_one(row->spec, row->whole, a);
    if (made || PyErr_Occurred())
        return made;
    return recall(&(Built){row->original, NULL, (PyObject *[]){a, b}, NULL, b ? 2 : 1, 0, looks_at_moves(row)});
}

static PyObject *negative(PyObject *a) { return operate(NEG, a, NULL); }
static PyObject *absolute(PyObject *a) { return operate(ABS, a, NULL); }
static PyObject *add(PyObject *a, PyObject *b) { return operate(ADD, a, b); }
static PyObject *subtract(PyObject *a, PyObject *b) { return operate(SUB, a, b); }
static PyObject *multiply(PyObject *a, PyObject *b) { return operate(MUL, a, b); }
static PyObject *divide(PyObject *a, PyObject *b) { return operate(DIV, a, b); }
static PyObject *divide_down(PyObject *a, PyObject *b) { return operate(FLOORDIV, a, b); }
static PyObject *remain(PyObject *a, PyObject *b) { return operate(MOD, a, b); }
static PyObject *multiply_matrices(PyObject *a, PyObject *b) { return operate(MATMUL, a, b); }
static PyObject *and(PyObject *a, PyObject *b) { return operate(AND, a, b); }
static PyObject *or(PyObject *a, PyObject *b) { return operate(OR, a, b); }
static PyObject *xor(PyObject *a, PyObject *b) { return operate(XOR, a, b); }
static PyObject *shift_left(PyObject *a, PyObject *b) { return operate(LSHIFT, a, b); }
static PyObject *shift_right(PyObject *a, PyObject *b) { return operate(RSHIFT, a, b); }
static PyObject *invert(PyObject *a) { return operate(INVERT, a, NULL); }

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    double exponent = 0;
    if (PyFloat_CheckExact(b))
        exponent = PyFloat_AS_DOUBLE(b);
    else if (PyLong_CheckExact(b) && (exponent = PyLong_AsDouble(b)) == -1)
        PyErr_Clear(); /* too large for a double, or -1 */
    return exponent == 2 ? operate(SQR, a, NULL) : operate(POW, a, b);
}

typedef struct {
    PyTypeObject *type;
    PyNumberMethods number;
    richcmpfunc compare;
    objobjargproc set_item;
} Attached;

static Attached attached[1 + TENSOR_CLASSES]; /* nodes, tensors: their slots as Python has made them */

/* The slots that an object's class had. */
static const Attached *slots_of(PyObject *object)
{
    int k = TENSOR_CLASSES;
    while (k && !(attached[k].type && PyType_IsSubtype(Py_TYPE(object), attached[k].type)))
        k--;
    return attached + k;
}

static PyObject *compare(PyObject *a, PyObject *b, int how)
{
    const Builder *row = operators[LT + how];
    PyObject *made = build_two(row->spec, row->whole, a, b, NULL);
    if (made || PyErr_Occurred())
        return made;
    return slots_of(a)->compare(a, b, how);
}

/* backend.assign(target, value), without a look for the method where it is the extension's. */
static PyObject *store(PyObject *backend, PyObject *target, PyObject *value)
{
    PyObject *method = PyObject_GenericGetAttr(backend, name_assign), *done = NULL; /* past its __getattr__ */
    if (method && PyMethod_Check(method) && Py_TYPE(PyMethod_GET_FUNCTION(method)) == &builder_type
        && ((Builder *)PyMethod_GET_FUNCTION(method))->kind == ASSIGN)
        done = assign(backend, target, value);
    if (!done && (!PyErr_Occurred() || !method)) {
        PyErr_Clear();
        done = PyObject_CallMethodObjArgs(backend, name_assign, target, value, NULL);
    }
    Py_XDECREF(method);
    return done;
}

/* `tensor[index] = value`: Tensor.__setitem__, of which this is the case of [:]. */
static int set_item(PyObject *tensor, PyObject *index, PyObject *value)
{
    const PySliceObject *slice = (PySliceObject *)index;
    if (!value || !PySlice_Check(index) || slice->start != Py_None || slice->stop != Py_None || slice->step != Py_None)
        return slots_of(tensor)->set_item(tensor, index, value);
    Place *place = kept_place(tensor);
    PyObject *backend = place ? own(place->backend) : PyObject_GetAttr(tensor, name_backend);
    PyObject *done = backend ? store(backend, tensor, value) : NULL;
    Py_XDECREF(place);
    Py_XDECREF(backend);
    if (!done)
        return -1;
    Py_DECREF(done);
    return 0;
}

static void detach(Attached *from)
{
    PyTypeObject *type = from->type;
    if (!type)
        return;
    *type->tp_as_number = from->number;
    type->tp_richcompare = from->compare;
    type->tp_as_mapping->mp_ass_subscript = from->set_item;
    from->type = NULL;
    Py_DECREF(type);
}

/* Give the class of nodes, or one of tensors, its operators; a third class of tensors gets none. */
static int attach(PyTypeObject *type)
{
    int k = type != node_type;
    while (k && k < TENSOR_CLASSES && attached[k].type && attached[k].type != type)
        k++;
    Attached *to = attached + k;
    PyNumberMethods *number = type->tp_as_number;
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || !operators[0]) {
        PyErr_Format(PyExc_TypeError, "%s gets no operators", type->tp_name);
        return -1;
    }
    if (to->type)
        return 0;
    *to = (Attached){type, *number, type->tp_richcompare, type->tp_as_mapping->mp_ass_subscript};
    Py_INCREF(type);
    number->nb_negative = negative;
    number->nb_absolute = absolute;
    number->nb_add = add;
    number->nb_subtract = subtract;
    number->nb_multiply = multiply;
    number->nb_true_divide = divide;
    number->nb_floor_divide = divide_down;
    number->nb_remainder = remain;
    number->nb_power = power;
    number->nb_matrix_multiply = multiply_matrices;
    number->nb_and = and;
    number->nb_or = or;
    number->nb_xor = xor;
    number->nb_lshift = shift_left;
    number->nb_rshift = shift_right;
    number->nb_invert = invert;
    type->tp_richcompare = compare;
    if (k) {
        tensor_class[k - 1] = type;
        type->tp_as_mapping->mp_ass_subscript = set_item;
    }
    return 0;
}

#endif
