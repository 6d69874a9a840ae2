"""A program: tensors, op-trees over them and targets, as plain data that can be cut down, resized and printed.

An :class:`Instance` turns it into Python statements for one backend and runs them, so what is printed on a failure is
what ran.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from ml_dtypes import finfo

from neonlike.optree.dtypes import as_dtype
from neonlike.optree.functions import F, rand
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import contiguous_strides
from tests.fuzz import bounds
from tests.fuzz.values import Val, exact
from tests.support.float64 import reference

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
LAYOUTS = ("plain", "margin", "second", "backwards", "transposed", "reordered", "shifted")
VIEWS = ("itself", "turned", "flipped", "T", "up", "down")
"""Ways to write over memory that is read."""


MAX_VALUES = 300_000
"""Size of a term; an expression of more values is refused."""


class UnfitError(ValueError):
    """A term that a space has no place for: it has too many values, or none to show, or other dimensions."""


class Ref(NamedTuple):
    """A term as an operand."""

    term: int


class Made(NamedTuple):
    """A ``rand``, or a ``onehot`` of the ``classes`` of indices, as an operand."""

    kind: str
    axis: int
    seed: int


@dataclass(frozen=True)
class Leaf:
    """A tensor of the shape that ``axes`` of the program's space have; -1 stands for size 1."""

    axes: tuple[int, ...]
    dtype: str
    layout: str
    data: str
    seed: int


@dataclass(frozen=True)
class Op:
    """An op on operands (Ref, Made or a number); ``axis`` and ``seed`` as far as it has any use for them.

    Beside the rows of the table there are "index" and "reshape": what ``e[index]`` and ``e.reshape(shape)`` make.
    """

    name: str
    operands: tuple[Any, ...]
    axis: Any = None
    seed: int = 0


@dataclass(frozen=True)
class Target:
    """Where a term goes: a new tensor, or over a leaf's memory. ``lead``: stretched along one more axis."""

    term: int
    dtype: str = "f4"
    layout: str = "plain"
    lead: bool = False
    leaf: int = -1
    view: str = "itself"


@dataclass(frozen=True)
class Program:
    """See the module docstring. ``way``: assign_many, assign_fresh, prepare. ``eager``: threads for small ones too."""

    space: Shape
    terms: tuple[Any, ...] = ()
    targets: tuple[Target, ...] = ()
    way: str = "assign_many"
    threads: int = 1
    eager: bool = False


def data(kind: str, shape: Shape, dtype: str, seed: int) -> Array:
    """Values for a tensor: "whole" (small whole numbers), "real", "wide" (all magnitudes), "special" or "extreme"."""
    rng, what = np.random.default_rng(seed), as_dtype(dtype)
    if what.kind == "b":
        return rng.integers(0, 2, shape).astype(what)
    if what.kind in "iu":
        info = np.iinfo(what)
        made = rng.integers(max(info.min, -5), 6, shape).astype(what)
        if kind == "extreme":
            ends = (info.min, min(info.max, 2**63 - 1))  # what the bounds know of uint64
            made = np.where(rng.random(shape) < 0.1, rng.choice(np.array(ends, what), shape), made)
        return made
    if kind == "whole":
        return rng.integers(-3, 4, shape).astype(what)
    made = rng.uniform(-4, 4, shape)
    if kind == "wide":
        made = made * 2.0 ** rng.integers(-20, 12, shape)
    if kind in ("special", "extreme"):
        info = finfo(what)
        ends = (info.tiny, -info.tiny / 4, info.smallest_subnormal, info.max, -info.max, 0.75 * float(info.max))
        odd = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, *(map(float, ends) if kind == "extreme" else ()))
        made = np.where(rng.random(shape) < 0.2, rng.choice(odd, shape), made)
    with np.errstate(over="ignore"):
        return made.astype(what)


def arrangement(layout: str, shape: Shape) -> tuple[Shape, str]:
    """Shape of the memory behind a view of ``shape``, and the code that makes the view of it."""
    ndim = len(shape)
    if layout == "margin":
        return tuple(n + 2 for n in shape), "[" + ", ".join(["1:-1"] * ndim) + "]"
    if layout == "second":
        return tuple(2 * n + 1 for n in shape), "[" + ", ".join(["1::2"] * ndim) + "]"
    if layout == "backwards":
        return shape, "[" + ", ".join(["::-1"] * ndim) + "]"
    if layout == "transposed":
        return (*shape[:-2], shape[-1], shape[-2]), ".T"
    if layout == "reordered":
        return (*shape[1:], shape[0]), f".permuted({(ndim - 1, *range(ndim - 1))})"
    if layout == "shifted":
        return (*shape[:-1], shape[-1] + 1), "[" + ", ".join([":"] * (ndim - 1) + ["1:"]) + "]"
    return shape, ""


class Instance:
    """A program being built on one backend.

    Attributes
    ----------
    lines : list of str
        The statements that made it.
    vals : list of Val
        What the terms may give; empty with ``reference=False``.
    """

    def __init__(self, be: Any, space: Shape, reference: bool = True) -> None:
        self.be, self.space, self.reference = be, space, reference
        self.names: dict[str, Any] = {"be": be, "np": np, "F": F, "rand": rand, "data": data}
        self.lines: list[str] = []
        self.terms: list[Any] = []
        self.vals: list[Val] = []
        self.pairs: list[tuple[Any, int]] = []
        self.count = 0

    def do(self, name: str, code: str) -> Any:
        """Execute ``name = code`` and return the value."""
        self.lines.append(f"{name} = {code}")
        self.names[name] = eval(compile(code, "<fuzz>", "eval"), self.names)
        return self.names[name]

    def shape_of(self, axes: tuple[int, ...]) -> Shape:
        """The sizes that ``axes`` stand for."""
        return tuple(1 if axis < 0 else self.space[axis] for axis in axes)

    def add(self, term: Leaf | Op) -> None:
        """Make a term; errors of the builders pass through."""
        index = len(self.terms)
        if isinstance(term, Leaf):
            shape = self.shape_of(term.axes)
            whole, view = arrangement(term.layout, shape)
            values = f"data({term.data!r}, {whole}, {term.dtype!r}, {term.seed})"
            self.do(f"b{index}", f"be.array({values}, dtype={term.dtype!r})")
            made = self.do(f"t{index}", f"b{index}{view}")
            val = exact(made.get()) if self.reference else None
        else:
            made = self.do(f"t{index}", self._code(term))
            if np.prod(made.shape) > MAX_VALUES:
                raise UnfitError(f"{made.shape} has more than {MAX_VALUES} values")
            val = self._value(term, made) if self.reference else None
        self.terms.append(made)
        if val is not None:
            self.vals.append(val)

    def _value(self, term: Op, made: Any) -> Val:
        source = next(o.term for o in term.operands if isinstance(o, Ref))
        if term.name in ("index", "reshape"):
            return Val(*(self._apart(term, part) for part in self.vals[source]))
        if made is self.terms[source]:  # there was nothing to stretch
            return self.vals[source]
        if not isinstance(made, OpTreeNode):  # a tensor, transposed
            return Val(*(part.transpose(term.axis) for part in self.vals[source]))
        if term.name == "unview":
            return bounds.evaluate(made, [bounds.evaluate(made.operands[0], [self.vals[source]])])
        operands: list[Any] = [None if isinstance(o, Made) else o for o in term.operands]
        operands = [self.vals[o.term] if isinstance(o, Ref) else o for o in operands]
        if term.name in ("take", "untake", "take_along", "untake_along"):
            operands.append(exact(made.operands[1].get()))
        return bounds.evaluate(made, operands)

    def _apart(self, op: Op, host: Array) -> Array:
        """``host`` indexed or reshaped as ``op`` does it."""
        rng = np.random.default_rng(op.seed)
        if op.name == "index":
            return reference.at(host, reference.random_index(rng, host.shape))
        return host.reshape(reference.random_shape(rng, host.size))

    def _apart_code(self, op: Op, shape: Shape) -> str:
        if 0 in shape:
            raise UnfitError(f"{op.name}: there is nothing to show of {shape}")
        rng, source = np.random.default_rng(op.seed), f"t{op.operands[0].term}"
        if op.name == "index":
            return f"{source}[{reference.random_index(rng, shape)}]"
        return f"{source}.reshape({reference.random_shape(rng, int(np.prod(shape)))})"

    def _code(self, op: Op) -> str:
        shapes = [self.terms[o.term].shape for o in op.operands if isinstance(o, Ref)]
        texts = [self._operand(operand, shapes) for operand in op.operands]
        if op.name in ("index", "reshape"):
            return self._apart_code(op, shapes[0])
        name = next((b for b in (*OPS[op.name].builders, op.name) if not keyword.iskeyword(b)), op.name)
        if OPS[op.name].kind.name in ("ELEMENTWISE", "CONTRACTION"):
            return f"F.{name}({', '.join(texts)})"
        if OPS[op.name].kind.name == "REDUCTION":
            return f"F.{name}({texts[0]}, axis={op.axis})"
        rng = np.random.default_rng(op.seed)
        shape: Shape = shapes[0]
        if op.name == "transpose":
            return f"F.transpose({texts[0]}, {op.axis})"
        if op.name == "concat":
            return f"F.concat([{', '.join(texts)}], {op.axis})"
        if op.name == "broadcast":
            return f"F.broadcast_to({texts[0]}, {self.shape_of(op.axis)})"
        if op.name in ("cumsum", "cumprod", "argsort"):
            return f"F.{op.name}({texts[0]}, {op.axis}, {bool(op.seed % 2)})"
        if op.name in ("take_along", "untake_along"):
            values = f"np.random.default_rng({op.seed}).integers(0, {max(size_along(shape, op.axis), 1)}, {shape})"
            onto = f", {shape}" if op.name == "untake_along" else ""
            return f"F.{op.name}({texts[0]}, be.array({values}, dtype={('i4', 'i8')[op.seed % 2]!r}){onto}, {op.axis})"
        if op.name in ("take", "untake"):
            size = size_along(shape, op.axis)
            positions = rng.integers(0, size, size).tolist() if size else []
            indices = f"be.array(np.array({[positions]}), dtype={('i4', 'i8')[op.seed % 2]!r})"
            onto = f", {shape}" if op.name == "untake" else ""
            return f"F.{op.name}({texts[0]}, {indices}{onto}, {op.axis})"
        skip = [int(rng.integers(min(n, 3))) if n else 0 for n in shape]
        steps = contiguous_strides(shape)
        window = (tuple(n - s for n, s in zip(shape, skip)), tuple(steps), sum(n * s for n, s in zip(skip, steps)))
        if op.name == "view":
            return f"F.view({texts[0]}, {window})"
        return f"F.unview(F.view({texts[0]}, {window}), {shape}, {window})"

    def _operand(self, operand: Any, others: list[Shape]) -> str:
        if isinstance(operand, Ref):
            return f"t{operand.term}"
        if not isinstance(operand, Made):
            return repr(operand)
        if operand.kind == "rand":
            return f"rand(be, {operand.seed}, {operand.axis})"
        try:
            shape = np.broadcast_shapes(*others)
        except ValueError as error:
            raise UnfitError(str(error)) from None
        if len(shape) != 2 or not shape[operand.axis]:
            raise UnfitError(f"onehot: a matrix with classes is expected, not {shape}")
        count, classes = shape[1 - operand.axis], shape[operand.axis]
        positions = np.random.default_rng(operand.seed).integers(0, max(classes, 1), count).tolist()
        return f"F.onehot(be.array(np.array({[positions]}), dtype='i4'), {operand.axis})"

    # Targets

    def target(self, target: Target) -> bool:
        """Add a pair; False if the target's view does not fit."""
        term, number = self.terms[target.term], len(self.pairs)
        shape: Shape = term.shape
        if target.leaf >= 0:
            code = self._over(target, shape)
            if code is None:
                return False
            made = self.do(f"out{number}", code)
        else:
            shape = (2, *shape) if target.lead else shape
            whole, view = arrangement(target.layout, shape)
            self.do(f"w{number}", f"be.array(data('whole', {whole}, {target.dtype!r}, 7), dtype={target.dtype!r})")
            made = self.do(f"out{number}", f"w{number}{view}")
        self.pairs.append((made, target.term))
        return True

    def _over(self, target: Target, shape: Shape) -> str | None:
        leaf, base, ndim = self.terms[target.leaf], self.names[f"b{target.leaf}"], len(shape)
        options = {
            "itself": (leaf.shape, f"t{target.leaf}"),
            "turned": (leaf.shape, f"t{target.leaf}[{', '.join(['::-1'] * leaf.ndim)}]"),
            "flipped": (leaf.shape, f"t{target.leaf}[::-1]"),
            "T": (leaf.T.shape, f"t{target.leaf}.T"),
        }
        if all(b >= n for b, n in zip(base.shape, shape)) and base.ndim == ndim:
            options["up"] = (shape, f"b{target.leaf}[{', '.join(f'0:{n}' for n in shape)}]")
            options["down"] = (shape, f"b{target.leaf}[{', '.join(f'{b - n}:{b}' for b, n in zip(base.shape, shape))}]")
        fitting, code = options.get(target.view, (None, ""))
        return code if fitting == shape else None

    def bases(self) -> dict[str, Any]:
        """All memory there is, by name."""
        return {name: made for name, made in self.names.items() if name[0] in "bw" and name[1:].isdigit()}

    def run_code(self, way: str) -> str:
        """The statement that runs it."""
        pairs = ", ".join(f"(out{i}, t{term})" for i, (_, term) in enumerate(self.pairs))
        return f"be.prepare([{pairs}])()" if way == "prepare" else f"be.{way}([{pairs}])"

    def run(self, way: str) -> None:
        """Run it."""
        exec(compile(self.run_code(way), "<fuzz>", "exec"), self.names)


def size_along(shape: Shape, axis: int) -> int:
    """``shape[axis]``; ValueError where a program of another space has more axes."""
    if axis >= len(shape):
        raise ValueError(f"there is no axis {axis} in {shape}")
    return shape[axis]


def build(program: Program, be: Any, reference: bool = True) -> Instance:
    """``program`` on ``be``, not run yet. Targets that do not fit (in another space) are left out."""
    made = Instance(be, program.space, reference)
    for term in program.terms:
        made.add(term)
    for target in program.targets:
        made.target(target)
    return made


def snippet(program: Program, be: Any, engine: str) -> str:
    """A script that runs ``program``; values are written out where they are few."""
    made = build(program, be, reference=False)
    lines = []
    for line in made.lines:
        name, _, code = line.partition(" = ")
        if "data(" in code and made.names[name].size <= 64:
            host = made.names[name].get()
            code = f"be.array(np.array({host.tolist()}, {host.dtype.str[1:]!r}), dtype={host.dtype.str[1:]!r})"
            if host.dtype.kind == "V":  # no type of NumPy's own
                code = f"be.array({host.tolist()}, dtype={host.dtype.name!r})"
        lines.append(f"{name} = {code}")
    text = "\n".join(lines)
    head = [
        "import os, sys",
        f'os.environ.update(NEONLIKE_CPU_JIT="{int(engine == "c")}", NEONLIKE_NUM_THREADS="{program.threads}")',
        "import numpy as np",
        "from numpy import inf, nan",
        "from neonlike.backends import gen_backend",
        "from neonlike.optree.functions import F, rand",
        f'be = gen_backend("{"gpu" if engine == "gpu" else "cpu"}", rng_seed=0)',
    ]
    if "data(" in text:
        head[3:3] = ['sys.path.insert(0, ".")', "from tests.fuzz.programs import data"]
    if program.eager:
        head.insert(-1, "from neonlike.kernels.c import fit, stage; stage.PARALLEL_WORK = fit.BLOCKED_LEAST = 1")
    shown = [f"print(out{i}.get())" for i in range(len(made.pairs))]
    return "\n".join((*head, *lines, made.run_code(program.way), *shown))
