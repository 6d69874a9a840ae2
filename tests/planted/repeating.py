"""Faults in repeating calls of primitives from C, checking arguments there, and chaining prepared assignments."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, C, Mutant

CALLS, REPEATING, CHAINS, CHECKED, LAUNCHES, WALK, FIXED = (
    C + f"fastpath/fastpath_{name}.h" for name in ("calls", "repeating", "chains", "checked", "launches", "walk", "fixed")
)
RECIPE, PASSES = KERNELS + "run/recipe.py", "neonlike/autograd/passes.py"
CACHE, CHECKS = KERNELS + "run/calls.py", "neonlike/checks.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("repeating", name, file, old, new)


MUTANTS = (
    fault("temporaries lie at one place", RECIPE, "        self.memory = begin + nbytes\n", "        self.memory = max(self.memory, nbytes)\n"),
    fault("temporaries lie at the beginning of memory", LAUNCHES, "word->pointer = begin + word->integer;", "word->pointer = begin;"),
    fault("only the first stage is run", LAUNCHES, "for (int k = 0; k < steps; words += step[k++].words)", "for (int k = 0; k < 1; words += step[k++].words)"),
    fault("targets that were read are computed again", LAUNCHES, "if (done && done < started.steps && !restarts)", "if (0)"),
    fault("the shape of a broadcast is not part of the key", "neonlike/kernels/c/fastpath.py", '"broadcast": ("shape",)', '"broadcast": ()'),
    fault("pass: numbers are not part of the key", WALK, "put(AT_NUMBER) || put(bits)", "put(AT_NUMBER)"),
    fault("pass: rules are not part of the key", WALK, "|| put_hashed(integer) || put_hashed(saved.count)", "|| put_hashed(saved.count)"),
    fault("pass: what is kept is not part of the key", WALK, "        if (put_hashed(saved.reference[k]))", "        if (0)"),
    fault("pass: what is kept is not let go", PASSES, "            kept.pop(node, None)", "            pass"),
    fault("pass: any bytes are held", PASSES, "> MOST_KEPT", "< 0"),
    fault("pass: values keep nothing", PASSES, "zip(known.kept, result.kept)", "zip((), result.kept)"),
    fault("pass: how is not part of the key", PASSES, "Tape((written, how, *wanted), leaves", "Tape((written, *wanted), leaves"),
    fault("pass: one of several tensors is taken", FIXED, "return found == 1 ? 0 : -1;", "return found ? 0 : -1;"),
    fault("pass: which are parameters is not part of the key", PASSES, "return Tape((written, how, *wanted), leaves", "return Tape((written, how), leaves"),
    fault("pass: views of parameters are leaves", PASSES, "if leaf.base is not None and leaf._original_base.is_parameter:", "if False:"),
    fault("pass: nothing is let go", PASSES, "over = {p for p, at in last.items() if at == step and p > len(self.leaves)} - stay", "over = set[int]()"),
    fault("pass: a part of it is enough", PASSES, "if not self.is_whole or any", "if any"),
    fault("pass: what was learned is of no account", KERNELS + "c/replay.py", '"""Forget what was learned."""\n        self._forget()', '"""Forget what was learned."""'),
    fault("which tensors are one is not part of the key", CALLS, "ask_word(asked, TENSOR + first)", "ask_word(asked, TENSOR)"),
    fault("numbers are not part of the key", CALLS, "ask_word(asked, REAL_NUMBER) || ask_word(asked, bits)", "ask_word(asked, REAL_NUMBER)"),
    fault("the layer is not part of the key", CALLS, "ask_word(asked, LAYER) || ask_word(asked, (int64_t)(intptr_t)value)", "ask_word(asked, LAYER)"),
    fault("attributes are not part of the key", CALLS, "return ask_attributes(asked, self, backend);", "return 0;"),
    fault("tensors of other backends are taken", CALLS, "place->backend != backend || ", ""),
    fault("what goes by name goes by place too", CALLS, "count > self->positional", "count > parameters"),
    fault("an argument given twice is taken", CALLS, "looked == parameters || asked->at[next]", "looked == parameters"),
    fault("tensors that overlap are taken", CALLS, "if (apart->low < distance && distance < apart->high)", "if (distance == 0)"),
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
