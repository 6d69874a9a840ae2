"""Faults in recording passes of networks, and in deciding whether a record still holds."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import BACKENDS, CPU, KERNELS, LAYERS, MODELS, OPTIMIZERS, OPTREE, C, Mutant

GUARD, PROGRAM, TRACE = C + "fastpath/fastpath_guard.h", C + "fastpath/fastpath_program.h", KERNELS + "run/trace.py"
REPLAY = KERNELS + "c/replay.py"
REPLAYS, WATCHED = BACKENDS + "replays.py", BACKENDS + "watched.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("replays", name, file, old, new)


MUTANTS = (
    fault("an object of another class is the same", GUARD, "if (Py_TYPE(watch->thing) != watch->type)", "if (0)"),
    fault("classes may change", GUARD, "if (now != watch->dict || tag_of(watch->type) != watch->tag)", "if (now != watch->dict)"),
    fault("all attributes may be replaced at once", GUARD, "if (now != watch->dict || ", "if ("),
    fault("attributes may be of other values", GUARD, " || (value != expected && expected != free))", ")"),
    fault("attributes that passes set are watched", GUARD, " || (value != expected && expected != free))", " || value != expected)"),
    fault("attributes may go", GUARD, "if (2 * PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(items))", "if (2 * PyDict_GET_SIZE(dict) > PyTuple_GET_SIZE(items))"),
    fault("a dictionary never changes", GUARD, "if (version && version == watch->version)", "if (version)"),
    fault("lists may be of another length", GUARD, "if (PyList_GET_SIZE(watch->thing) != count)", "if (PyList_GET_SIZE(watch->thing) < count)"),
    fault("lists may be of other items", GUARD, "if (PyList_GET_ITEM(watch->thing, k) != PyTuple_GET_ITEM(watch->items, k))", "if (0)"),
    fault("nothing is watched", GUARD, "        if (!is_as_it_was(&self->watch[k], self->free))\n            Py_RETURN_FALSE;", "        (void)k;"),
    fault("a forked process runs records", GUARD, "if (serial || !self->program)", "if (!self->program)"),
    fault("Ctrl-C waits for the end", PROGRAM, "if (next < self->steps && !*status && PyErr_CheckSignals())", "if (0)"),
    fault("any input will do", REPLAYS, " or not all(map(is_, roots, known)):", " or not all(map(is_, roots[:1], known)):"),
    fault("a shallow copy runs another's layers", REPLAYS, "not all(map(is_, roots, known)):", "not all(map(is_, roots[1:], known[1:])):"),
    fault("one more root will do", REPLAYS, " or len(roots) != len(known)", ""),
    fault("a list of roots may grow", REPLAYS, "= tuple(roots), result", "= roots, result"),
    fault("what is paused is not watched", BACKENDS + "executor.py", 'frozenset(("replay",))', "frozenset()"),
    fault("costs depend on their last value", LAYERS + "core/cost.py", ', free=frozenset(("cost",))', ""),
    fault("a cost does not depend on its cost function", LAYERS + "core/cost.py", 'frozenset(("costfunc", "activation"))', "frozenset()"),
    fault("optimizers depend on their count of steps", OPTIMIZERS + "adaptive.py", 'frozenset(("t", "t_left"))', "frozenset()"),
    fault("a repeated step has the cost of the recorded one", MODELS + "model.py", "                value = cost.read_cost()\n", "                value = cost.cost\n"),
    fault("a scaled loss is not scaled", MODELS + "model.py", ' or getattr(optimizer, "scales_errors", False)', ""),
    fault("passes of the user's classes are the library's", MODELS + "model.py", "        return replaced or not ", "        return not "),
    fault("passes of the user's objects are the library's", MODELS + "model.py", '        return replaced or not {"fprop", "bprop"}.isdisjoint(vars(self))', "        return replaced"),
    fault("parameters are known after passes that were played", MODELS + "model.py", "            if self._both_passes.again(roots):\n                value = cost.read_cost()\n                if group is not None:", "            again = self._both_passes.again(roots)\n            value = cost.read_cost() if again else self._play(x, t)\n            if True:\n                if group is not None:"),
    fault("a repeated cost is not read", LAYERS + "core/cost.py", "        return self.read_cost()\n\n    def _compute", "        return self.cost\n\n    def _compute"),
    fault("the backward pass of a cost is its value's", LAYERS + "core/cost.py", "self.replays.backward.run(self.be, (self, inputs, targets)", "self.replays.forward.run(self.be, (self, inputs, targets)"),
    fault("the value of a user's cost is read", MODELS + "model.py", " and type(cost).get_cost is GeneralizedCost.get_cost", ""),
    fault("numbers in arrays stay", WATCHED, "    if isinstance(value, np.ndarray) and not value.ndim:", "    if False:"),
    fault("a rate is watched", OPTIMIZERS + "base.py", 'frozenset(("learning_rate", "shards"))', 'frozenset(("shards",))'),
    fault("passes of another dialect go on", BACKENDS + "executor.py", "dialect.when_changed.append(forget_all)\n", ""),
    fault("sums of the layer before are not watched", LAYERS + "norm/normalization.py", 'CLOSED - {"prev_layer"}', "CLOSED"),
    fault("a step is known before its parameters", OPTIMIZERS + "base.py", "        if known and group.step is not None:\n            group.step(numbers)", "        if known:\n            group.step(numbers)"),
    fault("a copy has the steps that were found", OPTIMIZERS + "base.py", ', "_found": Repeated()}', "}"),
    fault("products of views with gaps are kept", OPTREE + "shapes.py", " and last == (math.prod(shape) - 1) * itemsize", ""),
    fault("unrolls of copies are parts of passes", TRACE, "return bool(launch.lasts)", "return True"),
    fault("a part of a pass is enough", REPLAYS, "if trace.is_whole and is_repeatable", "if is_repeatable"),
    fault("a pass may change what it depends on", REPLAYS, " and same(before, after)", ""),
    fault("devices are recorded", REPLAYS, " and be.tensor_cls.live_host", ""),
    fault("what the host sets is repeated", "neonlike/backends/cpu/tensor.py", "own = self._host", "own = self.array"),
    fault("masks are drawn once", "neonlike/backends/expressions/random.py", "call_again(lambda: out.set(", "call_again(lambda known={}: known.get(0) or known.update({0: 1}) or out.set("),
    fault("passes with masks are played", "neonlike/backends/expressions/random.py", "call_again(lambda: out.set(np.less(self._own_rng().random_sample(out.shape), keep)))", "out.set(np.less(self._own_rng().random_sample(out.shape), keep))"),
    fault("wrong words have no number", C + "fastpath/fastpath_guard.h", "done > (status == OUT_OF_RANGE)", "done"),
    fault("errors of words are added once", LAYERS + "dense/lookup.py", "call_again(lambda: self.be.compound_bprop_lut(*given))", "call_again(lambda known={}: known.get(0) or known.update({0: 1}) or self.be.compound_bprop_lut(*given))"),
    fault("errors of called functions are lost", C + "fastpath/fastpath_program.h", "    PyGILState_Release(lock);\n    return done ? 0 : -1;", "    PyErr_Clear();\n    PyGILState_Release(lock);\n    return 0;"),
    fault("inference as in training", LAYERS + "container/sequential.py", "self.replays.inference if inference else self.replays.forward", "self.replays.forward"),
    fault("a product with alpha is one without", CPU + "primitives/linalg.py", "numbers, apart = (request.alpha, request.beta), ((0, 1),)", "numbers, apart = (1.0, request.beta), ((0, 1),)"),
    fault("a record is never given up", REPLAYS, "if self._stale >= STALE:", "if False:"),
    fault("new batches are recorded each time", REPLAYS, "self._pause = min(2 * self._pause, LONGEST_WAIT)", "self._pause = 1"),
    fault("a copy has the records", REPLAYS, "        return Repeated()\n\n    def __reduce__", "        return self\n\n    def __reduce__"),
    fault("what is below an object is not watched", WATCHED, "            stack += below\n", ""),
    fault("users' objects are watched", WATCHED, "if _speaks(kind) else None", "if hasattr(kind, \"depends_on\") else None"),
    fault("users' functions are methods", WATCHED, "        if not _is_in_package(module) and module not in WRAPPING and module != home:\n            return True\n", ""),
    fault("users' callable objects are methods", WATCHED, "        if type(value).__module__ not in MODULES and not _is_in_package(type(value).__module__):\n            return True\n", "        pass\n"),
    fault("what stands before a user's function is none", WATCHED, "    return inner is not None and _is_foreign(inner, home)\n", "    return False\n"),
    fault("users' properties are methods", WATCHED, "    if isinstance(value, property):\n", "    if False:\n"),
    fault("the backend may have users' functions", WATCHED, "if said.opened is not None and any(map(_is_foreign, attributes.values())):", "if False:"),
    fault("methods are looked at once", WATCHED, "    _as_defined.clear()  # methods may have been replaced\n", ""),
    fault("methods of the library's are looked at once", WATCHED, "if known is not None and len(known) == len(values) and all(map(is_, known, values)):", "if known is not None:"),
    fault("methods are counted only", WATCHED, " and all(map(is_, known, values)):", ":"),
    fault("the backend is not watched", REPLAYS, "everything = *roots, be\n", "everything = *roots, be.executor.replay\n"),
    fault("what was forgotten is of no account", REPLAY, "        self.passes.clear()\n        self.epoch = object()", "        self.passes.clear()"),
    fault("what is paused twice stays paused", REPLAY, "if not self._pausing.acquire(blocking=False):", "if not self._pausing.acquire(blocking=False) and False:"),
    fault("a call that is no kernel is left out", TRACE, "not self._is_of(launch, operands):\n            self.is_whole = False\n            return\n", "not self._is_of(launch, operands):\n            return\n"),
    fault("a call need not start a kernel", TRACE, "(started != 1 and not queued) or ", ""),
    fault("a call may work on copies", TRACE, " or not self._is_of(launch, operands)", ""),
    fault("an assignment that is no kernel is left out", TRACE, "        if program is None or not program.is_whole:\n            self.is_whole = False\n            return", "        if program is None or not program.is_whole:\n            return"),
    fault("what is done on the host is left out", TRACE, "    if (trace := current()) is not None:\n        trace.is_whole = False", "    current()"),
    fault("the extension may work beside", TRACE, "self.is_whole and was_alone and", "self.is_whole and"),
    fault("a pass runs past a trace", REPLAY, "self.table, self.is_paused = None, True", "self.table = None"),
    fault("what is in an assignment is written down twice", TRACE, "del self.runs[before.runs :], ", "del "),
)
