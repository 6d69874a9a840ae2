"""Tensors over files: ``be.mapped(path, desc, mode, offset)``.

On the CPU a mapped tensor is the file's memory: pages are read on first use, and writes go to the file. On a GPU it is
a copy in GPU memory, made at once; ``flush()`` and ``close()`` copy it back.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.objects.filemap import Place, mapped_part
from neonlike.backends.objects.protected import Protected, class_over
from neonlike.backends.tensor import put
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError, TensorClosed

MODES = ("r", "r+", "w+")
_OF_MEMORY = ("array", "address", "geometry", "is_contiguous")
"""Attributes of a tensor that locate its elements."""


class Mapped(Protected):
    """A tensor over a part of a file, and read-only views of it.

    ``with be.mapped(path, desc) as t:`` closes it at the end.

    Attributes
    ----------
    path : str
    mode : "r", "r+" or "w+"
    closed : bool
    writeable : bool
    place : Place

    Examples
    --------
    >>> import os, tempfile
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.backends.descriptors import TensorDesc
    >>> be = gen_backend("cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with be.mapped(os.path.join(folder, "t"), TensorDesc((1, 2)), "w+") as t:
    ...         t[:] = 3
    ...         t.flush()
    ...         t.tolist(), t.writeable
    ([[3.0, 3.0]], True)
    """

    place: Place
    path: str = ""
    mode: str = "r"
    closed: bool = False
    _file: Any = None

    def flush(self) -> None:
        """Write all changes to the file, copied from the GPU first if necessary.

        Raises
        ------
        TensorClosed
            If the tensor was closed.
        """
        self._require_open("flush")
        if self.mode != "r" and self._file is not None:
            if not self.live_host:
                self._file[...] = self.get()
            self._file.flush()

    def close(self) -> None:
        """Flush, and release the tensor's memory: any later use of the tensor raises TensorClosed.

        Views of it and arrays over its memory remain usable; the file stays mapped as long as there are any. Repeated
        calls are allowed.
        """
        if self.closed:
            return
        self.flush()
        for name in _OF_MEMORY:
            with contextlib.suppress(AttributeError):
                object.__delattr__(self, name)
        put(self, "closed", True)
        put(self, "_file", None)

    def __enter__(self) -> Mapped:
        self._require_open("with")
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.path}, closed>" if self.closed else super().__repr__()

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        """Raise an error for attributes that are gone after closing."""
        if name in _OF_MEMORY:
            self._require_open("use of the tensor")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _require_open(self, operation: str) -> None:
        if self.closed:
            raise TensorClosed(f"{operation}: the tensor over {self.path} was closed; map the file again: be.mapped")

    # Protection, and tensors that share a file

    def keeps(self, array: Any) -> bool:
        """Whether a view is read-only as well, or may be in a file mapped twice."""
        return not self.writeable or self.place.again

    def reason(self) -> str:
        """Reason for the protection: the file was mapped for reading."""
        return (
            f"the tensor over {self.path} must not be written; map the file with mode 'r+', or write to a copy: "
            "t.copy()"
        )

    def _make_view(self, array: Any) -> Any:
        view = super()._make_view(array)
        if view.__class__ is self.__class__:
            put(view, "path", self.path)
            put(view, "place", self.place)
        return view


def map_file(be: Any, path: Any, desc: TensorDesc, mode: str, offset: int) -> Any:
    """See ``DescribedFamily.mapped``.

    Parameters
    ----------
    be : Backend
    path, desc, mode, offset
        As of ``DescribedFamily.mapped``.
    """
    name = _checked(path, desc, mode, offset)
    file, place = mapped_part(name, desc.dtype, desc.shape, mode, offset)
    kind = class_over(Mapped, be.tensor_cls)
    if be.tensor_cls.live_host:
        made = kind(be, file.view(np.ndarray), owned=False)
    else:
        made = kind(be, be.fresh(desc.shape, desc.dtype).array)
        made.set(file)
    put(made, "path", name)
    put(made, "mode", mode)
    put(made, "_file", file)
    put(made, "place", place)
    put(made, "writeable", mode != "r")
    made.desc = desc
    return made


def _checked(path: Any, desc: TensorDesc, mode: Any, offset: int) -> str:
    """Check all arguments and return the path."""
    name = os.fsdecode(path)
    if mode not in MODES:
        raise ArgumentError(f"mapped: mode must be 'r' (read), 'r+' (read, write) or 'w+' (new), got {brief(mode)}")
    if "\0" in name:
        raise ArgumentError(f"mapped: {brief(name)} is no path")
    itemsize = desc.dtype.itemsize
    if offset < 0 or offset % itemsize:
        raise ArgumentError(
            f"mapped: offset must be a multiple of {itemsize}, the bytes of {desc.dtype.name}, got {offset}"
        )
    if not desc.size:
        raise ShapeError(f"mapped: a tensor of shape {desc.shape} has no elements that could be mapped")
    end = offset + desc.nbytes
    if mode == "r" and os.path.getsize(name) < end:
        raise ShapeError(
            f"mapped: {name} has {os.path.getsize(name)} bytes, {desc.shape} of {desc.dtype.name} from {offset} on "
            f"ends at {end}"
        )
    return name
