"""Scripts in neon's style, one for each family of its examples, run unchanged; their output shows their effects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.gpu.gpu_env import run_on_gpu

SCRIPTS = ROOT / "tests" / "compat" / "neon_scripts"

OPTIONS = ["-b", "cpu", "-z", "32", "-r", "0"]
LAYERS = ["lstm", "gru", "rnn", "bilstm", "birnn", "bibnrnn", "deep"]
ERROR = r"error = ([\d.]+)%"
ON_GPU = [
    ("mnist_mlp", ["-e", "4", "-b", "gpu", "-z", "32", "-r", "0"], ERROR, 5),
    ("cifar_conv", ["-e", "4", "-b", "gpu", "-z", "32", "-r", "0"], ERROR, 40),
    ("fast_rcnn", ["-e", "3", "-b", "gpu", "-z", "4", "-r", "0"], r"off by ([\d.]+)", 0.28),
    ("wgan", ["-e", "60", "-b", "gpu", "-z", "64", "-r", "0"], r"off by ([\d.]+)", 0.3),
    ("video_c3d", ["-e", "8", "-b", "gpu", "-z", "32", "-r", "0"], ERROR, 5),
    ("auxiliary_costs", ["-e", "6", "-b", "gpu", "-z", "32", "-r", "0"], r"second: ([\d.]+)%", 5),
    ("deep_birnn", ["-e", "16", "-b", "gpu", "-z", "32", "-r", "0", "--rlayer_type", "bisum"], ERROR, 5),
]
"""Scripts that take their backend from the command line; others make one on the CPU themselves."""
IN_A_FOLDER = (
    "char_rnn", "seq2seq_beam", "yaml_model", "image_caption", "nmt", "babi", "hdf5", "skip_thought", "resnet",
)  # fmt: skip
"""Scripts that get a folder to write into as their argument."""


def run(name: str, *arguments: str, **environment: str) -> str:
    """Output of a script in which ``neon`` means this library."""
    done = subprocess.run(
        [sys.executable, "-m", "neonlike.compat", str(SCRIPTS / f"{name}.py"), *arguments],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def numbers(pattern: str, text: str) -> list[float]:
    """Numbers matched by a pattern in a script's output."""
    found = re.findall(pattern, text)
    assert found, f"{pattern} in {text[-1000:]}"
    return [float(one) for part in found for one in ([part] if isinstance(part, str) else part)]


def test_every_script_is_run() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{path.stem}"' in text for path in SCRIPTS.glob("*.py"))
    assert len(list(SCRIPTS.glob("*.py"))) >= 27


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


def test_costs_in_the_middle() -> None:
    text = run("auxiliary_costs", "-e", "8", *OPTIONS)
    assert max(numbers(r"second: ([\d.]+)% ([\d.]+)% ([\d.]+)%", text)) < 8 and "top has changed: True" in text
    text = run("auxiliary_costs", "-e", "8", *OPTIONS, "--weights", "1", "0", "0.3")
    main, first, second = numbers(r"second: ([\d.]+)% ([\d.]+)% ([\d.]+)%", text)
    assert max(main, second) < 8 and first > 40 and "top has changed: False" in text, "a weight of 0 trains nothing"


def test_regions() -> None:
    text = run("fast_rcnn", "-e", "8", *OPTIONS, "-z", "4")
    assert numbers(r"classes right ([\d.]+)", text)[0] > 0.95
    off, guessed = numbers(r"off by ([\d.]+) of ([\d.]+)", text)
    assert off < 0.4 * guessed


def test_clips() -> None:
    text = run("video_c3d", "-e", "12", *OPTIONS)
    assert numbers(ERROR, text)[0] <= 4 and "shapes: (8,6,8,8) (8,6,4,4) (12,6,4,4) (12,3,2,2)" in text


def test_wide_and_deep() -> None:
    text = run("wide_deep", "-e", "8", *OPTIONS)
    assert numbers(r"right ([\d.]+)", text)[0] > 0.97 and numbers(r"without the wide part ([\d.]+)", text)[0] < 0.9


DEEP = {
    "birnn": "BiRNN BiRNN", "bisum": "BiRNN BiSum BiRNN BiSum", "bibnrnn": "BiBNRNN BiBNRNN", "bilstm": "BiLSTM BiLSTM",
}  # fmt: skip


@pytest.mark.parametrize("layer", DEEP)
def test_both_ways_and_deep(layer: str) -> None:
    text = run("deep_birnn", "-e", "24", *OPTIONS, "--rlayer_type", layer)
    assert numbers(ERROR, text)[0] <= 8 and f"layers: {DEEP[layer]} RecurrentMean" in text


def test_samples_of_a_wasserstein_network_lie_as_the_data() -> None:
    text = run("wgan", "-e", "60", *OPTIONS, "-z", "64")
    assert "updates of the generator 192 of 960" in text
    assert 0.05 < numbers(r"critic ([\d.]+)", text)[0] < 0.115, "clipped to 0.1, and one step farther"
    assert numbers(r"off by ([\d.]+)", text)[0] < 0.3
    found, wanted = numbers(r"correlation ([\d.]+) of ([\d.]+)", text)
    assert abs(found - wanted) < 0.2


def test_samples_of_a_network_of_adversaries_look_as_the_data(tmp_path: Path) -> None:
    text = run("gan", str(tmp_path))
    assert "made (16, 32), updates of the generator 240" in text
    left, right, *wanted = numbers(r"halves (-?[\d.]+) (-?[\d.]+) of (-?[\d.]+) (-?[\d.]+)", text)
    assert abs(left - wanted[0]) < 0.1 and abs(right - wanted[1]) < 0.1
    assert numbers(r"pixel's means ([\d.]+)", text)[0] < 0.2
    spread, of_data = numbers(r"spread ([\d.]+) of ([\d.]+)", text)
    assert 0.7 * of_data < spread < 1.4 * of_data
    files = {path.name for path in tmp_path.rglob("*")}
    assert {"gan_training.png", "gan_data_000.png", "gan_noise_000.png", "gan_noise_029.png"} <= files


def test_a_training_is_stopped_in_the_epoch_that_its_function_says(tmp_path: Path) -> None:
    text = run("save_load", str(tmp_path))
    losses = [float(loss) for loss in re.findall(r"losses (.*)", text)[0].split()]
    small = [epoch for epoch, loss in enumerate(losses) if loss < 0.1]
    assert 3 <= len(losses) < 50 and losses[0] > 0.1
    assert len(small) == 2 and small[1] == len(losses) - 1, "not before the loss was small twice, nor later"
    assert f"stopped: True, with {len(losses)} epochs done" in text
    assert f"epochs {len(losses)}, minibatches {8 * len(losses)}" in text
    assert "the same outputs: True" in text and numbers(r"error of the best = ([\d.]+)%", text)[0] < 5
    last = [f"model_{len(losses) - back}.p" for back in (1, 2)]
    assert {path.name for path in tmp_path.iterdir()} == {"best.p", "last.p", "metrics.h5", "model.p", *last}


def test_words(tmp_path: Path) -> None:
    text = run("word_lm", str(tmp_path))
    assert "words 13: <eos> again always barks cat cow dog here moos now purrs the there" in text
    first, last = numbers(r"epochs ([\d.]+) \.\.\. ([\d.]+)", text)
    found, least = numbers(r"test perplexity ([\d.]+), of the sentences themselves ([\d.]+)", text)
    assert last < first and 0.95 * least < found < 1.08 * least, "what is drawn can be told by no network"
    right, most = numbers(r"words right ([\d.]+) of ([\d.]+)", text)
    assert abs(right - most) < 0.03


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
    "yaml_model": [r"error = [0-4]\.\d%"],
    "image_caption": [r"sentences: a bird sleeps; a cat sleeps; a dog sleeps", r"right 8 of 8", r"BLEU-4: 100.00"],
    "nmt": [r"translated: (.*)\nreference:  \1\n", r"right (1.00|0.9\d) of 64"],
    "babi": [r"Test Accuracy: (9\d|100)", r"answer: office"],
    "skip_thought": [r"wakes up': birds sing in the tree; before it: the sun rises", r"right (12|11) of 12, loaded \1"],
    "resnet": [
        r"error = [0-5]\.\d%, rate at the end 0\.0010",
        r"Model\(file\): went on at epoch 3, ends as the first did: True",
        r"deserialize: went on at epoch 3, ends as the first did: True",
        r"after an epoch = ([1-9]\d|[6-9])\.\d%",
    ],
    "hdf5": [r"error = [0-4]\.\d%", r"inputs \(12, 32\), targets \(1, 32\)"],
}
"""What scripts print."""


@pytest.mark.parametrize("name", IN_A_FOLDER)
def test_what_is_written_into_a_folder(name: str, tmp_path: Path) -> None:
    text = run(name, str(tmp_path))
    for pattern in WRITTEN[name]:
        assert re.search(pattern, text), f"{pattern} in {text[-2000:]}"
    files = {path.name for path in tmp_path.rglob("*")}
    expected = {"res.p", *(f"res_{epoch}.p" for epoch in range(6))} if name == "resnet" else set()
    assert expected <= files
