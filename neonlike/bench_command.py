"""The command ``neonlike bench``: runs a script in bench mode, and shows the times of its kernels."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neonlike import scripts
from neonlike.distributed.first import present_ranks
from neonlike.errors import ArgumentError
from neonlike.kernels.bench.recorder import Bench, collected, numbered
from neonlike.kernels.bench.report import format_of
from neonlike.kernels.bench.trace import Trace
from neonlike.util.persist import expand

ABOUT = """\
Runs SCRIPT with every kernel timed, and prints the table of its kernels when it ends, also by an error or Ctrl-C.
docs/bench.md explains the columns. A backend that the script makes with bench=False is not timed.
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = commands.add_parser(
        "bench",
        help="run a script and show how long its kernels take",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [-h] [-o FILE] [--open] [--trace FILE] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        allow_abbrev=False,
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the table: .html, .txt, .json or .csv")
    parser.add_argument("--open", action="store_true", help="open the table in the browser, as an HTML file")
    parser.add_argument(
        "--trace", metavar="FILE", help="write a trace of all kernels by thread, in JSON for Perfetto or chrome://tracing"
    )
    scripts.add_arguments(parser)


def bench(options: argparse.Namespace) -> int:
    """Run the script and show its kernels; returns the exit status. Exceptions of the script propagate."""
    try:
        output = _output(options)
        for path in filter(None, (output, options.trace)):
            _require_folder(path)
    except ArgumentError as error:
        return _fail(str(error))
    trace, process = Trace() if options.trace else None, os.getpid()
    with collected(trace) as found:
        try:
            scripts.run(options)
        finally:
            shown = os.getpid() != process or _show(found.recorders, output, options, trace)
    return 0 if shown else 1


def _output(options: argparse.Namespace) -> str:
    """Path of the file for the table; empty if none is wanted."""
    output: str = expand(options.output) if options.output else ""
    if output:
        format_of(None, output)
    if options.open and not output.endswith(".html"):
        if output:
            raise ArgumentError(f"--open shows an HTML file, and -o {output} is none; end it in .html")
        return os.path.join(tempfile.mkdtemp(prefix="neonlike-bench-"), "kernels.html")
    return output


def _require_folder(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(expand(path)))
    if not os.path.isdir(folder):
        raise ArgumentError(f"{path}: there is no folder {folder}")


def _show(recorders: Sequence[Bench], output: str, options: argparse.Namespace, trace: Trace | None) -> bool:
    """Print and write the tables of backends with kernels, and the trace; whether there were any."""
    used = [recorder for recorder in recorders if recorder.rows()]
    if present_ranks().rank:
        return True
    if not used:
        _fail("no kernel was timed: the script ran none, or made its backend with bench=False")
        return False
    sys.stdout.flush()
    for recorder in used:
        print(recorder.report("text"))
        if output:
            path = numbered(output)
            recorder.report(path=path)
            print(f"neonlike bench: {path}", file=sys.stderr)
            if options.open:
                webbrowser.open(Path(path).resolve().as_uri())
    if trace is not None:
        calls = trace.write(expand(options.trace))
        print(f"neonlike bench: {options.trace} has {calls} calls", file=sys.stderr)
    return True


def _fail(reason: str) -> int:
    print(f"neonlike bench: {reason}", file=sys.stderr)
    return 1
