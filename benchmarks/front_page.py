"""The README's table of speed, made of what RESULTS.md recorded; ``--picture FILE`` draws it.

    python benchmarks/front_page.py             # the table
    python benchmarks/front_page.py --write     # into README.md, where the last one stands; `make docs` does so too

Nothing is measured: every figure is a geometric mean or a ratio of medians that stands in a section of RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import _pictures

HERE = Path(__file__).resolve().parent
RESULTS, README = HERE / "RESULTS.md", HERE.parent / "README.md"
BEGIN, END = "<!-- speed: made by benchmarks/front_page.py -->\n", "<!-- end of speed -->\n"
PEERS = {"numpy": "NumPy", "torch": "PyTorch", "torch.compile": "torch.compile", "numba": "Numba", "jax": "JAX"}


@dataclass(frozen=True)
class Line:
    """A line of the table: what was measured, and where RESULTS.md says how long others take."""

    text: str
    section: str
    patterns: tuple[str, ...]
    """Each of a remark, with a group ``x`` for the ratio, and ``who`` where the section has several peers."""


def _means(*directions: str) -> tuple[str, ...]:
    return tuple(rf"{name}, geometric mean over \d+: PyTorch takes (?P<x>[\d.]+) times" for name in directions)


def _expressions(size: str) -> tuple[str, ...]:
    return (rf"{size}, geometric mean over 14: (?P<who>[\w.]+) takes (?P<x>[\d.]+) times",)


STEPS = ("company", "models")
"""Sections of whole training steps, where the faster of PyTorch and torch.compile counts as PyTorch."""
BOTH, THREE = ("fprop", "bprop"), ("fprop", "bprop", "update")
LINES = (
    Line("fourteen fused expressions, 1M elements", "expressions", _expressions("1M")),
    Line("fourteen fused expressions, 16M elements", "expressions", _expressions("16M")),
    Line("expressions on other shapes, layouts and types", "optree_shapes",
         (r"PyTorch's time divided by ours: (?P<x>[\d.]+) on the geometric mean",)),
    Line("training step of a perceptron: on 1, 2 and 4 threads", "company",
         tuple(rf"mlp, alone, {n} threads?: (?P<who>[\w.]+) takes (?P<x>[\d.]+) times" for n in (1, 2, 4))),
    Line("training steps of seven networks", "models",
         (r"\d+ networks, training: (?P<x>[\d.]+) on the geometric mean",)),
    Line("fully connected layers: forward, data and weight gradient", "gemm", _means(*THREE)),
    Line("convolutions of five networks: forward, data and weight gradient", "conv", _means(*THREE)),
    Line("convolutions of other shapes: the same", "conv_shapes", _means(*THREE)),
    Line("pooling of these networks: forward, back", "pool", _means(*BOTH)),
    Line("batch normalization with relu: forward, back", "batchnorm", _means(*BOTH)),
    Line("LRN: forward, back", "lrn", _means(*BOTH)),
    Line("RNN, LSTM, GRU: forward, forward and back", "rnn", _means("fprop", r"fprop\+bprop")),
    Line("attention: forward, forward and back", "attention", _means("fprop", r"fprop\+bprop")),
    Line("training steps of variables, PyTorch eager: N >= 64, fewer", "autograd",
         tuple(rf"training steps, N {few} 64, geometric mean over \d+: (?P<who>\w+) takes (?P<x>[\d.]+) times"
               for few in (">=", "<"))),
)  # fmt: skip


def sections(text: str) -> dict[str, str]:
    """Sections of RESULTS.md by subject."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def ratios(line: Line, section: str) -> dict[str, list[str]]:
    """Peer -> how many times as long it takes, as written; a peer of no name is the faster of PyTorch's two ways.

    Raises
    ------
    ValueError
        The section does not have what the line is made of.
    """
    found: dict[str, list[str]] = {}
    for pattern in line.patterns:
        remarks = list(re.finditer(rf"^\* {pattern}", section, re.MULTILINE))
        if not remarks:
            raise ValueError(f"RESULTS.md, {line.section}: no remark like {pattern!r}")
        for remark in remarks:
            groups = remark.groupdict()
            who = groups.get("who") or "torch"
            found.setdefault("torch" if line.section in STEPS else who, []).append(groups["x"])
    return found


def recorded(found: dict[str, str]) -> list[Line]:
    """The lines whose sections are there; one that was not measured yet has none."""
    return [line for line in LINES if line.section in found]


def machine(found: dict[str, str]) -> str:
    """Where and when the sections were measured."""
    facts = [dict(re.findall(r"^\| (\w+) \| (.+?) \|$", found[line.section], re.MULTILINE)) for line in recorded(found)]
    days = sorted({fact["date"][:10] for fact in facts})
    processors = sorted({f"{fact['cores']} cores of an {fact['processor']}" for fact in facts})
    return f"{' and '.join(processors)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"


def table(text: str) -> list[str]:
    """The table in Markdown, of the text of RESULTS.md."""
    found = sections(text)
    lines = [
        f"Time others take, divided by the time neonlike takes, on {machine(found)}:",
        "geometric means; PyTorch in the faster of its two layouts, and in training steps the faster of it and",
        "torch.compile.",
        "",
        f"| | {' | '.join(PEERS.values())} |",
        "|---|" + "---|" * len(PEERS),
    ]
    for line in recorded(found):
        of = ratios(line, found[line.section])
        lines.append(f"| {line.text} | " + " | ".join(", ".join(of.get(who, [])) for who in PEERS) + " |")
    return lines


def page(readme: str, text: str) -> str:
    """``readme`` with the table of RESULTS.md's ``text`` between its marks.

    Raises
    ------
    ValueError
        There are no marks.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + "\n".join(["", *table(text), ""]) + "\n" + END + after


def bars(text: str) -> Iterator[list[tuple[str, float]]]:
    """(peer, ratio) of everything in the table, line by line."""
    found = sections(text)
    for line in recorded(found):
        of = ratios(line, found[line.section])
        yield [(who, float(value)) for who, values in of.items() for value in values]


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; the exit status is 1 if RESULTS.md lacks a figure."""
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table into README.md")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it (with matplotlib)")
    options = parser.parse_args(argv)
    text = RESULTS.read_text(encoding="utf-8")
    try:
        made = table(text)
        if options.write:
            README.write_text(page(README.read_text(encoding="utf-8"), text), encoding="utf-8")
    except (ValueError, KeyError) as why:
        print(why, file=sys.stderr)
        return 1
    if options.picture:
        _pictures.draw_bars([line.text for line in recorded(sections(text))], bars(text), PEERS, options.picture)
    if not options.write:
        print("\n".join(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
