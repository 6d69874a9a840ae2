"""Run a program on every engine and compare all memory with its possible contents."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from neonlike.backends import Backend
from neonlike.kernels.planning.plan import StageKind
from neonlike.kernels.run import threads
from neonlike.logger import logger
from neonlike.optree.dtypes import compute_dtype
from tests.fuzz.bounds import wrong
from tests.fuzz.programs import Instance, Program, build
from tests.fuzz.values import is_known
from tests.support.engines import ON_GPU
from tests.support.gpu.gpu_driver import find_driver

ENGINES = ("numpy", "gpu" if ON_GPU else "c")
"""What is compared; the first grows programs and says what they may give."""


class Failure(Exception):
    """An engine is wrong; the text says where."""


class Complaints(logging.Handler):
    """Turns errors that an engine logs, such as a kernel that does not compile, into failures."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.texts.append(record.getMessage())


class Bench:
    """One backend for each engine, and counts of the comparisons.

    Attributes
    ----------
    runs, compared, known : int
        Programs run, elements compared, and those of them with a finite value that is known well.
    """

    def __init__(self) -> None:
        self.backends = {engine: make_backend(engine) for engine in ENGINES}
        self.complaints = Complaints()
        logger.addHandler(self.complaints)
        self.runs = self.compared = self.known = 0

    def check(self, program: Program) -> None:
        """Raise Failure if an engine is wrong on ``program``."""
        vals = None
        for engine, be in self.backends.items():
            made = build(program, be, reference=vals is None)
            vals = made.vals if vals is None else vals
            before = {name: base.get() for name, base in made.bases().items()}
            self.complaints.texts.clear()
            try:
                with settings(program):
                    made.run(program.way)
            except Exception as error:
                raise Failure(f"{engine}: {type(error).__name__}: {error}") from error
            if self.complaints.texts:
                raise Failure(f"{engine}: {self.complaints.texts[0]}")
            self._compare(engine, made, vals, before)
            self.runs += 1

    def _compare(self, engine: str, made: Instance, vals: list[Any], before: dict[str, Any]) -> None:
        written = {name: np.zeros(base.size, bool) for name, base in made.bases().items()}
        for number, (target, term) in enumerate(made.pairs):
            got = target.get()
            source = getattr(made.terms[term], "dtype", got.dtype)
            off = wrong(got, vals[term], compute_dtype(source))
            self.compared += got.size
            self.known += int(is_known(vals[term]).sum())
            if off.any():
                raise Failure(f"{engine}: out{number} (t{term}) {difference(got, vals[term], off)}")
            name = next(n for n, base in made.bases().items() if root(base.array) is root(target.array))
            written[name][positions(made.names[name].array, target.array)] = True
        for name, base in made.bases().items():
            now, was = (x.reshape(-1).view(f"u{x.itemsize}") for x in (base.get(), before[name]))
            changed = (now != was) & ~written[name]
            if changed.any():
                raise Failure(f"{engine}: memory outside the targets changed: {name}, element {int(changed.argmax())}")


def root(array: Any) -> Any:
    """The array that ``array`` is a view of, or the memory on the GPU."""
    if hasattr(array, "memory"):
        return array.memory
    while array.base is not None and isinstance(array.base, np.ndarray):
        array = array.base
    return array


def address(array: Any) -> int:
    """Address of the first element."""
    return int(array.address if hasattr(array, "address") else array.__array_interface__["data"][0])


def positions(base: Any, view: Any) -> Any:
    """Element numbers of ``view`` in ``base``, which is contiguous."""
    start = (address(view) - address(base)) // base.itemsize
    found = np.full(view.shape, start)
    for axis, stride in enumerate(view.strides):
        steps = np.arange(view.shape[axis]) * (stride // base.itemsize)
        found = found + steps.reshape([-1 if a == axis else 1 for a in range(view.ndim)])
    return found.reshape(-1)


def difference(got: Any, val: Any, off: Any) -> str:
    """Description of the first wrong element."""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    v, e = (np.broadcast_to(part.reshape(part.shape[max(0, part.ndim - got.ndim) :]), got.shape) for part in val)
    count = f"{int(off.sum())} of {off.size} wrong"
    return f"{list(at)} of {got.shape} is {got[at]!r}, not {v[at]!r} within {e[at]:.3g}; {count}"


def make_backend(engine: str, **options: Any) -> Any:
    """A backend of its own on ``engine``, with ``options``."""
    if engine == "gpu":
        find_driver()
        gpu: Any = Backend.allocate_backend("gpu", rng_seed=0, **options)
        gpu.engine.fallback = partial(only_nothing, gpu.engine.fallback)
        return gpu
    with environment({"NEONLIKE_CPU_JIT": str(int(engine == "c"))}):
        made = Backend.allocate_backend("cpu", rng_seed=0, **options)
    assert made.engine.name == engine, f"there is no {engine} engine here: a C compiler is needed"
    return made


def only_nothing(fallback: Any, plan: Any, position: int, graph: Any) -> Any:
    """Stands for a GPU's way without a kernel, which only a reduction of nothing may go."""
    stage = plan.stages[position]
    if stage.kind is not StageKind.REDUCE or 0 not in stage.space.of(graph):
        raise Failure(f"gpu: stage {position} ({stage.reason}) has no kernel")
    return fallback(plan, position, graph)


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


LEAST = ("PARALLEL_WORK", "BLOCKED_LEAST")
"""Constants of the C engine below which it does as little as it can: programs of the fuzzer are small."""


@contextmanager
def threads_chosen(count: int) -> Iterator[None]:
    """So many threads for a while."""
    threads.choose(count)
    try:
        yield
    finally:
        threads.choose(None)


@contextmanager
def settings(program: Program) -> Iterator[None]:
    """Its number of threads; if it is eager, threads for little work, and blocks of short rows however few they are."""
    kernels = [module for name, module in sys.modules.items() if name.startswith("neonlike.kernels.")]
    before = {(module, name): vars(module)[name] for module in kernels for name in LEAST if name in vars(module)}
    assert {name for _, name in before} == set(LEAST), "a limit of the C engine has another name now"
    for module, name in before if program.eager else ():
        setattr(module, name, 1)
    try:
        with threads_chosen(program.threads):
            yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)
