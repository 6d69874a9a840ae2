"""The small kinds of random checks: a short run of each, and that each sees faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.run import convert
from neonlike.optree.dtypes import bfloat16
from neonlike.transforms import Softmax
from tests.fuzz import bounds, kinds, stores
from tests.fuzz.kinds import KINDS

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.backend, pytest.mark.optimized]

SEEDS = 40
"""`make fuzz` has more."""


@pytest.fixture
def made(be: Backend, kind: str) -> Any:
    """A backend for ``kind``, on the engine of ``be``."""
    return kinds.check.make_backend(be.engine.name.replace("cuda", "gpu"), default_dtype=KINDS[kind].dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_random_cases(made: Any, kind: str) -> None:
    few = 10 if made.engine.name != "numpy" else SEEDS
    assert sum(KINDS[kind].check(made, seed) for seed in range(few)) > 20


def _where(be: Any) -> tuple[Any, str, Any]:
    return be, "where", lambda c, x, y: c * x + (1 - c) * y


def _twice(be: Any) -> tuple[Any, str, Any]:
    return convert, "_store_bfloat16", lambda source, out: out.__setitem__(..., np.asarray(source, np.float32))


def _product(be: Any) -> tuple[Any, str, Any]:
    return be, "prod", lambda x, axis=None: be.sum(x, axis=axis)


def _unweighted(be: Any) -> tuple[Any, str, Any]:
    return Softmax, "cross_entropy_slope", lambda self, y, t: y - t


@pytest.mark.cpu_only("faults of the NumPy engine")
@pytest.mark.engines("numpy")
@pytest.mark.parametrize(
    ("kind", "fault"), [("bits", _where), ("stores", _twice), ("empties", _product), ("pairs", _unweighted)]
)
def test_faults_are_seen(made: Any, kind: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*fault(made))
    with pytest.raises(AssertionError):
        for seed in range(200):
            KINDS[kind].check(made, seed)


@pytest.mark.cpu_only("plain Python")
@pytest.mark.engines("numpy")
@pytest.mark.parametrize("source", ["float64", "int64"])
def test_the_nearest_float16_is_numpys(be: Backend, source: str) -> None:
    host = stores.hard(np.random.default_rng(0), (4000,), "float16", source)
    with np.errstate(over="ignore"):
        plain = host.astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(stores.all_nearest(host, "float16"), plain)


@pytest.mark.cpu_only("plain Python")
@pytest.mark.engines("numpy")
def test_the_bound_of_a_store_in_bfloat16_is_rounded_once(be: Backend) -> None:
    """It was rounded to float32 on the way: right results of random trees counted as wrong."""
    host = stores.hard(np.random.default_rng(0), (4000,), "bfloat16", "float64")
    host[:1] = -3.2421874389641934
    with np.errstate(over="ignore"):
        found = bounds.rounded_once(host, bfloat16()).astype(np.float64)
    assert found[0] == -3.234375
    np.testing.assert_array_equal(found, stores.all_nearest(host, "bfloat16"))
