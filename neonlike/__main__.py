"""Command line ``python -m neonlike``: train a YAML model, time or precompile kernels, report runs, diagnose."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from neonlike import bench_command, console, scripts, settings
from neonlike.backends.cpu.backend import compiled_engine
from neonlike.backends.gpu.doctor import report
from neonlike.errors import ArgumentError
from neonlike.kernels.build.cache import DiskCache, default_cache, default_directory, distrust
from neonlike.kernels.c.toolchain import SUFFIX
from neonlike.kernels.c.warm import CollectingEngine, Fate, Report, ScriptStopped, WarmUp, obstacle
from neonlike.report import command as report_command
from neonlike.version import __version__

ABOUT = (
    "Compiles a script's kernels ahead of its runs, times them, looks after the cache they are in, reports runs, says "
    "what is installed."
)

YAML = "MODEL.yaml in place of COMMAND trains what the file describes; `neonlike MODEL.yaml --help` lists the options."

WARM = """\
Runs SCRIPT once and compiles, in the background, every kernel that it needs, so that later runs compile nothing.

The script really runs, on the slower NumPy engine: it reads its data, and writes the files that it always writes.
It is stopped early when it has shown no new kernel for a while. Kernels depend on the expressions, their dtypes and
memory layouts, and hardly on sizes: a run with fewer epochs or less data finds them all the sooner. What was not met
(an evaluation after the first epoch, say) is compiled by the first run that needs it.
"""


def seconds(text: str) -> float:
    """A number of seconds from the command line."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def parser() -> argparse.ArgumentParser:
    """The command line."""
    name = "neonlike" if os.path.basename(sys.argv[0]).startswith("neonlike") else "python -m neonlike"
    top = argparse.ArgumentParser(prog=name, description=ABOUT, epilog=YAML, allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"neonlike {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_warm(commands)
    cache = commands.add_parser(
        "cache",
        help="show where compiled kernels are kept, or remove them",
        description="Shows where compiled kernels are kept, how many there are and how much space they take.",
        allow_abbrev=False,
    )
    cache.add_argument("--clear", action="store_true", help="remove them all; what is needed is compiled again")
    doctor = commands.add_parser(
        "doctor",
        help="say what is installed, which GPUs there are, and how to get what is missing",
        description="Says what is installed, which GPUs there are, what is missing and the command that fixes it, and "
        "which environment variables are set. Exits with 1 if there is a GPU that the GPU backend cannot use, 2 if "
        "the CPU backend cannot run.",
        allow_abbrev=False,
    )
    doctor.add_argument("--gpu", action="store_true", help="exit with 1 if the GPU backend cannot run for any reason")
    bench_command.add_parser(commands)
    report_command.add_parser(commands)
    return top


def _add_warm(commands: Any) -> None:
    warm = commands.add_parser(
        "warm",
        help="compile the kernels of a script ahead of its real runs",
        description=WARM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [-h] [--idle SECONDS] [--seconds SECONDS] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        allow_abbrev=False,
    )
    warm.add_argument(
        "--idle", type=seconds, default=30.0, metavar="SECONDS",
        help="stop the script when it has shown no new kernel for so long, and for as many assignments as there were "
        "before; 0: let it run to its end (default: 30)",
    )  # fmt: skip
    warm.add_argument(
        "--seconds", type=seconds, default=0.0, metavar="SECONDS",
        help="stop the script after this time in any case (default: 0, no limit)",
    )  # fmt: skip
    scripts.add_arguments(warm)


def warm(options: argparse.Namespace) -> int:
    """Run the script and fill the cache; return the exit status. Exceptions of the script propagate."""
    if reason := obstacle():
        return _fail("warm", reason)
    warm_up, process, remark = WarmUp(options.idle, options.seconds), os.getpid(), ""
    try:
        with compiled_engine(lambda: CollectingEngine(warm_up)):
            scripts.run(options)
    except ScriptStopped as stop:
        remark = f"stopped the script: {stop.reason}"
    except BaseException as error:
        if os.getpid() != process:
            raise  # a forked child of the script; its parent reports
        if not isinstance(error, SystemExit) or error.code:
            interrupted = isinstance(error, KeyboardInterrupt)
            _show(warm_up.finish(cancel=interrupted), "interrupted" if interrupted else "the script failed")
            raise
    if os.getpid() != process:
        return 0
    report = warm_up.finish()
    _show(report, remark)
    return 0 if report.complete else 1


def cache(options: argparse.Namespace) -> int:
    """Show or clear the cache; returns the exit status."""
    try:
        directory = default_directory()
    except RuntimeError as error:
        return _fail("cache", f"there is no place for it ({error}); name a directory with NEONLIKE_CACHE_DIR")
    if not directory.exists():
        print(f"{directory}\nnothing there yet")
        return 0
    if reason := distrust(directory):
        return _fail("cache", f"{directory} is not used: {reason}; name another directory with NEONLIKE_CACHE_DIR")
    found = default_cache()
    if options.clear:
        removed = found.clear()
        print(f"{directory}\n{_count(removed, 'file')} removed")
        left = found.stats().entries
        return _fail("cache", f"{_count(left, 'file')} could not be removed") if left else 0
    print(_contents(found))
    return 0


def _contents(found: DiskCache) -> str:
    stats = found.stats()
    kernels = sum(1 for _ in stats.directory.glob(f"[0-9a-f][0-9a-f]/*{SUFFIX}"))
    return f"{stats.directory}\n{_count(kernels, 'kernel')}, {stats.bytes / 1e6:.1f} of {found.limit / 1e6:g} MB"


def _show(report: Report, remark: str) -> None:
    """Report the result of a warm-up, apart from the script's own output."""
    fates, total = report.fates, sum(report.fates.values())
    parts = [f"{fates[fate]} {fate.value}" for fate in Fate if fates[fate]]
    text = f"{_count(total, 'kernel')} in {report.seconds:.1f} s" + (f": {', '.join(parts)}" if parts else "")
    if not total:
        text += ": no expression was run that a kernel is compiled for"
    lines = [*([remark] if remark else []), text, f"cache: {', '.join(_contents(default_cache()).splitlines())}"]
    if report.failures:
        lines.append(f"first failure: {report.failures[0]}")
    if fates[Fate.LOST]:
        lines.append(f"the cache could not be written: is the disk full? ({default_directory()})")
    sys.stdout.flush()
    print(*(f"neonlike warm: {line}" for line in lines), sep="\n", file=sys.stderr)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _fail(command: str, reason: str) -> int:
    print(f"neonlike {command}: {reason}", file=sys.stderr)
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0].endswith((".yaml", ".yml")):
        from neonlike import script  # imports the whole library

        return script.main(words)
    found = parser()
    options = found.parse_args(words)
    if options.command == "doctor":
        text, status = report(options.gpu)
        print(text)
        return status
    try:
        settings.check()
    except ArgumentError as error:
        return _fail(options.command, str(error))
    if options.command == "cache":
        return cache(options)
    if options.command == "report":
        return report_command.report(options)
    if missing := scripts.missing(options):
        found.error(f"{options.command}: there is no {missing}")
    return bench_command.bench(options) if options.command == "bench" else warm(options)


def program() -> int:
    """The command ``neonlike``."""
    return console.run(main)


if __name__ == "__main__":
    sys.exit(program())
