"""Batches read on demand from an HDF5 file, for data sets larger than memory.

The file has a dataset ``input`` of shape ``(ndata, features)`` with the attribute ``lshape``, the shape of a sample.
Optional datasets are ``output``, ``(ndata, k)``, and ``mean``, which is subtracted from inputs and has the size of a
sample or one value per channel.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neonlike.data.protocol import (
    CyclicIterator,
    DamagedData,
    HostIterator,
    MissingData,
    check_labels,
    columns,
    need_h5py,
    warn_of_rounding,
)
from neonlike.errors import MissingArgument, ShapeError
from neonlike.optree.functions import onehot
from neonlike.util.persist import expand

__all__ = ["HDF5Iterator", "HDF5IteratorAutoencoder", "HDF5IteratorOneHot"]


class HDF5Iterator(HostIterator, CyclicIterator):
    """Batches from an HDF5 file: inputs, with the dataset ``output`` as targets (None if it is missing).

    The last batch of an epoch is completed with the first samples, and the next epoch starts after them. Each of
    several ranks reads its rows of the file alone.

    Parameters
    ----------
    hdf_filename : path
        File with the datasets ``input``, with the attribute ``lshape``, and ``output``; and optionally ``mean``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    shape : tuple
        Shape of a sample, the attribute ``lshape`` of the inputs.
    inpbuf, outbuf, mean : Tensor or None
        ``(features, N)``, ``(k, N)`` and ``(features, 1)`` or ``(channels, 1)``; None until :meth:`allocate`.

    Raises
    ------
    MissingData
        If the file does not exist; an ``IOError``.
    DamagedData
        If it is not an HDF5 file, or incomplete; an ``IOError``.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import h5py
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import HDF5Iterator
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.h5")
    >>> with h5py.File(path, "w") as file:
    ...     file["input"], file["output"] = np.arange(4.0).reshape(4, 1), np.arange(4.0).reshape(4, 1) ** 2
    ...     file["input"].attrs["lshape"] = (1,)
    >>> data = HDF5Iterator(path)
    >>> [(x.tolist(), t.tolist()) for x, t in data]
    [([[0.0, 1.0]], [[0.0, 1.0]]), ([[2.0, 3.0]], [[4.0, 9.0]])]
    >>> data.cleanup()
    >>> folder.cleanup()
    """

    from_description = False  # construction opens a file
    shares = True

    def __init__(self, hdf_filename: str | os.PathLike[str], name: str | None = None) -> None:
        super().__init__(name=name)
        self.hdf_filename = os.fspath(hdf_filename)
        path = expand(hdf_filename)
        if not os.path.isfile(path):
            raise MissingData(f"{self.classnm}: there is no file {path}")
        self.hdf_file: Any = None
        h5py = need_h5py(self.classnm, path)
        try:
            self.hdf_file = h5py.File(path, "r")
        except OSError as error:
            raise DamagedData(f"{self.classnm}: {path} is no HDF5 file, or not a whole one ({error})") from error
        try:
            self._look_into()
        except BaseException:
            self.cleanup()
            raise
        self.inpbuf: Any = None
        self.outbuf: Any = None
        self.mean: Any = None
        self._warned = False

    def _look_into(self) -> None:
        self.inp = self._dataset("input")
        if self.inp is None or "lshape" not in self.inp.attrs:
            raise DamagedData(
                f"{self.classnm}: {self.hdf_filename} has no dataset 'input' with an attribute 'lshape', the shape of "
                "a sample"
            )
        self.out = self._dataset("output")
        self.lshape = self.shape = tuple(int(size) for size in np.ravel(self.inp.attrs["lshape"]))
        self.ndata, self.features = len(self.inp), math.prod(self.inp.shape[1:])
        if math.prod(self.lshape) != self.features:
            raise ShapeError(
                f"{self.classnm}: lshape={self.lshape} has {math.prod(self.lshape)} elements, but a sample of 'input' "
                f"has {self.features}"
            )
        if self.out is not None and len(self.out) != self.ndata:
            raise ShapeError(f"{self.classnm}: 'input' has {self.ndata} samples but 'output' has {len(self.out)}")
        self._host_mean = self._read_mean()

    def _dataset(self, name: str) -> Any:
        found = self.hdf_file.get(name)
        return found if getattr(found, "ndim", 0) else None

    def _read_mean(self) -> np.ndarray | None:
        """Mean of each feature or channel, in a column."""
        if "mean" not in self.hdf_file:
            return None
        mean = np.asarray(self.hdf_file["mean"][()]).reshape(-1, 1)
        if mean.size in (self.features, self.lshape[0]):
            return mean
        raise ShapeError(
            f"{self.classnm}: 'mean' has {mean.size} elements; expected {self.features}, or {self.lshape[0]}, one for "
            "each channel"
        )

    # -- buffers -------------------------------------------------------------------------------------------

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        self._check_size(self.ndata)
        self.allocate_inputs()
        self.allocate_outputs()
        self._dtypes = self.inpbuf.dtype, self._output_dtype()
        if self._host_mean is not None:
            self.mean = self.be.array(self._host_mean)
            self._centred = self.inpbuf.reshape((self._host_mean.size, self.inpbuf.size // self._host_mean.size))

    def allocate_inputs(self) -> None:
        """Allocate the input buffer."""
        self.inpbuf = self.be.iobuf(self.features)

    def allocate_outputs(self) -> None:
        """Allocate the target buffer."""
        if self.out is not None:
            self.outbuf = self.be.iobuf(math.prod(self.out.shape[1:]))

    def _output_dtype(self) -> Any:
        """Dtype in which the thread reads targets; None: the file's dtype."""
        return None if self.outbuf is None else self.outbuf.dtype

    def gen_input(self, mb: np.ndarray) -> Any:
        """Copy the inputs of a minibatch ``(N, features)`` to the backend."""
        self.inpbuf.set(columns(mb, self.inpbuf.dtype))
        if self.mean is not None:
            self._centred[:] = self._centred - self.mean
        return self.inpbuf

    def gen_output(self, mb: Any) -> Any:
        """Copy the targets of a minibatch ``(N, k)`` of the dataset ``output`` to the backend, or return None."""
        if mb is None:
            return None
        self.outbuf.set(columns(mb, self.outbuf.dtype))
        return self.outbuf

    # -- batches -------------------------------------------------------------------------------------------

    def host_batches(self) -> Iterator[Any]:
        """Minibatches of ``input`` and ``output`` (or None), samples in rows."""
        for first in self._firsts():
            # Copies to the backend need columns in its dtype: they are converted here, possibly in another thread.
            inputs = self._converted(self.inp, first, self._dtypes[0])
            yield inputs, None if self.out is None else self._converted(self.out, first, self._dtypes[1])

    def _converted(self, dataset: Any, first: int, dtype: Any) -> np.ndarray:
        read = self._read(dataset, first)
        converted = columns(read, dtype).T
        if not self._warned:
            self._warned = warn_of_rounding(self.classnm, read.reshape(converted.shape), converted)
        return converted

    def _read(self, dataset: Any, first: int) -> np.ndarray:
        try:
            parts = [dataset[samples] for _, samples in self._pieces(first)]
        except (OSError, ValueError, RuntimeError) as error:
            raise DamagedData(f"{self.name}: cannot read {dataset} of {self.hdf_filename}: {error}") from error
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def send_ahead(self, batch: Any, send: Callable[[Any], Any]) -> Any:
        """Start copying inputs to a GPU before :meth:`load`, unless a subclass transforms them."""
        if type(self).gen_input is not HDF5Iterator.gen_input:
            return batch
        return send(batch[0].T).T, batch[1]

    def load(self, batch: Any) -> tuple[Any, Any]:
        """Inputs and targets on the backend."""
        return self.gen_input(batch[0]), self.gen_output(batch[1])

    def batch_begins(self, number: int) -> None:
        """End the epoch after its last batch."""
        self._begin(self.start + number * self._batch_size())

    def cleanup(self) -> None:
        """Close the file."""
        if self.hdf_file is not None:
            self.hdf_file.close()


class HDF5IteratorOneHot(HDF5Iterator):
    """:class:`HDF5Iterator` for labels: ``output`` holds integers and has an attribute ``nclass``.

    Parameters
    ----------
    hdf_filename : path
        File as of :class:`HDF5Iterator`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    nclass : int
        Number of classes.

    Raises
    ------
    MissingArgument
        If there are no labels, or no ``nclass``; an ``AssertionError``.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import h5py
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import HDF5IteratorOneHot
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.h5")
    >>> with h5py.File(path, "w") as file:
    ...     file["input"], file["output"] = np.zeros((2, 1)), np.array([[0], [2]])
    ...     file["input"].attrs["lshape"], file["output"].attrs["nclass"] = (1,), 3
    >>> data = HDF5IteratorOneHot(path)
    >>> [t.tolist() for x, t in data]
    [[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    >>> data.cleanup()
    >>> folder.cleanup()
    """

    def _look_into(self) -> None:
        super()._look_into()
        if self.out is None or "nclass" not in self.out.attrs:
            raise MissingArgument(
                f"{self.classnm}: {self.hdf_filename} has no dataset 'output' with an attribute 'nclass', the number "
                "of classes"
            )
        self.nclass = int(np.ravel(self.out.attrs["nclass"])[0])
        if math.prod(self.out.shape[1:]) != 1:
            raise ShapeError(f"{self.classnm}: 'output' has shape {self.out.shape}; labels are (ndata, 1)")

    def allocate_outputs(self) -> None:
        """Allocate the buffers of labels and of one-hot targets."""
        self._labels = self.be.iobuf(1, dtype=np.int32)
        self.outbuf = self.be.iobuf(self.nclass)

    def _output_dtype(self) -> Any:
        return None  # labels keep the file's dtype until they are checked

    def gen_output(self, mb: Any) -> Any:
        """Convert labels ``(N, 1)`` to one-hot targets on the backend.

        Raises
        ------
        ArgumentError
            If a label is not an integer from 0 to nclass−1.
        """
        check_labels(f"{self.name}, {self.hdf_filename}", mb, self.nclass)
        self._labels.set(columns(mb, np.int32))
        self.outbuf[:] = onehot(self._labels, 0, self.be, checked=False)
        return self.outbuf


class HDF5IteratorAutoencoder(HDF5Iterator):
    """:class:`HDF5Iterator` with the inputs as targets.

    Parameters
    ----------
    hdf_filename : path
        File as of :class:`HDF5Iterator`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> import os
    >>> import tempfile
    >>> import h5py
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import HDF5IteratorAutoencoder
    >>> be = gen_backend("cpu", batch_size=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.h5")
    >>> with h5py.File(path, "w") as file:
    ...     file["input"] = np.array([[1.0], [2.0]])
    ...     file["input"].attrs["lshape"] = (1,)
    >>> data = HDF5IteratorAutoencoder(path)
    >>> [(x.tolist(), t.tolist()) for x, t in data]
    [([[1.0, 2.0]], [[1.0, 2.0]])]
    >>> data.cleanup()
    >>> folder.cleanup()
    """

    def _look_into(self) -> None:
        super()._look_into()
        self.out = None

    def gen_output(self, mb: Any) -> Any:
        """Copy the inputs to the backend."""
        return self.inpbuf
