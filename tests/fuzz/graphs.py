"""Graphs of variables made by chance, against NumPy in float64: values, derivatives, and nothing left behind.

``python tests/fuzz 0 --graphs 10000`` grows so many, and so many of ``dynamic_graphs.py`` and ``kinks.py``; a seed is
all that one depends on. A tenth of them is grown again on the C engine, :data:`ROUNDS` times with other values, so that
its passes are repeated by the extension.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.optree import tape
from tests.fuzz import dynamic_graphs, kinks
from tests.fuzz.duals import Dual, add, dot, independent, mul, softmax
from tests.fuzz.workers import Findings, spread

SHAPES = ((3, 4), (1, 4), (3, 1), (4, 3))
ROUNDS = 5
"""Values that each graph is given on the C engine: the third pass is recorded at the latest."""
COMPILED_EACH = 10
"""Of so many graphs one is grown on the C engine too, where each of its kernels is compiled."""

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
    (lambda v: v[:, ::2], lambda d: d.move(lambda x: x[:, ::2])),
    (lambda v: v[:, 1:] if v.shape[1] > 1 else v, lambda d: d.move(lambda x: x[:, 1:] if x.shape[1] > 1 else x)),
    (lambda v: ag.softmax(v, 1), softmax),
    (
        lambda v: ag.scaled_dot_product_attention(v, v * 0.5, v, scale=1.0),
        lambda d: dot(softmax(dot(d, d.map(lambda x: x * 0.5, lambda x: np.full_like(x, 0.5)).move(np.transpose))), d),
    ),
)  # fmt: skip


class Grower:
    """Grower of one graph: variables beside their values, at random; reads values, assigns and frees on the way.

    ``rng``, where it is given, is what makes the choices instead of a generator of ``seed``.
    """

    def __init__(self, seed: int, values: int = 0, rng: Any = None) -> None:
        self.rng, drawn = rng or np.random.default_rng(seed), np.random.default_rng((seed, values))
        hosts = [drawn.standard_normal(shape) for shape in SHAPES]
        self.parameters = [ag.param(host) for host in hosts]
        self.known: list[tuple[Any, Dual]] = list(zip(self.parameters, independent(hosts)))
        count = sum(host.size for host in hosts)
        constant = drawn.standard_normal((3, 4))
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


def grow(seed: int, values: int = 0, rng: Any = None) -> None:
    """One graph; there are several ``values`` for it."""
    grower = Grower(seed, values, rng)
    for _ in range(grower.rng.integers(3, 25)):
        grower.step()
    grower.finish()


# Running them -------------------------------------------------------------------------------------------------------


def _tell(seed: int, grown: list[Callable[[], None]]) -> None:
    """Grow the graphs of ``seed``; print one line of JSON for each, and one for each failure."""
    print(json.dumps({"begin": seed}), flush=True)
    try:
        for grow_one in grown:
            grow_one()
    except Exception as error:
        print(json.dumps({"failure": f"{type(error).__name__}: {error}"}), flush=True)


def work(first: int, step: int, last: int) -> int:
    """A worker: graphs first, first + step, ... below last."""
    be = gen_backend("cpu", rng_seed=0, datatype=np.float64)
    gc.collect()
    before = ag.memory_report()
    for seed in range(first, last, step):
        _tell(seed, [partial(grow, seed), partial(dynamic_graphs.grow, be, seed), partial(kinks.grow, be, seed)])
    gc.collect()
    if ag.memory_report() != before or tape.kept:
        print(json.dumps({"failure": f"memory was left behind by it or one before: {ag.memory_report()}"}), flush=True)
    return 0


def work_repeated(first: int, step: int, last: int) -> int:
    """A worker: graphs first, first + step, ... below last, each with several values, where passes are repeated."""
    be = gen_backend("cpu", rng_seed=0, datatype=np.float64)
    replay = be.executor.replay
    fastpath.build()
    fastpath.request(replay.adopt)
    for seed in range(first, last, step):
        replay.clear()
        _tell(seed, [*[partial(grow, seed, values) for values in range(ROUNDS)], partial(kinks.grow, be, seed)])
        repeated = sum(isinstance(one, passes.Pass) for one in replay.passes.values())
        print(json.dumps({"repeated": repeated}), flush=True)
    return 0


def cannot_repeat() -> str:
    """Why no pass is repeated on this machine, in words; empty if passes are."""
    reason = fastpath.obstacle() or ("" if find_compiler() else "there is no compiler")
    return reason and f"no pass is repeated here: {reason}"


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Grow ``count`` graphs on the NumPy engine, some on C, in processes with these ``variables``; the exit status."""
    found = Findings("graph", "repeated")
    plain = {**variables, "NEONLIKE_CPU_JIT": "0"}
    spread("--work-graphs", range(first, first + count), workers, plain, found.hear)
    print(f"graphs of variables: {count}, dynamic ones: {count}, with kinks: {count}; {len(found.failures)} failures")
    if reason := cannot_repeat():
        print(reason)
        return int(bool(found.failures))
    compiled = -(-count // COMPILED_EACH)
    spread("--work-repeated", range(first, first + compiled), workers, variables, found.hear)
    print(f"graphs on the C engine: {compiled}, {found.total} passes repeated; {len(found.failures)} failures in all")
    return int(bool(found.failures) or not found.total)
