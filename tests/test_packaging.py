"""Contents of an installation: the built wheel, the pinned facts of the build files, and the README's own examples."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from neonlike.version import __version__
from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings on Python 3.10

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGED = {".py", ".j2", ".c", ".h", ".typed"}
"""The kinds of file that make up the package."""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without the network from a copy, so that nothing is left in the working tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "neonlike", source / "neonlike", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    built = run(*pip, "--no-deps", "--no-index", "--no-build-isolation", "-w", str(out), str(source), cwd=out)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    folder = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.slow
class TestWheel:
    def test_it_holds_every_file_of_the_package(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            packed = {name for name in archive.namelist() if name.startswith("neonlike/")}
        tree = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / "neonlike").rglob("*")
            if path.suffix in PACKAGED and "__pycache__" not in path.parts
        }
        assert "neonlike/py.typed" in tree
        assert any(name.endswith(".c.j2") for name in tree), "the templates are not where this test looks"
        assert packed == tree

    def test_its_metadata_is_the_projects(self, wheel: Path, unpacked: Path) -> None:
        assert wheel.name.startswith(f"neonlike-{__version__}-py3-none-any")
        (metadata,) = unpacked.glob("*.dist-info/METADATA")
        text = metadata.read_text(encoding="utf-8")
        assert f"\nVersion: {__version__}\n" in text
        assert "\nLicense-Expression: Apache-2.0\n" in text
        assert "\nRequires-Python: >=3.10\n" in text
        required = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", text, re.MULTILINE)
        assert {name.lower() for name in required} == {"numpy", "jinja2", "configargparse"}
        (license_file,) = unpacked.glob("*.dist-info/licenses/LICENSE")
        assert license_file.read_bytes() == (ROOT / "LICENSE").read_bytes()

    def test_it_brings_the_commands(self, unpacked: Path) -> None:
        (entries,) = unpacked.glob("*.dist-info/entry_points.txt")
        assert entries.read_text().split("\n")[:4] == [
            "[console_scripts]",
            "neon = neonlike.script:program",
            "neonlike = neonlike.__main__:program",
            "nvis = neonlike.visualizations.nvis:program",
        ]

    def test_it_works_with_the_base_dependencies_only(self, unpacked: Path, tmp_path: Path) -> None:
        """The wheel compiles an expression from its own templates, with no other package in reach."""
        script = tmp_path / "use.py"
        script.write_text(BASE_ONLY.format(folder=str(unpacked)))
        result = run(sys.executable, "-I", str(script), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert result.stdout == f"{unpacked} ok\n"


BASE_ONLY = """
import sys

ALLOWED = {{"neonlike", "numpy", "jinja2", "markupsafe", "configargparse"}} | set(sys.stdlib_module_names)

class OnlyBase:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{{name}} is not a base dependency", name=name)

sys.meta_path.insert(0, OnlyBase())
sys.path.insert(0, {folder!r})

import importlib
import pathlib
import pkgutil

import numpy as np
import neonlike
from neonlike.backends import gen_backend

be = gen_backend("cpu", rng_seed=0)
a = be.array(np.linspace(-1, 1, 12).reshape(3, 4))
out = be.empty((3, 4))
out[:] = be.sig(a * 2 + 1)
np.testing.assert_allclose(out.get(), 1 / (1 + np.exp(-(a.get() * 2 + 1))), rtol=1e-5)
for module in pkgutil.walk_packages(neonlike.__path__, "neonlike."):
    if not module.name.startswith("neonlike.backends.gpu") and not module.name.endswith("__main__"):
        if module.name != "neonlike.compat.neon":
            importlib.import_module(module.name)
print(pathlib.Path(neonlike.__file__).parent.parent, "ok")
"""


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
