"""What tests of the GPU backend share: programs of their own on the GPU of the tests, and what they may leave out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gpu_driver import find_driver

needs_pool = pytest.mark.skipif(
    os.environ.get("NEONLIKE_GPU_POOL") == "0", reason="about the memory pool, which NEONLIKE_GPU_POOL=0 goes without"
)


def run_on_gpu(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, with the GPU of the tests."""
    find_driver()  # which has the programs started from here find it too
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CUEMU_VERBOSE": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
