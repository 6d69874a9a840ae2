"""Storage for the records of callbacks: an HDF5 file, or the same interface in memory.

The layout (paths, sizes, attributes) is neon's, for compatibility with tools that read neon's metric files. h5py is
needed only for files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.errors import ArgumentError, MissingExtra, NeonlikeError
from neonlike.optree.dtypes import BFLOAT16, bfloat16
from neonlike.util.interrupts import InterruptGuard
from neonlike.util.persist import ensure_dirs_exist, expand

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records

MARKERS = "time_markers/minibatch"
"""Dataset with the cumulative number of minibatches at the end of each epoch."""
EPOCHS = "epochs/"
"""Prefix of the path of a dataset that lists the epochs of another dataset's values."""


class MissingRecord(NeonlikeError, KeyError):
    """No record exists under a path."""

    __str__ = Exception.__str__  # KeyError would show a repr


class MemoryDataset:
    """An array with attributes, like h5py's Dataset.

    Parameters
    ----------
    shape : tuple of int
        Shape of a new array; not used with ``data``.
    dtype : dtype, optional
        float32 by default, or that of ``data``.
    data : array, optional
        The values, which are copied.
    fillvalue : float
        Value of all elements of a new array.
    """

    def __init__(self, shape: Any, dtype: Any = None, data: Any = None, fillvalue: Any = 0) -> None:
        dtype = np.float32 if dtype is None and data is None else dtype
        self.values = np.full(shape, fillvalue, dtype) if data is None else np.array(data, dtype)
        self.attrs: dict[str, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the array."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.values.ndim

    @property
    def size(self) -> int:
        """Number of values."""
        return self.values.size

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index].copy()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)


class MemoryGroup:
    """Named groups and datasets with attributes, like h5py's Group; names may be paths with slashes."""

    def __init__(self) -> None:
        self.children: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}

    def create_group(self, path: str) -> MemoryGroup:
        """Create a group and its parent groups."""
        group, name = self._parent(path)
        if name in group.children:
            raise ValueError(f"create_group: {path!r} exists already")
        made = group.children[name] = MemoryGroup()
        return made

    def require_group(self, path: str) -> Any:
        """The group at a path, created if missing."""
        return self[path] if path in self else self.create_group(path)

    def create_dataset(
        self, path: str, shape: Any = None, dtype: Any = None, data: Any = None, fillvalue: Any = 0, **storage: Any
    ) -> MemoryDataset:
        """Create a dataset (float32 by default) and its parent groups; storage options are ignored.

        Parameters
        ----------
        path : str
            Path below the group, with slashes.
        shape, dtype, data, fillvalue
            As of :class:`MemoryDataset`.
        """
        group, name = self._parent(path)
        if name in group.children:
            raise ValueError(f"create_dataset: {path!r} exists already")
        made = group.children[name] = MemoryDataset(shape, dtype, data, fillvalue)
        return made

    def _parent(self, path: str) -> tuple[MemoryGroup, str]:
        *folders, name = path.strip("/").split("/")
        group = self
        for folder in folders:
            group = group.children.setdefault(folder, MemoryGroup())
        return group, name

    def _find(self, path: str) -> Any:
        found: Any = self
        for name in path.strip("/").split("/"):
            found = found.children.get(name) if isinstance(found, MemoryGroup) else None
        return found

    def __contains__(self, path: str) -> bool:
        return self._find(path) is not None

    def __getitem__(self, path: str) -> Any:
        if (found := self._find(path)) is None:
            raise MissingRecord(f"no group or dataset {path!r}; there are {sorted(self.children)}")
        return found

    def __setitem__(self, path: str, data: Any) -> None:
        self.create_dataset(path, data=data)

    def get(self, path: str, default: Any = None) -> Any:
        """The group or dataset at a path, or ``default``."""
        return self[path] if path in self else default

    def visititems(self, visit: Callable[[str, Any], Any]) -> Any:
        """Call ``visit(path, item)`` for everything below this group, until a call returns anything but None."""
        return next((found for path, item in self._below("") if (found := visit(path, item)) is not None), None)

    def _below(self, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in self.items():
            yield prefix + name, item
            if isinstance(item, MemoryGroup):
                yield from item._below(f"{prefix}{name}/")

    def __delitem__(self, path: str) -> None:
        if path not in self:
            raise KeyError(f"no group or dataset {path!r}")
        group, name = self._parent(path)
        del group.children[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.children))  # h5py's order

    def __len__(self) -> int:
        return len(self.children)

    def keys(self) -> list[str]:
        """Names of the direct members."""
        return list(self)

    def items(self) -> list[tuple[str, Any]]:
        """Names and values of the direct members."""
        return [(name, self.children[name]) for name in self]

    def values(self) -> list[Any]:
        """Values of the direct members."""
        return [self.children[name] for name in self]


class MemoryStore(MemoryGroup):
    """The root group in memory; it stays readable after training.

    Examples
    --------
    >>> from neonlike.callbacks.store import MemoryStore
    >>> store = MemoryStore()
    >>> costs = store.create_dataset("cost/train", (3,))
    >>> costs[0] = 1.5
    >>> store["cost/train"][...].tolist(), store.keys()
    ([1.5, 0.0, 0.0], ['cost'])
    """

    filename = None

    def flush(self) -> None:
        """Do nothing: there is no file."""

    def close(self) -> None:
        """Do nothing: there is no file."""


def open_store(output_file: str | os.PathLike[str] | None, mode: str = "w") -> Any:
    """Open a new HDF5 file, or a store in memory if ``output_file`` is None.

    The folder is created, and an existing file is replaced.

    Raises
    ------
    MissingExtra
        If a file is requested and h5py is not installed.
    """
    if output_file is None:
        return MemoryStore()
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra(
            f"Callbacks: output_file={os.fspath(output_file)!r} needs h5py to write HDF5; "
            "install it with: pip install 'neonlike[data]'"
        ) from error
    path = os.path.realpath(expand(output_file))
    with InterruptGuard():  # h5py creates objects with weak references here
        kept = None
        if mode == "w":
            ensure_dirs_exist(path)
            if os.path.lexists(path) and not os.path.isfile(path):
                raise ArgumentError(f"Callbacks: output_file={path} is no file; HDF5 is written to files alone")
            if os.path.isfile(path):
                # HDF5 does not overwrite an open file, and an interrupted training in a notebook leaves its file open.
                kept = stat.S_IMODE(os.stat(path).st_mode)
                os.unlink(path)
        opened = h5py.File(path, mode)
        if kept is not None:
            os.chmod(path, kept)
        return opened


def new_dataset(
    store: Records,
    path: str,
    shape: tuple[int, ...],
    dtype: Any = "float32",
    unknown: float | None = None,
    **attrs: Any,
) -> Any:
    """Create a dataset with attributes; one from an earlier training is enlarged and keeps its values.

    Parameters
    ----------
    store : h5py.File or MemoryStore
        The records of the training.
    path : str
        Path of the dataset.
    shape : tuple of int
        Its shape.
    dtype : dtype
        Its dtype.
    unknown : float, optional
        Value where there is none yet; by default nan in float datasets, and 0 in others and in markers.
    **attrs
        Its attributes.
    """
    old = store[path][...] if path in store else None
    if old is not None:
        del store[path]
    if unknown is None:
        unknown = np.nan if np.dtype(dtype).kind == "f" and path != MARKERS else 0
    made = store.create_dataset(path, shape, dtype=dtype, fillvalue=unknown)
    if old is not None:
        restore(store, {path: old})
    for name, value in attrs.items():
        made.attrs[name] = value
    return made


def epoch_dataset(
    store: Records,
    path: str,
    epochs: Sequence[int],
    epoch_freq: Any,
    done: int | None = None,
    more: tuple[Any, Any] | None = None,
) -> Any:
    """Create a dataset with a value for each of ``epochs``, and a second one that lists the epochs.

    Values of an earlier training, in the store or in ``more`` (epochs, values), keep their epochs, which are added if
    missing from the new ones. Values from epoch ``done`` on are dropped, because these epochs are trained again.

    Parameters
    ----------
    store : h5py.File or MemoryStore
        The records of the training.
    path : str
        Path of the dataset.
    epochs : sequence of int
        Epochs that get a value.
    epoch_freq : int or list of int
        Frequency of the callback, the attribute ``epoch_freq`` of the dataset.
    done : int, optional
        Number of epochs already trained.
    more : pair of ndarray, optional
        Epochs and values of an earlier training.
    """
    known = {}
    if path in store and EPOCHS + path in store:
        known = dict(zip(store[EPOCHS + path][...].tolist(), store[path][...], strict=True))
    if more is not None:
        known |= dict(zip(more[0].tolist(), more[1], strict=True))
    known = {at: value for at, value in known.items() if not np.isnan(value) and (done is None or at < done)}
    every = sorted({*map(int, epochs), *known})
    for name in (path, EPOCHS + path):
        if name in store:
            del store[name]
    values = np.array([known.get(epoch, np.nan) for epoch in every], np.float32)
    made = store.create_dataset(path, data=values, dtype="float32")
    made.attrs["time_markers"] = "epoch_freq"
    made.attrs["epoch_freq"] = epoch_freq if every == [*epochs] else np.array(every, np.int64)
    store.create_dataset(EPOCHS + path, data=np.array(every, np.int32), dtype="int32")
    return made


class Steps:
    """Writer for a dataset step by step, equivalent to ``dataset[step] = value`` or ``dataset[:, step] = value``.

    Indexing creates a dozen h5py objects per step, which is slow; and Python loses a Ctrl-C in the callbacks of their
    weak references. This class creates them once.

    Parameters
    ----------
    dataset : h5py.Dataset or MemoryDataset
        The dataset, ``(steps,)`` or of two axes.
    axis : int
        The axis of the steps, 0 or 1.
    """

    def __init__(self, dataset: Any, axis: int = 0) -> None:
        self._values = dataset.values if isinstance(dataset, MemoryDataset) else None
        self._axis = axis
        self._steps = int(dataset.shape[axis])
        if self._values is not None:
            return
        import h5py

        self._count = tuple(1 if i == axis else n for i, n in enumerate(dataset.shape))
        self._step = np.empty(self._count, dataset.dtype)
        self._dataset = dataset.id
        self._in_file = dataset.id.get_space()
        self._in_memory = h5py.h5s.create_simple(self._count)
        self._type = h5py.h5t.py_create(dataset.dtype)

    def __setitem__(self, step: int, value: Any) -> None:
        if step >= self._steps:
            raise ArgumentError(
                f"Callbacks: minibatch {step + 1} of a training of {self._steps}: the data iterator yields more than "
                "its nbatches and ndata say; correct nbatches"
            )
        if self._values is not None:
            self._values[(slice(None),) * self._axis + (step,)] = value
            return
        self._step[...] = np.reshape(value, self._count) if np.ndim(value) else value
        start = tuple(step if i == self._axis else 0 for i in range(len(self._count)))
        self._in_file.select_hyperslab(start, self._count)
        self._dataset.write(self._in_memory, self._in_file, self._step, self._type)


def records(store: Records, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Map each dataset of numbers of a store by its path, except for the groups ``without``.

    Texts, which callbacks of a program may record, are not resumed and stay where they are.
    """
    found: dict[str, np.ndarray] = {}

    def visit(path: str, item: Any) -> None:
        if not hasattr(item, "shape") or path.split("/")[0] in without:
            return
        if item.dtype.kind in "biuf" or item.dtype.name == BFLOAT16:
            found[path] = item[...]
        elif item.dtype == np.dtype("V2"):  # HDF5 has no name for bfloat16
            found[path] = item[...].view(bfloat16())

    store.visititems(visit)
    return found


def restore(store: Records, saved: dict[str, np.ndarray]) -> None:
    """Write the result of :func:`records` into datasets of the same paths, as far as they reach; by epoch if listed."""
    for path, values in saved.items():
        if path not in store or not isinstance(values, np.ndarray) or path.startswith(EPOCHS):
            continue
        named = saved.get(EPOCHS + path)
        if isinstance(named, np.ndarray) and named.shape == values.shape and EPOCHS + path in store:
            freq = store[path].attrs["epoch_freq"]
            epoch_dataset(store, path, store[EPOCHS + path][...].tolist(), freq, more=(named, values))
            continue
        dataset = store[path]
        if hasattr(dataset, "shape") and len(dataset.shape) == values.ndim:
            common = tuple(slice(0, min(a, b)) for a, b in zip(dataset.shape, values.shape, strict=True))
            dataset[common] = values[(*common, ...)]


def set_text(store: Records, path: str, text: str) -> None:
    """Store a text, in place of an earlier one."""
    if path in store:
        del store[path]
    store.create_dataset(path, data=np.frombuffer(text.encode(), np.uint8))


def get_text(store: Records, path: str) -> str:
    """The text stored by :func:`set_text`; empty if there is none."""
    found = store.get(path)
    return "" if found is None else np.asarray(found[...]).tobytes().decode()


def means_minibatches(time_markers: Any) -> bool:
    """Whether this value of an attribute ``time_markers``, text or bytes, denotes a record by minibatch."""
    return time_markers in ("minibatch", b"minibatch")


def first_minibatch(store: Records, epoch: int) -> int:
    """Number of minibatches in all epochs before ``epoch``."""
    return int(store[MARKERS][epoch - 1]) if epoch > 0 else 0
