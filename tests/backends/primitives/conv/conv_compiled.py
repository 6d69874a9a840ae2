"""Shared helpers for tests of compiled convolution: guarded memory, operands with exact sums, the definition beside."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends.cpu.primitives.conv import hooks as kernels
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
from neonlike.kernels.run import calls
from tests.support.float64.conv_loops import Sizes, quarters, row_sums, same, tensor

Array = np.ndarray[Any, Any]
GUARD = 4096
"""Bytes before and behind the memory that a kernel may use."""
VECTORS = (0, 32, 16)
"""Bytes of a vector; 0: as the machine has. The compiler makes do with others."""
CLOSE = {"f4": 2e-5, "f8": 1e-13}


class Guarded:
    """Stands for ``held_workspace``: memory full of nan, with nothing written around it."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def __call__(self, needed: int) -> tuple[Array, int]:
        self.check()
        self.memory = np.full(needed + 2 * GUARD + 64, 0xFF, np.uint8)  # a nan of any float dtype
        start = int(self.memory.ctypes.data)
        first = GUARD + -(start + GUARD) % 64
        self.around = (slice(0, first), slice(first + needed, None))
        return self.memory, start + first

    def check(self) -> None:
        """Nothing was written before or behind the memory."""
        for part in self.around if self.memory.size else ():
            assert (self.memory[part] == 0xFF).all(), "written before or behind the memory"


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """Guard the kernels' working memory; check it before each call and after the test."""
    memory = Guarded()
    monkeypatch.setattr(calls, "held_workspace", memory)
    yield memory
    memory.check()
    for of_kind in (*kernels.DATA.values(), *kernels.UPDATE.values()):
        assert None not in of_kind.routine.variants.values(), "did not compile, so the definition ran in its place"


def with_vectors(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    if nbytes:
        monkeypatch.setattr(kernels, "vector_bytes", lambda _: nbytes)


class Operands:
    """The tensors of a layer: operands whose sums of products are exact, their arrays beside them, and results.

    I, F, E and bias are given; O, dI, dF and the sums of rows ``bsum`` (of O) and ``bsum_i`` (of dI) are written.
    """

    def __init__(self, be: Any, s: Sizes, kind: Any, rng: np.random.Generator) -> None:
        dtype, shapes = np.dtype(kind), (s.shape_i, s.shape_f, s.shape_o, (s.K, 1))
        self.be, self.layer = be, s.layer(be, dtype)
        self.image, self.filters, self.error, self.shift = (quarters(rng, shape, dtype) for shape in shapes)
        self.I, self.F, self.E, self.bias = (
            tensor(be, values) for values in (self.image, self.filters, self.error, self.shift)
        )
        self.O, self.dI, self.dF, self.bsum, self.bsum_i = (
            be.empty(shape, dtype=dtype) for shape in (s.shape_o, s.shape_i, s.shape_f, (s.K, 1), (s.C, 1))
        )

    def check(
        self, forward: Array, backward: Array, update: Array | None = None, bsum_i: bool = False, **ends: Any
    ) -> None:
        """The passes give these results, and the sums of their rows; ``ends`` are of the forward pass.

        bsum_i: sums of the data gradient are asked for too; without them it may be stored from registers.
        """
        self.be.fprop_conv(self.layer, self.I, self.F, self.O, bsum=self.bsum, **ends)
        same(self.O, forward)
        same(self.bsum, row_sums(forward))
        self.be.bprop_conv(self.layer, self.F, self.E, self.dI, bsum=self.bsum_i if bsum_i else None)
        same(self.dI, backward)
        if bsum_i:
            same(self.bsum_i, row_sums(backward))
        if update is not None:
            self.be.update_conv(self.layer, self.I, self.E, self.dF)
            same(self.dF, update)


def compare(
    be: Any, s: Sizes, kind: str, rng: np.random.Generator, simple: str = "", exact: Callable[[Any], Any] = np.asarray
) -> None:
    """The hooks of the kernels and of the definition, one after the other on the same tensors.

    simple: "bias" for nothing else, "relu" for what sums in registers can do too; else anything, by chance.
    exact: makes operands of random numbers, such as the kernels do not round.
    """
    layer, dtype = s.layer(be, kind), np.dtype(kind)

    def made(shape: Any) -> Any:
        return tensor(be, exact(rng.normal(size=shape)), dtype)

    def close(found: Array, wanted: Array) -> None:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE[kind] * (1 + np.abs(wanted).max()))

    I, F, E, dF = made(s.shape_i), made(s.shape_f), made(s.shape_o), made(s.shape_f)
    flags: dict[str, Any] = {"alpha": float(rng.choice([1, 0.5])), "beta": float(rng.choice([0, 0, 0.5]))}
    flags |= {"relu": rng.random() < 0.3, "brelu": rng.random() < 0.3, "slope": float(rng.choice([0, 0.1]))}
    for back, read, shape in ((False, I, s.shape_o), (True, E, s.shape_i)):
        T, X, bias, sums = made(shape), made(shape), made((shape[0], 1)), made((shape[0], 1))
        epilogue = Epilogue(**flags)
        extra = bias if rng.random() < 0.5 else None, X if rng.random() < 0.5 else None, sums
        if simple == "bias":
            epilogue, extra = Epilogue(), (bias, None, None)
        elif simple == "relu":
            epilogue, extra = Epilogue(0.5, relu=True, slope=0.1), (bias, None, sums)
        old, results = T.get(), []
        for hooks in (type(be), ConvFamily):
            T.set(old)
            hooks._conv(be, ConvPass(layer, back, epilogue), read, F, T, *extra)
            results.append((T.get(), sums.get()))
        for found, wanted in zip(*results):
            close(found, wanted)
    old, results = dF.get(), []
    for hooks in (type(be), ConvFamily):
        dF.set(old)
        hooks._update_conv(be, ConvUpdate(layer, 0.5, flags["beta"]), I, E, dF)
        results.append(dF.get())
    close(*results)
