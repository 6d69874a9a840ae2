"""Iterators with random draws per epoch, such as the order, that a resumed training repeats exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.expressions.random import make_state
from neonlike.data.protocol import HostIterator


class DrawsEachEpoch(HostIterator):
    """Draws a seed from ``be.rng`` before each epoch; everything random in the epoch follows from it, in any thread.

    The iterator's position includes the state of ``be.rng`` at the start of the epoch, so an interrupted epoch is drawn
    again identically.

    Attributes
    ----------
    epoch_seed : int
        The seed of the epoch.
    """

    epoch_seed: int = 0
    _resumed: Any = None

    def progress(self) -> dict[str, Any]:
        """The position, and the random state before the next epoch's draw."""
        state = self.be.rng_get_state()
        return {**super().progress(), "rng_state": tuple(state), "rand_stream": state.stream}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore the saved random state for the next epoch."""
        super().set_progress(saved)
        if "rng_state" in saved and "rand_stream" in saved:
            self._resumed = make_state(saved["rng_state"], saved["rand_stream"])

    def prepare_epoch(self) -> None:
        """Draw the seed of the epoch."""
        super().prepare_epoch()
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            self.be.rng_set_state(resumed)
        self.epoch_seed = int(self.be.rng.randint(np.iinfo(np.int32).max))
