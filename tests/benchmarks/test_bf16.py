"""Benchmarks in bfloat16: who takes part, with which operands and settings; the summary. Nothing looks at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.optree.dtypes import as_dtype
from tests.benchmarks.modules import bench, run  # noqa: F401
from tests.benchmarks.primitives import script, tiny  # noqa: F401

PRODUCTS = ("conv", "conv_shapes", "rnn", "gemm", "gemm_shapes", "attention")
"""Scripts of compound primitives that have a precision."""
IN_BF16 = [
    "neonlike", "neonlike bfloat16", "neonlike float32", "torch NCHW autocast", "torch NCHW bfloat16",
    "torch NHWC autocast", "torch NHWC bfloat16",
]  # fmt: skip


# Compound primitives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_both_precisions_of_ours_and_both_ways_of_pytorch_are_measured(script: Any, name: str) -> None:
    status, session = script(name, "--quick", "--batches", "3", "--precision", "bfloat16")
    assert (status, session.subject) == (0, f"{name} bfloat16")
    assert session.machine["products"].startswith("bfloat16")
    rates = session.form
    assert set(rates.targets.values()) == {1.0}
    for row in rates.rows:
        assert list(row.results) == IN_BF16
        assert row.ours.contender in IN_BF16[:2] and row.best.contender in IN_BF16[3:] and row.gain is not None
        least = 5e-2 if name in ("rnn", "attention") else 1e-5
        assert max(row.results[who].error for who in ("neonlike", "neonlike float32")) < least
        assert row.results["neonlike bfloat16"].error < 5e-2, "whose results are rounded, too"
    for words in ("ours in float32 takes", "with float32 tensors PyTorch", "with tensors in bfloat16 PyTorch"):
        lines = [line for line in session.verdicts if words in line]
        assert len(lines) == len({row.direction for row in rates.rows})
    cell = rates.table(session, rates.rows[0].N)[-1]
    assert re.search(r"\d / [\d.]+; [\d.]+x; \d+%; [\d.]+x \|", cell)


def test_each_of_ours_has_its_precision(script: Any, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], bench.gemm.Multiplication.ours

    def ours(problem: Any, library: Any) -> Any:
        seen.append((library.be.product_precision, problem.W.dtype.name, library.be.zeros(1).dtype.name))
        return real(problem, library)

    monkeypatch.setattr(bench.gemm.Multiplication, "ours", ours)
    monkeypatch.setenv("NEONLIKE_PRODUCT_PRECISION", "bfloat16")
    single, half = ("float32",) * 2, ("bfloat16",) * 2
    ways = [("bfloat16", *single), ("float32", *half), ("float32", *single)]
    for argv, expected in ((["--precision", "bfloat16"], ways), ([], ways[:1])):
        seen.clear()
        script("gemm", "--only", "square", *argv)
        assert seen == expected, "without the option the user's setting holds"


def test_like_is_compared_with_like(bench: Any) -> None:
    """Each of our ways with PyTorch's way to it; the faster of each for the ratio."""
    seconds = {
        "neonlike": 2.0, "neonlike bfloat16": 4.0, "torch NCHW autocast": 3.0, "torch NHWC autocast": 5.0,
        "torch NCHW bfloat16": 6.0, "torch NHWC bfloat16": 1.0,
    }  # fmt: skip
    results = {who: bench._cases.Result("", "", 0, who, s, samples=[s] * 2) for who, s in seconds.items()}
    row = bench._primitives.Row(SimpleNamespace(), 1, "fprop", results)
    assert (row.ratio, row.ratio_of("neonlike"), row.ratio_of("neonlike bfloat16")) == (0.5, 1.5, 0.25)


@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_are_numbers_that_bfloat16_has(bench: Any, name: str) -> None:
    """So that the bound of what only rounds operands is that of float32."""
    suite, dtype = getattr(bench, name).SUITE, as_dtype("bfloat16")
    for layer in tiny(bench, name):
        made = suite.problem(layer, layer.minibatch(2), next(iter(suite.directions_of(layer))))
        plain = {key: value.copy() for key, value in operands(made)}
        made.round()
        assert len(plain) >= 3 and made.tolerance == (5e-2 if made.rounds_within else suite.problem.tolerance)
        for key, value in operands(made):
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value, plain[key].astype(dtype).astype(np.float32))
            assert np.any(value != plain[key])


def operands(problem: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of a problem by name."""
    for name, value in (vars(problem) | vars(problem).get("arrays", {})).items():
        if isinstance(value, np.ndarray):
            yield name, value


def test_numbers_are_rounded_to_even(bench: Any) -> None:
    between = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20, 0.0, -0.0, 3e38], np.float32)
    expected = np.array([1, 1 + 2**-6, -1, 1 + 2**-7, 0.0, -0.0, 3e38], np.float32).astype(as_dtype("bfloat16"))
    found = bench._precision.rounded(between)
    np.testing.assert_array_equal(found.view(np.uint32), expected.astype(np.float32).view(np.uint32))


def test_names_say_the_way_of_pytorch(bench: Any) -> None:
    way_of = bench._precision.way_of
    assert way_of("torch (N, features) autocast") == ("torch (N, features)", "autocast")
    assert way_of("torch bfloat16") == ("torch", "bfloat16")
    for plain in ("torch NHWC", "numpy", "neonlike", "neonlike bfloat16"):
        assert way_of(plain) == (plain, "")


def test_scripts_without_products_have_no_precision(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pool", "batchnorm", "lrn"):
        with pytest.raises(SystemExit):
            getattr(bench, name).SUITE.parse(["--precision", "bfloat16"])
        assert "invalid choice: 'bfloat16'" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            getattr(bench, name).SUITE.parse(["--help"])
        assert "--precision" not in capsys.readouterr().out


@pytest.mark.peers("torch")
@pytest.mark.parametrize("name", PRODUCTS)
def test_pytorchs_ways_are_right_and_what_they_are_called(bench: Any, name: str) -> None:
    import torch

    suite, before = getattr(bench, name).SUITE, torch.is_grad_enabled()
    suite.layers = tiny(bench, name)
    suite.precision = "bfloat16"
    torch.set_grad_enabled(False)
    try:
        with gen_backend("cpu", rng_seed=0, product_precision="bfloat16") as be:
            for layer in suite.layers:
                for direction in suite.directions_of(layer):
                    for who in suite.taking(SimpleNamespace(precision="bfloat16")):
                        case = suite.make(be, who, layer.title, layer.minibatch(3), direction)
                        able, results = bench.harness.check(case)
                        assert len(able) == 1, results
                        if who.startswith("torch"):
                            assert results[0].error > 1e-6, "its results are rounded"
    finally:
        torch.set_grad_enabled(before)


# Whole networks -------------------------------------------------------------------------------------------------


def test_networks_train_under_autocast(bench: Any) -> None:
    """Weights of bfloat16 lose what an optimizer adds to them; forward alone they may be."""
    suite = bench.models.SUITE
    options = suite.parse(["--precision", "bfloat16", "--only", "vgg,mlp"])
    assert suite.subject(options) == "models bfloat16"
    training, inference = (suite.taking_part(key, options)[0] for key in suite.plan(options)[:2])
    peers = ["torch", "torch NHWC", "torch.compile"]
    assert training == ["neonlike", "neonlike float32", *(f"{peer} autocast" for peer in peers)]
    assert inference == [*training[:2], *(f"{peer} {way}" for peer in peers for way in ("autocast", "bfloat16"))]
    assert "torch NHWC autocast" not in suite.taking_part(suite.plan(options)[2], options)[0]
    quick = suite.parse(["--precision", "bfloat16", "--quick"])
    assert set(suite.taking_part(("mlp", "training, bfloat16", 2), quick)[1]) == {"torch.compile autocast"}


def test_a_gpu_has_another_precision(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.models.SUITE.parse(["--precision", "bfloat16", "-b", "gpu"])
    assert "a GPU is measured in float32 and TF32, got bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize(("who", "precision"), [("neonlike", "bfloat16"), ("neonlike float32", "float32")])
def test_networks_of_ours_are_set_to_their_precision(bench: Any, who: str, precision: str) -> None:
    desk = bench.models.ModelDesk(who, "cpu", 0.0)
    found = desk.check("digits", "training, bfloat16", 1, bench.models.SUITE.truth(on_host(), "digits", "", 1))
    assert desk.made.be.product_precision == precision
    (result,) = found["results"]
    low, high = {"bfloat16": (1e-3, 0.1), "float32": (0.0, 1e-3)}[precision]
    assert low <= result["error"] < high


def on_host() -> Any:
    """Options with which the reference is ours."""
    return SimpleNamespace(backend="gpu")


def test_targets_in_bfloat16_are_higher(bench: Any) -> None:
    make, models = bench._cases.Result, bench.models
    cells = [
        make(net, "training, bfloat16", 2, who, seconds, samples=[seconds], memory=memory)
        for net in ("mlp", "vgg")
        for who, seconds, memory in (
            ("neonlike", 1.0, 100), ("neonlike float32", 1.9, 1), ("torch autocast", 1.28, 110),
            ("torch NHWC autocast", 2.0, 120),
        )
    ]  # fmt: skip
    lines = models.verdicts(cells)
    assert "mlp, training, bfloat16: torch autocast takes 1.28 times as long (target >= 1.05): met" in lines
    assert "vgg, training, bfloat16: neonlike float32 takes 1.90 times as long" in lines
    assert "2 networks, training, bfloat16: 1.28 on the geometric mean (target >= 1.3): MISSED" in lines
    assert "mlp, memory: 0.91 of PyTorch's (target <= 1): met" in lines, "ours in float32 is no peer"


def test_errors_of_rounding_are_no_mistakes(bench: Any) -> None:
    Case, Contender, Result = bench._cases.Case, bench._cases.Contender, bench._cases.Result
    for mode, able in (("training", ["torch autocast"]), ("training, bfloat16", ["neonlike", "torch autocast"])):
        errors = {"neonlike": 0.2, "torch autocast": 0.07}
        case = Case("mlp", mode, 1, [Contender(who, list, list) for who in errors], list)
        case.checked = [Result("mlp", mode, 1, who, error=error) for who, error in errors.items()]
        bench.models.SUITE.judge(case)
        assert [contender.name for contender in case.contenders][-len(able) :] == able
        assert bool(case.checked[0].wrong) == (mode == "training")


# The summary ----------------------------------------------------------------------------------------------------


def cells(bench: Any, case: str, text: str, ours: float, plain: float, *theirs: float, size: int = 32) -> list[Any]:
    """Results of a case, as a script's file has them."""
    make, dict_of = bench._cases.Result, bench._apart.dataclasses.asdict
    seconds = {"neonlike": ours, "neonlike float32": plain}
    seconds |= dict(zip(("torch NCHW autocast", "torch NHWC bfloat16"), theirs, strict=False))
    return [dict_of(make(case, text, size, who, s, samples=[s] * 2)) for who, s in seconds.items()]


@pytest.fixture
def parts(bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs bf16.py on what made-up scripts have measured: ``status``, ``written``; ``log`` has their arguments."""
    made = SimpleNamespace(status={}, written={}, log=[])

    def started(name: str, arguments: list[str]) -> tuple[int, Any]:
        made.log.append((name, *arguments))
        return made.status.get(name, 0), {"results": [], "beside": []} | made.written.get(name, {})

    monkeypatch.setattr(bench.bf16, "run", started)
    monkeypatch.setattr(bench._suite, "installed", lambda name: True)
    made.run = lambda *argv: run(bench.bf16.SUITE, *argv)
    return made


def test_the_summary_has_means_and_slowest_cases_of_each_part(parts: Any, bench: Any) -> None:
    parts.written["gemm_shapes"] = {"results": [
        *cells(bench, "square 512: fprop", "", 1.0, 2.0, 0.9, 0.5, size=0),
        *cells(bench, "odd: fprop", "", 1.0, 2.0, 2.0, size=0),
        *cells(bench, "odd: bprop", "", 1.0, 4.0, 3.0, 3.5, size=0),
    ]}  # fmt: skip
    parts.written["models"] = {"beside": [
        *cells(bench, "mlp", "training, bfloat16", 1.0, 3.0, 4.0),
        *cells(bench, "vgg", "training, bfloat16", 1.0, 3.0, 1.0),
    ]}  # fmt: skip
    status, session = parts.run("--only", "products,training steps", "--quick")
    assert status == 0
    assert parts.log == [
        ("gemm_shapes", "--precision", "bfloat16", "--list", "all", "--quick"),
        ("models", "--precision", "bfloat16", "--modes", "training", "--quick"),
    ]
    assert session.tables["Summary"][-3:] == [
        "| products | fprop | 2 | 1.00x | 0.50x square 512 | 2.00x |",
        "| products | bprop | 1 | 3.00x | 3.00x odd | 4.00x |",
        "| training steps | all | 2 | 2.00x | 1.00x vgg | 3.00x |",
    ]
    assert session.verdicts == [
        "products, fprop, geometric mean over 2: PyTorch takes 1.00 times as long, ours in float32 2.00 times (lowest "
        "0.50, square 512; target 1): met",
        "products, bprop, geometric mean over 1: PyTorch takes 3.00 times as long, ours in float32 4.00 times (lowest "
        "3.00, odd; target 1): met",
        "training steps, all, geometric mean over 2: PyTorch takes 2.00 times as long, ours in float32 3.00 times "
        "(lowest 1.00, vgg; target 1.3): met",
        "training steps, all, lowest: 1.00, vgg (target 1.05): MISSED",
    ]
    assert session.machine["products"].startswith("bfloat16")


def test_all_parts_are_run_and_what_failed_is_told(parts: Any, bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parts.status |= {"conv": -9, "attention": 1}
    wrong = bench._cases.Result("8x64 a: fprop", "", 1, "neonlike", note="not timed, because it is wrong", wrong=True)
    parts.written["attention"] = {"results": [bench._apart.dataclasses.asdict(wrong)]}
    status, session = parts.run()
    assert status == 1
    assert [name for name, *_ in parts.log] == [part.script for part in bench.bf16.PARTS.values()]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "convolutions of networks at 0, neonlike: benchmarks/conv.py ended with status -9",
        "8x64 a: fprop at 1, neonlike: not timed, because it is wrong",
    ]
    assert "attention, fprop: nothing to compare" in session.verdicts


def test_arguments_of_the_parts_are_those_of_their_scripts(bench: Any) -> None:
    for part in bench.bf16.PARTS.values():
        suite = getattr(bench, part.script).SUITE
        options = suite.parse(["--precision", "bfloat16", *part.arguments])
        assert suite.plan(options)


def test_a_script_is_run_to_its_end(bench: Any) -> None:
    """Without PyTorch or with an option it does not know, it measures nothing."""
    assert bench.bf16.run("gemm_shapes", ["--list", "nonsense"]) == (2, {"results": [], "beside": []})
    status, written = bench.bf16.run("harness", ["--quick"])
    assert (status, written["subject"]) == (0, "harness")
    assert written["command"] == "python benchmarks/harness.py --quick", "the file is gone when a section is read"


# The machine ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ("fma avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "avx512_bf16, amx_bf16"), ("avx512_bf16", "avx512_bf16"),
        ("sse2 avx2", "no instructions"),
    ],
)  # fmt: skip
def test_the_processors_instructions_are_told(bench: Any, tmp_path: Any, flags: str, shown: str) -> None:
    table = tmp_path / "cpuinfo"
    table.write_text(f"model name\t: X\nflags\t\t: {flags}\nbugs\t\t: none\n")
    assert bench._machine._for_bfloat16(table) == shown
    assert bench._machine._for_bfloat16(tmp_path / "nothing") == "no instructions"
    assert "bfloat16" in bench._machine.describe()
