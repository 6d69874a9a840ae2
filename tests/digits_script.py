"""``examples/digits_mlp.py`` as a module, for tests that run it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neonlike.backends import cleanup_backend
from neonlike.logger import logger

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "digits_mlp.py"


def digits_script() -> Iterator[Any]:
    """Yield the module, to be used by a fixture; what it does to the log and the backend is undone."""
    spec = importlib.util.spec_from_file_location("digits_mlp", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handlers, level = list(logger.handlers), logger.level
    yield module
    logger.handlers[:] = handlers
    logger.setLevel(level)
    cleanup_backend()
