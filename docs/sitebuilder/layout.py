"""Places in the site: which pages there are, in which order, and where a file of the repository is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from sitebuilder import ROOT

RESULTS = "benchmarks/RESULTS.md"


@dataclass(frozen=True)
class Chapter:
    """A heading of the navigation, and its pages by their paths in the site."""

    title: str
    pages: tuple[str, ...]


CHAPTERS = (
    Chapter("Start", ("start", "features", "install", "training")),
    Chapter("Coming from", ("from_neon", "from_pytorch", "from_numpy", "from_keras")),
    Chapter(
        "Using",
        (
            "tensors", "expressions", "ops", "gradients", "primitives", "formulas", "precision", "blueprints",
            "autograd", "dynamic_graph", "data", "descriptors", "model_files", "exchange", "report", "environment",
        ),
    ),
    Chapter("GPUs and several processes", ("gpu", "distributed")),
    Chapter("Performance", ("performance/index", "bench")),
    Chapter("How it works", ("tour", "kernels", "contributing")),
    Chapter("Help", ("errors", "faq", "changelog")),
    Chapter("Reference and examples", ("api/index", "gallery/index")),
)  # fmt: skip
"""All pages, in the order of the navigation. A page that does not exist is left out."""

LAST = "Help"
"""The chapter of pages in ``docs`` that no chapter names."""

MOVED = {
    "README.md": "readme",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "performance/method",
    RESULTS: "performance/index",
}
"""Files outside ``docs`` that are pages of the site."""
UNLISTED = {"readme"}
"""Pages that no chapter lists: links lead there."""


def page_of(path: str) -> str:
    """The page of the site, without suffix, that shows a file of the repository.

    Parameters
    ----------
    path : str
        Path of the file, relative to the repository.
    """
    if path in MOVED:
        return MOVED[path]
    where = PurePosixPath(path)
    if where.parts[:2] == ("examples", "notebooks") and where.suffix == ".ipynb":
        return f"gallery/notebook_{where.stem}"  # a script may have its name
    if where.parent == PurePosixPath("docs") and where.suffix == ".md":
        return where.stem
    if where.parent == PurePosixPath("examples") and where.suffix == ".py":
        return f"gallery/{where.stem}"
    if where.parts == ("examples",):
        return "gallery/index"
    return f"source/{path.removesuffix('.md').replace('.', '_')}"


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def file_name(heading: str) -> str:
    """The name of a page that is made of the section with this heading."""
    return re.sub(r"\W+", "_", heading.lower()).strip("_")


def repository_path(path: str, base: str) -> str:
    """The path, relative to the repository, of a link's target in the file ``base``; empty if it leads outside."""
    target = (ROOT / base).parent.joinpath(path).resolve()
    return target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
