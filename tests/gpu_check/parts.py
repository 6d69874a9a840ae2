"""The parts of the first run on a GPU (``first.py``): their programs, and the facts that they record."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu_check.crew import CRASHED, HUNG, NOT_RUN, Crew
from tests.gpu_check.record import Record
from tests.gpu_check.steps import HERE, PYTHON, ROOT, Outcome, Step, run, sanitizer
from tests.gpu_check.switches import usable

BAD = ("wrong", "failed", HUNG, CRASHED)
LOG = 60_000
"""Characters of the log of a step that failed which go into the facts: the whole of nearly all."""
GRACE = 5
"""Seconds that a benchmark has to write what it measured when its time is up."""


@dataclass
class Run:
    """State shared by the parts of a run; logs and benchmarks' files lie in a folder of their own."""

    asked: argparse.Namespace
    logs: Path
    work: Path
    record: Record
    environment: dict[str, str]
    end: float

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    def step(self, name: str, seconds: float, command: tuple[str, ...], why: str = "", **variables: str) -> Outcome:
        """Run a command with its log and write down how it went."""
        limit = min(seconds, self.left)
        step = Step(name, limit, command, f"{name.replace(' ', '-')}.log", variables, why)
        outcome = run(step, self.logs, self.environment, self.left, GRACE)
        state = "ok" if outcome.good else "absent" if not command else "failed"
        text = "; ".join(map(_in_words, outcome.text.split("; ")))
        self.record.add("step", name, state=state, seconds=round(outcome.seconds, 1), text=text)
        if state == "failed":
            self.record.add("log", name, text=self.log_of(name)[-LOG:])
        return outcome

    def log_of(self, name: str) -> str:
        """The log of a step."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def said(self, name: str) -> list[dict[str, Any]]:
        """The lines of JSON in the log of a step."""
        found = []
        for line in self.log_of(name).splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        return found


Part = Callable[[Run, float], None]


def _in_words(line: str) -> str:
    """A line of a log, which may be the JSON of ``start.py``, for people."""
    try:
        said = json.loads(line)
        return f"{said.get('stage') or said.get('figure')}: {said.get('text') or said.get('value')}"
    except (ValueError, AttributeError):
        return line


SMI = (
    "name",
    "driver_version",
    "memory.total",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.limit",
    "mig.mode.current",
)
PACKAGES = ("torch", "cupy-cuda13x", "jax", "numpy", "pycuda", "scikit-cuda", "nvidia-cuda-nvrtc", "nvidia-cublas")
"""What is asked of the GPU, and whose versions are written down."""


# The parts ------------------------------------------------------------------------------------------------------


def machine(run: Run, seconds: float) -> None:
    """Record the machine's description: the GPU's settings are read and left alone."""
    facts: dict[str, Any] = {"gpu name": "no nvidia-smi"}
    if smi := shutil.which("nvidia-smi"):
        ask = [smi, f"--query-gpu={','.join(SMI)}", "--format=csv,noheader"]
        done = subprocess.run(ask, capture_output=True, text=True, timeout=seconds, check=False)
        words = done.stdout.strip().splitlines()[:1] or [done.stderr.strip()[:200]]
        facts = {f"gpu {name}": word.strip() for name, word in zip(SMI, words[0].split(","), strict=False)}
    facts |= {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    code = (
        "import importlib.metadata as m, json\nfound = {}\n"
        f"for name in {PACKAGES}:\n"
        "    try: found[name] = m.version(name)\n    except m.PackageNotFoundError: found[name] = 'absent'\n"
        "print(json.dumps(found))"
    )
    command = [*PYTHON, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=run.environment, timeout=seconds, check=False)
    facts |= json.loads(done.stdout) if done.returncode == 0 else {}
    facts |= {name: shutil.which(name) or "absent" for name in ("nvcc", "ncu", "gcc")}
    facts["compute-sanitizer"] = sanitizer() or "absent"
    run.record.add("machine", "machine", state="ok", **facts)
    run.record.add("step", "machine", state="ok", seconds=0.0, text=facts["gpu name"])


def start(run: Run, seconds: float) -> None:
    """Go the first steps one by one; where they fail, with each switch."""
    run.step("start", seconds, (*PYTHON, str(HERE / "start.py")))
    stages = run.said("start")
    for stage in stages:
        run.record.add("stage", stage["stage"], **{k: v for k, v in stage.items() if k != "stage"})
    if any(stage["state"] == "failed" for stage in stages) or not stages:
        for name, variables in usable().items():
            if run.left < 20:
                return
            outcome = run.step(f"start with {name}", seconds, (*PYTHON, str(HERE / "start.py")), **variables)
            run.record.add("switch", name, case="start", state="right" if outcome.good else "failed")


def crew(run: Run, log: str, **more: Any) -> Crew:
    """Processes for cases: half of the machine's cores, since kernels are compiled on them."""
    count = 1 if run.asked.emulated else max(1, min((os.cpu_count() or 2) // 2, 8))
    exact = {"NEONLIKE_CPU_JIT": "0", "NEONLIKE_GPU_SELFTEST": "0"}
    settings = {"count": count, "each": run.asked.each, **more}
    variables = run.environment | exact | settings.pop("variables", {})
    return Crew(variables, run.logs / log, **settings)


def names_of_cases(run: Run) -> list[str]:
    """All cases, or those that are asked for."""
    done = subprocess.run(
        [*PYTHON, str(HERE / "kernels.py"), "--list"],
        cwd=ROOT,
        env=run.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        run.record.add("step", "list of cases", state="failed", seconds=0.0, text=done.stderr.strip()[-600:])
        return []
    every = done.stdout.splitlines()
    if unknown := [name for name in run.asked.cases or () if name not in every]:
        text = f"there is no case {', '.join(unknown)}"
        run.record.add("step", "list of cases", state="failed", seconds=0.0, text=text)
    return [name for name in every if run.asked.cases is None or name in run.asked.cases]


def kernels(run: Run, seconds: float) -> None:
    """Every case against the CPU."""
    begin = time.monotonic()

    def tell(end: dict[str, Any]) -> None:
        run.record.add("case", end.pop("end"), **end)

    crew(run, "kernels.log").run(names_of_cases(run), min(seconds, run.left), tell)
    ends = run.record.of("case")
    good = sum(end["state"] == "right" for end in ends)
    text = f"{good} of {len(ends)} right"
    state = "ok" if not any(end["state"] in (*BAD, NOT_RUN) for end in ends) else "failed"
    run.record.add("step", "kernels", state=state, seconds=round(time.monotonic() - begin, 1), text=text)


def switches(run: Run, seconds: float) -> None:
    """Run the cases that failed once more with each switch."""
    bad = [end["name"] for end in run.record.of("case") if end["state"] in BAD]
    end = time.monotonic() + min(seconds, run.left)
    for name, variables in usable().items() if bad else ():

        def tell(said: dict[str, Any], name: str = name) -> None:
            run.record.add("switch", name, case=said["end"], state=said["state"], text=said.get("text", "")[:300])

        left = end - time.monotonic()
        if left > 3:
            some = crew(run, "switches.log", variables=variables, each=min(run.asked.each, 15.0))
            some.run(bad, left, tell)
    text = f"{len(bad)} cases failed" if bad else "nothing failed"
    run.record.add("step", "switches", state="ok", seconds=0.0, text=text)


def rates(run: Run, seconds: float) -> None:
    """How fast memory is copied."""
    run.step("copies", seconds, (*PYTHON, str(HERE / "start.py"), "--copies"))
    for fact in run.said("copies"):
        if "figure" in fact:
            run.record.add("figure", fact.pop("figure"), section="copies", **fact)


def section(name: str, *more: str) -> Part:
    """A section of the benchmark beside other libraries."""

    def measure(run: Run, seconds: float) -> None:
        path = run.logs / f"{name}.json"
        small = (
            ("--sizes", "64", "--edges", "64", "--copied", "4k", "--only", "sigmoid") if run.asked.emulated else more
        )
        command = (
            *PYTHON,
            "benchmarks/gpu.py",
            "--quick",
            "--sections",
            name,
            "--seconds",
            f"{max(seconds - 8, 3):.0f}",
        )
        run.step(name, seconds, (*command, *small, "--json", str(path)))
        take_figures(run, name, path)

    return measure


def take_figures(run: Run, name: str, path: Path) -> None:
    """Record a benchmark's figures."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for result in [*found.get("results", ()), *found.get("beside", ())]:
        if result.get("median") is None:
            continue
        kept = ("contender", "size", "median", "ratio", "gb_per_s", "gflop_per_s", "of_copy", "wrong", "error", "note")
        run.record.add("figure", result["case"], section=name, **{k: result.get(k) for k in kept})
    for case, times in found.get("dispatch_seconds", {}).items():
        for contender, median in times.items():
            run.record.add("figure", f"call of {case}", section=name, contender=contender, median=median)
    for text in [*found.get("verdicts", ()), *found.get("skipped", ())]:
        run.record.add("verdict", text, section=name)


def networks(run: Run, seconds: float) -> None:
    """Training steps of whole networks beside PyTorch's."""
    path = run.logs / "networks.json"
    how = ("--only", "digits,resnet50,char-lstm 256", "--quick", "--limit", f"{max(seconds - 25, 5):.0f}")
    if run.asked.emulated:
        how = ("--tiny", "--quick", "--rounds", "1")
    run.step("networks", seconds, (*PYTHON, "benchmarks/models.py", "--backend", "gpu", *how, "--json", str(path)))
    take_figures(run, "networks", path)


def checker(tool: str) -> Part:
    """A memory checker on every case, each tensor a piece of memory by itself."""

    def look(run: Run, seconds: float) -> None:
        begin, program = time.monotonic(), sanitizer()
        prefix: tuple[str, ...] = (
            program,
            "--tool",
            tool,
            "--error-exitcode",
            "7",
            "--target-processes",
            "application-only",
        )
        variables = {"NEONLIKE_GPU_POOL": "0", "NEONLIKE_CUBLAS": "none"}
        if run.asked.emulated:
            prefix, variables = (), variables | {"CUEMU_CHECK": "1", "CUEMU_ASYNC": "1"}
        elif not program:
            text = "there is no compute-sanitizer: it comes with the CUDA toolkit"
            run.record.add("step", tool, state="absent", seconds=0.0, text=text)
            return
        states: dict[str, int] = {}

        def tell(end: dict[str, Any]) -> None:
            states[end["state"]] = states.get(end["state"], 0) + 1
            if end["state"] in BAD:
                run.record.add("checked", end["end"], tool=tool, state=end["state"], text=end["text"])

        bad_first = [end["name"] for end in run.record.of("case") if end["state"] in BAD]
        rest = [name for name in names_of_cases(run) if name not in bad_first and name != "64-bit offsets"]
        crew(run, f"{tool}.log", prefix=prefix, variables=variables).run(
            [*bad_first, *rest], min(seconds, run.left), tell
        )
        log = run.log_of(tool)
        found = (line.strip("= ") for line in log.splitlines())
        errors = [line for line in found if "ERROR SUMMARY" in line and " 0 errors" not in line]
        state = "ok" if not errors and not any(word in states for word in BAD) else "failed"
        text = ", ".join(f"{count} {word}" for word, count in states.items()) + "".join(
            f"; {line}" for line in errors[:3]
        )
        run.record.add("step", tool, state=state, seconds=round(time.monotonic() - begin, 1), text=text)

    return look


METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "share of memory's peak",
    "launch__registers_per_thread": "registers",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}


def profile(run: Run, seconds: float) -> None:
    """Have a profiler look at five kernels, to the end of the time."""
    ncu = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    looking = ("--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS))
    command = (ncu, *looking, *PYTHON, str(HERE / "hot.py")) if ncu else ()
    run.step("profile", max(seconds, run.left - 5), command, "there is no ncu")
    lines = run.log_of("profile").splitlines()
    begin = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for row in csv.DictReader(lines[begin:]):
        values = {word: row[metric] for metric, word in METRICS.items() if row.get(metric)}
        if row.get("Kernel Name") and values:
            run.record.add("profile", row["Kernel Name"], **values)
