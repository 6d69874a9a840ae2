"""Random numbers: the host generator ``be.rng`` for initializers and masks, Philox for ``rand`` in expressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.families.base import Family
from neonlike.errors import ShapeError
from neonlike.optree import functions


class RngState(tuple[Any, ...]):
    """NumPy's 5-tuple with the number of ``rand`` calls made so far in the attribute ``calls``."""

    calls: int = 0

    def __reduce__(self) -> Any:
        return _restore_state, (tuple(self), self.calls)


def _restore_state(state: tuple[Any, ...], calls: int) -> RngState:
    restored = RngState(state)
    restored.calls = calls
    return restored


class RandomFamily(Family):
    """Equal seeds give equal numbers; ``rng_reset`` and ``rng_set_state`` replay exactly.

    Attributes
    ----------
    rng : numpy.random.RandomState
        Host generator.
    rng_seed : int or None
    deterministic : bool
        True if a seed was given.
    """

    def _init_random(self, seed: int | None) -> None:
        self.rng_seed = seed
        self.deterministic = seed is not None
        self.gen_rng(seed)

    def gen_rng(self, seed: int | None = None) -> np.random.RandomState:
        """Start ``be.rng`` and the ``rand`` stream from ``seed`` (None: system entropy); returns ``be.rng``."""
        self.rng = np.random.RandomState(seed)
        self._philox_seed = int(np.random.SeedSequence(seed).entropy) & (2**64 - 1)  # type: ignore[arg-type]
        self._rand_calls = 0
        self.init_rng_state = self.rng_get_state()
        return self.rng

    def rng_get_state(self) -> RngState:
        """State of both generators; a 5-tuple as ``RandomState.get_state`` gives."""
        return _restore_state(self.rng.get_state(), self._rand_calls)

    def rng_set_state(self, state: Any) -> None:
        """Restore a state of :meth:`rng_get_state`; a plain NumPy state restarts ``rand`` from its first call."""
        self.rng.set_state(tuple(state))
        self._rand_calls = getattr(state, "calls", 0)

    def rng_reset(self) -> None:
        """Back to the state right after seeding."""
        self.rng_set_state(self.init_rng_state)

    def next_rand_call(self) -> int:
        """Number of the next ``rand``, which is the upper half of its Philox counter."""
        self._rand_calls += 1
        return self._rand_calls - 1

    def rand(self, out: Any = None) -> Any:
        """U[0, 1) for each element of the target; lazy, takes the shape it is used at.

        The numbers are fixed when the node is built: the same node gives the same numbers wherever it is used,
        the next ``rand()`` gives others.
        """
        return self._finish(functions.rand(self, self._philox_seed, self.next_rand_call()), out)

    def dropout(self, keep: float = 0.5, out: Any = None) -> Any:
        """Mask of ones with probability ``keep``: ``rand() <= keep``, lazy."""
        _check_probability("dropout", keep)
        return self._finish(self.rand() <= keep, out)

    def make_binary_mask(self, out: Any, keepthresh: float = 0.5) -> None:
        """Fill ``out`` with ones with probability ``keepthresh``, zeros elsewhere, drawn from ``be.rng``."""
        _check_probability("make_binary_mask", keepthresh)
        out.set(np.less(self.rng.uniform(size=out.shape), keepthresh))

    def fill_normal(self, ary: Any, mean: float = 0, stdv: float = 1) -> None:
        """Fill ``ary`` with N(mean, stdv**2), drawn from ``be.rng``."""
        ary.set(self.rng.standard_normal(size=ary.shape) * stdv + mean)


def _check_probability(name: str, keep: float) -> None:
    if not 0 <= keep <= 1:
        raise ShapeError(f"{name}: the probability to keep must be in [0, 1], got {keep}")
