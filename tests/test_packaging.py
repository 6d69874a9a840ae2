"""The build files: facts that are pinned, extras, targets; and the README's own examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike.version import __version__
from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings on Python 3.10

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_USERS = {"gpu", "mpi", "viz", "data", "demo", "bfloat16", "onnx", "safetensors", "tensorboard"}
"""Extras with which programs can do more."""
FOR_DEVELOPERS = {
    "all", "bench", "bench-peers", "bench-torch", "cuda-headers", "cuda-nvrtc", "cuda-sass", "dev", "docs", "gpu-test",
    "notebooks", "test", "test-peers",
}  # fmt: skip
"""Extras for work on the library itself, and ``all``."""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


class TestBuildFiles:
    def test_the_version_is_written_once(self) -> None:
        import neonlike

        assert neonlike.__version__ == __version__
        assert "version" in PROJECT["dynamic"]
        assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", __version__)

    def test_the_changelog_has_the_version(self) -> None:
        text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        number = __version__.partition(".dev")[0]
        assert re.search(rf"^## .*\b{re.escape(number)}\b", text, re.MULTILINE)

    def test_the_extras_that_messages_name_exist(self) -> None:
        named = {
            extra
            for path in (ROOT / "neonlike").rglob("*.py")
            for extra in re.findall(r"neonlike\[(\w[\w-]*)\]", path.read_text(encoding="utf-8"))
        }
        assert named <= set(PROJECT["optional-dependencies"])

    def test_all_names_every_extra_for_users(self) -> None:
        extras = PROJECT["optional-dependencies"]
        (named,) = re.findall(r"^neonlike\[([\w,-]+)\]$", "\n".join(extras["all"]), re.MULTILINE)
        assert set(extras) - FOR_USERS == FOR_DEVELOPERS & set(extras), "for users? Then name it in FOR_USERS"
        assert set(named.split(",")) == FOR_USERS & set(extras) - {"gpu"}

    def test_the_page_on_installing_names_every_extra_for_users(self) -> None:
        page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
        rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
        assert rows == (FOR_USERS & set(PROJECT["optional-dependencies"])) | {"all", "docs", "notebooks"}

    def test_continuous_integration_runs_the_whole_suite(self) -> None:
        script = ROOT / ".ci" / "run"
        assert script.stat().st_mode & 0o111, "not executable"
        assert re.search(r"^exec make test$", script.read_text(), re.MULTILINE)

    def test_make_targets_are_the_documented_ones(self) -> None:
        makefile = (ROOT / "Makefile").read_text()
        documented = set(re.findall(r"^#   make ([\w-]+)", makefile, re.MULTILINE))
        assert {"demo", "test", "check", "bench", "docs", "clean"} <= documented
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in documented)


def code_blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class TestReadme:
    def test_its_python_runs(self, tmp_path: Path) -> None:
        blocks = code_blocks("README.md")
        assert blocks
        script = tmp_path / "readme.py"
        # In one process, in order: a reader types one block after the other, the session at the prompt before them.
        session = re.findall(r"^>>> (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
        script.write_text("\n".join([f"import sys\nsys.path.insert(0, {str(ROOT)!r})", *session, *blocks]))
        result = run(sys.executable, str(script), cwd=tmp_path)
        assert result.returncode == 0, result.stderr

    @pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
    def test_files_and_targets_it_names_exist(self, name: str) -> None:
        text = (ROOT / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:]+)\)", text)
        paths = re.findall(r"`((?:neonlike|tests|examples|benchmarks)/[\w./]*\w)`", text)
        missing = [path for path in (*links, *paths) if not (ROOT / path).exists()]
        assert missing == []
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"`make ([\w-]+)", text))
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), targets
