"""Random programs: shapes around the sizes at which kernels cut their work, every dtype, layout and op of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from neonlike.errors import NeonlikeError
from neonlike.optree.dtypes import INTEGERS, SUPPORTED, DTypeRule
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, POSITIVE, Kind, OpSpec
from tests.fuzz.programs import (
    LAYOUTS,
    MAX_VALUES,
    VIEWS,
    Instance,
    Leaf,
    Made,
    Op,
    Program,
    Ref,
    Shape,
    Target,
    UnfitError,
    build,
)  # fmt: skip
from tests.fuzz.values import is_known

WIDTHS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)
"""Around the vector widths, the 32 lanes of a row and the 256 columns of a block."""
LENGTHS = (255, 256, 257, 511, 513, 1025, 4095, 4096, 4097, 4128, 8193)
"""Around the 256 rows that are added before a wide sum takes over, and the 4096 elements of a chunk."""
SPLITS = (65535, 65536, 65537, 65600, 131073)
"""Around the 65536 elements from which one row is shared by all threads, and of a NumPy block."""
NUMBERS = (-2, -1.5, -1, 0, 0.1, 0.25, 0.5, 1, 1.25, 2, 3, 7, 1e-3)
PLACES = (0, 1, 2, 7, 62, 63, 64, -1)
"""To shift by; what lies outside of 0 to 63 leaves only the sign."""
FLOAT_NAMES = ("f2", "bfloat16", "f4", "f4", "f4", "f8", "f8")


def spaces(rng: np.random.Generator, ndim: int | None = None) -> Shape:
    """A random space; ``ndim`` asks for one of so many axes."""

    def pick(sizes: Any) -> int:
        return int(rng.choice(sizes))

    kinds: list[Shape] = [
        (pick(WIDTHS[:9]), pick(WIDTHS)),
        (pick(WIDTHS[:9]), pick(WIDTHS)),
        (pick(WIDTHS), pick(WIDTHS[:13])),
        (pick(LENGTHS), pick((1, 2, 5, 31, 33))),
        (pick((1, 2, 3)), pick(LENGTHS)),
        (pick((2, 9, 257)), pick((255, 256, 257, 511, 600))),
        (pick((1, 2)), pick(SPLITS)),
        (pick(SPLITS), pick((1, 2))),
        (n := pick((3, 8, 17)), n),
        tuple(pick((1, 2, 3, 5, 8)) for _ in range(3)),
        (pick((2, 3)), pick((5, 255, 257)), pick((1, 31, 33, 130))),
        (pick((2, 3)), pick((4, 33)), pick((2, 7, 65))),
        tuple(pick((1, 2, 3, 5)) for _ in range(4)),
        (2, 3, pick((33, 257)), 4),
    ]
    chances = np.array([3, 3, 3, 1, 1, 1, 0.5, 0.5, 2, 2, 0.7, 1, 1, 0.7])
    chosen = [i for i, shape in enumerate(kinds) if ndim is None or len(shape) == ndim]
    space = kinds[rng.choice(chosen, p=chances[chosen] / chances[chosen].sum())]
    if rng.random() < 0.03:
        empty = int(rng.integers(len(space)))
        space = tuple(0 if axis == empty else min(n, 9) for axis, n in enumerate(space))
    return space


class Grower:
    """Grows one program on a backend, which is used for the shapes and dtypes that its builders give.

    Parameters
    ----------
    be : Backend
    seed : int
        All that follows.
    """

    def __init__(self, be: Any, seed: int) -> None:
        self.be, self.rng = be, np.random.default_rng(seed)
        self.space = spaces(self.rng)
        self.made = Instance(be, self.space)
        self.terms: list[Leaf | Op] = []
        self.tame = self.rng.random() < 0.8
        kinds = ("real", "whole", "wide") if self.tame else ("real", "special", "extreme", "wide")
        self.kinds = self.rng.choice(kinds, 2)
        self.dtypes = self.rng.choice(FLOAT_NAMES, 2).tolist()
        if self.rng.random() < 0.5:
            self.dtypes.append(self.rng.choice([d.str[1:] for d in SUPPORTED]))
        self.contiguous = self.rng.random() < 0.5

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def one_of(self, choices: Any) -> Any:
        """A random entry."""
        return choices[int(self.rng.integers(len(choices)))]

    def seed(self) -> int:
        """A seed for something."""
        return int(self.rng.integers(1 << 30))

    def add(self, term: Leaf | Op) -> bool:
        """Keep ``term`` unless it cannot be made, grows too large, or says nothing."""
        before = len(self.made.lines)
        try:
            self.made.add(term)
        except (NeonlikeError, UnfitError):
            del self.made.lines[before:]
            return False
        made, val = self.made.terms[-1], self.made.vals[-1]
        known = is_known(val)
        useless = isinstance(term, Op) and known.size > 0 and known.mean() < (0.9 if self.tame else 0.2)
        if val.v.shape != made.shape or useless:
            self.made.terms.pop()
            self.made.vals.pop()
            return False
        self.terms.append(term)
        return True

    def leaf(self) -> None:
        """A tensor of the space, or one that stretches to it."""
        ndim = len(self.space)
        axes = tuple(-1 if self.chance(0.2) else axis for axis in range(ndim))
        if ndim > 2 and self.chance(0.2):
            axes = axes[1:]
        layout = "plain" if self.contiguous and self.chance(0.8) else self.one_of(LAYOUTS)
        self.add(Leaf(axes, str(self.one_of(self.dtypes)), layout, str(self.one_of(self.kinds)), self.seed()))

    def operand(self) -> Ref:
        """A term, mostly a late one."""
        count = len(self.terms)
        return Ref(count - 1 - min(int(self.rng.exponential(3)), count - 1))

    def step(self) -> bool:
        """One more op, or a few that belong together."""
        choice = self.rng.random()
        if choice < 0.62:
            return self.elementwise()
        if choice < 0.8:
            return self.reduction()
        if choice < 0.86:
            return self.several_passes()
        return self.move()

    def elementwise(self) -> bool:
        """Any row, its operands brought into its domain half of the time."""
        spec = self.one_of([s for s in OPS.values() if s.kind is Kind.ELEMENTWISE])
        if spec.dtype is DTypeRule.WHOLE:
            return self.add(Op(spec.name, tuple(self.integer(spec, position) for position in range(spec.arity))))
        first = self.operand()
        if spec.domain[0] == POSITIVE and self.chance(0.7) and self.add(Op("abs", (first,))):
            first = Ref(len(self.terms) - 1)
            if self.add(Op("add", (first, 0.25))):
                first = Ref(len(self.terms) - 1)
        operands: list[Any] = [first]
        for _ in range(spec.arity - 1):
            operands.append(self.partner())
        if spec.arity > 1 and spec.grad is not NON_DIFFERENTIABLE and self.chance(0.3):
            order = self.rng.permutation(len(operands))
            operands = [operands[i] for i in order]
        return self.add(Op(spec.name, tuple(operands)))

    def integer(self, spec: OpSpec, position: int) -> Any:
        """An operand of a row for integers: a term of integers, made where there is none, or a number."""
        if position and self.chance(0.4):
            return self.one_of(PLACES if spec.name.endswith("shift") else (-3, 0, 1, 6))
        found = [i for i, term in enumerate(self.made.terms) if term.dtype.kind in "iu"]
        if not found or self.chance(0.2):
            layout = "plain" if self.contiguous else self.one_of(LAYOUTS)
            dtype = str(self.one_of([d.str[1:] for d in INTEGERS]))
            self.add(Leaf(tuple(range(len(self.space))), dtype, layout, "whole", self.seed()))
            found = [len(self.terms) - 1]
        return Ref(int(self.one_of(found)))

    def partner(self) -> Any:
        """A second operand: a number, something made in place, or a term."""
        choice = self.rng.random()
        if choice < 0.25:
            return self.one_of(NUMBERS)
        if choice < 0.29:
            return Made("rand", int(self.rng.integers(50)), self.seed())
        if choice < 0.33 and len(self.space) == 2:
            return Made("onehot", int(self.rng.integers(2)), self.seed())
        return self.operand()

    def reduction(self) -> bool:
        """Over one axis, several or all."""
        spec = self.one_of([s for s in OPS.values() if s.kind is Kind.REDUCTION])
        source = self.operand()
        ndim = len(self.made.terms[source.term].shape)
        axis: Any = int(self.rng.integers(-ndim, ndim))
        if not spec.name.startswith("arg"):
            if self.chance(0.15):
                axis = None
            elif self.chance(0.2):
                axis = tuple(int(a) for a in self.rng.permutation(ndim)[: self.rng.integers(1, ndim + 1)])
        return self.add(Op(spec.name, (source,), axis))

    def several_passes(self) -> bool:
        """A softmax, a variance, or something normalised: passes over one axis that share a kernel."""
        source = self.operand()
        ndim = len(self.made.terms[source.term].shape)
        axis = int(self.rng.integers(ndim))
        kind = self.one_of(("softmax", "normalised"))
        if kind == "softmax":
            steps: list[Any] = [("max",), ("sub", source, -1), ("exp", -1), ("sum",), ("div", -2, -1)]
        else:
            steps = [("sum",), ("mul", -1, 0.125), ("sub", source, -1), ("sqr", -1), ("sum",), ("add", -1, 0.5)]
            steps += [("sqrt", -1), ("div", -5, -1)]
        for position, (name, *operands) in enumerate(steps):
            last = len(self.terms)
            refs = tuple(Ref(last + o) if type(o) is int else o for o in operands)
            over = None
            if not operands:  # a pass over what came before
                refs, over = (source if position == 0 else Ref(last - 1),), axis
            if not self.add(Op(name, refs, over)):
                return position > 0
        return True

    def move(self) -> bool:
        """Move of a term: a transpose, stretching, a gather, a scatter, a window, a product, an index or a reshape."""
        source = self.operand()
        if self.chance(0.25):
            return self.add(Op(self.one_of(("index", "index", "reshape")), (source,), seed=self.seed()))
        shape: Shape = self.made.terms[source.term].shape
        moves = ("transpose", "broadcast", "take", "untake", "view", "unview", "dot", "concat")
        along = ("cumsum", "cumprod", "argsort", "take_along", "untake_along")
        name = self.one_of((*moves, *along))
        if name == "transpose":
            return self.add(Op(name, (source,), tuple(int(a) for a in self.rng.permutation(len(shape)))))
        if name == "broadcast":
            return len(shape) == len(self.space) and self.add(Op(name, (source,), tuple(range(len(shape)))))
        if name == "concat":
            fitting = [i for i, term in enumerate(self.made.terms) if term.shape == shape]
            others = tuple(Ref(self.one_of(fitting)) for _ in range(int(self.rng.integers(1, 4))))
            return self.add(Op(name, (source, *others), int(self.rng.integers(len(shape)))))
        if name == "dot":
            if len(shape) != 2 or shape[0] > 300 or shape[1] > 20_000:
                return False
            if self.add(Op("dot", (source, self.operand()))):
                return True
            if not self.add(Op("transpose", (source,), (1, 0))):
                return False
            return self.add(Op("dot", (source, Ref(len(self.terms) - 1))))
        return self.add(Op(name, (source,), int(self.rng.integers(len(shape))), self.seed()))

    def targets(self) -> list[Target]:
        """Up to six terms that are not leaves, stored in new tensors or over operands."""
        ops = [i for i, term in enumerate(self.terms) if isinstance(term, Op)]
        used = {o.term for i in ops for o in self.terms[i].operands if isinstance(o, Ref)}  # type: ignore[union-attr]
        loose = [i for i in ops if i not in used]
        wanted = {*loose[-5:], *(self.one_of(ops) for _ in range(self.one_of((0, 1, 2))))} or {ops[-1]}
        leaves = [i for i, term in enumerate(self.terms) if isinstance(term, Leaf)]
        chosen: list[Target] = []
        for term in sorted(wanted)[:6]:
            taken = {target.leaf for target in chosen}
            free = [i for i in leaves if i not in taken]
            if free and self.chance(0.35):
                over = Target(term, leaf=self.one_of(free), view="itself" if self.chance(0.5) else self.one_of(VIEWS))
                if self.made.target(over):
                    chosen.append(over)
                    continue
            dtype = self.one_of(SUPPORTED).str[1:] if self.chance(0.3) else str(self.one_of(FLOAT_NAMES))
            layout = "plain" if self.contiguous or self.chance(0.4) else self.one_of(LAYOUTS)
            chosen.append(Target(term, dtype, layout, lead=self.chance(0.05)))
        return chosen

    def grow(self) -> Program:
        """The program."""
        large = int(np.prod(self.space)) > 20_000
        for _ in range(int(self.rng.integers(1, 4))):
            self.leaf()
        while not self.terms:
            self.leaf()
        count, tries = int(self.rng.choice((3, 6, 10) if large else (4, 8, 12, 20, 40), p=None)), 0
        while sum(isinstance(t, Op) for t in self.terms) < count and tries < 8 * count:
            tries += 1
            if self.chance(0.05):
                self.leaf()
            self.step()
        if not any(isinstance(t, Op) for t in self.terms):
            self.add(Op("neg", (Ref(0),))) or self.add(Op("finite", (Ref(0),)))
        way = "prepare" if self.chance(0.3) else "assign_fresh" if self.chance(0.4) else "assign_many"
        threads = int(self.rng.integers(1, 5))
        return pruned(
            Program(self.space, tuple(self.terms), tuple(self.targets()), way, threads, eager=self.chance(0.6))
        )


def pruned(program: Program) -> Program:
    """``program`` without the terms that no target needs."""
    needed: set[int] = set()
    stack = [index for t in program.targets for index in (t.term, t.leaf) if index >= 0]
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            term = program.terms[index]
            stack += [o.term for o in getattr(term, "operands", ()) if isinstance(o, Ref)]
    place = {old: new for new, old in enumerate(sorted(needed))}

    def moved(term: Any) -> Any:
        if isinstance(term, Leaf):
            return term
        return replace(term, operands=tuple(Ref(place[o.term]) if isinstance(o, Ref) else o for o in term.operands))

    targets = tuple(replace(t, term=place[t.term], leaf=place.get(t.leaf, -1)) for t in program.targets)
    return replace(program, terms=tuple(moved(program.terms[i]) for i in sorted(needed)), targets=targets)


def other_spaces(program: Program, be: Any, rng: np.random.Generator, count: int) -> list[Program]:
    """``program`` in up to ``count`` other spaces that it can be built in: more runs of kernels once compiled."""
    found: list[Program] = []
    for _ in range(3 * count):
        space = spaces(rng, len(program.space))
        if len(found) == count or np.prod(space) > MAX_VALUES // 4:
            continue
        made = replace(program, space=space)
        try:
            assigned = build(made, be, reference=False).pairs
        except (NeonlikeError, UnfitError):
            continue
        if assigned:  # a view that is square in one space may fit no value in another
            found.append(made)
    return found
