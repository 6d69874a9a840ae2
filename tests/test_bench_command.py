"""The command `neonlike bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from neonlike import bench_command
from neonlike.__main__ import main
from tests import ROOT
from tests.report.reader import Page

SCRIPT = """
import sys
from neonlike.backends import gen_backend
be = gen_backend("cpu", rng_seed=0)
a, out = be.ones((64, 64)), be.empty((64, 64))
for _ in range(3):
    out[:] = be.sig(be.dot(a, a) + 1)
print("arguments:", sys.argv[1:])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

pytestmark = pytest.mark.cpu_only("runs programs of its own, on the CPU")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "neonlike", "bench", *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=variables)


def test_the_table_the_files_and_the_status(script: Path, tmp_path: Path) -> None:
    """One run shows all: the table in the output, a page, a trace, the script's arguments and its status."""
    done = run("-o", tmp_path / "table.html", "--trace", tmp_path / "step.json", script, 3, "-o", "mine")
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "arguments: ['3', '-o', 'mine']"
    assert lines[1].startswith("kernel ") and "% of gemm" in done.stdout and "memory copy" in lines[-1]
    assert done.stdout.count("memory copy") == 1 and "memory copy" not in done.stderr, "shown once"
    page = Page((tmp_path / "table.html").read_text(encoding="utf-8"))
    assert page.faults == [] and page.tables[0][0][0] == "kernel"
    calls = [event for event in json.loads((tmp_path / "step.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(calls) >= 6 and f"{len(calls)} calls" in done.stderr


def test_the_table_of_a_script_that_fails_is_shown(script: Path) -> None:
    script.write_text(SCRIPT.replace("print(", "raise ValueError('mine')\nprint("))
    done = run(script)
    assert done.returncode == 1 and "memory copy" in done.stdout and "ValueError: mine" in done.stderr


def test_a_script_without_kernels(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("x = 1\n")
    monkeypatch.setattr(sys, "argv", ["neonlike"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["bench", str(script)]) == 1
    assert "no kernel was timed" in capsys.readouterr().err


def test_the_page_is_opened(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "argv", ["neonlike"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    script.write_text(SCRIPT.replace("sys.exit(", "("))
    assert main(["bench", "--open", str(script)]) == 0
    assert len(opened) == 1 and opened[0].startswith("file://") and opened[0].endswith("kernels.html")
    assert "Kernels in bench mode" in Path(opened[0].removeprefix("file://")).read_text(encoding="utf-8")
    assert "kernels.html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "table.png"], "says no format"),
        (["-o", "nowhere/table.html"], "there is no folder"),
        (["--trace", "nowhere/x.json"], "there is no folder"),
        (["--open", "-o", "table.csv"], "end it in .html"),
    ],
)
def test_unusable_options(
    arguments: list[str], message: str, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(script.parent)
    monkeypatch.setattr(bench_command.scripts, "run", lambda options: pytest.fail("it was run"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["bench", *arguments, str(script)]) == 1
    assert message in capsys.readouterr().err


def test_no_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit):
        main(["bench", "gone.py"])
    assert "bench: there is no script gone.py" in capsys.readouterr().err
