"""Random numbers of ranks: ``be.rng`` is in one state on all of them, masks and noise differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import cleanup_backend, gen_backend, registry
from tests.support.ranks import OneOf

DRAWS: dict[str, Callable[[Any, Any], None]] = {
    "make_binary_mask": lambda be, out: be.make_binary_mask(out, 0.5),
    "fill_normal": lambda be, out: be.fill_normal(out),
    "rand": lambda be, out: be.assign(out, be.rand()),
    "dropout": lambda be, out: be.assign(out, be.dropout(0.5)),
    "randn": lambda be, out: be.assign(out, be.randn()),
}


@pytest.fixture(autouse=True)
def no_backend_is_left() -> Iterator[None]:
    """The backends of this file are of ranks that are not there."""
    yield
    cleanup_backend()


def drawn(rank: int, size: int, draw: Callable[[Any, Any], None]) -> tuple[np.ndarray, float]:
    """Two drawings of a rank, one after the other, and the next number of ``be.rng``."""
    be = gen_backend("cpu", rng_seed=5)
    be.ranks = OneOf(rank, size)
    out = be.empty((20, 30))
    found = []
    for _ in range(2):
        draw(be, out)
        found.append(out.get())
    return np.array(found), float(be.rng.uniform())


@pytest.mark.parametrize("name", DRAWS)
def test_ranks_draw_numbers_of_their_own(name: str) -> None:
    found = [drawn(rank, 3, DRAWS[name]) for rank in range(3)]
    for values, _ in found:
        assert not np.array_equal(values[0], values[1])
    for other, _ in found[1:]:
        assert abs(np.corrcoef(other.ravel(), found[0][0].ravel())[0, 1]) < 0.15
    assert len({following for _, following in found}) == 1, "be.rng is in one state"


@pytest.mark.parametrize("name", DRAWS)
def test_equal_seeds_repeat_on_each_rank(name: str) -> None:
    first, second = (drawn(1, 2, DRAWS[name])[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_a_seed_of_the_system_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(OneOf):
        """Rank 1, who is told that rank 0 drew 77."""

        def tell(self, thing: Any) -> list[Any]:
            return [77, thing]

    monkeypatch.setattr(registry, "silence", lambda ranks: None)
    be = gen_backend("cpu")
    registry._join(be, Told(1, 2))
    assert be.rng.randint(1 << 30) == np.random.RandomState(77).randint(1 << 30)
