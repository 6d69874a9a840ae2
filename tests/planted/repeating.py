"""Faults in repeating calls of primitives from C, checking arguments there, and chaining prepared assignments."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, C, Mutant

CALLS, ASKED, CHECKED, WALK, PROGRAM, TABLE, ASSIGNMENTS = (
    C + f"fastpath/fastpath_{name}.h" for name in ("calls", "asked", "checked", "walk", "program", "table", "assignments")
)
ARENA, JOINED, REPLAY = KERNELS + "run/arena.py", KERNELS + "run/program.py", KERNELS + "c/replay.py"
PASSES, LAID = "neonlike/autograd/passes.py", "neonlike/autograd/laid.py"
MADE, CHECKS, ENGINE = KERNELS + "run/calls.py", "neonlike/checks.py", KERNELS + "c/engine.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("repeating", name, file, old, new)


MUTANTS = (
    fault("scans from the end read from the start", KERNELS + "c/lines.py", "read[0], place = after(read[0], self._to_last(arrays[0])), after(place, self._to_last(out))", "place = after(place, self._to_last(out))"),
    fault("indices with a step read next to each other", KERNELS + "c/moves.py", "return steps[0] if steps else 1", "return 1"),
    fault("indices out of range look like a lack of memory", C + "gather.c.j2", "    if (found)\n        return 2;", "    if (found)\n        return 0;"),
    fault("the direction of a sort is not part of the key", "neonlike/kernels/c/fastpath.py", '"argsort": ("axis", "descending", "shape")', '"argsort": ("axis", "shape")'),
    fault("a scan's direction is not part of the key", "neonlike/kernels/c/fastpath.py", '"cumsum": ("axis", "reverse")', '"cumsum": ("axis",)'),
    fault("windows begin where their target does", KERNELS + "run/placing.py", "window.address - assigned[number].address)", "0)"),
    fault("windows of a target that is read", "neonlike/backends/executor.py", "return bool(graph.windows) and any(leaf.alias_of(target) for leaf in graph.leaves for target in graph.assigned)", "return False"),
    fault("temporaries lie at one place", ARENA, "        self.nbytes = begin + nbytes\n", "        self.nbytes = max(self.nbytes, nbytes)\n"),
    fault("temporaries lie at the beginning of memory", PROGRAM, "word->pointer = begin + word->integer;", "word->pointer = begin;"),
    fault("only the first stage is run", PROGRAM, "while (first < self->steps && !(*status", "while (first < 1 && !(*status"),
    fault("targets that were read are computed again", ASSIGNMENTS, "if (done > restarts && done < steps && !PyErr_Occurred())", "if (0)"),
    fault("a target that was read counts as never written", ASSIGNMENTS, "patch->which >= walk.leaves && patch->at < first", "0"),
    fault("nothing runs again where a target was read", ASSIGNMENTS, "reads_targets() ? steps_before_targets(entry->program)", "reads_targets() ? 0"),
    fault("the shape of a broadcast is not part of the key", "neonlike/kernels/c/fastpath.py", '"broadcast": ("shape",)', '"broadcast": ()'),
    fault("pass: numbers are not part of the key", WALK, "put(AT_NUMBER) || put(bits)", "put(AT_NUMBER)"),
    fault("pass: rules are not part of the key", WALK, "|| put_hashed(visit->ruled ? visit->rule : 0)", "|| put_hashed(0)"),
    fault("pass: what is kept is not part of the key", WALK, "        if (put_hashed(visit->saved.reference[k]))", "        if (0)"),
    fault("pass: what is kept is not let go", PASSES, "            kept.pop(node, None)", "            pass"),
    fault("pass: any bytes are held", PASSES, "> MOST_KEPT", "< 0"),
    fault("pass: values keep nothing", PASSES, "zip(known.kept, result.kept)", "zip((), result.kept)"),
    fault("pass: how is not part of the key", PASSES, "Tape((written, how, *wanted), leaves", "Tape((written, *wanted), leaves"),
    fault("pass: one of several tensors is taken", LAID, "        return len(around) == 1\n", "        return bool(around)\n"),
    fault("pass: which are parameters is not part of the key", PASSES, "return Tape((written, how, *wanted), leaves", "return Tape((written, how), leaves"),
    fault("pass: views of parameters are leaves", PASSES, "if leaf.base is not None and leaf._original_base.is_parameter:", "if False:"),
    fault("pass: nothing is let go", LAID, "if self._last[key] == number)", "if False)"),
    fault("pass: a part of it is enough", PASSES, "if not self.trace.is_whole or not laid.is_known:", "if not laid.is_known:"),
    fault("pass: what was learned is of no account", KERNELS + "c/replay.py", '"""Forget what was learned."""\n        self._forget()', '"""Forget what was learned."""'),
    fault("which tensors are one is not part of the key", ASKED, "ask_word(asked, TENSOR + first)", "ask_word(asked, TENSOR)"),
    fault("numbers are not part of the key", ASKED, "ask_word(asked, REAL_NUMBER) || ask_word(asked, bits)", "ask_word(asked, REAL_NUMBER)"),
    fault("the layer is not part of the key", CALLS, "ask_word(asked, IDENTIFIED) || ask_word(asked, (int64_t)(intptr_t)value)", "ask_word(asked, IDENTIFIED)"),
    fault("attributes are not part of the key", CALLS, "return ask_attributes(asked, self, backend);", "return 0;"),
    fault("tensors of other backends are taken", ASKED, "place->backend != backend || ", ""),
    fault("what goes by name goes by place too", CALLS, "count > self->positional", "count > parameters"),
    fault("an argument given twice is taken", CALLS, "looked == parameters || asked->at[next]", "looked == parameters"),
    fault("tensors that overlap are taken", CALLS, "if (apart->low < distance && distance < apart->high)", "if (distance == 0)"),
    fault("what the kernel refuses is done", PROGRAM, "while (next < self->steps && !*status) {", "while (next < self->steps) {"),
    fault("any result is taken for a tensor", CALLS, "entry->returns = parameter_of(asked, result);", "entry->returns = -1, result = Py_None;"),
    fault("a forked process starts threads", TABLE, "serial ? NULL : get_slot(backend, name_replay, &replay_slot)", "get_slot(backend, name_replay, &replay_slot)"),
    fault("a full table takes more", TABLE, "if (self->used >= TABLE / 2)", "if (self->used >= TABLE - 2)"),
    fault("names are not looked at", CHECKED, "for (Py_ssize_t k = 0; k < names && !value; k++)", "for (Py_ssize_t k = 0; k < 0 && !value; k++)"),
    fault("names are taken for interned", CHECKED, "return 0; /* else equal names are one object */", "continue; /* else equal names are one object */"),
    fault("others' methods are replaced", CHECKS, "if vars(cls).get(name) is checking and not", "if not"),
    fault("the number of threads is of no account", "neonlike/backends/executor.py", "threads.when_changed.append(forget_all)", ""),
    fault("assignments follow that others do not make", MADE, "len(trace.runs) != 1 or not called.operands.alone", "len(trace.runs) != 1"),
    fault("an unroll works on tensors that are gone", MADE, "        self._launch = None\n", "        pass\n"),
    fault("joined programs work in one another's operands", JOINED, "return (source, which + memory) if working is None", "return (source, which) if working is None"),
    fault("a forked process starts the threads of products", ENGINE, "if forks.forked and self.program is not None and not self.program.forks:", "if False:"),
    fault("lists of tensors are told by their length", CALLS, "|| ask_word(asked, (int64_t)(intptr_t)place))\n            return -1;\n    }", ")\n            return -1;\n    }"),
    fault("a program of Python is never learned anew", CALLS, "(!entry || is_python(entry->program))", "!entry"),
    fault("random numbers are those of the first run", WALK, "if (visit->known->draws)\n        return put_draw(visit->node, attrs);", "if (visit->known->draws)\n        return put_attributes(visit->node, attrs, visit->known->keyed);"),
    fault("passes are joined with the numbers that were drawn", JOINED, "if source is Source.WHOLE and which in run.draws:", "if False:"),
    fault("passes of networks draw the same again", JOINED, " and drawn <= set(calls) and len(set(calls)) == len(calls)", ""),
    fault("calls that were made twice are taken for one", JOINED, " and len(set(calls)) == len(calls)", ""),
    fault("the seed is not part of a pass's key", WALK, "return put_hashed(given[0]);", "return 0;"),
    fault("seeds from 2**63 on are left to Python", WALK, "(int64_t)PyLong_AsUnsignedLongLongMask(seed)", "(int64_t)PyLong_AsLongLong(seed)"),
)
