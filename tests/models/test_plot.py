"""The network as a table, as a graph, and as text."""

from __future__ import annotations

import pickle
import re
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from neonlike.errors import ArgumentError, MissingExtra, NeonlikeError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, BranchNode, Conv, Linear, MergeSum, SingleOutputTree, SkipNode
from neonlike.markup import Explanation
from neonlike.models import Model, graph
from neonlike.transforms import Rectlin, Softmax
from tests.report.reader import Page

INIT = GlorotUniform()


@pytest.fixture
def model(be: Any) -> Model:
    be.bsz = 4
    made = Model([
        Conv((3, 3, 4), init=INIT, bias=Constant(0), activation=Rectlin(), padding=1, name="first"),
        Affine(3, INIT, bias=Constant(0), activation=Softmax(), name='last "<b>"'),
    ])  # fmt: skip
    made.initialize((2, 8, 8))
    return made


def edges(dot: str) -> set[tuple[str, str]]:
    """Pairs of the first lines of labels."""
    names = dict(re.findall(r'^(n\d+) \[label="([^"\\]*)', dot, re.MULTILINE))
    return {(names[a], names[b]) for a, b in re.findall(r"^(n\d+) -> (n\d+)$", dot, re.MULTILINE)}


class TestExplanation:
    """Strings that notebooks show as HTML."""

    def test_it_is_the_text_as_ever(self, model: Model) -> None:
        text = model.explain()
        assert isinstance(text, str) and text == str(text) and text != 1
        assert text.startswith("Sequential") and "2x8x8 -> 4x8x8" in text

    def test_its_html_has_each_layer(self, model: Model) -> None:
        html = model.explain()._repr_html_()
        page = Page(html)
        assert page.faults == [] and "<b>" not in html
        (table,) = page.tables
        assert table[0] == ["layer", "kind", "input", "output", "parameters", "computed"]
        assert [row[0].strip() for row in table[2:4]] == ["first", "first_Rectlin"]
        assert sum(int(row[4].replace(",", "")) for row in table[1:]) == sum(
            parameter.value.size for parameter in model.parameters()
        )

    def test_of_an_expression(self, be: Any) -> None:
        a = be.ones((4, 4))
        text = be.explain(be.exp(a - be.max(a, axis=1)))
        page = Page(text._repr_html_())
        assert page.faults == [] and page.tables[0][0][:3] == ["stage", "over", "why"]
        assert [row[-1] for row in page.tables[0][1:]] == ["not timed"] * (len(page.tables[0]) - 1)
        assert ("#include" in text) == ("#include" in re.sub("<[^>]*>", "", text._repr_html_()))

    def test_source_is_escaped_without_pygments(self, be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        a = be.ones((4, 4))
        coloured = be.explain(be.sig(a) + a)._repr_html_()
        monkeypatch.setitem(sys.modules, "pygments", None)
        plain = be.explain(be.sig(a) + a)._repr_html_()
        assert Page(plain).faults == []
        if "<pre" in plain:
            assert "<span" in coloured and "<span" not in plain and "&lt;" in plain

    def test_it_can_be_pickled(self, model: Model) -> None:
        text = model.explain()
        again = pickle.loads(pickle.dumps(text))
        assert again == text and again._repr_html_() == text._repr_html_()
        assert Explanation("a < b")._repr_html_() == "<pre>a &lt; b</pre>"


class TestGraph:
    """The graph in the DOT language."""

    def test_a_chain_with_frames(self, model: Model) -> None:
        dot = graph.dot_text(model.layers)
        assert ("input", "first") in edges(dot) and ("first", "first_Rectlin") in edges(dot)
        assert dot.count(" -> n") == 1 + len(list(model.layers.layers_fprop()))
        assert dot.count("label=\"one call\"") == 2 and '\\"<b>\\"' in dot and "2x8x8 → 4x8x8" in dot

    def test_branches(self, be: Any) -> None:
        be.bsz = 4
        node = BranchNode("middle")
        merged = MergeSum([[Linear(6, INIT, name="b")], SkipNode(name="skip")])
        trunk = [Linear(6, INIT, name="a"), node, merged, Linear(2, INIT, name="c")]
        made = Model(SingleOutputTree([trunk, [node, Linear(2, INIT, name="d")]]))
        made.initialize((5,))
        found = edges(graph.dot_text(made.layers))
        assert {("a", "b"), ("a", "skip"), ("b", "MergeSum"), ("skip", "MergeSum"), ("MergeSum", "c"), ("a", "d"),
                ("c", "output"), ("d", "output"), ("input", "a")} == found  # fmt: skip

    def test_before_the_shapes_are_known(self, be: Any) -> None:
        with pytest.raises(ArgumentError, match="initialize"):
            Model([Linear(2, INIT)]).plot()


def script(code: str) -> str:
    """A program that runs Python code; the path of Python may have spaces, which a first line could not name."""
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n'


class TestPlot:
    """``model.plot``."""

    @pytest.fixture
    def dot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A stand-in for Graphviz's program, the only program there is; it notes its input."""
        program = tmp_path / "bin" / "dot"
        program.parent.mkdir()
        program.write_text(script(
            f'import sys\nopen({str(tmp_path / "given")!r}, "wb").write(sys.stdin.buffer.read())\n'
            'print("<?xml?><svg><title>t</title></svg>" if sys.argv[1] == "-Tsvg" else sys.argv[1])\n'
        ))  # fmt: skip
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(program.parent))
        return tmp_path / "given"

    def test_with_graphviz(self, model: Model, dot: Path, tmp_path: Path) -> None:
        made = model.plot(tmp_path / "new" / "net.png")
        assert (tmp_path / "new" / "net.png").read_text().strip() == "-Tpng"
        assert dot.read_text(encoding="utf-8") == graph.dot_text(model.layers)
        assert made == model.explain() and "<svg>" in made._repr_html_() and "<?xml" not in made._repr_html_()

    def test_without_graphviz(self, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert model.plot() == model.explain() and "<table>" in model.plot()._repr_html_()
        with pytest.raises(MissingExtra, match="Graphviz"):
            model.plot(tmp_path / "net.svg")
        assert not (tmp_path / "net.svg").exists()
        model.plot(tmp_path / "net.dot")
        assert (tmp_path / "net.dot").read_text(encoding="utf-8") == graph.dot_text(model.layers)

    def test_graphviz_fails(self, model: Model, dot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (Path(shutil.which("dot") or "")).write_text(script("raise SystemExit('broken')"))
        with pytest.raises(NeonlikeError, match="broken"):
            model.plot()

    def test_another_kind_of_file(self, model: Model) -> None:
        with pytest.raises(ArgumentError, match=r"net\.txt.*\.svg"):
            model.plot("net.txt")
