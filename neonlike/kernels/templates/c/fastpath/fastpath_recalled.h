/* Nodes that a builder has made before, made again of other operands. Part of fastpath.c.
 *
 * A function that builds nodes looks at dtypes, shapes and layouts of its operands, and at its other arguments, but never
 * at values. So the same key leads to the same nodes. The first call with a key leaves a mark in the table; the second has
 * tree_steps() of compositions.py read the steps off the nodes that Python has made; from the third on they are made here.
 * Constants among the operands, such as the border of pad(), are shared by all that are made.
 */
#ifndef NL_FASTPATH_RECALLED_H
#define NL_FASTPATH_RECALLED_H

#include "fastpath_asked.h"

enum { MOST_STEPS = 64, MOST_DEPTH = 4, MOST_TEXT = 64, MOST_RECALLED_WORDS = 256 };

static PyObject *name_of_value; /* of members of enumerations */
static PyObject *tree_steps; /* Python's function (root, operands, backend) -> steps, or None */

/* A call of a builder. Its operands are all tensors, nodes and named objects, in order; a tensor has a place. */
static Asked recalled;
static int recalling; /* whether `recalled` is in use: what Python does meanwhile is left to Python */

/* A call of a function that builds nodes; of a method, the backend is the first argument. */
typedef struct {
    PyObject *function, *backend, *const *given, *named;
    Py_ssize_t count; /* of arguments by position */
    int method;
    int looks; /* whether it looks at what the nodes among its operands move, as ops on bits do */
} Built;

static PyObject *operand_backend(PyObject *value)
{
    if (Py_TYPE(value) == node_type)
        return SLOT(value, backend_at);
    Place *place = is_tensor(Py_TYPE(value)) ? place_of(value) : NULL;
    PyObject *backend = place ? place->backend : NULL; /* borrowed: the tensor has it */
    Py_XDECREF(place);
    return backend;
}

/* The number of `object` among the operands, of which it is one from now on; -1: there are too many. */
static int operand_number(Asked *asked, PyObject *object)
{
    int k = 0;
    while (k < asked->parameters && asked->at[k] != object)
        k++;
    if (k == MOST_PARAMETERS)
        return -1;
    if (k == asked->parameters) {
        asked->at[asked->parameters++] = own(object);
        asked->place[k] = NULL;
    }
    return k;
}

static int recall_object(Asked *asked, PyObject *object)
{
    return operand_number(asked, object) < 0 || ask_word(asked, IDENTIFIED) || ask_word(asked, (int64_t)(intptr_t)object);
}

/* Whether `value` is a dtype, each kind of which has a class of its own in NumPy, or a class. */
static int is_told_by_identity(PyObject *value)
{
    return PyType_Check(value) || PyType_IsSubtype(Py_TYPE(value), Py_TYPE(float32)->tp_base);
}

static int recall_text(Asked *asked, PyObject *text)
{
    Py_ssize_t bytes;
    const char *from = PyUnicode_AsUTF8AndSize(text, &bytes);
    if (!from || bytes > MOST_TEXT || ask_word(asked, TEXT) || ask_word(asked, bytes))
        return -1;
    for (Py_ssize_t at = 0; at < bytes; at += (Py_ssize_t)sizeof(int64_t)) {
        int64_t word = 0;
        memcpy(&word, from + at, (size_t)(bytes - at) < sizeof word ? (size_t)(bytes - at) : sizeof word);
        if (ask_word(asked, word))
            return -1;
    }
    return 0;
}

/* Whether an operand of this shape may be given again: one of a single element could be read as a number there. */
static int may_be_given_again(PyObject *shape)
{
    Py_ssize_t sizes[FEW_AXES], elements = 1;
    const Py_ssize_t count = shape ? sizes_of(shape, sizes) : -1;
    for (Py_ssize_t axis = 0; axis < count; axis++)
        elements *= sizes[axis];
    return count >= 0 && elements > 1;
}

/* Whether the kind of a row is Kind.MOVE of ops.py. */
static int is_move(PyObject *spec)
{
    PyObject *kind = PyObject_GetAttr(spec, name_kind), *value = kind ? PyObject_GetAttr(kind, name_of_value) : NULL;
    const int moves = value && PyUnicode_Check(value) && !PyUnicode_CompareWithASCIIString(value, "move");
    Py_XDECREF(kind);
    Py_XDECREF(value);
    PyErr_Clear();
    return moves;
}

static int recall_node(Asked *asked, PyObject *node, const Built *call)
{
    Py_ssize_t sizes[FEW_AXES];
    const int before = asked->parameters, number = operand_number(asked, node);
    const Py_ssize_t count = sizes_of(SLOT(node, shape_at), sizes);
    if (number < 0 || count < 0 || SLOT(node, backend_at) != call->backend || ask_word(asked, NODE) || ask_word(asked, number))
        return -1;
    if (number < before)
        return may_be_given_again(SLOT(node, shape_at)) ? 0 : -1;
    const Spec *known = spec_of(SLOT(node, spec_at)); /* which is never released */
    if (!known || (call->looks && is_move(known->spec)) || ask_word(asked, (int64_t)(intptr_t)known->spec) || ask_word(asked, count))
        return -1;
    for (Py_ssize_t axis = 0; axis < count; axis++)
        ask_word(asked, sizes[axis]);
    return recall_object(asked, SLOT(node, dtype_at));
}

static int recall_tensor(Asked *asked, PyObject *tensor, const Built *call)
{
    const int before = asked->parameters, number = operand_number(asked, tensor);
    if (number < 0)
        return -1;
    if (number == before)
        return ask_tensor(asked, number, call->backend, 0);
    return may_be_given_again(asked->place[number]->shape) ? ask_word(asked, TENSOR + number) : -1;
}

static int recall_argument(Asked *asked, PyObject *value, const Built *call, int depth);

/* A list or tuple. While a tensor is asked for its place others may change a list. */
static int recall_several(Asked *asked, PyObject *items, const Built *call, int depth)
{
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    int failed = depth == MOST_DEPTH || ask_word(asked, PyTuple_CheckExact(items) ? SEVERAL : LISTED) || ask_word(asked, count);
    for (Py_ssize_t k = 0; k < count && !failed; k++) {
        PyObject *item = k < PySequence_Fast_GET_SIZE(items) ? own(PySequence_Fast_GET_ITEM(items, k)) : NULL;
        failed = !item || recall_argument(asked, item, call, depth + 1);
        Py_XDECREF(item);
    }
    return failed;
}

static int recall_argument(Asked *asked, PyObject *value, const Built *call, int depth)
{
    PyTypeObject *const type = Py_TYPE(value);
    if (asked->words > MOST_RECALLED_WORDS)
        return -1;
    if (type == node_type)
        return recall_node(asked, value, call);
    if (is_tensor(type))
        return recall_tensor(asked, value, call);
    if (PyUnicode_CheckExact(value))
        return recall_text(asked, value);
    if (is_told_by_identity(value))
        return recall_object(asked, value);
    if (type == &PyTuple_Type || type == &PyList_Type)
        return recall_several(asked, value, call, depth);
    return ask_plain(asked, value);
}

/* The key of a call; -1 if it has none. release_recalled() has to follow. */
static int recall_key(const Built *call)
{
    const Py_ssize_t names = call->named ? PyTuple_GET_SIZE(call->named) : 0;
    recalling = 1;
    recalled.parameters = recalled.words = recalled.listed = 0;
    recalled.hash = 0;
    int failed = ask_word(&recalled, (int64_t)(intptr_t)call->function) || ask_word(&recalled, call->count);
    for (Py_ssize_t k = 0; k < names && !failed; k++)
        failed = recall_argument(&recalled, PyTuple_GET_ITEM(call->named, k), call, 0);
    for (Py_ssize_t k = call->method; k < call->count + names && !failed; k++)
        failed = recall_argument(&recalled, call->given[k], call, 0);
    if (PyErr_ExceptionMatches(PyExc_Exception)) /* all but Ctrl-C while Python was asked for something */
        PyErr_Clear();
    return failed || PyErr_Occurred() ? -1 : 0;
}

static void release_recalled(void)
{
    forget_asked(&recalled);
    while (recalled.parameters)
        Py_DECREF(recalled.at[--recalled.parameters]);
    recalling = 0;
}

/* Making nodes ----------------------------------------------------------------------------------------------------- */

/* The operand that a step names, borrowed: the node of a step, below 0 an operand of the call, or (a constant,). */
static PyObject *recalled_operand(PyObject *named, PyObject *const *made)
{
    if (PyTuple_CheckExact(named))
        return PyTuple_GET_ITEM(named, 0);
    const long number = PyLong_AsLong(named);
    return number < 0 ? recalled.at[-1 - number] : made[number];
}

/* The node of a step (row of the op, operands, attributes, shape, dtype). */
static PyObject *recalled_node(PyObject *step, PyObject *const *made, PyObject *backend)
{
    PyObject *named = PyTuple_GET_ITEM(step, 1), *attrs = PyTuple_GET_ITEM(step, 2);
    PyObject *operands = PyTuple_New(PyTuple_GET_SIZE(named));
    for (Py_ssize_t k = 0; operands && k < PyTuple_GET_SIZE(named); k++)
        PyTuple_SET_ITEM(operands, k, own(recalled_operand(PyTuple_GET_ITEM(named, k), made)));
    attrs = attrs == Py_None ? own(attrs) : PyDict_Copy(attrs);
    return new_node(PyTuple_GET_ITEM(step, 0), operands, attrs,
                    (Traits){own(PyTuple_GET_ITEM(step, 3)), own(PyTuple_GET_ITEM(step, 4)), own(backend)});
}

static PyObject *recalled_tree(PyObject *steps, PyObject *backend)
{
    PyObject *made[MOST_STEPS], *root = NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(steps);
    Py_ssize_t done = 0;
    while (done < count && (made[done] = recalled_node(PyTuple_GET_ITEM(steps, done), made, backend)))
        done++;
    if (done == count)
        root = own(made[count - 1]);
    while (done)
        Py_DECREF(made[--done]);
    return root;
}

/* Learning --------------------------------------------------------------------------------------------------------- */

/* What the key has addresses of: the function, and all that is told by its identity. */
static PyObject *recalled_keepers(PyObject *function)
{
    PyObject *kept = PyList_New(0);
    int failed = !kept || PyList_Append(kept, function);
    for (int k = 0; k < recalled.parameters && !failed; k++)
        if (!recalled.place[k] && Py_TYPE(recalled.at[k]) != node_type)
            failed = PyList_Append(kept, recalled.at[k]);
    if (failed)
        Py_CLEAR(kept);
    return kept;
}

/* Enter the key of `recalled` with the steps of its nodes; NULL: they are not known yet. */
static void enter_recalled(Table *table, PyObject *function, PyObject *steps)
{
    Entry *entry = new_entry(recalled.hash, recalled.word, recalled.words, 0, 0, 0);
    if (!entry)
        return;
    entry->returned = own(steps);
    if ((entry->keep = recalled_keepers(function)))
        keep_entry(table, entry);
    else
        free_entry(entry);
    PyErr_Clear();
}

/* Learn from `root`, which Python has made in a call whose operands `recalled` has; -1 with an exception, such as Ctrl-C. */
static int learn_recalled(Table *table, const Built *call, PyObject *root)
{
    PyObject *operands = packed(recalled.at, recalled.parameters);
    PyObject *steps = operands ? PyObject_CallFunctionObjArgs(tree_steps, root, operands, call->backend, NULL) : NULL;
    const int failed = !steps;
    if (!failed)
        enter_recalled(table, call->function, PyTuple_CheckExact(steps) && PyTuple_GET_SIZE(steps) <= MOST_STEPS ? steps : Py_None);
    Py_XDECREF(operands);
    Py_XDECREF(steps);
    return failed ? -1 : 0;
}

static PyObject *call_python(const Built *call)
{
    return PyObject_Vectorcall(call->function, call->given, (size_t)call->count, call->named);
}

/* Call the function, and note what it makes. */
static PyObject *call_and_learn(Table *table, const Built *call)
{
    PyObject *root = call_python(call);
    if (!root || recalling)
        return root;
    const int known = !recall_key(call); /* anew: the function may have called others */
    if ((known && learn_recalled(table, call, root)) || PyErr_Occurred())
        Py_CLEAR(root);
    release_recalled();
    return root;
}

/* The steps of the nodes for a call, a new reference: NULL if there are none. In `learns`: whether it is the second with its
 * key. */
static PyObject *recalled_steps(Table *table, const Built *call, int *learns)
{
    if (recall_key(call))
        return NULL;
    const Entry *entry = *find(table, recalled.hash, recalled.word, recalled.words);
    *learns = entry && !entry->returned;
    if (!entry)
        enter_recalled(table, call->function, NULL);
    return entry && entry->returned != Py_None ? own(entry->returned) : NULL;
}

/* What the function makes of its arguments, by the steps that are known of it; else it is called. */
static PyObject *recall(Built *call)
{
    PyObject *replay = NULL;
    call->backend = call->method ? call->given[0] : NULL;
    for (Py_ssize_t k = 0; k < call->count && !call->backend; k++)
        call->backend = operand_backend(call->given[k]);
    PyErr_Clear();
    Table *table = call->backend && call->backend != Py_None && !recalling ? table_of(call->backend, &replay) : NULL;
    if (!table)
        return call_python(call);
    int learns = 0;
    PyObject *steps = recalled_steps(table, call, &learns), *made = steps ? recalled_tree(steps, call->backend) : NULL;
    release_recalled();
    Py_XDECREF(steps);
    if (!made && !PyErr_Occurred())
        made = learns ? call_and_learn(table, call) : call_python(call);
    Py_DECREF(table);
    Py_DECREF(replay);
    return made;
}

#endif
