"""The fast tests on each Python of this machine, each in an environment of its own: `make test-pythons`.

    python tests/packages/pythons.py [--only 3.12 --only oldest] [--jobs 2] [--list] [-- PYTEST ARGUMENTS]

Also: on the oldest versions of what the package depends on, with clang, and without a compiler. Before the tests, every
file is compiled and every module imported with deprecations and doubtful syntax as errors, as a coming Python will have
them. A line for each run says what it used, how many tests passed and how long it took; the exit status is 1 if one
failed. A Python or compiler that is not on this machine is named, and its runs are left out.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / ".venv-pythons"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
STRICT = ("-W", "error::DeprecationWarning", "-W", "error::PendingDeprecationWarning", "-W", "error::SyntaxWarning")
TESTS = (
    "tests/optree/test_eval.py", "tests/optree/test_errors.py", "tests/optree/test_expressions.py",
    "tests/optree/test_numpy_forms.py", "tests/optree/test_operators.py", "tests/optree/test_random.py",
    "tests/optree/test_assignment.py", "tests/optree/test_html.py", "tests/optree/test_origin.py",
    "tests/optree/test_made_up_op.py", "tests/autograd/test_autograd.py", "tests/autograd/test_graphs.py",
    "tests/autograd/dynamic", "tests/kernels/build", "tests/kernels/run/test_program.py",
    "tests/kernels/c/test_fastpath.py", "tests/kernels/c/test_fastpath_calls.py",
    "tests/backends/tensors/test_interop.py", "tests/backends/replays",
    "tests/layers/test_mlp.py", "tests/models/test_model_mlp.py", "tests/models/test_model_storage.py",
    "tests/callbacks", "tests/data/test_array_iterator.py", "tests/data/test_hdf5.py", "tests/data/test_images.py",
    "tests/data/test_text.py", "tests/experiments", "tests/util", "tests/visualizations", "tests/packages",
    "tests/test_settings.py", "tests/test_console.py", "tests/test_logger.py",
)  # fmt: skip
"""Tests of all that may differ from one Python, NumPy or Jinja to the next; values of kernels do not, which are C."""
MARKS = "not slow and not gpu and not emulator"

IMPORTS = """
import importlib, pkgutil, neonlike
for module in pkgutil.walk_packages(neonlike.__path__, "neonlike."):
    if not module.name.startswith("neonlike.backends.gpu") and not module.name.endswith("__main__"):
        if module.name != "neonlike.compat.neon":
            importlib.import_module(module.name)
"""


class Run(NamedTuple):
    """The fast tests under one set of conditions.

    Attributes
    ----------
    name : str
    python : str
        Version of Python.
    oldest : bool
        Whether the package's dependencies have the oldest version that it allows.
    variables : tuple of (str, str)
        Environment variables.
    """

    name: str
    python: str
    oldest: bool = False
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> Path:
        """Folder of the environment; runs that differ in variables alone share one."""
        return ENVIRONMENTS / (f"{self.python}-oldest" if self.oldest else self.python)


RUNS = (
    Run("oldest", PYTHONS[0], oldest=True),
    *(Run(version, version) for version in PYTHONS),
    Run("clang", "3.13", variables=(("CC", "clang"),)),
    Run("no compiler", "3.13", variables=(("CC", "/nonexistent/cc"),)),
)


def oldest_versions(project: str) -> list[str]:
    """Requirements that fix the oldest allowed version of each dependency in the text of pyproject.toml."""
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)
    return [f"{name}=={version}" for name, version in re.findall(r'"([\w.-]+)>=([\d.]+)"', listed)]


def find_python(version: str) -> str | None:
    """An interpreter of ``version``: on PATH, or one of pyenv's, the newest first."""
    homes = glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))
    newest = sorted(homes, key=lambda path: [int(part) for part in re.findall(r"\d+", path.split("versions")[1])])
    for candidate in (shutil.which(f"python{version}"), *reversed(newest)):
        if candidate and version_of(candidate) == version:
            return candidate
    return None


def version_of(python: str) -> str:
    """The version of an interpreter, as 3.12; empty if it does not run, as a shim of pyenv without that version."""
    code = "import sys, venv, ensurepip; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def prepare(run: Run, python: str) -> Path:
    """Make the environment of a run, unless it is there and newer than pyproject.toml; return its interpreter."""
    folder, project = run.environment, ROOT / "pyproject.toml"
    made, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists() and ready.stat().st_mtime > project.stat().st_mtime:
        return made
    if not made.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    fixed = oldest_versions(project.read_text(encoding="utf-8")) if run.oldest else []
    install = [str(made), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*install, "--editable", ".[test]", *fixed], cwd=ROOT, check=True)
    ready.touch()
    return made


def steps(python: Path, run: Run, jobs: str, more: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Names and commands of the parts of a run."""
    start = [str(python), *STRICT]
    yield "syntax", [*start, "-m", "compileall", "-q", "-f", "neonlike", "tests", "examples", "benchmarks"]
    yield "imports", [*start, "-c", IMPORTS]
    pytest = [str(python), "-m", "pytest", "-q", "-n", jobs, "--dist", "worksteal", "--c-cases", "1", "-m", MARKS]
    yield "tests", [*pytest, *(more or TESTS)]


def versions(python: Path) -> str:
    """Versions of Python and NumPy in an environment."""
    code = "import platform, numpy; print(f'Python {platform.python_version()}, NumPy {numpy.__version__}')"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def carry_out(run: Run, python: str, jobs: str, more: Sequence[str]) -> tuple[bool, str]:
    """Do a run; return whether it went well, and a line about it."""
    begun = time.monotonic()
    made = prepare(run, python)
    begun, ready = time.monotonic(), time.monotonic() - begun
    about = f"{run.name:12} {versions(made)}"
    hidden = ("PYTHONPATH", "PYTEST_", "NEONLIKE_CPU_JIT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    cache = run.environment / "bytecode"
    environment: Mapping[str, str] = {**kept, "PYTHONPYCACHEPREFIX": str(cache), **dict(run.variables)}
    passed = ""
    for name, command in steps(made, run, jobs, more):
        print(f"== {about}: {name}", flush=True)
        words = []
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                words.append(line)
        passed = words[-1].strip(" =\n") if words else ""
        if process.returncode:
            return False, f"{about}: FAILED in {name}: {passed}"
    took = time.monotonic() - begun
    return True, f"{about}: {passed}; {took:.0f} s, and {ready:.0f} s for the environment"


def obstacle(run: Run, pythons: Mapping[str, str | None]) -> str:
    """Name the thing that a run needs and this machine does not have; empty if it has all."""
    if pythons[run.python] is None:
        return f"there is no Python {run.python} here"
    compiler = dict(run.variables).get("CC", "")
    if compiler and not os.path.isabs(compiler) and shutil.which(compiler) is None:
        return f"there is no {compiler} here"
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Carry out the runs; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [run.name for run in RUNS]
    parser.add_argument("--only", action="append", choices=names, help="only this run, and others so named")
    parser.add_argument("--jobs", default="auto", help="processes of tests side by side (default: one for each core)")
    parser.add_argument("--list", action="store_true", help="say what would run, and where")
    parser.add_argument("more", nargs="*", metavar="PYTEST ARGUMENT", help="other tests, or options of pytest")
    options = parser.parse_args(arguments)
    runs = [run for run in RUNS if not options.only or run.name in options.only]
    pythons = {version: find_python(version) for version in {run.python for run in runs}}
    lines, good = [], True
    for run in runs:
        missing = obstacle(run, pythons)
        if missing or options.list:
            lines.append(f"{run.name:12} {f'left out: {missing}' if missing else pythons[run.python]}")
            good &= not (missing and options.only)
            continue
        well, line = carry_out(run, str(pythons[run.python]), options.jobs, options.more)
        good &= well
        lines.append(line)
    print("", *lines, sep="\n")
    return 0 if good and any(not obstacle(run, pythons) for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
