"""The progress bar: one line an epoch, redrawn in place on a terminal and written once in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from neonlike.callbacks.callback import Callback, recorded_at

__public_module__ = "neonlike.callbacks.callbacks"

BAR_WIDTH = 20


def get_progress_string(
    tag: str, epoch: int, minibatch: int, nbatches: int, cost: float, time: float, blockchar: str = "█"
) -> str:
    """Text of a progress bar.

    Parameters
    ----------
    tag : str
        What is done, e.g. "Train".
    epoch : int
        Number of the epoch.
    minibatch, nbatches : int
        Minibatches done and in all.
    cost : float
        Cost so far.
    time : float
        Seconds so far.

    Examples
    --------
    >>> get_progress_string("Train", 3, 5, 10, 0.25, 1.5, blockchar="#")
    'Epoch 3   [Train |##########          |    5/10   batches, 0.25 cost, 1.50s]'
    """
    blocks = blockchar * (BAR_WIDTH * minibatch // max(nbatches, 1))
    return (
        f"Epoch {epoch:<3} [{tag} |{blocks:<{BAR_WIDTH}}| {minibatch:4}/{nbatches:<4} batches, "
        f"{cost:.2f} cost, {time:.2f}s]"
    )


class ProgressBarCallback(Callback):
    """Shows a progress bar while an epoch runs, and its loss at the end.

    On a terminal the line is redrawn in place; elsewhere only the finished line of an epoch is written.

    Parameters
    ----------
    epoch_freq : int
        Every how many epochs the finished line is written.
    minibatch_freq : int
        Every how many minibatches the bar may be redrawn.
    update_thresh_s : float
        Seconds between redraws.
    """

    def __init__(self, epoch_freq: int = 1, minibatch_freq: int = 1, update_thresh_s: float = 0.1) -> None:
        super().__init__(epoch_freq=epoch_freq, minibatch_freq=minibatch_freq)
        self.update_thresh_s = update_thresh_s
        self._start = self._last_draw = 0.0
        self._live = False
        self._length = 0
        self._line = ""
        self._block = "█"

    def on_train_begin(self, callback_data: Any, model: Any, epochs: int) -> None:
        """Find out what the output can show."""
        self._live = sys.stdout.isatty()
        self._block = _drawable(self._block)

    def on_epoch_begin(self, callback_data: Any, model: Any, epoch: int) -> None:
        """Start the clock."""
        self._start = time.perf_counter()
        self._last_draw = 0.0
        self._length = 0

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        """Redraw the bar if it is time to."""
        now = time.perf_counter()
        done = minibatch + 1
        if (self._live and now - self._last_draw > self.update_thresh_s) or done == model.nbatches:
            self._last_draw = now
            mean = float(model.total_cost[0, 0]) / done
            self._line = get_progress_string("Train", epoch, done, model.nbatches, mean, now - self._start, self._block)
            if self._live:
                self._write("\r" + self._line)

    def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
        """Write the finished line, with the loss if it was computed in this epoch."""
        line = self._line
        if "cost/loss" in callback_data:
            losses, seconds = callback_data["cost/loss"], callback_data["time/loss"]
            if (at := recorded_at(losses, epoch)) is not None:
                name = type(model.cost.costfunc).__name__
                line += f" [{name} Loss {float(losses[at]):.2f}, {float(seconds[at]):.2f}s]"
        self._write(("\r" if self._live else "") + line + "\n")

    def _write(self, text: str) -> None:
        # Blanks wipe the rest of a longer line before.
        length = len(text.strip("\r\n"))
        padding = " " * max(0, self._length - length) if self._live else ""
        sys.stdout.write(text[:-1] + padding + "\n" if text.endswith("\n") else text + padding)
        sys.stdout.flush()
        self._length = length


def _drawable(block: str) -> str:
    """``block`` if the output's encoding has it, else a number sign."""
    try:
        block.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return block
