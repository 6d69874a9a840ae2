/* The table of a backend: programs by the key of what they do. Part of fastpath.c. */
#ifndef NL_FASTPATH_TABLE_H
#define NL_FASTPATH_TABLE_H

#include "fastpath_program.h"

enum { TABLE = 2048 };
enum answer { LEFT, DONE, NEW, ANSWERS };

static PyObject *answers[ANSWERS]; /* Python's names of these, see Replayed in program.py */

/* Two operands that share no memory: `other` does not start more than low and less than high bytes after `written`. */
typedef struct {
    int64_t written, other, low, high;
} Apart;

/* Where an operand starts in a line of the cache. */
typedef struct {
    int64_t written, line, place;
} Phase;

typedef struct {
    uint64_t hash;
    int words, aparts, phases;
    int restarts; /* of an assignment: the steps after which all can be computed again: none that is read was overwritten */
    int returns;  /* of a call: the parameter whose tensor is returned; -1: `returned` */
    PyObject *returned; /* None, or a tuple of integers; of a builder: the steps that make its nodes, None: none do */
    Program *program; /* NULL: left to Python */
    PyObject *keep;   /* owners of what the key has addresses of, or NULL */
    int64_t *word;    /* the key; what follows lies behind it */
    Apart *apart;
    Phase *phase;
    int64_t *parameter; /* of a call: which parameter each operand of the program is; -1: none */
} Entry;

typedef struct {
    PyObject_HEAD
    PyTypeObject *tensor_type;
    Py_ssize_t used, hits, calls;
    Entry *table[TABLE];
} Table;

static void free_entry(Entry *entry)
{
    PyObject *keep = entry->keep, *program = (PyObject *)entry->program, *returned = entry->returned;
    PyMem_Free(entry->word);
    PyMem_Free(entry);
    Py_XDECREF(keep);
    Py_XDECREF(program);
    Py_XDECREF(returned);
}

static void clear_table(Table *self)
{
    for (size_t slot = 0; self->used && slot < TABLE; slot++) {
        Entry *entry = self->table[slot];
        self->table[slot] = NULL;
        if (entry) {
            self->used--;
            free_entry(entry);
        }
    }
}

/* The entry of a key, or the free one for it. */
static Entry **find(Table *self, const uint64_t hash, const int64_t *word, const int words)
{
    const size_t bytes = sizeof *word * (size_t)words;
    for (size_t slot = hash % TABLE;; slot = (slot + 1) % TABLE) {
        const Entry *at = self->table[slot];
        if (!at || (at->hash == hash && at->words == words && !memcmp(at->word, word, bytes)))
            return &self->table[slot];
    }
}

/* A new entry, with room for so many conditions and parameters; NULL without memory. */
static Entry *new_entry(const uint64_t hash, const int64_t *word, const int words, const int aparts, const int phases,
                        const int parameters)
{
    Entry *entry = PyMem_Calloc(1, sizeof *entry);
    const size_t key = sizeof *word * (size_t)words, apart = sizeof(Apart) * (size_t)aparts;
    const size_t phase = sizeof(Phase) * (size_t)phases;
    if (!entry || !(entry->word = PyMem_Calloc(1, key + apart + phase + sizeof(int64_t) * (size_t)parameters + 1))) {
        PyMem_Free(entry);
        return NULL;
    }
    memcpy(entry->word, word, key);
    entry->hash = hash, entry->words = words, entry->aparts = aparts, entry->phases = phases;
    entry->apart = (Apart *)((char *)entry->word + key);
    entry->phase = (Phase *)((char *)entry->apart + apart);
    entry->parameter = (int64_t *)((char *)entry->phase + phase);
    return entry;
}

/* Put an entry into the table, in the place of one that its key has; NULL: there is none. */
static void keep_entry(Table *self, Entry *entry)
{
    if (!entry)
        return;
    if (self->used >= TABLE / 2)
        clear_table(self);
    Entry **slot = find(self, entry->hash, entry->word, entry->words);
    Entry *before = *slot;
    *slot = entry;
    if (before)
        free_entry(before);
    else
        self->used++;
}

static PyObject *table_clear(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    clear_table((Table *)object);
    Py_RETURN_NONE;
}

static PyObject *table_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyTypeObject *tensor_type;
    (void)named;
    if (!PyArg_ParseTuple(given, "O!", &PyType_Type, &tensor_type))
        return NULL;
    Table *self = (Table *)type->tp_alloc(type, 0);
    if (self)
        self->tensor_type = (PyTypeObject *)own((PyObject *)tensor_type);
    return (PyObject *)self;
}

static int table_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Table *self = (Table *)object;
    for (size_t slot = 0; self->used && slot < TABLE; slot++)
        if (self->table[slot]) {
            Py_VISIT((PyObject *)self->table[slot]->program);
            Py_VISIT(self->table[slot]->keep);
            Py_VISIT(self->table[slot]->returned);
        }
    return 0;
}

static int table_collect(PyObject *object)
{
    clear_table((Table *)object);
    return 0;
}

static void table_dealloc(PyObject *object)
{
    Table *self = (Table *)object;
    PyObject_GC_UnTrack(object);
    clear_table(self);
    Py_XDECREF(self->tensor_type);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *table_run(PyObject *object, PyObject *const *given, Py_ssize_t count);
static PyObject *table_run_many(PyObject *object, PyObject *const *given, Py_ssize_t count);
static PyObject *table_tape(PyObject *object, PyObject *const *given, Py_ssize_t count);
static PyObject *table_learn(PyObject *object, PyObject *given);

static PyMethodDef table_methods[] = {
    {"run", (PyCFunction)(void (*)(void))table_run, METH_FASTCALL,
     "run(backend, target, value): make the assignment if it was learned; one of the answers that set_up() was given."},
    {"run_many", (PyCFunction)(void (*)(void))table_run_many, METH_FASTCALL,
     "run_many(backend, pairs, fresh): as run(), for a list or tuple of pairs (target, value)."},
    {"tape", (PyCFunction)(void (*)(void))table_tape, METH_FASTCALL,
     "tape(backend, root, kept): what gradients depend on, leaves, ids of kept nodes, nodes; None: unknown."},
    {"learn", table_learn, METH_VARARGS, "learn(backend, pairs, program, fresh=False): what to do from now on; None: leave it to Python."},
    {"clear", table_clear, METH_NOARGS, "Forget everything."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef table_members[] = {
    {"used", T_PYSSIZET, offsetof(Table, used), READONLY, "Keys learned."},
    {"hits", T_PYSSIZET, offsetof(Table, hits), READONLY, "Assignments made."},
    {"calls", T_PYSSIZET, offsetof(Table, calls), READONLY, "Calls of primitives made."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "nlfast.Table",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Table(tensor type): programs of a backend by the keys of assignments and of calls of primitives.",
    .tp_new = table_new,
    .tp_traverse = table_traverse,
    .tp_clear = table_collect,
    .tp_dealloc = table_dealloc,
    .tp_methods = table_methods,
    .tp_members = table_members,
};

/* The table of a backend ------------------------------------------------------------------------------------------ */

static PyObject *name_replay, *name_table;

/* Where instances of `type` have a slot; 0 if it is none, with an exception if the class does not have it at all. */
static Py_ssize_t slot_at(PyTypeObject *type, PyObject *name)
{
    PyObject *descriptor = PyObject_GetAttr((PyObject *)type, name);
    const int found = descriptor && Py_TYPE(descriptor) == &PyMemberDescr_Type;
    const PyMemberDef *member = found ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
    const Py_ssize_t at = found && member->type == T_OBJECT_EX ? member->offset : 0;
    Py_XDECREF(descriptor);
    return at;
}

/* What slot_at() found of a class. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t at;
} SlotOf;

static SlotOf replay_slot, table_slot; /* of the first class of backends that is met, and of Replay */

/* `object.name`, in less time where that is a slot: of every assignment these two are asked for. */
static PyObject *get_slot(PyObject *object, PyObject *name, SlotOf *known)
{
    if (!known->type) {
        known->at = slot_at(Py_TYPE(object), name);
        PyErr_Clear();
        known->type = (PyTypeObject *)own((PyObject *)Py_TYPE(object));
    }
    PyObject *value = known->at && Py_TYPE(object) == known->type ? SLOT(object, known->at) : NULL;
    return value ? own(value) : PyObject_GenericGetAttr(object, name);
}

/* The table of a backend, `backend._replay.table`, and in `replay` its owner, both new references; NULL if all is left to
 * Python. */
static Table *table_of(PyObject *backend, PyObject **replay)
{
    *replay = serial ? NULL : get_slot(backend, name_replay, &replay_slot); /* in a forked process no thread may start */
    PyObject *table = *replay ? get_slot(*replay, name_table, &table_slot) : NULL;
    if (table && Py_TYPE(table) == &table_type)
        return (Table *)table;
    Py_XDECREF(table);
    Py_CLEAR(*replay);
    PyErr_Clear();
    return NULL;
}

#endif
