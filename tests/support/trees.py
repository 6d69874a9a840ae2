"""Random expression graphs with their float64 values, for the fuzz tests.

Every term carries its value, evaluated node by node as the graph grows, and the same value *shaken*: with a random
rounding error of the node's dtype after every op. How far the two are apart says what difference an engine may show,
and whether a step such as ``a > b`` is too close to call; such a step is not taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.errors import ShapeError
from neonlike.optree import builders, node, shapes
from neonlike.optree.dtypes import F32, F64, DTypeRule, compute_dtype, is_float
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, POSITIVE, REAL, UNIT, Kind, OpSpec
from tests.support.float64.reference import EPSILON, apply, at, domains, random_index, random_shape, sample
from tests.support.tree_terms import Leaf, Pick, Term, fits, joins, selector

MAX_SIZE = 3000
NUMBERS = (-2, -1.5, -0.5, 0.25, 0.5, 1, 1.25, 3)
"""Numbers that every float type holds exactly."""

EXACT = {"neg", "abs", "relu", "maximum", "minimum", "where", "max", "min"}
EXACT |= {"transpose", "broadcast", "take", "concat", "take_along"}
"""Ops that do not round, beside those without a gradient."""


class Grower:
    """Grows one graph.

    Parameters
    ----------
    dtypes : dtypes of the leaves, integers included
    smooth : keep away from kinks and steps, so that the graph can be differentiated numerically
    sizes : sizes of axes; 1 is always among them
    """

    def __init__(
        self, be: Any, rng: np.random.Generator, dtypes: Any = (F64,), smooth: bool = False, sizes: Any = (3, 4)
    ) -> None:
        self.be, self.rng, self.dtypes, self.smooth = be, rng, dtypes, smooth
        self.sizes = (1, *sizes, *sizes)
        self.ndims = ((2,), (2,), (2, 2, 3), (2, 3, 4))[rng.integers(4)]
        self.leaves: list[Leaf] = []
        self.terms: list[Term] = []
        elementwise = [s for s in OPS.values() if s.kind is Kind.ELEMENTWISE]
        reductions = [s for s in OPS.values() if s.kind is Kind.REDUCTION]
        if smooth:
            elementwise = [s for s in elementwise if s.grad is not NON_DIFFERENTIABLE]
            reductions = [s for s in reductions if s.grad is not NON_DIFFERENTIABLE]
        self.elementwise, self.reductions = elementwise, reductions

    # Leaves

    def leaf(self, shape: Any = None, dtype: Any = None) -> Term:
        """A new tensor with a random layout, at the end of ``terms``."""
        if shape is None:
            ndim = self.rng.choice(self.ndims)
            shape = tuple(int(self.rng.choice(self.sizes)) for _ in range(ndim))
        dtype = self.dtypes[self.rng.integers(len(self.dtypes))] if dtype is None else dtype
        inside = (slice(1, -1),) * len(shape)
        swapped = (*shape[:-2], shape[-1], shape[-2])
        layouts: list[tuple[Any, Pick]] = [
            (shape, lambda t: t),
            (tuple(n + 2 for n in shape), lambda t: t[inside]),
            (tuple(2 * n + 1 for n in shape), lambda t: t[(slice(1, None, 2),) * len(shape)]),
            (shape, lambda t: t[(slice(None, None, -1),) * len(shape)]),
            (swapped, lambda t: t.T if not isinstance(t, np.ndarray) else np.swapaxes(t, -1, -2)),
        ]
        whole, pick = layouts[self.rng.integers(len(layouts))]
        base = self.be.array(sample(REAL, whole, dtype, self.rng), dtype=dtype)
        made = Leaf(base, pick, pick(base))
        self.leaves.append(made)
        host = made.tensor.get().astype(np.float64 if is_float(dtype) else np.int64)
        return self.keep(Term(made.tensor, host, (host, host)))

    def keep(self, term: Term) -> Term:
        self.terms.append(term)
        return term

    # One op

    def extend(self, expression: Any, *operands: Any) -> Term | None:
        """The term of ``expression`` on ``operands`` (terms or numbers), unless it is unusable."""
        values = [o.value if isinstance(o, Term) else o for o in operands]
        if expression.shape is not shapes.FREE and np.prod(expression.shape) > MAX_SIZE:
            return None
        value = apply(expression, values)
        if not np.isfinite(value).all() or self._too_close(expression, operands):
            return None
        rounds = is_float(value.dtype) and expression.spec.name not in EXACT
        epsilon = EPSILON[expression.dtype] if rounds and expression.spec.grad is not NON_DIFFERENTIABLE else 0.0
        shaken = [apply(expression, [o.shaken[i] if isinstance(o, Term) else o for o in operands]) for i in range(2)]
        if epsilon:
            tiny = 10 * np.finfo(compute_dtype(expression.dtype)).tiny  # smaller values may become 0
            errors = [self.rng.uniform(-2, 2, s.shape) for s in shaken]
            shaken = [s * (1 + epsilon * error) + tiny * error for s, error in zip(shaken, errors)]
        made = Term(expression, value, (shaken[0], shaken[1]))
        if made.noise > 1e5 * EPSILON[F32 if self._is_coarse(expression) else F64]:
            return None
        for operand in operands:
            if isinstance(operand, Term):
                operand.used = True
        return made

    def _is_coarse(self, expression: Any) -> bool:
        return any(compute_dtype(d) == F32 or not is_float(d) for d in (*self.dtypes, expression.dtype))

    def _too_close(self, expression: OpTreeNode, operands: tuple[Any, ...]) -> bool:
        """True if a step or kink of the op lies within reach of rounding (or of differencing, for smooth graphs)."""
        spec, terms = expression.spec, [o for o in operands if isinstance(o, Term)]
        if spec.grad is not NON_DIFFERENTIABLE and spec.name not in ("where", "mod", "fmod") and not self.smooth:
            return False
        test = selector(expression)
        if test is None or spec.dtype is DTypeRule.WHOLE:  # integers do not move
            return False
        before = test(*(o.value if isinstance(o, Term) else o for o in operands))
        if spec.name in ("max", "min") and before.any():  # a tie, which has no derivative
            return True
        for signs in self._signs(spec, len(operands)):
            moved = []
            for operand, sign in zip(operands, signs):
                if not isinstance(operand, Term):
                    moved.append(operand)
                    continue
                gap = 1e3 * operand.noise
                if self.smooth and is_float(operand.value.dtype):
                    gap = max(gap, 1e-2)
                moved.append(operand.value + (gap * sign if sign else gap * self._random_signs(operand)))
            if terms and not np.array_equal(before, test(*moved)):
                return True
        return False

    def _signs(self, spec: OpSpec, count: int) -> Any:
        """Ways to move operands: all together up or down, or (0) every element by itself."""
        if spec.kind is Kind.ELEMENTWISE:
            return itertools.product((-1, 1), repeat=count)
        return [(0,) * count] * 8

    def _random_signs(self, operand: Term) -> Any:
        return self.rng.choice((-1.0, 1.0), operand.value.shape)

    def into(self, term: Any, domain: tuple[float, float]) -> Any:
        """``term`` brought into ``domain`` by more ops; a number is returned as it is, or replaced by one inside."""
        low, high = domain
        if not isinstance(term, Term):
            return term if low <= term <= high else 0.5
        if domain in (POSITIVE, UNIT) or domain != REAL:
            squashed = self.extend(F.sig(term.node), term)
            scaled = squashed and self.extend(squashed.node * (high - low), squashed, high - low)
            return scaled and self.extend(scaled.node + low, scaled, low)
        if term.size > 8:
            factor = 4.0 / 2.0 ** np.ceil(np.log2(term.size))
            return self.extend(term.node * factor, term, factor)
        return term

    # Growing

    def pick(self) -> Term:
        """A term, often one that nothing uses yet."""
        unused = [t for t in self.terms if not t.used]
        pool = unused if unused and self.rng.random() < 0.6 else self.terms[-30:]
        return pool[self.rng.integers(len(pool))]

    def partner(self, term: Term) -> Any:
        """Something that broadcasts with ``term``: another term, or a number."""
        if self.rng.random() < 0.2:
            return NUMBERS[self.rng.integers(len(NUMBERS))]
        fitting = [t for t in self.terms if fits(t.node.shape, term.node.shape)]
        return fitting[self.rng.integers(len(fitting))]

    def step(self) -> Term | None:
        """One more op, or None if the one drawn was unusable."""
        kinds: list[tuple[float, Callable[[Term], Term | None]]] = [
            (6, self._elementwise),
            (2, self._reduce),
            (1, self._transpose),
            (1, self._dot),
            (1, self._move),
            (0.3, self._made),
        ]
        weights = np.array([w for w, _ in kinds])
        return kinds[self.rng.choice(len(kinds), p=weights / weights.sum())][1](self.pick())

    def _elementwise(self, term: Term) -> Term | None:
        spec: OpSpec = self.elementwise[self.rng.integers(len(self.elementwise))]
        operands: list[Any] = [term] + [self.partner(term) for _ in range(spec.arity - 1)]
        if spec.arity == 3 and not fits(*(o.node.shape for o in operands[1:] if isinstance(o, Term)), ()):
            return None
        if spec.name == "where" and self.smooth:  # a condition that does not change with the leaves
            fixed = self.be.array(self.rng.integers(0, 2, operands[0].node.shape), dtype=np.float64)
            operands[0] = Term(fixed, fixed.get(), (fixed.get(), fixed.get()))
        if spec.dtype is DTypeRule.WHOLE:
            return self._of_integers(spec, operands)
        order = self.rng.permutation(len(operands)) if spec.name != "where" else range(len(operands))
        operands = [operands[i] for i in order]
        operands = [self.into(o, d) for o, d in zip(operands, domains(spec))]
        if any(o is None for o in operands):
            return None
        expression = node.apply(spec, tuple(o.node if isinstance(o, Term) else o for o in operands), self.be)
        return self.extend(expression, *operands)

    def _of_integers(self, spec: OpSpec, operands: list[Any]) -> Term | None:
        """A row for integers, of operands that are; shifts by a few places."""
        nodes = [o.node if isinstance(o, Term) else o for o in operands]
        if any(isinstance(n, float) or (hasattr(n, "dtype") and is_float(n.dtype)) for n in nodes):
            return None
        if spec.name.endswith("shift"):
            nodes[1] = operands[1] = int(self.rng.integers(5))
        return self.extend(node.apply(spec, tuple(nodes), self.be), *operands)

    def _reduce(self, term: Term) -> Term | None:
        spec = self.reductions[self.rng.integers(len(self.reductions))]
        ndim = len(term.node.shape)
        axis: Any = None if self.rng.random() < 0.2 else int(self.rng.integers(-ndim, ndim))
        if self.rng.random() < 0.2:
            axis = tuple(int(a) for a in self.rng.permutation(ndim)[: self.rng.integers(1, ndim + 1)])
        if spec.name.startswith("arg"):
            axis = axis if isinstance(axis, int) else 0
        return self.extend(builders.reduce(spec, term.node, axis), term)

    def _transpose(self, term: Term) -> Term | None:
        axes = tuple(int(a) for a in self.rng.permutation(len(term.node.shape)))
        made = F.transpose(term.node, axes)
        if not isinstance(made, OpTreeNode):  # a view of a leaf
            first, second = term.shaken
            return Term(made, term.value.transpose(axes), (first.transpose(axes), second.transpose(axes)))
        return self.extend(made, term)

    def _dot(self, term: Term) -> Term | None:
        others = [t for t in self.terms if len(t.node.shape) == 2]
        if len(term.node.shape) != 2:
            return None
        other = others[self.rng.integers(len(others))]
        if term.node.shape[1] != other.node.shape[0]:
            return None
        small = [self.into(t, REAL) for t in (term, other)]
        return None if None in small else self.extend(F.dot(small[0].node, small[1].node), *small)

    def _move(self, term: Term) -> Term | None:
        """Move of a term: a gather, a scatter, a window, its inverse, stretching, joining, an index or a reshape."""
        shape = term.node.shape
        if self.rng.random() < 0.3:
            return self._taken_apart(term)
        axis = int(self.rng.integers(len(shape)))
        positions = self.rng.integers(0, shape[axis], self.rng.integers(1, 6))
        indices = self.be.array(positions.reshape(1, -1), dtype=np.int32)
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        skip = [int(self.rng.integers(n)) for n in shape]
        kept = tuple(n - s for n, s in zip(shape, skip))
        layout = (kept, tuple(strides), sum(n * s for n, s in zip(skip, strides)))
        choice = self.rng.integers(8)
        if choice == 6:
            return self._along(term, axis)
        if choice == 7:
            if term.size > 1.2:  # products would grow without end
                return self.extend(F.cumsum(term.node, axis, bool(positions[0] % 2)), term)
            return self.extend(F.cumprod(term.node, axis, bool(positions[0] % 2)), term)
        if choice == 5:
            fitting = [term] + [t for t in self.terms[-30:] if joins(t.node.shape, shape, axis)]
            others = [fitting[i] for i in self.rng.integers(0, len(fitting), self.rng.integers(1, 4))]
            return self.extend(F.concat([term.node, *(t.node for t in others)], axis), term, *others)
        if choice == 0:
            return self.extend(F.take(term.node, indices, axis), term, positions)
        if choice == 1:
            repeated = self.be.array(self.rng.integers(0, 3, (shape[axis], 1)), dtype=np.int64)
            onto = (*shape[:axis], 3, *shape[axis + 1 :])
            return self.extend(F.untake(term.node, repeated, onto, axis), term, repeated.get())
        if choice == 2:
            return self.extend(F.view(term.node, layout), term)
        if choice == 3:
            window = self.extend(F.view(term.node, layout), term)
            return window and self.extend(F.unview(window.node, shape, layout), window)
        stretched = tuple(int(self.rng.choice(self.sizes)) if n == 1 else n for n in shape)
        made = F.broadcast_to(term.node, stretched)
        return None if made is term.node else self.extend(made, term)

    def _along(self, term: Term, axis: int) -> Term | None:
        """Elements of each line picked, or added, by indices of its own."""
        shape = term.node.shape
        places = self.be.array(self.rng.integers(0, shape[axis], shape), dtype=np.int32)
        if self.rng.random() < 0.5:
            return self.extend(F.take_along(term.node, places, axis), term, places.get())
        return self.extend(F.untake_along(term.node, places, shape, axis), term, places.get())

    def _taken_apart(self, term: Term) -> Term | None:
        """``term`` indexed, reshaped or one of its rows; these may be several nodes."""
        choice = self.rng.integers(3)
        shape = random_shape(self.rng, term.value.size)
        items = random_index(self.rng, term.node.shape, lists=isinstance(term.node, OpTreeNode))

        def part(host: Any) -> Any:
            return at(host, items) if choice else host.reshape(shape)

        if choice == 2:
            items = (int(self.rng.integers(term.node.shape[0])),)
            made = list(term.node)[items[0]]
        else:
            try:
                made = term.node[items] if choice else term.node.reshape(shape)
            except ShapeError:  # a strided tensor
                return None
        if 0 in made.shape:
            return None
        term.used = True
        return Term(made, part(term.value), (part(term.shaken[0]), part(term.shaken[1])))

    def _made(self, term: Term) -> Term | None:
        """Times a ``onehot`` or a ``rand``, whose values are those of assigning it alone, in the dtype of its use."""
        shape = term.node.shape
        if self.rng.random() < 0.5 and len(shape) == 2:
            axis = int(self.rng.integers(2))
            hot = self.rng.integers(0, shape[axis], shape[1 - axis])
            made = F.onehot(self.be.array(hot.reshape(1, -1), dtype=np.int32), axis)
        else:
            made = self.be.rand()
        product = term.node * made
        alone = self.be.empty(shape, dtype=F64 if product.dtype == F64 else None)
        alone[:] = made
        return self.extend(product, term, alone.get().astype(np.float64))

    def grow(self, count: int) -> Term:
        """About ``count`` ops, gathered under one root."""
        for _ in range(3 + count // 20):
            self.leaf()
        tries = 0
        while len(self.terms) < count and tries < 40 * count:
            tries += 1
            if made := self.step():
                self.keep(made)
        assert len(self.terms) >= count, "the generator is stuck"
        return self.gather([t for t in self.terms if not t.used])

    def gather(self, loose: list[Term]) -> Term:
        """The sum of ``loose`` terms, those that do not broadcast as their means."""
        root = self.into(loose[0], REAL)
        for term in loose[1:]:
            small: Any = self.into(term, REAL)
            if small is not None and not fits(small.node.shape, root.node.shape):
                total = self.extend(F.sum(small.node), small)
                small = total and self.extend(total.node * 0.125, total, 0.125)
            merged = small and self.extend(root.node + small.node, root, small)
            root = merged or root
        return self.keep(root)
