"""Pages of the examples: what each says of itself, its output and pictures of a short run, and its source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sitebuilder import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 180
"""Limit of a run."""
MOST_PICTURES = 4

QUICK: dict[str, tuple[str, ...]] = {
    "attention_digits": ("--epochs", "2"),
    "char_lstm": ("--quick", "--sample", "200"),
    "copy_task": ("--epochs", "5"),
    "custom_layer": ("--epochs", "5"),
    "dcgan_digits": ("--epochs", "8", "--pictures", "."),
    "digits_autoencoder": ("--epochs", "15", "--picture", "digits_autoencoder.png"),
    "digits_conv": ("--epochs", "3"),
    "digits_convnet": ("--epochs", "5"),
    "digits_mlp": ("--epochs", "20", "--plot", "digits_mlp.png"),
    "distributed_digits": ("--epochs", "4"),
    "dynamic_graph_mlp": ("--epochs", "5"),
    "resume": ("--epochs", "4"),
    "skip_network": ("--epochs", "3"),
}
"""Arguments of the runs that take seconds; other examples run without arguments."""


class ExampleFailed(RuntimeError):
    """An example ended with an error, or did not end."""


@dataclass(frozen=True)
class Run:
    """A run of an example.

    Attributes
    ----------
    command : str
        As typed in the repository.
    output : str
        Standard output.
    pictures : dict of str to bytes
        The pictures that it saved, by name; the last four of more.
    """

    command: str
    output: str
    pictures: dict[str, bytes]


def examples() -> list[Path]:
    """The scripts of the gallery."""
    return sorted(EXAMPLES.glob("*.py"))


def run(script: Path) -> Run:
    """Run an example with its quick arguments, in a folder that is removed afterwards.

    Raises
    ------
    ExampleFailed
        If it fails, or takes longer than ``SECONDS``.
    """
    arguments = list(QUICK.get(script.stem, ()))
    command = f"python {script.relative_to(ROOT).as_posix()} {' '.join(arguments)}".strip()
    if "NeonArgparser" in script.read_text(encoding="utf-8"):
        arguments.append("--no_progress_bar")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, str(script), *arguments], cwd=folder, env=environment, timeout=SECONDS,
                capture_output=True, text=True, encoding="utf-8",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ExampleFailed(f"{command}: not done after {SECONDS} s; give it fewer epochs in QUICK") from None
        if done.returncode:
            raise ExampleFailed(f"{command}: ended with status {done.returncode}\n{done.stderr[-2000:]}")
        made = sorted(Path(folder).rglob("*.png"))[-MOST_PICTURES:]
        return Run(command, done.stdout, {picture.name: picture.read_bytes() for picture in made})


def page(script: Path, made: Run | None) -> str:
    """The Markdown of an example's page.

    Parameters
    ----------
    script : Path
        The example.
    made : Run or None
        Its run; None if runs are left out.
    """
    source = script.read_text(encoding="utf-8")
    pieces = [f"# {script.stem}", ast.get_docstring(ast.parse(source)) or ""]
    if made is not None:
        pieces.append(f"## Output\n\nOf `{made.command}`:\n\n````text\n{made.output.strip()}\n````")
        pieces += [f"![Picture that {script.name} saves](images/{script.stem}/{name})" for name in made.pictures]
    pieces.append(f"## Source\n\n````python\n{source.strip()}\n````")
    return "\n\n".join(pieces) + "\n"


def index(scripts: list[Path], others: dict[str, str], runs: dict[str, Run]) -> str:
    """The Markdown of the gallery's first page.

    Parameters
    ----------
    scripts : list of Path
        The examples.
    others : dict of str to str
        Notebooks: the names of their pages in the gallery's folder, and their titles.
    runs : dict of str to Run
        Those that were made, by the names of the examples.
    """
    rows = [f"| [{script.stem}]({script.stem}.md) | {_subject(script)} |" for script in scripts]
    rows += [f"| [{name}]({name}.md) | {title} |" for name, title in others.items()]
    shown = [
        f"[![{name}: a picture that the script saves](images/{name}/{next(iter(run.pictures))})]({name}.md)"
        for name, run in runs.items() if run.pictures
    ]  # fmt: skip
    entries = "\n".join([*(script.stem for script in scripts), *others])
    said = (
        "Scripts in `examples`, each with the output of a short run. They learn in seconds, without a download."
        if runs else "Scripts in `examples`. They learn in seconds, without a download."
    )  # fmt: skip
    return (
        f"# Examples\n\n{said}\n\n| script | |\n|---|---|\n" + "\n".join(rows) + "\n\n"
        + "\n".join(shown) + f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    )  # fmt: skip


def _subject(script: Path) -> str:
    """The first sentence of an example's docstring."""
    said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())


def runs(scripts: list[Path]) -> Iterator[tuple[str, Run]]:
    """Each example's name and run, one after the other."""
    for script in scripts:
        print(f"running {script.relative_to(ROOT)}", flush=True)
        yield script.stem, run(script)
