"""The scripts in ``examples`` as modules, for tests that run them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from neonlike.backends import cleanup_backend
from neonlike.logger import logger
from tests import ROOT

EXAMPLES = ROOT / "examples"


def example_script(name: str) -> Iterator[Any]:
    """Yield the module of ``examples/<name>.py``, to be used by a fixture.

    What it does to the log and the backend is undone.
    """
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handlers, level = list(logger.handlers), logger.level
    yield module
    logger.handlers[:] = handlers
    logger.setLevel(level)
    cleanup_backend()
