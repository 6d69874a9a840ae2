"""The examples run quickly and without complaint, and print the right results."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from neonlike import script
from neonlike.backends import cleanup_backend
from neonlike.data import Digits
from neonlike.transforms import Misclassification
from tests import ROOT
from tests.support.engines import ON_GPU, ready
from tests.support.example_scripts import example_script
from tests.support.ranks import MPIEXEC, rank_environment


def run_example(name: str, *arguments: str, ranks: int = 1) -> str:
    """Output of an example, which must not complain."""
    launcher = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    result = subprocess.run(
        [*launcher, sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=(rank_environment() if ranks > 1 else os.environ | {"PYTHONPATH": str(ROOT)}) | {"PYTHONWARNINGS": "error"},
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def tour() -> str:
    """Output of ``examples/optree_tour.py``."""
    return run_example("optree_tour.py")


def shown(tour: str, code: str) -> str:
    """Output of the tour for a line of code."""
    lines = tour.splitlines()
    (at,) = (i for i, line in enumerate(lines) if line.strip().startswith(code))
    beside = lines[at].strip()[len(code) :].strip()
    text = "\n".join(lines[at + 1 :])
    below = re.match(r"(?: {6}.*\n?|\n(?= {6}))*", text)
    return beside or (textwrap.dedent(below[0]).strip() if below else "")


def test_sections_are_numbered_and_not_empty(tour: str) -> None:
    titles = re.findall(r"^(\d+)\. \S.*\n\n(.)", tour, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, 11))
    assert {after for _, after in titles} == {" "}


def test_it_shows_expressions(tour: str) -> None:
    assert shown(tour, "str(e)") == "sig(add(mul(a, b), c))"
    assert shown(tour, "e.pp()") == "sig(((a * b) + c))"
    assert "'float32'" in shown(tour, "e.shape, e.dtype.name, e.T.shape")


def test_it_shows_one_kernel_for_softmax(tour: str) -> None:
    text = shown(tour, "print(be.explain(be.fprop_softmax(x, axis=0)))")
    assert "1 stage" in text
    assert "max over axis 0" in text


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("e = x; e = e + e, 30 times; e ** 0.1 at (0, 0)", "8.0"),
        ("be.mean(table).asnumpyarray()", "[[5.]]"),
        ("a[:] = a + a.T", "[[2.0, 5.0], [5.0, 8.0]]"),
        ("r[:, 1:] = r[:, :-1]   (r was 1 2 3 4 5)", "[1. 1. 2. 3. 4.]"),
        ("be.assign_many([(p, q), (q, p)])", "p = [2. 2.], q = [1. 1.]"),
        ("(slope,) = Autodiff(y, be).get_grad_op_tree([x])", "[ 0.75  3.   12.  ]"),
        ("Autodiff(be.sum(slope), be)..., that is 6x", "[ 3.  6. 12.]"),
        ("step(); step(); step(); w.get()", "[0.7195 2.2805]"),
        ("after be.rng_reset(): the same mask?", "True"),
        ("np.from_dlpack(t) shares the memory?", "True"),
        ("a + b", "ShapeTypeError: add: shapes (2, 3) and (3, 2)"),
    ],
)
def test_what_it_prints_is_right(tour: str, code: str, value: str) -> None:
    assert shown(tour, code).startswith(value)


@pytest.mark.parametrize(
    ("arguments", "kernel"),
    [
        (["optree_tour.py"], "sig(((t0 * t1) + t2))"),
        (["digits_conv.py", "--epochs", "1"], "compound_bprop_bn"),
        (["digits_mlp.py", "--epochs", "1", "--no_progress_bar"], "compound_dot"),
    ],
)
def test_bench_reports_the_kernels(arguments: list[str], kernel: str, tmp_path: Path) -> None:
    reports(kernel, tmp_path / "report.csv", *arguments)


def reports(kernel: str, file: Path, *arguments: str) -> str:
    """Output of an example in bench mode; its report names ``kernel``."""
    printed = run_example(*arguments, "--bench", str(file))
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert kernel in {row["name"] for row in rows}
    assert all(int(row["calls"]) > 0 for row in rows)
    return printed


def test_bench_shows_a_table_at_the_end() -> None:
    script = [sys.executable, str(ROOT / "examples" / "optree_tour.py"), "--bench"]
    ran = subprocess.run(script, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert ran.returncode == 0
    assert re.search(r"^kernel +dtype +shapes", ran.stderr, re.MULTILINE)
    assert re.search(r"^this machine: memory copy", ran.stderr, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "examples").glob("*.py")))
def test_help_is_only_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with contextmanager(example_script)(name) as example, pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {name}.py")
    assert "--bench" in text and len(text.splitlines()) < 140


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch", "5000"], "--batch 5000: a minibatch has 1 to 1437 images"),
        (["--batch", "0"], "--batch 0"),
        (["--epochs", "0"], "--epochs 0: train at least once"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextmanager(example_script)("digits_conv") as module, pytest.raises(SystemExit) as ended:
        module.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_network_of_primitives_learns() -> None:
    result = run_example("digits_conv.py", "--epochs", "3")
    right = [float(found) for found in re.findall(r"([\d.]+)% of 360 test images right", result)]
    costs = [float(found) for found in re.findall(r"cost ([\d.]+)", result)]
    assert right[-1] > 96 and len(right) == 3, result
    assert costs[0] > 4 * costs[1] > 4 * costs[2], result


def test_a_character_lstm_learns_and_its_kernels_are_reported(tmp_path: Path) -> None:
    """Guessing by how often each character occurs would cost 2.9 nats."""
    arguments = ("char_lstm.py", "--quick", "--no_progress_bar", "--sample", "40")
    result = reports("compound_lstm_unroll_bprop", tmp_path / "report.csv", *arguments)
    found = re.search(r"([\d.]+) nats; guessed from the two before it: ([\d.]+)", result)
    assert found is not None, result
    cost, guess = map(float, found.groups())
    assert cost < 2.4 and 2.1 < guess < 2.2, result
    assert len(result.split("\n\n")[-1].rstrip("\n")) >= 40, result


def test_ranks_share_digits_and_read_them_as_one_process() -> None:
    """Rank 0 alone prints, and counts all images once: 359, in six batches, of which the last has 39."""
    alone, together = (
        run_example("distributed_digits.py", "-b", "cpu", "--no_progress_bar", ranks=ranks) for ranks in (1, 2)
    )
    share, by_hand, accuracy = together.splitlines()
    assert share == "2 ranks; of each batch of 64, rank 0 has images 0 to 31, rank 1 has images 32 to 63"
    found = re.fullmatch(r"Counted by hand: (\d+) \+ (\d+) = (\d+) of 359 test images right", by_hand)
    assert found is not None, by_hand
    first, second, right = map(int, found.groups())
    assert first + second == right and 150 < first <= 5 * 32 + 32 and 120 < second <= 5 * 32 + 7
    assert accuracy == f"Accuracy on the 359 test images: {right / 359:.1%}"
    of_one = re.search(r"Counted by hand: (\d+) = \1 of 359 test images right", alone)
    assert alone.startswith("1 rank; of each batch of 64, rank 0 has images 0 to 63\n") and of_one is not None
    assert right > 0.93 * 359 and abs(right - int(of_one[1])) <= 4, (alone, together)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Calls ``main`` of an example, in a folder and home of its own and on the backend of the tests."""
    ready()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    on = ["-b", "gpu"] if ON_GPU else []
    with ExitStack() as stack:

        def call(name: str, *arguments: str) -> Any:
            example = stack.enter_context(contextmanager(example_script)(name))
            return example.main([*arguments, "--no_progress_bar", *on])

        yield call


@pytest.mark.backend
@pytest.mark.parametrize(
    ("name", "epochs", "least"),
    [
        ("digits_convnet", 4, 0.9),
        pytest.param("copy_task", 5, 0.85, marks=pytest.mark.cpu_only("takes the emulator minutes")),
        pytest.param("skip_network", 3, 0.9, marks=pytest.mark.cpu_only("takes the emulator minutes")),
    ],
)
def test_it_learns(run: Callable[..., float], name: str, epochs: int, least: float) -> None:
    assert run(name, "--epochs", str(epochs)) >= least


@pytest.mark.cpu_only("takes the emulator half a minute")
def test_an_autoencoder_beats_a_linear_code(run: Callable[..., tuple[float, float]], tmp_path: Path) -> None:
    error, linear = run("digits_autoencoder", "--epochs", "15", "--picture", "images.png")
    assert error < 0.9 * linear
    assert (tmp_path / "images.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.cpu_only("takes the emulator a minute")
def test_a_trunk_that_knows_digits_learns_more_of_few_images(run: Callable[..., tuple[float, float]]) -> None:
    tuned, scratch = run("fine_tune")
    assert tuned > scratch + 0.02 and tuned > 0.7


@pytest.mark.cpu_only("takes the emulator a minute")
def test_a_gan_draws_digits(run: Callable[..., tuple[float, float]], tmp_path: Path) -> None:
    """Random pixels are at a distance of 7.1, test images at 2.2; equal images would have no variety."""
    distance, variety = run("dcgan_digits", "--epochs", "8", "--pictures", "made")
    assert distance < 3.7 and variety > 0.6
    assert (tmp_path / "made" / "digits_noise_007.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.backend
def test_regression_by_variables_finds_the_closed_form(run: Callable[..., tuple[float, float]]) -> None:
    difference, explained = run("autograd_regression", "--epochs", "250")
    assert difference < 2e-3 and 0.5 < explained < 0.53


@pytest.mark.cpu_only("takes the emulator a quarter of a minute")
def test_rows_of_digits_look_at_each_other(run: Callable[..., float]) -> None:
    """Guessing would be right one time in ten."""
    assert run("attention_digits", "--epochs", "2") > 0.65


@pytest.mark.backend
def test_a_layer_of_ones_own(run: Callable[..., tuple[float, float]]) -> None:
    wrong, accuracy = run("custom_layer", "--epochs", "5")
    assert wrong < 1e-3 and accuracy > 0.9


@pytest.mark.backend
def test_a_network_defined_by_running_it(run: Callable[..., float], tmp_path: Path) -> None:
    assert run("dynamic_graph_mlp", "--epochs", "3", "--dot", "graph.dot") > 0.9
    assert 'label="cross_entropy()"' in (tmp_path / "graph.dot").read_text(encoding="utf-8")


@pytest.mark.backend
def test_an_interrupted_training_ends_with_the_same_weights(run: Callable[..., bool]) -> None:
    assert run("resume", "--epochs", "4")


@pytest.mark.backend
def test_a_model_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready()
    monkeypatch.setenv("HOME", str(tmp_path))
    on = ["-b", "gpu"] if ON_GPU else []
    file = str(ROOT / "examples" / "digits.yaml")
    model = script.train(*script.parse([file, "--epochs", "4", "--rng_seed", "0", "--no_progress_bar", *on]))
    assert model.eval(Digits().test_iter, metric=Misclassification())[0] < 0.1
    cleanup_backend()
