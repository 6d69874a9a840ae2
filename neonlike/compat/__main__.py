"""Command line ``python -m neonlike.compat``: run a neon script unchanged, or list neon's available names."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

from neonlike import console, settings
from neonlike.compat.contract import NotBuiltYet, availability


def _place(found: object) -> str:
    """Where a module, class or function is defined; for plain values "there"; else the reason for its absence."""
    if isinstance(found, NotBuiltYet):
        return "missing"
    if isinstance(found, ImportError):
        return f"unavailable: {found}"
    if isinstance(found, ModuleType):
        return found.__name__
    name = getattr(found, "__qualname__", None)
    return "available" if name is None else f"{getattr(found, '__module__', '')}.{name}"


def list_names() -> None:
    """Print every name of neon with its place here, or its absence."""
    rows = list(availability())
    width = max(len(dotted) for dotted, _ in rows)
    for dotted, found in rows:
        print(f"{dotted:{width}}  {_place(found)}")
    print(f"{sum(not isinstance(found, ImportError) for _, found in rows)} of {len(rows)} available")


def run_script(script: str, arguments: Sequence[str], force: bool) -> None:
    """Run a script as ``python script arguments`` does, with neon meaning this library.

    Parameters
    ----------
    script : str
        Path of the file.
    arguments : sequence of str
        Become ``sys.argv[1:]``.
    force : bool
        Take the place of a real neon package.
    """
    sys.argv = [script, *arguments]
    # For -m, Python starts the path with the current folder; for a script, with the script's (or nothing with -P).
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    if force:
        settings.COMPAT_FORCE.put("1")
    import neonlike.compat.neon  # noqa: F401  (after sys.path is right: it looks for a real neon there)

    runpy.run_path(script, run_name="__main__")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m neonlike.compat", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print neon's names and where they are here")
    parser.add_argument("--force", action="store_true", help="take the place of a real neon package")
    parser.add_argument("script", nargs="?", help="the neon script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets as its arguments")
    options = parser.parse_args(argv)
    if options.list:
        list_names()
        return 0
    if options.script is None:
        parser.error("name a script, or --list")
    if not os.path.exists(options.script):
        parser.error(f"there is no script {options.script}")
    run_script(options.script, options.arguments, options.force)
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main))
