"""Modules that few programs need are imported by their first use, not when a program starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT

pytestmark = pytest.mark.cpu_only("nothing is computed")


@pytest.mark.parametrize(
    ("module", "later"),
    [
        ("neonlike.backends", ["neonlike.models", "neonlike.callbacks", "neonlike.report"]),
        ("neonlike.models", ["neonlike.exchange.weights", "neonlike.exchange.torch_weights", "neonlike.exchange.onnx"]),
        ("neonlike.callbacks.callbacks", ["neonlike.report", "matplotlib", "h5py", "tensorboardX"]),
        ("neonlike.__main__", ["neonlike.models", "neonlike.callbacks", "neonlike.report.write"]),
    ],
)
def test_what_is_seldom_needed_is_imported_later(module: str, later: list[str]) -> None:
    program = f"import sys, {module}\nprint(*sorted({set(later)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
