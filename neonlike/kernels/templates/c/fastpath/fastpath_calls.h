/* Calls of compound primitives that were made before, started without Python. Part of fastpath.c.
 *
 * A `Forwarding` stands for a method of backends. It writes the arguments of a call into a key of words: data type, shape
 * and strides of each tensor, and which of them are one; numbers bit by bit; the identity of the argument for a parameter
 * among IDENTIFIED of run/calls.py (a layer, quantized weights). For a key in the table, the program is run on the
 * tensors' addresses. Other arguments, and calls not met before, go to the method, which defines what they mean; its trace
 * (run/trace.py) then says whether the call was one program.
 */
#ifndef NL_FASTPATH_CALLS_H
#define NL_FASTPATH_CALLS_H

#include "fastpath_builders.h"

static PyObject *name_begin_call, *name_end_call;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *original;   /* the method as Python defines it */
    PyObject *names;      /* of its parameters after self */
    PyObject *attributes; /* of the backend, on whose values the program depends */
    int positional;       /* how many of these may be given by position */
    int identified;       /* the parameter that is told by its identity; -1: none */
    int pinned;           /* whether it takes lists of tensors, and the program is for these very tensors */
} Forwarding;

/* Keys ------------------------------------------------------------------------------------------------------------- */

/* A list of tensors and None, which are told by their places: these are held, so that no others have their addresses. */
static int ask_list(Asked *asked, PyObject *list, PyObject *backend)
{
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    if (ask_word(asked, LISTED) || ask_word(asked, count) || asked->listed + count > MOST_LISTED)
        return -1;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (k >= PySequence_Fast_GET_SIZE(list)) /* others have changed it while a tensor was asked for its place */
            return -1;
        PyObject *item = own(PySequence_Fast_GET_ITEM(list, k));
        const int nothing = item == Py_None;
        Place *place = is_tensor(Py_TYPE(item)) ? place_of(item) : NULL;
        Py_DECREF(item);
        if (place)
            asked->held[asked->listed++] = place;
        if ((!place && !nothing) || (place && place->backend != backend) || ask_word(asked, (int64_t)(intptr_t)place))
            return -1;
    }
    return 0;
}

static int ask_attributes(Asked *asked, const Forwarding *self, PyObject *backend)
{
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self->attributes) && !failed; k++) {
        PyObject *value = PyObject_GetAttr(backend, PyTuple_GET_ITEM(self->attributes, k));
        failed = !value || ask_plain(asked, value);
        Py_XDECREF(value);
    }
    return failed;
}

/* Sort the arguments by parameter; -1 if the method would refuse them. */
static int sort_arguments(Asked *asked, const Forwarding *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    const int parameters = (int)PyTuple_GET_SIZE(self->names);
    if (count > self->positional)
        return -1;
    for (int k = 0; k < parameters; k++) {
        asked->at[k] = k < count ? given[k] : NULL;
        asked->place[k] = NULL;
    }
    asked->parameters = parameters;
    int next = 0;
    for (Py_ssize_t k = 0; named && k < PyTuple_GET_SIZE(named); k++) {
        PyObject *name = PyTuple_GET_ITEM(named, k);
        int looked = 0; /* names are interned, and mostly in the order of the parameters */
        while (looked < parameters && PyTuple_GET_ITEM(self->names, next) != name) {
            next = (next + 1) % parameters;
            looked++;
        }
        if (looked == parameters || asked->at[next])
            return -1;
        asked->at[next] = given[count + k];
        next = (next + 1) % parameters;
    }
    return 0;
}

static int ask_argument(Asked *asked, const Forwarding *self, int k, PyObject *backend)
{
    PyObject *value = asked->at[k];
    if (value && is_tensor(Py_TYPE(value)))
        return ask_tensor(asked, k, backend, self->pinned);
    if (value && k == self->identified && value != Py_None)
        return ask_word(asked, IDENTIFIED) || ask_word(asked, (int64_t)(intptr_t)value);
    if (value && self->pinned && (PyList_CheckExact(value) || PyTuple_CheckExact(value)))
        return ask_list(asked, value, backend);
    if (value && self->pinned && Py_TYPE(value) != node_type && PyCallable_Check(value))
        return ask_word(asked, FUNCTION);
    return ask_plain(asked, value);
}

/* The key of a call; -1 if Python has to do it. forget_asked() has to follow. */
static int ask(Asked *asked, const Forwarding *self, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    PyObject *const backend = given[0];
    asked->parameters = asked->words = asked->listed = 0;
    asked->hash = 0;
    if (sort_arguments(asked, self, given + 1, count - 1, named) || ask_word(asked, (int64_t)(intptr_t)self->original))
        return -1;
    for (int k = 0; k < asked->parameters; k++)
        if (ask_argument(asked, self, k, backend))
            return -1;
    return ask_attributes(asked, self, backend);
}

/* Running ---------------------------------------------------------------------------------------------------------- */

/* Whether the operands lie to each other, and in the lines of the cache, as those that were learned. */
static int lie_alike(const Entry *entry, char *const *operands)
{
    for (int k = 0; k < entry->aparts; k++) {
        const Apart *apart = &entry->apart[k];
        const int64_t distance = operands[apart->other] - operands[apart->written];
        if (apart->low < distance && distance < apart->high)
            return 0;
    }
    for (int k = 0; k < entry->phases; k++)
        if ((intptr_t)operands[entry->phase[k].written] % entry->phase[k].line != entry->phase[k].place)
            return 0;
    return 1;
}

/* The functions among the arguments. */
static PyObject *functions_of(const Asked *asked)
{
    PyObject *functions = PyList_New(0);
    for (int k = 0; k < asked->parameters && functions; k++) {
        PyObject *value = asked->at[k];
        if (value && !asked->place[k] && PyCallable_Check(value) && PyList_Append(functions, value))
            Py_CLEAR(functions);
    }
    return functions;
}

/* Run the program of an entry; what the method returns. NULL without an exception if the method has to be called. */
static PyObject *start_call(Table *self, const Entry *entry, const Asked *asked)
{
    char *operands[MOST_OPERANDS];
    for (int k = 0; k < entry->program->operands; k++)
        operands[k] = entry->parameter[k] < 0 ? NULL : asked->place[entry->parameter[k]]->address;
    if (!lie_alike(entry, operands))
        return NULL;
    Program *program = (Program *)own((PyObject *)entry->program); /* others may forget the entry from here on */
    PyObject *result = own(entry->returns < 0 ? entry->returned : asked->at[entry->returns]);
    int done;
    if (is_python(program)) {
        PyObject *functions = functions_of(asked);
        done = run_python(program, operands, functions);
        Py_XDECREF(functions);
    } else
        done = run_or_refuse(program, operands) + 1;
    Py_DECREF(program);
    self->calls += done > 0;
    if (done < 1)
        Py_CLEAR(result);
    return result;
}

/* Learning --------------------------------------------------------------------------------------------------------- */

/* The parameter that `value` was given for; -1: none. */
static int parameter_of(const Asked *asked, PyObject *value)
{
    for (int k = 0; k < asked->parameters; k++)
        if (asked->place[k] && asked->at[k] == value)
            return k;
    return -1;
}

/* Rows of `width` integers from a tuple of tuples, the first `indices` of which name operands of `entry`; -1: others. */
static int read_rows(const Entry *entry, PyObject *rows, int width, int indices, int64_t *to)
{
    for (Py_ssize_t row = 0; row < PyTuple_GET_SIZE(rows); row++) {
        PyObject *numbers = PyTuple_GET_ITEM(rows, row);
        if (!PyTuple_CheckExact(numbers) || PyTuple_GET_SIZE(numbers) != width)
            return -1;
        for (int k = 0; k < width; k++, to++) {
            *to = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, k));
            if (PyErr_Occurred())
                return -1;
            if (k < indices && (*to < 0 || *to >= entry->program->operands || entry->parameter[*to] < 0))
                return -1;
        }
    }
    return 0;
}

/* What holds all that the key has addresses of: the method, the identified argument, the places of listed tensors. */
static PyObject *keepers(const Forwarding *self, const Asked *asked)
{
    PyObject *places = PyTuple_New(asked->listed);
    for (int k = 0; k < asked->listed && places; k++)
        PyTuple_SET_ITEM(places, k, own((PyObject *)asked->held[k]));
    const int at = self->identified;
    PyObject *identified = at >= 0 && asked->at[at] ? asked->at[at] : Py_None;
    PyObject *found = places ? PyTuple_Pack(3, self->original, identified, places) : NULL;
    Py_XDECREF(places);
    return found;
}

/* Whether a call returns the same each time: None, or a tuple of integers, such as a rate that was not measured. */
static int is_constant(PyObject *result)
{
    if (!PyTuple_CheckExact(result))
        return result == Py_None;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(result); k++)
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(result, k)))
            return 0;
    return 1;
}

/* What end_call() of c/replay.py says of a call that has returned `result`; NULL if it cannot be repeated here. */
static Entry *learned_call(const Forwarding *self, const Asked *asked, PyObject *recipe, PyObject *result)
{
    PyObject *program, *tensors, *aparts, *phases;
    if (!PyTuple_CheckExact(recipe)
        || !PyArg_ParseTuple(recipe, "O!O!O!O!", &program_type, &program, &PyTuple_Type, &tensors, &PyTuple_Type, &aparts,
                             &PyTuple_Type, &phases))
        return NULL;
    const Py_ssize_t operands = PyTuple_GET_SIZE(tensors);
    if (operands > MOST_OPERANDS || operands != ((Program *)program)->operands || ((Program *)program)->numbers)
        return NULL;
    Entry *entry = new_entry(asked->hash, asked->word, asked->words, (int)PyTuple_GET_SIZE(aparts),
                             (int)PyTuple_GET_SIZE(phases), (int)operands);
    if (!entry)
        return NULL;
    entry->program = (Program *)own(program);
    entry->returns = parameter_of(asked, result);
    entry->returned = entry->returns < 0 ? own(result) : NULL; /* a tensor is not held */
    entry->keep = keepers(self, asked);
    int failed = (entry->returns < 0 && !is_constant(result)) || !entry->keep;
    for (Py_ssize_t k = 0; k < operands && !failed; k++) {
        PyObject *tensor = PyTuple_GET_ITEM(tensors, k);
        entry->parameter[k] = parameter_of(asked, tensor);
        failed = tensor != Py_None && entry->parameter[k] < 0;
    }
    if (failed || read_rows(entry, aparts, 4, 2, (int64_t *)entry->apart)
        || read_rows(entry, phases, 3, 1, (int64_t *)entry->phase)) {
        free_entry(entry);
        return NULL;
    }
    return entry;
}

/* Call the method, and have what it did repeated from now on if that was one program. */
static PyObject *learn_call(const Forwarding *self, Asked *asked, Table *table, PyObject *replay, PyObject *const *given,
                            size_t flagged, PyObject *named)
{
    PyObject *trace = PyObject_CallMethodNoArgs(replay, name_begin_call), *type, *value, *traceback;
    if (!trace)
        return NULL;
    PyObject *result = PyObject_Vectorcall(self->original, given, flagged, named);
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *recipe = PyObject_CallMethodObjArgs(replay, name_end_call, trace, NULL);
    Py_DECREF(trace);
    if (!recipe && result) { /* such as Ctrl-C */
        Py_DECREF(result);
        return NULL;
    }
    if (recipe && result)
        keep_entry(table, learned_call(self, asked, recipe, result));
    Py_XDECREF(recipe);
    PyErr_Clear(); /* what cannot be learned is left to the method */
    PyErr_Restore(type, value, traceback);
    return result;
}

/* Forwarding: a method of backends --------------------------------------------------------------------------------- */

static PyObject *forwarding_call(PyObject *object, PyObject *const *given, size_t flagged, PyObject *named)
{
    const Forwarding *self = (Forwarding *)object;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged);
    PyObject *replay = NULL, *result = NULL;
    Table *table = count ? table_of(given[0], &replay) : NULL;
    if (!table)
        return PyObject_Vectorcall(self->original, given, flagged, named);
    Asked asked;
    const int failed = ask(&asked, self, given, count, named);
    const Entry *entry = failed ? NULL : *find(table, asked.hash, asked.word, asked.words);
    const int learns = !failed && (!entry || is_python(entry->program)); /* Python's may have come to its end */
    PyErr_Clear();
    if (entry)
        result = start_call(table, entry, &asked);
    if (!result && !PyErr_Occurred() && learns)
        result = learn_call(self, &asked, table, replay, given, flagged, named);
    if (!result && !PyErr_Occurred())
        result = PyObject_Vectorcall(self->original, given, flagged, named);
    forget_asked(&asked);
    Py_DECREF(table);
    Py_DECREF(replay);
    return result;
}

/* Other attributes are the method's: __name__, __doc__, ... */
static PyObject *forwarding_attribute(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Forwarding *)self)->original, name);
}

static PyObject *forwarding_doc(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyObject_GetAttrString(((Forwarding *)self)->original, "__doc__");
}

static PyObject *forwarding_repr(PyObject *self)
{
    return PyObject_Repr(((Forwarding *)self)->original);
}

static PyObject *forwarding_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *original, *names, *attributes;
    int positional, identified, pinned;
    (void)named;
    if (!PyArg_ParseTuple(given, "OO!iO!ip", &original, &PyTuple_Type, &names, &positional, &PyTuple_Type, &attributes,
                          &identified, &pinned))
        return NULL;
    if (!PyCallable_Check(original) || !PyTuple_GET_SIZE(names) || PyTuple_GET_SIZE(names) > MOST_PARAMETERS)
        return PyErr_Format(PyExc_TypeError, "Forwarding: %R has too many parameters, or none", original);
    Forwarding *self = (Forwarding *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->call = forwarding_call;
    self->positional = positional;
    self->identified = identified;
    self->pinned = pinned;
    self->original = own(original);
    self->names = own(names);
    self->attributes = own(attributes);
    return (PyObject *)self;
}

/* It never changes, so that there is nothing to clear in a cycle through it. */
static int forwarding_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Forwarding *self = (Forwarding *)object;
    Py_VISIT(self->original);
    Py_VISIT(self->names);
    Py_VISIT(self->attributes);
    return 0;
}

static void forwarding_dealloc(PyObject *object)
{
    Forwarding *self = (Forwarding *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->original);
    Py_XDECREF(self->names);
    Py_XDECREF(self->attributes);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef forwarding_getset[] = {
    {"__doc__", forwarding_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef forwarding_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Forwarding, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject forwarding_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Forwarding",
    .tp_basicsize = sizeof(Forwarding),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "Forwarding(method, parameters after self, how many go by position, attributes of the backend, the "
              "parameter that is identified, whether for these very tensors)",
    .tp_vectorcall_offset = offsetof(Forwarding, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = builder_bound,
    .tp_getattro = forwarding_attribute,
    .tp_repr = forwarding_repr,
    .tp_new = forwarding_new,
    .tp_traverse = forwarding_traverse,
    .tp_dealloc = forwarding_dealloc,
    .tp_getset = forwarding_getset,
    .tp_members = forwarding_members,
};

#endif
