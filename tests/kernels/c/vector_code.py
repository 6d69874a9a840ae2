"""Find loops of compiled op-trees that have no vector code.

    python tests/kernels/c/vector_code.py [--dtypes float32 float16] [--sample 200] [--jobs 2]  ($CC: another compiler)

A kernel is a loop over a chain of ops, and whether it is vectorised depends on the chain, not on its parts alone: gcc
gives up where a selected value is tested again (see ``nl_max_nan`` in vecmath_small.h), and the kernel takes up to 20
times as long. So this compiles every op, every pair, every reduction of an op with an epilogue, and random triples, as
the library renders and compiles them, and asks the compiler which of the loops marked ``#pragma omp simd`` it left
scalar. The exit status is 1 if there is one. A sample is part of ``make check`` (test_vector_code.py).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends import Backend, gen_backend
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.planning.graph import linearize
from neonlike.optree import node
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.ops import OPS, Kind, OpSpec

DTYPES = ("float32", "float64", "float16", "bfloat16")
SHAPE, LONG = (64, 1024), (1, 70000)
"""Shapes that the kernels are rendered for: reductions by rows and by columns, and of one long row cut in parts."""
TOGETHER = 40
"""Kernels in a file that the compiler is called with: starting it and reading the headers takes a while."""
TRIPLES = 400
"""Random triples of a whole run, a dtype."""

ELEMENTWISE = [spec for spec in OPS.values() if spec.kind is Kind.ELEMENTWISE and spec.dtype is not DTypeRule.WHOLE]
REDUCTIONS = [spec for spec in OPS.values() if spec.kind is Kind.REDUCTION]

Tree = Any
"""``("exp", ("add", "x", "y"))``; "x", "y", "z" are tensors, "c" a number, ("sum", tree, axis) a reduction."""


# What is compiled ---------------------------------------------------------------------------------------------------


def text(tree: Tree) -> str:
    """``tree`` as one reads it."""
    return tree if isinstance(tree, str) else f"{tree[0]}({', '.join(map(str, map(text_or_axis, tree[1:])))})"


def text_or_axis(part: Any) -> str:
    """An operand, or the axis of a reduction."""
    return f"axis={part}" if isinstance(part, int) else text(part)


def call(spec: OpSpec, *operands: Tree, rest: Sequence[Tree] = ("y", "z")) -> Tree:
    """``spec`` of ``operands``, and of as many of ``rest`` as it takes besides."""
    return (spec.name, *operands, *rest[: spec.arity - len(operands)])


def singles() -> Iterator[Tree]:
    """Every op, of tensors and beside a number."""
    for spec in ELEMENTWISE:
        yield call(spec, "x")
        if spec.arity > 1:
            yield call(spec, "x", rest="cz")


def pairs() -> Iterator[Tree]:
    """Every op of every other, in each of the places for an operand."""
    for outer in ELEMENTWISE:
        for inner in ELEMENTWISE:
            made = call(inner, "x")
            yield call(outer, made)
            if outer.arity > 1:
                yield call(outer, "y", made, rest="z")


def reductions() -> Iterator[Tree]:
    """Every reduction of every op over both axes, and with an op that takes its result and the elements."""
    after = [spec for spec in ELEMENTWISE if spec.arity == 2]
    for position, inner in enumerate(ELEMENTWISE):
        for reduction in REDUCTIONS:
            for axis in (0, 1):
                yield (reduction.name, call(inner, "x"), axis)
            outer = after[position % len(after)]
            yield call(outer, "x", (reduction.name, call(inner, "x"), position % 2))


def long_rows() -> Iterator[Tree]:
    """Reductions of one row that is cut in parts, with an epilogue."""
    for reduction in REDUCTIONS:
        for inner in ("maximum", "exp", "relu"):
            yield ("mul", "l", (reduction.name, (inner, "l", "l")[: OPS[inner].arity + 1], 1))


def triples(random: random.Random) -> Iterator[Tree]:
    """Random chains of three, some with another chain or a number beside them."""
    while True:
        tree: Tree = "x"
        for _ in range(3):
            spec = random.choice(ELEMENTWISE)
            others = [random.choice(("y", "z", "c", ("neg", "y"), call(random.choice(ELEMENTWISE), "z"))) for _ in "ab"]
            operands = [tree, *others[: spec.arity - 1]]
            random.shuffle(operands)
            tree = (spec.name, *operands)
        yield tree


def sample(count: int, random: random.Random) -> list[Tree]:
    """Trees of every kind; half of them pairs whose outer op selects, which is where loops lose their vector code."""
    selecting = {"maximum", "minimum", "relu", "softplus", "safelog", "leaky_relu", "and", "or", "xor", "where"}
    kinds = [
        ([tree for tree in pairs() if tree[0] in selecting], count // 2),
        (list(singles()), count // 6),
        ([*reductions(), *long_rows()], count // 6),
    ]
    made = [tree for trees, wanted in kinds for tree in random.sample(trees, min(wanted, len(trees)))]
    more = triples(random)
    return [*made, *(next(more) for _ in range(count - len(made)))]


def everything(random: random.Random) -> list[Tree]:
    """All trees of a whole run."""
    more = triples(random)
    return [*singles(), *pairs(), *reductions(), *long_rows(), *(next(more) for _ in range(TRIPLES))]


class Chain(NamedTuple):
    """A kernel, and the expression it is of."""

    name: str
    kernel: KernelSource


def render(be: Backend, trees: Iterable[Tree], dtype: str) -> list[Chain]:
    """The kernels of ``trees``, each once, as the library would compile them."""
    leaves: dict[str, Any] = {name: be.array(np.ones(SHAPE), dtype=dtype) for name in "xyz"}
    leaves |= {"l": be.array(np.ones(LONG), dtype=dtype), "c": 0.75}
    chains: dict[str, Chain] = {}
    for tree in trees:
        expression = build(be, tree, leaves)
        if isinstance(expression, float):
            continue  # made of numbers alone
        graph = linearize(((be.empty(expression.shape, dtype=expression.dtype), expression),))
        for kernel in be.engine.sources(be.plans.find(graph), graph):
            chains.setdefault(kernel.name, Chain(f"{text(tree)} of {dtype}", kernel))
    return list(chains.values())


def build(be: Backend, tree: Tree, leaves: dict[str, Any]) -> Any:
    """The expression of ``tree``."""
    if isinstance(tree, str):
        return leaves[tree]
    spec = OPS[tree[0]]
    if spec.kind is Kind.REDUCTION:
        return getattr(be, spec.builders[0])(build(be, tree[1], leaves), axis=tree[2])
    return node.apply(spec, tuple([build(be, part, leaves) for part in tree[1:]]), be)


# What the compiler makes of it --------------------------------------------------------------------------------------


REPORTS = {
    "gcc": (
        "-fopt-info-vec-optimized-missed", "-fno-gcse", "-fno-ivopts", "-fno-schedule-insns2", "-fira-region=one",
        "-fira-algorithm=priority", "-fdisable-rtl-combine",
    ),
    "clang": ("-Rpass=loop-vectorize", "-Wpass-failed", "-fno-color-diagnostics"),
}  # fmt: skip
"""What makes a compiler report its loops, and leave out some of what it does after it has vectorised them."""
SCALAR = re.compile(
    r"^\S*?\bk(\d+)\.c:(\d+):\d+: (?:missed: +couldn't vectorize loop|warning: loop not vectorized)", re.M
)
VECTORS = re.compile(r"^\S*?\bk(\d+)\.c:(\d+):\d+: (?:optimized: +loop vectorized|remark: vectorized loop)", re.M)
_INCLUDE = re.compile(r"^#include .*$", re.M)
_OWN_NAMES = re.compile(r"^static [^=;]*?(\w+)\(|^struct (\w+)", re.M)
_DEFINED = re.compile(r"^#define (\w+)", re.M)


def marked_loops(source: str) -> list[tuple[int, int]]:
    """First and last line of each loop that is marked to be vectorised, its mark included."""
    lines = source.split("\n")
    found = []
    for number, line in enumerate(lines):
        if line.lstrip().startswith("#pragma omp simd"):
            margin = re.match(r" *", lines[number + 1]).group()  # type: ignore[union-attr]
            end = next(i for i in range(number + 2, len(lines)) if lines[i].startswith(margin + "}"))
            found.append((number + 1, end + 1))
    return found


def one_file(chains: Sequence[Chain], folder: Path) -> str:
    """Text of a file that includes all kernels, which it writes to ``folder`` with their headers.

    Each kernel has functions and types of the same names: they are renamed while it is included.
    """
    includes: dict[str, None] = {}
    body = []
    for position, chain in enumerate(chains):
        source = str(chain.kernel.source)
        includes.update(dict.fromkeys(_INCLUDE.findall(source)))
        source = _INCLUDE.sub("", source)  # lines keep their numbers
        (folder / f"k{position}.c").write_text(source)
        for name, header in dict(chain.kernel.headers).items():
            (folder / name).write_text(header)
        own = sorted({name for pair in _OWN_NAMES.findall(source) for name in pair if name})  # alike in every process
        body += [f"#define {name} {name}_{position}" for name in own]
        body.append(f'#include "k{position}.c"')
        body += [f"#undef {name}" for name in (*own, *_DEFINED.findall(source))]
    return "\n".join([*includes, *body, ""])


def macros(compiler: Compiler) -> str:
    """Predefined macros of the compiler: its name, and its instruction sets."""
    flags = [flag for flag in compiler.flags if flag != "-shared"]
    command = [*compiler.command, *flags, "-dM", "-E", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the compiler in a folder; its words are English."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


def scalar_loops(chains: Sequence[Chain], compiler: Compiler) -> list[str]:
    """Kernels with a marked loop that is not vectorised: expression, line and first words of each.

    Raises
    ------
    RuntimeError
        The compiler failed, or reported no loop at all.
    """
    with tempfile.TemporaryDirectory(prefix="neonlike-vector-") as name:
        folder = Path(name)
        (folder / "all.c").write_text(one_file(chains, folder))
        report = REPORTS["clang" if "__clang__" in macros(compiler) else "gcc"]
        command = [*compiler.command, *compiler.flags, *report, "-I.", "-S", "all.c", "-o", os.devnull]
        command.remove("-shared")
        done = run(command, folder)
    if done.returncode or not VECTORS.search(done.stderr):
        raise RuntimeError(f"{' '.join(command)} reports no loop (status {done.returncode}):\n{done.stderr[-2000:]}")
    scalar, vectors = by_kernel(SCALAR.findall(done.stderr)), by_kernel(VECTORS.findall(done.stderr))
    found = []
    for position, chain in enumerate(chains):
        source = str(chain.kernel.source)
        for first, last in marked_loops(source):
            # Words about the loop around a marked one may name a line of the marked one, which has vector code then.
            inside = set(range(first, last + 1))
            if inside & scalar[position] and not inside & vectors[position]:
                found.append(f"{chain.name}: line {first + 1}, {' '.join(source.split(chr(10))[first].split())}")
    return found


def by_kernel(places: Iterable[tuple[str, str]]) -> defaultdict[int, set[int]]:
    """The lines of each kernel that a report names."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for kernel, line in places:
        found[int(kernel)].add(int(line))
    return found


def check(chains: Sequence[Chain], compiler: Compiler, jobs: int) -> Iterator[list[str]]:
    """:func:`scalar_loops`, a file at a time, on so many processors."""
    parts = [chains[start : start + TOGETHER] for start in range(0, len(chains), TOGETHER)]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda part: scalar_loops(part, compiler), parts)


def main() -> int:
    """Compile and print the report; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--sample", type=int, metavar="N", help="N expressions a dtype, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the random expressions")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    compiler = find_compiler()
    if compiler is None:
        print("there is no C compiler: name one with CC", file=sys.stderr)
        return 2
    print(compiler.identity)
    be, found = gen_backend("cpu"), 0
    for dtype in given.dtypes:
        chance = random.Random(given.seed)
        chains = render(be, sample(given.sample, chance) if given.sample else everything(chance), dtype)
        for lines in check(chains, compiler, given.jobs):
            found += len(lines)
            for line in lines:
                print(f"  no vector code: {line}", flush=True)
        print(f"{dtype}: {len(chains)} kernels", flush=True)
    print(f"{found} loops without vector code")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
