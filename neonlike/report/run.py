"""Runs as callbacks recorded them, read from their store or from its file."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neonlike.callbacks.run_record import BENCH, CONFUSION, FACTS, IMAGES, NETWORK, STEP, WRONG
from neonlike.callbacks.store import MARKERS, get_text, means_minibatches
from neonlike.errors import ArgumentError, MissingExtra
from neonlike.visualizations.data import curve, epochs_done

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records

__all__ = ["Run", "RunCurve", "RunHistogram", "read_file", "read_store"]

GROUPS = ("cost", "multicost", "metrics", "rate")
"""Groups of the store with curves."""


class RunCurve(NamedTuple):
    """Values over time; x is in epochs.

    Attributes
    ----------
    group, name : str
        Such as ``cost`` and ``loss``.
    x, y : ndarray
    by_minibatch : bool
        Whether there is a value for each minibatch, of the training data; else one after some epochs.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.report.run import RunCurve
    >>> loss = RunCurve("cost", "loss", np.array([1.0, 2.0]), np.array([0.7, 0.4]), by_minibatch=False)
    >>> float(loss.y.min())
    0.4
    """

    group: str
    name: str
    x: np.ndarray
    y: np.ndarray
    by_minibatch: bool


class RunHistogram(NamedTuple):
    """Counts of magnitudes over time.

    Attributes
    ----------
    name : str
        Layer and attribute.
    counts : ndarray
        ``(bins, steps)``; bin i has magnitudes that round to 2**(offset + i).
    offset : int
    by_minibatch : bool
        Whether a step is a minibatch; else it is an epoch.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.report.run import RunHistogram
    >>> weights = RunHistogram("Linear W", np.array([[5], [90], [5]]), offset=-6, by_minibatch=False)
    >>> most = weights.offset + int(weights.counts[:, 0].argmax())
    >>> f"most magnitudes are near {2.0 ** most}"
    'most magnitudes are near 0.03125'
    """

    name: str
    counts: np.ndarray
    offset: int
    by_minibatch: bool


@dataclass
class Run:
    """A run; what was not recorded is empty.

    Attributes
    ----------
    name : str
    epochs, of_epochs, minibatches : int
        Completed epochs, epochs in total, and completed minibatches.
    curves : list of RunCurve
    histograms : list of RunHistogram
    seconds : float or None
        Time from the start of the training to its end; None if it was not reached.
    facts : dict
        Names and values by topic, see :func:`~neonlike.callbacks.facts.facts_of`.
    network : dict
        ``rows`` of layers and the graph, ``dot``.
    step : dict
        Times and memory of a minibatch, see :class:`~neonlike.callbacks.sampling.StepSampler`.
    bench : dict
        The report of bench mode in JSON.
    confusion : ndarray or None
        Counts (class, answer).
    wrong : dict
        Wrongly classified ``samples``, ``names`` of classes, ``epoch``, and ``why`` there are none.
    images : dict
        Pixels by the number of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, GeneralizedCost
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.report.run import read_store
    >>> from neonlike.transforms import Softmax, CrossEntropyMulti
    >>> be = gen_backend("cpu", batch_size=4)
    >>> train = ArrayIterator(np.eye(4, dtype=np.float32), np.arange(4), nclass=4)
    >>> model = Model(Affine(4, Constant(0.1), activation=Softmax()))
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> model.fit(train, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.0), 3, callbacks)
    >>> run = read_store(callbacks.callback_data, "first try")
    >>> run.name, run.epochs, run.minibatches
    ('first try', 3, 3)
    """

    name: str
    epochs: int = 0
    of_epochs: int = 0
    minibatches: int = 0
    seconds: float | None = None
    curves: list[RunCurve] = field(default_factory=list)
    histograms: list[RunHistogram] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)
    bench: dict[str, Any] = field(default_factory=dict)
    confusion: np.ndarray | None = None
    wrong: dict[str, Any] = field(default_factory=dict)
    images: dict[int, np.ndarray] = field(default_factory=dict)


def require_h5py() -> Any:
    """Return the package h5py.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("reading records needs h5py; install it with: pip install 'neonlike[data]'") from error
    return h5py


def read_file(path: str | os.PathLike[str]) -> Run:
    """Read a file of ``Callbacks(output_file=...)``, also while a training writes to it.

    Parameters
    ----------
    path : path

    Returns
    -------
    Run
        Its name is that of the file.

    Raises
    ------
    OSError
        If the file is missing or cannot be read.
    ArgumentError
        If it is damaged, or another kind of file.
    MissingExtra
        If h5py is not installed.
    """
    h5py = require_h5py()
    # Read as a whole: HDF5 would refuse a file that another process has opened for writing.
    with open(path, "rb") as file:
        content = io.BytesIO(file.read())
    name = os.path.splitext(os.path.basename(os.fspath(path)))[0]
    try:
        with h5py.File(content, "r") as store:
            if "config" not in store:
                raise ArgumentError(
                    f"{path}: this HDF5 file is no record of a run; give one of Callbacks(output_file=...)"
                )
            return read_store(store, name)
    except ArgumentError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"{path}: it is no HDF5 file, or damaged ({error}); give a file that Callbacks(output_file=...) wrote"
        ) from error


def read_store(store: Records, name: str) -> Run:
    """Read the records in a store, which may be in use.

    Parameters
    ----------
    store : h5py.File or MemoryStore
        For example ``callbacks.callback_data``.
    name : str
        Name of the run.

    Returns
    -------
    Run
    """
    markers = np.asarray(store[MARKERS][...]) if MARKERS in store else np.zeros(0)
    epochs = epochs_done(markers)
    config = store["config"].attrs if "config" in store else {}
    run = Run(name, epochs, int(config.get("total_epochs", 0)), int(markers[epochs - 1]) if epochs else 0)
    run.seconds = _seconds(store)
    if epochs:
        run.curves = _curves(store, markers)
        run.histograms = _histograms(store, epochs, run.minibatches)
    run.facts, run.network, run.step = (_json(store, path) for path in (FACTS, NETWORK, STEP))
    run.bench, run.wrong = _json(store, BENCH), _json(store, WRONG)
    if CONFUSION in store:
        run.confusion = np.asarray(store[CONFUSION][...])
    if IMAGES in store:
        run.images = {int(number): np.asarray(pixels[...]) for number, pixels in store[IMAGES].items()}
    return run


def _json(store: Records, path: str) -> dict[str, Any]:
    text = get_text(store, path)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _seconds(store: Records) -> float | None:
    """Duration of the training; None if its end was not recorded."""
    times = store.get("time/train")
    if times is None or "end_time" not in times:
        return None
    seconds = float(times["end_time"][0]) - float(times["start_time"][0])
    return seconds if np.isfinite(seconds) and seconds >= 0 else None


def _curves(store: Records, markers: np.ndarray) -> list[RunCurve]:
    found = []
    for group in GROUPS:
        members: Mapping[str, Any] = store[group] if group in store else {}
        for name, dataset in members.items():
            if not hasattr(dataset, "shape") or "time_markers" not in dataset.attrs:
                continue
            x, y = curve(dataset, markers, True)
            by_minibatch = means_minibatches(dataset.attrs["time_markers"])
            if y.ndim == 1:
                found.append(RunCurve(group, name, x, y, by_minibatch))
            else:
                found += [RunCurve(group, f"{name}, {i}", x, y[:, i], by_minibatch) for i in range(y.shape[1])]
    return found


def _histograms(store: Records, epochs: int, minibatches: int) -> list[RunHistogram]:
    if "hist" not in store:
        return []
    group = store["hist"]
    by_minibatch = means_minibatches(group.attrs.get("time_markers"))
    done, offset = minibatches if by_minibatch else epochs, int(group.attrs["offset"])
    return [RunHistogram(name, counts[...][:, :done], offset, by_minibatch) for name, counts in group.items()]
