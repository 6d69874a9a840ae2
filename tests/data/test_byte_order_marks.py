"""Texts that begin with a byte order mark, as editors of Windows write them, are read as those without."""

from __future__ import annotations

import codecs
import json
from typing import Any

import pytest

from neonlike.data.convert_manifest import convert_manifest
from neonlike.data.imagecaption import _read_sentences
from neonlike.data.sequences import read_text
from neonlike.experiments.argparser import NeonArgparser
from neonlike.experiments.yaml_parse import load_yaml

pytestmark = pytest.mark.engines("any")


@pytest.fixture(params=[b"", codecs.BOM_UTF8], ids=["plain", "marked"])
def written(request: Any, tmp_path: Any) -> Any:
    """Writes a text to a file."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(request.param + text.encode("utf-8"))
        return str(tmp_path / name)

    return write


def test_texts(written: Any) -> None:
    assert read_text("Text", written("t.txt", "é one\ntwo")) == "é one\ntwo"


def test_manifests(written: Any, tmp_path: Any) -> None:
    convert_manifest(written("m.csv", "a.png,b.txt\n"), str(tmp_path / "out.tsv"))
    assert (tmp_path / "out.tsv").read_text().splitlines() == ["@FILE\t@FILE", "a.png\tb.txt"]


def test_sentences(written: Any) -> None:
    image = {"split": "train", "sentences": [{"tokens": ["a", "dog"]}]}
    (found,) = _read_sentences(written("dataset.json", json.dumps({"images": [image]})))
    assert found["sentences"] == [["a", "dog"]]


def test_models_and_options(be: Any, written: Any) -> None:
    path = written("model.yaml", "epochs: 2\nlayers: []\n")
    assert load_yaml(path)["epochs"] == 2
    options = written("options.cfg", "epochs = 7\n")
    assert NeonArgparser("").parse_args(["-c", options], gen_be=False).epochs == 7
