"""The emulated GPU for programs: ``python -m tests.cudaemu env``, ``python -m tests.cudaemu run [options] command``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from .activate import environment, options
from .build import build
from .toolkit import EmulatorUnavailable


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="python -m tests.cudaemu", description=__doc__)
    commands = result.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the emulator and print its folder")
    env = commands.add_parser("env", help="print the variables, for a shell to evaluate")
    run = commands.add_parser("run", help="run a command on the emulated GPU")
    for each in (env, run):
        each.add_argument("--check", action="store_const", const=True, help="check memory accesses and races")
        each.add_argument(
            "--asynchronous", action="store_const", const=True, help="run streams as late as allowed"
        )
        each.add_argument("--order", choices=("forward", "reverse", "random"), help="of threads and blocks")
        each.add_argument("--seed", type=int, help="of the random order")
        each.add_argument("--capability", type=int, choices=(80, 90), help="compute capability times ten")
        each.add_argument("--memory-mb", type=int, help="device memory")
        each.add_argument(
            "--sticky", action="store_const", const=True, help="a failed kernel takes its context with it"
        )
        each.add_argument("--real-nvcc", metavar="PATH", help="compile with this nvcc too")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="command ...")
    return result


def main() -> int:
    """Run the command line."""
    asked = vars(parser().parse_args())
    command, arguments = asked.pop("command"), asked.pop("arguments", [])
    try:
        folder = build()
    except EmulatorUnavailable as error:
        print(f"cudaemu: {error}", file=sys.stderr)
        return 1
    if command == "build":
        print(folder)
        return 0
    variables = {**environment(folder), **options(**asked)}
    if command == "env":
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if not arguments:
        print("cudaemu: name a command to run", file=sys.stderr)
        return 2
    os.execvpe(arguments[0], arguments, {**os.environ, **variables})


if __name__ == "__main__":
    sys.exit(main())
