"""Op-trees against NumPy and PyTorch on shapes and layouts off the list of ``expressions.py``.

Sums over tuples of axes, tall and wide; operands transposed, strided, flipped and broadcast; float16, bfloat16, float64
and integers; positions; softmax of odd sizes; ops on 64 elements. ``python benchmarks/optree_shapes.py --help`` lists
the options.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from _cases import (
    OURS,
    Case,
    Effort,
    Record,
    Refused,
    Result,
    geometric_mean,
    markdown,
    met,
    text,
    time_text,
)
from _contenders import our_run
from _libraries import Library, Made, Neonlike, Torch, contender, returns, set_torch_up
from _report import Form
from _shape_cases import CASES, INTEGERS, ShapeCase, operands
from _suite import Key, Suite
from harness import Session

from neonlike.kernels.run.threads import thread_count

NUMPY, TORCH = "numpy", "torch"
QUICK_STEP = 4
"""A quick run takes each case whose position is a multiple of this."""

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}
"""Largest relative error of ours by dtype; 1e-5 for those not named."""

TARGET = 1.0
"""Least ratio of PyTorch's time to ours, in any case."""


def title(case: ShapeCase) -> str:
    """Name of a case, with its data type unless that is float32 or in the name."""
    return case.name if case.dtype == "float32" or case.dtype in case.name else f"{case.name}, {case.dtype}"


def _rounded(array: Any, dtype: str) -> Any:
    """Values as an array of ``dtype`` holds them, in one that NumPy has."""
    if dtype == "bfloat16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return array.astype(dtype)


def _result_dtype(case: ShapeCase) -> str:
    """Data type of the target: positions and sums of integers are int64."""
    word = case.name.partition(" ")[0]
    return "int64" if word in ("argmax", "argsort") or (word == "sum" and case.dtype in INTEGERS) else case.dtype


def _ours(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[Library, Made]:
    """An assignment, which builds the expression each time, of views that are made each time too."""
    tensors = [be.array(array, dtype=case.dtype) for array in arrays]
    out = be.zeros(shape, dtype=_result_dtype(case))
    return Neonlike(be), Made(our_run(be, case.ours(be), tensors, [out], False), lambda: [out.astype("float64")])


def _numpy(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[Library, Made]:
    """The expression in NumPy, which has no bfloat16."""
    if case.dtype == "bfloat16":
        raise Refused("no bfloat16")
    own = [array.astype(case.dtype) for array in arrays]
    return Library(), returns(lambda: np.ascontiguousarray(case.numpy(*own)))


def _torch(be: Any, case: ShapeCase, arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[Library, Made]:
    """PyTorch without its compiler, into a result that is there already wherever it can."""
    library = Torch("cpu")
    torch = library.torch
    tensors = [torch.from_numpy(array).to(getattr(torch, case.dtype)) for array in arrays]
    out, function = torch.zeros(shape, dtype=getattr(torch, _result_dtype(case))), case.torch(torch)
    made: list[Any] = [None]

    def run() -> None:
        made[0] = function(out, *tensors)

    return library, Made(run, lambda: [made[0].double()])


MAKERS = {OURS: _ours, NUMPY: _numpy, TORCH: _torch}


class Ratios(Form):
    """A line a case: times, and those of the others divided by ours. What bounds cases is seldom memory: no copies."""

    baseline, copies = OURS, False

    def heading(self, size: int) -> str:
        """Titles of the columns."""
        return f"{'':44} {OURS:>9}  {NUMPY:>9}  {TORCH:>9}   others' times divided by ours"

    def case(self, results: list[Result]) -> str:
        """One case: a line of times and ratios."""
        times, ratios = _columns(results)
        notes = [f"{r.contender}: {r.note}" for r in results if r.note and r.median is None]
        shown = [f"{cell:>9}" for cell in times] + [f"{cell:>6}" for cell in ratios]
        return "  ".join([f"{results[0].case:44}", *shown, *notes])

    def title(self, size: int) -> str:
        """Heading of the only table."""
        return "Shapes and layouts"

    def table(self, record: Record, size: int) -> list[str]:
        """Markdown of all cases."""
        rows = []
        for name in dict.fromkeys(r.case for r in record.results):
            times, ratios = _columns([r for r in record.results if r.case == name])
            rows.append([name, *times, *ratios])
        return markdown(["", "neonlike", "NumPy", "PyTorch", "NumPy / ours", "PyTorch / ours"], rows)


def _columns(results: Sequence[Result]) -> tuple[list[str], list[str]]:
    found = {r.contender: r for r in results}
    times = [time_text(found[name].median) if name in found else "-" for name in MAKERS]
    return times, [text(found[name].ratio, ".2f") if name in found else "-" for name in (NUMPY, TORCH)]


class Shapes(Suite):
    """A key is the title of a case."""

    name, text, contenders = "optree_shapes", f"{__doc__}", tuple(MAKERS)
    efforts = (
        Effort(sample=2e-3, min_rounds=3, max_rounds=7, budget=0.2, long=0.05),
        Effort(sample=4e-3, min_rounds=5, max_rounds=15, budget=0.8, long=0.1),
    )

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", metavar="TEXT;TEXT", help="cases whose name has one of these in it")

    def plan(self, options: argparse.Namespace) -> list[Key]:
        titles = [title(case) for case in CASES]
        if options.only:
            return [(name,) for name in titles if any(part in name for part in options.only.split(";"))]
        return [(name,) for name in (titles[::QUICK_STEP] if options.quick else titles)]

    def set_up(self, who: str, options: argparse.Namespace) -> None:
        if who == TORCH:
            try:
                set_torch_up(thread_count())
            except ImportError:
                return  # which its first case tells

    def make(self, be: Any, who: str, shown: str) -> Case:
        case = next(case for case in CASES if title(case) == shown)
        arrays = operands(case)
        rounded = [_rounded(array, case.dtype) for array in arrays]
        shape = case.numpy(*[np.broadcast_to(np.int8(0), array.shape) for array in arrays]).shape
        itemsize = {"float64": 8, "float32": 4, "int32": 4, "int8": 1}.get(case.dtype, 2)
        nbytes = itemsize * (sum(math.prod(shape) for shape in case.inputs) + math.prod(shape))
        found, refused = [], {}
        try:
            library, made = MAKERS[who](be, case, arrays, shape)
            found = [contender(library, who, made, ours=who == OURS)]
        except Refused as why:
            refused[who] = str(why)
        reference = lambda: [case.numpy(*[array.astype(np.float64) for array in rounded])]  # noqa: E731
        return Case(shown, case.dtype, 1, found, reference, nbytes, TOLERANCE.get(case.dtype, 1e-5), refused)

    def form(self, options: argparse.Namespace) -> Form:
        return Ratios()

    def verdicts(self, session: Session) -> list[str]:
        return verdicts(session.results)


def verdicts(results: Sequence[Result]) -> list[str]:
    """Geometric mean of PyTorch's time divided by ours, and the cases that miss the target."""
    ratios = {r.case: r.ratio for r in results if r.contender == TORCH and r.ratio}
    if not (found := geometric_mean(ratios.values())):
        return ["PyTorch was not measured."]
    slower = {name: ratio for name, ratio in sorted(ratios.items(), key=lambda item: item[1]) if ratio < TARGET}
    line = f"PyTorch's time divided by ours: {found[0]:.2f} on the geometric mean of {found[1]} cases"
    return [
        f"{line}; nothing under {TARGET:.1f} {met(not slower)}", *(f"    {name}: {r:.2f}" for name, r in slower.items())
    ]


SUITE = Shapes()

if __name__ == "__main__":
    sys.exit(SUITE.main())
