"""Dynamic graphs made by chance, against NumPy in float64: values, also of memory that is overwritten, and gradients.

The parameters, by which gradients are asked, are never written. Other variables, aliases of them and the caller's
tensors are, before and after what was computed from them is asked for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neonlike.autograd.dynamic import commands
from neonlike.autograd.dynamic.tensor_variable import Window
from neonlike.errors import GradientError
from tests.fuzz.duals import Array, Dual, add, dot, mul

SHAPES = ((3, 4), (1, 4), (3, 1), (4, 3))
ALIKE: tuple[tuple[Any, Any], ...] = (
    (commands.ewise("tanh"), lambda d: d.map(np.tanh, lambda x: 1 - np.tanh(x) ** 2)),
    (commands.ewise("sin"), lambda d: d.map(np.sin, np.cos)),
    (commands.function(lambda x: x * 0.5 - 1), lambda d: d.map(lambda x: x * 0.5 - 1, lambda x: np.full_like(x, 0.5))),
    (commands.function(lambda x: x[:, ::-1]), lambda d: d.move(lambda x: x[:, ::-1])),
)
"""Commands that keep a shape, and what they do."""
OTHERS: tuple[tuple[Any, Any], ...] = (
    (commands.function(lambda x: x.T), lambda d: d.move(np.transpose)),
    (commands.sum_of(1), lambda d: d.move(lambda x: x.sum(1, keepdims=True))),
    (commands.mean(0), lambda d: d.move(lambda x: x.mean(0, keepdims=True))),
)
PAIRS: tuple[tuple[Any, Any], ...] = ((commands.ewise("add"), add), (commands.ewise("mul"), mul))


@dataclass(frozen=True)
class Value:
    """Expected contents of a variable, the parameters it depends on, and the states of memory (by number)."""

    dual: Dual
    needs: frozenset[int] = frozenset()
    read: frozenset[int] = frozenset()
    computed: bool = False

    def of(self, dual: Dual, *others: Value) -> Value:
        """Result of a command on it and ``others``."""
        needs, read = self.needs, self.read
        for other in others:
            needs, read = needs | other.needs, read | other.read
        return Value(dual, needs, read, True)


@dataclass
class Base:
    """A variable's storage. ``memory``: writes overwrite it. ``mine``: the caller's tensor, if it is one."""

    value: Value
    memory: bool
    mine: Any = None
    parameter: bool = False


@dataclass
class Name:
    """A variable or, with a window, an alias."""

    variable: Any
    base: Base
    window: Window | None = None

    @property
    def value(self) -> Value:
        """Value read from it."""
        whole = self.base.value
        return whole if self.window is None else replace(whole, dual=whole.dual.move(self.window.of))


class Grower:
    """Grows one graph on a backend that computes in float64; ``rng`` is as in :mod:`.graphs`."""

    def __init__(self, be: Any, seed: int, rng: Any = None) -> None:
        self.be, self.rng, self.graph = be, rng or np.random.default_rng(seed), be.dynamic_graph()
        self.states, self.gone = 0, set[int]()
        self.kept: list[tuple[Any, Array]] = []  # gradients and the caller's tensors, and what they are to be
        self.names: list[Name] = []
        hosts = [self.rng.standard_normal(shape) for shape in SHAPES]
        starts = np.cumsum([0, *(host.size for host in hosts)])
        self.columns = [slice(start, end) for start, end in itertools.pairwise(starts)]
        for number, (host, columns) in enumerate(zip(hosts, self.columns)):
            slope = np.zeros((*host.shape, starts[-1]))
            slope[..., columns] = np.eye(host.size).reshape(*host.shape, -1)
            value = self.new_state(Value(Dual(host, slope), frozenset([number])))
            self.names.append(Name(self.graph.variable(value=host), Base(value, True, parameter=True)))
        self.parameters = self.names[:]
        for shape in SHAPES[:2]:
            self.names.append(Name(self.graph.variable(shape), self.plain(np.zeros(shape))))

    def new_state(self, value: Value) -> Value:
        """``value`` as a state of memory of its own."""
        self.states += 1
        return replace(value, read=value.read | {self.states})

    def plain(self, host: Array, mine: Any = None) -> Base:
        """Memory that no command has computed."""
        slope = np.zeros((*host.shape, self.columns[-1].stop))
        return Base(self.new_state(Value(Dual(host, slope))), True, mine)

    def pick(self, shape: Any = None) -> Name:
        """One of the variables, of this shape."""
        fitting = [name for name in self.names if shape in (None, name.value.dual.value.shape)]
        return fitting[self.rng.integers(len(fitting))]

    # Steps

    def run(self, alike: bool, target: Name | None = None) -> None:
        """A command, into ``target`` or a new variable; one that keeps the shape if ``alike``."""
        a = self.pick(None if target is None else target.value.dual.value.shape)
        x = a.value.dual.value
        b = self.pick(x.shape) if alike else self.pick()
        y = b.value.dual.value
        kind = self.rng.integers(3)
        given: list[Name]
        if kind == 0 and all(n == m or 1 in (n, m) for n, m in zip(x.shape, y.shape)):
            (command, does), given = PAIRS[self.rng.integers(len(PAIRS))], [a, b]
        elif kind == 1 and not alike and x.shape[1] == y.shape[0]:
            command, does, given = commands.gemm(), dot, [a, b]
        else:
            rows = ALIKE if alike else (*ALIKE, *OTHERS)
            (command, does), given = rows[self.rng.integers(len(rows))], [a]
        first, *others = (name.value for name in given)
        value = first.of(does(*(name.value.dual for name in given)), *others)
        outputs = None if target is None else [target.variable]
        made = self.graph.exec(command, [name.variable for name in given], outputs)
        if target is None:
            self.names.append(Name(made, Base(self.new_state(value), False)))
        else:
            self.written(target, value)

    def written(self, target: Name, result: Value) -> None:
        """Note that ``result`` was written to ``target``."""
        base, (old,) = target.base, {max(target.base.value.read)}
        if target.window is not None:
            before = base.value
            dual = Dual(before.dual.value.copy(), before.dual.slope.copy())
            target.window.of(dual.value)[:] = result.dual.value
            for column in range(dual.slope.shape[-1]):
                part = dual.slope[..., column].copy()
                target.window.of(part)[:] = result.dual.slope[..., column]
                dual.slope[..., column] = part
            result = result.of(dual, before) if before.computed else replace(result, dual=dual)
        if base.memory:
            self.gone.add(old)
        base.value = self.new_state(result)

    def alias(self) -> None:
        """A window on a variable, in lines of its own length or of another."""
        name = self.pick()
        if name.window is not None:
            return
        shape = name.value.dual.value.shape
        line = int(self.rng.integers(1, shape[0] * shape[1] + 1)) if self.rng.integers(2) else shape[1]
        sizes = (shape[0] * shape[1] // line, line)
        offset = tuple(int(self.rng.integers(size)) for size in sizes)
        part = tuple(int(self.rng.integers(1, size - first + 1)) for size, first in zip(sizes, offset))
        made = self.graph.alias(name.variable, offset, part, (1, line))
        self.names.append(Name(made, name.base, Window(offset, part, (1, line))))

    def put(self, name: Name) -> None:
        """The caller's tensor as a variable's value, or a number into all of it."""
        shape = name.value.dual.value.shape
        if self.rng.integers(2):
            self.graph.exec(commands.set_to(0.25), [], [name.variable])
            self.written(name, replace(self.plain(np.full(shape, 0.25)).value, computed=False))
            name.base.memory = True
        elif name.window is None:
            host = self.rng.standard_normal(shape)
            if name.base.mine is not None:
                self.kept.append((name.base.mine, name.base.value.dual.value))
            mine = self.be.array(host)
            name.variable.set(mine)
            new = self.plain(host, mine)
            name.base.value, name.base.memory, name.base.mine = new.value, True, mine

    def differentiate(self) -> None:
        """Gradients of a variable; refused only if its operands were overwritten, or have no part in it."""
        name = self.pick()
        f, df = name.value, self.pick(name.value.dual.value.shape) if self.rng.integers(2) else None
        wanted = [number for number in range(len(self.parameters)) if self.rng.integers(2)] or [0]
        weights = np.ones(f.dual.value.shape) if df is None else df.value.dual.value
        inputs = [self.parameters[number].variable for number in wanted]
        try:
            found = self.graph.backward(name.variable, inputs, None if df is None else df.variable)
        except GradientError as error:
            overwritten, apart = "overwritten" in str(error), not f.needs.issuperset(wanted)
            assert (f.read & self.gone) if overwritten else apart, str(error)
            return
        assert f.needs.issuperset(wanted), "there should be no such gradient"
        slope = (weights[..., None] * f.dual.slope).sum((0, 1))
        for made, number in zip(found, wanted):
            self.kept.append((made, slope[self.columns[number]].reshape(SHAPES[number])))

    def step(self) -> None:
        """One of these."""
        kind, targets = self.rng.integers(10), [name for name in self.names if not name.base.parameter]
        target = targets[self.rng.integers(len(targets))]
        if kind < 3:
            self.run(alike=False)
        elif kind < 5:
            self.run(True, target)
        elif kind == 5:
            self.alias()
        elif kind == 6:
            self.put(target)
        elif kind == 7:
            self.differentiate()
        elif kind == 8:
            close(target.variable, target.value.dual.value)
        elif len(targets) > 2:
            self.names = [name for name in self.names if name is not target]
            target.variable.free()

    def finish(self) -> None:
        """Compare all that is there."""
        self.kept += [(name.variable, name.value.dual.value) for name in self.names]
        self.kept += [(name.base.mine, name.base.value.dual.value) for name in self.names if name.base.mine is not None]
        for order in self.rng.permutation(len(self.kept)):
            close(*self.kept[order])
        self.graph.close()


def close(found: Any, expected: Array) -> None:
    """Compare a variable or a tensor with its expected value."""
    np.testing.assert_allclose(found.get(), expected, rtol=1e-8, atol=1e-8 * (1 + np.abs(expected).max()))


def grow(be: Any, seed: int, rng: Any = None) -> None:
    """One graph."""
    grower = Grower(be, seed, rng)
    for _ in range(grower.rng.integers(3, 25)):
        grower.step()
    grower.finish()
