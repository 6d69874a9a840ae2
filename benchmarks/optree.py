"""Op-trees against NumPy, numexpr, PyTorch, Numba and JAX: ``out[:] = be.sig(a*b + c)`` and a dozen other expressions.

At 64 elements the figures show what a call costs from Python, from 16M on how much of the memory's bandwidth a fused
kernel uses. ``python benchmarks/optree.py --help`` lists the options; the targets are in ``_verdicts.py``.
"""

from __future__ import annotations

import argparse
import sys

import _machine
from _contenders import PEERS, import_peers, make_case
from _expressions import EXPRESSIONS, Expression, footprint
from _report import parse_size, size_text
from _verdicts import HEADLINE, verdicts
from harness import Session, arguments

SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
QUICK_SIZES = (64, 1 << 20)
QUICK_LARGE = 1 << 24
"""The headline's second size in a quick run."""

SPARE = 0.85
"""Share of the free memory that a case may take."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument("--sizes", type=_sizes, metavar="N,N", help="elements, such as 64,4k,16M")
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


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    from neonlike.backends import gen_backend

    options = parse(argv)
    import_peers()
    with gen_backend("cpu", rng_seed=0) as be:
        session = Session("optree", options, {"engine": be.engine.name, "threads": f"{_machine.cores()} for everyone"})
        for expression, size in schedule(options):
            if why := fits(expression, size, 2 + len(PEERS)):
                session.skip(why)
                continue
            slow = not options.quick or expression.name == HEADLINE
            session.run(make_case(be, expression, size, slow))
        return session.finish(verdicts(session))


if __name__ == "__main__":
    sys.exit(main())
