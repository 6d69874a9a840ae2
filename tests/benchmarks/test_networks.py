"""The benchmark of networks: their layers, figures from the backend's records, tables. Nothing looks at a time."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.bench.recorder import Bench
from neonlike.nervanaobject import NervanaObject
from tests.benchmarks.modules import bench  # noqa: F401
from tests.support.engines import BACKEND, ON_GPU, backend, ready
from tests.support.recording import Clock, known_rates, shown  # noqa: F401

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.backend]

NAMES = ("alexnet", "overfeat", "vgg_a", "googlenet", "resnet50")

MULTIPLICATIONS = {"alexnet": 0.71e9, "overfeat": 2.81e9, "vgg_a": 7.61e9, "googlenet": 1.58e9, "resnet50": 4.09e9}
"""Of an image forward. OverFeat: its paper's connections, 2810 million; GoogLeNet: its paper says 1.5 billion, and this
is what its table of layers gives; the others: torchvision's table of models (alexnet, vgg11, resnet50)."""
WEIGHTS = {"alexnet": 61.1e6, "overfeat": 145e6, "vgg_a": 132.9e6, "googlenet": 7.0e6, "resnet50": 25.5e6}
"""Parameters, from the same tables; biases and batch normalization, which are in these, are less than 1%."""


def tiny(bench: Any) -> list[Any]:
    """A layer of every kind, of odd sizes; the first and the last ones occur more than once."""
    layers, networks = bench._layers, bench._networks
    return [
        layers.conv2d("net", "conv", 3, (7, 6), 5, 3, 2, 1, count=2),
        layers.conv2d("net", "conv2", 4, 5, 2, 1),
        networks.Relu("net", "relu", 1, 3, 5, 4),
        networks.BatchNorm("net", "bn", 1, 4, 3, 5, relu=True),
        networks.BatchNorm("net", "bn plain", 1, 4, 3, 5),
        layers.Pool("net", "max", 1, "max", 3, 7, 6, 3, 2, 1),
        layers.Pool("net", "avg", 1, "avg", 3, 7, 6, 3, 2, 1),
        layers.Maps("net", "norm", 1, 7, 3, 2, 5),
        networks.Residual("net", "sum", 1, 3, 5, 4),
        networks.Split("net", "split", 1, 3, 5, 4, branches=3),
        layers.Product("net", "fc", 3, 5, 7),
    ]


# The networks ---------------------------------------------------------------------------------------------------


def follow(bench: Any, parts: Any, maps: tuple[int, ...]) -> tuple[int, ...]:
    """Output of ``parts`` for ``maps``; each layer must read the previous layer's output."""
    for part in parts:
        if isinstance(part, bench._networks.Branches):
            ends = [follow(bench, path, maps) for path in part.paths]
            assert len({end[1:] for end in ends}) == 1
            assert part.side_by_side or len(set(ends)) == 1
            maps = (sum(end[0] for end in ends), *ends[0][1:]) if part.side_by_side else ends[0]
        elif isinstance(part, bench._layers.Product):
            assert (part.k, part.n) == (math.prod(maps), 0), part.title
            maps = part.maps_out
        else:
            assert part.maps_in == maps, part.title
            maps = part.maps_out
    return maps


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_reads_what_the_one_before_made(bench: Any, name: str) -> None:
    parts = bench._networks.NETWORKS[name]
    assert follow(bench, parts, (3, 231, 231) if name == "overfeat" else (3, 224, 224)) == (1000, 1, 1)


def test_a_layer_of_another_size_would_be_noticed(bench: Any) -> None:
    parts = list(bench._networks.NETWORKS["vgg_a"])
    del parts[2]  # the first pooling
    with pytest.raises(AssertionError, match="vgg_a conv2"):
        follow(bench, parts, (3, 224, 224))


@pytest.mark.parametrize("name", NAMES)
def test_the_networks_do_the_published_work(bench: Any, name: str) -> None:
    layers = bench._layers
    found = bench._networks.distinct(name)
    products = [layer for layer in found if isinstance(layer, (layers.Conv, layers.Product))]
    done = sum(layer.count * layer.flops(1) for layer in products)
    assert done / 2 == pytest.approx(MULTIPLICATIONS[name], rel=0.006)
    weights = [
        layer.m * layer.k if isinstance(layer, layers.Product) else math.prod(layer.filters)
        for layer in products
    ]
    total = sum(layer.count * number for layer, number in zip(products, weights))
    assert total == pytest.approx(WEIGHTS[name], rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_of_the_tables_is_in_its_network_as_often(bench: Any, name: str) -> None:
    layers, networks = bench._layers, bench._networks
    here = networks.distinct(name)
    assert len({layer.title for layer in here}) == len(here)
    for kind, table in (
        (layers.Conv, layers.CONVOLUTIONS), (layers.Pool, layers.POOLS), (layers.Product, layers.FULLY_CONNECTED),
    ):  # fmt: skip
        listed = {layer for layer in table if layer.network == name}
        assert {layer for layer in here if type(layer) is kind} == listed and listed
    norms = {layer.maps_in: 0 for layer in here if type(layer) is networks.BatchNorm}
    for layer in here:
        if type(layer) is networks.BatchNorm:
            norms[layer.maps_in] += layer.count
    assert norms == {layer.maps_in: layer.count for layer in layers.BATCHNORMS if layer.network == name}


def test_layers_that_occur_again_are_counted(bench: Any) -> None:
    found = {layer.name: layer.count for layer in bench._networks.distinct("resnet50")}
    assert (found["res4b narrow"], found["res4b split"], found["res2a sum"]) == (5, 6, 3)
    assert found["res4a narrow bn"] == 1 and found["res4a 3x3 bn"] == 11
    assert {"conv1 bn": 1, "pool1": 1, "fc": 1}.items() <= found.items()
    assert sum(found.values()) == 53 + 53 + 16 + 16 + 2 + 1


# Figures ---------------------------------------------------------------------------------------------------------


def test_a_figure_is_the_median_of_the_calls_that_count(bench: Any) -> None:
    recorder = Bench(clock=Clock())
    for seconds in (9.0, 9.0, 0.5, 0.125, 0.25):  # two to warm up
        with recorder.measure("net conv: fprop"):
            for _ in range(2):
                recorder.record("conv", [(3, 4)], seconds, 10, 40, "product", "float32")
            recorder.record("relu", [(3, 4)], seconds / 8, 100, 7, "loop", "float32")
        with recorder.measure("net other: fprop"):
            recorder.record("conv", [(3, 4)], 99.0, 10, 40, "product", "float32")
    found = bench.networks.figure(recorder, "net conv: fprop", 3)
    assert found == bench.networks.Figure(2 * 0.25 + 0.25 / 8, 120, 87, True)
    recorder.clear()


def test_rates_are_of_products_or_of_memory(bench: Any) -> None:
    made = bench.networks.Figure
    assert made(0.5, 4_000_000_000, 30_000_000_000, True).rate == "60.0 GFLOP/s"
    assert made(0.5, 4_000_000_000, 30_000_000_000, False).rate == "8.0 GB/s"
    assert made(0.0, 4, 3, False).rate == "-"


@pytest.fixture
def clocked(engine: str) -> Iterator[Backend]:
    """A backend in bench mode whose clock moves by a millisecond whenever it is read."""
    for be in backend(engine, bench=True):
        assert be.bench is not None
        be.bench.meter, be.bench.clock = None, Clock()
        yield be
        be.bench.clear()


def test_every_kind_of_layer_is_measured_by_the_backends_records(bench: Any, clocked: Backend) -> None:
    N, passes = 3, bench._network_calls.PASSES
    for layer in tiny(bench):
        line = bench.networks.measure(clocked, layer, N, passes, 2)
        wanted = {"Split": ("bprop",), "Conv": passes, "Product": passes}.get(type(layer).__name__, passes[:2])
        assert tuple(line.figures) == wanted
        for name, figure in line.figures.items():
            assert clocked.bench is not None
            rows = [row for row in clocked.bench.rows() if row.inside == f"{layer.title}: {name}"]
            assert {row.calls for row in rows} == {2 + bench.networks.WARM}
            assert figure.seconds >= 0.99e-3
            assert figure.seconds == pytest.approx(sum(row.samples[-1] for row in rows))
            assert figure.flops == sum(row.flops // row.calls for row in rows)
            assert figure.product == hasattr(layer, "flops")
            if figure.product:
                assert figure.flops == layer.flops(N)
            if len(rows) == 1 and clocked.engine.name == "c":
                assert figure.seconds == pytest.approx(1e-3)


def test_expressions_move_what_they_read_and_write(bench: Any, clocked: Backend) -> None:
    size = 4 * 2 * 3 * 5 * 4  # bytes of one tensor
    found = {}
    for layer in tiny(bench):
        line = bench.networks.measure(clocked, layer, 2, ("fprop", "bprop"), 1)
        found[layer.name] = {name: figure.nbytes / size for name, figure in line.figures.items()}
    assert found["relu"] == {"fprop": 2, "bprop": 3}
    assert found["sum"] == {"fprop": 3, "bprop": 3}
    assert found["split"] == {"bprop": 4}


def around(bench: Any, be: Backend, name: str, direction: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of one pass before it runs and after, lists of them as arrays of one more axis."""
    layer = next(layer for layer in tiny(bench) if layer.name == name)
    call = bench._network_calls.CALLS[type(layer)](be, layer, 2)[direction]
    tensors = {key: value for key, value in inspect.getclosurevars(call).nonlocals.items() if key != "be"}

    def values() -> dict[str, Any]:
        return {
            key: np.array([t.get() for t in value]) if isinstance(value, list) else value.get()
            for key, value in tensors.items()
        }

    before = values()
    call()
    return before, values()


def test_expressions_are_what_the_layers_compute(bench: Any, be: Backend) -> None:
    given, made = around(bench, be, "relu", "fprop")
    np.testing.assert_array_equal(made["outputs"], np.maximum(given["outputs"], 0))
    given, made = around(bench, be, "sum", "fprop")
    np.testing.assert_array_equal(made["outputs"], np.maximum(given["first"] + given["second"], 0))
    assert 0 < np.count_nonzero(made["outputs"]) < made["outputs"].size
    given, made = around(bench, be, "relu", "bprop")
    np.testing.assert_array_equal(made["errors"], given["errors"] * (given["outputs"] > 0))
    given, made = around(bench, be, "split", "bprop")
    assert given["others"].shape == (2, 60, 2)
    np.testing.assert_allclose(made["deltas"], given["first"] + given["others"].sum(axis=0), rtol=1e-5, atol=1e-6)


# Runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(engine: str, bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the script on a tiny network: its exit status and session."""
    monkeypatch.setattr(bench.networks, "distinct", lambda name: tiny(bench))
    sessions: list[Any] = []

    class Kept(bench.harness.Session):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            sessions.append(self)

    monkeypatch.setattr(bench.networks, "Session", Kept)

    def runner(*argv: str) -> tuple[int, Any]:
        status = bench.networks.main(["--quick", "-b", BACKEND, *argv])
        assert NervanaObject.be is None
        return status, sessions[-1]

    return runner


def test_a_table_a_network(run: Any, bench: Any, capsys: Any, shown: list[str]) -> None:
    status, session = run("--network", "vgg_a,alexnet", "-n", "2", "--threads", "1")
    assert status == 0
    assert session.machine["threads"] == "1"
    out = capsys.readouterr().out
    assert out.count("\nvgg_a, N = 2\n") == out.count("\nalexnet, N = 2\n") == 1
    rows = [re.split(r"  +", line) for line in out.partition("vgg_a, N = 2")[2].splitlines()]
    lines = {row[0]: row[1:] for row in reversed(rows)}
    assert lines["conv"][:2] == ["3x7x6 -> 5, 3x3/2 p1", "2"]
    assert lines["conv"][4:6] == ["-", "-"], "nobody asks for the gradient of the images"
    assert lines["split"][1:4] == ["1", "-", "-"] and lines["split"][6:] == ["-", "-"]
    units = {name: [cell.split(" ")[1] for cell in lines[name][3::2]] for name in ("conv2", "fc")}
    assert units == dict.fromkeys(units, 3 * ["GFLOP/s"])
    assert [cell.split(" ")[-1] for cell in lines["max"][3::2]] == ["GB/s", "GB/s", "-"]
    assert shown == [], "the backend's own report was not asked for"


def test_totals_count_each_layer_as_often_as_it_occurs(run: Any, bench: Any) -> None:
    _, session = run("--network", "vgg_a")
    facts = session.more["vgg_a"]
    assert facts["N"] == bench.networks.QUICK_BATCH
    times = {layer["layer"]: layer["times"] for layer in facts["layers"]}
    assert times == {layer.name: layer.count for layer in tiny(bench)}
    rows = [line.strip("| ").split(" | ") for line in session.tables["vgg_a, N = 8"] if line.startswith("| ")]
    found = {row[0]: row for row in rows}
    everything = {"forward": ("fprop",), "backward": ("bprop", "update"), "both": ("fprop", "bprop", "update")}
    for kind, layers in (
        ("convolution", ["conv", "conv2"]), ("fully connected", ["fc"]), ("sums of branches", ["sum", "split"]),
        ("activation", ["relu"]), ("LRN", ["norm"]), ("pooling", ["max", "avg"]),
        ("batch normalization", ["bn", "bn plain"]), ("total", list(times)),
    ):  # fmt: skip
        some = [layer for layer in facts["layers"] if layer["layer"] in layers]
        assert int(found[kind][1]) == sum(layer["times"] for layer in some)
        for column, passes in zip((2, 4, 6), everything.values()):
            expected = sum(layer["times"] * layer[p]["seconds"] for layer in some for p in passes if p in layer)
            assert float(found[kind][column]) == pytest.approx(1e3 * expected, abs=6e-4)


def test_a_section_of_the_results_is_written(run: Any, bench: Any, monkeypatch: Any, tmp_path: Any) -> None:
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(bench._report, "RESULTS", path)
    if ON_GPU:
        with pytest.raises(SystemExit):
            run("--results")
        return
    _, session = run("--network", "overfeat", "--results", "--json", str(tmp_path / "run.json"))
    text = path.read_text(encoding="utf-8")
    assert "## networks" in text and "### overfeat, N = 8" in text
    assert "| layer | geometry | times | fprop ms | rate | bprop ms | rate | update ms | rate |" in text
    read = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert read["overfeat"] == session.more["overfeat"]


def test_the_report_of_all_kernels_is_there_if_asked_for(run: Any, tmp_path: Any, shown: list[str]) -> None:
    run("--network", "alexnet", "--bench")
    (table,) = shown
    assert "fprop_conv" in table and "net conv2: bprop" in table
    run("--network", "alexnet", "--bench", str(tmp_path / "kernels.json"))
    rows = json.loads((tmp_path / "kernels.json").read_text(encoding="utf-8"))["rows"]
    assert {"net conv2: update", "net relu: fprop"} <= {row["name"] for row in rows}
    assert any(row["inside"] == "net relu: fprop" and "maximum" in row["name"] for row in rows)
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--network", "alexnet,lenet"], "no network lenet; there are alexnet, overfeat"),
        (["-n", "0"], "expected 1 or more, got 0"),
        (["--picture", "a.png"], "--picture: this benchmark draws none"),
        (["-b", "gpu", "--results"], "--results: RESULTS.md is for the cpu backend"),
    ],
)
def test_options_that_make_no_sense(bench: Any, capsys: Any, argv: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.networks.main(argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_backend_that_cannot_be_made_is_an_error_of_one_line(bench: Any, capsys: Any) -> None:
    ready()
    assert bench.networks.main(["-b", BACKEND, "--bench", "report.xml"]) == 2
    assert "networks.py: bench: expected" in capsys.readouterr().err


def test_layers_that_do_not_fit_into_memory_are_left_out(run: Any, bench: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(bench._machine, "free_memory", lambda: 20_000)
    _, session = run("--network", "alexnet")
    assert any("net conv at N = 8: left out" in line for line in session.skipped)
    assert "net conv" not in {layer["layer"] for layer in session.more["alexnet"]["layers"]}
    monkeypatch.setattr(bench._machine, "free_memory", lambda: 1)
    _, session = run("--network", "alexnet")
    assert session.more["alexnet"]["layers"] == [] and len(session.skipped) == len(tiny(bench))
