"""The builder of the documentation site: ``make docs``, or ``PYTHONPATH=docs python -m sitebuilder``.

``staging`` writes the sources of the site into a folder: the pages of ``docs``, with their links turned to where each
file is in the site, and the pages made of the code: the reference of the public names, the gallery of the examples, the
measurements. Sphinx makes HTML of them, and ``html`` checks its links.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
DOCS = ROOT / "docs"
