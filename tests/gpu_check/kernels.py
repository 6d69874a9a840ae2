"""Runs cases on the GPU and on the CPU and compares them: ``python kernels.py [NAME ...]``, all of them by default.

A line of JSON is printed when a case begins and when it ends, so that whoever started this knows what a process was at
when it was stopped or crashed; ``--table`` prints what is wrong as text. compute-sanitizer is run on it as well.
``GPU_CHECK_PLANT`` names a Python file that is run before, which may change the cases: for tests of the check itself.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from neonlike.backends import gen_backend
from tests.gpu_check import primitive_cases  # noqa: F401  (it enters its cases)
from tests.gpu_check.cases import CASES

Array = npt.NDArray[Any]
TOLERANCES = {"bfloat16": 1.6e-2, "float16": 4e-3, "float32": 2e-5, "float64": 1e-12}
"""Largest difference, in parts of the largest value."""
ROUNDED = {"tf32": 2e-3, "bfloat16": 1.6e-2}
"""The same for float32 products whose factors are rounded, by a word of the case's name."""
RIGHT, WRONG, FAILED, LEFT_OUT = "right", "wrong", "failed", "left out"
"""How a case ends; a process that is stopped or crashes prints no end."""


class Compared:
    """How the results of a case compare.

    Attributes
    ----------
    results : int
        How many there are.
    wrong : list of str
        What is wrong with which, nothing if all are right.
    most : float
        The largest difference, in parts of what is allowed.
    """

    def __init__(self, case: str) -> None:
        self.results, self.wrong, self.most = 0, list[str](), 0.0
        self._tolerances = dict(TOLERANCES)
        self._tolerances["float32"] = ROUNDED.get(case.removeprefix("products in "), TOLERANCES["float32"])

    def add(self, name: str, got: Array, wanted: Array) -> None:
        """Compare a result with the CPU's."""
        self.results += 1
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            self.wrong.append(f"{name}: {got.shape} of {got.dtype}, expected {wanted.shape} of {wanted.dtype}")
            return
        ours, its = got.astype(np.float64), wanted.astype(np.float64)
        allowed = self._tolerances.get(got.dtype.name, 0.0) * float(np.abs(its[np.isfinite(its)]).max(initial=1.0))
        with np.errstate(invalid="ignore"):
            off = np.abs(ours - its)
        off[np.isnan(off)] = np.inf
        off[(ours == its) | (np.isnan(ours) & np.isnan(its))] = 0
        error = float(off.max(initial=0))
        self.most = max(self.most, error / allowed if allowed else float("inf") if error else 0.0)
        if not error <= allowed:
            place = tuple(int(k) for k in np.unravel_index(int(off.argmax()), off.shape))
            count = int((off > allowed).sum())
            self.wrong.append(
                f"{name}: {count} of {off.size} differ, at {place} by {error:.2e} ({got[place]} for {wanted[place]}), "
                f"allowed is {allowed:.2e}"
            )


def results(kind: str, name: str) -> dict[str, Array]:
    """The results of a case on a backend."""
    with gen_backend(kind, rng_seed=0) as be:
        return {result: tensor.get().copy() for result, tensor in CASES[name](be)}


def run(name: str) -> dict[str, Any]:
    """How the case ends."""
    start = time.monotonic()
    compared = Compared(name)
    try:
        on_gpu = results("gpu", name)
        on_cpu = results("cpu", name) if on_gpu else {}
        for result, got in on_gpu.items():
            compared.add(result, got, on_cpu[result])
        state, text = (WRONG, "; ".join(compared.wrong)) if compared.wrong else (RIGHT, "")
        if not on_gpu:
            state, text = LEFT_OUT, "the GPU has too little memory"
    except Exception as error:
        state, text = FAILED, f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - start, 2)
    return {
        "end": name, "state": state, "text": text[:2000], "results": compared.results, "most": compared.most,
        "seconds": seconds,
    }  # fmt: skip


def tell(names: Iterable[str]) -> bool:
    """Run cases and print the beginning and the end of each, up to one that fails; whether all are right."""
    good = True
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        end = run(name)
        print(json.dumps(end), flush=True)
        good &= end["state"] in (RIGHT, LEFT_OUT)
        if end["state"] == FAILED:  # an error of the GPU would fail the others as well
            break
    return good


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if a case is wrong or failed."""
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of cases, default: all")
    parser.add_argument("--table", action="store_true", help="print what is wrong as text, and how many there are")
    parser.add_argument("--list", action="store_true", help="print the names; run nothing")
    asked = parser.parse_args(argv)
    if plant := os.environ.get("GPU_CHECK_PLANT"):
        runpy.run_path(plant)
    names = asked.names or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"there is no case {', '.join(unknown)}; --list shows those there are")
    if asked.list:
        print("\n".join(names))
        return 0
    if not asked.table:
        return int(not tell(names))
    ends = [run(name) for name in names]
    bad = [end for end in ends if end["state"] in (WRONG, FAILED)]
    print("".join(f"{end['end']}: {end['text']}\n" for end in bad), end="")
    print(f"{len(ends)} kinds of kernels, {len(bad)} wrong")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
