"""Parts that all sections of a report are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neonlike.report.run import Run


def note(text: str) -> str:
    """A remark, such as how to get what is missing."""
    return f'<p class="note">{escape(text)}</p>'


def scrolled(table: str, label: str) -> str:
    """A table that scrolls sideways on narrow screens, by the keyboard too."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def chart_with_table(title: str, svg: str, table: str) -> str:
    """A chart with its title, and its numbers in a table below, closed at first."""
    named = escape(title)
    return (
        f"<figure><figcaption>{named}</figcaption>{svg}"
        f"<details><summary>Numbers of this chart</summary>{scrolled(table, f'{title}, numbers')}</details></figure>"
    )


def of_run(runs: Sequence[Run], run: Run, content: str) -> str:
    """The contents of a section about one run; its name stands above if there are several."""
    return content if len(runs) == 1 else f"<h3>{escape(run.name)}</h3>{content}"
