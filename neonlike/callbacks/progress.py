"""The progress bar: one line per epoch, redrawn in place on a terminal and written once in a log."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from neonlike.callbacks.callback import Callback, recorded_at
from neonlike.callbacks.recording import each_cost

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"

BAR_WIDTH = 20
AVERAGED = 10
"""Number of minibatches in the displayed mean cost."""
LOG_EVERY_S = 60.0
"""Seconds between lines of a long epoch if the output is not a terminal."""


def get_progress_string(
    tag: str,
    epoch: int,
    minibatch: int,
    nbatches: int,
    cost: float | Sequence[float],
    time: float,
    blockchar: str = "█",
) -> str:
    """Format a progress bar as text.

    Parameters
    ----------
    tag : str
        Label of the activity, e.g. "Train".
    epoch : int
        Number of the epoch.
    minibatch, nbatches : int
        Minibatches done, and in total.
    cost : float or list of float
        The cost, or several.
    time : float
        Seconds so far.
    blockchar : str
        Character of the bar.

    Examples
    --------
    >>> from neonlike.callbacks.progress import get_progress_string
    >>> get_progress_string("Train", 3, 5, 10, 0.25, 1.5, blockchar="#")
    'Epoch 3   [Train |##########          |    5/10   batches, 0.25 cost, 1.50s]'
    """
    if isinstance(cost, Sequence | np.ndarray):
        costs = f"({', '.join(f'{one:.2f}' for one in cost)}) costs"
    else:
        costs = f"{cost:.2f} cost"
    blocks = blockchar * (BAR_WIDTH * minibatch // max(nbatches, 1))
    return f"Epoch {epoch:<3} [{tag} |{blocks:<{BAR_WIDTH}}| {minibatch:4}/{nbatches:<4} batches, {costs}, {time:.2f}s]"


class ProgressBarCallback(Callback):
    """Show a progress bar while an epoch runs, and its loss at the end.

    The cost is the mean of the last ten minibatches, or one mean per cost of a Multicost. A terminal shows one line,
    redrawn in place, with the training speed in samples per second and the remaining time. Other outputs get the
    finished line of an epoch, and one line per minute in long epochs.

    Parameters
    ----------
    epoch_freq : int
        Interval in epochs between finished lines.
    minibatch_freq : int
        Minimum interval in minibatches between redraws.
    update_thresh_s : float
        Seconds between redraws.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import ProgressBarCallback
    >>> be = gen_backend("cpu", batch_size=2)
    >>> ProgressBarCallback(update_thresh_s=0.5).update_thresh_s
    0.5
    """

    def __init__(self, epoch_freq: int = 1, minibatch_freq: int = 1, update_thresh_s: float = 0.1) -> None:
        super().__init__(epoch_freq=epoch_freq, minibatch_freq=minibatch_freq)
        self.update_thresh_s = update_thresh_s
        self._start = self._last_draw = 0.0
        self._live = False
        self._length = 0
        self._line = ""
        self._block = "█"
        self._first = 0
        self._costs: deque[np.ndarray] = deque(maxlen=AVERAGED)

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Detect the capabilities of the output.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        self._live = sys.stdout.isatty()
        self._block = _drawable(self._block)
        self._costs.clear()

    def on_epoch_begin(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Start the clock.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_begin`.
        """
        self._start = time.perf_counter()
        self._last_draw = 0.0 if self._live else self._start
        self._length, self._line = 0, ""
        self._first = getattr(getattr(model, "progress", None), "minibatches", 0)

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Redraw the bar if it is due.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        self._costs.append(each_cost(model.cost))
        now, done = time.perf_counter(), minibatch + 1
        if now - self._last_draw <= (self.update_thresh_s if self._live else LOG_EVERY_S) and done != model.nbatches:
            return
        self._last_draw = now
        mean = np.mean(self._costs, axis=0)
        cost = mean.tolist() if len(mean) > 1 else float(mean[0])
        seconds = now - self._start
        self._line = get_progress_string("Train", epoch, done, model.nbatches, cost, seconds, self._block)
        pace = self._pace(done - self._first, model.nbatches - done, seconds)
        if self._live:
            self._write("\r" + self._line + pace)
        elif pace:
            self._write(f"{self._line}{pace}\n")

    def _pace(self, done: int, left: int, seconds: float) -> str:
        """Format samples per second and the estimated time for ``left`` more minibatches; empty at the end."""
        if done < 1 or left < 1 or not seconds:
            return ""
        return f" {_amount(done * self.be.global_bsz / seconds)} samples/s, {_duration(seconds / done * left)} left"

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Write the finished line, with the loss if it was evaluated in this epoch.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        line = self._line
        if "cost/loss" in callback_data:
            losses, seconds = callback_data["cost/loss"], callback_data["time/loss"]
            if (at := recorded_at(losses, epoch)) is not None:
                name = type(model.cost.costfunc).__name__
                line += f" [{name} Loss {float(losses[at]):.2f}, {float(seconds[at]):.2f}s]"
        self._write(("\r" if self._live else "") + line + "\n")

    def _write(self, text: str) -> None:
        # Blanks erase the rest of a longer previous line.
        length = len(text.strip("\r\n"))
        padding = " " * max(0, self._length - length) if self._live else ""
        sys.stdout.write(text[:-1] + padding + "\n" if text.endswith("\n") else text + padding)
        sys.stdout.flush()
        self._length = length


def _drawable(block: str) -> str:
    """Return ``block`` if the output's encoding supports it, else a number sign."""
    try:
        block.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return block


def _amount(number: float) -> str:
    """Format a positive number with two digits: 3.4, 120, 56k."""
    number = float(f"{number:.2g}")
    if number < 10:
        return f"{number:.2g}"
    return f"{number:.0f}" if number < 10_000 else f"{number / 1000:.0f}k"


def _duration(seconds: float) -> str:
    """Format seconds for people: 12s, 3m05s, 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"
