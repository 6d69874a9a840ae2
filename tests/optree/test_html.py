"""Notebook views of tensors, expressions, variables and dynamic graphs."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd.dynamic import commands
from neonlike.errors import BackendUnavailable
from neonlike.optree import html

pytestmark = pytest.mark.engines("numpy")


class Reader(HTMLParser):
    """Text of a page, and the cells of its rows; tags must close in order, and none may be unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "b", "i", "table", "tr", "td", "th", "details", "summary", "ul", "li")
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def read(shown: Any) -> tuple[str, list[list[str]]]:
    page = Reader()
    page.feed(shown._repr_html_())
    page.close()
    assert page.open == []
    return " ".join("".join(page.texts).split()), page.rows


def test_a_tensor_shows_its_corner(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(300.0).reshape(20, 15) / 4
    tensor = be.array(values, name="<script>&")
    copied: list[int] = []
    get = type(tensor).get
    monkeypatch.setattr(type(tensor), "get", lambda self, *more: copied.append(self.size) or get(self, *more))
    shown, rows = read(tensor)
    assert copied == [html.EDGE**2]
    assert f"<script>& 20 × 15, float32, on {be.backend_name}" in shown
    assert rows[1] == ["3.75", "4", "4.25", "4.5", "4.75", "…"] and len(rows) == 6 and set(rows[5]) == {"…"}
    assert read(be.array(values[:2, :3]))[1] == [["0", "0.25", "0.5"], ["3.75", "4", "4.25"]]
    shown, rows = read(be.array(np.arange(24).reshape(2, 3, 2, 2), dtype=np.int32))
    assert "[0, 0, :, :]" in shown and rows == [["0", "1"], ["2", "3"]]


def test_an_expression_shows_its_ops(be: Any) -> None:
    a = be.array([[1.0, 2.0]], name="a")
    twice = a * 2
    shown, rows = read(be.tanh(twice + twice))
    assert shown.startswith("expression 1 × 2, float32") and "not computed" in shown and rows == []
    assert shown.count("mul 1 × 2") == 2 and shown.count("(as above)") == 1 and shown.count("a 1 × 2 float32") == 1
    long = a
    for _ in range(2 * html.MOST_LINES):
        long = long + 1
    assert read(long)[0].endswith("…")
    assert "any shape" in read(be.rand())[0]


def test_a_variable_shows_its_op_and_whether_it_needs_a_gradient(be: Any) -> None:
    w = ag.param([[1.0, 2.0]], name="w<1>")
    x = ag.const([[3.0, 4.0]])
    loss = (w * x).sum()
    shown, rows = read(loss)
    assert "Variable sum, 1 × 1, float32" in shown and "needs a gradient" in shown and "not computed yet" in shown
    assert "parameter w<1> 1 × 2 float32" in shown and "constant 1 × 2 float32, no gradient" in shown and rows == []
    loss.backprop()
    assert read(loss)[1] == [["11"]]
    assert "has a gradient" in read(w)[0] and read(w)[1] == [["1", "2"]] and "no gradient" in read(x)[0]
    double = w * 2
    w.free()
    assert read(w)[0] == "Variable w<1> input, freed" and "input freed" in read(double)[0]


def test_a_graph_shows_what_was_run(be: Any) -> None:
    with be.dynamic_graph() as g:
        x, empty = g.variable(value=[[1.0, 2.0]], name="x"), g.variable(name="later")
        c = g.constant(value=[[2.0, 2.0]], name="c")
        y = g.exec(commands.ewise("mul"), [x, c])
        total = g.exec(commands.sum_of(axis=1), [y])
        shown, rows = read(g)
        assert "DynamicGraph 5 values" in shown and rows[0] == ["value", "command", "of"]
        of = {row[0].split()[0]: row[1:] for row in rows[1:]}
        assert of["x"] == ["", ""] and of["c"] == ["constant", ""] and of[y.name] == ["mul", "x, c"]
        assert of[total.name][1] == y.name and "axis=1" in of[total.name][0]
        order = [row[0].split()[0] for row in rows[1:]]
        assert order.index("x") < order.index(y.name) < order.index(total.name)
        assert "nothing was written to it yet" in read(empty)[0] and "not computed yet" in read(y)[0]
        assert "alias" in read(g.alias(x, (0, 1), (1, 1)))[0] and read(x)[1] == [["1", "2"]]
        y.free()
        assert read(y)[0] == f"TensorVariable {y.name} freed"
    assert read(g)[0] == "DynamicGraph closed" and read(total)[0].endswith("freed")


def test_what_cannot_be_read_says_so(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = be.ones((2, 2))

    def lost(self: Any, *more: Any) -> Any:
        raise BackendUnavailable("get: <this> backend was closed")

    monkeypatch.setattr(type(tensor), "get", lost)
    for shown in (tensor, ag.const(tensor)):
        text, rows = read(shown)
        assert "2 × 2" in text and "its values cannot be read: get: <this> backend was closed" in text and rows == []
