"""Op-trees against NumPy and PyTorch on shapes and layouts off the list of ``optree.py``.

Sums over tuples of axes, tall and wide; operands transposed, strided, flipped and broadcast; float16, bfloat16, float64
and integers; positions; softmax of odd sizes. ``python benchmarks/optree_shapes.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import _apart
import _contenders
import _machine
import _primitives
import numpy as np
from _apart import Apart, Child, Desk, Link
from _cases import Case, Contender, Effort, Record, Result
from _report import Form
from _shape_cases import CASES, INTEGERS, ShapeCase, operands
from _terms import OURS, met, time_text
from harness import Session, arguments

NUMPY, TORCH = "numpy", "torch"
FULL = Effort(sample=4e-3, min_rounds=5, max_rounds=15, budget=0.8, long=0.1)
QUICK = Effort(sample=2e-3, min_rounds=3, max_rounds=7, budget=0.2, long=0.05)
QUICK_STEP = 4
"""A quick run takes each case whose position is a multiple of this."""

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}
"""Largest relative error of ours by dtype; 1e-5 for those not named."""

TARGET = 1.0
"""Least ratio of PyTorch's time to ours, in any case."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    parser.add_argument("--only", metavar="TEXT;TEXT", help="cases whose name has one of these in it")
    _apart.add_option(parser)
    options = parser.parse_args(argv)
    if not schedule(options):
        parser.error(f"no case has {options.only} in its name")
    return options


def schedule(options: argparse.Namespace) -> list[ShapeCase]:
    """The cases to measure."""
    if options.only:
        return [case for case in CASES if any(text in title(case) for text in options.only.split(";"))]
    return list(CASES[::QUICK_STEP] if options.quick else CASES)


def title(case: ShapeCase) -> str:
    """Name of a case, with its data type unless that is float32 or in the name."""
    return case.name if case.dtype == "float32" or case.dtype in case.name else f"{case.name}, {case.dtype}"


def make_case(be: Any, shown: str, name: str) -> Case:
    """The case of that title with the contender ``name``."""
    case = next(case for case in CASES if title(case) == shown)
    arrays = operands(case)
    rounded = [_rounded(array, case.dtype) for array in arrays]

    def reference() -> list[Any]:
        return [case.numpy(*[array.astype(np.float64) for array in rounded])]

    shape = case.numpy(*[np.broadcast_to(np.int8(0), array.shape) for array in arrays]).shape
    itemsize = {"float64": 8, "float32": 4, "int32": 4, "int8": 1}.get(case.dtype, 2)
    nbytes = itemsize * (sum(math.prod(shape) for shape in case.inputs) + math.prod(shape))
    found, refused = [], {}
    try:
        found = [MAKERS[name](be, case, arrays, shape)]
    except _contenders.Refused as why:
        refused[name] = str(why)
    tolerance = TOLERANCE.get(case.dtype, 1e-5)
    return Case(shown, case.dtype, 1, found, reference, nbytes, tolerance, refused)


def _rounded(array: Any, dtype: str) -> Any:
    """Values as an array of ``dtype`` holds them, in one that NumPy has."""
    if dtype == "bfloat16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return array.astype(dtype)


def _result_dtype(case: ShapeCase) -> str:
    """Of the target: positions and sums of integers are int64."""
    word = case.name.partition(" ")[0]
    return "int64" if word == "argmax" or (word == "sum" and case.dtype in INTEGERS) else case.dtype


def ours(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> Contender:
    """An assignment, which builds the expression each time, of views that are made each time too."""
    tensors = [be.array(array, dtype=case.dtype) for array in arrays]
    out = be.zeros(shape, dtype=_result_dtype(case))
    run = _contenders.our_run(be, case.ours(be), tensors, [out], prepared=False)
    return Contender(OURS, run, lambda: [out.astype("float64").get()], ours=True)


def plain_numpy(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> Contender:
    """The expression in NumPy, which has no bfloat16."""
    if case.dtype == "bfloat16":
        raise _contenders.Refused("no bfloat16")
    own = [array.astype(case.dtype) for array in arrays]
    last: list[Any] = [None]

    def run() -> None:
        last[0] = np.ascontiguousarray(case.numpy(*own))

    return Contender(NUMPY, run, lambda: last)


def eager(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> Contender:
    """PyTorch without its compiler, into a result that is there already wherever it can."""
    if not _primitives.has_torch():
        raise _contenders.Refused("not installed")
    _primitives.set_torch_up()
    import torch

    tensors = [torch.from_numpy(array).to(getattr(torch, case.dtype)) for array in arrays]
    out = torch.zeros(shape, dtype=getattr(torch, _result_dtype(case)))
    function, last = case.torch(torch), [None]

    def run() -> None:
        last[0] = function(out, *tensors)

    return Contender(TORCH, run, lambda: [last[0].double().numpy()])  # type: ignore[attr-defined]


MAKERS = {OURS: ours, NUMPY: plain_numpy, TORCH: eager}


class Ratios(Form):
    """A line a case: times, and those of the others divided by ours."""

    baseline = OURS

    def heading(self, size: int) -> str:
        """Titles of the columns."""
        return f"{'':44} {OURS:>9}  {NUMPY:>9}  {TORCH:>9}   others' times divided by ours"

    def case(self, results: list[Result]) -> str:
        """One case: a line of times and ratios."""
        notes = [f"{r.contender}: {r.note}" for r in results if r.note and r.median is None]
        return "  ".join([f"{results[0].case:44}", *_columns(results), *notes])

    def title(self, size: int) -> str:
        """Heading of the only table."""
        return "Shapes and layouts"

    def table(self, record: Record, size: int) -> list[str]:
        """Markdown of all cases."""
        lines = ["| | neonlike | NumPy | PyTorch | NumPy / ours | PyTorch / ours |", "|---|---|---|---|---|---|"]
        for name in dict.fromkeys(r.case for r in record.results):
            cells = _columns([r for r in record.results if r.case == name])
            lines.append(f"| {' | '.join([name, *(cell.strip() for cell in cells)])} |")
        return lines


def _columns(results: Sequence[Result]) -> list[str]:
    found = {r.contender: r for r in results}
    times = [getattr(found.get(name), "median", None) for name in (OURS, NUMPY, TORCH)]
    ratios = [getattr(found.get(name), "ratio", None) for name in (NUMPY, TORCH)]
    shown = ["-" if seconds is None else time_text(seconds) for seconds in times]
    return [f"{text:>9}" for text in shown] + ["     -" if ratio is None else f"{ratio:6.2f}" for ratio in ratios]


class Shapes(Session):
    """No copy runs beside the cases: what bounds them is seldom memory."""

    copies = staticmethod(lambda nbytes: {})


def verdicts(results: Sequence[Result]) -> list[str]:
    """Geometric mean of PyTorch's time divided by ours, and the cases that miss the target."""
    ratios = {r.case: r.ratio for r in results if r.contender == TORCH and r.ratio}
    if not ratios:
        return ["PyTorch was not measured."]
    slower = {name: ratio for name, ratio in sorted(ratios.items(), key=lambda item: item[1]) if ratio < TARGET}
    lines = [
        f"PyTorch's time divided by ours: {statistics.geometric_mean(ratios.values()):.2f} on the geometric mean "
        f"of {len(ratios)} cases; nothing under {TARGET:.1f} {met(not slower)}"
    ]
    return lines + [f"    {name}: {ratio:.2f}" for name, ratio in slower.items()]


@contextmanager
def desk(name: str) -> Iterator[Desk]:
    """The desk of the process of contender ``name``: it makes, checks and times cases."""
    if name != OURS:
        yield Desk(lambda shown: make_case(None, shown, name))
        return
    from neonlike.backends import gen_backend

    with gen_backend("cpu", rng_seed=0) as be:
        yield Desk(lambda shown: make_case(be, shown, name), {"engine": be.engine.name})


def start(argv: Sequence[str], name: str) -> Link:
    """The process of the contender ``name``."""
    return Child(name, __file__, argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    options = parse(argv)
    if options.child:
        with desk(options.child) as answers:
            return _apart.serve(answers)
    with Apart(tuple(MAKERS), partial(start, sys.argv[1:] if argv is None else argv)) as apart:
        facts = apart.facts | {"threads": f"{_machine.cores()} for everyone"}
        session = Shapes("optree_shapes", options, facts, Ratios(), QUICK if options.quick else FULL)
        for case in schedule(options):
            session.run(apart.case(title(case)))
    return session.finish(verdicts(session.results))


if __name__ == "__main__":
    sys.exit(main())
