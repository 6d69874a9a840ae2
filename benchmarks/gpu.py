"""The GPU backend against PyTorch, CuPy and JAX: expressions, calls, products, layers, copies.

It needs a GPU and PyCUDA, and ends with status 2 without them. ``--quick`` stays under two minutes, ``--results``
writes RESULTS-gpu.md. Peers that are not installed are named at the end. ``python benchmarks/gpu.py --help`` lists the
options; the targets are in ``_gpu_targets.py``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from _cases import Case, markdown, size_text
from _expressions import EXPRESSIONS, Expression
from _gpu_cases import PRECISIONS, Field, Section, copy_case, expression_case, label, primitive_case, product_case
from _gpu_cases import SECTIONS as OF_PRIMITIVES
from _gpu_session import DISPATCH, PRODUCTS, TRANSFERS, GpuSession, is_emulated
from _gpu_targets import verdicts
from _libraries import Library, Neonlike, find_peers
from expressions import SUITE, named, sizes
from harness import arguments, check, measure, some_of

SECTIONS = ("dispatch", "products", *OF_PRIMITIVES, "optree", "copies")
SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
QUICK_SIZES = (1 << 24,)
QUICK = ("sigmoid", "axpy", "gelu", "softmax0", "softmax1", "layer_norm", "variance", "sum_squares", "adam")
COMPILED = ("sigmoid", "softmax0", "softmax1", "sum_squares", "adam")
"""In a quick run, contenders whose compilers take seconds take part in these only, at the largest size."""
DISPATCHED, DISPATCH_SIZE = ("sigmoid", "softmax1", "adam"), 64
EDGES, QUICK_EDGES = (1024, 4096, 8192), (4096,)
COPIED, QUICK_COPIED = (1 << 18, 1 << 22, 1 << 26), (1 << 22,)
NO_GPU = 2
"""Exit status where there is no GPU."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    parser.add_argument("--sizes", type=sizes, metavar="N,N", help="elements of expressions, such as 64,4k,16M")
    parser.add_argument("--edges", type=sizes, metavar="N,N", help="of the square matrices multiplied")
    parser.add_argument("--copied", type=sizes, metavar="N,N", help="elements copied between host and GPU")
    names = [e.name for e in EXPRESSIONS]
    parser.add_argument("--only", type=some_of(names), metavar="NAME,NAME", help=f"some of {', '.join(names)}")
    parser.add_argument("--shapes", action="store_true", help="every layer, with --quick too")
    parser.add_argument("--seconds", type=float, help="leave out the cases that have not begun after so many")
    text = ", ".join(SECTIONS)
    parser.add_argument("--sections", type=some_of(SECTIONS), metavar="NAME,NAME", default=SECTIONS, help=text)
    return parser.parse_args(argv)


class Run:
    """The sections of a run, and what they share: session, contenders, time limit."""

    def __init__(self, session: GpuSession, field: Field) -> None:
        self.session, self.field, self.options = session, field, session.options
        self.dispatch_seconds: dict[str, dict[str, float]] = {}
        self.start = time.monotonic()

    def section(self, name: str) -> None:
        """Measure a section."""
        if name in OF_PRIMITIVES:
            self.primitives(OF_PRIMITIVES[name])
        else:
            getattr(self, name)()

    def _late(self, case: str) -> bool:
        """Whether the time limit has passed; then ``case`` is skipped with a note."""
        if self.options.seconds is None or time.monotonic() - self.start < self.options.seconds:
            return False
        self.session.skip(f"{case}: left out, {self.options.seconds:.0f} seconds are over")
        return True

    def _beside(self, name: str, make: Callable[[], Case], heading: str, copies: bool = False) -> None:
        """Measure a case of a table of its own, if there is time."""
        if not self._late(name):
            self.session.run_beside(make(), heading, copies)

    def _expressions(self, quick: Sequence[str]) -> list[Expression]:
        """Expressions that the options select; in a quick run ``quick``, unless the options name others."""
        names = self.options.only or [e.name for e in EXPRESSIONS if not self.options.quick or e.name in quick]
        return [named(name) for name in names]

    def optree(self) -> None:
        """Measure the expressions, size by size."""
        quick = self.options.quick
        sizes = self.options.sizes or (QUICK_SIZES if quick else SIZES)
        for size, expression in itertools.product(sizes, self._expressions(QUICK)):
            if self._late(f"{expression.name} at {size_text(size)}"):
                continue
            if why := SUITE.fits(expression.name, size):
                self.session.skip(why)
                continue
            slow = not quick or (expression.name in COMPILED and size == max(sizes))
            self.session.run(expression_case(expression, size, self.field, slow))

    def dispatch(self) -> None:
        """Measure the host time of a call, on so few elements that the GPU never falls behind."""
        self.session.say(f"\n{DISPATCH}, {DISPATCH_SIZE} elements, the GPU not waited for")
        chosen = [named(name) for name in self.options.only or DISPATCHED]
        for expression in chosen:
            slow = not self.options.quick or expression.name == chosen[0].name
            able, results = check(expression_case(expression, DISPATCH_SIZE, self.field, slow))
            self.session.beside += [r for r in results if r.wrong]
            queueing = [replace(c, elapsed=partial(self._library(c.name).queueing, c.run)) for c in able]
            times = {n: statistics.median(s) for n, (_, s) in measure(queueing, self.session.effort).items()}
            self.dispatch_seconds[expression.name] = times
            self.session.say(f"{expression.name}: " + ", ".join(f"{n} {s * 1e6:.2f}" for n, s in times.items()))
        names = list(dict.fromkeys(n for times in self.dispatch_seconds.values() for n in times))
        rows = [
            [f"{case}, {DISPATCH_SIZE} elements", *(f"{times[n] * 1e6:.2f}" if n in times else "-" for n in names)]
            for case, times in self.dispatch_seconds.items()
        ]
        self.session.tables[DISPATCH] = markdown(["", *names], rows)
        self.session.more["dispatch_seconds"] = self.dispatch_seconds

    def _library(self, contender: str) -> Library:
        found: Library = self.field.peers.get(contender.partition(".")[0], self.field.ours)
        return found

    def products(self) -> None:
        """Measure products of square matrices in each precision."""
        edges = self.options.edges or (QUICK_EDGES if self.options.quick else EDGES)
        for precision in PRECISIONS:
            with _precise(precision, self.session.be) as ours:
                field = replace(self.field, ours=ours)
                for edge in edges:
                    make = partial(product_case, edge, precision, field)
                    self._beside(f"{precision} product at {edge}", make, PRODUCTS)

    def primitives(self, section: Section) -> None:
        """Measure the passes of layers in each precision, ours in each of its ways."""
        few = self.options.quick and not self.options.shapes
        chosen = section.chosen(few, is_emulated(self.session.be))
        for precision in section.precisions:
            with ExitStack() as stack:
                libraries = {
                    way.name: stack.enter_context(_precise(precision, self.session.be, **way.settings))
                    for way in section.ways
                }
                for layer, N in chosen:
                    for which in section.passes(layer):
                        make = partial(primitive_case, section, layer, N, which, precision, self.field, libraries)
                        name = f"{section.word} {precision} {label(layer, N)} {which}"
                        self._beside(name, make, section.heading, section.copies)

    def copies(self) -> None:
        """Measure copies from host to GPU and back."""
        for size in self.options.copied or (QUICK_COPIED if self.options.quick else COPIED):
            for down in (False, True):
                self._beside(f"copies of {size_text(size)}", partial(copy_case, size, down, self.field), TRANSFERS)


@contextmanager
def _precise(precision: str, be: Any, **settings: Any) -> Iterator[Neonlike]:
    """Another backend on the same GPU: the precision of its float32 products, its ways to convolve and to unroll."""
    with type(be)(rng_seed=0, device_id=be.device_id, bench=False) as made:
        made.product_precision = "tf32" if precision == "tf32" else "float32"
        usual = {"conv_method": "auto", "enable_winograd": True, "recurrent_method": "steps"}
        for name, value in (usual | settings).items():
            setattr(made, name, value)
        yield Neonlike(made, "cuda")


def run_sections(run: Run, sections: Sequence[str]) -> bool:
    """Run the sections; whether one failed. What was measured before a failure or Ctrl-C is still written."""
    broken = False
    for section in sections:
        try:
            run.section(section)
        except KeyboardInterrupt:
            run.session.skip(f"interrupted in the section {section}: the rest is left out")
            return True
        except Exception as failure:
            traceback.print_exc()
            run.session.skip(f"the section {section} broke off: {type(failure).__name__}: {failure}".splitlines()[0])
            broken = True
    return broken


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for.

    The exit status is 1 if a result of ours was wrong or a section broke off, 2 without a GPU.
    """
    from neonlike.backends import gen_backend
    from neonlike.errors import BackendUnavailable

    options = parse(argv)
    peers, absent = find_peers()  # first: PyTorch takes a cuBLAS that is loaded for its own, of whatever version
    try:
        be = gen_backend("gpu", rng_seed=0)
    except BackendUnavailable as why:
        print(f"benchmarks/gpu.py: {why}", file=sys.stderr)
        return NO_GPU
    with be:
        session = GpuSession(options, be, peers)
        run = Run(session, Field(session.ours, peers, absent, session.cache))
        broken = run_sections(run, options.sections)
        return session.finish(verdicts(session, run.dispatch_seconds)) or int(broken)


if __name__ == "__main__":
    sys.exit(main())
