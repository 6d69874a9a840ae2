/* A launch, the kernels of one assignment, and how it is read from the recipe that Python gives. Part of fastpath.c. */
#ifndef NL_FASTPATH_RECIPES_H
#define NL_FASTPATH_RECIPES_H

#include "fastpath_walk.h"
#include "fastpath_device.h"

typedef int (*Kernel)(const union nl_word *);

enum { OUT_OF_RANGE = 2 }; /* what a kernel returns for an index that is no place; else it had no memory to work in */

/* The exception for a kernel that did not run, where Python cannot make the assignment instead. */
static void refuse(const int status)
{
    if (status != OUT_OF_RANGE) {
        PyErr_Format(PyExc_MemoryError, "no memory for a kernel's working space; free some and call again");
        return;
    }
    PyObject *errors = PyImport_ImportModule("neonlike.errors");
    PyObject *kind = errors ? PyObject_GetAttrString(errors, "IndexRangeError") : NULL;
    if (kind)
        PyErr_SetString(kind, "onehot: an index is out of range: negative, or not below the size of its axis");
    Py_XDECREF(kind);
    Py_XDECREF(errors);
}

/* Where an argument of a kernel is found; Source in recipe.py has the same order. */
enum source { PLAIN, LEAF, TARGET, WHOLE, REAL, MEMORY, THREADS, SOURCES, BASE };
enum { MOST_WORDS = 4096, MOST_STEPS = 256 }; /* arguments of all kernels, kernels: they lie on the stack */

typedef struct {
    enum source source; /* BASE: in memory of a tensor, see fastpath_fixed.h */
    int base;           /* which of these, which leaf or target */
    int64_t value; /* which number; bytes from where the memory or an operand begins; or the argument itself */
} Word;

typedef struct {
    Kernel kernel;
    int words;
} Step;

typedef struct {
    uint64_t hash;
    int words, steps, given;
    int release;  /* whether to release the interpreter lock: the kernels are long, or run on several threads */
    int forks;    /* whether it may run in a forked process */
    int restarts; /* whether no target was read, so that all can be computed again after some steps have run */
    const struct nl_device *device; /* the one step runs there; NULL: on the host */
    int64_t memory;
    PyObject *keep; /* owners of the memory of kernels and their arguments; NULL: known to have none */
    int64_t *word;
    Word *argument;
    Step step[];
} Launch;

static void free_launch(Launch *launch)
{
    PyObject *keep = launch->keep;
    PyMem_Free(launch->word);
    PyMem_Free(launch->argument);
    PyMem_Free(launch);
    Py_XDECREF(keep);
}

/* An argument from (source, value), or of operands (source, which, distance); -1 if it does not fit what was walked over. */
static int read_word(PyObject *pair, int64_t memory, Word *word)
{
    int source;
    long long value, distance = 0;
    if (!PyTuple_CheckExact(pair) || !PyArg_ParseTuple(pair, "iL|L", &source, &value, &distance))
        return -1;
    const int operand = source == LEAF || source == TARGET;
    if (source < 0 || source >= SOURCES || (!operand && PyTuple_GET_SIZE(pair) > 2))
        return -1;
    const int64_t limits[SOURCES] = {
        [LEAF] = walk.leaves, [TARGET] = walk.targets, [WHOLE] = walk.numbers, [REAL] = walk.numbers, [MEMORY] = memory,
    };
    *word = operand ? (Word){(enum source)source, (int)value, distance} : (Word){(enum source)source, 0, value};
    if (source == PLAIN || source == THREADS)
        return 0;
    if (value < 0 || value >= limits[source])
        return -1;
    return source == WHOLE && walk.number[value].is_real ? -1 : 0; /* integers are computed with integers only */
}

/* The kernels of a recipe; -1 if they do not fit the walk, or are too many. */
static int read_steps(Launch *launch, PyObject *steps, int is_device)
{
    launch->argument = PyMem_Malloc(sizeof(Word) * MOST_WORDS);
    if (!launch->argument)
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(steps); k++) {
        unsigned long long function;
        PyObject *words;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, k), "KO!", &function, &PyTuple_Type, &words))
            return -1;
        const Py_ssize_t count = PyTuple_GET_SIZE(words);
        if (launch->given + count > MOST_WORDS)
            return -1;
        for (Py_ssize_t word = 0; word < count; word++)
            if (read_word(PyTuple_GET_ITEM(words, word), launch->memory, &launch->argument[launch->given++]))
                return -1;
        launch->step[k] = (Step){(Kernel)(uintptr_t)function, (int)count};
        launch->device = is_device ? (const struct nl_device *)(uintptr_t)function : NULL;
    }
    return 0;
}

/* Whether a target shares memory with a leaf: then it may have been read before it was written. */
static int reads_targets(void)
{
    for (int t = 0; t < walk.targets; t++)
        for (int l = 0; l < walk.leaves; l++)
            if (alias(walk.leaf[l], walk.target[t]))
                return 1;
    return 0;
}

/* A new launch for the walk's key; NULL if the recipe does not fit it. See Recipe in run/recipe.py. */
static Launch *new_launch(PyObject *recipe)
{
    PyObject *steps = NULL, *keep = NULL;
    long long memory = 0;
    int release = 0, forks = 0, is_device = 0, leaves = 0, met = 0;
    if (recipe != Py_None
        && !PyArg_ParseTuple(recipe, "iiO!LpppO", &leaves, &met, &PyTuple_Type, &steps, &memory, &is_device, &release,
                             &forks, &keep))
        return NULL;
    const Py_ssize_t count = steps ? PyTuple_GET_SIZE(steps) : 0;
    if (keep && (leaves != walk.leaves || met != walk.numbers || count > MOST_STEPS || (is_device && count != 1)))
        return NULL;
    Launch *launch = PyMem_Calloc(1, sizeof *launch + sizeof(Step) * (size_t)count);
    if (!launch)
        return NULL;
    launch->memory = memory, launch->steps = (int)count;
    launch->word = PyMem_Malloc(sizeof *launch->word * (size_t)walk.words);
    if (!launch->word || (keep && read_steps(launch, steps, is_device))) {
        free_launch(launch);
        return NULL;
    }
    memcpy(launch->word, walk.word, sizeof *launch->word * (size_t)walk.words);
    launch->hash = walk.hash, launch->words = walk.words;
    launch->release = release, launch->forks = forks, launch->restarts = !reads_targets();
    launch->keep = own(keep);
    return launch;
}

#endif
