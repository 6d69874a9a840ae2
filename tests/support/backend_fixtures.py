"""Backends as fixtures, and the marks that say on which engines a test runs.

    pytestmark = pytest.mark.engines("numpy", "c")    # each test that takes `be` (or `engine`) runs once on each
    @pytest.mark.engines("c")                         # this one on compiled C only
    (no mark)                                         # on the engine there is: C where there is a compiler
    pytestmark = pytest.mark.optree                   # what expressions mean: as engines("numpy", "c")
    pytestmark = pytest.mark.samples(4)               # `be` and `be64` with batches of 4

Further arguments are options of the backend: ``engines("gpu", batch_size=16)``. With ``--backend gpu`` the same tests
run once each, on the GPU backend. A plugin that conftest.py loads once the options are known: which engines there are
depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend
from neonlike.kernels.c.stage import CStage
from tests.support.engines import ANY, ENGINES, backend, on_engine


def engines_of(test: Any) -> tuple[str, ...]:
    """The engines on which a test that takes ``engine`` runs, as its marks say."""
    mark = test.get_closest_marker("engines")
    if mark is not None:
        return tuple(mark.args)
    return ("numpy", "c") if test.get_closest_marker("optree") else (ANY,)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of several engines becomes a test for each; it has its name in brackets."""
    if "engine" in metafunc.fixturenames and len(engines_of(metafunc.definition)) > 1:
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Engine of this test, chosen by ``gen_backend("cpu")`` while it runs. ("gpu" with ``--backend gpu``.)"""
    name = getattr(request, "param", None) or engines_of(request.node)[0]
    with on_engine(name) as chosen:
        yield chosen


def options_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of backends that the marks of a test ask for."""
    engines, samples = (request.node.get_closest_marker(name) for name in ("engines", "samples"))
    batch_size = {"batch_size": samples.args[0]} if samples is not None else {}
    return {**batch_size, **(engines.kwargs if engines is not None else {})}


@pytest.fixture
def be(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A fresh backend with a fixed seed, cleaned up afterwards.

    Its batch size is 128 unless the marks say otherwise.
    """
    yield from backend(engine, **options_of(request))


@pytest.fixture
def be64(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """As ``be``, computing in float64."""
    yield from backend(engine, **{"datatype": np.float64, **options_of(request)})


@pytest.fixture(params=["float32", "float64", "float16"])
def any_be(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """As ``be``, computing in each float dtype."""
    yield from backend(engine, datatype=np.dtype(request.param).type)


@pytest.fixture
def compiled() -> Iterator[Backend]:
    """A backend on compiled kernels."""
    yield from backend("c")


@pytest.fixture
def no_backend_left() -> Iterator[None]:
    """Whatever backend a test made the current one is cleaned up after it."""
    yield
    cleanup_backend()


@pytest.fixture
def compiled_or_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C engine must not fall back to NumPy because a kernel does not compile."""
    compile_stage = CStage._compile

    def compile_or_fail(stage: CStage, *form: Any) -> Any:
        function = compile_stage(stage, *form)
        assert function is not None, f"{stage.comment} did not compile as {form}; the log says why"
        return function

    monkeypatch.setattr(CStage, "_compile", compile_or_fail)
