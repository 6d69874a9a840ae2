"""The page of a report: its sections in order, in one file that needs no other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from neonlike.callbacks.sampling import told_apart
from neonlike.errors import ArgumentError
from neonlike.markup import page
from neonlike.report import about, curves, measured, results
from neonlike.report.run import Run, read_file
from neonlike.util.atomic import replacing
from neonlike.util.persist import ensure_dirs_exist, expand
from neonlike.version import __version__

__all__ = ["report_files", "report_text", "write_report"]

SECTIONS: tuple[tuple[str, str, Callable[[Sequence[Run]], str]], ...] = (
    ("summary", "Summary", about.summary),
    ("cost", "Cost", curves.costs),
    ("metrics", "Metrics", curves.metrics),
    ("rate", "Learning rate", curves.rates),
    ("confusion", "Confusion matrix", results.confusion),
    ("wrong", "Samples classified wrong", results.wrong),
    ("histograms", "Weights and gradients", curves.histograms),
    ("times", "Time by layer and kernel", measured.times),
    ("memory", "Memory over a step", measured.memory),
    ("network", "Network", about.network),
    ("facts", "Machine, versions, command, seeds", about.facts),
)
"""Anchor, title and contents of each section."""

STYLE = """
nav ul { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; padding: 0; margin: 0.6rem 0; list-style: none }
section { content-visibility: auto; contain-intrinsic-size: auto 30rem }
figure { margin: 0.8rem 0 }
figure > svg { display: block; width: 100%; height: auto; overflow: visible }
figure svg text { font-family: inherit !important }
figcaption { font-weight: 600; overflow-wrap: anywhere }
figure.graph { max-width: 100%; overflow-x: auto }
figure.graph > svg { width: auto; min-width: 12rem; max-width: 100%; max-height: 60rem }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 0 1.5rem }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); gap: 0.8rem }
@media print { .grid { grid-template-columns: 1fr 1fr } section { content-visibility: visible } }
.samples figure { margin: 0; max-width: 9rem }
.samples figcaption { font-weight: 400; font-size: 0.85rem; line-height: 1.3 }
.samples img { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); background: var(--raised) }
"""


def report_text(runs: Sequence[Run], script: str = "") -> str:
    """The page of a report on runs, as text.

    Parameters
    ----------
    runs : sequence of Run
    script : str
        JavaScript for the page.

    Raises
    ------
    ArgumentError
        Without runs.
    MissingExtra
        If matplotlib is not installed.
    """
    if not runs:
        raise ArgumentError("report: there are no runs; give a file of Callbacks(output_file=...) or several")
    _name_apart(runs)
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in SECTIONS)
    body = [f'<nav aria-label="Sections"><ul>{links}</ul></nav>']
    for anchor, title, contents in SECTIONS:
        body.append(f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{contents(runs)}</section>')
    title = ", ".join(run.name for run in runs)
    made = f"Made by neonlike {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}."
    return page(f"Report of {title}", "\n".join(body), [made], STYLE, script)


def _name_apart(runs: Sequence[Run]) -> None:
    """Number runs that have the same name."""
    for run, name in zip(runs, told_apart([run.name for run in runs]), strict=True):
        run.name = name


def write_report(path: str | os.PathLike[str], runs: Sequence[Run]) -> str:
    """Write the page of a report on runs to a file, atomically.

    Parameters
    ----------
    path : path
        The HTML file; its folder is created.
    runs : sequence of Run
        Runs that :func:`~neonlike.report.run.read_file` or :func:`~neonlike.report.run.read_store` returned.

    Returns
    -------
    str
        The path.

    Raises
    ------
    ArgumentError
        Without runs.
    MissingExtra
        If matplotlib is not installed.
    """
    text = report_text(runs)
    target = ensure_dirs_exist(expand(path))
    with replacing(target) as file:
        file.write(text.encode("utf-8", "replace"))
    return target


def report_files(files: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> str:
    """Write the report on the runs in files of ``Callbacks(output_file=...)``.

    Parameters
    ----------
    files : sequence of paths
    path : path
        The HTML file; its folder is created.

    Returns
    -------
    str
        The path.

    Raises
    ------
    OSError
        If a file is missing, or the page cannot be written.
    ArgumentError
        If a file is damaged, or another kind of file.
    """
    return write_report(path, [read_file(expand(file)) for file in files])
