"""Kinds of random checks that share their way of running: ``check(be, seed)`` compares one case on one engine.

Each is a module with such a function, which gives the number of values that it compared and raises an error that says
what is wrong. The number of a seed is all that a case depends on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz import bits, check, empties, pairs, stores
from tests.fuzz.workers import Findings, spread


class Kind(NamedTuple):
    """Description of a check, the function that checks the case of a seed, and the dtype of its backends."""

    words: str
    check: Callable[[Any, int], int]
    dtype: Any = np.float32


KINDS = {
    "bits": Kind("trees bit by bit", bits.check),
    "empties": Kind("expressions of nothing", empties.check),
    "stores": Kind("stores in 16 bits", stores.check),
    "pairs": Kind("pairs of activation and cost", pairs.check, np.float64),
}
"""By the option of the command line."""


def work(kind: str, first: int, step: int, last: int) -> int:
    """A worker: cases first, first + step, ... below last on every engine; one line of JSON for each."""
    backends = {engine: check.make_backend(engine, default_dtype=KINDS[kind].dtype) for engine in check.ENGINES}
    for seed in range(first, last, step):
        print(json.dumps({"begin": seed}), flush=True)
        for engine, be in backends.items():
            try:
                report: dict[str, Any] = {"values": KINDS[kind].check(be, seed)}
            except Exception as error:
                report = {"failure": f"{engine}: {type(error).__name__}: {error}"}
            print(json.dumps(report), flush=True)
    return 0


WORKERS: dict[str, Callable[[int, int, int], int]] = {f"work_{kind}": partial(work, kind) for kind in KINDS}


def fuzz(kind: str, count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Check ``count`` cases of a kind in processes with these environment ``variables``; the exit status."""
    found = Findings(kind, "values", option=kind)
    spread(f"--work-{kind}", range(first, first + count), workers, variables, found.hear)
    print(f"{KINDS[kind].words}: {count} cases, {found.total} values; {len(found.failures)} failures", flush=True)
    return int(bool(found.failures))
