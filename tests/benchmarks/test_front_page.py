"""The README's figures of speed are those that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.modules import FOLDER, bench  # noqa: F401


@pytest.fixture
def front(bench: Any) -> Any:
    """The script."""
    return bench.front_page


def test_the_readme_shows_what_was_recorded(front: Any) -> None:
    readme = front.README.read_text(encoding="utf-8")
    assert readme == front.page(readme, front.RESULTS.read_text(encoding="utf-8")), "run: make docs"


def test_another_figure_changes_the_table(front: Any) -> None:
    text = front.RESULTS.read_text(encoding="utf-8")
    section = front.sections(text)["lrn"]
    (lrn,) = (line for line in front.LINES if line.section == "lrn")
    (before, _) = front.ratios(lrn, section)["torch"]
    changed = text.replace(section, section.replace(f"PyTorch takes {before} times", "PyTorch takes 99.50 times"))
    assert front.table(changed) != front.table(text)
    assert any("| 99.50, " in line for line in front.table(changed))
    with pytest.raises(ValueError, match=r"RESULTS.md, lrn: no remark like 'fprop"):
        front.table(text.replace(section, section.replace("PyTorch takes", "PyTorch took")))
    with pytest.raises(ValueError, match=r"README.md has no <!-- speed"):
        front.page("# a page without marks\n", text)


def test_a_section_that_is_not_recorded_has_no_line(front: Any) -> None:
    assert all((FOLDER / f"{line.section}.py").exists() for line in front.LINES)
    text = front.RESULTS.read_text(encoding="utf-8")
    short = text.replace(f"## lrn{front.sections(text)['lrn']}", "")
    (gone,) = set(front.table(text)) - set(front.table(short))
    assert gone.startswith("| LRN: forward, back |")
    assert len(list(front.bars(short))) == len(list(front.bars(text))) - 1


def test_steps_of_variables_have_a_line(front: Any) -> None:
    (line,) = (line for line in front.LINES if line.section == "autograd")
    words = ("N >= 64, geometric mean over 10: torch takes 1.30", "N >= 64, geometric mean over 10: jax takes 0.90",
             "N < 64, geometric mean over 6: torch takes 1.10", "N < 64, geometric mean over 6: jax takes 0.80")
    section = "".join(f"* training steps, {each} times as long\n" for each in words)
    assert front.ratios(line, section) == {"torch": ["1.30", "1.10"], "jax": ["0.90", "0.80"]}


def test_it_prints_writes_and_draws(
    front: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front.main([]) == 0
    assert "| fourteen fused expressions, 16M elements | " in capsys.readouterr().out
    page = tmp_path / "README.md"
    page.write_text(f"before\n{front.BEGIN}old\n{front.END}after\n")
    monkeypatch.setattr(front, "README", page)
    assert front.main(["--write"]) == 0
    assert page.read_text().startswith(f"before\n{front.BEGIN}\nTime others take")
    assert page.read_text().endswith("after\n")
    monkeypatch.setattr(front, "RESULTS", tmp_path / "RESULTS.md")
    front.RESULTS.write_text("# Results\n\n## expressions\n\nnothing yet\n")
    assert front.main(["--write"]) == 1
    assert capsys.readouterr().err
    drawn = sum(len(here) for here in front.bars((FOLDER / "RESULTS.md").read_text(encoding="utf-8")))
    assert drawn > 20
