"""The command ``neonlike report``: a page about runs, or a live view of them.

Modules that read and draw runs are imported when the command runs: other commands start without them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from neonlike.errors import ArgumentError
from neonlike.util.persist import expand

ABOUT = "Writes a page about runs that Callbacks(output_file=...) recorded: an HTML file that needs no other."


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = commands.add_parser("report", help="write a page about runs, or show one of a training that runs",
                                 description=ABOUT, allow_abbrev=False)  # fmt: skip
    parser.add_argument("runs", metavar="RUN", nargs="+", help="HDF5 file of Callbacks(output_file=...)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the page (default: the first RUN, with .html)")
    parser.add_argument(
        "--watch", action="store_true", help="show the page in a browser of this machine, and follow the runs"
    )
    parser.add_argument(
        "--port", type=int, default=8765, metavar="N", help="port of the server of --watch (default: 8765; 0: any)"
    )


def report(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    from neonlike.report.write import report_files

    runs: Sequence[str] = [expand(run) for run in options.runs]
    try:
        if options.watch:
            _watch(runs, options)
            return 0
        path = options.output or f"{os.path.splitext(runs[0])[0]}.html"
        if any(os.path.realpath(path) == os.path.realpath(run) for run in runs):
            raise ArgumentError(f"{path} is one of the runs; name another file with -o")
        print(report_files(runs, path))
    except FileNotFoundError as error:
        return _fail(f"there is no file {error.filename}; give one that Callbacks(output_file=...) wrote")
    except (ArgumentError, OSError) as error:
        return _fail(str(error))
    return 0


def _watch(runs: Sequence[str], options: argparse.Namespace) -> None:
    from neonlike.report.watch import serve

    if options.output:
        raise ArgumentError("-o and --watch exclude each other: a live view is written to no file")
    if not 0 <= options.port < 1 << 16:
        raise ArgumentError(f"--port {options.port}: expected a number from 0 to 65535")
    try:
        serve(runs, options.port, lambda address: print(f"{address}  (Ctrl-C ends)", flush=True))
    except OSError as error:
        raise ArgumentError(f"port {options.port} cannot be used ({error}); give another: --port 0") from error


def _fail(reason: str) -> int:
    print(f"neonlike report: {reason}", file=sys.stderr)
    return 1
