"""Names of this library that the pages for users of other libraries give exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike import autograd, callbacks, data, initializers, layers, models, optimizers, transforms
from neonlike.backends import Backend
from neonlike.callbacks import callbacks as all_callbacks
from tests import ROOT

PAGES = ("from_numpy", "from_pytorch", "from_keras", "from_neon", "faq", "start")
TABLES = ("from_pytorch", "from_keras")
PLACES = (layers, models, data, optimizers, initializers, transforms, callbacks, all_callbacks, layers.layer)


def owners(be: Backend) -> dict[str, Any]:
    """Objects by the names that the pages have for them."""
    model, t, v = models.Model([layers.Dropout()]), be.ones((2, 2)), autograd.param([[1.0]])
    return {"be": be, "ag": autograd, "model": model, "t": t, "v": v, "np": np, "e": t + 1}


def unknown(text: str, be: Backend) -> Iterator[str]:
    """Attributes in code of a page that their owners lack."""
    found = owners(be)
    for owner, name in re.findall(r"(?<![\w.\"])(be|ag|model|t|v|np|e)\.([a-zA-Z]\w*)", "\n".join(code(text))):
        if not hasattr(found[owner], name):
            yield f"{owner}.{name}"


def code(text: str) -> list[str]:
    """Blocks of Python, and code within sentences and tables; without first columns, which have others' names."""
    text = re.sub(r"^```py\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\| (?:[^|]|\\\|)*\|", "|", text, flags=re.MULTILINE)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def unknown_classes(text: str) -> Iterator[str]:
    """Classes in the right columns of a page's tables that no package of the library has."""
    for row in re.findall(r"^\| `.*\|$", text, re.MULTILINE):
        _, _, *cells, _ = re.split(r"(?<!\\)\|", row)
        for spoken in re.findall(r"`([^`]+)`", " ".join(cells)):
            for name in re.findall(r"^([A-Z][A-Za-z]+)\b(?!=)", spoken):
                if not any(hasattr(place, name) for place in PLACES):
                    yield name


@pytest.mark.parametrize("page", PAGES)
def test_attributes_on_a_page_exist(page: str, be: Backend) -> None:
    of_others = {"np.float"} | {f"np.{name}" for name in ("fft", "vectorize")}
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert sorted(set(unknown(text, be)) - of_others) == []


@pytest.mark.parametrize("page", TABLES)
def test_classes_in_the_tables_of_a_page_exist(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| `", text, re.MULTILINE)) > 30
    assert sorted(set(unknown_classes(text))) == []


def test_unknown_names_are_found(be: Backend) -> None:
    text = "| `be.seg(x)` | `be.sigg(t.T)` |\n```python\nv.backprop(), model.fitt()\n```\n"
    assert list(unknown(text, be)) == ["model.fitt", "be.sigg"]
    assert list(unknown_classes("| `nn.Linear` | `Affine(n)`, `Afine` |\n")) == ["Afine"]
