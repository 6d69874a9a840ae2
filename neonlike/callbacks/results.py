"""Results of a classifier on a data set: a confusion matrix, and the samples that it is most wrongly sure of."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.tensor import Tensor

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.distributed.ranks import Ranks

MOST_CLASSES = 1000
"""Classes of a confusion matrix, at most."""
MOST_OUTPUTS = 1 << 24
"""Outputs of a batch that are looked at: more would take longer to copy than the evaluation takes."""
MOST_SAMPLES = 24
"""Wrongly classified samples that are kept."""
MOST_PIXELS, MOST_WORDS, MOST_VALUES = 64, 40, 8
"""Kept of a sample: pixels along an edge of an image, words of a text, numbers of a vector."""

NO_CLASSES = "The targets are not classes: expected one-hot columns, or labels and an output for each class."


class Results:
    """Collects what a network answers to the samples of a data set.

    Parameters
    ----------
    dataset : iterator
        The data set; shapes of its samples, and words of its texts are read from it.

    Attributes
    ----------
    why : str
        Reason why nothing is collected; empty if something is.
    crowded : str
        Reason why there is no confusion matrix though samples are collected; else empty.
    """

    def __init__(self, dataset: DataIterator) -> None:
        self._shape = getattr(dataset, "shape", None)
        self._words = _words(dataset, "index_to_token", "index_to_word")
        self._input_words = _words(dataset, "s_index_to_token") or self._words
        self.restart()

    def restart(self) -> None:
        """Forget all samples."""
        self.why = self.crowded = ""
        self._counts: np.ndarray | None = None
        self._wrong: list[tuple[float, int, dict[str, Any]]] = []
        self._seen = 0

    def see(self, x: Any, y: Any, t: Any, valid: int, steps: int) -> None:
        """Count a batch: inputs, outputs, targets, samples without padding and steps of the outputs."""
        if self.why:
            return
        columns = valid * steps
        if not isinstance(y, Tensor) or not isinstance(t, Tensor):
            self.why = "The network has several outputs, or targets with a mask."
            return
        if y.size > MOST_OUTPUTS:
            self.why = f"A batch has {y.size:,} outputs; at most {MOST_OUTPUTS:,} are looked at."
            return
        outputs = y.get()[:, :columns]
        labels = _labels(outputs, t.get(), y.shape[1])
        if labels is None:
            self.why = NO_CLASSES
            return
        guesses = (outputs[0] > 0.5).astype(int) if len(outputs) == 1 else outputs.argmax(axis=0)
        self._count(labels, guesses, max(len(outputs), 2))
        sure = outputs.max(axis=0) if len(outputs) > 1 else abs(outputs[0].astype(np.float64) - 0.5) + 0.5
        for column in self._surest(sure, (labels != guesses) & (labels >= 0)):
            entry = {"truth": int(labels[column]), "guess": int(guesses[column]), "output": float(sure[column])}
            self._note(x, entry, int(column), columns // steps, steps)
        self._seen += valid

    def _count(self, labels: np.ndarray, guesses: np.ndarray, classes: int) -> None:
        if classes > MOST_CLASSES:
            self.crowded = f"The network has {classes:,} classes; a confusion matrix has {MOST_CLASSES:,} at most."
            return
        if self._counts is None:
            self._counts = np.zeros((classes, classes), np.int64)
        known = labels >= 0
        np.add.at(self._counts, (labels[known], guesses[known]), 1)

    def _surest(self, sure: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        """Wrong columns of a batch that may be kept: those of which the network is surest."""
        least = self._wrong[0][0] if len(self._wrong) == MOST_SAMPLES else -math.inf
        columns = np.flatnonzero(wrong & np.isfinite(sure) & (sure > least))
        return columns[np.argsort(-sure[columns], kind="stable")[:MOST_SAMPLES]]

    def _note(self, x: Any, entry: dict[str, Any], column: int, samples: int, steps: int) -> None:
        """Keep a wrongly classified sample if the network is surer of it than of one that is kept."""
        sure = entry["output"]
        if len(self._wrong) == MOST_SAMPLES and sure <= self._wrong[0][0]:
            return
        sample, step = column % samples, column // samples
        entry |= self._shown(x, sample, step if steps > 1 else None)
        keep = heapq.heappush if len(self._wrong) < MOST_SAMPLES else heapq.heapreplace
        keep(self._wrong, (sure, self._seen * 10_000 + column, entry | {"index": self._seen + sample}))

    def _shown(self, x: Any, sample: int, step: int | None) -> dict[str, Any]:
        """A sample as an image, a text, or its first numbers."""
        first = x[0] if isinstance(x, list | tuple) else x
        if not isinstance(first, Tensor):
            return {}
        batch = first.backend.bsz if first.shape[-1] % first.backend.bsz == 0 else first.shape[-1]
        steps = max(first.shape[-1] // batch, 1)
        values = np.stack([first[:, sample + batch * i].get().reshape(-1) for i in range(steps)], axis=1)
        if self._input_words:
            numbers = values.argmax(axis=0) if steps > 1 and len(values) > 1 else values.reshape(-1).astype(int)
            return {"text": self._text(numbers, step)}
        pixels = None if steps > 1 else _image(values[:, 0], self._shape)
        if pixels is not None:
            return {"pixels": pixels}
        return {"values": [float(value) for value in values.reshape(-1)[:MOST_VALUES]], "size": int(values.size)}

    def _text(self, numbers: np.ndarray, step: int | None) -> str:
        """The words with these numbers up to a step, the last of them."""
        words = [self._input_words.get(int(number), "?") for number in numbers[: None if step is None else step + 1]]
        last = words[-MOST_WORDS:]
        between = "" if all(len(word) == 1 for word in last) else " "
        return ("… " if len(words) > len(last) else "") + between.join(last)

    def name(self, number: int) -> str:
        """Name of a class: the word with its number, or the number."""
        return self._words.get(number, str(number))

    def told(self, ranks: Ranks) -> tuple[np.ndarray | None, list[dict[str, Any]], str]:
        """Counts, wrong samples and the reason of none, of all ranks; all of them have to call this."""
        own = (self._counts, sorted(self._wrong, key=lambda one: one[:2]), self.why, self.crowded)
        everyone = ranks.tell(own, "results")
        counts = [one[0] for one in everyone if one[0] is not None]
        wrong = sorted((entry for one in everyone for entry in one[1]), key=lambda entry: (-entry[0], entry[1]))
        why, crowded = (next((one[i] for one in everyone if one[i]), "") for i in (2, 3))
        samples = [] if why else [entry for _, _, entry in wrong[:MOST_SAMPLES]]
        if ranks.size > 1:
            samples = [{key: value for key, value in entry.items() if key != "index"} for entry in samples]
        return (sum(counts) if counts and not why else None), samples, why or crowded


def _labels(outputs: np.ndarray, given: np.ndarray, width: int) -> np.ndarray | None:
    """Class of each column, -1 for a column of zeros, which counts for nothing; None if targets are not classes.

    ``width`` is the number of columns with those of padding.
    """
    classes = len(outputs)
    if given.size % max(width, 1) or not np.isfinite(given).all():
        return None
    targets = given.reshape(-1, width)[:, : outputs.shape[1]]
    if targets.shape == outputs.shape and classes > 1:
        sums = targets.sum(axis=0)
        is_one_hot = np.isin(targets, (0, 1)).all() and np.isin(sums, (0, 1)).all()
        return np.where(sums > 0, targets.argmax(axis=0), -1) if is_one_hot else None
    if len(targets) != 1:
        return None
    numbers = targets[0].astype(np.int64)
    fits = (numbers == targets[0]).all() and (numbers >= 0).all() and (numbers < max(classes, 2)).all()
    return numbers if fits else None


def _image(values: np.ndarray, shape: Any) -> np.ndarray | None:
    """Pixels (H, W) or (H, W, 3) from 0 to 255; None if the sample is no image.

    A vector of n * n values, n from 8 on, is taken for a square image.
    """
    if isinstance(shape, tuple) and len(shape) == 3 and shape[0] in (1, 3) and math.prod(shape) == values.size:
        channels, height, width = shape
    else:
        edge = math.isqrt(values.size)
        if edge < 8 or edge * edge != values.size or (isinstance(shape, tuple) and len(shape) > 1 and 1 not in shape):
            return None
        channels, height, width = 1, edge, edge
    if min(height, width) < 2:
        return None
    apart = -(-max(height, width) // MOST_PIXELS)
    image = values.astype(np.float64).reshape(channels, height, width)[:, ::apart, ::apart]
    low, high = np.nanmin(image), np.nanmax(image)
    scaled = np.nan_to_num((image - low) / (high - low) if high > low else np.zeros_like(image))
    pixels = np.rint(255 * scaled.clip(0, 1)).astype(np.uint8)
    return np.ascontiguousarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0))


def _words(dataset: DataIterator, *names: str) -> dict[int, str]:
    """Words of a data set of texts by their numbers, from the first of its attributes ``names``; empty for others."""
    for name in names:
        found = getattr(dataset, name, None)
        if isinstance(found, dict):
            return {int(number): str(word) for number, word in found.items()}
    return {}
