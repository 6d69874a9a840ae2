"""Faults in trainings by several ranks: sums, shared updates, agreement, random numbers, batch normalization."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

GRADIENTS, MPI, FAULTS, AGREEMENT, VARIABLES, COMPRESSION = (f"neonlike/distributed/{name}.py" for name in ("gradients", "mpi", "faults", "agreement", "variables", "compression"))
BASE, SHARDS, SCALING, ACCUMULATION = (f"neonlike/optimizers/{name}.py" for name in ("base", "shards", "loss_scaling", "accumulation"))
TOGETHER, STATISTICS, MODEL = (f"neonlike/models/{name}.py" for name in ("together", "statistics", "model"))
RANDOM, SYNCHRONISED = "neonlike/backends/expressions/random.py", "neonlike/backends/primitives/batchnorm/synchronised.py"
INTERRUPTS, SETTINGS = "neonlike/util/interrupts.py", "neonlike/settings.py"
WAITING, LAUNCH = (f"neonlike/distributed/{name}.py" for name in ("waiting", "launch"))


def together(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("together", name, file, old, new)


def waits(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("waits", name, file, old, new)


def overlap(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("overlap", name, file, old, new)


def sent(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("sent", name, file, old, new)


MUTANTS = (
    together("large gradients are not summed", GRADIENTS, "        for _, array in large:\n            self._ranks.reduce(array, self._op)\n", ""),
    together("small gradients are not written back", GRADIENTS, "            pack.write()\n", ""),
    together("means are sums", MPI, 'if op == "mean":', "if False:"),
    together("gradients stay those of a rank", BASE, "            exchange.before()\n", "            pass\n"),
    together("a rank's rows have its own gradients", SHARDS, "functools.reduce(operator.add, [cast(part, dtype) for part in parts])", "parts[ranks.rank] + 0 * parts[0]"),
    together("gradients over a rank's share of the batch", BASE, "grad / self.be.global_bsz", "grad / self.be.bsz"),
    together("rows that are not sent", BASE, "                exchange.after()\n", "                pass\n"),
    together("the norm of a rank's rows", BASE, "        self.be.ranks.reduce(squares)\n", ""),
    together("rows of the first rank for all", SHARDS, "self.bounds[ranks.rank : ranks.rank + 2]", "self.bounds[:2]"),
    together("states of a rank's rows are saved", STATISTICS, "        gather_states(model.be.ranks,", "        (lambda *_: None)(model.be.ranks,"),
    together("costs stay those of a rank", TOGETHER, "            branch[...] = total / self._ranks.size\n", "            pass\n"),
    together("a callback stops its rank alone", TOGETHER, "bool(numbers[0]), bool(numbers[1])", "bool(numbers[0]), model.finished"),
    together("an interrupt stops its rank alone", INTERRUPTS, "if self.agreed if self.shared else self._pending:", "if self._pending:"),
    together("optimizers of a user get no means", TOGETHER, "        if not self._averages:\n            return\n", "        return\n"),
    together("ranks start from weights of their own", MODEL, "                    self.together.start()\n", ""),
    together("ranks that differ go on", AGREEMENT, "if other.get(name) != first[name]:", "if False:"),
    together("an error ends its rank alone", FAULTS, "        sys.excepthook = self._failed\n", ""),
    together("an error of all that rank 0 has caught is said by nobody", FAULTS, "unless its program has caught it\n", "unless its program has caught it\n            ranks.abort(1)\n"),
    together("nobody looks for ranks that have left", FAULTS, "            self._thread.start()\n", "            pass\n"),
    waits("a rank that computes is taken to wait", WAITING, " or now - at > LONG_S / 2", ""),
    waits("equal calls are a standstill", WAITING, "+ len(left) < 2", "+ len(left) < 1"),
    waits("ranks that have left are waited for", WAITING, "self._heard.keys() | left.keys()", "self._heard.keys()"),
    waits("what ranks tell has no name", MPI, 'call = self.calls, f"tell {what}".rstrip()', 'call = self.calls, "tell"'),
    waits("gradients are sent twice", TOGETHER, 'if next(kind for kind in type(optimizer).__mro__ if "optimize" in vars(kind)) not in SUMMING:', "if True:"),
    waits("states of other ranks are lost after an error", TOGETHER, "        if self._model.ended_early:\n            complete(self._model)\n", ""),
    waits("a child takes itself for a rank", SETTINGS, "return 0 if child_of_rank() or not found else found[0]", "return found[0] if found else 0"),
    waits("an error before the start ends its rank alone", LAUNCH, "    faults.end_before_joining()\n", "    pass\n"),
    together("all ranks have one dropout mask", RANDOM, "np.random.RandomState([int(self.rng.randint(1 << 31)), self.ranks.rank])", "np.random.RandomState([int(self.rng.randint(1 << 31)), 0])"),
    together("masks leave the ranks' generators apart", RANDOM, "[int(self.rng.randint(1 << 31)), self.ranks.rank]", "[int(self.rng.randint(1 << 31, size=1 + self.ranks.rank)[0]), self.ranks.rank]"),
    together("all ranks have one stream of rand", RANDOM, "        if self.ranks.rank:\n", "        if False:\n"),
    together("the mean is a rank's", SYNCHRONISED, '    be.allreduce(xsum, "mean")\n', ""),
    together("the variance is a rank's", SYNCHRONISED, '    be.allreduce(xvar, "mean")\n', ""),
    together("the slope is by a rank's sums", SYNCHRONISED, "    RankSum(be.ranks, sums, mean=True)()\n", ""),
    together("gradients of parameters are means", SYNCHRONISED, "    for gradient, found in zip((grad_gamma, grad_beta), sums):", "    for found in sums:\n        be.allreduce(found, \"mean\")\n    for gradient, found in zip((grad_gamma, grad_beta), sums):"),
    together("variables start apart", VARIABLES, "            backend.broadcast(one.value)\n", "            pass\n"),
    together("derivatives are not averaged", VARIABLES, "            average_gradients(self.parameters)\n", "            pass\n"),
    together("gradients of a scaled loss are a rank's", SCALING, "            self._sum_over_ranks([grad for (_, grad), _ in parameters])\n", "            pass\n"),
    together("a saved group has the gradients of the first rank", STATISTICS, "        model.optimizer.sum_over_ranks()\n", "        pass\n"),
    together("every rank goes on from the gradients of all", ACCUMULATION, "first = self.be is None or not self.be.rank", "first = True"),
    together("optimizers of a user that accumulate get no means", TOGETHER, "    return not isinstance(optimizer, LossScaling | GradientAccumulation) or _sums(optimizer.optimizer)\n", "    return not isinstance(optimizer, LossScaling) or _sums(optimizer.optimizer)\n"),
    sent("variables of a scaled loss have the gradient of a rank", SCALING, "            store_gradients(layer_list)\n", ""),
    overlap("a repeated pass sends nothing", "neonlike/kernels/run/trace.py", "        self.runs.append(Made(calling(function), ()))\n", ""),
    overlap("a pass with messages is not repeated", "neonlike/kernels/run/trace.py", "    function()\n    trace.called(function, before)\n", "    function()\n    trace.called(function, before)\n    lose()\n"),
    overlap("the update does not wait", SHARDS, "            wait()\n", "            pass\n"),
    overlap("gradients are sent twice", SHARDS, "            wait()\n            return\n", "            wait()\n"),
    overlap("gradients that are not rounded are sent", SHARDS, "            self._sent[...] = self.grad\n", "            pass\n"),
    overlap("an error in a message is lost", SHARDS, "            self._wait = functools.partial(_fail, error)\n", "            del error\n"),
    overlap("backward passes of callbacks send gradients", TOGETHER, "            chain.handover = None\n", "            pass\n"),
    overlap("tied weights go with the last layer", "neonlike/models/overlap.py", "for layer in reversed(self._chain.layers):", "for layer in self._chain.layers:"),
    overlap("messages of another optimizer are used", "neonlike/models/overlap.py", "if len(present) == len(self._known) and all(map(is_, present, self._known)):", "if self._known:"),
    sent("sums are rounded to 16 bits", COMPRESSION, "np.empty(size, total)", "np.empty(size, message)"),
    sent("gradients are added in another order", COMPRESSION, "parts.insert(self._ranks.rank, self._sent[self._own])", "parts.insert(0, self._sent[self._own])"),
    sent("means of what is compressed are sums", COMPRESSION, 'if op == "mean":', "if False:"),
    sent("a rank's own rows are not rounded", SHARDS, "parts.insert(ranks.rank, self._sent[self.rows])", "parts.insert(ranks.rank, grad[self.rows])"),
    sent("gradients of the step before are sent", SHARDS, "            self._compress()\n", "            pass\n"),
    sent("the setting does not reach the optimizer", BASE, "compression = be.gradient_compression", "compression = None"),
    sent("the setting does not reach loss scaling", SCALING, "RankSum(be.ranks, gradients, compression=be.gradient_compression)", "RankSum(be.ranks, gradients)"),
    sent("an overflow in 16 bits warns", GRADIENTS, 'with np.errstate(over="ignore"):', "if True:"),
    sent("linked devices send all bits", GRADIENTS, "links.reduce(self._linked_sent, self._op)", "links.reduce(self._linked, self._op)"),
)
