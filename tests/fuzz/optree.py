"""Fuzz the engines: ``python tests/fuzz 10000`` checks that many random op-trees on C and NumPy against float64.

As many random calls of compound primitives follow, twice as many calls with wrong arguments, and as many graphs of
variables and a tenth as many networks and trainings: see ``primitives.py``, ``arguments.py``, ``graphs.py``,
``networks.py`` and ``trainings.py``. A rank fails in one training for 200 trees: see ``ranks.py``. A tenth as many of
each of some small kinds end it: see ``kinds.py``.

Every worker process grows programs (a few trees that are assigned together), compiles them once and runs them in
several sizes. What fails is printed with its seed, cut down, and as a script. The number of a program's seed is all
that it depends on: ``python tests/fuzz --seed 1234`` runs that one program again.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neonlike.optree.ops import OPS
from tests.fuzz import arguments, graphs, kinds, networks, primitives, ranks, trainings
from tests.fuzz.check import Bench, Failure, make_backend
from tests.fuzz.growth import Grower, other_spaces
from tests.fuzz.minimise import minimised, verdict
from tests.fuzz.programs import Made, Op, Program, snippet
from tests.fuzz.sanitize import MAIN, environment, prepare, prove, run_fault

SHAPES_EACH = 2
"""Other sizes that a program is run in besides its own."""
MAX_FAILURES = 20
TELL_EVERY = 1000
ENOUGH_FOR_ALL_OPS = 2000
"""Trees among which every row of the op table has to appear."""


def programs_of(be: Any, seed: int) -> list[Program]:
    """The program of ``seed``, and the same in other sizes."""
    grown = Grower(be, seed).grow()
    return [grown, *other_spaces(grown, be, np.random.default_rng(seed), SHAPES_EACH)]


def ops_of(program: Program) -> Iterator[str]:
    """Names of the rows it uses."""
    for term in program.terms:
        if isinstance(term, Op):
            yield term.name
            for kind in (o.kind for o in term.operands if isinstance(o, Made)):
                yield from ("onehot", "classes") if kind == "onehot" else (kind,)


def work(first: int, step: int, wanted: int) -> int:
    """A worker: programs first, first + step, ... until there were ``wanted`` trees; one line of JSON for each."""
    bench, trees, seed = Bench(), 0, first
    while trees < wanted:
        print(json.dumps({"begin": seed}), flush=True)
        programs = programs_of(bench.backends["numpy"], seed)
        before = (bench.runs, bench.compared, bench.known)
        for index, program in enumerate(programs):
            try:
                bench.check(program)
            except Failure as failure:
                print(json.dumps({"seed": seed, "index": index, "failure": str(failure)}), flush=True)
                break
        trees += len(programs[0].targets)
        now = (bench.runs, bench.compared, bench.known)
        counts = [b - a for a, b in zip(before, now)]
        report = {"trees": len(programs[0].targets), "counts": counts, "ops": list(ops_of(programs[0]))}
        print(json.dumps(report), flush=True)
        seed += step
    return 0


class Tally:
    """Totals reported by all workers."""

    def __init__(self) -> None:
        self.trees = self.runs = self.compared = self.known = self.programs = 0
        self.ops: Counter[str] = Counter()
        self.failures: list[tuple[int, int, str]] = []

    def add(self, report: dict[str, Any]) -> int:
        """Count a worker's report; return the number of trees."""
        if "failure" in report:
            self.fail(report["seed"], report["index"], report["failure"])
        if "trees" not in report:
            return 0
        self.programs += 1
        self.trees += report["trees"]
        self.ops.update(report["ops"])
        self.runs, self.compared, self.known = (
            have + more for have, more in zip((self.runs, self.compared, self.known), report["counts"])
        )
        if self.trees // TELL_EVERY > (self.trees - report["trees"]) // TELL_EVERY:
            print(f"{self.trees} trees", file=sys.stderr, flush=True)
        return int(report["trees"])

    def fail(self, seed: int, index: int, words: str) -> None:
        """Keep and tell a failure of the program of ``seed``, in its ``index``-th size."""
        self.failures.append((seed, index, words))
        print(f"seed {seed}: {words}", flush=True)

    def text(self, seconds: float) -> str:
        """The summary."""
        rows = [f"{name} {self.ops[name]}" for name in OPS]
        return (
            f"{self.trees} trees in {self.programs} programs, {self.runs} runs, {self.compared} elements compared "
            f"({100 * self.known / max(1, self.compared):.0f}% finite and known), {seconds:.0f} s\n"
            f"ops: {', '.join(rows)}\n{len(self.failures)} failures"
        )


def share(tally: Tally, first: int, step: int, wanted: int, variables: dict[str, str]) -> None:
    """Have ``wanted`` trees checked by a worker, and by another one from the next program on if it dies."""
    seed = first
    while wanted > 0 and len(tally.failures) < MAX_FAILURES:
        command = [sys.executable, str(MAIN), "--work", str(seed), str(step), str(wanted)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as worker:
            for line in worker.stdout or ():
                report = json.loads(line)
                seed = report.get("begin", seed)
                wanted -= tally.add(report)
                if len(tally.failures) >= MAX_FAILURES:
                    worker.kill()
        if worker.returncode == 0:
            return
        tally.fail(seed, 0, f"the process ended with {worker.returncode}")
        seed += step


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Check ``count`` trees in processes with these environment ``variables``; the exit status."""
    began, tally = time.monotonic(), Tally()
    with ThreadPoolExecutor(workers) as pool:
        parts = [
            pool.submit(share, tally, first + number, workers, -(-count // workers), variables)
            for number in range(workers)
        ]
    for part in parts:
        part.result()
    print(tally.text(time.monotonic() - began), flush=True)
    missing = [name for name in OPS if not tally.ops[name]] if count >= ENOUGH_FOR_ALL_OPS else []
    if missing:
        print(f"not one tree had {', '.join(missing)}")
    for seed, index, _ in tally.failures[:3]:
        report(seed, index, variables)
    return 1 if tally.failures or missing else 0


def report(seed: int, index: int, variables: dict[str, str]) -> bool:
    """Cut the program of ``seed`` down and print it as a script; False if nothing is wrong with it."""
    be = make_backend("numpy")
    fails = partial(verdict, environment=variables)
    for program in programs_of(be, seed)[index:]:
        if fails(program) is None:
            continue
        smallest = minimised(program, fails)
        words = fails(smallest) or "nothing any more"
        print(f"\n# Seed {seed}, cut down. What happens:\n#   " + words.replace("\n", "\n#   "))
        compiled = variables.get("NEONLIKE_TEST_BACKEND") or "c"
        print(snippet(smallest, be, "numpy" if "Failure: numpy" in words else compiled), flush=True)
        return True
    print(f"Seed {seed}: nothing is wrong with its programs when each runs alone", flush=True)
    return False


WORKERS: dict[str, Callable[[int, int, int], int]] = {
    "work": work,
    "work_calls": primitives.work,
    "work_arguments": arguments.work,
    "work_graphs": graphs.work,
    "work_repeated": graphs.work_repeated,
    "work_networks": networks.work,
    "work_trainings": trainings.work,
    "work_ranks": ranks.work,
    **kinds.WORKERS,
}
"""What a worker does, by the option that it is started with."""


def options() -> Any:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=10_000, help="trees to check (default 10000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first program; the others follow")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: cores)")
    parser.add_argument("--seed", type=int, help="run the one program of this seed")
    parser.add_argument("--calls", type=int, help="calls of compound primitives to check (default: as many as trees)")
    parser.add_argument("--case", choices=primitives.CASES, help="only calls of this primitive")
    parser.add_argument("--call", type=int, help="run the one call of this seed")
    parser.add_argument("--arguments", type=int, help="calls with wrong arguments (default: two for each tree)")
    parser.add_argument("--argument", type=int, help="make the one call with wrong arguments of this seed")
    parser.add_argument("--graphs", type=int, help="graphs of variables (default: as many as trees)")
    parser.add_argument("--networks", type=int, help="networks (default: one for ten trees)")
    parser.add_argument("--trainings", type=int, help="programs of trainings (default: one for ten trees)")
    parser.add_argument("--ranks", type=int, help="faults of ranks (default: one for 200 trees)")
    for name, kind in kinds.KINDS.items():
        parser.add_argument(f"--{name}", type=int, help=f"{kind.words} (default: one for ten trees)")
    parser.add_argument("--sanitize", action="store_true", help="compile kernels with AddressSanitizer and UBSan")
    parser.add_argument("--gpu", action="store_true", help="compare the GPU, real or emulated, instead of C")
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    for name in WORKERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Command line."""
    args = options()
    prepare()
    for name, do in WORKERS.items():
        if vars(args)[name]:
            return do(*vars(args)[name])
    if args.fault:
        run_fault(args.fault)
        return 0
    if args.replay:
        Bench().check(pickle.loads(Path(args.replay).read_bytes()))
        return 0
    if args.gpu:
        os.environ["NEONLIKE_TEST_BACKEND"] = "gpu"  # for the processes that run programs
    variables = environment(args.sanitize)
    if args.sanitize:
        prove(variables)
    if args.seed is not None:
        return int(report(args.seed, 0, variables))
    if args.call is not None:
        return primitives.again(args.call, variables)
    if args.argument is not None:
        return arguments.work(args.argument, 1, args.argument + 1, told=True)
    status = fuzz(args.count, args.first, args.workers, variables) if args.count else 0
    calls = args.count if args.calls is None else args.calls
    chosen = primitives.seeds(calls, args.first, args.case)
    status |= primitives.fuzz(chosen, args.workers, variables) if calls else 0
    wrong = 2 * args.count if args.arguments is None else args.arguments
    status |= arguments.fuzz(wrong, args.first, args.workers, variables) if wrong else 0
    grown = args.count if args.graphs is None else args.graphs
    status |= graphs.fuzz(grown, args.first, args.workers, variables) if grown else 0
    nets = args.count // 10 if args.networks is None else args.networks
    status |= networks.fuzz(nets, args.first, args.workers, variables) if nets else 0
    runs = args.count // 10 if args.trainings is None else args.trainings
    status |= trainings.fuzz(runs, args.first, args.workers, variables) if runs else 0
    faults = args.count // 200 * (not args.sanitize) if args.ranks is None else args.ranks
    status |= ranks.fuzz(faults, args.first, args.workers, variables) if faults else 0
    for name in kinds.KINDS:
        cases = args.count // 10 if vars(args)[name] is None else vars(args)[name]
        status |= kinds.fuzz(name, cases, args.first, args.workers, variables) if cases else 0
    return status
