"""Wrong arguments for the fuzzer of arguments: a world of tensors, and values of every wrong kind."""

from __future__ import annotations

import fractions
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neonlike.backends import gen_backend
from neonlike.nervanaobject import NervanaObject

BATCH = 4
HUGE = (2**31, 2**63, -(2**63), 10**12, 10**30, -(10**400), 1e308, 1e39)


def junk_function(*_: Any) -> None:
    """A function of anything that gives nothing."""


class Hollow:
    """An object that claims a shape and a dtype, and is nothing."""

    shape, dtype, backend, ndim, size = "shape", "dtype", None, None, -1

    def __init__(self, *_: Any) -> None:
        """Accept any arguments."""


class World:
    """A backend, another one and a closed one, with tensors and expressions of them.

    Attributes
    ----------
    watched : list of tensors
        Whose values no failed call may change.
    """

    def __init__(self, backend: str, make: Callable[[], Any]) -> None:
        self.backend, self.make = backend, make
        self.other, self.closed = make(), make()
        self.foreign = [self.other.ones((3, 4)), self.other.ones((3, 4)) + 1]
        self.late = [self.closed.ones((3, 4)), self.closed.ones((3, 4)) * 2]
        self.closed.cleanup_backend()
        self.be: Any = None
        self.refresh(0)

    def refresh(self, seed: int) -> None:
        """The state that each call starts in: it depends on ``seed`` alone."""
        if self.be is None or self.be.closed or NervanaObject.be is not self.be:
            self.be = gen_backend(self.backend, rng_seed=0, batch_size=BATCH)
        be = self.be
        be.bsz, be.compat_mode, be.num_threads = BATCH, None, None
        be.rng_reset()
        be.default_dtype = np.float32
        self.rng = np.random.default_rng(seed)
        self.watched: list[Any] = []
        self.t, self.u, self.square, self.row, self.column, self.cube = (
            self.tensor(*shape) for shape in ((3, 4), (3, 4), (4, 4), (1, 4), (3, 1), (2, 3, 4))
        )
        self.wide = self.tensor(3, 4, dtype="f8")
        self.whole = self.tensor(3, 4, dtype="i4")
        self.view = self.tensor(3, 9)[:, 1::2]
        self.index = self.watch(be.array([[0, 2, 1]], dtype=np.int32))

    def tensor(self, *shape: int, dtype: str = "f4") -> Any:
        """A watched tensor of numbers from 0 to 2, so that they are whole and valid positions too."""
        return self.watch(self.be.array(self.rng.integers(0, 3, shape), dtype=dtype))

    def watch(self, tensor: Any) -> Any:
        """Watch ``tensor``: no failed call may change its values."""
        self.watched.append(tensor)
        return tensor

    def snapshot(self) -> list[bytes]:
        """Contents of the watched tensors."""
        return [tensor.get().tobytes() for tensor in self.watched]

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]


def plain(world: World) -> list[Any]:
    """Wrong things that have nothing to do with tensors."""
    return [
        None, True, -1, 0, 1, 7, 1.5, float("nan"), float("inf"), -float("inf"), 1j, "", "x", "float32", "1", b"x", [],
        [1, 2], [[1], [2, 3]], [None], ["a"], [[]], (1,), (0, 0), (-1, 2), (1, 2, 3, 4, 5), ("a", "b"), (None, 2), {},
        {"a": 1}, {1}, object(), Hollow(), Hollow, len, junk_function, int, Exception, ..., slice(None), range(3),
        NotImplemented, iter([1]), np, fractions.Fraction(1, 3), np.dtype("U3"), np.dtype(object), "datetime64[s]",
        np.dtype([("a", "f4")]), "c16", np.float64("nan"), np.int8(-3), np.str_("a"), np.datetime64("2020-01-01"),
        *HUGE, (10**12,), (10**5, 10**5, 10**5), (2**63, 2), (2, 3, 4, 5, 6), (10**30, 1), [10**20], "a" * 1000,
    ]  # fmt: skip


def arrays(world: World) -> list[Any]:
    """Host arrays."""
    return [
        np.ones(3), np.ones((1, 1, 1, 1, 1)), np.ones((3, 4)), np.array(["a"]), np.array([[None]]),
        np.ones((3, 4), complex), np.ones((3, 4), ">f4"), np.ones((3, 4), bool), np.zeros((0, 4)), np.array(3),
        np.full((3, 4), np.nan),
        np.zeros(3, [("a", "f4")]), np.array([[2**63]], np.uint64), np.array([[0, 99]]),
        np.ma.masked_array([1], [True]),
        np.array([["2020"]], "M8[Y]"),
    ]  # fmt: skip


def tensors(world: World) -> list[Any]:
    """Tensors and expressions that may be wrong where they are passed."""
    be = world.be
    return [
        world.t, world.u, world.square, world.row, world.column, world.cube, world.wide, world.whole, world.view,
        world.index, world.t.T, world.t + 1, be.sum(world.t), be.rand(), be.onehot(world.index, 0), world.t * np.nan,
        *world.foreign, *world.late, be.zeros((0, 4)), be.ones((1, 1, 1, 1, 1)), be.array([[np.nan, 1, 2, 3]] * 3),
        be.array([[-5, 99, 2]], dtype=np.int32), be.zeros((3, 4), dtype=np.uint8), be.ones((3, 4), dtype=np.float16),
        [world.t, world.u], [(world.t, world.u)], [(world.t, world.t + 1, 3)], (world.t, None), {"a": world.t},
        be.dot(world.square, world.square), world.t.reshape(2, 6), world.t > 1, [world.t + 1],
    ]  # fmt: skip


def junk(world: World) -> Any:
    """Something wrong."""
    made = world.pick(plain, plain, arrays, tensors, tensors)(world)
    return made[int(world.rng.integers(len(made)))]


_ADDRESS = re.compile(r" at 0x[0-9a-f]*")


def described(value: Any, depth: int = 0) -> str:
    """A short text of an argument, the same in every run."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (Hollow, np.generic, type)):
        kind = type(value).__name__
        where = f" of {value.backend!r}" if getattr(value, "backend", None) is not None else ""
        return f"<{kind} {value.shape} {value.dtype}{where}>"
    if isinstance(value, (list, tuple)) and depth < 2:
        inner = ", ".join(described(item, depth + 1) for item in value[:6])
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    try:
        return _ADDRESS.sub("", repr(value)[:80])
    except Exception as error:  # its own affair
        return f"<{type(value).__name__} without repr: {error}>"


def every_kind(world: World) -> Iterator[Any]:
    """All of them once."""
    for kind in (plain, arrays, tensors):
        yield from kind(world)
