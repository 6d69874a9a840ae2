"""Scripts in neon's style, one for each family of its examples, run unchanged; what they print shows what they did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_env import run_on_gpu

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tests" / "neon_scripts"

OPTIONS = ["-b", "cpu", "-z", "32", "-r", "0"]
LAYERS = ["lstm", "gru", "rnn", "bilstm", "birnn", "bibnrnn", "deep"]
ERROR = r"error = ([\d.]+)%"
ON_GPU = [
    ("mnist_mlp", ["-e", "4", "-b", "gpu", "-z", "32", "-r", "0"], ERROR, 5),
    ("cifar_conv", ["-e", "4", "-b", "gpu", "-z", "32", "-r", "0"], ERROR, 40),
]
IN_A_FOLDER = ("char_rnn", "seq2seq_beam", "gan", "yaml_model", "save_load", "image_caption", "nmt", "babi", "hdf5")
"""Scripts that get a folder to write into as their argument."""


def run(name: str, *arguments: str, **environment: str) -> str:
    """What a script prints, with ``neon`` meaning this library."""
    done = subprocess.run(
        [sys.executable, "-m", "neonlike.compat", str(SCRIPTS / f"{name}.py"), *arguments],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers that a pattern finds in what a script printed."""
    found = re.findall(pattern, text)
    assert found, f"{pattern} in {text[-1000:]}"
    return [float(one) for part in found for one in ([part] if isinstance(part, str) else part)]


def test_every_script_is_run() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{path.stem}"' in text for path in SCRIPTS.glob("*.py"))
    assert len(list(SCRIPTS.glob("*.py"))) >= 15


@pytest.mark.parametrize("compiled", ["1", "0"])
@pytest.mark.parametrize(("name", "epochs", "most"), [("mnist_mlp", 6, 5), ("cifar_conv", 8, 10)])
def test_images_are_told_apart(name: str, epochs: int, most: float, compiled: str) -> None:
    (error,) = numbers(ERROR, run(name, "-e", str(epochs), *OPTIONS, NEONLIKE_CPU_JIT=compiled))
    assert error <= most


@pytest.mark.parametrize("layer", LAYERS)
def test_sentiments(layer: str) -> None:
    reduced = ["sum", "mean", "last"][LAYERS.index(layer) % 3]
    text = run("imdb", "-e", "6", "--rlayer_type", layer, "--reduce", reduced)
    (accuracy,) = numbers(rf"Accuracy {layer} = ([\d.]+)", text)
    assert accuracy > 90


@pytest.mark.engines("gpu", batch_size=16)
@pytest.mark.usefixtures("gpu_driver")
@pytest.mark.parametrize(("name", "options", "pattern", "bound"), ON_GPU)
def test_on_the_gpu(name: str, options: list[str], pattern: str, bound: float) -> None:
    arguments = ["neonlike.compat", str(SCRIPTS / f"{name}.py"), *options]
    code = f"import runpy, sys; sys.argv = {arguments!r}; runpy.run_module('neonlike.compat', run_name='__main__')"
    done = run_on_gpu(code, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(pattern, done.stdout)[0] <= bound


def test_a_layer_an_activation_and_a_cost_of_its_own() -> None:
    first, last = numbers(r"epoch \d+ cost ([\d.]+)", text := run("custom_layer"))
    assert last < first / 100 and "is a NervanaObject: True" in text


def test_an_autoencoder() -> None:
    first, last = numbers(r"epoch ([\d.]+)", run("conv_autoencoder", "-e", "12", *OPTIONS))
    assert last < 0.6 * first


def test_branches() -> None:
    assert max(numbers(ERROR, run("mnist_branch"))) < 8
    text = run("inception")
    first, second = numbers(r"top 1 error ([\d.]+), top 2 error ([\d.]+)", text)
    assert second <= first < 10 and "timed: bprop fprop iteration" in text and "| Median" in text


def test_curves() -> None:
    assert numbers(r"mean squared error ([\d.]+)", text := run("timeseries"))[0] < 0.01
    assert "outputs (576, 2)" in text


def test_an_optree_program() -> None:
    text = run("optree_autodiff")
    assert numbers(r"cost ([\d.]+)", text)[0] < 0.15 and numbers(r"right ([\d.]+)", text)[0] > 0.95
    assert "an op-tree: True, its op add" in text and "an expression: True" in text
    assert "gradient of what is not there: [[0.0], [0.0], [0.0]]" in text


WRITTEN = {
    "char_rnn": [r"writes: the cat sat on the mat. the cat sat on t"],
    "seq2seq_beam": [r"right (1.00|0.9\d), outputs \(640, 4, 4\), beams \(640, 4, 1\)", r"by beams (1.00|0.9\d)"],
    "gan": [r"made \(16, 32\), updates of the generator [1-9]"],
    "yaml_model": [r"error = [0-4]\.\d%"],
    "save_load": [r"epochs 4, minibatches 32", r"the same outputs: True", r"error of the best = [0-4]\.\d%"],
    "image_caption": [r"sentences: a bird sleeps; a cat sleeps; a dog sleeps", r"right 8 of 8", r"BLEU-4: 100.00"],
    "nmt": [r"translated: (.*)\nreference:  \1\n", r"right (1.00|0.9\d) of 64"],
    "babi": [r"Test Accuracy: (9\d|100)", r"answer: office"],
    "hdf5": [r"error = [0-4]\.\d%", r"inputs \(12, 32\), targets \(1, 32\)"],
}
"""What scripts print."""


@pytest.mark.parametrize("name", IN_A_FOLDER)
def test_what_is_written_into_a_folder(name: str, tmp_path: Path) -> None:
    text = run(name, str(tmp_path))
    for pattern in WRITTEN[name]:
        assert re.search(pattern, text), f"{pattern} in {text[-2000:]}"
    files = {path.name for path in tmp_path.rglob("*")}
    expected = {
        "gan": {"gan_training.png", "gan_data_000.png", "gan_noise_000.png"},
        "save_load": {"best.p", "last.p", "metrics.h5", "model.p", "model_2.p", "model_3.p"},
    }
    assert expected.get(name, set()) <= files
