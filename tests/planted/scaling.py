"""Faults in the model of scaling: formulas of allreduce, overlap, gradients of networks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

MODEL, NETS, SCALING = (f"benchmarks/{name}.py" for name in ("_scaling_model", "_scaling_nets", "scaling"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("scaling", name, file, old, new)


MUTANTS = (
    fault("a ring of one pass", MODEL, "    return 2 * (ranks - 1) * by.alpha + share", "    return (ranks - 1) * by.alpha + share"),
    fault("a tree of p levels", MODEL, "math.ceil(math.log2(ranks))", "ranks - 1"),
    fault("a tree without the level begun", MODEL, "math.ceil(math.log2(ranks))", "int(math.log2(ranks))"),
    fault("buckets are summed at the same time", MODEL, "        end = max(end, start) + allreduce", "        end = start + allreduce"),
    fault("sums begin before their gradients", MODEL, "        start = bucket.ready * step.seconds if overlap else end\n", "        start = end\n"),
    fault("gradients of the last bucket are lost", MODEL, "[*found, Gradient(nbytes, self.gradients[-1].ready)] if nbytes else found", "found"),
    fault("backward begins with the first layer", NETS, "for part in reversed(parts):", "for part in parts:"),
    fault("the first layer passes an error on", NETS, "operations * (2 if self.parts else 1)", "operations * 2"),
    fault("steps of two ranks are predicted from one alone", SCALING, "statistics.median(seconds[APART])", "statistics.median(seconds[HALF])"),
)
