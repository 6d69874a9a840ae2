"""The wheel in an environment of its own, outside the checkout: commands, networks, expressions, and tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from neonlike.version import __version__
from tests import ROOT
from tests.packages.building import Built, built, shared  # noqa: F401
from tests.packages.pythons import IMPORTS
from tests.support.engines import needs_compiler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cpu_only("what an installed package does on the CPU"),
    pytest.mark.skipif(sys.platform == "win32", reason="links packages into an environment"),
]

NEEDED = ("numpy", "jinja2", "MarkupSafe", "ConfigArgParse")
"""Packages that `pip install neonlike` brings."""
CHOSEN = (
    "optree/test_eval.py", "optree/test_errors.py", "layers/test_mlp.py", "kernels/build/test_disk_cache.py",
    "util/test_persist.py", "models/test_model_storage.py",
)  # fmt: skip
"""Fast tests that need no file of the repository but those of ``tests/``."""

DIGITS = """
import sys
import numpy as np
from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax

be = gen_backend("cpu", batch_size=64, rng_seed=0)
with np.load(sys.argv[1]) as arrays:
    x, y = arrays["x"], arrays["y"]
train, test = ArrayIterator(x[::2], y[::2], nclass=10), ArrayIterator(x[1::2], y[1::2], nclass=10)
init = GlorotUniform()
model = Model([
    Affine(nout=50, init=init, bias=Constant(0), activation=Rectlin()),
    Affine(nout=10, init=init, bias=Constant(0), activation=Softmax()),
])
model.fit(
    train, optimizer=GradientDescentMomentum(0.1, 0.9), num_epochs=8,
    cost=GeneralizedCost(costfunc=CrossEntropyMulti()), callbacks=Callbacks(model, progress_bar=False),
)
print(1 - float(model.eval(test, metric=Misclassification())[0]))
"""
CONVNET = """
import sys
import numpy as np
from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, Conv, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

be = gen_backend("cpu", batch_size=32, rng_seed=0)
with np.load(sys.argv[1]) as arrays:
    x, y = arrays["x"][:32], arrays["y"][:32]
init = GlorotUniform()
model = Model([
    Conv((3, 3, 4), init=init, activation=Rectlin()), Pooling(2), Affine(nout=10, init=init, activation=Softmax()),
])
train, cost = ArrayIterator(x, y, nclass=10, lshape=(1, 8, 8)), GeneralizedCost(costfunc=CrossEntropyMulti())
model.initialize(train, cost)
first = model.layers.layers[0]
before = first.W.get()
callbacks = Callbacks(model, progress_bar=False)
model.fit(train, optimizer=GradientDescentMomentum(0.1, 0.9), num_epochs=1, cost=cost, callbacks=callbacks)
after = first.W.get()
assert np.isfinite(after).all()
print(be.engine.name, np.abs(after - before).max() > 0)
"""
EXPRESSION = """
import numpy as np
import neonlike
from neonlike.backends import gen_backend
be = gen_backend("cpu", rng_seed=0)
a = be.array(np.linspace(-1, 1, 12).reshape(3, 4))
out = be.empty((3, 4))
out[:] = be.sig(a * 2 + 1)
np.testing.assert_allclose(out.get(), 1 / (1 + np.exp(-(a.get() * 2 + 1))), rtol=1e-5)
print(be.engine.name, neonlike.__file__)
"""
OUTSIDE = """
from pathlib import Path

import neonlike


def test_the_installed_package_is_tested():
    assert "site-packages" in Path(neonlike.__file__).parts
"""
PYTEST = """
import sys
sys.path.insert(0, {tests!r})
sys.path.append({others!r})
import pytest
sys.exit(pytest.main())
"""
"""The packages of this environment come after the other's own, since they may have neonlike as well."""
OTHERS = Path(str(metadata.distribution("pytest").locate_file("")))


@dataclass(frozen=True)
class Place:
    """An environment with the installed wheel, in a folder whose path has spaces and umlauts.

    Attributes
    ----------
    folder : Path
    python, packages : Path
        Its interpreter, and its folder of packages.
    """

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "Umgebung für Tests" / "bin" / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.python.parent.parent.glob("lib/python*/site-packages")
        return found

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command there: nothing of the checkout is on the path."""
        hidden = ("PYTHONPATH", "PYTHONHOME", "PYTEST_", "NEONLIKE_CPU_JIT")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return subprocess.run(
            [str(word) for word in command], cwd=self.folder, env={**kept, **environment}, capture_output=True,
            text=True, encoding="utf-8", timeout=300,
        )  # fmt: skip

    def run_script(self, text: str, *arguments: str | Path, **environment: str) -> str:
        """Run a script there, which has to succeed, and return its output."""
        done = self.run(self.python, "-c", text, *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


def link_packages(names: Iterable[str], folder: Path) -> None:
    """Link installed packages into a folder, where other packages of this environment are out of reach."""
    folder.mkdir()
    for name in names:
        package = metadata.distribution(name)
        tops = {path.parts[0] for path in package.files or () if path.parts[0] not in ("..", "__pycache__")}
        assert tops, f"{name} does not say which files it has"
        for top in tops:
            (folder / top).symlink_to(Path(str(package.locate_file(top))).resolve())


def make_place(folder: Path, wheel: Path) -> None:
    """Make an environment without pip, install the wheel there, and show it the packages that it needs."""
    place = Place(folder)
    venv.create(place.python.parent.parent, symlinks=True)
    install = ("pip", "--python", place.python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    done = place.run(sys.executable, "-m", *install)
    assert done.returncode == 0, done.stderr
    link_packages(NEEDED, folder / "needed")
    (place.packages / "needed.pth").write_text(f"{folder / 'needed'}\n", encoding="utf-8")


@pytest.fixture(scope="module")
def place(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Place:  # noqa: F811
    return Place(shared(tmp_path_factory, "installed", lambda folder: make_place(folder, built.wheel)))


@pytest.fixture(scope="module")
def digits(place: Place) -> Path:
    """Handwritten digits as arrays in a file: scikit-learn, which has them, is not there."""
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    path = place.folder / f"digits {os.getpid()}.npz"
    np.savez(path, x=(x / 16).astype(np.float32), y=y)
    return path


def test_only_what_it_depends_on_is_there(place: Place) -> None:
    listed = place.run_script(
        "from importlib import metadata\nprint(*(one.metadata['Name'] for one in metadata.distributions()))"
    )
    assert sorted(name.lower() for name in listed.split()) == sorted(("neonlike", *map(str.lower, NEEDED)))


def test_commands(place: Place) -> None:
    commands = place.python.parent
    version = place.run(commands / "neonlike", "--version")
    assert (version.returncode, version.stdout) == (0, f"neonlike {__version__}\n"), version.stderr
    doctor = place.run(commands / "neonlike", "doctor")
    assert doctor.returncode != 2 and re.search(r"^ok +numpy ", doctor.stdout, re.MULTILINE), doctor.stdout
    for name in ("neon", "nvis"):
        asked = place.run(commands / name, "--help")
        assert asked.returncode == 0 and asked.stdout.startswith("usage:"), asked.stderr


def test_every_module_is_imported_without_other_packages(place: Place) -> None:
    assert place.run_script(IMPORTS) == ""


@pytest.mark.parametrize("engine", ["numpy", "c"])
def test_an_expression(place: Place, engine: str) -> None:
    if engine == "c":
        needs_compiler()
    name, _, file = place.run_script(EXPRESSION, NEONLIKE_CPU_JIT="01"[engine == "c"]).strip().partition(" ")
    assert name == engine
    assert Path(file).is_relative_to(place.packages)


def test_a_perceptron_learns_digits_from_arrays(place: Place, digits: Path) -> None:
    assert float(place.run_script(DIGITS, digits)) > 0.9


def test_a_step_of_a_convnet(place: Place, digits: Path) -> None:
    assert place.run_script(CONVNET, digits).split()[1] == "True"


def test_a_fast_part_of_the_tests(place: Place, tmp_path: Path) -> None:
    """Tests apart from the package, with pytest and what else this environment has."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_outside.py").write_text(OUTSIDE)
    paths = [tmp_path / "tests" / name for name in ("test_outside.py", *CHOSEN)]
    words = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--c-cases", "1", f"--rootdir={tmp_path}")
    done = place.run(place.python, "-c", PYTEST.format(tests=str(tmp_path), others=str(OTHERS)), *words, *paths)
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert int(passed) > 100
