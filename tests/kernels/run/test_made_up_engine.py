"""Adding an engine takes one method, ``stage``: a made-up engine is run, explained and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.planning.graph import Graph, linearize
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run.stage import Layouts, Run
from tests.made_up.plain_engine import PlainCPU, PlainEngine, PlainStage

pytestmark = [pytest.mark.cpu_only("an engine of the CPU, made up"), pytest.mark.engines("numpy")]

EXPRESSIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "elementwise": lambda be, x, y: x * y + 2.5 - be.exp(-be.absolute(x)),
    "transposed and broadcast": lambda be, x, y: (x.T * 2).T + y[:, :1],
    "around a reduction": lambda be, x, y: be.sqrt(x * x) / (be.sum(y * y, axis=1) + 1),
    "around a product": lambda be, x, y: be.dot(x + y, y.T - 1) * 0.5,
    "left to the NumPy engine": lambda be, x, y: be.sig(x) * (x > y),
    "a number": lambda be, x, y: 3,
}


@pytest.fixture
def plain() -> Iterator[Any]:
    """A backend on the made-up engine."""
    with PlainCPU() as made:
        yield made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_it_computes_what_numpy_blocks_do(be: Any, name: str, dtype: str, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 4, 6)).astype(dtype)
    shape = (4, 4) if "product" in name else (4, 6)
    results = []
    for made in (be, PlainCPU()):
        out = made.empty(shape, dtype=dtype)
        tensors = made.array(x, dtype=dtype), made.array(y, dtype=dtype)
        out[:] = EXPRESSIONS[name](made, *tensors)
        step = made.prepare(out, EXPRESSIONS[name](made, *tensors))
        first = out.get()
        out[:] = 0
        step()
        assert np.array_equal(out.get(), first)
        results.append(first)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6 if dtype == "float32" else 1e-15, atol=0)


def test_what_reads_its_target_is_copied_at_the_end(plain: Any) -> None:
    x = plain.array([[1.0, 2.0], [3.0, 4.0]])
    x[:] = x.T + x
    assert x.get().tolist() == [[2, 5], [5, 8]]


def test_it_makes_its_stages_and_is_explained_and_timed(plain: Any) -> None:
    x, out = plain.ones((3, 4)), plain.empty((3, 4))
    graph: Graph = linearize([(out, x * 2 + 1)])
    (stage,) = PlainEngine().make_stages(make_plan(graph), graph)
    assert isinstance(stage, PlainStage) and stage.sources(Layouts(graph)) == []
    stage.ready(Run(graph))()
    assert (out.get() == 3).all()
    assert "engine      plain, 1 stage" in plain.explain(x * 2 + 1)
    plain.bench = True
    out[:] = x * 2 + 1
    assert "((t0 * c0) + c1)" in plain.bench_report()
    plain.bench = False
