"""Fixtures of the tests of the extension: a backend that has it, and nodes built by C or by Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.kernels.c import fastbuild, fastpath
from neonlike.optree.node import Expression, OpTreeNode
from tests.support.engines import backend, needs_compiler


class Asker:
    """Waits for the extension."""

    def adopt(self, module: Any) -> None:
        self.module = module


@pytest.fixture(scope="module")
def extension() -> Any:
    """The extension; compiled now if it is not in the cache."""
    needs_compiler()
    asker = Asker()
    fastpath.request(asker.adopt)
    if fastpath._state.thread is not None:
        fastpath._state.thread.join()
    return asker.module


@pytest.fixture
def fast(extension: Any) -> Iterator[Backend]:
    """A backend that has the extension."""
    for be in backend("c"):
        be.executor.replay.adopt(extension)
        yield be


def tensors(be: Backend, *shape: int, count: int = 3, dtype: Any = np.float32, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [be.array(rng.integers(-9, 9, shape or (4, 6)) / 4, dtype=dtype) for _ in range(count)]


# Builders --------------------------------------------------------------------------------------------------------


@contextmanager
def by(extension: Any, builders: str) -> Iterator[None]:
    """Nodes are built by ``builders``, which is C or Python; afterwards by C."""
    fastbuild.remove(extension)
    try:
        if builders == "C":
            _install(extension)
        yield
    finally:
        _install(extension)


def _install(extension: Any) -> None:
    fastbuild.install(extension)
    fastbuild.attach(extension, CPUTensor)


@contextmanager
def python_builds() -> Iterator[None]:
    """Nodes are built by Python, as before there is an extension."""
    with nullcontext() if fastpath._state.module is None else by(fastpath._state.module, "Python"):
        yield


@pytest.fixture
def put_back(extension: Any) -> Iterator[None]:
    """For tests that take the builders away: they find the extension's, as those after them."""
    with by(extension, "C"):
        yield


TIMES = 3
"""Calls with one key after which the extension makes the nodes that Python has made before."""


def both(extension: Any, calls: list[Callable[[], Any]]) -> tuple[list[Any], list[Any]]:
    """Results of ``calls`` by C, of the third time that each is made, and by Python."""
    found = []
    for builders, times in (("C", TIMES), ("Python", 1)):
        with by(extension, builders):
            found.append([outcome(call) for call in calls for _ in range(times)][times - 1 :: times])
    return found[0], found[1]


def outcome(call: Callable[[], Any]) -> Any:
    """Outcome of a call in values that compare; an error by its class and words."""
    try:
        return told(call())
    except Exception as error:
        return type(error), str(error)


def told(value: Any) -> Any:
    if isinstance(value, OpTreeNode):
        operands = tuple(told(operand) for operand in value.operands)
        where = (value.shape, type(value.shape), id(value.dtype), id(value.backend))
        return repr(value), value.spec.name, operands, told(value.attrs), where
    if isinstance(value, Expression):
        return type(value), value.shape, value.dtype, value.asnumpyarray().tobytes()
    return type(value), repr(value)
