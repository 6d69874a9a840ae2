"""Graphs of variables made by chance, against NumPy in float64: values, derivatives, and nothing left behind.

``python tests/fuzz 0 --graphs 10000`` grows so many, and so many of ``dynamic_graphs.py``; a seed is all that one
depends on.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import dynamic_graphs
from fuzz.duals import Dual, add, dot, mul
from fuzz.workers import spread
from neonlike import autograd as ag
from neonlike.backends import gen_backend
from neonlike.optree import tape

SHAPES = ((3, 4), (1, 4), (3, 1), (4, 3))
MOST_FAILURES = 10

UNARY: tuple[tuple[Callable[[Any], Any], Callable[[Dual], Dual]], ...] = (
    (ag.tanh, lambda d: d.map(np.tanh, lambda x: 1 - np.tanh(x) ** 2)),
    (ag.sin, lambda d: d.map(np.sin, np.cos)),
    (lambda v: v * 0.5 - 1, lambda d: d.map(lambda x: x * 0.5 - 1, lambda x: np.full_like(x, 0.5))),
    (lambda v: v.T, lambda d: d.move(np.transpose)),
    (lambda v: v[1:], lambda d: d.move(lambda x: x[1:]) if len(d.value) > 1 else d),
    (lambda v: v[:, ::-1], lambda d: d.move(lambda x: x[:, ::-1])),
    (lambda v: ag.sum(v, 1), lambda d: d.move(lambda x: x.sum(1, keepdims=True))),
    (lambda v: ag.mean(v, 0), lambda d: d.move(lambda x: x.mean(0, keepdims=True))),
    (lambda v: ag.reshape(v, -1, 1), lambda d: d.move(lambda x: x.reshape(-1, 1))),
    (lambda v: ag.concatenate([v, v], 1), lambda d: d.move(lambda x: np.concatenate([x, x], 1))),
)  # fmt: skip


class Grower:
    """Grows one graph: variables beside what they are, at random; asks for values, assigns and frees on the way."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        hosts = [self.rng.standard_normal(shape) for shape in SHAPES]
        self.parameters = [ag.param(host) for host in hosts]
        count, start = sum(host.size for host in hosts), 0
        self.known: list[tuple[Any, Dual]] = []
        for variable, host in zip(self.parameters, hosts):
            slope = np.zeros((host.size, count))
            slope[range(host.size), range(start, start + host.size)] = 1
            start += host.size
            self.known.append((variable, Dual(host, slope.reshape(*host.shape, count))))
        constant = self.rng.standard_normal((3, 4))
        self.known.append((ag.const(constant), Dual(constant, np.zeros((3, 4, count)))))

    def pick(self) -> tuple[Any, Dual]:
        return self.known[self.rng.integers(len(self.known))]

    def step(self) -> None:
        """Make one variable more, or do something to one that is there."""
        (a, da), (b, db) = self.pick(), self.pick()
        kind = self.rng.integers(10)
        if kind < 4:
            ours, theirs = UNARY[self.rng.integers(len(UNARY))]
            if len(da.value) > 1:
                self.known.append((ours(a), theirs(da)))
        elif kind < 7 and all(n == m or 1 in (n, m) for n, m in zip(a.shape, b.shape)):
            ours, theirs = ((a + b, add), (a * b, mul))[self.rng.integers(2)]
            self.known.append((ours, theirs(da, db)))
        elif kind == 7 and a.shape[1] == b.shape[0]:
            self.known.append((ag.tanh(a @ b), UNARY[0][1](dot(da, db))))
        elif kind == 8:
            np.testing.assert_allclose(a.get(), da.value, rtol=1e-9, atol=1e-9)
        elif kind == 9 and a.op is not None:
            self.known = [(v, d) for v, d in self.known if v is not a]
            if self.rng.integers(2):
                a.free()

    def finish(self) -> None:
        """Compare values and derivatives of a sum of some, and of those that were not asked for before."""
        chosen = [self.pick() for _ in range(3)]
        total = sum((variable * variable).sum() for variable, _ in chosen)
        slopes = sum((2 * d.value[..., None] * d.slope).sum((0, 1)) for _, d in chosen)
        if not total.needs_grad:
            return
        again = bool(self.rng.integers(2))
        total.backprop(keep_graph=again)
        if again:
            total.backprop()
        found = np.concatenate([p.partial_derivative.get().reshape(-1) for p in self.parameters]) / (1 + again)
        np.testing.assert_allclose(found, slopes, rtol=1e-8, atol=1e-8 * (1 + np.abs(slopes).max()))
        for parameter in self.parameters:
            parameter.assign(np.zeros(parameter.shape))
        for variable, dual in [known for known in self.known if known[0].op is not None]:
            np.testing.assert_allclose(variable.get(), dual.value, rtol=1e-9, atol=1e-9)


def grow(seed: int) -> None:
    """One graph."""
    grower = Grower(seed)
    for _ in range(grower.rng.integers(3, 25)):
        grower.step()
    grower.finish()


# Running them -------------------------------------------------------------------------------------------------------


def work(first: int, step: int, last: int) -> int:
    """A worker: graphs first, first + step, ... below last; one line of JSON for each."""
    be = gen_backend("cpu", rng_seed=0, datatype=np.float64)
    gc.collect()
    before = ag.memory_report()
    for seed in range(first, last, step):
        print(json.dumps({"begin": seed}), flush=True)
        try:
            grow(seed)
            dynamic_graphs.grow(be, seed)
        except Exception as error:
            print(json.dumps({"failure": f"{type(error).__name__}: {error}"}), flush=True)
    gc.collect()
    if ag.memory_report() != before or tape.kept:
        print(json.dumps({"failure": f"memory was left behind by it or one before: {ag.memory_report()}"}), flush=True)
    return 0


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Grow ``count`` graphs on the NumPy engine, in processes with these environment ``variables``; the exit status."""
    failures: list[str] = []

    def hear(seed: int, report: dict[str, Any]) -> bool:
        if "failure" in report:
            failures.append(f"graph {seed}: {report['failure']}")
            print(f"{failures[-1]}\n  again: python tests/fuzz 0 --graphs 1 --first {seed}", flush=True)
        return len(failures) < MOST_FAILURES

    plain = {**variables, "NEONLIKE_CPU_JIT": "0"}
    spread("--work-graphs", range(first, first + count), workers, plain, hear)
    print(f"graphs of variables: {count}, dynamic ones: {count}; {len(failures)} failures")
    return int(bool(failures))
