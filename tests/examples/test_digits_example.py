"""The digits example: it learns, its parts do not overlap, it draws its picture."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from neonlike import NervanaObject, console
from neonlike.callbacks.store import open_store
from tests.support.engines import COMPARED, ON_GPU, draw_masks_alike, needs_compiler, ready
from tests.support.example_scripts import example_script

pytestmark = pytest.mark.backend

ON = ["-b", "gpu"] if ON_GPU else []


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The script as a module, in a folder and home of its own."""
    ready()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield from example_script("digits_mlp")


def test_it_reads_digits_it_has_not_seen(example, capsys):
    accuracy = example.main(ON)
    out = capsys.readouterr().out
    assert accuracy >= 0.96
    assert f"{100 * accuracy:.1f}%" in out.splitlines()[-1]
    assert out.count("Epoch") == 40 and "CrossEntropyMulti Loss" in out


@pytest.mark.parametrize("output", [[], ["-o", "metrics.h5"]])
def test_the_learning_curve(example, tmp_path, output):
    example.main(["--epochs", "2", "--no_progress_bar", "--plot", "curve.png", "--eval_freq", "2", *ON, *output])
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_equal_seeds_learn_equally(example):
    first, second = (example.main(["--epochs", "2", "--no_progress_bar", *ON]) for _ in range(2))
    assert first == second


def test_without_scikit_learn(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(SystemExit, match=r"neonlike\[demo\]"):
        console.run(lambda: example.main(["--epochs", "1", *ON]))


def test_both_engines_learn_alike(example, monkeypatch):
    """The cost of each minibatch of three epochs agrees to 1e-4, float32 rounding having grown over 60 updates."""
    if ON_GPU:
        draw_masks_alike(monkeypatch)
    else:
        needs_compiler()
    curves = {}
    for engine in COMPARED:
        monkeypatch.setenv("NEONLIKE_CPU_JIT", "1" if engine == "c" else "0")
        on = ["-b", engine] if ON_GPU else []
        example.main(["--epochs", "3", "--no_progress_bar", "-o", f"{engine}.h5", *on])
        assert NervanaObject.be.backend_name == engine if ON_GPU else NervanaObject.be.engine.name == engine
        with open_store(f"{engine}.h5", "r") as recorded:
            curves[engine] = np.asarray(recorded["cost/train"][...])
    ours, theirs = curves.values()
    assert len(ours) == 3 * 20 and ours[-1] < 0.3 < ours[0]
    np.testing.assert_allclose(theirs, ours, 1e-4)
