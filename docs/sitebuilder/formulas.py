"""Formulas of the pages as MathML, which browsers draw by themselves: no script, no font, nothing from elsewhere.

docutils converts them; a formula that it cannot read is a warning of Sphinx, which ends the build. In Markdown they are
blocks marked ``math`` and ``$...$`` within lines, as code hosts read them.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

RENDERER = "mathml"
"""The value of ``html_math_renderer`` in conf.py."""
logger = logging.getLogger(__name__)


class UnreadableFormula(ValueError):
    """A formula has a mistake, or a command that the converter does not know."""


def mathml(formula: str, as_block: bool = False) -> str:
    """Convert a formula from LaTeX to MathML.

    Parameters
    ----------
    formula : str
        LaTeX without dollar signs.
    as_block : bool
        Whether it stands in a paragraph of its own.

    Raises
    ------
    UnreadableFormula
        If it is empty, its braces do not match, or it has something unknown.
    """
    text = formula.strip()
    if not text:
        raise UnreadableFormula("the formula is empty; write one between the marks")
    if (left_open := _open_braces(text)) > 0:
        raise UnreadableFormula(f"the formula opens braces that it does not close, {left_open}: {text}")
    try:
        return str(tex2mathml(text, as_block=as_block))
    except (MathError, SyntaxError, IndexError) as error:
        raise UnreadableFormula(f"the formula cannot be converted to MathML, {error} In: {text}") from None


def _open_braces(text: str) -> int:
    """The number of braces that are open at the end."""
    bare = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return bare.count("{") - bare.count("}")


def connect(app: Any) -> None:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer(RENDERER, inline_renderers=(_inline, None), block_renderers=(_block, None))


def _inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(_converted(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.Element) -> None:
    """Write a formula into a block that scrolls by itself, with the keyboard too."""
    found = _converted(node, as_block=True)
    translator.body.append(f'<div class="math" tabindex="0" role="group" aria-label="formula">{found}</div>\n')
    raise nodes.SkipNode


def _converted(node: nodes.Element, as_block: bool) -> str:
    try:
        return mathml(node.astext(), as_block)
    except UnreadableFormula as error:
        logger.warning(str(error), location=node)
        return ""
