"""Iterators that draw something for each epoch, such as its order, so that a resumed training draws the same again."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.families.random import make_state
from neonlike.data.protocol import HostIterator


class DrawsEachEpoch(HostIterator):
    """Draws a seed from ``be.rng`` before each epoch; the rest of the epoch follows from it, in any thread.

    The position of the iterator includes the state of ``be.rng`` at the begin of the epoch: an epoch that was
    interrupted is drawn again as it was.

    Attributes
    ----------
    epoch_seed : int
    """

    epoch_seed: int = 0
    _resumed: Any = None

    def progress(self) -> dict[str, Any]:
        """The position, and the state from which the next epoch is drawn."""
        state = self.be.rng_get_state()
        return {**super().progress(), "rng_state": tuple(state), "rand_stream": state.stream}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Draw the next epoch from the state saved."""
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
