"""Op-trees against NumPy, numexpr, PyTorch, Numba and JAX: ``out[:] = be.sig(a*b + c)`` and a dozen other expressions.

At 64 elements the figures show what a call costs from Python, at 16M how much of the memory's bandwidth a fused
kernel uses. ``python benchmarks/optree.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import sys

from _contenders import make_case
from _expressions import EXPRESSIONS, Expression
from _report import parse_size, size_text
from harness import Session, arguments

SMALL, LARGE = 64, 1 << 24
SIZES = (SMALL, 1 << 12, 1 << 20, LARGE)
QUICK_SIZES = (SMALL, 1 << 20)
HEADLINE = "sigmoid"
"""The expression of the targets below; measured at their sizes in a quick run too."""

ASSIGN_TARGET, PREPARED_TARGET = 25.0, 6.0
"""Microseconds a call at 64 elements."""
RATIO_TARGET = 0.5
"""Of plain NumPy's time at 16M elements."""


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
        planned += [(expression, LARGE) for expression in chosen if expression.name == HEADLINE]
    return planned


def verdicts(session: Session) -> list[str]:
    """The targets, and whether this run met them."""
    assign = session.find(HEADLINE, SMALL, "neonlike assign")
    prepared = session.find(HEADLINE, SMALL, "neonlike prepared")
    large = session.find(HEADLINE, LARGE, "neonlike assign")
    lines = []
    if assign and prepared and assign.median is not None and prepared.median is not None:
        x, y = assign.median * 1e6, prepared.median * 1e6
        met = _met(x < ASSIGN_TARGET and y < PREPARED_TARGET)
        lines.append(
            f"assignment at {SMALL} elements: {x:.1f} us (target < {ASSIGN_TARGET:.0f}), "
            f"prepared {y:.1f} us (target < {PREPARED_TARGET:.0f}): {met}"
        )
    if large and large.ratio is not None:
        lines.append(
            f"{size_text(LARGE)} float32: neonlike takes {large.ratio:.2f} of plain NumPy's time "
            f"(target <= {RATIO_TARGET}): {_met(large.ratio <= RATIO_TARGET)}"
        )
    return lines


def _met(yes: bool) -> str:
    return "met" if yes else "MISSED"


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    from neonlike.backends import gen_backend

    options = parse(argv)
    with gen_backend("cpu", rng_seed=0) as be:
        session = Session("optree", options, {"engine": be.engine.name})
        for expression, size in schedule(options):
            slow = not options.quick or expression.name == HEADLINE
            session.run(make_case(be, expression, size, slow))
        return session.finish(verdicts(session))


if __name__ == "__main__":
    sys.exit(main())
