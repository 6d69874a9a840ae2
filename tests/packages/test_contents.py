"""Wheel and sdist: they hold every file that belongs there, and no other."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from neonlike.version import __version__
from tests import ROOT
from tests.packages.building import STRAYS, Built, build, built, kept_files  # noqa: F401

pytestmark = pytest.mark.slow

FOR_GIT = {".gitignore", ".pre-commit-config.yaml"}
"""Files of the repository that are of no use without git, and so not in the sdist."""
MADE = re.compile(r"PKG-INFO|setup\.cfg|neonlike\.egg-info/.*")
"""Files that setuptools adds to an sdist."""


def names_in_wheel(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def names_in_sdist(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def unpacked(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_the_package_and_its_metadata_alone(built: Built) -> None:  # noqa: F811
    package = {name for name in kept_files() if name.startswith("neonlike/")}
    assert "neonlike/py.typed" in package
    assert any(name.endswith(".c.j2") for name in package), "the templates are not where this test looks"
    names = names_in_wheel(built.wheel)
    info = f"neonlike-{__version__}.dist-info"
    metadata = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt")}
    assert names - package == metadata | {f"{info}/licenses/LICENSE"}
    assert package <= names, "a new kind of file? See package-data in pyproject.toml and MANIFEST.in"


def test_the_sdist_holds_what_git_keeps(built: Built) -> None:  # noqa: F811
    assert all((built.source / name).is_file() for name in STRAYS), "strays lay in the tree that it was built from"
    kept, names = set(kept_files()), names_in_sdist(built.sdist)
    assert {name for name in names - kept if not MADE.fullmatch(name)} == set()
    assert kept - names == FOR_GIT, "a new kind of file? See MANIFEST.in"


def test_the_wheel_built_from_the_sdist_is_the_same(built: Built, tmp_path: Path) -> None:  # noqa: F811
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(tmp_path)
    again = build(tmp_path / f"neonlike-{__version__}", "wheel", tmp_path / "out")
    assert again.name == built.wheel.name
    with zipfile.ZipFile(built.wheel) as first, zipfile.ZipFile(again) as second:
        contents = [{name: archive.read(name) for name in archive.namelist()} for archive in (first, second)]
    assert contents[0].keys() == contents[1].keys()
    assert [name for name in contents[0] if contents[0][name] != contents[1][name]] == []


def test_no_picture_lies_in_the_top_folder() -> None:
    """Scripts write them where they are started."""
    assert [name for name in kept_files() if re.fullmatch(r"[^/]+\.(png|svg|pdf|h5|pkl)", name)] == []


def test_its_metadata_is_the_projects(built: Built, unpacked: Path) -> None:  # noqa: F811
    assert built.wheel.name.startswith(f"neonlike-{__version__}-py3-none-any")
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    assert f"\nVersion: {__version__}\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text
    assert "\nRequires-Python: >=3.10\n" in text
    required = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", text, re.MULTILINE)
    assert {name.lower() for name in required} == {"numpy", "jinja2", "configargparse"}
    (license_file,) = unpacked.glob("*.dist-info/licenses/LICENSE")
    assert license_file.read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_it_brings_the_commands(unpacked: Path) -> None:
    (entries,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert entries.read_text().split("\n")[:4] == [
        "[console_scripts]",
        "neon = neonlike.script:program",
        "neonlike = neonlike.__main__:program",
        "nvis = neonlike.visualizations.nvis:program",
    ]
