"""Steps of the check: commands with a limit and a log, each in a group of processes of its own."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHON = (sys.executable,)
GRACE = 20
"""Seconds that a step has to tell what it found when its time is up."""


@dataclass(frozen=True)
class Step:
    """One command.

    Parameters
    ----------
    name : str
    limit : float
        Seconds after which it is stopped.
    command : tuple of str
        Empty: it cannot be run here; ``why`` says so.
    log : str
        File in the output folder; steps may share one.
    gate : bool
        What follows makes sense only if this step did well.
    """

    name: str
    limit: float
    command: tuple[str, ...]
    log: str
    environment: dict[str, str] = field(default_factory=dict)
    why: str = ""
    gate: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a step went."""

    name: str
    good: bool
    seconds: float
    text: str


def run(step: Step, out: Path, environment: dict[str, str], left: float, grace: float = GRACE) -> Outcome:
    """Run one step with its log; stop its child processes with it."""
    if not step.command or left < 1:
        return Outcome(step.name, False, 0.0, step.why or "no time was left")
    limit, start = min(step.limit, left), time.monotonic()
    with (out / step.log).open("a", encoding="utf-8") as log:
        log.write(f"$ {shlex.join(step.command)}\n")
        log.flush()
        process = subprocess.Popen(
            step.command, cwd=ROOT, env=environment | step.environment, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit)
            text = "" if status == 0 else f"status {status}"
        except subprocess.TimeoutExpired:
            status, text = -1, f"stopped after {limit:.0f} s"
            interrupt(process, grace)
        finally:
            stop(process)
    return Outcome(
        step.name, status == 0, time.monotonic() - start, "; ".join(filter(None, (text, last(out / step.log))))
    )


def interrupt(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask a process to end by itself: pytest then lists its failures so far, and the benchmark writes its figures."""
    try:
        process.send_signal(signal.SIGINT)
        process.wait(grace)
    except subprocess.TimeoutExpired:
        pass


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def last(log: Path) -> str:
    """The last line of a log that says something."""
    lines = [line.strip(" =\t") for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:160]


# What every run begins with -------------------------------------------------------------------------------------


def sanitizer() -> str:
    """The path of compute-sanitizer, or an empty text."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = [Path(home) for home in [*homes, "/usr/local/cuda", "/opt/cuda"]]
    inside = [place / part for place in places for part in ("bin", "compute-sanitizer")]
    return (
        shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, inside)])) or ""
    )


def install_step(asked: argparse.Namespace, site: Path) -> Step:
    """The step that makes the rest possible."""
    command = [sys.executable, str(HERE / "packages.py"), "install", str(site), "--wheels", str(asked.wheels)]
    return Step("install", 300 if asked.emulated else 150, (*command, *["--emulated"][: asked.emulated]), "setup.log")


def environment(asked: argparse.Namespace, site: Path, work: Path) -> dict[str, str]:
    """Variables of all steps but the first."""
    rest = os.environ.get("PYTHONPATH", "")
    made = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), str(ROOT), rest])),
        "PYTHONUNBUFFERED": "1",
        "NEONLIKE_CACHE_DIR": str(work / "kernels"),
        "NEONLIKE_REQUIRE_GPU_TESTS": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # JAX takes three quarters of the memory else
    }
    if asked.emulated:
        command = [sys.executable, "-m", "tests.cudaemu", "env"]
        said = subprocess.run(command, cwd=ROOT, env=made, stdout=subprocess.PIPE, text=True, check=True).stdout
        pairs = (shlex.split(line)[1].partition("=") for line in said.splitlines())
        made |= {name: value for name, _, value in pairs} | {"CUEMU_AS_REAL": "1", "CUEMU_STICKY": "1"}
    return made
