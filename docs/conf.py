"""Configuration of Sphinx. ``make docs`` runs it on the folder that ``sitebuilder`` has written.

The theme is furo: it works on narrow screens and without JavaScript, follows the reader's choice of light or dark,
loads nothing from elsewhere, and is one small package; the PyData theme would bring Bootstrap and fonts of icons for
the same pages.
"""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from neonlike.version import __version__  # noqa: E402
from sitebuilder import formulas, navigation  # noqa: E402
from sitebuilder.docstrings import with_dashes, with_links, with_public_bases, with_short_defaults  # noqa: E402
from sitebuilder.names import Names  # noqa: E402

project = "neonlike"
author = "the authors of neonlike"
copyright = author
version = release = __version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
default_role = "code"
smartquotes = False  # "--help" is no dash

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_update_mathjax = False
myst_heading_anchors = 6
myst_links_external_new_tab = False

# Signatures with the annotations as they are in the source, a parameter a line where they are long.
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries = False  # each page begins with a table of its names; entries in every menu would triple the time

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
suppress_warnings = ["ref.python"]  # words such as "size" in the types of parameters are names of several things

html_theme = "furo"
html_math_renderer = formulas.RENDERER
html_title = f"neonlike {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # a browser fetches no page for it where the site is a folder of files
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: Any) -> None:
    """Have formulas drawn, menus made quickly, docstrings link to pages that they name, other details set."""
    formulas.connect(app)
    navigation.connect(app)
    app.add_domain(Names, override=True)
    app.connect("autodoc-process-docstring", with_links)
    app.connect("autodoc-process-signature", with_short_defaults)
    app.connect("autodoc-process-bases", with_public_bases)
    app.connect("doctree-read", with_dashes)
