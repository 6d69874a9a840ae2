"""Pages of the reference: docstrings as reStructuredText, first sentences, public base classes."""

from __future__ import annotations

from typing import Any

import pytest
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.utils import new_document

from neonlike.errors import ShapeError
from neonlike.layers import Convolution
from neonlike.layers.layer import ParameterLayer
from sitebuilder import docstrings, reference


@pytest.mark.parametrize(
    ("line", "turned"),
    [
        ("see docs/gpu.md.", "see :doc:`docs/gpu.md </gpu>`."),
        ("(docs/gpu.md#attention)", "(:doc:`docs/gpu.md </gpu>`)"),
        ("docs/gone.md, other/docs/gpu.md", "docs/gone.md, other/docs/gpu.md"),
        ("``docs/gpu.md``", "``docs/gpu.md``"),
        (">>> f('docs/gpu.md', |a|)", ">>> f('docs/gpu.md', |a|)"),
        ("|a| or ``|b|``, c | d", "\\|a| or ``|b|``, c | d"),
    ],
)
def test_a_line_of_a_docstring(line: str, turned: str) -> None:
    lines = [line]
    docstrings.with_links(None, "", "", None, None, lines)
    assert lines == [turned]


def test_defaults_that_are_classes_are_short() -> None:
    given = "(dtype: Any = <class 'numpy.float32'>, kind: type = <class 'a.B'>)"
    found = docstrings.with_short_defaults(None, "", "", None, None, given, "int")
    assert found == ("(dtype: Any = float32, kind: type = a.B)", "int")
    assert docstrings.with_short_defaults(None, "", "", None, None, None, None) is None


@pytest.mark.parametrize(
    ("cls", "named"), [(Convolution, [ParameterLayer]), (ShapeError, list(ShapeError.__bases__)), (object, [object])]
)
def test_base_classes_are_public(cls: type, named: list[type]) -> None:
    bases: list[Any] = list(cls.__bases__)
    docstrings.with_public_bases(None, "", cls, None, bases)
    assert bases == named


def test_a_separator_is_a_dash() -> None:
    document = new_document("", get_default_settings(Parser))
    Parser().parse("*a* -- *b*\n\nfrom --x -- on", document)
    docstrings.with_dashes(None, document)
    assert document.astext() == "a – b\n\nfrom --x -- on"


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Sums a. And b.\n\nMore.", "Sums a."),
        ("Sums ``a. b``, all\nof it: yes! No.", "Sums ``a. b``, all of it: yes!"),
        ("Sums e.g.", "Sums e.g."),
        (None, ""),
    ],
)
def test_first_sentences(docstring: str | None, sentence: str) -> None:
    def function() -> None: ...

    function.__doc__ = docstring
    assert reference.first_sentence(function) == sentence


def test_no_page_is_written_twice() -> None:
    names = [name for name, _ in reference.pages()]
    assert len(names) == len(set(names)) > 25


def test_methods_lead_to_the_section_with_their_formulas() -> None:
    """The first section that names a method; an argument, as ``relu``, is none."""
    found = reference.sections_of_formulas()
    assert found["fprop_conv"] == found["conv"] == "Convolution" and found["deconv_layer"] == "Transposed convolution"
    assert found["compound_gru_unroll_bprop"] == "GRU" and "relu" not in found
    text = dict(reference.pages())["api/be_sequences"]
    assert "Formulas: `LSTM <../formulas.html#lstm>`__, `GRU <../formulas.html#gru>`__." in text
