"""First calls of op-trees and primitives: compiling what nobody used before, and loading it in a new process.

Every figure comes from a process of its own (``_first_calls.py``) with a cache directory of its own. *compile* is the
first call of an expression in a process that has compiled another one, *load* the first call in a new process that
finds the kernel in the cache; the import and making the backend are told apart. torch.compile imports its compiler in
the first call, which counts to its *load*.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import _machine
from _cases import NOT_INSTALLED, markdown, met, time_text
from _expressions import EXPRESSIONS
from _first_primitives import PRIMITIVES
from harness import Session, arguments, some_of

CHILD = Path(__file__).resolve().parent / "_first_calls.py"
COMPILE_TARGET, LOAD_TARGET, PRIMITIVE_TARGET = 0.5, 5e-3, 2.5
"""Seconds."""
REPEATS, QUICK_REPEATS = 7, 3
COLUMNS = ("compile", "load", "second call")
PEER = "sigmoid"
"""The expression that torch.compile is asked for too."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    known = [*(e.name for e in EXPRESSIONS), *PRIMITIVES]
    parser.add_argument("--only", type=some_of(known), metavar="NAME,NAME", help=f"some of {', '.join(known)}")
    options = parser.parse_args(argv)
    options.chosen = [name for name in known if name in (options.only or known)]
    return options


def child(cache: str, *words: str) -> dict[str, Any]:
    """Measurements of ``_first_calls.py`` in a new process that keeps compiled kernels in ``cache``.

    Raises
    ------
    RuntimeError
        It failed; the text is what it said.
    """
    settings = {"NEONLIKE_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch"}
    done = subprocess.run(
        [sys.executable, str(CHILD), *words], env=os.environ | settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Seconds of first calls of what has this name: one compilation, the median of several loads and of their parts."""
    with tempfile.TemporaryDirectory(prefix="neonlike-cold-") as cache:
        cold = child(cache, "neonlike", name, "--another-first")
        warm = [child(cache, "neonlike", name) for _ in range(repeats)]
        parted = [child(cache, "neonlike", name, "--parts") for _ in range(repeats)]
    steps = dict.fromkeys(step for run in parted for step in run["parts"])
    parts = {step: statistics.median(run["parts"].get(step, 0.0) for run in parted) for step in steps}
    return {
        "expression": name,
        "probe": cold["backend"],
        "compile": cold["first"],
        "load": statistics.median(run["first"] for run in warm),
        "second call": statistics.median(run["second"] for run in warm),
        "import": statistics.median(run["import"] for run in warm),
        "backend": statistics.median(run["backend"] for run in warm),
        "parts": parts,
    }


def measure_torch(repeats: int) -> dict[str, Any]:
    """The same for torch.compile."""
    with tempfile.TemporaryDirectory(prefix="neonlike-cold-") as cache:
        cold = child(cache, "torch", PEER, "--another-first")
        warm = [child(cache, "torch", PEER) for _ in range(min(repeats, 3))]
    return {
        "expression": f"{PEER} by torch.compile",
        "compile": cold["first"],
        **{name: statistics.median(run[key] for run in warm) for name, key in
           {"load": "first", "second call": "second", "import": "import"}.items()},
    }  # fmt: skip


def verdicts(found: list[dict[str, Any]]) -> list[str]:
    """The targets of expressions, and those of primitives, whose kernels are larger."""
    expressions = [row for row in found if row["expression"] not in PRIMITIVES]
    primitives = [row for row in found if row["expression"] in PRIMITIVES]
    return [
        *_verdict(expressions, "compile", COMPILE_TARGET, "first call of a new expression"),
        *_verdict(expressions, "load", LOAD_TARGET, "first call of a cached one in a new process"),
        *_verdict(primitives, "compile", PRIMITIVE_TARGET, "first call of a primitive"),
    ]


def _verdict(found: list[dict[str, Any]], name: str, target: float, what: str) -> list[str]:
    if not found:
        return []
    worst, late = max(found, key=lambda row: row[name]), sum(row[name] >= target for row in found)
    median = time_text(statistics.median(row[name] for row in found))
    words = f"{what}: at most {time_text(worst[name])} ({worst['expression']}), median {median}"
    return [f"{words} (target < {time_text(target)}): {met(not late)}" + f" by {late} of {len(found)}" * bool(late)]


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    """Markdown: a line for each expression."""
    cells = [[row["expression"], *(time_text(row.get(name)) for name in columns)] for row in rows]
    return markdown(["expression", *columns], cells)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = parse(argv)
    repeats = QUICK_REPEATS if options.quick else REPEATS
    session = Session("coldstart", options)
    rows: list[dict[str, Any]] = []
    session.say(f"\n{'':20}" + "".join(f"{name:>13}" for name in COLUMNS))
    for name in options.chosen:
        rows.append(measure(name, repeats))
        session.say(_line(rows[-1]))
    lines = verdicts(rows)
    first = rows[0]
    lines.append(
        f"not counted: import {time_text(first['import'])} (NumPy's aside), gen_backend {time_text(first['backend'])}, "
        f"or {time_text(first['probe'])} where the compiler was not probed before"
    )
    shown = list(rows)
    if _machine.peer_versions()["torch"] == NOT_INSTALLED:
        lines.append("not installed: torch")
    elif not options.quick:
        shown.append(measure_torch(repeats))
        session.say(_line(shown[-1]))
    names = tuple(dict.fromkeys(name for row in rows for name in row["parts"]))
    parts = [{"expression": row["expression"], **row["parts"]} for row in rows]
    session.tables = {"First calls": table(shown, COLUMNS), "Parts of load": table(parts, names)}
    session.more = {"first_calls": shown}
    session.say("\n" + "\n".join(session.tables["Parts of load"]))
    return session.finish(lines)


def _line(row: dict[str, Any]) -> str:
    return f"{row['expression']:<20}" + "".join(f"{time_text(row[name]):>13}" for name in COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
