"""Faults in what repeats calls of primitives from C, checks arguments there, and chains prepared assignments."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from planted.table import KERNELS, C, Mutant

CALLS, REPEATING, CHAINS, CHECKED = (
    C + f"fastpath/fastpath_{name}.h" for name in ("calls", "repeating", "chains", "checked")
)
CACHE, CHECKS = KERNELS + "run/calls.py", "neonlike/checks.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("repeating", name, file, old, new)


MUTANTS = (
    fault("which tensors are one is not part of the key", CALLS, "ask_word(asked, TENSOR + first)", "ask_word(asked, TENSOR)"),
    fault("numbers are not part of the key", CALLS, "ask_word(asked, REAL_NUMBER) || ask_word(asked, bits)", "ask_word(asked, REAL_NUMBER)"),
    fault("the layer is not part of the key", CALLS, "ask_word(asked, LAYER) || ask_word(asked, (int64_t)(intptr_t)value)", "ask_word(asked, LAYER)"),
    fault("attributes are not part of the key", CALLS, "return ask_attributes(asked, self, backend);", "return 0;"),
    fault("tensors of other backends are taken", CALLS, "place->backend != backend || ", ""),
    fault("what goes by name goes by place too", CALLS, "count > self->positional", "count > parameters"),
    fault("an argument given twice is taken", CALLS, "looked == parameters || asked->at[next]", "looked == parameters"),
    fault("tensors that overlap are taken", CALLS, "if (apart->low < distance && distance < apart->high)", "if (distance == 0)"),
    fault("working memory of any size will do", CALLS, "(held && PyTuple_CheckExact(held) && PyLong_AsLongLong(PyTuple_GET_ITEM(held, 2)) >= needed)", "(held && PyTuple_CheckExact(held))"),
    fault("what the kernel refuses is done", CALLS, "failed = kernel(words);", "kernel(words);"),
    fault("any result is taken for a tensor", REPEATING, "known->answer = result == Py_None ? -1 : parameter_of(asked, result);", "known->answer = -1;"),
    fault("a forked process starts threads", REPEATING, "serial ? NULL : PyObject_GenericGetAttr(backend, name_calls)", "PyObject_GenericGetAttr(backend, name_calls)"),
    fault("a full table takes more", REPEATING, "if (fast->used >= CALLS / 2)", "if (fast->used >= CALLS - 2)"),
    fault("the first of a chain alone", CHAINS, "while (k < count && !self->link[k].kernel(self->link[k].words))\n                k++;", "if (k < count && !self->link[k].kernel(self->link[k].words))\n                k = count;"),
    fault("a link that fails is skipped", CHAINS, "if (k < count)\n            Py_XSETREF", "if (k < 0)\n            Py_XSETREF"),
    fault("names are not looked at", CHECKED, "for (Py_ssize_t k = 0; k < names && !value; k++)", "for (Py_ssize_t k = 0; k < 0 && !value; k++)"),
    fault("names are taken for interned", CHECKED, "return 0; /* else equal names are one object */", "continue; /* else equal names are one object */"),
    fault("others' methods are replaced", CHECKS, "if vars(cls).get(name) is checking and not", "if not"),
    fault("the number of threads is of no account", CACHE, "when_changed.append(_forget_all)", ""),
    fault("calls hold tensors", CACHE, "if self._learner == get_ident():", "if True:"),
)
