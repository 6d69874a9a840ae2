"""Links in the pages' text lead to the same files in the site, and broken links in built pages are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitebuilder import backlinks, html, layout
from sitebuilder.links import BrokenLink, Links


@pytest.mark.parametrize(
    ("text", "base", "page", "turned"),
    [
        ("[a](tensors.md#reading)", "docs/tour.md", "tour", "[a](tensors.md#reading)"),
        ("[a](../CONTRIBUTING.md#adding-an-op)", "docs/ops.md", "ops", "[a](contributing.md#adding-an-op)"),
        ("[a](docs/gpu.md)", "CONTRIBUTING.md", "contributing", "[a](gpu.md)"),
        ("[a](../docs/bench.md)", "benchmarks/README.md", "performance/method", "[a](../bench.md)"),
        ("[a](../benchmarks/RESULTS.md)", "docs/kernels.md", "kernels", "[a](performance/index.md)"),
        ("[a](../benchmarks/RESULTS.md#scaling)", "docs/gpu.md", "gpu", "[a](performance/scaling.md)"),
        ("[`a`](../examples/digits_mlp.py) b", "docs/gpu.md", "gpu", "[`a`](gallery/digits_mlp.md) b"),
        ("[a](../neonlike/errors.py)", "docs/gpu.md", "gpu", "[a](source/neonlike/errors_py.md)"),
        ("[docs/gpu.md](docs/gpu.md)", "README.md", "readme", "[](gpu.md)"),
        ("![a b](speed.png)", "docs/gpu.md", "gpu", "![a b](files/docs/speed.png)"),
        ("[![a](speed.png)](gpu.md)", "docs/gpu.md", "gpu", "[![a](files/docs/speed.png)](gpu.md)"),
        ("[a](#here) [b](https://example.org/c.md)", "docs/gpu.md", "gpu", "[a](#here) [b](https://example.org/c.md)"),
        ("`[a](gone.md)` ``b ` [a](gone.md)``", "docs/gpu.md", "gpu", "`[a](gone.md)` ``b ` [a](gone.md)``"),
        ("```\n[a](gone.md)\n```\n", "docs/gpu.md", "gpu", "```\n[a](gone.md)\n```\n"),
    ],
)
def test_links_are_turned(text: str, base: str, page: str, turned: str) -> None:
    assert Links().turned(text, base, page) == turned


@pytest.mark.parametrize("target", ["gone.md", "../neonlike/gone.py", "../../elsewhere.md", "../neonlike/kernels"])
def test_a_link_to_what_is_not_there_is_refused(target: str) -> None:
    with pytest.raises(BrokenLink, match=r"docs/gpu\.md"):
        Links().turned(f"[a]({target})", "docs/gpu.md", "gpu")


def test_files_that_pages_link_to_are_kept() -> None:
    links = Links()
    links.turned("[a](../neonlike/errors.py) ![b](speed.png) [c](tour.md)", "docs/gpu.md", "gpu")
    assert links.sources == {"neonlike/errors.py"}
    assert links.pictures == {"docs/speed.png"}


def test_no_page_is_in_two_chapters() -> None:
    pages = [page for chapter in layout.CHAPTERS for page in chapter.pages]
    assert len(pages) == len(set(pages)) > 20
    assert layout.LAST in {chapter.title for chapter in layout.CHAPTERS}


GOOD = """<html><body><h1 id="top">A</h1><a href="#top">a</a> <a href="#">b</a> <a href="b.html#part%20two">c</a>
<a href="https://example.org">d</a> <a href="mailto:a@example.org">e</a> <img src="data:image/png;base64,AA==">
<link rel="canonical" href="https://example.org/a.html"><script src="s.js?v=1"></script><a href="sub/">f</a>
</body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A built site without faults."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<p id="part two">x</p>')
    (tmp_path / "sub" / "index.html").write_text('<a href="../a.html#top">x</a>')
    (tmp_path / "s.js").write_text("")
    (tmp_path / "s.css").write_text("a { background: url(x.png) } /* https://example.org */")
    return tmp_path


def test_a_good_site_has_no_faults(site: Path) -> None:
    assert html.faults(site) == []


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ('<a href="gone.html">x</a>', "sub/index.html:2: gone.html does not exist"),
        ('<a href="../b.html#part-two">x</a>', "sub/index.html:2: ../b.html#part-two has no such anchor"),
        ('<a href="#gone">x</a>', "sub/index.html:2: #gone has no such anchor"),
        ('<img src="gone.png">', "sub/index.html:2: gone.png does not exist"),
        ('<script src="https://example.org/s.js"></script>', "sub/index.html:2: loads https://example.org/s.js from"),
        ('<link rel="stylesheet" href="//example.org/s.css">', "sub/index.html:2: loads //example.org/s.css from"),
    ],
)
def test_a_planted_fault_is_found(site: Path, planted: str, fault: str) -> None:
    page = site / "sub" / "index.html"
    page.write_text(f"{page.read_text()}\n{planted}")
    (found,) = html.faults(site)
    assert found.startswith(fault)


@pytest.mark.parametrize("rule", ["@import 'https://example.org/f.css';", "a { src: url( \"//example.org/f.woff2\") }"])
def test_a_style_from_elsewhere_is_found(site: Path, rule: str) -> None:
    (site / "sub" / "t.css").write_text(rule)
    (found,) = html.faults(site)
    assert found.startswith("sub/t.css: loads ") and "example.org" in found


def test_links_from_source_lead_to_the_names_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "_modules").mkdir()
    (tmp_path / "api.html").write_text('<dt id="pack.inner.f">f</dt><dt class="sig" id="pack.C.m">m</dt>')
    back = '<a class="viewcode-back" href="../api.html#pack.{}">[docs]</a>'
    link = '<div class="viewcode-block" id="{}">\n' + back + 'x</div>\n'
    source = tmp_path / "_modules" / "m.html"
    source.write_text("".join(link.format(name, name) for name in ("f", "C.m", "gone")))
    assert len(html.faults(tmp_path)) == 2
    backlinks.correct(tmp_path)
    assert html.faults(tmp_path) == []
    assert '#pack.inner.f"' in source.read_text() and '#pack.C.m"' in source.read_text()
