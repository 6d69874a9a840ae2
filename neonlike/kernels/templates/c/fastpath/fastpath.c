/* A CPython extension runs again, without Python, what was run before: assignments, calls of compound primitives, and passes
 * of networks and variables. It also builds the nodes of expressions.
 *
 * An assignment's expression is walked in the order of linearize() in graph.py, into a key of words: the content of
 * graph.key (structure, aliasing, kinds of numbers), and the data type, shape and strides of every tensor. For a key
 * that was learned, the kernels are called, or launched on a GPU, with the addresses and numbers found by the walk.
 * Uncommon cases are left to Python, which defines the semantics of an assignment. A run itself raises MemoryError,
 * IndexRangeError (refuse() in fastpath_program.h), and KeyboardInterrupt, which is looked for between kernels.
 *
 * The walk runs no Python code that changes an expression, and the interpreter lock is held until the kernel starts. If
 * other code runs nevertheless (in a finalizer, or while tensors compare their memory), `busy` leaves its assignments
 * to Python.
 */
#include "fastpath_assignments.h"
#include "fastpath_builders.h"
#include "fastpath_calls.h"
#include "fastpath_checked.h"
#include "fastpath_classes.h"
#include "fastpath_copies.h"
#include "fastpath_guard.h"

/* Backend.assign -------------------------------------------------------------------------------------------------- */

static PyObject *name_executor, *name_run, *name_closed;

/* Whether `value` is a node and `target` a tensor of `backend`, which is open: then Python's checks can be skipped. */
static int is_checked(PyObject *backend, PyObject *target, PyObject *value)
{
    if (Py_TYPE(value) != node_type || SLOT(value, backend_at) != backend || !is_tensor(Py_TYPE(target)))
        return 0;
    PyObject *owner = PyObject_GetAttr(target, name_backend), *closed = PyObject_GenericGetAttr(backend, name_closed);
    const int checked = owner == backend && closed == Py_False;
    Py_XDECREF(owner);
    Py_XDECREF(closed);
    PyErr_Clear();
    return checked;
}

/* `target` with `value` in it, by Python, after the table has given `answer`. */
static PyObject *run_new(PyObject *backend, PyObject *target, PyObject *value, PyObject *answer)
{
    PyObject *pairs = Py_BuildValue("((OO))", target, value), *done = NULL;
    PyObject *executor = pairs ? PyObject_GenericGetAttr(backend, name_executor) : NULL;
    if (executor)
        done = PyObject_CallMethodObjArgs(executor, name_run, pairs, answer, NULL);
    Py_XDECREF(executor);
    Py_XDECREF(pairs);
    if (!done)
        return NULL;
    Py_DECREF(done);
    return own(target);
}

/* Backend.assign() by the table `backend._replay.table`; NULL without an exception where Python has to do it all. */
static PyObject *assign(PyObject *backend, PyObject *target, PyObject *value)
{
    PyObject *replay = get_slot(backend, name_replay, &replay_slot);
    PyObject *table = replay ? get_slot(replay, name_table, &table_slot) : NULL;
    PyObject *given[3] = {backend, target, value}, *answer = NULL, *done = NULL;
    if (!table)
        PyErr_Clear();
    else if (Py_TYPE(table) == &table_type)
        answer = table_run(table, given, 3);
    if (answer == answers[DONE])
        done = own(target);
    else if (answer && is_checked(backend, target, value))
        done = run_new(backend, target, value, answer);
    Py_XDECREF(replay);
    Py_XDECREF(table);
    Py_XDECREF(answer);
    return done;
}

/* The module ------------------------------------------------------------------------------------------------------ */

static int slot_offset(PyTypeObject *type, const char *name, Py_ssize_t *offset)
{
    PyObject *text = PyUnicode_FromString(name);
    *offset = text ? slot_at(type, text) : 0;
    Py_XDECREF(text);
    if (!*offset && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s.%s is no slot", type->tp_name, name);
    return *offset ? 0 : -1;
}

static PyObject *set_up(PyObject *module, PyObject *given)
{
    PyTypeObject *type, *scalar, *array;
    PyObject *function, *steps, *half, *single, *twice, *whole, *answer[ANSWERS];
    (void)module;
    if (!PyArg_ParseTuple(given, "O!OOOOOO!O!O!(OOO)", &PyType_Type, &type, &function, &steps, &half, &single, &twice, &PyTuple_Type, &whole,
                          &PyType_Type, &scalar, &PyType_Type, &array, &answer[LEFT], &answer[DONE], &answer[NEW]))
        return NULL;
    if (slot_offset(type, "spec", &spec_at) || slot_offset(type, "operands", &operands_at)
        || slot_offset(type, "attrs", &attrs_at) || slot_offset(type, "shape", &shape_at)
        || slot_offset(type, "dtype", &dtype_at) || slot_offset(type, "backend", &backend_at))
        return NULL;
    node_type = (PyTypeObject *)own((PyObject *)type);
    describe = own(function);
    tree_steps = own(steps);
    float16 = own(half);
    float32 = own(single);
    float64 = own(twice);
    integers = own(whole);
    numpy_scalar = (PyTypeObject *)own((PyObject *)scalar);
    numpy_array = (PyTypeObject *)own((PyObject *)array);
    for (int k = 0; k < ANSWERS; k++)
        answers[k] = own(answer[k]);
    Py_RETURN_NONE;
}

static PyObject *take_workspace(PyObject *module, PyObject *given)
{
    PyObject *kept, *function;
    (void)module;
    if (!PyArg_ParseTuple(given, "OO", &kept, &function))
        return NULL;
    Py_XSETREF(kept_memory, own(kept));
    Py_XSETREF(lend, own(function));
    Py_RETURN_NONE;
}

static PyObject *take_operators(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != OPERATORS)
        return PyErr_Format(PyExc_TypeError, "take_operators: a tuple of %d builders", OPERATORS);
    for (Py_ssize_t k = 0; k < OPERATORS; k++)
        if (Py_TYPE(PyTuple_GET_ITEM(given, k)) != &builder_type)
            return PyErr_Format(PyExc_TypeError, "take_operators: %R is no builder", PyTuple_GET_ITEM(given, k));
    for (Py_ssize_t k = 0; k < OPERATORS; k++)
        Py_XSETREF(operators[k], (Builder *)own(PyTuple_GET_ITEM(given, k)));
    Py_RETURN_NONE;
}

static PyObject *attach_type(PyObject *module, PyObject *type)
{
    (void)module;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "attach: a class, not %R", type);
    if (attach((PyTypeObject *)type))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *detach_all(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    for (int k = 0; k <= TENSOR_CLASSES; k++)
        detach(attached + k);
    Py_RETURN_NONE;
}

static PyObject *after_fork(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    serial = 1;
    walk.busy = 0;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_up", set_up, METH_VARARGS, "set_up(node type, describe, tree_steps, float16, float32, float64, integers, base of NumPy's numbers, its arrays, answers): once, before anything else."},
    {"take_workspace", take_workspace, METH_VARARGS, "take_workspace(what a thread keeps, function): see workspace.py."},
    {"take_operators", take_operators, METH_O, "take_operators(builders): what operators build, as in enum operator."},
    {"attach", attach_type, METH_O, "attach(class): operators in C for the nodes, or for a class of tensors."},
    {"detach", detach_all, METH_NOARGS, "detach(): classes have Python's operators again."},
    {"after_fork", after_fork, METH_NOARGS, "This process is a fork: kernels run on one thread from now on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nlfast",
    .m_doc = "Runs assignments, calls of primitives and passes again, without Python, and builds the nodes of expressions.",
    .m_size = -1,
    .m_methods = functions,
};

static int intern_names(void)
{
    const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_place, "_place"},   {&name_array, "array"},     {&name_root, "root"},
        {&name_value, "value"},    {&name_axis, "axis"},       {&name_struct, "__array_struct__"},
        {&name_shape, "shape"},    {&name_dtype, "dtype"},     {&name_kind, "kind"},     {&name_backend, "backend"},
        {&name_replay, "_replay"}, {&name_table, "table"},     {&name_alias_of, "alias_of"},
        {&name_assign, "assign"},  {&name_closed, "closed"},   {&name_executor, "executor"},
        {&name_rounding, "rounding"}, {&name_run, "run"},      {&name_memory, "memory"},
        {&name_begin_call, "begin_call"}, {&name_end_call, "end_call"},
        {&name_rule, "rule"},      {&name_key, "key"},
        {&name_picks, "picks"},    {&name_constant, "constant"},
        {&name_bits, "bits"},      {&name_item, "item"},
        {&name_seed, "seed"},      {&name_call, "call"},
        {&name_base, "base"},      {&name_name, "name"},       {&name_persist, "persist_values"},
        {&name_out, "out"},        {&name_ndim, "ndim"},       {&name_wrap, "wrap"},
        {&name_of_value, "_value_"},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return -1;
    return 0;
}

/* The address of a kernel of the extension's own, as an attribute; without it there is no module. */
static void add_kernel(PyObject **module, const char *name, const Kernel kernel)
{
    PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)kernel);
    if (*module && (!address || PyModule_AddObjectRef(*module, name, address)))
        Py_CLEAR(*module);
    Py_XDECREF(address);
}

PyMODINIT_FUNC PyInit_nlfast(void)
{
    PyTypeObject *types[] = {&program_type, &table_type, &guard_type, &builder_type, &forwarding_type, &checked_type};
    if (PyType_Ready(&place_type))
        return NULL;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (PyType_Ready(types[k]))
            return NULL;
    if (intern_names() || prepare_axes())
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    for (size_t k = 0; k < sizeof types / sizeof *types && module; k++) {
        PyObject *type = own((PyObject *)types[k]);
        if (PyModule_AddObject(module, strchr(types[k]->tp_name, '.') + 1, type) < 0) {
            Py_DECREF(type);
            Py_CLEAR(module);
        }
    }
    add_kernel(&module, "copies", copy_window);
    add_kernel(&module, "classes", check_classes);
    add_kernel(&module, "calls", call_function);
    return module;
}
