"""Libraries that results are compared with, as PyTorch and Keras: `make test-peers` has them, `make test` goes without.

A test that needs one is marked ``peers("torch")``. It is skipped where the library is missing, and fails there under
``make test-peers``, which sets ``NEONLIKE_REQUIRE_PEERS=1``.
"""

from __future__ import annotations

import os
from importlib import import_module

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is imported; its own default is TensorFlow
REQUIRE_VARIABLE = "NEONLIKE_REQUIRE_PEERS"


def find_peers(item: pytest.Item) -> None:
    """Skip a test whose marks name a library that cannot be imported, or fail it where that is required."""
    for mark in item.iter_markers("peers"):
        try:
            import_module(mark.args[0])
        except ImportError as error:
            refuse = pytest.fail if os.environ.get(REQUIRE_VARIABLE) == "1" else pytest.skip
            refuse(f"compares with {mark.args[0]}, which make test-peers has ({error})")
