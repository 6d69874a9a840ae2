"""The library under neon's dialect, which scripts of neon choose for their process: its own tests, run again so.

The library must rely on none of the forms that neon means otherwise (neonlike/optree/dialect.py).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
SUBJECTS = ("layers_mlp", "model_mlp", "optimizers", "costs", "callbacks", "merge", "seq2seq", "gan", "autodiff", "rnn")


@pytest.mark.slow
def test_networks_train_under_it() -> None:
    files = [str(TESTS / f"test_{subject}.py") for subject in SUBJECTS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dialect", "neon", "-k", "numpy"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 100, done.stdout[-500:]
