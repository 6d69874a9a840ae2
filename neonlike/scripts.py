"""Scripts that commands of the program run, as Python itself would run them."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the script, and its arguments, to those of a command."""
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.add_argument("script", metavar="SCRIPT", help="the script to run")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what the script gets")


def missing(options: argparse.Namespace) -> str:
    """The script or module that does not exist; empty if it does. The import path is set as the script expects it."""
    script: str = options.script
    if not getattr(sys.flags, "safe_path", False):  # as Python does: the current folder for -m, else the script's
        sys.path[0] = os.getcwd() if options.module else os.path.dirname(os.path.abspath(script))
    if not options.module:
        return "" if os.path.exists(script) else f"script {script}"
    # Only the top package: looking further would import it, which may run expressions already.
    return "" if importlib.util.find_spec(script.partition(".")[0] or "?") else f"module {script}"


def run(options: argparse.Namespace) -> None:
    """Run a script as ``python script arguments`` or ``python -m script arguments`` does."""
    sys.argv = [options.script, *options.arguments]
    if options.module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(options.script, run_name="__main__")
