"""Builds the site: ``make docs``, or ``PYTHONPATH=docs python -m sitebuilder``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sitebuilder import DOCS, backlinks, described, html, staging
from sitebuilder.gallery import ExampleFailed
from sitebuilder.links import BrokenLink


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the sources, have Sphinx build them with warnings as errors, and check the links of the result."""
    parser = argparse.ArgumentParser(prog="sitebuilder", description="Builds the documentation site.")
    parser.add_argument("--output", type=Path, default=DOCS / "_build", help="folder for html/ and what it is made of")
    parser.add_argument("--no-runs", action="store_true", help="leave out the output of the examples")
    given = parser.parse_args(arguments)
    sources, built = given.output / "source", given.output / "html"
    if faults := described.faults():
        return complain(faults)
    try:
        staging.stage(sources, with_runs=not given.no_runs)
    except (BrokenLink, ExampleFailed) as error:
        return complain([str(error)])
    status = build(sources, built, given.output / "doctrees")
    if status:
        return status
    backlinks.correct(built)
    if faults := html.faults(built):
        return complain(faults)
    print(f"The site is in {os.path.relpath(built)}; open {os.path.relpath(built / 'index.html')}")
    return 0


def complain(faults: list[str]) -> int:
    """Print faults; the exit status of a build that has some."""
    print(*faults, sep="\n", file=sys.stderr)
    return 1


def build(sources: Path, to: Path, doctrees: Path) -> int:
    """Run Sphinx, and return its exit status."""
    from sphinx.cmd.build import build_main

    gc.set_threshold(100_000, 20, 50)  # the pages' trees stay: to look through them often is a fifth of the time
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(DOCS), "-d", str(doctrees)]
    return int(build_main([*options, str(sources), str(to)]))


if __name__ == "__main__":
    sys.exit(main())
