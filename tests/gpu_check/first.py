"""The first minutes on a GPU: everything is tried, nothing stops the rest: ``python first.py --out DIR``.

Each step is a process of its own with a limit; a failure costs its own row. The order is the one in which most is
learnt: what the machine is; whether PyCUDA, a context, the compiler and a kernel work; every kind of kernel against
the CPU; what failed, once more with each switch that may go round it; then how fast all of that is, beside PyTorch;
then memory checkers and a profiler to the end of the time. Facts are written to DIR/facts.jsonl as they come, logs
beside it, and the last 12,000 characters printed are the summary. ``--again NAME,NAME`` (or a folder of facts) runs
what failed once more, and nothing else. ``--emulated`` takes the same way on the emulated driver, on little data.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.gpu_check import summary
from tests.gpu_check.crew import NOT_RUN
from tests.gpu_check.parts import (
    BAD,
    LOG,
    Part,
    Run,
    checker,
    kernels,
    machine,
    networks,
    profile,
    rates,
    section,
    start,
    switches,
)
from tests.gpu_check.record import Record, read
from tests.gpu_check.steps import ROOT, environment, install_step, run

TOTAL = 510
"""Seconds for everything: eight minutes and a half."""
AGAIN_TOTAL = 200

SIZES = ("--sizes", "64k,1M,16M,64M", "--only", "sigmoid,axpy,softmax0,softmax1,layer_norm,sum_squares")
PLAN: tuple[tuple[str, float, Part], ...] = (
    ("machine", 5, machine),
    ("start", 22, start),
    ("kernels", 80, kernels),
    ("switches", 28, switches),
    ("copies", 6, rates),
    ("dispatch", 15, section("dispatch")),
    ("optree", 44, section("optree", *SIZES)),
    ("convolutions", 56, section("convolutions", "--shapes")),
    ("products", 15, section("products")),
    ("layers", 28, section("layers", "--shapes")),
    ("images", 22, section("images", "--shapes")),
    ("attention", 18, section("attention", "--shapes")),
    ("networks", 70, networks),
    ("memcheck", 26, checker("memcheck")),
    ("racecheck", 26, checker("racecheck")),
    ("profile", 24, profile),
)
"""Parts and the seconds planned for each; installing takes the rest of TOTAL. What one leaves, the next ones have."""
INSTALL = TOTAL - sum(seconds for _, seconds, _ in PLAN)
INSTALL_LIMIT = 150
"""Seconds after which installing is given up, by building PyCUDA for example: the last parts go without theirs."""


# The run --------------------------------------------------------------------------------------------------------


def prepare(asked: argparse.Namespace, run_: Run) -> None:
    """Install missing packages, and set the variables of all later steps."""
    step = install_step(asked, run_.work / "site")
    outcome = run(step, run_.logs, dict(os.environ) | {"PYTHONUNBUFFERED": "1"}, INSTALL_LIMIT)
    state = "ok" if outcome.good else "failed"
    run_.record.add("step", "install", state=state, seconds=round(outcome.seconds, 1), text=outcome.text)
    if not outcome.good:
        log = (run_.logs / step.log).read_text(encoding="utf-8", errors="replace")
        run_.record.add("log", "install", text=log[-LOG:])
    try:
        run_.environment |= environment(asked, run_.work / "site", run_.work)
    except Exception as error:
        run_.record.add("step", "environment", state="failed", seconds=0.0, text=repr(error)[:600])


def go(asked: argparse.Namespace, out: Path, work: Path) -> Record:
    """Go through the plan; no part keeps another from its time, whatever happens."""
    total = asked.seconds or (AGAIN_TOTAL if asked.again else TOTAL)
    record = Record(out)
    plain = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    logs = work / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    run_ = Run(asked, logs, work, record, plain, time.monotonic() + total)
    try:
        follow(asked, run_)
    except KeyboardInterrupt:
        record.add("step", "the run", state="failed", seconds=0.0, text="it was interrupted")
    finally:
        with tarfile.open(out / "logs.tar.gz", "w:gz") as packed:
            packed.add(logs, "logs")
    return record


def follow(asked: argparse.Namespace, run_: Run) -> None:
    """Install, and go from part to part."""
    prepare(asked, run_)
    due = time.monotonic()
    for name, seconds, part in PLAN:
        due += seconds
        if asked.parts and name not in asked.parts:
            due -= seconds
            continue
        if run_.left < 4:
            run_.record.add("step", name, state="not run", seconds=0.0, text="no time was left")
            continue
        begin = time.monotonic()
        try:
            part(run_, max(seconds, due - begin))
        except Exception as error:
            took = round(time.monotonic() - begin, 1)
            run_.record.add("step", name, state="failed", seconds=took, text=repr(error)[:600])
        print(summary.line(run_.record, name), flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python tests/gpu_check/first.py", description=f"{__doc__}".partition("\n")[0]
    )
    default = Path(os.environ.get("OUT") or ROOT / "gpu-check")
    text = "folder of facts.jsonl and logs.tar.gz ($OUT, else ./gpu-check)"
    parser.add_argument("--out", type=Path, default=default, help=text)
    parser.add_argument("--work", type=Path, help="folder for what is installed and compiled; kept for --again")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".gpu-wheels", help="what make gpu-wheels fetched")
    parser.add_argument("--seconds", type=float, help=f"for everything (default: {TOTAL}, of --again {AGAIN_TOTAL})")
    parser.add_argument("--each", type=float, default=45.0, help="seconds for a case (default: 45)")
    parser.add_argument("--emulated", action="store_true", help="on the emulated driver, on little data")
    parser.add_argument("--parts", type=lambda text: text.split(","), metavar="NAME,NAME", help="only these parts")
    parser.add_argument("--cases", type=lambda text: text.split(","), metavar="NAME,NAME", help="only these cases")
    text = "what failed, once more: names of cases and parts, or the folder of facts of the run before"
    parser.add_argument("--again", metavar="NAME,NAME", help=text)
    asked = parser.parse_args(argv)
    asked.wheels = asked.wheels.absolute()
    if asked.again:
        asked.cases, asked.parts = again(asked.again)
        if not asked.cases and not asked.parts:
            parser.error(f"nothing failed in {asked.again}")
    return asked


def again(text: str) -> tuple[list[str], list[str]]:
    """The cases and the parts of the plan that are to be run once more."""
    planned = {name for name, _, _ in PLAN}
    if os.path.exists(text):
        facts = list(read(Path(text)))
        names = [f["name"] for f in facts if f["kind"] == "case" and f["state"] in (*BAD, NOT_RUN)]
        steps = [f["name"] for f in facts if f["kind"] == "step" and f["state"] in ("failed", "not run")]
        names += [name for name in steps if name in planned]
    else:
        names = [name.strip() for name in text.split(",")]
    cases = [name for name in names if name not in planned]
    parts = [name for name in names if name in planned and name not in ("kernels", "switches")]
    return cases, [*parts, *(("kernels", "switches") if cases else ())]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if anything went wrong."""
    asked = parse(argv)
    out: Path = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    work: Path = (asked.work or Path(tempfile.gettempdir(), f"neonlike-gpu-first-{os.getuid()}")).absolute()
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    if work.stat().st_uid != os.getuid():
        raise SystemExit(f"{work} belongs to somebody else; name another folder by --work")
    record = go(asked, out, work)
    print(summary.text(record.facts))
    return summary.status(record.facts)


if __name__ == "__main__":
    sys.exit(main())
