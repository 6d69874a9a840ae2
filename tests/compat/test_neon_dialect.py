"""The library under neon's dialect, which scripts of neon choose for their process: its own tests, run again so.

The library must rely on none of the forms that neon means otherwise (neonlike/optree/dialect.py).
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import ROOT

FILES = (
    "tests/layers/test_mlp.py",
    "tests/models/test_model_mlp.py",
    "tests/optimizers/test_optimizers.py",
    "tests/transforms/test_costs.py",
    "tests/callbacks/test_callbacks.py",
    "tests/layers/container/test_merge.py",
    "tests/layers/container/test_seq2seq.py",
    "tests/models/test_gan.py",
    "tests/optree/test_autodiff.py",
    "tests/backends/primitives/rnn/test_rnn.py",
)


@pytest.mark.slow
def test_networks_train_under_it() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dialect", "neon", "-k", "numpy"]
    done = subprocess.run([*command, *FILES], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 100, done.stdout[-500:]
