"""Plot data from the HDF5 files of callbacks (``Callbacks(output_file=...)``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.callbacks.store import MARKERS, means_minibatches
from neonlike.checks import shown
from neonlike.errors import ArgumentError, MissingExtra

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Record

__all__ = [
    "convert_rgb_to_bokehrgba",
    "create_epoch_x",
    "create_minibatch_x",
    "h5_cost_data",
    "h5_deconv_data",
    "h5_hist_data",
]

Path = str | os.PathLike[str]
Curve = tuple[str, np.ndarray, np.ndarray]
Histogram = tuple[str, np.ndarray, int, int, int, int]
Picture = tuple[int, np.ndarray, np.ndarray]


@contextmanager
def _opened(filename: Path) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra(
            "reading files of metrics needs h5py; install it with: pip install 'neonlike[data]'"
        ) from error
    with h5py.File(filename, "r") as file:
        if "config" not in file:
            raise ArgumentError(f"{filename}: not written by Callbacks(output_file=...): it has no group 'config'")
        yield file


def create_minibatch_x(minibatches: int, minibatch_markers: Any, epoch_axis: bool) -> np.ndarray:
    """Axis positions of minibatch values: minibatch b of n in epoch e at e + b/n, or at its number.

    Parameters
    ----------
    minibatches : int
        Number of values.
    minibatch_markers : array
        Number of minibatches up to the end of each epoch, see ``time_markers/minibatch``.
    epoch_axis : bool
        Use units of epochs, not of minibatches.

    Examples
    --------
    >>> from neonlike.visualizations.data import create_minibatch_x
    >>> create_minibatch_x(4, [2, 4], epoch_axis=True).tolist()
    [0.0, 0.5, 1.0, 1.5]
    """
    numbers = np.arange(minibatches, dtype=np.float64)
    if not epoch_axis:
        return numbers
    ends = _ends(minibatch_markers)
    epochs = np.searchsorted(ends, numbers, side="right")
    starts, sizes = _starts_and_sizes(ends)
    return np.asarray(epochs + (numbers - starts[epochs]) / sizes[epochs])


def create_epoch_x(points: int, epoch_freq: Any, minibatch_markers: Any, epoch_axis: bool) -> np.ndarray:
    """Axis positions of epoch values: the last minibatch of each epoch.

    Parameters
    ----------
    points : int
        Number of values.
    epoch_freq : int or list of int
        Interval in epochs between values, or a list of the epochs.
    minibatch_markers, epoch_axis
        See :func:`create_minibatch_x`.

    Examples
    --------
    >>> from neonlike.visualizations.data import create_epoch_x
    >>> create_epoch_x(2, 1, [2, 4], epoch_axis=True).tolist()
    [0.5, 1.5]
    """
    if np.ndim(epoch_freq) == 0:
        epochs = (np.arange(points) + 1) * max(1, abs(int(epoch_freq))) - 1
    else:
        epochs = np.sort(np.asarray(epoch_freq, dtype=int))[:points]
    ends = _ends(minibatch_markers)
    known = np.minimum(epochs, len(ends) - 1)
    if not epoch_axis:
        return np.asarray(np.maximum(ends[known] - 1, 0), dtype=np.float64)
    _, sizes = _starts_and_sizes(ends)
    return np.asarray(epochs + 1 - 1 / np.maximum(sizes[known], 1))


def epochs_done(minibatch_markers: Any) -> int:
    """Number of completed epochs: those up to the last with a marker, since a record may begin in a later epoch."""
    marked = np.flatnonzero(np.asarray(minibatch_markers))
    return int(marked[-1]) + 1 if len(marked) else 0


def _ends(minibatch_markers: Any) -> np.ndarray:
    """The markers as integers, without the zeros of epochs that were not reached."""
    ends = np.asarray(minibatch_markers, dtype=np.int64)
    ends = ends[: epochs_done(ends)]
    if not len(ends):
        raise ArgumentError("there is nothing to plot: no epoch was completed")
    return np.asarray(ends)


def _starts_and_sizes(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First minibatch and number of minibatches of each epoch; an incomplete epoch counts as long as the last."""
    sizes = np.diff(ends, prepend=0)
    return np.concatenate([ends - sizes, ends[-1:]]), np.concatenate([sizes, sizes[-1:]])


def h5_cost_data(filename: Path, epoch_axis: bool = True) -> list[Curve]:
    """Curves of the costs in a file, up to the last record.

    Parameters
    ----------
    filename : path
        HDF5 file of ``Callbacks(output_file=...)``.
    epoch_axis : bool
        Whether x is in epochs, not in minibatches.

    Returns
    -------
    list of (name, x, y)
        ``train``, and with an evaluation set ``loss``.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> from neonlike.visualizations.data import h5_cost_data
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.h5")
    >>> callbacks = Callbacks(model, output_file=path, progress_bar=False)
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> [(name, x.tolist(), y[:2].tolist()) for name, x, y in h5_cost_data(path)]
    [('train', [0.0, 0.5, 1.0, 1.5], [0.5, 0.265625])]
    >>> folder.cleanup()
    """
    with _opened(filename) as file:
        markers = file[MARKERS][...]
        return [(name, *curve(dataset, markers, epoch_axis)) for name, dataset in file.get("cost", {}).items()]


def curve(dataset: Record, markers: np.ndarray, epoch_axis: bool) -> tuple[np.ndarray, np.ndarray]:
    """Axis positions and values of a dataset, up to the last completed epoch.

    Raises
    ------
    ArgumentError
        If no epoch was completed.
    """
    y = dataset[...]
    done = int(_ends(markers)[-1])
    if means_minibatches(dataset.attrs["time_markers"]):
        y = y[:done]
        return create_minibatch_x(len(y), markers, epoch_axis), y
    epoch_freq = dataset.attrs.get("epoch_freq", 1)
    epochs = epochs_done(markers)
    reached = epochs // abs(int(epoch_freq)) if np.ndim(epoch_freq) == 0 else np.sum(np.asarray(epoch_freq) < epochs)
    y = y[: int(reached)]
    return create_epoch_x(len(y), epoch_freq, markers, epoch_axis), y


def h5_hist_data(filename: Path, epoch_axis: bool = True) -> list[Histogram]:
    """Histograms of layer attributes in a file.

    Parameters
    ----------
    filename : path
        HDF5 file of ``Callbacks(output_file=...)``.
    epoch_axis : bool
        Whether x is in epochs, not in minibatches.

    Returns
    -------
    list of (name, counts, dh, dw, bins, offset)
        ``counts`` has shape (bins, steps); ``dh`` and ``dw`` are the extents of its picture, in bins and in epochs (or
        minibatches); the first bin holds magnitudes of 2**offset.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> from neonlike.visualizations.data import h5_hist_data
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.h5")
    >>> callbacks = Callbacks(model, output_file=path, progress_bar=False)
    >>> callbacks.add_hist_callback()
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> [counts.shape for name, counts, *rest in h5_hist_data(path)]  # bins, epochs
    [(64, 2)]
    >>> folder.cleanup()
    """
    with _opened(filename) as file:
        group, config = file.get("hist"), file["config"].attrs
        if group is None:
            return []
        bins, offset = int(group.attrs["bins"]), int(group.attrs["offset"])
        width = int(config["total_epochs" if epoch_axis else "total_minibatches"])
        return [(name, counts[...], bins, width, bins, offset) for name, counts in group.items()]


def h5_deconv_data(filename: Path) -> list[tuple[str, list[Picture]]]:
    """Pictures of feature-map responses in a file of ``DeconvCallback``.

    Parameters
    ----------
    filename : path
        HDF5 file of ``Callbacks(output_file=...)``.

    Returns
    -------
    list of (layer, pictures)
        ``pictures`` is a list of (feature map, image, response): uint8 arrays ``(H, W, C)`` of the image with the map's
        strongest response, and of the pixels that cause it.
    """
    found = []
    with _opened(filename) as file:
        group = file.get("deconv")
        for name, layer in group["max_act"].items() if group is not None else ():
            pictures: list[Picture] = []
            for i, (batch, index) in enumerate(layer["batch_img"][...].astype(int)):
                images = group[f"img/batch_{batch}/HWC_uint8"]
                place = list(images.attrs["images"]).index(index)
                pictures.append((i, images[..., place], layer["vis"][i]))
            found.append((name, pictures))
    return found


def convert_rgb_to_bokehrgba(img_data: np.ndarray, downsample: int = 1) -> np.ndarray:
    """Convert a picture to bokeh's format: ``(H, W)`` of uint32, opaque, last row first.

    Parameters
    ----------
    img_data : ndarray
        uint8, ``(H, W, 3)``.
    downsample : int
        Interval between the rows and columns to keep.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.visualizations.data import convert_rgb_to_bokehrgba
    >>> convert_rgb_to_bokehrgba(np.zeros((4, 6, 3), dtype=np.uint8)).shape
    (4, 6)
    """
    fits = isinstance(img_data, np.ndarray) and img_data.dtype == np.uint8 and img_data.ndim == 3
    if not fits or img_data.shape[2] != 3:
        raise ArgumentError(f"convert_rgb_to_bokehrgba: expected uint8 of shape (H, W, 3), got {shown(img_data)}")
    picture = img_data[::-1][::downsample, ::downsample]
    opaque = np.full((*picture.shape[:2], 1), 255, dtype=np.uint8)
    return np.ascontiguousarray(np.concatenate([picture, opaque], axis=2)).view(np.uint32)[..., 0]
