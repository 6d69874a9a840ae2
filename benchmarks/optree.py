"""Op-trees against NumPy, numexpr, PyTorch, Numba and JAX: ``out[:] = be.sig(a*b + c)`` and a dozen other expressions.

At 64 elements the figures show what a call costs from Python, from 16M on how much of the memory's bandwidth a fused
kernel uses. ``python benchmarks/optree.py --help`` lists the options; the targets are in ``_verdicts.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import _apart
import _contenders
import _machine
from _apart import Apart, Child, Desk, Link
from _expressions import EXPRESSIONS, Expression, footprint
from _terms import parse_size, size_text
from _verdicts import HEADLINE, verdicts
from harness import Session, arguments

SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
QUICK_SIZES = (64, 1 << 20)
QUICK_LARGE = 1 << 24
"""Another size of a quick run, at which only the headline expression is measured."""

SPARE = 0.85
"""Share of the free memory that a case may take."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    parser.add_argument("--sizes", type=_sizes, metavar="N,N", help="elements, such as 64,4k,16M")
    _apart.add_option(parser)
    names = ", ".join(e.name for e in EXPRESSIONS)
    parser.add_argument("--only", type=_chosen, metavar="NAME,NAME", help=f"some of {names}")
    return parser.parse_args(argv)


def _sizes(text: str) -> list[int]:
    return [parse_size(part) for part in text.split(",")]


def _chosen(text: str) -> list[Expression]:
    known = {e.name: e for e in EXPRESSIONS}
    unknown = [name for name in text.split(",") if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"no expression {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def schedule(options: argparse.Namespace) -> list[tuple[Expression, int]]:
    """What to measure, size by size."""
    chosen = options.only or EXPRESSIONS
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    planned = [(expression, size) for size in sizes for expression in chosen]
    if options.quick and not options.sizes:
        planned += [(expression, QUICK_LARGE) for expression in chosen if expression.name == HEADLINE]
    return planned


def fits(expression: Expression, size: int, contenders: int) -> str:
    """Why a case is left out; empty if there is memory enough, or nobody can tell."""
    need, free = footprint(expression, size, contenders), _machine.free_memory()
    if free is None or need <= SPARE * free:
        return ""
    return (
        f"{expression.name} at {size_text(size)}: left out, as it needs about {need / 2**30:.0f} GiB of memory and "
        f"{free / 2**30:.0f} GiB are free"
    )


@contextmanager
def desk(name: str) -> Iterator[Desk]:
    """The desk of the process of contender ``name``: it makes, checks and times cases."""
    from neonlike.backends import gen_backend

    known = {e.name: e for e in EXPRESSIONS}
    if name not in _contenders.OURS:
        yield Desk(lambda case, size, slow: _contenders.make_case(None, known[case], size, slow, name))
        return
    with gen_backend("cpu", rng_seed=0) as be:
        make = lambda case, size, slow: _contenders.make_case(be, known[case], size, slow, name)  # noqa: E731
        yield Desk(make, {"engine": be.engine.name})


def start(argv: list[str], name: str) -> Link:
    """The process of the contender ``name``."""
    return Child(name, __file__, argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    options = parse(argv)
    if options.child:
        with desk(options.child) as answers:
            return _apart.serve(answers)
    with Apart(_contenders.names(), partial(start, sys.argv[1:] if argv is None else argv)) as apart:
        session = Session("optree", options, apart.facts | {"threads": f"{_machine.cores()} for everyone"})
        for expression, size in schedule(options):
            if why := fits(expression, size, len(_contenders.names())):
                session.skip(why)
                continue
            slow = not options.quick or expression.name == HEADLINE
            session.run(apart.case(expression.name, size, slow))
    return session.finish(verdicts(session))


if __name__ == "__main__":
    sys.exit(main())
