"""Checks the GPU backend on a machine with a GPU, in under eight minutes: ``python tests/gpu_check --out FOLDER``.

It installs what is lacking into a folder of its own (packages.py; ``make gpu-wheels`` fetches it beforehand for a
machine without a registry), asks the doctor, runs compute-sanitizer on every kind of kernel and compares each with the
CPU's. If something is wrong with one of these it ends there. Else the tests of the GPU backend and of op-trees follow,
and the benchmark. Each step has a time limit and a log in FOLDER; the end is a summary, and the exit status is 0 if
every step did well. The GPU's settings are left alone. ``--part`` takes one part, with more time: ten minutes at most.
With ``--emulated`` all runs on the emulated driver of tests/cudaemu, on little data: to see that the check works.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.gpu_check.steps import HERE, PYTHON, ROOT, Outcome, Step, environment, install_step, run, sanitizer

TOTAL = 470
"""Seconds for everything."""
PART_TOTAL = 590
"""Seconds for a part."""
PARTS = ("first", "tests", "fuzz", "benchmark", "networks")
CASES = 12
"""Of each test of op-trees: all of them compile some twenty thousand kernels, which takes longer than there is time."""
RESULTS = ROOT / "benchmarks" / "RESULTS-gpu.md"


# Steps ----------------------------------------------------------------------------------------------------------


def steps(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """The others, in the order in which one learns most: those of a part, or all of them in short."""
    made = {"first": first, "tests": tests, "fuzz": fuzzing, "benchmark": benchmark, "networks": networks}
    for part in [asked.part] if asked.part else ["first", "tests", "benchmark"]:
        yield from made[part](asked, out)


def first(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """Whether the GPU can be used and its kernels are right; if not, the rest is a waste of its time."""
    yield Step("doctor", 30, (*PYTHON, "-m", "neonlike", "doctor", "--gpu"), "setup.log", gate=True)
    yield from checks(asked)
    kernels = (*PYTHON, str(HERE / "kernels.py"), "--table")
    yield Step("kernels", 90, kernels, "kernels.log", {"NEONLIKE_GPU_SELFTEST": "1"}, gate=True)
    gpu = ROOT / "tests" / "backends" / "gpu"
    files = [str(gpu / f"{name}.py") for name in ("tensors/test_peers", "products/test_products", "products/test_blas")]
    yield Step("peers", 90, (*pytest(), "-m", "gpu and not emulator", *files), "peers.log", gate=True)


def tests(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """The tests of the GPU backend, and some cases of each test of op-trees."""
    long = bool(asked.part)
    yield Step("tests", 300 if long else 120, (*pytest(), "-m", "gpu and not emulator", *asked.tests), "tests.log")
    chosen = ("--backend", "gpu", "--cases", str(CASES), "-m", "optree")
    files = asked.optree.split(",") if asked.optree else ["tests"]
    yield Step("optree", 280 if long else 150, (*pytest(), *chosen, *files), "optree.log")


def fuzzing(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """Random op-trees, calls of primitives and wrong arguments."""
    count: tuple[str, ...] = ("200", "--calls", "400")
    if asked.emulated:  # two networks, a tenth of the trees, may repeat no pass, which counts as a fault
        count = ("20", "--calls", "20", "--arguments", "20", "--networks", "6")
    yield Step("fuzz", 560, (*PYTHON, str(ROOT / "tests" / "fuzz"), *count, "--gpu"), "fuzz.log")


def benchmark(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """The benchmark against other libraries: in short, or convolutions first and expressions of all sizes."""
    small = ("--sizes", "64,4k", "--edges", "64", "--copied", "4k") if asked.emulated else ()
    limit, how = 140, ("--quick", "--seconds", "100")
    if asked.part:
        sections = "convolutions,dispatch,optree,products,attention,images,layers,copies"
        limit, how = 580, ("--seconds", "520", "--sections", sections)
        small = small or ("--sizes", "64,64k,1M,16M,64M")
    command = (*PYTHON, "benchmarks/gpu.py", *how, "--results", "--json", str(out / "benchmark.json"))
    yield Step("benchmark", limit, (*command, *small), "benchmark.log")


def networks(asked: argparse.Namespace, out: Path) -> Iterator[Step]:
    """Training steps of whole networks beside PyTorch's."""
    how = ("--tiny", "--quick", "--rounds", "1") if asked.emulated else ("--limit", "480")
    command = (*PYTHON, "benchmarks/models.py", "--backend", "gpu", *how, "--json", str(out / "networks.json"))
    yield Step("networks", 580, command, "networks.log")


def pytest() -> tuple[str, ...]:
    """How tests are run on the real GPU."""
    return (*PYTHON, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *workers(), "--require-gpu")


def workers() -> list[str]:
    """Options for several test processes, because compiling takes most of the time."""
    count = min((os.cpu_count() or 2) // 2, 8)
    return ["-n", str(count)] if count > 1 else []


def checks(asked: argparse.Namespace) -> Iterator[Step]:
    """Memory checkers on every kind of kernel, with each tensor a piece of memory by itself."""
    program = (sys.executable, str(HERE / "kernels.py"), "--table")
    exact = {"NEONLIKE_GPU_POOL": "0", "NEONLIKE_CUBLAS": "none", "NEONLIKE_GPU_SELFTEST": "0"}
    if asked.emulated:
        more = {"CUEMU_CHECK": "1", "CUEMU_ASYNC": "1"}
        yield Step("memcheck", 300, program, "sanitizer.log", exact | more, gate=True)
        return
    found = sanitizer()
    for tool, limit in (("memcheck", 120), ("racecheck", 90)):
        command = (found, "--tool", tool, "--error-exitcode", "7", "--target-processes", "application-only", *program)
        why = "" if found else "there is no compute-sanitizer: it comes with the CUDA toolkit"
        yield Step(tool, limit, command if found else (), "sanitizer.log", exact, why, gate=bool(found))


# The run --------------------------------------------------------------------------------------------------------


def check(asked: argparse.Namespace, out: Path, work: Path) -> list[Outcome]:
    """Run everything; each outcome is told when it is there."""
    start = time.monotonic()
    total = asked.seconds or (3600 if asked.emulated else PART_TOTAL if asked.part else TOTAL)
    site, outcomes = work / "site", list[Outcome]()
    first = install_step(asked, site)
    plain = os.environ | {"PYTHONUNBUFFERED": "1"}
    outcomes.append(tell(run(first, out, plain, total)))
    if not outcomes[0].good:
        return outcomes
    variables = environment(asked, site, work)
    for step in (each for each in steps(asked, out) if not asked.steps or each.name in asked.steps):
        outcomes.append(tell(run(step, out, variables, total - (time.monotonic() - start))))
        if step.gate and not outcomes[-1].good:
            print(f"The rest is left out: mend what {step.name} found first", flush=True)
            break
    return outcomes


def tell(outcome: Outcome) -> Outcome:
    """Show how a step went."""
    mark = "ok    " if outcome.good else "FAILED"
    print(f"{mark}  {outcome.name:<12}{outcome.seconds:6.1f} s  {outcome.text}", flush=True)
    return outcome


def summary(outcomes: list[Outcome], out: Path) -> int:
    """Show the parts of the logs that matter; the exit status."""
    print("\nThe benchmark's targets:" if (out / "benchmark.log").exists() else "", flush=True)
    log = out / "benchmark.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    for line in lines:
        if line.endswith((": met", ": MISSED")) or "within the GPU:" in line:
            print(f"  {line}")
    bad = [outcome for outcome in outcomes if not outcome.good]
    for outcome in bad:
        print(f"FAILED: {outcome.name}: {outcome.text}")
    print(f"{len(outcomes) - len(bad)} of {len(outcomes)} steps did well; the logs are in {out}")
    return int(bool(bad))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python tests/gpu_check", description=f"{__doc__}".partition("\n")[0])
    default = Path(os.environ.get("OUT") or ROOT / "gpu-check")
    parser.add_argument("--out", type=Path, default=default, help="folder of the logs ($OUT, else ./gpu-check)")
    parser.add_argument("--work", type=Path, help="folder for what is installed and compiled (else a temporary one)")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".gpu-wheels", help="what make gpu-wheels fetched")
    text = f"for everything (default: {TOTAL}, of a part {PART_TOTAL})"
    parser.add_argument("--seconds", type=float, help=text)
    text = "one part, in ten minutes at most (default: the first, then tests and benchmark in short)"
    parser.add_argument("--part", choices=PARTS, help=text)
    parser.add_argument("--steps", type=lambda text: text.split(","), metavar="NAME,NAME", help="only these")
    parser.add_argument("--emulated", action="store_true", help="on the emulated driver, on little data")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="test files of the GPU backend")
    parser.add_argument("--optree", metavar="FILE,FILE", help="test files of op-trees (default: all)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    asked = parse(argv)
    if threading.current_thread() is threading.main_thread():  # shells start what runs behind them deaf to interrupts
        signal.signal(signal.SIGINT, signal.default_int_handler)
    out: Path = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    asked.wheels, start = asked.wheels.absolute(), time.time()
    with tempfile.TemporaryDirectory(prefix="neonlike-gpu-check-") as temporary:
        work = (asked.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        outcomes = check(asked, out, work)
    if RESULTS.exists() and RESULTS.stat().st_mtime >= start:  # written by this run
        shutil.copy(RESULTS, out / RESULTS.name)
    return summary(outcomes, out)


if __name__ == "__main__":
    sys.exit(main())
