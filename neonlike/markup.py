"""HTML of tables and source code, for notebooks and pages: escaped, and readable by a screen reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

CELL = "padding:2px 8px;text-align:left;vertical-align:top;border-bottom:1px solid #8886"
CODE = "background:#f6f8fa;color:#1f2328;padding:8px;overflow:auto;max-height:30em"
"""Style of source code: on a light ground in dark notebooks too, since its colours are chosen for that."""


class Heading(NamedTuple):
    """A heading of an explanation."""

    text: str

    def html(self) -> str:
        """The heading as HTML."""
        return f"<h4>{escape(self.text)}</h4>"


class Table(NamedTuple):
    """A table of texts with a caption; the first cell of a row is its heading."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def html(self) -> str:
        """The table as HTML."""
        return table(self.caption, self.columns, self.rows, CELL)


class Source(NamedTuple):
    """Source code that is shown when its title is opened."""

    title: str
    code: str
    language: str

    def html(self) -> str:
        """The code as HTML, highlighted if Pygments is installed."""
        code = highlighted(self.code, self.language)
        return f"<details><summary>{escape(self.title)}</summary><pre style='{CODE}'>{code}</pre></details>"


class Picture(NamedTuple):
    """An SVG image with a text for those who do not see it."""

    svg: str
    alt: str

    def html(self) -> str:
        """The image as HTML."""
        start = self.svg.find("<svg")
        return f'<figure role="img" aria-label="{escape(self.alt)}">{self.svg[max(start, 0) :]}</figure>'


Block = Heading | Table | Source | Picture


class Explanation(str):
    """Text that notebooks show as HTML; everywhere else it is an ordinary string.

    Parameters
    ----------
    text : str
    blocks : sequence of Heading, Table, Source and Picture
        The contents of the HTML; without any, it is the text.
    """

    blocks: tuple[Block, ...]

    def __new__(cls, text: str = "", blocks: Iterable[Block] = ()) -> Explanation:
        made = super().__new__(cls, text)
        made.blocks = tuple(blocks)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:  # type: ignore[override]
        return str(self), self.blocks

    def _repr_html_(self) -> str:
        if not self.blocks:
            return f"<pre>{escape(self)}</pre>"
        return f"<div>{''.join(block.html() for block in self.blocks)}</div>"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """Build an HTML table, whose head and first column are headings for screen readers.

    Parameters
    ----------
    caption : str
    columns : sequence of str
        Titles of the columns.
    rows : iterable of sequences of str
        Texts of the cells.
    style : str
        CSS of each cell.
    """
    given = f' style="{style}"' if style else ""
    head = "".join(f'<th scope="col"{given}>{escape(title)}</th>' for title in columns)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td{given}>{escape(cell)}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row"{given}>{escape(first)}</th>{cells}</tr>')
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def highlighted(code: str, language: str) -> str:
    """Escape source code, with its words coloured if Pygments is installed."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name
    except ImportError:
        return escape(code)
    formatter = HtmlFormatter(nowrap=True, noclasses=True)
    coloured: str = highlight(code, get_lexer_by_name(language), formatter)
    return coloured


STYLE = """\
:root { color-scheme: light dark; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --ground: #fff; --raised: #f6f8fa;
  --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #cf222e; --c5: #57606a; --c6: #9a6700;
  --c7: #bf3989 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; --ground: #0d1117; --raised: #151b23;
    --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #ff7b72; --c5: #b1bac4; --c6: #d29922;
    --c7: #f778ba } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2rem) 3rem; max-width: 80rem; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0.5rem 0; overflow-wrap: anywhere }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; padding-top: 0.6rem; border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin: 1.2rem 0 0.4rem; overflow-wrap: anywhere }
p { max-width: 50rem }
a { color: var(--c0) }
code, pre { font: 0.86em/1.45 ui-monospace, SFMono-Regular, Consolas, "Liberation Mono", monospace;
  overflow-wrap: anywhere }
.wide { overflow-x: auto; max-width: 100% }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--faint); padding: 0.2rem 0 }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.7rem 0.2rem 0; border-bottom: 1px solid var(--line) }
thead th { border-bottom: 2px solid var(--line); white-space: nowrap }
tbody th { font-weight: 500 }
details { margin: 0.4rem 0 }
summary { cursor: pointer; color: var(--faint) }
:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px }
.note { color: var(--faint); border-left: 3px solid var(--line); padding: 0.1rem 0 0.1rem 0.8rem }
@media print {
  :root { --ink: #000; --faint: #444; --line: #bbb; --ground: #fff; --raised: #fff; --c0: #0969da; --c1: #bc4c00;
    --c2: #1a7f37; --c3: #8250df; --c4: #cf222e; --c5: #57606a; --c6: #9a6700; --c7: #bf3989 }
  body { max-width: none; padding: 0; font-size: 10pt }
  nav, details:not([open]) { display: none }
  figure, tr { break-inside: avoid }
  h2, h3 { break-after: avoid }
  thead th { white-space: normal }
  table { font-size: 7.5pt }
  .wide { overflow: visible } }
"""
"""CSS of pages: light and dark as the reader's system is, black on white on paper; ``--c0`` to ``--c7`` draw curves."""


def page(title: str, body: str, lines: Iterable[str] = (), style: str = "", script: str = "") -> str:
    """Build the text of a page that needs no other file.

    Parameters
    ----------
    title : str
    body : str
        HTML below the title.
    lines : iterable of str
        Texts below the body, a paragraph each.
    style, script : str
        CSS in addition to ``STYLE``, and JavaScript.
    """
    below = "".join(f"<p>{escape(line)}</p>" for line in lines)
    run = f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n'
        f"<body><main><h1>{escape(title)}</h1>\n{body}{below}</main>{run}</body></html>\n"
    )
