"""NumPy's names of neon's time, for scripts that run through the compatibility layer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from neonlike.compat.numpy_names import dropped, restore


@pytest.fixture
def old() -> ModuleType:
    """A module with the dropped names, and nothing else."""
    module = ModuleType("numpy_of_2019")
    restore(module)
    return module


def test_types_and_constants(old: ModuleType) -> None:
    assert np.zeros(2, old.float).dtype == np.float64
    assert np.zeros(2, old.int).dtype == np.zeros(2, int).dtype
    assert np.zeros(2, old.bool).dtype == np.zeros(2, old.bool8).dtype == np.bool_
    assert old.float_ is np.float64 and old.object is object
    assert np.isnan(old.NaN) and old.Inf == -old.NINF == np.inf


def test_functions(old: ModuleType) -> None:
    assert old.product((2, 3, 4)) == 24
    assert old.asscalar(np.array([[2.5]])) == 2.5
    np.testing.assert_array_equal(old.in1d([[1, 2], [3, 4]], [2, 3], invert=True), [True, False, False, True])
    np.testing.assert_array_equal(old.cumproduct([1, 2, 3]), [1, 2, 6])
    assert old.sometrue([0, 1]) and not old.alltrue([0, 1])
    assert old.rank(np.zeros((2, 2))) == 2


def test_what_numpy_has_stays() -> None:
    module = ModuleType("numpy")
    vars(module)["float"] = marker = object()
    restore(module)
    assert vars(module)["float"] is marker
    assert dropped().keys() - {"trapz"} <= vars(module).keys()


def test_scripts_find_them_and_others_do_not(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import numpy as np\nfrom neon import logger\nprint(np.zeros(1, dtype=np.float).dtype, np.NaN)\n")
    done = subprocess.run([sys.executable, "-m", "neonlike.compat", script], capture_output=True, text=True, check=True)
    assert done.stdout == "float64 nan\n"
    code = "import numpy as np; a = hasattr(np, 'NaN'); import neonlike.compat; print(a is hasattr(np, 'NaN'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
